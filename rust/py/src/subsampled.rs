//! Bindings of `dpsvm_core::accounting::subsampled`. All of them go through the gate: a call takes
//! milliseconds, and for long histories up to a second.

use crate::errors::invalid;
use crate::gate::run;
use crate::options::{Keywords, Options};
use dpsvm_core::accounting::subsampled;
use dpsvm_core::accounting::subsampled::{Events, Subsampled};
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;

fn steps((noise_multiplier, sampling_rate, n_steps): (f64, f64, u64)) -> Subsampled {
    Subsampled {
        noise_multiplier,
        sampling_rate,
        n_steps,
    }
}

/// Smallest proven delta of Poisson-subsampled Gaussian steps at epsilon, rounded up.
#[pyfunction]
pub fn subsampled_gaussian_delta(
    noise_multiplier: f64,
    sampling_rate: f64,
    n_steps: u64,
    epsilon: f64,
    replace_one: bool,
) -> PyResult<f64> {
    let steps = steps((noise_multiplier, sampling_rate, n_steps));
    run(|stop| subsampled::delta(steps, epsilon, replace_one, stop))
}

/// Smallest proven epsilon >= 0 of Poisson-subsampled Gaussian steps at delta, rounded up.
#[pyfunction]
pub fn subsampled_gaussian_epsilon(
    noise_multiplier: f64,
    sampling_rate: f64,
    n_steps: u64,
    delta: f64,
    replace_one: bool,
) -> PyResult<f64> {
    let steps = steps((noise_multiplier, sampling_rate, n_steps));
    run(|stop| subsampled::epsilon(steps, delta, replace_one, stop))
}

/// Smallest noise multiplier of Poisson-subsampled Gaussian steps for (epsilon, delta).
#[pyfunction]
pub fn subsampled_gaussian_noise_multiplier(
    epsilon: f64,
    delta: f64,
    sampling_rate: f64,
    n_steps: u64,
    replace_one: bool,
) -> PyResult<f64> {
    run(|stop| {
        subsampled::noise_multiplier(epsilon, delta, sampling_rate, n_steps, replace_one, stop)
    })
}

/// A profile as it comes from Python: epsilons, deltas, how many times.
type Profile<'py> = (PyReadonlyArray1<'py, f64>, PyReadonlyArray1<'py, f64>, u64);

/// Points of a curve, and how many times.
type Points = (Vec<(f64, f64)>, u64);

/// Points of the profile.
fn points((epsilons, deltas, times): Profile<'_>) -> PyResult<Points> {
    let (epsilons, deltas) = (epsilons.as_array(), deltas.as_array());
    if epsilons.len() != deltas.len() {
        let (a, b) = (epsilons.len(), deltas.len());
        let message = format!("needs as many deltas as epsilons, got {b} and {a}");
        return Err(invalid("profiles", message));
    }
    let pairs = epsilons.iter().copied().zip(deltas.iter().copied());
    Ok((pairs.collect(), times))
}

/// Composition of privacy losses in both directions of the relation; immutable.
#[pyclass(frozen, module = "dpsvm_fast._core")]
pub struct LossDistribution {
    law: subsampled::LossDistribution,
}

#[pymethods]
impl LossDistribution {
    #[new]
    #[pyo3(signature = (**options))]
    fn new(options: Option<Keywords>) -> PyResult<Self> {
        let (events, replace_one) = Options::read(options, |o| {
            let sampled: Vec<_> = o.take("subsampled")?;
            let profiles: Vec<_> = o.take("profiles")?;
            let events = Events {
                subsampled: sampled.into_iter().map(steps).collect(),
                gaussian_mu: o.take("gaussian_mu")?,
                pure: o.take("pure")?,
                zcdp_rho: o.take("zcdp_rho")?,
                profiles: profiles.into_iter().map(points).collect::<PyResult<_>>()?,
            };
            Ok((events, o.take("replace_one")?))
        })?;
        let law = run(|_| subsampled::LossDistribution::new(&events, replace_one))?;
        Ok(Self { law })
    }

    /// Upper bound on delta at epsilon.
    fn delta(&self, epsilon: f64) -> PyResult<f64> {
        run(|stop| self.law.delta(epsilon, stop))
    }

    /// Upper bound on the smallest epsilon >= 0 at delta; infinite when there is none.
    fn epsilon(&self, delta: f64) -> PyResult<f64> {
        run(|stop| self.law.epsilon(delta, stop))
    }

    /// An upper bound on delta, mostly a little larger, in a fraction of the time.
    fn quick_delta(&self, epsilon: f64) -> PyResult<f64> {
        run(|stop| self.law.quick_delta(epsilon, stop))
    }

    /// A larger or equal bound on epsilon in a fraction of the time.
    fn quick_epsilon(&self, delta: f64) -> PyResult<f64> {
        run(|stop| self.law.quick_epsilon(delta, stop))
    }
}
