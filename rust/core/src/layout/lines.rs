//! A sparse matrix times a dense one: `out[r] = sum of value[e] b[index[e]]` over the entries of line r.
//!
//! With the rows as lines and the weights as `b` these are scores; with the columns as lines and the
//! rows' coefficients as `b` they are sums over rows, each written once. [`Lines`] keeps weights so,
//! `[feature][class]`: a sparse row touches whole vectors, with no horizontal sum and no gather. Lines
//! of `b` lie one after the other: a vector that begins in one may end in the next, whose numbers are
//! left out of the result, so [`SPARE`] numbers must follow the last line.

use crate::error::Result;
use crate::layout::weights::{WeightLayout, moved};
use crate::rows::view::Row;
use crate::runtime::memory::{collected, zeros};
use crate::simd::{Kernel, Real, Simd, dispatch, dispatch_narrow};

/// Largest number of values read past the last line of `b`.
pub const SPARE: usize = 16;
/// Sums kept apart, to break the dependency of one addition on the last.
const CHAINS: usize = 4;
/// Entries of a dense row that goes with lines, at most.
pub const SHORT: usize = 24;
/// Vectors of a line that are met at a time: more sums would not stay in the registers.
const MAX_VECTORS: usize = 3;

/// Numbers of a line up to which shorter vectors are faster: fewer lie in two lines of the cache.
const FEW: usize = 8;

/// Runs a kernel for lines of `stride` numbers; what it makes of them is the same with any vectors.
pub fn suited<K: Kernel>(stride: usize, kernel: K) -> K::Output {
    if stride <= FEW {
        dispatch_narrow(kernel)
    } else {
        dispatch(kernel)
    }
}

/// Bound on the number of roundings that a term of a sum over `entries` goes through.
pub fn depth(entries: usize) -> f64 {
    // A product, a chain, at most three entries left over and two levels that add the chains.
    (entries / CHAINS + CHAINS + 4) as f64
}

/// Place of each column among all, the one with the most entries first.
///
/// # Errors
/// No memory.
pub fn by_frequency(index: &[u32], columns: usize) -> Result<Vec<u32>> {
    let mut count = zeros::<u32>(columns)?;
    for column in index {
        count[*column as usize] += 1;
    }
    // Sorted as one number each: what a column lacks to the largest count, then the column.
    let key = |column: usize| u64::from(u32::MAX - count[column]) << 32 | column as u64;
    let mut order = collected((0..columns).map(key))?;
    order.sort_unstable();
    let mut place = zeros(columns)?;
    for (at, key) in order.iter().enumerate() {
        place[*key as u32 as usize] = at as u32;
    }
    Ok(place)
}

/// Columns of a dense row, which comes without them.
static ALL_COLUMNS: [u32; SHORT] = [
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23,
];

