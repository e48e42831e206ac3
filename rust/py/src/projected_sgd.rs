//! Bindings of `dpsvm_core::solver::projected_sgd`.

use crate::arrays::{Array, Matrix, contiguous, each};
use crate::gate;
use crate::options::{Facts, Keywords, Options, facts};
use dpsvm_core::solver::projected_sgd::{
    Average, Ownership, Projection, SgdSettings, orders, rounding, solve,
};
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;

/// Weights, and facts.
type Descended = (Array<f64>, Facts);

const PROJECTIONS: [(&str, Projection); 2] = [
    ("joint", Projection::Joint),
    ("per_class", Projection::PerClass),
];
const AVERAGES: [(&str, Average); 3] = [
    ("last", Average::Last),
    ("uniform", Average::Uniform),
    ("weighted", Average::Weighted),
];

impl Options<'_, '_> {
    /// Takes what all runs are given.
    pub fn projected_sgd(&self) -> PyResult<SgdSettings> {
        Ok(SgdSettings {
            loss: self.loss()?,
            epochs: self.take("n_epochs")?,
            batch: self.take("batch_size")?,
            most_rows: 1,
            regularization: 1.0,
            radius: self.take("radius")?,
            projection: self.named("projection", &PROJECTIONS)?,
            average: self.named("average", &AVERAGES)?,
            seed: 0,
            low_memory: false,
        })
    }
}

/// Projected SGD over the rows.
#[pyfunction]
#[pyo3(signature = (X, y, weights=None, persons=None, **options))]
pub fn projected_sgd(
    X: Matrix<'_>,
    y: PyReadonlyArray1<'_, i64>,
    weights: Option<PyReadonlyArray1<'_, f64>>,
    persons: Option<PyReadonlyArray1<'_, i64>>,
    options: Option<Keywords>,
) -> PyResult<Descended> {
    let (settings, bounds) = Options::read(options, |o| {
        let settings = SgdSettings {
            most_rows: o.take("most_rows")?,
            regularization: o.take("regularization")?,
            seed: o.take("permutation_seed")?,
            low_memory: o.take("low_memory")?,
            ..o.projected_sgd()?
        };
        Ok((settings, o.bounds()?))
    })?;
    let rows = X.rows(bounds)?;
    let owned = Ownership {
        persons: each(persons.as_ref())?,
        weights: each(weights.as_ref())?,
    };
    let y = contiguous(&y, "y")?;
    let solution = gate::run(|interrupt| solve(rows, y, owned, &settings, interrupt))?;
    let info = facts!(solution, [projections, refreshes]);
    let shape = [settings.loss.scores, rows.n_columns()];
    Ok((Array::shaped(solution.weights, shape), info))
}

/// Bound of the distance of the weights from those of real arithmetic: public numbers alone.
#[pyfunction]
#[pyo3(signature = (**options))]
pub fn projected_sgd_rounding(options: Option<Keywords>) -> PyResult<f64> {
    let (settings, bounds, rows, columns) = Options::read(options, |o| {
        let settings = SgdSettings {
            most_rows: o.take("most_rows")?,
            regularization: o.take("regularization")?,
            ..o.projected_sgd()?
        };
        let (rows, columns) = (o.take("n_samples")?, o.take("n_columns")?);
        Ok((settings, o.bounds()?, rows, columns))
    })?;
    gate::brief(|| rounding(&settings, bounds, rows, columns))
}

/// The rows in the order in which the passes take them: a public function of public numbers.
#[pyfunction]
pub fn projected_sgd_orders(
    n_samples: u32,
    n_epochs: u64,
    permutation_seed: u64,
) -> PyResult<Array<u32>> {
    let seed = permutation_seed;
    gate::run(|interrupt| orders(n_samples, n_epochs, seed, interrupt)).map(Array::line)
}
