//! The two inner loops that every pass is made of, in two weight layouts.
//!
//! - scores: `s_k = <w_k, u>` for all classes of one row;
//! - update: `w_k += a_k u`.
//!
//! [`Panels`] keeps the weights feature-major, `[feature][class]`, with the classes padded to the
//! vector width: a sparse row touches whole vectors, with no horizontal sum and no gather.
//! [`ClassMajor`] keeps one row of weights a class: best for dense rows, since an update touches
//! only the classes whose coefficient moved.
//!
//! Arithmetic is in `T` (f32 while far from the optimum, f64 for anything a certificate rests
//! on); the order of additions depends on the row and the instruction set alone.

use crate::rows::Row;
use crate::simd::{Real, Simd, add_scaled};

/// A row in the precision of the arithmetic.
#[derive(Debug, Clone, Copy)]
pub struct TypedRow<'a, T> {
    /// Columns; empty for a dense row.
    pub index: &'a [u32],
    /// Entries.
    pub value: &'a [T],
}

/// `row` in precision `T`; exact.
#[inline(always)]
pub fn typed<'a, T: Real>(row: Row<'a>, buffer: &'a mut Vec<T>) -> TypedRow<'a, T> {
    TypedRow {
        index: row.index,
        value: T::of_slice(row.value, buffer),
    }
}

/// A way to lay out K weight vectors of `columns` entries.
pub trait WeightLayout: Copy + Send + Sync {
    /// Numbers stored for all classes.
    fn stored(&self) -> usize;
    /// Length of a score buffer (classes, padded).
    fn padded_classes(&self) -> usize;
    /// Where weight `(class, column)` is stored.
    fn position(&self, class: usize, column: usize) -> usize;
    /// `scores[k] = <w_k, row>`; padding is written with zeros.
    fn scores<S: Simd, T: Real>(&self, simd: S, row: TypedRow<'_, T>, w: &[T], scores: &mut [T]);
    /// `w_k += coefficient[k] * row`; padding of `coefficient` must be zero.
    fn update<S: Simd, T: Real>(
        &self,
        simd: S,
        row: TypedRow<'_, T>,
        w: &mut [T],
        coefficient: &[T],
    );
    /// Bound on the number of roundings that a term of one score goes through, with `lanes` numbers
    /// in a vector.
    fn score_depth(&self, row_length: usize, lanes: usize) -> f64;
}

/// Feature-major panels of `P` classes.
#[derive(Debug, Clone, Copy)]
pub struct Panels<const P: usize> {
    columns: usize,
    panels: usize,
}

impl<const P: usize> Panels<P> {
    /// Layout for `classes` x `columns`.
    pub fn new(classes: usize, columns: usize) -> Self {
        Self {
            columns,
            panels: classes.div_ceil(P),
        }
    }
}

/// Sums kept apart, to break the dependency of one addition on the last.
const CHAINS: usize = 4;

/// `V` vectors of a panel's scores, from vector `first` on.
#[inline(always)]
fn panel_scores<S: Simd, T: Real, const P: usize, const V: usize>(
    simd: S,
    row: TypedRow<'_, T>,
    w: &[[T; P]],
    first: usize,
    out: &mut [T],
) {
    let mut sums = [[T::splat(simd, T::default()); V]; CHAINS];
    let (index, index_rest) = row.index.as_chunks::<CHAINS>();
    let (value, value_rest) = row.value.as_chunks::<CHAINS>();
    for (index, value) in index.iter().zip(value) {
        for chain in 0..CHAINS {
            let weights = T::vectors::<S>(&w[index[chain] as usize]).0;
            let x = T::splat(simd, value[chain]);
            for v in 0..V {
                sums[chain][v] = T::fma(simd, x, weights[first + v], sums[chain][v]);
            }
        }
    }
    for (index, value) in index_rest.iter().zip(value_rest) {
        let weights = T::vectors::<S>(&w[*index as usize]).0;
        let x = T::splat(simd, *value);
        for v in 0..V {
            sums[0][v] = T::fma(simd, x, weights[first + v], sums[0][v]);
        }
    }
    let out = T::vectors_mut::<S>(out).0;
    for v in 0..V {
        let low = T::add(simd, sums[0][v], sums[1][v]);
        let high = T::add(simd, sums[2][v], sums[3][v]);
        out[first + v] = T::add(simd, low, high);
    }
}

/// A panel narrower than a vector (few classes at a wide instruction set).
#[inline(always)]
fn narrow_scores<S: Simd, T: Real, const P: usize>(
    simd: S,
    row: TypedRow<'_, T>,
    w: &[[T; P]],
    out: &mut [T],
) {
    let zero = T::splat(simd, T::default());
    let mut sums = [zero; CHAINS];
    let (index, index_rest) = row.index.as_chunks::<CHAINS>();
    let (value, value_rest) = row.value.as_chunks::<CHAINS>();
    for (index, value) in index.iter().zip(value) {
        for chain in 0..CHAINS {
            let weights = T::load_part(simd, &w[index[chain] as usize]);
            sums[chain] = T::fma(simd, T::splat(simd, value[chain]), weights, sums[chain]);
        }
    }
    for (index, value) in index_rest.iter().zip(value_rest) {
        let weights = T::load_part(simd, &w[*index as usize]);
        sums[0] = T::fma(simd, T::splat(simd, *value), weights, sums[0]);
    }
    let low = T::add(simd, sums[0], sums[1]);
    let high = T::add(simd, sums[2], sums[3]);
    T::store_part(simd, out, T::add(simd, low, high));
}

impl<const P: usize> WeightLayout for Panels<P> {
    fn stored(&self) -> usize {
        self.panels * P * self.columns
    }

