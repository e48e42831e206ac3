//! Records in the form in which the private pipelines use them: rows of norm at most 1 on a grid.
//!
//! Every stored entry is a multiple of [`ROW_GRID`], so norms, sums and products are integers in
//! disguise and are computed without any rounding: a bound on one record is a bound on what the
//! program computed. The argument is in `docs/proofs/auto_pipeline.md` ("Exact sums").
//!
//! A row is a function of its own record and of public numbers alone. That includes the layout:
//! by default it follows the user's format, because one record could tip a choice made by density.

use crate::error::{Result, require};
use crate::records::lift::LiftedRows;
use crate::records::map::{MapPart, Prepared, Room, RowMap};
use crate::records::persons::Owners;
use crate::rows::labels::check_labels;
use crate::rows::sparse::SparseRows;
use crate::rows::view::{RowBuffer, Rows};
use crate::runtime::interrupt::Interrupt;
use crate::runtime::memory::{append_sparing, collected, mapped, with_capacity};
use crate::runtime::threads::{PARALLEL_ENTRIES, each_block, pool_above, waves};
use crate::simd::dispatch;
use rayon::ThreadPool;
use std::ops::Range;

/// `2^-20`: every stored entry and every coordinate of the centre is a multiple.
pub const ROW_GRID: f64 = 1.0 / 1_048_576.0;

/// Rows closer to the centre than this are not stretched to norm 1.
pub(crate) const MIN_DISTANCE: f64 = 1.0 / 16.0;

/// The stored entries, row after row.
#[derive(Debug)]
pub enum RecordRows {
    /// Every entry, in C order, no padding.
    Dense {
        /// Entries.
        value: Vec<f32>,
    },
    /// Non-zero entries with their columns.
    Sparse(SparseRows),
    /// Features of other rows, made when they are read.
    Lifted(LiftedRows),
}

/// A centre that the rows were moved to without storing the differences.
#[derive(Debug)]
pub struct Centre {
    /// Multiples of [`ROW_GRID`].
    pub point: Vec<f64>,
    /// One for each record, at most `1 / MIN_DISTANCE`, rounded down so that the effective row
    /// `factor (x - point)` has norm at most 1.
    pub factor: Vec<f32>,
}

/// Records ready for private sums and private descent; nothing computed from them may leave
/// without noise.
#[derive(Debug)]
pub struct Records {
    /// The entries.
    pub rows: RecordRows,
    /// Class of each record, below `n_classes`.
    pub label: Vec<u32>,
    /// Entries of one row.
    pub columns: usize,
    /// The centre, with sparse rows only: dense ones are rewritten.
    pub centre: Option<Centre>,
    /// Upper bound of the norm of each effective row, at most 1.
    pub norm: Vec<f32>,
    /// Number of classes.
    pub n_classes: usize,
    /// Owners of the rows, and weights.
    pub owners: Owners,
}

/// Rows treated by one thread at a time.
pub(super) const PART_ROWS: usize = 128;

/// Parts for each thread between two looks at the interrupt.
const PARTS_PER_THREAD: usize = 4;

impl Records {
    /// The records of `rows` mapped by `map`, with classes `labels`.
    ///
    /// # Errors
    /// Labels or bounds out of range; a CSR matrix with an offset or with bounds that move zero;
    /// values not finite; no memory; an interrupt.
    pub fn new(
        rows: &Rows<'_>,
        map: &RowMap<'_>,
        labels: &[i64],
        n_classes: usize,
        n_threads: usize,
        interrupt: &dyn Interrupt,
    ) -> Result<Self> {
        require(rows.n_columns() != 0, "X", "has no features")?;
        let label = codes(labels, rows.n_rows(), n_classes)?;
        let map = Prepared::new(map, rows)?;
        let pool = pool_above(n_threads, rows.n_stored(), PARALLEL_ENTRIES)?;
        // The layout follows the format of X, a public fact: one record must not tip it.
        let (stored, norm) = if rows.is_dense() {
            let shape = (rows.n_rows(), map.columns());
            let read = (rows.n_stored(), pool.as_deref());
            let (value, norm) = made_rows(shape, read, interrupt, |first, norm, value| {
                dispatch(MapPart {
                    rows,
                    map: &map,
                    range: first..first + norm.len(),
                    norm,
                    room: Room::Dense(value),
                })
            })?;
            (RecordRows::Dense { value }, norm)
        } else {
            let (rows, norm) = sparse(rows, &map, pool.as_deref(), interrupt)?;
            (RecordRows::Sparse(rows), norm)
        };
        Ok(Self {
            rows: stored,
            label,
            columns: map.columns(),
            centre: None,
            norm,
            n_classes,
            owners: Owners::default(),
        })
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        self.label.len()
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.label.is_empty()
    }

