//! Bindings of `dpsvm_core::solver::parties`.

use crate::arrays::{Array, Matrix, contiguous};
use crate::gate;
use crate::options::{Bounded, Loss, options};
use crate::projected_sgd::Sgd;
use dpsvm_core::rows::view::RowBounds;
use dpsvm_core::solver::crammer_singer::CrammerSingerSettings;
use dpsvm_core::solver::parties::{Fits, Parties, crammer_singer, descents, smooth};
use dpsvm_core::solver::projected_sgd::SgdSettings;
use dpsvm_core::solver::smooth::SmoothSettings;
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Weights of every party, 0 where not certified, and whether they are.
type Fitted = (Array<f64>, Array<bool>);

options! {
    struct SmoothOptions {
        ..loss: Loss,
        ..rows: Bounded,
        regularizations: PyReadonlyArray1<'py, f64>,
        gradient_tols: PyReadonlyArray1<'py, f64>,
        shuffle_seed: u64,
        n_threads: usize,
    }
}

options! {
    struct CrammerSingerOptions {
        ..rows: Bounded,
        n_classes: usize,
        C: PyReadonlyArray1<'py, f64>,
        radius: PyReadonlyArray1<'py, f64>,
        shuffle_seed: u64,
        n_threads: usize,
    }
}

options! {
    struct SgdOptions {
        ..sgd: Sgd,
        regularizations: PyReadonlyArray1<'py, f64>,
        permutation_seed: u64,
        n_threads: usize,
    }
}

/// The parties, and the columns of their weights.
fn parties<'a>(
    py: Python<'_>,
    x: &'a Matrix<'_>,
    y: &'a PyReadonlyArray1<'_, i64>,
    offsets: &'a PyReadonlyArray1<'_, i64>,
    bounds: RowBounds,
) -> PyResult<(Parties<'a>, usize)> {
    let rows = x.rows(py, bounds)?;
    let (y, offsets) = (contiguous(y, "y")?, contiguous(offsets, "offsets")?);
    let parties = gate::brief(|| Parties::new(rows, y, offsets))?;
    Ok((parties, rows.n_columns()))
}

fn wrap(found: Fits, scores: usize, columns: usize) -> Fitted {
    let shape = [found.certified.len(), scores, columns];
    let weights = Array::shaped(found.weights, shape);
    (weights, Array::line(found.certified))
}

/// Certified minimisers of a smooth loss, one for the rows of each party.
#[pyfunction]
#[pyo3(signature = (X, y, offsets, **options))]
pub fn solve_smooth_parties<'py>(
    py: Python<'py>,
    X: Matrix<'py>,
    y: PyReadonlyArray1<'py, i64>,
    offsets: PyReadonlyArray1<'py, i64>,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<Fitted> {
    let o = SmoothOptions::read(options)?;
    let (parties, columns) = parties(py, &X, &y, &offsets, o.rows.of())?;
    let settings = SmoothSettings {
        loss: gate::brief(|| o.loss.of())?,
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
    Ok(wrap(found, o.loss.n_scores, columns))
}

/// Certified Crammer-Singer minimisers, one for the rows of each party.
#[pyfunction]
#[pyo3(signature = (X, y, offsets, **options))]
pub fn solve_crammer_singer_parties<'py>(
    py: Python<'py>,
    X: Matrix<'py>,
    y: PyReadonlyArray1<'py, i64>,
    offsets: PyReadonlyArray1<'py, i64>,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<Fitted> {
    let o = CrammerSingerOptions::read(options)?;
    let (parties, columns) = parties(py, &X, &y, &offsets, o.rows.of())?;
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
    Ok(wrap(found, o.n_classes, columns))
}

/// Projected SGD, one run for the rows of each party.
#[pyfunction]
#[pyo3(signature = (X, y, offsets, **options))]
pub fn projected_sgd_parties<'py>(
    py: Python<'py>,
    X: Matrix<'py>,
    y: PyReadonlyArray1<'py, i64>,
    offsets: PyReadonlyArray1<'py, i64>,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<Array<f64>> {
    let o = SgdOptions::read(options)?;
    let (parties, columns) = parties(py, &X, &y, &offsets, o.sgd.rows.of())?;
    let settings = SgdSettings {
        seed: o.permutation_seed,
        ..gate::brief(|| o.sgd.settings(1.0, 1))?
    };
    let numbers = contiguous(&o.regularizations, "regularizations")?;
    let weights = gate::run(py, |interrupt| {
        descents(&parties, &settings, numbers, o.n_threads, interrupt)
    })?;
    let shape = [parties.len(), o.sgd.loss.n_scores, columns];
    Ok(Array::shaped(weights, shape))
}
