//! Clipping of a record's contribution, from two norms.
//!
//! The gradient of one record in the weights is `a r^T`, of Frobenius norm `||a|| ||r||`; no gradient
//! of a single record is ever formed.

use crate::records::store::ROW_GRID;

/// Bound on contributions.
#[derive(Debug, Clone, Copy)]
pub struct Clip {
    /// Largest norm of a contribution.
    pub bound: f64,
    /// `rho` of the row `r = rho (u, s)`.
    pub row_scale: f64,
    /// `s`, a multiple of [`ROW_GRID`]; 0 for none.
    pub intercept: f64,
}

/// More than the relative error of the few operations below.
const MARGIN: f64 = 1.0 / (1u64 << 30) as f64;

impl Clip {
    /// With the intercept rounded towards zero to the grid of the rows.
    pub fn new(bound: f64, row_scale: f64, intercept: f64) -> Self {
        Self {
            bound,
            row_scale,
            intercept: (intercept / ROW_GRID).trunc() * ROW_GRID,
        }
    }

    /// `f rho` with `f = min(1, bound/(||a|| ||r||))`, a little less where it clips: so that
    /// `||a|| f rho ||(u, s)||` is at most the bound, all rounding included.
    ///
    /// `square` is the computed `||a||^2` of at most 2^16 entries, `norm` a bound of `||u||`.
    #[inline(always)]
    pub fn factor(&self, square: f64, norm: f32) -> f64 {
        let norm = f64::from(norm);
        let row = (norm * norm + self.intercept * self.intercept).sqrt();
        let length = square.sqrt() * self.row_scale * row;
        if length * (1.0 + MARGIN) <= self.bound {
            self.row_scale
        } else {
            self.bound / length * self.row_scale * (1.0 - 2.0 * MARGIN)
        }
    }
}
