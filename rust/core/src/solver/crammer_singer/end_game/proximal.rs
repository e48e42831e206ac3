//! Proximal points of the dual by Newton steps in the space of the weights.
//!
//! From the dual point `c` the next one is the maximiser of `D(c') - ||c' - c||^2 / (2 sigma)`. Its
//! own dual is smooth and has as many unknowns as the weights have entries: minimise over V
//!
//! ```text
//! 1/2 ||V||_F^2 + sum_i max_{c' in simplex} (<c' - C e_y, G_i(V)> - ||c' - c_i||^2 / (2 sigma)),
//! ```
//!
//! where the best `c'` is the projection of `c_i + sigma G_i` onto the simplex. Neither badly scaled
//! columns nor thousands of rows inside their simplex matter to its Newton steps, on which coordinate
//! descent and the working set take minutes. `sigma = C / width` rises from step to step.
//!
//! Rows at a vertex that no move foreseen can unsettle are left out until the weights have moved too
//! far. Rockafellar, SIAM J. Control Optim. 14 (1976); Li, Sun and Toh, SIAM J. Optim. 28 (2018).

use crate::error::Result;
use crate::layout::weights::{WeightLayout, typed};
use crate::runtime::interrupt::{Interrupt, poll};
use crate::runtime::memory::{append, copied, mapped, with_capacity, zeros};
use crate::runtime::threads::map_blocks;
use crate::simd::{Kernel, Simd, dispatch};
use crate::solver::crammer_singer::end_game::system::System;
use crate::solver::crammer_singer::problem::Problem;
use crate::solver::crammer_singer::simplex::{
    LANES, each_above, largest, leading, project, room, roomy,
};
use crate::solver::smooth::newton_parts::add;
use std::ops::Range;

/// Most entries of the weights: a Newton system is solved at each step.
const LARGEST: usize = 4000;
/// Most of them, and of a row, where that is cheap.
const LARGE: usize = 1200;
const LONG: usize = 150;
/// Most numbers that copies of all rows, and their scores twice, would take.
const MAX_NUMBERS: usize = 1 << 26;
/// Largest number of proximal points.
const POINTS: usize = 40;
/// Largest number of successive Newton steps without progress.
const IDLE: usize = 15;
/// Relative change of the distance from a point below which only rounding moves it: more Newton steps
/// are lost on it.
const STILL: f64 = 1e-6;
/// Relative error of the dual objective.
const ROUNDING: f64 = 1e-13;
/// The first width, in units of an open row's part of the gap; most of these rows settle.
const START: f64 = 10.0;
/// Factor by which the width shrinks from point to point.
const SHRINK: f64 = 0.35;
/// Inexactness of a point, relative to how far it moved.
const INEXACT: f64 = 0.1;
/// Share of its first slope at which a line search ends.
const FLAT_ENOUGH: f64 = 0.2;
/// Largest number of line search evaluations.
const TRIES: usize = 12;
/// Multiplications of one block of rows.
const BLOCK_WORK: usize = 1 << 21;

/// Whether Newton systems are small enough, and the memory that they need.
pub fn is_possible(problem: &Problem<'_>) -> bool {
    let (k, d) = (problem.classes, problem.columns);
    let numbers = problem.len().saturating_mul(d + 2 * k);
    k.saturating_mul(d) <= LARGEST && numbers <= MAX_NUMBERS
}

/// Whether they are so small that other methods have to be fast to be better.
pub fn is_cheap(problem: &Problem<'_>) -> bool {
    let (k, d) = (problem.classes, problem.columns);
    is_possible(problem) && d <= LONG && k * d <= LARGE
}

/// Settings and state of one proximal point.
pub struct Proximal<'p, 'd, L> {
    problem: &'p Problem<'d>,
    layout: L,
    weights: Vec<f64>,
    /// `1 / sigma` in units of C.
    width: f64,
    /// Weights when rows were last left out, and how far a score's lead may fall meanwhile.
    reference: Vec<f64>,
    reach: f64,
    /// Weights that the rows left out make, and their part of the dual objective.
    far: Vec<f64>,
    far_value: f64,
    /// The other rows, with `G` and its slope along the step, row-major.
    near: Vec<u32>,
    scores: Vec<f64>,
    slopes: Vec<f64>,
    /// Newton steps that may still be made.
    left: u64,
}

