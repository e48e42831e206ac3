//! Exact coins: decisions of a stated probability from random bits and integers alone.
//!
//! No logarithm, exponential or rounding error enters. The alternating series behind `exp(-y)` is
//! von Neumann's (1951), in the form of Canonne, Kamath and Steinke, "The discrete Gaussian for
//! differential privacy" (2020), Algorithm 1.

use rand::Rng;

/// `2^64`, exactly.
const WORDS: f64 = 18_446_744_073_709_551_616.0;

/// Words of random bits, of a width of which one source serves all.
pub(super) trait Word: Copy + PartialOrd {
    /// `2^width mod self`, for a positive number.
    fn excess(self) -> Self;
    /// Upper and lower half of the product.
    fn product(self, other: Self) -> (Self, Self);
}

macro_rules! word {
    ($narrow:ty, $wide:ty) => {
        impl Word for $narrow {
            #[inline(always)]
            fn excess(self) -> Self {
                self.wrapping_neg() % self
            }
            #[inline(always)]
            fn product(self, other: Self) -> (Self, Self) {
                let product = <$wide>::from(self) * <$wide>::from(other);
                ((product >> Self::BITS) as Self, product as Self)
            }
        }
    };
}
word!(u64, u128);

/// A uniform integer in `0 .. m` for a positive `m`, exactly: of the words, as many are drawn again
/// as their number leaves over when divided by `m`, so that every answer keeps the same number.
#[inline]
pub(super) fn uniform<W: Word>(m: W, mut word: impl FnMut() -> W) -> W {
    let excess = m.excess();
    loop {
        let (high, low) = word().product(m);
        if low >= excess {
            return high;
        }
    }
}

/// A uniform integer in `0 .. m` for a positive `m`, exactly.
#[inline]
pub fn below<R: Rng>(rng: &mut R, m: u64) -> u64 {
    debug_assert!(m > 0);
    uniform(m, || rng.next_u64())
}

/// True with probability exactly `p`, for any double from 0 to 1.
///
/// A uniform number is compared with `p` word by word, and drawn no further than it takes.
#[inline]
pub fn bernoulli<R: Rng>(rng: &mut R, p: f64) -> bool {
    debug_assert!((0.0..=1.0).contains(&p));
    if p >= 1.0 {
        return true;
    }
    let mut rest = p;
    while rest > 0.0 {
        // All three lines are exact: scaling by a power of two, cutting off, and what is left over
        // of at most 53 bits.
        let scaled = rest * WORDS;
        let digit = scaled as u64;
        rest = scaled - digit as f64;
        let word = rng.next_u64();
        if word != digit {
            return word < digit;
        }
    }
    false
}

/// True with probability exactly `exp(-x)`, for any finite double `x >= 0`.
///
/// `exp(-x)` is the square of `exp(-x / 2)`, and halving a number above 1 is exact: so `2^j` coins
/// of `exp(-y)`, y in (1/2, 1], must all be heads. The first tail ends it, after 2.6 coins on
/// average at most, however large `x` is.
#[inline]
pub fn bernoulli_exp<R: Rng>(rng: &mut R, x: f64) -> bool {
    debug_assert!(x >= 0.0 && x.is_finite());
    if x > 1.0 {
        let half = 0.5 * x;
        return bernoulli_exp(rng, half) && bernoulli_exp(rng, half);
    }
    alternating(rng, |rng| bernoulli(rng, x))
}

/// True with probability exactly `exp(-p / q)`, for integers `p <= q`, `q` positive.
#[inline]
pub fn bernoulli_exp_ratio<R: Rng>(rng: &mut R, p: u64, q: u64) -> bool {
    alternating(rng, |rng| below(rng, q) < p)
}

/// True with probability `exp(-y)`, where `coin` is true with probability `y`.
///
/// The k-th trial succeeds with probability `y / k`, so `P(at least k successes) = y^k / k!`, and
/// an even number of them has the probability of the alternating series.
#[inline]
fn alternating<R: Rng>(rng: &mut R, coin: impl Fn(&mut R) -> bool) -> bool {
    let mut successes = 0;
    while coin(rng) && below(rng, successes + 1) == 0 {
        successes += 1;
    }
    successes % 2 == 0
}

#[cfg(test)]
mod tests {
    use super::{Word, uniform};

    word!(u8, u16);

    /// This very source with words of eight bits: every answer has the same number of words, and
    /// no more are refused than must be.
    // Proof: grid_gaussian
    #[test]
    fn every_answer_has_as_many_of_all_small_words() {
        for m in 1..=u8::MAX {
            let (mut answers, mut refused) = ([0_u16; 256], 0);
            for word in 0..=u8::MAX {
                let mut drawn = 0;
                // The largest word is taken whatever m is.
                let answer = uniform(m, || {
                    drawn += 1;
                    if drawn == 1 { word } else { u8::MAX }
                });
                if drawn == 1 {
                    answers[usize::from(answer)] += 1;
                } else {
                    refused += 1;
                }
            }
            let each = 256 / u16::from(m);
            let (inside, outside) = answers.split_at(usize::from(m));
            assert!(inside.iter().all(|n| *n == each), "{m}");
            assert!(outside.iter().all(|n| *n == 0), "{m}");
            assert_eq!(refused, 256 % u16::from(m));
        }
    }
}
