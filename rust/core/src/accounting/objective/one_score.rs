//! One score with a logistic-type loss: gradient and curvature of one record in one supremum.
//!
//! With `u` in (0, 1) the size of the gradient, the curvature is `u (1 - u)` over the temperature, and
//! the privacy loss is at most `S = sup_u [t u z + psi(u)]`, `psi(u) = t^2 u^2 / 2 + ln(1 + kappa u
//! (1 - u))`, `z` standard normal. `S` exceeds `v` exactly when `z` exceeds
//! `threshold(v) = inf_u (v - psi(u)) / (t u)`, which is `v / t - t / 2` (the Gaussian mechanism) for
//! `v >= kappa - t^2 / 2`. Derivation: `docs/proofs/objective_perturbation.md`, section "One score and
//! one-vs-rest".

use crate::accounting::objective::logs::{NOTHING, log_add, log_gaussian, log_tail};
use crate::accounting::objective::step_law::SIX;

/// The same as [`SIX`] for eight nodes.
const EIGHT: [[f64; 2]; 4] = [
    [0.183_434_642_495_649_8, 0.362_683_783_378_362],
    [0.525_532_409_916_329, 0.313_706_645_877_887_3],
    [0.796_666_477_413_626_7, 0.222_381_034_453_374_48],
    [0.960_289_856_497_536_3, 0.101_228_536_290_376_26],
];

/// The integrand loses about this much of its logarithm over one panel.
const PANEL: f64 = 0.75;

/// Natural logarithm below the largest panel at which the integral is cut off.
const CUT: f64 = 45.0;

/// The supremum `S`, prepared for many evaluations.
#[derive(Debug, Clone)]
pub(super) struct OneScore {
    t: f64,
    kappa: f64,
    /// The intervals on which `psi` is concave, one or two, none when it is convex throughout.
    concave: [Option<(f64, f64)>; 2],
}

impl OneScore {
    pub(super) fn new(t: f64, kappa: f64) -> Self {
        // psi'' has the sign of t^2 (1 + kappa h)^2 + 2 kappa^2 h - 2 kappa - kappa^2, h = u (1 - u),
        // which grows with h: psi is convex between the two u of its root in h. Over kappa^2:
        let lack = 2.0 / kappa + 1.0 - (t / kappa) * (t / kappa);
        let concave = if kappa == 0.0 || lack <= 0.0 {
            [None, None]
        } else {
            let linear = 2.0 * (t * t / kappa + 1.0);
            let h = 2.0 * lack / (linear + (linear * linear + 4.0 * t * t * lack).sqrt());
            // Concave throughout also when h is not a number, for the least kappa.
            if h.is_nan() || h >= 0.25 {
                [Some((0.0, 1.0)), None]
            } else {
                let u = 2.0 * h / (1.0 + (1.0 - 4.0 * h).sqrt());
                [Some((0.0, u)), Some((1.0 - u, 1.0))]
            }
        };
        Self { t, kappa, concave }
    }

    /// `psi`, its slope and its second derivative.
    fn psi(&self, u: f64) -> (f64, f64, f64) {
        let (t2, kappa) = (self.t * self.t, self.kappa);
        let h = u * (1.0 - u);
        let denominator = 1.0 + kappa * h;
        let log_slope = kappa * (1.0 - 2.0 * u) / denominator;
        (
            0.5 * t2 * u * u + libm::log1p(kappa * h),
            t2 * u + log_slope,
            t2 - 2.0 * kappa / denominator - log_slope * log_slope,
        )
    }

