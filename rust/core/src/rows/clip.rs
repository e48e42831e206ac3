//! From a record to a row: clipping and quantisation, with the norm bound kept through rounding.
//!
//! The record model is described in `rows.rs`, and proved harmless in `docs/notation.md`.

use crate::error::{Result, require};
use crate::numeric::float::Float;

/// Factors that bring one record to its row: `x * coarse * fine`, `coarse` a power of two.
pub(crate) struct Scale<F = f64> {
    coarse: F,
    fine: F,
}

impl<F: Float> Scale<F> {
    /// The scale of record `x`: first clipped to `data_norm`, then times `shrink`.
    ///
    /// The computed norm is inflated by a bound of its own rounding error, and the clipping factor
    /// deflated by one of the roundings to come, so the row never exceeds the bound.
    #[inline(always)]
    pub(crate) fn of<T: Copy + Into<F>>(x: &[T], data_norm: F, shrink: F) -> Result<Self> {
        let Some((coarse, norm)) = length(x)? else {
            return Ok(Self {
                coarse: F::ONE,
                fine: F::ONE,
            });
        };
        let bound = data_norm * coarse;
        if norm <= bound {
            return Ok(Self {
                coarse: F::ONE,
                fine: shrink,
            });
        }
        let fine = data_norm / norm * (F::ONE - F::whole(8) * F::EPSILON) * shrink;
        Ok(Self { coarse, fine })
    }

    #[inline(always)]
    pub(crate) fn apply(&self, x: F) -> F {
        x * self.coarse * self.fine
    }
}

/// `(c, ||c x||)` with `c` a power of two and the norm rounded up; `None` for the zero record.
///
/// `c` is 1 unless a square would overflow or vanish, and `||c x||` is then from 1/2 to
/// `sqrt(len)` (less for subnormal records).
#[inline(always)]
pub(crate) fn length<T: Copy + Into<F>, F: Float>(x: &[T]) -> Result<Option<(F, F)>> {
    let slack = F::ONE + (F::whole(x.len()) + F::whole(8)) * F::EPSILON;
    let plain = sum_of_squares(x, F::ONE);
    // Inside these, no square overflowed and none that matters was lost.
    if plain >= F::SAFE.0 && plain <= F::SAFE.1 {
        return Ok(Some((F::ONE, plain.sqrt() * slack)));
    }
    let largest: F = largest_magnitude(x);
    require(largest.is_finite(), "X", "contains NaN or infinity")?;
    if largest == F::ZERO {
        return Ok(None);
    }
    let coarse = largest.inverse_power();
    Ok(Some((coarse, sum_of_squares(x, coarse).sqrt() * slack)))
}

/// `max |x_j|`, not finite if any entry is not.
#[cold]
fn largest_magnitude<T: Copy + Into<F>, F: Float>(x: &[T]) -> F {
    // In lanes, so that the compiler can vectorise; NaN and infinity times 0 are NaN.
    let mut lanes = [F::ZERO; 8];
    let mut poison = [F::ZERO; 8];
    let larger = |a: F, b: F| if b > a { b } else { a };
    let chunks = x.chunks_exact(8);
    for (lane, x) in chunks.remainder().iter().enumerate() {
        let x: F = (*x).into();
        lanes[lane] = x.abs();
        poison[lane] += x * F::ZERO;
    }
    for chunk in chunks {
        for lane in 0..8 {
            let x: F = chunk[lane].into();
            lanes[lane] = larger(lanes[lane], x.abs());
            poison[lane] += x * F::ZERO;
        }
    }
    let poison = poison.into_iter().fold(F::ZERO, F::add);
    if poison != F::ZERO {
        return poison;
    }
    lanes.into_iter().fold(F::ZERO, larger)
}

/// Sum of `(x_j * coarse)^2` in sixteen lanes; NaN or infinite if an entry is.
#[inline(always)]
pub(crate) fn sum_of_squares<T: Copy + Into<F>, F: Float>(x: &[T], coarse: F) -> F {
    let mut lanes = [F::ZERO; 16];
    let (chunks, rest) = x.as_chunks::<16>();
    for chunk in chunks {
        for lane in 0..16 {
            let x: F = chunk[lane].into() * coarse;
            lanes[lane] += x * x;
        }
    }
    let mut total = F::ZERO;
    for x in rest {
        let x: F = (*x).into() * coarse;
        total += x * x;
    }
    total + lanes.into_iter().fold(F::ZERO, F::add)
}

/// `x` rounded to single precision towards zero; subnormal results become zero.
#[inline(always)]
pub(crate) fn towards_zero(x: f64) -> f32 {
    let nearest = x as f32;
    let above = u32::from(f64::from(nearest).abs() > x.abs());
    let value = f32::from_bits(nearest.to_bits() - above);
    if value.abs() < f32::MIN_POSITIVE {
        0.0
    } else {
        value
    }
}
