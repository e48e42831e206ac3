//! Losses that compare the own class with each other class separately.
//!
//! `U = sum_{k <= n} max(0, m + s (z_k - z_0))`: given `z_0` the terms are independent. The curve is
//! the integral over `z_0` of the curves of these sums: for many terms by their concentration
//! ([`Concentrated`]), for few by the trapezoidal rule. After the shift
//! `z_k = x_k + z_0` the integrand is a mean over `x` of products of `n + 1` normal densities at
//! arguments shifted by `z_0`, hence analytic, and at a distance `a` from the real line at most
//! `e^{(n + 1) a^2 / 2}` times what it is on it; that bounds the rule's error in closed form.

use crate::accounting::objective::logs::{
    LOG_ROOT_TWO_PI, NOTHING, below_zero, log_add, log_gaussian_of, log_tail, log_union,
};
use crate::accounting::objective::power::{LARGEST_GRID, Powers};
use crate::accounting::objective::step_law::{StepLaw, log_mass_between};

/// Grid points a standard deviation of one term for up to [`FEW`] terms, and coarser for more.
const RESOLUTION: f64 = 64.0;
const FEW: f64 = 10.0;

/// The rule's step times `sqrt(n + 1)`: its relative error is then below 2e-13.
const STEP: f64 = 0.8;

/// Natural logarithm below the largest value at which the integral over `z_0` is cut off.
const CUT: f64 = 36.0;

/// Natural logarithm by which what is left off one term's grid is below the result.
const TERM_CUT: f64 = 45.0;

/// Beyond this many deviations a term, where delta is below e^-4000, the union bound serves.
const FAR: f64 = 100.0;

/// For more terms than this, their concentration around a mean serves; it is searched for no farther
/// than so many deviations a term.
const MAX_TERMS: usize = 48;
const FARTHEST: f64 = 1e7;

/// Upper bound on the logarithm of the curve of `U` at `e >= 0`, `m >= 0`.
pub(super) fn log_delta(e: f64, m: f64, s: f64, n: usize) -> f64 {
    let count = n as f64;
    if n == 1 {
        return log_gaussian_of(e, m, std::f64::consts::SQRT_2 * s);
    }
    if count * (m - 9.0 * s) > e + 40.0 + 9.0 * count.sqrt() * s {
        // But for a probability below 1e-15 the loss is far above e.
        return 0.0;
    }
    if n > MAX_TERMS {
        return Concentrated { e, m, s, n: count }.integral();
    }
    if (e / count - m) / s > FAR {
        // The sum is the largest of the sums over subsets.
        return log_union(n, |j| log_gaussian_of(e, j * m, s * (j * (j + 1.0)).sqrt()));
    }
    Conditional::new(e, m, s, n).integral()
}

/// Given `z_0`, the sum is convex in the other numbers and Lipschitz with the constant `s sqrt(n)`, so
/// above its mean its tail is at most that of a normal number with that deviation.
struct Concentrated {
    e: f64,
    m: f64,
    s: f64,
    n: f64,
}

impl Concentrated {
    /// Upper bound on the curve given `z_0`; it falls in `z_0`.
    fn log_curve(&self, z_0: f64) -> f64 {
        let a = self.m / self.s - z_0;
        let part = a * libm::exp(log_tail(-a)) + libm::exp(-0.5 * a * a - LOG_ROOT_TWO_PI);
        let mean = self.n * self.s * (part.max(0.0) + 1e-14 * (1.0 + a.abs()));
        let deviation = (self.s * self.n.sqrt()).next_up();
        let log = log_gaussian_of(self.e.max(mean), mean, deviation);
        below_zero((self.e - mean).next_down(), log)
    }

    /// The integral over `z_0` by the left ends of its cells, from nine deviations before the place
    /// where the mean is about `e`.
    fn integral(&self) -> f64 {
        let far = ((self.e / self.n - self.m) / self.s).clamp(0.0, FARTHEST);
        let width = (1.0 + (0.01 * far * far).min(4.0 * far)) / 256.0;
        let mut left = -far - 9.0;
        let mut sum = log_tail(-left);
        loop {
            let curve = self.log_curve(left);
            let rest = curve + log_tail(left);
            if rest < sum - CUT {
                return (log_add(sum, rest) + 1e-11).min(0.0);
            }
            sum = log_add(sum, curve + log_mass_between(left, left + width));
            left += width;
        }
    }
}

