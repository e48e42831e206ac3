//! Solvers of the regularised empirical risk problems.
//!
//! [`dual_coordinate::solve`] is the entry; the other modules are its parts.

pub mod accurate;
pub mod ball;
pub mod certificate;
pub mod descent;
pub mod dual_coordinate;
pub mod face;
pub mod frank_wolfe;
pub mod gram;
pub mod kernels;
pub mod losses;
pub mod measured;
pub mod newton;
pub mod problem;
pub mod projected_sgd;
pub mod simplex;
pub mod store;
