//! Eigenvalues and eigenvectors of dense symmetric matrices.
//!
//! The decomposition is that of the crate `faer`: reduction to tridiagonal form, then the QR
//! algorithm or divide and conquer. It runs on the calling thread alone, in memory of fixed
//! alignment, so that one matrix has the same eigenvectors to the last bit whatever the number of
//! threads around it.

use crate::error::{Error, Result, require};
use crate::linalg::cholesky::room;
use crate::runtime::interrupt::Interrupt;
use crate::runtime::memory::{self, copied};
use crate::runtime::tasks::left_when_stopped;
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::evd::{ComputeEigenvectors, self_adjoint_evd, self_adjoint_evd_scratch};
use faer::{ColMut, Mat, Par, Spec};
use std::fmt;
use std::ops::RangeInclusive;

/// A matrix whose largest entry has an exponent within this range is decomposed as it is: neither
/// squares of entries nor sums of those overflow, and what underflows is far below rounding.
const PLAIN_EXPONENTS: RangeInclusive<i32> = -300..=300;

/// Eigen-decompositions of symmetric matrices of one size, in memory that is allocated once.
///
/// `A = sum_i values[i] vector(i) vector(i)^T`, with vectors that are orthonormal up to rounding;
/// residuals `||A v - l v||` and errors of the values are small multiples of `f64::EPSILON ||A||`.
/// Of `v` and `-v`, the one whose entry of largest magnitude, the first of equals, is positive is
/// returned. Where eigenvalues coincide, any basis of their common space may come; always the same
/// one for the same matrix.
///
/// # Examples
/// ```
/// use dpsvm_core::linalg::SymmetricEigen;
/// let mut eigen = SymmetricEigen::new(2)?;
/// eigen.decompose(&[2.0, 1.0, 1.0, 2.0])?;
/// assert!((eigen.values()[0] - 3.0).abs() < 1e-14);
/// assert!((eigen.vector(0)[1] - 0.5f64.sqrt()).abs() < 1e-14);
/// # Ok::<(), dpsvm_core::Error>(())
/// ```
pub struct SymmetricEigen {
    matrix: Mat<f64>,
    /// One column for each value, ascending.
    vectors: Mat<f64>,
    /// Descending.
    values: Vec<f64>,
    memory: MemBuffer,
}

impl fmt::Debug for SymmetricEigen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("SymmetricEigen");
        text.field("values", &self.values).finish_non_exhaustive()
    }
}

impl SymmetricEigen {
    /// Memory for matrices of `dimension` rows and columns: about four times theirs.
    ///
    /// # Errors
    /// A dimension of 0; no memory.
    pub fn new(dimension: usize) -> Result<Self> {
        require(dimension != 0, "matrix", "got no rows, expected at least 1")?;
        let wanted = ComputeEigenvectors::Yes;
        let request = self_adjoint_evd_scratch::<f64>(dimension, wanted, Par::Seq, Spec::default());
        Ok(Self {
            matrix: zeros(dimension)?,
            vectors: zeros(dimension)?,
            values: memory::zeros(dimension)?,
            memory: room(request)?,
        })
    }

    /// Rows of the matrices.
    pub fn dimension(&self) -> usize {
        self.values.len()
    }

    /// Decomposes a symmetric matrix, given row by row. Only entries on and below the diagonal are
    /// looked at. Allocates nothing; work of order `dimension^3`, without a look at any interrupt:
    /// a twentieth of a second for 784 rows.
    ///
    /// # Errors
    /// A length that is not the square of the dimension; an entry that is not finite; eigenvalues
    /// beyond the range of floating-point numbers. Values and vectors are then without meaning.
    pub fn decompose(&mut self, matrix: &[f64]) -> Result<()> {
        let dimension = self.dimension();
        let message = format_args!("expected {dimension} rows and columns");
        require(matrix.len() == dimension * dimension, "matrix", message)?;
        let shift = self.load(matrix)?;
        let values = ColMut::from_slice_mut(&mut self.values).as_diagonal_mut();
        self_adjoint_evd(
            self.matrix.as_ref(),
            values,
            Some(self.vectors.as_mut()),
            Par::Seq,
            MemStack::new(&mut self.memory),
            Spec::default(),
        )
        .map_err(|_| Error::invalid("matrix", "its eigenvalues were not found"))?;
        self.values.reverse();
        for value in &mut self.values {
            *value = libm::scalbn(*value, shift);
        }
        let message = "its eigenvalues overflow";
        let right = self.values.iter().all(|value| value.is_finite());
        require(right, "matrix", message)?;
        for column in self.vectors.col_iter_mut() {
            orient(column);
        }
        Ok(())
    }