/// Projections of the near rows.
#[derive(Default)]
struct Found {
    /// `sum_i (C e_y - c'_i) u_i^T` over near rows.
    image: Vec<f64>,
    /// `sum_i ||c'_i - c_i||^2`.
    moved: f64,
    /// Their part of Gamma.
    gap: f64,
    /// `sum_i (C - c'_iy)`.
    value: f64,
    /// Rows inside their simplex, their classes one after the other, and where each row's begin.
    free: Vec<u32>,
    classes: Vec<u32>,
    start: Vec<usize>,
}

impl<'p, 'd, L: WeightLayout> Proximal<'p, 'd, L> {
    /// Starts at the weights of a dual point with this gap and so many open rows; makes so many
    /// Newton steps at most.
    ///
    /// # Errors
    /// No memory.
    pub fn new(
        problem: &'p Problem<'d>,
        layout: L,
        weights: Vec<f64>,
        (gap, open): (f64, usize),
        steps: u64,
    ) -> Result<Self> {
        Ok(Self {
            problem,
            layout,
            reference: copied(&weights)?,
            far: zeros(weights.len())?,
            far_value: 0.0,
            weights,
            width: START * gap / (problem.cost * open.max(1) as f64),
            reach: f64::NEG_INFINITY,
            near: Vec::new(),
            scores: Vec::new(),
            slopes: Vec::new(),
            left: steps,
        })
    }

    /// Moves `dual` from proximal point to proximal point, until its gap seems to be at most
    /// `target`, at the latest when that stalls. Returns the Newton steps that are left.
    ///
    /// # Errors
    /// Interrupt; no memory.
    pub fn ascend(
        &mut self,
        dual: &mut [f64],
        mut gap: f64,
        target: f64,
        interrupt: &dyn Interrupt,
    ) -> Result<u64> {
        let cost = self.problem.cost;
        // The minimiser lies within the root of the gap.
        self.split(dual, 6.0 * gap.sqrt(), interrupt)?;
        let mut best = self.objective(&self.pass(dual, None, interrupt)?);
        let rounding = ROUNDING * (best.abs() + cost * self.problem.len() as f64);
        let mut idle = 0;
        for _ in 0..POINTS {
            let before = copied(&self.weights)?;
            let found = self.point(dual, target, interrupt)?;
            let value = self.objective(&found);
            if value.is_nan() || value < best - rounding {
                // Too far at once.
                self.weights = before;
                self.width *= 1.0 / (SHRINK * SHRINK);
                self.split(dual, self.reach, interrupt)?;
                idle += 1;
            } else {
                best = value;
                dispatch(Write {
                    state: self,
                    dual,
                    interrupt,
                })?;
                let seen = found.gap + self.mismatch(&found, length(&self.gradient(&found)?));
                idle = if seen > 0.5 * gap { idle + 1 } else { 0 };
                gap = seen;
                if found.gap > 0.3 * target {
                    self.width *= SHRINK;
                }
                // The next point is nearer than this one was.
                let reach = 3.0 * distance(&self.weights, &before);
                if gap > target && self.reach > 2.0 * reach {
                    self.split(dual, reach, interrupt)?;
                }
            }
            if gap <= target || idle == 3 || self.left == 0 {
                break;
            }
        }
        Ok(self.left)
    }

    /// The next proximal point.
    fn point(&mut self, dual: &[f64], target: f64, interrupt: &dyn Interrupt) -> Result<Found> {
        let (mut least, mut last, mut idle) = (f64::INFINITY, f64::INFINITY, 0);
        loop {
            let sigma = self.problem.cost / self.width;
            let found = self.pass(dual, Some(sigma), interrupt)?;
            let gradient = self.gradient(&found)?;
            let off = length(&gradient);
            let close = INEXACT * (self.width * found.moved / self.problem.cost).sqrt();
            let mismatch = self.mismatch(&found, off);
            idle = if off < 0.9 * least { 0 } else { idle + 1 };
            least = least.min(off);
            if self.left == 0
                || idle == IDLE
                || (off - last).abs() <= STILL * off
                || (off <= close && mismatch <= found.gap.max(0.1 * target))
            {
                return Ok(found);
            }
            self.left -= 1;
            last = off;
            let mut direction = mapped(&gradient, |g| -g)?;
            let rows = mapped(&found.free, |at| self.near[*at as usize])?;
            let system = System::new(self.problem, self.layout, interrupt);
            let free = (&rows[..], &found.start[..], &found.classes[..]);
            if !system.step(free, sigma, &mut direction)? {
                return Ok(found);
            }
            let slope = gradient.iter().zip(&direction).map(|(g, x)| g * x).sum();
            self.go(dual, &direction, slope, interrupt)?;
        }
    }

