//! From a user's record to a row on the grid.
//!
//! With `z = clip((x - offset) scale, low, high)` entrywise, and the constant behind it if there is
//! one, the row is `z / ||z||` (unit) or
//! `z min(1, data_norm / ||z||) / data_norm`, its entries then rounded towards zero to multiples
//! of the grid. Everything before that rounding is ordinary floating-point arithmetic, a function
//! of one record. The norm is checked afterwards on the integers `entry / grid`: their squares are
//! summed exactly in double precision (a sum of non-negative integers stays exact below 2^53, and
//! once beyond never comes back), and a row whose sum exceeds `1 / grid^2 = 2^40` is scaled
//! down. So the bound 1 does not rest on any analysis of rounding.

use crate::error::{Result, require};
use crate::records::store::ROW_GRID;
use crate::rows::clip::length;
use crate::rows::view::{Columns, RowBuffer, Rows, Values, either};
use crate::runtime::memory::{copied, filled, grow, reserve, resize};
use crate::simd::{Kernel, Simd, lane_sum};
use std::ops::Range;

/// The public map from a record to its row.
#[derive(Debug, Clone, Copy)]
pub struct RowMap<'a> {
    /// Subtracted from every record; `None` for 0. Only with dense matrices.
    pub offset: Option<&'a [f64]>,
    /// Multiplies every record; `None` for 1.
    pub scale: Option<&'a [f64]>,
    /// Least entry after scaling, or minus infinity.
    pub low: f64,
    /// Smallest entries by column, in place of `low`.
    pub floor: Option<&'a [f64]>,
    /// Largest entry after scaling, or infinity.
    pub high: f64,
    /// One more entry of every row, behind the others; 0 for none.
    pub constant: f64,
    /// Rows longer than this are scaled down to it, then all are divided by it; unused if `unit`.
    pub data_norm: f64,
    /// Whether every row is scaled to norm 1.
    pub unit: bool,
}

/// Largest magnitude of an offset or a scale: below it, `x - offset` of a finite x is finite.
const LARGEST: f64 = 1e100;

/// A map whose numbers have been checked.
pub(crate) struct Prepared {
    offset: Vec<f64>,
    scale: Vec<f64>,
    low: Vec<f64>,
    high: f64,
    /// Constant appended to a row: at most one entry.
    constant: Option<f64>,
    /// `1 / data_norm`, or infinity if `unit`.
    most: f64,
    plain: bool,
}

impl Prepared {
    /// Checks `map` against the matrix.
    pub(crate) fn new(map: &RowMap<'_>, rows: &Rows<'_>) -> Result<Self> {
        let columns = rows.n_columns();
        let offset = vector("offset", map.offset, columns, 0.0)?;
        let scale = vector("scale", map.scale, columns, 1.0)?;
        let high = map.high.clamp(-f64::MAX, f64::MAX);
        let least = map.low.clamp(-f64::MAX, f64::MAX);
        let low = vector("floor", map.floor, columns, least)?;
        let most = low.iter().fold(f64::MIN, |most, x| most.max(*x));
        let message = "expected low <= high";
        require(!map.low.is_nan() && most <= high, "low", message)?;
        let message = format_args!("got {:e}, expected 0 to {LARGEST:e}", map.constant);
        require((0.0..=LARGEST).contains(&map.constant), "constant", message)?;
        let message = "a CSR matrix needs low <= 0 <= high and no offset: zeros stay zeros";
        let right = rows.is_dense() || (map.offset.is_none() && most <= 0.0 && high >= 0.0);
        require(right, "low", message)?;
        let message = format_args!("got {:e}, expected 1e-100 to 1e100", map.data_norm);
        let right = map.unit || (1e-100..=1e100).contains(&map.data_norm);
        require(right, "data_norm", message)?;
        let free = map.low == f64::NEG_INFINITY && map.high == f64::INFINITY;
        let moved = map.offset.is_some() || map.scale.is_some() || map.floor.is_some();
        Ok(Self {
            plain: free && !moved,
            constant: (map.constant > 0.0).then_some(map.constant),
            offset,
            scale,
            low,
            high,
            most: if map.unit {
                f64::INFINITY
            } else {
                1.0 / map.data_norm
            },
        })
    }

    #[inline(always)]
    fn entry(&self, x: f64, column: usize) -> f64 {
        let z = (x - self.offset[column]) * self.scale[column];
        let low = self.low[column];
        let z = if z < low { low } else { z };
        if z > self.high { self.high } else { z }
    }

    /// Number of columns, the constant one included.
    pub(crate) fn columns(&self) -> usize {
        self.scale.len() + self.added()
    }

    /// Number of constants added.
    pub(crate) fn added(&self) -> usize {
        usize::from(self.constant.is_some())
    }

    /// Writes `z` for the stored entries `x`.
    #[inline(always)]
    fn fill<T: Copy + Into<f64>>(&self, x: &[T], columns: Columns<'_>, z: &mut Vec<f64>) {
        if self.plain {
            z.extend(x.iter().map(|x| -> f64 { (*x).into() }));
            return;
        }
        match columns {
            Columns::All => {
                let (offset, scale) = (&self.offset[..x.len()], &self.scale[..x.len()]);
                let pairs = x.iter().zip(offset.iter().zip(scale));
                z.extend(pairs.zip(&self.low).map(|((x, (offset, scale)), low)| {
                    let z = ((*x).into() - offset) * scale;
                    let z = if z < *low { *low } else { z };
                    if z > self.high { self.high } else { z }
                }));
            }
            Columns::I32(c) => {
                let pairs = x.iter().zip(c);
                z.extend(pairs.map(|(x, c)| self.entry((*x).into(), *c as usize)));
            }
            Columns::I64(c) => {
                let pairs = x.iter().zip(c);
                z.extend(pairs.map(|(x, c)| self.entry((*x).into(), *c as usize)));
            }
        }
    }
}

