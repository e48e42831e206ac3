//! Truncated Newton: steps of preconditioned conjugate gradients, gradients in double precision,
//! products with the Hessian in single precision.
//!
//! A step `d` solves `H d = -g` to a relative residual that shrinks with the gradient (Dembo,
//! Eisenstat and Steihaug, SIAM J. Numer. Anal. 19 (1982)). The step length is 1 where the slope of
//! J along `d` is still negative there, or the gradient has become clearly smaller; otherwise it is
//! searched for by the secant rule. Only slopes are used: near the minimum they are much more
//! accurate than differences of J.

use crate::error::Result;
use crate::layout::tiles::Design;
use crate::numeric::ROUNDOFF;
use crate::runtime::interrupt::Interrupt;
use crate::runtime::memory::{copied, mapped, zeros};
use crate::solver::smooth::newton_parts::{
    Gradient, Hessian, Minimum, NewtonPoint, RowSample, add, dot, norm,
};
use crate::solver::smooth::problem::{Block, SmoothProblem};
use crate::solver::smooth::sample_inverse::SampleInverse;

/// The sample, for a warm start and as a preconditioner, is one in so many rows. Measured on MNIST,
/// USPS and text-like rows: 4 costs 20 to 50 % more time than 16, and 8 up to 25 %.
const SAMPLE_SHARE: usize = 16;
/// Newton steps on the sample at most.
const SAMPLE_STEPS: usize = 20;
/// Products in one step at most: beyond, a new gradient tells more.
const MOST_PRODUCTS: usize = 400;
/// Relative residual of a Newton step at most. Deep steps pay, as products cost less than gradients.
const LOOSEST: f64 = 0.03;
/// Relative residual and products at most of one application of the preconditioner.
const INNER_SHARE: f64 = 0.2;
const INNER_PRODUCTS: usize = 20;
/// Products of one step after which the preconditioner counts as bad; two to four are usual.
const PATIENCE: usize = 10;
/// Step lengths tried in one search at most.
const MOST_LENGTHS: usize = 60;
/// Lengths tried before any that lowers J will do.
const GOOD_LENGTHS: usize = 20;
/// One in so many steps follows the gradient over the largest curvature there can be: with them J
/// falls geometrically, whatever the other steps do.
const GRADIENT_EVERY: u64 = 20;
/// Steps after which a smaller gradient alone no longer counts as progress: from here on J falls
/// with every step, so the search cannot cycle.
const FREE_STEPS: u64 = 60;
/// Steps that may fail to bring the bound down once rounding dominates it.
const MOST_FLOOR_STEPS: u32 = 5;

/// The search and its working memory.
pub struct NewtonSearch<'p, 'a, D> {
    problem: &'p SmoothProblem<'a, D>,
    double: Vec<Block<f64>>,
    single: Vec<Block<f32>>,
    states: Vec<Vec<f32>>,
    narrow: Vec<f32>,
    found: Minimum,
    /// Rows in use.
    rows: RowSample,
    /// The first rows, for cheap approximations.
    sample: RowSample,
    /// Whether the Hessian over the sample has been a good preconditioner so far.
    nesting: bool,
    /// That Hessian's inverse, where it is worth having.
    inverse: Option<SampleInverse>,
    interrupt: &'p dyn Interrupt,
}

