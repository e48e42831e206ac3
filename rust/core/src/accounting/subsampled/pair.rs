//! The dominating pair of one Poisson-subsampled Gaussian step.
//!
//! Positions `u` are in units of the noise deviation `z`, `a = u / z`, `c = 1 / (2 z^2)`. The
//! likelihood ratio `X(u)` of the pair grows with `u`: for `add_remove`
//! `X = 1 - q + q exp(a - c)`, for `replace_one` that over the same with `-a`. Everything below is
//! a sum or product of positive terms, so nothing cancels (`docs/proofs/accountant.md`,
//! "Dominating pairs").

use crate::accounting::gaussian::{density, upper_tail};

/// Unit of the error bounds: two roundoffs.
pub(super) const ULP: f64 = f64::EPSILON;

/// From here on `expm1(d)` is `exp(d)` to within its rounding.
const LARGE: f64 = 40.0;

/// `(1 - q) N(0, z^2) + q N(1, z^2)` against `N(0, z^2)`, or against
/// `(1 - q) N(0, z^2) + q N(-1, z^2)` when one record is replaced.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pair {
    /// `z`.
    noise: f64,
    /// `q`.
    rate: f64,
    /// `1 - q`.
    rest: f64,
    /// `1 / z` and `c`.
    inverse: f64,
    half: f64,
    /// `ln(q / (1 - q))`; infinite for `q = 1`.
    log_odds: f64,
    pub(super) replace: bool,
}

/// `1 / (1 + exp(-y))`.
fn logistic(y: f64) -> f64 {
    1.0 / (1.0 + libm::exp(-y))
}

/// `logistic(y)`, which several rises share.
#[derive(Clone, Copy)]
struct Share {
    y: f64,
    logistic: f64,
}

impl Share {
    fn new(y: f64) -> Self {
        let logistic = logistic(y);
        Self { y, logistic }
    }

    /// `logistic(y) (exp(d) - 1)` for `d >= 0`, without overflow of a factor.
    fn growth(self, d: f64) -> f64 {
        if d < LARGE {
            return self.logistic * libm::expm1(d);
        }
        let log_weight = if self.y < -LARGE {
            self.y
        } else {
            -libm::log1p(libm::exp(-self.y))
        };
        libm::exp(d + log_weight)
    }
}

/// A position with what the ratio of the laws rises by from there and, if a record is replaced, up
/// to there.
pub(super) struct Place {
    from: Share,
    to: Option<Share>,
}

impl Place {
    /// `X(to) / X(self) - 1` where `to = self + z d`, `d >= 0`.
    pub(super) fn rise(&self, to: &Self, d: f64) -> f64 {
        let up = self.from.growth(d);
        let Some(share) = to.to else {
            return up;
        };
        let down = share.growth(d);
        up + down + up * down
    }
}

/// Upper bound on the mass of the standard normal law above `u`.
pub(super) fn normal_tail(u: f64) -> f64 {
    (upper_tail(u) * (1.0 + ULP * (16.0 + u * u)) + 1e-300).min(1.0)
}

/// `u` with a mass of at most `mass` above it, up to rounding.
fn tail_quantile(mass: f64) -> f64 {
    if mass >= 0.25 {
        return 0.7;
    }
    let log = -libm::log(mass.max(1e-305));
    let crude = (2.0 * log).sqrt();
    // Mass above u is below phi(u) / u; one step from the crude value stays on the safe side.
    let less = log - libm::log(2.5 * (crude - 2.0).max(0.4));
    (2.0 * less.max(0.2)).sqrt().clamp(0.7, crude) + 0.02
}

/// `ln(1 - q + q exp(t))`.
fn log_mixture(rate: f64, rest: f64, t: f64) -> f64 {
    if rest == 0.0 {
        t
    } else if t > LARGE {
        t + libm::log(rate) + libm::log1p(rest / rate * libm::exp(-t))
    } else {
        libm::log1p(rate * libm::expm1(t))
    }
}

