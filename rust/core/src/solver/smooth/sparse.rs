//! Passes over sparse rows: scores along the rows, sums along the columns.
//!
//! The rows are kept twice, by rows and by columns, so that every score and every sum is written
//! once, by one thread, in an order that is the same for any number of threads. Columns are numbered
//! from the most frequent one on: the weights that most entries meet stay in the cache.

use crate::error::Result;
use crate::layout::lines::{SPARE, depth, weighted_sum};
use crate::linalg::gemm::Product;
use crate::rows::shuffled::Store;
use crate::rows::sparse::SparseRows;
use crate::runtime::interrupt::Interrupt;
use crate::runtime::memory::{collected, with_capacity, zeros};
use crate::runtime::threads::{PARALLEL_WORK, each_block};
use crate::simd::dot;
use crate::simd::{Kernel, Simd, add_scaled, dispatch};
use crate::solver::smooth::problem::{Gradient, Hessian, Pass, Passes, RowMap, RowSample};
use rayon::ThreadPool;
use std::ops::Range;

/// The sample is one in so many rows, and has at least so many.
const SAMPLE_SHARE: usize = 16;
const LEAST_SAMPLE: usize = 128;
/// Entries of the sample for each column from which it tells enough about the rest.
const ENTRIES_TO_NEST: usize = 8;
/// Multiplications of one task: a millisecond or less.
const TASK_WORK: usize = 1 << 19;
/// Tasks between two looks at the interrupt.
const WAVE: usize = 64;

/// The entries of a sparse matrix by columns, the most frequent column first.
pub struct ByColumn {
    /// Rows of the entries, column after column.
    columns: SparseRows,
    /// Where each column's part of the sample ends.
    sampled: Vec<usize>,
}

/// Rows of the sample among `n`.
fn sample_rows(n: usize) -> usize {
    if n < SAMPLE_SHARE * LEAST_SAMPLE {
        n
    } else {
        n / SAMPLE_SHARE
    }
}

impl ByColumn {
    /// The columns of `rows`, numbered by place.
    ///
    /// # Errors
    /// An interrupt, no memory.
    pub fn new(rows: &SparseRows, columns: usize, interrupt: &dyn Interrupt) -> Result<Self> {
        let n = rows.lengths().len();
        let lines = rows.transposed(0..n, columns, interrupt)?;
        let sampled = |column: usize| {
            let inside = |row: &u32| (*row as usize) < sample_rows(n);
            lines.start[column] + lines.row(column).index.partition_point(inside)
        };
        let sampled = collected((0..columns).map(sampled))?;
        Ok(Self {
            columns: lines,
            sampled,
        })
    }

    /// The entries of a column, or those in the sample.
    fn line(&self, column: usize, sample: bool) -> (&[u32], &[f32]) {
        let start = &self.columns.start;
        let end = if sample {
            self.sampled[column]
        } else {
            start[column + 1]
        };
        let range = start[column]..end;
        (
            &self.columns.index[range.clone()],
            &self.columns.value[range],
        )
    }
}

/// Sparse rows and their working memory.
pub struct SparsePasses<'p, 'a> {
    store: &'p Store<'a>,
    /// Place of each column, and their entries.
    place: &'p [u32],
    columns: &'p ByColumn,
    pool: Option<&'p ThreadPool>,
    /// Rows, columns and numbers of a line.
    shape: (usize, usize, usize),
    /// Boundaries of the tasks.
    row_cuts: Vec<usize>,
    column_cuts: Vec<usize>,
    /// Coefficients of the rows.
    double: Vec<f64>,
    single: Vec<f32>,
    /// Curvature of the rows.
    states: Vec<f32>,
    /// Entries of the longest row and of the longest column.
    longest: (usize, usize),
}

/// Boundaries of tasks of similar work: lines with `entries`, cut at `must` as well.
fn cuts(
    lines: usize,
    must: usize,
    stride: usize,
    entries: impl Fn(usize) -> usize,
) -> Result<Vec<usize>> {
    let mut cuts = with_capacity(lines + 1)?;
    cuts.push(0);
    let mut work = 0;
    for line in 0..lines {
        work += (entries(line) + 1) * stride;
        if work >= TASK_WORK || line + 1 == lines || line + 1 == must {
            cuts.push(line + 1);
            work = 0;
        }
    }
    Ok(cuts)
}

