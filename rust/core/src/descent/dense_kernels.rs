//! The two loops over a leaf of dense rows: scores, and the sum of `c r^T`.
//!
//! Rows lie in memory as they are; classes are taken in blocks of at most [`BLOCK`] whose sums stay
//! in registers. What is computed for a row is the same sequence of operations whether it is taken
//! with another row or alone, so that its scores depend on it and the weights only.

use crate::descent::leaves::LEAF;
use crate::simd::{Real, Simd, level_lanes};

/// Classes of a block at most: with two rows, or two vectors of columns, they fill 20 of 32
/// registers.
const BLOCK: usize = 10;

/// Registers from which two rows are taken at a time.
const MANY_REGISTERS: usize = 32;

/// Calls `$f::<..., size>` for the constant that equals `$size`.
macro_rules! with_block {
    ($size:expr, $f:ident :: <$($p:tt),*> $args:tt) => {
        match $size {
            1 => $f::<$($p),*, 1> $args,
            2 => $f::<$($p),*, 2> $args,
            3 => $f::<$($p),*, 3> $args,
            4 => $f::<$($p),*, 4> $args,
            5 => $f::<$($p),*, 5> $args,
            6 => $f::<$($p),*, 6> $args,
            7 => $f::<$($p),*, 7> $args,
            8 => $f::<$($p),*, 8> $args,
            9 => $f::<$($p),*, 9> $args,
            _ => $f::<$($p),*, 10> $args,
        }
    };
}

/// `$body` for each class `$k` of a block of `$count`, one after the other in the text: sums stay in
/// registers only where no index of theirs is computed.
macro_rules! each_class {
    ($k:ident < $count:ident, $body:block) => {
        each_class!(@ $k, $count, $body, 0 1 2 3 4 5 6 7 8 9)
    };
    (@ $k:ident, $count:ident, $body:block, $($index:literal)*) => {
        $(if $index < $count {
            let $k: usize = $index;
            $body
        })*
    };
}

/// Sizes of the blocks that `classes` are cut into: as equal as can be.
fn block_size(classes: usize) -> usize {
    classes.div_ceil(classes.div_ceil(BLOCK).max(1))
}

/// Entries that kernels read of a row: whole vectors. What follows the row is finite and counts nowhere.
pub fn padded(columns: usize) -> usize {
    columns.next_multiple_of(level_lanes())
}

/// `scores[k][i] = <rows[i], w[k]> + bias[k]`, [`LEAF`] numbers a class; `near(i)` is called beside row `i`.
///
/// Rows and lines of `w` have [`padded`] entries; those of `w` end with zeros.
#[inline(always)]
pub fn leaf_scores<S: Simd, T: Real>(
    simd: S,
    rows: &[&[T]],
    (w, bias): (&[T], &[T]),
    scores: &mut [T],
    near: impl Fn(usize),
) {
    let classes = bias.len();
    let columns = rows.first().map_or(0, |row| row.len());
    let size = block_size(classes);
    let mut first = 0;
    while first < classes {
        let block = size.min(classes - first);
        let w = &w[first * columns..(first + block) * columns];
        let bias = &bias[first..first + block];
        let mut at = 0;
        while at < rows.len() {
            if first == 0 {
                near(at);
                near(at + 1);
            }
            let out = &mut scores[first * LEAF + at..];
            if S::REGISTER_COUNT >= MANY_REGISTERS && at + 2 <= rows.len() {
                let pair = [rows[at], rows[at + 1]];
                with_block!(block, dots::<S, T, 2>(simd, pair, w, bias, out));
                at += 2;
            } else {
                with_block!(block, dots::<S, T, 1>(simd, [rows[at]], w, bias, out));
                at += 1;
            }
        }
        first += block;
    }
}

#[inline(always)]
fn dots<S: Simd, T: Real, const R: usize, const K: usize>(
    simd: S,
    x: [&[T]; R],
    w: &[T],
    bias: &[T],
    out: &mut [T],
) {
    let columns = x[0].len();
    let lines: [&[T]; K] = std::array::from_fn(|k| &w[k * columns..][..columns]);
    let whole = T::vectors::<S>(x[0]).0.len();
    let xs: [&[T::Vector<S>]; R] = std::array::from_fn(|r| &T::vectors::<S>(x[r]).0[..whole]);
    let ws: [&[T::Vector<S>]; K] = std::array::from_fn(|k| &T::vectors::<S>(lines[k]).0[..whole]);
    let zero = T::splat(simd, T::default());
    let mut sums = [[zero; K]; R];
    for at in 0..whole {
        for k in 0..K {
            let w = ws[k][at];
            for r in 0..R {
                sums[r][k] = T::fma(simd, xs[r][at], w, sums[r][k]);
            }
        }
    }
    let mut dots = [[T::default(); K]; R];
    each_class!(k < K, {
        for r in 0..R {
            dots[r][k] = T::sum(simd, sums[r][k]);
        }
    });
    for (r, dots) in dots.iter().enumerate() {
        for (k, dot) in dots.iter().enumerate() {
            out[k * LEAF + r] = T::near(dot.wide() + bias[k].wide());
        }
    }
}

