//! The end game: a small working set in Gram space, polished by Newton steps.
//!
//! At the optimum very few `c_ik` lie strictly inside the simplex (a few hundred for ten thousand
//! rows). Once the working set is small, its scores live in Gram space, a visit costs `O(m)`, and
//! every few epochs one Newton step solves for all free coordinates at once: conjugate gradients
//! on the face, each row's step clipped to its own simplex, then an exact line search. Where
//! clipping would bend the step too much, and along flat directions, the whole step goes to the
//! first bound instead and the face loses a coordinate: without it, nearly equal rows took
//! thousands of rounds.
//!
//! Tried and dropped (medians on USPS, ISOLET, MNIST): coordinate descent alone in Gram space
//! needs 5 to 10 times the epochs; one common step to the first bound makes Newton steps of
//! .001 to .2. Rows of few columns on a lattice (eight pixels of digits, ten classes): four thousand
//! free coordinates for ninety weights, of which clipped steps took ten a round and single flat
//! directions one each; it did not end in minutes, and takes half a second with [`crossover`]. Beside proximal points, which
//! came later, that still matters to two classes: 4,000 rows of three counts take 8 ms with it, 47 without.

use crate::error::Result;
use crate::runtime::interrupt::Interrupt;
use crate::runtime::memory::{copied, filled, mapped, matrix, with_capacity, zeros};
use crate::simd::{Kernel, Simd, add_scaled, dispatch};
use crate::solver::crammer_singer::end_game::crossover;
use crate::solver::crammer_singer::end_game::newton::{Free, Step};
use crate::solver::crammer_singer::gram::GramSet;
use crate::solver::crammer_singer::problem::Problem;
use crate::solver::crammer_singer::simplex::{project, room, settle};

/// Share of an unbounded Newton step's gain that the clipped step must keep.
const WORTHWHILE: f64 = 0.1;
/// Coordinate epochs between two Newton steps.
const SWEEPS: usize = 8;

/// A working set and all that is needed to move inside it.
pub struct Face<'p, 'd> {
    problem: &'p Problem<'d>,
    set: &'p [u32],
    gram: &'p [f64],
    /// `<v_k, u_i>`, class-major: `scores[k * m + i]`.
    scores: Vec<f64>,
    /// `c` of the set, row-major.
    dual: Vec<f64>,
    label: Vec<u32>,
}

impl<'p, 'd> Face<'p, 'd> {
    /// The face of `set`, with the scores `by_row` of the current `dual`.
    ///
    /// # Errors
    /// No memory.
    pub fn new(
        problem: &'p Problem<'d>,
        set: &'p GramSet,
        by_row: &[f64],
        dual: &[f64],
    ) -> Result<Self> {
        let classes = problem.classes;
        let rows = &set.rows;
        let mut scores = matrix(classes, rows.len())?;
        for (i, row) in by_row.chunks_exact(classes).enumerate() {
            for (k, score) in row.iter().enumerate() {
                scores[k * rows.len() + i] = *score;
            }
        }
        let mut own = with_capacity(rows.len().saturating_mul(classes))?;
        for i in rows {
            own.extend_from_slice(&dual[*i as usize * classes..][..classes]);
        }
        Ok(Self {
            problem,
            set: rows,
            gram: &set.products,
            scores,
            dual: own,
            label: mapped(rows, |i| problem.label[*i as usize])?,
        })
    }

    /// Descends until the set's own gap is at most `target`, or `rounds` Newton rounds or `pivots`
    /// steps to a bound are done. Returns the set's gap.
    ///
    /// # Errors
    /// Interrupt; no memory.
    pub fn descend(
        &mut self,
        target: f64,
        rounds: usize,
        mut pivots: usize,
        interrupt: &dyn Interrupt,
    ) -> Result<f64> {
        let mut gap = f64::INFINITY;
        let mut rows = with_capacity(self.set.len())?;
        let classes = self.problem.classes;
        let (mut next, mut gradient) = (room(classes)?, zeros(classes)?);
        for _ in 0..rounds {
            rows.clear();
            rows.extend(0..self.set.len() as u32);
            for _ in 0..SWEEPS {
                interrupt.check()?;
                gap = dispatch(Sweep {
                    face: self,
                    rows: &mut rows,
                    room: (&mut next, &mut gradient),
                });
                if gap <= target {
                    return Ok(gap);
                }
            }
            self.cross_over(interrupt)?;
            while self.newton(interrupt)? {
                if pivots == 0 {
                    return Ok(gap);
                }
                pivots -= 1;
            }
        }
        Ok(gap)
    }

    /// Writes the set's `c` back into `dual`.
    pub fn store(&self, dual: &mut [f64]) {
        let classes = self.problem.classes;
        for (i, c) in self.set.iter().zip(self.dual.chunks_exact(classes)) {
            dual[*i as usize * classes..][..classes].copy_from_slice(c);
        }
    }

