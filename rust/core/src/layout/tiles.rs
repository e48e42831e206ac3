//! Tiles of rows against all weights: `scores = rows W^T` and `W += coefficients^T rows`; of dense rows
//! as matrix products.

use crate::error::Result;
use crate::layout::lines::{Lines, SPARE, depth, weighted_sum};
use crate::layout::weights::WeightLayout;
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
    /// The coefficients of one row, and zeros.
    padded: Vec<T>,
}

/// Tiles: of dense rows, with one row of weights a score, or of sparse ones, with a line a column.
#[derive(Debug, Clone, Copy)]
pub struct Tiles {
    scores: usize,
    columns: usize,
    dense: bool,
}

/// Entries of a dense tile: half a second-level cache of a megabyte in double precision.
const DENSE_TILE_ENTRIES: usize = 1 << 16;
/// Rows of a sparse tile: their entries stay near between the two products.
const SPARSE_TILE: usize = 32;

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
        for at in rows {
            let row = store.row(at, buffer);
            scratch.extend(row.value.iter().map(|x| T::near(f64::from(*x))));
        }
    }
    Ok(scratch)
}

impl Tiles {
    /// Layout for `scores` x `columns`.
    pub fn new(scores: usize, columns: usize, dense: bool) -> Self {
        Self {
            scores,
            columns,
            dense,
        }
    }

    /// Numbers stored for all weights.
    pub fn stored(&self) -> usize {
        let stored = self.scores.saturating_mul(self.columns);
        stored.saturating_add(if self.dense { 0 } else { SPARE })
    }

    /// Index of weight `(score, column)`.
    pub fn position(&self, score: usize, column: usize) -> usize {
        if self.dense {
            score * self.columns + column
        } else {
            column * self.scores + score
        }
    }

    /// Rows of a tile.
    pub fn tile(&self) -> usize {
        if !self.dense {
            return SPARSE_TILE;
        }
        (DENSE_TILE_ENTRIES / self.columns.max(1)).clamp(8, 512)
    }

    /// The scores of `rows`, into `scratch.scores`; 0 for sparse rows without weights.
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
        if scratch.buffer.value.capacity() == 0 {
            scratch.buffer = store.buffer()?;
        }
        if !self.dense && w.is_empty() {
            scratch.scores.fill(T::default());
            return Ok(());
        }
        if !self.dense {
            for (at, out) in rows.zip(scratch.scores.chunks_exact_mut(k)) {
                let row = store.row(at, &mut scratch.buffer);
                weighted_sum(simd, row, w, out);
            }
            return Ok(());
        }
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
        if !self.dense {
            let layout = Lines::new(k, d);
            resize(&mut scratch.padded, layout.padded_classes())?;
            for (at, own) in rows.zip(scratch.scores.chunks_exact(k)) {
                let row = store.row(at, &mut scratch.buffer);
                scratch.padded[..k].copy_from_slice(own);
                layout.add(simd, row, w, &scratch.padded);
            }
            return Ok(());
        }
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

    /// Bound on the number of roundings that a term of one score goes through, of rows with at most
    /// `longest` entries.
    pub fn score_depth(&self, longest: usize) -> f64 {
        if !self.dense {
            return depth(longest);
        }
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
