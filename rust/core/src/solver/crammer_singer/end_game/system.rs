//! The Newton system of duals inside their simplices: `ridge I + sum_i (diag(s_i) - s_i s_i^T / |s_i|)
//! (x) u_i u_i^T` for the shares `s_i` of each row in its free classes, whose sum is `|s_i|`.

use crate::error::Result;
use crate::layout::weights::{WeightLayout, typed};
use crate::linalg::cholesky::Cholesky;
use crate::runtime::interrupt::Interrupt;
use crate::runtime::memory::{append, collected, copied, filled, matrix, with_capacity, zeros};
use crate::runtime::threads::{each_block, map_blocks};
use crate::simd::{Kernel, Simd, add_scaled, dispatch};
use crate::solver::crammer_singer::problem::Problem;
use crate::solver::smooth::newton_parts::add;
use std::ops::Range;

/// Largest number of multiplications of a class between two checks of the interrupt.
const WAVE_WORK: usize = 1 << 24;
/// Size up to which a system is factored at once.
const SMALL: usize = 1200;
/// Size up to which it is factored at all: nothing asks for interrupts meanwhile, for a tenth of a second.
const LARGE: usize = 2000;
/// Largest number of conjugate gradients, and the relative residual at which they end. One-hot rows
/// with 2,400 weights: a factor takes 150 ms, a conjugate gradient 0.15 ms.
const CG_STEPS: usize = 1000;
const CG_TOLERANCE: f64 = 0.05;
/// Share of a factor's time that they may take before one is made. 50,000 one-hot rows, 40,000 of them
/// inside, with 1,536 weights: 19 s; with a share of 1 23 s.
const CG_SHARE: f64 = 0.3;
/// Time of a multiplication in a factor, in units of one in a product with the rows.
const FACTOR_WORK: f64 = 0.25;
/// Classes of a sparse row up to which they are met one by one.
const FEW: usize = 3;
/// Rows of one block of a product: a constant, so sums do not depend on the threads.
const BLOCK: usize = 1024;

/// Builds and solves it.
pub struct System<'p, 'd, L> {
    problem: &'p Problem<'d>,
    layout: L,
    interrupt: &'p dyn Interrupt,
}

impl<'p, 'd, L: WeightLayout> System<'p, 'd, L> {
    /// For the rows of a problem.
    pub fn new(problem: &'p Problem<'d>, layout: L, interrupt: &'p dyn Interrupt) -> Self {
        Self {
            problem,
            layout,
            interrupt,
        }
    }

    /// Solves for the right side in `x` (as the weights are laid out), in place. `free` holds rows,
    /// where the classes of each begin, and these classes; `shares` belong to the last, or one to all.
    /// False where rounding spoils the factor.
    ///
    /// # Errors
    /// Interrupt; no memory.
    pub fn solve(
        &self,
        free: (&[u32], &[usize], &[u32]),
        shares: &[f64],
        ridge: f64,
        x: &mut [f64],
    ) -> Result<bool> {
        let (classes, d) = (self.problem.classes, self.problem.columns);
        let size = classes * d;
        let hessian = self.build(free, shares, ridge)?;
        let mut right = zeros(size)?;
        for (at, right) in right.iter_mut().enumerate() {
            *right = x[self.layout.position(at / d, at % d)];
        }
        let Some(factor) = Cholesky::new(hessian, size)? else {
            return Ok(false);
        };
        factor.solve(&mut right)?;
        x.fill(0.0);
        for (at, right) in right.iter().enumerate() {
            x[self.layout.position(at / d, at % d)] = *right;
        }
        Ok(right.iter().all(|x| x.is_finite()))
    }

    /// [`Self::solve`] with one share and a ridge of 1, as well as a Newton step needs it: a large system
    /// by conjugate gradients, then by a factor where they were too slow and it is not too large.
    ///
    /// # Errors
    /// Interrupt; no memory.
    pub fn step(
        &self,
        free: (&[u32], &[usize], &[u32]),
        sigma: f64,
        x: &mut [f64],
    ) -> Result<bool> {
        let size = self.problem.classes * self.problem.columns;
        if size > SMALL {
            let right = copied(x)?;
            if self.approach(free, sigma, x)? || size > LARGE {
                return Ok(x.iter().all(|x| x.is_finite()));
            }
            x.copy_from_slice(&right);
        }
        self.solve(free, &[sigma], 1.0, x)
    }

