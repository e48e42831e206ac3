//! Keyword arguments of a call, each that is taken must come and no other may, and facts as answers.

use crate::errors::{invalid, to_python};
use dpsvm_core::loss::smooth::SmoothLoss;
use dpsvm_core::rows::view::RowBounds;
use dpsvm_core::runtime::float_mode::in_usual_arithmetic;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Keyword arguments as they come, in a dictionary of this call alone.
pub type Keywords<'a, 'py> = &'a Bound<'py, PyDict>;

/// Keyword arguments that are taken one after the other.
pub struct Options<'a, 'py>(Option<Keywords<'a, 'py>>);

impl<'a, 'py> Options<'a, 'py> {
    /// Builds a value from the arguments that `build` takes; refuses any other.
    pub fn read<T>(
        all: Option<Keywords<'a, 'py>>,
        build: impl FnOnce(&Self) -> PyResult<T>,
    ) -> PyResult<T> {
        let built = in_usual_arithmetic(|| build(&Self(all)))?;
        if let Some(name) = all.and_then(|all| all.keys().into_iter().next()) {
            let message = format!("got an unexpected keyword argument '{name}'");
            return Err(PyTypeError::new_err(message));
        }
        Ok(built)
    }

    /// Takes the value called `name`.
    pub fn take<T>(&self, name: &'static str) -> PyResult<T>
    where
        T: for<'x> FromPyObject<'x, 'py, Error: Into<PyErr>>,
    {
        if let Some(all) = self.0
            && let Some(value) = all.get_item(name)?
        {
            all.del_item(name)?;
            let found: Result<T, _> = value.extract();
            return found.map_err(|error| of_argument(value.py(), name, error.into()));
        }
        let message = format!("missing the keyword argument '{name}'");
        Err(PyTypeError::new_err(message))
    }

    /// Takes the name of a value.
    pub fn named<T: Copy>(&self, name: &'static str, values: &[(&str, T)]) -> PyResult<T> {
        let got: String = self.take(name)?;
        if let Some((_, value)) = values.iter().find(|(accepted, _)| *accepted == got) {
            return Ok(*value);
        }
        let accepted: Vec<&str> = values.iter().map(|(name, _)| *name).collect();
        let message = format!("got {got:?}, expected {}", accepted.join(", "));
        Err(invalid(name, message))
    }

    /// Takes a loss of scores.
    pub fn loss(&self) -> PyResult<SmoothLoss> {
        let (name, scores): (String, _) = (self.take("loss")?, self.take("n_scores")?);
        let (smoothing, margin) = (self.take("smoothing")?, self.take("margin")?);
        SmoothLoss::new(&name, scores, smoothing, margin).map_err(to_python)
    }

    /// Takes how rows are bounded.
    pub fn bounds(&self) -> PyResult<RowBounds> {
        Ok(RowBounds {
            data_norm: self.take("data_norm")?,
            intercept: self.take("intercept_scaling")?,
        })
    }
}

/// Facts about a solution, for tests and benchmarks only.
pub type Facts = Py<PyDict>;

/// A dictionary of these fields of a struct.
macro_rules! facts {
    ($of:expr, [$($name:ident),*]) => {
        pyo3::Python::attach(|py| {
            let facts = pyo3::types::PyDict::new(py);
            $(facts.set_item(stringify!($name), $of.$name)?;)*
            Ok::<_, pyo3::PyErr>(facts.unbind())
        })?
    };
}
pub(crate) use facts;

/// `error` with the argument's name where it is a `TypeError`, as PyO3 says it of usual arguments.
fn of_argument(py: Python<'_>, name: &str, error: PyErr) -> PyErr {
    if error.is_instance_of::<PyTypeError>(py) {
        return PyTypeError::new_err(format!("argument '{name}': {}", error.value(py)));
    }
    error
}
