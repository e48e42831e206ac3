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
use crate::simd::{Kernel, Simd, dispatch};
use rand::Rng;

/// The smallest rate accepted: far below any use, and no intermediate number overflows.
const MIN_RATE: f64 = 1e-300;

/// From here on a coin for each index (3 nanoseconds) is surely cheaper than a logarithm for each member
/// (9). Part of the meaning of a seed.
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
        Method::Gaps(gap) => gap.jump(rng, n, batch),
    }
}

/// Indices for which a coin is tossed before the batch grows.
const COINS: usize = 1024;

fn toss_coins<R: Rng>(rng: &mut R, bound: u64, n: usize, batch: &mut Vec<u32>) {
    let mut words = [[0; 8]; COINS];
    for first in (0..n).step_by(COINS) {
        let words = &mut words[..COINS.min(n - first)];
        rng.fill_bytes(words.as_flattened_mut());
        let mut members = batch.len();
        batch.resize(members + words.len(), 0);
        for (i, word) in words.iter().enumerate() {
            // Written always, kept only if it joins: no branch to mispredict.
            batch[members] = (first + i) as u32;
            members += usize::from(u64::from_le_bytes(*word) < bound);
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

    /// Appends the members among `0..n`.
    fn jump<R: Rng>(&self, rng: &mut R, n: usize, batch: &mut Vec<u32>) {
        let (mut words, mut looks, mut at) = ([[0; 8]; TOGETHER], [(0.0, 0.0); TOGETHER], TOGETHER);
        let mut next = 0;
        loop {
            if at == TOGETHER {
                rng.fill_bytes(words.as_flattened_mut());
                looks = dispatch(Looks(&words, self.scale));
                at = 0;
            }
            // Signed: conversions of these are one instruction.
            let (room, word, (least, most)) = ((n - next) as i64, words[at], looks[at]);
            at += 1;
            if least >= room as f64 {
                return;
            }
            let mut gap = least as i64;
            if most >= (gap + 1) as f64 {
                // More digits are the words that come next.
                let more = || {
                    at += 1;
                    let word = words.get(at - 1).copied().map(u64::from_le_bytes);
                    word.unwrap_or_else(|| rng.next_u64())
                };
                let (least, most) = (gap as u64, (room as u64).min(most as u64));
                let u = Uniform::of(u64::from_le_bytes(word));
                gap = self.tell_apart(u, least, most, more) as i64;
                at = at.min(TOGETHER);
                if gap >= room {
                    return;
                }
            }
            next += gap as usize;
            batch.push(next as u32);
            next += 1;
        }
    }

    /// The gap, known to be from `least` to `most` (or at least `most`, if that is the room).
    #[cold]
    #[inline(never)]
    fn tell_apart(
        &self,
        mut u: Uniform,
        mut least: u64,
        mut most: u64,
        mut more: impl FnMut() -> u64,
    ) -> u64 {
        while least < most {
            let middle = least + (most - least).div_ceil(2);
            if u.below_power(&self.keep, middle, &mut more) {
                least = middle;
            } else {
                most = middle - 1;
            }
        }
        least
    }
}

/// Words looked at together.
const TOGETHER: usize = 16;

/// Bounds of `ln U / ln(1 - q)` for each word, the first digits of U, and `-1 / ln(1 - q)`.
///
/// Their distance: rounding 64 bits to 53 moves `ln U` by at most `2^-53`, and the digits not drawn by at
/// most `2^-53` more if the word is at least `2^53` (else by `1 / word`); logarithm, scale and product err
/// by `2^-49` of themselves. The constants leave a factor of 4 and more.
struct Looks<'w>(&'w [[u8; 8]; TOGETHER], f64);

impl Kernel for Looks<'_> {
    type Output = [(f64, f64); TOGETHER];

    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) -> Self::Output {
        const ABSOLUTE: f64 = 1.0 / (1_u64 << 50) as f64;
        const RELATIVE: f64 = 1.0 / (1_u64 << 46) as f64;
        let Self(words, scale) = self;
        std::array::from_fn(|i| {
            let word = u64::from_le_bytes(words[i]) as f64;
            let t = minus_log(word) * scale;
            let unseen = if word < (1_u64 << 53) as f64 {
                4.0 / word
            } else {
                0.0
            };
            let error = t * RELATIVE + (ABSOLUTE + unseen) * scale;
            ((t - error).max(0.0), t + error)
        })
    }
}

/// `-ln(word / 2^64)` for whole numbers up to `2^64`, to `2^-49` of itself; of 0, a number.
///
/// `2 atanh s` with `s = (m - 1)/(m + 1)` for a factor m within half a binade of 1, by nine terms: the next
/// one is below `2^-50` of the first. Branch-free, for vectors.
#[inline(always)]
pub(crate) fn minus_log(word: f64) -> f64 {
    const DIGITS: u64 = (1 << 52) - 1;
    /// Bits of about the square root of 1/2, and how far those of 1 are from them.
    const LEAST: u64 = 0x3fe6_a09e << 32;
    const UP: u64 = (0x3ff << 52) - LEAST;
    /// `2^52`: its last bits hold whole numbers.
    const WHOLE: f64 = (1_u64 << 52) as f64;
    let bits = word.to_bits().wrapping_add(UP);
    let binades = f64::from_bits(WHOLE.to_bits() | bits >> 52) - (WHOLE + f64::from(0x3ff + 64));
    let m = f64::from_bits((bits & DIGITS) + LEAST);
    let s = (m - 1.0) / (m + 1.0);
    let z = s * s;
    let mut series = 1.0 / 17.0;
    for n in (0..8).rev() {
        series = series * z + 1.0 / f64::from(2 * n + 1);
    }
    -(binades * std::f64::consts::LN_2 + 2.0 * s * series)
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
    fn below_power(
        &mut self,
        base: &Complement,
        exponent: u64,
        more: &mut impl FnMut() -> u64,
    ) -> bool {
        let mut words = base.words.max(3);
        loop {
            while self.digits.len() < 2 * words {
                self.append(more());
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
