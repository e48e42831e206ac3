//! Discrete Gaussian noise, exactly: `P(k)` proportional to `exp(-k^2 / (2 sigma^2))`.
//!
//! The staircase of `half_normal` covers the density of `k / sigma` as well: a piece of cell `j` is
//! chosen as for the normal deviate, then one of equally many places for integers of the cell, and
//! only the comparison with the density sees where `k / sigma` lies. All decisions use integers and
//! random bits. The argument is the project's page `docs/proofs/discrete_gaussian.md`.
//!
//! The time of a draw depends on the drawn value and never on any data.

use crate::error::{Result, require};
use crate::noise::first_look::{SIGN, Spare, WordLaw, fill};
use crate::noise::half_normal::{Height, Shipped, Staircase, below_density_of, below_edge};
use crate::noise::{Task, fill_blocks};
use crate::runtime::interrupt::Interrupt;
use rand::Rng;

/// Parameters are below this: every product of the first look then fits 64 bits.
pub const SIGMA_END: u64 = 1 << 40;

/// A part of the tail is as wide as this many cells.
const PART_CELLS: u64 = 1 << Shipped::PART_BITS;

/// Integers from this many sigma on are drawn again, as the normal deviates are; they have
/// probability below `2^-700000`.
const LIMIT: u64 = Shipped::LIMIT as u64;

/// Parts of the tail from here on lie beyond [`LIMIT`].
const PARTS: u32 = 4 * LIMIT as u32;

/// `size` independent draws with `P(k)` proportional to `exp(-k^2 / (2 sigma^2))`.
///
/// # Errors
/// As [`DiscreteGaussian::new`]; `n_threads` out of range; no memory; interrupted.
pub fn discrete_gaussian(
    task: Task<'_>,
    size: usize,
    sigma: u64,
    n_threads: usize,
    interrupt: &dyn Interrupt,
) -> Result<Vec<i64>> {
    let law = DiscreteGaussian::new(sigma)?;
    fill_blocks(task, 0, size, n_threads, interrupt, |stream, block| {
        law.fill(stream, block);
    })
}

/// The law, and precomputed numbers of its sampler.
#[derive(Debug, Clone, Copy)]
pub struct DiscreteGaussian {
    sigma: u64,
    /// Places of a cell: no cell holds more integers.
    places: u64,
    /// Words that uniform places skip: `2^50 mod places`, moved to the top of a word.
    excess: u64,
}

impl DiscreteGaussian {
    /// The law of parameter `sigma`; its standard deviation is a little smaller.
    ///
    /// # Errors
    /// `sigma` not from 1 to `2^40 - 1`.
    pub fn new(sigma: u64) -> Result<Self> {
        let message = format_args!("got {sigma}, expected an integer from 1 to 2**40 - 1");
        require((1..SIGMA_END).contains(&sigma), "sigma", message)?;
        let places = sigma.div_ceil(1 << Shipped::WIDTH_BITS);
        Ok(Self {
            sigma,
            places,
            excess: ((1 << Shipped::CELL_BITS) % places) << (u64::BITS - Shipped::CELL_BITS),
        })
    }

    /// Overwrites `values` with independent draws.
    pub fn fill<R: Rng>(&self, rng: &mut R, values: &mut [i64]) {
        fill(*self, rng, values);
    }

