//! Projected stochastic gradient descent whose last iterate has a known sensitivity.
//!
//! For the mean-form objective over n rows `u_i` of norm at most 1,
//!
//! ```text
//! J(W) = 1/n sum_i phi_{y_i}(W u_i) + Lam/2 ||W||_F^2,
//! ```
//!
//! where a record may also be a person, whose loss is the sum of those of its rows times weights of
//! at most 1 in all,
//!
//! update m = 1..T on the batch B (b rows; the last one of a pass may have fewer) is
//!
//! ```text
//! W <- Pi( (1 - q_m) W - q_m/(Lam b) sum_{i in B} a_i u_i^T ),     q_m = min(Lam/beta_J, 1/m),
//! ```
//!
//! `a_i` the gradient of `phi_{y_i}` at the scores, `Pi` the projection onto a ball, `beta_J` the
//! smoothness of J. Every pass takes the rows in a fresh order drawn from a public seed. The sum is
//! divided by the nominal b in a short batch too: the sensitivity rests on that.
//!
//! Wu, Li, Kumar, Chaudhuri, Jha and Naughton, SIGMOD 2017 ("bolt-on" privacy), with the bounds of
//! `docs/proofs/projected_sgd.md`.
//!
//! | here | paper |
//! |---|---|
//! | `regularization` Lam | lambda |
//! | `step` q/(Lam b) | eta/b |
//! | `updates` T | km/b |
//!
//! Updates depend on each other, so one thread does them.

use crate::error::{Error, Result, require};
use crate::layout::class_major::ClassMajor;
use crate::layout::lines::Lines;
use crate::layout::weights::{WeightLayout, typed};
use crate::loss::smooth::SmoothLoss;
use crate::numeric::ROUNDOFF;
use crate::rows::labels::{check_labels, check_weights, weigh};
use crate::rows::shuffled::Store;
use crate::rows::view::{RowBounds, Rows};
use crate::runtime::interrupt::{Interrupt, poll};
use crate::runtime::memory::{mapped, matrix, with_capacity, zeros};
use crate::simd::{Kernel, Simd, dispatch};
use crate::solver::projected_sgd::ball::{Iterate, Projection};
use crate::solver::projected_sgd::orders::Orders;

/// Iterate to return.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Average {
    /// The last one.
    Last,
    /// The mean of the iterates after every update.
    Uniform,
    /// Their mean with weights proportional to the number of the update.
    Weighted,
}

/// Settings of the solver; plain public numbers in the user's units.
#[derive(Debug, Clone, Copy)]
pub struct SgdSettings {
    /// The loss.
    pub loss: SmoothLoss,
    /// Passes over the rows.
    pub epochs: u64,
    /// Records in a batch.
    pub batch: usize,
    /// Rows of a person that take part at most; 1 where records are rows.
    pub most_rows: usize,
    /// Lam of the mean-form objective.
    pub regularization: f64,
    /// Radius of the ball or balls.
    pub radius: f64,
    /// Ball to project onto.
    pub projection: Projection,
    /// Iterate to return.
    pub average: Average,
    /// Public seed of the orders.
    pub seed: u64,
    /// Keep no working copy of the rows.
    pub low_memory: bool,
}

/// Result of [`solve`]. Everything but `weights` is for tests and benchmarks.
#[derive(Debug, Clone)]
pub struct SgdSolution {
    /// A row of weights for each score, intercept last, in the user's units.
    pub weights: Vec<f64>,
    /// Updates that left the ball.
    pub projections: u64,
    /// Norms summed anew.
    pub refreshes: u64,
}

/// The numbers of a run in the solver's units (rows of norm at most 1): all public.
#[derive(Debug, Clone, Copy)]
struct Constants {
    regularization: f64,
    radius: f64,
    /// Norm of the longest matrix in the ball, or with all rows in theirs.
    longest: f64,
    /// `L/Lam`: no iterate is longer.
    reach: f64,
    /// Relative error that a squared norm may have in a projection.
    norm_error: f64,
    /// `Lam / beta_J`.
    first: f64,
    batch: usize,
    /// Updates of a pass.
    per_pass: usize,
    updates: u64,
    /// Weights in the user's units are the solver's times this, a power of two.
    unscale: f64,
}