    fn padded_classes(&self) -> usize {
        self.panels * P
    }

    #[inline(always)]
    fn position(&self, class: usize, column: usize) -> usize {
        (class / P * self.columns + column) * P + class % P
    }

    #[inline(always)]
    fn scores<S: Simd, T: Real>(&self, simd: S, row: TypedRow<'_, T>, w: &[T], scores: &mut [T]) {
        let vectors = T::vectors::<S>(&[T::default(); P]).0.len();
        for (panel, out) in scores.chunks_exact_mut(P).enumerate().take(self.panels) {
            let w = &w[panel * self.columns * P..][..self.columns * P];
            let (w, _) = w.as_chunks::<P>();
            if vectors == 0 {
                narrow_scores::<S, T, P>(simd, row, w, out);
                continue;
            }
            let mut first = 0;
            while first + 2 <= vectors {
                panel_scores::<S, T, P, 2>(simd, row, w, first, out);
                first += 2;
            }
            if first < vectors {
                panel_scores::<S, T, P, 1>(simd, row, w, first, out);
            }
        }
    }

    #[inline(always)]
    fn update<S: Simd, T: Real>(
        &self,
        simd: S,
        row: TypedRow<'_, T>,
        w: &mut [T],
        coefficient: &[T],
    ) {
        for (panel, a) in coefficient.chunks_exact(P).enumerate().take(self.panels) {
            if a.iter().all(|a| *a == T::default()) {
                continue;
            }
            let w = &mut w[panel * self.columns * P..][..self.columns * P];
            let (w, _) = w.as_chunks_mut::<P>();
            let (whole, rest) = T::vectors::<S>(a);
            for (index, value) in row.index.iter().zip(row.value) {
                let x = T::splat(simd, *value);
                let (weights, tail) = T::vectors_mut::<S>(&mut w[*index as usize]);
                for (weights, a) in weights.iter_mut().zip(whole) {
                    *weights = T::fma(simd, x, *a, *weights);
                }
                if !rest.is_empty() {
                    let a = T::load_part(simd, rest);
                    let sum = T::fma(simd, x, a, T::load_part(simd, tail));
                    T::store_part(simd, tail, sum);
                }
            }
        }
    }

