//! Weights feature-major, `[feature][class]`, with the classes padded to the vector width: a sparse row
//! touches whole vectors, with no horizontal sum and no gather.

use crate::layout::weights::{TypedRow, WeightLayout};
use crate::simd::{Real, Simd};

/// Feature-major panels of `P` classes.
#[derive(Debug, Clone, Copy)]
pub struct Panels<const P: usize> {
    columns: usize,
    panels: usize,
}

impl<const P: usize> Panels<P> {
    /// Layout for `classes` x `columns`.
    pub fn new(classes: usize, columns: usize) -> Self {
        Self {
            columns,
            panels: classes.div_ceil(P),
        }
    }
}

/// Columns of a dense row that is short enough for panels: it comes without them.
static ALL_COLUMNS: [u32; SHORT] = {
    let mut columns = [0; SHORT];
    let mut j = 0;
    while j < SHORT {
        columns[j] = j as u32;
        j += 1;
    }
    columns
};

/// Entries of a dense row that goes with panels, at most.
pub const SHORT: usize = 24;

/// A row with its columns.
#[inline(always)]
fn with_columns<'a, T>(row: &TypedRow<'a, T>) -> TypedRow<'a, T> {
    let index = if row.index.is_empty() {
        &ALL_COLUMNS[..row.value.len()]
    } else {
        row.index
    };
    TypedRow {
        index,
        value: row.value,
    }
}

/// Sums kept apart, to break the dependency of one addition on the last.
const CHAINS: usize = 4;

/// `V` vectors of a panel's scores, from vector `first` on.
#[inline(always)]
fn panel_scores<S: Simd, T: Real, const P: usize, const V: usize>(
    simd: S,
    row: TypedRow<'_, T>,
    w: &[[T; P]],
    first: usize,
    out: &mut [T],
) {
    let mut sums = [[T::splat(simd, T::default()); V]; CHAINS];
    let (index, index_rest) = row.index.as_chunks::<CHAINS>();
    let (value, value_rest) = row.value.as_chunks::<CHAINS>();
    for (index, value) in index.iter().zip(value) {
        for chain in 0..CHAINS {
            let weights = T::vectors::<S>(&w[index[chain] as usize]).0;
            let x = T::splat(simd, value[chain]);
            for v in 0..V {
                sums[chain][v] = T::fma(simd, x, weights[first + v], sums[chain][v]);
            }
        }
    }
    for (index, value) in index_rest.iter().zip(value_rest) {
        let weights = T::vectors::<S>(&w[*index as usize]).0;
        let x = T::splat(simd, *value);
        for v in 0..V {
            sums[0][v] = T::fma(simd, x, weights[first + v], sums[0][v]);
        }
    }
    let out = T::vectors_mut::<S>(out).0;
    for v in 0..V {
        let low = T::add(simd, sums[0][v], sums[1][v]);
        let high = T::add(simd, sums[2][v], sums[3][v]);
        out[first + v] = T::add(simd, low, high);
    }
}

/// A panel narrower than a vector (few classes at a wide instruction set).
#[inline(always)]
fn narrow_scores<S: Simd, T: Real, const P: usize>(
    simd: S,
    row: TypedRow<'_, T>,
    w: &[[T; P]],
    out: &mut [T],
) {
    let zero = T::splat(simd, T::default());
    let mut sums = [zero; CHAINS];
    let (index, index_rest) = row.index.as_chunks::<CHAINS>();
    let (value, value_rest) = row.value.as_chunks::<CHAINS>();
    for (index, value) in index.iter().zip(value) {
        for chain in 0..CHAINS {
            let weights = T::load_part(simd, &w[index[chain] as usize]);
            sums[chain] = T::fma(simd, T::splat(simd, value[chain]), weights, sums[chain]);
        }
    }
    for (index, value) in index_rest.iter().zip(value_rest) {
        let weights = T::load_part(simd, &w[*index as usize]);
        sums[0] = T::fma(simd, T::splat(simd, *value), weights, sums[0]);
    }
    let low = T::add(simd, sums[0], sums[1]);
    let high = T::add(simd, sums[2], sums[3]);
    T::store_part(simd, out, T::add(simd, low, high));
}

impl<const P: usize> WeightLayout for Panels<P> {
    fn stored(&self) -> usize {
        self.panels * P * self.columns
    }

    fn padded_classes(&self) -> usize {
        self.panels * P
    }

    fn line(&self) -> usize {
        P
    }

    #[inline(always)]
    fn position(&self, class: usize, column: usize) -> usize {
        (class / P * self.columns + column) * P + class % P
    }

    #[inline(always)]
    fn scores<S: Simd, T: Real>(&self, simd: S, row: TypedRow<'_, T>, w: &[T], scores: &mut [T]) {
        let row = with_columns(&row);
        let vectors = T::vectors::<S>(&[T::default(); P]).0.len();
        for (panel, out) in scores.chunks_exact_mut(P).enumerate().take(self.panels) {
            let w = &w[panel * self.columns * P..][..self.columns * P];
            let (w, _) = w.as_chunks::<P>();
            if vectors == 0 {
                narrow_scores::<S, T, P>(simd, row, w, out);
                continue;
            }
            let mut first = 0;
            while first + 2 <= vectors {
                panel_scores::<S, T, P, 2>(simd, row, w, first, out);
                first += 2;
            }
            if first < vectors {
                panel_scores::<S, T, P, 1>(simd, row, w, first, out);
            }
        }
    }

    #[inline(always)]
    fn update<S: Simd, T: Real>(
        &self,
        simd: S,
        row: TypedRow<'_, T>,
        w: &mut [T],
        coefficient: &[T],
    ) {
        let row = with_columns(&row);
        for (panel, a) in coefficient.chunks_exact(P).enumerate().take(self.panels) {
            if a.iter().all(|a| *a == T::default()) {
                continue;
            }
            let w = &mut w[panel * self.columns * P..][..self.columns * P];
            let (w, _) = w.as_chunks_mut::<P>();
            let (whole, rest) = T::vectors::<S>(a);
            for (index, value) in row.index.iter().zip(row.value) {
                let x = T::splat(simd, *value);
                let (weights, tail) = T::vectors_mut::<S>(&mut w[*index as usize]);
                for (weights, a) in weights.iter_mut().zip(whole) {
                    *weights = T::fma(simd, x, *a, *weights);
                }
                if !rest.is_empty() {
                    let a = T::load_part(simd, rest);
                    let sum = T::fma(simd, x, a, T::load_part(simd, tail));
                    T::store_part(simd, tail, sum);
                }
            }
        }
    }

    fn score_depth(&self, row_length: usize, _lanes: usize) -> f64 {
        // One chain takes every fourth entry and at most three left over; two levels add the
        // chains; one more where multiplication rounds apart.
        (row_length / CHAINS + CHAINS + 3) as f64
    }
}