    #[inline(always)]
    fn gradient(&self, k: usize, i: usize) -> f64 {
        let own = self.label[i] as usize == k;
        self.scores[k * self.set.len() + i] - f64::from(u8::from(own))
    }

    /// One step on the face. Returns whether it went along a flat direction to a bound, and so
    /// made the face smaller.
    fn newton(&mut self, interrupt: &dyn Interrupt) -> Result<bool> {
        let free = Free::new(&self.dual, self.problem.classes, self.gram)?;
        let n = free.row.len();
        if n == 0 {
            return Ok(false);
        }
        let mut gradient = zeros(n)?;
        let mut position = zeros(n)?;
        for k in 0..self.problem.classes {
            for at in free.start[k]..free.start[k + 1] {
                let i = free.row[at] as usize;
                gradient[at] = self.gradient(k, i);
                position[at] = self.dual[i * self.problem.classes + k];
            }
        }
        let (raw, flat) = match free.solve(&gradient, interrupt)? {
            Step::Newton(step) => (step, false),
            Step::Flat(step) => (step, true),
        };
        let mut step = copied(&raw)?;
        let mut limited = if flat {
            stop_at_first_bound(&free, &mut step, &position)?
        } else {
            clip_rows(&free, &mut step, &position)?
        };
        let (mut length, gain) = line_search(&free, &gradient, &step)?;
        let promised = -0.5 * dot(&gradient, &raw);
        let mut pivot = flat;
        if !flat && free.is_wide() && gain < WORTHWHILE * promised {
            // Clipping bent the step too much: go straight to the first bound instead.
            step = raw;
            limited = stop_at_first_bound(&free, &mut step, &position)?;
            length = line_search(&free, &gradient, &step)?.0;
            pivot = limited.iter().any(|at| *at != u32::MAX);
        }
        if length == 0.0 {
            return Ok(false);
        }
        self.take(
            &free,
            &step,
            length,
            if length == 1.0 { &limited } else { &[] },
        )?;
        Ok(pivot && length == 1.0)
    }

    /// Ends the flat directions that the number of free coordinates makes certain.
    fn cross_over(&mut self, interrupt: &dyn Interrupt) -> Result<()> {
        if !crossover::is_worthwhile(self.problem, &self.dual) {
            return Ok(());
        }
        let (classes, m) = (self.problem.classes, self.set.len());
        let mut gradient = with_capacity(m * classes)?;
        gradient.extend((0..m * classes).map(|at| self.gradient(at % classes, at / classes)));
        let before = copied(&self.dual)?;
        crossover::reduce(self.problem, self.set, &mut self.dual, &gradient, interrupt)?;
        // In exact arithmetic no score changes; what rounding did to the weights is kept track of.
        let (mut row, mut moved) = (with_capacity(m * classes)?, with_capacity(m * classes)?);
        let mut start = with_capacity(classes + 1)?;
        start.push(0);
        for k in 0..classes {
            for i in 0..m {
                let at = i * classes + k;
                if before[at] != self.dual[at] {
                    row.push(i as u32);
                    moved.push(before[at] - self.dual[at]);
                }
            }
            start.push(row.len());
        }
        dispatch(Shift {
            face: self,
            row: &row,
            start: &start,
            moved: &moved,
        });
        Ok(())
    }

    /// Moves `c` by `-length * step`, puts rows back on the simplex, and updates the scores.
    fn take(&mut self, free: &Free, step: &[f64], length: f64, limited: &[u32]) -> Result<()> {
        let classes = self.problem.classes;
        let class_of = |at: usize| free.start.partition_point(|s| *s <= at) - 1;
        let mut moved = zeros(step.len())?;
        let mut before = zeros(classes)?;
        for row in 0..free.row_start.len() - 1 {
            let entries = &free.of_row[free.row_start[row]..free.row_start[row + 1]];
            let i = free.row[entries[0] as usize] as usize;
            let c = &mut self.dual[i * classes..(i + 1) * classes];
            before.copy_from_slice(c);
            for at in entries {
                let at = *at as usize;
                let k = class_of(at);
                let bounded = limited.get(row).is_some_and(|l| *l as usize == at);
                c[k] = if bounded {
                    0.0
                } else {
                    (c[k] - length * step[at]).max(0.0)
                };
            }
            settle(c, self.problem.cost_of(self.set[i] as usize));
            for at in entries {
                let k = class_of(*at as usize);
                moved[*at as usize] = before[k] - c[k];
            }
        }
        dispatch(Shift {
            face: self,
            row: &free.row,
            start: &free.start,
            moved: &moved,
        });
        Ok(())
    }
}

