//! The large-margin Gaussian classifier: every class an ellipsoid, or several.

pub(crate) mod cone;
pub(crate) mod fit;
pub(crate) mod lifted;
pub(crate) mod points;
pub(crate) mod records;
pub(crate) mod search;

pub use fit::{EllipsoidBatch, EllipsoidSettings, EllipsoidSolution, solve, solve_batch};
