//! One batch Frank-Wolfe step on the dual: slow, but with a rate that holds for every data set.
//!
//! With exact line search from any start, some step `t <= T` starts at a duality gap of at most
//! `4 C_f / (T + 2)`, and `C_f <= 2 n^2 C^2` when rows have norm at most 1, in exact arithmetic.
//! Steps of another method that never lower the dual in between keep the bound. Proof:
//! `docs/proofs/output_perturbation.md`, "Inexact minimiser" (after Jaggi, ICML 2013, Theorem 2).

use crate::error::Result;
use crate::layout::weights::{WeightLayout, typed};
use crate::runtime::interrupt::{Interrupt, poll};
use crate::runtime::memory::{with_capacity, zeros};
use crate::simd::{Kernel, Simd, dispatch};
use crate::solver::crammer_singer::certificate::Certificate;
use crate::solver::crammer_singer::problem::Problem;
use crate::solver::crammer_singer::simplex::{leading, room};

/// Moves `dual` towards the best vertex of every row at once.
///
/// # Errors
/// Interrupt.
pub fn step<L: WeightLayout>(
    problem: &Problem<'_>,
    layout: L,
    certificate: &Certificate,
    dual: &mut [f64],
    interrupt: &dyn Interrupt,
) -> Result<()> {
    let (target, vertices, gap) = dispatch(Vertices {
        problem,
        layout,
        weights: &certificate.weights,
        dual,
        interrupt,
    })?;
    let square: f64 = target
        .iter()
        .zip(&certificate.weights)
        .map(|(t, w)| (t - w) * (t - w))
        .sum();
    if gap <= 0.0 {
        return Ok(());
    }
    // A direction of length 0 is downhill all the way.
    let length = if square > 0.0 {
        (gap / square).min(1.0)
    } else {
        1.0
    };
    let rows = dual.chunks_exact_mut(problem.classes);
    for (i, (c, vertex)) in rows.zip(&vertices).enumerate() {
        let cost = problem.cost_of(i);
        if length == 1.0 {
            c.fill(0.0);
            c[*vertex as usize] = cost;
        } else if c[*vertex as usize] != cost {
            let mut rest = 0.0;
            for (k, c) in c.iter_mut().enumerate() {
                *c *= 1.0 - length;
                rest += if k == *vertex as usize { 0.0 } else { *c };
            }
            c[*vertex as usize] = (cost - rest).max(0.0);
        }
    }
    Ok(())
}

struct Vertices<'p, 'd, L> {
    problem: &'p Problem<'d>,
    layout: L,
    weights: &'p [f64],
    dual: &'p [f64],
    interrupt: &'p dyn Interrupt,
}

impl<L: WeightLayout> Kernel for Vertices<'_, '_, L> {
    /// Weights of the point with every row at its best vertex, those vertices, and the gap.
    type Output = Result<(Vec<f64>, Vec<u32>, f64)>;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> Self::Output {
        let classes = self.problem.classes;
        let mut scores = zeros(self.layout.padded_classes())?;
        let mut move_by = zeros(self.layout.padded_classes())?;
        let mut target = zeros(self.layout.stored())?;
        let mut vertices = with_capacity(self.problem.len())?;
        let mut buffer = self.problem.store.buffer()?;
        let mut entries = Vec::new();
        let (mut gap, mut gradient) = (0.0, room(classes)?);
        for i in 0..self.problem.len() {
            poll(i, self.interrupt)?;
            let row = typed(self.problem.store.row(i, &mut buffer), &mut entries)?;
            self.layout.scores(simd, row, self.weights, &mut scores);
            let own = self.problem.label[i] as usize;
            let dual = &self.dual[i * classes..(i + 1) * classes];
            let (best, top, _) = leading(&scores[..classes], own, &mut gradient);
            for k in 0..classes {
                gap += dual[k] * (top - scores[k] + f64::from(u8::from(k == own)));
            }
            vertices.push(best as u32);
            if best != own {
                let cost = self.problem.cost_of(i);
                move_by[own] = cost;
                move_by[best] = -cost;
                self.layout.update(simd, row, &mut target, &move_by);
                move_by[own] = 0.0;
                move_by[best] = 0.0;
            }
        }
        Ok((target, vertices, gap))
    }
}
