//! Bindings of `dpsvm_core::descent::settings`.

use crate::arrays::{Array, contiguous, shaped};
use crate::errors::{invalid, to_python};
use crate::gate;
use crate::noise::NoiseSource;
use crate::options::{Keywords, Options};
use crate::records::Records;
use crate::shards::shard_key;
use dpsvm_core::Result;
use dpsvm_core::descent::bounds::{
    Descended, check_clip, check_grid, clipped_sum_distance as distance,
    descent_rounding as rounding,
};
use dpsvm_core::descent::clipping::Clip;
use dpsvm_core::descent::optimizer::{Optimizer, Schedule, State};
use dpsvm_core::descent::settings::{Arithmetic, DescentSettings};
use dpsvm_core::descent::streams::{Batches, DescentBatch, DescentStreams};
use dpsvm_core::error::in_range;
use dpsvm_core::noise::{Rate, Task};
use dpsvm_core::records::parts::split;
use dpsvm_core::runtime::copied;
use numpy::{PyArray2, PyArrayMethods, PyReadonlyArray2};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::ops::RangeInclusive;
use std::sync::{Mutex, MutexGuard};

/// Largest number of progress reports of a run.
const MAX_CALLS: u32 = 40;

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

/// A public number, unless it is outside its range.
fn within(name: &'static str, value: f64, range: RangeInclusive<f64>) -> PyResult<f64> {
    in_range(name, value, range).map_err(to_python)?;
    Ok(value)
}

/// Decays of moments and momentum: below 1.
const LARGEST_DECAY: f64 = 1.0 - 1e-12;

const PRECISIONS: [(&str, Arithmetic); 2] =
    [("f32", Arithmetic::Single), ("f64", Arithmetic::Double)];

impl Options<'_, '_> {
    /// Takes a public number of this range.
    fn number(&self, name: &'static str, range: RangeInclusive<f64>) -> PyResult<f64> {
        within(name, self.take(name)?, range)
    }

    /// Takes the bound of contributions.
    fn clip(&self) -> PyResult<f64> {
        let clip = self.take("clip")?;
        check_clip(clip).map_err(to_python)?;
        Ok(clip)
    }

    fn schedule(&self) -> PyResult<Schedule> {
        let horizon = self.take("horizon")?;
        let schedules = [
            ("constant", Schedule::Constant),
            ("inverse", Schedule::Inverse),
            ("linear", Schedule::Linear(horizon)),
        ];
        let schedule = self.named("schedule", &schedules)?;
        if matches!(schedule, Schedule::Linear(0)) {
            return Err(invalid("horizon", "got 0, expected at least 1"));
        }
        Ok(schedule)
    }

    /// Takes the optimizer, for sums over the divisor with noise of this deviation.
    fn optimizer(&self, deviation: f64) -> PyResult<Optimizer> {
        let (name, momentum): (String, _) = (self.take("optimizer")?, self.take("momentum")?);
        let (beta1, beta2) = (self.take("beta1")?, self.take("beta2")?);
        let (nesterov, stabilizer) = (self.take("nesterov")?, self.take("stabilizer")?);
        let corrected: bool = self.take("noise_correction")?;
        match name.as_str() {
            "gd" | "sgd" => Ok(Optimizer::Gradient {
                momentum: within("momentum", momentum, 0.0..=LARGEST_DECAY)?,
                nesterov,
            }),
            "adam" => Ok(Optimizer::Adam {
                beta1: within("beta1", beta1, 0.0..=LARGEST_DECAY)?,
                beta2: within("beta2", beta2, 0.0..=LARGEST_DECAY)?,
                stabilizer: within("stabilizer", stabilizer, 1e-100..=1e100)?,
                noise_variance: corrected.then_some(deviation * deviation),
            }),
            _ => Err(invalid("optimizer", "expected gd, sgd or adam")),
        }
    }

    /// Takes all of them, for a descent in this state or before its first step.
    fn descent(&self, exact_sums: bool, state: Option<&Bound<'_, PyDict>>) -> PyResult<Descent> {
        let clip = self.clip()?;
        let grid: Option<f64> = self.take("grid")?;
        grid.map_or(Ok(()), check_grid).map_err(to_python)?;
        let intercept = self.number("intercept", 0.0..=1e6)?;
        let row_scale = self.number("row_scale", 1e-6..=1e6)?;
        let sigma = self.number("sigma", 0.0..=1e100)?;
        let divisor = self.number("divisor", 1e-100..=1e100)?;
        let rate = self.take("sampling_rate")?;
        Rate::new(rate).map_err(to_python)?;
        let radius: Option<f64> = self.take("radius")?;
        let radius = radius.map(|r| within("radius", r, 1e-100..=1e100));
        let settings = DescentSettings {
            loss: self.loss()?,
            features: self.take("n_features")?,
            clip: Clip::new(clip, row_scale, intercept),
            noise: DescentStreams::kind(sigma, grid),
            divisor,
            regularization: self.number("regularization", 0.0..=1e100)?,
            optimizer: self.optimizer(sigma / divisor)?,
            rate: self.number("learning_rate", 0.0..=1e100)?,
            schedule: self.schedule()?,
            average_from: self.take("average_from")?,
            radius: radius.transpose()?,
            arithmetic: self.named("precision", &PRECISIONS)?,
            exact_sums,
        };
        let mut start = settings.start().map_err(to_python)?;
        state.map_or(Ok(()), |record| read_state(record, &mut start))?;
        Ok(Descent {
            settings,
            rate,
            noise: (sigma, grid),
            state: Mutex::new(start),
        })
    }
}

