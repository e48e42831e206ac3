//! The end game: a small working set in Gram space, polished by Newton steps.
//!
//! At the optimum very few `c_ik` lie strictly inside the simplex (a few hundred for ten thousand
//! rows). Once the working set is small, its scores live in Gram space, a visit costs `O(m)`, and
//! every few epochs one Newton step solves for all free coordinates at once: conjugate gradients
//! on the face, each row's step clipped to its own simplex, then an exact line search.
//!
//! Tried and dropped (medians on USPS, ISOLET, MNIST): coordinate descent alone in Gram space
//! needs 5 to 10 times the epochs; one common step to the first bound makes Newton steps of
//! .001 to .2.

use super::problem::Problem;
use super::simplex::project;
use crate::error::Result;
use crate::parallel::Interrupt;
use crate::simd::{Kernel, Simd, add_scaled, dispatch};

/// Coordinate epochs between two Newton steps.
const SWEEPS: usize = 8;
/// Conjugate-gradient iterations of one Newton step at most.
const CG_STEPS: usize = 250;
/// Relative residual at which a Newton step's linear system counts as solved.
const CG_TOLERANCE: f64 = 1e-4;

/// A working set and all that is needed to move inside it.
pub struct Face<'p, 'd> {
    problem: &'p Problem<'d>,
    set: &'p [u32],
    gram: Vec<f64>,
    /// `<v_k, u_i>`, class-major: `scores[k * m + i]`.
    scores: Vec<f64>,
    /// `c` of the set, row-major.
    dual: Vec<f64>,
    label: Vec<u32>,
}

/// The free coordinates: entries of rows with at least two positive ones, grouped by class.
struct Free {
    /// Row of each entry.
    row: Vec<u32>,
    /// Entries of class k are `start[k]..start[k + 1]`.
    start: Vec<usize>,
    /// Entries of each row, flat, and where each free row's begin.
    of_row: Vec<u32>,
    row_start: Vec<usize>,
    /// Gram matrices among the entries of each class, row-major, one after the other.
    blocks: Vec<f64>,
}

impl<'p, 'd> Face<'p, 'd> {
    /// The face of `set`, with `scores` (class-major) of the current `dual`.
    pub fn new(
        problem: &'p Problem<'d>,
        set: &'p [u32],
        gram: Vec<f64>,
        scores: Vec<f64>,
        dual: &[f64],
    ) -> Self {
        let classes = problem.classes;
        let mut own = Vec::with_capacity(set.len() * classes);
        for i in set {
            own.extend_from_slice(&dual[*i as usize * classes..][..classes]);
        }
        Self {
            problem,
            set,
            gram,
            scores,
            dual: own,
            label: set.iter().map(|i| problem.label[*i as usize]).collect(),
        }
    }

