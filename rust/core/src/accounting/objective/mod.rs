//! Privacy curve and calibration of Gaussian objective perturbation.
//!
//! The minimiser of `sum_i loss_i(W) + lambda / 2 ||W||^2 + <B, W>` is released, where the entries of
//! `B` are independent and normal with deviation `sigma`. Its privacy loss is at most a random
//! variable `U` that depends on `t`, the bound on the row norms over `sigma`, on the loss's gradients
//! and on its curvature over `lambda`; then `delta(epsilon)` is at most the mean of the positive part
//! of `1 - exp(epsilon - U)`. Chaudhuri, Monteleoni, Sarwate (JMLR 12, 2011) and Kifer, Smith, Thakurta
//! (COLT 2012) introduced the mechanism, Redberg, Koskela, Wang (2023) a law of this kind for
//! one score. The laws here, over all classes at once, are derived in
//! `docs/proofs/objective_perturbation.md`. All results are rounded towards more noise and larger delta.

mod combined;
pub mod joint;
mod logs;
mod max_law;
mod one_score;
mod one_vs_rest;
mod power;
mod replacement;
mod search;
mod step_law;
mod weston_watkins;

use crate::accounting::objective::logs::{below_zero, log_gaussian, probability};
use crate::accounting::objective::one_score::OneScore;
use crate::accounting::{check_epsilon, check_not_negative, check_positive};
use crate::error::{Result, require};
use crate::runtime::interrupt::Interrupt;

pub use search::{Curvature, sigma};

/// Largest number of scores or classes.
pub(crate) const MAX_SCORES: usize = 100_000;

/// Rows longer than this many noise deviations are not protected at all.
const LARGEST_T: f64 = 1e50;

/// Range in which gradient and curvature are bounded in one supremum.
const MIN_T: f64 = 1e-100;
const LARGEST_KAPPA: f64 = 1e100;

/// Set of gradients and curvatures that one record can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Law {
    /// Softmax with a margin over this many classes, at least 2, one score each.
    Softmax {
        /// Number of classes.
        classes: usize,
    },
    /// Logistic or softplus losses, the sum over this many independent scores.
    Logistic {
        /// Number of scores: 1 for a binary model, else one for each class.
        scores: usize,
    },
    /// Huber hinge losses, the sum over this many independent scores.
    Huber {
        /// Number of scores: 1 for a binary model, else one for each class.
        scores: usize,
    },
    /// A sum over the other classes of a smooth hinge of the score difference.
    WestonWatkins {
        /// Number of classes, at least 2.
        classes: usize,
    },
}

/// Neighbouring relation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    /// One has a record more.
    AddRemove,
    /// One record is exchanged.
    ReplaceOne,
}

/// The share of the Jacobian in the privacy loss.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Jacobian {
    /// `kappa = (row norm)^2 / (lambda * temperature)`, from which the smallest valid bound follows; one
    /// score has curvature at most `1 / (4 temperature)`.
    Kappa(f64),
    /// A bound on the logarithm of the determinants' ratio, added to the loss as it stands.
    Given(f64),
}

impl Law {
    fn size(self) -> usize {
        match self {
            Self::Softmax { classes } | Self::WestonWatkins { classes } => classes,
            Self::Logistic { scores } | Self::Huber { scores } => scores,
        }
    }

    fn check(self) -> Result<()> {
        let least = match self {
            Self::Softmax { .. } | Self::WestonWatkins { .. } => 2,
            Self::Logistic { .. } | Self::Huber { .. } => 1,
        };
        let size = self.size();
        let message = format_args!("must lie in [{least}, {MAX_SCORES}] for this law, got {size}");
        require((least..=MAX_SCORES).contains(&size), "n_scores", message)
    }

    /// Norm of the largest change of all scores' gradients together.
    fn norm(self, relation: Relation) -> f64 {
        let k = self.size() as f64;
        let one = match self {
            Self::Softmax { .. } => std::f64::consts::SQRT_2,
            Self::Logistic { .. } | Self::Huber { .. } => k.sqrt(),
            Self::WestonWatkins { .. } => (k * (k - 1.0)).sqrt(),
        };
        match relation {
            Relation::AddRemove => one,
            Relation::ReplaceOne => 2.0 * one,
        }
    }

