//! Non-zero entries of rows, and the same entries column after column.

use crate::error::{Error, Result};
use crate::rows::view::Row;
use crate::runtime::interrupt::Interrupt;
use crate::runtime::memory::{collected, resize, zeros};
use crate::runtime::threads::each_block;
use rayon::ThreadPool;
use std::ops::Range;
use std::sync::OnceLock;

/// Non-zero entries of rows.
#[derive(Debug, Clone)]
pub struct SparseRows {
    /// Entries, row after row.
    pub value: Vec<f32>,
    /// Their columns, strictly increasing within a row.
    pub index: Vec<u32>,
    /// Start of each row, and the end.
    pub start: Vec<usize>,
    blocks: OnceLock<Option<Blocks>>,
    longest: OnceLock<Vec<f32>>,
}

/// Rows in blocks, each column after column.
#[derive(Debug, Clone)]
pub(crate) struct Blocks {
    /// Rows of a block; the last one may have fewer.
    pub rows: usize,
    /// The blocks: a line is a column, an index a row of the block.
    pub by_column: Vec<SparseRows>,
}

/// Columns of a transposed matrix in bands of about as many entries each, and entries that are dealt to
/// them at a time by all threads: written column by column at once they would miss the cache.
const BANDS: usize = 64;
const PART_ENTRIES: usize = 1 << 20;
/// Entries for each column of a block, on average, from which columns are worth it.
const MIN_ENTRIES: usize = 4;

/// Entries of some rows by bands: column, row and value.
#[derive(Default)]
struct Dealt {
    rows: Range<usize>,
    entries: Vec<(u32, u32, f32)>,
    /// Where each band ends, after where the first one starts.
    ends: Vec<usize>,
}

impl SparseRows {
    /// Entries with their columns, and where each row starts and the last one ends.
    pub fn new(value: Vec<f32>, index: Vec<u32>, start: Vec<usize>) -> Self {
        Self {
            value,
            index,
            start,
            blocks: OnceLock::new(),
            longest: OnceLock::new(),
        }
    }

