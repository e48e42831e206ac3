//! Bindings of `dpsvm_core::linalg`.

use crate::arrays::{contiguous, matrix as array};
use crate::gate;
use dpsvm_core::linalg as core;
use numpy::{PyArray1, PyArray2, PyReadonlyArray2, PyUntypedArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Values, descending, and vectors, one row each.
type Eigen<'py> = (Bound<'py, PyArray1<f64>>, Bound<'py, PyArray2<f64>>);

/// The largest eigenvalues of a symmetric matrix, descending, and their unit vectors as rows.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)]
pub fn symmetric_eigen<'py>(
    py: Python<'py>,
    matrix: PyReadonlyArray2<'py, f64>,
    n_components: usize,
) -> PyResult<Eigen<'py>> {
    let (rows, columns) = (matrix.shape()[0], matrix.shape()[1]);
    if rows != columns {
        let message = format!("matrix: got {rows} rows and {columns} columns, expected a square");
        return Err(PyValueError::new_err(message));
    }
    // A symmetric matrix is the same in either order.
    let entries = matrix.as_slice()?;
    let (values, vectors) = gate::run(py, |interrupt| {
        core::symmetric_eigen(entries, rows, n_components, interrupt)
    })?;
    let vectors = array(py, vectors, [n_components, rows])?;
    Ok((PyArray1::from_vec(py, values), vectors))
}

/// `rows @ matrix`, every entry summed in one order whatever other rows there are.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)]
pub fn row_products<'py>(
    py: Python<'py>,
    rows: PyReadonlyArray2<'py, f64>,
    matrix: PyReadonlyArray2<'py, f64>,
    n_threads: usize,
) -> PyResult<Bound<'py, PyArray2<f64>>> {
    let (n, inner) = (rows.shape()[0], rows.shape()[1]);
    if matrix.shape()[0] != inner {
        let got = matrix.shape()[0];
        let message = format!("matrix: got {got} rows, expected {inner}");
        return Err(PyValueError::new_err(message));
    }
    let (left, right) = (contiguous(&rows, "rows")?, contiguous(&matrix, "matrix")?);
    let product = gate::run(py, |interrupt| {
        core::row_products(left, right, inner, n_threads, interrupt)
    })?;
    array(py, product, [n, matrix.shape()[1]])
}
