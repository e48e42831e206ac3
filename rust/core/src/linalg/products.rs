//! Products of rows with a matrix, each row by itself.

use crate::error::{Result, require};
use crate::linalg::packed::{Packed, TILE_ROWS};
use crate::runtime::interrupt::Interrupt;
use crate::runtime::memory;
use crate::runtime::threads::{PARALLEL_WORK, each_block, pool_above};
use crate::simd::{Kernel, Simd, dispatch};

/// Rows multiplied by one thread at a time.
const BLOCK_ROWS: usize = 64;

/// Multiplications of each thread between two looks at the interrupt: a few milliseconds.
const WAVE_WORK: usize = 1 << 24;

/// `rows * matrix`, where `rows` is `n x inner` and `matrix` is `inner x outputs`, row by row.
///
/// Every entry is summed over the inner index in ascending order, see [`Packed`]: a row of the result
/// is a function of one row and of the matrix, to the last bit, wherever it lies and however many
/// rows there are.
///
/// # Errors
/// Lengths that do not go together; threads out of range; no memory; an interrupt.
pub fn row_products(
    rows: &[f64],
    matrix: &[f64],
    inner: usize,
    n_threads: usize,
    interrupt: &dyn Interrupt,
) -> Result<Vec<f64>> {
    let whole = rows.len().is_multiple_of(inner) && matrix.len().is_multiple_of(inner);
    let message = format_args!("expected {inner} rows, as many as there are columns of the rows");
    require(inner != 0 && whole, "matrix", message)?;
    let (n, outputs) = (rows.len() / inner, matrix.len() / inner);
    let mut product = memory::matrix(n, outputs)?;
    let pool = pool_above(n_threads, n.saturating_mul(matrix.len()), PARALLEL_WORK)?;
    let packed = Packed::new((outputs, inner), &|j, k| matrix[k * outputs + j])?;
    let blocks = rows.chunks(BLOCK_ROWS * inner);
    let outs = product.chunks_mut((BLOCK_ROWS * outputs).max(1));
    let mut parts = memory::collected(blocks.zip(outs))?;
    let threads = pool.as_ref().map_or(1, |pool| pool.current_num_threads());
    let wave = (WAVE_WORK / (BLOCK_ROWS * matrix.len()).max(1)).max(1) * threads;
    for wave in parts.chunks_mut(wave) {
        each_block(pool.as_deref(), wave, interrupt, |(rows, out)| {
            dispatch(BlockProducts {
                rows,
                packed: &packed,
                inner,
                out,
            })
        })?;
    }
    Ok(product)
}

/// `out = rows * matrix`.
struct BlockProducts<'a> {
    rows: &'a [f64],
    packed: &'a Packed<f64>,
    inner: usize,
    out: &'a mut [f64],
}

impl Kernel for BlockProducts<'_> {
    type Output = Result<()>;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> Result<()> {
        let n = self.rows.len() / self.inner;
        let mut rows = memory::matrix(n.next_multiple_of(TILE_ROWS), self.inner)?;
        rows[..self.rows.len()].copy_from_slice(self.rows);
        let mut product = Vec::new();
        self.packed.multiply(simd, &rows, n, &mut product)?;
        let outputs = (self.out.len() / n.max(1)).max(1);
        for (i, out) in self.out.chunks_exact_mut(outputs).enumerate() {
            self.packed.collect(&product, (n, i), out);
        }
        Ok(())
    }
}
