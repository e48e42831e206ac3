//! The exact grid Gaussian: rounding against a big-integer oracle, and the law of small ratios.

use super::noise_karney::round;
use crate::noise::grid_gaussian::{DIGIT, fraction_reaches};
use crate::noise::grid_sampler::{look, wide_product};
use crate::noise::half_normal::{Shipped, Staircase};
use dpsvm_core::noise::{GridScale, Key, Stream};
use rand::{Rng, RngExt, TryRng};
use std::convert::Infallible;

/// A natural number, little-endian in base 2^32; slow and plain.
struct Big(Vec<u32>);

impl Big {
    /// `self * factor + addend`.
    fn times_plus(&self, factor: u64, addend: u64) -> Self {
        let mut out = Vec::new();
        let mut carry = u128::from(addend);
        for limb in &self.0 {
            carry += u128::from(*limb) * u128::from(factor);
            out.push(carry as u32);
            carry >>= 32;
        }
        while carry > 0 {
            out.push(carry as u32);
            carry >>= 32;
        }
        Self(out)
    }

    fn bit(&self, i: usize) -> bool {
        let limb = self.0.get(i / 32).copied().unwrap_or(0);
        limb >> (i % 32) & 1 == 1
    }
}

/// `floor(ratio * (k + x) + 1/2)` by long multiplication, for `x = 0.d1 d2 ... dn` in base 2^32.
fn oracle(ratio: f64, k: u32, digits: &[u32]) -> i64 {
    let (mantissa, exponent) = parts(ratio);
    let mut y = Big(vec![k]);
    for digit in digits {
        y = y.times_plus(1 << 32, u64::from(*digit));
    }
    // The exact value is product / 2^shift.
    let product = y.times_plus(mantissa, 0);
    let shift = usize::try_from(32 * digits.len() as i64 - exponent).unwrap();
    let floor = (0..63)
        .filter(|i| product.bit(shift + i))
        .fold(0, |sum, i| sum | 1 << i);
    floor + i64::from(shift > 0 && product.bit(shift - 1))
}

/// `ratio = mantissa * 2^exponent`, by repeated doubling: independent of the code under test.
fn parts(ratio: f64) -> (u64, i64) {
    let (mut value, mut exponent) = (ratio, 0);
    while value.fract() != 0.0 {
        value *= 2.0;
        exponent -= 1;
    }
    (value as u64, exponent)
}

/// The rounding under test, with zeros after the digits, and the number of digits it read.
fn rounded(ratio: f64, k: u32, digits: &[u32]) -> (i64, usize) {
    let mut read = 0;
    let scale = GridScale::new(ratio, 1.0).unwrap();
    let value = round(&scale, k, || {
        read += 1;
        digits.get(read - 1).copied().unwrap_or(0)
    });
    (value, read)
}

fn check(ratio: f64, k: u32, digits: &[u32]) {
    let (value, read) = rounded(ratio, k, digits);
    let expected = oracle(ratio, k, digits);
    assert_eq!(value, expected, "{ratio:e} {k} {digits:x?} (read {read})");
}

/// Ratios over the whole range: powers of two, their neighbours, full mantissas.
fn ratios(rng: &mut impl Rng) -> Vec<f64> {
    let mut all = vec![0.1, 0.5, 1.0, 1.5, 3.7, 1000.25, 2f64.powi(46)];
    for exponent in -20..46 {
        let power = 2f64.powi(exponent);
        all.extend([power, power.next_up(), (2.0 * power).next_down()]);
        all.extend((0..4).map(|_| power * (1.0 + rng.random::<f64>())));
    }
    all
}

// Proof: grid_gaussian
#[test]
fn rounding_equals_the_oracle_on_random_digits() {
    let mut rng = Key::from_seed(21).task(0).stream(0);
    for ratio in ratios(&mut rng) {
        for _ in 0..200 {
            let k = [0, 1, 2, 7, 1023][rng.random_range(0..5)];
            let digits: Vec<u32> = (0..rng.random_range(2..8))
                .map(|_| [0, 1, u32::MAX, 1 << 31, rng.next_u32()][rng.random_range(0..5)])
                .collect();
            check(ratio, k, &digits);
        }
    }
}

/// The boundary `(m - 1/2) / ratio`: integer part, first `n` digits, and whether it ends there.
fn boundary(ratio: f64, m: u64, n: usize) -> Option<(u32, Vec<u32>, bool)> {
    let (mantissa, exponent) = parts(ratio);
    let power = 1u128.checked_shl(u32::try_from(-exponent).ok()?)?;
    let numerator = u128::from(2 * m - 1).checked_mul(power)?;
    let denominator = 2 * u128::from(mantissa);
    let k = u32::try_from(numerator / denominator).ok()?;
    let mut rest = numerator % denominator;
    let mut digits = Vec::new();
    for _ in 0..n {
        let dividend = rest << 32;
        rest = dividend % denominator;
        digits.push((dividend / denominator) as u32);
    }
    (k < 1024).then_some((k, digits, rest == 0))
}

