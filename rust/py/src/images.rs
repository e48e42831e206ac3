//! Bindings of `dpsvm_core::images`.

use crate::arrays::{Matrix, filled};
use dpsvm_core::images::{ImageSettings, oriented_gradients as core};
use dpsvm_core::rows::view::RowBounds;
use pyo3::prelude::*;

/// Histograms of the directions of edges over cells, one image a row, in the precision of the rows.
#[pyfunction]
#[pyo3(signature = (X, *, shape, cells, n_orientations, n_threads))]
pub fn oriented_gradients<'py>(
    py: Python<'py>,
    X: Matrix<'py>,
    shape: [usize; 3],
    cells: [usize; 2],
    n_orientations: usize,
    n_threads: usize,
) -> PyResult<Bound<'py, PyAny>> {
    let settings = ImageSettings {
        shape,
        cells,
        directions: n_orientations,
    };
    settings.check().map_err(crate::errors::to_python)?;
    let rows = X.rows(py, RowBounds::FREE)?;
    let made = [rows.n_rows(), settings.outputs()];
    if X.is_single() {
        return filled(py, made, |out: &mut [f32], interrupt| {
            core(settings, &rows, out, n_threads, interrupt)
        });
    }
    filled(py, made, |out: &mut [f64], interrupt| {
        core(settings, &rows, out, n_threads, interrupt)
    })
}
