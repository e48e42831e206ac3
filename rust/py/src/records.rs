//! Bindings of `dpsvm_core::records::store`.

use crate::arrays::{Array, Matrix, contiguous, read_parts};
use crate::fourier::FourierMap;
use crate::gate;
use crate::options::options;
use crate::uncopyable::Uncopyable;
use dpsvm_core::records::files::RecordFiles;
use dpsvm_core::records::map::RowMap;
use dpsvm_core::records::parts::{join, split};
use dpsvm_core::records::store::Records as Store;
use dpsvm_core::records::sums::gram_values;
use dpsvm_core::rows::view::RowBounds;
use dpsvm_core::runtime::interrupt::Interrupt;
use dpsvm_core::{Error, Result};
use numpy::{PyReadonlyArray1, PyReadonlyArray2, PyUntypedArrayMethods};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::fs::OpenOptions;
use std::path::PathBuf;
use std::sync::{RwLock, TryLockError};

/// What has been done to the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Mapped,
    Centred,
    Transformed,
}

options! {
    struct Options {
        n_classes: usize,
        offset: Option<PyReadonlyArray1<'py, f64>>,
        scale: Option<PyReadonlyArray1<'py, f64>>,
        low: f64,
        floor: Option<PyReadonlyArray1<'py, f64>>,
        high: f64,
        constant: f64,
        data_norm: f64,
        unit: bool,
        n_threads: usize,
    }
}

/// The rows and their stage; no rows after an interrupt that left some of them changed.
struct State {
    store: Option<Store>,
    stage: Stage,
}

impl State {
    /// Changes the rows. They are lost where `work` says, or shows by a panic, that some of them
    /// are changed and others not.
    fn change(
        &mut self,
        py: Python<'_>,
        work: impl FnOnce(&mut Store, &dyn Interrupt) -> (Result<()>, bool) + Send,
    ) -> PyResult<()> {
        let store = self.store.as_mut().ok_or_else(lost)?;
        let mut half_done = true;
        let outcome = gate::run(py, |interrupt| {
            let outcome;
            (outcome, half_done) = work(store, interrupt);
            outcome
        });
        if half_done {
            self.store = None;
        }
        outcome
    }
}

/// Private records: rows of norm at most 1 in a compact copy.
///
/// It can be neither copied nor pickled, and only its sums leave it: a caller adds noise to them.
#[pyclass(frozen, extends = Uncopyable, module = "dpsvm_fast._core")]
pub struct Records {
    state: RwLock<State>,
}

/// One refusal for an object that another thread is using.
fn in_use<T>(_: TryLockError<T>) -> PyErr {
    PyRuntimeError::new_err(
        "this Records object is in use by another thread, which changes it; wait for that call",
    )
}

fn lost() -> PyErr {
    PyRuntimeError::new_err(
        "these records were lost when a change of them was interrupted; make new ones",
    )
}

impl Records {
    /// `work` on the rows; other readers may run at the same time.
    pub fn read<T>(&self, work: impl FnOnce(&Store) -> PyResult<T>) -> PyResult<T> {
        let state = self.state.try_read().map_err(in_use)?;
        work(state.store.as_ref().ok_or_else(lost)?)
    }

    /// Refuses rows that were centred or transformed.
    fn require_mapped(state: &State, what: &str) -> PyResult<()> {
        if state.stage == Stage::Mapped {
            return Ok(());
        }
        let message = format!("records: {what} needs rows that were not centred or transformed");
        Err(PyValueError::new_err(message))
    }
}

/// Opens files that exist, to read them or to write behind what they hold.
fn files((entries, classes): (PathBuf, PathBuf), write: bool) -> PyResult<RecordFiles> {
    let mut options = OpenOptions::new();
    options.read(!write).append(write);
    Ok(RecordFiles {
        entries: options.open(entries)?,
        classes: options.open(classes)?,
    })
}

/// Fewer than `2^32` records of norm at most 1 have no sum of outer products beyond `2^32`.
const MOST_GRAM_BITS: u32 = 32 + 40;

#[pymethods]
impl Records {
    /// The mapped rows; zeros of a CSR matrix stay zeros: there is no offset, and low <= 0 <= high.
    #[staticmethod]
    #[pyo3(signature = (X, y, **options))]
    fn of(
        py: Python<'_>,
        X: Matrix<'_>,
        y: PyReadonlyArray1<'_, i64>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Py<Self>> {
        let o = Options::read(options)?;
        let map = RowMap {
            offset: o.offset.as_ref().map(|o| o.as_slice()).transpose()?,
            scale: o.scale.as_ref().map(|s| s.as_slice()).transpose()?,
            low: o.low,
            floor: o.floor.as_ref().map(|f| f.as_slice()).transpose()?,
            high: o.high,
            constant: o.constant,
            data_norm: o.data_norm,
            unit: o.unit,
        };
        // For the checks of the rows; the map itself bounds them.
        let bounds = RowBounds {
            data_norm: if o.unit { 1.0 } else { o.data_norm },
            intercept: 0.0,
        };
        let (rows, y) = (X.rows(py, bounds)?, contiguous(&y, "y")?);
        let store = gate::run(py, |interrupt| {
            Store::new(&rows, &map, y, o.n_classes, o.n_threads, interrupt)
        })?;
        let state = State {
            store: Some(store),
            stage: Stage::Mapped,
        };
        let state = RwLock::new(state);
        Uncopyable::hold(py, Self { state })
    }

    /// Number of records.
    #[getter]
    fn n_rows(&self) -> PyResult<usize> {
        self.read(|store| Ok(store.len()))
    }

    /// Columns of a row.
    #[getter]
    fn n_features(&self) -> PyResult<usize> {
        self.read(|store| Ok(store.columns))
    }

