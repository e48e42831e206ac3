//! The exact discrete Gaussian: its law piece by piece, deep comparisons, and draws.

use dpsvm_core::noise::half_normal::{Shipped, Staircase};
use dpsvm_core::noise::{DiscreteGaussian, Key, discrete_gaussian};
use dpsvm_core::runtime::interrupt::Never;
use rand::TryRng;
use std::collections::BTreeMap;
use std::convert::Infallible;

/// Height of a piece.
const PIECE: f64 = 5241.0 / 1_048_576.0;

/// The words given, then for ever one that draws `-SENTINEL`.
struct Script {
    words: Vec<u64>,
    next: usize,
    sentinel: u64,
}

impl TryRng for Script {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        unreachable!("the sampler takes many words at a time")
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        unreachable!("the sampler takes many words at a time")
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        for word in bytes.chunks_mut(8) {
            let value = self.words.get(self.next).copied();
            word.copy_from_slice(&value.unwrap_or(self.sentinel).to_le_bytes());
            self.next += 1;
        }
        Ok(())
    }
}

/// Words of a law, built from the outside: code, sign and a place out of `ceil(sigma / 32)`.
struct Words {
    law: DiscreteGaussian,
    places: u64,
    sentinel: u64,
}

impl Words {
    fn new(sigma: u64) -> Self {
        let mut words = Self {
            law: DiscreteGaussian::new(sigma).unwrap(),
            places: sigma.div_ceil(32),
            sentinel: 0,
        };
        // Cell 32 begins with the integer sigma, whose density is far from 0 and 1.
        words.sentinel = words.word(slot_of(32), 0) | 1 << 50;
        words
    }

    /// A positive word of a slot, in the middle of those of a place.
    fn word(&self, slot: usize, place: u64) -> u64 {
        let bits = (u128::from(2 * place + 1) << 50) / u128::from(2 * self.places);
        (slot as u64) << 51 | bits as u64
    }

    /// What the words draw; `None` if they are refused.
    fn draw(&self, words: &[u64]) -> Option<i64> {
        let mut value = [0];
        let (words, next, sentinel) = (words.to_vec(), 0, self.sentinel);
        let mut rng = Script {
            words,
            next,
            sentinel,
        };
        self.law.fill(&mut rng, &mut value);
        (value[0] >= 0).then_some(value[0])
    }

    /// The integer that `draw` gives for small heights, and the part of all heights that give it.
    fn share(&self, draw: impl Fn(u64) -> Vec<u64>) -> Option<(i64, f64)> {
        // A small height that, read as a word after a refusal, is a negative zero and refused too.
        let (mut low, mut high) = (1 << 50, u64::MAX);
        let k = self.draw(&draw(low))?;
        if self.draw(&draw(high)).is_some() {
            return Some((k, 1.0));
        }
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            match self.draw(&draw(middle)) {
                Some(value) => {
                    assert_eq!(value, k);
                    low = middle;
                }
                None => high = middle,
            }
        }
        Some((k, low as f64 / 2f64.powi(64)))
    }
}

fn slot_of(code: u8) -> usize {
    Shipped::SLOTS.iter().position(|c| *c == code).unwrap()
}

/// Slots of each code.
fn slots() -> BTreeMap<u8, f64> {
    let mut counts = BTreeMap::new();
    for code in Shipped::SLOTS {
        *counts.entry(*code).or_insert(0.0) += 1.0;
    }
    counts
}

/// The weight of every integer that one of the 8192 pieces reaches, in pieces.
fn weights(sigma: u64, parts: u32) -> BTreeMap<i64, f64> {
    let words = Words::new(sigma);
    let mut weights = BTreeMap::new();
    for (code, count) in slots() {
        let slot = slot_of(code);
        if code == Shipped::TAIL {
            // Part i has probability 2^-(i + 1), its places are eight times as many.
            for part in 0..parts {
                for place in 0..8 * words.places {
                    let middle = (u128::from(2 * place + 1) << 64) / u128::from(16 * words.places);
                    let word = words.word(slot, 0);
                    let ones = (1 << part) - 1;
                    if let Some((k, share)) = words.share(|v| vec![word, ones, middle as u64, v]) {
                        let weight = share / 2f64.powi(part as i32 + 1) / 8.0;
                        *weights.entry(k).or_insert(0.0) += weight;
                    }
                }
            }
            continue;
        }
        for place in 0..words.places {
            let word = words.word(slot, place);
            if let Some((k, share)) = words.share(|v| vec![word, v]) {
                *weights.entry(k).or_insert(0.0) += count * share;
            }
        }
    }
    weights
}

