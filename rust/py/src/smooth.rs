//! Bindings of `dpsvm_core::solver::smooth`.

use crate::arrays::{Array, Matrix, contiguous, each};
use crate::errors::invalid;
use crate::gate;
use crate::options::{Facts, Keywords, Options, facts};
use dpsvm_core::solver::smooth::{SmoothSettings, solve, solve_batch};
use numpy::{PyReadonlyArray1, PyReadonlyArray2, PyReadonlyArray3, PyUntypedArrayMethods};
use pyo3::prelude::*;

/// Weights of every fit, 0 where not certified, and whether they are.
type FittedBatch = (Array<f64>, Array<bool>);

/// Weights (or None when they could not be certified) and facts.
type Fitted = (Option<Array<f64>>, Facts);

impl Options<'_, '_> {
    /// Takes what all fits are given.
    pub fn smooth(&self) -> PyResult<SmoothSettings> {
        Ok(SmoothSettings {
            loss: self.loss()?,
            regularization: 1.0,
            gradient_tol: 1.0,
            max_steps: None,
            seed: self.take("shuffle_seed")?,
            threads: self.take("n_threads")?,
            low_memory: false,
        })
    }

    /// Takes what a fit with all rows is given as well.
    fn certified(&self) -> PyResult<SmoothSettings> {
        Ok(SmoothSettings {
            regularization: self.take("regularization")?,
            gradient_tol: self.take("gradient_tol")?,
            max_steps: self.take("max_iter")?,
            ..self.smooth()?
        })
    }
}

/// Certified minimiser of a smooth loss.
#[pyfunction]
#[pyo3(signature = (X, y, weights=None, **options))]
pub fn solve_smooth(
    X: Matrix<'_>,
    y: PyReadonlyArray1<'_, i64>,
    weights: Option<PyReadonlyArray1<'_, f64>>,
    options: Option<Keywords>,
) -> PyResult<Fitted> {
    let (settings, bounds, linear) = Options::read(options, |o| {
        let settings = SmoothSettings {
            low_memory: o.take("low_memory")?,
            ..o.certified()?
        };
        let linear: Option<PyReadonlyArray2<'_, f64>> = o.take("linear")?;
        Ok((settings, o.bounds()?, linear))
    })?;
    let rows = X.rows(bounds)?;
    let linear = linear.as_ref().map(|b| contiguous(b, "linear"));
    let (y, linear) = (
        (contiguous(&y, "y")?, each(weights.as_ref())?),
        linear.transpose()?,
    );
    let solution = gate::run(|interrupt| solve(rows, y, linear, &settings, interrupt))?;
    let info = facts!(
        solution,
        [gradient_norm, steps, gradients, products, sample_products]
    );
    let shape = [settings.loss.scores, rows.n_columns()];
    Ok((solution.weights.map(|w| Array::shaped(w, shape)), info))
}

/// Certified minimisers for many linear terms over the same rows.
#[pyfunction]
#[pyo3(signature = (X, y, **options))]
pub fn solve_smooth_batch(
    X: Matrix<'_>,
    y: PyReadonlyArray1<'_, i64>,
    options: Option<Keywords>,
) -> PyResult<FittedBatch> {
    let (settings, bounds, linear) = Options::read(options, |o| {
        let linear: PyReadonlyArray3<'_, f64> = o.take("linear")?;
        Ok((o.certified()?, o.bounds()?, linear))
    })?;
    let (rows, shape) = (X.rows(bounds)?, linear.shape());
    // The core sees one slice: here a transposed array would go unnoticed there.
    if shape[1..] != [settings.loss.scores, rows.n_columns()] {
        let message = "expected the shape (n_fits, n_scores, n_columns)";
        return Err(invalid("linear", message));
    }
    let (y, b) = (contiguous(&y, "y")?, contiguous(&linear, "linear")?);
    let found = gate::run(|interrupt| solve_batch(rows, y, b, &settings, interrupt))?;
    let weights = Array::shaped(found.weights, shape);
    Ok((weights, Array::line(found.certified)))
}
