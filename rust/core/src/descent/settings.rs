//! Private gradient descent: full-batch or Poisson-sampled, plain, with momentum, or Adam.
//!
//! With the row `r_i = rho (u_i, s)` of record i, at step t
//!
//! ```text
//! S   = sum over the batch of  min(1, R/(||a_i|| ||r_i||)) a_i r_i^T,   a_i = grad phi_{y_i}(W r_i)
//! g   = (S + noise)/divisor + regularization W
//! W  <- W - eta_t g      (or momentum, Nesterov, Adam)
//! ```
//!
//! The gradient of one record is a matrix of rank one, so clipping needs two norms. What is added to
//! the noise is exact: multiples of a power of two whose sum does not depend on the order of the
//! records nor on the number of threads. How far one record can move it is
//! [`crate::descent::bounds::clipped_sum_distance`], proved in `docs/proofs/gradient_perturbation.md`.
//!
//! Abadi et al., CCS 2016 (clipping and sampling); Park, Choi and Lee, `NeurIPS` 2025, equations
//! (12) to (15) (smoothed multi-class losses).
//!
//! Dropped: matrix products by the `gemm` crate (a row's scores may depend on its place among the
//! others); tiles of consecutive records (one record more moves them all).

use crate::descent::bounds;
use crate::descent::clipping::Clip;
use crate::descent::drawn::Drawn;
use crate::descent::optimizer::{Optimizer, Schedule, State};
use crate::descent::passes::Rule;
use crate::descent::release::{NoiseKind, noisy_sum};
use crate::descent::run::{Purpose, Run};
use crate::descent::streams::{Batches, DescentStreams};
use crate::error::{Result, require};
use crate::loss::smooth::SmoothLoss;
use crate::records::store::{ROW_GRID, Records};
use crate::runtime::interrupt::Interrupt;
use crate::runtime::memory::{collected, copied};
use crate::runtime::threads::{check_threads, own};
use std::ops::Range;

/// Precision of scores and of sums within a leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arithmetic {
    /// Single: what a record contributes is any function of it and the weights.
    Single,
    /// Double: the sum is near that of the exact gradients, see [`crate::descent::bounds::descent_rounding`].
    Double,
}

/// Plain public numbers.
#[derive(Debug, Clone, Copy)]
pub struct DescentSettings {
    /// The loss.
    pub loss: SmoothLoss,
    /// Features, without the constant one.
    pub features: usize,
    /// Bound on contributions.
    pub clip: Clip,
    /// Kind of the noise.
    pub noise: NoiseKind,
    /// Noisy sums are divided by this.
    pub divisor: f64,
    /// Factor of the weights in the gradient.
    pub regularization: f64,
    /// Update rule of the weights.
    pub optimizer: Optimizer,
    /// Step size.
    pub rate: f64,
    /// Step sizes over time.
    pub schedule: Schedule,
    /// First step whose iterate is averaged; `None` releases the last iterate.
    pub average_from: Option<u64>,
    /// Radius of the ball that holds the weights.
    pub radius: Option<f64>,
    /// Precision of scores and sums.
    pub arithmetic: Arithmetic,
    /// Whether dense rows are summed without any rounding, as sparse ones always are: then no sum
    /// depends on which records are summed together.
    pub exact_sums: bool,
}

/// Steps of their grid that weights may be away from 0: all sums of such numbers are exact.
const MAX_STEPS: f64 = 2_251_799_813_685_248.0;

impl DescentSettings {
    /// Columns of the weights.
    pub fn columns(&self) -> usize {
        self.rule().columns(self.features)
    }

    /// Number of weights.
    pub fn weights(&self) -> usize {
        self.loss.scores * self.columns()
    }

    /// The state before the first step.
    ///
    /// # Errors
    /// No memory.
    pub fn start(&self) -> Result<State> {
        State::new(self.weights(), self.optimizer, self.average_from.is_some())
    }

    /// Takes these steps of a run on `records`; `state` is that of before if an error is returned.
    ///
    /// A run may be taken in parts: they have the bits of the whole.
    ///
    /// # Errors
    /// Records of another shape, threads, an interrupt.
    pub fn run(
        &self,
        state: &mut State,
        records: &Records,
        streams: &DescentStreams<'_>,
        steps: Range<u32>,
        threads: usize,
        interrupt: &dyn Interrupt,
    ) -> Result<()> {
        self.check(records)?;
        check_threads(threads)?;
        let run = Run {
            settings: self,
            records,
            batches: &streams.batches,
            threads,
            purpose: Purpose::Steps(steps, streams),
        };
        let mut next = state.copy()?;
        run.start(&mut next, interrupt)?;
        *state = next;
        Ok(())
    }

