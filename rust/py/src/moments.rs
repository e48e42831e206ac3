//! Bindings of `dpsvm_core::rows::moments`.

use crate::arrays::{IndexArrays, ValueArray, csr_rows, dense_rows};
use crate::gate;
use dpsvm_core::rows::moments as core;
use dpsvm_core::rows::view::{RowBounds, Rows};
use numpy::{Ix1, Ix2, PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;

/// Sums of the columns and of their squares.
type Sums<'py> = (Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<i64>>);

/// For the checks of [`Rows`] alone: nothing is clipped by norm here.
const BOUNDS: RowBounds = RowBounds {
    data_norm: 1.0,
    intercept: 0.0,
};

fn sums<'py>(
    py: Python<'py>,
    rows: &Rows<'_>,
    offset: &PyReadonlyArray1<'_, f64>,
    scale: &PyReadonlyArray1<'_, f64>,
    n_threads: usize,
) -> PyResult<Sums<'py>> {
    let (offset, scale) = (offset.as_slice()?, scale.as_slice()?);
    let found = gate::run(py, |interrupt| {
        core::column_moments(rows, offset, scale, n_threads, interrupt)
    })?;
    let first = PyArray1::from_vec(py, found.first);
    Ok((first, PyArray1::from_vec(py, found.second)))
}

/// Exact sums of mapped columns and of their squares, in units of 2^-20; dense rows.
#[pyfunction]
#[pyo3(signature = (X, *, offset, scale, n_threads))]
#[allow(non_snake_case, clippy::needless_pass_by_value)]
fn column_moments_dense<'py>(
    py: Python<'py>,
    X: &Bound<'py, PyAny>,
    offset: PyReadonlyArray1<'py, f64>,
    scale: PyReadonlyArray1<'py, f64>,
    n_threads: usize,
) -> PyResult<Sums<'py>> {
    let x = ValueArray::<Ix2>::extract(X, "X")?;
    let rows = dense_rows(&x, BOUNDS)?;
    sums(py, &rows, &offset, &scale, n_threads)
}

/// The same for a CSR matrix; entries that are not stored are zeros.
#[pyfunction]
#[pyo3(signature = (data, indices, indptr, shape, *, offset, scale, n_threads))]
#[allow(clippy::too_many_arguments, clippy::needless_pass_by_value)]
fn column_moments_csr<'py>(
    py: Python<'py>,
    data: &Bound<'py, PyAny>,
    indices: &Bound<'py, PyAny>,
    indptr: &Bound<'py, PyAny>,
    shape: (usize, usize),
    offset: PyReadonlyArray1<'py, f64>,
    scale: PyReadonlyArray1<'py, f64>,
    n_threads: usize,
) -> PyResult<Sums<'py>> {
    let x = ValueArray::<Ix1>::extract(data, "data")?;
    let index = IndexArrays::extract(indices, indptr)?;
    let rows = csr_rows(py, &x, &index, (Some(shape.0), shape.1), BOUNDS)?;
    sums(py, &rows, &offset, &scale, n_threads)
}

/// Adds this file's functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(column_moments_dense, m)?)?;
    m.add_function(wrap_pyfunction!(column_moments_csr, m)?)
}
