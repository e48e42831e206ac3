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
        let (x, w) = ((x, false), (w, true));
        Self::multiply(out, false, x, w, (n, k, d));
    }

    /// `w += c^T x` with `c` n x k, `x` n x d.
    fn add_transposed_times(c: &[Self], x: &[Self], w: &mut [Self], shape: (usize, usize, usize)) {
        let (n, k, d) = shape;
        let (c, x) = ((c, true), (x, false));
        Self::multiply(w, true, c, x, (k, d, n));
    }
}

/// The entries of a matrix stored row after row, and whether to read it as its transpose.
pub type Matrix<'a, T> = (&'a [T], bool);

/// Strides from column to column and from row to row of an `m x n` matrix.
fn strides(transposed: bool, m: usize, n: usize) -> (isize, isize) {
    if transposed {
        (m as isize, 1)
    } else {
        (1, n as isize)
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
                (a, a_transposed): Matrix<'_, Self>,
                (b, b_transposed): Matrix<'_, Self>,
                (m, n, k): (usize, usize, usize),
            ) {
                assert!(out.len() == m * n && a.len() == m * k && b.len() == k * n);
                let (a_column, a_row) = strides(a_transposed, m, k);
                let (b_column, b_row) = strides(b_transposed, k, n);
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
                        a.as_ptr(),
                        a_column,
                        a_row,
                        b.as_ptr(),
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
