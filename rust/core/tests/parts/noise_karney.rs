//! Karney's exact sampler: the oracle for the faster one.
//!
//! The normal deviate is Karney's (2016, "Sampling exactly from the normal distribution", Algorithm
//! N): a sign, an integer part and a fraction whose digits are drawn only when a comparison asks for
//! them. All decisions use integers and random bits; no logarithm, exponential or rounding error
//! enters. The argument, line by line, is the project's page `docs/proofs/grid_gaussian.md`.
//!
//! It shares nothing with the sampler of [`GridScale::fill`] but the
//! rounding, and is 20 times slower.
//!
//! Paper's symbol — name here: Algorithm H — `half_exponential`, G — inside `integer_part`,
//! P — inside `integer_part`, B — `fraction_trial`, C — `below`, N — `Deviate::draw`.

use dpsvm_core::noise::coins::below;
use dpsvm_core::noise::{GridScale, Key};
use rand::Rng;

/// Integer parts from here on are drawn again, because an `i64` cannot hold every normal deviate.
/// They have probability below `2^-700000`.
const INTEGER_LIMIT: u32 = 1024;

/// Overwrites `values` with independent draws of the law of [`GridScale::fill`], by Karney's
/// algorithm.
fn fill_by_karney<R: Rng>(scale: &GridScale, rng: &mut R, values: &mut [i64]) {
    let mut bits = Bits::new(rng);
    for value in values {
        let deviate = Deviate::draw(&mut bits);
        let mut known = deviate.fraction.digits();
        let magnitude = round(scale, deviate.integer, || {
            known.next().unwrap_or_else(|| bits.rng.next_u32())
        });
        *value = if deviate.negative {
            -magnitude
        } else {
            magnitude
        };
    }
}

/// `floor(q (k + x) + 1/2)` for the ratio `q`, an integer `k` below 1024 and the fraction
/// `x = 0.d1 d2 d3 ...` in base `2^32` whose digits come from `next_digit`.
pub fn round(scale: &GridScale, k: u32, mut next_digit: impl FnMut() -> u32) -> i64 {
    let high = u128::from(next_digit());
    let low = u128::from(next_digit());
    scale.round_at(u128::from(k) << 64 | high << 32 | low, 64, next_digit)
}

/// A uniform number in [0, 1) whose digits, in base `2^32`, are drawn when first asked for.
struct Lazy {
    first: u32,
    /// Digits after the first: almost always none, and then nothing is allocated.
    rest: Vec<u32>,
}

impl Lazy {
    fn draw<R: Rng>(rng: &mut R) -> Self {
        Self {
            first: rng.next_u32(),
            rest: Vec::new(),
        }
    }

    /// The digits drawn so far.
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
    fn below<R: Rng>(&mut self, other: &mut Self, rng: &mut R) -> bool {
        if self.first == other.first {
            return self.below_after_first(other, rng);
        }
        self.first < other.first
    }

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
fn half_exponential<R: Rng>(bits: &mut Bits<'_, R>) -> bool {
    bits.next() || half_exponential_after_zero(bits)
}

/// [`half_exponential`] once the leading bit of `u1` is known to be 0.
///
/// Every number of the run then has leading bit 0; the [`Lazy`] ones are the bits that follow, so
/// that most runs end on one bit.
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
fn coin<R: Rng>(k: u32, x: &mut Lazy, bits: &mut Bits<'_, R>) -> bool {
    if k == 0 {
        return bits.next() && Lazy::draw(bits.rng).below(x, bits.rng);
    }
    match below(bits.rng, u64::from(2 * k + 2)) {
        0 => false,
        1 => Lazy::draw(bits.rng).below(x, bits.rng),
        _ => true,
    }
}

/// Probability of a false alarm of the law test, for each ratio; and its sample size.
const ALPHA: f64 = 1e-6;
const DRAWS: usize = 400_000;

/// Laurent and Massart (2000): a chi-square with `f` degrees of freedom exceeds
/// `f + 2 sqrt(f t) + 2 t` with probability at most `exp(-t)`.
fn critical(freedom: f64) -> f64 {
    let t = -ALPHA.ln();
    freedom + 2.0 * (freedom * t).sqrt() + 2.0 * t
}

/// Pearson's statistic of two samples of the same size having one law, and its degrees of freedom.
/// Values drawn less than 20 times together form classes with their neighbours.
fn two_samples(one: &[i64], other: &[i64]) -> (f64, f64) {
    let reach = one.iter().chain(other).map(|m| m.abs()).max().unwrap_or(0);
    let counts = |draws: &[i64]| {
        let mut counts = vec![0.0; 2 * reach as usize + 1];
        for m in draws {
            counts[(m + reach) as usize] += 1.0;
        }
        counts
    };
    let (mut a, mut b, mut statistic, mut classes) = (0.0, 0.0, 0.0, 0.0);
    for (x, y) in counts(one).into_iter().zip(counts(other)) {
        a += x;
        b += y;
        if a + b >= 20.0 {
            let difference: f64 = a - b;
            statistic += difference * difference / (a + b);
            classes += 1.0;
            (a, b) = (0.0, 0.0);
        }
    }
    (statistic, classes - 1.0)
}

fn draw(ratio: f64, seed: u64, size: usize) -> Vec<i64> {
    let mut draws = vec![0; size];
    let mut rng = Key::from_seed(seed).task(0).stream(0);
    let scale = GridScale::new(ratio, 1.0).unwrap();
    scale.fill(&mut rng, &mut draws);
    draws
}

// Proof: grid_gaussian
#[test]
fn both_samplers_have_one_law() {
    for (seed, ratio) in [0.3, 1.0, 3.0, 50.0].into_iter().enumerate() {
        let seed = seed as u64;
        let fast = draw(ratio, 100 + seed, DRAWS);
        let mut oracle = vec![0; DRAWS];
        let mut rng = Key::from_seed(200 + seed).task(0).stream(0);
        let scale = GridScale::new(ratio, 1.0).unwrap();
        fill_by_karney(&scale, &mut rng, &mut oracle);
        let (statistic, freedom) = two_samples(&fast, &oracle);
        assert!(
            statistic < critical(freedom),
            "{ratio}: {statistic} at {freedom}"
        );
        // Negative control: 4 % off must be seen with this many draws.
        let (wrong, freedom) = two_samples(&draw(1.04 * ratio, 300 + seed, DRAWS), &oracle);
        assert!(wrong > critical(freedom), "{ratio}: {wrong} at {freedom}");
    }
}
