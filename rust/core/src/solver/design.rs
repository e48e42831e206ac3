//! Tiles of rows against all weights: `scores = rows W^T` and `W += coefficients^T rows`.
//!
//! Three layouts: [`SparsePanels`] and [`SparseSingle`] walk along the non-zero entries with the
//! loops of [`super::kernels`]; [`DenseTiles`] hands whole tiles to the `gemm` crate.

use super::kernels::{Panels, TypedRow, WeightLayout, typed};
use super::store::Store;
use crate::rows::RowBuffer;
use crate::simd::{Real, Simd, add_scaled};
use std::ops::Range;

/// Room for one tile.
#[derive(Debug, Clone, Default)]
pub struct Scratch<T> {
    /// Scores, then coefficients: `stride` numbers a row.
    pub scores: Vec<T>,
    rows: Vec<T>,
    typed: Vec<T>,
    buffer: RowBuffer,
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
        scratch: &mut Scratch<T>,
    );
    /// `w += coefficients^T rows` for the tile that `scores` has just seen.
    fn accumulate<S: Simd, T: Real + Product>(
        &self,
        simd: S,
        store: &Store<'_>,
        rows: Range<usize>,
        w: &mut [T],
        scratch: &mut Scratch<T>,
    );
    /// Bound on the number of roundings that a term of one score goes through.
    fn score_depth(&self, longest_row: usize) -> f64;
}

/// Feature-major panels for sparse rows.
#[derive(Debug, Clone, Copy)]
pub struct SparsePanels<const P: usize> {
    layout: Panels<P>,
    columns: usize,
}

impl<const P: usize> SparsePanels<P> {
    /// Layout for `scores` x `columns`.
    pub fn new(scores: usize, columns: usize) -> Self {
        let layout = Panels::new(scores, columns);
        Self { layout, columns }
    }
}

/// Rows of a sparse tile: they stay in the first-level cache between scores and accumulation.
const SPARSE_TILE: usize = 16;

impl<const P: usize> Design for SparsePanels<P> {
    fn stored(&self) -> usize {
        self.layout.stored()
    }

    fn stride(&self) -> usize {
        self.layout.padded_classes()
    }

    fn position(&self, score: usize, column: usize) -> usize {
        self.layout.position(score, column)
    }

    fn tile(&self) -> usize {
        SPARSE_TILE
    }

    #[inline(always)]
    fn scores<S: Simd, T: Real + Product>(
        &self,
        simd: S,
        store: &Store<'_>,
        rows: Range<usize>,
        w: &[T],
        scratch: &mut Scratch<T>,
    ) {
        let stride = self.stride();
        scratch.scores.resize(rows.len() * stride, T::default());
        for (at, out) in rows.zip(scratch.scores.chunks_exact_mut(stride)) {
            let row = typed(store.row(at, &mut scratch.buffer), &mut scratch.typed);
            self.layout.scores(simd, row, w, out);
        }
    }

    #[inline(always)]
    fn accumulate<S: Simd, T: Real + Product>(
        &self,
        simd: S,
        store: &Store<'_>,
        rows: Range<usize>,
        w: &mut [T],
        scratch: &mut Scratch<T>,
    ) {
        let stride = self.stride();
        for (at, coefficient) in rows.zip(scratch.scores.chunks_exact(stride)) {
            let row = typed(store.row(at, &mut scratch.buffer), &mut scratch.typed);
            self.layout.update(simd, row, w, coefficient);
        }
    }

    fn score_depth(&self, longest_row: usize) -> f64 {
        self.layout
            .score_depth(longest_row.min(self.columns), T_LANES)
    }
}

/// Any number of lanes: sparse sums do not run across them.
const T_LANES: usize = 1;

/// One score of sparse rows.
#[derive(Debug, Clone, Copy)]
pub struct SparseSingle {
    columns: usize,
}

impl SparseSingle {
    /// Layout for one score of `columns` weights.
    pub fn new(columns: usize) -> Self {
        Self { columns }
    }
}

/// Sums kept apart, to break the dependency of one addition on the last.
const CHAINS: usize = 4;