    /// The integer of a word, unless it is refused.
    #[inline]
    fn magnitude<R: Rng>(&self, word: u64, spare: &mut Spare<'_, R>) -> Option<u64> {
        let (place, fresh) = self.place(word);
        // Before the piece is looked at: the tail, which has places of its own, would otherwise be
        // refused less often than the cells.
        if !fresh {
            return None;
        }
        let code = Shipped::SLOTS[(word >> (64 - Shipped::SLOT_BITS)) as usize];
        if code == Shipped::TAIL {
            return self.tail(spare);
        }
        let code = usize::from(code);
        let j = if code < Shipped::SURE_CELLS {
            code
        } else {
            code - Shipped::SURE_CELLS
        };
        let k = self.first(j as u64) + place;
        if k << Shipped::WIDTH_BITS >= (j as u64 + 1) * self.sigma {
            return None;
        }
        if code < Shipped::SURE_CELLS {
            return Some(k);
        }
        let v = spare.word();
        let past = (k << Shipped::WIDTH_BITS) - j as u64 * self.sigma;
        let offset = (u128::from(past) << Shipped::CELL_BITS) / u128::from(self.sigma);
        let height = Height::edge::<Shipped>(&Shipped::CELL_TABLE[j]);
        below_edge::<Shipped>(j, offset as u64, v)
            .unwrap_or_else(|| self.below(k, height, v, spare))
            .then_some(k)
    }

    /// An integer of the tail, unless it is refused.
    #[cold]
    fn tail<R: Rng>(&self, spare: &mut Spare<'_, R>) -> Option<u64> {
        let part = spare.ones(PARTS)?;
        let places = PART_CELLS * self.places;
        let cell = Shipped::CELLS as u64 + PART_CELLS * u64::from(part);
        let k = self.first(cell) + spare.below(places);
        if k << Shipped::WIDTH_BITS >= (cell + PART_CELLS) * self.sigma || k >= LIMIT * self.sigma {
            return None;
        }
        let v = spare.word();
        self.below(k, Height::tail::<Shipped>(part), v, spare)
            .then_some(k)
    }

    /// The smallest integer `k` with `k / sigma` at or beyond the left end of a cell.
    #[inline(always)]
    fn first(&self, cell: u64) -> u64 {
        (cell * self.sigma).div_ceil(1 << Shipped::WIDTH_BITS)
    }

    /// The place of a word, and whether it counts: among the words that do, every place has the
    /// same number.
    #[inline(always)]
    fn place(&self, word: u64) -> (u64, bool) {
        let bits = word << (u64::BITS - Shipped::CELL_BITS);
        let product = u128::from(bits) * u128::from(self.places);
        ((product >> 64) as u64, product as u64 >= self.excess)
    }

    /// Whether a point above `k / sigma` lies under the density, with as many digits as it takes.
    #[cold]
    fn below<R: Rng>(&self, k: u64, height: Height, v: u64, spare: &mut Spare<'_, R>) -> bool {
        let sigma = u128::from(self.sigma);
        let numerator = u128::from(k) << Shipped::POSITION_BITS;
        let mut rest = numerator % sigma;
        below_density_of::<Shipped>(numerator / sigma, &mut Vec::new(), height, v, |x, v| {
            let dividend = rest << u32::BITS;
            rest = dividend % sigma;
            x.push((dividend / sigma) as u32);
            v.push(spare.digit());
        })
    }
}

impl WordLaw for DiscreteGaussian {
    #[inline(always)]
    fn look(&self, code: u8, word: u64) -> (i64, u64) {
        let cell = u64::from(code);
        let (place, fresh) = self.place(word);
        let k = self.first(cell) + place;
        let inside = k << Shipped::WIDTH_BITS < (cell + 1) * self.sigma;
        let negative = word >> SIGN & 1;
        let mask = -(negative as i64);
        #[expect(
            clippy::needless_bitwise_bool,
            reason = "without branches: a wrong guess costs more than the whole line"
        )]
        let sure = (usize::from(code) < Shipped::SURE_CELLS) & fresh & inside & (k >= negative);
        ((k as i64 ^ mask) - mask, u64::from(!sure))
    }

    fn finish<R: Rng>(&self, mut word: u64, spare: &mut Spare<'_, R>) -> i64 {
        loop {
            let negative = word >> SIGN & 1 == 1;
            // Zero would be counted under both signs.
            if let Some(k) = self.magnitude(word, spare)
                && !(negative && k == 0)
            {
                return if negative { -(k as i64) } else { k as i64 };
            }
            word = spare.word();
        }
    }
}
