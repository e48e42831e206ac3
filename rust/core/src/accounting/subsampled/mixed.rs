//! Any number of events composed, in both directions of the relation.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::Result;
use crate::accounting::subsampled::compose::{
    RepeatedLaw, compose, infinite_mass, log_moment, moment_bound,
};
use crate::accounting::subsampled::law::{Atoms, Directions, GridLaw, discretise};
use crate::accounting::subsampled::pair::{Pair, ULP};
use crate::accounting::subsampled::plan::{
    Cumulants, DirectionPlan, LARGEST, OF_SEARCH, Question, pair_atoms,
};
use crate::accounting::subsampled::profile::zcdp_atoms;
use crate::runtime::interrupt::Interrupt;

/// Share of delta that cutting off tails may cost.
const CUT: f64 = 1e-7;

/// [`CUT`] if losses are too far apart for a grid of the desired step, and the number of new
/// cuts of the tails.
const CUT_FROM_LONG: f64 = 1e-4;
const MAX_CUTS: usize = 3;

/// Estimates of delta at a given epsilon settle within this many rounds.
const ROUNDS: usize = 6;

/// Least delta that the search for tails goes down to.
const MIN_DELTA: f64 = 1e-280;

/// Most times that the step is halved, and the relative change below which it no longer is.
const HALVINGS: u32 = 5;
const SETTLED: f64 = 3e-4;

/// By how much the logarithm of delta falls in a table, the number of its intervals, and the last
/// table.
const FALL: f64 = 5.0;
const POINTS: usize = 256;
const LAST_TABLE: f64 = 16.0;

/// Largest ratio of a table to a grid for one epsilon, if the estimate is poor.
const CLOSE: f64 = 1.01;

/// Below this share of an estimate, or of a grid for one epsilon, counts as far below.
const FAR_BELOW: f64 = 0.5;

/// Largest ratio of neighbours in a table: a chord is then above the curve by at most 0.2 %.
const STEEPEST: f64 = 1.1;

/// Largest distance of the result from its estimate: as a share of epsilon, in the log of delta.
const TRUSTED: (f64, f64) = (0.95, 0.3);

/// Events that compose to more than a closed form.
#[derive(Debug, Clone, Default)]
pub(super) struct Composition {
    /// Pairs and how many times each is run.
    pub(super) pairs: Vec<(Pair, f64)>,
    /// Laws that are the same in both directions.
    pub(super) atoms: Vec<(Atoms, f64)>,
    /// Sum of the zero-concentrated events.
    pub(super) rho: f64,
    /// Whether the grid of a search will do.
    pub(super) coarse: bool,
    /// Grids, in those of a search, after which no closer answer is looked for.
    pub(super) most_work: Option<u32>,
}

/// An upper bound, whether a finer grid than was allowed may give a smaller one, and what the grids
/// cost, in those of a search.
#[derive(Debug, Clone, Copy)]
pub(super) struct Answer {
    pub(super) value: f64,
    pub(super) limited: bool,
    pub(super) work: u32,
}

impl From<f64> for Answer {
    fn from(value: f64) -> Self {
        Self {
            value,
            limited: false,
            work: 0,
        }
    }
}

impl Answer {
    /// The smaller one of two bounds.
    pub(super) fn or(self, other: f64) -> Self {
        Self {
            value: self.value.min(other),
            ..self
        }
    }
}

/// One direction: its cumulants and how to compute it.
struct Direction {
    reversed: bool,
    cumulants: Cumulants,
    plan: DirectionPlan,
}

/// Whether each direction to look at is the reversed one.
fn directions(both: bool) -> impl Iterator<Item = bool> {
    [false, true].into_iter().take(1 + usize::from(both))
}

impl Direction {
    /// The plan for a grid of about `step`.
    fn with_step(&self, goal: Question, step: f64, most_cells: f64) -> DirectionPlan {
        self.cumulants.with_step(&self.plan, goal, step, most_cells)
    }

