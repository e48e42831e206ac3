//! Truncated Newton: steps of preconditioned conjugate gradients, gradients in double precision (the
//! first of one score in single), products with the Hessian in single precision.
//!
//! A step `d` solves `H d = -g` to a relative residual that shrinks with the gradient (Dembo,
//! Eisenstat and Steihaug, SIAM J. Numer. Anal. 19 (1982)). The step length is 1 where the slope of
//! J along `d` is still negative there, or the gradient has become clearly smaller; otherwise it is
//! searched for by the secant rule. Only slopes are used: near the minimum they are much more
//! accurate than differences of J.

use crate::error::Result;
use crate::numeric::{ROUNDOFF, gamma};
use crate::runtime::interrupt::Interrupt;
use crate::runtime::memory::zeros;
use crate::simd::{Real, dot};
use crate::solver::smooth::coarse::{CoarseInverse, ColumnSums};
use crate::solver::smooth::newton_parts::{NewtonPoint, Room, add, norm};
use crate::solver::smooth::problem::{Pass, Passes, RowSample, SmoothProblem, SmoothSolution};
use crate::solver::smooth::sample_inverse::SampleInverse;

/// Largest number of Newton steps on the sample.
const SAMPLE_STEPS: usize = 20;
/// Largest number of products in one step: beyond, a new gradient is more informative.
const MAX_PRODUCTS: usize = 400;
/// Relative residual of a Newton step at most. Deep steps pay, as products cost less than gradients.
const LOOSEST: f64 = 0.03;
/// Relative residual and products at most of one application of the preconditioner.
const INNER_SHARE: f64 = 0.2;
const INNER_PRODUCTS: usize = 20;
/// Products of one step to [`LOOSEST`] after which the preconditioner counts as bad; two to five are usual.
/// Where it takes six, plain conjugate gradients take no more, without the products over the sample.
const PATIENCE: usize = 6;
/// Share of the first norm that is left to be expected at least after a step of sparse rows with one
/// score, where the gradient there comes in single precision.
const ROUGH_SHARE: f64 = 1e-4;
/// Largest number of step lengths tried in one search.
const MAX_LENGTHS: usize = 60;
/// Lengths tried before any that lowers J will do.
const GOOD_LENGTHS: usize = 20;
/// One in so many steps follows the gradient over the largest curvature there can be: with them J
/// falls geometrically, whatever the other steps do.
const GRADIENT_EVERY: u64 = 20;
/// Steps after which a smaller gradient alone no longer counts as progress: from here on J falls
/// with every step, so the search cannot cycle.
const FREE_STEPS: u64 = 60;
/// Steps that may fail to bring the bound down once rounding dominates it.
const MAX_FLOOR_STEPS: u32 = 5;

/// The search and its working memory.
pub struct NewtonSearch<'p, P: Passes> {
    problem: &'p SmoothProblem,
    passes: P,
    /// About the inverse of the Hessian, where the rows are sparse.
    coarse: CoarseInverse,
    /// Working memory over the rows in use, and over the sample as a preconditioner.
    rooms: [Room<P::Narrow>; 2],
    /// The step.
    direction: Vec<f64>,
    /// Vectors of points that were left.
    spare: Vec<Vec<f64>>,
    found: SmoothSolution,
    /// Rows in use.
    rows: RowSample,
    /// Whether the Hessian over the sample has been a good preconditioner so far.
    nesting: bool,
    /// Inverse of that Hessian, if it pays.
    inverse: Option<SampleInverse>,
    /// Whether the next gradients may be in single precision: nothing is certified by them.
    rough: bool,
    interrupt: &'p dyn Interrupt,
    /// Norm of the gradient at the last step, and the scale of its linear system.
    last: (f64, f64),
}

impl<'p, P: Passes> NewtonSearch<'p, P> {
    /// A search on `problem`; `sums` are those of sparse columns, by place.
    ///
    /// # Errors
    /// An interrupt, no memory.
    pub fn new(
        problem: &'p SmoothProblem,
        passes: P,
        sums: &[ColumnSums],
        interrupt: &'p dyn Interrupt,
    ) -> Result<Self> {
        let stored = passes.stored();
        let relative = problem.loss.curvature_at_zero() / problem.lambda;
        let nesting = passes.sample().rows < problem.len();
        let inner = if nesting { stored } else { 0 };
        Ok(Self {
            coarse: CoarseInverse::new((passes.store(), problem.len()), sums, relative, interrupt)?,
            rough: !sums.is_empty() && problem.loss.scores == 1,
            rooms: [Room::new(stored)?, Room::new(inner)?],
            direction: zeros(stored)?,
            spare: Vec::new(),
            found: SmoothSolution {
                gradient_norm: f64::INFINITY,
                ..SmoothSolution::default()
            },
            rows: RowSample::new(problem.len(), problem.len()),
            nesting,
            inverse: None,
            last: (0.0, 0.0),
            problem,
            passes,
            interrupt,
        })
    }

