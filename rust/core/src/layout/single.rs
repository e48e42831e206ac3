//! The layout of one score.

use crate::layout::weights::{TypedRow, WeightLayout};
use crate::simd::{Real, Simd};

/// Sums kept apart, to break the dependency of one addition on the last.
const CHAINS: usize = 4;

/// One score of sparse rows, whose weights lie in their order.
#[derive(Debug, Clone, Copy)]
pub struct SingleScore {
    columns: usize,
}

impl SingleScore {
    /// Layout for one score of `columns` weights.
    pub fn new(columns: usize) -> Self {
        Self { columns }
    }
}

impl WeightLayout for SingleScore {
    fn stored(&self) -> usize {
        self.columns
    }

    fn padded_classes(&self) -> usize {
        1
    }

    fn line(&self) -> usize {
        1
    }

    fn position(&self, _class: usize, column: usize) -> usize {
        column
    }

    #[inline(always)]
    fn scores<S: Simd, T: Real>(&self, _simd: S, row: TypedRow<'_, T>, w: &[T], scores: &mut [T]) {
        let mut sums = [0.0; CHAINS];
        for (at, (j, x)) in row.index.iter().zip(row.value).enumerate() {
            sums[at % CHAINS] += x.wide() * w[*j as usize].wide();
        }
        scores[0] = T::near((sums[0] + sums[1]) + (sums[2] + sums[3]));
    }

    #[inline(always)]
    fn update<S: Simd, T: Real>(
        &self,
        _simd: S,
        row: TypedRow<'_, T>,
        w: &mut [T],
        coefficient: &[T],
    ) {
        let c = coefficient[0].wide();
        for (index, value) in row.index.iter().zip(row.value) {
            let weight = &mut w[*index as usize];
            *weight = T::near(weight.wide() + c * value.wide());
        }
    }

    fn score_depth(&self, row_length: usize, _lanes: usize) -> f64 {
        (row_length / CHAINS + CHAINS + 2) as f64
    }
}
