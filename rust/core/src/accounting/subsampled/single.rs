//! One subsampled step in closed form.
//!
//! `add_remove`: both curves are those of the Gaussian mechanism at another epsilon, times a
//! factor. `replace_one`: an integral of positive terms above the threshold.

use crate::Result;
use crate::accounting::gaussian;
use crate::accounting::subsampled::law::hockey_stick;
use crate::accounting::subsampled::pair::{Pair, ULP};

/// From here on `exp(epsilon)` is not formed.
const LARGE: f64 = 600.0;

/// `delta` of the mixture against `N(0, z^2)`, an upper bound. `0 < rate < 1`.
fn remove(noise: f64, rate: f64, epsilon: f64) -> Result<f64> {
    let ratio = libm::expm1(epsilon.min(LARGE)) / rate;
    let (t, error) = if epsilon > LARGE {
        let t = epsilon - libm::log(rate);
        (t, 4.0 * ULP * t.abs())
    } else if ratio > 1e16 {
        let (a, b) = (libm::log(libm::expm1(epsilon)), libm::log(rate));
        (a - b, 4.0 * ULP * (1.0 + a.abs() + b.abs()))
    } else {
        if ratio <= -1.0 {
            return Ok(-libm::expm1(epsilon) * (1.0 + 2.0 * ULP));
        }
        let t = libm::log1p(ratio);
        (t, 4.0 * ULP * (t.abs() + ratio.abs() / (1.0 + ratio)))
    };
    let lowered = (t - error).max(-f64::MAX);
    Ok(gaussian::delta(lowered, noise)? * rate * (1.0 + 2.0 * ULP))
}

/// `delta` of `N(0, z^2)` against the mixture, an upper bound. `0 < rate < 1`.
fn add(noise: f64, rate: f64, epsilon: f64) -> Result<f64> {
    let rest = 1.0 - rate;
    let growth = libm::expm1(epsilon.min(LARGE));
    // 1 - (1 - q) exp(epsilon), raised.
    let share = rate - rest * growth + 4.0 * ULP * (rate + rest * growth.abs());
    if share <= 0.0 {
        return Ok(0.0);
    }
    let (a, b) = (libm::log(rate), libm::log(share));
    let t = epsilon + a - b;
    let lowered = t - 4.0 * ULP * (epsilon.abs() + a.abs() + b.abs());
    Ok((gaussian::delta(lowered, noise)? * share * (1.0 + 4.0 * ULP)).min(1.0))
}

/// Upper bound on the larger of the two directions' `delta` of one step. `0 < rate < 1`.
pub(super) fn delta(noise: f64, rate: f64, replace: bool, epsilon: f64) -> Result<f64> {
    if replace {
        let pair = Pair::new(noise, rate, true);
        if epsilon < 0.0 {
            // The curve of a pair that turns into itself.
            let mirrored = hockey_stick(&pair, -epsilon);
            let below = -libm::expm1(epsilon) + libm::exp(epsilon) * mirrored;
            return Ok((below * (1.0 + 4.0 * ULP)).min(1.0));
        }
        return Ok(hockey_stick(&pair, epsilon));
    }
    Ok(remove(noise, rate, epsilon)?
        .max(add(noise, rate, epsilon)?)
        .min(1.0))
}
