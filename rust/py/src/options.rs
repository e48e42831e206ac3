//! Keyword arguments as typed structs: each of them must come, and no other may.

use dpsvm_core::loss::smooth::SmoothLoss;
use dpsvm_core::rows::view::RowBounds;
use dpsvm_core::{Error, Result};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Keyword arguments of a call.
pub struct Given<'a, 'py>(Option<&'a Bound<'py, PyDict>>);

impl<'a, 'py> Given<'a, 'py> {
    /// Refuses any that is not accepted.
    pub fn new(all: Option<&'a Bound<'py, PyDict>>, accepts: fn(&str) -> bool) -> PyResult<Self> {
        for name in all.into_iter().flatten().map(|(name, _)| name) {
            let name: String = name.extract()?;
            if !accepts(&name) {
                let message = format!("got an unexpected keyword argument '{name}'");
                return Err(PyTypeError::new_err(message));
            }
        }
        Ok(Self(all))
    }

    /// The value called `name`.
    pub fn take<T>(&self, name: &'static str) -> PyResult<T>
    where
        T: for<'x> FromPyObject<'x, 'py, Error: Into<PyErr>>,
    {
        let value = self.0.map(|all| all.get_item(name)).transpose()?;
        let Some(value) = value.flatten() else {
            let message = format!("missing the keyword argument '{name}'");
            return Err(PyTypeError::new_err(message));
        };
        let found: std::result::Result<T, _> = value.extract();
        found.map_err(|error| of_argument(value.py(), name, error.into()))
    }
}

/// `error` with the argument's name where it is a `TypeError`, as PyO3 says it of usual arguments.
fn of_argument(py: Python<'_>, name: &str, error: PyErr) -> PyErr {
    if error.is_instance_of::<PyTypeError>(py) {
        return PyTypeError::new_err(format!("argument '{name}': {}", error.value(py)));
    }
    error
}

/// A struct with a function `read` that takes its fields from keyword arguments of these names, those of
/// the groups behind `..` included.
macro_rules! options {
    ($(#[$note:meta])* $vis:vis struct $name:ident {
        $(..$group:ident: $of:ident,)* $($field:ident: $type:ty,)*
    }) => {
        $(#[$note])*
        $vis struct $name<'py> {
            $(pub $group: $of<'py>,)*
            $(pub $field: $type,)*
            _lifetime: std::marker::PhantomData<&'py ()>,
        }

        impl<'py> $name<'py> {
            $vis fn accepts(name: &str) -> bool {
                [$(stringify!($field)),*].contains(&name) $(|| $of::accepts(name))*
            }

            #[allow(dead_code)]
            $vis fn read(given: Option<&Bound<'py, pyo3::types::PyDict>>) -> PyResult<Self> {
                Self::take(&$crate::options::Given::new(given, Self::accepts)?)
            }

            #[allow(dead_code)]
            $vis fn take(given: &$crate::options::Given<'_, 'py>) -> PyResult<Self> {
                Ok(Self {
                    $($group: $of::take(given)?,)*
                    $($field: given.take(stringify!($field))?,)*
                    _lifetime: std::marker::PhantomData,
                })
            }
        }
    };
}
pub(crate) use options;

/// A dictionary of these fields of a struct.
macro_rules! facts {
    ($py:expr, $of:expr, [$($name:ident),*]) => {{
        let facts = pyo3::types::PyDict::new($py);
        $(facts.set_item(stringify!($name), $of.$name)?;)*
        facts
    }};
}
pub(crate) use facts;

/// The value that a name stands for.
pub fn named<T: Copy>(name: &'static str, got: &str, values: &[(&str, T)]) -> Result<T> {
    if let Some((_, value)) = values.iter().find(|(accepted, _)| *accepted == got) {
        return Ok(*value);
    }
    let accepted: Vec<&str> = values.iter().map(|(name, _)| *name).collect();
    let message = format!("got {got:?}, expected {}", accepted.join(", "));
    Err(Error::invalid(name, message))
}

options! {
    /// A loss of scores.
    pub struct Loss {
        loss: String,
        n_scores: usize,
        smoothing: f64,
        margin: f64,
    }
}

impl Loss<'_> {
    /// The loss.
    pub fn of(&self) -> Result<SmoothLoss> {
        SmoothLoss::new(&self.loss, self.n_scores, self.smoothing, self.margin)
    }
}

options! {
    /// How rows are bounded.
    pub struct Bounded {
        data_norm: f64,
        intercept_scaling: f64,
    }
}

impl Bounded<'_> {
    /// The bounds.
    pub fn of(&self) -> RowBounds {
        RowBounds {
            data_norm: self.data_norm,
            intercept: self.intercept_scaling,
        }
    }
}
