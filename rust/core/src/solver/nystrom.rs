//! Preconditioner for conjugate gradients: the largest part of the Hessian, from a random sketch.
//!
//! The Hessian of the loss is close to `I (x) M` with `M = sum_i h_i u_i u_i^T`, `h_i` the mean
//! curvature of row i over its scores. With random `Omega` of `RANK` columns and `Y = M Omega` the
//! Nystrom approximation is `M ~ Y (Omega^T Y)^{-1} Y^T`, and by the Woodbury formula
//!
//! ```text
//! (nu I + Y (Omega^T Y)^{-1} Y^T)^{-1} = 1/nu (I - Y (nu Omega^T Y + Y^T Y)^{-1} Y^T).
//! ```
//!
//! `Y` takes one product with `RANK` columns, as much work as a few products with the Hessian.
//! Frangella, Tropp and Udell, SIAM J. Matrix Anal. Appl. 44 (2023). A preconditioner only changes
//! how fast the search ends, never its result's guarantee.

use super::design::{DenseTiles, Design, Product, SparsePanels};
use super::losses::SmoothLoss;
use super::smooth_problem::{SmoothProblem, Tile, TileMap};
use crate::error::Result;
use crate::parallel::Interrupt;
use crate::simd::Simd;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Columns of the sketch: the eigenvalues beyond the largest few dozen hardly differ.
const RANK: usize = 64;
/// Seed of the sketch: public, and the same for every problem.
const SKETCH_SEED: u64 = 0x5eed;

/// Multiplies a row's sketch by its mean curvature.
struct Weigh {
    loss: SmoothLoss,
}

impl TileMap<f32> for Weigh {
    #[inline(always)]
    fn apply<S: Simd>(&self, _simd: S, tile: Tile<'_, f32>) -> f64 {
        let rows = tile.scores.chunks_exact_mut(tile.stride);
        let states = tile.state.chunks_exact(tile.state_stride);
        for (row, state) in rows.zip(states) {
            let weight = self.loss.mean_curvature(state);
            row.iter_mut().for_each(|x| *x *= weight);
        }
        0.0
    }
}

/// The approximation, ready to be applied.
pub struct Preconditioner<D> {
    design: D,
    scores: usize,
    columns: usize,
    rank: usize,
    shift: f64,
    /// `Y L^{-T}` with `L L^T = nu Omega^T Y + Y^T Y`: `columns` x `rank`, row after row.
    factor: Vec<f64>,
}

impl<D: Design> Preconditioner<D> {
    /// The preconditioner at the curvature in `states`, and the work it took in products with the
    /// Hessian; `None` where the sketch is numerically useless.
    ///
    /// # Errors
    /// No memory, an interrupt.
    pub fn new(
        problem: &SmoothProblem<'_, D>,
        states: &mut [Vec<f32>],
        interrupt: &dyn Interrupt,
    ) -> Result<(Option<Self>, u64)> {
        let rank = std::env::var("RANK").map_or(RANK, |v| v.parse().unwrap()).min(problem.columns);
        let products = rank.div_ceil(problem.design.stride()) as u64;
        let (omega, image) = if problem.store.is_dense() {
            sketch(
                problem,
                DenseTiles::new(rank, problem.columns),
                rank,
                states,
                interrupt,
            )?
        } else {
            let panels = SparsePanels::<16>::new(rank, problem.columns);
            sketch(problem, panels, rank, states, interrupt)?
        };
        let factor = factor(&omega, &image, (problem.columns, rank), problem.lambda);
        let built = factor.map(|factor| Self {
            design: problem.design,
            scores: problem.loss.scores,
            columns: problem.columns,
            rank,
            shift: problem.lambda,
            factor,
        });
        Ok((built, products))
    }

    /// `P^{-1} residual`.
    pub fn apply(&self, residual: &[f64]) -> Vec<f64> {
        let (k, d, rank) = (self.scores, self.columns, self.rank);
        let mut lines = vec![0.0; k * d];
        for score in 0..k {
            for column in 0..d {
                lines[score * d + column] = residual[self.design.position(score, column)];
            }
        }
        // k x rank, then back to k x d.
        let mut inner = vec![0.0; k * rank];
        f64::add_product(&lines, &self.factor, &mut inner, (k, d, rank), 1.0);
        f64::add_product_transposed(&inner, &self.factor, &mut lines, (k, rank, d), -1.0);
        let mut out = vec![0.0; residual.len()];
        let inverse = 1.0 / self.shift;
        for score in 0..k {
            for column in 0..d {
                out[self.design.position(score, column)] = lines[score * d + column] * inverse;
            }
        }
        out
    }
}

