//! Arithmetic with bounds: generic floats and two-fold numbers, the normal distribution, sizes of
//! transforms.

pub(crate) mod float;
pub mod normal;
pub(crate) mod normal_tables;
pub(crate) mod transform_size;

/// Unit roundoff of double precision: the largest relative error of one operation.
pub(crate) const ROUNDOFF: f64 = f64::EPSILON / 2.0;

/// Bound on the relative error of a sum whose terms pass through `depth` roundings, far fewer than
/// `1 / ROUNDOFF`.
pub(crate) fn gamma(depth: f64) -> f64 {
    depth * ROUNDOFF / (1.0 - depth * ROUNDOFF).max(0.1)
}
