//! Bindings of `dpsvm_core::solver::gaussian_margin`.

use crate::arrays::{ValueArray, integers, matrix};
use crate::errors::to_python;
use crate::gate;
use dpsvm_core::Error;
use dpsvm_core::solver::gaussian_margin::{EllipsoidSettings, solve};
use numpy::{Ix2, PyArray2, PyReadonlyArray2, PyUntypedArrayMethods};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

/// Matrices (or None when they could not be certified) and their certified distance.
type Fitted<'py> = (Option<Bound<'py, PyArray2<f64>>>, f64);

/// Certified matrices of the large-margin Gaussian classifier.
#[pyfunction]
#[pyo3(signature = (X, target, *, loss, n_classes, n_ellipsoids, smoothing, margin, regularization, linear, data_norm, psd, gradient_tol, max_iter, n_threads))]
// Arrays are extracted by value.
#[allow(
    non_snake_case,
    clippy::too_many_arguments,
    clippy::needless_pass_by_value
)]
fn solve_gaussian_margin<'py>(
    py: Python<'py>,
    X: &Bound<'py, PyAny>,
    target: &Bound<'py, PyAny>,
    loss: &str,
    n_classes: usize,
    n_ellipsoids: usize,
    smoothing: f64,
    margin: f64,
    regularization: f64,
    linear: PyReadonlyArray2<'py, f64>,
    data_norm: f64,
    psd: bool,
    gradient_tol: f64,
    max_iter: Option<u64>,
    n_threads: usize,
) -> PyResult<Fitted<'py>> {
    let (x, target) = (
        ValueArray::<Ix2>::extract(X, "X")?,
        integers(target, "target")?,
    );
    let settings = EllipsoidSettings {
        loss,
        classes: n_classes,
        ellipsoids: n_ellipsoids,
        smoothing,
        margin,
        regularization,
        data_norm,
        psd,
        gradient_tol,
        max_passes: max_iter,
        threads: n_threads,
    };
    let order = |_| PyTypeError::new_err("linear: expected C order (row-major)");
    let b = linear.as_slice().map_err(order)?;
    let (values, target) = (x.values("X")?, target.as_slice()?);
    let shape = (x.shape()[0], x.shape()[1]);
    // The core sees one slice: here a transposed array would go unnoticed there.
    if n_classes.checked_mul(n_ellipsoids) != Some(linear.shape()[0]) {
        let got = linear.shape()[0];
        let message = format!("got {got} rows, expected n_classes * n_ellipsoids");
        return Err(to_python(Error::invalid("linear", message)));
    }
    let solution = gate::run(py, |interrupt| {
        solve(values, shape, target, b, &settings, interrupt)
    })?;
    let shape = [linear.shape()[0], linear.shape()[1]];
    let matrices = solution.matrices.map(|w| matrix(py, w, shape));
    Ok((matrices.transpose()?, solution.distance))
}

/// Adds this file's function to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(solve_gaussian_margin, m)?)?;
    Ok(())
}
