//! Passes over sparse rows: scores along the rows, sums along the columns.
//!
//! The rows are kept twice, by rows and by columns, so that every score and every sum is written
//! once, by one thread, in an order that is the same for any number of threads. Columns are numbered
//! from the most frequent one on: the weights that most entries meet stay in the cache. A sample is the
//! first rows, with columns of its own.

use crate::error::Result;
use crate::layout::lines::{SPARE, depth, suited, weighted_sum};
use crate::linalg::gemm::Product;
use crate::rows::shuffled::Store;
use crate::rows::sparse::SparseRows;
use crate::runtime::interrupt::Interrupt;
use crate::runtime::memory::{with_capacity, zeros};
use crate::runtime::threads::{PARALLEL_WORK, each_block};
use crate::simd::{Kernel, Simd, add_scaled, dot};
use crate::solver::smooth::blocks::SAMPLE_SHARE;
use crate::solver::smooth::problem::{Gradient, Hessian, Pass, Passes, RowMap, RowSample};
use rayon::ThreadPool;
use std::ops::Range;

/// Multiplications of one task: a millisecond or less.
const TASK_WORK: usize = 1 << 19;
/// Tasks between two looks at the interrupt.
const WAVE: usize = 64;

/// Sparse rows and their working memory.
pub struct SparsePasses<'p, 'a> {
    /// Place of each column.
    place: &'p [u32],
    /// All rows, and the sample if there is one.
    lines: Vec<BothWays<'p, 'a>>,
    /// Coefficients of the rows.
    double: Vec<f64>,
    single: Vec<f32>,
    /// Curvature of the rows.
    states: Vec<f32>,
    /// Entries of the longest row and of the longest column.
    longest: (usize, usize),
}

/// Entries by rows and by columns.
struct BothWays<'p, 'a> {
    store: &'p Store<'a>,
    columns: &'p SparseRows,
    pool: Option<&'p ThreadPool>,
    /// Rows, columns and numbers of a line.
    shape: (usize, usize, usize),
    /// Boundaries of the tasks.
    row_cuts: Vec<usize>,
    column_cuts: Vec<usize>,
}

/// Boundaries of tasks of similar work: lines with `entries`.
fn cuts(lines: usize, stride: usize, entries: impl Fn(usize) -> usize) -> Result<Vec<usize>> {
    let mut cuts = with_capacity(lines + 1)?;
    cuts.push(0);
    let mut work = 0;
    for line in 0..lines {
        work += (entries(line) + 1) * stride;
        if work >= TASK_WORK || line + 1 == lines {
            cuts.push(line + 1);
            work = 0;
        }
    }
    Ok(cuts)
}

impl<'p, 'a> BothWays<'p, 'a> {
    fn new(
        (store, columns): (&'p Store<'a>, &'p SparseRows),
        pool: Option<&'p ThreadPool>,
        shape: (usize, usize, usize),
    ) -> Result<Self> {
        let (n, d, stride) = shape;
        let touched = store.touched(1);
        let row = |at: usize| match store {
            Store::Sparse(rows) => rows.row(at).value.len(),
            _ => touched,
        };
        let column = |at: usize| columns.row(at).value.len();
        Ok(Self {
            store,
            columns,
            pool: pool.filter(|_| n * touched * stride >= PARALLEL_WORK),
            shape,
            row_cuts: cuts(n, stride, row)?,
            column_cuts: cuts(d, stride, column)?,
        })
    }
}

impl<'p, 'a> SparsePasses<'p, 'a> {
    /// Passes over `n` rows, whose `columns` come first, and over the sample where its columns follow;
    /// `shape` is that of the weights.
    ///
    /// # Errors
    /// No memory.
    pub fn new(
        store: &'p Store<'a>,
        (place, columns): (&'p [u32], &'p [SparseRows]),
        pool: Option<&'p ThreadPool>,
        n: usize,
        (stride, d): (usize, usize),
    ) -> Result<Self> {
        let padded = |lines: usize| lines.saturating_mul(stride).saturating_add(SPARE);
        let lines = (columns.iter().zip([n, n / SAMPLE_SHARE]))
            .map(|(columns, rows)| BothWays::new((store, columns), pool, (rows, d, stride)))
            .collect::<Result<Vec<_>>>()?;
        let column = columns.iter().flat_map(SparseRows::lengths).max();
        Ok(Self {
            place,
            double: zeros(padded(n))?,
            single: zeros(padded(n))?,
            states: zeros(padded(n))?,
            longest: (store.longest_row(d), column.unwrap_or(0)),
            lines,
        })
    }
}

/// The lines of a pass.
fn lines_of<'l, 'p, 'a>(lines: &'l [BothWays<'p, 'a>], pass: Pass<'_>) -> &'l BothWays<'p, 'a> {
    &lines[usize::from(pass.rows.rows < lines[0].shape.0)]
}

/// Some rows or columns, what is written for them, and a sum of numbers.
struct LineTask<'t, T> {
    lines: Range<usize>,
    out: &'t mut [T],
    state: &'t mut [f32],
    sum: f64,
}

