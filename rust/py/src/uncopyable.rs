//! What may be neither copied nor pickled: a copy would hold private rows, or repeat noise.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::{PyClass, PyTypeInfo};

/// Base of such classes.
#[pyclass(frozen, subclass, module = "dpsvm_fast._core")]
pub struct Uncopyable;

impl Uncopyable {
    /// An object of a class below this one.
    pub fn hold<T>(py: Python<'_>, value: T) -> PyResult<Py<T>>
    where
        T: PyClass<BaseType = Self> + PyTypeInfo,
    {
        Py::new(py, PyClassInitializer::from(Self).add_subclass(value))
    }
}

fn refused(object: &Bound<'_, Uncopyable>) -> PyErr {
    let class = object.get_type();
    let name = class
        .name()
        .map_or_else(|_| "object".to_owned(), |n| n.to_string());
    PyTypeError::new_err(format!(
        "a {name} can be neither copied nor pickled: it holds private data, or would repeat its noise"
    ))
}

#[pymethods]
impl Uncopyable {
    fn __reduce__(slf: &Bound<'_, Self>) -> PyResult<()> {
        Err(refused(slf))
    }

    fn __copy__(slf: &Bound<'_, Self>) -> PyResult<()> {
        Err(refused(slf))
    }

    fn __deepcopy__(slf: &Bound<'_, Self>, _memo: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(refused(slf))
    }
}
