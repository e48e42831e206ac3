//! Bindings of `dpsvm_core::accounting`.
//!
//! Calls take microseconds, so the GIL is kept.

use crate::errors::to_python;
use dpsvm_core::accounting::gaussian;
use pyo3::prelude::*;

/// Smallest noise deviation over sensitivity for (epsilon, delta), rounded up.
#[pyfunction]
fn gaussian_sigma(epsilon: f64, delta: f64) -> PyResult<f64> {
    gaussian::sigma(epsilon, delta).map_err(to_python)
}

/// Smallest delta at epsilon for noise deviation sigma over sensitivity, rounded up.
#[pyfunction]
fn gaussian_delta(epsilon: f64, sigma: f64) -> PyResult<f64> {
    gaussian::delta(epsilon, sigma).map_err(to_python)
}

/// Natural logarithm of `gaussian_delta`, rounded up.
#[pyfunction]
fn gaussian_log_delta(epsilon: f64, sigma: f64) -> PyResult<f64> {
    gaussian::log_delta(epsilon, sigma).map_err(to_python)
}

/// Smallest epsilon >= 0 at delta for noise deviation sigma over sensitivity, rounded up.
#[pyfunction]
fn gaussian_epsilon(delta: f64, sigma: f64) -> PyResult<f64> {
    gaussian::epsilon(delta, sigma).map_err(to_python)
}

/// Adds this file's functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(gaussian_sigma, m)?)?;
    m.add_function(wrap_pyfunction!(gaussian_delta, m)?)?;
    m.add_function(wrap_pyfunction!(gaussian_log_delta, m)?)?;
    m.add_function(wrap_pyfunction!(gaussian_epsilon, m)?)?;
    Ok(())
}