/// Most updates. Ten roundings in each of so many factors are less than [`SLACK`] together.
const MAX_UPDATES: u64 = 1 << 36;
/// Largest relative increase of the sensitivity by inexact norms. Norms of small balls, which are
/// projected on all the time, may be less exact, and are summed anew less often.
const NORM_SHARE: f64 = 1e-6;
/// Largest relative error of a squared norm.
const LARGEST_NORM_ERROR: f64 = 1e-6;
/// Covers what is small beside the terms of [`rounding`].
const SLACK: f64 = 1e-3;

impl Constants {
    fn new(settings: &SgdSettings, bounds: RowBounds, n_rows: usize) -> Result<Self> {
        let exponent = bounds.exponent();
        let regularization = libm::ldexp(settings.regularization, -2 * exponent);
        let radius = libm::ldexp(settings.radius, exponent);
        check("regularization", settings.regularization, regularization)?;
        check("radius", settings.radius, radius)?;
        require(n_rows != 0, "X", "expected at least one row")?;
        let message = format_args!("got {}, expected 1 to the number of rows", settings.batch);
        let right = (1..=n_rows).contains(&settings.batch);
        require(right, "batch_size", message)?;
        let per_pass = n_rows.div_ceil(settings.batch);
        let updates = settings
            .epochs
            .checked_mul(per_pass as u64)
            .filter(|updates| (1..=MAX_UPDATES).contains(updates))
            .ok_or_else(|| Error::invalid("n_epochs", "expected 1 to 2^36 updates in all"))?;
        let row_norm = libm::ldexp(bounds.row_norm(), -exponent);
        let curvature = settings.loss.curvature() * row_norm * row_norm;
        let reach = settings.loss.lipschitz() / regularization;
        // Relative to half the sensitivity, as the weights of neighbours are both inexact.
        let longest = match settings.projection {
            Projection::Joint => radius,
            Projection::PerClass => radius * libm::sqrt(settings.loss.scores as f64),
        };
        let sensitivity = longest.min(reach / n_rows as f64);
        let norm_error = NORM_SHARE * sensitivity / (updates as f64 * longest);
        Ok(Self {
            regularization,
            radius,
            longest: longest * (1.0 + 4.0 * ROUNDOFF),
            reach,
            norm_error: norm_error.clamp(16.0 * ROUNDOFF, LARGEST_NORM_ERROR),
            first: regularization / (curvature + regularization),
            batch: settings.batch,
            per_pass,
            updates,
            unscale: libm::ldexp(1.0, -exponent),
        })
    }

    /// `q_m`.
    fn share(&self, update: u64) -> f64 {
        self.first.min(1.0 / update as f64)
    }
}

fn check(name: &'static str, given: f64, scaled: f64) -> Result<()> {
    let accepted = 1e-100..=1e100;
    let message = format_args!("got {given:e}, expected 1e-100 to 1e100, in units of the rows too");
    let right = accepted.contains(&given) && accepted.contains(&scaled);
    require(right, name, message)
}

