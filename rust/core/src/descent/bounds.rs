//! Bounds on what one record, and rounding, can change in a sum before noise.
//!
//! Proved in `docs/proofs/gradient_perturbation.md` ("Rounding").

use crate::descent::leaves::LEAF;
use crate::descent::release::NoiseKind;
use crate::descent::settings::Arithmetic;
use crate::error::{Result, in_range, require};
use crate::loss::smooth::SmoothLoss;
use crate::numeric::ROUNDOFF;

/// Sums of a leaf in single precision: an old leaf and the new ones that replace it, together at
/// most 65 records, have errors of at most `2 (65 * 66 / 2 + 65) 2^-24` of the bound of one record.
const LEAF_ERROR: f64 = 2.7e-4;

/// Leaves that one record more can change, over two: the old one, and two new ones; with equal tags
/// the new ones are single records.
const CHANGED_LEAVES: f64 = 0.5 * (LEAF + 3) as f64;

/// Steps of [`leaf_unit`] within the bound of a record, at most.
const FINEST_UNIT: i32 = 42;

/// Coefficients of sparse rows are multiples of this share of the bound.
const COEFFICIENT_BITS: i32 = 20;
/// `COEFFICIENT_BITS` in double precision.
const FINE_COEFFICIENT_BITS: i32 = 26;

/// The least power of two that is at least `x`, for a positive number.
fn power_above(x: f64) -> f64 {
    let (mantissa, exponent) = libm::frexp(x);
    libm::ldexp(1.0, exponent - i32::from(mantissa == 0.5))
}

/// Grid of the coefficients of sparse rows.
pub fn coefficient_grid(clip: f64, arithmetic: Arithmetic) -> f64 {
    let bits = match arithmetic {
        Arithmetic::Single => COEFFICIENT_BITS,
        Arithmetic::Double => FINE_COEFFICIENT_BITS,
    };
    libm::ldexp(power_above(clip), -bits)
}

/// Unit of the sums of leaves: the grid of the noise, unless that is too fine.
pub fn leaf_unit(clip: f64, noise: NoiseKind) -> f64 {
    let finest = libm::ldexp(power_above(clip), -FINEST_UNIT);
    match noise {
        NoiseKind::Grid(grid) => grid.max(finest),
        NoiseKind::Float | NoiseKind::None => finest,
    }
}

/// Upper bound of the distance of the sums of two data sets, one of which has a record more.
///
/// `clip` is the bound of a contribution, `grid` that of the noise (`None`: real numbers). Twice
/// this for a record exchanged.
///
/// # Errors
/// A bound outside `1e-20 ..= 1e20`, a grid that is no power of two or coarser than the bound.
pub fn clipped_sum_distance(clip: f64, weights: usize, grid: Option<f64>) -> Result<f64> {
    check_clip(clip)?;
    grid.map_or(Ok(()), check_grid)?;
    let unit = leaf_unit(clip, grid.map_or(NoiseKind::Float, NoiseKind::Grid));
    let spread = (weights as f64).sqrt() * (CHANGED_LEAVES * unit + grid.unwrap_or(0.0));
    Ok((clip * (1.0 + LEAF_ERROR) + spread) * (1.0 + 8.0 * f64::EPSILON))
}

/// Refuses bounds whose squares or shares leave the floats.
///
/// # Errors
/// A bound outside `1e-20 ..= 1e20`.
pub fn check_clip(clip: f64) -> Result<()> {
    in_range("clip", clip, 1e-20..=1e20)
}

/// Refuses a grid that is no power of two of usual size.
///
/// # Errors
/// See above.
pub fn check_grid(grid: f64) -> Result<()> {
    let message = format_args!("got {grid:e}, expected a power of two between 1e-100 and 1e100");
    let right = (1e-100..=1e100).contains(&grid) && libm::frexp(grid).0 == 0.5;
    require(right, "grid", message)
}

