//! Tiles of rows against all weights: `scores = rows W^T` and `W += coefficients^T rows`.
//!
//! Three layouts: those of [`crate::layout::sparse_tiles`] walk along the non-zero entries, that of
//! [`crate::layout::dense_tiles`] hands whole tiles to the `gemm` crate.

use crate::linalg::gemm::Product;
use crate::rows::shuffled::Store;
use crate::rows::view::RowBuffer;
use crate::simd::{Real, Simd};
use std::ops::Range;

/// Room for one tile.
#[derive(Debug, Clone, Default)]
pub struct TileScratch<T> {
    /// Scores, then coefficients: `stride` numbers a row.
    pub scores: Vec<T>,
    /// Rows in this precision, where they are stored in another.
    pub rows: Vec<T>,
    /// One row in this precision.
    pub typed: Vec<T>,
    /// One row made on the fly.
    pub buffer: RowBuffer,
}

/// How the weights lie and how a tile meets them.
pub trait Design: Copy + Send + Sync {
    /// Numbers stored for all weights.
    fn stored(&self) -> usize;
    /// Numbers a row of scores takes.
    fn stride(&self) -> usize;
    /// Where weight `(score, column)` is stored.
    fn position(&self, score: usize, column: usize) -> usize;
    /// Rows of a tile.
    fn tile(&self) -> usize;
    /// The scores of `rows`, into `scratch.scores`; padding is written with zeros.
    fn scores<S: Simd, T: Real + Product>(
        &self,
        simd: S,
        store: &Store<'_>,
        rows: Range<usize>,
        w: &[T],
        scratch: &mut TileScratch<T>,
    );
    /// `w += coefficients^T rows` for the tile that `scores` has just seen.
    fn accumulate<S: Simd, T: Real + Product>(
        &self,
        simd: S,
        store: &Store<'_>,
        rows: Range<usize>,
        w: &mut [T],
        scratch: &mut TileScratch<T>,
    );
    /// Bound on the number of roundings that a term of one score goes through.
    fn score_depth(&self, longest_row: usize) -> f64;
}
