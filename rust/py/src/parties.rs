//! Bindings of `dpsvm_core::solver::parties`.

use crate::arrays::{Array, Matrix, contiguous};
use crate::gate;
use crate::options::{Keywords, Options};
use dpsvm_core::rows::view::RowBounds;
use dpsvm_core::solver::Fits;
use dpsvm_core::solver::parties::{Parties, crammer_singer, descents, smooth};
use dpsvm_core::solver::projected_sgd::SgdSettings;
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;

/// Weights of every party, 0 where not certified, and whether they are.
type Fitted = (Array<f64>, Array<bool>);

/// One number for each party.
type Numbers<'py> = PyReadonlyArray1<'py, f64>;

/// The parties, and the columns of their weights.
fn parties<'a>(
    x: &'a Matrix<'_>,
    y: &'a PyReadonlyArray1<'_, i64>,
    offsets: &'a PyReadonlyArray1<'_, i64>,
    bounds: RowBounds,
) -> PyResult<(Parties<'a>, usize)> {
    let rows = x.rows(bounds)?;
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
pub fn solve_smooth_parties(
    X: Matrix<'_>,
    y: PyReadonlyArray1<'_, i64>,
    offsets: PyReadonlyArray1<'_, i64>,
    options: Option<Keywords>,
) -> PyResult<Fitted> {
    let (settings, bounds, numbers) = Options::read(options, |o| {
        let numbers: [Numbers<'_>; 2] = [o.take("regularizations")?, o.take("gradient_tols")?];
        Ok((o.smooth()?, o.bounds()?, numbers))
    })?;
    let (parties, columns) = parties(&X, &y, &offsets, bounds)?;
    let numbers = (
        contiguous(&numbers[0], "regularizations")?,
        contiguous(&numbers[1], "gradient_tols")?,
    );
    let found = gate::run(|interrupt| smooth(&parties, &settings, numbers, interrupt))?;
    Ok(wrap(found, settings.loss.scores, columns))
}

/// Certified Crammer-Singer minimisers, one for the rows of each party.
#[pyfunction]
#[pyo3(signature = (X, y, offsets, **options))]
pub fn solve_crammer_singer_parties(
    X: Matrix<'_>,
    y: PyReadonlyArray1<'_, i64>,
    offsets: PyReadonlyArray1<'_, i64>,
    options: Option<Keywords>,
) -> PyResult<Fitted> {
    let (settings, bounds, numbers) = Options::read(options, |o| {
        let numbers: [Numbers<'_>; 2] = [o.take("C")?, o.take("radius")?];
        Ok((o.crammer_singer()?, o.bounds()?, numbers))
    })?;
    let (parties, columns) = parties(&X, &y, &offsets, bounds)?;
    let numbers = (
        contiguous(&numbers[0], "C")?,
        contiguous(&numbers[1], "radius")?,
    );
    let found = gate::run(|interrupt| crammer_singer(&parties, &settings, numbers, interrupt))?;
    Ok(wrap(found, settings.classes, columns))
}

/// Projected SGD, one run for the rows of each party.
#[pyfunction]
#[pyo3(signature = (X, y, offsets, **options))]
pub fn projected_sgd_parties(
    X: Matrix<'_>,
    y: PyReadonlyArray1<'_, i64>,
    offsets: PyReadonlyArray1<'_, i64>,
    options: Option<Keywords>,
) -> PyResult<Array<f64>> {
    let (settings, bounds, numbers, n_threads) = Options::read(options, |o| {
        let settings = SgdSettings {
            seed: o.take("permutation_seed")?,
            ..o.projected_sgd()?
        };
        let numbers: Numbers<'_> = o.take("regularizations")?;
        Ok((settings, o.bounds()?, numbers, o.take("n_threads")?))
    })?;
    let (parties, columns) = parties(&X, &y, &offsets, bounds)?;
    let numbers = contiguous(&numbers, "regularizations")?;
    let weights =
        gate::run(|interrupt| descents(&parties, &settings, numbers, n_threads, interrupt))?;
    let shape = [parties.len(), settings.loss.scores, columns];
    Ok(Array::shaped(weights, shape))
}
