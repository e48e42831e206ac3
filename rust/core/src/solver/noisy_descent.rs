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
//! [`bounds::clipped_sum_distance`], proved in `docs/proofs/gradient_perturbation.md`.
//!
//! Abadi et al., CCS 2016 (clipping and sampling); Park, Choi and Lee, `NeurIPS` 2025, equations
//! (12) to (15) (smoothed multi-class losses).
//!
//! Dropped: matrix products by the `gemm` crate (a row's scores may depend on its place among the
//! others); tiles of consecutive records (one record more moves them all).

pub mod bounds;
pub mod clipping;
pub mod dense_kernels;
mod drawn;
pub mod exact_sum;
pub mod gradients;
pub mod leaves;
pub mod optimizer;
pub mod passes;
pub mod plans;
pub mod released;

use super::kernels::Panels;
use super::losses::SmoothLoss;
use super::records::{RecordRows, Records};
use crate::error::{Error, Result};
use crate::parallel::{Interrupt, each_block, pool};
use clipping::Clip;
pub use drawn::Randomness;
use drawn::{Drawn, Source};
use optimizer::{Optimizer, Schedule, State};
use passes::{Precision, Rule, Scratch, SingleScore, View};
use plans::{Batch, DensePlan, Plan, SparsePlan};
use rayon::ThreadPool;
pub use released::NoiseKind;
use std::ops::Range;

/// Precision of scores and of sums within a leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arithmetic {
    /// Single: what a record contributes is any function of it and the weights.
    Single,
    /// Double: the sum is near that of the exact gradients, see [`bounds::descent_rounding`].
    Double,
}

/// Plain public numbers.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// The loss.
    pub loss: SmoothLoss,
    /// Features, without the constant one.
    pub features: usize,
    /// How contributions are bounded.
    pub clip: Clip,
    /// What the noise is.
    pub noise: NoiseKind,
    /// Noisy sums are divided by this.
    pub divisor: f64,
    /// Factor of the weights in the gradient.
    pub regularization: f64,
    /// How the weights move.
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
}

/// Multiplications of one step above which it is shared out: below, waking the pool up (10 to 20
/// microseconds a step) eats the gain.
const PARALLEL_WORK: usize = 1 << 20;
/// Multiplications of one thread between two looks at the interrupt: some milliseconds.
const ROUND_WORK: usize = 1 << 26;
/// Steps of their grid that weights may be away from 0: all sums of such numbers are exact.
const MOST_STEPS: f64 = 2_251_799_813_685_248.0;
/// Values of noise drawn ahead.
const AHEAD: usize = 1 << 16;

impl Settings {
    /// Columns of the weights.
    pub fn columns(&self) -> usize {
        self.features + usize::from(self.clip.intercept > 0.0)
    }

    /// Number of weights.
    pub fn weights(&self) -> usize {
        self.loss.scores * self.columns()
    }

    /// The state before the first step.
    pub fn start(&self) -> State {
        State::new(self.weights(), self.optimizer, self.average_from.is_some())
    }

