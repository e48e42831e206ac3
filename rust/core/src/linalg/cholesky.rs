//! Cholesky factors, those of the crate `faer`.

use crate::error::{Error, Result};
use crate::runtime::memory::{matrix, zeros};
use faer::dyn_stack::{MemBuffer, MemStack, StackReq};
use faer::linalg::cholesky::{llt, llt_pivoting};
use faer::{MatMut, MatRef, Par, Spec};

pub(super) fn room(request: StackReq) -> Result<MemBuffer> {
    let bytes = request.unaligned_bytes_required();
    MemBuffer::try_new(request).map_err(|_| Error::OutOfMemory { bytes })
}

/// The factor of a positive definite matrix.
pub struct Cholesky {
    factor: Vec<f64>,
    size: usize,
}

impl Cholesky {
    /// Factors the matrix with this upper triangle, row by row; `None` if not positive definite.
    ///
    /// # Errors
    /// No memory.
    pub fn new(mut matrix: Vec<f64>, size: usize) -> Result<Option<Self>> {
        let spec = Spec::default();
        let request = llt::factor::cholesky_in_place_scratch::<f64>(size, Par::Seq, spec);
        let found = llt::factor::cholesky_in_place(
            // Row by row the upper triangle is, column by column, the lower one.
            MatMut::from_column_major_slice_mut(&mut matrix, size, size),
            llt::factor::LltRegularization::default(),
            Par::Seq,
            MemStack::new(&mut room(request)?),
            spec,
        );
        let factor = matrix;
        Ok(found.ok().map(|_| Self { factor, size }))
    }

    /// Rows of the matrix.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Overwrites a right side with the solution.
    ///
    /// # Errors
    /// No memory.
    pub fn solve(&self, right: &mut [f64]) -> Result<()> {
        let size = self.size;
        let request = llt::solve::solve_in_place_scratch::<f64>(size, 1, Par::Seq);
        llt::solve::solve_in_place(
            MatRef::from_column_major_slice(&self.factor, size, size),
            MatMut::from_column_major_slice_mut(right, size, 1),
            Par::Seq,
            MemStack::new(&mut room(request)?),
        );
        Ok(())
    }
}

/// Factor of a positive semi-definite matrix row by row, its columns those of the pivots, and the
/// pivots: always the row with the largest rest, until the rests are `least` times the largest or less.
/// No pivots where rounding spoils it.
///
/// # Errors
/// No memory.
pub fn pivoted(mut gram: Vec<f64>, n: usize, least: f64) -> Result<(Vec<f64>, Vec<usize>)> {
    let top = gram
        .iter()
        .step_by(n + 1)
        .fold(0.0, |top: f64, x| top.max(*x));
    let (mut order, mut place) = (zeros(n)?, zeros::<usize>(n)?);
    let spec = Spec::default();
    let request = llt_pivoting::factor::cholesky_in_place_scratch::<usize, f64>(n, Par::Seq, spec);
    let found = llt_pivoting::factor::cholesky_in_place(
        MatMut::from_column_major_slice_mut(&mut gram, n, n),
        &mut order,
        &mut place,
        Par::Seq,
        MemStack::new(&mut room(request)?),
        spec,
    );
    let known = found.map_or(0, |(info, _)| info.rank);
    let least = (least * top).max(f64::MIN_POSITIVE);
    let large = |t: &usize| gram[t * (n + 1)].powi(2) > least;
    let rank = (0..known).take_while(large).count();
    let mut factor = matrix(n, n)?;
    for t in 0..rank {
        for (row, x) in order[t..].iter().zip(&gram[t * n + t..]) {
            factor[row * n + t] = *x;
        }
    }
    order.truncate(rank);
    Ok((factor, order))
}

#[cfg(test)]
mod tests {
    use super::{Cholesky, pivoted};

    #[test]
    fn solves_what_was_factored() -> crate::Result<()> {
        let a = [4.0, 2.0, 0.5, 2.0, 5.0, 1.0, 0.5, 1.0, 3.0];
        let factor = Cholesky::new(a.to_vec(), 3)?.unwrap();
        let mut x = [1.0, -2.0, 0.25];
        factor.solve(&mut x)?;
        for (row, right) in a.chunks(3).zip([1.0, -2.0, 0.25]) {
            let left: f64 = row.iter().zip(&x).map(|(a, x)| a * x).sum();
            assert!((left - right).abs() < 1e-15);
        }
        Ok(())
    }

    #[test]
    fn refuses_what_is_not_positive() -> crate::Result<()> {
        assert!(Cholesky::new(vec![1.0, 2.0, 2.0, 1.0], 2)?.is_none());
        assert!(Cholesky::new(vec![f64::NAN], 1)?.is_none());
        assert!(pivoted(vec![f64::NAN], 1, 1e-10)?.1.is_empty());
        assert!(pivoted(vec![0.0; 4], 2, 1e-10)?.1.is_empty());
        Ok(())
    }
}
