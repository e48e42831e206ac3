//! Keys and random streams.
//!
//! A key is 32 bytes from the operating system, or derived from a seed for tests. Streams are
//! `ChaCha20` keystreams under that key, numbered by (task, step): one task for each call of a
//! sampler, one step for each fixed part of its array. Two different pairs never share a word.

use crate::error::{Error, Result};
use crate::noise::chacha::{self, BATCH, BLOCK_BYTES, Block, WORDS};
use rand::{Rng, TryRng};
use std::convert::Infallible;
use std::fmt;
use zeroize::Zeroizing;

/// Bytes in a key.
pub const KEY_BYTES: usize = 32;

/// Separates keys made from seeds from any other use of the same 8 bytes.
const SEED_DOMAIN: &[u8; KEY_BYTES - 8] = b"dpsvm_fast: seeded noise";

/// Separates public random numbers from noise made from the same seed.
const PUBLIC_DOMAIN: &[u8; KEY_BYTES - 8] = b"dpsvm_fast: public draws";

/// The secret that all streams of one noise source derive from.
///
/// It lives in one place on the heap, is overwritten with zeros when dropped, and can be neither
/// copied nor printed.
pub struct Key {
    bytes: Box<Zeroizing<[u8; KEY_BYTES]>>,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

impl Key {
    /// A key from the operating system's generator.
    ///
    /// # Errors
    /// [`Error::Entropy`] when the system gives none. There is no weaker fall-back.
    pub fn from_system() -> Result<Self> {
        Self::from_source(getrandom::fill)
    }

    /// The key of these bytes.
    pub fn from_bytes(bytes: &[u8; KEY_BYTES]) -> Self {
        Self {
            bytes: Box::new(Zeroizing::new(*bytes)),
        }
    }

    /// A key from the given source of random bytes; [`Key::from_system`] with the source named.
    ///
    /// # Errors
    /// [`Error::Entropy`] with the source's own reason; the partly filled key is discarded.
    pub fn from_source<E: fmt::Display>(
        fill: impl FnOnce(&mut [u8]) -> std::result::Result<(), E>,
    ) -> Result<Self> {
        let mut bytes = Box::new(Zeroizing::new([0; KEY_BYTES]));
        fill(bytes.as_mut_slice()).map_err(|e| Error::Entropy(e.to_string()))?;
        Ok(Self { bytes })
    }

    /// The key of a seed. A known seed means known noise: for tests only.
    pub fn from_seed(seed: u64) -> Self {
        Self::derived(seed, SEED_DOMAIN)
    }

    /// The key of random numbers that everyone may know, such as random features: never for noise.
    pub fn from_public_seed(seed: u64) -> Self {
        Self::derived(seed, PUBLIC_DOMAIN)
    }

    fn derived(seed: u64, domain: &[u8; KEY_BYTES - 8]) -> Self {
        let mut bytes = Box::new(Zeroizing::new([0; KEY_BYTES]));
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        bytes[8..].copy_from_slice(domain);
        Self { bytes }
    }

    /// The streams of one call.
    pub fn task(&self, number: u32) -> Task<'_> {
        Task { key: self, number }
    }
}

/// One numbered share of a key: the streams of one sampler call.
#[derive(Debug, Clone, Copy)]
pub struct Task<'a> {
    key: &'a Key,
    number: u32,
}

impl Task<'_> {
    /// The stream of part `step` of this call.
    pub fn stream(&self, step: u32) -> Stream {
        let number = u64::from(self.number) << 32 | u64::from(step);
        Stream {
            state: chacha::input(&self.key.bytes, number),
            blocks: [[0; BLOCK_BYTES]; BATCH],
            used: STREAM_WORDS,
        }
    }

    /// A key from the first bytes of stream 0: as unpredictable as this task's own key, which it
    /// does not reveal.
    pub fn new_key(&self) -> Zeroizing<[u8; KEY_BYTES]> {
        let mut bytes = Zeroizing::new([0; KEY_BYTES]);
        self.stream(0).fill_bytes(bytes.as_mut_slice());
        bytes
    }

    /// The first 64 bits of stream 0: for a task that needs one number only.
    pub fn first_word(&self) -> u64 {
        self.stream(0).next_u64()
    }
}

/// Words made at a time.
const STREAM_WORDS: usize = BATCH * WORDS;

/// A `ChaCha20` keystream, read through the `rand` traits.
///
/// On drop the key and the words that were made are overwritten. Copies that the compiler made in
/// registers or on the stack stay.
pub struct Stream {
    /// Constants, key, number of the next block, stream number.
    state: [u32; WORDS],
    /// The words made last.
    blocks: [Block; BATCH],
    /// Number of used words.
    used: usize,
}

impl Stream {
    /// Makes the next words.
    #[cold]
    fn refill(&mut self) {
        chacha::blocks(&mut self.state, &mut self.blocks);
        self.used = 0;
    }

    /// The made words that are not used up.
    fn rest(&self) -> &[[u8; 4]] {
        &self.blocks.as_flattened().as_chunks().0[self.used..]
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stream(..)")
    }
}

impl TryRng for Stream {
    type Error = Infallible;

    #[inline]
    fn try_next_u32(&mut self) -> std::result::Result<u32, Infallible> {
        if self.used == STREAM_WORDS {
            self.refill();
        }
        let word = u32::from_le_bytes(self.rest()[0]);
        self.used += 1;
        Ok(word)
    }

    #[inline]
    fn try_next_u64(&mut self) -> std::result::Result<u64, Infallible> {
        let low = u64::from(self.try_next_u32()?);
        Ok(u64::from(self.try_next_u32()?) << 32 | low)
    }

    /// Uses up whole words: of the last one, bytes that do not fit are dropped.
    fn try_fill_bytes(&mut self, mut bytes: &mut [u8]) -> std::result::Result<(), Infallible> {
        while !bytes.is_empty() {
            if self.used == STREAM_WORDS {
                let (blocks, _) = bytes.as_chunks_mut();
                let (batches, _) = blocks.as_chunks_mut();
                for batch in &mut *batches {
                    chacha::blocks(&mut self.state, batch);
                }
                let direct = batches.len() * BATCH * BLOCK_BYTES;
                bytes = &mut bytes[direct..];
                if bytes.is_empty() {
                    break;
                }
                self.refill();
            }
            let rest = self.rest().as_flattened();
            let n = rest.len().min(bytes.len());
            bytes[..n].copy_from_slice(&rest[..n]);
            self.used += n.div_ceil(4);
            bytes = &mut bytes[n..];
        }
        Ok(())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.state = [0; WORDS];
        self.blocks = [[0; BLOCK_BYTES]; BATCH];
        // Keeps the compiler from dropping stores that nothing reads.
        std::hint::black_box(self);
    }
}
