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
        let size = |wanted| if wanted { weights } else { 0 };
        resize(&mut self.whole, size(matches!(kind, NoiseKind::Grid(_))))?;
        resize(&mut self.real, size(kind == NoiseKind::Float))?;
        let whole = self.whole.chunks_mut(BLOCK).map(Part::Whole);
        let real = self.real.chunks_mut(BLOCK).map(Part::Real);
        let mut parts = collected(whole.map(Mutex::new))?;
        parts.extend(real.map(Mutex::new));
        Ok(parts)
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
