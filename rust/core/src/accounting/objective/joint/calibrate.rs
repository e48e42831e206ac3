//! The least noise for which the bound meets the guarantee.

use crate::Result;
use crate::accounting::gaussian;
use crate::accounting::objective::Curvature;
use crate::accounting::objective::joint::cache;
use crate::accounting::objective::joint::cache::Key;
use crate::accounting::objective::joint::in_range;
use crate::accounting::objective::joint::search::{BoundSearch, Choice, Detail, Problem};
use crate::runtime::interrupt::Interrupt;

/// Evaluations on the coarse grid while the root is bracketed.
const COARSE_STEPS: usize = 60;

/// Evaluations of the full bound.
const FINE_STEPS: usize = 16;

/// The coarse root is followed to within this in `ln delta`.
const COARSE_TOLERANCE: f64 = 0.02;

/// The result is usually below the target by at most this in `ln delta`; the curve has
/// steps of about this size where the search for the free parameter changes its mind.
const FINE_TOLERANCE: f64 = 4e-3;

/// Shortest distance in `ln sigma` from which a slope is taken.
const MIN_SECANT: f64 = 2e-4;

/// Bracket in `ln sigma` that is not divided further.
const CLOSE: f64 = 1e-4;

/// Left to the target, relatively, so that another processor's rounding of the same sums still
/// finds the guarantee met.
const MARGIN: f64 = 1e-8;

/// A larger value is not informative about the distance to the root.
const UNINFORMATIVE: f64 = 0.3;

/// A calibration.
struct Task<'a> {
    epsilon: f64,
    log_target: f64,
    target: f64,
    /// `kappa`, or, if `per_t`, `kappa / t`.
    kappa: f64,
    per_t: bool,
    classes: usize,
    replace_one: bool,
    search: BoundSearch<'a>,
}

/// A root search in `ln sigma`: its bracket, and the values there.
#[derive(Debug, Clone, Copy)]
struct Bracket {
    unsafe_below: f64,
    safe_above: f64,
    /// The last point with an informative value, and that value.
    last: Option<(f64, f64)>,
    /// `d ln delta / d ln sigma`, negative.
    slope: f64,
}

impl Bracket {
    fn new(slope: f64) -> Self {
        Self {
            unsafe_below: f64::NEG_INFINITY,
            safe_above: f64::INFINITY,
            last: None,
            slope,
        }
    }

    /// Takes in a value `excess = ln(delta / target)` and proposes the next point.
    fn next(&mut self, at: f64, excess: f64, aim: f64, informative: bool) -> f64 {
        if excess <= 0.0 {
            self.safe_above = self.safe_above.min(at);
        } else {
            self.unsafe_below = self.unsafe_below.max(at);
        }
        if !informative {
            return if self.safe_above.is_finite() {
                0.5 * (at + self.safe_above)
            } else {
                at + 0.2
            };
        }
        if let Some((before, value)) = self.last {
            let slope = (excess - value) / (at - before);
            if slope < -1.0 && (at - before).abs() > MIN_SECANT {
                self.slope = slope;
            }
        }
        self.last = Some((at, excess));
        let next = at + ((aim - excess) / self.slope).clamp(-0.5, 0.5);
        if next > self.unsafe_below && next < self.safe_above {
            next
        } else if self.safe_above.is_finite() && self.unsafe_below.is_finite() {
            0.5 * (self.unsafe_below + self.safe_above)
        } else if self.safe_above.is_finite() {
            self.safe_above - 0.1
        } else {
            self.unsafe_below + 0.1
        }
    }
}

