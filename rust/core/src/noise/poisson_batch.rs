//! Poisson sampling: every index joins the batch independently with probability exactly q.
//!
//! The gap G before the next member has `P(G >= m) = (1 - q)^m`, so it is the integer with
//! `(1 - q)^(G+1) <= U < (1 - q)^G` for a uniform U in [0, 1). Of U the first 64 bits are drawn, and
//! `ln U / ln(1 - q)` is computed in floating point with a bound of its error. Almost always that
//! leaves one integer. Otherwise the candidates are told apart by comparing U, with as many more
//! digits as it takes, with powers of `1 - q` enclosed in fixed-point arithmetic of any length. So
//! the logarithm decides nothing but the speed: the law is exact for the double-precision number q.
//!
//! A batch costs expected time O(q n), and depends on the random stream, q and n alone.

use crate::error::{Result, require};
use crate::noise::natural::Natural;
use rand::Rng;

/// The smallest rate accepted: far below any use, and no intermediate number overflows.
const MIN_RATE: f64 = 1e-300;

/// From here on one coin for each index is cheaper than one logarithm for each member: a random word
/// takes 8 nanoseconds, a jump 16.
const COIN_RATE: f64 = 0.5;

/// The probability with which every record joins a batch.
#[derive(Debug, Clone)]
pub struct Rate {
    value: f64,
    method: Method,
}

#[derive(Debug, Clone)]
enum Method {
    /// Everyone joins.
    All,
    /// A coin each: a uniform word below this bound, which is `2^64 q` exactly.
    Coins(u64),
    /// Jumps from member to member.
    Gaps(Gap),
}

impl Rate {
    /// The rate `q`, taken as the exact value of the double.
    ///
    /// # Errors
    /// `q` not from 1e-300 to 1.
    pub fn new(q: f64) -> Result<Self> {
        let message = format_args!("got {q}, expected {MIN_RATE:e} to 1");
        require((MIN_RATE..=1.0).contains(&q), "sampling_rate", message)?;
        let method = if q == 1.0 {
            Method::All
        } else if q >= COIN_RATE {
            // The lowest bit of a double from 1/2 on is at least 2^-53: the product is whole.
            Method::Coins((q * 18_446_744_073_709_551_616.0) as u64)
        } else {
            Method::Gaps(Gap::new(q))
        };
        Ok(Self { value: q, method })
    }

    /// The probability.
    pub fn value(&self) -> f64 {
        self.value
    }
}

/// Overwrites `batch` with the members among `0..n`, in increasing order.
///
/// `n` is at most `2^32`. The batch may be empty: that is a step too.
#[inline]
pub fn poisson_batch<R: Rng>(rng: &mut R, rate: &Rate, n: usize, batch: &mut Vec<u32>) {
    batch.clear();
    match &rate.method {
        Method::All => batch.extend((0..n).map(|i| i as u32)),
        Method::Coins(bound) => toss_coins(rng, *bound, n, batch),
        Method::Gaps(gap) => {
            let mut next = 0;
            while let Some(skipped) = gap.draw(rng, (n - next) as u64) {
                next += skipped as usize;
                batch.push(next as u32);
                next += 1;
            }
        }
    }
}

/// Indices for which a coin is tossed before the batch grows.
const COINS: usize = 1024;

fn toss_coins<R: Rng>(rng: &mut R, bound: u64, n: usize, batch: &mut Vec<u32>) {
    for first in (0..n).step_by(COINS) {
        let end = n.min(first + COINS);
        let mut members = batch.len();
        batch.resize(members + end - first, 0);
        for i in first..end {
            // Written always, kept only if it joins: no branch to mispredict.
            batch[members] = i as u32;
            members += usize::from(rng.next_u64() < bound);
        }
        batch.truncate(members);
    }
}

/// The law of the gaps of one rate.
#[derive(Debug, Clone)]
struct Gap {
    /// `-1 / ln(1 - q)`, within a few units in the last place.
    scale: f64,
    /// `1 - q`, exactly.
    keep: Complement,
}

impl Gap {
    fn new(q: f64) -> Self {
        Self {
            scale: -1.0 / libm::log1p(-q),
            keep: Complement::of(q),
        }
    }

