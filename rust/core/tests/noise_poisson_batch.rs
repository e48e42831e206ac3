//! Poisson batches: exact decisions against big integers, and the law of the batches.
//!
//! Statistical tests accept with probability `1 - ALPHA` at least under the claimed law; each has a
//! control that the same test refuses.

use dpsvm_core::noise::{Key, Rate, Stream, poisson_batch};
use rand::{Rng, TryRng};
use std::convert::Infallible;

/// Error probability of one statistical test.
const ALPHA: f64 = 1e-6;

/// Largest `|z|` of one of `m` standard normal numbers, at level ALPHA: by the union bound and
/// `P(|Z| > z) <= exp(-z^2 / 2)`.
fn largest_z(m: usize) -> f64 {
    (2.0 * (m as f64 / ALPHA).ln()).sqrt()
}

/// Upper ALPHA quantile of chi-square, from the bound of Laurent and Massart (2000, Lemma 1).
fn largest_chi_square(freedom: usize) -> f64 {
    let (k, x) = (freedom as f64, -ALPHA.ln());
    k + 2.0 * (k * x).sqrt() + 2.0 * x
}

fn stream(seed: u64) -> Stream {
    Key::from_seed(seed).task(0).stream(0)
}

/// Batches of one stream.
fn batches(seed: u64, q: f64, n: usize, count: usize) -> Vec<Vec<u32>> {
    let (mut rng, rate) = (stream(seed), Rate::new(q).unwrap());
    (0..count)
        .map(|_| {
            let mut batch = vec![7; 3];
            poisson_batch(&mut rng, &rate, n, &mut batch);
            assert!(batch.windows(2).all(|pair| pair[0] < pair[1]));
            assert!(batch.iter().all(|i| (*i as usize) < n));
            batch
        })
        .collect()
}

/// The plain sampler: one word for each index, exact for multiples of `2^-64`.
fn plain(rng: &mut impl Rng, q: f64, n: usize) -> Vec<u32> {
    let bound = (q * 2f64.powi(64)) as u64;
    (0..n as u32).filter(|_| rng.next_u64() < bound).collect()
}

/// Probabilities of Binomial(n, q) by the recurrence between neighbours.
fn binomial(n: usize, q: f64) -> Vec<f64> {
    let mut log = n as f64 * (-q).ln_1p();
    let odds = (q / (1.0 - q)).ln();
    let mut all = Vec::new();
    for k in 0..=n {
        all.push(log.exp());
        log += ((n - k) as f64 / (k + 1) as f64).ln() + odds;
    }
    all
}

/// Chi-square of counts against probabilities, cells with fewer than 10 expected joined; and the
/// degrees of freedom.
fn chi_square(counts: &[usize], probabilities: &[f64]) -> (f64, usize) {
    let total: usize = counts.iter().sum();
    let (mut sum, mut cells) = (0.0, 0);
    let (mut seen, mut expected, mut left) = (0.0, 0.0, 1.0);
    for (count, p) in counts.iter().zip(probabilities) {
        seen += *count as f64;
        expected += p * total as f64;
        left -= p;
        if expected >= 10.0 && left * total as f64 >= 10.0 {
            sum += (seen - expected).powi(2) / expected;
            cells += 1;
            (seen, expected) = (0.0, 0.0);
        }
    }
    let tail = (expected + left.max(0.0) * total as f64).max(1e-300);
    (sum + (seen - tail).powi(2) / tail, cells)
}

fn size_counts(batches: &[Vec<u32>], n: usize) -> Vec<usize> {
    let mut counts = vec![0; n + 1];
    for b in batches {
        counts[b.len()] += 1;
    }
    counts
}

