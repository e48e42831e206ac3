//! Exact Gaussian noise on a grid.
//!
//! Draws integers with exactly the law of `round(N(0, sigma^2) / grid)`. The normal deviate is
//! Karney's (2016, "Sampling exactly from the normal distribution", Algorithm N): a sign, an
//! integer part and a fraction whose digits are drawn only when a comparison asks for them. All
//! decisions use integers and random bits; no logarithm, exponential or rounding error enters.
//! The argument, line by line, is the project's page `docs/proofs/grid_gaussian.md`.
//!
//! The time of a draw depends on the drawn value and never on any data.
//!
//! Paper's symbol — name here: Algorithm H — `half_exponential`, G — inside `integer_part`,
//! P — inside `integer_part`, B — `fraction_trial`, C — `below`, N — `Deviate::draw`.

use super::{Task, fill_blocks};
use crate::error::{Error, Result};
use crate::parallel::Interrupt;
use rand::Rng;

/// Bits in a digit of a fraction.
const DIGIT: u32 = 32;

/// Integer parts from here on are drawn again, because an `i64` cannot hold every normal deviate.
/// They have probability below `2^-700000`.
const INTEGER_LIMIT: u32 = 1024;

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
    mantissa: u64,
    /// In `6 ..= 72`.
    shift: u32,
}

impl GridScale {
    /// The scale of standard deviation `sigma` on the multiples of `grid`.
    ///
    /// # Errors
    /// `sigma` not positive and finite; `grid` not a power of two; `sigma / grid` outside
    /// `2^-20 ..= 2^46`.
    pub fn new(sigma: f64, grid: f64) -> Result<Self> {
        if !(sigma > 0.0 && sigma.is_finite()) {
            return Err(Error::invalid(
                "sigma",
                format!("got {sigma}, expected a finite number >= 0"),
            ));
        }
        Self::check_grid(grid)?;
        let (mantissa, exponent) = split(sigma);
        let (grid_mantissa, grid_exponent) = split(grid);
        // grid = 2^(grid_exponent + 52), so the division only moves the exponent.
        let exponent = exponent - grid_exponent - 52;
        let (low, high) = RATIO_EXPONENTS;
        let largest = high - 52;
        let at_most = exponent < largest || (exponent == largest && mantissa == grid_mantissa);
        if exponent < low - 52 || !at_most {
            return Err(Error::invalid(
                "grid",
                format!(
                    "got {grid} with sigma {sigma}; sigma/grid must be from 2**{low} to 2**{high}"
                ),
            ));
        }
        Ok(Self {
            mantissa,
            shift: (-exponent) as u32,
        })
    }

    /// Refuses a grid that is not a power of two.
    fn check_grid(grid: f64) -> Result<()> {
        if grid > 0.0 && grid.is_finite() && split(grid).0 == 1 << 52 {
            return Ok(());
        }
        Err(Error::invalid(
            "grid",
            format!("got {grid}, expected a power of two (for example 2.0**-30)"),
        ))
    }

    /// Overwrites `values` with independent draws.
    pub fn fill<R: Rng>(&self, rng: &mut R, values: &mut [i64]) {
        let mut bits = Bits::new(rng);
        for value in values {
            let deviate = Deviate::draw(&mut bits);
            let mut known = deviate.fraction.digits();
            let magnitude = self.round(deviate.integer, || {
                known.next().unwrap_or_else(|| bits.rng.next_u32())
            });
            *value = if deviate.negative {
                -magnitude
            } else {
                magnitude
            };
        }
    }

    /// `floor(q (k + x) + 1/2)` for this ratio `q`, an integer `k` below 1024 and the fraction
    /// `x = 0.d1 d2 d3 ...` in base `2^32` whose digits come from `next_digit`.
    ///
    /// Two digits are read at once; more only while the digits read leave two answers open.
    #[inline]
    pub fn round(&self, k: u32, mut next_digit: impl FnMut() -> u32) -> i64 {
        let high = u128::from(next_digit());
        let low = u128::from(next_digit());
        // In units of 2^-s, q (k + x) lies in [start, start + mantissa).
        let s = self.shift + 2 * DIGIT;
        if s >= 128 {
            // q < 2^-11 and k + x < 2^10: the product is below 1/2.
            return 0;
        }
        let mantissa = u128::from(self.mantissa);
        let start = mantissa * (u128::from(k) << (2 * DIGIT) | high << DIGIT | low);
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
fn fraction_reaches(numerator: u64, denominator: u64, mut next_digit: impl FnMut() -> u32) -> bool {
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

/// A uniform number in [0, 1) whose digits, in base `2^32`, are drawn when first asked for.
struct Lazy {
    first: u32,
    /// Digits after the first: almost always none, and then nothing is allocated.
    rest: Vec<u32>,
}

impl Lazy {
    #[inline]
    fn draw<R: Rng>(rng: &mut R) -> Self {
        Self {
            first: rng.next_u32(),
            rest: Vec::new(),
        }
    }

    /// The digits drawn so far.
    #[inline]
    fn digits(&self) -> impl Iterator<Item = u32> + '_ {
        std::iter::once(self.first).chain(self.rest.iter().copied())
    }

    /// Digit `i` after the first; every earlier one has been asked for.
    fn digit<R: Rng>(&mut self, i: usize, rng: &mut R) -> u32 {
        if i == self.rest.len() {
            self.rest.push(rng.next_u32());
        }
        self.rest[i]
    }

    /// `self < other`, drawing digits of both until they differ.
    #[inline]
    fn below<R: Rng>(&mut self, other: &mut Self, rng: &mut R) -> bool {
        if self.first == other.first {
            return self.below_after_first(other, rng);
        }
        self.first < other.first
    }

    #[cold]
    fn below_after_first<R: Rng>(&mut self, other: &mut Self, rng: &mut R) -> bool {
        let mut i = 0;
        loop {
            let (mine, theirs) = (self.digit(i, rng), other.digit(i, rng));
            if mine != theirs {
                return mine < theirs;
            }
            i += 1;
        }
    }
}

/// Random words, and single random bits cut from them.
struct Bits<'a, R> {
    rng: &'a mut R,
    word: u64,
    left: u32,
}

impl<'a, R: Rng> Bits<'a, R> {
    fn new(rng: &'a mut R) -> Self {
        Self {
            rng,
            word: 0,
            left: 0,
        }
    }