/// The curve given `z_0`.
struct Conditional {
    e: f64,
    /// `m / s`.
    centre: f64,
    n: usize,
    eta: f64,
    /// Grid width in units of `z`, and the largest `|z|` that matters.
    width: f64,
    largest: f64,
    powers: Powers,
}

impl Conditional {
    fn new(e: f64, m: f64, s: f64, n: usize) -> Self {
        let count = n as f64;
        // About -ln P(U > e): one term alone, or all together through z_0.
        let alone = ((e - m) / s).max(0.0);
        let together = ((e / count - m) / s).max(0.0);
        let rarity = 2.0 + (0.25 * alone * alone).min(0.5 * together * together);
        let largest = (2.0 * (rarity + TERM_CUT + libm::log(count))).sqrt() + 1.0;
        let reach = count * (m / s + largest) + e / s;
        let fine = (count / FEW).sqrt().max(1.0) / RESOLUTION;
        let width = fine.max(2.0 * reach / LARGEST_GRID as f64);
        Self {
            e,
            centre: m / s,
            n,
            eta: s * width,
            width,
            largest,
            powers: Powers::new(),
        }
    }

    /// The curve given `z_0`, times the density of `z_0`.
    fn log_term(&mut self, z_0: f64) -> f64 {
        let start = z_0 - self.centre;
        let len = ((self.largest - start).max(1.0) / self.width).ceil() as usize + 2;
        let thresholds: Vec<f64> = (0..len).map(|j| start + j as f64 * self.width).collect();
        let law = StepLaw::of_convex(&thresholds, self.eta);
        self.powers.log_delta(&law, self.n, self.e) - 0.5 * z_0 * z_0 - LOG_ROOT_TWO_PI
    }

    /// The integral over `z_0`, on both sides of 0 to where the rest is negligible: below, the curve is
    /// at most 1; above, it falls. The rests are added.
    fn integral(mut self) -> f64 {
        let terms = self.n as f64 + 1.0;
        let step = STEP / terms.sqrt();
        let (mut sum, mut largest, mut rest) = (NOTHING, NOTHING, NOTHING);
        for (from, direction) in [(0.0, -step), (step, step)] {
            for i in 0u32.. {
                let z_0 = from + direction * f64::from(i);
                let log = self.log_term(z_0);
                sum = log_add(sum, log);
                largest = largest.max(log);
                let beyond = log_tail(z_0.abs());
                let curve = if z_0 > 0.0 {
                    log + 0.5 * z_0 * z_0 + LOG_ROOT_TWO_PI
                } else {
                    0.0
                };
                if beyond + curve < largest - CUT {
                    rest = log_add(rest, beyond + curve);
                    break;
                }
            }
        }
        let strip = 2.0 * std::f64::consts::PI.powi(2) / (STEP * STEP);
        let error = 4.0 * libm::exp(-strip) + 1e-11;
        (log_add(sum + libm::log(step), rest) + 2.0 * error).min(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn far_tails_lie_between_one_subset_and_all() {
        // The sum is the largest of the sums over subsets, the whole set among them.
        for (t, n) in [(0.02, 2), (0.02, 3), (0.03, 9), (0.1, 3)] {
            let (m, e) = (0.5 * (n as f64 + 1.0) * t * t, 2.0);
            let of_size = |j: f64| log_gaussian_of(e, j * m, t * (j * (j + 1.0)).sqrt());
            let found = log_delta(e, m, t, n);
            let (low, high) = (of_size(n as f64), log_union(n, of_size));
            assert!(found >= low - 1e-9 * low.abs(), "{t} {n}: {found} {low}");
            assert!(found <= high + 1e-3 * high.abs(), "{t} {n}: {found} {high}");
        }
    }
}
