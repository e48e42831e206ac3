//! Rows as the solver visits them: a compact working copy, or made on the fly.
//!
//! The rows are taken in a random order that does not depend on the data, so that everything
//! computed from them (working sets, block boundaries, sums) has the same distribution for any
//! order in which the records came.

use crate::error::{Error, Result};
use crate::rows::sparse::SparseRows;
use crate::rows::view::{RUN, Row, RowBuffer, Rows};
use crate::runtime::interrupt::{Interrupt, Never, poll};
use crate::runtime::memory::{append_sparing, collected, copied, reserve, with_capacity};
use crate::runtime::threads::each_block;
use crate::simd::{Kernel, Simd, dispatch};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use rayon::ThreadPool;

/// Rows in the solver's order.
#[derive(Clone)]
pub enum Store<'a> {
    /// All entries of every row, row after row.
    Dense {
        /// Entries.
        value: Vec<f32>,
        /// Entries of one row.
        columns: usize,
    },
    /// Non-zero entries with their columns.
    Sparse(SparseRows),
    /// No copy: rows are made from the user's matrix at every visit.
    View {
        /// The user's matrix.
        rows: Rows<'a>,
        /// Row visited at each place.
        order: Vec<u32>,
        /// Whether a visit makes all entries or only the non-zero ones.
        dense: bool,
    },
}

/// Feature-major sums touch every padded class of every non-zero twice (scores, update); the
/// class-major layout touches each class once and about three classes again. Measured on the
/// USPS and ISOLET digits, the two break even at equal counts.
fn prefers_dense(non_zero: usize, entries: usize, classes: usize) -> bool {
    if classes == 1 {
        // One score needs no padding: a gather costs as much as four entries of a dense row.
        return 4 * non_zero > entries;
    }
    2 * non_zero * classes.next_multiple_of(16) > entries * (classes + 3)
}

/// Rows whose non-zero entries are counted to choose a layout.
const DENSITY_SAMPLE: usize = 1024;

/// Number of non-zero entries of some rows.
fn non_zeros(rows: &Rows<'_>, order: &[u32]) -> usize {
    order.iter().map(|i| rows.count_non_zero(*i as usize)).sum()
}

impl<'a> Store<'a> {
    /// The rows of `rows` in an order drawn from the public `seed`.
    ///
    /// # Errors
    /// Values that are not finite; more than 2^32 rows; no memory; an interrupt.
    pub fn new(
        rows: Rows<'a>,
        classes: usize,
        seed: u64,
        low_memory: bool,
        pool: Option<&ThreadPool>,
        interrupt: &dyn Interrupt,
    ) -> Result<(Self, Vec<u32>)> {
        let n = rows.n_rows();
        let count = u32::try_from(n).map_err(|_| Error::invalid("X", "more than 2^32 rows"))?;
        let mut order = collected(0..count)?;
        order.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
        // The rows lie in random order, so the first ones are a fair sample of the density. Only
        // the layout and the room reserved depend on it.
        let sample = n.min(DENSITY_SAMPLE);
        let seen = non_zeros(&rows, &order[..sample]);
        let entries = n * rows.n_columns();
        let non_zero = (seen as f64 * (n as f64 / sample.max(1) as f64) * 1.03) as usize;
        let dense = prefers_dense(non_zero, entries, classes);
        if low_memory {
            check_finite(&rows, &order, interrupt)?;
            let copy = copied(&order)?;
            return Ok((Self::View { rows, order, dense }, copy));
        }
        let mut packed = RowBuffer::default();
        let mut start = vec![0];
        if dense {
            reserve(&mut packed.value, entries)?;
        } else {
            let room = non_zero.min(entries) + rows.n_columns();
            reserve(&mut packed.index, room)?;
            reserve(&mut packed.value, room)?;
            reserve(&mut start, n)?;
        }
        let mut pack = Pack {
            rows: &rows,
            order: &order,
            dense,
            spare: non_zero / 16,
            packed: &mut packed,
            start: &mut start,
            interrupt,
        };
        match pool {
            Some(pool) => pack.in_parallel(pool)?,
            None => dispatch(pack)?,
        }
        let RowBuffer { index, value } = packed;
        let columns = rows.n_columns();
        let store = if dense {
            Self::Dense { value, columns }
        } else {
            Self::Sparse(SparseRows::new(value, index, start))
        };
        Ok((store, order))
    }

    /// Whether rows come with all entries.
    pub fn is_dense(&self) -> bool {
        match self {
            Self::Dense { .. } => true,
            Self::Sparse(_) => false,
            Self::View { dense, .. } => *dense,
        }
    }

    /// Multiplications of the scores of one of the first rows, on average: the same with and without a
    /// copy, whether rows come as CSR or not.
    pub fn touched(&self, padded_classes: usize) -> usize {
        let (seen, rows) = match self {
            Self::Dense { columns, .. } => (*columns, 1),
            Self::View { rows, dense, .. } if *dense => (rows.n_columns(), 1),
            Self::Sparse(rows) => {
                let sample = rows.lengths().len().min(DENSITY_SAMPLE);
                (rows.start[sample], sample)
            }
            Self::View { rows, order, .. } => {
                let sample = order.len().min(DENSITY_SAMPLE);
                (non_zeros(rows, &order[..sample]), sample)
            }
        };
        padded_classes * (seen / rows.max(1))
    }