/// Bound on `||computed - exact||_F` of what [`solve`] returns, over all data sets of this size.
///
/// "Exact" is the same algorithm in real arithmetic with the same orders. The bound is a function
/// of public numbers, in the user's units, and also covers twice the excess of the computed step
/// sizes over `q_m`. Derived in `docs/proofs/projected_sgd.md`, section "Rounding".
///
/// # Errors
/// Settings out of range.
pub fn rounding(
    settings: &SgdSettings,
    bounds: RowBounds,
    n_rows: usize,
    n_columns: usize,
) -> Result<f64> {
    let plan = Constants::new(settings, bounds, n_rows)?;
    let batch = plan.batch as f64 * settings.most_rows as f64;
    let updates = plan.updates as f64;
    // Neither a batch nor all iterates together move further than L/Lam.
    let reach = plan.reach;
    let radius = plan.longest.min(1.001 * reach);
    let depth = n_columns as f64 + 24.0;
    let score_error = 2.0 * depth * ROUNDOFF * radius;
    let gradient = settings.loss.gradient_error(score_error, 2.0 * radius);
    let each = (batch + 32.0) * ROUNDOFF + plan.norm_error;
    let own = updates * each * radius
        + (3.0 * batch + 24.0) * ROUNDOFF * reach
        + gradient / plan.regularization;
    let steps = 16.0 * ROUNDOFF * (updates + 2.0) * reach / n_rows as f64;
    let bound = if settings.average == Average::Last {
        own + steps
    } else {
        let (rows, harmonic) = (batch + 4.0, 2.0 + libm::log(updates));
        let sums = rows * (64.0 * updates * radius + 128.0 * harmonic * reach);
        own + harmonic * steps + ROUNDOFF * sums
    };
    let message = "rounding errors of so many updates could move the weights visibly";
    require(bound < SLACK * reach, "n_epochs", message)?;
    Ok(bound * (1.0 + SLACK) * plan.unscale)
}

/// Owners of the rows, and weights; all empty for rows by themselves.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ownership<'a> {
    /// First row of each person of several, those of one row being first, and the number of rows.
    pub persons: &'a [i64],
    /// Factor of each row's loss, from 0 to 1.
    pub weights: &'a [f64],
}

impl Ownership<'_> {
    /// Number of persons, or of rows.
    fn records(&self, n_rows: usize) -> Result<usize> {
        let Some((first, last)) = self.persons.first().zip(self.persons.last()) else {
            return Ok(n_rows);
        };
        let ordered = *first >= 0 && self.persons.is_sorted_by(|a, b| a < b);
        let message = "expected first rows in their order and the number of rows";
        require(ordered && *last == n_rows as i64, "persons", message)?;
        Ok(*first as usize + self.persons.len() - 1)
    }
}

/// Rows of persons by their places in the store.
struct Persons<'a> {
    starts: &'a [i64],
    /// Position of each row.
    place: Vec<u32>,
    most: usize,
}

impl<'a> Persons<'a> {
    /// `starts` have been checked and are not empty.
    fn new(starts: &'a [i64], order: &[u32], most: usize) -> Result<Self> {
        let mut place = zeros(order.len())?;
        for (at, row) in order.iter().enumerate() {
            place[*row as usize] = at as u32;
        }
        Ok(Self {
            starts,
            place,
            most,
        })
    }

    /// Places of the rows of one person.
    fn rows(&self, person: u32) -> &[u32] {
        let (singles, person) = (self.starts[0] as usize, person as usize);
        let Some(own) = person.checked_sub(singles) else {
            return &self.place[person..=person];
        };
        let (start, end) = (self.starts[own] as usize, self.starts[own + 1] as usize);
        &self.place[start..end.min(start + self.most)]
    }

    /// Largest number of rows of a batch.
    fn largest(&self, batch: usize) -> usize {
        let sizes = self
            .starts
            .windows(2)
            .map(|pair| (pair[1] - pair[0]) as usize);
        let largest = sizes.max().unwrap_or(1).min(self.most);
        batch.saturating_mul(largest).min(self.place.len())
    }
}

/// Runs the descent.
///
/// # Errors
/// Arguments out of range, values that are not finite, no memory, interrupt.
pub fn solve(
    rows: Rows<'_>,
    labels: &[i64],
    owned: Ownership<'_>,
    settings: &SgdSettings,
    interrupt: &dyn Interrupt,
) -> Result<SgdSolution> {
    let records = owned.records(rows.n_rows())?;
    let plan = Constants::new(settings, rows.bounds(), records)?;
    check_labels(labels, rows.n_rows(), settings.loss.classes())?;
    check_weights(owned.weights, rows.n_rows())?;
    let (k, d) = (settings.loss.scores, rows.n_columns());
    let (store, order) = Store::new(rows, k, settings.seed, settings.low_memory, None, interrupt)?;
    let label = mapped(&order, |i| labels[*i as usize] as u32)?;
    let own = if owned.weights.is_empty() {
        &[]
    } else {
        &order[..]
    };
    let weight = mapped(own, |i| owned.weights[*i as usize])?;
    let persons = match owned.persons {
        [] => None,
        starts => Some(Persons::new(starts, &order, settings.most_rows)?),
    };
    let problem = SgdProblem {
        store: &store,
        label: &label,
        weight: &weight,
        persons: persons.as_ref(),
        records: records as u32,
        settings,
        plan,
        interrupt,
    };
    if store.is_dense() {
        return problem.run(ClassMajor::new(k, d), d);
    }
    problem.run(Lines::new(k, d), d)
}

