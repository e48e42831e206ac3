//! Exact sums of the columns and of their squares, after a public map of every entry to `[-1, 1]`.
//!
//! An entry x of column j becomes the integer `k = round(clip((x - offset_j) scale_j, -1, 1) 2^20)`
//! and the square `ceil(k^2 / 2^20)`: numbers in units of [`MOMENT_GRID`] that depend on that entry
//! and on public numbers alone. Their sums over fewer than `2^32` rows stay below `2^53`, so every
//! partial sum is exact in double precision, in any order and on any number of threads. The
//! argument that rests on this is in `docs/proofs/private_scaling.md` ("Moments from public
//! bounds").

use crate::error::{Result, require};
use crate::rows::view::{Columns, Rows, Values, either};
use crate::runtime::interrupt::Interrupt;
use crate::runtime::memory::zeros;
use crate::runtime::threads::{PARALLEL_ENTRIES, each_block, pool_above, share_out, waves};
use crate::simd::{Kernel, Simd, dispatch};
use std::ops::Range;

/// `2^-20`: the unit of both sums.
pub(crate) const MOMENT_GRID: f64 = 1.0 / 1_048_576.0;

/// Its inverse.
const UNITS: f64 = 1_048_576.0;

/// Sums of the columns of the mapped rows, in units of [`MOMENT_GRID`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnMoments {
    /// Sums of the entries.
    pub first: Vec<i64>,
    /// Sums of their squares, each rounded up to a whole unit.
    pub second: Vec<i64>,
}

/// The sums over all `rows` of the entries under the map `(x - offset) * scale`, clipped.
///
/// # Errors
/// `offset` or `scale` of another length than a row or with numbers that are not finite, `scale` not
/// positive; `2^32` or more rows; entries that are not finite; threads out of range; no memory; an interrupt.
pub fn column_moments(
    rows: &Rows<'_>,
    offset: &[f64],
    scale: &[f64],
    n_threads: usize,
    interrupt: &dyn Interrupt,
) -> Result<ColumnMoments> {
    let map = ColumnMap::new(offset, scale, rows.n_columns())?;
    let message = "more than 2^32 - 1 rows";
    require(u32::try_from(rows.n_rows()).is_ok(), "X", message)?;
    let pool = pool_above(n_threads, rows.n_stored(), PARALLEL_ENTRIES)?;
    let threads = pool.as_ref().map_or(1, |p| p.current_num_threads());
    let shares = (0..threads).map(|_| Share::new(map.offset.len()));
    let mut shares = shares.collect::<Result<Vec<_>>>()?;
    for wave in waves(rows.n_rows(), rows.n_stored(), threads) {
        share_out(&wave, &mut shares, |share| &mut share.range);
        each_block(pool.as_deref(), &mut shares, interrupt, |share| {
            dispatch(AddRows {
                rows,
                map: &map,
                share,
            });
            Ok(())
        })?;
    }
    joined(shares, &map, rows)
}

/// The public map, column by column.
struct ColumnMap<'a> {
    offset: &'a [f64],
    scale: &'a [f64],
}

impl<'a> ColumnMap<'a> {
    fn new(offset: &'a [f64], scale: &'a [f64], columns: usize) -> Result<Self> {
        for (name, values) in [("offset", offset), ("scale", scale)] {
            let message = format_args!("got {} numbers, expected {columns}", values.len());
            require(values.len() == columns, name, message)?;
            let message = "expected finite numbers";
            require(values.iter().all(|v| v.is_finite()), name, message)?;
        }
        let message = "expected positive numbers";
        require(scale.iter().all(|s| *s > 0.0), "scale", message)?;
        Ok(Self { offset, scale })
    }

