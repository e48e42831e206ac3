//! Lifted rows, made block by block, against all ellipsoids.
//!
//! With `z_i` the row of record i in single precision (constant feature last) and `unit` the
//! public factor of [`Lifted::new`], the lifted row is exactly
//!
//! ```text
//! u_i = unit * svec(z_i z_i^T),   svec(A) = (A_aa, sqrt(2) A_ab for a < b), row by row
//! ```
//!
//! Its norm is `unit ||z_i||^2 <= 1`. Products of single-precision numbers are exact in double
//! precision, so a computed entry carries the roundings of `sqrt(2) unit` and of one product.
//!
//! Records lie in fixed chunks, a chunk is visited in fixed blocks, and the sums of the chunks are
//! added in order: no result depends on the number of threads.

use crate::error::{Error, Result};
use crate::linalg::gemm::Product;
use crate::rows::view::{RowBuffer, Rows};
use crate::runtime::interrupt::{Interrupt, poll};
use crate::runtime::memory::{filled, mapped, reserve, zeros};
use crate::runtime::threads::{PARALLEL_WORK, each_block};
use crate::simd::{Kernel, Real, Simd, dispatch};
use crate::solver::ellipsoids::records::Targets;
use crate::solver::smooth::problem::RowMap;
use rayon::ThreadPool;
use std::ops::Range;
use std::sync::Arc;

/// Entries of one block of lifted rows: 256 KiB in double precision.
const BLOCK_ENTRIES: usize = 1 << 15;
/// Largest number of chunks of records.
const MAX_CHUNKS: usize = 64;
/// Records a chunk needs at least.
const MIN_CHUNK: usize = 64;
/// Numbers that all chunks' sums may take together: 64 MiB in double precision.
const SUM_ENTRIES: usize = 1 << 23;
/// Multiplications of a chunk between two looks at the interrupt: about a millisecond.
const ROUND_WORK: usize = 1 << 20;
/// The rows and how they are visited.
pub struct Lifted {
    z: Vec<f32>,
    /// Length of `z_i`, the constant feature included.
    pub order: usize,
    /// Length of a lifted row.
    pub size: usize,
    /// Number of ellipsoids.
    pub ellipsoids: usize,
    /// Number of records.
    pub records: usize,
    /// `unit`, and `sqrt(2) unit` off the diagonal.
    factor: Vec<f64>,
    narrow_factor: Vec<f32>,
    block: usize,
    round: usize,
    chunks: Vec<Range<usize>>,
    pool: Option<Arc<ThreadPool>>,
}

/// Working memory of one chunk.
pub struct Work<T> {
    rows: Range<usize>,
    done: usize,
    sum: Vec<T>,
    lifts: Vec<T>,
    products: Vec<T>,
    state: Vec<f32>,
    room: Vec<T>,
    size: f64,
}

impl Lifted {
    /// Reads the rows; `unit` is `2^(2e) / (data_norm^2 + 1)`, rounded down, with e the exponent of
    /// the rows' scaling.
    ///
    /// # Errors
    /// Values that are not finite, no memory, an interrupt.
    pub fn new(
        rows: &Rows<'_>,
        ellipsoids: usize,
        pool: Option<Arc<ThreadPool>>,
        interrupt: &dyn Interrupt,
    ) -> Result<Self> {
        let (records, order) = (rows.n_rows(), rows.n_columns());
        let size = order * (order + 1) / 2;
        let mut buffer = RowBuffer::default();
        let entries = records.checked_mul(order);
        let entries = entries.ok_or(Error::OutOfMemory { bytes: usize::MAX })?;
        reserve(&mut buffer.value, entries)?;
        for i in 0..records {
            poll(i, interrupt)?;
            rows.append(i, true, &mut buffer)?;
        }
        let factor = factors(order, unit(rows))?;
        let touched = size * ellipsoids;
        let most = (SUM_ENTRIES / touched).clamp(1, MAX_CHUNKS);
        let count = most.min(records / MIN_CHUNK).max(1);
        let block = (BLOCK_ENTRIES / size).clamp(8, 256);
        let large = records * touched >= PARALLEL_WORK && count > 1;
        Ok(Self {
            z: buffer.value,
            order,
            size,
            ellipsoids,
            records,
            narrow_factor: mapped(&factor, |x| *x as f32)?,
            factor,
            block,
            round: (ROUND_WORK / touched).next_multiple_of(block).max(block),
            chunks: (0..count)
                .map(|c| records * c / count..records * (c + 1) / count)
                .collect(),
            pool: pool.filter(|_| large),
        })
    }

    /// Numbers of all ellipsoids.
    pub fn stored(&self) -> usize {
        self.size * self.ellipsoids
    }

    /// The pool, where the problem is large enough for it.
    pub fn pool(&self) -> Option<&ThreadPool> {
        self.pool.as_deref()
    }

    /// Largest number of additions of a term of a sum over records.
    pub fn sum_depth(&self) -> f64 {
        let longest = self.chunks.iter().map(Range::len).max().unwrap_or(0);
        (longest + self.chunks.len() + 2) as f64
    }

    /// Working memory for [`Self::sweep`] with `states` numbers of state a record.
    ///
    /// # Errors
    /// No memory.
    pub fn workspace<T: Real>(&self, states: usize) -> Result<Vec<Work<T>>> {
        let work = |rows: &Range<usize>| {
            let block = self.block.min(rows.len());
            Ok(Work {
                rows: rows.clone(),
                done: rows.start,
                sum: zeros(self.stored())?,
                lifts: zeros(block * self.size)?,
                products: zeros(block * self.ellipsoids)?,
                state: zeros(rows.len() * states)?,
                room: zeros(states)?,
                size: 0.0,
            })
        };
        self.chunks.iter().map(work).collect()
    }

