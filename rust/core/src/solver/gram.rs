//! Inner products between the rows of a working set.
//!
//! The Gram matrix is computed by the scores kernel: sixteen rows of the set play the part of
//! weights. Products of two single-precision numbers are exact in double precision.

use super::kernels::{WeightLayout, typed};
use super::problem::Problem;
use crate::error::Result;
use crate::parallel::{Interrupt, map_blocks};
use crate::rows::RowBuffer;
use crate::simd::{Kernel, Simd, dispatch};

/// Rows that play the part of weights at once.
pub const GROUP: usize = 16;

/// The lower triangle's blocks of the Gram matrix of `set`, mirrored: `m x m`, row-major.
///
/// `layout` describes [`GROUP`] weight vectors.
///
/// # Errors
/// Interrupt.
pub fn gram<L: WeightLayout>(
    problem: &Problem<'_>,
    layout: L,
    set: &[u32],
    interrupt: &dyn Interrupt,
) -> Result<Vec<f64>> {
    let m = set.len();
    let groups = m.div_ceil(GROUP);
    let parts = map_blocks(problem.pool.as_deref(), groups, interrupt, |group| {
        dispatch(GramGroup {
            problem,
            layout,
            set,
            first: group * GROUP,
        })
    })?;
    let mut gram = vec![0.0; m * m];
    for (group, part) in parts.into_iter().enumerate() {
        let first = group * GROUP;
        for (at, products) in part.chunks_exact(GROUP).enumerate() {
            let row = first + at;
            for (column, product) in (first..m).zip(products) {
                if column <= row {
                    gram[row * m + column] = *product;
                    gram[column * m + row] = *product;
                }
            }
        }
    }
    Ok(gram)
}

struct GramGroup<'p, 'd, L> {
    problem: &'p Problem<'d>,
    layout: L,
    set: &'p [u32],
    first: usize,
}

impl<L: WeightLayout> Kernel for GramGroup<'_, '_, L> {
    /// Products of rows `first..` with rows `first..first + GROUP`, `GROUP` a row.
    type Output = Vec<f64>;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> Vec<f64> {
        let mut buffer = RowBuffer::default();
        let mut entries = Vec::new();
        let mut weights = vec![0.0; self.layout.stored()];
        for (k, i) in self.set[self.first..].iter().take(GROUP).enumerate() {
            let row = self.problem.store.row(*i as usize, &mut buffer);
            for (at, value) in row.value.iter().enumerate() {
                let column = row.index.get(at).map_or(at, |c| *c as usize);
                weights[self.layout.position(k, column)] = f64::from(*value);
            }
        }
        let mut scores = vec![0.0; self.layout.padded_classes()];
        let mut products = Vec::with_capacity((self.set.len() - self.first) * GROUP);
        for i in &self.set[self.first..] {
            let row = typed(
                self.problem.store.row(*i as usize, &mut buffer),
                &mut entries,
            );
            self.layout.scores(simd, row, &weights, &mut scores);
            products.extend_from_slice(&scores[..GROUP]);
        }
        products
    }
}
