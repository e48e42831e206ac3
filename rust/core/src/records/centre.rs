//! Rows seen from a centre: `(x - m) / max(||x - m||, 1/16)`.
//!
//! With the centre on the grid and of norm at most [`LARGEST_CENTRE`], `||x - m||^2 / grid^2` is a sum
//! of squares of integers below 2^53: exact in double precision. The factor `1 / max(...)` is rounded
//! down to single precision, and its product with a coordinate of `x - m` has at most 53 bits:
//! exact too. So the rounding towards zero that follows never lengthens a row, and both layouts
//! have the same effective rows, bit for bit.

use crate::error::{Result, require};
use crate::records::map::norm_above;
use crate::records::store::{Centre, MIN_DISTANCE, PART_ROWS, ROW_GRID, RecordRows, Records};
use crate::rows::clip::towards_zero;
use crate::rows::view::Row;
use crate::runtime::interrupt::Interrupt;
use crate::runtime::memory::{collected, mapped, zeros};
use crate::runtime::threads::{PARALLEL_ENTRIES, each_block, pool_above, waves};
use crate::simd::{Kernel, Simd, dispatch, lane_sum};
use std::ops::Range;

/// Largest norm of a centre: `(64 + 1)^2 2^40 < 2^53`. Rows have norm at most 1, so a caller loses
/// nothing by projecting a noisy mean on the unit ball first.
pub const LARGEST_CENTRE: f64 = 64.0;

impl Records {
    /// Moves the centre to `point`, rounded to the grid.
    ///
    /// Dense rows are rewritten; sparse ones stay, and the centre is kept beside them. After an
    /// interrupt some rows are moved and others not: such records must be thrown away.
    ///
    /// # Errors
    /// A point of the wrong length, not finite or of norm above [`LARGEST_CENTRE`]; sparse records
    /// that have a centre; threads out of range; no memory; an interrupt.
    pub fn centre(
        &mut self,
        point: &[f64],
        n_threads: usize,
        interrupt: &dyn Interrupt,
    ) -> Result<()> {
        require(self.centre.is_none(), "records", "centred already")?;
        self.require_stored("a centre")?;
        let point = self.check_point(point)?;
        let pool = pool_above(n_threads, self.n_stored(), PARALLEL_ENTRIES)?;
        let threads = pool.as_ref().map_or(1, |p| p.current_num_threads());
        let sparse = matches!(self.rows, RecordRows::Sparse(_));
        let mut factor = zeros(if sparse { self.len() } else { 0 })?;
        for wave in waves(self.len(), self.n_stored(), threads) {
            let norms = self.norm[wave.clone()].chunks_mut(PART_ROWS);
            match &mut self.rows {
                RecordRows::Dense { value } => {
                    let block = PART_ROWS * self.columns.max(1);
                    let blocks = value[wave.start * self.columns..].chunks_mut(block);
                    let mut parts = collected(norms.zip(blocks))?;
                    each_block(pool.as_deref(), &mut parts, interrupt, |(norm, value)| {
                        let point = &point;
                        dispatch(MoveRows { point, norm, value });
                        Ok(())
                    })?;
                }
                RecordRows::Sparse(rows) => {
                    let own = point.iter().map(|m| squared(m / ROW_GRID)).sum();
                    let factors = factor[wave.clone()].chunks_mut(PART_ROWS);
                    let firsts = wave.step_by(PART_ROWS);
                    let mut parts = collected(firsts.zip(norms.zip(factors)))?;
                    each_block(pool.as_deref(), &mut parts, interrupt, |part| {
                        let (first, (norm, factor)) = part;
                        for (i, (norm, factor)) in
                            (*first..).zip(norm.iter_mut().zip(&mut **factor))
                        {
                            let square = sparse_distance(rows.row(i), &point, own);
                            *factor = factor_below(square);
                            *norm = product_above(*factor, square);
                        }
                        Ok(())
                    })?;
                }
                // Refused before.
                RecordRows::Lifted(_) => {}
            }
        }
        if sparse {
            self.centre = Some(Centre { point, factor });
            self.owners.products.take();
        }
        Ok(())
    }

    /// The point on the grid.
    fn check_point(&self, point: &[f64]) -> Result<Vec<f64>> {
        let message = format_args!("got {} entries, expected {}", point.len(), self.columns);
        require(point.len() == self.columns, "point", message)?;
        let rounded = |m: &f64| (m / ROW_GRID).round_ties_even() * ROW_GRID;
        let rounded = mapped(point, rounded)?;
        let norm = rounded.iter().map(|m| squared(*m)).sum::<f64>().sqrt();
        let message =
            format_args!("expected finite entries and a norm of at most {LARGEST_CENTRE}");
        require(norm <= LARGEST_CENTRE, "point", message)?;
        Ok(rounded)
    }

