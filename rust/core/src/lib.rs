//! Numerical core of `dpsvm_fast`: solvers, samplers and privacy calibration, with no Python anywhere
//! in the dependency tree.
//!
//! Each module is a room, and rooms use only those above them:
//!
//! - [`error`], [`runtime`], [`simd`] and `numeric` serve all that compute;
//! - [`rows`] are what a user gives, [`loss`] what is lost on one of them, `layout` how weights meet
//!   them, [`linalg`] dense linear algebra;
//! - [`noise`] is drawn, [`fourier`] draws public random features, [`images`] are
//!   mapped to public ones, [`records`] are rows ready for exact
//!   private sums;
//! - [`solver`] minimises to a certified distance, [`descent`] takes noisy steps;
//! - [`tables`] are cells of text that become numbers, and use [`runtime`] alone;
//! - [`accounting`] says how much privacy noise buys, and uses `numeric` and [`runtime`] alone.
//!
//! Solvers receive plain numbers and return plain numbers: budgets and noise scales are decided by
//! the caller. What the bindings use is public; the rest is `pub(crate)`.

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
#[path = "../tests/main.rs"]
mod public_interface;
