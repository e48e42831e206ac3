//! Fast Gaussian noise in floating point (ziggurat).

use crate::error::Result;
use crate::noise::{Task, check_sigma, fill_blocks};
use crate::runtime::interrupt::Interrupt;
use rand::Rng;
use rand_distr::{Distribution, StandardNormal};

/// `size` independent draws of N(0, `sigma`^2), rounded as double precision rounds.
///
/// For places whose proof allows floating-point noise; a release on a grid uses
/// [`gaussian_on_grid`](crate::noise::gaussian_on_grid).
///
/// # Errors
/// `sigma` neither 0 nor in [`MIN_SIGMA`](crate::noise::MIN_SIGMA)..=[`MAX_SIGMA`](crate::noise::MAX_SIGMA);
/// `n_threads` out of range; no memory; interrupted.
pub fn gaussian(
    task: Task<'_>,
    size: usize,
    sigma: f64,
    n_threads: usize,
    interrupt: &dyn Interrupt,
) -> Result<Vec<f64>> {
    check_sigma(sigma)?;
    fill_blocks(task, 0, size, n_threads, interrupt, |stream, block| {
        if sigma != 0.0 {
            fill_normal(stream, block, sigma);
        }
    })
}

/// Overwrites `values` with draws of N(0, `sigma`^2).
pub fn fill_normal<R: Rng>(rng: &mut R, values: &mut [f64], sigma: f64) {
    for value in values {
        let z: f64 = StandardNormal.sample(rng);
        *value = sigma * z;
    }
}