/// `<w, row>` of a sparse row.
#[inline(always)]
fn sparse_dot<T: Product>(row: TypedRow<'_, T>, w: &[T]) -> T {
    let mut sums = [T::default(); CHAINS];
    let (index, index_rest) = row.index.as_chunks::<CHAINS>();
    let (value, value_rest) = row.value.as_chunks::<CHAINS>();
    for (index, value) in index.iter().zip(value) {
        for chain in 0..CHAINS {
            sums[chain] = sums[chain].plus_product(value[chain], w[index[chain] as usize]);
        }
    }
    for (chain, (index, value)) in index_rest.iter().zip(value_rest).enumerate() {
        sums[chain] = sums[chain].plus_product(*value, w[*index as usize]);
    }
    let one = T::near(1.0);
    let low = sums[0].plus_product(one, sums[1]);
    low.plus_product(one, sums[2].plus_product(one, sums[3]))
}

impl Design for SparseSingle {
    fn stored(&self) -> usize {
        self.columns
    }

    fn stride(&self) -> usize {
        1
    }

    fn position(&self, _score: usize, column: usize) -> usize {
        column
    }

    fn tile(&self) -> usize {
        SPARSE_TILE
    }

    #[inline(always)]
    fn scores<S: Simd, T: Real + Product>(
        &self,
        _simd: S,
        store: &Store<'_>,
        rows: Range<usize>,
        w: &[T],
        scratch: &mut Scratch<T>,
    ) {
        scratch.scores.resize(rows.len(), T::default());
        for (at, out) in rows.zip(&mut scratch.scores) {
            let row = typed(store.row(at, &mut scratch.buffer), &mut scratch.typed);
            *out = sparse_dot(row, w);
        }
    }

    #[inline(always)]
    fn accumulate<S: Simd, T: Real + Product>(
        &self,
        _simd: S,
        store: &Store<'_>,
        rows: Range<usize>,
        w: &mut [T],
        scratch: &mut Scratch<T>,
    ) {
        for (at, coefficient) in rows.zip(&scratch.scores) {
            if *coefficient == T::default() {
                continue;
            }
            let row = typed(store.row(at, &mut scratch.buffer), &mut scratch.typed);
            for (index, value) in row.index.iter().zip(row.value) {
                let weight = &mut w[*index as usize];
                *weight = weight.plus_product(*coefficient, *value);
            }
        }
    }

    fn score_depth(&self, longest_row: usize) -> f64 {
        (longest_row / CHAINS + 5) as f64
    }
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
) -> &'a [T] {
    if let Store::Dense { value, .. } = store
        && let Some(slice) = T::borrow(&value[rows.start * columns..rows.end * columns])
    {
        return slice;
    }
    if fill {
        scratch.clear();
        for at in rows {
            let row = store.row(at, buffer);
            scratch.extend(row.value.iter().map(|x| T::near(f64::from(*x))));
        }
    }
    scratch
}

impl Design for DenseTiles {
    fn stored(&self) -> usize {
        self.scores * self.columns
    }

    fn stride(&self) -> usize {
        self.scores
    }

    fn position(&self, score: usize, column: usize) -> usize {
        score * self.columns + column
    }

    fn tile(&self) -> usize {
        (DENSE_TILE_ENTRIES / self.columns.max(1)).clamp(8, 512)
    }

    #[inline(always)]
    fn scores<S: Simd, T: Real + Product>(
        &self,
        simd: S,
        store: &Store<'_>,
        rows: Range<usize>,
        w: &[T],
        scratch: &mut Scratch<T>,
    ) {
        let (n, k, d) = (rows.len(), self.scores, self.columns);
        scratch.scores.resize(n * k, T::default());
        let x = dense_rows(store, rows, d, &mut scratch.rows, &mut scratch.buffer, true);
        if k == 1 {
            for (x, out) in x.chunks_exact(d.max(1)).zip(&mut scratch.scores) {
                *out = dense_dot(simd, x, w);
            }
        } else {
            T::times_transposed(x, w, &mut scratch.scores, (n, d, k));
        }
    }