impl<'p, 'a> SparsePasses<'p, 'a> {
    /// Passes over `n` rows; `shape` is that of the weights.
    ///
    /// # Errors
    /// No memory.
    pub fn new(
        store: &'p Store<'a>,
        (place, columns): (&'p [u32], &'p ByColumn),
        pool: Option<&'p ThreadPool>,
        n: usize,
        (stride, d): (usize, usize),
    ) -> Result<Self> {
        let touched = store.touched(1);
        let row = |at: usize| match store {
            Store::Sparse(rows) => rows.row(at).value.len(),
            _ => touched,
        };
        let column = |at: usize| columns.line(at, false).0.len();
        let padded = n.saturating_mul(stride).saturating_add(SPARE);
        Ok(Self {
            store,
            place,
            columns,
            pool: pool.filter(|_| n * touched * stride >= PARALLEL_WORK),
            shape: (n, d, stride),
            row_cuts: cuts(n, sample_rows(n), stride, row)?,
            column_cuts: cuts(d, d, stride, column)?,
            double: zeros(padded)?,
            single: zeros(padded)?,
            states: zeros(padded)?,
            longest: (store.longest_row(d), (0..d).map(column).max().unwrap_or(0)),
        })
    }
}

/// Some rows or columns, what is written for them, and a sum of numbers.
struct LineTask<'t, T> {
    lines: Range<usize>,
    out: &'t mut [T],
    state: &'t mut [f32],
    sum: f64,
}

/// Tasks between the boundaries up to `end`.
fn tasks<'t, T>(
    cuts: &[usize],
    end: usize,
    stride: usize,
    (mut out, mut state): (&'t mut [T], &'t mut [f32]),
) -> Result<Vec<LineTask<'t, T>>> {
    let mut tasks = with_capacity(cuts.len())?;
    for lines in cuts.windows(2).take_while(|cut| cut[1] <= end) {
        let lines = lines[0]..lines[1];
        let (own, rest) = out.split_at_mut(lines.len() * stride);
        let (own_state, rest_state) = state.split_at_mut((lines.len() * stride).min(state.len()));
        (out, state) = (rest, rest_state);
        tasks.push(LineTask {
            lines,
            out: own,
            state: own_state,
            sum: 0.0,
        });
    }
    Ok(tasks)
}

impl SparsePasses<'_, '_> {
    fn each<T: Send>(
        &self,
        tasks: &mut [LineTask<'_, T>],
        interrupt: &dyn Interrupt,
        work: impl Fn(&mut LineTask<'_, T>) -> Result<()> + Sync + Send,
    ) -> Result<f64> {
        for wave in tasks.chunks_mut(WAVE) {
            each_block(self.pool, wave, interrupt, &work)?;
        }
        Ok(tasks.iter().map(|task| task.sum).sum())
    }

    /// The coefficients that `map` makes of the scores.
    fn coefficients<T: Product, M: RowMap<T>>(
        &self,
        pass: Pass<'_>,
        w: &[T],
        map: &M,
        room: (&mut [T], &mut [f32]),
    ) -> Result<f64> {
        let stride = self.shape.2;
        let mut tasks = tasks(&self.row_cuts, pass.rows.rows, stride, room)?;
        self.each(&mut tasks, pass.interrupt, |task| {
            let passes = self;
            dispatch(RowLines {
                passes,
                w,
                map,
                task,
            })
        })
    }

    /// `out = sum over rows of coefficients^T row + ridge v`, place after place. Returns `<v, out>`.
    fn sums<T: Product>(
        &self,
        pass: Pass<'_>,
        coefficients: &[T],
        (ridge, v): (f64, &[T]),
        out: &mut [T],
    ) -> Result<f64> {
        let (n, _, stride) = self.shape;
        let mut tasks = tasks(&self.column_cuts, usize::MAX, stride, (out, &mut []))?;
        self.each(&mut tasks, pass.interrupt, |task| {
            dispatch(ColumnLines {
                columns: self.columns,
                sample: pass.rows.rows < n,
                stride,
                coefficients,
                ridge: T::near(ridge),
                v,
                task,
            });
            Ok(())
        })
    }
}

struct RowLines<'k, 't, 'a, T, M> {
    passes: &'k SparsePasses<'k, 'a>,
    w: &'k [T],
    map: &'k M,
    task: &'k mut LineTask<'t, T>,
}

impl<T: Product, M: RowMap<T>> Kernel for RowLines<'_, '_, '_, T, M> {
    type Output = Result<()>;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> Result<()> {
        let (store, stride, task) = (self.passes.store, self.passes.shape.2, self.task);
        let mut buffer = store.buffer()?;
        let out = task.out.chunks_exact_mut(stride);
        let states = task.state.chunks_exact_mut(stride);
        for (at, (out, state)) in task.lines.clone().zip(out.zip(states)) {
            let row = store.row(at, &mut buffer);
            weighted_sum(simd, (row.index, row.value), self.w, out);
            task.sum += self.map.apply(simd, at, out, state);
        }
        Ok(())
    }
}

