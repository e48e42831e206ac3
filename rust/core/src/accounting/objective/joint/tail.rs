//! The normal law in the form the joint bound needs: relative errors of a few roundoffs.

use crate::accounting::gaussian::DENSITY_AT_ZERO;
pub(super) use crate::accounting::gaussian::{density, upper_tail};
use crate::numeric::normal::mills;

/// `Phi(x)`.
pub(super) fn cdf(x: f64) -> f64 {
    upper_tail(-x)
}

/// `ln Phi(x)`, also where `Phi(x)` underflows.
pub(super) fn log_cdf(x: f64) -> f64 {
    if x >= 0.0 {
        libm::log1p(-upper_tail(x))
    } else {
        libm::log(DENSITY_AT_ZERO * mills(-x)) - 0.5 * x * x
    }
}

/// Largest relative excess of `Phi` over its chord on an interval of this length.
///
/// Left of 0 the function is convex. An interval that reaches beyond 0 starts above `-length`, so
/// that `Phi >= Phi(-length)` there, and `-Phi'' <= phi(1) < 0.242` bounds the excess by an eighth
/// of `0.242 length^2`. The same bound holds for every mixture of shifted copies of `Phi`.
pub(super) fn chord_excess(length: f64) -> f64 {
    0.03025 * length * length / cdf(-length)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proof: joint_bound
    #[test]
    fn tails_add_up_and_logarithms_agree() {
        for k in -80..=80 {
            let x = f64::from(k) * 0.1;
            assert!((cdf(x) + upper_tail(x) - 1.0).abs() < 1e-15);
            assert!((libm::exp(log_cdf(x)) / cdf(x) - 1.0).abs() < 1e-12);
        }
        assert!((log_cdf(-50.0) + 1_254.831_36).abs() < 1e-4);
    }

    // Proof: joint_bound
    #[test]
    fn chords_of_the_normal_law_are_low_by_no_more_than_stated() {
        for length in [0.01, 0.1, 0.5, 1.0] {
            let allowed = 1.0 + chord_excess(length);
            let mut tightest: f64 = 0.0;
            for k in -400..400 {
                let x = f64::from(k) * 0.02;
                for part in 1..8 {
                    let share = f64::from(part) / 8.0;
                    let chord = (1.0 - share) * cdf(x) + share * cdf(x + length);
                    let ratio = cdf(x + share * length) / chord;
                    assert!(ratio <= allowed + 1e-14, "{x}, {length}");
                    tightest = tightest.max((ratio - 1.0) / (allowed - 1.0));
                }
            }
            assert!(tightest > 0.1, "{length}: {tightest}");
        }
    }
}
