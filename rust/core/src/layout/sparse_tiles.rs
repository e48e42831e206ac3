//! Sparse rows: scores and sums along the non-zero entries.

use crate::layout::panels::Panels;
use crate::layout::tiles::{Design, TileScratch};
use crate::layout::weights::{TypedRow, WeightLayout, typed};
use crate::linalg::gemm::Product;
use crate::rows::shuffled::Store;
use crate::simd::{Real, Simd};
use std::ops::Range;

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
        scratch: &mut TileScratch<T>,
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
        scratch: &mut TileScratch<T>,
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
pub(super) fn sparse_dot<T: Product>(row: TypedRow<'_, T>, w: &[T]) -> T {
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
        scratch: &mut TileScratch<T>,
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
        scratch: &mut TileScratch<T>,
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
