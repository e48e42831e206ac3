//! The smooth problem in the units of the solver, its gradient with an error bound, and products
//! with its Hessian.
//!
//! With `u_i` the row of record i (norm at most 1) and `V` the weights, one row a score:
//!
//! ```text
//! J(V) = sum_i phi_{y_i}(V u_i) + lambda/2 ||V||_F^2 + <B, V>
//! grad J(V) = sum_i a_i u_i^T + lambda V + B
//! ```
//!
//! Rows are taken in fixed blocks, blocks in rounds: in a round each block adds up the terms of
//! its next rows, then the sums are added in block order. So no result depends on the number of
//! threads, few terms are added one after the other, and the interrupt is looked at often.

use crate::error::{Error, Result};
use crate::layout::tiles::{Design, TileScratch};
use crate::linalg::gemm::Product;
use crate::loss::smooth::SmoothLoss;
use crate::rows::shuffled::Store;
use crate::rows::view::Rows;
use crate::runtime::interrupt::Interrupt;
use crate::runtime::memory::{mapped, matrix, zeros};
use crate::runtime::threads::{PARALLEL_WORK, each_block};
use crate::simd::{Kernel, Real, Simd, dispatch};
use rayon::ThreadPool;
use std::ops::Range;
use std::sync::Arc;

/// What the caller asks of the solver; plain public numbers.
#[derive(Debug, Clone, Copy)]
pub struct SmoothSettings {
    /// The loss.
    pub loss: SmoothLoss,
    /// lambda, in the user's units.
    pub regularization: f64,
    /// Norm of the gradient that must be certified, in the user's units.
    pub gradient_tol: f64,
    /// Most Newton steps; `None` runs until certified.
    pub max_steps: Option<u64>,
    /// Public seed of the order in which rows are visited.
    pub seed: u64,
    /// Threads; the result does not depend on it.
    pub threads: usize,
    /// Keep no working copy of the rows.
    pub low_memory: bool,
}

/// A problem ready to be solved, for one layout of the weights.
pub struct SmoothProblem<'a, D> {
    /// Rows in the solver's order.
    pub store: Store<'a>,
    /// Class of each row.
    pub label: Vec<u32>,
    /// The loss.
    pub loss: SmoothLoss,
    /// Layout of the weights.
    pub design: D,
    /// Entries of a row, the intercept included.
    pub columns: usize,
    /// lambda in the solver's units: `lambda / 4^e`.
    pub lambda: f64,
    /// `B / 2^e` in the layout of the weights.
    pub linear: Vec<f64>,
    /// Gradient norm to certify, in the solver's units: `gradient_tol / 2^e`.
    pub target: f64,
    /// Weights in the user's units are the solver's times this, a power of two.
    pub unscale: f64,
    /// Pool for the passes; `None` for one thread or a small problem.
    pub pool: Option<Arc<ThreadPool>>,
    /// Longest row.
    pub longest_row: usize,
    /// Rows a block adds up in one round.
    pub round: usize,
    /// Boundaries of the blocks.
    pub blocks: Vec<Range<usize>>,
}

/// Scores that a vector holds.
const LANES: usize = 16;
/// Blocks at most. A sample of the rows is a sixteenth of them.
const MOST_BLOCKS: usize = 64;
/// Rows a block needs at least.
const LEAST_BLOCK: usize = 128;
/// Multiplications of one block in one round: a millisecond or two.
const ROUND_WORK: usize = 1 << 21;
/// What summing up the blocks' results may cost, as a share of the work on rows.
const SUM_SHARE: usize = 8;

/// Powers of two between the user's units and the solver's; exact.
pub struct Scaled {
    /// `lambda / 4^e`.
    pub lambda: f64,
    /// `gradient_tol / 2^e`.
    pub target: f64,
    /// `2^-e`: takes weights to the user's units and the linear term to the solver's.
    pub unscale: f64,
}