    /// The gap, or `None` if it is at least `room`.
    ///
    /// The error of `t`: rounding 64 bits to 53 moves `ln U` by at most `2^-53`, and the digits not
    /// drawn by at most `2^-53` more if the word is at least `2^53` (else by `1 / word`); logarithm,
    /// scale and product err by a few parts in `2^53`. The constants leave a factor of 4 and more.
    #[inline]
    fn draw<R: Rng>(&self, rng: &mut R, room: u64) -> Option<u64> {
        const UNIT: f64 = 1.0 / 18_446_744_073_709_551_616.0;
        const ABSOLUTE: f64 = 1.0 / (1_u64 << 50) as f64;
        const RELATIVE: f64 = 1.0 / (1_u64 << 48) as f64;
        let word = rng.next_u64();
        let t = -libm::log(word as f64 * UNIT) * self.scale;
        let unseen = if word >> 53 == 0 {
            4.0 / word as f64
        } else {
            0.0
        };
        let error = t * RELATIVE + (ABSOLUTE + unseen) * self.scale;
        let (least, most) = ((t - error).max(0.0), t + error);
        if least >= room as f64 {
            return None;
        }
        let gap = least as u64;
        if most < (gap + 1) as f64 {
            return Some(gap);
        }
        let gap = self.tell_apart(Uniform::of(word), gap, room.min(most as u64), rng);
        (gap < room).then_some(gap)
    }

    /// The gap, known to be from `least` to `most` (or at least `most`, if that is the room).
    #[cold]
    #[inline(never)]
    fn tell_apart<R: Rng>(
        &self,
        mut u: Uniform,
        mut least: u64,
        mut most: u64,
        rng: &mut R,
    ) -> u64 {
        while least < most {
            let middle = least + (most - least).div_ceil(2);
            if u.below_power(&self.keep, middle, rng) {
                least = middle;
            } else {
                most = middle - 1;
            }
        }
        least
    }
}

/// A uniform number in [0, 1) whose 32-bit digits are drawn two at a time when asked for.
struct Uniform {
    /// Most significant first.
    digits: Vec<u32>,
}

impl Uniform {
    fn of(first: u64) -> Self {
        let mut own = Self { digits: Vec::new() };
        own.append(first);
        own
    }

    fn append(&mut self, word: u64) {
        self.digits.extend([(word >> 32) as u32, word as u32]);
    }

    /// `self < base^exponent`, exactly, for a positive exponent.
    fn below_power<R: Rng>(&mut self, base: &Complement, exponent: u64, rng: &mut R) -> bool {
        let mut words = base.words.max(3);
        loop {
            while self.digits.len() < 2 * words {
                self.append(rng.next_u64());
            }
            let (below, above) = base.power(exponent, words);
            // The digits not drawn add less than one unit in the last place.
            let mine = Natural::from_digits(0, &self.digits[..2 * words]);
            if mine < below {
                return true;
            }
            if mine >= above {
                return false;
            }
            words += 2;
        }
    }
}

/// `1 - q`, exactly.
#[derive(Debug, Clone)]
struct Complement {
    /// In units of `2^(-64 words)`.
    value: Natural,
    words: usize,
}

impl Complement {
    /// For `q` from [`MIN_RATE`] up to below 1.
    fn of(q: f64) -> Self {
        let (fraction, exponent) = libm::frexp(q);
        // q = mantissa 2^-shift
        let mantissa = Natural::from_digits(u128::from(libm::ldexp(fraction, 53) as u64), &[]);
        let shift = (53 - exponent) as usize;
        let words = shift.div_ceil(64);
        let q = mantissa.times(&Natural::power_of_two(64 * words - shift));
        Self {
            value: Natural::power_of_two(64 * words).minus(&q),
            words,
        }
    }

    /// Lower and upper bounds of `self^exponent` in units of `2^(-64 words)`, at least the own words.
    fn power(&self, exponent: u64, words: usize) -> (Natural, Natural) {
        let base = (self.value).times(&Natural::power_of_two(64 * (words - self.words)));
        let product = |a: &Natural, b: &Natural| a.times(b).shifted_down(64 * words);
        let unit = Natural::power_of_two(0);
        let (mut below, mut above) = (base.clone(), base.clone());
        for bit in (0..exponent.ilog2()).rev() {
            below = product(&below, &below);
            above = product(&above, &above).plus(&unit);
            if exponent >> bit & 1 == 1 {
                below = product(&below, &base);
                above = product(&above, &base).plus(&unit);
            }
        }
        (below, above)
    }
}
