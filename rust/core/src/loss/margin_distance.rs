//! The Huber function of the distance to the scores that keep the margin.
//!
//! With the own class `y` and margin `m`, the *kept* scores are the convex set
//! `P_y = {t : t_y >= t_k + m for all k != y}`. The loss is the Huber function of the distance `d` of
//! `s` to it, `d^2/(2 h)` for `d <= h` and `d - h/2` beyond. Its gradient is `q/max(d, h)` with the
//! residual `q = s - P(s)`, which has norm 1 wherever `d >= h`, whatever the number of classes
//! (`docs/proofs/losses.md`, "The distance to the margin").
//!
//! The projection raises the own score by some `u >= 0` and lowers the classes that come nearer than
//! `m` to it: with `z_k = s_k - s_y + m`,
//!
//! ```text
//! q_k = max(z_k - u, 0) for k != y,     q_y = -u,     u = sum_{k != y} max(z_k - u, 0)
//! ```

use crate::numeric::ROUNDOFF;
use crate::simd::Real;

/// Largest change of the computed `q` by rounding, per unit of the largest `z_k`
/// (`docs/proofs/objective_perturbation.md`, Statement D).
pub fn rounding(scores: usize) -> f64 {
    let k = scores as f64;
    2.1 * k.sqrt() * (k + 1.0) * ROUNDOFF
}

/// Turns the scores of one row into the gradient, in place, and keeps `q` in `state`.
#[inline(always)]
pub fn gradient<T: Real>(
    label: usize,
    scores: &mut [T],
    state: &mut [f32],
    margin: f64,
    smoothing: f64,
) {
    let own = scores[label].wide();
    for (k, s) in scores.iter_mut().enumerate() {
        let z = margin + (s.wide() - own);
        // Below zero nothing is lowered; the own class is no rival.
        *s = T::near(if k == label { 0.0 } else { z.max(0.0) });
    }
    let u = mean_above(scores);
    let mut square = u * u;
    for s in scores.iter_mut() {
        let q = (s.wide() - u).max(0.0);
        square += q * q;
        *s = T::near(q);
    }
    scores[label] = T::near(-u);
    let scale = 1.0 / square.sqrt().max(smoothing);
    for (s, q) in scores.iter_mut().zip(state) {
        *q = s.wide() as f32;
        *s = T::near(s.wide() * scale);
    }
}

/// The root `u` of `u = sum max(z - u, 0)` over numbers `z >= 0`: the mean of a zero and of those
/// above it. What lies below the mean is left out until nothing does.
#[inline(always)]
fn mean_above<T: Real>(z: &[T]) -> f64 {
    let (mut u, mut members) = (0.0, usize::MAX);
    loop {
        // Rounding errors of the additions are added at the end: the sum is good to two roundings.
        let (mut sum, mut lost, mut above) = (0.0, 0.0, 0);
        for z in z.iter().map(|z| z.wide()).filter(|z| *z > u) {
            let next = sum + z;
            let added = next - sum;
            lost += (sum - (next - added)) + (z - added);
            sum = next;
            above += 1;
        }
        // Fewer every time, also where rounding lets the mean fall.
        if above == 0 || above >= members {
            return u;
        }
        (u, members) = ((sum + lost) / (above + 1) as f64, above);
    }
}

/// Turns the scores of a direction into the Hessian's product with them, in place.
///
/// On the classes that the projection moves, the Hessian is `(I - mean)/max(d, h)`, less
/// `q q^T/d^3` where `d > h`; it is 0 on the others.
#[inline(always)]
pub fn product(row: &mut [f32], state: &[f32], smoothing: f32) {
    let (mut square, mut sum, mut along, mut count) = (0.0_f32, 0.0_f32, 0.0_f32, 0.0_f32);
    for (d, q) in row.iter().zip(state) {
        let moved = if *q == 0.0 { 0.0 } else { 1.0 };
        square += q * q;
        sum += d * moved;
        along += d * q;
        count += moved;
    }
    let distance = square.sqrt();
    let scale = 1.0 / distance.max(smoothing);
    let mean = if count > 0.0 { sum / count } else { 0.0 };
    let tail = if distance > smoothing {
        along / square
    } else {
        0.0
    };
    for (d, q) in row.iter_mut().zip(state) {
        let moved = if *q == 0.0 { 0.0 } else { *d - mean };
        *d = (moved - tail * q) * scale;
    }
}
