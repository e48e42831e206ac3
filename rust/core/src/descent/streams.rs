//! Randomness of descent: batches, tags and noise from the streams of one key.
//!
//! Steps are counted from the beginning of the run.

use crate::descent::drawn::Part;
use crate::descent::optimizer::State;
use crate::descent::release::NoiseKind;
use crate::descent::settings::DescentSettings;
use crate::error::{Result, require};
use crate::noise::gaussian::fill_normal;
use crate::noise::poisson_batch::{Rate, poisson_batch};
use crate::noise::{BLOCK, GridScale, Key, Task};
use crate::records::store::Records;
use crate::runtime::interrupt::Interrupt;
use crate::runtime::tasks::each_problem;
use rand::Rng;

/// Batches of all records, or of one shard of them.
pub struct Batches<'k> {
    task: Task<'k>,
    rate: Rate,
}

impl<'k> Batches<'k> {
    /// Batches of the shard of this number, under a key that all shards share. Shard s draws that
    /// of step t from stream (s, t) of the key: no two share a word, and a step computed again
    /// has the same batch.
    ///
    /// # Errors
    /// A rate outside (0, 1].
    pub fn of_shard(key: &'k Key, shard: u32, rate: f64) -> Result<Self> {
        Ok(Self {
            task: key.task(shard),
            rate: Rate::new(rate)?,
        })
    }

    /// Whether every record joins every step.
    pub fn full(&self) -> bool {
        self.rate.value() >= 1.0
    }

    /// The records of a step, increasing: each of `0..n` joins independently with the same
    /// probability.
    pub fn fill(&self, step: u32, n: usize, batch: &mut Vec<u32>) {
        poisson_batch(&mut self.task.stream(step), &self.rate, n, batch);
    }
}

/// Streams of one run: batches, tags and noise each from a task of their own.
pub struct DescentStreams<'k> {
    /// Choice of the records of each step.
    pub batches: Batches<'k>,
    tags: Task<'k>,
    noise: Task<'k>,
    sigma: f64,
    /// Grid of the noise, if any.
    scale: Option<GridScale>,
    /// Streams of noise that one step uses.
    blocks: u32,
}

impl<'k> DescentStreams<'k> {
    /// For `steps` steps with `weights` weights each.
    ///
    /// # Errors
    /// A rate outside (0, 1], a standard deviation or grid out of range, more streams than a task
    /// has.
    pub fn new(
        [batches, tags, noise]: [Task<'k>; 3],
        rate: f64,
        (sigma, grid): (f64, Option<f64>),
        (steps, weights): (u32, usize),
    ) -> Result<Self> {
        let grid = grid.filter(|_| sigma != 0.0);
        let scale = grid.map(|grid| GridScale::new(sigma, grid)).transpose()?;
        let blocks = weights.div_ceil(BLOCK).max(1);
        let all = blocks.checked_mul(steps as usize);
        let few = all.is_some_and(|all| u32::try_from(all).is_ok());
        require(few, "n_steps", "too many for one call: 2^32 streams")?;
        Ok(Self {
            batches: Batches {
                task: batches,
                rate: Rate::new(rate)?,
            },
            tags,
            noise,
            sigma,
            scale,
            blocks: blocks as u32,
        })
    }

    /// Kind of the noise.
    pub fn kind(sigma: f64, grid: Option<f64>) -> NoiseKind {
        match grid {
            _ if sigma == 0.0 => NoiseKind::None,
            Some(grid) => NoiseKind::Grid(grid),
            None => NoiseKind::Float,
        }
    }

    /// Independent uniform tags.
    pub fn tags(&self, step: u32, tags: &mut [u32]) {
        let mut stream = self.tags.stream(step);
        for tag in tags {
            *tag = stream.next_u32();
        }
    }

    /// Draws part `at` of the noise of a step; on a grid without noise 0.
    pub fn draw(&self, step: u32, at: usize, part: &mut Part<'_>) {
        let mut stream = self.noise.stream(step * self.blocks + at as u32);
        match (part, self.scale) {
            (Part::Whole(part), Some(scale)) => scale.fill(&mut stream, part),
            (Part::Whole(part), None) => part.fill(0),
            (Part::Real(part), _) => fill_normal(&mut stream, part, self.sigma),
        }
    }
}

/// Many independent runs of one descent.
pub struct DescentBatch<'b> {
    /// The descent.
    pub settings: &'b DescentSettings,
    /// Initial state of every run.
    pub start: &'b State,
    /// Probability with which a record joins a batch.
    pub rate: f64,
    /// Standard deviation of the noise, and its grid.
    pub noise: (f64, Option<f64>),
    /// Steps of one run.
    pub steps: u32,
}

impl DescentBatch<'_> {
    /// Releases of each run, one run after the other; run i draws from `tasks[i]`.
    ///
    /// Every run follows [`DescentSettings::run`] on one thread.
    ///
    /// # Errors
    /// As [`DescentSettings::run`] and [`DescentStreams::new`]; no memory.
    pub fn run(
        &self,
        records: &Records,
        tasks: &[[Task<'_>; 3]],
        threads: usize,
        interrupt: &dyn Interrupt,
    ) -> Result<Vec<f64>> {
        let size = self.settings.weights();
        let shape = (tasks.len(), size);
        let (released, _) = each_problem(shape, threads, interrupt, |i, stop| {
            let numbers = (self.steps, size);
            let streams = DescentStreams::new(tasks[i], self.rate, self.noise, numbers)?;
            let mut state = self.start.copy()?;
            (self.settings).run(&mut state, records, &streams, 0..self.steps, 1, stop)?;
            Ok((Some(state.released()?), ()))
        })?;
        Ok(released)
    }
}