    /// Runs from given weights, or from a warm start, until the gradient's norm is certified to be at
    /// most the target.
    ///
    /// # Errors
    /// No memory, an interrupt.
    pub fn run(
        mut self,
        start: Option<Vec<f64>>,
        most_steps: Option<u64>,
    ) -> Result<SmoothSolution> {
        let most_steps = most_steps.unwrap_or(u64::MAX);
        self.rough &= start.is_none();
        let start = match start {
            Some(start) => start,
            None => self.warm_start(most_steps)?,
        };
        let mut point = self.point(start)?;
        let first = point.norm;
        let mut floor_steps = 0;
        loop {
            let last = point.norm <= self.problem.target || self.found.steps >= most_steps;
            if last && self.rough {
                self.rough = false;
                self.spare.push(point.gradient);
                point = self.point(point.weights)?;
            }
            self.found.gradient_norm = point.norm + point.error;
            if self.found.gradient_norm <= self.problem.target {
                self.found.weights = Some(point.weights);
                return Ok(self.found);
            }
            let floor = !self.rough && point.norm <= 2.0 * point.error;
            floor_steps += u32::from(floor);
            if self.found.steps >= most_steps || floor_steps > MAX_FLOOR_STEPS {
                return Ok(self.found);
            }
            let next = self.step(&point, first)?;
            self.leave(std::mem::replace(&mut point, next));
        }
    }

    /// A vector for weights or a gradient, with any numbers in it.
    fn vector(&mut self) -> Result<Vec<f64>> {
        let spare = self.spare.pop();
        spare.map_or_else(|| zeros(self.passes.stored()), Ok)
    }

    /// Keeps the vectors of a point for others.
    fn leave(&mut self, point: NewtonPoint) {
        self.spare.extend([point.weights, point.gradient]);
    }

    /// One Newton step; a gradient step every now and then, and where no length makes progress.
    fn step(&mut self, point: &NewtonPoint, first: f64) -> Result<NewtonPoint> {
        self.found.steps += 1;
        if self.found.steps <= FREE_STEPS || !self.found.steps.is_multiple_of(GRADIENT_EVERY) {
            self.direct(point, first)?;
            if let Some(next) = self.line_search(point)? {
                return Ok(next);
            }
        }
        let problem = self.problem;
        let most = problem.lambda + problem.len() as f64 * problem.loss.curvature();
        let mut weights = self.vector()?;
        weights.copy_from_slice(&point.weights);
        add(&mut weights, -1.0 / most, &point.gradient);
        self.point(weights)
    }

    /// The minimiser over the first blocks of rows, as far as it tells something about all rows:
    /// they lie in random order, and the steps cost a fraction.
    fn warm_start(&mut self, most_steps: u64) -> Result<Vec<f64>> {
        let (all, sample) = (self.rows, self.passes.sample());
        self.rows = sample;
        let mut weights = self.start()?;
        if sample != all {
            let mut point = self.point(weights)?;
            let first = point.norm;
            for _ in 0..SAMPLE_STEPS {
                // By chance alone the gradient over all rows would have this norm, scaled down.
                let chance = point.sizes / (sample.share * self.problem.len() as f64).sqrt();
                if point.norm <= 0.2 * chance || self.found.steps >= most_steps {
                    break;
                }
                let next = self.step(&point, first)?;
                self.leave(std::mem::replace(&mut point, next));
            }
            weights = point.weights;
            self.spare.push(point.gradient);
        }
        self.rows = all;
        Ok(weights)
    }

