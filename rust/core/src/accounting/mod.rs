//! Privacy accounting: the Gaussian mechanism, sampled steps, noise inside objectives.
//!
//! Everything is normalised to sensitivity 1, and every result is rounded towards more noise, larger
//! epsilon, larger delta.

pub mod gaussian;
pub mod objective;
pub mod subsampled;

use crate::error::{Result, require};

fn check_positive(name: &'static str, value: f64) -> Result<()> {
    let message = format_args!("must be a positive finite number, got {value}");
    require(value > 0.0 && value.is_finite(), name, message)
}

fn check_not_negative(name: &'static str, value: f64) -> Result<()> {
    let message = format_args!("must be a finite number of at least 0, got {value}");
    require(value >= 0.0 && value.is_finite(), name, message)
}

/// Epsilons for which noise is sought.
fn check_epsilon(epsilon: f64) -> Result<()> {
    const MAX_EPSILON: f64 = gaussian::calibration::MAX_EPSILON;
    let message = format_args!("must lie in [0, {MAX_EPSILON}], got {epsilon}");
    require((0.0..=MAX_EPSILON).contains(&epsilon), "epsilon", message)
}

fn check_delta(delta: f64) -> Result<()> {
    let message = format_args!("must lie in [2.3e-308, 1), got {delta}");
    require((f64::MIN_POSITIVE..1.0).contains(&delta), "delta", message)
}