    /// One of the rows.
    #[inline(always)]
    pub fn row(&self, i: usize) -> Row<'_> {
        let range = self.start[i]..self.start[i + 1];
        Row {
            index: &self.index[range.clone()],
            value: &self.value[range],
        }
    }

    /// Numbers of entries.
    pub fn lengths(&self) -> impl ExactSizeIterator<Item = usize> {
        self.start.windows(2).map(|ends| ends[1] - ends[0])
    }

    /// The largest magnitude in each row, looked for once.
    ///
    /// # Errors
    /// No memory.
    pub(crate) fn longest(&self) -> Result<&[f32]> {
        if let Some(known) = self.longest.get() {
            return Ok(known);
        }
        let largest = |row: Row<'_>| row.value.iter().fold(0.0, |most: f32, x| most.max(x.abs()));
        let made = collected((0..self.lengths().len()).map(|i| largest(self.row(i))))?;
        Ok(self.longest.get_or_init(|| made))
    }

    /// The entries of some rows, column after column: a line for each column, rows counted from the
    /// first and ascending.
    ///
    /// # Errors
    /// An interrupt; no memory.
    pub(crate) fn transposed(
        &self,
        rows: Range<usize>,
        columns: usize,
        (pool, interrupt): (Option<&ThreadPool>, &dyn Interrupt),
    ) -> Result<Self> {
        let mut start = zeros(columns + 1)?;
        let entries = self.start[rows.start]..self.start[rows.end];
        for j in &self.index[entries.clone()] {
            start[*j as usize + 1] += 1;
        }
        for j in 0..columns {
            start[j + 1] += start[j];
        }
        let (mut index, mut value) = (zeros(entries.len())?, zeros(entries.len())?);
        let shift = (entries.len() / BANDS + 1).next_power_of_two().ilog2();
        let mut next = collected(start[..columns].iter().copied())?;
        // Of each band: its first column, the first of its places, the next place of each column, and room.
        let (mut bands, mut first) = (Vec::new(), 0);
        let (mut own_index, mut own_value) = (&mut *index, &mut *value);
        for next in next.chunk_by_mut(|a, b| a >> shift == b >> shift) {
            let (column, place) = (first, next[0]);
            first += next.len();
            let (index, rest_index) = own_index.split_at_mut(start[first] - place);
            let (value, rest_value) = own_value.split_at_mut(start[first] - place);
            (own_index, own_value) = (rest_index, rest_value);
            bands.push((column, place, next, index, value));
        }
        let threads = pool.map_or(1, ThreadPool::current_num_threads);
        let mut parts = collected((0..threads).map(|_| Dealt::default()))?;
        let mut at = rows.start;
        while at < rows.end {
            for part in &mut parts {
                let most = self.start[at] + PART_ENTRIES / threads;
                let fitting = self.start[at + 1..=rows.end].partition_point(|end| *end <= most);
                let end = rows.end.min(at + fitting.max(1));
                part.rows = at..end;
                at = end;
            }
            let band = |j: u32| start[j as usize] >> shift;
            each_block(pool, &mut parts, interrupt, |part| {
                self.deal(part, rows.start, band)
            })?;
            each_block(pool, &mut bands, interrupt, |band| {
                let (column, place, next, index, value) = band;
                for part in &parts {
                    let own = *place >> shift;
                    for (j, i, x) in &part.entries[part.ends[own]..part.ends[own + 1]] {
                        let to = &mut next[*j as usize - *column];
                        (index[*to - *place], value[*to - *place]) = (*i, *x);
                        *to += 1;
                    }
                }
                Ok(())
            })?;
        }
        Ok(Self::new(value, index, start))
    }

    /// Deals the entries of a part's rows, counted from the row `origin`, to bands.
    fn deal(&self, part: &mut Dealt, origin: usize, band: impl Fn(u32) -> usize) -> Result<()> {
        let entries = self.start[part.rows.start]..self.start[part.rows.end];
        part.ends.clear();
        part.ends.resize(BANDS + 2, 0);
        (self.index[entries.clone()].iter()).for_each(|j| part.ends[band(*j) + 2] += 1);
        (0..=BANDS).for_each(|band| part.ends[band + 1] += part.ends[band]);
        resize(&mut part.entries, entries.len())?;
        for i in part.rows.clone() {
            let row = self.row(i);
            for (j, x) in row.index.iter().zip(row.value) {
                let to = &mut part.ends[band(*j) + 1];
                part.entries[*to] = (*j, (i - origin) as u32, *x);
                *to += 1;
            }
        }
        Ok(())
    }

    /// The first `n` rows in blocks of so many, made once: whoever asks first decides how many. None
    /// where columns are too short to be worth it, or memory is.
    ///
    /// # Errors
    /// An interrupt.
    pub(crate) fn blocks(
        &self,
        n: usize,
        columns: usize,
        rows: usize,
        interrupt: &dyn Interrupt,
    ) -> Result<Option<&Blocks>> {
        if let Some(known) = self.blocks.get() {
            return Ok(known.as_ref());
        }
        let worthwhile = self.start[n] >= MIN_ENTRIES * columns * n.div_ceil(rows);
        let made = match worthwhile.then(|| self.cut(n, columns, rows, interrupt)) {
            Some(Err(Error::OutOfMemory { .. })) | None => None,
            Some(made) => Some(made?),
        };
        Ok(self.blocks.get_or_init(|| made).as_ref())
    }

    fn cut(&self, n: usize, columns: usize, rows: usize, watch: &dyn Interrupt) -> Result<Blocks> {
        let block = |first| self.transposed(first..n.min(first + rows), columns, (None, watch));
        Ok(Blocks {
            rows,
            by_column: (0..n).step_by(rows).map(block).collect::<Result<_>>()?,
        })
    }
}
