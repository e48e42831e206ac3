//! Projected stochastic gradient descent, whose iterates have a known sensitivity.

pub(crate) mod ball;
pub(crate) mod orders;
pub(crate) mod passes;

pub use ball::Projection;
pub use orders::orders;
pub use passes::{Average, Ownership, SgdSettings, SgdSolution, rounding, solve};