    /// Largest logarithm of the determinants' ratio of one record for `kappa >= 0`, rounded up.
    pub fn log_determinant(self, kappa: f64) -> f64 {
        let k = self.size() as f64;
        let bound = match self {
            Self::Softmax { .. } => (k - 1.0) * libm::log1p(kappa / k),
            Self::Logistic { .. } | Self::Huber { .. } => k * libm::log1p(0.25 * kappa),
            Self::WestonWatkins { .. } => {
                libm::log1p(0.5 * k * kappa) + (k - 2.0) * libm::log1p(0.5 * kappa)
            }
        };
        bound * (1.0 + 4.0 * f64::EPSILON)
    }
}

impl Jacobian {
    /// The constant that bounds its share of the loss of `law`.
    fn constant(self, law: Law) -> f64 {
        match self {
            Self::Kappa(kappa) => law.log_determinant(kappa),
            Self::Given(constant) => constant,
        }
    }

    fn check(self) -> Result<()> {
        let (name, value) = match self {
            Self::Kappa(kappa) => ("kappa", kappa),
            Self::Given(constant) => ("jacobian", constant),
        };
        check_not_negative(name, value)
    }
}

/// The law with a constant for the Jacobian, at `e = epsilon - constant`.
fn log_delta_plain(law: Law, relation: Relation, e: f64, t: f64) -> f64 {
    let at = e.max(0.0);
    let log = match (law, relation) {
        (Law::Logistic { scores: 1 } | Law::Huber { scores: 1 }, Relation::AddRemove) => {
            log_gaussian(at, t)
        }
        (Law::Logistic { scores: 1 } | Law::Huber { scores: 1 }, Relation::ReplaceOne) => {
            let twice = std::f64::consts::LN_2 + log_gaussian(at, t);
            logs::log_add(log_gaussian(at, 2.0 * t), twice)
        }
        (Law::Logistic { scores } | Law::Huber { scores }, Relation::AddRemove) => {
            one_vs_rest::log_delta(at, t, scores)
        }
        (Law::Logistic { scores } | Law::Huber { scores }, Relation::ReplaceOne) => {
            one_vs_rest::log_delta_replaced(at, t, scores)
        }
        (Law::Softmax { classes }, Relation::AddRemove) => {
            max_law::log_delta(at, t * t, t, classes - 1)
        }
        (Law::Softmax { classes }, Relation::ReplaceOne) => replacement::log_delta(at, t, classes),
        (Law::WestonWatkins { classes }, Relation::AddRemove) => {
            let centre = 0.5 * classes as f64 * t * t;
            weston_watkins::log_delta(at, centre, t, classes - 1)
        }
        (Law::WestonWatkins { classes }, Relation::ReplaceOne) => {
            replacement::log_delta_pairwise(at, t, classes)
        }
    };
    below_zero(e, log)
}

/// The smallest of the bounds that have a short form.
fn log_delta_closed(law: Law, relation: Relation, epsilon: f64, t: f64, jacobian: Jacobian) -> f64 {
    if t > LARGEST_T {
        // Next to no noise: delta is 1 but for a probability far below the least double.
        return 0.0;
    }
    let plain = |law| {
        let constant = jacobian.constant(law);
        let e = if constant == 0.0 {
            epsilon
        } else {
            (epsilon - constant).next_down()
        };
        log_delta_plain(law, relation, e, t)
    };
    // Beyond these the joint suprema leave the range of the numbers; the plain laws do not.
    let regular = |kappa: f64| kappa <= LARGEST_KAPPA && t >= MIN_T;
    match (law, relation, jacobian) {
        (_, _, Jacobian::Kappa(kappa)) if !regular(kappa) => plain(law),
        (Law::Logistic { scores: 1 }, Relation::AddRemove, Jacobian::Kappa(kappa)) => {
            OneScore::new(t, kappa).log_delta(epsilon).min(plain(law))
        }
        (Law::Softmax { classes: 2 }, Relation::AddRemove, Jacobian::Kappa(kappa)) => {
            // The difference of the two scores is one score, with rows longer by sqrt 2.
            let t = (std::f64::consts::SQRT_2 * t).next_up();
            OneScore::new(t, 2.0 * kappa)
                .log_delta(epsilon)
                .min(plain(law))
        }
        (Law::Logistic { scores }, Relation::AddRemove, Jacobian::Kappa(kappa)) => {
            // Pathwise below the plain law, which therefore need not be computed.
            one_vs_rest::log_delta_logistic(epsilon, t, kappa, scores)
        }
        _ => plain(law),
    }
}

