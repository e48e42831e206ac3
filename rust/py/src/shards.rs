//! Bindings for descent whose sums come from shards of the records, possibly in other processes.

use crate::arrays::{Array, shaped};
use crate::descent::Descent;
use crate::errors::invalid;
use crate::gate;
use crate::noise::NoiseSource;
use crate::uncopyable::Uncopyable;
use dpsvm_core::noise::{KEY_BYTES, Key, Task};
use dpsvm_core::records::parts::join;
use numpy::PyReadonlyArray3;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::Mutex;

/// Contributions are at most `2^46` units, and this many times `2^44` records have room.
const MAX_BITS: u32 = 90;

/// The key that all shards of one run share.
pub fn shard_key(bytes: &Bound<'_, PyBytes>) -> PyResult<Key> {
    let bytes = bytes.as_bytes();
    let key: &[u8; KEY_BYTES] = bytes.try_into().map_err(|_| {
        let message = format!("got {} bytes, expected {KEY_BYTES}", bytes.len());
        invalid("key", message)
    })?;
    Ok(Key::from_bytes(key))
}

/// The driver's side of a run over shards: the key of their batches, and the noise.
///
/// Each step's noise is added to one total and never again.
#[pyclass(frozen, extends = Uncopyable, module = "dpsvm_fast._core")]
pub struct ShardedRun {
    descent: Py<Descent>,
    source: Py<NoiseSource>,
    /// First of the three calls of `source` that this run uses.
    first: u32,
    steps: u32,
    next: Mutex<u32>,
}

impl ShardedRun {
    fn tasks(&self) -> PyResult<[Task<'_>; 3]> {
        self.source.get().tasks(self.first)
    }
}

#[pymethods]
impl ShardedRun {
    /// `n_steps` steps of `descent` with noise from `source`.
    #[new]
    fn new(
        descent: Py<Descent>,
        source: Py<NoiseSource>,
        n_steps: u32,
    ) -> PyResult<PyClassInitializer<Self>> {
        let first = source.get().new_tasks(3)?;
        let run = Self {
            descent,
            source,
            first,
            steps: n_steps,
            next: Mutex::new(0),
        };
        // Settings that no step could use are refused before any work is given out.
        let (descent, tasks) = (run.descent.get(), run.tasks()?);
        gate::brief(|| {
            descent.streams(tasks, n_steps)?;
            descent.settings().check_steps()
        })?;
        Ok(PyClassInitializer::from(Uncopyable).add_subclass(run))
    }

    /// Key of the shards' batches, a secret: whoever has it knows which records joined which step.
    #[getter]
    fn key<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let [batches, ..] = self.tasks()?;
        Ok(PyBytes::new(py, batches.new_key().as_slice()))
    }

    /// The step to be taken next.
    #[getter]
    fn step(&self) -> PyResult<u32> {
        let step = self.next.try_lock().map_err(|_| in_use())?;
        Ok(*step)
    }

    /// The weights that the next step's sums are to be computed at.
    #[getter]
    fn weights(&self) -> PyResult<Array<f64>> {
        self.descent.get().iterate()
    }

    /// Takes a step with the merged sums of all shards.
    fn advance(&self, total: PyReadonlyArray3<'_, i64>) -> PyResult<()> {
        let descent = self.descent.get();
        let [scores, columns] = descent.shape();
        let total = shaped(&total, &[2, scores, columns], "total")?;
        let mut next = self.next.try_lock().map_err(|_| in_use())?;
        let step = *next;
        if step >= self.steps {
            let message = format!("all {} steps of this run were taken", self.steps);
            return Err(PyRuntimeError::new_err(message));
        }
        let tasks = self.tasks()?;
        let mut guard = descent.locked()?;
        let state = &mut *guard;
        gate::run(|_| {
            let units = join(total, 1 << MAX_BITS)?;
            let streams = descent.streams(tasks, self.steps)?;
            descent.settings().advance(state, &units, &streams, step)
        })?;
        *next = step + 1;
        Ok(())
    }
}

fn in_use() -> PyErr {
    PyRuntimeError::new_err("this ShardedRun is taking a step in another thread")
}