    /// Whether the estimate behind the plan was near enough for its step to be fine enough.
    fn is_as_planned(&self, goal: Question, found: f64) -> bool {
        match goal {
            Question::Epsilon(_) => (libm::log(found) - self.plan.log_delta).abs() < TRUSTED.1,
            Question::Delta(_) => found == 0.0 || found > self.plan.centre * TRUSTED.0,
        }
    }
}

/// Puts the direction with the larger estimate first; the other one may be loose.
fn deciding_first(goal: Question, ways: &mut [Direction]) {
    let size = |way: &Direction| match goal {
        Question::Epsilon(_) => way.plan.log_delta,
        Question::Delta(_) => way.plan.centre,
    };
    ways.sort_by(|a, b| size(b).total_cmp(&size(a)));
}

/// The laws of a composition on one grid.
struct Grid {
    step: f64,
    pairs: Vec<(Directions, f64)>,
    fixed: Vec<(GridLaw, f64)>,
}

impl Grid {
    fn one_way(&self, reversed: bool, plan: DirectionPlan) -> OneWay<'_> {
        let mut parts: Vec<RepeatedLaw<'_>> = self.fixed.iter().map(|(law, t)| (law, *t)).collect();
        parts.extend(self.pairs.iter().map(|(law, t)| (law.one(reversed), *t)));
        OneWay { parts, plan }
    }
}

/// Inputs of a composition; the deciding direction is first.
struct Prepared {
    atoms: Vec<(Atoms, f64)>,
    tail: f64,
    ways: Vec<Direction>,
}

/// Upper bound as computed, that with the largest loss as well, and the step of the grid.
struct Found {
    computed: f64,
    value: f64,
    step: f64,
}

/// Upper bounds on delta at evenly spaced epsilons.
#[derive(Debug)]
pub(super) struct Table {
    low: f64,
    width: f64,
    deltas: Vec<f64>,
    /// Whether a grid for one epsilon gives hardly less, at three of them.
    is_close: bool,
    /// Whether it gives far more, at the largest of them.
    is_better: bool,
}

impl Table {
    /// Upper bound on delta at `epsilon`; `None` outside, and where neighbours are far apart.
    ///
    /// Delta is convex in `exp(epsilon)`, so a chord between two upper bounds is one. Its ends are the
    /// very numbers at which the bounds were computed.
    fn at(&self, epsilon: f64) -> Option<f64> {
        let index = ((epsilon - self.low) / self.width).floor();
        let (left, right) = (
            self.low + index * self.width,
            self.low + (index + 1.0) * self.width,
        );
        if !(index >= 0.0 && left <= epsilon && epsilon <= right && self.width > 1e-9 * right) {
            return None;
        }
        let high = *self.deltas.get(index as usize)?;
        let low = *self.deltas.get(index as usize + 1)?;
        if high > STEEPEST * low {
            return None;
        }
        let share = libm::expm1(epsilon - right) / libm::expm1(left - right);
        let over = (high - low).max(0.0) * (share * (1.0 + 16.0 * ULP)).min(1.0);
        Some(((low + over) * (1.0 + 4.0 * ULP)).min(1.0))
    }

    /// Upper bound on delta beyond the largest epsilon of the table; 1 before it.
    fn beyond(&self, epsilon: f64) -> f64 {
        let is_beyond = epsilon >= self.low + POINTS as f64 * self.width;
        let last = self.deltas.last().filter(|_| is_beyond);
        last.copied().unwrap_or(1.0)
    }
}

/// Tables that were asked for, by place, and about the log of delta at 0.
#[derive(Debug, Default)]
pub(super) struct Tables(Mutex<Vec<(i64, Arc<Table>)>>, OnceLock<f64>);

