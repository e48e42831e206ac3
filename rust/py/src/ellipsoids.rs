//! Bindings of `dpsvm_core::solver::ellipsoids`.

use crate::arrays::{ValueArray, contiguous, integers, matrices, matrix};
use crate::errors::to_python;
use crate::gate;
use dpsvm_core::Error;
use dpsvm_core::runtime::tasks::on_large_stack;
use dpsvm_core::solver::ellipsoids::{EllipsoidSettings, solve, solve_batch};
use numpy::{
    Ix2, PyArray1, PyArray2, PyArray3, PyReadonlyArray2, PyReadonlyArray3, PyUntypedArrayMethods,
};
use pyo3::prelude::*;

/// Matrices (or None when they could not be certified) and their certified distance.
type Fitted<'py> = (Option<Bound<'py, PyArray2<f64>>>, f64);

/// Matrices of every fit, 0 where not certified, and their certified distances.
type FittedBatch<'py> = (Bound<'py, PyArray3<f64>>, Bound<'py, PyArray1<f64>>);

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
    let b = contiguous(&linear, "linear")?;
    let (values, target) = (x.values("X")?, target.as_slice()?);
    let shape = (x.shape()[0], x.shape()[1]);
    // The core sees one slice: here a transposed array would go unnoticed there.
    check_count(&settings, linear.shape()[0])?;
    let solution = gate::run(py, |interrupt| {
        on_large_stack(interrupt, |watch| {
            solve(values, shape, target, b, &settings, watch)
        })
    })?;
    let shape = [linear.shape()[0], linear.shape()[1]];
    let matrices = solution.matrices.map(|w| matrix(py, w, shape));
    Ok((matrices.transpose()?, solution.distance))
}

/// Certified matrices for many linear terms over the same records.
#[pyfunction]
#[pyo3(signature = (X, target, *, loss, n_classes, n_ellipsoids, smoothing, margin, regularization, linear, data_norm, psd, gradient_tol, max_iter, n_threads))]
// Arrays are extracted by value.
#[allow(
    non_snake_case,
    clippy::too_many_arguments,
    clippy::needless_pass_by_value
)]
fn solve_gaussian_margin_batch<'py>(
    py: Python<'py>,
    X: &Bound<'py, PyAny>,
    target: &Bound<'py, PyAny>,
    loss: &str,
    n_classes: usize,
    n_ellipsoids: usize,
    smoothing: f64,
    margin: f64,
    regularization: f64,
    linear: PyReadonlyArray3<'py, f64>,
    data_norm: f64,
    psd: bool,
    gradient_tol: f64,
    max_iter: Option<u64>,
    n_threads: usize,
) -> PyResult<FittedBatch<'py>> {
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
    let b = contiguous(&linear, "linear")?;
    let (values, target) = (x.values("X")?, contiguous(&target, "target")?);
    let shape = (x.shape()[0], x.shape()[1]);
    let fits = [linear.shape()[0], linear.shape()[1], linear.shape()[2]];
    check_count(&settings, fits[1])?;
    // The core sees one slice: here fits of another length would go unnoticed there.
    let order = shape.1.saturating_add(1);
    if order.checked_mul(order + 1).map(|twice| twice / 2) != Some(fits[2]) {
        let message = "expected (d + 1)(d + 2)/2 columns";
        return Err(to_python(Error::invalid("linear", message)));
    }
    let found = gate::run(py, |interrupt| {
        on_large_stack(interrupt, |watch| {
            solve_batch(values, shape, target, b, &settings, watch)
        })
    })?;
    let distances = PyArray1::from_vec(py, found.distances);
    Ok((matrices(py, found.matrices, fits)?, distances))
}

/// Refuses linear terms that do not have one row for each ellipsoid.
fn check_count(settings: &EllipsoidSettings<'_>, got: usize) -> PyResult<()> {
    if settings.classes.checked_mul(settings.ellipsoids) == Some(got) {
        return Ok(());
    }
    let message = format!("got {got} rows, expected n_classes * n_ellipsoids");
    Err(to_python(Error::invalid("linear", message)))
}

/// Adds this file's functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(solve_gaussian_margin_batch, m)?)?;
    m.add_function(wrap_pyfunction!(solve_gaussian_margin, m)?)?;
    Ok(())
}
