//! Sums of leaves are those of integers.

use crate::descent::exact_leaf::{Tile, exact_sum};
use crate::descent::leaves::LEAF;
use crate::simd::{Kernel, Simd, dispatch};

struct Sum<'a> {
    rows: (&'a [&'a [f32]], usize),
    coefficients: &'a [f64],
    classes: usize,
    total: (&'a mut [f64], usize),
}

impl Kernel for Sum<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let (rows, c, mut room) = (self.rows, self.coefficients, Tile::new());
        exact_sum(simd, rows, c, self.classes, self.total, &mut room);
    }
}

/// Whole numbers, so that any order of addition gives the same; columns from less than a vector
/// to several tiles, classes from one to several blocks.
#[test]
fn sums_are_those_of_integers() {
    for columns in [1, 5, 8, 15, 31, 32, 33, 40, 49, 55, 71, 107] {
        for classes in [1, 2, 4, 5, 6, 10, 11, 23] {
            for n in [1, 2, 63, 64] {
                let x = |i: usize, j: usize| ((i * 31 + j * 17 + 5) % 2001) as i64 - 1000;
                let c = |k: usize, i: usize| ((k * 13 + i * 7 + 3) % 1001) as i64 - 500;
                let at = |i: usize| (0..columns).map(move |j| x(i, j) as f32);
                let value: Vec<f32> = (0..n).flat_map(at).collect();
                let rows: Vec<&[f32]> = value.chunks(columns).collect();
                let mut coefficients = vec![f64::NAN; classes * LEAF];
                for k in 0..classes {
                    for i in 0..n {
                        coefficients[k * LEAF + i] = c(k, i) as f64;
                    }
                }
                let stride = columns + 1;
                let mut total = vec![3.0; classes * stride];
                dispatch(Sum {
                    rows: (&rows, columns),
                    coefficients: &coefficients,
                    classes,
                    total: (&mut total, stride),
                });
                for k in 0..classes {
                    for j in 0..columns {
                        let sum: i64 = (0..n).map(|i| c(k, i) * x(i, j)).sum();
                        assert_eq!(total[k * stride + j], 3.0 + sum as f64);
                    }
                    assert_eq!(total[k * stride + columns], 3.0);
                }
            }
        }
    }
}
