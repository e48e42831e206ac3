//! Bindings of `dpsvm_core::accounting::subsampled`. All of them go through the gate: a call takes
//! milliseconds, and for long histories up to a second.

use crate::errors::to_python;
use crate::gate::run;
use dpsvm_core::Error;
use dpsvm_core::accounting::subsampled;
use dpsvm_core::accounting::subsampled::{Events, Subsampled};
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;

/// A count from Python.
fn count(name: &'static str, value: i64) -> Result<u64, Error> {
    u64::try_from(value).map_err(|_| {
        let message = format!("must be a positive number, got {value}");
        Error::invalid(name, message)
    })
}

fn steps(noise_multiplier: f64, sampling_rate: f64, n_steps: i64) -> Result<Subsampled, Error> {
    Ok(Subsampled {
        noise_multiplier,
        sampling_rate,
        n_steps: count("n_steps", n_steps)?,
    })
}

/// Smallest proven delta of Poisson-subsampled Gaussian steps at epsilon, rounded up.
#[pyfunction]
pub fn subsampled_gaussian_delta(
    py: Python<'_>,
    noise_multiplier: f64,
    sampling_rate: f64,
    n_steps: i64,
    epsilon: f64,
    replace_one: bool,
) -> PyResult<f64> {
    run(py, |stop| {
        let steps = steps(noise_multiplier, sampling_rate, n_steps)?;
        subsampled::delta(steps, epsilon, replace_one, stop)
    })
}

/// Smallest proven epsilon >= 0 of Poisson-subsampled Gaussian steps at delta, rounded up.
#[pyfunction]
pub fn subsampled_gaussian_epsilon(
    py: Python<'_>,
    noise_multiplier: f64,
    sampling_rate: f64,
    n_steps: i64,
    delta: f64,
    replace_one: bool,
) -> PyResult<f64> {
    run(py, |stop| {
        let steps = steps(noise_multiplier, sampling_rate, n_steps)?;
        subsampled::epsilon(steps, delta, replace_one, stop)
    })
}

/// Smallest noise multiplier of Poisson-subsampled Gaussian steps for (epsilon, delta).
#[pyfunction]
pub fn subsampled_gaussian_noise_multiplier(
    py: Python<'_>,
    epsilon: f64,
    delta: f64,
    sampling_rate: f64,
    n_steps: i64,
    replace_one: bool,
) -> PyResult<f64> {
    run(py, |stop| {
        let n_steps = count("n_steps", n_steps)?;
        subsampled::noise_multiplier(epsilon, delta, sampling_rate, n_steps, replace_one, stop)
    })
}

/// A profile as it comes from Python: epsilons, deltas, how many times.
type Profile<'py> = (PyReadonlyArray1<'py, f64>, PyReadonlyArray1<'py, f64>, i64);

/// Points of a curve, and how many times.
type Points = (Vec<(f64, f64)>, u64);

/// Points of the profiles.
fn points(profiles: &[Profile<'_>]) -> PyResult<Vec<Points>> {
    let mut all = Vec::with_capacity(profiles.len());
    for (epsilons, deltas, times) in profiles {
        let (epsilons, deltas) = (epsilons.as_array(), deltas.as_array());
        if epsilons.len() != deltas.len() {
            let (a, b) = (epsilons.len(), deltas.len());
            let message = format!("needs as many deltas as epsilons, got {b} and {a}");
            return Err(to_python(Error::invalid("profiles", message)));
        }
        let pairs = epsilons.iter().copied().zip(deltas.iter().copied());
        all.push((
            pairs.collect(),
            count("profiles", *times).map_err(to_python)?,
        ));
    }
    Ok(all)
}

/// Composition of privacy losses in both directions of the relation; immutable.
#[pyclass(frozen, module = "dpsvm_fast._core")]
pub struct LossDistribution {
    law: subsampled::LossDistribution,
}

#[pymethods]
impl LossDistribution {
    #[new]
    #[pyo3(signature = (*, subsampled, gaussian_mu, pure, zcdp_rho, profiles, replace_one))]
    fn new(
        py: Python<'_>,
        subsampled: Vec<(f64, f64, i64)>,
        gaussian_mu: f64,
        pure: Vec<(f64, i64)>,
        zcdp_rho: f64,
        profiles: Vec<Profile<'_>>,
        replace_one: bool,
    ) -> PyResult<Self> {
        let events = Events {
            subsampled: subsampled
                .into_iter()
                .map(|(noise, rate, n)| steps(noise, rate, n))
                .collect::<Result<_, _>>()
                .map_err(to_python)?,
            gaussian_mu,
            pure: pure
                .into_iter()
                .map(|(epsilon, times)| Ok((epsilon, count("pure", times)?)))
                .collect::<Result<_, _>>()
                .map_err(to_python)?,
            zcdp_rho,
            profiles: points(&profiles)?,
        };
        let law = run(py, |_| {
            subsampled::LossDistribution::new(&events, replace_one)
        })?;
        Ok(Self { law })
    }

    /// Upper bound on delta at epsilon.
    fn delta(&self, py: Python<'_>, epsilon: f64) -> PyResult<f64> {
        run(py, |stop| self.law.delta(epsilon, stop))
    }

    /// Upper bound on the smallest epsilon >= 0 at delta; infinite when there is none.
    fn epsilon(&self, py: Python<'_>, delta: f64) -> PyResult<f64> {
        run(py, |stop| self.law.epsilon(delta, stop))
    }

    /// A larger or equal bound in a fraction of the time.
    fn quick_epsilon(&self, py: Python<'_>, delta: f64) -> PyResult<f64> {
        run(py, |stop| self.law.quick_epsilon(delta, stop))
    }
}
