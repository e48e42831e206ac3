//! The smooth problem in the units of the solver, and what passes over its rows must be able to do.
//!
//! With `u_i` the row of record i (norm at most 1) and `V` the weights, one row a score:
//!
//! ```text
//! J(V) = sum_i phi_{y_i}(V u_i) + lambda/2 ||V||_F^2 + <B, V>
//! grad J(V) = sum_i a_i u_i^T + lambda V + B
//! ```
//!
//! Traversal of the rows is up to [`Passes`]: [`crate::solver::smooth::blocks`] or
//! [`crate::solver::smooth::sparse`]. No result depends on the number of threads.

use crate::error::{Result, require};
use crate::linalg::gemm::Product;
use crate::loss::smooth::SmoothLoss;
use crate::rows::labels::weigh;
use crate::rows::shuffled::Store;
use crate::rows::view::Rows;
use crate::runtime::interrupt::Interrupt;
use crate::runtime::memory::{mapped, zeros};
use crate::simd::{Real, Simd};

/// Settings of the solver; plain public numbers.
#[derive(Debug, Clone, Copy)]
pub struct SmoothSettings {
    /// The loss.
    pub loss: SmoothLoss,
    /// lambda, in the user's units.
    pub regularization: f64,
    /// Norm of the gradient that must be certified, in the user's units.
    pub gradient_tol: f64,
    /// Most Newton steps; `None` runs until certified.
    pub max_steps: Option<u64>,
    /// Public seed of the order in which rows are visited.
    pub seed: u64,
    /// Threads; the result does not depend on it.
    pub threads: usize,
    /// Keep no working copy of the rows.
    pub low_memory: bool,
}

/// Result of the search. Everything but `weights` is for tests and benchmarks: it depends on the
/// data without noise. The search's own is in the units and the layout of the problem.
#[derive(Debug, Clone, Default)]
pub struct SmoothSolution {
    /// One row of weights a score, intercept last, in the user's units; `None` when the steps
    /// allowed ran out, or rounding kept the bound from reaching the target.
    pub weights: Option<Vec<f64>>,
    /// Certified bound of the gradient's norm, in the user's units.
    pub gradient_norm: f64,
    /// Newton steps.
    pub steps: u64,
    /// Gradients, in double precision.
    pub gradients: u64,
    /// Products with the Hessian over all rows, in single precision.
    pub products: u64,
    /// Products with the Hessian over a sample of the rows.
    pub sample_products: u64,
}

/// A problem ready to be solved.
pub struct SmoothProblem {
    /// Class of each row, in the solver's order.
    pub label: Vec<u32>,
    /// Weight of each row, from 0 to 1; empty if all are 1.
    pub weight: Vec<f64>,
    /// Upper bound of the sum of the weights.
    pub total: f64,
    /// The loss.
    pub loss: SmoothLoss,
    /// Entries of a row, the intercept included.
    pub columns: usize,
    /// lambda in the solver's units: `lambda / 4^e`.
    pub lambda: f64,
    /// `B / 2^e` in the layout of the weights.
    pub linear: Vec<f64>,
    /// Gradient norm to certify, in the solver's units: `gradient_tol / 2^e`.
    pub target: f64,
    /// Weights in the user's units are the solver's times this, a power of two.
    pub unscale: f64,
}

impl SmoothProblem {
    /// `linear` is in the user's units and order.
    ///
    /// # Errors
    /// No memory; labels and numbers have been checked.
    pub fn new<P: Passes>(
        passes: &P,
        (order, labels, weights): (&[u32], &[i64], &[f64]),
        linear: Option<&[f64]>,
        scaled: &Scaled,
        (columns, settings): (usize, &SmoothSettings),
    ) -> Result<Self> {
        let own = if weights.is_empty() { &[] } else { order };
        let total = weights.iter().sum::<f64>() * (1.0 + 1e-6);
        let mut problem = Self {
            label: mapped(order, |i| labels[*i as usize] as u32)?,
            weight: mapped(own, |i| weights[*i as usize])?,
            total: if weights.is_empty() {
                order.len() as f64
            } else {
                total
            },
            loss: settings.loss,
            columns,
            lambda: scaled.lambda,
            linear: zeros(passes.stored())?,
            target: scaled.target,
            unscale: scaled.unscale,
        };
        for (at, b) in linear.unwrap_or(&[]).iter().enumerate() {
            let place = passes.position(at / columns, passes.place(at % columns));
            problem.linear[place] = b * scaled.unscale;
        }
        Ok(problem)
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.label.len()
    }
}

/// The first rows, and their share of all rows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RowSample {
    /// Number of rows.
    pub rows: usize,
    /// Their share.
    pub share: f64,
}

