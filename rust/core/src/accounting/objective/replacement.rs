//! Softmax losses under replacement of one record.
//!
//! The difference of the two records' gradients is convex in both, so its largest privacy loss is
//! taken at pairs of extreme points. Derivation: `docs/proofs/objective_perturbation.md`, section
//! "Replacement".

use crate::accounting::objective::logs::{log_add, log_count, log_gaussian};
use crate::accounting::objective::max_law;

/// Upper bound on the logarithm of the curve at `e >= 0`, the smaller of two.
pub(super) fn log_delta(e: f64, t: f64, classes: usize) -> f64 {
    union_over_pairs(e, t, classes)
        .min(two_copies(e, t, classes))
        .min(0.0)
}

/// `U <= 4 t^2 + t (M + M')`, `M` and `M'` the largest of 0 and the `z_k - z_y`, dependent in an
/// unknown way: `P(M + M' > x) <= 2 P(M > x / 2)`.
fn two_copies(e: f64, t: f64, classes: usize) -> f64 {
    // Only e >= 4 t^2 is of use: the loss may be 4 t^2 with certainty.
    let rest = e - 4.0 * t * t;
    if rest < 0.0 {
        return 0.0;
    }
    let s = 2.0 * t;
    std::f64::consts::LN_2 + max_law::log_delta(rest, 0.0, s, classes - 1)
}

/// Either record alone, or both at once: then each class of the one meets each class of the other,
/// and the norm of the difference follows from how many of the four rows coincide.
fn union_over_pairs(e: f64, t: f64, classes: usize) -> f64 {
    let largest = |t: f64| max_law::log_delta(e, t * t, t, classes - 1);
    let pair = |square: f64| log_gaussian(e, (square.sqrt() * t).next_up());
    let k = classes as f64;
    let count = |k: f64, log: f64| log_count(k) + log;
    let six = pair(6.0);
    let same_label = log_add(largest(2.0 * t), count((k - 1.0) * (k - 2.0), six));
    let other_label = log_add(
        log_add(pair(8.0), count(3.0 * (k - 2.0), six)),
        count((k - 2.0) * (k - 3.0), pair(4.0)),
    );
    let alone = std::f64::consts::LN_2 + largest(t);
    log_add(alone, same_label.max(other_label))
}

/// `U <= 2 K (K - 1) t^2 + t (M + M')` for losses that compare the own class with each other one, `M`
/// the sum of the positive parts of the `z_k - z_y`.
pub(super) fn log_delta_pairwise(e: f64, t: f64, classes: usize) -> f64 {
    let k = classes as f64;
    let rest = e - 2.0 * k * (k - 1.0) * t * t;
    if rest < 0.0 {
        return 0.0;
    }
    let s = 2.0 * t;
    (std::f64::consts::LN_2
        + crate::accounting::objective::weston_watkins::log_delta(rest, 0.0, s, classes - 1))
    .min(0.0)
}