impl Scaled {
    /// Checks and scales the public numbers.
    ///
    /// # Errors
    /// Numbers outside the range in which nothing overflows.
    pub fn new(rows: &Rows<'_>, settings: &SmoothSettings) -> Result<Self> {
        let exponent = rows.bounds().exponent();
        let lambda = libm::ldexp(settings.regularization, -2 * exponent);
        let target = libm::ldexp(settings.gradient_tol, -exponent);
        let accepted = 1e-60..=1e60;
        if !accepted.contains(&settings.regularization) || !accepted.contains(&lambda) {
            let message = "it and its ratio to data_norm^2 must lie between 1e-60 and 1e60";
            return Err(Error::invalid("regularization", message));
        }
        if !(target > 1e-100 && target.is_finite()) {
            let message = "expected a positive number of usual size";
            return Err(Error::invalid("gradient_tol", message));
        }
        Ok(Self {
            lambda,
            target,
            unscale: libm::ldexp(1.0, -exponent),
        })
    }
}

impl<'a, D: Design> SmoothProblem<'a, D> {
    /// Cuts the rows into blocks; `linear` is in the user's units and order.
    ///
    /// # Errors
    /// Nothing at present; labels and numbers have been checked.
    pub fn new(
        (store, order): (Store<'a>, Vec<u32>),
        pool: Option<Arc<ThreadPool>>,
        labels: &[i64],
        linear: Option<&[f64]>,
        design: D,
        scaled: &Scaled,
        (columns, settings): (usize, &SmoothSettings),
    ) -> Result<Self> {
        let loss = settings.loss;
        let label = mapped(&order, |i| labels[*i as usize] as u32)?;
        let n = order.len();
        let touched = store.touched(design.stride()).max(1);
        let most = (n * touched / (SUM_SHARE * design.stored()).max(1)).clamp(1, MOST_BLOCKS);
        let count = most.min(n / LEAST_BLOCK).max(1);
        let blocks = (0..count)
            .map(|b| n * b / count..n * (b + 1) / count)
            .collect();
        let round = (ROUND_WORK / touched).max(SUM_SHARE * design.stored() / touched);
        let tile = design.tile();
        // One score is as slow as a whole vector of them.
        let large = n * touched.max(touched * LANES / design.stride()) >= PARALLEL_WORK;
        let mut problem = Self {
            longest_row: store.longest_row(columns),
            store,
            label,
            loss,
            design,
            columns,
            lambda: scaled.lambda,
            linear: zeros(design.stored())?,
            target: scaled.target,
            unscale: scaled.unscale,
            pool: pool.filter(|_| large && count > 1),
            round: round.max(1).next_multiple_of(tile),
            blocks,
        };
        for (at, b) in linear.unwrap_or(&[]).iter().enumerate() {
            let place = design.position(at / columns, at % columns);
            problem.linear[place] = b * scaled.unscale;
        }
        Ok(problem)
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.label.len()
    }

    /// Working memory of the blocks.
    ///
    /// # Errors
    /// No memory.
    pub fn workspace<T: Real>(&self, stored: usize) -> Result<Vec<Block<T>>> {
        self.blocks
            .iter()
            .map(|rows| {
                Ok(Block {
                    rows: rows.clone(),
                    done: rows.start,
                    sum: zeros(stored)?,
                    scratch: TileScratch::default(),
                    size: 0.0,
                })
            })
            .collect()
    }

    /// `total = sum over rows of map(scores)^T row`, where `w` gives the scores.
    ///
    /// # Errors
    /// An interrupt.
    pub fn sweep<T: Real + Product, W: Design, M: TileMap<T>>(
        &self,
        (design, w): (W, &[T]),
        map: &M,
        (work, states): (&mut [Block<T>], &mut [Vec<f32>]),
        total: &mut [f64],
        interrupt: &dyn Interrupt,
    ) -> Result<()> {
        total.fill(0.0);
        for block in work.iter_mut() {
            block.done = block.rows.start;
            block.size = 0.0;
        }
        let pool = self.pool.as_deref();
        let state_stride = self.design.stride();
        while work.iter().any(|block| block.done < block.rows.end) {
            let mut tasks: Vec<_> = work.iter_mut().zip(states.iter_mut()).collect();
            each_block(pool, &mut tasks, interrupt, |(block, state)| {
                let end = block.rows.end.min(block.done + self.round);
                let first = (block.done - block.rows.start) * state_stride;
                dispatch(Round {
                    store: &self.store,
                    design,
                    w,
                    map,
                    rows: block.done..end,
                    state: &mut state[first..],
                    state_stride,
                    block,
                });
                block.done = end;
            })?;
            add_up(pool, work, total);
        }
        Ok(())
    }

    /// Room for the curvature of every row, by block.
    ///
    /// # Errors
    /// No memory.
    pub fn states(&self) -> Result<Vec<Vec<f32>>> {
        let stride = self.design.stride();
        let room = |rows: &Range<usize>| matrix(rows.len(), stride);
        self.blocks.iter().map(room).collect()
    }

    /// Most roundings that a term of a sum over rows goes through.
    pub fn sum_depth(&self) -> f64 {
        let longest = self.blocks.iter().map(Range::len).max().unwrap_or(0);
        let rounds = longest.div_ceil(self.round);
        (longest.min(self.round) + rounds * self.blocks.len() + 2) as f64
    }
}

/// One block's rows and what it works with.
pub struct Block<T> {
    rows: Range<usize>,
    done: usize,
    sum: Vec<T>,
    scratch: TileScratch<T>,
    /// Sum of what the map returned for its rows.
    pub size: f64,
}

/// A tile on its way from scores to coefficients.
pub struct Tile<'t, T> {
    /// Places of its rows in the solver's order.
    pub rows: Range<usize>,
    /// Scores in, coefficients out: `stride` numbers a row.
    pub scores: &'t mut [T],
    /// Numbers a row has in `scores`.
    pub stride: usize,
    /// Curvature: `state_stride` numbers a row.
    pub state: &'t mut [f32],
    /// Numbers a row has in `state`.
    pub state_stride: usize,
}