impl RowSample {
    /// The first `rows` of `n`.
    pub fn new(rows: usize, n: usize) -> Self {
        let share = rows.max(1) as f64 / n.max(1) as f64;
        Self { rows, share }
    }
}

/// The problem as a pass sees it.
#[derive(Clone, Copy)]
pub struct Pass<'p> {
    /// The problem.
    pub problem: &'p SmoothProblem,
    /// The rows that are met.
    pub rows: RowSample,
    /// Whether a gradient may be in single precision.
    pub rough: bool,
    /// Asked now and then.
    pub interrupt: &'p dyn Interrupt,
}

/// Map of the scores of a row.
pub trait RowMap<T>: Sync {
    /// Makes coefficients of them; what it returns is added up.
    fn apply<S: Simd>(&self, simd: S, row: usize, scores: &mut [T], state: &mut [f32]) -> f64;
}

/// Gradient of the loss; keeps the curvature for later products.
pub struct Gradient<'p>(pub &'p SmoothProblem);

impl<T: Real> RowMap<T> for Gradient<'_> {
    #[inline(always)]
    fn apply<S: Simd>(&self, _simd: S, row: usize, scores: &mut [T], state: &mut [f32]) -> f64 {
        let label = self.0.label[row] as usize;
        self.0.loss.gradient_row(label, scores, state);
        weigh(&self.0.weight, row, scores);
        (scores.iter().map(|a| a.wide() * a.wide()).sum::<f64>()).sqrt()
    }
}

/// Product with the Hessian of the loss.
pub struct Hessian<'p>(pub &'p SmoothProblem);

impl RowMap<f32> for Hessian<'_> {
    #[inline(always)]
    fn apply<S: Simd>(&self, simd: S, row: usize, scores: &mut [f32], state: &mut [f32]) -> f64 {
        let label = self.0.label[row] as usize;
        self.0.loss.hessian_row(simd, label, scores, state);
        weigh(&self.0.weight, row, scores);
        0.0
    }
}

/// Passes over the rows, in one layout of the weights.
pub trait Passes {
    /// Precision of vectors that only directions depend on.
    type Narrow: Product;
    /// Numbers stored for all weights.
    fn stored(&self) -> usize;
    /// Place of a column of the user's.
    fn place(&self, column: usize) -> usize;
    /// Index of the weight of a score and a place.
    fn position(&self, score: usize, place: usize) -> usize;
    /// The rows, their columns by place.
    fn store(&self) -> &Store<'_>;
    /// Rows for a warm start and for cheap approximations; all where that is not worth having.
    fn sample(&self) -> RowSample;
    /// `total = sum_i a_i u_i^T` at `weights`; keeps the curvature for later products. Returns the
    /// sum of the norms of the `a_i`.
    ///
    /// # Errors
    /// An interrupt, no memory.
    fn gradient(&mut self, pass: Pass<'_>, weights: &[f64], total: &mut [f64]) -> Result<f64>;
    /// `image = H v`, to single precision. Returns `<v, image>`.
    ///
    /// # Errors
    /// An interrupt, no memory.
    fn product(
        &mut self,
        pass: Pass<'_>,
        v: &[Self::Narrow],
        image: &mut [Self::Narrow],
    ) -> Result<f64>;
    /// Curvature of a row where there is one score, without its weight.
    fn curvature(&self, row: usize) -> f32;
    /// Largest number of roundings of a term of one score, and of a term of a sum over rows.
    fn depths(&self) -> (f64, f64);
}

/// Powers of two between the user's units and the solver's; exact.
#[derive(Clone, Copy)]
pub struct Scaled {
    /// `lambda / 4^e`.
    pub lambda: f64,
    /// `gradient_tol / 2^e`.
    pub target: f64,
    /// `2^-e`: takes weights to the user's units and the linear term to the solver's.
    pub unscale: f64,
}

impl Scaled {
    /// Checks and scales the public numbers.
    ///
    /// # Errors
    /// Numbers outside the range in which nothing overflows.
    pub fn new(rows: &Rows<'_>, settings: &SmoothSettings) -> Result<Self> {
        let exponent = rows.bounds().exponent();
        let lambda = libm::ldexp(settings.regularization, -2 * exponent);
        let target = libm::ldexp(settings.gradient_tol, -exponent);
        let accepted = 1e-60..=1e60;
        let message = "it and its ratio to data_norm^2 must lie between 1e-60 and 1e60";
        let right = accepted.contains(&settings.regularization) && accepted.contains(&lambda);
        require(right, "regularization", message)?;
        let message = "expected a positive number of usual size";
        let right = target > 1e-100 && target.is_finite();
        require(right, "gradient_tol", message)?;
        Ok(Self {
            lambda,
            target,
            unscale: libm::ldexp(1.0, -exponent),
        })
    }
}
