//! Numerical core of `dpsvm_fast`: solvers, samplers and privacy calibration, with no Python anywhere
//! in the dependency tree.
//!
//! Each module uses only those above it:
//!
//! - [`error`]: the one error, and the refusal of an argument;
//! - [`runtime`]: threads, tasks, teams, interrupts, memory that may be refused, the floating-point mode;
//! - [`simd`]: one source of a kernel, compiled for each instruction set;
//! - `numeric`: numbers with their rounding errors, the normal distribution, sizes of transforms;
//! - [`rows`]: user data: a checked view, clipping, labels, moments, a shuffled copy;
//! - [`loss`]: losses of single rows;
//! - `layout`: layouts of weights in memory, and their products with rows;
//! - [`linalg`]: dense linear algebra;
//! - [`noise`]: keyed streams, and samplers that are exact;
//! - [`fourier`]: public random features; [`images`]: public features of images;
//! - [`records`]: rows on a grid, ready for private sums;
//! - [`solver`]: minimisers with a certified distance: `crammer_singer` with its `end_game`, `smooth`,
//!   `projected_sgd`, `ellipsoids`, and many parties' at once;
//! - [`descent`]: noisy steps: a batch, clipped gradients, their `exact_sum`, the `release` with noise;
//! - [`tables`]: cells of text that become numbers; uses [`runtime`] alone;
//! - [`accounting`]: how much privacy noise buys: `gaussian`, `subsampled` with the `law` of a sampled
//!   step, `objective`; uses `numeric` and [`runtime`] alone.
//!
//! Solvers receive plain numbers and return plain numbers: budgets and noise scales are decided by
//! the caller. Items used by the bindings are public; the rest is `pub(crate)`.

pub mod accounting;
pub mod descent;
pub mod error;
pub mod fourier;
pub mod images;
mod layout;
pub mod linalg;
pub mod loss;
pub mod noise;
mod numeric;
pub mod records;
pub mod rows;
pub mod runtime;
pub mod simd;
pub mod solver;
pub mod tables;

pub use error::{Error, Result};

// The tests of the public interface are compiled with those of the parts: one program less to
// compile and to link. They name the crate as its users do.
#[cfg(test)]
extern crate self as dpsvm_core;
#[cfg(test)]
#[path = "../tests/parts/mod.rs"]
mod parts;
#[cfg(test)]
#[path = "../tests/main.rs"]
mod public_interface;
