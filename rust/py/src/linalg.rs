//! Bindings of `dpsvm_core::linalg`.

use crate::arrays::{Array, contiguous};
use crate::errors::invalid;
use crate::gate;
use dpsvm_core::linalg as core;
use numpy::{PyReadonlyArray2, PyUntypedArrayMethods};
use pyo3::prelude::*;

/// Values, descending, and vectors, one row each.
type Eigen = (Array<f64>, Array<f64>);

/// The largest eigenvalues of a symmetric matrix, descending, and their unit vectors as rows.
#[pyfunction]
pub fn symmetric_eigen(matrix: PyReadonlyArray2<'_, f64>, n_components: usize) -> PyResult<Eigen> {
    let (rows, columns) = (matrix.shape()[0], matrix.shape()[1]);
    if rows != columns {
        let message = format!("got {rows} rows and {columns} columns, expected a square");
        return Err(invalid("matrix", message));
    }
    // A symmetric matrix is the same in either order.
    let entries = matrix.as_slice()?;
    let (values, vectors) =
        gate::run(|interrupt| core::symmetric_eigen(entries, rows, n_components, interrupt))?;
    let vectors = Array::shaped(vectors, [n_components, rows]);
    Ok((Array::line(values), vectors))
}

/// `rows @ matrix`, every entry summed in one order whatever other rows there are.
#[pyfunction]
pub fn row_products(
    rows: PyReadonlyArray2<'_, f64>,
    matrix: PyReadonlyArray2<'_, f64>,
    n_threads: usize,
) -> PyResult<Array<f64>> {
    let (n, inner) = (rows.shape()[0], rows.shape()[1]);
    if matrix.shape()[0] != inner {
        let got = matrix.shape()[0];
        return Err(invalid(
            "matrix",
            format!("got {got} rows, expected {inner}"),
        ));
    }
    let (left, right) = (contiguous(&rows, "rows")?, contiguous(&matrix, "matrix")?);
    let product =
        gate::run(|interrupt| core::row_products(left, right, inner, n_threads, interrupt))?;
    Ok(Array::shaped(product, [n, matrix.shape()[1]]))
}
