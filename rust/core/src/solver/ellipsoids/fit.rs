//! Certified minimiser of the large-margin Gaussian classifier's objective.
//!
//! One symmetric matrix `Phi_j` of order `d + 1` for each of `J = n_classes * n_ellipsoids`
//! ellipsoids; with `u_i` the lifted row of record i ([`lifted`])
//!
//! ```text
//! F(Phi) = sum_i w_i phi_i(s_i) + lambda/2 ||Phi||_F^2 + <B, Phi>,   s_ij = -<Phi_j, u_i>
//! ```
//!
//! over all symmetric or all positive semidefinite matrices. The loss of record i sees the score
//! of its target and those of the ellipsoids of the other classes ([`records`]).
//!
//! # Certificate
//!
//! Let `W = Q L+ Q^T` and `N = Q L- Q^T` with Q orthogonal and `L+ >= 0 >= L-` of disjoint supports.
//! W is positive semidefinite, and `<c N, Y - W> = c <N, Y> <= 0` for every such Y and `c >= 0`: `c N`
//! is in the normal cone at W. So `v = grad F(W) + lambda N` is a subgradient at W of F plus the
//! indicator of the cone, which is strongly convex with lambda, and at the minimiser 0 is one:
//!
//! ```text
//! ||W - W*|| <= ||v|| / lambda
//! ```
//!
//! Q is the orthogonal factor of the computed eigenvectors, never formed: the matrices returned lie
//! within `o+` of W and the computed negative part within `o-` of N ([`cone`]), and F's gradient is
//! Lipschitz with `M = lambda + n beta`. With `e` the bound of the residual's rounding
//! ([`points`]) the distance returned is
//!
//! ```text
//! r = (||v computed|| + e + M o+ + lambda o-) / lambda + o+
//! ```
//!
//! rounded up; proved in `docs/proofs/gaussian_margin.md`. Without the cone N, o+ and o- are 0.
//!
//! Pathak and Raj, "Large Margin Multiclass Gaussian Classification with Differential Privacy"
//! (2010); Kifer, Smith and Thakurta, COLT 2012 (constraint inside the minimisation).

use crate::error::{Error, Result, in_range, require};
use crate::loss::smooth::SmoothLoss;
use crate::rows::labels::check_weights;
use crate::rows::view::{Layout, RowBounds, Rows, Values};
use crate::runtime::interrupt::Interrupt;
use crate::runtime::tasks::each_problem;
use crate::runtime::threads::{PARALLEL_WORK, check_threads, pool_above};
use crate::solver::ellipsoids::cone::Cone;
use crate::solver::ellipsoids::lifted::Lifted;
use crate::solver::ellipsoids::points::Objective;
use crate::solver::ellipsoids::records::Targets;
use crate::solver::ellipsoids::search::ConeSearch;

/// Settings of the solver; plain public numbers.
#[derive(Debug, Clone, Copy)]
pub struct EllipsoidSettings<'a> {
    /// Name of the loss: `softmax_margin`, `huber_ww` or `m3`.
    pub loss: &'a str,
    /// Number of classes, at least 2.
    pub classes: usize,
    /// Ellipsoids of each class, at least 1.
    pub ellipsoids: usize,
    /// Temperature or half width of the loss.
    pub smoothing: f64,
    /// Margin of the loss.
    pub margin: f64,
    /// lambda.
    pub regularization: f64,
    /// Records longer than this are scaled down to it.
    pub data_norm: f64,
    /// Whether the matrices must be positive semidefinite.
    pub psd: bool,
    /// The distance certified is at most this over `regularization`.
    pub gradient_tol: f64,
    /// Most passes over the records; `None` runs until certified or until rounding stops it.
    pub max_passes: Option<u64>,
    /// Threads; the result does not depend on it.
    pub threads: usize,
}

