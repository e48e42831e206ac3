//! Public random orders of the rows, pass after pass.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

/// The rows in the order in which [`super::projected_sgd::solve`] takes them, pass after pass.
pub fn orders(n_rows: u32, epochs: u64, seed: u64) -> Vec<u32> {
    let mut places: Vec<u32> = (0..n_rows).collect();
    // As the store orders the rows.
    places.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
    let mut passes = Orders::new(n_rows, seed);
    (0..epochs)
        .flat_map(|_| passes.next_pass().to_vec())
        .map(|place| places[place as usize])
        .collect()
}

/// The order of the store's places in each pass.
pub struct Orders {
    order: Vec<u32>,
    generator: ChaCha8Rng,
    fresh: bool,
}

impl Orders {
    /// The passes over `n_rows` places.
    pub fn new(n_rows: u32, seed: u64) -> Self {
        let mut generator = ChaCha8Rng::seed_from_u64(seed);
        // Another stream than the one that ordered the store.
        generator.set_stream(1);
        Self {
            order: (0..n_rows).collect(),
            generator,
            fresh: true,
        }
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
