//! The sampler of [`GridScale::fill`]: a first look at many words at once, then the few left open.
//!
//! One word of 64 bits is enough for 95 of 100 draws: 13 bits choose a piece of the staircase above
//! the half-normal density, one is the sign, 50 are the place within the piece.

use crate::noise::GridScale;
use crate::noise::first_look::{SIGN, Spare, WordLaw, fill};
use crate::noise::half_normal::{
    CELL_BITS, CELL_TABLE, CELLS, Height, POSITION_BITS, SLOT_BITS, SLOTS, SURE_CELLS, TAIL,
    below_density, below_edge,
};
use rand::Rng;

/// The place in the first look counts in units of `2^-61`, so that the whole product lies above bit
/// 64 of it and one word can be shifted instead of two.
const LOOK_BITS: u32 = POSITION_BITS + 6;

/// From here on, in the exponent of the ratio, `q < 2^-14` and every number below 1024 rounds to 0.
const ZERO_SHIFT: u32 = 128 - LOOK_BITS;

/// Numbers from here on are drawn again, because an `i64` cannot hold every normal deviate. They
/// have probability below `2^-700000`.
const LIMIT: u128 = 1024 << POSITION_BITS;

/// The tail is cut into parts, each 1/4 wide.
const PART_BITS: u32 = POSITION_BITS - 2;

/// Parts from here on lie beyond [`LIMIT`].
const PARTS: u32 = 4 * 1024;

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
    fn look(&self, word: u64) -> (i64, bool) {
        let shift = self.shift + LOOK_BITS;
        let mantissa = u128::from(self.mantissa);
        let code = SLOTS[(word >> (64 - SLOT_BITS)) as usize];
        let x = u64::from(code) << CELL_BITS | word & ((1 << CELL_BITS) - 1);
        // As GridScale::round_at, with 6 bits of zeros below x.
        let low = mantissa * u128::from(x << (LOOK_BITS - POSITION_BITS)) + (1u128 << (shift - 1));
        // One unit of 2^-POSITION_BITS, less the smallest step.
        let high = low + (mantissa << (LOOK_BITS - POSITION_BITS)) - 1;
        let rounded = |v: u128| ((v >> 64) as u64) >> (shift - 64);
        let magnitude = rounded(low) as i64;
        let negative = -((word >> SIGN & 1) as i64);
        let sure = usize::from(code) < SURE_CELLS && rounded(low) == rounded(high);
        ((magnitude ^ negative) - negative, sure)
    }

    fn finish<R: Rng>(&self, mut word: u64, spare: &mut Spare<'_, R>) -> i64 {
        loop {
            if let Some(point) = point(word, spare) {
                let mut known = point.digits.into_iter();
                let next_digit = || known.next().unwrap_or_else(|| spare.digit());
                let magnitude = self.round_at(point.x, POSITION_BITS, next_digit);
                let negative = word >> SIGN & 1 == 1;
                return if negative { -magnitude } else { magnitude };
            }
            word = spare.word();
        }
    }
}

/// A point under the half-normal density: `x` units of `2^-POSITION_BITS`, then `digits`, then digits
/// not yet drawn.
struct ExactPoint {
    x: u128,
    digits: Vec<u32>,
}

/// The point of a word, unless it lies above the density.
#[inline]
fn point<R: Rng>(word: u64, spare: &mut Spare<'_, R>) -> Option<ExactPoint> {
    let code = SLOTS[(word >> (64 - SLOT_BITS)) as usize];
    if code == TAIL {
        return tail_point(spare);
    }
    let code = usize::from(code);
    let offset = word & ((1 << CELL_BITS) - 1);
    let mut digits = Vec::new();
    if code < SURE_CELLS {
        let x = u128::from((code as u64) << CELL_BITS | offset);
        return Some(ExactPoint { x, digits });
    }
    let j = code - SURE_CELLS;
    let x = u128::from((j as u64) << CELL_BITS | offset);
    let v = spare.word();
    let below = below_edge(j, offset, v).unwrap_or_else(|| {
        let height = Height::edge(&CELL_TABLE[j]);
        below_density(x, &mut digits, height, v, || spare.digit())
    });
    below.then_some(ExactPoint { x, digits })
}

/// A point of the tail, unless it lies above the density.
#[cold]
fn tail_point<R: Rng>(spare: &mut Spare<'_, R>) -> Option<ExactPoint> {
    let part = spare.ones(PARTS)?;
    let start = ((CELLS as u128) << CELL_BITS) + (u128::from(part) << PART_BITS);
    let x = start + u128::from(spare.word() >> (64 - PART_BITS));
    if x >= LIMIT {
        return None;
    }
    let mut digits = Vec::new();
    let v = spare.word();
    let below = below_density(x, &mut digits, Height::tail(part), v, || spare.digit());
    below.then_some(ExactPoint { x, digits })
}