struct SgdProblem<'p, 'a> {
    store: &'p Store<'a>,
    label: &'p [u32],
    weight: &'p [f64],
    persons: Option<&'p Persons<'p>>,
    records: u32,
    settings: &'p SgdSettings,
    plan: Constants,
    interrupt: &'p dyn Interrupt,
}

impl SgdProblem<'_, '_> {
    fn run<L: WeightLayout>(&self, layout: L, columns: usize) -> Result<SgdSolution> {
        let settings = self.settings;
        let averaged = settings.average != Average::Last;
        let shape = (settings.loss.scores, columns);
        let limits = (self.plan.radius, self.plan.norm_error);
        let mut iterate = Iterate::new(layout, shape, settings.projection, limits, averaged)?;
        let mut orders = Orders::new(self.records, settings.seed)?;
        for pass in 0..settings.epochs {
            dispatch(SgdPass {
                problem: self,
                iterate: &mut iterate,
                order: orders.next_pass(),
                before: pass * self.plan.per_pass as u64,
            })?;
        }
        let (projections, refreshes) = (iterate.projections, iterate.refreshes);
        Ok(SgdSolution {
            weights: iterate.into_weights(self.plan.unscale)?,
            projections,
            refreshes,
        })
    }
}

/// One pass over the rows.
struct SgdPass<'p, 'a, L> {
    problem: &'p SgdProblem<'p, 'a>,
    iterate: &'p mut Iterate<L>,
    order: &'p [u32],
    /// Updates made before this pass.
    before: u64,
}

impl<L: WeightLayout> Kernel for SgdPass<'_, '_, L> {
    type Output = Result<()>;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> Result<()> {
        let (problem, iterate) = (self.problem, self.iterate);
        let padded = iterate.scale.len();
        let plan = &problem.plan;
        let loss = &problem.settings.loss;
        let persons = problem.persons;
        let most = persons.map_or(plan.batch, |persons| persons.largest(plan.batch));
        let mut gradients = matrix(most, padded)?;
        let mut places = with_capacity(if persons.is_some() { most } else { 0 })?;
        let mut state = zeros::<f32>(padded)?;
        let mut buffer = problem.store.buffer()?;
        let mut entries = Vec::new();
        let mut seen = 0;
        for (update, batch) in (self.before + 1..).zip(self.order.chunks(plan.batch)) {
            let batch = persons.map_or(batch, |persons| {
                places.clear();
                places.extend(batch.iter().flat_map(|p| persons.rows(*p)));
                &places
            });
            for (i, gradient) in batch.iter().zip(gradients.chunks_exact_mut(padded)) {
                poll(seen, problem.interrupt)?;
                seen += 1;
                let row = typed(problem.store.row(*i as usize, &mut buffer), &mut entries)?;
                iterate.scores(simd, row, gradient);
                loss.gradient_row(problem.label[*i as usize] as usize, gradient, &mut state);
                weigh(problem.weight, *i as usize, gradient);
            }
            let share = plan.share(update);
            let step = -share / (plan.regularization * plan.batch as f64);
            iterate.shrink(1.0 - share);
            for (i, gradient) in batch.iter().zip(gradients.chunks_exact_mut(padded)) {
                let row = typed(problem.store.row(*i as usize, &mut buffer), &mut entries)?;
                iterate.update(simd, row, step, gradient);
            }
            let occasion = match problem.settings.average {
                Average::Weighted => update as f64,
                Average::Uniform | Average::Last => 1.0,
            };
            iterate.finish_update(occasion);
        }
        Ok(())
    }
}
