//! Bindings of `dpsvm_core::images`.

use crate::arrays::{Matrix, filled};
use crate::errors::to_python;
use crate::options::{Keywords, Options};
use dpsvm_core::images::{ImageSettings, oriented_gradients as core};
use dpsvm_core::rows::view::RowBounds;
use pyo3::prelude::*;

/// Histograms of the directions of edges over cells, one image a row, in the precision of the rows.
#[pyfunction]
#[pyo3(signature = (X, **options))]
pub fn oriented_gradients(X: Matrix<'_>, options: Option<Keywords>) -> PyResult<Py<PyAny>> {
    let (settings, n_threads) = Options::read(options, |o| {
        let settings = ImageSettings {
            shape: o.take("shape")?,
            cells: o.take("cells")?,
            directions: o.take("n_orientations")?,
        };
        Ok((settings, o.take("n_threads")?))
    })?;
    settings.check().map_err(to_python)?;
    let rows = X.rows(RowBounds::FREE)?;
    let made = [rows.n_rows(), settings.outputs()];
    if X.is_single() {
        return filled(made, |out: &mut [f32], interrupt| {
            core(settings, &rows, out, n_threads, interrupt)
        });
    }
    filled(made, |out: &mut [f64], interrupt| {
        core(settings, &rows, out, n_threads, interrupt)
    })
}
