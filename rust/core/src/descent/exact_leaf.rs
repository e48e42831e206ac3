//! The sum of `c r^T` over a leaf of dense rows, without any rounding.
//!
//! Products of coefficients and entries are whole numbers of the sum's unit, and so few of them
//! that double precision adds them exactly, in any order. Rows are widened a few columns at a time: a
//! copy of a whole leaf in double precision would not stay in the first-level cache.

use crate::descent::dense_kernels::{block_size, with_block};
use crate::descent::leaves::LEAF;
use crate::simd::{Real, Simd};

/// Registers from which many sums are kept at a time.
const MANY_REGISTERS: usize = 32;

/// Classes of a block with which four vectors of columns fit into that many registers.
const FEW_CLASSES: usize = 5;

/// Columns of a tile: four of the widest vectors. A tile takes less than half of a first-level cache.
const TILE: usize = 32;
/// Vectors may begin at any column of a tile, and three of the widest are taken as four.
const LINE: usize = TILE + 2 * 8;

/// Some columns of the rows of a leaf, and zeros behind them.
pub type Tile = Vec<[f64; LINE]>;

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
    room.resize(LEAF, [0.0; LINE]);
    let columns = rows.first().map_or(0, |row| row.len());
    let size = block_size(classes);
    for at in (0..columns).step_by(TILE) {
        // The last tile ends with the row, and its first columns have been added.
        let start = at.min(columns.saturating_sub(TILE));
        let range = at - start..TILE.min(columns - start);
        widen(rows, start, room);
        let mut first = 0;
        while first < classes {
            let block = size.min(classes - first);
            let part = TileBlock {
                tile: &room[..rows.len()],
                coefficients: &coefficients[first * LEAF..],
                range: (range.start, range.end),
            };
            let total = &mut total[first * stride + at..];
            with_block!(block, block_sum::<S>(simd, part, (total, stride)));
            first += block;
        }
    }
}

/// Columns from `at` of all rows, as many as there are.
#[inline(always)]
fn widen(rows: &[&[f32]], at: usize, room: &mut [[f64; LINE]]) {
    for (wide, row) in room.iter_mut().zip(rows) {
        let row = &row[at..];
        if let Some(row) = row.first_chunk::<TILE>() {
            let (wides, chunks) = (wide.as_chunks_mut::<8>().0, row.as_chunks::<8>().0);
            for at in 0..TILE / 8 {
                let x = chunks[at];
                // One store of a vector; a loop over lanes stores them one by one.
                wides[at] = [
                    x[0].into(),
                    x[1].into(),
                    x[2].into(),
                    x[3].into(),
                    x[4].into(),
                    x[5].into(),
                    x[6].into(),
                    x[7].into(),
                ];
            }
        } else {
            for (wide, x) in wide.iter_mut().zip(row) {
                *wide = f64::from(*x);
            }
        }
    }
}

/// A tile and the coefficients of some classes.
#[derive(Clone, Copy)]
struct TileBlock<'p> {
    tile: &'p [[f64; LINE]],
    coefficients: &'p [f64],
    /// First column of the tile, and the end.
    range: (usize, usize),
}

#[inline(always)]
fn block_sum<S: Simd, const K: usize>(
    simd: S,
    part: TileBlock<'_>,
    (total, stride): (&mut [f64], usize),
) {
    let lanes = f64::lanes::<S>();
    let many = S::REGISTER_COUNT >= MANY_REGISTERS;
    let (first, end) = part.range;
    let mut at = first;
    while at < end {
        let vectors = (end - at).div_ceil(lanes);
        let to = (&mut total[at - first..], stride);
        let done = if many && K <= FEW_CLASSES && vectors > 2 {
            tile_sum::<S, K, 4>(simd, part, to, at)
        } else if (many || K <= FEW_CLASSES) && vectors > 1 {
            tile_sum::<S, K, 2>(simd, part, to, at)
        } else {
            tile_sum::<S, K, 1>(simd, part, to, at)
        };
        at += done;
    }
}

/// Adds `V` vectors of columns from column `at` of the tile; returns how many columns these are.
#[inline(always)]
fn tile_sum<S: Simd, const K: usize, const V: usize>(
    simd: S,
    part: TileBlock<'_>,
    (total, stride): (&mut [f64], usize),
    at: usize,
) -> usize {
    let lanes = f64::lanes::<S>();
    let n = part.tile.len();
    let c: [&[f64]; K] = std::array::from_fn(|k| &part.coefficients[k * LEAF..][..n]);
    let mut sums = [[f64::splat(simd, 0.0); V]; K];
    for (i, row) in part.tile.iter().enumerate() {
        let x = f64::vectors::<S>(&row[at..at + V * lanes]).0;
        let x: [S::f64s; V] = std::array::from_fn(|v| x[v]);
        for k in 0..K {
            let c = f64::splat(simd, c[k][i]);
            for v in 0..V {
                sums[k][v] = f64::fma(simd, c, x[v], sums[k][v]);
            }
        }
    }
    let width = (part.range.1 - at).min(V * lanes);
    for k in 0..K {
        let line = &mut total[k * stride..][..width];
        let (whole, rest) = f64::vectors_mut::<S>(line);
        for (v, total) in whole.iter_mut().enumerate() {
            *total = f64::add(simd, *total, sums[k][v]);
        }
        if !rest.is_empty() {
            let sum = f64::add(simd, f64::load_part(simd, rest), sums[k][width / lanes]);
            f64::store_part(simd, rest, sum);
        }
    }
    V * lanes
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
