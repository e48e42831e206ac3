//! Bindings of `dpsvm_core::solver::smooth`.

use crate::arrays::{Array, Matrix, contiguous, each};
use crate::errors::to_python;
use crate::gate;
use crate::options::{Bounded, Loss, facts, options};
use dpsvm_core::Error;
use dpsvm_core::solver::smooth::{SmoothSettings, solve, solve_batch};
use numpy::{PyReadonlyArray1, PyReadonlyArray2, PyReadonlyArray3, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::types::PyDict;

options! {
    struct Options {
        ..loss: Loss,
        ..rows: Bounded,
        regularization: f64,
        linear: Option<PyReadonlyArray2<'py, f64>>,
        gradient_tol: f64,
        max_iter: Option<u64>,
        shuffle_seed: u64,
        n_threads: usize,
        low_memory: bool,
    }
}

options! {
    struct BatchOptions {
        ..loss: Loss,
        ..rows: Bounded,
        regularization: f64,
        linear: PyReadonlyArray3<'py, f64>,
        gradient_tol: f64,
        max_iter: Option<u64>,
        shuffle_seed: u64,
        n_threads: usize,
    }
}

/// Weights of every fit, 0 where not certified, and whether they are.
type FittedBatch = (Array<f64>, Array<bool>);

/// Weights (or None when they could not be certified) and facts for tests and benchmarks only.
type Fitted<'py> = (Option<Array<f64>>, Bound<'py, PyDict>);

/// Certified minimiser of a smooth loss.
#[pyfunction]
#[pyo3(signature = (X, y, weights=None, **options))]
pub fn solve_smooth<'py>(
    py: Python<'py>,
    X: Matrix<'py>,
    y: PyReadonlyArray1<'py, i64>,
    weights: Option<PyReadonlyArray1<'py, f64>>,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<Fitted<'py>> {
    let o = Options::read(options)?;
    let rows = X.rows(py, o.rows.of())?;
    let settings = SmoothSettings {
        loss: gate::brief(|| o.loss.of())?,
        regularization: o.regularization,
        gradient_tol: o.gradient_tol,
        max_steps: o.max_iter,
        seed: o.shuffle_seed,
        threads: o.n_threads,
        low_memory: o.low_memory,
    };
    let linear = o.linear.as_ref().map(|b| contiguous(b, "linear"));
    let (y, linear) = (
        (contiguous(&y, "y")?, each(weights.as_ref())?),
        linear.transpose()?,
    );
    let solution = gate::run(py, |interrupt| solve(rows, y, linear, &settings, interrupt))?;
    let info = facts!(
        py,
        solution,
        [gradient_norm, steps, gradients, products, sample_products]
    );
    let shape = [o.loss.n_scores, rows.n_columns()];
    Ok((solution.weights.map(|w| Array::shaped(w, shape)), info))
}

/// Certified minimisers for many linear terms over the same rows.
#[pyfunction]
#[pyo3(signature = (X, y, **options))]
pub fn solve_smooth_batch<'py>(
    py: Python<'py>,
    X: Matrix<'py>,
    y: PyReadonlyArray1<'py, i64>,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<FittedBatch> {
    let o = BatchOptions::read(options)?;
    let rows = X.rows(py, o.rows.of())?;
    let settings = SmoothSettings {
        loss: gate::brief(|| o.loss.of())?,
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
    if shape[1..] != [o.loss.n_scores, rows.n_columns()] {
        let message = "expected the shape (n_fits, n_scores, n_columns)";
        return Err(to_python(Error::invalid("linear", message)));
    }
    let (y, b) = (contiguous(&y, "y")?, contiguous(&o.linear, "linear")?);
    let found = gate::run(py, |interrupt| {
        solve_batch(rows, y, b, &settings, interrupt)
    })?;
    let weights = Array::shaped(found.weights, shape);
    Ok((weights, Array::line(found.certified)))
}
