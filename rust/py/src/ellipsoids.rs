//! Bindings of `dpsvm_core::solver::ellipsoids`.

use crate::arrays::{Array, ValueArray, contiguous, each};
use crate::errors::to_python;
use crate::gate;
use crate::options::options;
use dpsvm_core::Error;
use dpsvm_core::runtime::tasks::on_large_stack;
use dpsvm_core::solver::ellipsoids::{EllipsoidSettings, solve, solve_batch};
use numpy::{Ix2, PyReadonlyArray1, PyReadonlyArrayDyn, PyUntypedArrayMethods};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Matrices (or None when they could not be certified) and their certified distance.
type Fitted = (Option<Array<f64>>, f64);

/// Matrices of every fit, 0 where not certified, and their certified distances.
type FittedBatch = (Array<f64>, Array<f64>);

options! {
    struct Options {
        loss: String,
        n_classes: usize,
        n_ellipsoids: usize,
        smoothing: f64,
        margin: f64,
        regularization: f64,
        linear: PyReadonlyArrayDyn<'py, f64>,
        data_norm: f64,
        psd: bool,
        gradient_tol: f64,
        max_iter: Option<u64>,
        n_threads: usize,
    }
}

impl Options<'_> {
    fn settings(&self) -> EllipsoidSettings<'_> {
        EllipsoidSettings {
            loss: &self.loss,
            classes: self.n_classes,
            ellipsoids: self.n_ellipsoids,
            smoothing: self.smoothing,
            margin: self.margin,
            regularization: self.regularization,
            data_norm: self.data_norm,
            psd: self.psd,
            gradient_tol: self.gradient_tol,
            max_passes: self.max_iter,
            threads: self.n_threads,
        }
    }

    /// The shape of the linear terms, of this rank: as the core sees one slice, arrays of another
    /// shape would go unnoticed there.
    fn shape<const RANK: usize>(&self) -> PyResult<[usize; RANK]> {
        let shape = self.linear.shape().try_into().map_err(|_| {
            let message = format!("linear: expected an array of {RANK} dimensions");
            PyTypeError::new_err(message)
        })?;
        Ok(shape)
    }
}

/// Certified matrices of the large-margin Gaussian classifier.
#[pyfunction]
#[pyo3(signature = (X, target, weights=None, **options))]
pub fn solve_gaussian_margin<'py>(
    py: Python<'py>,
    X: ValueArray<'py, Ix2>,
    target: PyReadonlyArray1<'py, i64>,
    weights: Option<PyReadonlyArray1<'py, f64>>,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<Fitted> {
    let options = Options::read(options)?;
    let (settings, shape) = (options.settings(), options.shape::<2>()?);
    let b = contiguous(&options.linear, "linear")?;
    let target = (contiguous(&target, "target")?, each(weights.as_ref())?);
    let (values, rows) = (X.values("X")?, (X.shape()[0], X.shape()[1]));
    check_count(&settings, shape[0])?;
    let solution = gate::run(py, |interrupt| {
        on_large_stack(interrupt, |watch| {
            solve(values, rows, target, b, &settings, watch)
        })
    })?;
    let matrices = solution.matrices.map(|w| Array::shaped(w, shape));
    Ok((matrices, solution.distance))
}

/// Certified matrices for many linear terms over the same records.
#[pyfunction]
#[pyo3(signature = (X, target, **options))]
pub fn solve_gaussian_margin_batch<'py>(
    py: Python<'py>,
    X: ValueArray<'py, Ix2>,
    target: PyReadonlyArray1<'py, i64>,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<FittedBatch> {
    let options = Options::read(options)?;
    let (settings, fits) = (options.settings(), options.shape::<3>()?);
    let b = contiguous(&options.linear, "linear")?;
    let target = contiguous(&target, "target")?;
    let (values, rows) = (X.values("X")?, (X.shape()[0], X.shape()[1]));
    check_count(&settings, fits[1])?;
    let order = rows.1.saturating_add(1);
    if order.checked_mul(order + 1).map(|twice| twice / 2) != Some(fits[2]) {
        let message = "expected (d + 1)(d + 2)/2 columns";
        return Err(to_python(Error::invalid("linear", message)));
    }
    let found = gate::run(py, |interrupt| {
        on_large_stack(interrupt, |watch| {
            solve_batch(values, rows, target, b, &settings, watch)
        })
    })?;
    let matrices = Array::shaped(found.matrices, fits);
    Ok((matrices, Array::line(found.distances)))
}

/// Refuses linear terms that do not have one row for each ellipsoid.
fn check_count(settings: &EllipsoidSettings<'_>, got: usize) -> PyResult<()> {
    if settings.classes.checked_mul(settings.ellipsoids) == Some(got) {
        return Ok(());
    }
    let message = format!("got {got} rows, expected n_classes * n_ellipsoids");
    Err(to_python(Error::invalid("linear", message)))
}
