//! Bindings of `dpsvm_core::solver::crammer_singer`.

use crate::arrays::{Matrix, labels, matrix};
use crate::gate;
use crate::options::options;
use dpsvm_core::rows::view::RowBounds;
use dpsvm_core::solver::crammer_singer::{CrammerSingerSettings, solve};
use numpy::{PyArray1, PyArray2, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::types::PyDict;

options! {
    struct Options {
        n_classes: usize,
        C: f64,
        data_norm: f64,
        intercept_scaling: f64,
        radius: f64,
        max_iter: Option<u64>,
        shuffle_seed: u64,
        n_threads: usize,
        low_memory: bool,
    }
}

/// Weights (or None when `max_iter` ran out) and facts for tests and benchmarks only.
type Fitted<'py> = (Option<Bound<'py, PyArray2<f64>>>, Bound<'py, PyDict>);

/// Certified Crammer-Singer minimiser.
#[pyfunction]
#[pyo3(signature = (X, y, weights=None, **options))]
#[allow(non_snake_case)]
fn solve_crammer_singer<'py>(
    py: Python<'py>,
    X: &Bound<'py, PyAny>,
    y: &Bound<'py, PyAny>,
    weights: Option<&Bound<'py, PyArray1<f64>>>,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<Fitted<'py>> {
    let options = Options::read(options)?;
    let (x, y) = (Matrix::extract(X)?, labels(y)?);
    let bounds = RowBounds {
        data_norm: options.data_norm,
        intercept: options.intercept_scaling,
    };
    let rows = x.rows(py, bounds)?;
    let settings = CrammerSingerSettings {
        classes: options.n_classes,
        cost: options.C,
        radius: options.radius,
        max_passes: options.max_iter,
        seed: options.shuffle_seed,
        threads: options.n_threads,
        low_memory: options.low_memory,
    };
    let weights = weights.map(PyArrayMethods::readonly);
    let weights = weights.as_ref().map_or(Ok(&[][..]), |w| w.as_slice())?;
    let y = (y.as_slice()?, weights);
    let solution = gate::run(py, |interrupt| solve(rows, y, &settings, interrupt))?;
    let info = PyDict::new(py);
    info.set_item("radius", solution.radius)?;
    info.set_item("gap", solution.gap)?;
    info.set_item("passes", solution.passes)?;
    info.set_item("rounds", solution.rounds)?;
    let shape = [settings.classes, rows.n_columns()];
    let weights = solution.weights.map(|w| matrix(py, w, shape));
    Ok((weights.transpose()?, info))
}

/// Adds this file's function to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(solve_crammer_singer, m)?)
}
