//! The noise of one step, drawn in pieces.

use crate::descent::release::{Noise, NoiseKind};
use crate::error::Result;
use crate::noise::BLOCK;
use crate::runtime::memory::{collected, resize};
use std::sync::Mutex;

/// Noise of one step.
#[derive(Default)]
pub struct Drawn {
    whole: Vec<i64>,
    real: Vec<f64>,
}

/// What one stream fills.
pub enum Part<'d> {
    /// Steps of a grid.
    Whole(&'d mut [i64]),
    /// Real numbers.
    Real(&'d mut [f64]),
}

impl Drawn {
    /// Room for `weights` numbers of this kind, cut into the parts of the streams.
    ///
    /// # Errors
    /// No memory.
    pub fn parts(&mut self, kind: NoiseKind, weights: usize) -> Result<Vec<Mutex<Part<'_>>>> {
        match kind {
            NoiseKind::Grid(_) => {
                resize(&mut self.whole, weights)?;
                let parts = self.whole.chunks_mut(BLOCK).map(Part::Whole);
                collected(parts.map(Mutex::new))
            }
            NoiseKind::Float => {
                resize(&mut self.real, weights)?;
                let parts = self.real.chunks_mut(BLOCK).map(Part::Real);
                collected(parts.map(Mutex::new))
            }
            NoiseKind::None => Ok(Vec::new()),
        }
    }

    /// The noise.
    pub fn noise(&self, kind: NoiseKind) -> Noise<'_> {
        match kind {
            NoiseKind::Grid(grid) => Noise::Grid(grid, &self.whole),
            NoiseKind::Float => Noise::Float(&self.real),
            NoiseKind::None => Noise::None,
        }
    }
}