    /// Takes `steps` more steps on `records`; `state` is that of before if an error is returned.
    ///
    /// # Errors
    /// Records of another shape, threads, an interrupt.
    pub fn run(
        &self,
        state: &mut State,
        records: &Records,
        randomness: &dyn Randomness,
        steps: u32,
        threads: usize,
        interrupt: &dyn Interrupt,
    ) -> Result<()> {
        if records.columns != self.features {
            let message = format!(
                "got rows of {}, expected {}",
                records.columns, self.features
            );
            return Err(Error::invalid("n_features", message));
        }
        self.check_snapping()?;
        if records.n_classes > self.loss.classes() {
            return Err(Error::invalid(
                "n_classes",
                "more classes than the loss has",
            ));
        }
        let pool = (threads > 1).then(|| pool(threads)).transpose()?;
        let job = Job {
            settings: self,
            records,
            randomness,
            pool: pool.as_deref(),
            interrupt,
            steps,
        };
        let mut next = state.clone();
        match self.arithmetic {
            Arithmetic::Single => job.choose::<f32>(&mut next)?,
            Arithmetic::Double => job.choose::<f64>(&mut next)?,
        }
        *state = next;
        Ok(())
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

    fn check_snapping(&self) -> Result<()> {
        let Some(step) = self.snapped() else {
            return Ok(());
        };
        let plain = Optimizer::Gradient {
            momentum: 0.0,
            nesterov: false,
        };
        // Beyond, weights are no multiples of the step any more.
        if self.radius.is_none_or(|radius| radius > step * MOST_STEPS) {
            let message = "expected a radius of at most 2^51 steps, for weights on a grid";
            return Err(Error::invalid("radius", message));
        }
        if libm::frexp(step).0 != 0.5 {
            let message = "expected a power of two over the divisor, for weights on a grid";
            return Err(Error::invalid("learning_rate", message));
        }
        if self.optimizer != plain
            || self.schedule != Schedule::Constant
            || self.average_from.is_some()
        {
            let message = "weights on a grid need plain steps of constant size, not averaged";
            return Err(Error::invalid("optimizer", message));
        }
        Ok(())
    }

    fn rule(&self) -> Rule {
        Rule {
            loss: self.loss,
            clip: self.clip,
            coefficient_grid: bounds::coefficient_grid(self.clip.bound, self.arithmetic),
        }
    }
}

/// One run.
struct Job<'j> {
    settings: &'j Settings,
    records: &'j Records,
    randomness: &'j dyn Randomness,
    pool: Option<&'j ThreadPool>,
    interrupt: &'j dyn Interrupt,
    steps: u32,
}

/// One thread's share of a step.
struct Worker<T> {
    items: Range<usize>,
    sum: exact_sum::ExactSum,
    scratch: Scratch<T>,
}

impl Job<'_> {
    fn choose<T: Precision>(&self, state: &mut State) -> Result<()> {
        let (k, d) = (self.settings.loss.scores, self.settings.features);
        let (records, settings) = (self.records, self.settings);
        let rule = settings.rule();
        if let RecordRows::Dense { .. } | RecordRows::Lifted(_) = records.rows {
            let unit = bounds::leaf_unit(settings.clip.bound, settings.noise);
            return self.descend::<T, _>(&DensePlan::new(records, rule, unit), state);
        }
        match k {
            1 => self.descend::<T, _>(&SparsePlan::new(records, rule, SingleScore::new(d)), state),
            2..=4 => self.descend::<T, _>(
                &SparsePlan::new(records, rule, Panels::<4>::new(k, d)),
                state,
            ),
            5..=8 | 17..=24 => self.descend::<T, _>(
                &SparsePlan::new(records, rule, Panels::<8>::new(k, d)),
                state,
            ),
            _ => self.descend::<T, _>(
                &SparsePlan::new(records, rule, Panels::<16>::new(k, d)),
                state,
            ),
        }
    }

    fn descend<T: Precision, P: Plan<T>>(&self, plan: &P, state: &mut State) -> Result<()> {
        let mut batch = Batch::default();
        self.choose_batch(plan, 0, &mut batch);
        let touched = batch.records(self.records).max(1) * plan.touched();
        let share = self.pool.filter(|_| touched >= PARALLEL_WORK);
        let threads = share.map_or(1, ThreadPool::current_num_threads);
        let mut workers: Vec<Worker<T>> = (0..threads)
            .map(|_| Worker {
                items: 0..0,
                sum: plan.sum(),
                scratch: Scratch::default(),
            })
            .collect();
        let mut walk = Walk {
            job: self,
            plan,
            share,
            batch,
            workers: &mut workers,
            view: View::default(),
            noisy: vec![0.0; self.settings.weights()],
            state,
        };
        walk.all_steps()
    }

    fn choose_batch<T, P: Plan<T>>(&self, plan: &P, step: u32, batch: &mut Batch) {
        let n = self.records.label.len();
        if self.randomness.full_batch() {
            batch.take_all(n);
        } else {
            self.randomness.batch(step, n, batch.chosen());
        }
        if plan.wants_leaves() {
            batch.plant(|tags| self.randomness.tags(step, tags));
        }
    }
}

