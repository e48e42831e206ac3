//! Keys and random streams.
//!
//! A key is 32 bytes from the operating system, or derived from a seed for tests. Streams are
//! `ChaCha20` keystreams under that key, numbered by (task, step): one task for each call of a
//! sampler, one step for each fixed part of its array. Two different pairs never share a word.

use crate::error::{Error, Result};
use rand::{Rng, SeedableRng, TryRng};
use rand_chacha::ChaCha20Rng;
use std::convert::Infallible;
use std::fmt;
use zeroize::Zeroizing;

/// Bytes in a key.
const KEY_BYTES: usize = 32;

/// Separates keys made from seeds from any other use of the same 8 bytes.
const SEED_DOMAIN: &[u8; KEY_BYTES - 8] = b"dpsvm_fast: seeded noise";

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

    /// The key of a seed. Anyone who knows the seed knows the noise: for tests only.
    pub fn from_seed(seed: u64) -> Self {
        let mut bytes = Box::new(Zeroizing::new([0; KEY_BYTES]));
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        bytes[8..].copy_from_slice(SEED_DOMAIN);
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
        let mut rng = ChaCha20Rng::from_seed(**self.key.bytes);
        rng.set_stream(u64::from(self.number) << 32 | u64::from(step));
        Stream { rng }
    }

    /// The first 64 bits of stream 0: for a task that needs one number only.
    pub fn first_word(&self) -> u64 {
        self.stream(0).next_u64()
    }
}

/// A `ChaCha20` keystream, read through the `rand` traits.
///
/// On drop the generator, which holds the key, is overwritten. The generator's crate has no
/// zeroising of its own, so copies that the compiler made in registers or on the stack stay.
pub struct Stream {
    rng: ChaCha20Rng,
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
        self.rng.try_next_u32()
    }

    #[inline]
    fn try_next_u64(&mut self) -> std::result::Result<u64, Infallible> {
        self.rng.try_next_u64()
    }

    #[inline]
    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> std::result::Result<(), Infallible> {
        self.rng.try_fill_bytes(bytes)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.rng = ChaCha20Rng::from_seed([0; KEY_BYTES]);
        // Keeps the compiler from dropping a store that nothing reads.
        std::hint::black_box(&mut self.rng);
    }
}
