//! The upper tail of the standard normal law without cancellation.
//!
//! With `phi` the density and `Phi` the distribution function, `R(x) = Phi(-x) / phi(x)` is the
//! Mills ratio and `S(x) = 1 - x R(x) = -R'(x)`. Both are positive everywhere and decreasing.
//! Polynomial pieces (see `tools/normal_tables.py`) cover [-1/2, 16); above, the alternating asymptotic
//! series, whose remainder is below its first omitted term.

use crate::numeric::normal_tables::{COMPLEMENT, LEGENDRE, MILLS};

/// Least argument of [`mills`] and [`mills_complement`].
pub const LEAST: f64 = -0.5;

/// End of the polynomial pieces.
const SERIES_FROM: f64 = 16.0;

/// Odd factors 1, 3, ..., 27 of the series: at `SERIES_FROM` the first omitted term is 1e-17 of
/// the sum.
const SERIES_TERMS: u32 = 14;

/// Number of pieces below 1, each an eighth wide.
const NEAR: usize = 12;

/// Value of a polynomial in Horner's form, lowest coefficient first.
fn horner<const N: usize>(row: &[f64; N], t: f64) -> f64 {
    row.iter().rev().fold(0.0, |sum, c| sum * t + c)
}

/// Piece below 1 and the place in it, in [-1, 1].
fn near_piece(x: f64) -> (usize, f64) {
    let index = (((x - LEAST) * 8.0) as usize).min(NEAR - 1);
    let centre = LEAST + (index as f64 + 0.5) / 8.0;
    (index, (x - centre) * 16.0)
}

/// Piece of [1, 16): eight an octave, read off the exponent and the first three fraction bits.
fn far_piece(x: f64) -> (usize, f64) {
    let bits = x.to_bits();
    let piece = (bits >> 49) as usize - (1023 << 3);
    let fraction = f64::from_bits((bits & ((1 << 52) - 1)) | (1023 << 52));
    // Both terms are exact, and so is their difference.
    let t = fraction * 16.0 - (17 + 2 * (piece & 7)) as f64;
    (NEAR + piece, t)
}

/// `S(x)` from the asymptotic series `z (1 - 3z (1 - 5z (...)))`, `z = 1/x^2`.
fn series(x: f64) -> f64 {
    let z = 1.0 / (x * x);
    let nested = (1..SERIES_TERMS)
        .rev()
        .fold(1.0, |sum, k| 1.0 - f64::from(2 * k + 1) * z * sum);
    z * nested
}

/// `S(x) = 1 - x R(x)`, where `R` is the Mills ratio, for `x >= -1/2`.
///
/// Relative error at most `5 * 2^-53` while `x < 1e150` (beyond, the result may underflow).
pub fn mills_complement(x: f64) -> f64 {
    debug_assert!(x >= LEAST);
    if x >= SERIES_FROM {
        return series(x);
    }
    let (piece, t) = if x < 1.0 { near_piece(x) } else { far_piece(x) };
    horner(&COMPLEMENT[piece], t)
}

/// Mills ratio `R(x) = Phi(-x) / phi(x)` for `x >= -1/2`; relative error at most `4 * 2^-53`.
pub fn mills(x: f64) -> f64 {
    debug_assert!(x >= LEAST);
    if x < 1.0 {
        let (piece, t) = near_piece(x);
        horner(&MILLS[piece], t)
    } else {
        // S < 0.35 here, so the subtraction loses nothing.
        (1.0 - mills_complement(x)) / x
    }
}

/// Mean of `S` over `[centre - half, centre + half]`, left end at least -1/2; `half` at most 1 or
/// a quarter of the left end.
///
/// Twelve Gauss-Legendre nodes; all terms are positive. The remainder of the rule is below
/// `0.05 * 2^-53` of the mean (`docs/proofs/analytic_gaussian.md`).
pub fn mean_complement(centre: f64, half: f64) -> f64 {
    debug_assert!(half <= 1.0f64.max(0.2501 * (centre - half)));
    LEGENDRE
        .iter()
        .map(|&[node, weight]| {
            let step = half * node;
            // The centre of a half width below an ulp may fall an ulp outside the range.
            let left = mills_complement((centre - step).max(LEAST));
            weight * (left + mills_complement(centre + step))
        })
        .sum()
}
