//! Draws of which one word of random bits decides nearly all: a first look at many words at once, then
//! the few left open.

use crate::noise::coins::uniform;
use crate::noise::half_normal::{Shipped, Staircase};
use crate::simd::{Kernel, Simd, dispatch};
use rand::Rng;

/// The bit of a word that is the sign; those below it are the place.
pub(super) const SIGN: u32 = Shipped::CELL_BITS;

/// Draws that share one first look.
const CHUNK: usize = 256;

/// A law of integers.
pub(super) trait WordLaw: Copy {
    /// The draw of a word whose piece has this code; then 0 if the word alone decides it, else 1.
    fn look(&self, code: u8, word: u64) -> (i64, u64);
    /// One draw that begins with `word`; what else it needs is drawn from `spare`.
    fn finish<R: Rng>(&self, word: u64, spare: &mut Spare<'_, R>) -> i64;
}

/// Overwrites `values` with independent draws.
#[inline]
pub(super) fn fill<L: WordLaw, R: Rng>(law: L, rng: &mut R, values: &mut [i64]) {
    let mut spare = Spare::new(rng);
    let mut words = [[0; 8]; CHUNK];
    let mut open = [0; CHUNK];
    for values in values.chunks_mut(CHUNK) {
        let words = &mut words[..values.len()];
        spare.rng.fill_bytes(words.as_flattened_mut());
        let n = dispatch(FirstLook {
            law,
            words,
            values,
            open: &mut open,
        });
        for i in &open[..n] {
            let i = usize::from(*i);
            values[i] = law.finish(u64::from_le_bytes(words[i]), &mut spare);
        }
    }
}

/// Draws from words alone: `values[i]` from `words[i]`. The places of those that need more than their
/// word are listed in `open`; the result is their number.
struct FirstLook<'a, L> {
    law: L,
    words: &'a [[u8; 8]],
    values: &'a mut [i64],
    open: &'a mut [u16; CHUNK],
}

impl<L: WordLaw> Kernel for FirstLook<'_, L> {
    type Output = usize;

    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) -> usize {
        let (mut codes, mut undecided) = ([0; CHUNK], [0; CHUNK]);
        let words = self.words.iter().map(|word| u64::from_le_bytes(*word));
        // The table is read apart: the rest is done in vectors.
        for (code, word) in codes.iter_mut().zip(words.clone()) {
            *code = Shipped::SLOTS[(word >> (SIGN + 1)) as usize];
        }
        let draws = self.values.iter_mut().zip(&mut undecided);
        for ((value, undecided), (code, word)) in draws.zip(codes.iter().zip(words)) {
            (*value, *undecided) = self.law.look(*code, word);
        }
        let mut n = 0;
        for (i, undecided) in undecided[..self.values.len()].iter().enumerate() {
            self.open[n] = i as u16;
            n += *undecided as usize;
        }
        n
    }
}

/// Words for the draws that need more than one.
pub(crate) struct Spare<'a, R> {
    pub rng: &'a mut R,
    words: [[u8; 8]; SPARE],
    used: usize,
}

/// Words that [`Spare`] takes at a time: about as many as 256 draws need.
const SPARE: usize = 32;

impl<'a, R: Rng> Spare<'a, R> {
    pub fn new(rng: &'a mut R) -> Self {
        Self {
            rng,
            words: [[0; 8]; SPARE],
            used: SPARE,
        }
    }

    /// The next word.
    #[inline]
    pub fn word(&mut self) -> u64 {
        if self.used == SPARE {
            self.rng.fill_bytes(self.words.as_flattened_mut());
            self.used = 0;
        }
        self.used += 1;
        u64::from_le_bytes(self.words[self.used - 1])
    }

    /// The first `n` bits of the next word.
    #[inline]
    pub fn bits(&mut self, n: u32) -> u64 {
        self.word() >> (u64::BITS - n)
    }

    /// The next digit in base `2^32`.
    pub fn digit(&mut self) -> u32 {
        self.bits(u32::BITS) as u32
    }

    /// The number of random bits 1 before the first 0, unless that is `end` or more.
    pub fn ones(&mut self, end: u32) -> Option<u32> {
        let mut count = 0;
        loop {
            let ones = self.word().trailing_ones();
            count += ones;
            if count >= end {
                return None;
            }
            if ones < u64::BITS {
                return Some(count);
            }
        }
    }

    /// A uniform integer in `0 .. m` for a positive `m`.
    pub fn below(&mut self, m: u64) -> u64 {
        uniform(m, || self.word())
    }
}
