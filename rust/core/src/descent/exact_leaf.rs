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
    (rows, columns): (&[&[f32]], usize),
    coefficients: &[f64],
    classes: usize,
    (total, stride): (&mut [f64], usize),
    room: &mut Tile,
) {
    room.resize(LEAF, [0.0; TILE]);
    for at in (0..columns).step_by(TILE) {
        widen(rows, at, room);
        let mut lines: [&[f64]; LEAF] = [&[]; LEAF];
        for (line, wide) in lines.iter_mut().zip(&*room) {
            *line = wide;
        }
        let tile = (&lines[..rows.len()], TILE.min(columns - at));
        let total = (&mut total[at..], stride);
        leaf_sum(simd, tile, coefficients, classes, total, 0.0);
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