    /// Descends until the set's own gap is at most `target`, or `rounds` Newton rounds are done.
    /// Returns the set's gap.
    ///
    /// # Errors
    /// Interrupt.
    pub fn descend(
        &mut self,
        target: f64,
        rounds: usize,
        interrupt: &dyn Interrupt,
    ) -> Result<f64> {
        let mut gap = f64::INFINITY;
        for _ in 0..rounds {
            for _ in 0..SWEEPS {
                interrupt.check()?;
                gap = dispatch(Sweep { face: self });
                if gap <= target {
                    return Ok(gap);
                }
            }
            self.newton(interrupt)?;
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

    fn free(&self) -> Free {
        let (m, classes) = (self.set.len(), self.problem.classes);
        let mut by_class: Vec<Vec<u32>> = vec![Vec::new(); classes];
        let mut free_row = vec![false; m];
        for i in 0..m {
            let c = &self.dual[i * classes..(i + 1) * classes];
            if c.iter().filter(|c| **c > 0.0).count() < 2 {
                continue;
            }
            free_row[i] = true;
            for k in 0..classes {
                if c[k] > 0.0 {
                    by_class[k].push(i as u32);
                }
            }
        }
        let mut entries: Vec<Vec<u32>> = vec![Vec::new(); m];
        let (mut row, mut start, mut blocks) = (Vec::new(), vec![0], Vec::new());
        for rows in &by_class {
            for i in rows {
                entries[*i as usize].push(row.len() as u32);
                row.push(*i);
                let line = &self.gram[*i as usize * m..][..m];
                blocks.extend(rows.iter().map(|j| line[*j as usize]));
            }
            start.push(row.len());
        }
        let (mut of_row, mut row_start) = (Vec::new(), vec![0]);
        for entries in entries.iter().filter(|e| !e.is_empty()) {
            of_row.extend_from_slice(entries);
            row_start.push(of_row.len());
        }
        Free {
            row,
            start,
            of_row,
            row_start,
            blocks,
        }
    }

    /// One Newton step on the face.
    fn newton(&mut self, interrupt: &dyn Interrupt) -> Result<()> {
        let free = self.free();
        let n = free.row.len();
        if n == 0 {
            return Ok(());
        }
        let mut gradient = vec![0.0; n];
        let mut position = vec![0.0; n];
        for k in 0..self.problem.classes {
            for at in free.start[k]..free.start[k + 1] {
                let i = free.row[at] as usize;
                gradient[at] = self.gradient(k, i);
                position[at] = self.dual[i * self.problem.classes + k];
            }
        }
        let mut step = free.solve(&gradient, interrupt)?;
        // c moves by -step: clip each row to its simplex.
        let mut limited = vec![u32::MAX; free.row_start.len() - 1];
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
        let mut image = vec![0.0; n];
        dispatch(Product {
            free: &free,
            x: &step,
            out: &mut image,
        });
        let slope: f64 = gradient.iter().zip(&step).map(|(g, s)| g * s).sum();
        let curvature: f64 = image.iter().zip(&step).map(|(h, s)| h * s).sum();
        if !(slope < 0.0 && curvature > 0.0) {
            return Ok(());
        }
        let length = (-slope / curvature).min(1.0);
        self.take(
            &free,
            &step,
            length,
            if length == 1.0 { &limited } else { &[] },
        );
        Ok(())
    }

    /// Moves `c` by `-length * step`, puts rows back on the simplex, and updates the scores.
    fn take(&mut self, free: &Free, step: &[f64], length: f64, limited: &[u32]) {
        let (classes, cost) = (self.problem.classes, self.problem.cost);
        let class_of = |at: usize| free.start.partition_point(|s| *s <= at) - 1;
        let mut moved = vec![0.0; step.len()];
        for row in 0..free.row_start.len() - 1 {
            let entries = &free.of_row[free.row_start[row]..free.row_start[row + 1]];
            let i = free.row[entries[0] as usize] as usize;
            let c = &mut self.dual[i * classes..(i + 1) * classes];
            let before = c.to_vec();
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
            settle(c, cost);
            for at in entries {
                let k = class_of(*at as usize);
                moved[*at as usize] = before[k] - c[k];
            }
        }
        dispatch(Shift {
            face: self,
            free,
            moved: &moved,
        });
    }
}

/// Puts a row that sums to `cost` up to rounding back on the simplex, zeros kept; a lone positive
/// entry becomes the exact vertex.
fn settle(c: &mut [f64], cost: f64) {
    let mut best = 0;
    for k in 1..c.len() {
        if c[k] > c[best] {
            best = k;
        }
    }
    let rest: f64 = (0..c.len()).filter(|k| *k != best).map(|k| c[k]).sum();
    c[best] = cost - rest;
}

/// Scores change by `moved` times the Gram rows of the free entries.
struct Shift<'f, 'p, 'd> {
    face: &'f mut Face<'p, 'd>,
    free: &'f Free,
    moved: &'f [f64],
}

impl Kernel for Shift<'_, '_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let m = self.face.set.len();
        for k in 0..self.face.problem.classes {
            let scores = &mut self.face.scores[k * m..(k + 1) * m];
            for at in self.free.start[k]..self.free.start[k + 1] {
                let line = &self.face.gram[self.free.row[at] as usize * m..][..m];
                add_scaled(simd, scores, self.moved[at], line);
            }
        }
    }
}

