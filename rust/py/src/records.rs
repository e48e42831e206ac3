//! Bindings of `dpsvm_core::records::store`.

use crate::arrays::{Array, Matrix, contiguous, shaped};
use crate::fourier::FourierMap;
use crate::gate;
use crate::options::{Keywords, Options};
use crate::uncopyable::Uncopyable;
use dpsvm_core::records::files::RecordFiles;
use dpsvm_core::records::map::RowMap;
use dpsvm_core::records::parts::{join, split};
use dpsvm_core::records::store::Records as Store;
use dpsvm_core::records::sums::gram_values;
use dpsvm_core::rows::view::RowBounds;
use dpsvm_core::runtime::interrupt::Interrupt;
use dpsvm_core::{Error, Result};
use numpy::{PyReadonlyArray1, PyReadonlyArray2, PyReadonlyArray3, PyUntypedArrayMethods};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use std::fs::OpenOptions;
use std::path::PathBuf;
use std::sync::{RwLock, TryLockError};

/// The rows; none after an interrupt that left some of them changed.
struct State {
    store: Option<Store>,
    /// Whether they were neither centred nor transformed.
    mapped: bool,
}

/// Effect of a call on the rows.
#[derive(Clone, Copy, PartialEq)]
enum Change {
    Weights,
    Centre,
    Transform,
    Replacement,
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

impl State {
    /// Refuses rows that were centred or transformed.
    fn require_mapped(&self, what: &str) -> PyResult<()> {
        if self.mapped {
            return Ok(());
        }
        let message = format!("records: {what} needs rows that were not centred or transformed");
        Err(PyValueError::new_err(message))
    }
}

impl Records {
    /// `work` on the rows; other readers may run at the same time.
    pub fn read<T: Send>(
        &self,
        work: impl FnOnce(&Store, &dyn Interrupt) -> Result<T> + Send,
    ) -> PyResult<T> {
        let state = self.state.try_read().map_err(in_use)?;
        let store = state.store.as_ref().ok_or_else(lost)?;
        gate::run(|interrupt| work(store, interrupt))
    }

    /// Numbers of records and of columns.
    fn shape(&self) -> PyResult<[usize; 2]> {
        let state = self.state.try_read().map_err(in_use)?;
        let store = state.store.as_ref().ok_or_else(lost)?;
        Ok([store.len(), store.columns])
    }