/// Turns the scores of a tile into coefficients.
pub trait TileMap<T>: Sync {
    /// Rewrites the scores; what it returns is added up.
    fn apply<S: Simd>(&self, simd: S, tile: Tile<'_, T>) -> f64;
}

struct Round<'p, 'a, T, D, M> {
    store: &'p Store<'a>,
    design: D,
    w: &'p [T],
    map: &'p M,
    rows: Range<usize>,
    state: &'p mut [f32],
    state_stride: usize,
    block: &'p mut Block<T>,
}

impl<T: Real + Product, D: Design, M: TileMap<T>> Kernel for Round<'_, '_, T, D, M> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let (design, block) = (self.design, self.block);
        let (stride, tile) = (design.stride(), design.tile());
        let mut at = self.rows.start;
        let mut state = self.state;
        while at < self.rows.end {
            let rows = at..self.rows.end.min(at + tile);
            at = rows.end;
            let scratch = &mut block.scratch;
            design.scores(simd, self.store, rows.clone(), self.w, scratch);
            let (own, rest) = state.split_at_mut(rows.len() * self.state_stride);
            state = rest;
            let tile = Tile {
                rows: rows.clone(),
                scores: &mut scratch.scores,
                stride,
                state: own,
                state_stride: self.state_stride,
            };
            block.size += self.map.apply(simd, tile);
            design.accumulate(simd, self.store, rows, &mut block.sum, scratch);
        }
    }
}

/// Weights that one thread adds up.
const SUM_CHUNK: usize = 1 << 14;

/// Adds every block's sum to `total`, in block order, and clears it.
fn add_up<T: Real>(pool: Option<&ThreadPool>, work: &mut [Block<T>], total: &mut [f64]) {
    use rayon::prelude::*;
    let sums: Vec<&[T]> = work.iter().map(|block| &*block.sum).collect();
    let part = |chunk: usize, total: &mut [f64]| {
        let first = chunk * SUM_CHUNK;
        for sum in &sums {
            let sum = &sum[first..first + total.len()];
            for (total, x) in total.iter_mut().zip(sum) {
                *total += x.wide();
            }
        }
    };
    match pool {
        Some(pool) if total.len() > SUM_CHUNK => pool.install(|| {
            let chunks = total.par_chunks_mut(SUM_CHUNK).enumerate();
            chunks.for_each(|(chunk, total)| part(chunk, total));
        }),
        _ => {
            for (chunk, total) in total.chunks_mut(SUM_CHUNK).enumerate() {
                part(chunk, total);
            }
        }
    }
    for block in work {
        block.sum.fill(T::default());
    }
}
