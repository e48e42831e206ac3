//! Exact sums over the records: of the rows, and of their outer products.
//!
//! Sums of rows are multiples of `2^-20` of magnitude at most `n < 2^32`: every partial sum, in any
//! order, is a double-precision number. Products of two entries are multiples of `2^-40`, and over
//! [`EXACT_ROWS`] rows of norm at most 1 no partial sum exceeds `2^13`: exact again, with or
//! without fused multiply-adds; such sums are then added as integers. So the results depend
//! neither on the number of threads nor on the layout, and one record moves them by exactly its own
//! contribution: norm at most 1 for rows, and `||u u^T||_F = ||u||^2 <= 1` for outer products. A person
//! of several rows contributes the mean of them, and the sum of their outer products shortened to norm 1.

use crate::error::{Result, require};
use crate::linalg::gemm::Product;
use crate::records::persons::shortening;
use crate::records::store::{ROW_GRID, RecordRows, Records};
use crate::runtime::interrupt::Interrupt;
use crate::runtime::memory::{mapped, matrix, zeros};
use crate::runtime::threads::{PARALLEL_ENTRIES, each_block, pool_above, share_out, waves};
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
    /// The sum of the rows, exact; of persons, of their means. One person moves it by at most 1 in
    /// Euclidean norm.
    ///
    /// # Errors
    /// Records with a centre; threads out of range; no memory; an interrupt.
    pub fn sums(&self, n_threads: usize, interrupt: &dyn Interrupt) -> Result<Vec<f64>> {
        require(self.centre.is_none(), "records", "sums of centred records")?;
        self.require_stored("sums")?;
        let pool = pool_above(n_threads, self.n_stored(), PARALLEL_ENTRIES)?;
        let threads = pool.as_ref().map_or(1, |p| p.current_num_threads());
        let share = |_| Ok((zeros::<f64>(self.columns)?, 0..0));
        let mut shares = (0..threads).map(share).collect::<Result<Vec<_>>>()?;
        let plain = if self.weighted() { 0 } else { self.singles() };
        for wave in waves(plain, self.n_stored(), threads) {
            share_out(&wave, &mut shares, |share| &mut share.1);
            each_block(pool.as_deref(), &mut shares, interrupt, |(sum, range)| {
                dispatch(AddRows {
                    records: self,
                    range: range.clone(),
                    sum,
                });
                Ok(())
            })?;
        }
        self.add_means(plain, &mut shares, (pool.as_deref(), interrupt))?;
        let mut total = zeros::<f64>(self.columns)?;
        for (sum, _) in shares {
            total.iter_mut().zip(sum).for_each(|(t, s)| *t += s);
        }
        Ok(total)
    }

    /// Adds the means of the persons from number `first` on.
    fn add_means(
        &self,
        first: usize,
        shares: &mut [(Vec<f64>, Range<usize>)],
        (pool, interrupt): (Option<&ThreadPool>, &dyn Interrupt),
    ) -> Result<()> {
        let persons = self.singles() + self.several() - first;
        if persons == 0 {
            return Ok(());
        }
        let room = |_: &_| Ok((zeros::<f64>(self.columns)?, Vec::new()));
        let mut rooms = shares.iter().map(room).collect::<Result<Vec<_>>>()?;
        let mut shares: Vec<_> = shares.iter_mut().zip(&mut rooms).collect();
        // Time goes into the columns of every person as well.
        let work = self.n_stored().max(persons.saturating_mul(self.columns));
        for wave in waves(persons, work, shares.len()) {
            share_out(&wave, &mut shares, |share| &mut share.0.1);
            each_block(pool, &mut shares, interrupt, |((sum, range), room)| {
                for p in range.clone().map(|p| first + p) {
                    let rows = match p.checked_sub(self.singles()) {
                        None => p..p + 1,
                        Some(p) => self.person(p),
                    };
                    self.add_mean(rows, sum, (&mut room.0, &mut room.1))?;
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// The sum of `u u^T` over the effective rows u rounded towards zero to the grid, `d x d`.
    ///
    /// The sum is exact; a last rounding to the nearest double-precision number happens only to
    /// entries above `2^13`. One person moves the exact sum by at most 1 in Frobenius norm.
    ///
    /// # Errors
    /// Threads out of range; no memory; an interrupt.
    pub fn gram(&self, n_threads: usize, interrupt: &dyn Interrupt) -> Result<Vec<f64>> {
        gram_values(&self.gram_units(n_threads, interrupt)?)
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
        let singles = self.singles();
        for first in (0..singles).step_by(BLOCK_ROWS) {
            gram.add(first..singles.min(first + BLOCK_ROWS), interrupt)?;
        }
        let mut sum = gram.finish(interrupt)?;
        self.add_persons(&mut sum, pool.as_deref(), interrupt)?;
        Ok(sum)
    }

    /// Adds the outer products of persons of several rows.
    fn add_persons(
        &self,
        sum: &mut [i128],
        pool: Option<&ThreadPool>,
        interrupt: &dyn Interrupt,
    ) -> Result<()> {
        let persons = self.several();
        if persons == 0 {
            return Ok(());
        }
        let d = self.columns;
        let mut shares = Vec::new();
        for _ in 0..pool.map_or(1, ThreadPool::current_num_threads) {
            shares.push(PersonGrams {
                next: 0..0,
                rows: 0..0,
                block: zeros(BLOCK_ROWS * d)?,
                own: matrix(d, d)?,
                partial: matrix(d, d)?,
                added: 0,
                total: matrix(d, d)?,
            });
        }
        share_out(&(0..persons), &mut shares, |share| &mut share.next);
        while shares.iter().any(PersonGrams::has_work) {
            each_block(pool, &mut shares, interrupt, |share| {
                share.advance(self);
                Ok(())
            })?;
        }
        for share in &mut shares {
            share.flush();
            let units = sum.iter_mut().zip(&share.total);
            units.for_each(|(sum, units)| *sum += units);
        }
        Ok(())
    }
}

/// One thread's persons, and the sum of their shortened sums of outer products.
struct PersonGrams {
    /// Persons to come.
    next: Range<usize>,
    /// Rows to come of the present one.
    rows: Range<usize>,
    block: Vec<f64>,
    /// Its sum of outer products, in integers.
    own: Vec<f64>,
    /// Sum over the last persons, at most [`EXACT_ROWS`], in units of [`GRAM_UNIT`].
    partial: Vec<f64>,
    added: usize,
    /// Sum over all persons before those.
    total: Vec<i128>,
}

/// `2^40`: the bound of a person's outer products in units.
const LONGEST_GRAM: f64 = 1.0 / GRAM_UNIT;

impl PersonGrams {
    fn has_work(&self) -> bool {
        !(self.next.is_empty() && self.rows.is_empty())
    }

    /// Continues for some milliseconds.
    fn advance(&mut self, records: &Records) {
        let (mut left, d) = (2 * BLOCK_ROWS, records.columns);
        while left > 0 && self.has_work() {
            let person = if self.rows.is_empty() {
                self.rows = records.person(self.next.start);
                self.own.fill(0.0);
                self.rows.clone()
            } else {
                records.person(self.next.start)
            };
            // So coarse that all sums of the integers stay below 2^53.
            let grid = coarser(person.len());
            let rows = self.rows.start..self.rows.end.min(self.rows.start + left.min(BLOCK_ROWS));
            let block = &mut self.block[..rows.len() * d];
            for (i, row) in rows.clone().zip(block.chunks_exact_mut(d.max(1))) {
                records.effective(i, 0..d, row);
                let scale = f64::from(records.weight(i)).sqrt() / (ROW_GRID * grid);
                for x in row {
                    *x = (*x * scale).trunc();
                }
            }
            f64::add_transposed_times(block, block, &mut self.own, (rows.len(), d, d));
            left -= rows.len();
            self.rows.start = rows.end;
            if self.rows.is_empty() {
                self.next.start += 1;
                let square = self.own.iter().map(|x| x * x).sum();
                let unit = grid * grid;
                let factor = unit * shortening(square, self.own.len(), LONGEST_GRAM / unit);
                for (sum, x) in self.partial.iter_mut().zip(&self.own) {
                    *sum += (x * factor).trunc();
                }
                self.added += 1;
                if self.added == EXACT_ROWS {
                    self.flush();
                }
            }
        }
    }

    fn flush(&mut self) {
        self.added = 0;
        for (total, partial) in self.total.iter_mut().zip(&mut self.partial) {
            *total += i128::from(*partial as i64);
            *partial = 0.0;
        }
    }
}

/// The least power of two b with `rows / b^2` at most [`EXACT_ROWS`].
fn coarser(rows: usize) -> f64 {
    let mut grid: usize = 1;
    while rows.div_ceil(grid * grid) > EXACT_ROWS {
        grid *= 2;
    }
    grid as f64
}

/// Unit of sums of outer products: `2^-40`.
pub(crate) const GRAM_UNIT: f64 = ROW_GRID * ROW_GRID;

/// Sums of outer products from whole numbers of units, each rounded to the nearest double.
///
/// # Errors
/// No memory.
pub fn gram_values(units: &[i128]) -> Result<Vec<f64>> {
    mapped(units, |u| *u as f64 * GRAM_UNIT)
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
            RecordRows::Sparse(rows) => {
                let range = rows.start[self.range.start]..rows.start[self.range.end];
                for (x, j) in rows.value[range.clone()].iter().zip(&rows.index[range]) {
                    self.sum[*j as usize] += f64::from(*x);
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
            Ok(())
        })?;
        let strips = &self.strips;
        each_block(self.pool, &mut self.tiles, interrupt, |tile| {
            let (a, b) = (&strips[tile.at.0], &strips[tile.at.1]);
            let (k, d) = (a.range.len(), b.range.len());
            let (a, b) = (&a.value[..rows * k], &b.value[..rows * d]);
            f64::add_transposed_times(a, b, &mut tile.partial, (rows, k, d));
            Ok(())
        })
    }

    fn flush(&mut self, interrupt: &dyn Interrupt) -> Result<()> {
        self.rows = 0;
        each_block(self.pool, &mut self.tiles, interrupt, |tile| {
            for (total, partial) in tile.total.iter_mut().zip(&mut tile.partial) {
                *total += i128::from((*partial / GRAM_UNIT) as i64);
                *partial = 0.0;
            }
            Ok(())
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
            if self.records.weighted() {
                // Towards zero: the square of what is left is no more than the weight.
                let root = f64::from(self.records.weight(i)).sqrt() / ROW_GRID;
                for x in row {
                    *x = (*x * root).trunc() * ROW_GRID;
                }
            }
        }
    }
}
