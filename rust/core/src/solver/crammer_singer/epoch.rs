//! One epoch of dual coordinate descent over the active rows.
//!
//! A visit solves the sub-problem of one row exactly: the new `c_i` is the projection of
//! `c_i + G_i / ||u_i||^2` onto the simplex. Rows that sit at their best vertex with room to spare
//! leave the active set (they are looked at again by every certificate).

use crate::error::Result;
use crate::layout::weights::{WeightLayout, typed};
use crate::runtime::interrupt::{Interrupt, poll};
use crate::runtime::memory::zeros;
use crate::simd::{Kernel, Real, Simd};
use crate::solver::crammer_singer::problem::Problem;
use crate::solver::crammer_singer::simplex::{LANES, MANY, each_above, project};

/// One epoch; run it with [`crate::simd::dispatch`].
pub struct Epoch<'p, 'd, L, T> {
    /// The problem.
    pub problem: &'p Problem<'d>,
    /// Layout of the weights.
    pub layout: L,
    /// `V`, updated in place.
    pub weights: &'p mut [T],
    /// `c`, updated in place.
    pub dual: &'p mut [f64],
    /// Rows to visit, in this order; afterwards those that are not at their best vertex.
    pub active: &'p mut Vec<u32>,
    /// Takes the rows at their best vertex that are not dropped.
    pub resting: &'p mut Vec<u32>,
    /// A row at its vertex is dropped when the next best score is further below than this.
    pub slack: f64,
    /// Asked now and then.
    pub interrupt: &'p dyn Interrupt,
}

impl<L: WeightLayout, T: Real> Kernel for Epoch<'_, '_, L, T> {
    /// The sum of the rows' gaps, each as it was when its row was visited: an estimate only.
    type Output = Result<f64>;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> Result<f64> {
        let classes = self.problem.classes;
        let mut scores = zeros::<T>(self.layout.padded_classes())?;
        let mut moved = zeros::<T>(self.layout.padded_classes())?;
        let mut next = zeros(classes)?;
        let mut buffer = self.problem.store.buffer()?;
        let mut entries = Vec::new();
        let mut total_gap = 0.0;
        let mut kept = 0;
        for at in 0..self.active.len() {
            poll(at, self.interrupt)?;
            let i = self.active[at] as usize;
            let square = self.problem.square[i];
            if square == 0.0 {
                continue;
            }
            let row = typed(self.problem.store.row(i, &mut buffer), &mut entries)?;
            self.layout.scores(simd, row, self.weights, &mut scores);
            let own = self.problem.label[i] as usize;
            let dual = &mut self.dual[i * classes..(i + 1) * classes];
            let (best, top, second) = leading(&scores[..classes], own);
            let cost = self.problem.cost_of(i);
            if dual[best] == cost {
                if top - second <= self.slack {
                    self.resting.push(i as u32);
                }
                continue;
            }
            self.active[kept] = i as u32;
            kept += 1;
            let inverse = 1.0 / square;
            for k in 0..classes {
                next[k] = scores[k].wide();
            }
            next[own] -= 1.0;
            each_above(dual, 0.0, |k| total_gap += dual[k] * (top - next[k]));
            for k in 0..classes {
                next[k] = dual[k] + next[k] * inverse;
            }
            project(&mut next, cost);
            let mut changed = false;
            for k in 0..classes {
                moved[k] = T::near(dual[k] - next[k]);
                changed |= moved[k] != T::default();
            }
            if changed {
                dual.copy_from_slice(&next);
                self.layout.update(simd, row, self.weights, &moved);
            }
        }
        self.active.truncate(kept);
        Ok(total_gap)
    }
}

/// Class of the largest `G_k`, its value, and the second largest value.
#[inline(always)]
pub fn leading<T: Real>(scores: &[T], own: usize) -> (usize, f64, f64) {
    let (mut best, mut top, mut second) = (0, f64::NEG_INFINITY, f64::NEG_INFINITY);
    if scores.len() >= MANY {
        // Lane by lane, without branches; ties go to the first class here too.
        let (mut tops, mut seconds) = ([top; LANES], [top; LANES]);
        for (first, chunk) in (0..).step_by(LANES).zip(scores.chunks(LANES)) {
            for (lane, score) in chunk.iter().enumerate() {
                let gradient = score.wide() - f64::from(u8::from(first + lane == own));
                let (above, below) = if gradient > tops[lane] {
                    (gradient, tops[lane])
                } else {
                    (tops[lane], gradient)
                };
                tops[lane] = above;
                seconds[lane] = if below > seconds[lane] {
                    below
                } else {
                    seconds[lane]
                };
            }
        }
        for (one, other) in tops.iter().zip(&seconds) {
            second = second.max(*other).max(top.min(*one));
            top = top.max(*one);
        }
        let at = |(k, score): (usize, &T)| score.wide() - f64::from(u8::from(k == own)) == top;
        return (
            scores.iter().enumerate().position(at).unwrap_or(0),
            top,
            second,
        );
    }
    for (k, score) in scores.iter().enumerate() {
        let gradient = score.wide() - f64::from(u8::from(k == own));
        if gradient > top {
            second = top;
            top = gradient;
            best = k;
        } else if gradient > second {
            second = gradient;
        }
    }
    (best, top, second)
}
