//! Bindings of `dpsvm_core::solver`.

use pyo3::prelude::*;

/// Adds this file's functions to the module.
pub fn register(_m: &Bound<'_, PyModule>) -> PyResult<()> {
    Ok(())
}