impl Tables {
    /// The table at a place, made by `make` the first time.
    fn at(&self, place: i64, make: impl FnOnce() -> Result<Table>) -> Result<Arc<Table>> {
        let known = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = known()
            .iter()
            .find(|(at, _)| *at == place)
            .map(|(_, table)| table.clone());
        if let Some(table) = found {
            return Ok(table);
        }
        let table = Arc::new(make()?);
        known().push((place, table.clone()));
        Ok(table)
    }

    /// About the log of delta at 0, found by `estimate` the first time.
    fn start(&self, estimate: impl FnOnce() -> Result<f64>) -> Result<f64> {
        match self.1.get() {
            Some(known) => Ok(*known),
            None => estimate().map(|found| *self.1.get_or_init(|| found)),
        }
    }
}

/// One direction of a composition on the grid.
struct OneWay<'a> {
    parts: Vec<RepeatedLaw<'a>>,
    plan: DirectionPlan,
}

impl Composition {
    fn steps(&self) -> f64 {
        let pairs: f64 = self.pairs.iter().map(|(_, times)| times).sum();
        let atoms: f64 = self.atoms.iter().map(|(_, times)| times).sum();
        (pairs + atoms + 1.0).max(1.0)
    }

    /// Whether the two directions differ.
    fn has_directions(&self) -> bool {
        self.pairs.iter().any(|(pair, _)| !pair.replace)
    }

    /// Upper bound on the loss of the direction without the record; infinite if none is known.
    ///
    /// One step without the record loses at most `-ln(1 - q)` to one with it.
    fn largest_without(&self) -> f64 {
        let replaced = self.pairs.iter().any(|(pair, _)| pair.replace);
        if replaced || !self.atoms.is_empty() || self.rho > 0.0 {
            return f64::INFINITY;
        }
        let losses = self.pairs.iter();
        let total: f64 = losses
            .map(|(pair, times)| times * pair.most_without())
            .sum();
        total * (1.0 + 1e-9)
    }

    /// Upper bound on a direction's answer from its largest loss; infinite if that is not known.
    fn most(&self, reversed: bool, goal: Question) -> f64 {
        let largest = if reversed {
            self.largest_without()
        } else {
            f64::INFINITY
        };
        match goal {
            Question::Epsilon(epsilon) if epsilon > largest => 0.0,
            Question::Epsilon(epsilon) if largest < f64::INFINITY => {
                -libm::expm1(epsilon - largest) * (1.0 + 8.0 * ULP)
            }
            _ => largest,
        }
    }

    /// Whether the second direction's delta is 0 at the epsilon of `goal`.
    fn never_loses(&self, goal: Question) -> bool {
        self.most(true, goal) == 0.0
    }

    /// The laws known by atoms, the zero-concentrated one included.
    fn all_atoms(&self, tail: f64) -> Vec<(Atoms, f64)> {
        let mut atoms = self.atoms.clone();
        if self.rho > 0.0 {
            atoms.push((zcdp_atoms(self.rho, tail), 1.0));
        }
        atoms
    }

    fn cumulants(&self, atoms: &[(Atoms, f64)], tail: f64, reversed: bool) -> Cumulants {
        let mut parts = atoms.to_vec();
        for (pair, times) in &self.pairs {
            let found = pair_atoms(pair, tail, reversed, self.pairs.len());
            parts.push((found, *times));
        }
        Cumulants { parts }
    }

    /// About the log of delta at `epsilon`, and the mass to cut off for it.
    pub(super) fn estimate(&self, epsilon: f64, interrupt: &dyn Interrupt) -> Result<(f64, f64)> {
        let mut delta = 1e-10;
        let mut found = 0.0;
        for _ in 0..ROUNDS {
            let tail = CUT * delta / self.steps();
            let atoms = self.all_atoms(tail);
            found = f64::NEG_INFINITY;
            let both = !self.never_loses(Question::Epsilon(epsilon));
            for reversed in directions(both) {
                let cumulants = self.cumulants(&atoms, tail, reversed);
                let saddle = cumulants.saddle(Question::Epsilon(epsilon), interrupt)?;
                found = saddle.log_delta().max(found);
            }
            if found >= libm::log(delta) || delta <= MIN_DELTA {
                break;
            }
            delta = (0.01 * libm::exp(found).min(delta)).max(MIN_DELTA);
        }
        Ok((found, CUT * delta / self.steps()))
    }

