//! Labels as codes of classes, and weights of rows.

use crate::error::{Result, require};
use crate::simd::Real;

/// Refuses labels of another number than rows, or outside `0..n_classes`.
///
/// # Errors
/// See above; labels are not told.
pub(crate) fn check_labels(labels: &[i64], n_rows: usize, n_classes: usize) -> Result<()> {
    let message = "its length is not the number of rows of X";
    require(labels.len() == n_rows, "y", message)?;
    let known = |y: &i64| usize::try_from(*y).is_ok_and(|y| y < n_classes);
    let message = "a label is outside 0..n_classes";
    require(labels.iter().all(known), "y", message)
}

/// Refuses weights that are not one number from 0 to 1 for each row, or none at all.
///
/// # Errors
/// See above; weights are not told.
pub(crate) fn check_weights(weights: &[f64], n_rows: usize) -> Result<()> {
    let fits = weights.is_empty() || weights.len() == n_rows;
    let message = "expected one number from 0 to 1 for each row, or none";
    let right = fits && weights.iter().all(|w| (0.0..=1.0).contains(w));
    require(right, "weights", message)
}

/// Multiplies what a row adds by its weight, where there are any.
#[inline(always)]
pub(crate) fn weigh<T: Real>(weights: &[f64], row: usize, coefficients: &mut [T]) {
    if let Some(weight) = weights.get(row) {
        for a in coefficients {
            *a = T::near(a.wide() * weight);
        }
    }
}
