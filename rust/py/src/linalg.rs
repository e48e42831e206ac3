//! Bindings of `dpsvm_core::linalg`.

use crate::arrays::{Array, contiguous};
use crate::gate;
use dpsvm_core::linalg as core;
use numpy::{PyReadonlyArray2, PyUntypedArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Values, descending, and vectors, one row each.
type Eigen = (Array<f64>, Array<f64>);

/// The largest eigenvalues of a symmetric matrix, descending, and their unit vectors as rows.
#[pyfunction]
pub fn symmetric_eigen<'py>(
    py: Python<'py>,
    matrix: PyReadonlyArray2<'py, f64>,
    n_components: usize,
) -> PyResult<Eigen> {
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
    let vectors = Array::shaped(vectors, [n_components, rows]);
    Ok((Array::line(values), vectors))
}

/// `rows @ matrix`, every entry summed in one order whatever other rows there are.
#[pyfunction]
pub fn row_products<'py>(
    py: Python<'py>,
    rows: PyReadonlyArray2<'py, f64>,
    matrix: PyReadonlyArray2<'py, f64>,
    n_threads: usize,
) -> PyResult<Array<f64>> {
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
    Ok(Array::shaped(product, [n, matrix.shape()[1]]))
}
