//! Random assignment of records to parts, each record independently, with exact probabilities.

use crate::error::{Error, Result, require};
use crate::noise::coins::below;
use crate::noise::{Task, fill_blocks};
use crate::runtime::interrupt::Interrupt;
use crate::runtime::memory::with_capacity;

/// `size` independent part numbers, number j with probability `weights[j] / sum of weights`.
///
/// # Errors
/// Weights that are negative, all 0, or add up beyond 2^63; `n_threads` out of range; no memory;
/// interrupted.
pub fn random_parts(
    task: Task<'_>,
    size: usize,
    weights: &[i64],
    n_threads: usize,
    interrupt: &dyn Interrupt,
) -> Result<Vec<i64>> {
    let ends = ends(weights)?;
    let total = ends.last().copied().unwrap_or(0);
    let message = "expected at least one positive weight";
    require(total != 0, "weights", message)?;
    fill_blocks(task, 0, size, n_threads, interrupt, |stream, block| {
        for part in block {
            let at = below(stream, total);
            *part = ends.partition_point(|end| *end <= at) as i64;
        }
    })
}

/// Sums of the weights up to each one.
fn ends(weights: &[i64]) -> Result<Vec<u64>> {
    let mut ends = with_capacity(weights.len())?;
    let mut sum = 0_i64;
    for weight in weights {
        let next = sum.checked_add(*weight).filter(|_| *weight >= 0);
        let message = "expected integers of at least 0 whose sum is below 2**63";
        sum = next.ok_or_else(|| Error::invalid("weights", message))?;
        ends.push(sum as u64);
    }
    Ok(ends)
}