/// Parameters of the error of a sum in double precision.
#[derive(Debug, Clone, Copy)]
pub struct Descended {
    /// The loss.
    pub loss: SmoothLoss,
    /// Columns of the weights, the intercept included.
    pub columns: usize,
    /// Bound of the rows' norm, the intercept included.
    pub row_norm: f64,
    /// Bound of the contributions' norm; clipping does not act.
    pub clip: f64,
    /// Bound of the number of records, or of the sum of their weights.
    pub records: u64,
    /// Bound of the number of rows that weigh something.
    pub rows: u64,
    /// Whether coefficients may be truncated: those of sparse rows are, and of sums in parts.
    pub truncated: bool,
    /// Bound of the norm of the weights.
    pub radius: f64,
    /// Grid of the noise.
    pub grid: Option<f64>,
    /// Step size over the divisor.
    pub step: f64,
}

/// Upper bound of what rounding adds in one step of [`Arithmetic::Double`], in units of the sum: the
/// distance of the computed sum to that of the exact gradients at the same weights, and the
/// roundings of the weights over the step size.
///
/// Scores: products and sums of at most `columns` terms, each factor rounded when the row scale is
/// multiplied in. Gradients: [`SmoothLoss::gradient_error`]. Factors of clipping that does not act:
/// exact. Sums: weights and leaves of at most 64 rows in double precision, which errs by a share of
/// what the records contribute; for each row, rounding of a leaf to the unit or coefficients truncated
/// to their grid (without a centre); one rounding to the grid of the noise. Weights of the model:
/// snapped to steps of the grid times the step size before and after the projection; one product and a
/// projection in double precision.
pub fn descent_rounding(at: &Descended) -> f64 {
    let u = ROUNDOFF;
    let (k, d) = (at.loss.scores as f64, at.columns as f64);
    let reach = at.radius * at.row_norm;
    // Stretched rows and the centre make terms up to 16 times larger than the score they give.
    let score_error = 64.0 * (d + 16.0) * u * reach * k.sqrt();
    let gradient = at.loss.gradient_error(score_error, reach);
    let kind = at.grid.map_or(NoiseKind::Float, NoiseKind::Grid);
    let weights = (k * d).sqrt();
    let mut each_row = 0.5 * weights * leaf_unit(at.clip, kind);
    if at.truncated {
        let truncated = k.sqrt() * coefficient_grid(at.clip, Arithmetic::Double) * at.row_norm;
        each_row = each_row.max(truncated);
    }
    let summed = (LEAF as f64 + 16.0) * u * at.clip;
    let each = (gradient * at.row_norm + summed) * (1.0 + 1e-9);
    let snapped = 2.0 * weights * at.grid.unwrap_or(0.0);
    let moved = (weights * weights + 32.0) * 4.0 * u * at.radius / at.step;
    (at.records as f64 * each + at.rows as f64 * each_row + snapped + moved) * (1.0 + 1e-9)
}

#[cfg(test)]
mod tests {
    use super::{clipped_sum_distance, coefficient_grid, power_above};
    use crate::descent::settings::Arithmetic;

    #[test]
    fn powers_of_two() {
        assert_eq!(power_above(1.0), 1.0);
        assert_eq!(power_above(0.75), 1.0);
        assert_eq!(power_above(0.25), 0.25);
        assert_eq!(coefficient_grid(0.3, Arithmetic::Single), 0.5 / 1_048_576.0);
    }

    #[test]
    fn distance_is_little_more_than_the_bound() -> crate::Result<()> {
        let grid = 1.0 / (1u64 << 36) as f64;
        let distance = clipped_sum_distance(0.25, 10_000, Some(grid))?;
        assert!(distance > 0.25 * 1.000_26 && distance < 0.25 * 1.000_28);
        assert!(clipped_sum_distance(0.25, 10, Some(0.3)).is_err());
        assert!(clipped_sum_distance(f64::NAN, 10, None).is_err());
        Ok(())
    }
}