    /// Columns `columns` of the effective row of record `i`, rounded towards zero to the grid.
    #[inline(always)]
    pub(crate) fn effective<T: Copy + From<f32>>(
        &self,
        i: usize,
        columns: Range<usize>,
        out: &mut [T],
    ) {
        match &self.rows {
            RecordRows::Dense { value } => {
                let row = &value[i * self.columns..][columns];
                out.iter_mut().zip(row).for_each(|(o, v)| *o = T::from(*v));
            }
            RecordRows::Sparse(rows) => {
                let Row { value, index } = rows.row(i);
                let from = index.partition_point(|j| (*j as usize) < columns.start);
                let to = index.partition_point(|j| (*j as usize) < columns.end);
                let entries = value[from..to].iter().zip(&index[from..to]);
                let Some(centre) = &self.centre else {
                    out.fill(T::from(0.0));
                    entries.for_each(|(x, j)| out[*j as usize - columns.start] = T::from(*x));
                    return;
                };
                let factor = f64::from(centre.factor[i]);
                let point = &centre.point[columns.clone()];
                for (o, m) in out.iter_mut().zip(point) {
                    *o = T::from(on_grid(-m, factor));
                }
                for (x, j) in entries {
                    let at = *j as usize - columns.start;
                    out[at] = T::from(on_grid(f64::from(*x) - point[at], factor));
                }
            }
            // Whoever reads rows this way has refused them.
            RecordRows::Lifted(_) => out.fill(T::from(0.0)),
        }
    }
}

/// `factor difference` towards zero to the grid; the product is exact.
#[inline(always)]
fn on_grid(difference: f64, factor: f64) -> f32 {
    ((difference * (factor / ROW_GRID)).trunc() * ROW_GRID) as f32
}

#[inline(always)]
fn squared(x: f64) -> f64 {
    x * x
}

/// `||x - m||^2 / grid^2` of a sparse row, exact: the centre's own, and what each non-zero changes in
/// it.
fn sparse_distance(row: Row<'_>, point: &[f64], own: f64) -> f64 {
    let mut square = own;
    for (x, j) in row.value.iter().zip(row.index) {
        let (x, m) = (f64::from(*x) / ROW_GRID, point[*j as usize] / ROW_GRID);
        square += x * (x - 2.0 * m);
    }
    square
}

/// `1 / max(distance, MIN_DISTANCE)` rounded down, for `square = distance^2 / grid^2`.
///
/// Square root and quotient each err by at most half a unit in the last place, which the last
/// factor takes back.
#[inline(always)]
fn factor_below(square: f64) -> f32 {
    let distance = square.sqrt() * ROW_GRID;
    if distance <= MIN_DISTANCE {
        // The squares of the grid's multiples are integers: the comparison is exact.
        return (1.0 / MIN_DISTANCE) as f32;
    }
    towards_zero(1.0 / distance * (1.0 - 4.0 * f64::EPSILON))
}

/// An upper bound of `factor distance`, at most 1.
fn product_above(factor: f32, square: f64) -> f32 {
    let product = f64::from(factor) * (square.sqrt() * ROW_GRID) * (1.0 + 4.0 * f64::EPSILON);
    let near = product as f32;
    let above = if f64::from(near) < product {
        near.next_up()
    } else {
        near
    };
    above.min(1.0)
}

/// Rewrites dense rows and their norms.
struct MoveRows<'a> {
    point: &'a [f64],
    norm: &'a mut [f32],
    value: &'a mut [f32],
}

impl Kernel for MoveRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) {
        let columns = self.point.len().max(1);
        for (norm, row) in self
            .norm
            .iter_mut()
            .zip(self.value.chunks_exact_mut(columns))
        {
            let factor = f64::from(factor_below(distance(row, self.point)));
            *norm = norm_above(move_row(row, self.point, factor));
        }
    }
}

/// Rewrites one row; returns the exact sum of the squares of `entry / grid`.
#[inline(always)]
fn move_row(row: &mut [f32], point: &[f64], factor: f64) -> f64 {
    lane_sum(point, row, |m, x| {
        *x = on_grid(f64::from(*x) - m, factor);
        squared(f64::from(*x) / ROW_GRID)
    })
}

/// `||x - m||^2 / grid^2`, exact.
#[inline(always)]
fn distance(row: &mut [f32], point: &[f64]) -> f64 {
    lane_sum(point, row, |m, x| squared((f64::from(*x) - m) / ROW_GRID))
}