/// Tasks between the boundaries.
fn tasks<'t, T>(
    cuts: &[usize],
    stride: usize,
    (mut out, mut state): (&'t mut [T], &'t mut [f32]),
) -> Result<Vec<LineTask<'t, T>>> {
    let mut tasks = with_capacity(cuts.len())?;
    for lines in cuts.windows(2) {
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

impl BothWays<'_, '_> {
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
        // An empty slice stands for weights of 0, whose scores need no row.
        let still = w.iter().all(|w| *w == T::default());
        let w: &[T] = if still { &[] } else { w };
        let mut tasks = tasks(&self.row_cuts, stride, room)?;
        self.each(&mut tasks, pass.interrupt, |task| {
            let lines = RowLines {
                store: self.store,
                stride,
                w,
                map,
                task,
            };
            suited(stride, lines)
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
        let stride = self.shape.2;
        let mut tasks = tasks(&self.column_cuts, stride, (out, &mut []))?;
        self.each(&mut tasks, pass.interrupt, |task| {
            let lines = ColumnLines {
                columns: self.columns,
                stride,
                coefficients,
                ridge: T::near(ridge),
                v,
                task,
            };
            suited(stride, lines);
            Ok(())
        })
    }
}

struct RowLines<'k, 't, 'a, T, M> {
    store: &'k Store<'a>,
    stride: usize,
    w: &'k [T],
    map: &'k M,
    task: &'k mut LineTask<'t, T>,
}

impl<T: Product, M: RowMap<T>> Kernel for RowLines<'_, '_, '_, T, M> {
    type Output = Result<()>;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> Result<()> {
        let (store, stride, task) = (self.store, self.stride, self.task);
        let mut buffer = store.buffer()?;
        let out = task.out.chunks_exact_mut(stride);
        let states = task.state.chunks_exact_mut(stride);
        for (at, (out, state)) in task.lines.clone().zip(out.zip(states)) {
            let row = store.row(at, &mut buffer);
            if self.w.is_empty() {
                out.fill(T::default());
            } else {
                weighted_sum(simd, row, self.w, out);
            }
            task.sum += self.map.apply(simd, at, out, state);
        }
        Ok(())
    }
}

struct ColumnLines<'k, 't, T> {
    columns: &'k SparseRows,
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
            weighted_sum(simd, self.columns.row(column), self.coefficients, out);
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
        let (_, d, stride) = self.lines[0].shape;
        d.saturating_mul(stride).saturating_add(SPARE)
    }

    fn place(&self, column: usize) -> usize {
        self.place[column] as usize
    }

    fn position(&self, score: usize, place: usize) -> usize {
        place * self.lines[0].shape.2 + score
    }

    fn store(&self) -> &Store<'_> {
        self.lines[0].store
    }

    fn sample(&self) -> RowSample {
        let (all, sample) = (&self.lines[0], &self.lines[self.lines.len() - 1]);
        RowSample::new(sample.shape.0, all.shape.0)
    }

    fn gradient(&mut self, pass: Pass<'_>, weights: &[f64], total: &mut [f64]) -> Result<f64> {
        let map = Gradient(pass.problem);
        let room = (&mut *self.double, &mut *self.states);
        let lines = lines_of(&self.lines, pass);
        let sizes = lines.coefficients(pass, weights, &map, room)?;
        lines.sums(pass, &self.double, (0.0, &[]), total)?;
        Ok(sizes)
    }

    fn product(&mut self, pass: Pass<'_>, v: &[f32], image: &mut [f32]) -> Result<f64> {
        let map = Hessian(pass.problem);
        let room = (&mut *self.single, &mut *self.states);
        let lines = lines_of(&self.lines, pass);
        lines.coefficients(pass, v, &map, room)?;
        let ridge = pass.rows.share * pass.problem.lambda;
        lines.sums(pass, &self.single, (ridge, v), image)
    }

    fn curvature(&self, row: usize) -> f32 {
        self.states[row * self.lines[0].shape.2]
    }

    fn depths(&self) -> (f64, f64) {
        (depth(self.longest.0), depth(self.longest.1))
    }
}