/// The steps of one run for one plan.
struct Walk<'w, 'j, T, P> {
    job: &'w Job<'j>,
    plan: &'w P,
    /// Pool for the passes; `None` where a step is too small.
    share: Option<&'w ThreadPool>,
    batch: Batch,
    workers: &'w mut [Worker<T>],
    view: View<T>,
    noisy: Vec<f64>,
    state: &'w mut State,
}

impl<T: Precision, P: Plan<T>> Walk<'_, '_, T, P> {
    fn all_steps(&mut self) -> Result<()> {
        let (job, share) = (self.job, self.share);
        let p = job.settings.weights().max(1);
        let ahead = if job.pool.is_some() { AHEAD / p } else { 1 };
        let chunk = ahead.clamp(1, 64) as u32;
        // A thread that is free draws the noise of the next steps meanwhile.
        let helper = job.pool.filter(|_| share.is_none());
        let from = Source {
            settings: job.settings,
            randomness: job.randomness,
        };
        let (mut now, mut next) = (Drawn::default(), Drawn::default());
        let last = job.steps;
        let range = |first: u32| first..last.min(first.saturating_add(chunk));
        now.draw(from, range(0), job.pool);
        let mut first = 0;
        while first < last {
            let steps = range(first);
            first = steps.end;
            if let Some(pool) = helper {
                pool.in_place_scope(|scope| {
                    scope.spawn(|_| next.draw(from, range(first), None));
                    self.some_steps(steps, &now)
                })?;
            } else {
                self.some_steps(steps, &now)?;
                next.draw(from, range(first), share);
            }
            std::mem::swap(&mut now, &mut next);
        }
        Ok(())
    }

    fn some_steps(&mut self, steps: Range<u32>, drawn: &Drawn) -> Result<()> {
        for step in steps {
            self.job.interrupt.check()?;
            if step > 0 && !self.job.randomness.full_batch() {
                self.job.choose_batch(self.plan, step, &mut self.batch);
            }
            self.plan.view(&self.state.weights, &mut self.view);
            self.pass()?;
            let settings = self.job.settings;
            let noise = drawn.step(settings.noise, step, settings.weights());
            self.plan
                .noisy(&self.workers[0].sum, noise, &mut self.noisy);
            self.advance();
        }
        Ok(())
    }

    /// All contributions of the step, into the sum of the first worker.
    fn pass(&mut self) -> Result<()> {
        let items = self.plan.items(&self.batch);
        let threads = self.workers.len();
        for (at, worker) in self.workers.iter_mut().enumerate() {
            worker.sum.clear();
            worker.items = items * at / threads..items * (at + 1) / threads;
        }
        let records = self.batch.records(self.job.records).max(1);
        let per_item = (self.plan.touched() * records / items.max(1)).max(1);
        let round = (ROUND_WORK / per_item).max(1);
        while self.workers.iter().any(|worker| !worker.items.is_empty()) {
            let (plan, batch, view) = (self.plan, &self.batch, &self.view);
            each_block(self.share, self.workers, self.job.interrupt, |worker| {
                let end = worker.items.end.min(worker.items.start + round);
                let part = worker.items.start..end;
                worker.items.start = end;
                plan.pass(batch, part, view, &mut worker.sum, &mut worker.scratch);
            })?;
        }
        let (first, rest) = self.workers.split_at_mut(1);
        for worker in rest {
            first[0].sum.merge(&mut worker.sum);
        }
        Ok(())
    }

    /// The optimiser's step with the noisy sum.
    fn advance(&mut self) {
        let settings = self.job.settings;
        if let Some(step) = settings.snapped() {
            let keep = 1.0 - settings.rate * settings.regularization;
            let b = settings.rate / settings.divisor;
            self.state
                .snapped_step(keep, (b, step), &self.noisy, settings.radius);
            return;
        }
        let inverse = 1.0 / settings.divisor;
        let decay = settings.regularization;
        for (g, w) in self.noisy.iter_mut().zip(&self.state.weights) {
            *g = *g * inverse + decay * w;
        }
        let t = self.state.steps;
        let rate = settings.rate * settings.schedule.factor(t);
        self.state.step(settings.optimizer, rate, &mut self.noisy);
        if let Some(radius) = settings.radius {
            self.state.project(radius);
        }
        if settings.average_from.is_some_and(|first| t >= first) {
            self.state.average();
        }
    }
}
