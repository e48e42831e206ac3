//! Losses that compare the own class with each other class separately.
//!
//! `U = sum_{k <= n} max(0, m + s (z_k - z_0))`: given `z_0` the terms are independent. The curve is
//! the integral over `z_0` of the curves of these sums, by the trapezoidal rule. After the shift
//! `z_k = x_k + z_0` the integrand is a mean over `x` of products of `n + 1` normal densities at
//! arguments shifted by `z_0`, hence analytic, and at a distance `a` from the real line at most
//! `e^{(n + 1) a^2 / 2}` times what it is on it; that bounds the rule's error in closed form.

use super::logs::{LOG_ROOT_TWO_PI, NOTHING, log_add, log_gaussian, log_tail};
use super::power::{LARGEST_GRID, Powers};
use super::step_law::StepLaw;

/// Grid points a standard deviation of one term for up to [`FEW`] terms, and coarser for more.
const RESOLUTION: f64 = 256.0;
const FEW: f64 = 10.0;

/// The rule's step times `sqrt(n + 1)`: its relative error is then below 2e-13.
const STEP: f64 = 0.8;

/// Natural logarithm below the largest value at which the integral over `z_0` is cut off.
const CUT: f64 = 36.0;

/// Natural logarithm by which what is left off one term's grid is below the result.
const TERM_CUT: f64 = 45.0;

/// From here on, in standard deviations, the union bound serves.
const FAR: f64 = 3e3;

/// Upper bound on the logarithm of the curve of `U` at `e >= 0`, `m >= 0`.
pub(super) fn log_delta(e: f64, m: f64, s: f64, n: usize) -> f64 {
    let count = n as f64;
    if n == 1 {
        return log_gaussian(e - m + s * s, (std::f64::consts::SQRT_2 * s).next_up());
    }
    if count * (m - 9.0 * s) > e + 40.0 + 9.0 * count.sqrt() * s {
        // But for a probability below 1e-15 the loss is far above e.
        return 0.0;
    }
    if e / s > FAR {
        // One of the terms exceeds e / n.
        let deviations = (e / count - m).max(0.0) / s;
        return (libm::log(count) - 0.25 * deviations * deviations).min(0.0);
    }
    Conditional::new(e, m, s, n).integral()
}

/// The curve given `z_0`, from one table of normal cells for all `z_0`.
struct Conditional {
    e: f64,
    n: usize,
    law: StepLaw,
    powers: Powers,
    /// Grid width in units of `z`.
    width: f64,
    /// `m / s` in grid points, rounded down, and what that leaves.
    shift: i64,
    rest: f64,
    /// The first point of the table, in grid points.
    first: i64,
    /// Distance of neighbouring `z_0`, in grid points.
    stride: i64,
}

impl Conditional {
    fn new(e: f64, m: f64, s: f64, n: usize) -> Self {
        let count = n as f64;
        let alone = ((e - m) / s).max(0.0);
        let largest = (0.5 * alone * alone + 2.0 * (TERM_CUT + libm::log(count))).sqrt() + 1.0;
        let step = STEP / (count + 1.0).sqrt();
        let reach = count * (m / s + largest) + e / s;
        let fine = (count / FEW).sqrt().max(1.0) / RESOLUTION;
        let width = fine.min(step).max(2.0 * reach / LARGEST_GRID as f64);
        let stride = ((step / width).floor() as i64).max(1);
        let shift = (m / s / width).floor() as i64;
        // z_0 is at least -largest, and a term's z starts at z_0 - m / s.
        let first = -((largest / width).ceil() as i64 + 64 * stride) - shift;
        let last = (largest / width).ceil() as i64;
        let thresholds: Vec<f64> = (first..=last).map(|i| i as f64 * width).collect();
        Self {
            e,
            n,
            law: StepLaw::of_convex(&thresholds, s * width),
            powers: Powers::new(),
            width,
            shift,
            rest: m / s - shift as f64 * width,
            first,
            stride,
        }
    }

    /// The curve given the `i`-th `z_0`, times the density there; nothing where the table ends.
    fn log_term(&mut self, i: i64) -> Option<f64> {
        let z_0 = self.rest + (i * self.stride) as f64 * self.width;
        let start = usize::try_from(i * self.stride - self.shift - self.first).ok()?;
        let mut log_mass = self.law.log_mass.get(start..)?.to_vec();
        let first = log_mass.first_mut()?;
        let below = log_tail(-((i * self.stride - self.shift) as f64) * self.width);
        *first = log_add(below + 1e-11, self.law.log_left[start]);
        let curve = self.powers.log_delta(&self.law, &log_mass, self.n, self.e);
        Some(curve - 0.5 * z_0 * z_0 - LOG_ROOT_TWO_PI)
    }

    /// The integral over `z_0`: downwards from 0 past the peak, then upwards.
    fn integral(mut self) -> f64 {
        let (mut sum, mut largest) = (NOTHING, NOTHING);
        for (from, direction) in [(0, -1), (1, 1)] {
            for count in 0.. {
                let Some(log) = self.log_term(from + direction * count) else {
                    break;
                };
                sum = log_add(sum, log);
                largest = largest.max(log);
                if log < largest - CUT {
                    break;
                }
            }
        }
        let step = self.stride as f64 * self.width;
        let strip = 2.0 * std::f64::consts::PI.powi(2) / (step * step * (self.n as f64 + 1.0));
        let error = 4.0 * libm::exp(-strip) + 1e-11;
        (sum + libm::log(step) - libm::log1p(-error.min(0.5))).min(0.0)
    }
}