    /// Entries of the longest row, or a bound of it.
    pub fn longest_row(&self, columns: usize) -> usize {
        match self {
            Self::Sparse(rows) => rows.lengths().max().unwrap_or(0),
            Self::Dense { .. } | Self::View { .. } => columns,
        }
    }

    /// Room for a row that has to be made.
    ///
    /// # Errors
    /// No memory.
    pub fn buffer(&self) -> Result<RowBuffer> {
        let columns = match self {
            Self::View { rows, .. } => rows.n_columns(),
            Self::Dense { .. } | Self::Sparse(_) => 0,
        };
        let (index, value) = (with_capacity(columns)?, with_capacity(columns)?);
        Ok(RowBuffer { index, value })
    }

    /// The row at place `at`; `buffer`, from [`Self::buffer`], holds it where it has to be made.
    #[inline(always)]
    pub fn row<'b>(&'b self, at: usize, buffer: &'b mut RowBuffer) -> Row<'b> {
        match self {
            Self::Dense { value, columns } => Row {
                index: &[],
                value: &value[at * columns..][..*columns],
            },
            Self::Sparse(rows) => rows.row(at),
            Self::View { .. } => self.make(at, buffer),
        }
    }

    #[cold]
    #[inline(never)]
    fn make<'b>(&self, at: usize, buffer: &'b mut RowBuffer) -> Row<'b> {
        buffer.index.clear();
        buffer.value.clear();
        if let Self::View { rows, order, dense } = self {
            // A value that stopped being finite after the check: another thread writes to X, which
            // voids the guarantee of this mode. The zero row only keeps the arithmetic finite.
            if rows.append(order[at] as usize, *dense, buffer).is_err() {
                buffer.index.clear();
                buffer.value.clear();
                if *dense {
                    buffer.value.resize(rows.n_columns(), 0.0);
                }
            }
        }
        Row {
            index: &buffer.index,
            value: &buffer.value,
        }
    }
}

/// Writes the rows of `order` one after the other.
struct Pack<'p, 'a> {
    rows: &'p Rows<'a>,
    order: &'p [u32],
    dense: bool,
    spare: usize,
    packed: &'p mut RowBuffer,
    start: &'p mut Vec<usize>,
    interrupt: &'p dyn Interrupt,
}

/// Rows that one thread packs at a time.
const PART_ROWS: usize = 512;

/// Rows by which memory is asked ahead: they come in random order.
const AHEAD: usize = 4;

/// Some rows, packed apart from the others.
#[derive(Default)]
struct Packed<'p> {
    order: &'p [u32],
    rows: RowBuffer,
    start: Vec<usize>,
}

impl Pack<'_, '_> {
    /// Packs parts of the rows on `pool` and joins them, a few at a time: no second copy of all.
    fn in_parallel(&mut self, pool: &ThreadPool) -> Result<()> {
        let wave = 2 * pool.current_num_threads();
        let mut orders = self.order.chunks(PART_ROWS).peekable();
        let mut parts = collected((0..wave).map(|_| Packed::default()))?;
        while orders.peek().is_some() {
            for part in &mut parts {
                part.order = orders.next().unwrap_or(&[]);
                part.rows.index.clear();
                part.rows.value.clear();
                part.start.clear();
            }
            let (rows, dense) = (self.rows, self.dense);
            each_block(Some(pool), &mut parts, self.interrupt, |part| {
                dispatch(Pack {
                    rows,
                    order: part.order,
                    dense,
                    spare: PART_ROWS * rows.n_columns() / 16,
                    packed: &mut part.rows,
                    start: &mut part.start,
                    interrupt: &Never,
                })
            })?;
            let mut before = self.packed.value.len();
            for part in &parts {
                self.start.extend(part.start.iter().map(|end| before + end));
                before += part.rows.value.len();
            }
            let (RowBuffer { index, value }, spare) = (&mut *self.packed, self.spare);
            let mut all = parts.iter().map(|part| &part.rows);
            let mut own = all.clone();
            let (values, indices) = pool.join(
                || all.try_for_each(|rows| append_sparing(value, &rows.value, spare)),
                || own.try_for_each(|rows| append_sparing(index, &rows.index, spare)),
            );
            values.and(indices)?;
        }
        Ok(())
    }
}

impl Kernel for Pack<'_, '_> {
    type Output = Result<()>;

    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) -> Result<()> {
        let columns = self.rows.n_columns() + RUN;
        for (at, i) in self.order.iter().enumerate() {
            poll(at, self.interrupt)?;
            if let Some(next) = self.order.get(at + AHEAD) {
                self.rows.prefetch(*next as usize);
            }
            let room = self.packed.index.capacity() - self.packed.index.len();
            if !self.dense && room < columns {
                let more = columns.max(self.spare);
                reserve(&mut self.packed.index, more)?;
                reserve(&mut self.packed.value, more)?;
            }
            self.rows.append(*i as usize, self.dense, self.packed)?;
            if !self.dense {
                self.start.push(self.packed.value.len());
            }
        }
        Ok(())
    }
}

fn check_finite(rows: &Rows<'_>, order: &[u32], interrupt: &dyn Interrupt) -> Result<()> {
    let mut buffer = RowBuffer::default();
    for (at, i) in order.iter().enumerate() {
        poll(at, interrupt)?;
        buffer.index.clear();
        buffer.value.clear();
        rows.append(*i as usize, false, &mut buffer)?;
    }
    Ok(())
}
