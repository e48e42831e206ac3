//! Softmax margin with three or more classes under Gaussian noise: gradient and curvature of a
//! record bounded in one supremum.
//!
//! The privacy loss of objective perturbation is the sum of a linear and a quadratic term in the
//! record's gradient and of the logarithm of a determinant. Bounding the determinant by its
//! largest value costs up to half of the noise; here all three are maximised together, by
//! `docs/proofs/joint_bound.md`. Every rounding goes towards more noise: results are upper bounds.

mod cache;
mod calibrate;
mod convolve;
mod integral;
mod model;
mod payoff;
mod profile;
mod search;
mod spread;
mod tail;

pub use calibrate::sigma;
pub use profile::profile;

use crate::accounting::objective::MAX_SCORES;
use crate::accounting::objective::joint::search::{BoundSearch, Problem};

use crate::Result;
use crate::runtime::interrupt::Interrupt;

/// Fewest classes for which the bound is proved here; two classes have one score.
const MIN_CLASSES: usize = 3;

/// Largest `epsilon`.
const MAX_EPSILON: f64 = 1e6;

/// Whether the arguments are in the range where something is known.
fn in_range(epsilon: f64, t: f64, kappa: f64, classes: usize) -> bool {
    epsilon > 0.0
        && epsilon <= MAX_EPSILON
        && (1e-9..=1e6).contains(&t)
        && (0.0..=1e9).contains(&kappa)
        && (MIN_CLASSES..=MAX_SCORES).contains(&classes)
}

/// Upper bound on the `delta` of objective perturbation with the softmax margin loss.
///
/// # Arguments
/// * `epsilon` - positive.
/// * `t` - bound on the row norm over the deviation of the noise.
/// * `kappa` - squared bound on the row norm over regularisation and temperature.
/// * `classes` - at least 3.
/// * `replace_one` - a record is replaced, not added or removed.
/// * `target` - the search for the least bound may stop at any bound above it; infinity asks for
///   the least one.
///
/// # Returns
/// A number in `[0, 1]`, never below the true value; 1 where nothing is known, in particular
/// outside the ranges above, for `epsilon` above 1e6, `t` outside `[1e-9, 1e6]` and `kappa` above
/// 1e9. The same on every call and for every number of threads.
///
/// # Errors
/// [`crate::Error::Interrupted`].
///
/// # Example
/// ```
/// use dpsvm_core::accounting::objective::joint;
/// use dpsvm_core::runtime::interrupt::Never;
/// let delta = joint::delta(1.0, 1.0 / 7.66, 0.5, 10, false, f64::INFINITY, &Never)?;
/// assert!(delta < 1e-5);
/// # Ok::<(), dpsvm_core::Error>(())
/// ```
pub fn delta(
    epsilon: f64,
    t: f64,
    kappa: f64,
    classes: usize,
    replace_one: bool,
    target: f64,
    interrupt: &dyn Interrupt,
) -> Result<f64> {
    if !in_range(epsilon, t, kappa, classes) {
        return Ok(1.0);
    }
    let problem = Problem::new(epsilon, t, kappa, classes, replace_one);
    BoundSearch::new(interrupt).least(&problem, target)
}
