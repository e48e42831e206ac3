//! Dense linear algebra whose results do not depend on threads or on the place of a row.

pub(crate) mod cholesky;
mod eigen;
pub(crate) mod gemm;
pub(crate) mod packed;
mod products;

pub use eigen::{SymmetricEigen, symmetric_eigen};
pub use products::row_products;
