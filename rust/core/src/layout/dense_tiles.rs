//! Tiles of dense rows against all weights, as matrix products: `scores = rows W^T` and
//! `W += coefficients^T rows`.

use crate::error::Result;
use crate::linalg::gemm::Product;
use crate::rows::shuffled::Store;
use crate::rows::view::RowBuffer;
use crate::runtime::memory::{reserve, resize};
use crate::simd::{Real, Simd, add_scaled};
use std::ops::Range;

/// Sums kept apart, to break the dependency of one addition on the last.
const CHAINS: usize = 4;

/// Room for one tile.
#[derive(Debug, Clone, Default)]
pub struct TileScratch<T> {
    /// Scores, then coefficients: one number a row and score.
    pub scores: Vec<T>,
    /// Rows in this precision, where they are stored in another.
    rows: Vec<T>,
    /// One row made on the fly.
    buffer: RowBuffer,
}

/// Dense rows, one row of weights a score.
#[derive(Debug, Clone, Copy)]
pub struct DenseTiles {
    scores: usize,
    columns: usize,
}

/// Entries of a dense tile: half a second-level cache of a megabyte in double precision.
const DENSE_TILE_ENTRIES: usize = 1 << 16;

impl DenseTiles {
    /// Layout for `scores` x `columns`.
    pub fn new(scores: usize, columns: usize) -> Self {
        Self { scores, columns }
    }
}

/// The rows of a dense tile in precision `T`, copied only where they are stored otherwise.
fn dense_rows<'a, T: Product>(
    store: &'a Store<'_>,
    rows: Range<usize>,
    columns: usize,
    scratch: &'a mut Vec<T>,
    buffer: &mut RowBuffer,
    fill: bool,
) -> Result<&'a [T]> {
    if let Store::Dense { value, .. } = store
        && let Some(slice) = T::borrow(&value[rows.start * columns..rows.end * columns])
    {
        return Ok(slice);
    }
    if fill {
        scratch.clear();
        reserve(scratch, rows.len() * columns)?;
        buffer.value.clear();
        reserve(&mut buffer.value, columns)?;
        for at in rows {
            let row = store.row(at, buffer);
            scratch.extend(row.value.iter().map(|x| T::near(f64::from(*x))));
        }
    }
    Ok(scratch)
}

impl DenseTiles {
    /// Numbers stored for all weights.
    pub fn stored(&self) -> usize {
        self.scores * self.columns
    }

    /// Where weight `(score, column)` is stored.
    pub fn position(&self, score: usize, column: usize) -> usize {
        score * self.columns + column
    }

    /// Rows of a tile.
    pub fn tile(&self) -> usize {
        (DENSE_TILE_ENTRIES / self.columns.max(1)).clamp(8, 512)
    }

    /// The scores of `rows`, into `scratch.scores`.
    ///
    /// # Errors
    /// No memory.
    #[inline(always)]
    pub fn scores<S: Simd, T: Real + Product>(
        &self,
        simd: S,
        store: &Store<'_>,
        rows: Range<usize>,
        w: &[T],
        scratch: &mut TileScratch<T>,
    ) -> Result<()> {
        let (n, k, d) = (rows.len(), self.scores, self.columns);
        resize(&mut scratch.scores, n * k)?;
        let x = dense_rows(store, rows, d, &mut scratch.rows, &mut scratch.buffer, true)?;
        if k == 1 {
            for (x, out) in x.chunks_exact(d.max(1)).zip(&mut scratch.scores) {
                *out = dense_dot(simd, x, w);
            }
        } else {
            T::times_transposed(x, w, &mut scratch.scores, (n, d, k));
        }
        Ok(())
    }

    /// `w += coefficients^T rows` for the tile that [`Self::scores`] has just seen.
    ///
    /// # Errors
    /// No memory.
    #[inline(always)]
    pub fn accumulate<S: Simd, T: Real + Product>(
        &self,
        simd: S,
        store: &Store<'_>,
        rows: Range<usize>,
        w: &mut [T],
        scratch: &mut TileScratch<T>,
    ) -> Result<()> {
        let (n, k, d) = (rows.len(), self.scores, self.columns);
        let x = dense_rows(
            store,
            rows,
            d,
            &mut scratch.rows,
            &mut scratch.buffer,
            false,
        )?;
        if k == 1 {
            for (x, coefficient) in x.chunks_exact(d.max(1)).zip(&scratch.scores) {
                if *coefficient != T::default() {
                    add_scaled(simd, w, *coefficient, x);
                }
            }
        } else {
            T::add_transposed_times(&scratch.scores, x, w, (n, k, d));
        }
        Ok(())
    }

    /// Bound on the number of roundings that a term of one score goes through.
    pub fn score_depth(&self) -> f64 {
        // Whatever the order of the sum, fused or not.
        (self.columns + 2) as f64
    }
}

/// `<x, w>` of dense slices.
#[inline(always)]
fn dense_dot<S: Simd, T: Real>(simd: S, x: &[T], w: &[T]) -> T {
    let w = &w[..x.len()];
    let (x, x_rest) = T::vectors::<S>(x);
    let (w, w_rest) = T::vectors::<S>(w);
    let zero = T::splat(simd, T::default());
    let mut sums = [zero; CHAINS];
    let (x_chunks, x_over) = x.as_chunks::<CHAINS>();
    let (w_chunks, w_over) = w.as_chunks::<CHAINS>();
    for (x, w) in x_chunks.iter().zip(w_chunks) {
        for chain in 0..CHAINS {
            sums[chain] = T::fma(simd, x[chain], w[chain], sums[chain]);
        }
    }
    for (chain, (x, w)) in x_over.iter().zip(w_over).enumerate() {
        sums[chain] = T::fma(simd, *x, *w, sums[chain]);
    }
    if !x_rest.is_empty() {
        let x = T::load_part(simd, x_rest);
        sums[3] = T::fma(simd, x, T::load_part(simd, w_rest), sums[3]);
    }
    let low = T::add(simd, sums[0], sums[1]);
    T::sum(simd, T::add(simd, low, T::add(simd, sums[2], sums[3])))
}