    /// Minimiser over one concave interval: the root of `psi - u psi' = v`, whose left side grows.
    fn minimiser(&self, v: f64, (mut low, mut high): (f64, f64)) -> f64 {
        let excess = |u: f64| {
            let (value, slope, bend) = self.psi(u);
            (value - u * slope - v, -u * bend)
        };
        if excess(high).0 <= 0.0 {
            return high;
        }
        let mut u = 0.5 * (low + high);
        for _ in 0..80 {
            let (value, slope) = excess(u);
            if value > 0.0 {
                high = u;
            } else {
                low = u;
            }
            let mut next = u - value / slope;
            if !(next > low && next < high) {
                next = 0.5 * (low + high);
            }
            if (next - u).abs() <= 1e-10 * u {
                return next;
            }
            u = next;
        }
        u
    }

    fn candidate(&self, v: f64, u: f64) -> f64 {
        if u == 0.0 {
            return -self.kappa / self.t;
        }
        let value = self.psi(u).0;
        let rounding = 8.0 * f64::EPSILON * (v + value);
        (v - value - rounding) / (self.t * u)
    }

    /// The best of one concave interval: `(threshold, u)`.
    fn branch(&self, v: f64, index: usize) -> (f64, f64) {
        let u = match self.concave[index] {
            None => 1.0,
            Some(_) if v == 0.0 && index == 0 => 0.0,
            Some(interval) => self.minimiser(v, interval),
        };
        (self.candidate(v, u), u)
    }

    /// Lower bound, by rounding only, on the `z` above which `S > v`, for `v >= 0`; and the `u` there.
    pub(super) fn threshold(&self, v: f64) -> (f64, f64) {
        let (end, first) = (self.candidate(v, 1.0), self.branch(v, 0));
        let best = if first.0 < end { first } else { (end, 1.0) };
        if self.concave[1].is_none() {
            return best;
        }
        let second = self.branch(v, 1);
        if second.0 < best.0 { second } else { best }
    }

    /// Place where the infimum changes intervals, if it does between `low` and `high`.
    fn jump(&self, mut low: f64, mut high: f64) -> Option<f64> {
        self.concave[1]?;
        let first_is_best = |v: f64| {
            let second = self.branch(v, 1).0.min(self.candidate(v, 1.0));
            self.branch(v, 0).0 < second
        };
        if !first_is_best(low) || first_is_best(high) {
            return None;
        }
        for _ in 0..60 {
            let middle = 0.5 * (low + high);
            if first_is_best(middle) {
                low = middle;
            } else {
                high = middle;
            }
        }
        Some(high)
    }

    /// Upper bound on the logarithm of the curve at `epsilon >= 0`.
    pub(super) fn log_delta(&self, epsilon: f64) -> f64 {
        let free = self.kappa - 0.5 * self.t * self.t;
        if free <= epsilon {
            return log_gaussian(epsilon, self.t);
        }
        let mut integral = Integral::new(epsilon);
        let mut start = epsilon;
        if let Some(jump) = self.jump(epsilon, free) {
            integral.add(self, start, jump);
            start = jump;
        }
        integral.add(self, start, free);
        log_add(
            integral.log_bound(),
            epsilon - free + log_gaussian(free, self.t),
        )
        .min(0.0)
    }
}

/// `int e^{epsilon - v} P(S > v) dv` with a bound on its error, all in logarithms.
struct Integral {
    epsilon: f64,
    value: f64,
    error: f64,
    largest: f64,
}

impl Integral {
    fn new(epsilon: f64) -> Self {
        Self {
            epsilon,
            value: NOTHING,
            error: NOTHING,
            largest: NOTHING,
        }
    }

    fn log_integrand(&self, law: &OneScore, v: f64) -> f64 {
        self.epsilon - v + log_tail(law.threshold(v).0)
    }

