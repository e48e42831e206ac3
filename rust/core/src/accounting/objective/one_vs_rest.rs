//! One-vs-rest losses: the privacy losses of the scores are independent and add up.
//!
//! Derivation: `docs/proofs/objective_perturbation.md`, sections "One score and one-vs-rest" and
//! "Replacement".

use crate::accounting::objective::logs::{log_gaussian, log_union};
use crate::accounting::objective::one_score::OneScore;
use crate::accounting::objective::power::{LARGEST_GRID, Powers};
use crate::accounting::objective::step_law::StepLaw;

/// Grid points a standard deviation of one loss for up to [`FEW`] scores; for more, a coarser grid
/// gives the same relative error.
const RESOLUTION: f64 = 256.0;
const FEW: f64 = 10.0;

/// Natural logarithm by which what is left off one loss's grid is below the result.
const CUT: f64 = 45.0;

/// Beyond this many deviations of the sum the union bound serves.
const FAR: f64 = 100.0;

/// A sum of `n` losses, each about `max(0, N(centre, scale^2))` plus at most `offset`.
struct Shape {
    n: f64,
    offset: f64,
    centre: f64,
    scale: f64,
}

impl Shape {
    /// Standard normal value beyond which one loss alone is negligible in the curve at `e`.
    fn largest_normal(&self, e: f64) -> f64 {
        // About -ln P(sum > e): one loss alone, or all of them as a normal variable.
        let alone = ((e - self.centre) / self.scale).max(0.0);
        let mean = self.centre.max(0.0) + 0.4 * self.scale;
        let together = ((e - self.n * mean) / self.scale).max(0.0);
        let rarity = (0.5 * alone * alone).min(2.0 + 1.5 * together * together / self.n);
        (2.0 * (rarity + CUT + libm::log(self.n))).sqrt() + 1.0
    }

    /// Grid width, such that the sum fits into the largest transform.
    fn eta(&self, e: f64) -> f64 {
        let fine = (self.n / FEW).sqrt().max(1.0) / RESOLUTION;
        let z = self.largest_normal(e);
        let each = self.offset / self.scale + (self.centre / self.scale).max(0.0) + 0.8;
        let reach = self.n * each + (2.0 * self.n).sqrt() * z + e / self.scale;
        self.scale * fine.max(2.0 * reach / LARGEST_GRID as f64)
    }

    /// Points of one loss's grid.
    fn len(&self, e: f64, eta: f64) -> usize {
        let top = self.offset + self.centre.max(0.0) + self.scale * self.largest_normal(e);
        (top / eta).ceil() as usize + 2
    }

    /// Whether the sum exceeds `e` but for a probability below 1e-15.
    fn exceeds(&self, e: f64) -> bool {
        self.n * self.centre - 9.0 * self.n.sqrt() * self.scale > e + 40.0
    }

    /// Whether `e` is so far away that delta is below e^-4000.
    fn is_far(&self, e: f64) -> bool {
        let sum = self.n * (self.offset + self.centre + self.scale);
        e > sum + FAR * self.n.sqrt() * self.scale
    }
}

/// `U = sum_{k <= n} max(0, t^2 / 2 + t z_k)`: upper bound on the logarithm of its curve at `e >= 0`.
pub(super) fn log_delta(e: f64, t: f64, n: usize) -> f64 {
    let shape = Shape {
        n: n as f64,
        offset: 0.0,
        centre: 0.5 * t * t,
        scale: t,
    };
    if shape.exceeds(e) {
        return 0.0;
    }
    if shape.is_far(e) {
        // The sum is the largest of the sums over subsets: Gaussian mechanisms.
        return log_union(n, |j| log_gaussian(e, (j.sqrt() * t).next_up()));
    }
    let eta = shape.eta(e);
    let thresholds: Vec<f64> = (0..shape.len(e, eta))
        .map(|j| j as f64 * eta / t - 0.5 * t)
        .collect();
    Powers::new().log_delta(&StepLaw::of_convex(&thresholds, eta), n, e)
}

/// The same for logistic-type losses, the Jacobian included: `U = sum_k S_k` of [`OneScore`].
pub(super) fn log_delta_logistic(epsilon: f64, t: f64, kappa: f64, n: usize) -> f64 {
    let shape = Shape {
        n: n as f64,
        offset: libm::log1p(0.25 * kappa),
        centre: 0.5 * t * t,
        scale: t,
    };
    if shape.exceeds(epsilon) {
        return 0.0;
    }
    if shape.is_far(epsilon) {
        return log_delta(epsilon - shape.n * shape.offset * (1.0 + 1e-15), t, n);
    }
    let eta = shape.eta(epsilon);
    let loss = OneScore::new(t, kappa);
    let mut thresholds: Vec<f64> = (0..shape.len(epsilon, eta))
        .map(|j| loss.threshold(j as f64 * eta).0)
        .collect();
    // The infimum grows with v; rounding must not say otherwise.
    for j in (1..thresholds.len()).rev() {
        thresholds[j - 1] = thresholds[j - 1].min(thresholds[j]);
    }
    Powers::new().log_delta(&StepLaw::of_convex(&thresholds, eta), n, epsilon)
}

/// Replacement: the loss `Y` of one score has `P(Y > x) <= Phi(-(x / 2t - t)) + 2 Phi(-(x / t - t / 2))`.
pub(super) fn log_delta_replaced(e: f64, t: f64, n: usize) -> f64 {
    let shape = Shape {
        n: n as f64,
        offset: 0.0,
        centre: 2.0 * t * t,
        scale: 2.0 * t,
    };
    if shape.exceeds(e) {
        return 0.0;
    }
    if shape.is_far(e) {
        // Each score takes one of three Gaussian losses or none; the largest norm bounds all.
        let choices = libm::log(3.0);
        return log_union(n, |j| j * choices + log_gaussian(e, 2.0 * j.sqrt() * t));
    }
    let eta = 0.5 * shape.eta(e);
    let parts = [[1.0, 2.0 * t * t, 2.0 * t], [2.0, 0.5 * t * t, t]];
    let law = StepLaw::of_tails(&parts, eta, shape.len(e, eta));
    Powers::new().log_delta(&law, n, e)
}