/// Result of [`solve`]. Everything but `matrices` and `distance` is for tests and benchmarks:
/// it depends on the data without noise.
#[derive(Debug, Clone)]
pub struct EllipsoidSolution {
    /// One row of svec coordinates for each ellipsoid; `None` where nothing was certified.
    pub matrices: Option<Vec<f64>>,
    /// Certified distance from the minimiser; infinite where nothing was certified.
    pub distance: f64,
    /// Bound reached, certified or not, times `regularization`.
    pub bound: f64,
    /// Gradients, in double precision.
    pub gradients: u64,
    /// Products with the Hessian, in single precision.
    pub products: u64,
}

/// Numbers that all matrices may have together.
const MAX_ENTRIES: usize = 1 << 24;

/// Minimises F; `x` has `shape = (records, features)` in C order, `linear` one row of svec
/// coordinates for each ellipsoid. The factors `weights` are from 0 to 1, or none for 1 each.
///
/// # Errors
/// Arguments out of range, values that are not finite, no memory, an interrupt.
pub fn solve(
    x: Values<'_>,
    shape: (usize, usize),
    (target, weights): (&[i64], &[f64]),
    linear: &[f64],
    settings: &EllipsoidSettings<'_>,
    interrupt: &dyn Interrupt,
) -> Result<EllipsoidSolution> {
    let (loss, entries) = check(shape, target, settings)?;
    check_linear(linear, linear.len() == entries)?;
    check_weights(weights, shape.0)?;
    let bounds = RowBounds {
        data_norm: settings.data_norm,
        intercept: 1.0,
    };
    let rows = Rows::new(x, Layout::Dense, shape, bounds)?;
    let work = shape.0.saturating_mul(linear.len());
    let threads = pool_above(settings.threads, work, PARALLEL_WORK)?;
    let count = settings.classes * settings.ellipsoids;
    let lifted = Lifted::new(&rows, count, threads, interrupt)?;
    let records = (target, weights);
    let targets = Targets::new(loss, records, settings.classes, settings.ellipsoids)?;
    minimise(&lifted, &targets, linear, settings, interrupt)
}

/// Certified matrices of many problems over the same records.
#[derive(Debug, Clone)]
pub struct EllipsoidBatch {
    /// The matrices of [`EllipsoidSolution`], one problem after the other; 0 where nothing was
    /// certified.
    pub matrices: Vec<f64>,
    /// Certified distance of each problem; infinite where nothing was certified.
    pub distances: Vec<f64>,
}

/// [`solve`] for many linear terms, one after the other in `linear`, with the same bits.
///
/// Every problem is solved by one thread: this is for many small ones.
///
/// # Errors
/// As [`solve`].
pub fn solve_batch(
    x: Values<'_>,
    shape: (usize, usize),
    target: &[i64],
    linear: &[f64],
    settings: &EllipsoidSettings<'_>,
    interrupt: &dyn Interrupt,
) -> Result<EllipsoidBatch> {
    let (loss, entries) = check(shape, target, settings)?;
    check_linear(linear, linear.len().is_multiple_of(entries))?;
    let bounds = RowBounds {
        data_norm: settings.data_norm,
        intercept: 1.0,
    };
    let rows = Rows::new(x, Layout::Dense, shape, bounds)?;
    let count = settings.classes * settings.ellipsoids;
    let lifted = Lifted::new(&rows, count, None, interrupt)?;
    let records = (target, &[][..]);
    let targets = Targets::new(loss, records, settings.classes, settings.ellipsoids)?;
    let shape = (linear.len() / entries, entries);
    let (matrices, distances) = each_problem(shape, settings.threads, interrupt, |i, watch| {
        let linear = &linear[i * entries..][..entries];
        let found = minimise(&lifted, &targets, linear, settings, watch)?;
        Ok((found.matrices, found.distance))
    })?;
    Ok(EllipsoidBatch {
        matrices,
        distances,
    })
}