    /// Eigenvalues, descending.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// Unit eigenvector of `values()[index]`.
    ///
    /// # Panics
    /// An index that is not below the dimension.
    pub fn vector(&self, index: usize) -> &[f64] {
        self.vectors.col_as_slice(self.dimension() - 1 - index)
    }

    /// Copies the lower triangle, divided by a power of two that is returned as its exponent.
    fn load(&mut self, matrix: &[f64]) -> Result<i32> {
        let dimension = self.dimension();
        let mut largest = 0.0f64;
        for (i, row) in matrix.chunks_exact(dimension).enumerate() {
            for (j, entry) in row[..=i].iter().enumerate() {
                let message = "has entries that are not finite";
                require(entry.is_finite(), "matrix", message)?;
                largest = largest.max(entry.abs());
                self.matrix[(i, j)] = *entry;
            }
        }
        let (_, exponent) = libm::frexp(largest);
        if PLAIN_EXPONENTS.contains(&exponent) {
            return Ok(0);
        }
        for j in 0..dimension {
            for entry in &mut self.matrix.col_as_slice_mut(j)[j..] {
                *entry = libm::scalbn(*entry, -exponent);
            }
        }
        Ok(exponent)
    }
}

/// The largest eigenvalues of a symmetric matrix, given row by row, with unit eigenvectors.
///
/// The work is done on a thread of its own, which needs more stack than the caller may have, and
/// which is left to itself when the caller is interrupted.
///
/// # Errors
/// As [`SymmetricEigen::decompose`]; a matrix that is not exactly symmetric; a number of
/// components outside `1..=dimension`; no memory; [`Error::Interrupted`].
pub fn symmetric_eigen(
    matrix: &[f64],
    dimension: usize,
    n_components: usize,
    interrupt: &dyn Interrupt,
) -> Result<(Vec<f64>, Vec<f64>)> {
    let own = copied(matrix)?;
    left_when_stopped(interrupt, move || largest(&own, dimension, n_components))
}

/// The largest eigenvalues and their vectors, on the calling thread.
fn largest(matrix: &[f64], dimension: usize, n_components: usize) -> Result<(Vec<f64>, Vec<f64>)> {
    let message = format_args!("got {n_components}, expected 1 to {dimension}");
    let right = (1..=dimension).contains(&n_components);
    require(right, "n_components", message)?;
    let mut eigen = SymmetricEigen::new(dimension)?;
    eigen.decompose(matrix)?;
    let at = |i: usize, j: usize| matrix[i * dimension + j];
    let message = "is not symmetric";
    let right = (0..dimension).all(|i| (0..i).all(|j| at(i, j) == at(j, i)));
    require(right, "matrix", message)?;
    let values = copied(&eigen.values()[..n_components])?;
    let mut vectors = memory::with_capacity(n_components * dimension)?;
    (0..n_components).for_each(|i| vectors.extend_from_slice(eigen.vector(i)));
    Ok((values, vectors))
}

/// A square matrix of zeros, aligned for vector instructions.
fn zeros(dimension: usize) -> Result<Mat<f64>> {
    let mut matrix = Mat::new();
    let bytes = dimension.saturating_mul(dimension).saturating_mul(8);
    matrix
        .try_reserve(dimension, dimension)
        .map_err(|_| Error::OutOfMemory { bytes })?;
    matrix.resize_with(dimension, dimension, |_, _| 0.0);
    Ok(matrix)
}

/// Makes the first entry of largest magnitude positive.
fn orient(vector: ColMut<'_, f64>) {
    let mut largest = 0.0f64;
    for entry in vector.as_ref().iter() {
        if entry.abs() > largest.abs() {
            largest = *entry;
        }
    }
    if largest < 0.0 {
        for entry in vector.iter_mut() {
            *entry = -*entry;
        }
    }
}
