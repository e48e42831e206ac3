//! Keyword arguments as typed structs: each of them must come, and no other may.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Keyword arguments of a call, counted as they are taken.
pub struct Given<'a, 'py> {
    all: Option<&'a Bound<'py, PyDict>>,
    taken: &'static [&'static str],
}

impl<'a, 'py> Given<'a, 'py> {
    /// Refuses any but `accepted`.
    pub fn new(
        all: Option<&'a Bound<'py, PyDict>>,
        accepted: &'static [&'static str],
    ) -> PyResult<Self> {
        for name in all.into_iter().flatten().map(|(name, _)| name) {
            let name: String = name.extract()?;
            if !accepted.contains(&name.as_str()) {
                let message = format!("got an unexpected keyword argument '{name}'");
                return Err(PyTypeError::new_err(message));
            }
        }
        let taken = accepted;
        Ok(Self { all, taken })
    }

    /// The value called `name`.
    pub fn take<T>(&self, name: &'static str) -> PyResult<T>
    where
        T: for<'x> FromPyObject<'x, 'py, Error: Into<PyErr>>,
    {
        debug_assert!(self.taken.contains(&name));
        let value = self
            .all
            .map(|all| all.get_item(name))
            .transpose()?
            .flatten();
        let Some(value) = value else {
            let message = format!("missing the keyword argument '{name}'");
            return Err(PyTypeError::new_err(message));
        };
        let found: Result<T, _> = value.extract();
        found.map_err(|error| named(value.py(), name, error.into()))
    }
}

/// `error` with the argument's name where it is a `TypeError`, as PyO3 says it of usual arguments.
fn named(py: Python<'_>, name: &str, error: PyErr) -> PyErr {
    if error.is_instance_of::<PyTypeError>(py) {
        return PyTypeError::new_err(format!("argument '{name}': {}", error.value(py)));
    }
    error
}

/// A struct with a function `read` that takes its fields from keyword arguments of these names.
macro_rules! options {
    ($(#[$note:meta])* struct $name:ident { $($field:ident: $type:ty,)* }) => {
        $(#[$note])*
        #[allow(non_snake_case)]
        struct $name<'py> {
            $($field: $type,)*
            _lifetime: std::marker::PhantomData<&'py ()>,
        }

        impl<'py> $name<'py> {
            fn read(given: Option<&Bound<'py, pyo3::types::PyDict>>) -> PyResult<Self> {
                let given = crate::options::Given::new(given, &[$(stringify!($field)),*])?;
                Ok(Self {
                    $($field: given.take(stringify!($field))?,)*
                    _lifetime: std::marker::PhantomData,
                })
            }
        }
    };
}
pub(crate) use options;