    /// Mass at infinity of the events known by atoms.
    fn infinite(&self) -> f64 {
        let masses = self.atoms.iter();
        masses.map(|(atoms, times)| atoms.infinite * times).sum()
    }

    /// Upper bound on the larger direction's answer to `goal` by a table or one grid.
    ///
    /// The law and epsilon decide which table is asked, so equal questions get equal answers.
    pub(super) fn quick_answer(
        &self,
        goal: Question,
        tables: &Tables,
        most_cells: f64,
        interrupt: &dyn Interrupt,
    ) -> Result<f64> {
        let Question::Epsilon(epsilon) = goal else {
            let tail = self.tail(goal, interrupt)?;
            return tail.map_or(Ok(f64::INFINITY), |tail| {
                self.by_one_grid(goal, tail, most_cells, interrupt)
            });
        };
        let (log_delta, tail) = self.estimate(epsilon, interrupt)?;
        // Delta does not rise, but a poor estimate may.
        let start = tables.start(|| Ok(self.estimate(0.0, interrupt)?.0))?;
        let log_delta = log_delta.min(start);
        let place = (log_delta / FALL).ceil();
        let mut known = 1.0;
        if (-LAST_TABLE..=0.0).contains(&place) {
            let table = tables.at(place as i64, || {
                self.table(FALL * place, most_cells, interrupt)
            })?;
            let is_close = |found: &f64| table.is_close || *found <= self.trusted(log_delta);
            if let Some(found) = table.at(epsilon).filter(is_close) {
                return Ok(found);
            }
            // A poor estimate may rise again, delta does not.
            known = table.beyond(epsilon);
            if table.is_better && known <= self.trusted(log_delta) {
                return Ok(known);
            }
        }
        let found = self.by_one_grid(goal, tail, most_cells, interrupt)?;
        Ok(found.min(known))
    }

    /// Upper bound where about `tail` of the mass of one step is cut off.
    fn by_one_grid(
        &self,
        goal: Question,
        tail: f64,
        most_cells: f64,
        interrupt: &dyn Interrupt,
    ) -> Result<f64> {
        let prepared = self.prepared(goal, tail, interrupt)?;
        let step = self.aligned(prepared.ways[0].plan.step);
        let found = self.at_step(&prepared, goal, step, most_cells, interrupt)?;
        Ok(found.value)
    }

    /// Largest delta that is near an estimate.
    fn trusted(&self, log_delta: f64) -> f64 {
        libm::exp(log_delta + TRUSTED.1) + self.infinite()
    }

