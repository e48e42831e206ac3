//! One run, or one sum: batches chosen, records shared out to threads, noise drawn ahead.

use crate::descent::batch::{Batch, DenseSummation, SparseSummation, Summation, Worker};
use crate::descent::bounds;
use crate::descent::drawn::Drawn;
use crate::descent::leaves::LEAF;
use crate::descent::optimizer::State;
use crate::descent::passes::{Precision, View};
use crate::descent::release::{add_noise, for_each_exact};
use crate::descent::settings::{Arithmetic, DescentSettings};
use crate::descent::streams::{Batches, DescentStreams};
use crate::error::Result;
use crate::records::store::{RecordRows, Records};
use crate::rows::sparse::Blocks;
use crate::runtime::interrupt::{Interrupt, Never};
use crate::runtime::memory::zeros;
use crate::runtime::threads::{PARALLEL_WORK, each_block};
use rayon::ThreadPool;
use std::ops::Range;

/// Multiplications of one thread between two looks at the interrupt: some milliseconds.
const ROUND_WORK: usize = 1 << 26;
/// Coefficients of a block of sparse rows, which the cache holds, and its rows: few enough that doubles
/// hold their sums.
const BLOCK_NUMBERS: usize = 1 << 17;
const BLOCK_ROWS: usize = 1 << 14;
/// Values of noise drawn ahead.
const AHEAD: usize = 1 << 16;

/// Purpose of a run.
#[derive(Clone)]
pub enum Purpose<'g> {
    /// These steps, with noise from these streams.
    Steps(Range<u32>, &'g DescentStreams<'g>),
    /// The sum of this step alone.
    Part(u32),
}

/// One run.
pub struct Run<'j> {
    /// Public numbers.
    pub settings: &'j DescentSettings,
    /// The records.
    pub records: &'j Records,
    /// Source of batches.
    pub batches: &'j Batches<'j>,
    /// More threads.
    pub pool: Option<&'j ThreadPool>,
    /// Purpose.
    pub purpose: Purpose<'j>,
}

impl Run<'_> {
    /// Takes the steps, or returns the sum in units; `state` is unusable if an error is returned.
    ///
    /// # Errors
    /// An interrupt.
    pub fn start(&self, state: &mut State, interrupt: &dyn Interrupt) -> Result<Vec<i128>> {
        match self.settings.arithmetic {
            Arithmetic::Single => self.choose::<f32>(state, interrupt),
            Arithmetic::Double => self.choose::<f64>(state, interrupt),
        }
    }

    fn choose<T: Precision>(
        &self,
        state: &mut State,
        interrupt: &dyn Interrupt,
    ) -> Result<Vec<i128>> {
        let (records, settings) = (self.records, self.settings);
        let rule = settings.rule();
        if let RecordRows::Dense { .. } | RecordRows::Lifted(_) = records.rows {
            let unit = if settings.exact_sums {
                settings.part_unit()
            } else {
                bounds::leaf_unit(settings.clip.bound, settings.noise)
            };
            let plan = DenseSummation {
                records,
                rule,
                unit,
                exact: settings.exact_sums,
            };
            return self.descend::<T, _>(&plan, state, interrupt);
        }
        let plan = SparseSummation {
            records,
            products: records.products(self.pool, interrupt)?,
            blocks: self.blocks(interrupt)?,
            rule,
        };
        self.descend::<T, _>(&plan, state, interrupt)
    }

    /// Blocks of sparse records, where several steps meet all of them.
    fn blocks(&self, interrupt: &dyn Interrupt) -> Result<Option<&Blocks>> {
        let (RecordRows::Sparse(rows), Purpose::Steps(steps, _)) =
            (&self.records.rows, &self.purpose)
        else {
            return Ok(None);
        };
        let (n, scores) = (self.records.singles(), self.settings.loss.scores);
        // One score is as fast along rows.
        if !self.batches.full() || steps.end < 2 || n == 0 || scores == 1 {
            return Ok(None);
        }
        let threads = self.pool.map_or(1, ThreadPool::current_num_threads);
        let share = n.div_ceil(threads);
        let each = (BLOCK_NUMBERS / scores).min(BLOCK_ROWS).min(share).max(1);
        let each = each.next_multiple_of(LEAF);
        rows.blocks(n, self.records.columns, each, interrupt)
    }

    fn descend<T: Precision, P: Summation<T>>(
        &self,
        plan: &P,
        state: &mut State,
        interrupt: &dyn Interrupt,
    ) -> Result<Vec<i128>> {
        let mut batch = Batch::default();
        let first = match &self.purpose {
            // Chosen once for all parts of a run.
            Purpose::Steps(..) if self.batches.full() => 0,
            Purpose::Steps(steps, _) => steps.start,
            Purpose::Part(step) => *step,
        };
        self.choose_batch(plan, first, &mut batch)?;
        let touched = batch.records(self.records).max(1) * plan.touched();
        let share = self.pool.filter(|_| touched >= PARALLEL_WORK);
        let threads = share.map_or(1, ThreadPool::current_num_threads);
        let workers = (0..threads).map(|_| plan.worker());
        let mut workers = workers.collect::<Result<Vec<_>>>()?;
        let mut steps = StepLoop {
            run: self,
            plan,
            share,
            together: (ROUND_WORK / touched).max(1) as u32,
            batch,
            workers: &mut workers,
            view: View::default(),
            noisy: zeros(self.settings.weights())?,
            state,
        };
        match &self.purpose {
            Purpose::Steps(all, streams) => {
                steps.all_steps(all.clone(), streams, interrupt)?;
                Ok(Vec::new())
            }
            Purpose::Part(_) => steps.part(interrupt),
        }
    }

    fn choose_batch<T: Precision, P: Summation<T>>(
        &self,
        plan: &P,
        step: u32,
        batch: &mut Batch,
    ) -> Result<()> {
        if self.batches.full() {
            batch.take_all(self.records)?;
        } else {
            batch.choose(self.records, |n, chosen| {
                self.batches.fill(step, n, chosen);
            })?;
        }
        match self.purpose {
            _ if !plan.wants_leaves() => {}
            Purpose::Steps(_, streams) if !self.settings.exact_sums => {
                batch.plant(|tags| streams.tags(step, tags))?;
            }
            _ => batch.cut()?,
        }
        Ok(())
    }
}

