//! Updates of weights that also tell how the squared norm of each class changed.
//!
//! A projection onto a ball needs the norm after every update. Summing all weights again would
//! cost more than the update itself when rows are sparse; here the change is summed over the
//! entries that the update touches, from the numbers as stored: `new^2 - old^2` as
//! `(new - old) (new + old)`, whose relative error is a few roundings even where the weights
//! hardly move.

use crate::layout::class_major::ClassMajor;
use crate::layout::lines::Lines;
use crate::layout::weights::{TypedRow, WeightLayout};
use crate::simd::{Real, Simd};

/// A layout with a measured update.
pub trait MeasuredUpdate: WeightLayout {
    /// `w_k += coefficient[k] * row`, and `change[k] = ` what that added to `||w_k||^2`.
    ///
    /// Padding of `coefficient` must be zero. A term of `change[k]` goes through at most as many
    /// roundings as the row has entries, plus eight.
    fn measured_update<S: Simd>(
        &self,
        simd: S,
        row: TypedRow<'_, f64>,
        w: &mut [f64],
        coefficient: &[f64],
        change: &mut [f64],
    );
}

/// `(new, sum + new^2 - old^2)` with `new = old + a x`, lane by lane.
#[inline(always)]
fn moved<S: Simd>(
    simd: S,
    a: <f64 as Real>::Vector<S>,
    x: <f64 as Real>::Vector<S>,
    old: <f64 as Real>::Vector<S>,
    sum: <f64 as Real>::Vector<S>,
) -> (<f64 as Real>::Vector<S>, <f64 as Real>::Vector<S>) {
    let new = f64::fma(simd, a, x, old);
    let step = f64::fma(simd, f64::splat(simd, -1.0), old, new);
    let twice = f64::add(simd, old, new);
    (new, f64::fma(simd, step, twice, sum))
}

impl MeasuredUpdate for ClassMajor {
    #[inline(always)]
    fn measured_update<S: Simd>(
        &self,
        simd: S,
        row: TypedRow<'_, f64>,
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
}

impl MeasuredUpdate for Lines {
    #[inline(always)]
    fn measured_update<S: Simd>(
        &self,
        simd: S,
        row: TypedRow<'_, f64>,
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
        let (lanes, stride) = (f64::lanes::<S>(), self.line());
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
}