    fn score_depth(&self, row_length: usize, _lanes: usize) -> f64 {
        // One chain takes every fourth entry and at most three left over; two levels add the
        // chains; one more where multiplication rounds apart.
        (row_length / CHAINS + CHAINS + 3) as f64
    }
}

/// One row of weights a class, for dense rows.
#[derive(Debug, Clone, Copy)]
pub struct ClassMajor {
    columns: usize,
    classes: usize,
}

impl ClassMajor {
    /// Layout for `classes` x `columns`.
    pub fn new(classes: usize, columns: usize) -> Self {
        Self { columns, classes }
    }
}

/// Scores of `N` classes whose weights lie one after the other in `w`.
#[inline(always)]
fn dense_tile<S: Simd, T: Real, const N: usize>(simd: S, x: &[T], w: &[T], out: &mut [T]) {
    let columns = x.len();
    let lines: [&[T]; N] = std::array::from_fn(|class| &w[class * columns..][..columns]);
    let (x, x_rest) = T::vectors::<S>(x);
    let whole: [&[T::Vector<S>]; N] =
        std::array::from_fn(|class| &T::vectors::<S>(lines[class]).0[..x.len()]);
    let zero = T::splat(simd, T::default());
    let mut even = [zero; N];
    let mut odd = [zero; N];
    let mut at = 0;
    while at + 2 <= x.len() {
        for class in 0..N {
            even[class] = T::fma(simd, x[at], whole[class][at], even[class]);
            odd[class] = T::fma(simd, x[at + 1], whole[class][at + 1], odd[class]);
        }
        at += 2;
    }
    if at < x.len() {
        for class in 0..N {
            even[class] = T::fma(simd, x[at], whole[class][at], even[class]);
        }
    }
    if !x_rest.is_empty() {
        let x = T::load_part(simd, x_rest);
        for class in 0..N {
            let weights = T::load_part(simd, &lines[class][columns - x_rest.len()..]);
            odd[class] = T::fma(simd, x, weights, odd[class]);
        }
    }
    for class in 0..N {
        out[class] = T::sum(simd, T::add(simd, even[class], odd[class]));
    }
}

impl WeightLayout for ClassMajor {
    fn stored(&self) -> usize {
        self.classes * self.columns
    }

    fn padded_classes(&self) -> usize {
        self.classes
    }

    #[inline(always)]
    fn position(&self, class: usize, column: usize) -> usize {
        class * self.columns + column
    }

    #[inline(always)]
    fn scores<S: Simd, T: Real>(&self, simd: S, row: TypedRow<'_, T>, w: &[T], scores: &mut [T]) {
        let x = &row.value[..self.columns];
        let mut class = 0;
        while class < self.classes {
            // Tiles of five keep ten sums in flight and ten classes in two tiles.
            let size = (self.classes - class).min(5);
            let w = &w[class * self.columns..][..size * self.columns];
            let out = &mut scores[class..class + size];
            match size {
                5 => dense_tile::<S, T, 5>(simd, x, w, out),
                4 => dense_tile::<S, T, 4>(simd, x, w, out),
                3 => dense_tile::<S, T, 3>(simd, x, w, out),
                2 => dense_tile::<S, T, 2>(simd, x, w, out),
                _ => dense_tile::<S, T, 1>(simd, x, w, out),
            }
            class += size;
        }
    }

    #[inline(always)]
    fn update<S: Simd, T: Real>(
        &self,
        simd: S,
        row: TypedRow<'_, T>,
        w: &mut [T],
        coefficient: &[T],
    ) {
        let x = &row.value[..self.columns];
        for (class, a) in coefficient.iter().enumerate().take(self.classes) {
            if *a != T::default() {
                let w = &mut w[class * self.columns..][..self.columns];
                add_scaled(simd, w, *a, x);
            }
        }
    }

    fn score_depth(&self, row_length: usize, lanes: usize) -> f64 {
        // Two chains of every second vector, at most two vectors over; one level adds the chains,
        // at most `lanes` levels the lanes; one more where multiplication rounds apart.
        (row_length / (2 * lanes) + lanes + 5) as f64
    }
}
