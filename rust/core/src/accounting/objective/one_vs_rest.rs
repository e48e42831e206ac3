//! One-vs-rest losses: the privacy losses of the scores are independent and add up.
//!
//! Derivation: `docs/proofs/objective_perturbation.md`, sections "One score and one-vs-rest" and
//! "Replacement".

use super::logs::log_count;
use super::one_score::OneScore;
use super::power::{LARGEST_GRID, Powers};
use super::step_law::StepLaw;

/// Grid points a standard deviation of one loss for up to [`FEW`] scores; for more, a coarser grid
/// gives the same relative error.
const RESOLUTION: f64 = 512.0;
const FEW: f64 = 10.0;

/// Natural logarithm by which what is left off one loss's grid is below the result.
const CUT: f64 = 45.0;

/// Above this many deviations the grid would be coarser than the losses; Chernoff's bound serves.
const FAR: f64 = 3e4;

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
        let alone = ((e - self.centre) / self.scale).max(0.0);
        (alone * alone + 2.0 * (CUT + libm::log(self.n))).sqrt() + 1.0
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

    /// Chernoff's bound on `ln P(sum > e)` where `e` is [`FAR`] away, or 0 where the sum exceeds `e`
    /// but for a probability below 1e-15; otherwise nothing.
    fn without_grid(&self, e: f64) -> Option<f64> {
        let mean = self.n * self.centre - 9.0 * self.n.sqrt() * self.scale;
        if mean > e + 40.0 {
            return Some(0.0);
        }
        if e / self.scale < FAR {
            return None;
        }
        // ln E e^{lambda max(0, X)} <= ln(1 + e^{lambda centre + (lambda scale)^2 / 2}).
        let each = e / self.n - self.offset - self.centre;
        let tilt = each.max(0.0) / (self.scale * self.scale);
        let moment = tilt * (self.offset + self.centre + 0.5 * tilt * self.scale * self.scale);
        let log = self.n * (libm::log1p(libm::exp(-moment)) + moment) - tilt * e;
        Some((log + 8.0 * f64::EPSILON * tilt * e).min(0.0))
    }
}

fn convolved(law: &StepLaw, n: usize, e: f64) -> f64 {
    Powers::new().log_delta(law, &law.log_mass, n, e)
}

/// `U = sum_{k <= n} max(0, t^2 / 2 + t z_k)`: upper bound on the logarithm of its curve at `e >= 0`.
pub(super) fn log_delta(e: f64, t: f64, n: usize) -> f64 {
    let shape = Shape {
        n: n as f64,
        offset: 0.0,
        centre: 0.5 * t * t,
        scale: t,
    };
    if let Some(log) = shape.without_grid(e) {
        return log;
    }
    let eta = shape.eta(e);
    let thresholds: Vec<f64> = (0..shape.len(e, eta))
        .map(|j| j as f64 * eta / t - 0.5 * t)
        .collect();
    convolved(&StepLaw::of_convex(&thresholds, eta), n, e)
}

/// The same for logistic-type losses, the Jacobian included: `U = sum_k S_k` of [`OneScore`].
pub(super) fn log_delta_logistic(epsilon: f64, t: f64, kappa: f64, n: usize) -> f64 {
    let shape = Shape {
        n: n as f64,
        offset: libm::log1p(0.25 * kappa),
        centre: 0.5 * t * t,
        scale: t,
    };
    if let Some(log) = shape.without_grid(epsilon) {
        return log;
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
    convolved(&StepLaw::of_convex(&thresholds, eta), n, epsilon)
}

/// Replacement: the loss `Y` of one score has `P(Y > x) <= Phi(-(x / 2t - t)) + 2 Phi(-(x / t - t / 2))`.
pub(super) fn log_delta_replaced(e: f64, t: f64, n: usize) -> f64 {
    let shape = Shape {
        n: n as f64,
        offset: 0.0,
        centre: 2.0 * t * t,
        scale: 2.0 * t,
    };
    if e / t >= FAR {
        // Three laws a score instead of one.
        let log = shape.without_grid(e).unwrap_or(0.0);
        return (log + shape.n * log_count(3.0)).min(0.0);
    }
    if let Some(log) = shape.without_grid(e) {
        return log;
    }
    let eta = 0.5 * shape.eta(e);
    let parts = [[1.0, 2.0 * t * t, 2.0 * t], [2.0, 0.5 * t * t, t]];
    let law = StepLaw::of_tails(&parts, eta, shape.len(e, eta));
    convolved(&law, n, e)
}
