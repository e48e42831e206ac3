//! The smallest of the valid bounds: the laws of this module, and for softmax losses with three or
//! more classes the bound that maximises gradient and curvature together.

use crate::Result;
use crate::accounting::objective::logs::probability;
use crate::accounting::objective::search::Curvature;
use crate::accounting::objective::{Jacobian, Law, Relation, joint, log_delta_closed};
use crate::runtime::interrupt::Interrupt;
use crate::runtime::memory::with_capacity;

/// Number of classes and `kappa` where the joint bound is known.
fn joint_arguments(law: Law, jacobian: Jacobian) -> Option<(usize, f64)> {
    match (law, jacobian) {
        (Law::Softmax { classes }, Jacobian::Kappa(kappa)) if classes >= 3 => {
            Some((classes, kappa))
        }
        _ => None,
    }
}

/// Upper bound on the logarithm of delta.
pub(super) fn log_delta(
    law: Law,
    relation: Relation,
    epsilon: f64,
    t: f64,
    jacobian: Jacobian,
    interrupt: &dyn Interrupt,
) -> Result<f64> {
    let closed = log_delta_closed(law, relation, epsilon, t, jacobian);
    let Some((classes, kappa)) = joint_arguments(law, jacobian) else {
        return Ok(closed);
    };
    let replaced = relation == Relation::ReplaceOne;
    let most = f64::INFINITY;
    let jointly = joint::delta(epsilon, t, kappa, classes, replaced, most, interrupt)?;
    Ok(closed.min(libm::log(jointly).next_up().next_up()))
}

/// Points of which the first tells whether a closed bound is worth computing for the others: one
/// that is above the joint one by this at most, in its logarithm.
const BLOCK: usize = 16;
const CLOSED: f64 = 0.3;

/// Epsilons from `low > 0` to `high` and upper bounds of delta there, about `count` of them.
pub(super) fn profile(
    law: Law,
    relation: Relation,
    (low, high): (f64, f64),
    count: usize,
    t: f64,
    jacobian: Jacobian,
    interrupt: &dyn Interrupt,
) -> Result<Vec<(f64, f64)>> {
    let closed = |epsilon| probability(log_delta_closed(law, relation, epsilon, t, jacobian));
    let Some((classes, kappa)) = joint_arguments(law, jacobian) else {
        let step = (high - low) / (count - 1) as f64;
        let mut points = with_capacity(count)?;
        for k in 0..count {
            interrupt.check()?;
            let epsilon = low + k as f64 * step;
            points.push((epsilon, closed(epsilon)));
        }
        return Ok(points);
    };
    let replaced = relation == Relation::ReplaceOne;
    let mut points = joint::profile(low, high, count, t, kappa, classes, replaced, interrupt)?;
    // One comparison for a few points: the two bounds cross at most slowly.
    for block in points.chunks_mut(BLOCK) {
        interrupt.check()?;
        let (epsilon, bound) = block[0];
        if closed(epsilon) < bound * CLOSED.exp() {
            for (epsilon, bound) in block {
                *bound = bound.min(closed(*epsilon));
            }
        }
    }
    Ok(points)
}

/// A noise that is enough by the joint bound, if known.
pub(super) fn joint_sigma(
    law: Law,
    relation: Relation,
    epsilon: f64,
    delta: f64,
    curvature: Curvature,
    interrupt: &dyn Interrupt,
) -> Result<Option<f64>> {
    let Some((classes, _)) = joint_arguments(law, Jacobian::Kappa(0.0)) else {
        return Ok(None);
    };
    let replaced = relation == Relation::ReplaceOne;
    joint::sigma(epsilon, delta, curvature, classes, replaced, interrupt)
}
