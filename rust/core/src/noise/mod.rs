//! Random streams and samplers.
//!
//! Every sampler takes a [`Task`]: a numbered share of one key. An array is drawn in blocks of
//! [`BLOCK`] values, block `i` from the task's stream number `i`, so the values depend on the key
//! and the task alone, never on the number of threads.

mod chacha;
pub(crate) mod coins;
pub(crate) mod discrete_gaussian;
pub(crate) mod discrete_laplace;
pub(crate) mod first_look;
pub(crate) mod gamma_ball;
pub(crate) mod gaussian;
pub(crate) mod grid_gaussian;
pub(crate) mod grid_sampler;
pub(crate) mod half_normal;
pub(crate) mod natural;
pub(crate) mod poisson_batch;
pub(crate) mod random_parts;
pub(crate) mod selection;
pub(crate) mod stream;
pub(crate) mod symmetric;

pub use discrete_gaussian::{DiscreteGaussian, discrete_gaussian};
pub use discrete_laplace::discrete_laplace;
pub use gamma_ball::gamma_ball;
pub use gaussian::gaussian;
pub use grid_gaussian::{GridScale, gaussian_on_grid};
pub use poisson_batch::{Rate, poisson_batch};
pub use random_parts::random_parts;
pub use selection::{exponential_choice, permute_and_flip};
pub use stream::{KEY_BYTES, Key, Stream, Task};
pub use symmetric::symmetric_gaussian;

use crate::error::{Result, require};
use crate::runtime::interrupt::Interrupt;
use crate::runtime::memory::with_capacity;
use crate::runtime::threads::{each_chunk, pool_above};
use rayon::ThreadPool;
use std::sync::Arc;

/// Values drawn from one stream. Part of the meaning of a seed: changing it changes every result.
pub(crate) const BLOCK: usize = 4096;

/// Blocks between two polls of the interrupt. The slowest sampler needs 3 ms for them in a release
/// build, so that Ctrl-C is answered in time even by a debug build, many times slower.
const BLOCKS_PER_POLL: usize = 128;

/// Arrays below this size are drawn by the calling thread. Waking the pool costs about 35
/// microseconds; 32768 values take about 70 with the fastest sampler and 165 with the slowest.
const PARALLEL_FROM: usize = 8 * BLOCK;

/// The largest standard deviation accepted. Noise stays below 1e4 times this, hence finite.
pub(crate) const MAX_SIGMA: f64 = 1e300;

/// The smallest standard deviation accepted besides 0: below it, rounding to subnormal numbers
/// would change the law.
pub(crate) const MIN_SIGMA: f64 = 1e-290;

/// The pool for an array of `size` values, where there is enough to share out.
fn pool_for(size: usize, n_threads: usize) -> Result<Option<Arc<ThreadPool>>> {
    pool_above(n_threads, size, PARALLEL_FROM)
}

/// `size` values, block by block: `fill(stream, block)` with the stream `first_step + i` for
/// block `i`.
fn fill_blocks<T: Copy + Default + Send>(
    task: Task<'_>,
    first_step: u32,
    size: usize,
    n_threads: usize,
    interrupt: &dyn Interrupt,
    fill: impl Fn(&mut Stream, &mut [T]) + Sync,
) -> Result<Vec<T>> {
    let last = u32::try_from(size.div_ceil(BLOCK)).ok();
    let message = format_args!("got {size}, too large");
    let right = last.is_some_and(|n| first_step.checked_add(n).is_some());
    require(right, "size", message)?;
    fill_parts((size, BLOCK), n_threads, interrupt, |i, block| {
        fill(&mut task.stream(first_step + i as u32), block);
    })
}

/// `size` values, `length` of them at a time: `fill(i, part)` for part `i`. Memory is touched as it
/// is filled, so that a huge array can be given up early.
fn fill_parts<T: Copy + Default + Send>(
    (size, length): (usize, usize),
    n_threads: usize,
    interrupt: &dyn Interrupt,
    fill: impl Fn(usize, &mut [T]) + Sync,
) -> Result<Vec<T>> {
    let mut values: Vec<T> = with_capacity(size)?;
    let parts = (BLOCKS_PER_POLL * BLOCK / length.max(1)).max(1);
    while values.len() < size {
        interrupt.check()?;
        let start = values.len();
        values.resize(size.min(start + parts * length), T::default());
        let wave = &mut values[start..];
        let pool = pool_for(wave.len(), n_threads)?;
        each_chunk(pool.as_deref(), wave, length, &|i, part| {
            fill(start / length + i, part);
        });
    }
    Ok(values)
}

/// Checks a standard deviation.
fn check_sigma(sigma: f64) -> Result<()> {
    let message =
        format_args!("got {sigma}, expected 0 or a number from {MIN_SIGMA:e} to {MAX_SIGMA:e}");
    let right = sigma == 0.0 || (MIN_SIGMA..=MAX_SIGMA).contains(&sigma);
    require(right, "sigma", message)
}
