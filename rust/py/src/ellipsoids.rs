//! Bindings of `dpsvm_core::solver::ellipsoids`.

use crate::arrays::{Array, ValueArray, contiguous, each};
use crate::errors::invalid;
use crate::gate;
use crate::options::{Keywords, Options};
use dpsvm_core::runtime::tasks::on_large_stack;
use dpsvm_core::solver::ellipsoids::{EllipsoidSettings, solve, solve_batch};
use numpy::ndarray::Dimension;
use numpy::{Ix2, Ix3, PyReadonlyArray, PyReadonlyArray1, PyUntypedArrayMethods};
use pyo3::prelude::*;

/// Matrices (or None when they could not be certified) and their certified distance.
type Fitted = (Option<Array<f64>>, f64);

/// Matrices of every fit, 0 where not certified, and their certified distances.
type FittedBatch = (Array<f64>, Array<f64>);

/// Arguments of a fit: the name of the loss, linear terms, and all else.
type Given<'py, D> = (
    String,
    PyReadonlyArray<'py, f64, D>,
    EllipsoidSettings<'static>,
);

/// Takes what a fit is given; the name of the loss goes into the settings where it stays.
fn given<'py, D: Dimension + 'static>(
    options: Option<Keywords<'_, 'py>>,
) -> PyResult<Given<'py, D>> {
    Options::read(options, |o| {
        let settings = EllipsoidSettings {
            loss: "",
            classes: o.take("n_classes")?,
            ellipsoids: o.take("n_ellipsoids")?,
            smoothing: o.take("smoothing")?,
            margin: o.take("margin")?,
            regularization: o.take("regularization")?,
            data_norm: o.take("data_norm")?,
            psd: o.take("psd")?,
            gradient_tol: o.take("gradient_tol")?,
            max_passes: o.take("max_iter")?,
            threads: o.take("n_threads")?,
        };
        Ok((o.take("loss")?, o.take("linear")?, settings))
    })
}

/// Certified matrices of the large-margin Gaussian classifier.
#[pyfunction]
#[pyo3(signature = (X, target, weights=None, **options))]
pub fn solve_gaussian_margin(
    X: ValueArray<'_, Ix2>,
    target: PyReadonlyArray1<'_, i64>,
    weights: Option<PyReadonlyArray1<'_, f64>>,
    options: Option<Keywords>,
) -> PyResult<Fitted> {
    let (loss, linear, settings) = given::<Ix2>(options)?;
    let settings = EllipsoidSettings {
        loss: &loss,
        ..settings
    };
    let (b, shape) = (contiguous(&linear, "linear")?, linear.shape());
    let target = (contiguous(&target, "target")?, each(weights.as_ref())?);
    let (values, rows) = (X.values("X")?, (X.shape()[0], X.shape()[1]));
    check_count(&settings, shape[0])?;
    let solution = gate::run(|interrupt| {
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
pub fn solve_gaussian_margin_batch(
    X: ValueArray<'_, Ix2>,
    target: PyReadonlyArray1<'_, i64>,
    options: Option<Keywords>,
) -> PyResult<FittedBatch> {
    let (loss, linear, settings) = given::<Ix3>(options)?;
    let settings = EllipsoidSettings {
        loss: &loss,
        ..settings
    };
    let (b, fits) = (contiguous(&linear, "linear")?, linear.shape());
    let target = contiguous(&target, "target")?;
    let (values, rows) = (X.values("X")?, (X.shape()[0], X.shape()[1]));
    check_count(&settings, fits[1])?;
    let order = rows.1.saturating_add(1);
    if order.checked_mul(order + 1).map(|twice| twice / 2) != Some(fits[2]) {
        let message = "expected (d + 1)(d + 2)/2 columns";
        return Err(invalid("linear", message));
    }
    let found = gate::run(|interrupt| {
        on_large_stack(interrupt, |watch| {
            solve_batch(values, rows, target, b, &settings, watch)
        })
    })?;
    let matrices = Array::shaped(found.matrices, fits);
    Ok((matrices, Array::line(found.distances)))
}

/// Refuses linear terms that do not have one row for each ellipsoid: as the core sees one slice,
/// arrays of another shape would go unnoticed there.
fn check_count(settings: &EllipsoidSettings<'_>, got: usize) -> PyResult<()> {
    if settings.classes.checked_mul(settings.ellipsoids) == Some(got) {
        return Ok(());
    }
    let message = format!("got {got} rows, expected n_classes * n_ellipsoids");
    Err(invalid("linear", message))
}
