//! Features of a user's matrix.

use crate::error::{Result, require};
use crate::fourier::FourierMap;
use crate::fourier::circle::Phase;
use crate::fourier::lift::{LiftScratch, Prepared, TILE};
use crate::rows::view::{Columns, Rows, Values};
use crate::runtime::interrupt::Interrupt;
use crate::runtime::memory::{collected, mapped, reserve, resize};
use crate::runtime::tasks::each_row_part;
use crate::simd::{Kernel, Simd, dispatch};

/// Writes the features of every row into `out`, row after row, in the precision `T`.
///
/// The caller brings the memory, and the threads touch it first: for many short rows that takes
/// longer than the features.
///
/// # Errors
/// Rows of another length; room for another number of features; values not finite; threads out of
/// range; an interrupt.
pub fn transform<T: Phase>(
    map: &FourierMap,
    prepared: &Prepared<T>,
    rows: &Rows<'_>,
    out: &mut [T],
    n_threads: usize,
    interrupt: &dyn Interrupt,
) -> Result<()> {
    let outputs = map.outputs();
    rows.check_map(map.settings().features, outputs, out.len())?;
    let cost = (prepared.work(), n_threads);
    each_row_part((out, outputs), cost, interrupt, |first, out, _| {
        dispatch(RowsToMap {
            prepared,
            rows,
            first,
            out,
        })
    })
}

/// Some consecutive rows.
struct RowsToMap<'p, 'a, T> {
    prepared: &'p Prepared<T>,
    rows: &'p Rows<'a>,
    first: usize,
    out: &'p mut [T],
}

impl<T: Phase> Kernel for RowsToMap<'_, '_, T> {
    type Output = Result<()>;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> Result<()> {
        let (d, outputs) = (self.rows.n_columns(), self.prepared.outputs());
        let count = self.out.len() / outputs;
        let mut scratch = LiftScratch::default();
        let mut row: Vec<T> = Vec::new();
        if !self.rows.is_dense() {
            let outs = self.out.chunks_exact_mut(outputs);
            for (i, out) in (self.first..).zip(outs) {
                let (values, columns) = self.rows.stored(i);
                row.clear();
                reserve(&mut row, d)?;
                append(values, &mut row)?;
                let columns = match columns {
                    Columns::I32(c) => mapped(c, |c| *c as usize),
                    Columns::I64(c) => mapped(c, |c| *c as usize),
                    Columns::All => collected(0..d),
                }?;
                let entries = columns.iter().copied().zip(row.iter().copied());
                self.prepared
                    .sparse(simd, &entries, &mut scratch)?
                    .unit(out);
            }
            return Ok(());
        }
        reserve(&mut row, count.next_multiple_of(TILE) * d)?;
        for i in self.first..self.first + count {
            append(self.rows.stored(i).0, &mut row)?;
        }
        resize(&mut row, count.next_multiple_of(TILE) * d)?;
        let out = self.out;
        self.prepared
            .dense(simd, &row, count, &mut scratch, |i, features| {
                features.unit(&mut out[i * outputs..][..outputs]);
            })
    }
}

/// Appends the values in this precision.
#[inline(always)]
fn append<T: Phase>(values: Values<'_>, out: &mut Vec<T>) -> Result<()> {
    let first = out.len();
    match values {
        Values::F64(x) => out.extend(x.iter().map(|x| T::near(*x))),
        Values::F32(x) => out.extend(x.iter().map(|x| T::near(f64::from(*x)))),
    }
    // Zero for numbers, NaN otherwise.
    let poison: f64 = out[first..].iter().map(|x| x.wide() * 0.0).sum();
    let message = "contains NaN, infinity or a value out of range";
    require(poison == 0.0, "X", message)
}
