//! Non-zero entries of rows, and the same entries column after column.

use crate::error::{Error, Result};
use crate::rows::view::Row;
use crate::runtime::interrupt::{Interrupt, poll};
use crate::runtime::memory::{collected, resize, zeros};
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
/// them at a time: written column by column at once they would miss the cache.
const BANDS: usize = 256;
const PART_ENTRIES: usize = 1 << 20;
/// Entries for each column of a block, on average, from which columns are worth it.
const MIN_ENTRIES: usize = 4;

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
        interrupt: &dyn Interrupt,
    ) -> Result<Self> {
        let mut start = zeros(columns + 1)?;
        let entries = self.start[rows.start]..self.start[rows.end];
        for j in &self.index[entries.clone()] {
            start[*j as usize + 1] += 1;
        }
        for j in 0..columns {
            start[j + 1] += start[j];
        }
        let mut next = collected(start[..columns].iter().copied())?;
        let (mut index, mut value) = (zeros(entries.len())?, zeros(entries.len())?);
        let shift = (entries.len() / BANDS + 1).next_power_of_two().ilog2();
        let band = |j: u32| start[j as usize] >> shift;
        let (mut at, mut banded) = (rows.start, Vec::new());
        while at < rows.end {
            let most = self.start[at] + PART_ENTRIES;
            let end = self.start[at + 1..=rows.end].partition_point(|end| *end <= most);
            let part = at..at + end.max(1);
            at = part.end;
            let entries = self.start[part.start]..self.start[part.end];
            let mut to = [0; BANDS + 1];
            (self.index[entries.clone()].iter()).for_each(|j| to[band(*j) + 1] += 1);
            (0..BANDS).for_each(|band| to[band + 1] += to[band]);
            resize(&mut banded, entries.len())?;
            for i in part {
                poll(i, interrupt)?;
                let row = self.row(i);
                for (j, x) in row.index.iter().zip(row.value) {
                    let to = &mut to[band(*j)];
                    banded[*to] = (*j, (i - rows.start) as u32, *x);
                    *to += 1;
                }
            }
            for (j, i, x) in &banded {
                let to = &mut next[*j as usize];
                (index[*to], value[*to]) = (*i, *x);
                *to += 1;
            }
        }
        Ok(Self::new(value, index, start))
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
        let block = |first| self.transposed(first..n.min(first + rows), columns, watch);
        Ok(Blocks {
            rows,
            by_column: (0..n).step_by(rows).map(block).collect::<Result<_>>()?,
        })
    }
}
