//! Symmetric Gaussian matrices.

use crate::error::{Error, Result};
use crate::noise::gaussian::fill_normal;
use crate::noise::{Task, check_sigma, fill_parts};
use crate::runtime::interrupt::Interrupt;

/// Side of the tiles in which the upper triangle is copied to the lower one: two tiles of 32 KB
/// fit in the first cache levels.
const TILE: usize = 64;

/// A symmetric `d` by `d` matrix, row after row: independent entries on and above the diagonal,
/// variance `sigma^2` on the diagonal and `sigma^2 / 2` off it.
///
/// This is the isotropic Gaussian of the space of symmetric matrices under the Frobenius norm.
/// Row `i` is drawn from the task's stream `i`. Floating point, as [`gaussian`](crate::noise::gaussian).
///
/// # Errors
/// `sigma` neither 0 nor in [`MIN_SIGMA`](crate::noise::MIN_SIGMA)..=[`MAX_SIGMA`](crate::noise::MAX_SIGMA);
/// `n_threads` out of range; no memory; interrupted.
pub fn symmetric_gaussian(
    task: Task<'_>,
    d: usize,
    sigma: f64,
    n_threads: usize,
    interrupt: &dyn Interrupt,
) -> Result<Vec<f64>> {
    check_sigma(sigma)?;
    let size = d.checked_mul(d).filter(|_| u32::try_from(d).is_ok());
    let size = size.ok_or_else(|| Error::invalid("d", format!("got {d}, too large")))?;
    let mut matrix = fill_parts((size, d), n_threads, interrupt, |i, row| {
        draw_row(task, i, row, sigma);
    })?;
    mirror(&mut matrix, d, interrupt)?;
    Ok(matrix)
}

/// Draws row `i` from the diagonal on.
fn draw_row(task: Task<'_>, i: usize, row: &mut [f64], sigma: f64) {
    if sigma == 0.0 {
        return;
    }
    fill_normal(&mut task.stream(i as u32), &mut row[i..], sigma);
    for value in &mut row[i + 1..] {
        *value *= std::f64::consts::FRAC_1_SQRT_2;
    }
}

/// Copies the upper triangle to the lower one.
fn mirror(matrix: &mut [f64], d: usize, interrupt: &dyn Interrupt) -> Result<()> {
    for top in (0..d).step_by(TILE) {
        for left in (top..d).step_by(TILE) {
            for i in top..d.min(top + TILE) {
                for j in left.max(i + 1)..d.min(left + TILE) {
                    matrix[j * d + i] = matrix[i * d + j];
                }
            }
        }
        interrupt.check()?;
    }
    Ok(())
}
