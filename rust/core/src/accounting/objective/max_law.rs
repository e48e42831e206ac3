//! The curve of the largest of several correlated Gaussian privacy losses.
//!
//! `U = m + s max_{k <= n} (z_k - z_0)` with `z_0, ..., z_n` independent standard normal. Given the
//! largest `w` of the `n` competitors, whose density is `n phi(w) Phi(w)^{n-1}`, the loss is Gaussian
//! with deviation `s`, so that
//!
//! `delta(e) = int n phi(w) Phi(w)^{n-1} dG(e - m - s w + s^2 / 2; s) dw`
//!
//! with `dG(.; s)` the curve of the Gaussian mechanism of sensitivity `s`. Every factor is positive
//! and log-concave; nothing cancels. Derivation: `docs/proofs/objective_perturbation.md`, section
//! "Gaussian noise".

use crate::accounting::objective::logs::{
    LOG_ROOT_TWO_PI, log_count, log_gaussian, log_gaussian_of, log_tail,
};

/// From here on, in standard deviations, two competitors never matter: the sum over competitors
/// exceeds the curve by a factor of `1 + n Phi(-20)` at most.
const FAR: f64 = 40.0;

/// Nodes a standard deviation of the integrand.
const NODES: f64 = 8.0;

/// Natural logarithm below the peak at which the integrand is cut off.
const CUT: f64 = 45.0;

/// Relative allowance for the rounding of the integrand and for what is cut off.
const ALLOWANCE: f64 = 1e-13;

/// Upper bound on `ln E(1 - e^{e-U})_+` for `U = m + s max_{k <= n}(z_k - z_0)`, `s > 0`.
pub(super) fn log_delta(e: f64, m: f64, s: f64, n: usize) -> f64 {
    let one = log_gaussian_of(e, m, std::f64::consts::SQRT_2 * s);
    let all = log_count(n as f64) + one;
    if n == 1 || (e - m) / s > FAR {
        return all.min(0.0);
    }
    let integrand = Integrand { e, m, s, n };
    integrand.integral().min(all).min(0.0)
}

struct Integrand {
    e: f64,
    m: f64,
    s: f64,
    n: usize,
}

impl Integrand {
    fn log(&self, w: f64) -> f64 {
        let n = self.n as f64;
        let competitors = libm::log(n) - 0.5 * w * w - LOG_ROOT_TWO_PI + (n - 1.0) * log_tail(-w);
        competitors + log_gaussian(self.e - self.m - self.s * w + 0.5 * self.s * self.s, self.s)
    }

    /// Place of the maximum, to a thousandth: a golden-section search, the integrand being log-concave.
    fn peak(&self) -> f64 {
        const RATIO: f64 = 0.618_033_988_749_894_8;
        let (mut low, mut high) = (-2.0, 0.5 * FAR + 8.0);
        let (mut a, mut b) = (high - RATIO * (high - low), low + RATIO * (high - low));
        let (mut at_a, mut at_b) = (self.log(a), self.log(b));
        while high - low > 1e-3 {
            if at_a > at_b {
                (high, b, at_b) = (b, a, at_a);
                a = high - RATIO * (high - low);
                at_a = self.log(a);
            } else {
                (low, a, at_a) = (a, b, at_b);
                b = low + RATIO * (high - low);
                at_b = self.log(b);
            }
        }
        0.5 * (low + high)
    }

    /// Trapezoidal rule; for an analytic integrand its error falls geometrically with the step, so
    /// that the difference to twice the step, which is added, is far larger than the error.
    fn integral(&self) -> f64 {
        const PROBE: f64 = 0.03;
        let peak = self.peak();
        let top = self.log(peak);
        let bend = 2.0 * top - self.log(peak - PROBE) - self.log(peak + PROBE);
        let deviation = (PROBE / bend.max(PROBE * PROBE * 0.5).sqrt()).clamp(0.02, 2.0);
        let step = deviation / NODES;
        let (mut even, mut odd) = (1.0, 0.0);
        for direction in [-1.0, 1.0] {
            for i in 1u32.. {
                let log = self.log(peak + direction * step * f64::from(i)) - top;
                let value = libm::exp(log);
                if i % 2 == 0 {
                    even += value;
                } else {
                    odd += value;
                }
                if log < -CUT {
                    break;
                }
            }
        }
        let (fine, coarse) = (even + odd, 2.0 * even);
        let bound = fine * (1.0 + ALLOWANCE) + (fine - coarse).abs();
        let rounding = 16.0 * f64::EPSILON * (top.abs() + self.n as f64 * 1e-3 + 1.0);
        (top + libm::log(bound * step) + rounding).next_up()
    }
}
