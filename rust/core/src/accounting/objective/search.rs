//! The least noise for a target, by bracketing.

use crate::accounting::gaussian::calibration;
use crate::accounting::objective::logs::probability;
use crate::accounting::objective::{Jacobian, Law, Relation, combined, log_delta_closed};
use crate::accounting::{check_delta, check_epsilon, check_not_negative};
use crate::error::{Error, Result, require};
use crate::runtime::interrupt::Interrupt;

/// Evaluations at most; five to fifteen are usual.
const MAX_STEPS: usize = 200;

/// Relative width at which the search for `sigma` ends.
const TOLERANCE: f64 = 1e-12;

/// Tolerance where the curve comes from a convolution, whose own error is larger.
const COARSE_TOLERANCE: f64 = 1e-9;

/// Dependence of the Jacobian's share on the noise.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Curvature {
    /// [`Jacobian::Kappa`], the same for every noise.
    Kappa(f64),
    /// `kappa = this / sigma`: the regularisation grows with the noise.
    KappaPerT(f64),
    /// [`Jacobian::Given`], the same for every noise.
    Given(f64),
}

impl Curvature {
    fn at(self, sigma: f64) -> Jacobian {
        match self {
            Self::Kappa(kappa) => Jacobian::Kappa(kappa),
            Self::KappaPerT(slope) => Jacobian::Kappa((slope / sigma).next_up().min(f64::MAX)),
            Self::Given(constant) => Jacobian::Given(constant),
        }
    }

    fn check(self) -> Result<()> {
        match self {
            Self::Kappa(kappa) => check_not_negative("kappa", kappa),
            Self::KappaPerT(slope) => check_not_negative("kappa_per_t", slope),
            Self::Given(constant) => check_not_negative("jacobian", constant),
        }
    }
}

struct NoiseSearch<'a> {
    law: Law,
    relation: Relation,
    epsilon: f64,
    delta: f64,
    curvature: Curvature,
    interrupt: &'a dyn Interrupt,
}

impl NoiseSearch<'_> {
    /// Logarithmic excess of delta over the target; at most 0 exactly when `sigma` is enough.
    fn excess(&self, sigma: f64) -> Result<f64> {
        self.interrupt.check()?;
        let t = (1.0 / sigma).next_up();
        let target = libm::log(self.delta);
        let jacobian = self.curvature.at(sigma);
        let log = log_delta_closed(self.law, self.relation, self.epsilon, t, jacobian);
        Ok(if probability(log) <= self.delta {
            (log - target).min(0.0)
        } else {
            (log - target).max(f64::MIN_POSITIVE)
        })
    }

    /// The least noise by the bounds in short form; `None` if none below 1e300 is enough.
    fn closed_sigma(&self) -> Result<Option<f64>> {
        let constant = match self.curvature {
            Curvature::Given(constant) => constant,
            Curvature::Kappa(kappa) => self.law.log_determinant(kappa),
            Curvature::KappaPerT(_) => 0.0,
        };
        let rest = (self.epsilon - constant).max(0.1 * self.epsilon);
        let guess = self.law.norm(self.relation) * calibration::sigma(rest, self.delta)?;
        let tolerance = if is_convolved(self.law) {
            COARSE_TOLERANCE
        } else {
            TOLERANCE
        };
        match self.bracket(guess)? {
            Some(bracket) => self.least(bracket, tolerance).map(Some),
            None => Ok(None),
        }
    }

    /// A noise that is not enough and one that is, with their excesses; `None` if none is enough.
    fn bracket(&self, guess: f64) -> Result<Option<[(f64, f64); 2]>> {
        let mut at = (guess, self.excess(guess)?);
        let mut factor = 1.1;
        let safe = at.1 <= 0.0;
        while (1e-300..=1e300).contains(&at.0) {
            let next = if safe { at.0 / factor } else { at.0 * factor };
            let probe = (next, self.excess(next)?);
            if safe && probe.1 > 0.0 {
                return Ok(Some([probe, at]));
            }
            if !safe && probe.1 <= 0.0 {
                return Ok(Some([at, probe]));
            }
            at = probe;
            factor = (factor * factor).min(1e10);
        }
        Ok(None)
    }

    /// Regula falsi on the logarithms (Illinois), kept away from the ends of the bracket so that both
    /// close in; returns the end that is enough.
    fn least(&self, [mut low, mut high]: [(f64, f64); 2], tolerance: f64) -> Result<f64> {
        let mut last_side = 0;
        for step in 0..MAX_STEPS {
            let width = libm::log(high.0 / low.0);
            if width <= tolerance {
                break;
            }
            let share = if step % 12 == 11 {
                0.5
            } else {
                low.1 / (low.1 - high.1)
            };
            let margin = 0.4 * tolerance;
            let move_by = (share * width).clamp(margin, width - margin);
            let next = low.0 * libm::exp(move_by);
            if !(next > low.0 && next < high.0) {
                break;
            }
            let excess = self.excess(next)?;
            let side = if excess <= 0.0 { 1 } else { -1 };
            if side > 0 {
                high = (next, excess);
                low.1 *= if last_side == side { 0.5 } else { 1.0 };
            } else {
                low = (next, excess);
                high.1 *= if last_side == side { 0.5 } else { 1.0 };
            }
            last_side = side;
        }
        Ok(high.0)
    }

    /// Refuses a constant Jacobian that leaves `delta` above the target under any noise.
    fn check_feasible(&self) -> Result<()> {
        let (name, jacobian) = match self.curvature {
            Curvature::Kappa(kappa) => ("kappa", Jacobian::Kappa(kappa)),
            Curvature::Given(constant) => ("jacobian", Jacobian::Given(constant)),
            Curvature::KappaPerT(_) => return Ok(()),
        };
        let constant = jacobian.constant(self.law);
        let most = self.epsilon - libm::log1p(-self.delta);
        let message = format_args!(
            "must be so small that the logarithm of the Jacobian, {constant}, is below epsilon - \
             ln(1 - delta) = {most}; no noise suffices otherwise"
        );
        require(constant < most, name, message)
    }
}

