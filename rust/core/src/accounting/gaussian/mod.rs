//! The privacy curve of the Gaussian mechanism, with sensitivity 1 and noise deviation `sigma`.
//!
//! `delta(epsilon, sigma) = Phi(-u) - exp(epsilon) Phi(-v)`, `u = epsilon sigma - h`,
//! `v = epsilon sigma + h`, `h = 1 / (2 sigma)` (Balle and Wang, ICML 2018, arXiv:1805.06530v2,
//! Theorem 8). Since `exp(epsilon) phi(v) = phi(u)`, this is `phi(u) (R(u) - R(v))` with the Mills
//! ratio `R`; the three forms below cancel nowhere. `docs/proofs/analytic_gaussian.md` has the
//! error analysis behind the constants.

pub(crate) mod calibration;

use crate::accounting::check_positive;
use crate::error::{Result, require};
use crate::numeric::ROUNDOFF;
use crate::numeric::float::{two_product, two_sum};
use crate::numeric::normal::{LEAST, mean_complement, mills};

pub use calibration::{epsilon, sigma};

/// `1 / sqrt(2 pi)`.
pub(super) const DENSITY_AT_ZERO: f64 = 0.398_942_280_401_432_7;

/// Relative error, in roundoffs, of `scale * bar` by quadrature.
const QUADRATURE_ERROR: f64 = 20.0;

/// Error of one Mills ratio at a rounded argument, in roundoffs.
const MILLS_ERROR: f64 = 6.0;

/// Error of the remaining product (constant, exponential and its correction), in roundoffs.
const PRODUCT_ERROR: f64 = 10.0;

/// Bound on the absolute error of `u` in twofold precision, as a share of `v`.
const ARGUMENT_ERROR: f64 = 1.0 / (1u128 << 100) as f64;

/// `exp(-t)` is below half the smallest double from here on.
const LARGEST_EXPONENT: f64 = 800.0;

/// Covers the rounding of a product that leaves the normal range.
const UNDERFLOW: f64 = 1e-322;

/// The side of one half on which `delta` lies; decides which formula is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    /// `delta = scale * bar * exp(-t)`.
    Delta,
    /// `1 - delta = scale * bar * exp(-t)`.
    Complement,
}

/// One point of the curve as a product, with a bound on its relative error.
#[derive(Debug, Clone, Copy)]
pub(super) struct CurvePoint {
    side: Side,
    scale: f64,
    bar: f64,
    /// `u^2 / 2` as a sum of two doubles; the second is lowered (Delta) or raised (Complement)
    /// by the error of `u`.
    t: f64,
    t_low: f64,
    /// Relative error of the product of `scale`, `bar` and `exp(-t - t_low)`.
    error: f64,
    /// `R(v)` and `scale * bar / DENSITY_AT_ZERO`, for the slopes of the curve.
    mills_v: f64,
    width: f64,
}

impl CurvePoint {
    /// The curve at `epsilon >= 0`, `sigma > 0`, both finite. `None` stands for a `delta` that is
    /// 1 to within the smallest double.
    pub(super) fn at(epsilon: f64, sigma: f64) -> Option<Self> {
        let inverse = 1.0 / sigma;
        if !inverse.is_finite() {
            return None;
        }
        // The arguments in twofold precision.
        let inverse_low = (-inverse).mul_add(sigma, 1.0) * inverse;
        let h = 0.5 * inverse;
        let (middle, middle_low) = two_product(epsilon, sigma);
        let (difference, rest) = two_sum(middle, -h);
        let (u, u_low) = two_sum(difference, rest + (middle_low - 0.5 * inverse_low));
        let v = middle + h;
        let (t, t_error) = two_product(u * 0.5, u);
        if !(t.is_finite() && v.is_finite()) {
            return if u < 0.0 {
                None
            } else {
                Some(Self::beyond_range())
            };
        }
        let argument_error = v * ARGUMENT_ERROR;
        let slack = argument_error * (u.abs() + argument_error + 2.0);
        let t_low = t_error + u * u_low;
        let mills_v = mills(v);
        if u < LEAST {
            let bar = mills(-u) + mills_v;
            let error = MILLS_ERROR * ROUNDOFF;
            let t = (t, t_low + slack);
            return Some(Self::new(Side::Complement, (1.0, bar), t, error, mills_v));
        }
        let (scale, bar, error) = if h <= 1.0f64.max(0.25 * u) {
            let mean = mean_complement(middle, h);
            (inverse, mean, QUADRATURE_ERROR * ROUNDOFF)
        } else {
            let near = mills(u);
            let bar = near - mills_v;
            let share = (near + mills_v) / bar;
            (1.0, bar, (MILLS_ERROR * share + 1.0) * ROUNDOFF)
        };
        let t = (t, t_low - slack);
        Some(Self::new(Side::Delta, (scale, bar), t, error, mills_v))
    }

