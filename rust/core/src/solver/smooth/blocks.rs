//! Passes over rows, each met once: dense ones, and sparse ones without columns (one score, or no copy).
//!
//! Rows are taken in fixed blocks, blocks in rounds: in a round each block adds up the terms of
//! its next rows, then the sums are added in block order. So no result depends on the number of
//! threads, few terms are added one after the other, and the interrupt is looked at often.

use crate::error::Result;
use crate::layout::tiles::{TileScratch, Tiles};
use crate::linalg::gemm::Product;
use crate::rows::shuffled::Store;
use crate::runtime::memory::{matrix, zeros};
use crate::runtime::threads::{PARALLEL_WORK, each_block, each_chunk};
use crate::simd::{Kernel, Real, Simd, dispatch, dot};
use crate::solver::smooth::problem::{Gradient, Hessian, Pass, Passes, RowMap, RowSample};
use rayon::ThreadPool;
use std::ops::Range;

/// Scores that a vector holds.
const LANES: usize = 16;
/// Largest number of blocks. A sample of the rows is a sixteenth of them.
const MAX_BLOCKS: usize = 64;
/// Rows a block needs at least.
const MIN_BLOCK: usize = 128;
/// Multiplications of one block in one round: a millisecond or two.
const ROUND_WORK: usize = 1 << 21;
/// Summing the blocks' results costs at most one part in so many of the work on rows.
const SUM_SHARE: usize = 8;
/// The sample is one in so many blocks. Measured on MNIST and USPS: 4 costs 20 to 50 % more time than
/// 16, and 8 up to 25 %.
pub const SAMPLE_SHARE: usize = 16;

/// Rows, their blocks and their working memory.
pub struct BlockPasses<'p, 'a> {
    /// Place of each column; empty if it is the column itself.
    place: &'p [u32],
    sweep: Sweep<'p, 'a>,
    double: Vec<Block<f64>>,
    single: Vec<Block<f32>>,
    /// Curvature of every row, by block.
    states: Vec<Vec<f32>>,
    narrow: Vec<f32>,
    n: usize,
    longest_row: usize,
}