impl<'p, 'a, D: Design> NewtonSearch<'p, 'a, D> {
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
            narrow: zeros(stored)?,
            found: Minimum {
                weights: None,
                gradient_norm: f64::INFINITY,
                steps: 0,
                gradients: 0,
                products: 0,
                sample_products: 0,
            },
            rows: RowSample::of(problem, problem.blocks.len()),
            sample: RowSample::of(problem, problem.blocks.len().div_ceil(SAMPLE_SHARE)),
            nesting: true,
            inverse: None,
            problem,
            interrupt,
        })
    }

    /// Runs until the gradient's norm is certified to be at most the target.
    ///
    /// # Errors
    /// No memory, an interrupt.
    pub fn run(self, most_steps: Option<u64>) -> Result<Minimum> {
        self.run_from(None, most_steps)
    }

    /// [`run`](Self::run) from given weights.
    ///
    /// # Errors
    /// No memory, an interrupt.
    pub fn run_from(mut self, start: Option<Vec<f64>>, most_steps: Option<u64>) -> Result<Minimum> {
        let most_steps = most_steps.unwrap_or(u64::MAX);
        let start = match start {
            Some(start) => start,
            None => self.warm_start(most_steps)?,
        };
        let mut point = self.point(start)?;
        let first = point.norm;
        let mut floor_steps = 0;
        loop {
            self.found.gradient_norm = point.norm + point.error;
            if self.found.gradient_norm <= self.problem.target {
                self.found.weights = Some(point.weights);
                return Ok(self.found);
            }
            floor_steps += u32::from(point.norm <= 2.0 * point.error);
            if self.found.steps >= most_steps || floor_steps > MOST_FLOOR_STEPS {
                return Ok(self.found);
            }
            point = self.step(&point, first)?;
        }
    }

    /// One Newton step; a gradient step every now and then, and where no length makes progress.
    fn step(&mut self, point: &NewtonPoint, first: f64) -> Result<NewtonPoint> {
        self.found.steps += 1;
        if self.found.steps <= FREE_STEPS || !self.found.steps.is_multiple_of(GRADIENT_EVERY) {
            let direction = self.direction(point, first)?;
            if let Some(next) = self.line_search(point, &direction)? {
                return Ok(next);
            }
        }
        let problem = self.problem;
        let most = problem.lambda + problem.len() as f64 * problem.loss.curvature();
        let mut weights = copied(&point.weights)?;
        add(&mut weights, -1.0 / most, &point.gradient);
        self.point(weights)
    }

    /// The minimiser over the first blocks of rows, as far as it tells something about all rows:
    /// they lie in random order, and the steps cost a fraction.
    fn warm_start(&mut self, most_steps: u64) -> Result<Vec<f64>> {
        let all = self.rows;
        self.rows = self.sample;
        let mut weights = self.start()?;
        if self.sample.blocks < all.blocks {
            let mut point = self.point(weights)?;
            let first = point.norm;
            for _ in 0..SAMPLE_STEPS {
                // By chance alone the gradient over all rows would have this norm, scaled down.
                let chance = point.sizes / (self.sample.share * self.problem.len() as f64).sqrt();
                if point.norm <= 0.2 * chance || self.found.steps >= most_steps {
                    break;
                }
                point = self.step(&point, first)?;
            }
            weights = point.weights;
        }
        self.rows = all;
        Ok(weights)
    }

    /// Where the loss does not see the mean of the weights over the classes, that mean is known:
    /// `-mean B / lambda`.
    fn start(&self) -> Result<Vec<f64>> {
        let problem = self.problem;
        let mut weights = zeros(problem.design.stored())?;
        if problem.loss.ignores_common_shift() {
            let k = problem.loss.scores;
            for column in 0..problem.columns {
                let place = |score| problem.design.position(score, column);
                let sum: f64 = (0..k).map(|score| problem.linear[place(score)]).sum();
                let mean = -sum / (k as f64 * problem.lambda);
                (0..k).for_each(|score| weights[place(score)] = mean);
            }
        }
        Ok(weights)
    }

    fn point(&mut self, weights: Vec<f64>) -> Result<NewtonPoint> {
        let problem = self.problem;
        let map = Gradient {
            loss: problem.loss,
            label: &problem.label,
        };
        let mut gradient = zeros(weights.len())?;
        let work = (
            &mut self.double[..self.rows.blocks],
            &mut self.states[..self.rows.blocks],
        );
        problem.sweep(
            (problem.design, &*weights),
            &map,
            work,
            &mut gradient,
            self.interrupt,
        )?;
        self.found.gradients += 1;
        let blocks = &self.double[..self.rows.blocks];
        let sizes: f64 = blocks.iter().map(|block| block.size).sum();
        let data_norm = norm(&gradient);
        for ((g, w), b) in gradient.iter_mut().zip(&weights).zip(&problem.linear) {
            *g += self.rows.share * (problem.lambda * w + b);
        }
        let error = self.error(norm(&weights), sizes, data_norm);
        Ok(NewtonPoint {
            norm: norm(&gradient) * (1.0 + 1e-9),
            error,
            sizes,
            weights,
            gradient,
        })
    }

    /// Bound of the error of a computed gradient (`docs/proofs/objective_perturbation.md`).
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
    fn product(&mut self, rows: RowSample, v: &[f64], out: &mut [f64]) -> Result<()> {
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
        let work = (
            &mut self.single[..rows.blocks],
            &mut self.states[..rows.blocks],
        );
        problem.sweep(
            (problem.design, &*self.narrow),
            &map,
            work,
            out,
            self.interrupt,
        )?;
        for (out, x) in out.iter_mut().zip(v) {
            *out = *out * up + rows.share * problem.lambda * x;
        }
        if rows.blocks == self.sample.blocks {
            self.found.sample_products += 1;
        } else {
            self.found.products += 1;
        }
        Ok(())
    }

    /// Approximate Newton direction.
    fn direction(&mut self, point: &NewtonPoint, first: f64) -> Result<Vec<f64>> {
        let relative = (point.norm / first).sqrt();
        let enough = 0.3 * self.problem.target / point.norm;
        let share = relative.min(LOOSEST).max(enough).min(0.5);
        let right = mapped(&point.gradient, |g| -g)?;
        let rows = self.rows;
        if SampleInverse::pays(self.problem) {
            let (states, sample) = (&self.states, self.sample);
            self.inverse = SampleInverse::new(self.problem, states, sample, self.interrupt)?;
        }
        let direction = self.conjugate_gradients(rows, &right, share, MOST_PRODUCTS)?;
        // Rounding in single precision could spoil the sign; the gradient itself never does.
        if dot(&direction, &point.gradient) < 0.0 {
            return Ok(direction);
        }
        let length = -1.0 / (rows.share * self.problem.lambda);
        mapped(&point.gradient, |g| length * g)
    }

    /// Solves `H x = right` to a relative residual of `share`, with the Hessian over some rows.
    ///
    /// Over all rows the preconditioner is the Hessian over the sample, itself inverted by a few
    /// conjugate gradients. It changes a little from step to step, hence the flexible rule
    /// (Notay, SIAM J. Sci. Comput. 22 (2000)).
    fn conjugate_gradients(
        &mut self,
        rows: RowSample,
        right: &[f64],
        share: f64,
        most: usize,
    ) -> Result<Vec<f64>> {
        if let Some(inverse) = &self.inverse
            && rows.blocks == self.sample.blocks
        {
            return inverse.solve(right);
        }
        let n = right.len();
        let mut nested = self.nesting && rows.blocks > self.sample.blocks;
        let mut x = zeros(n)?;
        let mut residual = copied(right)?;
        let goal = share * norm(right);
        let mut conjugate = self.preconditioned(&residual, nested)?;
        let mut preconditioned = copied(&conjugate)?;
        let mut image = zeros(n)?;
        let mut energy = dot(&residual, &preconditioned);
        for products in 1..=most {
            self.product(rows, &conjugate, &mut image)?;
            let curvature = dot(&conjugate, &image);
            if !(curvature > 0.0 && energy > 0.0) {
                break;
            }
            let step = energy / curvature;
            add(&mut x, step, &conjugate);
            add(&mut residual, -step, &image);
            if norm(&residual) <= goal {
                break;
            }
            if nested && products == PATIENCE {
                // The sample tells too little about the rest; starts anew without it.
                (nested, self.nesting) = (false, false);
                conjugate.clone_from(&residual);
                preconditioned.clone_from(&residual);
                energy = dot(&residual, &residual);
                continue;
            }
            preconditioned = self.preconditioned(&residual, nested)?;
            let next = dot(&residual, &preconditioned);
            // Only the change of the residual, `-step image`, meets the new preconditioned one.
            let keep = if nested {
                -step * dot(&image, &preconditioned) / energy
            } else {
                next / energy
            };
            energy = next;
            for (c, z) in conjugate.iter_mut().zip(&preconditioned) {
                *c = z + keep * *c;
            }
        }
        Ok(x)
    }

    fn preconditioned(&mut self, residual: &[f64], nested: bool) -> Result<Vec<f64>> {
        if nested {
            self.conjugate_gradients(self.sample, residual, INNER_SHARE, INNER_PRODUCTS)
        } else {
            copied(residual)
        }
    }

    /// The next point along `direction`; `None` when no length makes progress.
    ///
    /// The slope of J along it grows with the length. Between a length where it is negative and one
    /// where it is positive the next is found by the secant rule, kept away from both, or half way.
    fn line_search(
        &mut self,
        point: &NewtonPoint,
        direction: &[f64],
    ) -> Result<Option<NewtonPoint>> {
        let slope = dot(&point.gradient, direction);
        let free = self.found.steps <= FREE_STEPS;
        let (mut low, mut high) = ((0.0, slope), None);
        let mut length = 1.0;
        for tried in 0..MOST_LENGTHS {
            let mut weights = copied(&point.weights)?;
            add(&mut weights, length, direction);
            let next = self.point(weights)?;
            let there = dot(&next.gradient, direction);
            let falls = there <= 0.0;
            let good = high.is_none() || there >= 0.5 * slope || tried >= GOOD_LENGTHS;
            if next.norm + next.error <= self.problem.target
                || (falls && good)
                || (free && next.norm <= 0.9 * point.norm)
            {
                return Ok(Some(next));
            }
            if falls {
                low = (length, there);
            } else {
                high = Some((length, there));
            }
            let (far, above) = high.unwrap_or((length, there));
            let width = far - low.0;
            let share = if tried % 3 == 2 {
                0.5
            } else {
                low.1 / (low.1 - above)
            };
            length = low.0 + share.clamp(0.1, 0.9) * width;
        }
        Ok(None)
    }
}