    /// Approximate gap due to the distance `off` of the weights from those of the dual point found.
    fn mismatch(&self, found: &Found, off: f64) -> f64 {
        let rows = found.free.len().max(1) as f64;
        self.problem.cost * off * (2.0 * rows).sqrt()
    }

    /// Moves along `direction`, with this initial slope, to about the lowest point.
    fn go(
        &mut self,
        dual: &[f64],
        direction: &[f64],
        first: f64,
        interrupt: &dyn Interrupt,
    ) -> Result<()> {
        let square: f64 = direction.iter().map(|x| x * x).sum();
        // A lead falls by sqrt(2) times what the weights move.
        let away = distance(&self.weights, &self.reference);
        let needed = 2.0_f64.sqrt() * (away + square.sqrt());
        if needed > self.reach {
            self.split(dual, 2.0 * needed, interrupt)?;
        }
        self.slopes = self.products(direction, interrupt)?;
        let along: f64 = self.weights.iter().zip(direction).map(|(v, x)| v * x).sum();
        // The far rows' part of the derivative.
        let fixed: f64 = self.far.iter().zip(direction).map(|(f, x)| f * x).sum();
        let state = &*self;
        let bends = self.over(self.near.len(), interrupt, |rows| {
            dispatch(Bend { state, dual, rows })
        })?;
        let pool = self.problem.pool.as_deref();
        let slope = |length: f64| -> Result<f64> {
            let sums = map_blocks(pool, bends.len(), interrupt, |at| {
                dispatch(Derivative {
                    bends: &bends[at],
                    length,
                })
            })?;
            Ok(along + length * square - fixed - sums.iter().sum::<f64>())
        };
        let (mut low, mut low_slope) = (0.0, first);
        let mut high: Option<(f64, f64)> = None;
        let mut length = 1.0;
        for _ in 0..TRIES {
            let here = slope(length)?;
            if here.abs() <= FLAT_ENOUGH * first.abs() || (high.is_none() && here <= 0.0) {
                break;
            }
            if here < 0.0 {
                (low, low_slope) = (length, here);
            } else {
                high = Some((length, here));
            }
            let Some((end, end_slope)) = high else { break };
            let share = (-low_slope / (end_slope - low_slope)).clamp(0.1, 0.9);
            length = low + (end - low) * share;
        }
        add(&mut self.weights, length, direction);
        add(&mut self.scores, length, &self.slopes);
        Ok(())
    }

    /// The weights less those that the dual point found makes.
    fn gradient(&self, found: &Found) -> Result<Vec<f64>> {
        let mut gradient = copied(&self.weights)?;
        for (at, g) in gradient.iter_mut().enumerate() {
            *g -= self.far[at] + found.image[at];
        }
        Ok(gradient)
    }

    /// Dual objective.
    fn objective(&self, found: &Found) -> f64 {
        let weights = self.far.iter().zip(&found.image).map(|(f, v)| f + v);
        self.far_value + found.value - 0.5 * weights.map(|v| v * v).sum::<f64>()
    }

    /// `work` on blocks of `rows` rows: a function of the problem alone, so are the sums over them.
    fn over<R: Send>(
        &self,
        rows: usize,
        interrupt: &dyn Interrupt,
        work: impl Fn(Range<usize>) -> Result<R> + Sync,
    ) -> Result<Vec<R>> {
        let numbers = rows.saturating_mul(self.layout.stored());
        let blocks = numbers.div_ceil(BLOCK_WORK).clamp(1, rows.max(1));
        let length = rows.div_ceil(blocks);
        map_blocks(self.problem.pool.as_deref(), blocks, interrupt, |block| {
            work((block * length).min(rows)..((block + 1) * length).min(rows))
        })
    }

