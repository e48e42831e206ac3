//! Arithmetic with bounds: generic floats and two-fold numbers, the normal distribution, sizes of
//! transforms.

pub(crate) mod float;
pub mod normal;
pub(crate) mod normal_tables;
pub(crate) mod transform_size;

/// Unit roundoff of double precision: the largest relative error of one operation.
pub(crate) const ROUNDOFF: f64 = f64::EPSILON / 2.0;
