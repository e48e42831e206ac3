//! The sum of `c r^T` over a leaf of dense rows, without any rounding.
//!
//! Products of coefficients and entries are whole numbers of the sum's unit, and so few of them
//! that double precision adds them exactly, in any order. Rows are widened a few columns at a time: a
//! copy of a whole leaf in double precision would not stay in the first-level cache.

use crate::descent::dense_kernels::{eight, leaf_sum};
use crate::descent::leaves::LEAF;
use crate::simd::Simd;

/// Columns of a tile: four of the widest vectors. A tile takes a third of a first-level cache.
const TILE: usize = 32;

/// Some columns of the rows of a leaf.
pub type Tile = Vec<[f64; TILE]>;

/// `total[k] += sum over rows of coefficients[k][i] rows[i]`, `stride` numbers a line of `total`,
/// [`LEAF`] coefficients a class; `room` is overwritten.
#[inline(always)]
pub fn exact_sum<S: Simd>(
    simd: S,
    rows: &[&[f32]],
    coefficients: &[f64],
    classes: usize,
    (total, stride): (&mut [f64], usize),
    room: &mut Tile,
) {
    room.resize(LEAF, [0.0; TILE]);
    let columns = rows.first().map_or(0, |row| row.len());
    for at in (0..columns).step_by(TILE) {
        widen(rows, at, room);
        let mut lines: [&[f64]; LEAF] = [&[]; LEAF];
        for (line, wide) in lines.iter_mut().zip(&*room) {
            *line = &wide[..TILE.min(columns - at)];
        }
        let (lines, total) = (&lines[..rows.len()], &mut total[at..]);
        leaf_sum(simd, lines, coefficients, classes, (total, stride), 0.0);
    }
}

/// Columns from `at` of all rows, as many as there are.
#[inline(always)]
fn widen(rows: &[&[f32]], at: usize, room: &mut [[f64; TILE]]) {
    for (wide, row) in room.iter_mut().zip(rows) {
        let row = &row[at..];
        if let Some(row) = row.first_chunk::<TILE>() {
            let (wides, chunks) = (wide.as_chunks_mut::<8>().0, row.as_chunks::<8>().0);
            for (wide, x) in wides.iter_mut().zip(chunks) {
                *wide = eight(x);
            }
        } else {
            for (wide, x) in wide.iter_mut().zip(row) {
                *wide = f64::from(*x);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Tile, exact_sum};
    use crate::descent::leaves::LEAF;
    use crate::simd::{Kernel, Simd, dispatch};

    struct Sum<'a> {
        rows: &'a [&'a [f32]],
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
                        rows: &rows,
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
}