#[test]
fn sizes_are_binomial() {
    for (q, n) in [
        (0.02, 700),
        (128.0 / 7000.0, 7000),
        (0.24, 50),
        (0.3, 50),
        (0.9, 40),
    ] {
        let counts = size_counts(&batches(1, q, n, 20_000), n);
        let (value, freedom) = chi_square(&counts, &binomial(n, q));
        assert!(
            freedom > 5 && value < largest_chi_square(freedom),
            "{q} {n}: {value} {freedom}"
        );
        let (wrong, _) = chi_square(&counts, &binomial(n, q * 0.97));
        assert!(
            wrong > largest_chi_square(freedom),
            "{q} {n}: control {wrong}"
        );
    }
}

/// z values of every index's frequency, against `q`.
fn marginals(batches: &[Vec<u32>], n: usize, q: f64) -> Vec<f64> {
    let mut counts = vec![0.0; n];
    batches
        .iter()
        .flatten()
        .for_each(|i| counts[*i as usize] += 1.0);
    let m = batches.len() as f64;
    let z = |c: &f64| (c - m * q) / (m * q * (1.0 - q)).sqrt();
    counts.iter().map(z).collect()
}

// Proof: gradient_perturbation, "Noise, sampling, whole runs"
#[test]
fn every_index_joins_at_the_rate() {
    for (q, n) in [(0.05, 300), (0.4, 300)] {
        let all = batches(2, q, n, 40_000);
        let largest = |q| {
            marginals(&all, n, q)
                .iter()
                .fold(0.0, |a, z| f64::max(a, z.abs()))
        };
        assert!(largest(q) < largest_z(n));
        assert!(largest(q * 1.1) > largest_z(n));
    }
}

/// z value of the count of an event of probability `p`.
fn z_value(count: usize, trials: usize, p: f64) -> f64 {
    (count as f64 - trials as f64 * p) / (trials as f64 * p * (1.0 - p)).sqrt()
}

// Proof: gradient_perturbation, "Noise, sampling, whole runs"
#[test]
fn pairs_join_independently() {
    for q in [0.1, 0.5] {
        let (n, steps) = (12, 60_000);
        let all = batches(3, q, n, steps);
        let mut counts = vec![0; n * n];
        for batch in &all {
            for (at, i) in batch.iter().enumerate() {
                batch[at + 1..]
                    .iter()
                    .for_each(|j| counts[*i as usize * n + *j as usize] += 1);
            }
        }
        for i in 0..n {
            for j in i + 1..n {
                let count = counts[i * n + j];
                assert!(z_value(count, steps, q * q).abs() < largest_z(n * n));
                // What batches of a fixed size would give.
                let fixed = q * (q * n as f64 - 1.0) / (n as f64 - 1.0);
                assert!(z_value(count, steps, fixed).abs() > largest_z(n * n));
            }
        }
    }
}

#[test]
fn steps_are_independent() {
    let (n, steps, q) = (20, 80_000, 0.1);
    let all = batches(4, q, n, steps);
    for lag in [1, 2] {
        for i in 0..n as u32 {
            let both = all
                .windows(lag + 1)
                .filter(|w| w[0].contains(&i) && w[lag].contains(&i));
            assert!(z_value(both.count(), steps - lag, q * q).abs() < largest_z(2 * n));
        }
    }
    // The same batch twice in a row fails.
    let twice: Vec<_> = all.iter().flat_map(|b| [b.clone(), b.clone()]).collect();
    let both = twice
        .windows(2)
        .filter(|w| w[0].contains(&3) && w[1].contains(&3))
        .count();
    assert!(z_value(both, twice.len() - 1, q * q) > largest_z(2 * n));
}

#[test]
fn batches_are_empty_as_often_as_they_must() {
    let (n, q, steps) = (30, 0.07, 40_000);
    let empty = |seed, q| {
        batches(seed, q, n, steps)
            .iter()
            .filter(|b| b.is_empty())
            .count()
    };
    let expected = (1.0_f64 - q).powi(n as i32);
    assert!(z_value(empty(5, q), steps, expected).abs() < largest_z(1));
    assert!(z_value(empty(5, 0.08), steps, expected).abs() > largest_z(1));
}

