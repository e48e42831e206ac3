//! Solvers of the regularised empirical risk problems; [`parties`] runs them for many parties at once.

pub mod crammer_singer;
pub mod ellipsoids;
pub mod parties;
pub mod projected_sgd;
pub mod smooth;
