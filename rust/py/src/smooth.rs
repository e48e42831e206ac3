//! Bindings of `dpsvm_core::solver::smooth`.

use crate::arrays::{
    IndexArrays, ValueArray, contiguous, csr_rows, dense_rows, labels, matrices, matrix,
};
use crate::errors::to_python;
use crate::gate;
use dpsvm_core::Error;
use dpsvm_core::loss::smooth::SmoothLoss;
use dpsvm_core::rows::view::{RowBounds, Rows};
use dpsvm_core::solver::smooth::SmoothSettings;
use dpsvm_core::solver::smooth::{SmoothSolution, solve, solve_batch};
use numpy::{
    Ix1, Ix2, PyArray1, PyArray2, PyArray3, PyReadonlyArray1, PyReadonlyArray2, PyReadonlyArray3,
    PyUntypedArrayMethods,
};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Weights of every fit, 0 where not certified, and whether they are.
type FittedBatch<'py> = (Bound<'py, PyArray3<f64>>, Bound<'py, PyArray1<bool>>);

/// Weights (or None when they could not be certified) and facts for tests and benchmarks only.
type Fitted<'py> = (Option<Bound<'py, PyArray2<f64>>>, Bound<'py, PyDict>);

fn wrap(py: Python<'_>, columns: usize, solution: SmoothSolution) -> PyResult<Fitted<'_>> {
    let info = PyDict::new(py);
    info.set_item("gradient_norm", solution.gradient_norm)?;
    info.set_item("steps", solution.steps)?;
    info.set_item("gradients", solution.gradients)?;
    info.set_item("products", solution.products)?;
    info.set_item("sample_products", solution.sample_products)?;
    let weights = solution.weights.map(|w| {
        let scores = w.len() / columns.max(1);
        matrix(py, w, [scores, columns])
    });
    Ok((weights.transpose()?, info))
}

/// Solves without the GIL.
fn fit<'py>(
    py: Python<'py>,
    rows: Rows<'_>,
    y: &PyReadonlyArray1<'_, i64>,
    linear: Option<&PyReadonlyArray2<'_, f64>>,
    settings: &SmoothSettings,
) -> PyResult<Fitted<'py>> {
    let y = y.as_slice()?;
    let linear = linear.map(|b| contiguous(b, "linear")).transpose()?;
    let solution = gate::run(py, |interrupt| solve(rows, y, linear, settings, interrupt))?;
    wrap(py, rows.n_columns(), solution)
}

/// Certified minimiser of a smooth loss over the rows of a dense matrix.
#[pyfunction]
#[pyo3(signature = (X, y, *, loss, n_scores, smoothing, margin, regularization, linear, data_norm, intercept_scaling, gradient_tol, max_iter, shuffle_seed, n_threads, low_memory))]
// Arrays are extracted by value.
#[allow(
    non_snake_case,
    clippy::too_many_arguments,
    clippy::needless_pass_by_value
)]
fn solve_smooth_dense<'py>(
    py: Python<'py>,
    X: &Bound<'py, PyAny>,
    y: &Bound<'py, PyAny>,
    loss: &str,
    n_scores: usize,
    smoothing: f64,
    margin: f64,
    regularization: f64,
    linear: Option<PyReadonlyArray2<'py, f64>>,
    data_norm: f64,
    intercept_scaling: f64,
    gradient_tol: f64,
    max_iter: Option<u64>,
    shuffle_seed: u64,
    n_threads: usize,
    low_memory: bool,
) -> PyResult<Fitted<'py>> {
    let (x, y) = (ValueArray::<Ix2>::extract(X, "X")?, labels(y)?);
    let bounds = RowBounds {
        data_norm,
        intercept: intercept_scaling,
    };
    let rows = dense_rows(&x, bounds)?;
    let settings = SmoothSettings {
        loss: gate::brief(|| SmoothLoss::new(loss, n_scores, smoothing, margin))?,
        regularization,
        gradient_tol,
        max_steps: max_iter,
        seed: shuffle_seed,
        threads: n_threads,
        low_memory,
    };
    fit(py, rows, &y, linear.as_ref(), &settings)
}

