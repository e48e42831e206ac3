//! Zero as the minimiser.
//!
//! If many classes overlap in few columns, zero weights may be optimal. They are so if and only
//! if there are duals without a share of the rows' own classes that make the weights 0:
//!
//! ```text
//! c_{i,y_i} = 0   and   sum_i c_ik u_i = C sum_{i: y_i = k} u_i   for every class k.
//! ```
//!
//! From any duals, those of this kind that are nearest in relative entropy are
//! `c_ik exp(<l_k, u_i>) / z_i`, and `l` minimises a smooth convex function: some Newton steps find it,
//! where the proximal points, whose projections have bends for thousands of rows, need twenty and more.
//! The certificate judges the weights: nothing is proved here.

use crate::error::Result;
use crate::layout::weights::{WeightLayout, typed};
use crate::runtime::interrupt::Interrupt;
use crate::runtime::memory::{append, copied, mapped, with_capacity, zeros};
use crate::runtime::threads::each_block;
use crate::simd::{Kernel, Simd, dispatch};
use crate::solver::crammer_singer::end_game::proximal::to_alpha;
use crate::solver::crammer_singer::end_game::system::System;
use crate::solver::crammer_singer::problem::Problem;
use crate::solver::crammer_singer::simplex::settle;

/// Shares of a row that are kept at most, the largest: enough for all equations, and few for the system.
const MOST: usize = 8;
/// Largest number of Newton steps.
const STEPS: usize = 12;
/// A step that leaves more of the weights than this makes zero seem out of reach: .9 made fits with
/// other minimisers a tenth to a fifth slower at C = 10, this a tenth at most.
const SLOW: f64 = 0.77;
/// Largest root mean square change of the logarithms of the shares by a step.
const LONGEST: f64 = 0.2;
/// Largest change of one of them.
const FARTHEST: f64 = 30.0;
/// Added to the diagonal of the system, relative to its rows' C: a common shift of all `l_k` is 0.
const RIDGE: f64 = 1e-10;
/// Rows of one block: a constant, so sums do not depend on the threads.
const BLOCK: usize = 1024;
/// Blocks between two looks at the interrupt.
const WAVE: usize = 64;

/// Rows with their shares, one after the other.
#[derive(Default)]
struct Block {
    rows: Vec<u32>,
    /// First share of each row, and the end.
    start: Vec<usize>,
    classes: Vec<u32>,
    shares: Vec<f64>,
    /// Weights that the shares make.
    image: Vec<f64>,
}

/// Moves `dual`, of this gap and whose weights have this squared norm, to weights no longer than
/// `longest`, if that is possible. Returns whether it was; otherwise `dual` stays.
///
/// # Errors
/// Interrupt; no memory.
pub fn reach<L: WeightLayout>(
    problem: &Problem<'_>,
    layout: L,
    dual: &mut [f64],
    (gap, square): (f64, f64),
    longest: f64,
    interrupt: &dyn Interrupt,
) -> Result<bool> {
    let (classes, n) = (problem.classes, problem.len());
    let own = (0..n).map(|i| dual[i * classes + problem.label[i] as usize]);
    let all: f64 = (0..n).map(|i| problem.cost_of(i)).sum();
    // The dual objective is the sum of all C less this, and zero's objective that sum.
    if classes < 3 || own.sum::<f64>() + 0.5 * square > gap {
        return Ok(false);
    }
    let pool = problem.pool.as_deref();
    let mut blocks = with_capacity(n.div_ceil(BLOCK))?;
    for first in (0..n).step_by(BLOCK) {
        interrupt.check()?;
        blocks.push(gather(problem, dual, first..n.min(first + BLOCK))?);
    }
    let mut tilt = zeros(layout.stored())?;
    let mut last = f64::INFINITY;
    for step in 0..=STEPS {
        for wave in blocks.chunks_mut(WAVE) {
            each_block(pool, wave, interrupt, |block| {
                dispatch(Tilt {
                    problem,
                    layout,
                    tilt: if step == 0 { &[] } else { &tilt },
                    block,
                })
            })?;
        }
        tilt.fill(0.0);
        for block in &blocks {
            for (sum, part) in tilt.iter_mut().zip(&block.image) {
                *sum += part;
            }
        }
        let size = tilt.iter().map(|v| v * v).sum::<f64>().sqrt();
        if size <= longest {
            for block in &blocks {
                block.write(problem, dual);
            }
            return Ok(true);
        }
        if size.is_nan() || size > SLOW * last || step == STEPS {
            break;
        }
        last = size;
        let (mut rows, mut start, mut taken) = (Vec::new(), Vec::new(), Vec::new());
        let mut shares: Vec<f64> = Vec::new();
        for block in &blocks {
            let before = shares.len();
            append(&mut rows, &block.rows)?;
            let starts = &block.start[..block.rows.len()];
            append(&mut start, &mapped(starts, |s| s + before)?)?;
            append(&mut taken, &block.classes)?;
            append(&mut shares, &block.shares)?;
        }
        append(&mut start, &[shares.len()])?;
        let right = copied(&tilt)?;
        let system = System::new(problem, layout, interrupt);
        let free = (&rows[..], &start[..], &taken[..]);
        if !system.solve(free, &shares, RIDGE * all, &mut tilt)? {
            break;
        }
        let decrease: f64 = tilt.iter().zip(&right).map(|(l, r)| l * r).sum();
        let typical = (decrease / all).sqrt();
        let scale = LONGEST / typical.max(LONGEST);
        for l in &mut tilt {
            *l *= scale;
        }
    }
    Ok(false)
}