    /// Conjugate gradients from 0, preconditioned by the diagonal. Returns whether they came near.
    fn approach(
        &self,
        free: (&[u32], &[usize], &[u32]),
        sigma: f64,
        x: &mut [f64],
    ) -> Result<bool> {
        let diagonal = self.product(free, sigma, None)?;
        let mut residual = copied(x)?;
        x.fill(0.0);
        let mut direction = zeros(x.len())?;
        let mut last = f64::INFINITY;
        let mut enough = None;
        for _ in 0..self.patience(free) {
            let scaled = residual.iter().zip(&diagonal);
            let norm: f64 = scaled.map(|(r, d)| r * r / d).sum();
            if norm <= *enough.get_or_insert(CG_TOLERANCE * CG_TOLERANCE * norm) {
                return Ok(true);
            }
            for (at, direction) in direction.iter_mut().enumerate() {
                *direction = residual[at] / diagonal[at] + norm / last * *direction;
            }
            last = norm;
            let image = self.product(free, sigma, Some(&direction))?;
            let curvature: f64 = direction.iter().zip(&image).map(|(d, h)| d * h).sum();
            add(x, norm / curvature, &direction);
            add(&mut residual, -norm / curvature, &image);
        }
        Ok(false)
    }

    /// Conjugate gradients that are worth trying.
    fn patience(&self, (rows, start, _): (&[u32], &[usize], &[u32])) -> usize {
        let (classes, d) = (self.problem.classes, self.problem.columns);
        if classes * d > LARGE {
            return CG_STEPS;
        }
        let pairs = |ends: &[usize]| ((ends[1] - ends[0]) as f64).powi(2) / 2.0;
        let pairs: f64 = start.windows(2).map(pairs).sum();
        let touched = self.problem.touched as f64;
        let build = pairs * touched / classes as f64 * d as f64;
        let factor = FACTOR_WORK * ((classes * d) as f64).powi(3) / 6.0;
        let product = 2.0 * touched * rows.len() as f64;
        CG_STEPS.min((CG_SHARE * (build + factor) / product) as usize)
    }

    /// The product of the matrix with `x`, or its diagonal.
    fn product(
        &self,
        free: (&[u32], &[usize], &[u32]),
        sigma: f64,
        x: Option<&[f64]>,
    ) -> Result<Vec<f64>> {
        let (problem, layout, n) = (self.problem, self.layout, free.0.len());
        let pool = problem.pool.as_deref();
        let parts = map_blocks(pool, n.div_ceil(BLOCK), self.interrupt, |block| {
            dispatch(Product {
                problem,
                layout,
                free,
                sigma,
                x,
                rows: block * BLOCK..n.min((block + 1) * BLOCK),
            })
        })?;
        let mut sum = x.map_or_else(|| filled(layout.stored(), 1.0), copied)?;
        for part in parts {
            add(&mut sum, 1.0, &part);
        }
        Ok(sum)
    }

    /// The matrix row by row; of its blocks those on and above the diagonal.
    fn build(
        &self,
        free: (&[u32], &[usize], &[u32]),
        shares: &[f64],
        ridge: f64,
    ) -> Result<Vec<f64>> {
        let (rows, start, all) = free;
        let (classes, d) = (self.problem.classes, self.problem.columns);
        let size = classes * d;
        let dense = self.dense(rows)?;
        let sum = |ends: &[usize]| shares[ends[0]..ends[1]].iter().sum();
        let different = if shares.len() > 1 { start } else { &[] };
        let sums: Vec<f64> = collected(different.windows(2).map(sum))?;
        let mut members: Vec<Vec<(u32, u32)>> = filled(classes, Vec::new())?;
        for (i, ends) in start.windows(2).enumerate() {
            for at in ends[0]..ends[1] {
                append(&mut members[all[at] as usize], &[(i as u32, at as u32)])?;
            }
        }
        let mut strips = with_capacity(classes)?;
        for k in 0..classes {
            strips.push(matrix(classes - k, triangle(d))?);
        }
        let pool = self.problem.pool.as_deref();
        let wave = (WAVE_WORK / (d * size).max(1)).max(1);
        let longest = members.iter().map(Vec::len).max().unwrap_or(0);
        for first in (0..longest).step_by(wave) {
            let mut tasks = with_capacity(classes)?;
            for (class, (strip, members)) in strips.iter_mut().zip(&members).enumerate() {
                let last = members.len().min(first + wave);
                tasks.push((class, strip, &members[first.min(last)..last]));
            }
            each_block(
                pool,
                &mut tasks,
                self.interrupt,
                |(class, strip, members)| {
                    dispatch(Strip {
                        free,
                        dense: &dense,
                        members,
                        shares,
                        sums: &sums,
                        class: *class,
                        strip,
                    });
                    Ok(())
                },
            )?;
        }
        let mut hessian = matrix(size, size)?;
        for (k, strip) in strips.iter().enumerate() {
            for (l, block) in (k..).zip(strip.chunks_exact(triangle(d))) {
                for i in 0..d {
                    let line = &mut hessian[(k * d + i) * size + l * d..][..d];
                    line[..=i].copy_from_slice(&block[triangle(i)..][..=i]);
                    for j in i + 1..d {
                        line[j] = block[triangle(j) + i];
                    }
                }
            }
        }
        for at in 0..size {
            hessian[at * size + at] += ridge;
        }
        Ok(hessian)
    }

