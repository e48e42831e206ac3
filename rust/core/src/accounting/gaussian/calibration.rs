//! Inverting the privacy curve: the least noise, the least epsilon.
//!
//! Newton's method on the logarithm of delta (of `1 - delta` where delta is above one half),
//! inside a bracket whose upper end is known to satisfy the guarantee, then steps of an ulp or two.
//! What is returned satisfied `delta(epsilon, sigma) <= delta` when evaluated with the upper bound
//! of [`crate::accounting::gaussian::delta`]; hence it is never on the wrong side of the true value.

use crate::accounting::gaussian::{CurvePoint, DENSITY_AT_ZERO};
use crate::accounting::{check_delta, check_epsilon, check_positive};
use crate::error::Result;

/// Largest `epsilon` that [`sigma`] accepts.
pub const MAX_EPSILON: f64 = 1e4;

/// Below every noise deviation asked for: at `epsilon <= MAX_EPSILON` its delta is 1 - 1e-50000.
const MIN_SIGMA: f64 = 1e-3;

/// Steps after which the safe end of the bracket is returned as it stands. Newton needs about
/// eight; bisection over all doubles would need 2100.
const MAX_STEPS: usize = 300;

/// Steps of the last walk before its stride starts to double; two or three are usual.
const SMALL_STRIDES: usize = 12;

/// Newton stops when the residual is this many roundoffs of delta.
const CLOSE: f64 = 64.0 * f64::EPSILON;

/// Result for a candidate value.
struct Probe {
    /// Logarithm by which delta is above the target: at most 0 when the candidate is safe.
    excess: f64,
    /// Its derivative by the variable, with the sign turned, positive.
    slope: f64,
}

impl Probe {
    /// At a point of the curve, whose derivative by the variable, as above, is `slope`.
    fn of(point: Option<CurvePoint>, delta: f64, slope: impl Fn(&CurvePoint) -> f64) -> Self {
        let excess = point.map_or(f64::INFINITY, |point| point.excess(delta));
        let slope = point.as_ref().map_or(1.0, slope);
        Self { excess, slope }
    }
}

/// The unknown of [`least_safe`]: how it moves, and what it costs.
trait Unknown {
    fn probe(&self, at: f64) -> Probe;
    /// `at` moved by a Newton step of the (possibly logarithmic) variable.
    fn moved(&self, at: f64, step: f64) -> f64;
    /// Middle of the bracket.
    fn middle(&self, low: f64, high: f64) -> f64;
}

struct Sigma {
    epsilon: f64,
    delta: f64,
}

impl Unknown for Sigma {
    fn probe(&self, at: f64) -> Probe {
        let point = CurvePoint::at(self.epsilon, at);
        Probe::of(point, self.delta, |point| point.slope_by_log_sigma(at))
    }

    fn moved(&self, at: f64, step: f64) -> f64 {
        at * libm::exp(step)
    }

    fn middle(&self, low: f64, high: f64) -> f64 {
        low.sqrt() * high.sqrt()
    }
}

struct Epsilon {
    sigma: f64,
    delta: f64,
}

impl Unknown for Epsilon {
    fn probe(&self, at: f64) -> Probe {
        let point = CurvePoint::at(at, self.sigma);
        Probe::of(point, self.delta, CurvePoint::slope_by_epsilon)
    }

    fn moved(&self, at: f64, step: f64) -> f64 {
        at + step
    }

    fn middle(&self, low: f64, high: f64) -> f64 {
        0.5 * low + 0.5 * high
    }
}

/// About the least value between `low` (not safe) and `high` (safe) that is safe.
fn least_safe(unknown: &impl Unknown, mut low: f64, mut high: f64) -> f64 {
    let mut at = high;
    for _ in 0..MAX_STEPS {
        let probe = unknown.probe(at);
        let safe = probe.excess <= 0.0;
        if safe {
            high = at;
        } else {
            low = at;
        }
        let step = probe.excess / probe.slope;
        if probe.excess.abs() <= CLOSE {
            return polished(unknown, at, step, (low, high), f64::EPSILON / probe.slope);
        }
        let mut next = unknown.moved(at, step);
        // Not-a-number also fails this test.
        if !(next > low && next < high) {
            next = unknown.middle(low, high);
            if !(next > low && next < high) {
                break;
            }
        }
        at = next;
    }
    high
}