/// The arrays of a state.
fn arrays(state: &mut State) -> [(&'static str, &mut Vec<f64>); 4] {
    [
        ("weights", &mut state.weights),
        ("first", &mut state.first),
        ("second", &mut state.second),
        ("sum", &mut state.sum),
    ]
}

/// Reads what [`Descent::state`] wrote, over a state of the same shape.
fn read_state(record: &Bound<'_, PyDict>, state: &mut State) -> PyResult<()> {
    let missing = |name: &str| invalid("state", format!("has no {name}"));
    let item = |name: &str| record.get_item(name)?.ok_or_else(|| missing(name));
    for (name, values) in arrays(state) {
        let item = item(name)?;
        let array = item.cast::<PyArray2<f64>>()?.readonly();
        let given = contiguous(&array, "state")?;
        if given.len() != values.len() || !given.iter().all(|v| v.is_finite()) {
            let message = format!("{name}: expected {} finite numbers", values.len());
            return Err(invalid("state", message));
        }
        values.copy_from_slice(given);
    }
    state.averaged = item("averaged")?.extract()?;
    state.steps = item("steps")?.extract()?;
    Ok(())
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
        options: Option<Keywords>,
    ) -> PyResult<Self> {
        Options::read(options, |o| o.descent(exact_sums, state))
    }

    /// Takes more steps on `records`, with noise from `source`.
    ///
    /// `on_step` is called now and then with the number of steps taken and `n_steps`.
    #[pyo3(signature = (records, source, n_steps, n_threads, on_step=None))]
    fn run(
        &self,
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
        let part = on_step.map_or(n_steps, |_| n_steps.div_ceil(MAX_CALLS));
        let mut done = 0;
        while done < n_steps {
            let steps = done..n_steps.min(done.saturating_add(part));
            done = steps.end;
            records.read(|records, interrupt| {
                settings.run(state, records, &streams, steps, n_threads, interrupt)
            })?;
            on_step.map_or(Ok(()), |told| told.call1((done, n_steps)).map(drop))?;
        }
        Ok(())
    }

    /// Releases of `n_fits` independent runs from the present state; the state stays.
    ///
    /// Run i has the bits that the i-th of as many single runs would have.
    fn run_batch(
        &self,
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
        let released =
            records.read(|records, interrupt| batch.run(records, &tasks, n_threads, interrupt))?;
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
        records: &Records,
        weights: PyReadonlyArray2<'_, f64>,
        key: &Bound<'_, PyBytes>,
        shard: u32,
        step: u32,
        n_threads: usize,
    ) -> PyResult<Array<i64>> {
        let key = shard_key(key)?;
        let shape = self.shape();
        let weights = shaped(&weights, &shape, "weights")?;
        let settings = &self.settings;
        let parts = records.read(|records, interrupt| {
            let batches = Batches::of_shard(&key, shard, self.rate)?;
            let at = (&batches, step);
            let units = settings.partial(weights, records, at, n_threads, interrupt)?;
            split(&units)
        })?;
        Ok(Array::halves(parts, shape))
    }

    /// The average of the iterates, or the last one.
    fn weights(&self) -> PyResult<Array<f64>> {
        let state = self.locked()?;
        let weights = gate::brief(|| state.released())?;
        Ok(Array::shaped(weights, self.shape()))
    }

    /// The weights after the last step.
    pub(crate) fn iterate(&self) -> PyResult<Array<f64>> {
        let state = self.locked()?;
        let weights = gate::brief(|| copied(&state.weights))?;
        Ok(Array::shaped(weights, self.shape()))
    }

    /// All that the next steps depend on; hand it back as `state=`.
    fn state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let record = PyDict::new(py);
        let mut state = self.locked()?;
        let columns = self.settings.columns();
        for (name, values) in arrays(&mut state) {
            let shape = [values.len() / columns.max(1), columns];
            let values = gate::brief(|| copied(values))?;
            record.set_item(name, Array::shaped(values, shape))?;
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
pub fn descent_rounding(options: Option<Keywords>) -> PyResult<f64> {
    let descended = Options::read(options, |o| {
        Ok(Descended {
            loss: o.loss()?,
            columns: o.take("n_columns")?,
            row_norm: o.take("row_norm")?,
            clip: o.clip()?,
            records: o.take("max_records")?,
            rows: o.take("max_rows")?,
            truncated: o.take("truncated")?,
            radius: o.take("radius")?,
            grid: o.take("grid")?,
            step: o.take("step")?,
        })
    })?;
    gate::brief(|| Ok(rounding(&descended)))
}