/// `Omega` and `Y`, both `columns` x `rank`, row after row.
fn sketch<D: Design, W: Design>(
    problem: &SmoothProblem<'_, D>,
    design: W,
    rank: usize,
    states: &mut [Vec<f32>],
    interrupt: &dyn Interrupt,
) -> Result<(Vec<f64>, Vec<f64>)> {
    let d = problem.columns;
    let mut random = ChaCha8Rng::seed_from_u64(SKETCH_SEED);
    let mut narrow = vec![0.0f32; design.stored()];
    let mut omega = vec![0.0; d * rank];
    for column in 0..d {
        for direction in 0..rank {
            // With as many directions as columns the unit vectors give M itself.
            let sign = if rank == d {
                f32::from(u8::from(column == direction))
            } else if random.next_u32() & 1 == 0 {
                1.0
            } else {
                -1.0
            };
            narrow[design.position(direction, column)] = sign;
            omega[column * rank + direction] = f64::from(sign);
        }
    }
    let mut work = problem.workspace::<f32>(design.stored())?;
    let mut total = vec![0.0; design.stored()];
    let map = Weigh { loss: problem.loss };
    problem.sweep(
        (design, &*narrow),
        &map,
        (&mut work, states),
        &mut total,
        interrupt,
    )?;
    let mut image = vec![0.0; d * rank];
    for column in 0..d {
        for direction in 0..rank {
            image[column * rank + direction] = total[design.position(direction, column)];
        }
    }
    Ok((omega, image))
}

/// `Y L^{-T}` with `L L^T = nu Omega^T Y + Y^T Y`; `None` when that matrix is not positive.
fn factor(omega: &[f64], image: &[f64], (d, rank): (usize, usize), shift: f64) -> Option<Vec<f64>> {
    let mut inner = vec![0.0; rank * rank];
    f64::add_transposed_times(omega, image, &mut inner, (d, rank, rank));
    // Symmetric but for rounding.
    let mut matrix = vec![0.0; rank * rank];
    for i in 0..rank {
        for j in 0..rank {
            matrix[i * rank + j] = 0.5 * shift * (inner[i * rank + j] + inner[j * rank + i]);
        }
    }
    f64::add_transposed_times(image, image, &mut matrix, (d, rank, rank));
    let trace: f64 = (0..rank).map(|i| matrix[i * rank + i]).sum();
    if !(trace > 0.0 && trace.is_finite()) {
        return None;
    }
    // Single precision leaves this much noise in Y.
    (0..rank).for_each(|i| matrix[i * rank + i] += JITTER * trace);
    cholesky(&mut matrix, rank)?;
    let mut factor = image.to_vec();
    for row in factor.chunks_exact_mut(rank) {
        // Solves L x = y, so that rows become those of Y L^{-T}.
        for i in 0..rank {
            let (done, rest) = row.split_at_mut(i);
            let line = &matrix[i * rank..i * rank + i];
            let known: f64 = line.iter().zip(done).map(|(l, x)| l * *x).sum();
            rest[0] = (rest[0] - known) / matrix[i * rank + i];
        }
    }
    Some(factor)
}

/// Regularisation of the small matrix, relative to its trace.
const JITTER: f64 = 1e-12;

/// Lower Cholesky factor in place (the upper part is left as it is).
fn cholesky(a: &mut [f64], n: usize) -> Option<()> {
    for i in 0..n {
        for j in 0..=i {
            let known: f64 = (0..j).map(|k| a[i * n + k] * a[j * n + k]).sum();
            let rest = a[i * n + j] - known;
            if i == j {
                if !(rest > 0.0) {
                    return None;
                }
                a[i * n + i] = rest.sqrt();
            } else {
                a[i * n + j] = rest / a[j * n + j];
            }
        }
    }
    Some(())
}