impl Pair {
    /// `noise > 0` and `0 < rate <= 1`.
    pub(super) fn new(noise: f64, rate: f64, replace: bool) -> Self {
        let inverse = 1.0 / noise;
        Self {
            noise,
            rate,
            rest: 1.0 - rate,
            inverse,
            half: 0.5 * inverse * inverse,
            log_odds: libm::log(rate) - libm::log1p(-rate),
            replace,
        }
    }

    /// The loss at `u`, about.
    pub(super) fn loss(&self, u: f64) -> f64 {
        let (first, second) = self.log_ratios(u);
        first - second
    }

    /// Logarithms of both laws' densities over that of `N(0, z^2)`, about.
    pub(super) fn log_ratios(&self, u: f64) -> (f64, f64) {
        let a = u * self.inverse;
        let up = log_mixture(self.rate, self.rest, a - self.half);
        if self.replace {
            (up, log_mixture(self.rate, self.rest, -a - self.half))
        } else {
            (up, 0.0)
        }
    }

    /// Infimum of the loss.
    pub(super) fn least_loss(&self) -> f64 {
        if self.replace {
            f64::NEG_INFINITY
        } else {
            libm::log1p(-self.rate)
        }
    }

    /// Place with the loss `loss`, to within [`Self::drift`]; minus infinity if the loss is above
    /// `loss` everywhere.
    pub(super) fn position(&self, loss: f64) -> f64 {
        if !self.replace {
            let t = if self.rest == 0.0 {
                loss
            } else if loss > LARGE {
                loss - libm::log(self.rate) + libm::log1p(-self.rest * libm::exp(-loss))
            } else if loss < -1.0 {
                // expm1(loss) would cancel against q where 1 - q is small.
                let gap = libm::exp(loss) - self.rest;
                if gap <= 0.0 {
                    return f64::NEG_INFINITY;
                }
                libm::log(gap) - libm::log(self.rate)
            } else {
                let ratio = libm::expm1(loss) / self.rate;
                if ratio <= -1.0 {
                    return f64::NEG_INFINITY;
                }
                libm::log1p(ratio)
            };
            return self.noise * t + 0.5 * self.inverse;
        }
        if loss < 0.0 {
            return -self.position(-loss);
        }
        if self.rest == 0.0 {
            return 0.5 * self.noise * loss;
        }
        self.noise * (0.5 * loss + self.arcsinh(loss))
    }

    /// `arcsinh((1 - q) / q exp(c) sinh(loss / 2))`, `loss >= 0`.
    fn arcsinh(&self, loss: f64) -> f64 {
        let shift = self.half - self.log_odds;
        if shift + 0.5 * loss > 300.0 {
            if loss == 0.0 {
                return 0.0;
            }
            // ln(2 sinh(loss / 2))
            let log = 0.5 * loss + libm::log(-libm::expm1(-loss));
            if shift + log > LARGE {
                return shift + log;
            }
            return libm::asinh(0.5 * libm::exp(shift + log));
        }
        libm::asinh(libm::exp(shift) * libm::sinh(0.5 * loss))
    }

    /// Bound on the distance of the loss at `position(loss)`, which is `u`, from `loss`.
    pub(super) fn drift(&self, loss: f64, u: f64) -> f64 {
        if u == f64::NEG_INFINITY {
            return 8.0 * ULP * (loss.abs() + 2.0);
        }
        let a = u * self.inverse;
        let size = a.abs() + 2.0 * self.half + 8.0 + self.finite_odds();
        if self.replace {
            return 8.0 * ULP * (self.weight(a) + self.weight(-a)) * size;
        }
        // The slope of the loss times the error of the position's logarithm; that of the distance to
        // the infimum is one of the loss itself, in units of the loss.
        8.0 * ULP * (loss.abs() + 2.0 + self.weight(a) * size)
    }