fn vector(
    name: &'static str,
    values: Option<&[f64]>,
    columns: usize,
    default: f64,
) -> Result<Vec<f64>> {
    let Some(values) = values else {
        return filled(columns, default);
    };
    let message = format_args!("got {} entries, expected {columns}", values.len());
    require(values.len() == columns, name, message)?;
    let message = "expected entries from -1e100 to 1e100";
    require(values.iter().all(|v| v.abs() <= LARGEST), name, message)?;
    copied(values)
}

/// Room for one row on its way.
#[derive(Default)]
pub(crate) struct MapScratch {
    z: Vec<f64>,
    row: Vec<f32>,
}

/// Maps the stored entries of row `i` into `scratch.row`; returns the upper bound of the norm.
#[inline(always)]
fn map_row(rows: &Rows<'_>, map: &Prepared, i: usize, scratch: &mut MapScratch) -> Result<f32> {
    let (values, columns) = rows.stored(i);
    let entries = map.added() + rows.range(i).len();
    scratch.z.clear();
    reserve(&mut scratch.z, entries)?;
    let finite = either!(values, Values::F64 | Values::F32, (x) => {
        map.fill(x, columns, &mut scratch.z);
        all_finite(x)
    });
    require(finite, "X", "contains NaN or infinity")?;
    let MapScratch { z, row } = scratch;
    z.extend(map.constant);
    resize(row, entries)?;
    shorten(z, map.most, row)
}

/// Writes `z min(most, 1 / ||z||)`, rounded towards zero to the grid, into `row`; returns the upper
/// bound of its norm, at most 1.
///
/// # Errors
/// A value that is not finite.
#[inline(always)]
pub(crate) fn shorten(z: &[f64], most: f64, row: &mut [f32]) -> Result<f32> {
    let Some((coarse, norm)) = length::<_, f64>(z)? else {
        row.fill(0.0);
        return Ok(0.0);
    };
    let factor = (most / coarse).min(1.0 / norm);
    // First a hair too long, so that rounding errors do not push exact values below a multiple of
    // the grid; almost every row is then short enough after rounding towards zero.
    for slack in [1.0 + 1.0 / (1_u64 << 44) as f64, 1.0 - ROW_GRID, 0.5] {
        let square = quantise(z, coarse, factor * slack, row);
        if square <= 1.0 / (ROW_GRID * ROW_GRID) {
            return Ok(norm_above(square));
        }
    }
    row.fill(0.0);
    Ok(0.0)
}

/// Rounds `z coarse factor` to the grid, towards zero; returns the exact sum of the squares of
/// `entry / grid`, or a number above 2^53.
#[inline(always)]
fn quantise(z: &[f64], coarse: f64, factor: f64, row: &mut [f32]) -> f64 {
    let factor = factor / ROW_GRID;
    lane_sum(z, &mut row[..z.len()], |z, x| {
        let whole = (z * coarse * factor).trunc();
        *x = (whole * ROW_GRID) as f32;
        whole * whole
    })
}

/// The least single-precision number whose square is at least `square grid^2`.
#[inline(always)]
pub(crate) fn norm_above(square: f64) -> f32 {
    let exact = square * ROW_GRID * ROW_GRID;
    let near = exact.sqrt() as f32;
    // The square of a single-precision number is exact in double precision.
    if f64::from(near) * f64::from(near) < exact {
        near.next_up()
    } else {
        near
    }
}

/// Whether no entry is NaN or infinite.
#[inline(always)]
fn all_finite<T: Copy + Into<f64>>(x: &[T]) -> bool {
    // Without an early end, so that the compiler vectorises.
    x.iter().fold(true, |all, x| all & (*x).into().is_finite())
}

/// Destination of one part of the rows.
pub(crate) enum Room<'p> {
    /// Rows that are dense, one after the other.
    Dense(&'p mut [f32]),
    /// The non-zero entries, appended, and the ends of the rows.
    Sparse(&'p mut RowBuffer, &'p mut Vec<usize>),
}

/// Maps consecutive rows.
pub(crate) struct MapPart<'p, 'a> {
    pub rows: &'p Rows<'a>,
    pub map: &'p Prepared,
    pub range: Range<usize>,
    pub norm: &'p mut [f32],
    pub room: Room<'p>,
}

impl Kernel for MapPart<'_, '_> {
    type Output = Result<()>;

    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) -> Result<()> {
        let mut scratch = MapScratch::default();
        let mut room = self.room;
        for (at, i) in self.range.enumerate() {
            self.norm[at] = map_row(self.rows, self.map, i, &mut scratch)?;
            let (_, columns) = self.rows.stored(i);
            match &mut room {
                Room::Dense(value) => {
                    let width = scratch.row.len();
                    value[at * width..][..width].copy_from_slice(&scratch.row);
                }
                Room::Sparse(out, ends) => {
                    grow(&mut out.value, scratch.row.len())?;
                    grow(&mut out.index, scratch.row.len())?;
                    let mut keep = |column: usize, value: f32| {
                        if value != 0.0 {
                            out.value.push(value);
                            out.index.push(column as u32);
                        }
                    };
                    let (stored, constant) = scratch.row.split_at(self.rows.range(i).len());
                    columns.each(stored, &mut keep);
                    for x in constant {
                        keep(self.rows.n_columns(), *x);
                    }
                    ends.push(out.value.len());
                }
            }
        }
        Ok(())
    }
}