impl Task<'_> {
    fn problem(&self, t: f64) -> Option<Problem> {
        let kappa = if self.per_t {
            self.kappa * t
        } else {
            self.kappa
        };
        in_range(self.epsilon, t, kappa, self.classes)
            .then(|| Problem::new(self.epsilon, t, kappa, self.classes, self.replace_one))
    }

    /// `ln(value / target)`; a vanishing value counts as very safe.
    fn excess(&self, value: f64) -> f64 {
        libm::log(value.max(1e-300)) - self.log_target
    }

    /// A point about where the coarse bound meets the target, and the slope there.
    fn coarse_root(&mut self, start: f64) -> Result<Option<Bracket>> {
        let typical = -2.0 * (2.0 - self.log_target);
        let mut bracket = Bracket::new(typical);
        let mut at = start;
        let mut choice: Option<Choice> = None;
        for _ in 0..COARSE_STEPS {
            let Some(problem) = self.problem(libm::exp(-at)) else {
                return Ok(None);
            };
            let searched = choice.is_none();
            let value = if let Some(choice) = choice {
                self.search.at(&problem, choice, Detail::Coarse)?
            } else {
                let (best, value) = self.search.best(&problem)?;
                choice = Some(best);
                value
            };
            let informative = value < UNINFORMATIVE;
            if !informative {
                // Another choice may do at this or at the next noise.
                choice = None;
            }
            if !(informative || searched) {
                continue;
            }
            let excess = self.excess(value);
            let close = excess.abs() < COARSE_TOLERANCE;
            if close && searched {
                bracket.last = Some((at, excess));
                return Ok(Some(bracket));
            }
            let next = bracket.next(at, excess, 0.0, informative);
            if close {
                // The best choice moved with the noise: look again here.
                choice = None;
                bracket = Bracket::new(bracket.slope);
            } else {
                at = next;
            }
        }
        Ok(None)
    }

    /// The least safe `sigma` by the full bound, from the coarse root.
    fn fine_root(&mut self, coarse: Bracket) -> Result<Option<f64>> {
        let Some((mut at, excess)) = coarse.last else {
            return Ok(None);
        };
        at -= excess / coarse.slope;
        let mut bracket = Bracket::new(coarse.slope);
        let mut best: Option<f64> = None;
        for _ in 0..FINE_STEPS {
            // The argument of the answer is what is checked, not its logarithm.
            let sigma = libm::exp(at);
            let Some(problem) = self.problem(1.0 / sigma) else {
                return Ok(best);
            };
            let value = self.search.least(&problem, self.target)?;
            let excess = self.excess(value);
            if value <= self.target {
                best = Some(best.map_or(sigma, |b| b.min(sigma)));
                if excess > -FINE_TOLERANCE {
                    return Ok(best);
                }
            }
            at = bracket.next(at, excess, -0.25 * FINE_TOLERANCE, value < UNINFORMATIVE);
            if (bracket.safe_above - bracket.unsafe_below) < CLOSE && best.is_some() {
                return Ok(best);
            }
        }
        Ok(best)
    }
}

/// Least noise deviation over the bound on the row norm for `(epsilon, delta)`-privacy by
/// [`crate::accounting::objective::joint::delta`], rounded up.
///
/// # Arguments
/// * `epsilon`, `delta` - positive, `delta` below 1.
/// * `curvature` - how `kappa` depends on the noise; a given Jacobian is no business of this bound.
/// * `classes` - at least 3.
/// * `replace_one` - a record is replaced, not added or removed.
///
/// # Returns
/// `sigma` with `delta(epsilon, 1 / sigma, kappa, ...) <= delta`, above the least such number by a
/// relative 1e-3 as a rule; `None` where no noise was found for which the bound says enough.
///
/// # Errors
/// [`crate::Error::Interrupted`].
pub fn sigma(
    epsilon: f64,
    delta: f64,
    curvature: Curvature,
    classes: usize,
    replace_one: bool,
    interrupt: &dyn Interrupt,
) -> Result<Option<f64>> {
    let (kappa, per_t) = match curvature {
        Curvature::Kappa(kappa) => (kappa, false),
        Curvature::KappaPerT(slope) => (slope, true),
        Curvature::Given(_) => return Ok(None),
    };
    let wanted = epsilon >= 0.0 && delta > 0.0 && delta < 1.0;
    if !(wanted && kappa >= 0.0 && kappa.is_finite()) {
        return Ok(None);
    }
    let key = Key {
        bits: [epsilon.to_bits(), delta.to_bits(), kappa.to_bits()],
        classes,
        flags: (u8::from(per_t), replace_one),
    };
    if let Some((_, known)) = cache::find(&key) {
        return Ok(known);
    }
    // No bound of this family needs less than the Gaussian mechanism of the gradient's norm.
    let norm = if replace_one { 2.0 } else { 1.0 } * std::f64::consts::SQRT_2;
    let start = libm::log(gaussian::sigma(epsilon, delta)? * norm);
    let target = delta * (1.0 - MARGIN);
    let mut task = Task {
        epsilon,
        log_target: libm::log(target),
        target,
        kappa,
        per_t,
        classes,
        replace_one,
        search: BoundSearch::new(interrupt),
    };
    let found = match task.coarse_root(start)? {
        Some(bracket) => task.fine_root(bracket)?,
        None => None,
    };
    cache::store(key, found);
    Ok(found)
}