    fn pass(&self, dual: &[f64], sigma: Option<f64>, interrupt: &dyn Interrupt) -> Result<Found> {
        let parts = self.over(self.near.len(), interrupt, |rows| {
            dispatch(Project {
                state: self,
                dual,
                sigma,
                rows,
            })
        })?;
        let mut all = Found {
            image: zeros(self.layout.stored())?,
            ..Found::default()
        };
        for part in parts {
            add(&mut all.image, 1.0, &part.image);
            all.moved += part.moved;
            all.gap += part.gap;
            all.value += part.value;
            let before = all.classes.len();
            append(&mut all.free, &part.free)?;
            append(&mut all.classes, &part.classes)?;
            append(&mut all.start, &mapped(&part.start, |s| s + before)?)?;
        }
        append(&mut all.start, &[all.classes.len()])?;
        Ok(all)
    }

    /// Scores of the near rows with `weights`, row-major.
    fn products(&self, weights: &[f64], interrupt: &dyn Interrupt) -> Result<Vec<f64>> {
        let parts = self.over(self.near.len(), interrupt, |rows| {
            dispatch(Products {
                problem: self.problem,
                layout: self.layout,
                classes: self.problem.classes,
                weights,
                rows: &self.near[rows],
            })
        })?;
        let mut all = with_capacity(self.near.len() * self.problem.classes)?;
        for part in parts {
            all.extend_from_slice(&part);
        }
        Ok(all)
    }

    /// Leaves out the rows at a vertex that leads by more than `reach`.
    fn split(&mut self, dual: &[f64], reach: f64, interrupt: &dyn Interrupt) -> Result<()> {
        let state = &*self;
        let parts = self.over(self.problem.len(), interrupt, |rows| {
            dispatch(SplitRows {
                state,
                dual,
                reach,
                rows,
            })
        })?;
        self.near.clear();
        self.scores.clear();
        self.far.fill(0.0);
        self.far_value = 0.0;
        for (near, scores, far, value) in parts {
            self.far_value += value;
            append(&mut self.near, &near)?;
            append(&mut self.scores, &scores)?;
            add(&mut self.far, 1.0, &far);
        }
        self.reference.copy_from_slice(&self.weights);
        self.reach = reach;
        Ok(())
    }
}

fn length(a: &[f64]) -> f64 {
    a.iter().map(|a| a * a).sum::<f64>().sqrt()
}

fn distance(a: &[f64], b: &[f64]) -> f64 {
    let squares = a.iter().zip(b).map(|(a, b)| (a - b) * (a - b));
    squares.sum::<f64>().sqrt()
}

/// `C e_y - c`.
pub fn to_alpha(alpha: &mut [f64], c: &[f64], own: usize, cost: f64) {
    for (alpha, c) in alpha.iter_mut().zip(c) {
        *alpha = -c;
    }
    alpha[own] = cost - c[own];
}

/// A pass over near rows: at their projections, or at `dual` itself.
struct Project<'s, 'p, 'd, L> {
    state: &'s Proximal<'p, 'd, L>,
    dual: &'s [f64],
    sigma: Option<f64>,
    rows: Range<usize>,
}

