//! Certified minimiser of a smooth regularised loss with a linear term.
//!
//! ```text
//! J(W) = sum_i phi_{y_i}(<W, x_i>) + lambda/2 ||W||_F^2 + <B, W>
//! ```
//!
//! W has one row a score. Ends with a certified `||grad J(W)||_F <= gradient_tol`, rounding
//! included, hence `||W - W*||_F <= gradient_tol / lambda`. The units of the solver are in
//! [`crate::solver::smooth::problem`], the search in [`crate::solver::smooth::newton_cg`].

use crate::error::{Result, require};
use crate::layout::lines::by_frequency;
use crate::rows::labels::{check_labels, check_weights};
use crate::rows::shuffled::Store;
use crate::rows::sparse::SparseRows;
use crate::rows::view::Rows;
use crate::runtime::interrupt::Interrupt;
use crate::runtime::memory::{collected, mapped, zeros};
use crate::runtime::tasks::each_problem;
use crate::runtime::threads::{PARALLEL_ENTRIES, check_threads, each_block, pool_above};
use crate::solver::Fits;
use crate::solver::smooth::blocks::{BlockPasses, SAMPLE_SHARE, sampled};
use crate::solver::smooth::coarse::ColumnSums;
use crate::solver::smooth::newton_cg::NewtonSearch;
use crate::solver::smooth::problem::{
    Passes, Scaled, SmoothProblem, SmoothSettings, SmoothSolution,
};
use crate::solver::smooth::row_space;
use crate::solver::smooth::sparse::SparsePasses;
use rayon::ThreadPool;
use std::sync::Arc;

/// Minimises J; `linear` is B, row after row, or nothing for 0, and `weights` multiply the losses of
/// the rows, from 0 to 1 each, or nothing for 1.
///
/// # Errors
/// Arguments out of range, values that are not finite, no memory, interrupt.
pub fn solve(
    rows: Rows<'_>,
    (labels, weights): (&[i64], &[f64]),
    linear: Option<&[f64]>,
    settings: &SmoothSettings,
    interrupt: &dyn Interrupt,
) -> Result<SmoothSolution> {
    let scaled = Scaled::new(&rows, settings)?;
    let (k, d) = (settings.loss.scores, rows.n_columns());
    check_labels(labels, rows.n_rows(), settings.loss.classes())?;
    if let Some(linear) = linear {
        check_linear(linear, Some(k * d))?;
    }
    check_weights(weights, rows.n_rows())?;
    let entries = rows.n_rows().saturating_mul(d);
    let pool = pool_above(settings.threads, entries, PARALLEL_ENTRIES)?;
    let stored = Stored::new(rows, settings, pool.as_deref(), interrupt)?;
    SmoothFit {
        pool,
        weights,
        linear,
        ..SmoothFit::new(&stored, labels, (d, settings), scaled, interrupt)
    }
    .choose()
}

/// [`solve`] by one thread without a linear term, for few rows of many entries: the search runs in
/// the space of the rows. The same certificate, not the same bits.
///
/// # Errors
/// As [`solve`].
pub fn solve_few_rows(
    rows: Rows<'_>,
    labels: &[i64],
    settings: &SmoothSettings,
    interrupt: &dyn Interrupt,
) -> Result<SmoothSolution> {
    let scaled = Scaled::new(&rows, settings)?;
    check_labels(labels, rows.n_rows(), settings.loss.classes())?;
    let stored = Stored::new(rows, settings, None, interrupt)?;
    let columns = rows.n_columns();
    let held = (&stored.store, &*stored.order);
    let start = row_space::start(held, labels, settings, &scaled, columns, interrupt)?;
    SmoothFit {
        start,
        ..SmoothFit::new(&stored, labels, (columns, settings), scaled, interrupt)
    }
    .choose()
}

