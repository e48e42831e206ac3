//! From a record to a row: clipping and quantisation, with the norm bound kept through rounding.
//!
//! The record model is described in `rows.rs`, and proved harmless in `docs/notation.md`.

use crate::error::{Error, Result};

/// Factors that bring one record to its row: `x * coarse * fine`, `coarse` a power of two.
pub(crate) struct Scale {
    coarse: f64,
    fine: f64,
}

impl Scale {
    /// The scale of record `x`: first clipped to `data_norm`, then times `shrink`.
    ///
    /// The computed norm is inflated by a bound of its own rounding error, and the clipping factor
    /// deflated by one of the roundings to come, so the row never exceeds the bound.
    #[inline(always)]
    pub(crate) fn of<T: Copy + Into<f64>>(x: &[T], data_norm: f64, shrink: f64) -> Result<Self> {
        let Some((coarse, norm)) = length(x)? else {
            return Ok(Self {
                coarse: 1.0,
                fine: 1.0,
            });
        };
        let bound = data_norm * coarse;
        if norm <= bound {
            return Ok(Self {
                coarse: 1.0,
                fine: shrink,
            });
        }
        let fine = data_norm / norm * (1.0 - 8.0 * f64::EPSILON) * shrink;
        Ok(Self { coarse, fine })
    }

    #[inline(always)]
    pub(crate) fn apply(&self, x: f64) -> f64 {
        x * self.coarse * self.fine
    }
}

/// `(c, ||c x||)` with `c` a power of two and the norm rounded up; `None` for the zero record.
///
/// `c` is 1 unless a square would overflow or vanish, and `||c x||` is then from 1/2 to
/// `sqrt(len)` (less for subnormal records).
#[inline(always)]
pub(crate) fn length<T: Copy + Into<f64>>(x: &[T]) -> Result<Option<(f64, f64)>> {
    /// Inside these, no square overflowed and none that matters was lost.
    const SAFE: std::ops::RangeInclusive<f64> = 1e-240..=1e240;
    let slack = 1.0 + (x.len() as f64 + 8.0) * f64::EPSILON;
    let plain = sum_of_squares(x, 1.0);
    if SAFE.contains(&plain) {
        return Ok(Some((1.0, plain.sqrt() * slack)));
    }
    let largest = largest_magnitude(x);
    if !largest.is_finite() {
        return Err(Error::invalid("X", "contains NaN or infinity"));
    }
    if largest == 0.0 {
        return Ok(None);
    }
    // A power of two that makes the largest entry about 1; the clamp keeps both factors
    // in range for subnormal records.
    let coarse = libm::ldexp(1.0, -libm::frexp(largest).1.clamp(-1000, 1000));
    Ok(Some((coarse, sum_of_squares(x, coarse).sqrt() * slack)))
}

/// `max |x_j|`, NaN if any entry is NaN.
#[cold]
fn largest_magnitude<T: Copy + Into<f64>>(x: &[T]) -> f64 {
    // In lanes, so that the compiler can vectorise; NaN and infinity times 0 are NaN.
    let mut lanes = [0.0_f64; 8];
    let mut poison = [0.0_f64; 8];
    let chunks = x.chunks_exact(8);
    for (lane, x) in chunks.remainder().iter().enumerate() {
        let x: f64 = (*x).into();
        lanes[lane] = x.abs();
        poison[lane] += x * 0.0;
    }
    for chunk in chunks {
        for lane in 0..8 {
            let x: f64 = chunk[lane].into();
            lanes[lane] = if x.abs() > lanes[lane] {
                x.abs()
            } else {
                lanes[lane]
            };
            poison[lane] += x * 0.0;
        }
    }
    if poison.iter().sum::<f64>() != 0.0 {
        return f64::NAN;
    }
    lanes.iter().fold(0.0, |a, b| f64::max(a, *b))
}

/// Sum of `(x_j * coarse)^2` in sixteen lanes; NaN or infinite if an entry is.
#[inline(always)]
pub(crate) fn sum_of_squares<T: Copy + Into<f64>>(x: &[T], coarse: f64) -> f64 {
    let mut lanes = [0.0_f64; 16];
    let (chunks, rest) = x.as_chunks::<16>();
    for chunk in chunks {
        for lane in 0..16 {
            let x: f64 = chunk[lane].into() * coarse;
            lanes[lane] += x * x;
        }
    }
    let mut total = 0.0;
    for x in rest {
        let x: f64 = (*x).into() * coarse;
        total += x * x;
    }
    total + lanes.iter().sum::<f64>()
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

#[cfg(test)]
mod tests {
    use super::{Scale, sum_of_squares, towards_zero};

    #[test]
    fn quantisation_never_grows() {
        for x in [
            0.1,
            -0.1,
            1.0,
            1.0 + 1e-9,
            -3.7e-20,
            1e-46,
            0.0,
            -0.0,
            0.999_999_999,
        ] {
            let q = f64::from(towards_zero(x));
            assert!(q.abs() <= x.abs() && q * x >= 0.0);
            assert!((q - x).abs() <= x.abs() * 1.2e-7 || q == 0.0);
        }
        assert_eq!(towards_zero(1e-46), 0.0);
    }

    /// The row's norm, summed without rounding that matters, never exceeds the bound.
    #[test]
    fn clipped_rows_keep_the_bound() {
        let mut state = 1_u64;
        let mut number = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 11) as f64 / (1_u64 << 53) as f64 - 0.5
        };
        for exponent in [-320, -300, -200, -20, -3, 0, 1, 20, 200, 300] {
            for length in [1, 2, 7, 100, 1000] {
                let size = 10.0_f64.powi(exponent);
                let x: Vec<f64> = (0..length).map(|_| number() * size).collect();
                for bound in [1e-3, 1.0, 12.0] {
                    let scale = Scale::of(&x, bound, 1.0).unwrap();
                    let row: Vec<f64> = x
                        .iter()
                        .map(|x| towards_zero(scale.apply(*x)).into())
                        .collect();
                    // Products of single-precision numbers are exact; the sum errs by 1e-13.
                    let norm = sum_of_squares(&row, 1.0).sqrt();
                    assert!(norm <= bound * (1.0 + 1e-13));
                    let long = sum_of_squares(&x, 1.0 / size.max(1e-300)).sqrt() * size.max(1e-300);
                    if long > bound * 1.01 {
                        assert!(
                            norm >= bound * (1.0 - 1e-6),
                            "{exponent} {length} {bound}: {norm}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn infinities_are_refused() {
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            for at in [0, 8, 16] {
                let mut x = vec![0.5; 17];
                x[at] = bad;
                assert!(Scale::of(&x, 1.0, 1.0).is_err());
            }
        }
    }
}
