//! The certificate: a rigorous bound on the distance between computed weights and the minimiser.
//!
//! For any weights `V^` and any dual point `c°`, with `E = V^ - V(c°)`,
//!
//! ```text
//! P(V^) - D(c°) = Gamma + 1/2 ||E||^2,   Gamma = sum_i sum_k c°_ik (max_l G_il - G_ik)  at V^,
//! ```
//!
//! and the strong convexities of P and -D give `||V^ - V*|| <= ||E|| + sqrt(Gamma)`
//! (`docs/proofs/output_perturbation.md`, "Inexact minimiser"). Three roundings are bounded here:
//!
//! 1. The stored `c_i` of a row with several positive entries may miss the simplex by rounding. A
//!    point `c°_i` of the simplex lies within [`feasibility_error`] of it in the 1-norm: it differs
//!    in one class only, of those whose entry is large enough the one nearest to the lead: the
//!    leading class itself adds nothing to Gamma. Vertices are exact.
//! 2. `||E||_F <= spread`: the standard bound on sums of `m` terms, `gamma_m` times the sum of the
//!    magnitudes, by the triangle inequality over rows.
//! 3. The computed scores are off by at most `eta = gamma_depth max_k ||v^_k||`. A row at a vertex
//!    whose score leads by more than `2 eta` adds exactly 0 to Gamma; every other one `2 C eta`.
//!    Where that alone keeps the certificate open, scores are taken in twice the precision
//!    ([`crate::solver::crammer_singer::accurate`]).

use crate::error::Result;
use crate::layout::weights::{WeightLayout, typed};
use crate::numeric::{ROUNDOFF, gamma};
use crate::runtime::interrupt::Interrupt;
use crate::runtime::memory::{append, zeros};
use crate::runtime::threads::map_blocks;
use crate::simd::{Kernel, Simd, dispatch};
use crate::solver::crammer_singer::accurate;
use crate::solver::crammer_singer::end_game::proximal::to_alpha;
use crate::solver::crammer_singer::problem::Problem;
use crate::solver::crammer_singer::simplex::{leading, room};

/// Result of [`certify`].
pub struct Certificate {
    /// `V^`, the weights rebuilt from the dual point.
    pub weights: Vec<f64>,
    /// Upper bound on `||V^ - V*||_F`.
    pub radius: f64,
    /// Upper bound on Gamma.
    pub gap: f64,
    /// Rows that are not safely optimal at a vertex, ascending, each with the lead of its vertex:
    /// negative for a row that is not at its best vertex at all.
    pub open: Vec<(u32, f64)>,
}

/// Rows of one block of the passes below: a constant, so sums do not depend on the threads.
const BLOCK: usize = 512;
/// Rows of one block of the passes in twice the precision.
const ACCURATE_BLOCK: usize = 16;
/// Independent partial sums of the weights.
const SEGMENTS: usize = 8;
/// Largest size of one partial sum, in numbers: above, one sum is used (memory).
const SEGMENT_NUMBERS: usize = 1 << 18;

/// Rebuilds the weights from `dual` and bounds their distance to the minimiser.
///
/// `margin`: rows at their vertex by less than this count as open too.
///
/// # Errors
/// Interrupt.
pub fn certify<L: WeightLayout>(
    problem: &Problem<'_>,
    layout: L,
    dual: &[f64],
    margin: f64,
    interrupt: &dyn Interrupt,
) -> Result<Certificate> {
    let (weights, spread) = rebuild(problem, layout, dual, interrupt)?;
    let longest = largest_norm(problem, layout, &weights);
    let blocks = problem.len().div_ceil(BLOCK);
    let parts = map_blocks(problem.pool.as_deref(), blocks, interrupt, |block| {
        dispatch(GapBlock {
            problem,
            layout,
            weights: &weights,
            dual,
            rows: block * BLOCK..problem.len().min((block + 1) * BLOCK),
            longest,
            margin,
        })
    })?;
    let (mut gap, mut rounding) = (0.0, 0.0);
    let (mut open, mut unsure) = (Vec::new(), Vec::new());
    for part in parts {
        gap += part.gap;
        rounding += part.rounding;
        append(&mut open, &part.open)?;
        append(&mut unsure, &part.unsure)?;
    }
    let sum = 1.0 + 4.0 * ROUNDOFF * (problem.len() as f64 + problem.classes as f64 + 8.0);
    let radius = |gap: f64| ((gap * sum).sqrt() + spread) * (1.0 + 8.0 * ROUNDOFF);
    let mut bound = gap + rounding;
    if radius(bound) > problem.radius && radius(gap) <= problem.radius {
        // Only rounding is in the way.
        let rows = unsure.len().div_ceil(ACCURATE_BLOCK);
        let parts = map_blocks(problem.pool.as_deref(), rows, interrupt, |block| {
            let rows = &unsure[block * ACCURATE_BLOCK..];
            let rows = &rows[..rows.len().min(ACCURATE_BLOCK)];
            accurate::gap(problem, layout, &weights, longest, dual, rows)
        })?;
        bound = parts.iter().sum();
    }
    Ok(Certificate {
        radius: radius(bound),
        gap: bound * sum,
        weights,
        open,
    })
}