/// Fractions that agree with a rounding boundary in 2 to 7 digits, at it and next to it.
// Proof: grid_gaussian
#[test]
fn rounding_is_right_next_to_every_boundary() {
    let mut rng = Key::from_seed(22).task(0).stream(0);
    let (mut cases, mut ties, mut long) = (0, 0, 0);
    for ratio in ratios(&mut rng) {
        let reach = (ratio * 10.0) as u64 + 2;
        for (i, n) in (0..240).map(|i| (i, 2 + i % 6)) {
            let m = if i < 6 {
                1
            } else {
                rng.random_range(1..=reach)
            };
            let Some((k, digits, ends)) = boundary(ratio, m, n) else {
                continue;
            };
            let (value, read) = rounded(ratio, k, &digits);
            // Cut off below the boundary, or exactly on it: then halves go up.
            let expected = if ends { m } else { m - 1 };
            assert_eq!(value as u64, expected, "{ratio:e} {m} {n}");
            check(ratio, k, &digits);
            cases += 1;
            ties += usize::from(ends);
            long += usize::from(read > 4);
            for change in [1, -1] {
                let mut near = digits.clone();
                if let Some(last) = near[n - 1].checked_add_signed(change) {
                    near[n - 1] = last;
                    check(ratio, k, &near);
                    near.push(u32::MAX);
                    check(ratio, k, &near);
                }
            }
        }
    }
    assert!(
        cases > 20_000 && ties > 1_000 && long > 1_000,
        "{cases} {ties} {long}"
    );
}

/// Without an ambiguity two digits are enough: the sampler must not read on.
// Proof: grid_gaussian
#[test]
fn rounding_reads_no_digit_in_vain() {
    let mut rng = Key::from_seed(23).task(0).stream(0);
    for ratio in [0.1, 1.0, 3.7, 1000.25] {
        for _ in 0..1000 {
            let (_, read) = rounded(ratio, 1, &[rng.next_u32(), rng.next_u32()]);
            assert_eq!(read, 2, "{ratio}");
        }
    }
}

// Proof: grid_gaussian
#[test]
fn ratios_outside_the_range_are_refused() {
    let (finest, coarsest) = (2f64.powi(-46), 2f64.powi(20));
    assert!(GridScale::new(1.0, finest).is_ok());
    assert!(GridScale::new(1.0, coarsest).is_ok());
    for (sigma, grid) in [
        (1f64.next_up(), finest),
        (1f64.next_down(), coarsest),
        (1.0, 0.3),
        (1.0, 0.0),
        (1.0, -1.0),
        (1.0, f64::NAN),
        (1.0, f64::INFINITY),
        (0.0, 1.0),
        (-1.0, 1.0),
        (f64::NAN, 1.0),
        (f64::INFINITY, 1.0),
    ] {
        assert!(GridScale::new(sigma, grid).is_err(), "{sigma:e} {grid:e}");
    }
}

/// Subnormal and huge values are exact too.
// Proof: grid_gaussian
#[test]
fn only_the_ratio_counts() {
    let scale = |sigma, grid| GridScale::new(sigma, grid).unwrap();
    let (tiny, huge) = (5e-324, 2f64.powi(1000));
    assert_eq!(scale(3.0, 1.0), scale(3.0 * tiny, tiny));
    assert_eq!(scale(0.75, 0.5), scale(1.5 * huge, huge));
}

/// Probability of a false alarm of the law test, for each ratio; and its sample size.
const ALPHA: f64 = 1e-6;
const DRAWS: usize = 400_000;

fn normal_cdf(x: f64) -> f64 {
    0.5 * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2)
}

/// Pearson's statistic of `draws` against `round(N(0, ratio^2))`, and its degrees of freedom. Values
/// whose expected count is below 10 form one class.
fn pearson(draws: &[i64], ratio: f64) -> (f64, f64) {
    let n = draws.len() as f64;
    let expected = |m: i64| {
        let m = m as f64;
        n * (normal_cdf((m + 0.5) / ratio) - normal_cdf((m - 0.5) / ratio))
    };
    let term = |count: f64, expected: f64| (count - expected).powi(2) / expected;
    let edge = (1..100_000).find(|m| expected(*m) < 10.0).unwrap();
    let (mut statistic, mut left, mut left_expected) = (0.0, n, n);
    for m in 1 - edge..edge {
        let count = draws.iter().filter(|d| **d == m).count() as f64;
        statistic += term(count, expected(m));
        left -= count;
        left_expected -= expected(m);
    }
    (
        statistic + term(left, left_expected),
        2.0 * edge as f64 - 1.0,
    )
}

