//! Exact Gaussian noise on a grid.
//!
//! Draws integers with exactly the law of `round(N(0, sigma^2) / grid)`. The normal deviate comes
//! from rejection under the half-normal density (`half_normal`); its rounding to the grid is decided
//! from the bits drawn so far, and more are drawn while they leave two answers open. All decisions
//! use integers and random bits: no rounding error enters. The argument, line by line, is the
//! project's page `docs/proofs/grid_gaussian.md`.
//!
//! The time of a draw depends on the drawn value and never on any data.

use crate::error::{Result, require};
use crate::noise::{Task, fill_blocks};
use crate::runtime::interrupt::Interrupt;

/// Bits in a digit of a fraction.
pub(crate) const DIGIT: u32 = 32;

/// Exponents of the smallest and largest `sigma / grid`.
const RATIO_EXPONENTS: (i32, i32) = (-20, 46);

/// Multiples `m` of `grid`, one for each of `size` draws, with the exact law of
/// `round(N(0, sigma^2) / grid)`.
///
/// # Errors
/// As [`GridScale::new`], except that `sigma` 0 is accepted and gives zeros; `n_threads` out of
/// range; no memory; interrupted.
pub fn gaussian_on_grid(
    task: Task<'_>,
    size: usize,
    sigma: f64,
    grid: f64,
    n_threads: usize,
    interrupt: &dyn Interrupt,
) -> Result<Vec<i64>> {
    let scale = if sigma == 0.0 {
        GridScale::check_grid(grid)?;
        None
    } else {
        Some(GridScale::new(sigma, grid)?)
    };
    fill_blocks(task, 0, size, n_threads, interrupt, |stream, block| {
        if let Some(scale) = scale {
            scale.fill(stream, block);
        }
    })
}

/// The ratio `sigma / grid`, exactly: `mantissa / 2^shift`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GridScale {
    /// In `2^52 .. 2^53`.
    pub(crate) mantissa: u64,
    /// In `6 ..= 72`.
    pub(crate) shift: u32,
}

impl GridScale {
    /// The scale of standard deviation `sigma` on the multiples of `grid`.
    ///
    /// # Errors
    /// `sigma` not positive and finite; `grid` not a power of two; `sigma / grid` outside
    /// `2^-20 ..= 2^46`.
    pub fn new(sigma: f64, grid: f64) -> Result<Self> {
        let message = format_args!("got {sigma}, expected a finite number >= 0");
        require(sigma > 0.0 && sigma.is_finite(), "sigma", message)?;
        Self::check_grid(grid)?;
        let (mantissa, exponent) = split(sigma);
        let (grid_mantissa, grid_exponent) = split(grid);
        // grid = 2^(grid_exponent + 52), so the division only moves the exponent.
        let exponent = exponent - grid_exponent - 52;
        let (low, high) = RATIO_EXPONENTS;
        let largest = high - 52;
        let at_most = exponent < largest || (exponent == largest && mantissa == grid_mantissa);
        let message = format_args!(
            "got {grid} with sigma {sigma}; sigma/grid must be from 2**{low} to 2**{high}"
        );
        require(exponent >= low - 52 && at_most, "grid", message)?;
        Ok(Self {
            mantissa,
            shift: (-exponent) as u32,
        })
    }

    /// Refuses a grid that is not a power of two.
    fn check_grid(grid: f64) -> Result<()> {
        let power = grid > 0.0 && grid.is_finite() && split(grid).0 == 1 << 52;
        let message = format_args!("got {grid}, expected a power of two (for example 2.0**-30)");
        require(power, "grid", message)
    }

    /// `floor(q y + 1/2)` for this ratio `q` and the number that begins with `y`, in units of
    /// `2^-bits`, and goes on with the digits that come from `next_digit`, in base `2^32`. The number
    /// is below 1024, and `bits` from 52 to 64.
    #[inline]
    pub fn round_at(&self, y: u128, bits: u32, next_digit: impl FnMut() -> u32) -> i64 {
        // In units of 2^-s, the product lies in [start, start + mantissa).
        let s = self.shift + bits;
        if s >= 128 {
            // q < 2^-11 and y < 2^10: the product is below 1/2.
            return 0;
        }
        let mantissa = u128::from(self.mantissa);
        let start = mantissa * y;
        let half = 1u128 << (s - 1);
        let smallest = (start + half) >> s;
        let largest = (start + mantissa - 1 + half) >> s;
        if smallest == largest {
            return smallest as i64;
        }
        let boundary = (largest << s) - half;
        let up = fraction_reaches((boundary - start) as u64, self.mantissa, next_digit);
        if up { largest as i64 } else { smallest as i64 }
    }
}

/// Whether the fraction with these digits is at least `numerator / denominator` (below 1): long
/// division, one digit at a time, until the digits differ or the division comes out even.
#[cold]
pub(crate) fn fraction_reaches(
    numerator: u64,
    denominator: u64,
    mut next_digit: impl FnMut() -> u32,
) -> bool {
    let denominator = u128::from(denominator);
    let mut rest = u128::from(numerator);
    while rest != 0 {
        let dividend = rest << DIGIT;
        let quotient = dividend / denominator;
        rest = dividend % denominator;
        let digit = u128::from(next_digit());
        if digit != quotient {
            return digit > quotient;
        }
    }
    true
}

/// `(m, e)` with `value = m 2^e` and `2^52 <= m < 2^53`, for a positive finite value.
fn split(value: f64) -> (u64, i32) {
    let bits = value.to_bits();
    let fraction = bits & ((1 << 52) - 1);
    let exponent = (bits >> 52) as i32;
    if exponent == 0 {
        let up = fraction.leading_zeros() - 11;
        (fraction << up, -1074 - up as i32)
    } else {
        (fraction | 1 << 52, exponent - 1075)
    }
}
