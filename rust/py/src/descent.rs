//! Bindings of `dpsvm_core::descent::settings`.

use crate::arrays::{Array, contiguous, matrix_of};
use crate::errors::to_python;
use crate::gate;
use crate::noise::NoiseSource;
use crate::options::{Loss, named, options};
use crate::records::Records;
use crate::shards::{ShardedRun, shard_key};
use dpsvm_core::descent::bounds::{
    Descended, check_clip, check_grid, clipped_sum_distance as distance,
    descent_rounding as rounding,
};
use dpsvm_core::descent::clipping::Clip;
use dpsvm_core::descent::optimizer::{Optimizer, Schedule, State};
use dpsvm_core::descent::settings::{Arithmetic, DescentSettings};
use dpsvm_core::descent::streams::{Batches, DescentBatch, DescentStreams};
use dpsvm_core::noise::Task;
use dpsvm_core::records::parts::split;
use dpsvm_core::{Error, Result};
use numpy::{PyArray2, PyArrayMethods};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::ops::RangeInclusive;
use std::sync::{Mutex, MutexGuard};

/// How often a run tells how far it is, at most.
const MOST_CALLS: u32 = 40;

/// Private gradient descent whose state survives between calls of `run`.
///
/// The state is computed from noisy sums alone.
#[pyclass(frozen, module = "dpsvm_fast._core")]
pub struct Descent {
    settings: DescentSettings,
    rate: f64,
    noise: (f64, Option<f64>),
    state: Mutex<State>,
}

/// Refuses a public number outside its range.
fn within(name: &'static str, value: f64, range: RangeInclusive<f64>) -> Result<f64> {
    if range.contains(&value) {
        return Ok(value);
    }
    let (low, high) = (range.start(), range.end());
    let message = format!("got {value:e}, expected {low:e} to {high:e}");
    Err(Error::invalid(name, message))
}

/// Decays of moments and momentum: below 1.
const LARGEST_DECAY: f64 = 1.0 - 1e-12;

const PRECISIONS: [(&str, Arithmetic); 2] =
    [("f32", Arithmetic::Single), ("f64", Arithmetic::Double)];

options! {
    struct Options {
        ..loss: Loss,
        n_features: usize,
        intercept: f64,
        row_scale: f64,
        clip: f64,
        sigma: f64,
        grid: Option<f64>,
        sampling_rate: f64,
        divisor: f64,
        regularization: f64,
        optimizer: String,
        learning_rate: f64,
        schedule: String,
        horizon: u64,
        momentum: f64,
        nesterov: bool,
        beta1: f64,
        beta2: f64,
        stabilizer: f64,
        noise_correction: bool,
        average_from: Option<u64>,
        radius: Option<f64>,
        precision: String,
    }
}

impl Options<'_> {
    fn settings(&self, exact_sums: bool) -> Result<DescentSettings> {
        check_clip(self.clip)?;
        self.grid.map_or(Ok(()), check_grid)?;
        within("intercept", self.intercept, 0.0..=1e6)?;
        within("row_scale", self.row_scale, 1e-6..=1e6)?;
        within("sigma", self.sigma, 0.0..=1e100)?;
        within("divisor", self.divisor, 1e-100..=1e100)?;
        let rate = self.sampling_rate;
        if !(rate > 0.0 && rate <= 1.0) {
            let message = format!("got {rate:e}, expected a number in (0, 1]");
            return Err(Error::invalid("sampling_rate", message));
        }
        let radius = |r| within("radius", r, 1e-100..=1e100);
        Ok(DescentSettings {
            loss: self.loss.of()?,
            features: self.n_features,
            clip: Clip::new(self.clip, self.row_scale, self.intercept),
            noise: DescentStreams::kind(self.sigma, self.grid),
            divisor: self.divisor,
            regularization: within("regularization", self.regularization, 0.0..=1e100)?,
            optimizer: self.optimizer()?,
            rate: within("learning_rate", self.learning_rate, 0.0..=1e100)?,
            schedule: self.schedule()?,
            average_from: self.average_from,
            radius: self.radius.map(radius).transpose()?,
            arithmetic: named("precision", &self.precision, &PRECISIONS)?,
            exact_sums,
        })
    }

    fn schedule(&self) -> Result<Schedule> {
        if self.schedule == "linear" && self.horizon == 0 {
            return Err(Error::invalid("horizon", "got 0, expected at least 1"));
        }
        let schedules = [
            ("constant", Schedule::Constant),
            ("inverse", Schedule::Inverse),
            ("linear", Schedule::Linear(self.horizon)),
        ];
        named("schedule", &self.schedule, &schedules)
    }

    fn optimizer(&self) -> Result<Optimizer> {
        let deviation = self.sigma / self.divisor;
        match self.optimizer.as_str() {
            "gd" | "sgd" => Ok(Optimizer::Gradient {
                momentum: within("momentum", self.momentum, 0.0..=LARGEST_DECAY)?,
                nesterov: self.nesterov,
            }),
            "adam" => Ok(Optimizer::Adam {
                beta1: within("beta1", self.beta1, 0.0..=LARGEST_DECAY)?,
                beta2: within("beta2", self.beta2, 0.0..=LARGEST_DECAY)?,
                stabilizer: within("stabilizer", self.stabilizer, 1e-100..=1e100)?,
                noise_variance: self.noise_correction.then_some(deviation * deviation),
            }),
            _ => Err(Error::invalid("optimizer", "expected gd, sgd or adam")),
        }
    }
}