/// Laurent and Massart (2000): a chi-square with `f` degrees of freedom exceeds
/// `f + 2 sqrt(f t) + 2 t` with probability at most `exp(-t)`.
fn critical(freedom: f64) -> f64 {
    let t = -ALPHA.ln();
    freedom + 2.0 * (freedom * t).sqrt() + 2.0 * t
}

// Proof: grid_gaussian
#[test]
fn small_ratios_have_the_exact_law() {
    for (seed, ratio) in [0.35, 0.5, 1.0, 3.7].into_iter().enumerate() {
        let mut draws = vec![0; DRAWS];
        let mut rng = Key::from_seed(seed as u64).task(0).stream(0);
        GridScale::new(ratio, 1.0)
            .unwrap()
            .fill(&mut rng, &mut draws);
        let (statistic, freedom) = pearson(&draws, ratio);
        assert!(
            statistic < critical(freedom),
            "{ratio}: {statistic} at {freedom}"
        );
        // Negative control: 3 % off must be seen with this many draws.
        let (wrong, freedom) = pearson(&draws, 1.03 * ratio);
        assert!(wrong > critical(freedom), "{ratio}: {wrong} at {freedom}");
    }
}

/// A generator that repeats one word before it starts to work.
struct Stuck {
    word: u32,
    left: u32,
    then: Stream,
}

impl TryRng for Stuck {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        if self.left == 0 {
            return self.then.try_next_u32();
        }
        self.left -= 1;
        Ok(self.word)
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        let (high, low) = (self.try_next_u32()?, self.try_next_u32()?);
        Ok(u64::from(high) << 32 | u64::from(low))
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        for word in bytes.chunks_mut(4) {
            word.copy_from_slice(&self.try_next_u32()?.to_le_bytes()[..word.len()]);
        }
        Ok(())
    }
}

/// Repeated words reach what chance never does: comparisons that go on and on, numbers beyond the
/// limit. The sampler must come through.
// Proof: grid_gaussian
#[test]
fn repeated_words_are_survived() {
    let scale = GridScale::new(1000.25, 1.0).unwrap();
    for word in [0, u32::MAX, 1 << 31, 0x5555_5555, 0xfff0_0000, 0xffff_fffe] {
        let mut rng = Stuck {
            word,
            left: 3000,
            then: Key::from_seed(9).task(0).stream(0),
        };
        let mut draws = vec![0; 5000];
        scale.fill(&mut rng, &mut draws);
        assert_eq!(rng.left, 0);
        assert!(draws.iter().all(|m| m.abs() < 1024 * 1001));
    }
}

fn draw(ratio: f64, seed: u64, size: usize) -> Vec<i64> {
    let mut draws = vec![0; size];
    let mut rng = Key::from_seed(seed).task(0).stream(0);
    let scale = GridScale::new(ratio, 1.0).unwrap();
    scale.fill(&mut rng, &mut draws);
    draws
}

/// Draws beyond each quarter from 3 sigma on, through the edge of the last cells into the tail.
/// Bernstein: a binomial count of mean m is off by more than `t/3 + sqrt(t^2/9 + 2 m t)` on one
/// side with probability at most `exp(-t)`.
// Proof: grid_gaussian
#[test]
fn tails_have_their_frequency() {
    let n = 8 * 1024 * 1024;
    let ratio = 2f64.powi(30);
    let draws = draw(ratio, 77, n);
    let t = -(ALPHA / 40.0).ln();
    let rejects = |law_ratio: f64| {
        (0..10).any(|i| {
            let edge = 3.0 + 0.25 * f64::from(i);
            let count = draws
                .iter()
                .filter(|m| m.abs() as f64 > edge * ratio)
                .count();
            let mean = n as f64 * 2.0 * normal_cdf(-edge * ratio / law_ratio);
            (count as f64 - mean).abs() > t / 3.0 + (t * t / 9.0 + 2.0 * mean * t).sqrt()
        })
    };
    assert!(!rejects(ratio));
    assert!(rejects(1.02 * ratio));
}

