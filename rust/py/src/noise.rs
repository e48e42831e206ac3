//! Bindings of `dpsvm_core::noise`.

use pyo3::prelude::*;

/// Adds this file's functions to the module.
pub fn register(_m: &Bound<'_, PyModule>) -> PyResult<()> {
    Ok(())
}