/// Walks from a point next to the root to a safe one whose neighbour, one stride below, is not.
///
/// `stride` is what changes ln delta by an ulp of 1; at least an ulp of the variable is taken.
/// It grows only after [`SMALL_STRIDES`], so that a flat curve cannot make the walk long.
fn polished(unknown: &impl Unknown, at: f64, step: f64, bracket: (f64, f64), stride: f64) -> f64 {
    let (low, mut high) = bracket;
    let mut at = unknown.moved(at, step).clamp(low, high);
    let mut stride = stride;
    let mut below_fails = false;
    for count in 0..MAX_STEPS {
        if unknown.probe(at).excess <= 0.0 {
            high = at;
            if below_fails {
                break;
            }
            at = unknown.moved(at, -stride).min(at.next_down());
            if at <= low {
                break;
            }
        } else {
            below_fails = true;
            at = unknown.moved(at, stride).max(at.next_up());
            if at >= high {
                break;
            }
        }
        if count >= SMALL_STRIDES {
            stride *= 2.0;
        }
    }
    high
}

/// `u` with `Phi(-u) <= delta / 2`, not negative.
fn tail_quantile_above(delta: f64) -> f64 {
    (-2.0 * libm::log(delta)).sqrt() * (1.0 + 1e-12)
}

/// Smallest noise deviation over sensitivity for `(epsilon, delta)`-privacy, rounded up.
///
/// # Arguments
/// * `epsilon` - in `[0, 1e4]`.
/// * `delta` - in `[f64::MIN_POSITIVE, 1)`.
///
/// # Returns
/// `sigma` with `gaussian::delta(epsilon, sigma) <= delta` as computed, hence never below the true
/// value, and above it by a relative 1e-14 at most.
///
/// # Errors
/// [`crate::Error::InvalidArgument`] naming the argument outside its range.
///
/// # Example
/// ```
/// use dpsvm_core::accounting::gaussian;
/// let sigma = gaussian::sigma(1.0, 1e-6)?;
/// assert!(gaussian::delta(1.0, sigma)? <= 1e-6);
/// # Ok::<(), dpsvm_core::Error>(())
/// ```
pub fn sigma(epsilon: f64, delta: f64) -> Result<f64> {
    check_epsilon(epsilon)?;
    check_delta(delta)?;
    // -0 is 0.
    let epsilon = epsilon.abs();
    // delta(epsilon, .) <= delta(0, .) = 2 Phi(h) - 1 <= 2 h phi(0), and <= Phi(-u): two values
    // that are large enough; the margin covers their rounding and the curve's error bound.
    let flat = DENSITY_AT_ZERO / delta;
    let u = tail_quantile_above(delta);
    let tail = (u + (u * u + 2.0 * epsilon).sqrt()) / (2.0 * epsilon);
    let enough = flat.min(tail) * (1.0 + 1e-9);
    Ok(least_safe(&Sigma { epsilon, delta }, MIN_SIGMA, enough))
}

/// Smallest `epsilon >= 0` for which the mechanism is `(epsilon, delta)`-private, rounded up.
///
/// # Arguments
/// * `delta` - in `[f64::MIN_POSITIVE, 1)`.
/// * `sigma` - noise deviation over sensitivity, positive and finite.
///
/// # Returns
/// `epsilon` with `gaussian::delta(epsilon, sigma) <= delta` as computed: 0 when that holds at 0,
/// infinity when no double is large enough (`sigma` below about 1e-154). Never below the true
/// value; above it by a few roundoffs of `ln delta` (relative 1e-13 wherever `epsilon` is not
/// itself a small difference, that is away from the `sigma` at which it becomes 0).
///
/// # Errors
/// [`crate::Error::InvalidArgument`] naming the argument outside its range.
pub fn epsilon(delta: f64, sigma: f64) -> Result<f64> {
    check_delta(delta)?;
    check_positive("sigma", sigma)?;
    let unknown = Epsilon { sigma, delta };
    if unknown.probe(0.0).excess <= 0.0 {
        return Ok(0.0);
    }
    // delta(epsilon, .) <= Phi(-u).
    let enough = (tail_quantile_above(delta) + 0.5 / sigma) / sigma * (1.0 + 1e-9);
    if !enough.is_finite() || unknown.probe(enough).excess > 0.0 {
        return Ok(f64::INFINITY);
    }
    Ok(least_safe(&unknown, 0.0, enough))
}
