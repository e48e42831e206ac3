//! Bindings of `dpsvm_core::solver`.

use crate::arrays::{IndexArrays, ValueArray, csr_rows, dense_rows, labels, matrix};
use crate::gate;
use dpsvm_core::rows::view::{RowBounds, Rows};
use dpsvm_core::solver::crammer_singer::CrammerSingerSettings;
use dpsvm_core::solver::crammer_singer::{Solution, solve};
use numpy::{Ix1, Ix2, PyArray2, PyReadonlyArray1, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Weights (or None when `max_iter` ran out) and facts for tests and benchmarks only.
type Fitted<'py> = (Option<Bound<'py, PyArray2<f64>>>, Bound<'py, PyDict>);

fn wrap(py: Python<'_>, columns: usize, solution: Solution) -> PyResult<Fitted<'_>> {
    let info = PyDict::new(py);
    info.set_item("radius", solution.radius)?;
    info.set_item("gap", solution.gap)?;
    info.set_item("passes", solution.passes)?;
    info.set_item("rounds", solution.rounds)?;
    let weights = solution.weights.map(|w| {
        let classes = w.len() / columns.max(1);
        matrix(py, w, [classes, columns])
    });
    Ok((weights.transpose()?, info))
}

/// Solves without the GIL.
fn fit<'py>(
    py: Python<'py>,
    rows: Rows<'_>,
    y: &PyReadonlyArray1<'_, i64>,
    settings: &CrammerSingerSettings,
) -> PyResult<Fitted<'py>> {
    let y = y.as_slice()?;
    let solution = gate::run(py, |interrupt| solve(rows, y, settings, interrupt))?;
    wrap(py, rows.n_columns(), solution)
}

/// Certified Crammer-Singer minimiser of a dense matrix.
#[pyfunction]
#[pyo3(signature = (X, y, *, n_classes, C, data_norm, intercept_scaling, radius, max_iter, shuffle_seed, n_threads, low_memory))]
#[allow(non_snake_case, clippy::too_many_arguments)]
fn solve_crammer_singer_dense<'py>(
    py: Python<'py>,
    X: &Bound<'py, PyAny>,
    y: &Bound<'py, PyAny>,
    n_classes: usize,
    C: f64,
    data_norm: f64,
    intercept_scaling: f64,
    radius: f64,
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
    let settings = CrammerSingerSettings {
        classes: n_classes,
        cost: C,
        radius,
        max_passes: max_iter,
        seed: shuffle_seed,
        threads: n_threads,
        low_memory,
    };
    fit(py, rows, &y, &settings)
}

/// Certified Crammer-Singer minimiser of a CSR matrix.
#[pyfunction]
#[pyo3(signature = (data, indices, indptr, n_features, y, *, n_classes, C, data_norm, intercept_scaling, radius, max_iter, shuffle_seed, n_threads, low_memory))]
#[allow(non_snake_case, clippy::too_many_arguments)]
fn solve_crammer_singer_csr<'py>(
    py: Python<'py>,
    data: &Bound<'py, PyAny>,
    indices: &Bound<'py, PyAny>,
    indptr: &Bound<'py, PyAny>,
    n_features: usize,
    y: &Bound<'py, PyAny>,
    n_classes: usize,
    C: f64,
    data_norm: f64,
    intercept_scaling: f64,
    radius: f64,
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
    let settings = CrammerSingerSettings {
        classes: n_classes,
        cost: C,
        radius,
        max_passes: max_iter,
        seed: shuffle_seed,
        threads: n_threads,
        low_memory,
    };
    fit(py, rows, &y, &settings)
}

/// Adds this file's functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(solve_crammer_singer_dense, m)?)?;
    m.add_function(wrap_pyfunction!(solve_crammer_singer_csr, m)?)?;
    Ok(())
}
