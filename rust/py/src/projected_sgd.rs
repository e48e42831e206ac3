//! Bindings of `dpsvm_core::solver::projected_sgd`.

use crate::arrays::{Matrix, labels, matrix};
use crate::gate;
use crate::options::options;
use dpsvm_core::loss::smooth::SmoothLoss;
use dpsvm_core::rows::view::RowBounds;
use dpsvm_core::solver::projected_sgd::{
    Average, Ownership, Projection, SgdSettings, orders, rounding, solve,
};
use dpsvm_core::{Error, Result};
use numpy::{PyArray1, PyArray2, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::types::PyDict;

options! {
    struct Options {
        loss: String,
        n_scores: usize,
        smoothing: f64,
        margin: f64,
        n_epochs: u64,
        batch_size: usize,
        regularization: f64,
        radius: f64,
        projection: String,
        average: String,
        data_norm: f64,
        intercept_scaling: f64,
        permutation_seed: u64,
        low_memory: bool,
        most_rows: usize,
    }
}

options! {
    struct RoundingOptions {
        n_samples: usize,
        n_columns: usize,
        loss: String,
        n_scores: usize,
        smoothing: f64,
        margin: f64,
        n_epochs: u64,
        batch_size: usize,
        regularization: f64,
        radius: f64,
        projection: String,
        average: String,
        data_norm: f64,
        intercept_scaling: f64,
        most_rows: usize,
    }
}

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

/// Projected SGD over the rows.
#[pyfunction]
#[pyo3(signature = (X, y, weights=None, persons=None, **options))]
#[allow(non_snake_case)]
fn projected_sgd<'py>(
    py: Python<'py>,
    X: &Bound<'py, PyAny>,
    y: &Bound<'py, PyAny>,
    weights: Option<&Bound<'py, PyArray1<f64>>>,
    persons: Option<&Bound<'py, PyArray1<i64>>>,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<Descended<'py>> {
    let o = Options::read(options)?;
    let (x, y) = (Matrix::extract(X)?, labels(y)?);
    let bounds = RowBounds {
        data_norm: o.data_norm,
        intercept: o.intercept_scaling,
    };
    let rows = x.rows(py, bounds)?;
    let settings = gate::brief(|| {
        Ok(SgdSettings {
            loss: SmoothLoss::new(&o.loss, o.n_scores, o.smoothing, o.margin)?,
            epochs: o.n_epochs,
            batch: o.batch_size,
            most_rows: o.most_rows,
            regularization: o.regularization,
            radius: o.radius,
            projection: projection(&o.projection)?,
            average: average(&o.average)?,
            seed: o.permutation_seed,
            low_memory: o.low_memory,
        })
    })?;
    let (weights, persons) = (
        weights.map(PyArrayMethods::readonly),
        persons.map(PyArrayMethods::readonly),
    );
    let owned = Ownership {
        persons: persons.as_ref().map_or(Ok(&[][..]), |p| p.as_slice())?,
        weights: weights.as_ref().map_or(Ok(&[][..]), |w| w.as_slice())?,
    };
    let y = y.as_slice()?;
    let solution = gate::run(py, |interrupt| solve(rows, y, owned, &settings, interrupt))?;
    let info = PyDict::new(py);
    info.set_item("projections", solution.projections)?;
    info.set_item("refreshes", solution.refreshes)?;
    let shape = [o.n_scores, rows.n_columns()];
    Ok((matrix(py, solution.weights, shape)?, info))
}

/// Bound of the distance of the weights from those of real arithmetic: public numbers alone.
#[pyfunction]
#[pyo3(signature = (**options))]
fn projected_sgd_rounding(options: Option<&Bound<'_, PyDict>>) -> PyResult<f64> {
    let o = RoundingOptions::read(options)?;
    let bounds = RowBounds {
        data_norm: o.data_norm,
        intercept: o.intercept_scaling,
    };
    gate::brief(|| {
        let settings = SgdSettings {
            loss: SmoothLoss::new(&o.loss, o.n_scores, o.smoothing, o.margin)?,
            epochs: o.n_epochs,
            batch: o.batch_size,
            most_rows: o.most_rows,
            regularization: o.regularization,
            radius: o.radius,
            projection: projection(&o.projection)?,
            average: average(&o.average)?,
            seed: 0,
            low_memory: false,
        };
        rounding(&settings, bounds, o.n_samples, o.n_columns)
    })
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
    m.add_function(wrap_pyfunction!(projected_sgd, m)?)?;
    m.add_function(wrap_pyfunction!(projected_sgd_orders, m)?)?;
    m.add_function(wrap_pyfunction!(projected_sgd_rounding, m)?)
}