    /// Deltas of the larger direction where their logarithm falls from about `log_delta` by [`FALL`].
    fn table(&self, log_delta: f64, most_cells: f64, interrupt: &dyn Interrupt) -> Result<Table> {
        let end = libm::exp(log_delta - FALL);
        let tail = CUT * end / self.steps();
        let atoms = self.all_atoms(tail);
        let (mut low, mut high, mut step) = (0.0_f64, 0.0_f64, f64::INFINITY);
        let mut both = Vec::with_capacity(2);
        for reversed in directions(self.has_directions()) {
            let cumulants = self.cumulants(&atoms, tail, reversed);
            if log_delta < 0.0 {
                let start = Question::Delta(libm::exp(log_delta));
                low = low.max(cumulants.saddle(start, interrupt)?.mean);
            }
            high = high.max(cumulants.saddle(Question::Delta(end), interrupt)?.mean);
            both.push((reversed, cumulants));
        }
        let without = self.largest_without();
        if without < 0.5 * (low + high) {
            both.truncate(1);
            low = low.max(without.next_up());
        }
        let mut ways = Vec::with_capacity(2);
        for (reversed, cumulants) in both {
            let plan = cumulants.plan_between(low, high, interrupt)?;
            step = step.min(plan.step);
            ways.push(Direction {
                reversed,
                cumulants,
                plan,
            });
        }
        let prepared = Prepared { atoms, tail, ways };
        let width = (high - low) / POINTS as f64;
        let epsilons: Vec<f64> = (0..=POINTS).rev().map(|i| low + i as f64 * width).collect();
        let mut deltas = vec![0.0_f64; epsilons.len()];
        let mut grid: Option<Grid> = None;
        for way in &prepared.ways {
            let plan = way.with_step(Question::Epsilon(low), self.aligned(step), most_cells);
            let grid = match &mut grid {
                Some(grid) if grid.step == plan.step => grid,
                other => other.insert(self.grid(&prepared, plan.step, interrupt)?),
            };
            let found = grid.one_way(way.reversed, plan);
            let found = epsilons.iter().zip(found.deltas(&epsilons, interrupt)?);
            for (largest, (epsilon, delta)) in deltas.iter_mut().rev().zip(found) {
                let most = self.most(way.reversed, Question::Epsilon(*epsilon));
                *largest = largest.max(delta.min(most));
            }
        }
        // If the estimate is poor, or any grid of this size coarse, use grids for single epsilons.
        let (log_delta, _) = self.estimate(epsilons[POINTS / 2], interrupt)?;
        let mut is_close = deltas[POINTS / 2] > self.trusted(log_delta);
        for at in [POINTS / 8, POINTS / 2, POINTS - POINTS / 8] {
            is_close = is_close && {
                let epsilon = epsilons[POINTS - at];
                let (_, tail) = self.estimate(epsilon, interrupt)?;
                let goal = Question::Epsilon(epsilon);
                deltas[at] <= CLOSE * self.by_one_grid(goal, tail, most_cells, interrupt)?
            };
        }
        // If the estimate is far above, grids for single epsilons may be of no use.
        let poor = deltas[POINTS] < FAR_BELOW * end;
        let is_better = poor && {
            let (_, tail) = self.estimate(high, interrupt)?;
            let one = self.by_one_grid(Question::Epsilon(high), tail, most_cells, interrupt)?;
            deltas[POINTS] < FAR_BELOW * one
        };
        Ok(Table {
            low,
            width,
            deltas,
            is_close,
            is_better,
        })
    }

    /// Mass to cut off each step; `None` where infinite losses alone are more than is wanted.
    fn tail(&self, goal: Question, interrupt: &dyn Interrupt) -> Result<Option<f64>> {
        let wanted = match goal {
            Question::Epsilon(epsilon) => return Ok(Some(self.estimate(epsilon, interrupt)?.1)),
            Question::Delta(delta) => delta - self.infinite(),
        };
        Ok((wanted > 0.0).then(|| CUT * wanted / self.steps()))
    }