/// The largest shares of rows, without their own classes'.
fn gather(problem: &Problem<'_>, dual: &[f64], rows: std::ops::Range<usize>) -> Result<Block> {
    let others = problem.classes - 1;
    let mut block = Block::default();
    let mut held: Vec<(u32, f64)> = with_capacity(problem.classes)?;
    for i in rows {
        let (own, cost) = (problem.label[i] as usize, problem.cost_of(i));
        if problem.square[i] == 0.0 || cost == 0.0 {
            continue;
        }
        let c = &dual[i * problem.classes..][..problem.classes];
        held.clear();
        held.extend(
            (0..)
                .zip(c)
                .filter(|(k, c)| *k as usize != own && **c > 0.0)
                .map(|(k, c)| (k, *c)),
        );
        if held.is_empty() {
            // Some classes are as good as others.
            let other = |j: usize| (own + 1 + (i * MOST + j) % others) % problem.classes;
            held.extend((0..MOST.min(others)).map(|j| (other(j) as u32, 1.0)));
        }
        if held.len() > MOST {
            held.select_nth_unstable_by(MOST, |a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
            held.truncate(MOST);
        }
        held.sort_unstable_by_key(|held| held.0);
        let sum: f64 = held.iter().map(|held| held.1).sum();
        append(&mut block.rows, &[i as u32])?;
        append(&mut block.start, &[block.shares.len()])?;
        for (k, share) in &held {
            append(&mut block.classes, &[*k])?;
            append(&mut block.shares, &[share * (cost / sum)])?;
        }
    }
    append(&mut block.start, &[block.shares.len()])?;
    Ok(block)
}

impl Block {
    fn write(&self, problem: &Problem<'_>, dual: &mut [f64]) {
        let classes = problem.classes;
        for (i, ends) in self.rows.iter().zip(self.start.windows(2)) {
            let i = *i as usize;
            let c = &mut dual[i * classes..][..classes];
            c.fill(0.0);
            for at in ends[0]..ends[1] {
                c[self.classes[at] as usize] = self.shares[at];
            }
            settle(c, problem.cost_of(i));
        }
    }
}

/// Tilts the shares of a block, and adds up the weights that they make.
struct Tilt<'s, 'p, 'd, L> {
    problem: &'p Problem<'d>,
    layout: L,
    /// `l`; nothing for none.
    tilt: &'s [f64],
    block: &'s mut Block,
}

impl<L: WeightLayout> Kernel for Tilt<'_, '_, '_, L> {
    type Output = Result<()>;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> Result<()> {
        let (problem, block) = (self.problem, self.block);
        let mut scores = zeros(self.layout.padded_classes())?;
        let mut c = zeros(problem.classes)?;
        let mut alpha = zeros(self.layout.padded_classes())?;
        let mut buffer = problem.store.buffer()?;
        let mut entries = Vec::new();
        block.image = zeros(self.layout.stored())?;
        for (i, ends) in block.rows.iter().zip(block.start.windows(2)) {
            let i = *i as usize;
            let row = typed(problem.store.row(i, &mut buffer), &mut entries)?;
            let taken = &block.classes[ends[0]..ends[1]];
            let shares = &mut block.shares[ends[0]..ends[1]];
            let (own, cost) = (problem.label[i] as usize, problem.cost_of(i));
            if !self.tilt.is_empty() && taken.len() > 1 {
                self.layout.scores(simd, row, self.tilt, &mut scores);
                let mut sum = 0.0;
                for (share, k) in shares.iter_mut().zip(taken) {
                    *share *= libm::exp(scores[*k as usize].clamp(-FARTHEST, FARTHEST));
                    sum += *share;
                }
                for share in shares.iter_mut() {
                    *share *= cost / sum;
                }
            }
            c.fill(0.0);
            for (share, k) in shares.iter().zip(taken) {
                c[*k as usize] = *share;
            }
            to_alpha(&mut alpha, &c, own, cost);
            self.layout.update(simd, row, &mut block.image, &alpha);
        }
        Ok(())
    }
}
