//! Bindings of `dpsvm_core::accounting`.
//!
//! Calls on the Gaussian mechanism take microseconds and keep the GIL; the laws of objective
//! perturbation may take a second and go through the gate.

use crate::arrays::Array;
use crate::gate::{brief, run};
use dpsvm_core::Error;
use dpsvm_core::accounting::gaussian;
use dpsvm_core::accounting::objective;
use dpsvm_core::accounting::objective::{Curvature, Jacobian, Law, Relation};
use pyo3::prelude::*;

/// Smallest noise deviation over sensitivity for (epsilon, delta), rounded up.
#[pyfunction]
pub fn gaussian_sigma(epsilon: f64, delta: f64) -> PyResult<f64> {
    brief(|| gaussian::sigma(epsilon, delta))
}

/// Smallest delta at epsilon for noise deviation sigma over sensitivity, rounded up.
#[pyfunction]
pub fn gaussian_delta(epsilon: f64, sigma: f64) -> PyResult<f64> {
    brief(|| gaussian::delta(epsilon, sigma))
}

/// Smallest epsilon >= 0 at delta for noise deviation sigma over sensitivity, rounded up.
#[pyfunction]
pub fn gaussian_epsilon(delta: f64, sigma: f64) -> PyResult<f64> {
    brief(|| gaussian::epsilon(delta, sigma))
}

/// The law called `name`, of this many scores.
fn objective_law(name: &str, n_scores: usize) -> Result<Law, Error> {
    match name {
        "softmax" => Ok(Law::Softmax { classes: n_scores }),
        "logistic" => Ok(Law::Logistic { scores: n_scores }),
        "huber" => Ok(Law::Huber { scores: n_scores }),
        "weston_watkins" => Ok(Law::WestonWatkins { classes: n_scores }),
        _ => {
            let accepted = "'softmax', 'logistic', 'huber' or 'weston_watkins'";
            let message = format!("must be {accepted}, got {name:?}");
            Err(Error::invalid("law", message))
        }
    }
}

fn relation(replace_one: bool) -> Relation {
    if replace_one {
        Relation::ReplaceOne
    } else {
        Relation::AddRemove
    }
}

fn one_of(names: &str) -> Error {
    Error::invalid("kappa", format!("must be given as exactly one of {names}"))
}

fn objective_jacobian(kappa: Option<f64>, jacobian: Option<f64>) -> Result<Jacobian, Error> {
    match (kappa, jacobian) {
        (Some(kappa), None) => Ok(Jacobian::Kappa(kappa)),
        (None, Some(constant)) => Ok(Jacobian::Given(constant)),
        _ => Err(one_of("kappa and jacobian")),
    }
}

/// Largest logarithm of the determinants' ratio of one record in objective perturbation, rounded up.
#[pyfunction]
pub fn objective_log_determinant(law: &str, n_scores: usize, kappa: f64) -> PyResult<f64> {
    brief(|| Ok(objective_law(law, n_scores)?.log_determinant(kappa)))
}

/// Smallest proven delta of objective perturbation at epsilon, rounded up.
#[pyfunction]
pub fn objective_delta(
    law: &str,
    n_scores: usize,
    epsilon: f64,
    sigma: f64,
    kappa: Option<f64>,
    jacobian: Option<f64>,
    replace_one: bool,
) -> PyResult<f64> {
    run(|stop| {
        let (law, relation) = (objective_law(law, n_scores)?, relation(replace_one));
        let jacobian = objective_jacobian(kappa, jacobian)?;
        objective::delta(law, relation, epsilon, sigma, jacobian, stop)
    })
}

/// Epsilons and deltas of a curve.
type Points = (Array<f64>, Array<f64>);

/// Increasing epsilons from `low` to `high`, and bounds as by `objective_delta` there.
#[pyfunction]
pub fn objective_profile(
    law: &str,
    n_scores: usize,
    low: f64,
    high: f64,
    count: usize,
    sigma: f64,
    kappa: Option<f64>,
    jacobian: Option<f64>,
    replace_one: bool,
) -> PyResult<Points> {
    let points = run(|stop| {
        let (law, relation) = (objective_law(law, n_scores)?, relation(replace_one));
        let jacobian = objective_jacobian(kappa, jacobian)?;
        objective::profile(law, relation, low, high, count, sigma, jacobian, stop)
    })?;
    let (epsilons, deltas) = points.into_iter().unzip();
    Ok((Array::line(epsilons), Array::line(deltas)))
}

/// Smallest noise deviation over the bound on the row norms for (epsilon, delta), rounded up.
#[pyfunction]
pub fn objective_sigma(
    law: &str,
    n_scores: usize,
    epsilon: f64,
    delta: f64,
    kappa: Option<f64>,
    kappa_per_t: Option<f64>,
    jacobian: Option<f64>,
    replace_one: bool,
) -> PyResult<f64> {
    run(|stop| {
        let (law, relation) = (objective_law(law, n_scores)?, relation(replace_one));
        let curvature = match (kappa, kappa_per_t, jacobian) {
            (Some(kappa), None, None) => Curvature::Kappa(kappa),
            (None, Some(slope), None) => Curvature::KappaPerT(slope),
            (None, None, Some(constant)) => Curvature::Given(constant),
            _ => return Err(one_of("kappa, kappa_per_t and jacobian")),
        };
        objective::sigma(law, relation, epsilon, delta, curvature, stop)
    })
}
