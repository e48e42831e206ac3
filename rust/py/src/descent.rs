//! Bindings of `dpsvm_core::descent::settings`.

use crate::arrays::{contiguous, matrices, matrix, matrix_of, whole_parts};
use crate::errors::to_python;
use crate::gate;
use crate::noise::NoiseSource;
use crate::records::Records;
use crate::shards::{ShardedRun, shard_key};
use dpsvm_core::descent::bounds::{
    Descended, check_clip, check_grid, clipped_sum_distance as distance,
    descent_rounding as rounding,
};
use dpsvm_core::descent::clipping::Clip;
use dpsvm_core::descent::drawn::Randomness;
use dpsvm_core::descent::optimizer::{Optimizer, Schedule, State};
use dpsvm_core::descent::settings::{Arithmetic, DescentSettings};
use dpsvm_core::descent::streams::{DescentBatch, DescentStreams, ShardStreams};
use dpsvm_core::loss::smooth::SmoothLoss;
use dpsvm_core::noise::Task;
use dpsvm_core::records::parts::split;
use dpsvm_core::{Error, Result};
use numpy::{PyArray2, PyArray3, PyArrayMethods};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::ops::RangeInclusive;
use std::sync::{Mutex, MutexGuard};

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

struct OptimizerOptions<'o> {
    name: &'o str,
    momentum: f64,
    nesterov: bool,
    betas: (f64, f64),
    stabilizer: f64,
    noise_deviation: Option<f64>,
}

fn optimizer(options: &OptimizerOptions<'_>) -> Result<Optimizer> {
    match options.name {
        "gd" | "sgd" => Ok(Optimizer::Gradient {
            momentum: within("momentum", options.momentum, 0.0..=LARGEST_DECAY)?,
            nesterov: options.nesterov,
        }),
        "adam" => Ok(Optimizer::Adam {
            beta1: within("beta1", options.betas.0, 0.0..=LARGEST_DECAY)?,
            beta2: within("beta2", options.betas.1, 0.0..=LARGEST_DECAY)?,
            stabilizer: within("stabilizer", options.stabilizer, 1e-100..=1e100)?,
            noise_variance: options.noise_deviation.map(|sigma| sigma * sigma),
        }),
        _ => Err(Error::invalid("optimizer", "expected gd, sgd or adam")),
    }
}

fn schedule(name: &str, horizon: u64) -> Result<Schedule> {
    match name {
        "constant" => Ok(Schedule::Constant),
        "inverse" => Ok(Schedule::Inverse),
        "linear" if horizon > 0 => Ok(Schedule::Linear(horizon)),
        "linear" => Err(Error::invalid("horizon", "got 0, expected at least 1")),
        _ => {
            let accepted = "expected constant, inverse or linear";
            Err(Error::invalid("schedule", accepted))
        }
    }
}