    /// Says who owns the rows and what they weigh: `persons` has the first row of each person of
    /// several, and the number of rows at the end; persons of one row come before. Weights are from 0
    /// to 1; none is 1 each.
    fn own(
        &self,
        py: Python<'_>,
        persons: PyReadonlyArray1<'_, i64>,
        weights: PyReadonlyArray1<'_, f64>,
    ) -> PyResult<()> {
        let mut state = self.state.try_write().map_err(in_use)?;
        let (persons, weights) = (persons.as_slice()?, weights.as_slice()?);
        state.change(py, |store, _| (store.own(persons, weights), false))
    }

    /// Multiplies the weight of every row by the factor, from 0 to 1, of its class.
    fn weigh(&self, py: Python<'_>, factors: PyReadonlyArray1<'_, f64>) -> PyResult<()> {
        let mut state = self.state.try_write().map_err(in_use)?;
        let factors = factors.as_slice()?;
        state.change(py, |store, _| (store.weigh(factors), false))
    }

    /// The exact sum of the rows, or of the means of persons.
    fn sums(&self, py: Python<'_>, n_threads: usize) -> PyResult<Array<f64>> {
        let state = self.state.try_read().map_err(in_use)?;
        Self::require_mapped(&state, "sums")?;
        let store = state.store.as_ref().ok_or_else(lost)?;
        let sums = gate::run(py, |interrupt| store.sums(n_threads, interrupt))?;
        Ok(Array::line(sums))
    }

    /// Moves the rows to the centre `point`.
    fn centre(
        &self,
        py: Python<'_>,
        point: PyReadonlyArray1<'_, f64>,
        n_threads: usize,
    ) -> PyResult<()> {
        let mut state = self.state.try_write().map_err(in_use)?;
        Self::require_mapped(&state, "centre")?;
        let point = point.as_slice()?;
        state.change(py, |store, interrupt| {
            let outcome = store.centre(point, n_threads, interrupt);
            let half_done = matches!(outcome, Err(Error::Interrupted));
            (outcome, half_done)
        })?;
        state.stage = Stage::Centred;
        Ok(())
    }

    /// The exact sum of the outer products of the rows with themselves.
    fn gram(&self, py: Python<'_>, n_threads: usize) -> PyResult<Array<f64>> {
        self.read(|store| {
            let sum = gate::run(py, |interrupt| store.gram(n_threads, interrupt))?;
            Ok(Array::shaped(sum, [store.columns; 2]))
        })
    }

    /// That sum as whole numbers of 2^-40, `part[0] 2^32 + part[1]`: parts of several objects are
    /// merged by addition.
    fn gram_parts(&self, py: Python<'_>, n_threads: usize) -> PyResult<Array<i64>> {
        self.read(|store| {
            let parts = gate::run(py, |interrupt| {
                split(&store.gram_units(n_threads, interrupt)?)
            })?;
            Ok(Array::halves(parts, [store.columns; 2]))
        })
    }

    /// The sum of outer products from merged parts.
    #[staticmethod]
    fn gram_from_parts(py: Python<'_>, parts: &Bound<'_, PyAny>) -> PyResult<Array<f64>> {
        let parts = read_parts(parts, None, "parts")?;
        let entries = contiguous(&parts, "parts")?;
        let most = 1_i128 << MOST_GRAM_BITS;
        let values = gate::run(py, |_| gram_values(&join(entries, most)?))?;
        Ok(Array::shaped(values, [parts.shape()[1]; 2]))
    }

    /// Rows become `M u / ||M u||`.
    fn transform(
        &self,
        py: Python<'_>,
        matrix: PyReadonlyArray2<'_, f64>,
        n_threads: usize,
    ) -> PyResult<()> {
        let mut state = self.state.try_write().map_err(in_use)?;
        let expected = state.store.as_ref().ok_or_else(lost)?.columns;
        let shape = matrix.shape();
        if shape[1] != expected {
            let got = shape[1];
            let message = format!("matrix: got {got} columns, expected {expected}");
            return Err(PyValueError::new_err(message));
        }
        let (entries, outputs) = (contiguous(&matrix, "matrix")?, shape[0]);
        state.change(py, |store, interrupt| {
            let outcome = store.transform(entries, outputs, n_threads, interrupt);
            (outcome, false)
        })?;
        state.stage = Stage::Transformed;
        Ok(())
    }

    /// Rows become their features under `map`; they are written out if `stored`.
    fn lift(
        &self,
        py: Python<'_>,
        map: &FourierMap,
        stored: bool,
        n_threads: usize,
    ) -> PyResult<()> {
        let mut state = self.state.try_write().map_err(in_use)?;
        state.change(py, |store, interrupt| {
            let outcome = store.lift(&map.map, stored, n_threads, interrupt);
            (outcome, false)
        })?;
        state.stage = Stage::Transformed;
        Ok(())
    }

    /// Writes the rows behind those that two files hold, which must exist: entries and classes.
    fn append_to(&self, py: Python<'_>, entries: PathBuf, classes: PathBuf) -> PyResult<()> {
        let mut files = files((entries, classes), true)?;
        self.read(|store| gate::run(py, |_| store.append_to(&mut files)))
    }

    /// Replaces the rows by the first `n_rows` of such files, in the same memory; each is checked.
    fn read_from(
        &self,
        py: Python<'_>,
        entries: PathBuf,
        classes: PathBuf,
        n_rows: usize,
        n_threads: usize,
    ) -> PyResult<()> {
        let files = files((entries, classes), false)?;
        let mut state = self.state.try_write().map_err(in_use)?;
        state.change(py, |store, interrupt| {
            let outcome = store.read_from(&files, n_rows, n_threads, interrupt);
            let half_done = outcome.is_err();
            (outcome, half_done)
        })
    }
}
