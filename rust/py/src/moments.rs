//! Bindings of `dpsvm_core::rows::moments`.

use crate::arrays::{Array, Matrix};
use crate::gate;
use dpsvm_core::rows::moments as core;
use dpsvm_core::rows::view::RowBounds;
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;

/// Sums of the columns and of their squares.
type Sums = (Array<i64>, Array<i64>);

/// Exact sums of mapped columns and of their squares, in units of 2^-20; entries of a CSR matrix that
/// are not stored are zeros.
#[pyfunction]
#[pyo3(signature = (X, *, offset, scale, n_threads))]
pub fn column_moments(
    X: Matrix<'_>,
    offset: PyReadonlyArray1<'_, f64>,
    scale: PyReadonlyArray1<'_, f64>,
    n_threads: usize,
) -> PyResult<Sums> {
    let rows = X.rows(RowBounds::FREE)?;
    let (offset, scale) = (offset.as_slice()?, scale.as_slice()?);
    let found =
        gate::run(|interrupt| core::column_moments(&rows, offset, scale, n_threads, interrupt))?;
    Ok((Array::line(found.first), Array::line(found.second)))
}