    /// The sum of step `step` over the records of one shard at `weights`, without noise: one whole
    /// number of [`Self::part_unit`] for each weight.
    ///
    /// Sums of shards are added as integers. Given the batches, their total does not depend on how
    /// the records were distributed.
    ///
    /// # Errors
    /// As [`Self::run`]; weights of another number.
    pub fn partial(
        &self,
        weights: &[f64],
        records: &Records,
        (batches, step): (&Batches<'_>, u32),
        threads: usize,
        interrupt: &dyn Interrupt,
    ) -> Result<Vec<i128>> {
        let settings = Self {
            exact_sums: true,
            ..*self
        };
        settings.check(records)?;
        let n_weights = self.weights();
        let message = format_args!("expected {n_weights} finite numbers");
        let right = weights.len() == n_weights && weights.iter().all(|w| w.is_finite());
        require(right, "weights", message)?;
        check_threads(threads)?;
        let run = Run {
            settings: &settings,
            records,
            batches,
            threads,
            purpose: Purpose::Part(step),
        };
        let mut state = State {
            weights: copied(weights)?,
            ..State::default()
        };
        run.start(&mut state, interrupt)
    }

    /// The power of two of which sums of shards are multiples.
    pub fn part_unit(&self) -> f64 {
        bounds::coefficient_grid(self.clip.bound, self.arithmetic) * ROW_GRID
    }

    /// Takes step `step` of a run with the sum `units` of all shards: rounds it to the grid of the
    /// noise, adds the noise and moves the weights.
    ///
    /// # Errors
    /// Sums of another number, settings as in [`Self::run`].
    pub fn advance(
        &self,
        state: &mut State,
        units: &[i128],
        streams: &DescentStreams<'_>,
        step: u32,
    ) -> Result<()> {
        self.check_steps()?;
        let n_weights = self.weights();
        let message = format_args!("expected {n_weights} sums");
        require(units.len() == n_weights, "total", message)?;
        let mut drawn = Drawn::default();
        for (at, part) in drawn.parts(self.noise, n_weights)?.iter().enumerate() {
            streams.draw(step, at, &mut own(part));
        }
        let noise = drawn.noise(self.noise);
        let unit = self.part_unit();
        let noisy_sum = noisy_sum(unit, noise);
        let noisy = units.iter().enumerate();
        let mut noisy = collected(noisy.map(|(at, units)| noisy_sum(*units, at)))?;
        self.take_step(state, &mut noisy);
        Ok(())
    }

    /// Refuses records of another shape and settings that do not fit together.
    fn check(&self, records: &Records) -> Result<()> {
        let message = format_args!(
            "got rows of {}, expected {}",
            records.columns, self.features
        );
        require(records.columns == self.features, "n_features", message)?;
        self.check_steps()?;
        let message = "more classes than the loss has";
        let right = records.n_classes <= self.loss.classes();
        require(right, "n_classes", message)
    }

    /// The optimiser's step with the noisy sum, which is overwritten.
    pub(crate) fn take_step(&self, state: &mut State, noisy: &mut [f64]) {
        if let Some(step) = self.snapped() {
            let keep = 1.0 - self.rate * self.regularization;
            let b = self.rate / self.divisor;
            state.snapped_step(keep, (b, step), noisy, self.radius);
            return;
        }
        let inverse = 1.0 / self.divisor;
        let decay = self.regularization;
        for (g, w) in noisy.iter_mut().zip(&state.weights) {
            *g = *g * inverse + decay * w;
        }
        let t = state.steps;
        let rate = self.rate * self.schedule.factor(t);
        state.step(self.optimizer, rate, noisy);
        if let Some(radius) = self.radius {
            state.project(radius);
        }
        if self.average_from.is_some_and(|first| t >= first) {
            state.average();
        }
    }

    /// Step between the values that weights can take, where the guarantee is about the last iterate.
    ///
    /// Noise on a grid hides earlier iterates only if nothing finer than its steps is kept.
    fn snapped(&self) -> Option<f64> {
        match (self.arithmetic, self.noise) {
            (Arithmetic::Double, NoiseKind::Grid(grid)) => Some(self.rate / self.divisor * grid),
            _ => None,
        }
    }

    /// Refuses settings that do not fit together.
    ///
    /// # Errors
    /// See above.
    pub fn check_steps(&self) -> Result<()> {
        let Some(step) = self.snapped() else {
            return Ok(());
        };
        let plain = Optimizer::Gradient {
            momentum: 0.0,
            nesterov: false,
        };
        // Beyond, weights are no multiples of the step any more.
        let message = "expected a radius of at most 2^51 steps, for weights on a grid";
        let right = self.radius.is_some_and(|radius| radius <= step * MAX_STEPS);
        require(right, "radius", message)?;
        let message = "expected a power of two over the divisor, for weights on a grid";
        require(libm::frexp(step).0 == 0.5, "learning_rate", message)?;
        let constant = self.schedule == Schedule::Constant && self.average_from.is_none();
        let message = "weights on a grid need plain steps of constant size, not averaged";
        require(self.optimizer == plain && constant, "optimizer", message)
    }

    pub(crate) fn rule(&self) -> Rule {
        Rule {
            loss: self.loss,
            clip: self.clip,
            coefficient_grid: bounds::coefficient_grid(self.clip.bound, self.arithmetic),
        }
    }
}