    /// Changes the rows. They are lost where an error, or a panic, leaves some of them changed and
    /// others not.
    fn change(
        &self,
        change: Change,
        work: impl FnOnce(&mut Store, &dyn Interrupt) -> Result<()> + Send,
    ) -> PyResult<()> {
        let mut state = self.state.try_write().map_err(in_use)?;
        if change == Change::Centre {
            state.require_mapped("centre")?;
        }
        let store = state.store.as_mut().ok_or_else(lost)?;
        let mut half_done = true;
        let outcome = gate::run(|interrupt| {
            let outcome = work(store, interrupt);
            half_done = match change {
                Change::Weights | Change::Transform => false,
                Change::Centre => matches!(outcome, Err(Error::Interrupted)),
                Change::Replacement => outcome.is_err(),
            };
            outcome
        });
        if half_done {
            state.store = None;
        }
        state.mapped &= outcome.is_err() || !matches!(change, Change::Centre | Change::Transform);
        outcome
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
const MAX_GRAM_BITS: u32 = 32 + 40;

#[pymethods]
impl Records {
    /// The mapped rows; zeros of a CSR matrix stay zeros: there is no offset, and low <= 0 <= high.
    #[new]
    #[pyo3(signature = (X, y, **options))]
    fn new(
        X: Matrix<'_>,
        y: PyReadonlyArray1<'_, i64>,
        options: Option<Keywords>,
    ) -> PyResult<PyClassInitializer<Self>> {
        let ([offset, scale, floor], map, n_classes, n_threads) = Options::read(options, |o| {
            let map = RowMap {
                offset: None,
                scale: None,
                low: o.take("low")?,
                floor: None,
                high: o.take("high")?,
                constant: o.take("constant")?,
                data_norm: o.take("data_norm")?,
                unit: o.take("unit")?,
            };
            let columns: [Option<PyReadonlyArray1<'_, f64>>; 3] =
                [o.take("offset")?, o.take("scale")?, o.take("floor")?];
            Ok((columns, map, o.take("n_classes")?, o.take("n_threads")?))
        })?;
        let map = RowMap {
            offset: offset.as_ref().map(|o| o.as_slice()).transpose()?,
            scale: scale.as_ref().map(|s| s.as_slice()).transpose()?,
            floor: floor.as_ref().map(|f| f.as_slice()).transpose()?,
            ..map
        };
        // For the checks of the rows; the map itself bounds them.
        let bounds = RowBounds {
            data_norm: if map.unit { 1.0 } else { map.data_norm },
            intercept: 0.0,
        };
        let (rows, y) = (X.rows(bounds)?, contiguous(&y, "y")?);
        let store =
            gate::run(|interrupt| Store::new(&rows, &map, y, n_classes, n_threads, interrupt))?;
        let state = RwLock::new(State {
            store: Some(store),
            mapped: true,
        });
        Ok(PyClassInitializer::from(Uncopyable).add_subclass(Self { state }))
    }

    /// Number of records.
    #[getter]
    fn n_rows(&self) -> PyResult<usize> {
        self.shape().map(|[n_rows, _]| n_rows)
    }

    /// Columns of a row.
    #[getter]
    fn n_features(&self) -> PyResult<usize> {
        self.shape().map(|[_, columns]| columns)
    }

    /// Says who owns the rows and what they weigh: `persons` has the first row of each person of
    /// several, and the number of rows at the end; persons of one row come before. Weights are from 0
    /// to 1; none is 1 each.
    fn own(
        &self,
        persons: PyReadonlyArray1<'_, i64>,
        weights: PyReadonlyArray1<'_, f64>,
    ) -> PyResult<()> {
        let (persons, weights) = (persons.as_slice()?, weights.as_slice()?);
        self.change(Change::Weights, |store, _| store.own(persons, weights))
    }

    /// Multiplies the weight of every row by the factor, from 0 to 1, of its class.
    fn weigh(&self, factors: PyReadonlyArray1<'_, f64>) -> PyResult<()> {
        let factors = factors.as_slice()?;
        self.change(Change::Weights, |store, _| store.weigh(factors))
    }

    /// The exact sum of the rows, or of the means of persons.
    fn sums(&self, n_threads: usize) -> PyResult<Array<f64>> {
        let state = self.state.try_read().map_err(in_use)?;
        state.require_mapped("sums")?;
        let sums = self.read(|store, interrupt| store.sums(n_threads, interrupt))?;
        Ok(Array::line(sums))
    }

    /// Moves the rows to the centre `point`.
    fn centre(&self, point: PyReadonlyArray1<'_, f64>, n_threads: usize) -> PyResult<()> {
        let point = point.as_slice()?;
        self.change(Change::Centre, |store, interrupt| {
            store.centre(point, n_threads, interrupt)
        })
    }

    /// The exact sum of the outer products of the rows with themselves.
    fn gram(&self, n_threads: usize) -> PyResult<Array<f64>> {
        self.read(|store, interrupt| {
            let sum = store.gram(n_threads, interrupt)?;
            Ok(Array::shaped(sum, [store.columns; 2]))
        })
    }

    /// That sum as whole numbers of 2^-40, `part[0] 2^32 + part[1]`: parts of several objects are
    /// merged by addition.
    fn gram_parts(&self, n_threads: usize) -> PyResult<Array<i64>> {
        self.read(|store, interrupt| {
            let parts = split(&store.gram_units(n_threads, interrupt)?)?;
            Ok(Array::halves(parts, [store.columns; 2]))
        })
    }

    /// The sum of outer products from merged parts.
    #[staticmethod]
    fn gram_from_parts(parts: PyReadonlyArray3<'_, i64>) -> PyResult<Array<f64>> {
        let columns = parts.shape()[1];
        let entries = shaped(&parts, &[2, columns, columns], "parts")?;
        let most = 1_i128 << MAX_GRAM_BITS;
        let values = gate::run(|_| gram_values(&join(entries, most)?))?;
        Ok(Array::shaped(values, [columns; 2]))
    }

    /// Rows become `M u / ||M u||`.
    fn transform(&self, matrix: PyReadonlyArray2<'_, f64>, n_threads: usize) -> PyResult<()> {
        let (entries, outputs) = (contiguous(&matrix, "matrix")?, matrix.shape()[0]);
        self.change(Change::Transform, |store, interrupt| {
            store.transform(entries, outputs, n_threads, interrupt)
        })
    }

    /// Rows become their features under `map`; they are written out if `stored`.
    fn lift(&self, map: &FourierMap, stored: bool, n_threads: usize) -> PyResult<()> {
        self.change(Change::Transform, |store, interrupt| {
            store.lift(&map.map, stored, n_threads, interrupt)
        })
    }

    /// Writes the rows behind those that two files hold, which must exist: entries and classes.
    fn append_to(&self, entries: PathBuf, classes: PathBuf) -> PyResult<()> {
        let mut files = files((entries, classes), true)?;
        self.read(|store, _| store.append_to(&mut files))
    }

    /// Replaces the rows by the first `n_rows` of such files, in the same memory; each is checked.
    fn read_from(
        &self,
        entries: PathBuf,
        classes: PathBuf,
        n_rows: usize,
        n_threads: usize,
    ) -> PyResult<()> {
        let files = files((entries, classes), false)?;
        self.change(Change::Replacement, |store, interrupt| {
            store.read_from(&files, n_rows, n_threads, interrupt)
        })
    }
}