impl<L: WeightLayout> Kernel for Project<'_, '_, '_, L> {
    type Output = Result<Found>;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> Result<Found> {
        let (state, problem) = (self.state, self.state.problem);
        let classes = problem.classes;
        let mut found = Found {
            image: zeros(state.layout.stored())?,
            ..Found::default()
        };
        let mut alpha = zeros(state.layout.padded_classes())?;
        let mut next = room(classes)?;
        let mut inside = with_capacity(classes)?;
        let mut buffer = problem.store.buffer()?;
        let mut entries = Vec::new();
        for at in self.rows {
            let i = state.near[at] as usize;
            let (own, cost) = (problem.label[i] as usize, problem.cost_of(i));
            let c = &self.dual[i * classes..][..classes];
            next[..classes].copy_from_slice(c);
            next[classes..].fill(f64::MIN);
            if let Some(sigma) = self.sigma {
                let g = &state.scores[at * classes..][..classes];
                for (next, g) in next.iter_mut().zip(g) {
                    *next += sigma * g;
                }
                let vertex = project(&mut next, cost).is_some();
                let top = largest(g).0;
                inside.clear();
                each_above(&next, 0.0, |k| {
                    inside.push(k as u32);
                    found.gap += next[k] * (top - g[k]);
                    found.moved += (next[k] - c[k]) * (next[k] - c[k]);
                });
                each_above(c, 0.0, |k| {
                    found.moved += if next[k] > 0.0 { 0.0 } else { c[k] * c[k] };
                });
                if !vertex {
                    append(&mut found.free, &[at as u32])?;
                    append(&mut found.start, &[found.classes.len()])?;
                    append(&mut found.classes, &inside)?;
                }
            }
            found.value += cost - next[own];
            if next[own] != cost {
                to_alpha(&mut alpha, &next[..classes], own, cost);
                let row = typed(problem.store.row(i, &mut buffer), &mut entries)?;
                state.layout.update(simd, row, &mut found.image, &alpha);
            }
        }
        Ok(found)
    }
}

/// Change of projections along a step: the terms of every class that never has a share, or always
/// the whole, are known beforehand.
#[derive(Default)]
struct Bends {
    /// `sum_i <C e_y - c'_i, G_i'>`, less what is below.
    fixed: f64,
    /// C of the rows whose shares change, and where the classes of each end.
    rows: Vec<(f64, usize)>,
    /// For each such class: projected value at the start, its change by the step, and `G'`.
    classes: Vec<[f64; 3]>,
}

/// Finds the bends of near rows, along the slopes.
struct Bend<'s, 'p, 'd, L> {
    state: &'s Proximal<'p, 'd, L>,
    dual: &'s [f64],
    rows: Range<usize>,
}

impl<L: WeightLayout> Kernel for Bend<'_, '_, '_, L> {
    type Output = Result<Bends>;

    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) -> Result<Bends> {
        let (state, problem) = (self.state, self.state.problem);
        let (classes, sigma) = (problem.classes, problem.cost / state.width);
        let (mut low, mut high) = (zeros(classes)?, zeros(classes)?);
        let mut kept = with_capacity(classes)?;
        let mut bends = Bends::default();
        for at in self.rows {
            let i = state.near[at] as usize;
            let c = &self.dual[i * classes..][..classes];
            let g = &state.scores[at * classes..][..classes];
            let s = &state.slopes[at * classes..][..classes];
            for k in 0..classes {
                let start = c[k] + sigma * g[k];
                let end = start + sigma * s[k];
                low[k] = start.min(end);
                high[k] = start.max(end);
            }
            let (own, cost) = (problem.label[i] as usize, problem.cost_of(i));
            bends.fixed += cost * s[own];
            // Classes below the top by C or more all along never get a share.
            let (least, best) = largest(&low);
            kept.clear();
            each_above(&high, least - cost, |k| {
                kept.push([c[k] + sigma * g[k], sigma * s[k], s[k]]);
            });
            if kept.len() <= 1 {
                bends.fixed -= cost * s[best];
                continue;
            }
            append(&mut bends.classes, &kept)?;
            append(&mut bends.rows, &[(cost, bends.classes.len())])?;
        }
        Ok(bends)
    }
}

/// `sum_i <C e_y - c'_i, G_i'>` over near rows, a step of this length ahead.
struct Derivative<'s> {
    bends: &'s Bends,
    length: f64,
}

impl Kernel for Derivative<'_> {
    type Output = Result<f64>;

    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) -> Result<f64> {
        let (mut sum, mut first) = (self.bends.fixed, 0);
        let mut shares = Vec::new();
        for (cost, end) in &self.bends.rows {
            let classes = &self.bends.classes[first..*end];
            shares.clear();
            for [start, move_by, _] in classes {
                append(&mut shares, &[start + self.length * move_by])?;
            }
            let missing = roomy(classes.len()) - classes.len();
            append(&mut shares, &[f64::MIN; LANES][..missing])?;
            project(&mut shares, *cost);
            for (share, [_, _, slope]) in shares.iter().zip(classes) {
                sum -= share * slope;
            }
            first = *end;
        }
        Ok(sum)
    }
}