    /// Upper bound on the larger direction's answer to `goal`.
    pub(super) fn answer(&self, goal: Question, interrupt: &dyn Interrupt) -> Result<Answer> {
        let steps = self.steps();
        let Some(mut tail) = self.tail(goal, interrupt)? else {
            return Ok(f64::INFINITY.into());
        };
        let whole = match self.reduced(goal) {
            Question::Epsilon(_) => None,
            Question::Delta(left) => Some(left),
        };
        // An answer begins at the result of a search: it is never larger.
        let mut most_cells = OF_SEARCH;
        let mut answer = Answer::from(f64::INFINITY);
        let mut value = f64::INFINITY;
        let (mut halvings, mut cuts) = (0, 0);
        let mut prepared = self.prepared(goal, tail, interrupt)?;
        loop {
            let decides = &prepared.ways[0];
            let step = self.aligned(decides.plan.step) * libm::exp2(-f64::from(halvings));
            let at = self.at_step(&prepared, goal, step, most_cells, interrupt)?;
            let (found, used) = (at.computed, at.step);
            value = value.min(at.value);
            answer.work += if most_cells == LARGEST { 4 } else { 1 };
            let change = (answer.value - found) / found;
            let first = answer.value.is_infinite();
            let as_planned = decides.is_as_planned(goal, found);
            answer = answer.or(found);
            if self.most_work.is_some_and(|most| answer.work >= most) {
                answer.limited = true;
                break;
            }
            let too_long = used > 1.01 * step;
            // Shorter tails leave more of the grid to the rest.
            let wanted = CUT_FROM_LONG * whole.unwrap_or(answer.value) / steps;
            let is_other = (too_long && wanted > 2.0 * tail) || (cuts > 0 && wanted < 0.5 * tail);
            if is_other && cuts < MAX_CUTS {
                cuts += 1;
                tail = wanted;
                prepared = self.prepared(goal, tail, interrupt)?;
                continue;
            }
            if too_long {
                answer.limited = true;
                if self.coarse || most_cells == LARGEST {
                    break;
                }
                most_cells = LARGEST;
                continue;
            }
            let settled = !first && (change.is_nan() || change < SETTLED);
            if settled || halvings == HALVINGS || as_planned {
                break;
            }
            halvings += 1;
        }
        Ok(answer.or(value))
    }

    /// Laws, directions and plans where about `tail` of the mass of one step is cut off.
    fn prepared(&self, goal: Question, tail: f64, interrupt: &dyn Interrupt) -> Result<Prepared> {
        let atoms = self.all_atoms(tail);
        let reduced = self.reduced(goal);
        let both = self.has_directions() && !self.never_loses(goal);
        let mut ways = Vec::with_capacity(2);
        for reversed in directions(both) {
            let cumulants = self.cumulants(&atoms, tail, reversed);
            let plan = cumulants.plan(reduced, interrupt)?;
            ways.push(Direction {
                reversed,
                cumulants,
                plan,
            });
        }
        deciding_first(goal, &mut ways);
        Ok(Prepared { atoms, tail, ways })
    }

    /// Answer of the larger direction, the deciding one on a grid of about `step`.
    fn at_step(
        &self,
        prepared: &Prepared,
        goal: Question,
        step: f64,
        most_cells: f64,
        interrupt: &dyn Interrupt,
    ) -> Result<Found> {
        let ways = &prepared.ways;
        let reduced = self.reduced(goal);
        let plan = ways[0].with_step(reduced, step, most_cells);
        let used = plan.step;
        let grid = self.grid(prepared, plan.step, interrupt)?;
        let most = |way: &Direction| self.most(way.reversed, goal);
        let one = grid.one_way(ways[0].reversed, plan);
        let computed = one.answer(goal, interrupt)?;
        let first = Found {
            computed,
            value: computed.min(most(&ways[0])),
            step: used,
        };
        let Some(way) = ways.get(1).filter(|way| most(way) > first.value) else {
            return Ok(first);
        };
        let with = |second: f64| Found {
            computed: first.computed.max(second),
            value: first.value.max(second.min(most(way))),
            step: used,
        };
        let plan = way.with_step(reduced, grid.step, most_cells);
        if plan.step == grid.step {
            let one = grid.one_way(way.reversed, plan);
            if one.is_below(goal, first.value)? {
                return Ok(first);
            }
            if way.plan.step >= grid.step {
                return Ok(with(one.answer(goal, interrupt)?));
            }
        }
        let plan = way.with_step(reduced, way.plan.step, most_cells);
        let grid = self.grid(prepared, plan.step, interrupt)?;
        let one = grid.one_way(way.reversed, plan);
        Ok(with(one.answer(goal, interrupt)?))
    }

