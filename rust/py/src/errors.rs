//! The one mapping from the core's errors to Python exceptions.

use dpsvm_core::Error;
use pyo3::PyErr;
use pyo3::exceptions::{PyKeyboardInterrupt, PyMemoryError, PyOSError, PyValueError};

/// The Python exception for a core error. By value, for `map_err`.
pub fn to_python(error: Error) -> PyErr {
    match error {
        Error::InvalidArgument { .. } => PyValueError::new_err(error.to_string()),
        Error::Interrupted => PyKeyboardInterrupt::new_err(()),
        Error::Entropy(_) | Error::File(_) => PyOSError::new_err(error.to_string()),
        Error::OutOfMemory { .. } => PyMemoryError::new_err(error.to_string()),
    }
}

/// The exception for an argument outside its range.
pub fn invalid(name: &'static str, message: impl Into<String>) -> PyErr {
    to_python(Error::invalid(name, message))
}
