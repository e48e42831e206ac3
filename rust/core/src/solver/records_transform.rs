//! Linear transforms of the rows: `M u / ||M u||`, stored dense on the grid.
//!
//! The entries of `M u` are summed column after column in one fixed order for every row, wherever it
//! lies and however many rows there are, so that a new row is a function of its own record and of M.
//! (A general matrix product promises no such thing: it may add in another order in the last rows of
//! a block.) How well they are rounded decides nothing: the norm is checked exactly afterwards.

use super::records::{RecordRows, Records, waves, workers};
use super::records_map::shorten;
use super::store::reserve;
use crate::error::{Error, Result};
use crate::parallel::{Interrupt, each_block};
use crate::simd::{Kernel, Real, Simd, dispatch};

/// Rows multiplied together.
const TILE_ROWS: usize = 4;

/// Vectors of outputs multiplied together.
const TILE_VECTORS: usize = 3;

/// Rows treated by one thread at a time.
const PART_ROWS: usize = 64;

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
        if outputs == 0 || outputs.checked_mul(self.columns) != Some(matrix.len()) {
            let message = format!("expected (d2, {}) with d2 at least 1", self.columns);
            return Err(Error::invalid("matrix", message));
        }
        let panels = dispatch(Pack { matrix, outputs })?;
        let work = self.len().saturating_mul(matrix.len() / 8);
        let pool = workers(n_threads, work)?;
        let threads = pool.as_ref().map_or(1, |p| p.current_num_threads());
        let mut value: Vec<f32> = Vec::new();
        let mut norm: Vec<f32> = Vec::new();
        reserve(&mut value, self.len().saturating_mul(outputs))?;
        reserve(&mut norm, self.len())?;
        for wave in waves(self.len(), work, threads) {
            value.resize(wave.end * outputs, 0.0);
            norm.resize(wave.end, 0.0);
            let blocks = value[wave.start * outputs..].chunks_mut(PART_ROWS * outputs);
            let norms = norm[wave.start..].chunks_mut(PART_ROWS);
            let firsts = wave.step_by(PART_ROWS);
            let mut parts: Vec<_> = firsts.zip(norms.zip(blocks)).map(|p| (p, Ok(()))).collect();
            each_block(pool.as_deref(), &mut parts, interrupt, |(part, outcome)| {
                let (first, (norm, value)) = part;
                *outcome = dispatch(TransformRows {
                    records: self,
                    panels: &panels,
                    outputs,
                    first: *first,
                    norm,
                    value,
                });
            })?;
            parts.into_iter().try_for_each(|part| part.1)?;
        }
        self.rows = RecordRows::Dense { value };
        self.norm = norm;
        self.columns = outputs;
        self.centre = None;
        Ok(())
    }
}

/// The matrix, cut for the kernel: for every panel of outputs, column after column, the panel's
/// entries of that column. The last panel is filled up with zeros.
struct Panels {
    value: Vec<f32>,
    width: usize,
}

/// Cuts a matrix into panels of whole vectors.
struct Pack<'a> {
    matrix: &'a [f64],
    outputs: usize,
}

impl Kernel for Pack<'_> {
    type Output = Result<Panels>;

    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) -> Result<Panels> {
        let largest = self.matrix.iter().map(|m| m.abs()).fold(0.0, f64::max);
        let finite = self.matrix.iter().all(|m| m.is_finite());
        if !finite {
            return Err(Error::invalid("matrix", "contains NaN or infinity"));
        }
        // The largest entry becomes about 1; two factors, because one may be out of range.
        let exponent = -libm::frexp(largest).1;
        let (half, rest) = (exponent / 2, exponent - exponent / 2);
        let (half, rest) = (libm::ldexp(1.0, half), libm::ldexp(1.0, rest));
        let width = TILE_VECTORS * S::F32_LANES;
        let columns = self.matrix.len() / self.outputs;
        let panels = self.outputs.div_ceil(width);
        let mut value = Vec::new();
        reserve(&mut value, panels * width * columns)?;
        for panel in 0..panels {
            for column in 0..columns {
                value.extend((panel * width..(panel + 1) * width).map(|output| {
                    let at = output * columns + column;
                    let entry = self.matrix.get(at).copied().unwrap_or(0.0);
                    (entry * half * rest) as f32
                }));
            }
        }
        Ok(Panels { value, width })
    }
}

/// Columns multiplied before the next rows are: a panel's share of them stays in the first cache.
const DEPTH: usize = 96;

/// Transforms consecutive rows.
struct TransformRows<'a> {
    records: &'a Records,
    panels: &'a Panels,
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
        let (rows, width) = (self.norm.len(), self.panels.width);
        let padded = rows.next_multiple_of(TILE_ROWS);
        let mut row = vec![0.0_f32; padded * columns];
        for (at, row) in row.chunks_exact_mut(columns).take(rows).enumerate() {
            self.records.effective(self.first + at, 0..columns, row);
        }
        let mut product = vec![0.0_f32; self.outputs.div_ceil(width) * padded * width];
        let panels = self.panels.value.chunks_exact(columns * width);
        for (panel, product) in panels.zip(product.chunks_exact_mut(padded * width)) {
            multiply(simd, panel, &row, columns, product);
        }
        let mut z = vec![0.0_f64; self.outputs];
        let outs = self.value.chunks_exact_mut(self.outputs);
        for (at, (norm, out)) in self.norm.iter_mut().zip(outs).enumerate() {
            let panels = product.chunks_exact(padded * width);
            for (z, product) in z.chunks_mut(width).zip(panels) {
                let product = &product[at * width..][..z.len()];
                z.iter_mut()
                    .zip(product)
                    .for_each(|(z, p)| *z = f64::from(*p));
            }
            *norm = shorten(&z, f64::INFINITY, out)?;
        }
        Ok(())
    }
}

/// `product += rows panel`, for rows in multiples of [`TILE_ROWS`].
#[inline(always)]
fn multiply<S: Simd>(simd: S, panel: &[f32], row: &[f32], columns: usize, product: &mut [f32]) {
    let (panel, _) = f32::vectors::<S>(panel);
    let (product, _) = f32::vectors_mut::<S>(product);
    for (depth, panel) in panel.chunks(DEPTH * TILE_VECTORS).enumerate() {
        let first = depth * DEPTH;
        let tiles = product.chunks_exact_mut(TILE_ROWS * TILE_VECTORS);
        for (tile, rows) in tiles.zip(row.chunks_exact(TILE_ROWS * columns)) {
            let length = panel.len() / TILE_VECTORS;
            let rows: [&[f32]; TILE_ROWS] =
                std::array::from_fn(|r| &rows[r * columns + first..][..length]);
            let mut sum = [[f32::splat(simd, 0.0); TILE_VECTORS]; TILE_ROWS];
            for (sum, tile) in sum.iter_mut().zip(tile.chunks_exact(TILE_VECTORS)) {
                sum.copy_from_slice(tile);
            }
            for (j, vectors) in panel.chunks_exact(TILE_VECTORS).enumerate() {
                for r in 0..TILE_ROWS {
                    let entry = f32::splat(simd, rows[r][j]);
                    for v in 0..TILE_VECTORS {
                        sum[r][v] = f32::fma(simd, entry, vectors[v], sum[r][v]);
                    }
                }
            }
            for (sum, tile) in sum.iter().zip(tile.chunks_exact_mut(TILE_VECTORS)) {
                tile.copy_from_slice(sum);
            }
        }
    }
}
