//! Bindings of `dpsvm_core::solver::crammer_singer`.

use crate::arrays::{Array, Matrix, contiguous, each};
use crate::gate;
use crate::options::{Bounded, facts, options};
use dpsvm_core::solver::crammer_singer::{CrammerSingerSettings, solve};
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;
use pyo3::types::PyDict;

options! {
    struct Options {
        ..rows: Bounded,
        n_classes: usize,
        C: f64,
        radius: f64,
        max_iter: Option<u64>,
        shuffle_seed: u64,
        n_threads: usize,
        low_memory: bool,
    }
}

/// Weights (or None when `max_iter` ran out) and facts for tests and benchmarks only.
type Fitted<'py> = (Option<Array<f64>>, Bound<'py, PyDict>);

/// Certified Crammer-Singer minimiser.
#[pyfunction]
#[pyo3(signature = (X, y, weights=None, **options))]
pub fn solve_crammer_singer<'py>(
    py: Python<'py>,
    X: Matrix<'py>,
    y: PyReadonlyArray1<'py, i64>,
    weights: Option<PyReadonlyArray1<'py, f64>>,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<Fitted<'py>> {
    let options = Options::read(options)?;
    let rows = X.rows(py, options.rows.of())?;
    let settings = CrammerSingerSettings {
        classes: options.n_classes,
        cost: options.C,
        radius: options.radius,
        max_passes: options.max_iter,
        seed: options.shuffle_seed,
        threads: options.n_threads,
        low_memory: options.low_memory,
    };
    let y = (contiguous(&y, "y")?, each(weights.as_ref())?);
    let solution = gate::run(py, |interrupt| solve(rows, y, &settings, interrupt))?;
    let info = facts!(py, solution, [radius, gap, passes, rounds]);
    let shape = [settings.classes, rows.n_columns()];
    Ok((solution.weights.map(|w| Array::shaped(w, shape)), info))
}