fn arithmetic(name: &str) -> Result<Arithmetic> {
    match name {
        "f32" => Ok(Arithmetic::Single),
        "f64" => Ok(Arithmetic::Double),
        _ => Err(Error::invalid("precision", "expected f32 or f64")),
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
    #[pyo3(signature = (*, loss, n_scores, smoothing, margin, n_features, intercept, row_scale, clip, sigma, grid, sampling_rate, divisor, regularization, optimizer, learning_rate, schedule, horizon, momentum, nesterov, beta1, beta2, stabilizer, noise_correction, average_from, radius, precision, state=None, exact_sums=false))]
    #[allow(clippy::too_many_arguments, clippy::fn_params_excessive_bools)]
    fn new(
        loss: &str,
        n_scores: usize,
        smoothing: f64,
        margin: f64,
        n_features: usize,
        intercept: f64,
        row_scale: f64,
        clip: f64,
        sigma: f64,
        grid: Option<f64>,
        sampling_rate: f64,
        divisor: f64,
        regularization: f64,
        optimizer: &str,
        learning_rate: f64,
        schedule: &str,
        horizon: u64,
        momentum: f64,
        nesterov: bool,
        beta1: f64,
        beta2: f64,
        stabilizer: f64,
        noise_correction: bool,
        average_from: Option<u64>,
        radius: Option<f64>,
        precision: &str,
        state: Option<&Bound<'_, PyDict>>,
        exact_sums: bool,
    ) -> PyResult<Self> {
        let check = || -> Result<DescentSettings> {
            check_clip(clip)?;
            grid.map_or(Ok(()), check_grid)?;
            within("intercept", intercept, 0.0..=1e6)?;
            within("row_scale", row_scale, 1e-6..=1e6)?;
            within("sigma", sigma, 0.0..=1e100)?;
            within("divisor", divisor, 1e-100..=1e100)?;
            if !(sampling_rate > 0.0 && sampling_rate <= 1.0) {
                let message = format!("got {sampling_rate:e}, expected a number in (0, 1]");
                return Err(Error::invalid("sampling_rate", message));
            }
            let options = OptimizerOptions {
                name: optimizer,
                momentum,
                nesterov,
                betas: (beta1, beta2),
                stabilizer,
                noise_deviation: noise_correction.then_some(sigma / divisor),
            };
            Ok(DescentSettings {
                loss: SmoothLoss::new(loss, n_scores, smoothing, margin)?,
                features: n_features,
                clip: Clip::new(clip, row_scale, intercept),
                noise: DescentStreams::kind(sigma, grid),
                divisor,
                regularization: within("regularization", regularization, 0.0..=1e100)?,
                optimizer: self::optimizer(&options)?,
                rate: within("learning_rate", learning_rate, 0.0..=1e100)?,
                schedule: self::schedule(schedule, horizon)?,
                average_from,
                radius: radius
                    .map(|r| within("radius", r, 1e-100..=1e100))
                    .transpose()?,
                arithmetic: arithmetic(precision)?,
                exact_sums,
            })
        };
        let settings = gate::brief(check)?;
        let empty = gate::brief(|| settings.start())?;
        let state = match state {
            Some(record) => read_state(record, &empty)?,
            None => empty,
        };
        Ok(Self {
            settings,
            rate: sampling_rate,
            noise: (sigma, grid),
            state: Mutex::new(state),
        })
    }

    /// Takes more steps on `records`, with noise from `source`.
    fn run(
        &self,
        py: Python<'_>,
        records: &Records,
        source: &NoiseSource,
        n_steps: u32,
        n_threads: usize,
    ) -> PyResult<()> {
        let tasks = [source.new_task()?, source.new_task()?, source.new_task()?];
        let mut guard = self.locked()?;
        let state = &mut *guard;
        let settings = &self.settings;
        records.read(|records| {
            gate::run(py, |interrupt| {
                let streams = self.streams(tasks, n_steps)?;
                settings.run(state, records, &streams, n_steps, n_threads, interrupt)
            })
        })
    }

    /// What `n_fits` independent runs from the present state would release; the state stays.
    ///
    /// Run i has the bits that the i-th of as many single runs would have.
    fn run_batch<'py>(
        &self,
        py: Python<'py>,
        records: &Records,
        source: &NoiseSource,
        n_fits: u32,
        n_steps: u32,
        n_threads: usize,
    ) -> PyResult<Bound<'py, PyArray3<f64>>> {
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
        let shape = [self.settings.loss.scores, self.settings.columns()];
        matrices(py, released, [n_fits as usize, shape[0], shape[1]])
    }

    /// The exact sum of step `step` over one shard of the records at `weights`, without noise: whole
    /// numbers of a fixed unit, `part[0] 2^32 + part[1]`, which are merged by addition.
    ///
    /// A function of its arguments and the public numbers: the state is neither read nor changed.
    #[allow(clippy::too_many_arguments)]
    fn partial<'py>(
        &self,
        py: Python<'py>,
        records: &Records,
        weights: &Bound<'py, PyAny>,
        key: &Bound<'py, PyBytes>,
        shard: u32,
        step: u32,
        n_threads: usize,
    ) -> PyResult<Bound<'py, PyArray3<i64>>> {
        let key = shard_key(key)?;
        let shape = self.shape();
        let weights = matrix_of(weights, shape, "weights")?;
        let weights = contiguous(&weights, "weights")?;
        let settings = &self.settings;
        let parts = records.read(|records| {
            gate::run(py, |interrupt| {
                let streams = ShardStreams::new(&key, shard, self.rate)?;
                let randomness: (&dyn Randomness, u32) = (&streams, step);
                let units = settings.partial(weights, records, randomness, n_threads, interrupt)?;
                split(&units)
            })
        })?;
        whole_parts(py, parts, shape)
    }

    /// A run of `n_steps` steps whose sums come from [`Descent::partial`].
    fn shards(
        slf: &Bound<'_, Self>,
        source: &Bound<'_, NoiseSource>,
        n_steps: u32,
    ) -> PyResult<ShardedRun> {
        ShardedRun::new(slf, source, n_steps)
    }

    /// The average of the iterates, or the last one.
    fn weights<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray2<f64>>> {
        let shape = [self.settings.loss.scores, self.settings.columns()];
        let state = self.locked()?;
        matrix(py, gate::brief(|| state.released())?, shape)
    }

    /// The weights after the last step.
    fn iterate<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray2<f64>>> {
        matrix(py, self.locked()?.weights.clone(), self.shape())
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
            record.set_item(name, matrix(py, values.clone(), shape)?)?;
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
fn clipped_sum_distance(clip: f64, n_weights: usize, grid: Option<f64>) -> PyResult<f64> {
    gate::brief(|| distance(clip, n_weights, grid))
}

/// Upper bound of the distance of a sum computed in double precision to that of exact gradients.
#[pyfunction]
#[pyo3(signature = (*, loss, n_scores, smoothing, margin, n_columns, row_norm, clip, max_records, radius, grid, step))]
#[allow(clippy::too_many_arguments)]
fn descent_rounding(
    loss: &str,
    n_scores: usize,
    smoothing: f64,
    margin: f64,
    n_columns: usize,
    row_norm: f64,
    clip: f64,
    max_records: u64,
    radius: f64,
    grid: Option<f64>,
    step: f64,
) -> PyResult<f64> {
    gate::brief(|| {
        check_clip(clip)?;
        Ok(rounding(&Descended {
            loss: SmoothLoss::new(loss, n_scores, smoothing, margin)?,
            columns: n_columns,
            row_norm,
            clip,
            records: max_records,
            radius,
            grid,
            step,
        }))
    })
}

/// Adds this file's class and functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<Descent>()?;
    m.add_function(wrap_pyfunction!(clipped_sum_distance, m)?)?;
    m.add_function(wrap_pyfunction!(descent_rounding, m)?)?;
    Ok(())
}