    /// The rows in full, in double precision.
    fn dense(&self, rows: &[u32]) -> Result<Vec<f64>> {
        let d = self.problem.columns;
        let mut dense = matrix(rows.len(), d)?;
        let mut buffer = self.problem.store.buffer()?;
        for (i, out) in rows.iter().zip(dense.chunks_exact_mut(d)) {
            let row = self.problem.store.row(*i as usize, &mut buffer);
            row.spread(out);
        }
        Ok(dense)
    }
}

/// Rows' part of the product of the matrix with `x`, or of its diagonal.
struct Product<'s, 'd, L> {
    problem: &'s Problem<'d>,
    layout: L,
    free: (&'s [u32], &'s [usize], &'s [u32]),
    sigma: f64,
    x: Option<&'s [f64]>,
    rows: Range<usize>,
}

impl<L: WeightLayout> Kernel for Product<'_, '_, L> {
    type Output = Result<Vec<f64>>;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> Result<Vec<f64>> {
        let (rows, start, all) = self.free;
        let mut out = zeros(self.layout.stored())?;
        let mut scores = zeros(self.layout.padded_classes())?;
        let mut shares = zeros(self.layout.padded_classes())?;
        let mut buffer = self.problem.store.buffer()?;
        let (mut entries, mut squares) = (Vec::new(), Vec::new());
        for at in self.rows {
            let row = self.problem.store.row(rows[at] as usize, &mut buffer);
            let mut row = typed(row, &mut entries)?;
            let classes = &all[start[at]..start[at + 1]];
            let part = 1.0 / classes.len() as f64;
            let few = classes.len() <= FEW && !row.index.is_empty();
            let place = |k: u32, j: u32| self.layout.position(k as usize, j as usize);
            let mean = if let Some(x) = self.x {
                if few {
                    for k in classes {
                        let entries = row.index.iter().zip(row.value);
                        scores[*k as usize] = entries.map(|(j, v)| x[place(*k, *j)] * v).sum();
                    }
                } else {
                    self.layout.scores(simd, row, x, &mut scores);
                }
                part * classes.iter().map(|k| scores[*k as usize]).sum::<f64>()
            } else {
                // Of the diagonal, where every score is 1.
                squares.clear();
                append(&mut squares, row.value)?;
                for x in &mut squares {
                    *x *= *x;
                }
                row.value = &squares;
                scores.fill(1.0);
                part
            };
            for k in classes {
                let share = self.sigma * (scores[*k as usize] - mean);
                shares[*k as usize] = share;
                if few {
                    for (j, v) in row.index.iter().zip(row.value) {
                        out[place(*k, *j)] += share * v;
                    }
                }
            }
            if !few {
                self.layout.update(simd, row, &mut out, &shares);
            }
            for k in classes {
                shares[*k as usize] = 0.0;
            }
        }
        Ok(out)
    }
}

/// Number of entries of a lower triangle with this many lines.
fn triangle(lines: usize) -> usize {
    lines * (lines + 1) / 2
}

/// Columns up to which the products of a row's entries are made once for all classes.
const SHORT: usize = 24;

/// The rows of the matrix that belong to one class, from its diagonal block on.
struct Strip<'s> {
    free: (&'s [u32], &'s [usize], &'s [u32]),
    dense: &'s [f64],
    /// Rows inside their simplex there, and where the class is among theirs.
    members: &'s [(u32, u32)],
    /// Shares of every class of a row, and sums over each row; or one share of all classes.
    shares: &'s [f64],
    sums: &'s [f64],
    class: usize,
    /// The lower triangle of every block, as all are symmetric.
    strip: &'s mut [f64],
}

impl Kernel for Strip<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let (_, start, all) = self.free;
        let d = self.dense.len() / (start.len() - 1).max(1);
        let size = triangle(d);
        let mut room = [0.0; SHORT * (SHORT + 1) / 2];
        for (i, at) in self.members {
            let (i, at) = (*i as usize, *at as usize);
            let row = &self.dense[i * d..][..d];
            let products = room.get_mut(..size).unwrap_or_default();
            for (j, x) in row.iter().enumerate().take(products.len()) {
                for (product, y) in products[triangle(j)..].iter_mut().zip(&row[..=j]) {
                    *product = x * y;
                }
            }
            let classes = &all[at..start[i + 1]];
            let (first, part) = match self.shares {
                [sigma] => (*sigma, -sigma / (start[i + 1] - start[i]) as f64),
                shares => (shares[at], -shares[at] / self.sums[i]),
            };
            for (other, class) in classes.iter().enumerate() {
                let weight = match (other, self.shares) {
                    (0, [_]) => first + part,
                    (_, [_]) => part,
                    (0, _) => first * (1.0 + part),
                    (_, shares) => part * shares[at + other],
                };
                let block = &mut self.strip[(*class as usize - self.class) * size..][..size];
                if !products.is_empty() {
                    add_scaled(simd, block, weight, products);
                    continue;
                }
                for (j, x) in row.iter().enumerate().filter(|entry| *entry.1 != 0.0) {
                    let line = &mut block[triangle(j)..][..=j];
                    add_scaled(simd, line, weight * x, row);
                }
            }
        }
    }
}
