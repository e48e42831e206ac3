//! The Hessian of one score over a sample of the rows, inverted directly.
//!
//! With one score the Hessian is `sum_i h_i u_i u_i^T + lambda I`, a matrix of few columns for many
//! data sets. Built over a sample and factored, it is a better preconditioner than a few conjugate
//! gradients, and cheaper.

use crate::error::Result;
use crate::linalg::cholesky::Cholesky;
use crate::rows::shuffled::Store;
use crate::runtime::interrupt::poll;
use crate::runtime::memory::{mapped, matrix};
use crate::simd::Real;
use crate::solver::smooth::problem::{Pass, SmoothProblem};

/// Columns from which factoring costs more than it saves.
const MAX_COLUMNS: usize = 200;
/// Non-zero entries of a row from which the outer products cost more than they save: as much as
/// thirty products with the Hessian.
const MAX_ENTRIES: usize = 120;

/// Cholesky factor of the Hessian over a sample.
pub struct SampleInverse(Cholesky);

impl SampleInverse {
    /// Whether a problem is of the kind for which this pays.
    pub fn pays(problem: &SmoothProblem, store: &Store<'_>) -> bool {
        problem.loss.scores == 1
            && problem.columns <= MAX_COLUMNS
            && store.touched(1) <= MAX_ENTRIES
    }

    /// Factors the Hessian over the rows of a pass, with each row's curvature; `None` when rounding
    /// spoils it.
    ///
    /// # Errors
    /// An interrupt, no memory.
    pub fn new(
        store: &Store<'_>,
        curvature: impl Fn(usize) -> f32,
        pass: Pass<'_>,
    ) -> Result<Option<Self>> {
        let d = pass.problem.columns;
        let mut matrix = matrix(d, d)?;
        let mut buffer = store.buffer()?;
        for at in 0..pass.rows.rows {
            poll(at, pass.interrupt)?;
            let curvature = curvature(at);
            if curvature == 0.0 {
                continue;
            }
            let row = store.row(at, &mut buffer);
            for (i, x) in row.value.iter().enumerate() {
                let weight = f64::from(curvature * x);
                let products = row.value[i..].iter().map(|x| weight * f64::from(*x));
                let Some(own) = row.index.get(i) else {
                    let line = &mut matrix[i * d..][i..d];
                    line.iter_mut().zip(products).for_each(|(sum, x)| *sum += x);
                    continue;
                };
                for (column, x) in row.index[i..].iter().zip(products) {
                    let (low, high) = (*column.min(own), *column.max(own));
                    matrix[low as usize * d + high as usize] += x;
                }
            }
        }
        for i in 0..d {
            matrix[i * d + i] += pass.rows.share * pass.problem.lambda;
        }
        Ok(Cholesky::new(matrix, d)?.map(Self))
    }

    /// The solution of `H x = right`, into `out`.
    ///
    /// # Errors
    /// No memory.
    pub fn solve<T: Real>(&self, right: &[T], out: &mut [T]) -> Result<()> {
        let mut x = mapped(&right[..self.0.size()], |x| x.wide())?;
        self.0.solve(&mut x)?;
        out.fill(T::default());
        for (out, x) in out.iter_mut().zip(&x) {
            *out = T::near(*x);
        }
        Ok(())
    }
}