/// [`solve`] for many linear terms, one after the other in `linear`, with the same bits.
///
/// Every problem is solved by one thread: this is for many small ones.
///
/// # Errors
/// As [`solve`].
pub fn solve_batch(
    rows: Rows<'_>,
    labels: &[i64],
    linear: &[f64],
    settings: &SmoothSettings,
    interrupt: &dyn Interrupt,
) -> Result<Fits> {
    let scaled = Scaled::new(&rows, settings)?;
    let (k, d) = (settings.loss.scores, rows.n_columns());
    check_labels(labels, rows.n_rows(), settings.loss.classes())?;
    check_threads(settings.threads)?;
    let message = "expected one number for each weight of each problem";
    let right = d != 0 && linear.len().is_multiple_of(k * d);
    require(right, "linear", message)?;
    check_linear(linear, None)?;
    let stored = Stored::new(rows, settings, None, interrupt)?;
    let shape = (linear.len() / (k * d), k * d);
    let (weights, certified) = each_problem(shape, settings.threads, interrupt, |i, interrupt| {
        let fit = SmoothFit {
            linear: Some(&linear[i * k * d..][..k * d]),
            ..SmoothFit::new(&stored, labels, (d, settings), scaled, interrupt)
        };
        let found = fit.choose()?.weights;
        let certified = found.is_some();
        Ok((found, certified))
    })?;
    Ok(Fits { weights, certified })
}

fn check_linear(linear: &[f64], length: Option<usize>) -> Result<()> {
    let message = "expected one number for each weight, the intercept included";
    let right = length.is_none_or(|length| linear.len() == length);
    require(right, "linear", message)?;
    let message = "expected finite numbers";
    require(linear.iter().all(|b| b.abs() <= 1e100), "linear", message)
}

/// One in so many rows is counted to number the columns by frequency: only speed depends on it.
const COUNTED: usize = 8;

/// Parts of the entries that are renamed at once, each of at most so many, with sums of its own. Their
/// number depends on the rows alone, so that sums have the same bits for any number of threads.
const LANES: usize = 8;
const LANE_ENTRIES: usize = 1 << 20;
/// Entries for each column of a lane from which it is worth sums of its own.
const LANE_SHARE: usize = 4;

/// Renames the columns to their places; returns the sums by place.
fn renamed(
    rows: &mut SparseRows,
    place: &[u32],
    pool: Option<&ThreadPool>,
    interrupt: &dyn Interrupt,
) -> Result<Vec<ColumnSums>> {
    let lanes = rows.index.len() / (LANE_SHARE * place.len().max(1));
    let mut lanes =
        collected((0..lanes.clamp(1, LANES)).map(|_| (&mut [][..], &[][..], Vec::new())))?;
    for (_, _, sums) in &mut lanes {
        *sums = zeros::<ColumnSums>(place.len())?;
    }
    let mut index = rows.index.chunks_mut(LANE_ENTRIES);
    let mut value = rows.value.chunks(LANE_ENTRIES).peekable();
    while value.peek().is_some() {
        for (own_index, own_value, _) in &mut lanes {
            *own_index = index.next().unwrap_or_default();
            *own_value = value.next().unwrap_or_default();
        }
        each_block(pool, &mut lanes, interrupt, |(index, value, sums)| {
            for (column, x) in index.iter_mut().zip(*value) {
                *column = place[*column as usize];
                let sums = &mut sums[*column as usize];
                sums.entries += x;
                sums.squares += x * x;
            }
            Ok(())
        })?;
    }
    let mut sums = lanes.into_iter().map(|(_, _, sums)| sums);
    let mut all = sums.next().unwrap_or_default();
    for sums in sums {
        for (all, more) in all.iter_mut().zip(sums) {
            all.entries += more.entries;
            all.squares += more.squares;
        }
    }
    Ok(all)
}

/// The rows in the solver's order.
struct Stored<'a> {
    store: Store<'a>,
    order: Vec<u32>,
    /// Places of their columns, where they are sparse and copied.
    place: Vec<u32>,
    /// Sums over them.
    sums: Vec<ColumnSums>,
    /// Those columns, for several scores: for one score rows are as fast. Then those of a sample of the
    /// rows, if there is one.
    by_column: Vec<SparseRows>,
}

