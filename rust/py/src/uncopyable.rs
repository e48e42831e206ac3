//! Types that cannot be copied or pickled: a copy would hold private rows, or repeat noise.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

/// Base of such classes.
#[pyclass(frozen, subclass, module = "dpsvm_fast._core")]
pub struct Uncopyable;

#[pymethods]
impl Uncopyable {
    /// Pickles, copies and deep copies all come through here.
    fn __reduce__(slf: &Bound<'_, Self>) -> PyResult<()> {
        let class = slf.get_type();
        let name = class
            .name()
            .map_or_else(|_| "object".to_owned(), |n| n.to_string());
        Err(PyTypeError::new_err(format!(
            "a {name} can be neither copied nor pickled: it holds private data, or would repeat its noise"
        )))
    }
}
