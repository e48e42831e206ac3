//! Public random orders of the rows, pass after pass.

use crate::error::{Result, require};
use crate::runtime::interrupt::Interrupt;
use crate::runtime::memory::{collected, with_capacity};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

/// Most places that [`orders`] writes out.
pub const MAX_ORDERED: u64 = 1 << 28;

/// The rows in the order in which [`crate::solver::projected_sgd::passes::solve`] takes them, pass after pass.
///
/// # Errors
/// More than [`MAX_ORDERED`] places; no memory; an interrupt.
pub fn orders(n_rows: u32, epochs: u64, seed: u64, interrupt: &dyn Interrupt) -> Result<Vec<u32>> {
    let all = u64::from(n_rows).saturating_mul(epochs);
    let message = format_args!("{all} places in all, expected at most {MAX_ORDERED}");
    require(all <= MAX_ORDERED, "n_epochs", message)?;
    let mut places = collected(0..n_rows)?;
    // In the store's order of the rows.
    places.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
    let mut passes = Orders::new(n_rows, seed)?;
    let mut ordered = with_capacity(all as usize)?;
    // Without rows any number of passes is empty.
    for _ in 0..if n_rows == 0 { 0 } else { epochs } {
        interrupt.check()?;
        let pass = passes.next_pass().iter();
        ordered.extend(pass.map(|place| places[*place as usize]));
    }
    Ok(ordered)
}

/// The order of the store's places in each pass.
pub struct Orders {
    order: Vec<u32>,
    generator: ChaCha8Rng,
    fresh: bool,
}

impl Orders {
    /// The passes over `n_rows` places.
    ///
    /// # Errors
    /// No memory.
    pub fn new(n_rows: u32, seed: u64) -> Result<Self> {
        let mut generator = ChaCha8Rng::seed_from_u64(seed);
        // Another stream than the one that ordered the store.
        generator.set_stream(1);
        Ok(Self {
            order: collected(0..n_rows)?,
            generator,
            fresh: true,
        })
    }

    /// The order of the next pass.
    pub fn next_pass(&mut self) -> &[u32] {
        // The store lies in random order when the first pass comes.
        if !self.fresh {
            self.order.shuffle(&mut self.generator);
        }
        self.fresh = false;
        &self.order
    }
}