/// Without a sample: the heights of the pieces above `k` add up to `exp(-k^2 / (2 sigma^2))`.
// Proof: discrete_gaussian
#[test]
fn the_pieces_have_the_law() {
    for sigma in [1, 2, 3, 5, 16, 31, 32, 33, 64, 100] {
        let weights = weights(sigma, 3);
        // Three parts of the tail end at (129 + 24) / 32.
        let reach = (153 * sigma as i64 - 1) / 32;
        for k in 0..=reach {
            let x = k as f64 / sigma as f64;
            let expected = (-0.5 * x * x).exp() / PIECE;
            let found = weights.get(&k).copied().unwrap_or(0.0);
            assert!(
                (found / expected - 1.0).abs() < 1e-9,
                "{sigma}: {k} has {found}, expected {expected}"
            );
            // One percent in sigma would show everywhere but at 0.
            let wrong = (-0.5 * x * x / 1.02).exp() / PIECE;
            assert!(k == 0 || (found / wrong - 1.0).abs() > 1e-9, "{sigma}: {k}");
        }
        assert!(weights.keys().all(|k| *k <= reach), "{sigma}");
    }
}

/// A place decides which integer of the cell is drawn, and too many places are refused.
// Proof: discrete_gaussian
#[test]
fn places_are_the_integers_of_a_cell() {
    for sigma in [33, 1000, (1 << 20) + 1, (1 << 40) - 1, 1 << 39] {
        let words = Words::new(sigma);
        for code in [0, 1, 40, Shipped::SURE_CELLS as u8 - 1] {
            let first = (u64::from(code) * sigma).div_ceil(32);
            let end = ((u64::from(code) + 1) * sigma).div_ceil(32);
            for place in [0, 1, words.places - 2, words.places - 1] {
                let k = first + place;
                let drawn = words.draw(&[words.word(slot_of(code), place)]);
                assert_eq!(
                    drawn,
                    (k < end).then_some(k as i64),
                    "{sigma} {code} {place}"
                );
            }
        }
    }
}

/// Places that cannot be shared out evenly are drawn again: the lowest `2^50 mod places` of the low
/// halves of the products.
// Proof: discrete_gaussian
#[test]
fn uneven_places_are_refused() {
    let sigma = 33 * 32;
    let words = Words::new(sigma);
    let excess = (1u64 << 50) % 33;
    assert!(excess > 0);
    let slot = (slot_of(0) as u64) << 51;
    // The first number of place t is ceil(t 2^50 / 33), which leaves t 2^50 mod 33 and what is short.
    for place in 1..33u64 {
        let number = (place << 50).div_ceil(33);
        let left = number * 33 - (place << 50);
        let drawn = words.draw(&[slot | number]);
        assert_eq!(drawn.is_some(), left >= excess, "{place}");
        assert!(words.draw(&[slot | (number + 1)]).is_some());
    }
    assert_eq!(words.draw(&[slot]), None);
    // The tail has places of its own and is refused as often all the same.
    let tail = words.word(slot_of(Shipped::TAIL), 3);
    let first = (129 * sigma).div_ceil(32) as i64;
    let rest = [0, u64::MAX / 528, 1 << 50];
    let drawn = |word| words.draw(&[word, rest[0], rest[1], rest[2]]);
    assert_eq!(drawn(tail), Some(first));
    assert_ne!(drawn(tail >> 51 << 51), Some(first));
}

/// Of zero only the positive half is taken.
// Proof: discrete_gaussian
#[test]
fn zero_counts_once() {
    for sigma in [1, 32, 1 << 24] {
        let words = Words::new(sigma);
        let word = words.word(slot_of(0), 0);
        assert_eq!(words.draw(&[word]), Some(0));
        assert_eq!(words.draw(&[word | 1 << 50]), None);
        let edge = words.word(slot_of(Shipped::SURE_CELLS as u8), 0);
        assert_eq!(words.draw(&[edge, 0]), Some(0));
        assert_eq!(words.draw(&[edge | 1 << 50, 0]), None);
    }
}

