//! Parts of the truncated Newton search: points, parts of the rows, what happens to a tile of
//! scores, and plain vectors.

use crate::layout::tiles::Design;
use crate::loss::smooth::SmoothLoss;
use crate::simd::Simd;
use crate::solver::smooth::problem::{SmoothProblem, Tile, TileMap};

/// What the search found.
pub struct Minimum {
    /// Weights, in the layout of the problem; `None` when the steps allowed ran out, or rounding
    /// kept the bound from reaching the target.
    pub weights: Option<Vec<f64>>,
    /// Certified bound of the gradient's norm at the last point.
    pub gradient_norm: f64,
    /// Newton steps.
    pub steps: u64,
    /// Gradients.
    pub gradients: u64,
    /// Products with the Hessian over all rows.
    pub products: u64,
    /// Products with the Hessian over a sample of the rows.
    pub sample_products: u64,
}

/// The first blocks of rows, and their share of all rows.
#[derive(Debug, Clone, Copy)]
pub struct RowSample {
    /// Number of blocks.
    pub blocks: usize,
    /// Their share of the rows.
    pub share: f64,
}

impl RowSample {
    /// The first `blocks` of them.
    pub fn of<D: Design>(problem: &SmoothProblem<'_, D>, blocks: usize) -> Self {
        let rows = problem.blocks[blocks - 1].end as f64;
        let share = rows / (problem.len() as f64).max(1.0);
        Self {
            blocks,
            share: if blocks == problem.blocks.len() {
                1.0
            } else {
                share
            },
        }
    }
}

/// A point, its gradient and what is known of its error.
pub struct NewtonPoint {
    /// The point.
    pub weights: Vec<f64>,
    /// The computed gradient.
    pub gradient: Vec<f64>,
    /// Norm of the computed gradient.
    pub norm: f64,
    /// Bound of the error of the computed gradient, in norm.
    pub error: f64,
    /// Sum of the norms of the rows' gradients in score space.
    pub sizes: f64,
}

/// Gradient of the loss; keeps the curvature for later products.
pub struct Gradient<'p> {
    /// The loss.
    pub loss: SmoothLoss,
    /// Class of each row.
    pub label: &'p [u32],
}

impl TileMap<f64> for Gradient<'_> {
    #[inline(always)]
    fn apply<S: Simd>(&self, _simd: S, tile: Tile<'_, f64>) -> f64 {
        let labels = &self.label[tile.rows];
        let rows = tile.scores.chunks_exact_mut(tile.stride);
        let states = tile.state.chunks_exact_mut(tile.state_stride);
        let mut size = 0.0;
        for ((row, state), label) in rows.zip(states).zip(labels) {
            self.loss.gradient_row(*label as usize, row, state);
            size += row.iter().map(|a| a * a).sum::<f64>().sqrt();
        }
        size
    }
}

/// Product with the Hessian of the loss.
pub struct Hessian<'p> {
    /// The loss.
    pub loss: SmoothLoss,
    /// Class of each row.
    pub label: &'p [u32],
}

impl TileMap<f32> for Hessian<'_> {
    #[inline(always)]
    fn apply<S: Simd>(&self, simd: S, tile: Tile<'_, f32>) -> f64 {
        let labels = &self.label[tile.rows];
        let rows = tile.scores.chunks_exact_mut(tile.stride);
        let states = tile.state.chunks_exact(tile.state_stride);
        for ((row, state), label) in rows.zip(states).zip(labels) {
            self.loss.hessian_row(simd, *label as usize, row, state);
        }
        0.0
    }
}

/// Sums kept apart, so that the loop runs in vectors.
const CHAINS: usize = 8;

/// Inner product.
pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    let (a, a_rest) = a.as_chunks::<CHAINS>();
    let (b, b_rest) = b.as_chunks::<CHAINS>();
    let mut sums = [0.0; CHAINS];
    for (a, b) in a.iter().zip(b) {
        for chain in 0..CHAINS {
            sums[chain] += a[chain] * b[chain];
        }
    }
    let rest: f64 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f64>() + rest
}

/// Euclidean norm.
pub fn norm(a: &[f64]) -> f64 {
    dot(a, a).sqrt()
}

/// `y += a x`.
pub fn add(y: &mut [f64], a: f64, x: &[f64]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y += a * x;
    }
}
