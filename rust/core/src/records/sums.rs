//! Exact sums over the records: of the rows, and of their outer products.
//!
//! Sums of rows are multiples of `2^-20` of magnitude at most `n < 2^32`: every partial sum, in any
//! order, is a double-precision number. Products of two entries are multiples of `2^-40`, and over
//! [`EXACT_ROWS`] rows of norm at most 1 no partial sum exceeds `2^13`: exact again, with or
//! without fused multiply-adds; such sums are then added as integers. So the results depend
//! neither on the number of threads nor on the layout, and one record moves them by exactly its own
//! contribution: norm at most 1 for rows, and `||u u^T||_F = ||u||^2 <= 1` for outer products.

use crate::error::{Error, Result};
use crate::linalg::gemm::Product;
use crate::records::store::{ROW_GRID, RecordRows, Records, waves};
use crate::runtime::interrupt::Interrupt;
use crate::runtime::memory::{matrix, zeros};
use crate::runtime::threads::{PARALLEL_ENTRIES, each_block, pool_above};
use crate::simd::{Kernel, Simd, dispatch};
use rayon::ThreadPool;
use std::ops::Range;

/// Rows whose outer products are summed in double precision: `2^13` times `2^40` is `2^53`.
const EXACT_ROWS: usize = 1 << 13;

/// Rows formed at a time for the outer products: 4 MB for a thousand columns.
const BLOCK_ROWS: usize = 512;

/// Width of a tile of the matrix of outer products, about: only tiles on or above the diagonal are
/// computed.
const TILE: usize = 128;

impl Records {
    /// The sum of the rows, exact. One record moves it by at most 1 in Euclidean norm.
    ///
    /// # Errors
    /// Records with a centre; threads out of range; no memory; an interrupt.
    pub fn sums(&self, n_threads: usize, interrupt: &dyn Interrupt) -> Result<Vec<f64>> {
        if self.centre.is_some() {
            return Err(Error::invalid("records", "sums of centred records"));
        }
        self.require_stored("sums")?;
        let pool = pool_above(n_threads, self.n_stored(), PARALLEL_ENTRIES)?;
        let threads = pool.as_ref().map_or(1, |p| p.current_num_threads());
        let mut shares = Vec::new();
        for _ in 0..threads {
            shares.push((zeros::<f64>(self.columns)?, 0..0));
        }
        for wave in waves(self.len(), self.n_stored(), threads) {
            let length = wave.len().div_ceil(threads).max(1);
            for (thread, (_, range)) in shares.iter_mut().enumerate() {
                let first = wave.end.min(wave.start + thread * length);
                *range = first..wave.end.min(first + length);
            }
            each_block(pool.as_deref(), &mut shares, interrupt, |(sum, range)| {
                dispatch(AddRows {
                    records: self,
                    range: range.clone(),
                    sum,
                });
            })?;
        }
        let mut total = zeros::<f64>(self.columns)?;
        for (sum, _) in shares {
            total.iter_mut().zip(sum).for_each(|(t, s)| *t += s);
        }
        Ok(total)
    }

    /// The sum of `u u^T` over the effective rows u rounded towards zero to the grid, `d x d`.
    ///
    /// The sum is exact; a last rounding to the nearest double-precision number happens only to
    /// entries above `2^13`. One record moves the exact sum by at most 1 in Frobenius norm.
    ///
    /// # Errors
    /// Threads out of range; no memory; an interrupt.
    pub fn gram(&self, n_threads: usize, interrupt: &dyn Interrupt) -> Result<Vec<f64>> {
        Ok(gram_values(&self.gram_units(n_threads, interrupt)?))
    }

    /// [`Self::gram`] before its last rounding, in units of [`GRAM_UNIT`]: sums over shards of the
    /// records are added as integers.
    ///
    /// # Errors
    /// As [`Self::gram`].
    pub fn gram_units(&self, n_threads: usize, interrupt: &dyn Interrupt) -> Result<Vec<i128>> {
        self.require_stored("outer products")?;
        let work = self.len().saturating_mul(self.columns);
        let pool = pool_above(n_threads, work, PARALLEL_ENTRIES)?;
        let mut gram = Gram::new(self, pool.as_deref())?;
        for first in (0..self.len()).step_by(BLOCK_ROWS) {
            gram.add(first..self.len().min(first + BLOCK_ROWS), interrupt)?;
        }
        gram.finish(interrupt)
    }
}

/// Unit of sums of outer products: `2^-40`.
pub const GRAM_UNIT: f64 = ROW_GRID * ROW_GRID;

/// Sums of outer products from whole numbers of units, each rounded to the nearest double.
pub fn gram_values(units: &[i128]) -> Vec<f64> {
    units.iter().map(|u| *u as f64 * GRAM_UNIT).collect()
}