    /// The next bit.
    #[inline]
    fn next(&mut self) -> bool {
        if self.left == 0 {
            self.word = self.rng.next_u64();
            self.left = u64::BITS;
        }
        let bit = self.word & 1 == 1;
        self.word >>= 1;
        self.left -= 1;
        bit
    }

    /// The number of ones before the next zero; the zero is used up too.
    #[inline]
    fn ones(&mut self) -> u32 {
        let mut count = 0;
        loop {
            let run = self.word.trailing_ones();
            if run < self.left {
                // `run + 1` may be the whole word, so it is shifted out in two steps.
                self.word = (self.word >> run) >> 1;
                self.left -= run + 1;
                return count + run;
            }
            count += self.left;
            self.word = self.rng.next_u64();
            self.left = u64::BITS;
        }
    }
}

/// A standard normal deviate: `+-(integer + fraction)`.
struct Deviate {
    negative: bool,
    integer: u32,
    fraction: Lazy,
}

impl Deviate {
    /// Algorithm N.
    #[inline]
    fn draw<R: Rng>(bits: &mut Bits<'_, R>) -> Self {
        loop {
            let Some(k) = integer_part(bits) else {
                continue;
            };
            let mut x = Lazy::draw(bits.rng);
            if (0..=k).all(|_| fraction_trial(k, &mut x, bits)) {
                return Self {
                    negative: bits.next(),
                    integer: k,
                    fraction: x,
                };
            }
        }
    }
}

/// Steps N1 and N2: `k` with probability proportional to `exp(-k^2 / 2)`, or a rejection.
#[inline]
fn integer_part<R: Rng>(bits: &mut Bits<'_, R>) -> Option<u32> {
    let mut k = 0;
    loop {
        // A trial whose first number has the leading bit 1 is true; the bit 0 opens another.
        k += bits.ones();
        if k >= INTEGER_LIMIT {
            return None;
        }
        if !half_exponential_after_zero(bits) {
            break;
        }
        k += 1;
    }
    (0..k * k.saturating_sub(1))
        .all(|_| half_exponential(bits))
        .then_some(k)
}

/// True with probability `exp(-1/2)`: the length of the longest run `1/2 > u1 > u2 > ...` of fresh
/// uniform numbers is even.
#[inline]
fn half_exponential<R: Rng>(bits: &mut Bits<'_, R>) -> bool {
    bits.next() || half_exponential_after_zero(bits)
}

/// [`half_exponential`] once the leading bit of `u1` is known to be 0.
///
/// Every number of the run then has leading bit 0; the [`Lazy`] ones are the bits that follow, so
/// that most runs end on one bit.
#[inline]
fn half_exponential_after_zero<R: Rng>(bits: &mut Bits<'_, R>) -> bool {
    if bits.next() {
        return false;
    }
    let mut last = Lazy::draw(bits.rng);
    let mut even = false;
    loop {
        let mut next = Lazy::draw(bits.rng);
        if !next.below(&mut last, bits.rng) {
            return even;
        }
        even = !even;
        if bits.next() {
            return even;
        }
        last = next;
    }
}

/// True with probability `exp(-x (2k + x) / (2k + 2))`: the longest run `x > z1 > z2 > ...` in which
/// every step also passes a coin of probability `(2k + x) / (2k + 2)` has even length.
#[inline]
fn fraction_trial<R: Rng>(k: u32, x: &mut Lazy, bits: &mut Bits<'_, R>) -> bool {
    let mut last = Lazy::draw(bits.rng);
    if !last.below(x, bits.rng) || !coin(k, x, bits) {
        return true;
    }
    let mut even = false;
    loop {
        let mut next = Lazy::draw(bits.rng);
        if !next.below(&mut last, bits.rng) || !coin(k, x, bits) {
            return even;
        }
        last = next;
        even = !even;
    }
}

/// True with probability `(2k + x) / (2k + 2)`.
#[inline]
fn coin<R: Rng>(k: u32, x: &mut Lazy, bits: &mut Bits<'_, R>) -> bool {
    if k == 0 {
        return bits.next() && Lazy::draw(bits.rng).below(x, bits.rng);
    }
    match below(2 * k + 2, bits.rng) {
        0 => false,
        1 => Lazy::draw(bits.rng).below(x, bits.rng),
        _ => true,
    }
}

/// A uniform integer in `0 .. m`, exactly: of the `2^32` words, `2^32 mod m` are drawn again so that
/// every answer keeps the same number of words.
#[inline]
fn below<R: Rng>(m: u32, rng: &mut R) -> u32 {
    let excess = m.wrapping_neg() % m;
    loop {
        let product = u64::from(rng.next_u32()) * u64::from(m);
        if product as u32 >= excess {
            return (product >> DIGIT) as u32;
        }
    }
}