impl<'p, 'a> BlockPasses<'p, 'a> {
    /// Cuts `n` rows into blocks; `shape` is that of the weights.
    ///
    /// # Errors
    /// No memory.
    pub fn new(
        (store, place): (&'p Store<'a>, &'p [u32]),
        pool: Option<&'p ThreadPool>,
        n: usize,
        shape: (usize, usize),
    ) -> Result<Self> {
        let (scores, columns) = shape;
        let touched = store.touched(scores).max(1);
        let design = Tiles::new(scores, columns, store.is_dense());
        let sums = SUM_SHARE.saturating_mul(design.stored()).max(1);
        let count = block_count(store, n, shape);
        let blocks: Vec<_> = (0..count)
            .map(|b| n * b / count..n * (b + 1) / count)
            .collect();
        let round = (ROUND_WORK / touched).max(sums / touched);
        // One score is as slow as a whole vector of them.
        let large = n * touched.max(touched * LANES / scores) >= PARALLEL_WORK;
        let room = |rows: &Range<usize>| matrix(rows.len(), scores);
        let sweep = Sweep {
            store,
            design,
            scores,
            pool: pool.filter(|_| large && count > 1),
            round: round.max(1).next_multiple_of(design.tile()),
        };
        Ok(Self {
            place,
            longest_row: store.longest_row(columns),
            sweep,
            double: workspace(&blocks, design.stored())?,
            single: workspace(&blocks, design.stored())?,
            states: blocks.iter().map(room).collect::<Result<_>>()?,
            narrow: zeros(design.stored())?,
            n,
        })
    }
}

/// Number of blocks: few where their sums would be larger than the rows.
fn block_count(store: &Store<'_>, n: usize, (scores, columns): (usize, usize)) -> usize {
    let dense = store.is_dense();
    let stored = Tiles::new(scores, columns, dense).stored();
    let sums = SUM_SHARE.saturating_mul(stored).max(1);
    // With sparse rows and several scores the sums would be larger than the rows.
    let most = n * store.touched(scores).max(1) / sums / if dense { 1 } else { scores };
    most.clamp(1, MAX_BLOCKS).min(n / MIN_BLOCK).max(1)
}

/// Whether sparse rows are enough for a sample of them that tells something about the rest.
pub fn sampled(store: &Store<'_>, n: usize, shape: (usize, usize)) -> bool {
    block_count(store, n, shape) >= SAMPLE_SHARE
}

/// Working memory of the blocks.
fn workspace<T: Real>(blocks: &[Range<usize>], stored: usize) -> Result<Vec<Block<T>>> {
    blocks
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

/// Context of a sweep besides the blocks.
struct Sweep<'s, 'a> {
    store: &'s Store<'a>,
    design: Tiles,
    scores: usize,
    pool: Option<&'s ThreadPool>,
    /// Rows a block adds up in one round.
    round: usize,
}

impl Sweep<'_, '_> {
    /// `total = sum over rows of map(scores)^T row`, where `w` gives the scores. Returns the sum of
    /// what the map returned.
    fn run<T: Product, M: RowMap<T>>(
        &self,
        w: &[T],
        map: &M,
        (work, states): (&mut [Block<T>], &mut [Vec<f32>]),
        total: &mut [f64],
        pass: Pass<'_>,
    ) -> Result<f64> {
        // An empty slice stands for weights of 0, whose scores need no row.
        let still = !self.store.is_dense() && w.iter().all(|w| *w == T::default());
        let w: &[T] = if still { &[] } else { w };
        let used = work.partition_point(|block| block.rows.start < pass.rows.rows.max(1));
        let work = &mut work[..used];
        total.fill(0.0);
        for block in work.iter_mut() {
            block.done = block.rows.start;
            block.size = 0.0;
        }
        while work.iter().any(|block| block.done < block.rows.end) {
            let mut tasks: Vec<_> = work.iter_mut().zip(states.iter_mut()).collect();
            each_block(self.pool, &mut tasks, pass.interrupt, |(block, state)| {
                let end = block.rows.end.min(block.done + self.round);
                let first = (block.done - block.rows.start) * self.scores;
                let rows = block.done..end;
                block.done = end;
                dispatch(Round {
                    sweep: self,
                    w,
                    map,
                    rows,
                    state: &mut state[first..],
                    block,
                })
            })?;
            add_up(self.pool, work, total);
        }
        Ok(work.iter().map(|block| block.size).sum())
    }
}

impl Passes for BlockPasses<'_, '_> {
    type Narrow = f64;

    fn stored(&self) -> usize {
        self.sweep.design.stored()
    }

    fn place(&self, column: usize) -> usize {
        let place = self.place.get(column);
        place.map_or(column, |place| *place as usize)
    }

    fn position(&self, score: usize, place: usize) -> usize {
        self.sweep.design.position(score, place)
    }

    fn store(&self) -> &Store<'_> {
        self.sweep.store
    }

    fn sample(&self) -> RowSample {
        // Sparse rows in fewer blocks tell too little about the rest.
        let nests = self.sweep.store.is_dense() || self.double.len() >= SAMPLE_SHARE;
        let share = if nests { SAMPLE_SHARE } else { 1 };
        let blocks = self.double.len().div_ceil(share);
        RowSample::new(self.double[blocks - 1].rows.end, self.n)
    }

    fn gradient(&mut self, pass: Pass<'_>, weights: &[f64], total: &mut [f64]) -> Result<f64> {
        let map = Gradient(pass.problem);
        if pass.rough {
            for (narrow, x) in self.narrow.iter_mut().zip(weights) {
                *narrow = *x as f32;
            }
            let work = (&mut *self.single, &mut *self.states);
            return self.sweep.run(&self.narrow, &map, work, total, pass);
        }
        let work = (&mut *self.double, &mut *self.states);
        self.sweep.run(weights, &map, work, total, pass)
    }

    fn product(&mut self, pass: Pass<'_>, v: &[f64], image: &mut [f64]) -> Result<f64> {
        // Scaled into the range of single precision by a power of two.
        let top = v.iter().fold(0.0f64, |top, x| top.max(x.abs()));
        if top == 0.0 {
            image.fill(0.0);
            return Ok(0.0);
        }
        let exponent = libm::frexp(top).1;
        let (down, up) = (libm::ldexp(1.0, -exponent), libm::ldexp(1.0, exponent));
        for (narrow, x) in self.narrow.iter_mut().zip(v) {
            *narrow = (x * down) as f32;
        }
        let map = Hessian(pass.problem);
        let work = (&mut *self.single, &mut *self.states);
        self.sweep.run(&self.narrow, &map, work, image, pass)?;
        for (out, x) in image.iter_mut().zip(v) {
            *out = *out * up + pass.rows.share * pass.problem.lambda * x;
        }
        Ok(dot(v, image))
    }

    fn curvature(&self, row: usize) -> f32 {
        let block = self.double.partition_point(|block| block.rows.end <= row);
        self.states[block][row - self.double[block].rows.start]
    }

    fn depths(&self) -> (f64, f64) {
        let longest = self.double.iter().map(|block| block.rows.len()).max();
        let longest = longest.unwrap_or(0);
        let rounds = longest.div_ceil(self.sweep.round);
        let sums = longest.min(self.sweep.round) + rounds * self.double.len() + 2;
        (self.sweep.design.score_depth(self.longest_row), sums as f64)
    }
}

/// One block's rows and its scratch space.
struct Block<T> {
    rows: Range<usize>,
    done: usize,
    sum: Vec<T>,
    scratch: TileScratch<T>,
    /// Sum of what the map returned for its rows.
    size: f64,
}

struct Round<'p, 'a, T, M> {
    sweep: &'p Sweep<'p, 'a>,
    w: &'p [T],
    map: &'p M,
    rows: Range<usize>,
    state: &'p mut [f32],
    block: &'p mut Block<T>,
}

impl<T: Product, M: RowMap<T>> Kernel for Round<'_, '_, T, M> {
    type Output = Result<()>;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> Result<()> {
        let (block, sweep) = (self.block, self.sweep);
        let (design, store) = (sweep.design, sweep.store);
        let tile = design.tile();
        let mut at = self.rows.start;
        let mut state = self.state;
        while at < self.rows.end {
            let rows = at..self.rows.end.min(at + tile);
            at = rows.end;
            let scratch = &mut block.scratch;
            design.scores(simd, store, rows.clone(), self.w, scratch)?;
            let (own, rest) = state.split_at_mut(rows.len() * sweep.scores);
            state = rest;
            let scores = scratch.scores.chunks_exact_mut(sweep.scores);
            let states = own.chunks_exact_mut(sweep.scores);
            // Apart, as the block's own sum would be rounded in another order.
            let mut size = 0.0;
            for (row, (scores, state)) in rows.clone().zip(scores.zip(states)) {
                size += self.map.apply(simd, row, scores, state);
            }
            block.size += size;
            design.accumulate(simd, store, rows, &mut block.sum, scratch)?;
        }
        Ok(())
    }
}

/// Weights that one thread adds up.
const SUM_CHUNK: usize = 1 << 14;

/// Adds every block's sum to `total`, in block order, and clears it.
fn add_up<T: Real>(pool: Option<&ThreadPool>, work: &mut [Block<T>], total: &mut [f64]) {
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
    let pool = pool.filter(|_| total.len() > SUM_CHUNK);
    each_chunk(pool, total, SUM_CHUNK, &part);
    for block in work {
        block.sum.fill(T::default());
    }
}
