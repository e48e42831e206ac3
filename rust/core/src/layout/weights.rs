//! The two inner loops that every pass is made of, in two weight layouts.
//!
//! - scores: `s_k = <w_k, u>` for all classes of one row;
//! - update: `w_k += a_k u`.
//!
//! [`Lines`](crate::layout::lines::Lines) keeps one line of weights a column, for sparse rows.
//! [`ClassMajor`](crate::layout::class_major::ClassMajor) keeps one row of weights a class: best for
//! dense rows, since an update touches only the classes whose coefficient moved.
//!
//! Arithmetic is in `T` (f32 while far from the optimum, f64 for anything a certificate rests
//! on); the order of additions depends on the row and the instruction set alone.

use crate::error::Result;
use crate::rows::view::Row;
use crate::simd::{Real, Simd};

/// `row` in precision `T`; exact.
///
/// # Errors
/// No memory.
#[inline(always)]
pub fn typed<'a, T: Real>(row: Row<'a>, buffer: &'a mut Vec<T>) -> Result<Row<'a, T>> {
    Ok(Row {
        index: row.index,
        value: T::of_slice(row.value, buffer)?,
    })
}

/// A way to lay out K weight vectors of `columns` entries.
pub trait WeightLayout: Copy + Send + Sync {
    /// Numbers stored for all classes.
    fn stored(&self) -> usize;
    /// Length of a score buffer (classes, padded).
    fn padded_classes(&self) -> usize;
    /// Index of weight `(class, column)`.
    fn position(&self, class: usize, column: usize) -> usize;
    /// `scores[k] = <w_k, row>`; padding is written with zeros.
    fn scores<S: Simd, T: Real>(&self, simd: S, row: Row<'_, T>, w: &[T], scores: &mut [T]);
    /// `w_k += coefficient[k] * row`; padding of `coefficient` must be zero.
    fn update<S: Simd, T: Real>(&self, simd: S, row: Row<'_, T>, w: &mut [T], coefficient: &[T]);
    /// [`Self::update`], and `change[k] = ` what that added to `||w_k||^2`.
    ///
    /// A projection onto a ball needs the norm after every update. Summing all weights again would cost
    /// more than the update itself when rows are sparse; here the change is summed over the entries that
    /// the update touches, from the numbers as stored: `new^2 - old^2` as `(new - old) (new + old)`,
    /// whose relative error is a few roundings even where the weights hardly move. A term of `change[k]`
    /// goes through at most as many roundings as the row has entries, plus eight.
    fn measured_update<S: Simd>(
        &self,
        simd: S,
        row: Row<'_, f64>,
        w: &mut [f64],
        coefficient: &[f64],
        change: &mut [f64],
    );
    /// Bound on the number of roundings that a term of one score goes through, with `lanes` numbers
    /// in a vector.
    fn score_depth(&self, row_length: usize, lanes: usize) -> f64;
}

/// `(new, sum + new^2 - old^2)` with `new = old + a x`, lane by lane.
#[inline(always)]
pub fn moved<S: Simd>(
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