    #[inline(always)]
    fn accumulate<S: Simd, T: Real + Product>(
        &self,
        simd: S,
        store: &Store<'_>,
        rows: Range<usize>,
        w: &mut [T],
        scratch: &mut Scratch<T>,
    ) {
        let (n, k, d) = (rows.len(), self.scores, self.columns);
        let x = dense_rows(
            store,
            rows,
            d,
            &mut scratch.rows,
            &mut scratch.buffer,
            false,
        );
        if k == 1 {
            for (x, coefficient) in x.chunks_exact(d.max(1)).zip(&scratch.scores) {
                if *coefficient != T::default() {
                    add_scaled(simd, w, *coefficient, x);
                }
            }
        } else {
            T::add_transposed_times(&scratch.scores, x, w, (n, k, d));
        }
    }

    fn score_depth(&self, _longest_row: usize) -> f64 {
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

/// What the designs need of a precision beyond [`Real`].
pub trait Product: Real {
    /// The slice itself where it already has this precision.
    fn borrow(x: &[f32]) -> Option<&[Self]>;
    /// `self + a * b`.
    #[must_use]
    fn plus_product(self, a: Self, b: Self) -> Self;
    /// `out = a b`, or `out += a b` if `keep`, `m x n` with inner dimension `k`.
    fn multiply(
        out: &mut [Self],
        keep: bool,
        a: Matrix<'_, Self>,
        b: Matrix<'_, Self>,
        shape: (usize, usize, usize),
    );

    /// `out = x w^T` with `x` n x d, `w` k x d.
    fn times_transposed(x: &[Self], w: &[Self], out: &mut [Self], shape: (usize, usize, usize)) {
        let (n, d, k) = shape;
        let (x, w) = (Matrix::plain(x), Matrix::transposed(w));
        Self::multiply(out, false, x, w, (n, k, d));
    }

    /// `w += c^T x` with `c` n x k, `x` n x d.
    fn add_transposed_times(c: &[Self], x: &[Self], w: &mut [Self], shape: (usize, usize, usize)) {
        let (n, k, d) = shape;
        let (c, x) = (Matrix::transposed(c), Matrix::plain(x));
        Self::multiply(w, true, c, x, (k, d, n));
    }
}

/// A matrix stored row after row, as it is or to be read as its transpose.
#[derive(Debug, Clone, Copy)]
pub struct Matrix<'a, T> {
    entries: &'a [T],
    transposed: bool,
}

impl<'a, T> Matrix<'a, T> {
    fn plain(entries: &'a [T]) -> Self {
        let transposed = false;
        Self {
            entries,
            transposed,
        }
    }

    fn transposed(entries: &'a [T]) -> Self {
        let transposed = true;
        Self {
            entries,
            transposed,
        }
    }

    /// Strides from column to column and from row to row of an `m x n` matrix.
    fn strides(&self, m: usize, n: usize) -> (isize, isize) {
        if self.transposed {
            (m as isize, 1)
        } else {
            (1, n as isize)
        }
    }
}

macro_rules! product {
    ($t:ident, |$x:ident| $borrow:expr) => {
        impl Product for $t {
            #[inline(always)]
            fn borrow($x: &[f32]) -> Option<&[Self]> {
                $borrow
            }

            #[inline(always)]
            fn plus_product(self, a: Self, b: Self) -> Self {
                a * b + self
            }

            fn multiply(
                out: &mut [Self],
                keep: bool,
                a: Matrix<'_, Self>,
                b: Matrix<'_, Self>,
                (m, n, k): (usize, usize, usize),
            ) {
                assert!(out.len() == m * n && a.entries.len() == m * k && b.entries.len() == k * n);
                let (a_column, a_row) = a.strides(m, k);
                let (b_column, b_row) = b.strides(k, n);
                // SAFETY: the strides describe row-major matrices whose sizes were just checked,
                // and `out` is borrowed exclusively.
                unsafe {
                    gemm::gemm(
                        m,
                        n,
                        k,
                        out.as_mut_ptr(),
                        1,
                        n as isize,
                        keep,
                        a.entries.as_ptr(),
                        a_column,
                        a_row,
                        b.entries.as_ptr(),
                        b_column,
                        b_row,
                        1.0,
                        1.0,
                        false,
                        false,
                        false,
                        gemm::Parallelism::None,
                    );
                }
            }
        }
    };
}

product!(f32, |x| Some(x));
product!(f64, |_x| None);