/// Histogram of the gaps between members, the last cell for everything from `cells - 1` on.
fn gaps<'a>(batches: impl Iterator<Item = &'a Vec<u32>>, cells: usize) -> Vec<usize> {
    let mut counts = vec![0; cells];
    for batch in batches {
        for pair in batch.windows(2) {
            counts[((pair[1] - pair[0] - 1) as usize).min(cells - 1)] += 1;
        }
    }
    counts
}

// Proof: gradient_perturbation, "Noise, sampling, whole runs"
#[test]
fn jumps_and_coins_are_twins() {
    let (q, n, steps) = (0.06, 4000, 4800);
    let jumps = batches(6, q, n, steps);
    let mut rng = stream(7);
    let coins: Vec<_> = (0..steps).map(|_| plain(&mut rng, q, n)).collect();
    let wrong: Vec<_> = (0..steps).map(|_| plain(&mut rng, q * 0.98, n)).collect();
    let cells = 60;
    // Two-sample chi-square: sum (sqrt(M/m) a - sqrt(m/M) b)^2 / (a + b) over the cells.
    let distance = |other: &[Vec<u32>]| {
        let (a, b) = (gaps(jumps.iter(), cells), gaps(other.iter(), cells));
        let (m, k) = (
            a.iter().sum::<usize>() as f64,
            b.iter().sum::<usize>() as f64,
        );
        let one = |(a, b): (&usize, &usize)| {
            let (a, b) = (*a as f64, *b as f64);
            ((k / m).sqrt() * a - (m / k).sqrt() * b).powi(2) / (a + b)
        };
        a.iter().zip(&b).map(one).sum::<f64>()
    };
    assert!(distance(&coins) < largest_chi_square(cells - 1));
    assert!(distance(&wrong) > largest_chi_square(cells - 1));
}

// Proof: gradient_perturbation, "Noise, sampling, whole runs"
#[test]
fn powers_of_two_are_exact_geometric_laws() {
    for k in [3, 6] {
        let q = 0.5_f64.powi(k);
        let all = batches(8, q, 100_000, 20);
        let cells = 40;
        let law: Vec<f64> = (0..cells).map(|g| q * (1.0 - q).powi(g)).collect();
        let mut counts = gaps(all.iter(), 100_000);
        let tail = counts.split_off(cells as usize).iter().sum::<usize>();
        counts.push(tail);
        let law: Vec<f64> = law.into_iter().chain([(1.0 - q).powi(cells)]).collect();
        let (value, freedom) = chi_square(&counts, &law);
        assert!(
            value < largest_chi_square(freedom),
            "{k}: {value} {freedom}"
        );
    }
}

#[test]
fn extreme_rates() {
    assert!(batches(9, 1.0, 5, 3).iter().all(|b| b == &[0, 1, 2, 3, 4]));
    // 1e-9: 1000 batches of 10^6 have one member in expectation; more than 20 has probability 1e-19.
    let members = |q| {
        batches(10, q, 1_000_000, 1000)
            .iter()
            .map(Vec::len)
            .sum::<usize>()
    };
    assert!(members(1e-9) <= 20 && members(1e-8) <= 60 && members(1e-6) > 700);
    assert_eq!(members(1e-300), 0);
    // All but 2^-53 of the coins succeed.
    let almost = 1.0 - 2f64.powi(-53);
    assert!(
        batches(11, almost, 1000, 100)
            .iter()
            .all(|b| b.len() == 1000)
    );
    let below = 1.0 - 1.0 / 1024.0;
    assert!(batches(11, below, 1000, 100).iter().any(|b| b.len() < 1000));
    for bad in [0.0, -0.1, 1.0 + 1e-15, f64::NAN, f64::INFINITY, 1e-301] {
        assert!(Rate::new(bad).is_err());
    }
    assert_eq!(Rate::new(0.3).unwrap().value(), 0.3);
}