    /// If the loss ignores the mean of the weights over the classes, that mean is known:
    /// `-mean B / lambda`.
    fn start(&self) -> Result<Vec<f64>> {
        let problem = self.problem;
        let mut weights = zeros(self.passes.stored())?;
        if problem.loss.ignores_common_shift() {
            let k = problem.loss.scores;
            for column in 0..problem.columns {
                let place = |score| self.passes.position(score, self.passes.place(column));
                let sum: f64 = (0..k).map(|score| problem.linear[place(score)]).sum();
                let mean = -sum / (k as f64 * problem.lambda);
                (0..k).for_each(|score| weights[place(score)] = mean);
            }
        }
        Ok(weights)
    }

    fn point(&mut self, weights: Vec<f64>) -> Result<NewtonPoint> {
        let (problem, rows) = (self.problem, self.rows);
        let mut gradient = self.vector()?;
        let sizes = (self.passes).gradient(self.pass(rows), &weights, &mut gradient)?;
        self.found.gradients += 1;
        let data_norm = norm(&gradient);
        for ((g, w), b) in gradient.iter_mut().zip(&weights).zip(&problem.linear) {
            *g += rows.share * (problem.lambda * w + b);
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

    /// Bound of the error of a computed gradient, none of one in single precision (`docs/proofs/objective_perturbation.md`).
    fn error(&self, weights: f64, sizes: f64, data_norm: f64) -> f64 {
        let problem = self.problem;
        if self.rough {
            return f64::INFINITY;
        }
        let (score_depth, sum_depth) = self.passes.depths();
        let scores = gamma(score_depth) * weights;
        let rows = problem.total * problem.loss.gradient_error(scores, weights);
        // One rounding more for the weight of a row.
        let sums = gamma(sum_depth + f64::from(!problem.weight.is_empty())) * sizes;
        let linear = norm(&problem.linear);
        let rest = 4.0 * ROUNDOFF * (data_norm + problem.lambda * weights + linear);
        // The bounds themselves are computed: a thousandth covers all of that.
        1.001 * (rows + sums + rest)
    }

    fn pass(&self, rows: RowSample) -> Pass<'p> {
        Pass {
            problem: self.problem,
            rows,
            rough: self.rough,
            interrupt: self.interrupt,
        }
    }

    /// Approximate Newton direction.
    fn direct(&mut self, point: &NewtonPoint, first: f64) -> Result<()> {
        let mut relative = (point.norm / first).sqrt();
        let enough = 0.3 * self.problem.target / point.norm;
        // What the last linear system did not foresee falls with the square of the norm. Where it will hardly
        // matter next, this step is made the last one.
        let (before, scale) = self.last;
        let foreseen = point.gradient.iter().zip(&self.rooms[0].residual);
        let missed: f64 = foreseen.map(|(g, r)| (g + scale * r.wide()).powi(2)).sum();
        let bent = missed.sqrt() * point.norm / (before * before);
        if bent <= 2.0 * enough {
            relative = 0.0;
        }
        let share = relative.min(LOOSEST).max(enough).min(0.5);
        self.rough &= share * point.norm > ROUGH_SHARE * first;
        let (rows, problem) = (self.rows, self.problem);
        let weight = |row: usize| problem.weight.get(row).map_or(1.0, |w| *w as f32);
        let curvature = |row| self.passes.curvature(row) * weight(row);
        if SampleInverse::pays(self.problem, self.passes.store()) {
            let sample = self.pass(self.passes.sample());
            self.inverse = SampleInverse::new(self.passes.store(), curvature, sample)?;
        }
        // Into the range of single precision, by a power of two.
        let gradient = &*point.gradient;
        let top = gradient.iter().fold(0.0, |top: f64, g| top.max(g.abs()));
        let narrow = size_of::<P::Narrow>() < size_of::<f64>() && top > 0.0;
        let exponent = if narrow { libm::frexp(top).1 } else { 0 };
        let (down, up) = (libm::ldexp(1.0, -exponent), libm::ldexp(1.0, exponent));
        for (right, g) in self.rooms[0].residual.iter_mut().zip(gradient) {
            *right = P::Narrow::near(-g * down);
        }
        self.conjugate_gradients(0, rows, share, MAX_PRODUCTS)?;
        self.last = (point.norm, up);
        for (direction, x) in self.direction.iter_mut().zip(&self.rooms[0].x) {
            *direction = x.wide() * up;
        }
        // Rounding in single precision could spoil the sign; the gradient itself never does.
        if dot(&self.direction, gradient) >= 0.0 {
            let length = -1.0 / (rows.share * self.problem.lambda);
            for (direction, g) in self.direction.iter_mut().zip(gradient) {
                *direction = length * g;
            }
        }
        Ok(())
    }

    /// Solves `H x = residual` in a room to a relative residual of `share`, with the Hessian over
    /// some rows.
    ///
    /// Over all rows the preconditioner may be the Hessian over the sample, itself inverted by a few
    /// conjugate gradients. It changes a little from step to step, hence the flexible rule
    /// (Notay, SIAM J. Sci. Comput. 22 (2000)).
    fn conjugate_gradients(
        &mut self,
        at: usize,
        rows: RowSample,
        share: f64,
        most: usize,
    ) -> Result<()> {
        let mut own = std::mem::take(&mut self.rooms[at]);
        let room = &mut own;
        let sampled = rows == self.passes.sample();
        if let Some(inverse) = &self.inverse
            && sampled
        {
            inverse.solve(&room.residual, &mut room.x)?;
            self.rooms[at] = own;
            return Ok(());
        }
        let mut nested = self.nesting && !sampled;
        room.x.fill(P::Narrow::default());
        let right = norm(&room.residual);
        let mut energy = self.begin(room, nested)?;
        for products in 1..=most {
            let curvature =
                (self.passes).product(self.pass(rows), &room.conjugate, &mut room.image)?;
            if rows.rows < self.problem.len() {
                self.found.sample_products += 1;
            } else {
                self.found.products += 1;
            }
            if !(curvature > 0.0 && energy > 0.0) {
                break;
            }
            let step = energy / curvature;
            let left = room.advance(step) / right;
            if left <= share {
                break;
            }
            if nested && products == PATIENCE && left > LOOSEST {
                // The sample tells too little about the rest; starts anew without it.
                (nested, self.nesting) = (false, false);
                energy = self.begin(room, nested)?;
                continue;
            }
            self.precondition(room, nested)?;
            let guide = &room.preconditioned;
            let next = dot(&room.residual, guide);
            // Only the change of the residual, `-step image`, meets the new preconditioned one.
            let keep = if nested {
                -step * dot(&room.image, guide) / energy
            } else {
                next / energy
            };
            energy = next;
            let keep = P::Narrow::near(keep);
            for (c, z) in room.conjugate.iter_mut().zip(guide) {
                *c = z.plus(keep.times(*c));
            }
        }
        self.rooms[at] = own;
        Ok(())
    }

    /// The first direction; returns its product with the residual.
    fn begin(&mut self, room: &mut Room<P::Narrow>, nested: bool) -> Result<f64> {
        self.precondition(room, nested)?;
        room.conjugate.copy_from_slice(&room.preconditioned);
        Ok(dot(&room.residual, &room.preconditioned))
    }

    /// Meets the residual of `room` with the preconditioner.
    fn precondition(&mut self, room: &mut Room<P::Narrow>, nested: bool) -> Result<()> {
        if nested {
            self.rooms[1].residual.copy_from_slice(&room.residual);
            self.conjugate_gradients(1, self.passes.sample(), INNER_SHARE, INNER_PRODUCTS)?;
            room.preconditioned.copy_from_slice(&self.rooms[1].x);
            return Ok(());
        }
        room.preconditioned.copy_from_slice(&room.residual);
        (self.coarse).apply(self.problem.loss.scores, &mut room.preconditioned)
    }

    /// The next point along the direction; `None` when no length makes progress.
    ///
    /// The slope of J along it grows with the length. Between a length where it is negative and one
    /// where it is positive the next is found by the secant rule, kept away from both, or half way.
    fn line_search(&mut self, point: &NewtonPoint) -> Result<Option<NewtonPoint>> {
        let slope = dot(&point.gradient, &self.direction);
        let free = self.found.steps <= FREE_STEPS;
        let (mut low, mut high) = ((0.0, slope), None);
        let mut length = 1.0;
        for tried in 0..MAX_LENGTHS {
            let mut weights = self.vector()?;
            weights.copy_from_slice(&point.weights);
            add(&mut weights, length, &self.direction);
            let next = self.point(weights)?;
            let there = dot(&next.gradient, &self.direction);
            let falls = there <= 0.0;
            let good = high.is_none() || there >= 0.5 * slope || tried >= GOOD_LENGTHS;
            if next.norm + next.error <= self.problem.target
                || (falls && good)
                || (free && next.norm <= 0.9 * point.norm)
            {
                return Ok(Some(next));
            }
            self.leave(next);
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