options! {
    struct RoundingOptions {
        ..loss: Loss,
        n_columns: usize,
        row_norm: f64,
        clip: f64,
        max_records: u64,
        max_rows: u64,
        truncated: bool,
        radius: f64,
        grid: Option<f64>,
        step: f64,
    }
}

/// Reads what [`Descent::state`] wrote.
fn read_state(record: &Bound<'_, PyDict>, empty: &State) -> PyResult<State> {
    let missing = |name: &str| to_python(Error::invalid("state", format!("has no {name}")));
    let item = |name: &str| record.get_item(name)?.ok_or_else(|| missing(name));
    let values = |name: &str, like: &[f64]| -> PyResult<Vec<f64>> {
        let item = item(name)?;
        let array = item.cast::<PyArray2<f64>>()?.readonly();
        let values = contiguous(&array, "state")?.to_vec();
        if values.len() != like.len() || !values.iter().all(|v| v.is_finite()) {
            let message = format!("{name}: expected {} finite numbers", like.len());
            return Err(to_python(Error::invalid("state", message)));
        }
        Ok(values)
    };
    Ok(State {
        weights: values("weights", &empty.weights)?,
        first: values("first", &empty.first)?,
        second: values("second", &empty.second)?,
        sum: values("sum", &empty.sum)?,
        averaged: item("averaged")?.extract()?,
        steps: item("steps")?.extract()?,
    })
}

impl Descent {
    /// Numbers of scores and of columns.
    pub(crate) fn shape(&self) -> [usize; 2] {
        [self.settings.loss.scores, self.settings.columns()]
    }

    pub(crate) fn settings(&self) -> &DescentSettings {
        &self.settings
    }

    /// Batches, tags and noise of a run of `steps` steps.
    pub(crate) fn streams<'k>(
        &self,
        tasks: [Task<'k>; 3],
        steps: u32,
    ) -> Result<DescentStreams<'k>> {
        let size = (steps, self.settings.weights());
        DescentStreams::new(tasks, self.rate, self.noise, size)
    }

    pub(crate) fn locked(&self) -> PyResult<MutexGuard<'_, State>> {
        self.state
            .try_lock()
            .map_err(|_| PyRuntimeError::new_err("this Descent is running in another thread"))
    }
}

#[pymethods]
impl Descent {
    #[new]
    #[pyo3(signature = (*, state=None, exact_sums=false, **options))]
    fn new(
        state: Option<&Bound<'_, PyDict>>,
        exact_sums: bool,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let options = Options::read(options)?;
        let settings = gate::brief(|| options.settings(exact_sums))?;
        let empty = gate::brief(|| settings.start())?;
        let state = match state {
            Some(record) => read_state(record, &empty)?,
            None => empty,
        };
        Ok(Self {
            settings,
            rate: options.sampling_rate,
            noise: (options.sigma, options.grid),
            state: Mutex::new(state),
        })
    }

    /// Takes more steps on `records`, with noise from `source`.
    ///
    /// `on_step` is called now and then with the number of steps taken and `n_steps`.
    #[pyo3(signature = (records, source, n_steps, n_threads, on_step=None))]
    fn run(
        &self,
        py: Python<'_>,
        records: &Records,
        source: &NoiseSource,
        n_steps: u32,
        n_threads: usize,
        on_step: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let tasks = [source.new_task()?, source.new_task()?, source.new_task()?];
        let mut guard = self.locked()?;
        let (settings, state) = (&self.settings, &mut *guard);
        let streams = gate::brief(|| self.streams(tasks, n_steps))?;
        let part = on_step.map_or(n_steps, |_| n_steps.div_ceil(MOST_CALLS));
        let mut done = 0;
        while done < n_steps {
            let steps = done..n_steps.min(done.saturating_add(part));
            done = steps.end;
            records.read(|records| {
                gate::run(py, |interrupt| {
                    settings.run(state, records, &streams, steps, n_threads, interrupt)
                })
            })?;
            on_step.map_or(Ok(()), |told| told.call1((done, n_steps)).map(drop))?;
        }
        Ok(())
    }