    /// Number of stored entries.
    pub fn n_stored(&self) -> usize {
        match &self.rows {
            RecordRows::Dense { value } | RecordRows::Sparse(SparseRows { value, .. }) => {
                value.len()
            }
            RecordRows::Lifted(_) => 0,
        }
    }

    /// Refuses features that are not stored.
    ///
    /// # Errors
    /// Such records.
    pub(crate) fn require_stored(&self, what: &str) -> Result<()> {
        let message = format_args!("{what} of features that are not stored");
        let right = !matches!(self.rows, RecordRows::Lifted(_));
        require(right, "records", message)
    }
}

/// `shape` rows and columns with their norms, made a part at a time by `make(first row, norms, entries)`;
/// grown a wave at a time, so that they are written while in cache. Takes the entries to be read and
/// where to.
///
/// # Errors
/// The first error of `make`; no memory; an interrupt.
pub(super) fn made_rows(
    (n, columns): (usize, usize),
    (work, pool): (usize, Option<&ThreadPool>),
    interrupt: &dyn Interrupt,
    make: impl Fn(usize, &mut [f32], &mut [f32]) -> Result<()> + Sync + Send,
) -> Result<(Vec<f32>, Vec<f32>)> {
    let threads = pool.map_or(1, ThreadPool::current_num_threads);
    let mut value = with_capacity(n.saturating_mul(columns))?;
    let mut norm = with_capacity(n)?;
    for wave in waves(n, work, threads) {
        value.resize(wave.end * columns, 0.0);
        norm.resize(wave.end, 0.0);
        let blocks = value[wave.start * columns..].chunks_mut((PART_ROWS * columns).max(1));
        let norms = norm[wave.start..].chunks_mut(PART_ROWS);
        let parts = wave.step_by(PART_ROWS).zip(norms.zip(blocks));
        let mut parts = collected(parts)?;
        each_block(pool, &mut parts, interrupt, |(first, (norm, value))| {
            make(*first, norm, value)
        })?;
    }
    Ok((value, norm))
}

/// Labels as codes of classes.
fn codes(labels: &[i64], n_rows: usize, n_classes: usize) -> Result<Vec<u32>> {
    check_labels(labels, n_rows, n_classes)?;
    let message = "more than 2^32 - 1 rows or classes";
    require(u32::try_from(n_rows.max(n_classes)).is_ok(), "X", message)?;
    mapped(labels, |y| *y as u32)
}

/// Some sparse rows, mapped apart from the others.
#[derive(Default)]
struct SparsePart {
    range: Range<usize>,
    out: RowBuffer,
    start: Vec<usize>,
    norm: Vec<f32>,
}

/// Maps a wave at a time and joins its parts: no second copy of all rows. Returns their norms too.
fn sparse(
    rows: &Rows<'_>,
    map: &Prepared,
    pool: Option<&ThreadPool>,
    interrupt: &dyn Interrupt,
) -> Result<(SparseRows, Vec<f32>)> {
    let n = rows.n_rows();
    let threads = pool.map_or(1, ThreadPool::current_num_threads);
    let wave = PART_ROWS * PARTS_PER_THREAD * threads;
    let entries = n
        .saturating_mul(map.added())
        .saturating_add(rows.n_stored());
    let (mut value, mut index) = (with_capacity(entries)?, with_capacity(entries)?);
    let (mut norm, mut start) = (with_capacity(n)?, with_capacity(n + 1)?);
    start.push(0);
    for first in (0..n).step_by(wave) {
        let ends = (first..n.min(first + wave)).step_by(PART_ROWS);
        let mut parts: Vec<SparsePart> = ends
            .map(|first| SparsePart {
                range: first..n.min(first + PART_ROWS),
                ..SparsePart::default()
            })
            .collect();
        each_block(pool, &mut parts, interrupt, |part| {
            part.norm.resize(part.range.len(), 0.0);
            dispatch(MapPart {
                rows,
                map,
                range: part.range.clone(),
                norm: &mut part.norm,
                room: Room::Sparse(&mut part.out, &mut part.start),
            })
        })?;
        for part in parts {
            let before = value.len();
            append_sparing(&mut value, &part.out.value, before / 8)?;
            append_sparing(&mut index, &part.out.index, before / 8)?;
            start.extend(part.start.iter().map(|end| before + end));
            norm.extend(part.norm);
        }
    }
    value.shrink_to_fit();
    index.shrink_to_fit();
    Ok((SparseRows::new(value, index, start), norm))
}