    fn new(side: Side, (scale, bar): (f64, f64), t: (f64, f64), error: f64, mills_v: f64) -> Self {
        Self {
            side,
            scale,
            bar: bar * DENSITY_AT_ZERO,
            t: t.0,
            t_low: t.1,
            error: error + PRODUCT_ERROR * ROUNDOFF,
            mills_v,
            width: scale * bar,
        }
    }

    /// A point whose `u^2 / 2` exceeds every double.
    fn beyond_range() -> Self {
        Self::new(Side::Delta, (1.0, 1.0), (f64::MAX, 0.0), 0.0, 1.0)
    }

    /// The product, but for the error bounded by `error`.
    fn product(&self) -> f64 {
        let (t, rest) = two_sum(self.t, self.t_low);
        // Beyond these ends the exponential is certain to vanish, or the bound to be void; the
        // rest could be large or not a number there.
        if t > LARGEST_EXPONENT {
            return 0.0;
        }
        if t < -1.0 {
            return f64::INFINITY;
        }
        libm::exp(-t) * self.bar * (1.0 - rest) * self.scale
    }

    /// Natural logarithm of the product and a bound on its absolute error.
    fn log_product(&self) -> (f64, f64) {
        let (a, b) = (libm::log(self.scale), libm::log(self.bar));
        let (head, tail) = two_sum(a + b, -self.t);
        let size = a.abs() + b.abs() + self.t_low.abs();
        let error = self.error + 4.0 * ROUNDOFF * size;
        let log = head + (tail - self.t_low);
        (log, error + 2.0 * ROUNDOFF * log.abs())
    }

    /// Upper bound on `delta`.
    pub(super) fn delta(&self) -> f64 {
        match self.side {
            Side::Delta => upper(self.product(), self.error).min(1.0),
            Side::Complement => difference_up(1.0, self.complement()),
        }
    }

    /// Lower bound on `1 - delta`.
    pub(super) fn complement(&self) -> f64 {
        match self.side {
            Side::Delta => -difference_up(self.delta(), 1.0),
            Side::Complement => lower(self.product(), self.error),
        }
    }

    /// Upper bound on `ln delta`.
    fn log_delta(&self) -> f64 {
        match self.side {
            Side::Delta => {
                let (log, error) = self.log_product();
                let bound = (log + error).next_up();
                // NaN after an overflow: delta is at most 1.
                if bound.is_nan() {
                    0.0
                } else {
                    bound.clamp(-f64::MAX, 0.0)
                }
            }
            Side::Complement => log_one_minus_up(self.complement()),
        }
    }

    /// Logarithmic excess of `delta` over `target`; zero or less exactly when
    /// [`Self::delta`] is at most `target`. Large values are only roughly right.
    pub(super) fn excess(&self, target: f64) -> f64 {
        let (value, wanted, sign) = match self.side {
            Side::Delta => (self.delta(), target, 1.0),
            Side::Complement => (self.complement(), 1.0 - target, -1.0),
        };
        let excess = if value > 1e-300 {
            sign * libm::log(value / wanted)
        } else {
            sign * (self.log_product().0 - libm::log(wanted))
        };
        if self.delta() <= target {
            excess.min(0.0)
        } else {
            excess.max(f64::MIN_POSITIVE)
        }
    }

    /// Derivative of minus the logarithm used by [`Self::excess`] by `ln sigma`.
    pub(super) fn slope_by_log_sigma(&self, sigma: f64) -> f64 {
        1.0 / (sigma * self.width)
    }