fn check(law: Law, epsilon: f64, sigma: f64, jacobian: Jacobian) -> Result<()> {
    law.check()?;
    check_epsilon(epsilon)?;
    check_positive("sigma", sigma)?;
    jacobian.check()
}

/// Smallest proven `delta` at `epsilon`, as a natural logarithm, rounded up.
///
/// # Arguments
/// * `epsilon` - in `[0, 1e4]`.
/// * `sigma` - noise deviation over the bound on the row norms, positive and finite.
/// * `jacobian` - see [`Jacobian`]; not negative, finite.
/// * `interrupt` - asked whether to give up.
///
/// # Returns
/// A number in `[-f64::MAX, 0]`, such that `(epsilon, exp of it)` is guaranteed.
///
/// # Errors
/// [`crate::Error::InvalidArgument`] naming the argument outside its range; [`crate::Error::Interrupted`].
pub(crate) fn log_delta(
    law: Law,
    relation: Relation,
    epsilon: f64,
    sigma: f64,
    jacobian: Jacobian,
    interrupt: &dyn Interrupt,
) -> Result<f64> {
    check(law, epsilon, sigma, jacobian)?;
    let t = (1.0 / sigma).next_up();
    combined::log_delta(law, relation, epsilon, t, jacobian, interrupt)
}

/// The curve of [`delta`] over a range of epsilons, for about the price of a few questions.
///
/// # Arguments
/// * `low`, `high` - ends of the range, in `[0, 1e4]`, increasing.
/// * `count` - about how many points, at least 2.
/// * the others - as for [`log_delta`].
///
/// # Returns
/// Increasing epsilons, from `low` to `high` or beyond by less than a step, and upper bounds of
/// `delta` there.
///
/// # Errors
/// [`crate::Error::InvalidArgument`] naming the argument outside its range; [`crate::Error::Interrupted`].
#[expect(
    clippy::too_many_arguments,
    reason = "a range in the place of one epsilon"
)]
pub fn profile(
    law: Law,
    relation: Relation,
    low: f64,
    high: f64,
    count: usize,
    sigma: f64,
    jacobian: Jacobian,
    interrupt: &dyn Interrupt,
) -> Result<Vec<(f64, f64)>> {
    check(law, low, sigma, jacobian)?;
    check_epsilon(high)?;
    let message = "must be above low, with 2 points";
    require(low < high && count >= 2, "high", message)?;
    let t = (1.0 / sigma).next_up();
    let least = low.max(f64::MIN_POSITIVE);
    combined::profile(law, relation, (least, high), count, t, jacobian, interrupt)
}

/// Smallest proven `delta` at `epsilon`, rounded up: `exp` of [`log_delta`], never 0.
///
/// # Errors
/// [`crate::Error::InvalidArgument`] naming the argument outside its range; [`crate::Error::Interrupted`].
///
/// # Example
/// ```
/// use dpsvm_core::accounting::objective::{Jacobian, Law, Relation, delta};
/// use dpsvm_core::runtime::interrupt::Never;
/// let law = Law::Softmax { classes: 10 };
/// let delta = delta(law, Relation::AddRemove, 2.0, 4.51, Jacobian::Given(0.5), &Never)?;
/// assert!(delta < 1e-6);
/// # Ok::<(), dpsvm_core::Error>(())
/// ```
pub fn delta(
    law: Law,
    relation: Relation,
    epsilon: f64,
    sigma: f64,
    jacobian: Jacobian,
    interrupt: &dyn Interrupt,
) -> Result<f64> {
    log_delta(law, relation, epsilon, sigma, jacobian, interrupt).map(probability)
}