/// `numerator / denominator >= 0.d1 d2 ...` is decided right for every quotient of small numbers
/// and all digits that begin as it does or next to it; what follows is least or largest.
// Proof: grid_gaussian
#[test]
fn all_small_quotients_are_compared_digit_by_digit() {
    const WHOLE: u128 = 1 << DIGIT;
    for denominator in 1..=48_u64 {
        for numerator in 0..denominator {
            let (n, d) = (u128::from(numerator), u128::from(denominator));
            let first = n * WHOLE / d;
            let second = n * WHOLE % d * WHOLE / d;
            for one in [first.wrapping_sub(1), first, first + 1, 0, WHOLE - 1] {
                for two in [second.wrapping_sub(1), second, second + 1, 0, WHOLE - 1] {
                    for rest in [0, u32::MAX] {
                        if one >= WHOLE || two >= WHOLE {
                            continue;
                        }
                        let mut digits = [one as u32, two as u32].into_iter();
                        let next = || digits.next().unwrap_or(rest);
                        let got = fraction_reaches(numerator, denominator, next);
                        // The largest digits come as close to the next number as one likes, and
                        // never there.
                        let known = (one * WHOLE + two) * d;
                        let quotient = n * WHOLE * WHOLE;
                        let exact = if rest == 0 {
                            known >= quotient
                        } else {
                            known + d > quotient
                        };
                        assert_eq!(got, exact, "{n}/{d} {one} {two} {rest}");
                    }
                }
            }
        }
    }
}

/// `floor(q y + 1/2)` for every ratio of four bits and every beginning of `y` of five, with digits
/// on both sides of each place where the answer changes.
// Proof: grid_gaussian
#[test]
fn all_small_numbers_are_rounded_right() {
    const BITS: u32 = 4;
    for mantissa in 8..16_u64 {
        for shift in 1..=6 {
            let scale = GridScale { mantissa, shift };
            for y in 0..32_u128 {
                // In units of 2^-(shift + BITS + DIGIT): q (y + digit / 2^32 / 2^BITS) + 1/2.
                let unit = shift + BITS + DIGIT;
                let half = 1_u128 << (unit - 1);
                let at = |digit: u128| u128::from(mantissa) * ((y << DIGIT) + digit) + half;
                let boundary = ((at(0) >> unit) + 1) << unit;
                let change = (boundary - half).div_ceil(u128::from(mantissa)) - (y << DIGIT);
                for digit in [
                    0,
                    change.saturating_sub(1),
                    change,
                    change + 1,
                    (1 << DIGIT) - 1,
                ] {
                    if digit >= 1 << DIGIT {
                        continue;
                    }
                    let answers = [0, u32::MAX].map(|rest| {
                        let mut first = Some(digit as u32);
                        scale.round_at(y, BITS, || first.take().unwrap_or(rest))
                    });
                    let least = at(digit) >> unit;
                    // Just below the next digit, and never at it.
                    let largest = (at(digit + 1) - 1) >> unit;
                    assert_eq!(answers.map(|n| n as u128), [least, largest]);
                }
            }
        }
    }
}

/// The first look at full width: products, and both ends of a position in 128 bits.
// Proof: grid_gaussian
#[test]
fn first_looks_are_those_of_128_bits() {
    let mut stream = Key::from_seed(32).task(0).stream(0);
    let ends = [0, 1, (1 << 32) - 1, 1 << 32, u64::MAX - 1, u64::MAX];
    let random: Vec<u64> = (0..100).map(|_| stream.next_u64()).collect();
    for a in ends.iter().chain(&random) {
        for b in ends.iter().chain(&random) {
            let exact = u128::from(*a) * u128::from(*b);
            let (high, low) = wide_product(*a, *b);
            assert_eq!(u128::from(high) << 64 | u128::from(low), exact, "{a} {b}");
        }
    }
    let cells = Shipped::CELL_BITS;
    let mut cut = 0;
    for shift in 6..=66 {
        for i in 0..2000 {
            let mantissa = 1 << 52 | stream.next_u64() >> 12;
            let scale = GridScale { mantissa, shift };
            let mut word = stream.next_u64();
            let code = Shipped::SLOTS[(word >> (cells + 1)) as usize];
            let bits = shift + Shipped::POSITION_BITS;
            let half = 1_u128 << (bits - 1);
            let ends = |word: u64| {
                let y = u128::from(code) << cells | u128::from(word & ((1 << cells) - 1));
                let start = u128::from(mantissa) * y + half;
                [start, start + u128::from(mantissa) - 1].map(|end| end >> bits)
            };
            if i % 2 == 0 {
                // The position in which the answer changes next, if that lies in the same cell.
                let change = ((ends(word)[0] + 1) << bits) - half;
                let y = (change / u128::from(mantissa)) as u64;
                if y >> cells == u64::from(code) {
                    word = word >> cells << cells | y & ((1 << cells) - 1);
                }
            }
            let [least, largest] = ends(word);
            let (value, open) = look::<Shipped>(&scale, code, word);
            let sure = usize::from(code) < Shipped::SURE_CELLS;
            assert_eq!(open == 0, sure && least == largest, "{scale:?} {word}");
            cut += usize::from(sure && least < largest);
            let sign = 1 - 2 * (word >> cells & 1) as i64;
            assert!(open > 0 || value == sign * least as i64, "{scale:?} {word}");
        }
    }
    assert!(cut > 1000, "{cut}");
}