/// `total[k] += round(sum over rows of coefficients[k][i] rows[i])` for the first columns, `stride`
/// numbers a line of `total`; the sum is rounded to a multiple of the unit whose `1.5 * 2^52`-fold is
/// `magic`. Rows have [`padded`] entries.
#[inline(always)]
pub fn leaf_sum<S: Simd, T: Real>(
    simd: S,
    (rows, columns): (&[&[T]], usize),
    coefficients: &[T],
    classes: usize,
    (total, stride): (&mut [f64], usize),
    magic: f64,
) {
    let size = block_size(classes);
    let lanes = T::lanes::<S>();
    let widest = if S::REGISTER_COUNT < MANY_REGISTERS {
        1
    } else {
        2
    };
    let mut at = 0;
    while at < columns {
        let vectors = (columns - at).div_ceil(lanes).min(widest);
        let width = (columns - at).min(vectors * lanes);
        let mut first = 0;
        while first < classes {
            let block = size.min(classes - first);
            let part = LeafBlock {
                rows,
                coefficients: &coefficients[first * LEAF..],
                at,
                width,
            };
            let mut sums = Sums {
                total: &mut total[first * stride + at..],
                stride,
                magic,
            };
            match (vectors, width == widest * lanes) {
                (2, true) => with_block!(block, outer::<S, T, 2, true>(simd, part, &mut sums)),
                (2, false) => with_block!(block, outer::<S, T, 2, false>(simd, part, &mut sums)),
                (_, true) => with_block!(block, outer::<S, T, 1, true>(simd, part, &mut sums)),
                (_, false) => with_block!(block, outer::<S, T, 1, false>(simd, part, &mut sums)),
            }
            first += block;
        }
        at += width;
    }
}

/// Some columns of the rows with their coefficients.
#[derive(Clone, Copy)]
struct LeafBlock<'p, T> {
    rows: &'p [&'p [T]],
    coefficients: &'p [T],
    at: usize,
    width: usize,
}

/// Eight numbers widened, by one store of a vector: a loop over lanes would store them one by one.
#[inline(always)]
pub fn eight<T: Real>(x: &[T; 8]) -> [f64; 8] {
    [
        x[0].wide(),
        x[1].wide(),
        x[2].wide(),
        x[3].wide(),
        x[4].wide(),
        x[5].wide(),
        x[6].wide(),
        x[7].wide(),
    ]
}

/// Sums of a block.
struct Sums<'t> {
    total: &'t mut [f64],
    stride: usize,
    magic: f64,
}

impl Sums<'_> {
    /// Adds the first `width` of `sums`, whole eights of numbers.
    #[inline(always)]
    fn add<S: Simd, T: Real>(&mut self, simd: S, class: usize, sums: &[T], width: usize) {
        let mut wide = [0.0; 2 * WIDEST];
        for (wide, x) in (wide.as_chunks_mut().0.iter_mut()).zip(sums.as_chunks::<8>().0) {
            *wide = eight(x);
        }
        let total = &mut self.total[class * self.stride..][..width];
        let (totals, rest) = f64::vectors_mut::<S>(total);
        let magic = f64::splat(simd, self.magic);
        for (total, sum) in totals.iter_mut().zip(f64::vectors::<S>(&wide).0) {
            let rounded = f64::sub(simd, f64::add(simd, *sum, magic), magic);
            *total = f64::add(simd, *total, rounded);
        }
        let done = width - rest.len();
        for (total, sum) in rest.iter_mut().zip(&wide[done..]) {
            *total += (sum + self.magic) - self.magic;
        }
    }
}

/// Lanes of the widest vector.
const WIDEST: usize = 16;

/// Sums of `V` vectors of columns; unless `WHOLE`, the last of them may have fewer columns than lanes.
#[inline(always)]
fn outer<S: Simd, T: Real, const V: usize, const WHOLE: bool, const K: usize>(
    simd: S,
    part: LeafBlock<'_, T>,
    sums: &mut Sums<'_>,
) {
    let lanes = T::lanes::<S>();
    let zero = T::splat(simd, T::default());
    let mut products = [[zero; V]; K];
    let c: [&[T]; K] = std::array::from_fn(|k| &part.coefficients[k * LEAF..][..part.rows.len()]);
    for (i, row) in part.rows.iter().enumerate() {
        let x = T::vectors::<S>(&row[part.at..part.at + V * lanes]).0;
        let x: [T::Vector<S>; V] = std::array::from_fn(|v| x[v]);
        for k in 0..K {
            let c = T::splat(simd, c[k][i]);
            for v in 0..V {
                products[k][v] = T::fma(simd, c, x[v], products[k][v]);
            }
        }
    }
    let mut lines = [[T::default(); 2 * WIDEST]; K];
    each_class!(k < K, {
        let whole = T::vectors_mut::<S>(&mut lines[k]).0;
        whole[..V].copy_from_slice(&products[k]);
    });
    let width = if WHOLE { V * lanes } else { part.width };
    for (k, line) in lines.iter().enumerate() {
        sums.add(simd, k, &line[..(V * lanes).next_multiple_of(8)], width);
    }
}
