//! One run, or one sum: records shared out to a team, which draws the next step's batch and noise too.

use crate::descent::batch::{Batch, DenseSummation, SparseSummation, Summation, Worker};
use crate::descent::bounds;
use crate::descent::drawn::Drawn;
use crate::descent::leaves::LEAF;
use crate::descent::optimizer::State;
use crate::descent::passes::{Precision, View};
use crate::descent::release::{NoiseKind, add_noise, for_each_exact};
use crate::descent::settings::{Arithmetic, DescentSettings};
use crate::descent::streams::{Batches, DescentStreams};
use crate::error::Result;
use crate::records::store::{RecordRows, Records};
use crate::rows::sparse::Blocks;
use crate::runtime::interrupt::{Interrupt, Never};
use crate::runtime::memory::zeros;
use crate::runtime::team::Team;
use crate::runtime::threads::own;
use std::ops::Range;
use std::sync::Mutex;

/// Multiplications of one thread between two looks at the interrupt: some milliseconds.
const ROUND_WORK: usize = 1 << 26;
/// Coefficients of a block of sparse rows, which the cache holds, and its rows: few enough that doubles
/// hold their sums.
const BLOCK_NUMBERS: usize = 1 << 17;
const BLOCK_ROWS: usize = 1 << 14;
/// Multiplications that take as long as drawing a number.
const DRAW_WORK: usize = 128;
/// Multiplications of a run for which threads are started, and of a step for each of them.
const TEAM_WORK: usize = 1 << 22;
const SHARED_WORK: usize = 1 << 18;
/// Pieces of a step for each thread, and the least multiplications of one.
const PIECES: usize = 8;
const PIECE_WORK: usize = 1 << 16;

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
    /// Number of threads.
    pub threads: usize,
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
            let plan = DenseSummation::new(records, rule, (unit, settings.exact_sums))?;
            return self.descend::<T, _>(&plan, state, interrupt);
        }
        let plan = SparseSummation {
            records,
            products: records.products(self.threads, interrupt)?,
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
        let share = n.div_ceil(self.threads);
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
        let (first, steps) = match &self.purpose {
            Purpose::Steps(steps, _) => (steps.start, steps.len()),
            Purpose::Part(step) => (*step, 1),
        };
        let mut batch = Batch::default();
        self.choose_batch(plan, first, &mut batch)?;
        let touched = batch.records(self.records).max(1) * plan.touched();
        let noisy = self.settings.noise != NoiseKind::None;
        let drawn = DRAW_WORK * usize::from(noisy) * self.settings.weights();
        let work = touched + drawn;
        let threads = if work.saturating_mul(steps) < TEAM_WORK {
            1
        } else {
            self.threads.min(1 + work / SHARED_WORK)
        };
        Team::gather(threads, |team| {
            let workers = (0..team.threads()).map(|_| Ok(Mutex::new(plan.worker()?)));
            let mut steps = StepLoop {
                run: self,
                plan,
                team,
                together: (ROUND_WORK / work.max(1)).max(1) as u32,
                batch,
                workers: workers.collect::<Result<_>>()?,
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
        })
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
            // Planted once for all parts of a run that takes all records.
            Purpose::Steps(_, streams) if !self.settings.exact_sums => {
                let step = if self.batches.full() { 0 } else { step };
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
    team: &'w Team,
    /// Steps between two looks at the interrupt.
    together: u32,
    batch: Batch,
    workers: Vec<Mutex<Worker<T>>>,
    view: View<T>,
    noisy: Vec<f64>,
    state: &'w mut State,
}

impl<T: Precision, P: Summation<T>> StepLoop<'_, '_, T, P> {
    /// The sum at the present weights, in units.
    fn part(&mut self, interrupt: &dyn Interrupt) -> Result<Vec<i128>> {
        self.plan.view(&self.state.weights, &mut self.view)?;
        let sum = self.pass(interrupt, 0, &|_| Ok(()))?;
        let mut units = zeros(self.run.settings.weights())?;
        let sum = &own(&self.workers[sum]).sum;
        for_each_exact(sum, &self.plan.places(), |at, value| units[at] = value);
        Ok(units)
    }

    fn all_steps(
        &mut self,
        all: Range<u32>,
        streams: &DescentStreams<'_>,
        interrupt: &dyn Interrupt,
    ) -> Result<()> {
        let (run, plan) = (self.run, self.plan);
        let (settings, chosen) = (run.settings, !run.batches.full());
        let (mut now, mut next) = (Drawn::default(), Drawn::default());
        let mut coming = Batch::default();
        if !all.is_empty() {
            let parts = now.parts(settings.noise, settings.weights())?;
            self.team.each(parts.len(), interrupt, &|_, at| {
                streams.draw(all.start, at, &mut own(&parts[at]));
            })?;
        }
        for step in all.clone() {
            let rare = (step - all.start).is_multiple_of(self.together);
            let watch = if rare { interrupt } else { &Never };
            plan.view(&self.state.weights, &mut self.view)?;
            // The next step's records and noise are drawn by whoever is free.
            let follows = step + 1 < all.end;
            let parts = next.parts(settings.noise, settings.weights())?;
            let batch = Mutex::new(&mut coming);
            let before = if follows { 1 + parts.len() } else { 0 };
            let sum = self.pass(watch, before, &|piece| {
                if let Some(at) = piece.checked_sub(1) {
                    streams.draw(step + 1, at, &mut own(&parts[at]));
                } else if chosen {
                    run.choose_batch(plan, step + 1, &mut own(&batch))?;
                }
                Ok(())
            })?;
            let sum = &own(&self.workers[sum]).sum;
            let (places, noise) = (plan.places(), now.noise(settings.noise));
            add_noise(sum, &places, noise, &mut self.noisy);
            settings.take_step(self.state, &mut self.noisy);
            std::mem::swap(&mut now, &mut next);
            if chosen && follows {
                std::mem::swap(&mut self.batch, &mut coming);
            }
        }
        Ok(())
    }

    /// All contributions of the step, after `before` pieces of other work; the number of the worker
    /// that has their sum.
    fn pass(
        &mut self,
        interrupt: &dyn Interrupt,
        before: usize,
        other: &(dyn Fn(usize) -> Result<()> + Sync),
    ) -> Result<usize> {
        let (plan, batch, view, workers) = (self.plan, &self.batch, &self.view, &self.workers);
        let items = plan.items(batch);
        let records = batch.records(self.run.records).max(1);
        let per_item = (plan.touched() * records / items.max(1)).max(1);
        // Who begins a piece with persons clears room as large as the weights.
        let more = self.team.threads() > 1 && !batch.has_persons();
        let pieces = self.team.threads() * if more { PIECES } else { 1 };
        let share = items.div_ceil(pieces);
        let each = share.max(PIECE_WORK / per_item);
        let each = each.clamp(1, (ROUND_WORK / per_item).max(1));
        for worker in workers {
            own(worker).idle = true;
        }
        let count = before + items.div_ceil(each);
        self.team.each(count, interrupt, &|thread, piece| {
            let worker = &mut *own(&workers[thread]);
            let done = if let Some(piece) = piece.checked_sub(before) {
                if std::mem::take(&mut worker.idle) {
                    worker.sum.clear();
                }
                worker.part = piece * each..items.min((piece + 1) * each);
                plan.pass(batch, view, worker)
            } else {
                other(piece)
            };
            if let Err(error) = done {
                worker.error.get_or_insert(error);
            }
        })?;
        let mut workers: Vec<_> = workers.iter().map(own).collect();
        if let Some(error) = workers.iter_mut().find_map(|worker| worker.error.take()) {
            return Err(error);
        }
        let first = workers.iter().position(|worker| !worker.idle).unwrap_or(0);
        if workers[first].idle {
            workers[first].sum.clear();
        }
        let (first_worker, rest) = workers[first..].split_at_mut(1);
        let rest = rest.iter_mut().filter(|worker| !worker.idle);
        let mut sums: Vec<_> = rest.map(|worker| &mut worker.sum).collect();
        first_worker[0].sum.merge(&mut sums, self.team)?;
        Ok(first)
    }
}
