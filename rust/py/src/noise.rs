//! Bindings of `dpsvm_core::noise`.

use crate::arrays::{Array, contiguous};
use crate::errors::to_python;
use crate::gate;
use crate::uncopyable::Uncopyable;
use dpsvm_core::Result;
use dpsvm_core::noise::{
    Key, Task, discrete_gaussian, discrete_laplace, exponential_choice, gamma_ball, gaussian,
    gaussian_on_grid, permute_and_flip, random_parts, symmetric_gaussian,
};
use dpsvm_core::runtime::interrupt::Interrupt;
use numpy::PyReadonlyArray1;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A source of noise: one secret key, one stream for each call.
///
/// Safe to share between threads. It cannot be copied or pickled, and it refuses to work in a
/// process other than its own: either would repeat noise that was already used.
#[pyclass(frozen, extends = Uncopyable, module = "dpsvm_fast._core")]
pub struct NoiseSource {
    key: Key,
    /// Whether the key came from a seed.
    #[pyo3(get)]
    seeded: bool,
    process: u32,
    next_task: AtomicU32,
}

impl NoiseSource {
    /// The streams of a new call.
    pub(crate) fn new_task(&self) -> PyResult<Task<'_>> {
        self.new_tasks(1).map(|first| self.key.task(first))
    }

    /// Streams of `count` new calls each of which needs three of them, as one call after the other
    /// would get.
    pub(crate) fn new_task_triples(&self, count: u32) -> PyResult<Vec<[Task<'_>; 3]>> {
        let all = count.checked_mul(3).ok_or_else(used_up)?;
        let first = self.new_tasks(all)?;
        (0..count).map(|i| self.tasks(first + 3 * i)).collect()
    }

    /// The streams of three calls from `first` on, taken before by the caller and by nobody else.
    pub(crate) fn tasks(&self, first: u32) -> PyResult<[Task<'_>; 3]> {
        self.check_process()?;
        Ok([0, 1, 2].map(|i| self.key.task(first + i)))
    }

    /// Refuses to work in a process that was forked off.
    fn check_process(&self) -> PyResult<()> {
        if std::process::id() == self.process {
            return Ok(());
        }
        Err(PyRuntimeError::new_err(
            "this NoiseSource was made in another process (before a fork); using it here would \
             repeat that process's noise. Make a new NoiseSource in this process.",
        ))
    }

    /// Takes `count` numbers; returns the first.
    pub(crate) fn new_tasks(&self, count: u32) -> PyResult<u32> {
        self.check_process()?;
        let next = |n: u32| n.checked_add(count);
        let first = self.next_task.fetch_update(Relaxed, Relaxed, next);
        first.map_err(|_| used_up())
    }

    /// An array drawn with a new task.
    fn array<T: Send>(
        &self,
        sampler: impl FnOnce(Task<'_>, &dyn Interrupt) -> Result<Vec<T>> + Send,
    ) -> PyResult<Array<T>> {
        self.draw(sampler).map(Array::line)
    }

    /// Draws with a new task, without the GIL.
    fn draw<T: Send>(
        &self,
        sampler: impl FnOnce(Task<'_>, &dyn Interrupt) -> Result<T> + Send,
    ) -> PyResult<T> {
        let task = self.new_task()?;
        gate::run(|interrupt| sampler(task, interrupt))
    }
}

fn used_up() -> PyErr {
    PyRuntimeError::new_err(
        "this NoiseSource has used all of its 2**32 streams; make a new NoiseSource",
    )
}

#[pymethods]
impl NoiseSource {
    /// A key from the operating system, or from `seed` (not private).
    #[new]
    #[pyo3(signature = (seed=None))]
    fn new(seed: Option<u64>) -> PyResult<PyClassInitializer<Self>> {
        let key = match seed {
            Some(seed) => Key::from_seed(seed),
            None => Key::from_system().map_err(to_python)?,
        };
        let source = Self {
            key,
            seeded: seed.is_some(),
            process: std::process::id(),
            next_task: AtomicU32::new(0),
        };
        Ok(PyClassInitializer::from(Uncopyable).add_subclass(source))
    }

    /// Multiples of `grid` with the exact law of `round(N(0, sigma**2) / grid)`.
    fn gaussian_on_grid(
        &self,
        size: usize,
        sigma: f64,
        grid: f64,
        n_threads: usize,
    ) -> PyResult<Array<i64>> {
        self.array(|task, interrupt| {
            gaussian_on_grid(task, size, sigma, grid, n_threads, interrupt)
        })
    }

    /// Floating-point draws of `N(0, sigma**2)`.
    fn gaussian(&self, size: usize, sigma: f64, n_threads: usize) -> PyResult<Array<f64>> {
        self.array(|task, interrupt| gaussian(task, size, sigma, n_threads, interrupt))
    }

    /// One vector with density proportional to `exp(-beta ||b||)`.
    fn gamma_ball(&self, size: usize, beta: f64, n_threads: usize) -> PyResult<Array<f64>> {
        self.array(|task, interrupt| gamma_ball(task, size, beta, n_threads, interrupt))
    }

    /// A symmetric Gaussian matrix of shape `(d, d)`.
    fn symmetric_gaussian(&self, d: usize, sigma: f64, n_threads: usize) -> PyResult<Array<f64>> {
        let values =
            self.draw(|task, interrupt| symmetric_gaussian(task, d, sigma, n_threads, interrupt))?;
        Ok(Array::shaped(values, [d, d]))
    }

    /// An index with probability proportional to `exp(-rate * (scores[i] - min(scores)))`, exactly.
    fn exponential_choice(&self, scores: PyReadonlyArray1<'_, i64>, rate: f64) -> PyResult<usize> {
        let scores = contiguous(&scores, "scores")?;
        self.draw(|task, interrupt| exponential_choice(task, scores, rate, interrupt))
    }

    /// The first index taken in a uniformly random order of visits, index i with probability
    /// `exp(-rate * (scores[i] - min(scores)))`, exactly.
    fn permute_and_flip(&self, scores: PyReadonlyArray1<'_, i64>, rate: f64) -> PyResult<usize> {
        let scores = contiguous(&scores, "scores")?;
        self.draw(|task, interrupt| permute_and_flip(task, scores, rate, interrupt))
    }

    /// Draws with `P(k)` proportional to `exp(-k**2 / (2 sigma**2))`, exactly.
    #[pyo3(signature = (size, sigma, n_threads=1))]
    fn discrete_gaussian(&self, size: usize, sigma: u64, n_threads: usize) -> PyResult<Array<i64>> {
        self.array(|task, interrupt| discrete_gaussian(task, size, sigma, n_threads, interrupt))
    }

    /// Draws with `P(k)` proportional to `exp(-|k| * scale_denominator / scale_numerator)`, exactly.
    #[pyo3(signature = (size, scale_numerator, scale_denominator, n_threads=1))]
    fn discrete_laplace(
        &self,
        size: usize,
        scale_numerator: u64,
        scale_denominator: u64,
        n_threads: usize,
    ) -> PyResult<Array<i64>> {
        let scale = (scale_numerator, scale_denominator);
        self.array(|task, interrupt| discrete_laplace(task, size, scale, n_threads, interrupt))
    }

    /// Independent part numbers, number j with probability `weights[j] / sum(weights)`, exactly.
    fn random_parts(
        &self,
        size: usize,
        weights: PyReadonlyArray1<'_, i64>,
        n_threads: usize,
    ) -> PyResult<Array<i64>> {
        let weights = contiguous(&weights, "weights")?;
        self.array(|task, interrupt| random_parts(task, size, weights, n_threads, interrupt))
    }

    /// 64 random bits for work that needs no secrecy, such as the order of a solver's passes.
    fn public_seed(&self) -> PyResult<u64> {
        Ok(self.new_task()?.first_word())
    }
}