/// `sum += rows of the range`.
struct AddRows<'a> {
    records: &'a Records,
    range: Range<usize>,
    sum: &'a mut [f64],
}

impl Kernel for AddRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) {
        let columns = self.records.columns;
        match &self.records.rows {
            RecordRows::Dense { value } => {
                for i in self.range {
                    let row = &value[i * columns..][..columns];
                    for (s, v) in self.sum.iter_mut().zip(row) {
                        *s += f64::from(*v);
                    }
                }
            }
            RecordRows::Sparse {
                value,
                index,
                start,
            } => {
                let range = start[self.range.start]..start[self.range.end];
                for (v, j) in value[range.clone()].iter().zip(&index[range]) {
                    self.sum[*j as usize] += f64::from(*v);
                }
            }
            // Refused before.
            RecordRows::Lifted(_) => {}
        }
    }
}

/// Columns `range` of the rows of one block, row after row.
struct Strip {
    range: Range<usize>,
    value: Vec<f64>,
}

/// One tile of the sum: strip `at.0` against strip `at.1`.
struct Tile {
    at: (usize, usize),
    /// Sum over at most [`EXACT_ROWS`] rows.
    partial: Vec<f64>,
    /// The sum before those, in units of `2^-40`.
    total: Vec<i128>,
}

/// The sum of outer products so far.
struct Gram<'a> {
    records: &'a Records,
    pool: Option<&'a ThreadPool>,
    strips: Vec<Strip>,
    tiles: Vec<Tile>,
    rows: usize,
}

impl<'a> Gram<'a> {
    fn new(records: &'a Records, pool: Option<&'a ThreadPool>) -> Result<Self> {
        let columns = records.columns;
        let width = columns.div_ceil(columns.div_ceil(TILE).max(1)).max(1);
        let mut strips = Vec::new();
        for first in (0..columns).step_by(width) {
            let range = first..columns.min(first + width);
            let value = zeros(range.len() * BLOCK_ROWS)?;
            strips.push(Strip { range, value });
        }
        let mut tiles = Vec::new();
        for i in 0..strips.len() {
            for j in i..strips.len() {
                let size = strips[i].range.len() * strips[j].range.len();
                tiles.push(Tile {
                    at: (i, j),
                    partial: zeros(size)?,
                    total: zeros(size)?,
                });
            }
        }
        Ok(Self {
            records,
            pool,
            strips,
            tiles,
            rows: 0,
        })
    }

    fn add(&mut self, range: Range<usize>, interrupt: &dyn Interrupt) -> Result<()> {
        let rows = range.len();
        if self.rows + rows > EXACT_ROWS {
            self.flush(interrupt)?;
        }
        self.rows += rows;
        let records = self.records;
        each_block(self.pool, &mut self.strips, interrupt, |strip| {
            dispatch(FillStrip {
                records,
                range: range.clone(),
                strip,
            });
        })?;
        let strips = &self.strips;
        each_block(self.pool, &mut self.tiles, interrupt, |tile| {
            let (a, b) = (&strips[tile.at.0], &strips[tile.at.1]);
            let (k, d) = (a.range.len(), b.range.len());
            let (a, b) = (&a.value[..rows * k], &b.value[..rows * d]);
            f64::add_transposed_times(a, b, &mut tile.partial, (rows, k, d));
        })
    }

    fn flush(&mut self, interrupt: &dyn Interrupt) -> Result<()> {
        self.rows = 0;
        each_block(self.pool, &mut self.tiles, interrupt, |tile| {
            for (total, partial) in tile.total.iter_mut().zip(&mut tile.partial) {
                *total += i128::from((*partial / GRAM_UNIT) as i64);
                *partial = 0.0;
            }
        })
    }

    fn finish(mut self, interrupt: &dyn Interrupt) -> Result<Vec<i128>> {
        self.flush(interrupt)?;
        let columns = self.records.columns;
        let mut sum = matrix(columns, columns)?;
        for tile in self.tiles {
            let (i, j) = (&self.strips[tile.at.0].range, &self.strips[tile.at.1].range);
            for (a, row) in i.clone().zip(tile.total.chunks(j.len())) {
                for (b, total) in j.clone().zip(row) {
                    sum[a * columns + b] = *total;
                    sum[b * columns + a] = *total;
                }
            }
        }
        Ok(sum)
    }
}

/// Writes the strip's columns of the effective rows of `range`.
struct FillStrip<'a> {
    records: &'a Records,
    range: Range<usize>,
    strip: &'a mut Strip,
}

impl Kernel for FillStrip<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) {
        let width = self.strip.range.len();
        for (i, row) in self.range.zip(self.strip.value.chunks_exact_mut(width)) {
            self.records.effective(i, self.strip.range.clone(), row);
        }
    }
}
