//! Bindings of `dpsvm_core::solver::parties`.

use crate::arrays::{ValueArray, contiguous, dense_rows, integers, labels, matrices};
use crate::errors::to_python;
use crate::gate;
use crate::projected_sgd::{average, projection};
use dpsvm_core::loss::smooth::SmoothLoss;
use dpsvm_core::rows::view::RowBounds;
use dpsvm_core::solver::crammer_singer::CrammerSingerSettings;
use dpsvm_core::solver::parties::{Fits, Parties, crammer_singer, descents, smooth};
use dpsvm_core::solver::projected_sgd;
use dpsvm_core::solver::smooth::SmoothSettings;
use numpy::{Ix2, PyArray1, PyArray3, PyReadonlyArray1};
use pyo3::prelude::*;

/// Weights of every party, 0 where not certified, and whether they are.
type Fitted<'py> = (Bound<'py, PyArray3<f64>>, Bound<'py, PyArray1<bool>>);

/// Everything but the settings.
struct Input<'py> {
    x: ValueArray<'py, Ix2>,
    y: PyReadonlyArray1<'py, i64>,
    offsets: PyReadonlyArray1<'py, i64>,
    bounds: RowBounds,
}

impl<'py> Input<'py> {
    fn extract(
        (x, y, offsets): (&Bound<'py, PyAny>, &Bound<'py, PyAny>, &Bound<'py, PyAny>),
        (data_norm, intercept): (f64, f64),
    ) -> PyResult<Self> {
        Ok(Self {
            x: ValueArray::extract(x, "X")?,
            y: labels(y)?,
            offsets: integers(offsets, "offsets")?,
            bounds: RowBounds {
                data_norm,
                intercept,
            },
        })
    }

    /// The parties, and the columns of their weights.
    fn parties(&self) -> PyResult<(Parties<'_>, usize)> {
        let rows = dense_rows(&self.x, self.bounds)?;
        let (y, offsets) = (
            contiguous(&self.y, "y")?,
            contiguous(&self.offsets, "offsets")?,
        );
        let parties = gate::brief(|| Parties::new(rows, y, offsets))?;
        Ok((parties, rows.n_columns()))
    }
}

fn wrap(py: Python<'_>, found: Fits, scores: usize, columns: usize) -> PyResult<Fitted<'_>> {
    let shape = [found.certified.len(), scores, columns];
    let certified = PyArray1::from_vec(py, found.certified);
    Ok((matrices(py, found.weights, shape)?, certified))
}

/// Certified minimisers of a smooth loss, one for the rows of each party.
#[pyfunction]
#[pyo3(signature = (X, y, offsets, *, loss, n_scores, smoothing, margin, regularizations, data_norm, intercept_scaling, gradient_tols, shuffle_seed, n_threads))]
// Arrays are extracted by value.
#[allow(
    non_snake_case,
    clippy::too_many_arguments,
    clippy::needless_pass_by_value
)]
fn solve_smooth_parties_dense<'py>(
    py: Python<'py>,
    X: &Bound<'py, PyAny>,
    y: &Bound<'py, PyAny>,
    offsets: &Bound<'py, PyAny>,
    loss: &str,
    n_scores: usize,
    smoothing: f64,
    margin: f64,
    regularizations: PyReadonlyArray1<'py, f64>,
    data_norm: f64,
    intercept_scaling: f64,
    gradient_tols: PyReadonlyArray1<'py, f64>,
    shuffle_seed: u64,
    n_threads: usize,
) -> PyResult<Fitted<'py>> {
    let input = Input::extract((X, y, offsets), (data_norm, intercept_scaling))?;
    let (parties, columns) = input.parties()?;
    let settings = SmoothSettings {
        loss: gate::brief(|| SmoothLoss::new(loss, n_scores, smoothing, margin))?,
        regularization: 1.0,
        gradient_tol: 1.0,
        max_steps: None,
        seed: shuffle_seed,
        threads: n_threads,
        low_memory: false,
    };
    let numbers = (
        contiguous(&regularizations, "regularizations")?,
        contiguous(&gradient_tols, "gradient_tols")?,
    );
    let found = gate::run(py, |interrupt| {
        smooth(&parties, &settings, numbers, interrupt)
    })?;
    wrap(py, found, n_scores, columns)
}