impl Free {
    /// Minimises `1/2 p'Hp + g'p` over steps that keep every row's sum: projected conjugate
    /// gradients from 0.
    fn solve(&self, gradient: &[f64], interrupt: &dyn Interrupt) -> Result<Vec<f64>> {
        let n = gradient.len();
        let mut solution = vec![0.0; n];
        let mut residual: Vec<f64> = gradient.iter().map(|g| -g).collect();
        self.balance(&mut residual);
        let mut direction = residual.clone();
        let mut image = vec![0.0; n];
        let mut norm: f64 = residual.iter().map(|r| r * r).sum();
        let enough = norm * CG_TOLERANCE * CG_TOLERANCE;
        for _ in 0..CG_STEPS {
            interrupt.check()?;
            if norm <= enough {
                break;
            }
            dispatch(Product {
                free: self,
                x: &direction,
                out: &mut image,
            });
            self.balance(&mut image);
            let curvature: f64 = direction.iter().zip(&image).map(|(d, h)| d * h).sum();
            if curvature.is_nan() || curvature <= 0.0 {
                break;
            }
            let length = norm / curvature;
            let mut next = 0.0;
            for at in 0..n {
                solution[at] += length * direction[at];
                residual[at] -= length * image[at];
                next += residual[at] * residual[at];
            }
            let ratio = next / norm;
            norm = next;
            for at in 0..n {
                direction[at] = residual[at] + ratio * direction[at];
            }
        }
        Ok(solution)
    }

    /// Subtracts each row's mean over its entries.
    fn balance(&self, x: &mut [f64]) {
        for pair in self.row_start.windows(2) {
            let entries = &self.of_row[pair[0]..pair[1]];
            let sum: f64 = entries.iter().map(|at| x[*at as usize]).sum();
            let mean = sum / entries.len() as f64;
            for at in entries {
                x[*at as usize] -= mean;
            }
        }
    }
}

/// `out = H x`, class by class.
struct Product<'f> {
    free: &'f Free,
    x: &'f [f64],
    out: &'f mut [f64],
}

impl Kernel for Product<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let mut blocks = self.free.blocks.as_slice();
        for pair in self.free.start.windows(2) {
            let size = pair[1] - pair[0];
            let x = &self.x[pair[0]..pair[1]];
            let out = &mut self.out[pair[0]..pair[1]];
            out.fill(0.0);
            // Symmetric: columns are rows, and adding scaled rows needs no horizontal sums.
            let (block, rest) = blocks.split_at(size * size);
            for (x, line) in x.iter().zip(block.chunks_exact(size.max(1))) {
                add_scaled(simd, out, *x, line);
            }
            blocks = rest;
        }
    }
}

/// One epoch of coordinate descent over the set.
struct Sweep<'f, 'p, 'd> {
    face: &'f mut Face<'p, 'd>,
}

impl Kernel for Sweep<'_, '_, '_> {
    /// Sum of the rows' gaps as seen when visited.
    type Output = f64;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> f64 {
        let face = self.face;
        let (m, classes, cost) = (face.set.len(), face.problem.classes, face.problem.cost);
        let mut next = vec![0.0; classes];
        let mut gradient = vec![0.0; classes];
        let mut total = 0.0;
        for i in 0..m {
            let inverse = 1.0 / face.problem.square[face.set[i] as usize];
            let mut top = f64::NEG_INFINITY;
            for k in 0..classes {
                gradient[k] = face.gradient(k, i);
                top = top.max(gradient[k]);
            }
            let dual = &mut face.dual[i * classes..(i + 1) * classes];
            let mut gap = 0.0;
            for k in 0..classes {
                gap += dual[k] * (top - gradient[k]);
                next[k] = dual[k] + gradient[k] * inverse;
            }
            total += gap;
            if gap == 0.0 {
                continue;
            }
            project(&mut next, cost);
            let line = &face.gram[i * m..(i + 1) * m];
            for k in 0..classes {
                let moved = dual[k] - next[k];
                if moved != 0.0 {
                    add_scaled(simd, &mut face.scores[k * m..(k + 1) * m], moved, line);
                    dual[k] = next[k];
                }
            }
        }
        total
    }
}
