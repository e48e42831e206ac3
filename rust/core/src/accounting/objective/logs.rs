//! Upper bounds kept as natural logarithms, so that tails far below the smallest double stay exact.

use crate::accounting::gaussian;
use crate::numeric::normal::mills;

/// `ln sqrt(2 pi)`.
pub(super) const LOG_ROOT_TWO_PI: f64 = 0.918_938_533_204_672_8;

/// Represents the logarithm of zero.
pub(super) const NOTHING: f64 = f64::NEG_INFINITY;

/// `ln(e^a + e^b)`, rounded up.
pub(super) fn log_add(a: f64, b: f64) -> f64 {
    let (high, low) = if a > b { (a, b) } else { (b, a) };
    if low == NOTHING {
        return high;
    }
    (high + libm::log1p(libm::exp(low - high)))
        .next_up()
        .next_up()
}

/// `ln k` of a count, rounded up; [`NOTHING`] for zero.
pub(super) fn log_count(k: f64) -> f64 {
    if k == 0.0 {
        NOTHING
    } else {
        libm::log(k).next_up()
    }
}

/// `ln Phi(-x)`; its upper bound 0 where `x` is not a number.
pub(super) fn log_tail(x: f64) -> f64 {
    if x.is_nan() {
        0.0
    } else if x >= 0.0 {
        libm::log(mills(x)) - 0.5 * x * x - LOG_ROOT_TWO_PI
    } else {
        let below = mills(-x) * libm::exp(-0.5 * x * x - LOG_ROOT_TWO_PI);
        libm::log1p(-below)
    }
}

/// Upper bound on the logarithm of `E (1 - exp(e - X))_+`, `X ~ N(mu^2 / 2, mu^2)`: the curve of the
/// Gaussian mechanism with sensitivity `mu` and noise deviation 1, at any `e`.
pub(super) fn log_gaussian(e: f64, mu: f64) -> f64 {
    let sigma = (1.0 / mu).next_down().min(f64::MAX);
    // An argument out of range means a mechanism without noise: its delta is 1.
    gaussian::log_delta(e.clamp(-f64::MAX, f64::MAX), sigma).unwrap_or(0.0)
}

/// [`log_gaussian`] for `X ~ N(mean, deviation^2)`.
pub(super) fn log_gaussian_of(e: f64, mean: f64, deviation: f64) -> f64 {
    let shifted = e - mean + 0.5 * deviation * deviation;
    // The shift costs a few roundings, the curve grows with the deviation and falls with e.
    let rounding = 4.0 * f64::EPSILON * (e.abs() + mean.abs() + deviation * deviation);
    log_gaussian(shifted - rounding, deviation)
}

/// Upper bound on the logarithm of the sum over all non-empty subsets of `n` of a curve that depends
/// on the subset's size only.
pub(super) fn log_union(n: usize, log_curve: impl Fn(f64) -> f64) -> f64 {
    let mut log_subsets = 0.0;
    let mut sum = NOTHING;
    for j in 1..=n {
        log_subsets += libm::log((n + 1 - j) as f64 / j as f64) + 1e-15;
        sum = log_add(sum, log_subsets + log_curve(j as f64) + 1e-12);
    }
    sum.min(0.0)
}

/// The curve at any `e` of the law `max(X, 0)`, given its logarithm at `max(e, 0)`.
///
/// For `e < 0`, `E(1 - e^{e-X}) = 1 - e^e + e^e E(1 - e^{-X})`.
pub(super) fn below_zero(e: f64, log_at_positive_part: f64) -> f64 {
    let log_delta = log_at_positive_part.min(0.0);
    if e >= 0.0 {
        return log_delta;
    }
    let delta = -libm::expm1(e) + libm::exp(e + log_delta);
    (libm::log(delta) + 4.0 * f64::EPSILON).min(0.0)
}

/// `exp` of a logarithm of a probability, rounded up, never 0.
pub(super) fn probability(log: f64) -> f64 {
    let relative = 2.0 * f64::EPSILON * (4.0 + log.abs().min(800.0));
    (libm::exp(log) * (1.0 + relative)).next_up().min(1.0)
}
