//! Clipping of a record's contribution, from two norms.
//!
//! The gradient of one record in the weights is `a r^T`, of Frobenius norm `||a|| ||r||`; no gradient
//! of a single record is ever formed.

use crate::records::store::ROW_GRID;

/// How contributions are bounded.
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

#[cfg(test)]
mod tests {
    use super::Clip;

    // Proof: gradient_perturbation, "Clipped sums and their rounding"
    #[test]
    fn the_product_of_norms_stays_below_the_bound() {
        let clip = Clip::new(0.25, 0.98, 0.2);
        assert!(clip.intercept <= 0.2 && clip.intercept > 0.199_999);
        for square in [0.0, 1e-300, 0.01, 0.065, 1.0, 2.0, 1e4] {
            for norm in [0.0_f32, 1e-6, 0.5, 1.0] {
                let row = f64::from(norm).hypot(clip.intercept);
                let factor = clip.factor(square, norm);
                assert!(square.sqrt() * factor * row <= 0.25);
                assert!(factor <= clip.row_scale);
            }
        }
        // Not vacuous: a long gradient is scaled to the bound.
        let length = 2.0_f64.sqrt() * clip.factor(2.0, 1.0) * 1.0_f64.hypot(clip.intercept);
        assert!(length > 0.25 * (1.0 - 1e-8));
    }
}