    /// Adds the part between `start` and `end`, between which the integrand is smooth.
    fn add(&mut self, law: &OneScore, start: f64, end: f64) {
        let mut left = start;
        while left < end {
            let (z, u) = law.threshold(left);
            let log_left = self.log_integrand(law, left);
            self.largest = self.largest.max(log_left);
            if log_left < self.largest - CUT {
                // The integrand falls at least as fast as e^{-v}.
                self.value = log_add(self.value, log_left);
                return;
            }
            // z'(v) = 1 / (t u) falls with v, and ln Phi(-z) hardly moves below z = -9.
            let room = (-9.0 - z).max(0.0) + PANEL / (1.0 + z.max(0.0));
            let mut width = (room * law.t * u.max(1e-12)).min(1.0).min(end - left);
            // z'(v) is steep near its start; a panel must not reach far beyond its own scale.
            width = width.min(0.25 * left.max(1e-3 * end));
            let right = left + width;
            if right <= left.next_up() {
                // Narrower than the numbers are apart: the integrand falls, its left end bounds it.
                let right = left.next_up();
                self.value = log_add(self.value, log_left + libm::log(right - left));
                left = right;
                continue;
            }
            let (six, eight) = (
                self.rule(law, left, right, log_left, &SIX),
                self.rule(law, left, right, log_left, &EIGHT),
            );
            let scale = log_left + libm::log(0.5 * width);
            self.value = log_add(self.value, scale + libm::log(eight));
            self.error = log_add(self.error, scale + libm::log((six - eight).abs()));
            left = right;
        }
    }

    fn rule(&self, law: &OneScore, left: f64, right: f64, scale: f64, nodes: &[[f64; 2]]) -> f64 {
        let (centre, half) = (0.5 * (left + right), 0.5 * (right - left));
        nodes
            .iter()
            .flat_map(|&[x, weight]| [(x, weight), (-x, weight)])
            .map(|(x, weight)| {
                weight * libm::exp(self.log_integrand(law, centre + half * x) - scale)
            })
            .sum()
    }

    fn log_bound(&self) -> f64 {
        let rounding = 1e-13 + 16.0 * f64::EPSILON * self.value.abs();
        log_add(self.value + rounding, self.error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The infimum on a grid of `u`.
    fn threshold_by_grid(t: f64, kappa: f64, v: f64) -> f64 {
        (1..=200_000)
            .map(|i| {
                let u = f64::from(i) / 200_000.0;
                let psi = 0.5 * t * t * u * u + (kappa * u * (1.0 - u)).ln_1p();
                (v - psi) / (t * u)
            })
            .fold(f64::INFINITY, f64::min)
    }

    // Proof: objective_perturbation, "Laws as numbers"
    #[test]
    fn threshold_is_the_infimum() {
        // Concave, partly convex, convex throughout; on both sides of each change.
        for t in [0.05, 0.5, 1.4, 3.0] {
            for kappa in [0.0, 0.01, 0.6, 2.0, 9.0, 300.0] {
                let law = OneScore::new(t, kappa);
                for v in [1e-3, 0.3, 1.0, 2.5, 20.0, 400.0] {
                    let (found, wanted) = (law.threshold(v).0, threshold_by_grid(t, kappa, v));
                    let scale = 1.0 + wanted.abs();
                    let what = format!("{t} {kappa} {v}: {found} {wanted}");
                    assert!(found <= wanted + 1e-12 * scale, "{what}");
                    assert!(found >= wanted - 2e-5 * scale, "{what}");
                }
            }
        }
    }

    // Proof: objective_perturbation, "Laws as numbers"
    #[test]
    fn integral_agrees_with_a_plain_sum() {
        for (t, kappa, epsilon) in [
            (0.25, 2.0, 1.0),
            (0.8, 8.0, 4.0),
            (3.0, 9.0, 0.5),
            (0.4, 40.0, 4.0),
        ] {
            let law = OneScore::new(t, kappa);
            let step = 1e-3;
            let sum: f64 = (0..40_000)
                .map(|i| {
                    let above = (f64::from(i) + 0.5) * step;
                    let z = law.threshold(epsilon + above).0;
                    step * libm::exp(log_tail(z) - above)
                })
                .sum();
            let found = libm::exp(law.log_delta(epsilon));
            assert!(
                (found / sum - 1.0).abs() < 1e-4,
                "{t} {kappa}: {found} {sum}"
            );
        }
    }
}
