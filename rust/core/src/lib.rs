//! Numerical core of `dpsvm_fast`.
//!
//! Solvers, samplers and privacy calibration, with no Python anywhere in the dependency tree. The
//! layers point one way: `error` <- `clip` <- `rows` <- `solver`, `noise` <-
//! `private_descent`; `accounting` and `linear_algebra` use `error` only;
//! `parallel` and `simd` serve the solvers and samplers. A solver receives plain numbers and
//! returns plain numbers: budgets and noise scales are decided by the caller.

pub mod accounting;
mod clip;
pub mod error;
pub mod linear_algebra;
pub mod noise;
pub mod parallel;
pub mod private_descent;
pub mod rows;
pub mod simd;
pub mod solver;

pub use error::{Error, Result};
