//! Few joins: the composition given how often the record joins.
//!
//! With `J ~ Bin(T, q)` joins, both directions of the pair are mixtures whose part `J = 0` is the
//! same for both neighbours. With `eta = P(J > 0)` and `exp(eps) = 1 + eta (exp(e) - 1)`, advanced
//! joint convexity (Balle, Barthe and Gaboardi, `NeurIPS` 2018, Theorem 2) and convexity give
//!
//! ```text
//! delta(eps) <= sum_{j > 0} P(J = j) delta_G(e; sqrt(j) r / z)
//! ```
//!
//! with `r` the sensitivity of one step (1, or 2 for a replaced record) and `delta_G` the Gaussian
//! mechanism's. It is tight where a join is rare, which no grid of losses is: there nearly all mass
//! lies at a loss of 0, and what is looked for lies far out in the rest.

use crate::Result;
use crate::accounting::gaussian;
use crate::accounting::subsampled::Subsampled;
use crate::accounting::subsampled::calibrate::least;
use crate::accounting::subsampled::pair::ULP;

/// Expected joins above which the grid is better anyway.
const MAX_JOINS: f64 = 8.0;

/// Relative error of everything below, generously.
const SLACK: f64 = 1e-11;

/// A tail of joins below this share of the sum is not refined further.
const NEGLIGIBLE: f64 = 1e-9;

/// Upper bound of `delta` at `epsilon`, or 1 where this is no good way to one.
pub(super) fn delta(steps: Subsampled, epsilon: f64, replace_one: bool) -> Result<f64> {
    let (n, q) = (steps.n_steps as f64, steps.sampling_rate);
    if !rare(steps) {
        return Ok(1.0);
    }
    let eta = steps.joined();
    // Rounded down: a smaller epsilon has a larger delta.
    let inner = if epsilon > 600.0 {
        epsilon - libm::log(eta)
    } else {
        libm::log1p(libm::expm1(epsilon) / eta)
    } * (1.0 - 16.0 * ULP);
    let one = steps.noise_multiplier / if replace_one { 2.0 } else { 1.0 };
    let mut share = n * q * libm::exp((n - 1.0) * libm::log1p(-q));
    let mut sum = 0.0;
    let mut j = 1.0;
    while j <= n {
        let sigma = (one / libm::sqrt(j)) * (1.0 - 4.0 * ULP);
        sum += share * gaussian::delta(inner.max(0.0), sigma)?;
        // Shares fall at least geometrically from here on.
        let ratio = (n - j) / (j + 1.0) * (q / (1.0 - q));
        share *= ratio;
        if ratio < 0.5 && 2.0 * share <= NEGLIGIBLE * sum {
            break;
        }
        if ratio < 0.5 && share < f64::MIN_POSITIVE {
            break;
        }
        j += 1.0;
    }
    let tail = if j < n {
        2.0 * share + f64::MIN_POSITIVE
    } else {
        0.0
    };
    Ok(((sum + tail) * (1.0 + SLACK)).min(eta))
}

/// Upper bound of the least epsilon at `target`, or infinity.
pub(super) fn epsilon(steps: Subsampled, target: f64, replace_one: bool) -> Result<f64> {
    if !rare(steps) {
        return Ok(f64::INFINITY);
    }
    least(|epsilon| delta(steps, epsilon, replace_one), target)
}

/// Whether joins are rare enough.
fn rare(steps: Subsampled) -> bool {
    steps.n_steps as f64 * steps.sampling_rate <= MAX_JOINS && steps.sampling_rate <= 0.5
}

#[cfg(test)]
mod tests {
    use super::{delta, epsilon};
    use crate::accounting::subsampled::{Subsampled, single};

    fn steps(noise_multiplier: f64, sampling_rate: f64, n_steps: u64) -> Subsampled {
        Subsampled {
            noise_multiplier,
            sampling_rate,
            n_steps,
        }
    }

    /// One step has a closed form: the bound is above it, and equal for a rare join.
    // Proof: accountant, "The accountant"
    #[test]
    fn one_step() -> crate::Result<()> {
        for replace_one in [false, true] {
            for (z, q, eps) in [(1.0, 1e-9, 1e-6), (0.5, 1e-3, 0.3), (2.0, 0.1, 0.1)] {
                let bound = delta(steps(z, q, 1), eps, replace_one)?;
                let exact = single::delta(z, q, replace_one, eps)?;
                assert!(bound >= exact * (1.0 - 1e-9), "{z} {q} {eps}");
                if !replace_one {
                    assert!(
                        bound <= exact * (1.0 + 1e-6),
                        "{z} {q} {eps} {bound} {exact}"
                    );
                }
            }
        }
        Ok(())
    }

    /// Two rare steps are nearly one of twice the rate.
    // Proof: accountant, "The accountant"
    #[test]
    fn rare_joins_add_up() -> crate::Result<()> {
        let two = delta(steps(1.0, 1e-9, 2), 1e-8, false)?;
        let one = single::delta(1.0, 2e-9, false, 1e-8)?;
        assert!((two - one).abs() < 1e-6 * one);
        Ok(())
    }

    #[test]
    fn epsilon_inverts_delta() -> crate::Result<()> {
        for target in [1e-5, 1e-12, 1e-30] {
            let at = steps(0.3, 1e-9, 1_000_000);
            let found = epsilon(at, target, false)?;
            assert!(found < 100.0);
            assert!(delta(at, found, false)? <= target);
            assert!(delta(at, found * 0.999, false)? > target);
        }
        Ok(())
    }

    #[test]
    fn many_joins_are_left_to_the_grid() -> crate::Result<()> {
        assert_eq!(delta(steps(1.0, 0.01, 6000), 1.0, false)?, 1.0);
        assert!(epsilon(steps(1.0, 0.01, 6000), 1e-5, false)?.is_infinite());
        Ok(())
    }
}