struct ColumnLines<'k, 't, T> {
    columns: &'k ByColumn,
    sample: bool,
    stride: usize,
    coefficients: &'k [T],
    ridge: T,
    v: &'k [T],
    task: &'k mut LineTask<'t, T>,
}

impl<T: Product> Kernel for ColumnLines<'_, '_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let task = self.task;
        let lines = task.out.chunks_exact_mut(self.stride);
        for (column, out) in task.lines.clone().zip(lines) {
            let line = self.columns.line(column, self.sample);
            weighted_sum(simd, line, self.coefficients, out);
        }
        let first = task.lines.start * self.stride;
        if let Some(v) = self.v.get(first..first + task.out.len()) {
            add_scaled(simd, task.out, self.ridge, v);
            task.sum = dot(v, task.out);
        }
    }
}

impl Passes for SparsePasses<'_, '_> {
    type Narrow = f32;

    fn stored(&self) -> usize {
        let (_, d, stride) = self.shape;
        d.saturating_mul(stride).saturating_add(SPARE)
    }

    fn place(&self, column: usize) -> usize {
        self.place[column] as usize
    }

    fn position(&self, score: usize, place: usize) -> usize {
        place * self.shape.2 + score
    }

    fn store(&self) -> &Store<'_> {
        self.store
    }

    fn sample(&self) -> RowSample {
        let n = self.shape.0;
        RowSample::new(if self.nests() { sample_rows(n) } else { n }, n)
    }

    fn nests(&self) -> bool {
        let (n, d, _) = self.shape;
        sample_rows(n) * self.store.touched(1) >= ENTRIES_TO_NEST * d
    }

    fn gradient(&mut self, pass: Pass<'_>, weights: &[f64], total: &mut [f64]) -> Result<f64> {
        let mut room = std::mem::take(&mut self.double);
        let mut states = std::mem::take(&mut self.states);
        let map = Gradient(pass.problem);
        let sizes = self.coefficients(pass, weights, &map, (&mut room, &mut states));
        let sizes = sizes.and_then(|sizes| {
            self.sums(pass, &room, (0.0, &[]), total)?;
            Ok(sizes)
        });
        (self.double, self.states) = (room, states);
        sizes
    }

    fn product(&mut self, pass: Pass<'_>, v: &[f32], image: &mut [f32]) -> Result<f64> {
        let mut room = std::mem::take(&mut self.single);
        let mut states = std::mem::take(&mut self.states);
        let map = Hessian(pass.problem);
        let made = self.coefficients(pass, v, &map, (&mut room, &mut states));
        let ridge = pass.rows.share * pass.problem.lambda;
        let product = made.and_then(|_| self.sums(pass, &room, (ridge, v), image));
        (self.single, self.states) = (room, states);
        product
    }

    fn curvature(&self, row: usize) -> f32 {
        self.states[row * self.shape.2]
    }

    fn depths(&self) -> (f64, f64) {
        (depth(self.longest.0), depth(self.longest.1))
    }
}
