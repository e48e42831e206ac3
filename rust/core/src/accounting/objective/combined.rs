//! The smallest of the valid bounds: the laws of this module, and for softmax losses with three or
//! more classes the bound that maximises gradient and curvature together.

use super::search::Curvature;
use super::{Jacobian, Law, Relation, joint, log_delta_closed};

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
) -> f64 {
    let closed = log_delta_closed(law, relation, epsilon, t, jacobian);
    let Some((classes, kappa)) = joint_arguments(law, jacobian) else {
        return closed;
    };
    let replaced = relation == Relation::ReplaceOne;
    let jointly = joint::delta(epsilon, t, kappa, classes, replaced, f64::INFINITY);
    closed.min(libm::log(jointly).next_up().next_up())
}

/// A noise that is enough by the joint bound, where it is known.
pub(super) fn joint_sigma(
    law: Law,
    relation: Relation,
    epsilon: f64,
    delta: f64,
    curvature: Curvature,
) -> Option<f64> {
    let curve = match curvature {
        Curvature::Kappa(kappa) => joint::Curve::Constant(kappa),
        Curvature::KappaPerT(slope) => joint::Curve::PerT(slope),
        Curvature::Given(_) => return None,
    };
    let (classes, _) = joint_arguments(law, Jacobian::Kappa(0.0))?;
    let replaced = relation == Relation::ReplaceOne;
    joint::sigma(epsilon, delta, curve, classes, replaced)
}