/// Certified minimisers for many linear terms over the same rows of a dense matrix.
#[pyfunction]
#[pyo3(signature = (X, y, *, loss, n_scores, smoothing, margin, regularization, linear, data_norm, intercept_scaling, gradient_tol, max_iter, shuffle_seed, n_threads))]
// Arrays are extracted by value.
#[allow(
    non_snake_case,
    clippy::too_many_arguments,
    clippy::needless_pass_by_value
)]
fn solve_smooth_batch_dense<'py>(
    py: Python<'py>,
    X: &Bound<'py, PyAny>,
    y: &Bound<'py, PyAny>,
    loss: &str,
    n_scores: usize,
    smoothing: f64,
    margin: f64,
    regularization: f64,
    linear: PyReadonlyArray3<'py, f64>,
    data_norm: f64,
    intercept_scaling: f64,
    gradient_tol: f64,
    max_iter: Option<u64>,
    shuffle_seed: u64,
    n_threads: usize,
) -> PyResult<FittedBatch<'py>> {
    let (x, y) = (ValueArray::<Ix2>::extract(X, "X")?, labels(y)?);
    let bounds = RowBounds {
        data_norm,
        intercept: intercept_scaling,
    };
    let rows = dense_rows(&x, bounds)?;
    let settings = SmoothSettings {
        loss: gate::brief(|| SmoothLoss::new(loss, n_scores, smoothing, margin))?,
        regularization,
        gradient_tol,
        max_steps: max_iter,
        seed: shuffle_seed,
        threads: n_threads,
        low_memory: false,
    };
    let shape = [linear.shape()[0], linear.shape()[1], linear.shape()[2]];
    // The core sees one slice: here a transposed array would go unnoticed there.
    if shape[1..] != [n_scores, rows.n_columns()] {
        let message = "expected the shape (n_fits, n_scores, n_columns)";
        return Err(to_python(Error::invalid("linear", message)));
    }
    let (y, b) = (y.as_slice()?, contiguous(&linear, "linear")?);
    let found = gate::run(py, |interrupt| {
        solve_batch(rows, y, b, &settings, interrupt)
    })?;
    let certified = PyArray1::from_vec(py, found.certified);
    Ok((matrices(py, found.weights, shape)?, certified))
}

/// Certified minimiser of a smooth loss over the rows of a CSR matrix.
#[pyfunction]
#[pyo3(signature = (data, indices, indptr, n_features, y, *, loss, n_scores, smoothing, margin, regularization, linear, data_norm, intercept_scaling, gradient_tol, max_iter, shuffle_seed, n_threads, low_memory))]
#[allow(clippy::too_many_arguments, clippy::needless_pass_by_value)]
fn solve_smooth_csr<'py>(
    py: Python<'py>,
    data: &Bound<'py, PyAny>,
    indices: &Bound<'py, PyAny>,
    indptr: &Bound<'py, PyAny>,
    n_features: usize,
    y: &Bound<'py, PyAny>,
    loss: &str,
    n_scores: usize,
    smoothing: f64,
    margin: f64,
    regularization: f64,
    linear: Option<PyReadonlyArray2<'py, f64>>,
    data_norm: f64,
    intercept_scaling: f64,
    gradient_tol: f64,
    max_iter: Option<u64>,
    shuffle_seed: u64,
    n_threads: usize,
    low_memory: bool,
) -> PyResult<Fitted<'py>> {
    let (x, y) = (ValueArray::<Ix1>::extract(data, "data")?, labels(y)?);
    let index = IndexArrays::extract(indices, indptr)?;
    let bounds = RowBounds {
        data_norm,
        intercept: intercept_scaling,
    };
    let rows = csr_rows(py, &x, &index, (Some(y.len()), n_features), bounds)?;
    let settings = SmoothSettings {
        loss: gate::brief(|| SmoothLoss::new(loss, n_scores, smoothing, margin))?,
        regularization,
        gradient_tol,
        max_steps: max_iter,
        seed: shuffle_seed,
        threads: n_threads,
        low_memory,
    };
    fit(py, rows, &y, linear.as_ref(), &settings)
}

/// Adds this file's functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(solve_smooth_dense, m)?)?;
    m.add_function(wrap_pyfunction!(solve_smooth_batch_dense, m)?)?;
    m.add_function(wrap_pyfunction!(solve_smooth_csr, m)?)?;
    Ok(())
}
