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

/// A working set and the inner products of its rows, grown without computing anything twice.
#[derive(Default)]
pub struct GramSet {
    /// Rows of the set.
    pub rows: Vec<u32>,
    /// `m x m`, row-major.
    pub products: Vec<f64>,
}

impl GramSet {
    /// Adds `rows`, which must not be in the set. `layout` describes [`GROUP`] weight vectors.
    ///
    /// # Errors
    /// Interrupt.
    pub fn extend<L: WeightLayout>(
        &mut self,
        problem: &Problem<'_>,
        layout: L,
        rows: &[u32],
        interrupt: &dyn Interrupt,
    ) -> Result<()> {
        let old = self.rows.len();
        self.rows.extend_from_slice(rows);
        let (m, set) = (self.rows.len(), &self.rows);
        let groups = (m - old).div_ceil(GROUP);
        let parts = map_blocks(problem.pool.as_deref(), groups, interrupt, |group| {
            dispatch(GramGroup {
                problem,
                layout,
                set,
                first: old + group * GROUP,
            })
        })?;
        let mut products = vec![0.0; m * m];
        for i in 0..old {
            products[i * m..][..old].copy_from_slice(&self.products[i * old..][..old]);
        }
        for (group, part) in parts.into_iter().enumerate() {
            let first = old + group * GROUP;
            for (i, line) in part.chunks_exact(GROUP).enumerate() {
                for (j, product) in (first..m).zip(line) {
                    products[i * m + j] = *product;
                    products[j * m + i] = *product;
                }
            }
        }
        self.products = products;
        Ok(())
    }
}

struct GramGroup<'p, 'd, L> {
    problem: &'p Problem<'d>,
    layout: L,
    set: &'p [u32],
    first: usize,
}

impl<L: WeightLayout> Kernel for GramGroup<'_, '_, L> {
    /// Products of all rows up to the group's last with the group's, `GROUP` a row.
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
        let last = self.set.len().min(self.first + GROUP);
        let mut products = Vec::with_capacity(last * GROUP);
        for i in &self.set[..last] {
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