    /// `total_j = sum_i c_ij u_i` with `c_i = map(<phi_1, u_i>, ..., <phi_J, u_i>)`, where the map gets
    /// what record i sees; returns the sum of what the map returned.
    ///
    /// # Errors
    /// An interrupt.
    pub fn sweep<T: LiftedReal, M: RowMap<T>>(
        &self,
        phi: &[T],
        (targets, map): (&Targets, &M),
        work: &mut [Work<T>],
        total: &mut [f64],
        interrupt: &dyn Interrupt,
    ) -> Result<f64> {
        for chunk in work.iter_mut() {
            chunk.done = chunk.rows.start;
            chunk.size = 0.0;
            chunk.sum.fill(T::default());
        }
        while work.iter().any(|chunk| chunk.done < chunk.rows.end) {
            each_block(self.pool(), work, interrupt, |chunk| {
                let end = chunk.rows.end.min(chunk.done + self.round);
                dispatch(Round {
                    lifted: self,
                    phi,
                    targets,
                    map,
                    end,
                    chunk,
                });
                Ok(())
            })?;
        }
        total.fill(0.0);
        for chunk in work.iter() {
            for (total, x) in total.iter_mut().zip(&chunk.sum) {
                *total += x.wide();
            }
        }
        Ok(work.iter().map(|chunk| chunk.size).sum())
    }
}

/// Copies the state that a gradient left behind to the working memory of Hessian products.
pub fn share_state(from: &[Work<f64>], to: &mut [Work<f32>]) {
    for (from, to) in from.iter().zip(to) {
        to.state.copy_from_slice(&from.state);
    }
}

/// `2^(2e) / (data_norm^2 + 1)`, rounded down.
fn unit(rows: &Rows<'_>) -> f64 {
    let bounds = rows.bounds();
    let square = bounds.data_norm * bounds.data_norm + bounds.intercept * bounds.intercept;
    // Three roundings up to here, two more in what follows.
    libm::ldexp(1.0, 2 * bounds.exponent()) / square * (1.0 - 8.0 * f64::EPSILON)
}

/// Factor of each entry of the upper triangle, row by row.
fn factors(order: usize, unit: f64) -> Result<Vec<f64>> {
    let mut factors = filled(order * (order + 1) / 2, std::f64::consts::SQRT_2 * unit)?;
    let mut at = 0;
    for a in 0..order {
        factors[at] = unit;
        at += order - a;
    }
    Ok(factors)
}

/// A precision in which rows can be lifted.
pub trait LiftedReal: Real + Product {
    /// The factors of the entries in this precision.
    fn factors(lifted: &Lifted) -> &[Self];
    /// One row of the upper triangle: `out = factor * (a * z)`.
    fn line(a: f32, z: &[f32], factor: &[Self], out: &mut [Self]);
}

macro_rules! lifted {
    ($t:ident, $factor:ident) => {
        impl LiftedReal for $t {
            fn factors(lifted: &Lifted) -> &[Self] {
                &lifted.$factor
            }

            #[inline(always)]
            fn line(a: f32, z: &[f32], factor: &[Self], out: &mut [Self]) {
                let a = $t::from(a);
                for ((out, z), factor) in out.iter_mut().zip(z).zip(factor) {
                    *out = factor * (a * $t::from(*z));
                }
            }
        }
    };
}

lifted!(f64, factor);
lifted!(f32, narrow_factor);

struct Round<'p, T, M> {
    lifted: &'p Lifted,
    phi: &'p [T],
    targets: &'p Targets,
    map: &'p M,
    end: usize,
    chunk: &'p mut Work<T>,
}

impl<T: LiftedReal, M: RowMap<T>> Kernel for Round<'_, T, M> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let (lifted, chunk) = (self.lifted, self.chunk);
        let (d, p, j) = (lifted.order, lifted.size, lifted.ellipsoids);
        let states = chunk.room.len();
        while chunk.done < self.end {
            let rows = chunk.done..self.end.min(chunk.done + lifted.block);
            chunk.done = rows.end;
            let lifts = &mut chunk.lifts[..rows.len() * p];
            let products = &mut chunk.products[..rows.len() * j];
            let z = &lifted.z[rows.start * d..rows.end * d];
            for (z, out) in z.chunks_exact(d).zip(lifts.chunks_exact_mut(p)) {
                lift(z, T::factors(lifted), out);
            }
            T::times_transposed(lifts, self.phi, products, (rows.len(), p, j));
            let first = (rows.start - chunk.rows.start) * states;
            let state = &mut chunk.state[first..][..rows.len() * states];
            let parts = products
                .chunks_exact_mut(j)
                .zip(state.chunks_exact_mut(states));
            for (record, (products, state)) in rows.clone().zip(parts) {
                let products = (products, &mut chunk.room[..]);
                let apply = |row: &mut [T]| self.map.apply(simd, record, row, state);
                chunk.size += self.targets.through(record, products, apply);
            }
            T::add_transposed_times(products, lifts, &mut chunk.sum, (rows.len(), j, p));
        }
    }
}

/// The lifted row of `z`.
#[inline(always)]
fn lift<T: LiftedReal>(z: &[f32], factor: &[T], out: &mut [T]) {
    let (mut factor, mut out) = (factor, out);
    for (a, first) in z.iter().enumerate() {
        let z = &z[a..];
        let (line, rest) = out.split_at_mut(z.len());
        T::line(*first, z, &factor[..z.len()], line);
        (factor, out) = (&factor[z.len()..], rest);
    }
}
