//! Rows times a packed matrix, each row's sums in one fixed order.
//!
//! The entries of `M u` are summed column after column, for every row alike, wherever it lies and
//! however many rows there are: what comes out for a row is a function of that row and of M. (A
//! general matrix product promises no such thing: it may add in another order in the last rows of a
//! block.) A sparse row goes through the same sums, its zeros left out: they would change nothing.

use crate::error::Result;
use crate::runtime::memory::{resize, with_capacity};
use crate::simd::{Kernel, Real, Simd, dispatch};

/// Rows multiplied together.
pub const TILE_ROWS: usize = 4;

/// Vectors of outputs multiplied together.
const TILE_VECTORS: usize = 3;

/// Columns multiplied before the next rows are: a panel's share of them stays in the first cache.
const DEPTH: usize = 96;

/// A matrix, cut for the kernels: for every panel of outputs, column after column, the panel's
/// entries of that column. The last panel is filled up with zeros.
#[derive(Debug)]
pub struct Packed<T> {
    value: Vec<T>,
    width: usize,
    columns: usize,
    outputs: usize,
}

/// Cuts a matrix into panels of whole vectors.
struct Pack<'a, T> {
    shape: (usize, usize),
    entry: &'a dyn Fn(usize, usize) -> T,
}

impl<T: Real> Kernel for Pack<'_, T> {
    type Output = Result<Packed<T>>;

    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) -> Result<Packed<T>> {
        let (outputs, columns) = self.shape;
        let width = TILE_VECTORS * T::lanes::<S>();
        let panels = outputs.div_ceil(width);
        let size = panels.saturating_mul(width).saturating_mul(columns);
        let mut value = with_capacity(size)?;
        for panel in 0..panels {
            for column in 0..columns {
                value.extend((panel * width..(panel + 1) * width).map(|output| {
                    if output < outputs {
                        (self.entry)(output, column)
                    } else {
                        T::default()
                    }
                }));
            }
        }
        Ok(Packed {
            value,
            width,
            columns,
            outputs,
        })
    }
}

impl<T: Real> Packed<T> {
    /// The matrix of `shape` (outputs, columns) with the entries `entry(output, column)`.
    ///
    /// # Errors
    /// No memory.
    pub fn new(shape: (usize, usize), entry: &dyn Fn(usize, usize) -> T) -> Result<Self> {
        dispatch(Pack { shape, entry })
    }

    /// Outputs, padded to whole panels.
    pub fn padded(&self) -> usize {
        self.outputs.div_ceil(self.width) * self.width
    }

    /// Overwrites `product` with the products of `rows` rows, which lie one after the other in `row`
    /// and are padded with rows of anything to a multiple of [`TILE_ROWS`].
    ///
    /// The product of row r lies in pieces, see [`Self::piece`].
    ///
    /// # Errors
    /// No memory.
    #[inline(always)]
    pub fn multiply<S: Simd>(
        &self,
        simd: S,
        row: &[T],
        rows: usize,
        product: &mut Vec<T>,
    ) -> Result<()> {
        let padded = rows.next_multiple_of(TILE_ROWS);
        product.clear();
        resize(product, self.padded() * padded)?;
        let panels = self.value.chunks_exact((self.columns * self.width).max(1));
        let products = product.chunks_exact_mut((padded * self.width).max(1));
        for (panel, product) in panels.zip(products) {
            multiply_panel(simd, panel, row, self.columns, product);
        }
        Ok(())
    }

    /// [`Self::multiply`] for one sparse row, whose columns increase.
    ///
    /// # Errors
    /// No memory.
    #[inline(always)]
    pub fn multiply_sparse<S: Simd>(
        &self,
        simd: S,
        entries: &(impl Iterator<Item = (usize, T)> + Clone),
        product: &mut Vec<T>,
    ) -> Result<()> {
        product.clear();
        resize(product, self.padded() * TILE_ROWS)?;
        let panels = self.value.chunks_exact((self.columns * self.width).max(1));
        let products = product.chunks_exact_mut((TILE_ROWS * self.width).max(1));
        for (panel, product) in panels.zip(products) {
            let (sums, _) = T::vectors_mut::<S>(&mut product[..self.width]);
            for (column, x) in entries.clone() {
                let x = T::splat(simd, x);
                let line = T::vectors::<S>(&panel[column * self.width..][..self.width]).0;
                for (sum, m) in sums.iter_mut().zip(line) {
                    *sum = T::fma(simd, x, *m, *sum);
                }
            }
        }
        Ok(())
    }

    /// Outputs `at..` of row `row`, as many as lie together, out of a product of `rows` rows.
    #[inline(always)]
    pub fn piece<'p>(&self, product: &'p [T], rows: usize, row: usize, at: usize) -> &'p [T] {
        let padded = rows.next_multiple_of(TILE_ROWS);
        let start = at / self.width * padded * self.width + row * self.width;
        let length = self.width.min(self.outputs - at);
        &product[start..start + length]
    }

    /// Outputs of one row one after the other.
    #[inline(always)]
    pub fn collect(&self, product: &[T], (rows, row): (usize, usize), out: &mut [T]) {
        let width = self.width.max(1);
        for (at, out) in out[..self.outputs].chunks_mut(width).enumerate() {
            out.copy_from_slice(self.piece(product, rows, row, at * width));
        }
    }
}

/// `product += rows panel`, for rows in multiples of [`TILE_ROWS`].
#[inline(always)]
fn multiply_panel<S: Simd, T: Real>(
    simd: S,
    panel: &[T],
    row: &[T],
    columns: usize,
    product: &mut [T],
) {
    let (panel, _) = T::vectors::<S>(panel);
    let (product, _) = T::vectors_mut::<S>(product);
    for (depth, panel) in panel.chunks(DEPTH * TILE_VECTORS).enumerate() {
        let first = depth * DEPTH;
        let tiles = product.chunks_exact_mut(TILE_ROWS * TILE_VECTORS);
        for (tile, rows) in tiles.zip(row.chunks_exact(TILE_ROWS * columns)) {
            let length = panel.len() / TILE_VECTORS;
            let rows: [&[T]; TILE_ROWS] =
                std::array::from_fn(|r| &rows[r * columns + first..][..length]);
            let mut sum = [[T::splat(simd, T::default()); TILE_VECTORS]; TILE_ROWS];
            for (sum, tile) in sum.iter_mut().zip(tile.chunks_exact(TILE_VECTORS)) {
                sum.copy_from_slice(tile);
            }
            for (j, vectors) in panel.chunks_exact(TILE_VECTORS).enumerate() {
                for r in 0..TILE_ROWS {
                    let entry = T::splat(simd, rows[r][j]);
                    for v in 0..TILE_VECTORS {
                        sum[r][v] = T::fma(simd, entry, vectors[v], sum[r][v]);
                    }
                }
            }
            for (sum, tile) in sum.iter().zip(tile.chunks_exact_mut(TILE_VECTORS)) {
                tile.copy_from_slice(sum);
            }
        }
    }
}
