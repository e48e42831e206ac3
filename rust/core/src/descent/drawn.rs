//! Noise drawn ahead of the steps that use it.

use crate::descent::release::{Noise, NoiseKind};
use crate::descent::settings::DescentSettings;
use crate::descent::streams::DescentStreams;
use crate::error::Result;
use crate::runtime::memory::resize;
use crate::runtime::threads::each_chunk;
use rayon::ThreadPool;
use std::ops::Range;

/// Noise of some consecutive steps.
#[derive(Default)]
pub struct Drawn {
    first: u32,
    whole: Vec<i64>,
    real: Vec<f64>,
}

impl Drawn {
    /// Draws for the steps `range`, sharing them out on `pool`.
    ///
    /// # Errors
    /// No memory.
    pub fn draw(
        &mut self,
        (settings, streams): (&DescentSettings, &DescentStreams<'_>),
        range: Range<u32>,
        pool: Option<&ThreadPool>,
    ) -> Result<()> {
        let p = settings.weights().max(1);
        let len = range.len().saturating_mul(p);
        self.first = range.start;
        match settings.noise {
            NoiseKind::Grid(_) => {
                resize(&mut self.whole, len)?;
                each_chunk(pool, &mut self.whole, p, &|step, part| {
                    streams.grid_noise(range.start + step as u32, part);
                });
            }
            NoiseKind::Float => {
                resize(&mut self.real, len)?;
                each_chunk(pool, &mut self.real, p, &|step, part| {
                    streams.float_noise(range.start + step as u32, part);
                });
            }
            NoiseKind::None => {}
        }
        Ok(())
    }

    /// The noise of one of these steps.
    pub fn step(&self, kind: NoiseKind, step: u32, p: usize) -> Noise<'_> {
        let at = (step - self.first) as usize * p;
        match kind {
            NoiseKind::Grid(grid) => Noise::Grid(grid, &self.whole[at..at + p]),
            NoiseKind::Float => Noise::Float(&self.real[at..at + p]),
            NoiseKind::None => Noise::None,
        }
    }
}
