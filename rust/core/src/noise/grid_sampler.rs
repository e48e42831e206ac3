//! The sampler of [`GridScale::fill`]: a first look at many words at once, then the few left open.
//!
//! One word of 64 bits is enough for 95 of 100 draws: 13 bits choose a piece of the staircase above
//! the half-normal density, one is the sign, 50 are the place within the piece.

use crate::noise::GridScale;
use crate::noise::first_look::{Spare, WordLaw, fill};
use crate::noise::half_normal::{Height, Shipped, Staircase, below_density, below_edge};
use rand::Rng;

/// The place in the first look counts in units of `2^-61`, so that the whole product lies above bit
/// 64 of it and one word can be shifted instead of two.
const LOOK_BITS: u32 = Shipped::POSITION_BITS + 6;

/// From here on, in the exponent of the ratio, `q < 2^-14` and every number below 1024 rounds to 0.
const ZERO_SHIFT: u32 = 128 - LOOK_BITS;

impl GridScale {
    /// Overwrites `values` with independent draws.
    pub fn fill<R: Rng>(&self, rng: &mut R, values: &mut [i64]) {
        if self.shift >= ZERO_SHIFT {
            values.fill(0);
            return;
        }
        fill(*self, rng, values);
    }
}

impl WordLaw for GridScale {
    #[inline(always)]
    fn look(&self, code: u8, word: u64) -> (i64, u64) {
        look::<Shipped>(self, code, word)
    }

    fn finish<R: Rng>(&self, word: u64, spare: &mut Spare<'_, R>) -> i64 {
        finish::<Shipped, R>(self, word, spare)
    }
}

/// The draw of a word whose piece has this code; then 0 if the word alone decides it, else 1.
#[inline(always)]
pub(crate) fn look<S: Staircase>(scale: &GridScale, code: u8, word: u64) -> (i64, u64) {
    let shift = scale.shift + LOOK_BITS - u64::BITS;
    let x = u64::from(code) << S::CELL_BITS | word & ((1 << S::CELL_BITS) - 1);
    // Like GridScale::round_at, with zeros below x (6 bits of them in Shipped).
    let zeros = LOOK_BITS - S::POSITION_BITS;
    let (high, low) = wide_product(scale.mantissa, x << zeros);
    let high = high + (1 << (shift - 1));
    // One unit of 2^-POSITION_BITS, less the smallest step.
    let carry = u64::from(low > u64::MAX - ((scale.mantissa << zeros) - 1));
    let (smallest, largest) = (high >> shift, (high + carry) >> shift);
    let negative = -((word >> S::CELL_BITS & 1) as i64);
    // The first bit: whether the code is that of a sure piece.
    let sure = u64::from(code).wrapping_sub(S::SURE_CELLS as u64) >> (u64::BITS - 1);
    let open = (1 - sure) | (largest - smallest);
    ((smallest as i64 ^ negative) - negative, open)
}

/// The upper and the lower 64 bits of `a b`, from products of 32 bits: vectors have no others.
#[inline(always)]
pub(crate) fn wide_product(a: u64, b: u64) -> (u64, u64) {
    const HALF: u64 = u32::MAX as u64;
    let (a1, a0, b1, b0) = (a >> 32, a & HALF, b >> 32, b & HALF);
    let lowest = a0 * b0;
    let first = a1 * b0 + (lowest >> 32);
    let second = a0 * b1 + (first & HALF);
    let high = a1 * b1 + (first >> 32) + (second >> 32);
    (high, second << 32 | lowest & HALF)
}

/// One draw that begins with `word`.
pub(crate) fn finish<S: Staircase, R: Rng>(
    scale: &GridScale,
    mut word: u64,
    spare: &mut Spare<'_, R>,
) -> i64 {
    loop {
        if let Some(point) = point::<S, R>(word, spare) {
            let mut known = point.digits.into_iter();
            let next_digit = || known.next().unwrap_or_else(|| spare.digit());
            let magnitude = scale.round_at(point.x, S::POSITION_BITS, next_digit);
            let negative = word >> S::CELL_BITS & 1 == 1;
            return if negative { -magnitude } else { magnitude };
        }
        word = spare.bits(S::SLOT_BITS + 1 + S::CELL_BITS);
    }
}

/// A point under the half-normal density: `x` units of `2^-POSITION_BITS`, then `digits`, then digits
/// not yet drawn.
pub(crate) struct ExactPoint {
    pub x: u128,
    pub digits: Vec<u32>,
}

/// The point of a word, unless it lies above the density.
#[inline]
pub(crate) fn point<S: Staircase, R: Rng>(
    word: u64,
    spare: &mut Spare<'_, R>,
) -> Option<ExactPoint> {
    let code = S::SLOTS[(word >> (S::CELL_BITS + 1)) as usize];
    if code == S::TAIL {
        return tail_point::<S, R>(spare);
    }
    let code = usize::from(code);
    let offset = word & ((1 << S::CELL_BITS) - 1);
    let mut digits = Vec::new();
    if code < S::SURE_CELLS {
        let x = u128::from((code as u64) << S::CELL_BITS | offset);
        return Some(ExactPoint { x, digits });
    }
    let j = code - S::SURE_CELLS;
    let x = u128::from((j as u64) << S::CELL_BITS | offset);
    let v = spare.bits(S::WORD_BITS);
    let below = below_edge::<S>(j, offset, v).unwrap_or_else(|| {
        let height = Height::edge::<S>(&S::CELL_TABLE[j]);
        below_density::<S>(x, &mut digits, height, v, || spare.digit())
    });
    below.then_some(ExactPoint { x, digits })
}

/// A point of the tail, unless it lies above the density.
#[cold]
pub(crate) fn tail_point<S: Staircase, R: Rng>(spare: &mut Spare<'_, R>) -> Option<ExactPoint> {
    // Parts from here on lie beyond the limit.
    let parts = S::LIMIT << (S::WIDTH_BITS - S::PART_BITS);
    let part = spare.ones(parts)?;
    let part_bits = S::CELL_BITS + S::PART_BITS;
    let start = ((S::CELLS as u128) << S::CELL_BITS) + (u128::from(part) << part_bits);
    let x = start + u128::from(spare.bits(part_bits));
    // An i64 cannot hold every normal deviate. Those refused have probability below 2^-700000.
    if x >= u128::from(S::LIMIT) << S::POSITION_BITS {
        return None;
    }
    let mut digits = Vec::new();
    let v = spare.bits(S::WORD_BITS);
    let height = Height::tail::<S>(part);
    let below = below_density::<S>(x, &mut digits, height, v, || spare.digit());
    below.then_some(ExactPoint { x, digits })
}