/// Digits, in base `2^32` after a first word, of `(exp(-x^2 / 2) / PIECE - sure) / edge` with
/// `x = k / sigma`, from arithmetic of 120 decimal digits.
const DEEP: [(u64, u64, usize, u64, [u32; 4]); 2] = [
    (
        1_000_003,
        700_001,
        22,
        0xa638_36d6_a780_102a,
        [0xa28d_6667, 0x65bb_fabe, 0xa1a2_8ec0, 0xa3e7_9d49],
    ),
    (
        3 * (1 << 30) + 1,
        5_000_000_000,
        49,
        0x539a_dec1_86ae_6d55,
        [0x8edf_ca6d, 0x25ac_5880, 0x4794_ec37, 0x3a59_9d71],
    ),
];

/// Heights that agree with the density in 64 to 192 bits are told apart by the next digit.
// Proof: discrete_gaussian
#[test]
fn deep_comparisons_know_the_digits_of_the_density() {
    for (sigma, k, j, v, digits) in DEEP {
        let words = Words::new(sigma);
        let place = k - (j as u64 * sigma).div_ceil(32);
        assert!(Shipped::CELL_TABLE[j].edge > 0 && j < Shipped::CELLS);
        let first = words.word(slot_of((Shipped::SURE_CELLS + j) as u8), place);
        for n in 0..digits.len() {
            for (step, expected) in [(-1, Some(k as i64)), (1, None)] {
                let mut script = vec![first, v];
                // Where the digit given leaves it open, those of the sentinel decide nothing.
                script.extend(digits[..n].iter().map(|d| u64::from(*d) << 32));
                let digit = i64::from(digits[n]) + step;
                script.push((digit as u64) << 32);
                assert_eq!(words.draw(&script), expected, "{sigma} {n} {step}");
            }
        }
    }
}

/// Error probability of one statistical test.
const ALPHA: f64 = 1e-6;

/// Pearson's test at level [`ALPHA`] by the bound of Laurent and Massart (2000, Lemma 1); integers
/// with fewer than 10 expected draws are merged.
fn fits(values: &[i64], sigma: f64) -> bool {
    let reach = (9.0 * sigma) as i64 + 2;
    let width = (reach / 100).max(1);
    let density = |k: i64| (-0.5 * (k as f64 / sigma).powi(2)).exp();
    let all: f64 = (-reach..=reach).map(density).sum();
    let mut cells = BTreeMap::new();
    for k in -reach..=reach {
        cells.entry(k.div_euclid(width)).or_insert((0.0, 0.0)).0 +=
            values.len() as f64 * density(k) / all;
    }
    for value in values {
        match cells.get_mut(&value.div_euclid(width)) {
            Some(cell) => cell.1 += 1.0,
            None => return false,
        }
    }
    let mut rare = (0.0, 0.0);
    let (mut statistic, mut freedom) = (0.0, 0.0);
    for (expected, count) in cells.into_values() {
        if expected < 10.0 {
            rare = (rare.0 + expected, rare.1 + count);
        } else {
            statistic += f64::powi(count - expected, 2) / expected;
            freedom += 1.0;
        }
    }
    // Poisson with mean below 10 exceeds 60 with probability below 1e-25.
    if rare.0 >= 10.0 {
        statistic += f64::powi(rare.1 - rare.0, 2) / rare.0;
    } else if rare.1 > 60.0 {
        return false;
    }
    let x = -ALPHA.ln();
    statistic <= freedom + 2.0 * f64::sqrt(freedom * x) + 2.0 * x
}

// Proof: discrete_gaussian
#[test]
fn draws_have_the_law() {
    let key = Key::from_seed(31);
    for (task, sigma) in [1, 2, 3, 16, 31, 32, 33, 64, 100, 1000, 4096, 10_007]
        .into_iter()
        .enumerate()
    {
        let values = discrete_gaussian(key.task(task as u32), 300_000, sigma, 2, &Never).unwrap();
        assert!(fits(&values, sigma as f64), "{sigma}");
        assert!(!fits(&values, 1.03 * sigma as f64), "{sigma}");
    }
}

// Proof: discrete_gaussian
#[test]
fn extreme_parameters() {
    let key = Key::from_seed(32);
    let draw = |sigma| discrete_gaussian(key.task(0), 20_000, sigma, 1, &Never);
    let wide = draw((1 << 40) - 1).unwrap();
    // |x| / sigma exceeds 12 with probability below 1e-32.
    assert!(wide.iter().all(|x| x.unsigned_abs() < 12 << 40));
    assert!(wide.iter().any(|x| x.unsigned_abs() > 2 << 40));
    assert!(wide.iter().any(|x| x % 2 == 0) && wide.iter().any(|x| x % 2 != 0));
    for sigma in [0, 1 << 40, u64::MAX] {
        assert!(draw(sigma).is_err(), "{sigma}");
    }
}