    /// Derivative of minus the logarithm used by [`Self::excess`] by `epsilon`.
    pub(super) fn slope_by_epsilon(&self) -> f64 {
        self.mills_v / self.width
    }
}

/// Density of the standard normal law.
pub(super) fn density(x: f64) -> f64 {
    DENSITY_AT_ZERO * libm::exp(-0.5 * x * x)
}

/// `Phi(-x)`; the relative error grows as `x^2 / 2` roundoffs.
pub(super) fn upper_tail(x: f64) -> f64 {
    if x >= LEAST {
        density(x) * mills(x)
    } else {
        1.0 - density(x) * mills(-x)
    }
}

/// `value * (1 + error)`, rounded up; `value` may have lost bits to underflow.
fn upper(value: f64, error: f64) -> f64 {
    (value * (1.0 + error) + UNDERFLOW).next_up()
}

/// `value * (1 - error)`, rounded down, at least 0; `value` may have lost bits to underflow.
fn lower(value: f64, error: f64) -> f64 {
    (value * (1.0 - error) - UNDERFLOW).next_down().max(0.0)
}

/// `a - b` rounded up.
fn difference_up(a: f64, b: f64) -> f64 {
    let (sum, rest) = two_sum(a, -b);
    if rest > 0.0 { sum.next_up() } else { sum }
}

/// `ln(1 - q)` rounded up, at most 0.
fn log_one_minus_up(q: f64) -> f64 {
    // log1p errs by less than one ulp; subtracting from zero keeps -0.0 out.
    0.0 - (-libm::log1p(-q) * (1.0 - 4.0 * ROUNDOFF))
        .next_down()
        .max(0.0)
}

fn check(epsilon: f64, sigma: f64) -> Result<()> {
    let message = format_args!("must be a finite number, got {epsilon}");
    require(epsilon.is_finite(), "epsilon", message)?;
    check_positive("sigma", sigma)
}

/// Smallest `delta` for which the mechanism is `(epsilon, delta)`-private, rounded up.
///
/// # Arguments
/// * `epsilon` - any finite number; below zero the curve is `1 - e^epsilon + e^epsilon
///   delta(-epsilon)`.
/// * `sigma` - noise deviation over sensitivity, positive and finite.
///
/// # Returns
/// A number in (0, 1], never below the true value. For `|epsilon| <= 1e20` it is above it by a
/// relative 1e-13 at most, or by a few of the smallest doubles; for larger ones it may be looser.
///
/// # Errors
/// [`crate::Error::InvalidArgument`] naming the argument outside its range.
///
/// # Example
/// ```
/// let delta = dpsvm_core::accounting::gaussian::delta(1.0, 1.0)?;
/// assert!((delta - 0.126_936_737_506_643_946).abs() < 1e-14);
/// # Ok::<(), dpsvm_core::Error>(())
/// ```
pub fn delta(epsilon: f64, sigma: f64) -> Result<f64> {
    check(epsilon, sigma)?;
    let Some(point) = CurvePoint::at(epsilon.abs(), sigma) else {
        return Ok(1.0);
    };
    if epsilon >= 0.0 {
        return Ok(point.delta());
    }
    let first = -libm::expm1(epsilon);
    let second = libm::exp(epsilon) * point.delta();
    Ok(upper(first + second, 6.0 * ROUNDOFF).min(1.0))
}

/// Natural logarithm of [`delta`], rounded up; resolves what lies below the smallest double and
/// what lies closest to 1.
///
/// # Returns
/// A number in `[-f64::MAX, 0]`, never below the true logarithm unless that is below `-f64::MAX`.
///
/// # Errors
/// [`crate::Error::InvalidArgument`] naming the argument outside its range.
pub fn log_delta(epsilon: f64, sigma: f64) -> Result<f64> {
    check(epsilon, sigma)?;
    let Some(point) = CurvePoint::at(epsilon.abs(), sigma) else {
        return Ok(0.0);
    };
    if epsilon >= 0.0 {
        return Ok(point.log_delta());
    }
    let value = delta(epsilon, sigma)?;
    if value < 0.5 {
        return Ok(libm::log(value).next_up().next_up());
    }
    let complement = lower(libm::exp(epsilon) * point.complement(), 4.0 * ROUNDOFF);
    Ok(log_one_minus_up(complement))
}