fn minimise(
    lifted: &Lifted,
    targets: &Targets,
    linear: &[f64],
    settings: &EllipsoidSettings<'_>,
    interrupt: &dyn Interrupt,
) -> Result<EllipsoidSolution> {
    let cone = Cone {
        order: lifted.order,
        psd: settings.psd,
    };
    let (lambda, target) = (settings.regularization, settings.gradient_tol);
    let numbers = (lambda, target);
    let mut objective = Objective::new(lifted, targets, cone, numbers, linear, interrupt)?;
    let most = settings.max_passes;
    let most_passes = most.unwrap_or_else(|| enough_passes(&objective));
    let search = ConeSearch {
        objective: &mut objective,
        most_passes,
    };
    let (last, certified) = search.run()?;
    let bound = last
        .as_ref()
        .map_or(f64::INFINITY, |last| last.bound(lambda));
    // The bound carries more slack than this rounding takes.
    let distance = if certified {
        bound / lambda
    } else {
        f64::INFINITY
    };
    Ok(EllipsoidSolution {
        matrices: last.filter(|_| certified).map(|last| last.weights),
        distance,
        bound,
        gradients: objective.gradients,
        products: objective.products,
    })
}

/// A number of passes that suffices for accelerated gradients from anywhere the search can be,
/// several times over; a function of public numbers and the number of records.
fn enough_passes(objective: &Objective<'_>) -> u64 {
    let lambda = objective.regularization;
    let condition = objective.most_curvature() / lambda;
    let b = crate::solver::smooth::newton_parts::norm(objective.linear);
    let records = objective.lifted.records as f64;
    let start = b + records * objective.targets.loss.scores as f64;
    let digits = (1.0 + condition * condition * (1.0 + start / objective.target)).ln();
    // Saturates where the problem could never be solved anyway.
    (1e4 + 100.0 * condition.sqrt() * digits) as u64
}

/// The loss, and how many numbers a linear term has.
fn check(
    (records, features): (usize, usize),
    target: &[i64],
    settings: &EllipsoidSettings<'_>,
) -> Result<(SmoothLoss, usize)> {
    check_threads(settings.threads)?;
    let (count, scores) = counts(settings)?;
    let loss = SmoothLoss::new(settings.loss, scores, settings.smoothing, settings.margin)?;
    let message = "expected softmax_margin, huber_ww or m3";
    require(loss.ignores_common_shift(), "loss", message)?;
    in_range("data_norm", settings.data_norm, 1e-15..=1e15)?;
    in_range("regularization", settings.regularization, 1e-30..=1e30)?;
    in_range("gradient_tol", settings.gradient_tol, 1e-60..=1e60)?;
    let message = format_args!("got {} of them, X has {records} rows", target.len());
    require(target.len() == records, "target", message)?;
    let known = |t: &i64| usize::try_from(*t).is_ok_and(|t| t < count);
    let message = "expected integers in 0..n_classes * n_ellipsoids";
    require(target.iter().all(known), "target", message)?;
    let order = features.checked_add(1);
    let square = order.and_then(|order| order.checked_mul(order.checked_add(1)?));
    let entries = square.and_then(|square| (square / 2).checked_mul(count));
    let Some(entries) = entries.filter(|entries| *entries <= MAX_ENTRIES) else {
        let message = format!(
            "got {features} features; n_classes * n_ellipsoids * (d + 1)(d + 2)/2 must be at most \
             {MAX_ENTRIES}"
        );
        return Err(Error::invalid("X", message));
    };
    Ok((loss, entries))
}

fn check_linear(linear: &[f64], complete: bool) -> Result<()> {
    let message = "expected one row of (d + 1)(d + 2)/2 numbers for each ellipsoid";
    require(complete, "linear", message)?;
    let message = "expected finite numbers of at most 1e50";
    require(linear.iter().all(|b| b.abs() <= 1e50), "linear", message)
}

/// Number of ellipsoids, and of scores that a record's loss sees.
fn counts(settings: &EllipsoidSettings<'_>) -> Result<(usize, usize)> {
    let (classes, each) = (settings.classes, settings.ellipsoids);
    let message = format_args!("got {classes}, expected 2 to {MAX_ENTRIES}");
    require((2..=MAX_ENTRIES).contains(&classes), "n_classes", message)?;
    let count = classes.checked_mul(each);
    if let Some(count) = count.filter(|count| (1..=MAX_ENTRIES).contains(count)) {
        return Ok((count, count - each + 1));
    }
    let message = format!("got {each}, expected at least 1 and few enough for memory");
    Err(Error::invalid("n_ellipsoids", message))
}
