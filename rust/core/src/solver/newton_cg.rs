//! Truncated Newton: steps of preconditioned conjugate gradients, gradients in double precision,
//! products with the Hessian in single precision.
//!
//! A step `d` solves `H d = -g` to a relative residual that shrinks with the gradient (Dembo,
//! Eisenstat and Steihaug, SIAM J. Numer. Anal. 19 (1982)). The step length is 1 where the slope of
//! J along `d` is still negative there, or the gradient has become clearly smaller; otherwise it is
//! searched for by the secant rule. Only slopes are used: near the minimum they are much more
//! accurate than differences of J.

use super::design::Design;
use super::losses::SmoothLoss;
use super::nystrom::Preconditioner;
use super::smooth_problem::{Block, SmoothProblem, Tile, TileMap};
use crate::error::Result;
use crate::parallel::Interrupt;
use crate::simd::Simd;

/// Gradient of the loss; keeps the curvature for later products.
struct Gradient<'p> {
    loss: SmoothLoss,
    label: &'p [u32],
}

impl TileMap<f64> for Gradient<'_> {
    #[inline(always)]
    fn apply<S: Simd>(&self, _simd: S, tile: Tile<'_, f64>) -> f64 {
        let labels = &self.label[tile.rows];
        let rows = tile.scores.chunks_exact_mut(tile.stride);
        let states = tile.state.chunks_exact_mut(tile.state_stride);
        let mut size = 0.0;
        for ((row, state), label) in rows.zip(states).zip(labels) {
            self.loss.gradient_row(*label as usize, row, state);
            size += row.iter().map(|a| a * a).sum::<f64>().sqrt();
        }
        size
    }
}

/// Product with the Hessian of the loss.
struct Hessian<'p> {
    loss: SmoothLoss,
    label: &'p [u32],
}

impl TileMap<f32> for Hessian<'_> {
    #[inline(always)]
    fn apply<S: Simd>(&self, simd: S, tile: Tile<'_, f32>) -> f64 {
        let labels = &self.label[tile.rows];
        let rows = tile.scores.chunks_exact_mut(tile.stride);
        let states = tile.state.chunks_exact(tile.state_stride);
        for ((row, state), label) in rows.zip(states).zip(labels) {
            self.loss.hessian_row(simd, *label as usize, row, state);
        }
        0.0
    }
}

/// What the search found.
pub struct Minimum {
    /// Weights, in the layout of the problem; `None` when the steps allowed ran out, or rounding
    /// kept the bound from reaching the target.
    pub weights: Option<Vec<f64>>,
    /// Certified bound of the gradient's norm at the last point.
    pub gradient_norm: f64,
    /// Newton steps.
    pub steps: u64,
    /// Gradients.
    pub gradients: u64,
    /// Products with the Hessian, those for the preconditioner included.
    pub products: u64,
}

/// Unit roundoff of double precision.
const ROUNDOFF: f64 = f64::EPSILON / 2.0;
/// Products in one step at most: beyond, a new gradient tells more.
const MOST_PRODUCTS: usize = 400;
/// Products in one step that are worth building a preconditioner.
const WORTH_IT: usize = 12;
/// Step lengths tried in one search at most.
const MOST_LENGTHS: usize = 40;
/// Steps after which a smaller gradient alone no longer counts as progress: from here on J falls
/// with every step, so the search cannot cycle.
const FREE_STEPS: u64 = 60;
/// Steps that may fail to bring the bound down once rounding dominates it.
const MOST_FLOOR_STEPS: u32 = 5;

/// The search and its working memory.
pub struct Search<'p, 'a, D> {
    problem: &'p SmoothProblem<'a, D>,
    double: Vec<Block<f64>>,
    single: Vec<Block<f32>>,
    states: Vec<Vec<f32>>,
    narrow: Vec<f32>,
    preconditioner: Option<Preconditioner<D>>,
    found: Minimum,
    interrupt: &'p dyn Interrupt,
}

/// A point, its gradient and what is known of its error.
struct Point {
    weights: Vec<f64>,
    gradient: Vec<f64>,
    /// Norm of the computed gradient.
    norm: f64,
    /// Bound of the error of the computed gradient, in norm.
    error: f64,
}

impl<'p, 'a, D: Design> Search<'p, 'a, D> {
    /// A search on `problem`.
    ///
    /// # Errors
    /// No memory.
    pub fn new(problem: &'p SmoothProblem<'a, D>, interrupt: &'p dyn Interrupt) -> Result<Self> {
        let stored = problem.design.stored();
        Ok(Self {
            double: problem.workspace(stored)?,
            single: problem.workspace(stored)?,
            states: problem.states()?,
            narrow: vec![0.0; stored],
            preconditioner: None,
            found: Minimum {
                weights: None,
                gradient_norm: f64::INFINITY,
                steps: 0,
                gradients: 0,
                products: 0,
            },
            problem,
            interrupt,
        })
    }

