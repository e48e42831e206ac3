//! Bindings of `dpsvm_core::solver::projected_sgd`.

use crate::arrays::{Array, Matrix, contiguous, each};
use crate::gate;
use crate::options::{Bounded, Loss, facts, named, options};
use dpsvm_core::Result;
use dpsvm_core::solver::projected_sgd::{
    Average, Ownership, Projection, SgdSettings, orders, rounding, solve,
};
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;
use pyo3::types::PyDict;

options! {
    /// What all runs are given.
    pub struct Sgd {
        ..loss: Loss,
        ..rows: Bounded,
        n_epochs: u64,
        batch_size: usize,
        radius: f64,
        projection: String,
        average: String,
    }
}

impl Sgd<'_> {
    /// The settings of a run; none of them is for the order of the rows.
    pub fn settings(&self, regularization: f64, most_rows: usize) -> Result<SgdSettings> {
        Ok(SgdSettings {
            loss: self.loss.of()?,
            epochs: self.n_epochs,
            batch: self.batch_size,
            most_rows,
            regularization,
            radius: self.radius,
            projection: named("projection", &self.projection, &PROJECTIONS)?,
            average: named("average", &self.average, &AVERAGES)?,
            seed: 0,
            low_memory: false,
        })
    }
}

options! {
    struct Options {
        ..sgd: Sgd,
        regularization: f64,
        permutation_seed: u64,
        low_memory: bool,
        most_rows: usize,
    }
}

options! {
    struct RoundingOptions {
        ..sgd: Sgd,
        n_samples: usize,
        n_columns: usize,
        regularization: f64,
        most_rows: usize,
    }
}

/// Weights, and facts for tests and benchmarks only.
type Descended<'py> = (Array<f64>, Bound<'py, PyDict>);

const PROJECTIONS: [(&str, Projection); 2] = [
    ("joint", Projection::Joint),
    ("per_class", Projection::PerClass),
];
const AVERAGES: [(&str, Average); 3] = [
    ("last", Average::Last),
    ("uniform", Average::Uniform),
    ("weighted", Average::Weighted),
];

/// Projected SGD over the rows.
#[pyfunction]
#[pyo3(signature = (X, y, weights=None, persons=None, **options))]
pub fn projected_sgd<'py>(
    py: Python<'py>,
    X: Matrix<'py>,
    y: PyReadonlyArray1<'py, i64>,
    weights: Option<PyReadonlyArray1<'py, f64>>,
    persons: Option<PyReadonlyArray1<'py, i64>>,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<Descended<'py>> {
    let o = Options::read(options)?;
    let rows = X.rows(py, o.sgd.rows.of())?;
    let settings = SgdSettings {
        seed: o.permutation_seed,
        low_memory: o.low_memory,
        ..gate::brief(|| o.sgd.settings(o.regularization, o.most_rows))?
    };
    let owned = Ownership {
        persons: each(persons.as_ref())?,
        weights: each(weights.as_ref())?,
    };
    let y = contiguous(&y, "y")?;
    let solution = gate::run(py, |interrupt| solve(rows, y, owned, &settings, interrupt))?;
    let info = facts!(py, solution, [projections, refreshes]);
    let shape = [o.sgd.loss.n_scores, rows.n_columns()];
    Ok((Array::shaped(solution.weights, shape), info))
}

/// Bound of the distance of the weights from those of real arithmetic: public numbers alone.
#[pyfunction]
#[pyo3(signature = (**options))]
pub fn projected_sgd_rounding(options: Option<&Bound<'_, PyDict>>) -> PyResult<f64> {
    let o = RoundingOptions::read(options)?;
    gate::brief(|| {
        let settings = o.sgd.settings(o.regularization, o.most_rows)?;
        rounding(&settings, o.sgd.rows.of(), o.n_samples, o.n_columns)
    })
}

/// The rows in the order in which the passes take them: a public function of public numbers.
#[pyfunction]
#[pyo3(signature = (n_samples, n_epochs, permutation_seed))]
pub fn projected_sgd_orders(
    py: Python<'_>,
    n_samples: u32,
    n_epochs: u64,
    permutation_seed: u64,
) -> PyResult<Array<u32>> {
    let ordered = gate::run(py, |interrupt| {
        orders(n_samples, n_epochs, permutation_seed, interrupt)
    })?;
    Ok(Array::line(ordered))
}
