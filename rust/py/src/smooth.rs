//! Bindings of `dpsvm_core::solver::smooth`.

use crate::arrays::{Matrix, contiguous, labels, matrices, matrix};
use crate::errors::to_python;
use crate::gate;
use crate::options::options;
use dpsvm_core::rows::view::RowBounds;
use dpsvm_core::solver::smooth::{SmoothSettings, solve, solve_batch};
use dpsvm_core::{Error, loss::smooth::SmoothLoss};
use numpy::{
    PyArray1, PyArray2, PyArray3, PyArrayMethods, PyReadonlyArray2, PyReadonlyArray3,
    PyUntypedArrayMethods,
};
use pyo3::prelude::*;
use pyo3::types::PyDict;

options! {
    struct Options {
        loss: String,
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
    }
}

options! {
    struct BatchOptions {
        loss: String,
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
    }
}

/// Weights of every fit, 0 where not certified, and whether they are.
type FittedBatch<'py> = (Bound<'py, PyArray3<f64>>, Bound<'py, PyArray1<bool>>);

/// Weights (or None when they could not be certified) and facts for tests and benchmarks only.
type Fitted<'py> = (Option<Bound<'py, PyArray2<f64>>>, Bound<'py, PyDict>);

/// Certified minimiser of a smooth loss.
#[pyfunction]
#[pyo3(signature = (X, y, weights=None, **options))]
#[allow(non_snake_case)]
fn solve_smooth<'py>(
    py: Python<'py>,
    X: &Bound<'py, PyAny>,
    y: &Bound<'py, PyAny>,
    weights: Option<&Bound<'py, PyArray1<f64>>>,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<Fitted<'py>> {
    let o = Options::read(options)?;
    let (x, y) = (Matrix::extract(X)?, labels(y)?);
    let bounds = RowBounds {
        data_norm: o.data_norm,
        intercept: o.intercept_scaling,
    };
    let rows = x.rows(py, bounds)?;
    let settings = SmoothSettings {
        loss: gate::brief(|| SmoothLoss::new(&o.loss, o.n_scores, o.smoothing, o.margin))?,
        regularization: o.regularization,
        gradient_tol: o.gradient_tol,
        max_steps: o.max_iter,
        seed: o.shuffle_seed,
        threads: o.n_threads,
        low_memory: o.low_memory,
    };
    let linear = o.linear.as_ref().map(|b| contiguous(b, "linear"));
    let weights = weights.map(PyArrayMethods::readonly);
    let weights = weights.as_ref().map_or(Ok(&[][..]), |w| w.as_slice())?;
    let (y, linear) = ((y.as_slice()?, weights), linear.transpose()?);
    let solution = gate::run(py, |interrupt| solve(rows, y, linear, &settings, interrupt))?;
    let info = PyDict::new(py);
    info.set_item("gradient_norm", solution.gradient_norm)?;
    info.set_item("steps", solution.steps)?;
    info.set_item("gradients", solution.gradients)?;
    info.set_item("products", solution.products)?;
    info.set_item("sample_products", solution.sample_products)?;
    let shape = [o.n_scores, rows.n_columns()];
    let weights = solution.weights.map(|w| matrix(py, w, shape));
    Ok((weights.transpose()?, info))
}

/// Certified minimisers for many linear terms over the same rows.
#[pyfunction]
#[pyo3(signature = (X, y, **options))]
#[allow(non_snake_case)]
fn solve_smooth_batch<'py>(
    py: Python<'py>,
    X: &Bound<'py, PyAny>,
    y: &Bound<'py, PyAny>,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<FittedBatch<'py>> {
    let o = BatchOptions::read(options)?;
    let (x, y) = (Matrix::extract(X)?, labels(y)?);
    let bounds = RowBounds {
        data_norm: o.data_norm,
        intercept: o.intercept_scaling,
    };
    let rows = x.rows(py, bounds)?;
    let settings = SmoothSettings {
        loss: gate::brief(|| SmoothLoss::new(&o.loss, o.n_scores, o.smoothing, o.margin))?,
        regularization: o.regularization,
        gradient_tol: o.gradient_tol,
        max_steps: o.max_iter,
        seed: o.shuffle_seed,
        threads: o.n_threads,
        low_memory: false,
    };
    let shape = o.linear.shape();
    let shape = [shape[0], shape[1], shape[2]];
    // The core sees one slice: here a transposed array would go unnoticed there.
    if shape[1..] != [o.n_scores, rows.n_columns()] {
        let message = "expected the shape (n_fits, n_scores, n_columns)";
        return Err(to_python(Error::invalid("linear", message)));
    }
    let (y, b) = (y.as_slice()?, contiguous(&o.linear, "linear")?);
    let found = gate::run(py, |interrupt| {
        solve_batch(rows, y, b, &settings, interrupt)
    })?;
    let certified = PyArray1::from_vec(py, found.certified);
    Ok((matrices(py, found.weights, shape)?, certified))
}

/// Adds this file's functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(solve_smooth, m)?)?;
    m.add_function(wrap_pyfunction!(solve_smooth_batch, m)?)
}