/// Writes the projections of the near rows into `dual`.
struct Write<'s, 'p, 'd, L> {
    state: &'s Proximal<'p, 'd, L>,
    dual: &'s mut [f64],
    interrupt: &'s dyn Interrupt,
}

impl<L: WeightLayout> Kernel for Write<'_, '_, '_, L> {
    type Output = Result<()>;

    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) -> Result<()> {
        let (state, classes) = (self.state, self.state.problem.classes);
        let sigma = state.problem.cost / state.width;
        let mut next = room(classes)?;
        let scores = state.scores.chunks_exact(classes);
        for (at, (i, g)) in state.near.iter().zip(scores).enumerate() {
            poll(at, self.interrupt)?;
            let c = &mut self.dual[*i as usize * classes..][..classes];
            for k in 0..classes {
                next[k] = c[k] + sigma * g[k];
            }
            next[classes..].fill(f64::MIN);
            project(&mut next, state.problem.cost_of(*i as usize));
            c.copy_from_slice(&next[..classes]);
        }
        Ok(())
    }
}

/// Scores of rows, row-major.
pub struct Products<'s, 'd, L> {
    /// Whose rows.
    pub problem: &'s Problem<'d>,
    /// Layout of the weights.
    pub layout: L,
    /// Number of classes.
    pub classes: usize,
    /// The weights.
    pub weights: &'s [f64],
    /// Indices of the rows.
    pub rows: &'s [u32],
}

impl<L: WeightLayout> Kernel for Products<'_, '_, L> {
    type Output = Result<Vec<f64>>;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> Result<Vec<f64>> {
        let mut scores = zeros(self.layout.padded_classes())?;
        let mut all = with_capacity(self.rows.len() * self.classes)?;
        let mut buffer = self.problem.store.buffer()?;
        let mut entries = Vec::new();
        for i in self.rows {
            let row = self.problem.store.row(*i as usize, &mut buffer);
            let row = typed(row, &mut entries)?;
            self.layout.scores(simd, row, self.weights, &mut scores);
            all.extend_from_slice(&scores[..self.classes]);
        }
        Ok(all)
    }
}

/// A pass over all rows that separates near from far ones.
struct SplitRows<'s, 'p, 'd, L> {
    state: &'s Proximal<'p, 'd, L>,
    dual: &'s [f64],
    reach: f64,
    rows: Range<usize>,
}

impl<L: WeightLayout> Kernel for SplitRows<'_, '_, '_, L> {
    /// The near rows and their `G`; the far ones' weights and part of the dual objective.
    type Output = Result<(Vec<u32>, Vec<f64>, Vec<f64>, f64)>;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> Self::Output {
        let (state, problem) = (self.state, self.state.problem);
        let classes = problem.classes;
        let mut scores = zeros(state.layout.padded_classes())?;
        let mut alpha = zeros(state.layout.padded_classes())?;
        let mut far = zeros(state.layout.stored())?;
        let mut gradient = room(classes)?;
        let (mut near, mut gradients, mut value) = (Vec::new(), Vec::new(), 0.0);
        let mut buffer = problem.store.buffer()?;
        let mut entries = Vec::new();
        for i in self.rows {
            if problem.square[i] == 0.0 {
                continue;
            }
            let row = typed(problem.store.row(i, &mut buffer), &mut entries)?;
            state.layout.scores(simd, row, &state.weights, &mut scores);
            let (own, cost) = (problem.label[i] as usize, problem.cost_of(i));
            let c = &self.dual[i * classes..][..classes];
            let (best, top, second) = leading(&scores[..classes], own, &mut gradient);
            if c[best] == cost && top - second > self.reach {
                if best != own {
                    value += cost;
                    to_alpha(&mut alpha, c, own, cost);
                    state.layout.update(simd, row, &mut far, &alpha);
                }
                continue;
            }
            append(&mut near, &[i as u32])?;
            append(&mut gradients, &gradient[..classes])?;
        }
        Ok((near, gradients, far, value))
    }
}
