//! Noise with density proportional to `exp(-beta ||b||)`.
//!
//! In polar coordinates the radius has density proportional to `r^(d-1) exp(-beta r)`, which is
//! Gamma with shape `d` and rate `beta`, and the direction is uniform on the sphere and
//! independent of it. The direction is a standard Gaussian vector divided by its norm.

use crate::error::{Error, Result, require};
use crate::noise::gaussian::fill_normal;
use crate::noise::{BLOCK, BLOCKS_PER_POLL, Task, fill_blocks, pool_for};
use crate::runtime::interrupt::Interrupt;
use crate::runtime::memory::filled;
use crate::runtime::threads::{each_chunk, map_blocks};
use rand::RngExt;
use rand_distr::{Distribution, Gamma};

/// The radius' own stream; the direction's blocks follow.
const RADIUS_STEP: u32 = 0;

/// The largest rate accepted: above it, coordinates could become subnormal and lose their law.
pub const MAX_BETA: f64 = 1e290;

/// `-ln` of the probability, never met, of a radius beyond the range that is checked beforehand.
const LOG_TAIL: f64 = 700.0;

/// One vector of dimension `size` with density proportional to `exp(-beta ||b||)`.
///
/// The norm is summed in a fixed order, so the vector does not depend on `n_threads`.
///
/// # Errors
/// `beta` not in (0, [`MAX_BETA`]] or so small that the vector could overflow; `n_threads` out of
/// range; no memory; interrupted.
pub fn gamma_ball(
    task: Task<'_>,
    size: usize,
    beta: f64,
    n_threads: usize,
    interrupt: &dyn Interrupt,
) -> Result<Vec<f64>> {
    check_beta(size, beta)?;
    let radius = if size == 0 {
        0.0
    } else {
        draw_radius(task, size, beta)?
    };
    if size <= 1 {
        // In one dimension the sphere is {-1, 1}.
        let positive: bool = task.stream(RADIUS_STEP + 1).random();
        let sign = if positive { 1.0 } else { -1.0 };
        return filled(size, sign * radius);
    }
    let mut vector = fill_blocks(task, 1, size, n_threads, interrupt, |stream, block| {
        // A block of zeros has no direction. It has probability below 2^-50 and is drawn again.
        while {
            fill_normal(stream, block, 1.0);
            block.iter().all(|z| *z == 0.0)
        } {}
    })?;
    let norm = norm(&vector, n_threads, interrupt)?;
    scale(&mut vector, norm, radius, n_threads, interrupt)?;
    Ok(vector)
}

/// Gamma with shape `size` and rate `beta`.
fn draw_radius(task: Task<'_>, size: usize, beta: f64) -> Result<f64> {
    let law = Gamma::new(size as f64, 1.0)
        .map_err(|e| Error::invalid("size", format!("got {size}: {e}")))?;
    Ok(law.sample(&mut task.stream(RADIUS_STEP)) / beta)
}

/// Refuses rates for which the radius could overflow: by the Chernoff bound, a Gamma variable of
/// shape `d` exceeds `d + sqrt(2 d t) + t` with probability at most `exp(-t)`.
fn check_beta(size: usize, beta: f64) -> Result<()> {
    let d = size as f64;
    let reach = d + (2.0 * d * LOG_TAIL).sqrt() + LOG_TAIL;
    let least = reach / f64::MAX;
    let message = format_args!(
        "got {beta}, expected a number from {least:e} (for dimension {size}) to {MAX_BETA:e}"
    );
    let right = beta > 0.0 && beta <= MAX_BETA && (reach / beta).is_finite();
    require(right, "beta", message)
}

/// Euclidean norm, summed block by block in a fixed order.
fn norm(vector: &[f64], n_threads: usize, interrupt: &dyn Interrupt) -> Result<f64> {
    let pool = pool_for(vector.len(), n_threads)?;
    let blocks = vector.len().div_ceil(BLOCK);
    let sums = map_blocks(pool.as_deref(), blocks, interrupt, |block| {
        let part = &vector[block * BLOCK..];
        let part = &part[..part.len().min(BLOCK)];
        Ok(part.iter().map(|z| z * z).sum::<f64>())
    })?;
    let parts = sums.chunks(BLOCKS_PER_POLL);
    let total: f64 = parts.map(|part| part.iter().sum::<f64>()).sum();
    Ok(total.sqrt())
}

/// `vector * (radius / norm)`, dividing first: the unit vector never overflows.
fn scale(
    vector: &mut [f64],
    norm: f64,
    radius: f64,
    n_threads: usize,
    interrupt: &dyn Interrupt,
) -> Result<()> {
    for part in vector.chunks_mut(BLOCKS_PER_POLL * BLOCK) {
        interrupt.check()?;
        let pool = pool_for(part.len(), n_threads)?;
        each_chunk(pool.as_deref(), part, BLOCK, &|_, block| {
            for value in block {
                *value = *value / norm * radius;
            }
        });
    }
    Ok(())
}