    /// The entry x of column j in units of the grid, an integer of at most 20 bits and a sign.
    ///
    /// A difference that overflows is clipped, and `scale` is finite and positive: there is no NaN,
    /// which would wipe out the sum of a column.
    #[inline(always)]
    fn units(&self, j: usize, x: f64) -> f64 {
        let z = ((x - self.offset[j]) * self.scale[j]).clamp(-1.0, 1.0);
        // Adding 1.5 * 2^52 leaves the nearest integer in the last bits, on every processor.
        (z * UNITS + ROUNDING) - ROUNDING
    }
}

/// `1.5 * 2^52`.
const ROUNDING: f64 = 6_755_399_441_055_744.0;

/// The square of an entry in units, rounded up to a whole one.
#[inline(always)]
fn square(k: f64) -> f64 {
    // k * k is at most 2^40 and the product with a power of two exact.
    (k * k * MOMENT_GRID).ceil()
}

/// The sums of one thread.
struct Share {
    range: Range<usize>,
    first: Vec<f64>,
    second: Vec<f64>,
    /// Number of stored entries of each column.
    stored: Vec<u64>,
    /// Whether all entries were finite.
    finite: bool,
}

impl Share {
    fn new(columns: usize) -> Result<Self> {
        Ok(Self {
            range: 0..0,
            first: zeros(columns)?,
            second: zeros(columns)?,
            stored: zeros(columns)?,
            finite: true,
        })
    }
}

/// `share += rows of its range`.
struct AddRows<'s, 'a> {
    rows: &'s Rows<'a>,
    map: &'s ColumnMap<'s>,
    share: &'s mut Share,
}

impl Kernel for AddRows<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) {
        for i in self.share.range.clone() {
            let (values, columns) = self.rows.stored(i);
            either!(values, Values::F64 | Values::F32, (x) => {
                add_row(x, columns, self.map, self.share);
            });
        }
    }
}

#[inline(always)]
fn add_row<T: Copy + Into<f64>>(
    x: &[T],
    columns: Columns<'_>,
    map: &ColumnMap<'_>,
    share: &mut Share,
) {
    match columns {
        Columns::All => {
            // One length for all slices: the loop has no bounds checks and is made of vectors.
            let d = x.len();
            let map = ColumnMap {
                offset: &map.offset[..d],
                scale: &map.scale[..d],
            };
            let (first, second) = (&mut share.first[..d], &mut share.second[..d]);
            let mut finite = true;
            for j in 0..d {
                let value: f64 = x[j].into();
                finite &= value.is_finite();
                let k = map.units(j, value);
                first[j] += k;
                second[j] += square(k);
            }
            share.finite &= finite;
        }
        Columns::I32(_) | Columns::I64(_) => {
            columns.each(x, |j, x| share.add_entry(map, j, x.into()));
        }
    }
}

impl Share {
    #[inline(always)]
    fn add_entry(&mut self, map: &ColumnMap<'_>, j: usize, x: f64) {
        self.finite &= x.is_finite();
        let k = map.units(j, x);
        self.first[j] += k;
        self.second[j] += square(k);
        self.stored[j] += 1;
    }
}

/// All shares together, with the zeros that a CSR matrix does not store.
fn joined(shares: Vec<Share>, map: &ColumnMap<'_>, rows: &Rows<'_>) -> Result<ColumnMoments> {
    let d = map.offset.len();
    let (mut first, mut second) = (zeros::<i64>(d)?, zeros::<i64>(d)?);
    let mut stored = zeros::<u64>(d)?;
    for share in shares {
        require(share.finite, "X", "expected finite numbers")?;
        for j in 0..d {
            first[j] += share.first[j] as i64;
            second[j] += share.second[j] as i64;
            stored[j] += share.stored[j];
        }
    }
    if !rows.is_dense() {
        for j in 0..d {
            let k = map.units(j, 0.0);
            let absent = rows.n_rows() as i64 - stored[j] as i64;
            first[j] += absent * k as i64;
            second[j] += absent * square(k) as i64;
        }
    }
    Ok(ColumnMoments { first, second })
}