/// Certified Crammer-Singer minimisers, one for the rows of each party.
#[pyfunction]
#[pyo3(signature = (X, y, offsets, *, n_classes, C, data_norm, intercept_scaling, radius, shuffle_seed, n_threads))]
// Arrays are extracted by value.
#[allow(
    non_snake_case,
    clippy::too_many_arguments,
    clippy::needless_pass_by_value
)]
fn solve_crammer_singer_parties_dense<'py>(
    py: Python<'py>,
    X: &Bound<'py, PyAny>,
    y: &Bound<'py, PyAny>,
    offsets: &Bound<'py, PyAny>,
    n_classes: usize,
    C: PyReadonlyArray1<'py, f64>,
    data_norm: f64,
    intercept_scaling: f64,
    radius: PyReadonlyArray1<'py, f64>,
    shuffle_seed: u64,
    n_threads: usize,
) -> PyResult<Fitted<'py>> {
    let input = Input::extract((X, y, offsets), (data_norm, intercept_scaling))?;
    let (parties, columns) = input.parties()?;
    let settings = CrammerSingerSettings {
        classes: n_classes,
        cost: 1.0,
        radius: 1.0,
        max_passes: None,
        seed: shuffle_seed,
        threads: n_threads,
        low_memory: false,
    };
    let numbers = (contiguous(&C, "C")?, contiguous(&radius, "radius")?);
    let found = gate::run(py, |interrupt| {
        crammer_singer(&parties, &settings, numbers, interrupt)
    })?;
    wrap(py, found, n_classes, columns)
}

/// Projected SGD, one run for the rows of each party.
#[pyfunction]
#[pyo3(signature = (X, y, offsets, *, loss, n_scores, smoothing, margin, n_epochs, batch_size, regularizations, radius, projection, average, data_norm, intercept_scaling, permutation_seed, n_threads))]
// Arrays are extracted by value.
#[allow(
    non_snake_case,
    clippy::too_many_arguments,
    clippy::needless_pass_by_value
)]
fn projected_sgd_parties_dense<'py>(
    py: Python<'py>,
    X: &Bound<'py, PyAny>,
    y: &Bound<'py, PyAny>,
    offsets: &Bound<'py, PyAny>,
    loss: &str,
    n_scores: usize,
    smoothing: f64,
    margin: f64,
    n_epochs: u64,
    batch_size: usize,
    regularizations: PyReadonlyArray1<'py, f64>,
    radius: f64,
    projection: &str,
    average: &str,
    data_norm: f64,
    intercept_scaling: f64,
    permutation_seed: u64,
    n_threads: usize,
) -> PyResult<Bound<'py, PyArray3<f64>>> {
    let input = Input::extract((X, y, offsets), (data_norm, intercept_scaling))?;
    let (parties, columns) = input.parties()?;
    let settings = projected_sgd::SgdSettings {
        loss: gate::brief(|| SmoothLoss::new(loss, n_scores, smoothing, margin))?,
        epochs: n_epochs,
        batch: batch_size,
        regularization: 1.0,
        radius,
        projection: self::projection(projection).map_err(to_python)?,
        average: self::average(average).map_err(to_python)?,
        seed: permutation_seed,
        low_memory: false,
    };
    let numbers = contiguous(&regularizations, "regularizations")?;
    let weights = gate::run(py, |interrupt| {
        descents(&parties, &settings, numbers, n_threads, interrupt)
    })?;
    matrices(py, weights, [parties.len(), n_scores, columns])
}

/// Adds this file's functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(solve_smooth_parties_dense, m)?)?;
    m.add_function(wrap_pyfunction!(solve_crammer_singer_parties_dense, m)?)?;
    m.add_function(wrap_pyfunction!(projected_sgd_parties_dense, m)?)?;
    Ok(())
}
