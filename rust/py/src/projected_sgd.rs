//! Bindings of `dpsvm_core::solver::projected_sgd`.

use crate::arrays::{IndexArrays, ValueArray, csr_rows, dense_rows, labels, matrix};
use crate::errors::to_python;
use crate::gate;
use dpsvm_core::loss::smooth::SmoothLoss;
use dpsvm_core::rows::view::{RowBounds, Rows};
use dpsvm_core::solver::projected_sgd::Projection;
use dpsvm_core::solver::projected_sgd::orders;
use dpsvm_core::solver::projected_sgd::{Average, SgdSettings, rounding, solve};
use dpsvm_core::{Error, Result};
use numpy::{Ix1, Ix2, PyArray1, PyArray2, PyReadonlyArray1, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Weights, and facts for tests and benchmarks only.
type Descended<'py> = (Bound<'py, PyArray2<f64>>, Bound<'py, PyDict>);

pub(crate) fn projection(name: &str) -> Result<Projection> {
    match name {
        "joint" => Ok(Projection::Joint),
        "per_class" => Ok(Projection::PerClass),
        _ => Err(Error::invalid("projection", "expected joint or per_class")),
    }
}

pub(crate) fn average(name: &str) -> Result<Average> {
    match name {
        "last" => Ok(Average::Last),
        "uniform" => Ok(Average::Uniform),
        "weighted" => Ok(Average::Weighted),
        _ => {
            let accepted = "expected last, uniform or weighted";
            Err(Error::invalid("average", accepted))
        }
    }
}

/// Descends without the GIL.
fn descend<'py>(
    py: Python<'py>,
    rows: Rows<'_>,
    y: &PyReadonlyArray1<'_, i64>,
    settings: &SgdSettings,
) -> PyResult<Descended<'py>> {
    let y = y.as_slice()?;
    let solution = gate::run(py, |interrupt| solve(rows, y, settings, interrupt))?;
    let info = PyDict::new(py);
    info.set_item("projections", solution.projections)?;
    info.set_item("refreshes", solution.refreshes)?;
    let shape = [settings.loss.scores, rows.n_columns()];
    Ok((matrix(py, solution.weights, shape)?, info))
}

/// Projected SGD over the rows of a dense matrix.
#[pyfunction]
#[pyo3(signature = (X, y, *, loss, n_scores, smoothing, margin, n_epochs, batch_size, regularization, radius, projection, average, data_norm, intercept_scaling, permutation_seed, low_memory))]
#[allow(non_snake_case, clippy::too_many_arguments)]
fn projected_sgd_dense<'py>(
    py: Python<'py>,
    X: &Bound<'py, PyAny>,
    y: &Bound<'py, PyAny>,
    loss: &str,
    n_scores: usize,
    smoothing: f64,
    margin: f64,
    n_epochs: u64,
    batch_size: usize,
    regularization: f64,
    radius: f64,
    projection: &str,
    average: &str,
    data_norm: f64,
    intercept_scaling: f64,
    permutation_seed: u64,
    low_memory: bool,
) -> PyResult<Descended<'py>> {
    let (x, y) = (ValueArray::<Ix2>::extract(X, "X")?, labels(y)?);
    let bounds = RowBounds {
        data_norm,
        intercept: intercept_scaling,
    };
    let rows = dense_rows(&x, bounds)?;
    let settings = SgdSettings {
        loss: gate::brief(|| SmoothLoss::new(loss, n_scores, smoothing, margin))?,
        epochs: n_epochs,
        batch: batch_size,
        regularization,
        radius,
        projection: self::projection(projection).map_err(to_python)?,
        average: self::average(average).map_err(to_python)?,
        seed: permutation_seed,
        low_memory,
    };
    descend(py, rows, &y, &settings)
}

/// Projected SGD over the rows of a CSR matrix.
#[pyfunction]
#[pyo3(signature = (data, indices, indptr, n_features, y, *, loss, n_scores, smoothing, margin, n_epochs, batch_size, regularization, radius, projection, average, data_norm, intercept_scaling, permutation_seed, low_memory))]
#[allow(clippy::too_many_arguments)]
fn projected_sgd_csr<'py>(
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
    n_epochs: u64,
    batch_size: usize,
    regularization: f64,
    radius: f64,
    projection: &str,
    average: &str,
    data_norm: f64,
    intercept_scaling: f64,
    permutation_seed: u64,
    low_memory: bool,
) -> PyResult<Descended<'py>> {
    let (x, y) = (ValueArray::<Ix1>::extract(data, "data")?, labels(y)?);
    let index = IndexArrays::extract(indices, indptr)?;
    let bounds = RowBounds {
        data_norm,
        intercept: intercept_scaling,
    };
    let rows = csr_rows(py, &x, &index, (Some(y.len()), n_features), bounds)?;
    let settings = SgdSettings {
        loss: gate::brief(|| SmoothLoss::new(loss, n_scores, smoothing, margin))?,
        epochs: n_epochs,
        batch: batch_size,
        regularization,
        radius,
        projection: self::projection(projection).map_err(to_python)?,
        average: self::average(average).map_err(to_python)?,
        seed: permutation_seed,
        low_memory,
    };
    descend(py, rows, &y, &settings)
}

/// Bound of the distance of the weights from those of real arithmetic: public numbers alone.
#[pyfunction]
#[pyo3(signature = (*, n_samples, n_columns, loss, n_scores, smoothing, margin, n_epochs, batch_size, regularization, radius, projection, average, data_norm, intercept_scaling))]
#[allow(clippy::too_many_arguments)]
fn projected_sgd_rounding(
    n_samples: usize,
    n_columns: usize,
    loss: &str,
    n_scores: usize,
    smoothing: f64,
    margin: f64,
    n_epochs: u64,
    batch_size: usize,
    regularization: f64,
    radius: f64,
    projection: &str,
    average: &str,
    data_norm: f64,
    intercept_scaling: f64,
) -> PyResult<f64> {
    let bounds = RowBounds {
        data_norm,
        intercept: intercept_scaling,
    };
    let settings = SgdSettings {
        loss: gate::brief(|| SmoothLoss::new(loss, n_scores, smoothing, margin))?,
        epochs: n_epochs,
        batch: batch_size,
        regularization,
        radius,
        projection: self::projection(projection).map_err(to_python)?,
        average: self::average(average).map_err(to_python)?,
        seed: 0,
        low_memory: false,
    };
    gate::brief(|| rounding(&settings, bounds, n_samples, n_columns))
}

/// The rows in the order in which the passes take them: a public function of public numbers.
#[pyfunction]
#[pyo3(signature = (n_samples, n_epochs, permutation_seed))]
fn projected_sgd_orders(
    py: Python<'_>,
    n_samples: u32,
    n_epochs: u64,
    permutation_seed: u64,
) -> PyResult<Bound<'_, PyArray1<u32>>> {
    let ordered = gate::run(py, |interrupt| {
        orders(n_samples, n_epochs, permutation_seed, interrupt)
    })?;
    Ok(PyArray1::from_vec(py, ordered))
}

/// Adds this file's functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(projected_sgd_dense, m)?)?;
    m.add_function(wrap_pyfunction!(projected_sgd_csr, m)?)?;
    m.add_function(wrap_pyfunction!(projected_sgd_orders, m)?)?;
    m.add_function(wrap_pyfunction!(projected_sgd_rounding, m)?)?;
    Ok(())
}
