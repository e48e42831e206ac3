//! Linear transforms of the rows: `M u / ||M u||`, stored dense on the grid.
//!
//! A new row is a function of its own record and of M, see [`Packed`]. How well it is rounded decides
//! nothing: the norm is checked exactly afterwards.

use crate::error::{Result, require};
use crate::linalg::packed::{Packed, TILE_ROWS};
use crate::records::map::shorten;
use crate::records::store::{RecordRows, Records, made_rows};
use crate::runtime::interrupt::Interrupt;
use crate::runtime::memory::{matrix, zeros};
use crate::runtime::threads::{PARALLEL_ENTRIES, pool_above};
use crate::simd::{Kernel, Simd, dispatch};

impl Records {
    /// Replaces every effective row u by `M u / ||M u||`; where `M u` is zero the row is zero.
    ///
    /// `matrix` is `outputs x columns`, row after row. M is used in single precision, scaled by a
    /// power of two (which does not change the direction). Rows are dense afterwards and the
    /// centre is gone.
    ///
    /// # Errors
    /// A matrix of the wrong size, without rows or not finite; threads out of range; no memory; an
    /// interrupt. The records are unchanged then.
    pub fn transform(
        &mut self,
        matrix: &[f64],
        outputs: usize,
        n_threads: usize,
        interrupt: &dyn Interrupt,
    ) -> Result<()> {
        let message = format_args!("expected (d2, {}) with d2 at least 1", self.columns);
        let right = outputs != 0 && outputs.checked_mul(self.columns) == Some(matrix.len());
        require(right, "matrix", message)?;
        self.require_stored("a transform")?;
        let matrix = packed(matrix, outputs)?;
        let work = self.len().saturating_mul(self.columns * outputs / 8);
        let pool = pool_above(n_threads, work, PARALLEL_ENTRIES)?;
        let shape = (self.len(), outputs);
        let (value, norm) = made_rows(
            shape,
            (work, pool.as_deref()),
            interrupt,
            |first, norm, value| {
                dispatch(TransformRows {
                    records: self,
                    matrix: &matrix,
                    outputs,
                    first,
                    norm,
                    value,
                })
            },
        )?;
        self.rows = RecordRows::Dense { value };
        self.norm = norm;
        self.columns = outputs;
        self.centre = None;
        Ok(())
    }
}

/// The matrix in single precision, its largest entry scaled to about 1 by a power of two.
fn packed(matrix: &[f64], outputs: usize) -> Result<Packed<f32>> {
    let largest = matrix.iter().map(|m| m.abs()).fold(0.0, f64::max);
    let message = "contains NaN or infinity";
    require(matrix.iter().all(|m| m.is_finite()), "matrix", message)?;
    // Two factors, because one may be out of range.
    let exponent = -libm::frexp(largest).1;
    let (half, rest) = (exponent / 2, exponent - exponent / 2);
    let (half, rest) = (libm::ldexp(1.0, half), libm::ldexp(1.0, rest));
    let columns = matrix.len() / outputs;
    Packed::new((outputs, columns), &|output, column| {
        (matrix[output * columns + column] * half * rest) as f32
    })
}

/// Transforms consecutive rows.
struct TransformRows<'a> {
    records: &'a Records,
    matrix: &'a Packed<f32>,
    outputs: usize,
    first: usize,
    norm: &'a mut [f32],
    value: &'a mut [f32],
}

impl Kernel for TransformRows<'_> {
    type Output = Result<()>;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> Result<()> {
        let columns = self.records.columns;
        let rows = self.norm.len();
        let mut row: Vec<f32> = matrix(rows.next_multiple_of(TILE_ROWS), columns)?;
        for (at, row) in row.chunks_exact_mut(columns).take(rows).enumerate() {
            self.records.effective(self.first + at, 0..columns, row);
        }
        let mut product = Vec::new();
        self.matrix.multiply(simd, &row, rows, &mut product)?;
        let mut moved = zeros::<f32>(self.outputs)?;
        let mut z = zeros::<f64>(self.outputs)?;
        let outs = self.value.chunks_exact_mut(self.outputs);
        for (at, (norm, out)) in self.norm.iter_mut().zip(outs).enumerate() {
            self.matrix.collect(&product, (rows, at), &mut moved);
            z.iter_mut()
                .zip(&moved)
                .for_each(|(z, p)| *z = f64::from(*p));
            *norm = shorten(&z, f64::INFINITY, out)?;
        }
        Ok(())
    }
}
