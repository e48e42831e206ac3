//! Inner products between the rows of a working set.
//!
//! Sparse rows: by the scores kernel, sixteen rows of the set play the part of weights. Dense rows: by
//! products of matrices. Products of two single-precision numbers are exact in double precision.

use crate::error::Result;
use crate::layout::weights::WeightLayout;
use crate::linalg::gemm::Product;
use crate::runtime::interrupt::Interrupt;
use crate::runtime::memory::{append, matrix, reserve, zeros};
use crate::runtime::threads::map_blocks;
use crate::simd::{Kernel, Simd, dispatch};
use crate::solver::crammer_singer::end_game::proximal::Products;
use crate::solver::crammer_singer::problem::Problem;

/// Rows that play the part of weights at once.
pub const GROUP: usize = 16;
/// Dense rows of a matrix whose products with the rows before are made at once, with so many times as
/// many at a time.
const DENSE_GROUP: usize = 128;
const STRIP: usize = 4;

/// A working set and the inner products of its rows, grown without computing anything twice.
pub struct GramSet {
    /// Rows of the set.
    pub rows: Vec<u32>,
    /// `m x m`, row-major.
    pub products: Vec<f64>,
    /// Most rows it will hold.
    largest: usize,
}

/// Rows whose products are computed before these are written to the matrix.
const WAVE: usize = 512;

impl GramSet {
    /// The empty set, to hold at most `largest` rows.
    pub fn new(largest: usize) -> Self {
        Self {
            rows: Vec::new(),
            products: Vec::new(),
            largest,
        }
    }

    /// Adds `rows`, which must not be in the set. `layout` describes [`GROUP`] weight vectors.
    ///
    /// # Errors
    /// Interrupt; no memory.
    pub fn extend<L: WeightLayout>(
        &mut self,
        problem: &Problem<'_>,
        layout: L,
        rows: &[u32],
        interrupt: &dyn Interrupt,
    ) -> Result<()> {
        let old = self.rows.len();
        append(&mut self.rows, rows)?;
        let m = self.rows.len();
        self.widen(old, m, problem.len())?;
        let dense = problem.store.is_dense();
        let size = if dense { DENSE_GROUP } else { GROUP };
        let groups = (m - old).div_ceil(size);
        let at_once = WAVE / size;
        for wave in (0..groups).step_by(at_once) {
            let set = &self.rows;
            let parts = map_blocks(
                problem.pool.as_deref(),
                at_once.min(groups - wave),
                interrupt,
                |group| {
                    let first = old + (wave + group) * size;
                    if dense {
                        return dense_products(problem, &set[..m.min(first + size)], first);
                    }
                    dispatch(GramGroup {
                        problem,
                        layout,
                        set,
                        first,
                    })
                },
            )?;
            for (group, part) in parts.into_iter().enumerate() {
                let first = old + (wave + group) * size;
                let width = if dense { size.min(m - first) } else { GROUP };
                for (i, line) in part.chunks_exact(width).enumerate() {
                    for (j, product) in (first..m).zip(line) {
                        self.products[i * m + j] = *product;
                        self.products[j * m + i] = *product;
                    }
                }
            }
        }
        Ok(())
    }

    /// Makes room for `m` rows in place, so that two matrices never live at once.
    fn widen(&mut self, old: usize, m: usize, rows: usize) -> Result<()> {
        // Room for the largest set costs no memory until it is written to.
        let most = self.largest.min(rows).max(m);
        let room = most * most - self.products.len();
        reserve(&mut self.products, room)?;
        self.products.resize(m * m, 0.0);
        for i in (1..old).rev() {
            self.products.copy_within(i * old..(i + 1) * old, i * m);
        }
        Ok(())
    }
}

/// Products of all rows of `set` with those from number `first` on, row by row.
fn dense_products(problem: &Problem<'_>, set: &[u32], first: usize) -> Result<Vec<f64>> {
    let (d, width) = (problem.columns, set.len() - first);
    let mut buffer = problem.store.buffer()?;
    let mut whole = |rows: &[u32]| -> Result<Vec<f64>> {
        let mut all = matrix(rows.len(), d)?;
        for (i, out) in rows.iter().zip(all.chunks_exact_mut(d)) {
            problem.store.row(*i as usize, &mut buffer).spread(out);
        }
        Ok(all)
    };
    let group = whole(&set[first..])?;
    let mut products = matrix(set.len(), width)?;
    let strips = products.chunks_mut(STRIP * width * width);
    for (rows, out) in set.chunks(STRIP * width).zip(strips) {
        f64::times_transposed(&whole(rows)?, &group, out, (rows.len(), d, width));
    }
    Ok(products)
}

struct GramGroup<'p, 'd, L> {
    problem: &'p Problem<'d>,
    layout: L,
    set: &'p [u32],
    first: usize,
}

impl<L: WeightLayout> Kernel for GramGroup<'_, '_, L> {
    /// Products of all rows up to the group's last with the group's, `GROUP` a row.
    type Output = Result<Vec<f64>>;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> Result<Vec<f64>> {
        let mut buffer = self.problem.store.buffer()?;
        let mut weights = zeros(self.layout.stored())?;
        for (k, i) in self.set[self.first..].iter().take(GROUP).enumerate() {
            let row = self.problem.store.row(*i as usize, &mut buffer);
            for (column, value) in row.entries() {
                weights[self.layout.position(k, column)] = f64::from(value);
            }
        }
        let last = self.set.len().min(self.first + GROUP);
        let products = Products {
            problem: self.problem,
            layout: self.layout,
            classes: GROUP,
            weights: &weights,
            rows: &self.set[..last],
        };
        products.run(simd)
    }
}
