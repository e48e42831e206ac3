//! Bindings of `dpsvm_core::solver::parties`.

use crate::arrays::{Matrix, contiguous, integers, labels, matrices};
use crate::gate;
use crate::options::options;
use crate::projected_sgd::{average, projection};
use dpsvm_core::loss::smooth::SmoothLoss;
use dpsvm_core::rows::view::RowBounds;
use dpsvm_core::solver::crammer_singer::CrammerSingerSettings;
use dpsvm_core::solver::parties::{Fits, Parties, crammer_singer, descents, smooth};
use dpsvm_core::solver::projected_sgd::SgdSettings;
use dpsvm_core::solver::smooth::SmoothSettings;
use numpy::{PyArray1, PyArray3, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Weights of every party, 0 where not certified, and whether they are.
type Fitted<'py> = (Bound<'py, PyArray3<f64>>, Bound<'py, PyArray1<bool>>);

options! {
    struct SmoothOptions {
        loss: String,
        n_scores: usize,
        smoothing: f64,
        margin: f64,
        regularizations: PyReadonlyArray1<'py, f64>,
        data_norm: f64,
        intercept_scaling: f64,
        gradient_tols: PyReadonlyArray1<'py, f64>,
        shuffle_seed: u64,
        n_threads: usize,
    }
}

options! {
    struct CrammerSingerOptions {
        n_classes: usize,
        C: PyReadonlyArray1<'py, f64>,
        data_norm: f64,
        intercept_scaling: f64,
        radius: PyReadonlyArray1<'py, f64>,
        shuffle_seed: u64,
        n_threads: usize,
    }
}

options! {
    struct SgdOptions {
        loss: String,
        n_scores: usize,
        smoothing: f64,
        margin: f64,
        n_epochs: u64,
        batch_size: usize,
        regularizations: PyReadonlyArray1<'py, f64>,
        radius: f64,
        projection: String,
        average: String,
        data_norm: f64,
        intercept_scaling: f64,
        permutation_seed: u64,
        n_threads: usize,
    }
}

/// Everything but the settings.
struct Input<'py> {
    x: Matrix<'py>,
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
            x: Matrix::extract(x)?,
            y: labels(y)?,
            offsets: integers(offsets, "offsets")?,
            bounds: RowBounds {
                data_norm,
                intercept,
            },
        })
    }

    /// The parties, and the columns of their weights.
    fn parties(&self, py: Python<'_>) -> PyResult<(Parties<'_>, usize)> {
        let rows = self.x.rows(py, self.bounds)?;
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
#[pyo3(signature = (X, y, offsets, **options))]
#[allow(non_snake_case)]
fn solve_smooth_parties<'py>(
    py: Python<'py>,
    X: &Bound<'py, PyAny>,
    y: &Bound<'py, PyAny>,
    offsets: &Bound<'py, PyAny>,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<Fitted<'py>> {
    let o = SmoothOptions::read(options)?;
    let input = Input::extract((X, y, offsets), (o.data_norm, o.intercept_scaling))?;
    let (parties, columns) = input.parties(py)?;
    let settings = SmoothSettings {
        loss: gate::brief(|| SmoothLoss::new(&o.loss, o.n_scores, o.smoothing, o.margin))?,
        regularization: 1.0,
        gradient_tol: 1.0,
        max_steps: None,
        seed: o.shuffle_seed,
        threads: o.n_threads,
        low_memory: false,
    };
    let numbers = (
        contiguous(&o.regularizations, "regularizations")?,
        contiguous(&o.gradient_tols, "gradient_tols")?,
    );
    let found = gate::run(py, |interrupt| {
        smooth(&parties, &settings, numbers, interrupt)
    })?;
    wrap(py, found, o.n_scores, columns)
}

/// Certified Crammer-Singer minimisers, one for the rows of each party.
#[pyfunction]
#[pyo3(signature = (X, y, offsets, **options))]
#[allow(non_snake_case)]
fn solve_crammer_singer_parties<'py>(
    py: Python<'py>,
    X: &Bound<'py, PyAny>,
    y: &Bound<'py, PyAny>,
    offsets: &Bound<'py, PyAny>,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<Fitted<'py>> {
    let o = CrammerSingerOptions::read(options)?;
    let input = Input::extract((X, y, offsets), (o.data_norm, o.intercept_scaling))?;
    let (parties, columns) = input.parties(py)?;
    let settings = CrammerSingerSettings {
        classes: o.n_classes,
        cost: 1.0,
        radius: 1.0,
        max_passes: None,
        seed: o.shuffle_seed,
        threads: o.n_threads,
        low_memory: false,
    };
    let numbers = (contiguous(&o.C, "C")?, contiguous(&o.radius, "radius")?);
    let found = gate::run(py, |interrupt| {
        crammer_singer(&parties, &settings, numbers, interrupt)
    })?;
    wrap(py, found, o.n_classes, columns)
}

/// Projected SGD, one run for the rows of each party.
#[pyfunction]
#[pyo3(signature = (X, y, offsets, **options))]
#[allow(non_snake_case)]
fn projected_sgd_parties<'py>(
    py: Python<'py>,
    X: &Bound<'py, PyAny>,
    y: &Bound<'py, PyAny>,
    offsets: &Bound<'py, PyAny>,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyArray3<f64>>> {
    let o = SgdOptions::read(options)?;
    let input = Input::extract((X, y, offsets), (o.data_norm, o.intercept_scaling))?;
    let (parties, columns) = input.parties(py)?;
    let settings = gate::brief(|| {
        Ok(SgdSettings {
            loss: SmoothLoss::new(&o.loss, o.n_scores, o.smoothing, o.margin)?,
            epochs: o.n_epochs,
            batch: o.batch_size,
            most_rows: 1,
            regularization: 1.0,
            radius: o.radius,
            projection: projection(&o.projection)?,
            average: average(&o.average)?,
            seed: o.permutation_seed,
            low_memory: false,
        })
    })?;
    let numbers = contiguous(&o.regularizations, "regularizations")?;
    let weights = gate::run(py, |interrupt| {
        descents(&parties, &settings, numbers, o.n_threads, interrupt)
    })?;
    matrices(py, weights, [parties.len(), o.n_scores, columns])
}

/// Adds this file's functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(solve_smooth_parties, m)?)?;
    m.add_function(wrap_pyfunction!(solve_crammer_singer_parties, m)?)?;
    m.add_function(wrap_pyfunction!(projected_sgd_parties, m)?)?;
    Ok(())
}