impl<'a> Stored<'a> {
    fn new(
        rows: Rows<'a>,
        settings: &SmoothSettings,
        pool: Option<&ThreadPool>,
        interrupt: &dyn Interrupt,
    ) -> Result<Self> {
        let (seed, low_memory) = (settings.seed, settings.low_memory);
        let scores = settings.loss.scores;
        let (mut store, order) = Store::new(rows, scores, seed, low_memory, pool, interrupt)?;
        let (mut place, mut sums, mut by_column) = (Vec::new(), Vec::new(), Vec::new());
        let n = order.len();
        let sampled = sampled(&store, n, (scores, rows.n_columns()));
        if let Store::Sparse(sparse) = &mut store {
            let columns = rows.n_columns();
            place = by_frequency(&sparse.index[..sparse.start[n.div_ceil(COUNTED)]], columns)?;
            sums = renamed(sparse, &place, pool, interrupt)?;
            if scores > 1 {
                for rows in &[n, n / SAMPLE_SHARE][..=usize::from(sampled)] {
                    by_column.push(sparse.transposed(0..*rows, columns, (pool, interrupt))?);
                }
            }
        }
        Ok(Self {
            store,
            order,
            place,
            sums,
            by_column,
        })
    }
}

/// Everything but the layout.
struct SmoothFit<'j, 'a> {
    stored: &'j Stored<'a>,
    pool: Option<Arc<ThreadPool>>,
    labels: &'j [i64],
    weights: &'j [f64],
    linear: Option<&'j [f64]>,
    /// Initial weights in the solver's units, score after score.
    start: Option<Vec<f64>>,
    settings: &'j SmoothSettings,
    scaled: Scaled,
    columns: usize,
    interrupt: &'j dyn Interrupt,
}

impl<'j, 'a> SmoothFit<'j, 'a> {
    /// By one thread, from 0, without weights of the rows or a linear term.
    fn new(
        stored: &'j Stored<'a>,
        labels: &'j [i64],
        (columns, settings): (usize, &'j SmoothSettings),
        scaled: Scaled,
        interrupt: &'j dyn Interrupt,
    ) -> Self {
        Self {
            stored,
            pool: None,
            labels,
            weights: &[],
            linear: None,
            start: None,
            settings,
            scaled,
            columns,
            interrupt,
        }
    }

    /// Solves in the layout that suits the rows.
    fn choose(&self) -> Result<SmoothSolution> {
        let shape = (self.settings.loss.scores, self.columns);
        let (rows, pool) = (self.stored, self.pool.as_deref());
        let (store, place, n) = (&rows.store, &*rows.place, rows.order.len());
        if rows.by_column.is_empty() {
            return self.run(BlockPasses::new((store, place), pool, n, shape)?);
        }
        let columns = (place, &*rows.by_column);
        self.run(SparsePasses::new(store, columns, pool, n, shape)?)
    }

    fn run<P: Passes>(&self, passes: P) -> Result<SmoothSolution> {
        let (k, d) = (self.settings.loss.scores, self.columns);
        let start = match &self.start {
            Some(weights) => {
                let mut stored: Vec<f64> = zeros(passes.stored())?;
                for (at, w) in weights.iter().enumerate() {
                    stored[passes.position(at / d, at % d)] = *w;
                }
                Some(stored)
            }
            None => None,
        };
        let rows = (&*self.stored.order, self.labels, self.weights);
        let rest = (d, self.settings);
        let problem = SmoothProblem::new(&passes, rows, self.linear, &self.scaled, rest)?;
        let place = |at: usize| passes.position(at / d, passes.place(at % d));
        let places = collected((0..k * d).map(place))?;
        let sums = &self.stored.sums;
        let mut found = NewtonSearch::new(&problem, passes, sums, self.interrupt)?
            .run(start, self.settings.max_steps)?;
        let unscale = problem.unscale;
        let placed = |stored: Vec<f64>| mapped(&places, |at| stored[*at] * unscale);
        let weights = found.weights.take().map(placed).transpose()?;
        Ok(SmoothSolution {
            weights,
            gradient_norm: found.gradient_norm / problem.unscale,
            ..found
        })
    }
}