    /// Runs until the gradient's norm is certified to be at most the target.
    ///
    /// # Errors
    /// No memory, an interrupt.
    pub fn run(mut self, most_steps: Option<u64>) -> Result<Minimum> {
        let mut point = self.point(self.start())?;
        let first = point.norm;
        let mut floor_steps = 0;
        loop {
            self.found.gradient_norm = point.norm + point.error;
            if self.found.gradient_norm <= self.problem.target {
                self.found.weights = Some(point.weights);
                return Ok(self.found);
            }
            if most_steps.is_some_and(|most| self.found.steps >= most) {
                return Ok(self.found);
            }
            if point.norm <= 2.0 * point.error {
                floor_steps += 1;
                if floor_steps > MOST_FLOOR_STEPS {
                    return Ok(self.found);
                }
            }
            let direction = self.direction(&point, first)?;
            self.found.steps += 1;
            let Some(next) = self.line_search(&point, &direction)? else {
                return Ok(self.found);
            };
            point = next;
        }
    }

    /// Where the loss does not see the mean of the weights over the classes, that mean is known:
    /// `-mean B / lambda`.
    fn start(&self) -> Vec<f64> {
        let problem = self.problem;
        let mut weights = vec![0.0; problem.design.stored()];
        if problem.loss.ignores_common_shift() {
            let k = problem.loss.scores;
            for column in 0..problem.columns {
                let place = |score| problem.design.position(score, column);
                let sum: f64 = (0..k).map(|score| problem.linear[place(score)]).sum();
                let mean = -sum / (k as f64 * problem.lambda);
                (0..k).for_each(|score| weights[place(score)] = mean);
            }
        }
        weights
    }

    fn point(&mut self, weights: Vec<f64>) -> Result<Point> {
        let problem = self.problem;
        let map = Gradient {
            loss: problem.loss,
            label: &problem.label,
        };
        let mut gradient = vec![0.0; weights.len()];
        let work = (&mut *self.double, &mut *self.states);
        problem.sweep(
            (problem.design, &*weights),
            &map,
            work,
            &mut gradient,
            self.interrupt,
        )?;
        self.found.gradients += 1;
        let sizes: f64 = self.double.iter().map(|block| block.size).sum();
        let data_norm = norm(&gradient);
        for ((g, w), b) in gradient.iter_mut().zip(&weights).zip(&problem.linear) {
            *g += problem.lambda * w + b;
        }
        let error = self.error(norm(&weights), sizes, data_norm);
        Ok(Point {
            norm: norm(&gradient) * (1.0 + 1e-9),
            error,
            weights,
            gradient,
        })
    }

    /// Bound of the error of a computed gradient (docs/proofs/objective_perturbation.md).
    fn error(&self, weights: f64, sizes: f64, data_norm: f64) -> f64 {
        let problem = self.problem;
        let gamma = |depth: f64| depth * ROUNDOFF / (1.0 - depth * ROUNDOFF).max(0.1);
        let depth = problem.design.score_depth(problem.longest_row);
        let scores = gamma(depth) * weights;
        let rows = problem.len() as f64 * problem.loss.gradient_error(scores, weights);
        let sums = gamma(problem.sum_depth()) * sizes;
        let linear = norm(&problem.linear);
        let rest = 4.0 * ROUNDOFF * (data_norm + problem.lambda * weights + linear);
        // The bounds themselves are computed: a thousandth covers all of that.
        1.001 * (rows + sums + rest)
    }

    /// `out = H v`, to single precision.
    fn product(&mut self, v: &[f64], out: &mut [f64]) -> Result<()> {
        let problem = self.problem;
        // Scaled into the range of single precision by a power of two.
        let top = v.iter().fold(0.0f64, |top, x| top.max(x.abs()));
        if top == 0.0 {
            out.fill(0.0);
            return Ok(());
        }
        let exponent = libm::frexp(top).1;
        let (down, up) = (libm::ldexp(1.0, -exponent), libm::ldexp(1.0, exponent));
        for (narrow, x) in self.narrow.iter_mut().zip(v) {
            *narrow = (x * down) as f32;
        }
        let map = Hessian {
            loss: problem.loss,
            label: &problem.label,
        };
        let work = (&mut *self.single, &mut *self.states);
        problem.sweep(
            (problem.design, &*self.narrow),
            &map,
            work,
            out,
            self.interrupt,
        )?;
        for (out, x) in out.iter_mut().zip(v) {
            *out = *out * up + problem.lambda * x;
        }
        self.found.products += 1;
        Ok(())
    }

