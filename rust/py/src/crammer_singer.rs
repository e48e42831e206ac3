//! Bindings of `dpsvm_core::solver::crammer_singer`.

use crate::arrays::{Array, Matrix, contiguous, each};
use crate::gate;
use crate::options::{Facts, Keywords, Options, facts};
use dpsvm_core::solver::crammer_singer::{CrammerSingerSettings, solve};
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;

/// Weights (or None when `max_iter` ran out) and facts for tests and benchmarks only.
type Fitted = (Option<Array<f64>>, Facts);

impl Options<'_, '_> {
    /// Takes what all fits are given.
    pub fn crammer_singer(&self) -> PyResult<CrammerSingerSettings> {
        Ok(CrammerSingerSettings {
            classes: self.take("n_classes")?,
            cost: 1.0,
            radius: 1.0,
            max_passes: None,
            seed: self.take("shuffle_seed")?,
            threads: self.take("n_threads")?,
            low_memory: false,
        })
    }
}

/// Certified Crammer-Singer minimiser.
#[pyfunction]
#[pyo3(signature = (X, y, weights=None, **options))]
pub fn solve_crammer_singer(
    X: Matrix<'_>,
    y: PyReadonlyArray1<'_, i64>,
    weights: Option<PyReadonlyArray1<'_, f64>>,
    options: Option<Keywords>,
) -> PyResult<Fitted> {
    let (settings, bounds) = Options::read(options, |o| {
        let settings = CrammerSingerSettings {
            cost: o.take("C")?,
            radius: o.take("radius")?,
            max_passes: o.take("max_iter")?,
            low_memory: o.take("low_memory")?,
            ..o.crammer_singer()?
        };
        Ok((settings, o.bounds()?))
    })?;
    let rows = X.rows(bounds)?;
    let y = (contiguous(&y, "y")?, each(weights.as_ref())?);
    let solution = gate::run(|interrupt| solve(rows, y, &settings, interrupt))?;
    let info = facts!(solution, [radius, gap, passes, rounds]);
    let shape = [settings.classes, rows.n_columns()];
    Ok((solution.weights.map(|w| Array::shaped(w, shape)), info))
}