/// A row with its columns.
#[inline(always)]
fn with_columns<T>(row: Row<'_, T>) -> Row<'_, T> {
    if !row.index.is_empty() {
        return row;
    }
    Row {
        index: &ALL_COLUMNS[..row.value.len()],
        value: row.value,
    }
}

/// One line of weights a column, for sparse rows and for dense ones that are short.
#[derive(Debug, Clone, Copy)]
pub struct Lines {
    classes: usize,
    columns: usize,
}

impl Lines {
    /// Layout for `classes` x `columns`.
    ///
    /// Dropped: frequent columns first, and lines as long as whole vectors: a private step on text of 3,
    /// 5 and 20 classes took .97 to 1.2 times as long.
    pub fn new(classes: usize, columns: usize) -> Self {
        Self { classes, columns }
    }

    /// Scores of a sparse row whose entries may be in a precision of their own.
    #[inline(always)]
    pub fn row_scores<S: Simd, U: Real, T: Real>(
        &self,
        simd: S,
        row: Row<'_, U>,
        w: &[T],
        scores: &mut [T],
    ) {
        if self.classes == 1 {
            scores[0] = T::near(dot::<f64, U, T>(row, w));
            return;
        }
        let (scores, padding) = scores.split_at_mut(self.classes);
        padding.fill(T::default());
        weighted_sum(simd, row, w, scores);
    }

    /// Adds such a row to the weights, times the coefficient of each class.
    #[inline(always)]
    pub fn add<S: Simd, U: Real, T: Real>(
        &self,
        simd: S,
        row: Row<'_, U>,
        w: &mut [T],
        coefficient: &[T],
    ) {
        if self.classes == 1 {
            let a = coefficient[0];
            for (index, value) in row.index.iter().zip(row.value) {
                let weight = &mut w[*index as usize];
                *weight = weight.plus(a.times(T::near(value.wide())));
            }
            return;
        }
        let lanes = T::lanes::<S>();
        let mut first = 0;
        while first < self.classes {
            let vectors = (self.classes - first).div_ceil(lanes).min(MAX_VECTORS);
            let a = &coefficient[first..first + vectors * lanes];
            let at = (self.classes, first);
            // Often only a few of many classes move.
            if a.iter().any(|a| *a != T::default()) {
                match vectors {
                    1 => add_part::<S, U, T, 1>(simd, row, w, at, a),
                    2 => add_part::<S, U, T, 2>(simd, row, w, at, a),
                    _ => add_part::<S, U, T, MAX_VECTORS>(simd, row, w, at, a),
                }
            }
            first += vectors * lanes;
        }
    }
}

impl WeightLayout for Lines {
    fn stored(&self) -> usize {
        self.classes * self.columns + SPARE
    }

    fn padded_classes(&self) -> usize {
        if self.classes == 1 {
            return 1;
        }
        self.classes.next_multiple_of(SPARE)
    }

    #[inline(always)]
    fn position(&self, class: usize, column: usize) -> usize {
        column * self.classes + class
    }

    #[inline(always)]
    fn scores<S: Simd, T: Real>(&self, simd: S, row: Row<'_, T>, w: &[T], scores: &mut [T]) {
        self.row_scores(simd, with_columns(row), w, scores);
    }

    #[inline(always)]
    fn update<S: Simd, T: Real>(&self, simd: S, row: Row<'_, T>, w: &mut [T], coefficient: &[T]) {
        self.add(simd, with_columns(row), w, coefficient);
    }

    #[inline(always)]
    fn measured_update<S: Simd>(
        &self,
        simd: S,
        row: Row<'_, f64>,
        w: &mut [f64],
        coefficient: &[f64],
        change: &mut [f64],
    ) {
        if let ([a], [change]) = (coefficient, &mut *change) {
            *change = 0.0;
            for (index, x) in row.index.iter().zip(row.value) {
                let weight = &mut w[*index as usize];
                let new = *weight + a * x;
                *change += (new - *weight) * (new + *weight);
                *weight = new;
            }
            return;
        }
        let (lanes, stride) = (f64::lanes::<S>(), self.classes);
        let classes = coefficient
            .chunks_exact(lanes)
            .zip(change.chunks_exact_mut(lanes));
        for (first, (a, change)) in (0..stride).step_by(lanes).zip(classes) {
            let a = f64::vectors::<S>(a).0[0];
            let mut sum = f64::splat(simd, 0.0);
            for (index, x) in row.index.iter().zip(row.value) {
                let line = &mut w[*index as usize * stride + first..][..lanes];
                let weights = &mut f64::vectors_mut::<S>(line).0[0];
                (*weights, sum) = moved(simd, a, f64::splat(simd, *x), *weights, sum);
            }
            f64::vectors_mut::<S>(change).0[0] = sum;
        }
    }

    fn score_depth(&self, row_length: usize, _lanes: usize) -> f64 {
        depth(row_length)
    }
}

/// `V` vectors of an update: the last may reach into the next line, to which it adds zeros.
#[inline(always)]
fn add_part<S: Simd, U: Real, T: Real, const V: usize>(
    simd: S,
    Row { index, value }: Row<'_, U>,
    w: &mut [T],
    (stride, first): (usize, usize),
    coefficient: &[T],
) {
    let width = V * T::lanes::<S>();
    let a: [T::Vector<S>; V] = std::array::from_fn(|v| T::vectors::<S>(&coefficient[..width]).0[v]);
    for (index, value) in index.iter().zip(value) {
        let line = &mut w[*index as usize * stride + first..][..width];
        let x = T::splat(simd, T::near(value.wide()));
        let line = T::vectors_mut::<S>(line).0;
        for v in 0..V {
            line[v] = T::fma(simd, x, a[v], line[v]);
        }
    }
}

/// `sum of value[e] b[index[e]]`, into `out`, whose length is that of a line.
#[inline(always)]
pub fn weighted_sum<S: Simd, U: Real, T: Real>(simd: S, line: Row<'_, U>, b: &[T], out: &mut [T]) {
    if let [out] = out {
        *out = T::near(dot::<T, U, T>(line, b));
        return;
    }
    let (stride, lanes) = (out.len(), T::lanes::<S>());
    let mut first = 0;
    while first < stride {
        let vectors = (stride - first).div_ceil(lanes).min(MAX_VECTORS);
        let at = (stride, first);
        match vectors {
            1 => part::<S, U, T, 1>(simd, line, b, at, out),
            2 => part::<S, U, T, 2>(simd, line, b, at, out),
            _ => part::<S, U, T, MAX_VECTORS>(simd, line, b, at, out),
        }
        first += vectors * lanes;
    }
}

/// `V` vectors of the result, from number `first` on.
#[inline(always)]
fn part<S: Simd, U: Real, T: Real, const V: usize>(
    simd: S,
    Row { index, value }: Row<'_, U>,
    b: &[T],
    (stride, first): (usize, usize),
    out: &mut [T],
) {
    let lanes = T::lanes::<S>();
    let mut sums = [[T::splat(simd, T::default()); V]; CHAINS];
    let (indices, index_rest) = index.as_chunks::<CHAINS>();
    let (values, value_rest) = value.as_chunks::<CHAINS>();
    for (index, value) in indices.iter().zip(values) {
        for chain in 0..CHAINS {
            let line = &b[index[chain] as usize * stride + first..][..V * lanes];
            add_line(simd, line, value[chain], &mut sums[chain]);
        }
    }
    for (index, value) in index_rest.iter().zip(value_rest) {
        let line = &b[*index as usize * stride + first..][..V * lanes];
        add_line(simd, line, *value, &mut sums[0]);
    }
    for v in 0..V {
        let low = T::add(simd, sums[0][v], sums[1][v]);
        let high = T::add(simd, sums[2][v], sums[3][v]);
        let sum = T::add(simd, low, high);
        let out = &mut out[first + v * lanes..];
        if out.len() < lanes {
            T::store_part(simd, out, sum);
        } else {
            T::vectors_mut::<S>(out).0[0] = sum;
        }
    }
}

/// `sums += value line`. A function of its own, as closures are not inlined for certain.
#[inline(always)]
fn add_line<S: Simd, U: Real, T: Real, const V: usize>(
    simd: S,
    line: &[T],
    value: U,
    sums: &mut [T::Vector<S>; V],
) {
    let x = T::splat(simd, T::near(value.wide()));
    let line = T::vectors::<S>(line).0;
    for v in 0..V {
        sums[v] = T::fma(simd, x, line[v], sums[v]);
    }
}

/// Inner product of a row and `b`, lines of one number, in the precision of `A`.
#[inline(always)]
fn dot<A: Real, U: Real, T: Real>(Row { index, value }: Row<'_, U>, b: &[T]) -> f64 {
    let mut sums = [A::default(); CHAINS];
    let (indices, index_rest) = index.as_chunks::<CHAINS>();
    let (values, value_rest) = value.as_chunks::<CHAINS>();
    for (index, value) in indices.iter().zip(values) {
        // All are read before any is multiplied, so that the products are those of one vector.
        let mut met = [T::default(); CHAINS];
        for chain in 0..CHAINS {
            met[chain] = b[index[chain] as usize];
        }
        for chain in 0..CHAINS {
            let (x, b) = (A::near(value[chain].wide()), A::near(met[chain].wide()));
            sums[chain] = sums[chain].plus(x.times(b));
        }
    }
    for (sum, (index, value)) in sums.iter_mut().zip(index_rest.iter().zip(value_rest)) {
        let (x, b) = (A::near(value.wide()), A::near(b[*index as usize].wide()));
        *sum = sum.plus(x.times(b));
    }
    sums[0].plus(sums[1]).plus(sums[2].plus(sums[3])).wide()
}
