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
use crate::solver::crammer_singer::simplex::{LANES, leading, project, room};

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
        let (mut gradient, mut next) = (room(classes)?, room(classes)?);
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
            let (best, top, second) = leading(&scores[..classes], own, &mut gradient);
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
            next[classes..].fill(0.0);
            next[..classes].copy_from_slice(dual);
            let mut gaps = [0.0; LANES];
            let (chunks, rest) = next.as_chunks_mut::<LANES>();
            let (gradients, few) = gradient.as_chunks::<LANES>();
            for (next, g) in chunks.iter_mut().zip(gradients) {
                for lane in 0..LANES {
                    gaps[lane] += next[lane] * (top - g[lane]);
                    next[lane] += g[lane] * inverse;
                }
            }
            for (next, g) in rest.iter_mut().zip(few) {
                gaps[0] += *next * (top - g);
                *next += g * inverse;
            }
            total_gap += gaps.iter().sum::<f64>();
            project(&mut next, cost);
            let mut changed = false;
            for k in 0..classes {
                moved[k] = T::near(dual[k] - next[k]);
                changed |= moved[k] != T::default();
            }
            if changed {
                dual.copy_from_slice(&next[..classes]);
                self.layout.update(simd, row, self.weights, &moved);
            }
        }
        self.active.truncate(kept);
        Ok(total_gap)
    }
}
