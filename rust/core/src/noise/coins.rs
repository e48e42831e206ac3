//! Exact coins: decisions of a stated probability from random bits and integers alone.
//!
//! No logarithm, exponential or rounding error enters. The alternating series behind `exp(-y)` is
//! von Neumann's (1951), in the form of Canonne, Kamath and Steinke, "The discrete Gaussian for
//! differential privacy" (2020), Algorithm 1.

use rand::Rng;

/// `2^64`, exactly.
const WORDS: f64 = 18_446_744_073_709_551_616.0;

/// A uniform integer in `0 .. m` for a positive `m`, exactly: of the `2^64` words, `2^64 mod m` are
/// drawn again so that every answer keeps the same number of words.
#[inline]
pub fn below<R: Rng>(rng: &mut R, m: u64) -> u64 {
    debug_assert!(m > 0);
    let excess = m.wrapping_neg() % m;
    loop {
        let product = u128::from(rng.next_u64()) * u128::from(m);
        if product as u64 >= excess {
            return (product >> 64) as u64;
        }
    }
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