/// A coin for each index, in order, also beyond the words that are drawn in one piece.
#[test]
fn coins_are_tossed_in_order() {
    let rate = Rate::new(0.75).unwrap();
    for n in [1, 1023, 1024, 1025, 3000] {
        let mut batch = Vec::new();
        poisson_batch(&mut stream(12), &rate, n, &mut batch);
        assert_eq!(batch, plain(&mut stream(12), 0.75, n));
    }
}

/// Words that a test wrote, then one word for ever.
struct Script {
    words: Vec<u64>,
    at: usize,
    last: u64,
}

impl TryRng for Script {
    type Error = Infallible;
    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        unreachable!()
    }
    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        let word = self.words.get(self.at).copied().unwrap_or(self.last);
        self.at += 1;
        Ok(word)
    }
    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        for word in bytes.as_chunks_mut().0 {
            *word = self.try_next_u64()?.to_le_bytes();
        }
        Ok(())
    }
}

/// A natural number, little-endian in base 2^32; slow and plain.
#[derive(Clone)]
struct Big(Vec<u32>);

impl Big {
    fn times(&self, factor: u64) -> Self {
        let (mut out, mut carry) = (Vec::new(), 0_u128);
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

    fn bit(&self, i: i64) -> bool {
        let limb = usize::try_from(i)
            .ok()
            .and_then(|i| self.0.get(i / 32))
            .copied();
        limb.unwrap_or(0) >> (i.rem_euclid(32)) & 1 == 1
    }

    /// The first `count` 64-bit digits of `self / 2^shift`, below 1.
    fn digits(&self, shift: i64, count: i64) -> Vec<u64> {
        let word =
            |w: i64| (1..=64).fold(0, |d, b| d << 1 | u64::from(self.bit(shift - 64 * w - b)));
        (0..count).map(word).collect()
    }
}

/// The first member's index, with words from the script; `None` when nobody joins.
fn first_member(rate: &Rate, words: &[u64], last: u64) -> Option<u32> {
    let (words, at) = (words.to_vec(), 0);
    let mut batch = Vec::new();
    poisson_batch(&mut Script { words, at, last }, rate, 2000, &mut batch);
    batch.first().copied()
}

/// U just below and just above `(1 - q)^m`, differing in digits far beyond double precision.
// Proof: gradient_perturbation, "Noise, sampling, whole runs"
#[test]
fn decisions_at_the_boundaries_are_exact() {
    for (a, s) in [
        (1_u64, 3),
        (1, 10),
        (3, 9),
        (683, 12),
        (12_345, 20),
        (1_000_003, 26),
    ] {
        let rate = Rate::new(a as f64 * 0.5_f64.powi(s)).unwrap();
        let mut power = Big(vec![1]);
        for m in 1..=400_u32 {
            power = power.times((1 << s) - a);
            let mut digits = power.digits(i64::from(s) * i64::from(m), 5);
            if digits[0] < 1 << 20 {
                break;
            }
            // At the boundary or above: the gap is below m.
            assert_eq!(
                first_member(&rate, &digits, u64::MAX),
                Some(m - 1),
                "{a} {s} {m}"
            );
            let word = digits[0];
            // One unit of the last digit less, and whatever follows.
            let mut at = 4;
            while digits[at] == 0 {
                digits[at] = u64::MAX;
                at -= 1;
            }
            digits[at] -= 1;
            let short = first_member(&rate, &digits, u64::MAX);
            assert!(short.is_none_or(|g| g >= m), "{a} {s} {m}");
            for bits in [0, 1, 3, 8, 11, 14] {
                if word >> (bits + 20) == 0 {
                    continue;
                }
                let longer = first_member(&rate, &[word + (1 << bits)], 0);
                let shorter = first_member(&rate, &[word - (1 << bits)], u64::MAX);
                assert!(longer.is_some_and(|g| g < m), "{a} {s} {m} {bits}");
                assert!(shorter.is_none_or(|g| g >= m), "{a} {s} {m} {bits}");
            }
        }
    }
}
