//! The one gate for long calls: releases the GIL, lets Ctrl-C through, converts errors, and rounds to
//! nearest whatever the calling thread does.

use crate::errors::to_python;
use dpsvm_core::Result;
use dpsvm_core::runtime::float_mode::{
    Control, USUAL_ARITHMETIC, exchange_arithmetic, in_usual_arithmetic,
};
use dpsvm_core::runtime::interrupt::Interrupt;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Longest wait of a signal. Well below the 200 ms that a user is promised, long enough that
/// taking the GIL costs nothing measurable.
const SIGNAL_PERIOD: Duration = Duration::from_millis(40);

/// Runs pending Python signal handlers now and then, on the thread that called us.
struct Signals {
    last: Cell<Instant>,
    raised: RefCell<Option<PyErr>>,
}

impl Interrupt for Signals {
    fn stopped(&self) -> bool {
        if self.raised.borrow().is_some() {
            return true;
        }
        if self.last.get().elapsed() < SIGNAL_PERIOD {
            return false;
        }
        // The lifetimes of the method itself are too narrow for `attach`.
        #[allow(clippy::redundant_closure_for_method_calls)]
        let outcome = Python::attach(|py| py.check_signals());
        self.last.set(Instant::now());
        match outcome {
            Ok(()) => false,
            Err(error) => {
                *self.raised.borrow_mut() = Some(error);
                true
            }
        }
    }
}

/// Runs `work` without the GIL. `work` must poll the interrupt it is given.
///
/// A signal handler's exception (for example `KeyboardInterrupt`) wins over what the core returns.
/// A panic in `work`, of which another thread that writes to the input can be the
/// cause, becomes a `RuntimeError` that does not repeat its message: an index may be data.
pub fn run<T: Send>(work: impl FnOnce(&dyn Interrupt) -> Result<T> + Send) -> PyResult<T> {
    let apart = || {
        let signals = Signals {
            last: Cell::new(Instant::now()),
            raised: RefCell::new(None),
        };
        // Consistency of what `work` was changing is up to its caller: see `records.rs`.
        let result = catch_unwind(AssertUnwindSafe(|| in_usual_arithmetic(|| work(&signals))));
        (result, signals.raised.into_inner())
    };
    // Every caller holds the GIL already: to attach again only says so.
    let outcome = Python::attach(|py| py.detach(apart));
    match outcome {
        (Err(_), _) => Err(PyRuntimeError::new_err(
            "internal error: the computation was abandoned and nothing is returned",
        )),
        // Even if the work has finished: Python delivers the exception only once.
        (Ok(_), Some(raised)) => Err(raised),
        (Ok(Ok(value)), None) => Ok(value),
        (Ok(Err(error)), None) => Err(to_python(error)),
    }
}

/// Runs short `work`, for which the GIL is kept, in the usual arithmetic.
pub fn brief<T>(work: impl FnOnce() -> Result<T>) -> PyResult<T> {
    in_usual_arithmetic(work).map_err(to_python)
}

/// A context in which this thread rounds to nearest and keeps subnormal numbers, for what Python
/// computes; afterwards it does again what it did. For one use, in one thread.
#[pyclass(frozen, module = "dpsvm_fast._core")]
#[derive(Default)]
pub struct UsualArithmetic {
    before: Mutex<Option<Control>>,
}

#[pymethods]
impl UsualArithmetic {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    fn __enter__(&self) {
        if let Ok(mut before) = self.before.lock() {
            *before = Some(exchange_arithmetic(USUAL_ARITHMETIC));
        }
    }

    #[pyo3(signature = (*_raised))]
    fn __exit__(&self, _raised: &Bound<'_, PyTuple>) {
        if let Some(before) = self.before.lock().ok().and_then(|mut b| b.take()) {
            exchange_arithmetic(before);
        }
    }
}