    /// Approximate Newton direction by conjugate gradients.
    fn direction(&mut self, point: &Point, first: f64) -> Result<Vec<f64>> {
        let relative = (point.norm / first).sqrt();
        let enough = 0.3 * self.problem.target / point.norm;
        let share = relative.min(0.1).max(enough).min(0.5);
        let n = point.gradient.len();
        let mut direction = vec![0.0; n];
        let mut residual: Vec<f64> = point.gradient.iter().map(|g| -g).collect();
        let mut preconditioned = self.preconditioned(&residual);
        let mut conjugate = preconditioned.clone();
        let mut image = vec![0.0; n];
        let mut energy = dot(&residual, &preconditioned);
        for products in 1..=MOST_PRODUCTS {
            self.product(&conjugate, &mut image)?;
            let curvature = dot(&conjugate, &image);
            if !(curvature > 0.0 && energy > 0.0) {
                break;
            }
            let step = energy / curvature;
            add(&mut direction, step, &conjugate);
            add(&mut residual, -step, &image);
            if norm(&residual) <= share * point.norm {
                break;
            }
            if products == std::env::var("WORTH").map_or(WORTH_IT, |v| v.parse().unwrap()) && self.preconditioner.is_none() {
                self.precondition()?;
                // The direction so far stays; conjugacy starts anew.
                preconditioned = self.preconditioned(&residual);
                conjugate.clone_from(&preconditioned);
                energy = dot(&residual, &preconditioned);
                continue;
            }
            preconditioned = self.preconditioned(&residual);
            let next = dot(&residual, &preconditioned);
            let keep = next / energy;
            energy = next;
            for (c, z) in conjugate.iter_mut().zip(&preconditioned) {
                *c = z + keep * *c;
            }
        }
        if std::env::var("DBG").is_ok() { eprintln!("step {} norm {:.3e} share {:.2e} products {} res {:.3e}", self.found.steps, point.norm, share, self.found.products, norm(&residual)); }
        // Rounding in single precision could spoil the sign; the gradient itself never does.
        if dot(&direction, &point.gradient) < 0.0 {
            return Ok(direction);
        }
        let length = -1.0 / self.problem.lambda;
        Ok(point.gradient.iter().map(|g| length * g).collect())
    }

    fn precondition(&mut self) -> Result<()> {
        let (built, products) =
            Preconditioner::new(self.problem, &mut self.states, self.interrupt)?;
        self.found.products += products;
        self.preconditioner = built;
        Ok(())
    }

    fn preconditioned(&self, residual: &[f64]) -> Vec<f64> {
        match &self.preconditioner {
            Some(preconditioner) => preconditioner.apply(residual),
            None => residual.to_vec(),
        }
    }

    /// The next point along `direction`; `None` when no length makes progress.
    fn line_search(&mut self, point: &Point, direction: &[f64]) -> Result<Option<Point>> {
        let slope = dot(&point.gradient, direction);
        let free = self.found.steps <= FREE_STEPS;
        let mut length = 1.0;
        for _ in 0..MOST_LENGTHS {
            let mut weights = point.weights.clone();
            add(&mut weights, length, direction);
            let next = self.point(weights)?;
            let there = dot(&next.gradient, direction);
            if next.norm + next.error <= self.problem.target
                || there <= 0.0
                || (free && next.norm <= 0.9 * point.norm)
            {
                return Ok(Some(next));
            }
            length *= (slope / (slope - there)).clamp(0.05, 0.95);
        }
        Ok(None)
    }
}

/// Sums kept apart, so that the loop runs in vectors.
const CHAINS: usize = 8;

fn dot(a: &[f64], b: &[f64]) -> f64 {
    let (a, a_rest) = a.as_chunks::<CHAINS>();
    let (b, b_rest) = b.as_chunks::<CHAINS>();
    let mut sums = [0.0; CHAINS];
    for (a, b) in a.iter().zip(b) {
        for chain in 0..CHAINS {
            sums[chain] += a[chain] * b[chain];
        }
    }
    let rest: f64 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f64>() + rest
}

/// Euclidean norm.
fn norm(a: &[f64]) -> f64 {
    dot(a, a).sqrt()
}

/// `y += a x`.
fn add(y: &mut [f64], a: f64, x: &[f64]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y += a * x;
    }
}