    /// A step of at most `step` with the only pure event's losses on the grid.
    fn aligned(&self, step: f64) -> f64 {
        match (&self.atoms[..], self.rho > 0.0) {
            ([(atoms, _)], false) if atoms.loss.len() == 2 => {
                let loss = atoms.loss[1].abs();
                if loss > 0.0 {
                    loss / (loss / step).ceil()
                } else {
                    step
                }
            }
            _ => step,
        }
    }

    /// All laws on one grid.
    fn grid(&self, prepared: &Prepared, step: f64, interrupt: &dyn Interrupt) -> Result<Grid> {
        let mut pairs = Vec::with_capacity(self.pairs.len());
        for (pair, times) in &self.pairs {
            let law = discretise(pair, step, prepared.tail, interrupt)?;
            pairs.push((law, *times));
        }
        let atoms = prepared.atoms.iter();
        Ok(Grid {
            step,
            pairs,
            fixed: atoms
                .map(|(law, times)| Ok((law.on_grid(step)?, *times)))
                .collect::<Result<_>>()?,
        })
    }

    /// The goal that is left for the finite losses.
    fn reduced(&self, goal: Question) -> Question {
        match goal {
            Question::Delta(delta) => Question::Delta(delta - self.infinite()),
            Question::Epsilon(_) => goal,
        }
    }
}

impl OneWay<'_> {
    /// Whether one exponential moment proves the answer to be at most `known`.
    fn is_below(&self, goal: Question, known: f64) -> Result<bool> {
        let tilt = self.plan.tilt;
        let bound = moment_bound(&self.parts, tilt, log_moment(&self.parts, tilt)?);
        let infinite = infinite_mass(&self.parts) * (1.0 + 4.0 * ULP);
        let (epsilon, delta) = match goal {
            Question::Epsilon(epsilon) => (epsilon, known),
            Question::Delta(delta) => (known, delta),
        };
        Ok(known.is_finite() && bound(epsilon) < libm::log(delta - infinite))
    }

    /// Upper bound on the answer of this direction.
    fn answer(&self, goal: Question, interrupt: &dyn Interrupt) -> Result<f64> {
        match goal {
            Question::Epsilon(epsilon) => Ok(self.deltas(&[epsilon], interrupt)?[0]),
            Question::Delta(delta) => self.epsilon(delta, interrupt),
        }
    }

    /// At each epsilon, the largest one first, the better one of the transform and of one
    /// exponential moment: both are upper bounds.
    fn deltas(&self, epsilons: &[f64], interrupt: &dyn Interrupt) -> Result<Vec<f64>> {
        let curve = compose(&self.parts, &self.plan, interrupt)?;
        let bound = moment_bound(&self.parts, self.plan.tilt, curve.log_moment);
        let chernoff = |epsilon: f64| libm::exp(bound(epsilon).min(0.0)) + curve.infinite;
        let found = epsilons.iter().zip(curve.deltas(epsilons));
        Ok(found.map(|(e, delta)| delta.min(chernoff(*e))).collect())
    }

    /// Like [`Self::deltas`]: the least epsilon at `delta`.
    fn epsilon(&self, delta: f64, interrupt: &dyn Interrupt) -> Result<f64> {
        let curve = compose(&self.parts, &self.plan, interrupt)?;
        let tilt = self.plan.tilt;
        let bound = moment_bound(&self.parts, tilt, curve.log_moment);
        let left = (delta - curve.infinite) * (1.0 - 4.0 * ULP);
        let mut best = curve.epsilon(delta).unwrap_or(f64::INFINITY);
        if left > 0.0 && tilt > 0.0 {
            let log = libm::log(left);
            let at = (bound(0.0) - log) / tilt;
            let raised = at.max(0.0) * (1.0 + 1e-12);
            if bound(raised) <= log {
                best = best.min(raised);
            }
        }
        Ok(best)
    }
}