/// `V^` and the bound on `||V^ - V(c°)||_F`.
fn rebuild<L: WeightLayout>(
    problem: &Problem<'_>,
    layout: L,
    dual: &[f64],
    interrupt: &dyn Interrupt,
) -> Result<(Vec<f64>, f64)> {
    let segments = if layout.stored() <= SEGMENT_NUMBERS {
        SEGMENTS
    } else {
        1
    };
    // A segment ends on a block boundary; blocks keep the looks at the interrupt close together.
    let length = problem
        .len()
        .div_ceil(segments)
        .next_multiple_of(BLOCK)
        .max(BLOCK);
    let mut sums: Vec<(Vec<f64>, f64, f64)> =
        map_blocks(problem.pool.as_deref(), segments, interrupt, |segment| {
            let first = (segment * length).min(problem.len());
            let last = ((segment + 1) * length).min(problem.len());
            dispatch(Accumulate {
                problem,
                layout,
                dual,
                rows: first..last,
            })
        })?;
    let (mut weights, mut magnitude, mut drift) = sums.remove(0);
    for (part, more, drifted) in &sums {
        for (total, part) in weights.iter_mut().zip(part) {
            *total += part;
        }
        magnitude += more;
        drift += drifted;
    }
    let depth = (length + segments + 4) as f64;
    let spread = gamma(depth) * magnitude * (1.0 + 1e-6) + drift * (1.0 + 1e-6);
    Ok((weights, spread))
}

/// Sums `(C e_y - c_i) u_i^T` over a range of rows.
struct Accumulate<'p, 'd, L> {
    problem: &'p Problem<'d>,
    layout: L,
    dual: &'p [f64],
    rows: std::ops::Range<usize>,
}

impl<L: WeightLayout> Kernel for Accumulate<'_, '_, L> {
    /// The sum, `sum_i ||alpha_i||` and the drift bound, the last two in units of the weights.
    type Output = Result<(Vec<f64>, f64, f64)>;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> Self::Output {
        let classes = self.problem.classes;
        let mut weights = zeros(self.layout.stored())?;
        let mut alpha = zeros(self.layout.padded_classes())?;
        let mut buffer = self.problem.store.buffer()?;
        let mut entries = Vec::new();
        let (mut magnitude, mut drift) = (0.0, 0.0);
        for i in self.rows {
            let own = self.problem.label[i] as usize;
            let cost = self.problem.cost_of(i);
            let dual = &self.dual[i * classes..(i + 1) * classes];
            if dual[own] == cost || self.problem.square[i] == 0.0 {
                continue;
            }
            to_alpha(&mut alpha, dual, own, cost);
            let squares = alpha[..classes].iter().map(|a| a * a);
            magnitude += squares.sum::<f64>().sqrt();
            drift += feasibility_error(dual, cost);
            let row = typed(self.problem.store.row(i, &mut buffer), &mut entries)?;
            self.layout.update(simd, row, &mut weights, &alpha);
        }
        Ok((weights, magnitude, drift))
    }
}

/// Bound on `||c° - c||_1` for a stored row `c`: 0 at a vertex, infinite (so nothing is certified)
/// if an entry were negative.
#[inline(always)]
pub fn feasibility_error(dual: &[f64], cost: f64) -> f64 {
    let mut sum = 0.0;
    let mut positive = 0.0;
    let mut lowest = 0.0_f64;
    for c in dual {
        sum += c;
        positive += if *c > 0.0 { 1.0 } else { 0.0 };
        lowest = lowest.min(*c);
    }
    if lowest < 0.0 {
        return f64::INFINITY;
    }
    if positive <= 1.0 && sum == cost {
        return 0.0;
    }
    // The miss as computed, plus the rounding of computing it, moved onto one coordinate or
    // spread by scaling: twice the miss covers both.
    2.0 * ((sum - cost).abs() + (dual.len() as f64 + 2.0) * ROUNDOFF * cost)
}

