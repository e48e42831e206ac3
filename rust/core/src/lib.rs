//! Numerical core of `dpsvm_fast`.
//!
//! Solvers, samplers and privacy calibration, with no Python anywhere in the dependency tree. The
//! layers point one way: `error`, `float` <- `memory`, `clip` <- `rows` <- `solver`, `noise` <-
//! `private_descent`; `column_moments` reads `rows`; `fourier` draws random features with `noise` and serves `solver`;
//! `accounting` uses `error`, `float` and the interrupt of `parallel`; `linear_algebra`, `parallel` and `simd` serve all that compute. A
//! solver receives plain numbers and
//! returns plain numbers: budgets and noise scales are decided by the caller.

pub mod accounting;
mod clip;
pub mod column_moments;
pub mod error;
mod float;
pub mod fourier;
pub mod linear_algebra;
mod memory;
pub mod noise;
pub mod parallel;
pub mod private_descent;
pub mod rows;
pub mod simd;
pub mod solver;

pub use error::{Error, Result};

// The tests of the public interface are compiled with those of the parts: one program less to
// compile and to link. They name the crate as its users do.
#[cfg(test)]
extern crate self as dpsvm_core;
#[cfg(test)]
#[path = "../tests/main.rs"]
mod public_interface;
