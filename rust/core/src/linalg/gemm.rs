//! Matrix products in each precision, by the `gemm` crate.

use crate::simd::Real;

/// Precision with matrix products.
pub trait Product: Real {
    /// The slice itself where it already has this precision.
    fn borrow(x: &[f32]) -> Option<&[Self]>;
    /// `out = a b`, or `out += a b` if `keep`, `m x n` with inner dimension `k`.
    fn multiply(
        out: &mut [Self],
        keep: bool,
        a: Matrix<'_, Self>,
        b: Matrix<'_, Self>,
        shape: (usize, usize, usize),
    );

    /// `out = x w^T` with `x` n x d, `w` k x d.
    fn times_transposed(x: &[Self], w: &[Self], out: &mut [Self], shape: (usize, usize, usize)) {
        let (n, d, k) = shape;
        let (x, w) = (Matrix::new(x, false), Matrix::new(w, true));
        Self::multiply(out, false, x, w, (n, k, d));
    }

    /// `w += c^T x` with `c` n x k, `x` n x d.
    fn add_transposed_times(c: &[Self], x: &[Self], w: &mut [Self], shape: (usize, usize, usize)) {
        let (n, k, d) = shape;
        let (c, x) = (Matrix::new(c, true), Matrix::new(x, false));
        Self::multiply(w, true, c, x, (k, d, n));
    }
}

/// A matrix stored row after row, as it is or to be read as its transpose.
#[derive(Debug, Clone, Copy)]
pub struct Matrix<'a, T> {
    entries: &'a [T],
    transposed: bool,
}

impl<'a, T> Matrix<'a, T> {
    fn new(entries: &'a [T], transposed: bool) -> Self {
        Self {
            entries,
            transposed,
        }
    }

    /// Strides from column to column and from row to row of an `m x n` matrix.
    fn strides(&self, m: usize, n: usize) -> (isize, isize) {
        if self.transposed {
            (m as isize, 1)
        } else {
            (1, n as isize)
        }
    }
}

macro_rules! product {
    ($t:ident, |$x:ident| $borrow:expr) => {
        impl Product for $t {
            #[inline(always)]
            fn borrow($x: &[f32]) -> Option<&[Self]> {
                $borrow
            }

            fn multiply(
                out: &mut [Self],
                keep: bool,
                a: Matrix<'_, Self>,
                b: Matrix<'_, Self>,
                (m, n, k): (usize, usize, usize),
            ) {
                assert!(out.len() == m * n && a.entries.len() == m * k && b.entries.len() == k * n);
                let (a_column, a_row) = a.strides(m, k);
                let (b_column, b_row) = b.strides(k, n);
                // SAFETY: the strides describe row-major matrices whose sizes were just checked,
                // and `out` is borrowed exclusively.
                unsafe {
                    gemm::gemm(
                        m,
                        n,
                        k,
                        out.as_mut_ptr(),
                        1,
                        n as isize,
                        keep,
                        a.entries.as_ptr(),
                        a_column,
                        a_row,
                        b.entries.as_ptr(),
                        b_column,
                        b_row,
                        1.0,
                        1.0,
                        false,
                        false,
                        false,
                        gemm::Parallelism::None,
                    );
                }
            }
        }
    };
}

product!(f32, |x| Some(x));
product!(f64, |_x| None);
