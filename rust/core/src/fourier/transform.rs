//! Features of a user's matrix.

use crate::error::{Error, Result};
use crate::fourier::FourierMap;
use crate::fourier::circle::Phase;
use crate::fourier::lift::{LiftScratch, Prepared, TILE};
use crate::rows::view::{Columns, Rows, Values};
use crate::runtime::interrupt::Interrupt;
use crate::runtime::threads::{PARALLEL_WORK, each_block, pool_above};
use crate::simd::{Kernel, Simd, dispatch};
use rayon::ThreadPool;

/// Rows treated by one thread at a time.
const PART_ROWS: usize = 16;

/// Multiplications of one thread between two looks at the interrupt: some milliseconds.
const WAVE_WORK: usize = 1 << 25;

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
    let (d, outputs) = (map.settings().features, map.outputs());
    if rows.n_columns() != d {
        let message = format!("got rows of {}, expected {d}", rows.n_columns());
        return Err(Error::invalid("X", message));
    }
    if rows.n_rows().checked_mul(outputs) != Some(out.len()) {
        return Err(Error::invalid("out", "has room for another number of rows"));
    }
    let work = prepared.work().max(1);
    let pool = pool_above(n_threads, rows.n_rows().saturating_mul(work), PARALLEL_WORK)?;
    let threads = pool.as_ref().map_or(1, |pool| pool.current_num_threads());
    let wave = (WAVE_WORK / work)
        .next_multiple_of(PART_ROWS)
        .max(PART_ROWS)
        * threads;
    for (at, out) in out.chunks_mut(wave * outputs).enumerate() {
        transform_wave((prepared, rows), at * wave, out, pool.as_deref(), interrupt)?;
    }
    Ok(())
}

/// Rows from `first` on, as many as `out` has room for.
fn transform_wave<T: Phase>(
    (prepared, rows): (&Prepared<T>, &Rows<'_>),
    first: usize,
    out: &mut [T],
    pool: Option<&ThreadPool>,
    interrupt: &dyn Interrupt,
) -> Result<()> {
    let mut parts: Vec<_> = (first..)
        .step_by(PART_ROWS)
        .zip(out.chunks_mut(PART_ROWS * prepared.outputs()))
        .map(|(first, out)| (first, out, Ok(())))
        .collect();
    each_block(pool, &mut parts, interrupt, |part| {
        part.2 = dispatch(RowsToMap {
            prepared,
            rows,
            first: part.0,
            out: &mut *part.1,
        });
    })?;
    parts.into_iter().try_for_each(|part| part.2)
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
                append(values, &mut row)?;
                let columns: Vec<usize> = match columns {
                    Columns::I32(c) => c.iter().map(|c| *c as usize).collect(),
                    Columns::I64(c) => c.iter().map(|c| *c as usize).collect(),
                    Columns::All => (0..d).collect(),
                };
                let entries = columns.iter().copied().zip(row.iter().copied());
                self.prepared.sparse(simd, &entries, &mut scratch).unit(out);
            }
            return Ok(());
        }
        for i in self.first..self.first + count {
            append(self.rows.stored(i).0, &mut row)?;
        }
        row.resize(count.next_multiple_of(TILE) * d, T::default());
        let out = self.out;
        self.prepared
            .dense(simd, &row, count, &mut scratch, |i, features| {
                features.unit(&mut out[i * outputs..][..outputs]);
            });
        Ok(())
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
    // Zero for numbers, NaN for what is none.
    let poison: f64 = out[first..].iter().map(|x| x.wide() * 0.0).sum();
    if poison == 0.0 {
        return Ok(());
    }
    let message = "contains NaN, infinity or a value out of range";
    Err(Error::invalid("X", message))
}