/// The steps of one run for one plan.
struct StepLoop<'w, 'j, T, P> {
    run: &'w Run<'j>,
    plan: &'w P,
    /// Pool for the passes; `None` where a step is too small.
    share: Option<&'w ThreadPool>,
    /// Steps between two looks at the interrupt.
    together: u32,
    batch: Batch,
    workers: &'w mut [Worker<T>],
    view: View<T>,
    noisy: Vec<f64>,
    state: &'w mut State,
}

impl<T: Precision, P: Summation<T>> StepLoop<'_, '_, T, P> {
    /// The sum at the present weights, in units.
    fn part(&mut self, interrupt: &dyn Interrupt) -> Result<Vec<i128>> {
        self.plan.view(&self.state.weights, &mut self.view)?;
        self.pass(interrupt)?;
        let mut units = zeros(self.run.settings.weights())?;
        let sum = &self.workers[0].sum;
        for_each_exact(sum, &self.plan.places(), |at, value| units[at] = value);
        Ok(units)
    }

    fn all_steps(
        &mut self,
        all: Range<u32>,
        streams: &DescentStreams<'_>,
        interrupt: &dyn Interrupt,
    ) -> Result<()> {
        let (run, share) = (self.run, self.share);
        let p = run.settings.weights().max(1);
        let ahead = if run.pool.is_some() { AHEAD / p } else { 1 };
        let chunk = ahead.clamp(1, 64) as u32;
        // A thread that is free draws the noise of the next steps meanwhile.
        let helper = run.pool.filter(|_| share.is_none());
        let from = (run.settings, streams);
        let (mut now, mut next) = (Drawn::default(), Drawn::default());
        let range = |first: u32| first..all.end.min(first.saturating_add(chunk));
        now.draw(from, range(all.start), run.pool)?;
        let mut first = all.start;
        while first < all.end {
            let steps = range(first);
            first = steps.end;
            if let Some(pool) = helper {
                let mut drawn = Ok(());
                pool.in_place_scope(|scope| {
                    scope.spawn(|_| drawn = next.draw(from, range(first), None));
                    self.some_steps(steps, all.start, &now, interrupt)
                })?;
                drawn?;
            } else {
                self.some_steps(steps, all.start, &now, interrupt)?;
                next.draw(from, range(first), share)?;
            }
            std::mem::swap(&mut now, &mut next);
        }
        Ok(())
    }

    /// The batch of step `first` is chosen already.
    fn some_steps(
        &mut self,
        mut steps: Range<u32>,
        first: u32,
        drawn: &Drawn,
        interrupt: &dyn Interrupt,
    ) -> Result<()> {
        while !steps.is_empty() {
            interrupt.check()?;
            let end = steps.end.min(steps.start.saturating_add(self.together));
            let part = steps.start..end;
            steps.start = end;
            match self.share.filter(|_| self.together > 1) {
                // A short step inside the pool wakes one thread less, and so does its end.
                Some(pool) => pool.install(|| self.each_step(part, first, drawn, &Never)),
                None => self.each_step(part, first, drawn, interrupt),
            }?;
        }
        Ok(())
    }

    fn each_step(
        &mut self,
        steps: Range<u32>,
        first: u32,
        drawn: &Drawn,
        interrupt: &dyn Interrupt,
    ) -> Result<()> {
        for step in steps {
            if step > first && !self.run.batches.full() {
                self.run.choose_batch(self.plan, step, &mut self.batch)?;
            }
            self.plan.view(&self.state.weights, &mut self.view)?;
            self.pass(interrupt)?;
            let settings = self.run.settings;
            let noise = drawn.step(settings.noise, step, settings.weights());
            let (sum, places) = (&self.workers[0].sum, self.plan.places());
            add_noise(sum, &places, noise, &mut self.noisy);
            settings.take_step(self.state, &mut self.noisy);
        }
        Ok(())
    }

    /// All contributions of the step, into the sum of the first worker.
    fn pass(&mut self, interrupt: &dyn Interrupt) -> Result<()> {
        let items = self.plan.items(&self.batch);
        let threads = self.workers.len();
        for (at, worker) in self.workers.iter_mut().enumerate() {
            worker.items = items * at / threads..items * (at + 1) / threads;
        }
        let records = self.batch.records(self.run.records).max(1);
        let per_item = (self.plan.touched() * records / items.max(1)).max(1);
        let round = (ROUND_WORK / per_item).max(1);
        let mut fresh = true;
        while fresh || self.workers.iter().any(|worker| !worker.items.is_empty()) {
            let (plan, batch, view) = (self.plan, &self.batch, &self.view);
            each_block(self.share, self.workers, interrupt, |worker| {
                if fresh {
                    worker.sum.clear();
                }
                let end = worker.items.end.min(worker.items.start + round);
                worker.part = worker.items.start..end;
                worker.items.start = end;
                plan.pass(batch, view, worker)
            })?;
            fresh = false;
        }
        let (first, rest) = self.workers.split_at_mut(1);
        let mut sums: Vec<_> = rest.iter_mut().map(|worker| &mut worker.sum).collect();
        first[0].sum.merge(&mut sums, self.share)
    }
}
