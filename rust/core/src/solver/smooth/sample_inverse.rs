//! The Hessian of one score over a sample of the rows, inverted directly.
//!
//! With one score the Hessian is `sum_i h_i u_i u_i^T + lambda I`, a matrix of few columns for many
//! data sets. Built over a sample and factored, it is a better preconditioner than a few conjugate
//! gradients, and cheaper.

use crate::error::Result;
use crate::rows::shuffled::{Store, poll};
use crate::rows::view::RowBuffer;
use crate::runtime::memory::{mapped, matrix};
use crate::simd::Real;
use crate::solver::smooth::problem::{Pass, SmoothProblem};

/// Columns from which factoring costs more than it saves.
const MOST_COLUMNS: usize = 200;
/// Non-zero entries of a row from which the outer products cost more than they save: as much as
/// thirty products with the Hessian.
const MOST_ENTRIES: usize = 120;

/// Lower Cholesky factor of the Hessian over a sample.
pub struct SampleInverse {
    factor: Vec<f64>,
    columns: usize,
}

impl SampleInverse {
    /// Whether a problem is of the kind for which this pays.
    pub fn pays(problem: &SmoothProblem, store: &Store<'_>) -> bool {
        problem.loss.scores == 1
            && problem.columns <= MOST_COLUMNS
            && store.touched(1) <= MOST_ENTRIES
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
        let mut buffer = RowBuffer::default();
        for at in 0..pass.rows.rows {
            poll(at, pass.interrupt)?;
            let curvature = curvature(at);
            if curvature == 0.0 {
                continue;
            }
            let row = store.row(at, &mut buffer);
            for (i, x) in row.value.iter().enumerate() {
                let weight = f64::from(curvature * x);
                let products = row.value[..=i].iter().map(|x| weight * f64::from(*x));
                let Some(own) = row.index.get(i) else {
                    let line = &mut matrix[i * d..][..=i];
                    line.iter_mut().zip(products).for_each(|(sum, x)| *sum += x);
                    continue;
                };
                for (column, x) in row.index.iter().zip(products) {
                    let (low, high) = (*column.min(own), *column.max(own));
                    matrix[high as usize * d + low as usize] += x;
                }
            }
        }
        for i in 0..d {
            matrix[i * d + i] += pass.rows.share * pass.problem.lambda;
        }
        let columns = d;
        let factored = cholesky(&mut matrix, d);
        Ok(factored.map(|()| Self {
            factor: matrix,
            columns,
        }))
    }

    /// The solution of `H x = right`, into `out`.
    ///
    /// # Errors
    /// No memory.
    pub fn solve<T: Real>(&self, right: &[T], out: &mut [T]) -> Result<()> {
        let d = self.columns;
        let mut x = mapped(&right[..d], |x| x.wide())?;
        for i in 0..d {
            let (done, rest) = x.split_at_mut(i);
            let line = &self.factor[i * d..][..i];
            let known: f64 = line.iter().zip(done).map(|(l, x)| l * *x).sum();
            rest[0] = (rest[0] - known) / self.factor[i * d + i];
        }
        for i in (0..d).rev() {
            let value = x[i] / self.factor[i * d + i];
            x[i] = value;
            for (x, l) in x[..i].iter_mut().zip(&self.factor[i * d..][..i]) {
                *x -= l * value;
            }
        }
        out.fill(T::default());
        for (out, x) in out.iter_mut().zip(&x) {
            *out = T::near(*x);
        }
        Ok(())
    }
}

/// Lower Cholesky factor in place, from the lower triangle; `None` where it is not positive.
fn cholesky(a: &mut [f64], n: usize) -> Option<()> {
    for i in 0..n {
        let (above, line) = a.split_at_mut(i * n);
        let line = &mut line[..=i];
        for j in 0..i {
            let other = &above[j * n..][..=j];
            let known: f64 = line[..j].iter().zip(other).map(|(a, b)| a * b).sum();
            line[j] = (line[j] - known) / other[j];
        }
        let rest = line[i] - line[..i].iter().map(|x| x * x).sum::<f64>();
        if rest <= 0.0 || rest.is_nan() {
            return None;
        }
        line[i] = rest.sqrt();
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::{SampleInverse, cholesky};

    #[test]
    fn solves_what_was_factored() -> crate::Result<()> {
        let a = [4.0, 2.0, 0.5, 2.0, 5.0, 1.0, 0.5, 1.0, 3.0];
        let mut factor = a.to_vec();
        assert!(cholesky(&mut factor, 3).is_some());
        let inverse = SampleInverse { factor, columns: 3 };
        let mut x = [0.0; 3];
        inverse.solve(&[1.0, -2.0, 0.25], &mut x)?;
        for (row, right) in a.chunks(3).zip([1.0, -2.0, 0.25]) {
            let left: f64 = row.iter().zip(&x).map(|(a, x)| a * x).sum();
            assert!((left - right).abs() < 1e-15);
        }
        Ok(())
    }

    #[test]
    fn refuses_what_is_not_positive() {
        assert!(cholesky(&mut [1.0, 2.0, 2.0, 1.0], 2).is_none());
        assert!(cholesky(&mut [f64::NAN], 1).is_none());
    }
}
