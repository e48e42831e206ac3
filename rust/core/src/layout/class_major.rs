//! One row of weights a class: best for dense rows, since an update touches only the classes whose
//! coefficient moved.

use crate::layout::weights::{WeightLayout, moved};
use crate::rows::view::Row;
use crate::simd::{Real, Simd, add_scaled};

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
    fn scores<S: Simd, T: Real>(&self, simd: S, row: Row<'_, T>, w: &[T], scores: &mut [T]) {
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
    fn update<S: Simd, T: Real>(&self, simd: S, row: Row<'_, T>, w: &mut [T], coefficient: &[T]) {
        let x = &row.value[..self.columns];
        for (class, a) in coefficient.iter().enumerate().take(self.classes) {
            if *a != T::default() {
                let w = &mut w[class * self.columns..][..self.columns];
                add_scaled(simd, w, *a, x);
            }
        }
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
        let (x, x_rest) = f64::vectors::<S>(row.value);
        let lines = w.chunks_exact_mut(row.value.len().max(1));
        for ((w, a), change) in lines.zip(coefficient).zip(change) {
            *change = 0.0;
            if *a == 0.0 {
                continue;
            }
            let a = f64::splat(simd, *a);
            let mut sum = f64::splat(simd, 0.0);
            let (w, w_rest) = f64::vectors_mut::<S>(w);
            for (w, x) in w.iter_mut().zip(x) {
                (*w, sum) = moved(simd, a, *x, *w, sum);
            }
            if !w_rest.is_empty() {
                let x = f64::load_part(simd, x_rest);
                let (new, total) = moved(simd, a, x, f64::load_part(simd, w_rest), sum);
                f64::store_part(simd, w_rest, new);
                sum = total;
            }
            *change = f64::sum(simd, sum);
        }
    }

    fn score_depth(&self, row_length: usize, lanes: usize) -> f64 {
        // Two chains of every second vector, at most two vectors over; one level adds the chains,
        // at most `lanes` levels the lanes; one more where multiplication rounds apart.
        (row_length / (2 * lanes) + lanes + 5) as f64
    }
}