    /// The most that `N(0, z^2)` loses to the mixture with it: `-ln(1 - q)`, for `add_remove`.
    pub(super) fn most_without(&self) -> f64 {
        -libm::log1p(-self.rate)
    }

    /// Share of `N(1, z^2)` in the mixture at `a`.
    fn weight(&self, a: f64) -> f64 {
        logistic(a - self.half + self.log_odds)
    }

    /// Precomputed numbers of `u` for [`Place::rise`].
    pub(super) fn place(&self, u: f64) -> Place {
        let share = |u: f64| Share::new(u * self.inverse - self.half + self.log_odds);
        Place {
            from: share(u),
            to: self.replace.then(|| share(-u)),
        }
    }

    /// Bound on the terms that a position is the sum of, next to itself.
    pub(super) fn shift(&self) -> f64 {
        self.inverse + self.noise * (1.0 + self.finite_odds())
    }

    /// `(to - from) / z` for the distance of two positions.
    pub(super) fn scaled(&self, distance: f64) -> f64 {
        distance * self.inverse
    }

    /// Density of the first law of the pair by `u`.
    pub(super) fn first_density(&self, u: f64) -> f64 {
        self.rest * density(u) + self.rate * density(u - self.inverse)
    }

    /// Bound on the relative error of a mass computed next to `u`.
    pub(super) fn error(&self, u: f64) -> f64 {
        let v = u.abs() + self.inverse;
        let weights = self.exponents(u);
        ULP * (262_144.0 + 4.0 * weights + u * u + 2.0 * (u - self.inverse).abs() * v)
    }

    /// The same between `start` and `end`, for a share of a cell that ends at `u`, far away.
    pub(super) fn error_of_cut(&self, start: f64, end: f64, u: f64) -> f64 {
        self.error(start).max(self.error(end)) + 4.0 * ULP * self.exponents(u)
    }

    /// Bound on the exponents of which the ratio of both laws is computed at `u`.
    fn exponents(&self, u: f64) -> f64 {
        u.abs() * self.inverse + self.half + self.finite_odds()
    }

    /// Size of the logarithm of the odds, 0 where every record joins.
    fn finite_odds(&self) -> f64 {
        let size = self.log_odds.abs();
        if size.is_finite() { size } else { 0.0 }
    }

    /// Upper bounds on the masses above `u` under both laws.
    pub(super) fn above(&self, u: f64) -> (f64, f64) {
        self.outside(u, 1.0)
    }

    /// Upper bounds on the masses below `u` under both laws.
    pub(super) fn below(&self, u: f64) -> (f64, f64) {
        self.outside(u, -1.0)
    }

    /// The masses above `u` for a `sign` of 1, below it for -1.
    fn outside(&self, u: f64, sign: f64) -> (f64, f64) {
        let middle = normal_tail(sign * u);
        let mixed = |z: f64| self.rest * middle + self.rate * normal_tail(sign * z);
        let second = if self.replace {
            mixed(u + self.inverse)
        } else {
            middle
        };
        (mixed(u - self.inverse), second)
    }

    /// Ends of the positions outside of which about `mass` of both laws lies.
    pub(super) fn ends(&self, mass: f64) -> (f64, f64) {
        let middle = tail_quantile(0.5 * mass);
        let side = self.inverse + tail_quantile((0.5 * mass / self.rate).min(0.25));
        let top = if self.rest > 0.0 {
            side.max(middle)
        } else {
            side
        };
        (if self.replace { -top } else { -middle }, top)
    }

    /// Largest width of a piece over which twelve (`fine`) or six orders of the quadrature's
    /// error are below a roundoff.
    pub(super) fn piece(&self, u: f64) -> f64 {
        0.5 / (2.0 + u.abs() + 2.0 * self.inverse)
    }

    /// `q`, `1 - q` and the logarithm of `X`'s varying part at `u`, for the open lowest cell.
    pub(super) fn mixture(&self, u: f64) -> (f64, f64, f64) {
        (self.rate, self.rest, u * self.inverse - self.half)
    }
}