    /// What `n_fits` independent runs from the present state would release; the state stays.
    ///
    /// Run i has the bits that the i-th of as many single runs would have.
    fn run_batch(
        &self,
        py: Python<'_>,
        records: &Records,
        source: &NoiseSource,
        n_fits: u32,
        n_steps: u32,
        n_threads: usize,
    ) -> PyResult<Array<f64>> {
        let tasks = source.new_task_triples(n_fits)?;
        let start = self.locked()?;
        let start = gate::brief(|| start.copy())?;
        let batch = DescentBatch {
            settings: &self.settings,
            start: &start,
            rate: self.rate,
            noise: self.noise,
            steps: n_steps,
        };
        let released = records.read(|records| {
            gate::run(py, |interrupt| {
                batch.run(records, &tasks, n_threads, interrupt)
            })
        })?;
        let [scores, columns] = self.shape();
        let shape = [n_fits as usize, scores, columns];
        Ok(Array::shaped(released, shape))
    }

    /// The exact sum of step `step` over one shard of the records at `weights`, without noise: whole
    /// numbers of a fixed unit, `part[0] 2^32 + part[1]`, which are merged by addition.
    ///
    /// A function of its arguments and the public numbers: the state is neither read nor changed.
    fn partial(
        &self,
        py: Python<'_>,
        records: &Records,
        weights: &Bound<'_, PyAny>,
        key: &Bound<'_, PyBytes>,
        shard: u32,
        step: u32,
        n_threads: usize,
    ) -> PyResult<Array<i64>> {
        let key = shard_key(key)?;
        let shape = self.shape();
        let weights = matrix_of(weights, shape, "weights")?;
        let weights = contiguous(&weights, "weights")?;
        let settings = &self.settings;
        let parts = records.read(|records| {
            gate::run(py, |interrupt| {
                let batches = Batches::of_shard(&key, shard, self.rate)?;
                let at = (&batches, step);
                let units = settings.partial(weights, records, at, n_threads, interrupt)?;
                split(&units)
            })
        })?;
        Ok(Array::halves(parts, shape))
    }

    /// A run of `n_steps` steps whose sums come from [`Descent::partial`].
    fn shards(
        slf: &Bound<'_, Self>,
        source: &Bound<'_, NoiseSource>,
        n_steps: u32,
    ) -> PyResult<Py<ShardedRun>> {
        ShardedRun::new(slf, source, n_steps)
    }

    /// The average of the iterates, or the last one.
    fn weights(&self) -> PyResult<Array<f64>> {
        let state = self.locked()?;
        let weights = gate::brief(|| state.released())?;
        Ok(Array::shaped(weights, self.shape()))
    }

    /// The weights after the last step.
    pub(crate) fn iterate(&self) -> PyResult<Array<f64>> {
        let weights = self.locked()?.weights.clone();
        Ok(Array::shaped(weights, self.shape()))
    }

    /// All that the next steps depend on; hand it back as `state=`.
    fn state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let record = PyDict::new(py);
        let state = self.locked()?;
        let columns = self.settings.columns();
        let parts = [
            ("weights", &state.weights),
            ("first", &state.first),
            ("second", &state.second),
            ("sum", &state.sum),
        ];
        for (name, values) in parts {
            let shape = [values.len() / columns.max(1), columns];
            record.set_item(name, Array::shaped(values.clone(), shape))?;
        }
        record.set_item("averaged", state.averaged)?;
        record.set_item("steps", state.steps)?;
        Ok(record)
    }
}

/// Upper bound of the distance between the clipped sums of data sets that differ by one record
/// more or less, all rounding included.
#[pyfunction]
#[pyo3(signature = (clip, n_weights, grid))]
pub fn clipped_sum_distance(clip: f64, n_weights: usize, grid: Option<f64>) -> PyResult<f64> {
    gate::brief(|| distance(clip, n_weights, grid))
}

/// Upper bound of the distance of a sum computed in double precision to that of exact gradients.
#[pyfunction]
#[pyo3(signature = (**options))]
pub fn descent_rounding(options: Option<&Bound<'_, PyDict>>) -> PyResult<f64> {
    let o = RoundingOptions::read(options)?;
    gate::brief(|| {
        check_clip(o.clip)?;
        Ok(rounding(&Descended {
            loss: o.loss.of()?,
            columns: o.n_columns,
            row_norm: o.row_norm,
            clip: o.clip,
            records: o.max_records,
            rows: o.max_rows,
            truncated: o.truncated,
            radius: o.radius,
            grid: o.grid,
            step: o.step,
        }))
    })
}