/// `sum_k c_k b_k` for a stored row `c` whose scores lie `b_k` behind the best, known to `2 eta`, and
/// what its miss of the simplex may add.
///
/// The miss may be laid on any class that holds as much, best where it costs least (on the leading
/// class: nothing), or on all by scaling.
#[inline(always)]
pub fn row_gap(c: &[f64], cost: f64, eta: f64, behind: impl Fn(usize) -> f64) -> (f64, f64) {
    let miss = feasibility_error(c, cost);
    let (mut gap, mut farthest, mut nearest) = (0.0, 0.0_f64, f64::INFINITY);
    for (k, c) in c.iter().enumerate() {
        let behind = behind(k);
        gap += c * behind;
        farthest = farthest.max(behind);
        if *c >= miss {
            nearest = nearest.min(behind);
        }
    }
    (gap, miss * nearest.min(farthest + 2.0 * eta))
}

/// Largest `||v_k||`, rounded up.
fn largest_norm<L: WeightLayout>(problem: &Problem<'_>, layout: L, weights: &[f64]) -> f64 {
    let slack = 1.0 + 2.0 * ROUNDOFF * (problem.columns as f64 + 4.0);
    (0..problem.classes)
        .map(|k| {
            let square: f64 = (0..problem.columns)
                .map(|j| weights[layout.position(k, j)].powi(2))
                .sum();
            square.sqrt() * slack
        })
        .fold(0.0, f64::max)
}

/// Gaps of a block of rows.
struct GapBlock<'p, 'd, L> {
    problem: &'p Problem<'d>,
    layout: L,
    weights: &'p [f64],
    dual: &'p [f64],
    rows: std::ops::Range<usize>,
    longest: f64,
    margin: f64,
}

/// Contribution of a block to Gamma.
#[derive(Default)]
struct BlockGap {
    /// Computed value.
    gap: f64,
    /// Bound on its rounding error.
    rounding: f64,
    /// Rows that are not safely at their best vertex, with their leads.
    open: Vec<(u32, f64)>,
    /// Rows that add to `gap` or `rounding`.
    unsure: Vec<u32>,
}

impl<L: WeightLayout> Kernel for GapBlock<'_, '_, L> {
    type Output = Result<BlockGap>;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> Result<BlockGap> {
        let classes = self.problem.classes;
        let mut scores = zeros(self.layout.padded_classes())?;
        let mut buffer = self.problem.store.buffer()?;
        let mut entries = Vec::new();
        let mut gradient = room(classes)?;
        let mut block = BlockGap::default();
        for i in self.rows {
            if self.problem.square[i] == 0.0 {
                continue;
            }
            let row = typed(self.problem.store.row(i, &mut buffer), &mut entries)?;
            self.layout.scores(simd, row, self.weights, &mut scores);
            let own = self.problem.label[i] as usize;
            let cost = self.problem.cost_of(i);
            let dual = &self.dual[i * classes..(i + 1) * classes];
            let (best, top, second) = leading(&scores[..classes], own, &mut gradient);
            let depth = self.layout.score_depth(row.value.len(), S::F64_LANES) + 2.0;
            let eta = gamma(depth) * self.longest * (1.0 + 8.0 * ROUNDOFF);
            // The subtraction of 1 from the own score rounds once more.
            let shift = ROUNDOFF * (1.0 + scores[own].abs());
            let lead = top - second;
            if dual[best] == cost {
                if lead <= self.margin {
                    append(&mut block.open, &[(i as u32, lead)])?;
                }
                if lead > 4.0 * (eta + shift) {
                    continue;
                }
            } else {
                append(&mut block.open, &[(i as u32, -1.0)])?;
            }
            append(&mut block.unsure, &[i as u32])?;
            let behind = |k: usize| top - (scores[k] - f64::from(u8::from(k == own)));
            let (gap, missed) = row_gap(dual, cost, eta, behind);
            // The own class matters when it holds weight or may lead; else its rounding is no one's.
            let matters = dual[own] > 0.0 || behind(own) <= 4.0 * (eta + shift);
            let shifted = if matters { shift * cost } else { 0.0 };
            block.gap += gap * (1.0 + 4.0 * ROUNDOFF * (classes as f64 + 4.0));
            block.rounding += 2.0 * cost * eta + shifted + missed;
        }
        Ok(block)
    }
}

#[cfg(test)]
mod tests {
    use super::feasibility_error;

    #[test]
    fn feasibility_errors() {
        assert_eq!(feasibility_error(&[0.0, 0.3, 0.0], 0.3), 0.0);
        assert!(feasibility_error(&[0.1, 0.2, 0.0], 0.3) >= (0.1 + 0.2 - 0.3_f64).abs());
        assert!(feasibility_error(&[0.1, 0.1], 0.3) >= 0.09);
        assert_eq!(feasibility_error(&[0.4, -0.1], 0.3), f64::INFINITY);
        assert!(feasibility_error(&[f64::NAN, 0.3], 0.3).is_nan());
    }
}