/// The best length in [0, 1] of a step, 0 if it does not go down, and what it gains.
fn line_search(free: &Free, gradient: &[f64], step: &[f64]) -> Result<(f64, f64)> {
    let (slope, curvature) = (dot(gradient, step), free.curvature(step)?);
    if slope.is_nan() || slope >= 0.0 || curvature.is_nan() {
        return Ok((0.0, 0.0));
    }
    let length = if curvature > 0.0 {
        (-slope / curvature).min(1.0)
    } else {
        1.0
    };
    Ok((length, -length * (slope + 0.5 * length * curvature)))
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// `c` moves by `-step`: scales each row's step so that the row stays on its simplex. Returns the
/// entry of each row that reaches 0.
fn clip_rows(free: &Free, step: &mut [f64], position: &[f64]) -> Result<Vec<u32>> {
    let mut limited = filled(free.row_start.len() - 1, u32::MAX)?;
    for (row, limited) in limited.iter_mut().enumerate() {
        let entries = &free.of_row[free.row_start[row]..free.row_start[row + 1]];
        let mut scale = 1.0;
        for at in entries {
            let at = *at as usize;
            if step[at] > 0.0 && position[at] < scale * step[at] {
                scale = position[at] / step[at];
                *limited = at as u32;
            }
        }
        for at in entries {
            step[*at as usize] *= scale;
        }
    }
    Ok(limited)
}

/// Scales the whole step so that it ends where the first entry reaches 0.
fn stop_at_first_bound(free: &Free, step: &mut [f64], position: &[f64]) -> Result<Vec<u32>> {
    let mut limited = filled(free.row_start.len() - 1, u32::MAX)?;
    let (mut scale, mut first) = (f64::INFINITY, None);
    for (row, pair) in free.row_start.windows(2).enumerate() {
        for at in &free.of_row[pair[0]..pair[1]] {
            let entry = *at as usize;
            if step[entry] > 0.0 && position[entry] < scale * step[entry] {
                scale = position[entry] / step[entry];
                first = Some((row, *at));
            }
        }
    }
    if let Some((row, at)) = first {
        limited[row] = at;
        for s in step.iter_mut() {
            *s *= scale;
        }
    }
    Ok(limited)
}

/// Scores change by `moved` times the Gram rows of the entries that moved: `row` of each, those of
/// class k at `start[k]..start[k + 1]`.
struct Shift<'f, 'p, 'd> {
    face: &'f mut Face<'p, 'd>,
    row: &'f [u32],
    start: &'f [usize],
    moved: &'f [f64],
}

impl Kernel for Shift<'_, '_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let m = self.face.set.len();
        for k in 0..self.face.problem.classes {
            let scores = &mut self.face.scores[k * m..(k + 1) * m];
            for at in self.start[k]..self.start[k + 1] {
                let line = &self.face.gram[self.row[at] as usize * m..][..m];
                add_scaled(simd, scores, self.moved[at], line);
            }
        }
    }
}

/// One epoch of coordinate descent over the set.
struct Sweep<'f, 'p, 'd> {
    face: &'f mut Face<'p, 'd>,
    /// Rows to visit; those optimal at a vertex are removed.
    rows: &'f mut Vec<u32>,
    /// Room for a row's duals and gradient.
    room: (&'f mut [f64], &'f mut [f64]),
}

impl Kernel for Sweep<'_, '_, '_> {
    /// Sum of the rows' gaps as seen when visited.
    type Output = f64;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> f64 {
        let face = self.face;
        let (m, classes) = (face.set.len(), face.problem.classes);
        let (next, gradient) = self.room;
        let mut total = 0.0;
        let mut kept = 0;
        for at in 0..self.rows.len() {
            let i = self.rows[at] as usize;
            let own = face.set[i] as usize;
            let (inverse, cost) = (1.0 / face.problem.square[own], face.problem.cost_of(own));
            let mut top = f64::NEG_INFINITY;
            for k in 0..classes {
                gradient[k] = face.gradient(k, i);
                top = top.max(gradient[k]);
            }
            let dual = &mut face.dual[i * classes..(i + 1) * classes];
            let mut gap = 0.0;
            next[classes..].fill(f64::MIN);
            for k in 0..classes {
                gap += dual[k] * (top - gradient[k]);
                next[k] = dual[k] + gradient[k] * inverse;
            }
            total += gap;
            if gap == 0.0 && dual.contains(&cost) {
                continue;
            }
            self.rows[kept] = i as u32;
            kept += 1;
            if gap == 0.0 {
                continue;
            }
            project(next, cost);
            let line = &face.gram[i * m..(i + 1) * m];
            for k in 0..classes {
                let moved = dual[k] - next[k];
                if moved != 0.0 {
                    add_scaled(simd, &mut face.scores[k * m..(k + 1) * m], moved, line);
                    dual[k] = next[k];
                }
            }
        }
        self.rows.truncate(kept);
        total
    }
}