/// Whether the curve is a convolution.
fn is_convolved(law: Law) -> bool {
    match law {
        Law::Softmax { .. } => false,
        Law::Logistic { scores } | Law::Huber { scores } => scores > 1,
        Law::WestonWatkins { classes } => classes > 2,
    }
}

/// Smallest noise deviation over the bound on the row norms for `(epsilon, delta)`, rounded up.
///
/// # Arguments
/// * `epsilon` - in `[0, 1e4]`.
/// * `delta` - in `[f64::MIN_POSITIVE, 1)`.
/// * `curvature` - see [`Curvature`]; not negative, finite.
/// * `interrupt` - asked whether to give up.
///
/// # Returns
/// `sigma` at which [`crate::accounting::objective::delta`] as computed is at most `delta`; above the least such value by a
/// relative 1e-12, for sums over scores 1e-9, where the joint bound decides 1e-3 as a rule.
///
/// # Errors
/// [`Error::InvalidArgument`] naming the argument outside its range, or the Jacobian when no noise is
/// enough.
pub fn sigma(
    law: Law,
    relation: Relation,
    epsilon: f64,
    delta: f64,
    curvature: Curvature,
    interrupt: &dyn Interrupt,
) -> Result<f64> {
    law.check()?;
    check_epsilon(epsilon)?;
    check_delta(delta)?;
    curvature.check()?;
    let search = NoiseSearch {
        law,
        relation,
        epsilon,
        delta,
        curvature,
        interrupt,
    };
    search.check_feasible()?;
    let jointly = combined::joint_sigma(law, relation, epsilon, delta, curvature, interrupt)?;
    match (search.closed_sigma()?, jointly) {
        (Some(closed), Some(jointly)) => Ok(closed.min(jointly)),
        (Some(enough), None) | (None, Some(enough)) => Ok(enough),
        (None, None) => {
            let message = format!(
                "must be larger at epsilon = {epsilon}, got {delta}; no noise below 1e300 suffices"
            );
            Err(Error::invalid("delta", message))
        }
    }
}
