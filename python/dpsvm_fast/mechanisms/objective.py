r"""Objective perturbation: release the minimiser of an objective with a random linear term.

Proved in docs/proofs/objective_perturbation.md. With rows of norm at most :math:`\kappa_t`,

.. math:: J(W) = \sum_i \phi_{y_i}(W \tilde x_i) + \tfrac{\lambda}{2} \|W\|_F^2
          + \langle B, W \rangle

has one minimiser :math:`W^*` for each B and one B for each :math:`W^*`, so the density of
:math:`W^*` is that of B times the determinant of the Hessian: gradient noise and curvature are
accounted for jointly, over all classes.

The solver returns W with :math:`\|\nabla J(W)\| \le g`, hence within g / lambda of :math:`W^*`. A
small part of the budget is for noise on W that hides the solver's error.

Every number is rounded towards more noise. All numbers are public: the plans read no data.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from dpsvm_fast import _core
from dpsvm_fast.certificates import ObjectiveNoise, PrivacyEvent, PrivacyStatement
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.losses import Loss
from dpsvm_fast.mechanisms.noise import (
    LARGEST,
    RELATION_FACTOR,
    SMALLEST,
    CalibratedNoise,
    WeightNoise,
    check_delta_of_gaussian,
    check_range,
    check_row_norm,
    check_solvable,
    grid_below,
    law_of,
    rounding_distance,
)
from dpsvm_fast.mechanisms.output import WeightsPlan
from dpsvm_fast.mechanisms.plan import Rows, certified, filled
from dpsvm_fast.rounding import add_down, add_up, div_down, div_up, mul_down, mul_up, round_up

# The random linear term of an objective: lambda, the law of B, and how near the minimum counts.
#
# The privacy of the minimiser of :math:`\sum_i \phi_{y_i}(W \tilde x_i) + \tfrac{\lambda}{2}
# \|W\|_F^2 + \langle B, W \rangle` rests on B and on lambda, which bounds the share of one record
# in the curvature. Proved in docs/proofs/objective_perturbation.md.


# The numbers in B are rounded by at most this share of the gradient's tolerance.
GRID_SHARE = 1e-3
# The gradient's tolerance is at least this share of tol times the noise in one component of B:
# double precision could not certify much less when epsilon is tiny.
NOISE_SHARE = 1e-5
# A smaller share of epsilon for the change of variables is rounding error: it costs nothing.
FREE = 1e-12


@dataclass(frozen=True, kw_only=True)
class LinearNoise(CalibratedNoise):
    """Noise inside an objective: a random linear term B.

    Parameters
    ----------
    delta : float in [0, 1)
        Delta of the noise; 0 with Gamma noise.
    noise : {"gaussian", "gamma"}
    loss : Loss
    row_norm : float > 0
        Bound on the norm of a row with its constant feature.
    C : float > 0 or None
        ``lambda = 1 / C + extra``; None for the public rule.
    extra : float >= 0 or None
        Regularisation added to lambda for privacy; None for the public rule.
    tol : float in (0, 1]
        Tolerance of the gradient norm, relative to the largest gradient norm of one record.

    Raises
    ------
    InvalidParameterError
        Settings for which no positive finite noise scale exists.
    """

    noise: str
    loss: Loss
    row_norm: float
    C: float | None
    extra: float | None
    tol: float

    def __post_init__(self) -> None:
        """Refuse settings whose noise scale would not be positive and finite."""
        if self.C is not None:
            check_range("C", self.C, "C")
            # Before the calibrations, which need ordinary numbers.
            ratio = self.loss.curvature_ratio(self.row_norm, 1.0 / self.C)
            check_range("C", ratio, "C (data_norm^2 + intercept_scaling^2) / temperature")
        if self.extra:
            check_range("extra_regularization", self.extra, "the value given")
        check_range("C", self.regularization, "the total regularisation")
        check_range("C", self.curvature_ratio, "the ratio of curvature to regularisation")
        if not 0.0 < self.scale < math.inf:
            raise InvalidParameterError(self._refusal())
        check_range("C", self.deviation, "the noise in one component of the objective")
        check_range("C", self.radius, "the distance to the minimiser")

    def _refusal(self) -> str:
        """Return the error that names the largest valid C."""
        extra = self.extra or 0.0
        needed = smallest_regularization(self.loss, self.epsilon, self.row_norm) - extra
        if not needed > 0.0:
            return f"epsilon: got {self.epsilon!r}, for which no noise scale was found"
        # Six digits, and never above the exact value.
        largest = float(f"{0.999999 / needed:.6g}")
        return (
            f"C: got {self.C!r} with extra_regularization {self.extra!r}, expected at most "
            f"{largest!r}: a larger C may spend all of epsilon = {self.epsilon!r} on the change of "
            "variables; extra_regularization='auto' avoids it"
        )

    @property
    def _target(self) -> tuple[Loss, float, float, str]:
        """Target of the calibration of Gaussian noise."""
        return (self.loss, self.epsilon, self.delta, self.adjacency)

    @cached_property
    def own_regularization(self) -> float:
        """Regularisation 1 / C, or lambda by the public rule."""
        return self._public_regularization(0.0) if self.C is None else 1.0 / self.C

    def _public_regularization(self, least: float) -> float:
        """Return lambda by the public rule, and at least the given one."""
        if self.noise == "gaussian":
            return max(least, automatic_regularization(*self._target, self.row_norm))
        return best_regularization(
            self.loss, self.epsilon, self.factor, self.row_norm, self.n_weights, least
        )

    @cached_property
    def regularization(self) -> float:
        """Regularisation lambda of the objective, including the extra regularisation."""
        own = self.own_regularization
        if self.extra is not None:
            return own + self.extra
        if self.C is None:
            return own
        if self.noise == "gaussian":
            kappa = self.loss.curvature_ratio(self.row_norm, own)
            found = noise_multiplier(*self._target, kappa=kappa)
            free = noise_multiplier(*self._target, jacobian=0.0)
            if found is not None and free is not None and found <= LARGEST_PRICE * free:
                return own
        # If its curvature makes the noise too large, the lambda of C="auto", at which the
        # Jacobian costs a few percent. It is larger, as the cost grows with curvature.
        return self._public_regularization(own)

    @cached_property
    def curvature_ratio(self) -> float:
        """Curvature kappa of one record relative to lambda, rounded up."""
        return self.loss.curvature_ratio(self.row_norm, self.regularization)

    @cached_property
    def multiplier(self) -> float:
        """Sigma / row norm, or beta * row norm; infinity or 0 if no scale exists."""
        if self.noise == "gamma":
            return largest_rate(self.loss, self.epsilon, self.curvature_ratio, self.factor)
        found = noise_multiplier(*self._target, kappa=self.curvature_ratio)
        return math.inf if found is None else found

    @cached_property
    def scale(self) -> float:
        """Standard deviation sigma of Gaussian B, or rate beta of Gamma B."""
        if self.noise == "gamma":
            return div_down(self.multiplier, self.row_norm)
        return mul_up(self.multiplier, self.row_norm)

    @cached_property
    def deviation(self) -> float:
        """Root mean square of the noise in one component of B."""
        if self.noise == "gaussian":
            return self.scale
        return math.sqrt(self.n_weights + 1.0) / self.scale

    @cached_property
    def gradient_tol(self) -> float:
        """Gradient norm that the solver must certify."""
        return self.tol * max(self.loss.lipschitz * self.row_norm, NOISE_SHARE * self.deviation)

    @cached_property
    def grid(self) -> float | None:
        """Spacing of the entries of B, a power of two; None if they are not rounded."""
        if self.noise == "gamma" or not self.exact:
            return None
        fine = 2.0 * GRID_SHARE * self.gradient_tol / math.sqrt(self.n_weights)
        return grid_below(fine, self.scale)

    @cached_property
    def radius(self) -> float:
        """Bound on the distance of the weights to the minimiser for an unrounded B.

        Each component of the rounded B is within half a grid step of a Gaussian one, which moves
        the gradient by as much.
        """
        missed = self.gradient_tol
        if self.grid is not None:
            missed = add_up(missed, 0.5 * rounding_distance(self.grid, self.n_weights))
        return div_up(missed, self.regularization)

    @property
    def event(self) -> PrivacyEvent:
        """Event that a ledger records."""
        return self.record.event(self.adjacency)

    @property
    def jacobian(self) -> float | None:
        """Cost of the change of variables or, for persons, of the mean of rows; rounded up.

        None with Gaussian noise for single rows, whose privacy law includes it.
        """
        if self.noise == "gaussian" and self.loss.averaged:
            scale = div_down(self.scale, self.row_norm)
            return person_price(self.loss, self.curvature_ratio, scale, self.adjacency)
        if self.noise == "gaussian":
            return None
        whole = pure_epsilon(self.loss, self.multiplier, self.curvature_ratio, self.factor)
        noise = mul_down(mul_down(self.factor * self.loss.lipschitz, self.scale), self.row_norm)
        price = add_up(whole, -noise)
        return price if price > FREE * self.epsilon else 0.0

    @property
    def record(self) -> ObjectiveNoise:
        """The noise as it is drawn, for the statement."""
        extra = self.regularization - self.own_regularization
        law = law_of(self.noise, self.scale, self.grid)
        return filled(ObjectiveNoise, self, self.loss, extra_regularization=extra, **law)

    def draw(self, source: _core.NoiseSource, n_threads: int, n: int = 1) -> NDArray[np.float64]:
        """Return ``n`` draws of B, shape (n, n_scores, n_columns); more than one for audits.

        Private: anyone who knows B can remove the noise.
        """
        size = n * self.n_weights
        if self.noise == "gamma":
            # One draw of Gamma noise belongs to all components of one B together.
            draws = [source.gamma_ball(self.n_weights, self.scale, n_threads) for _ in range(n)]
            flat = np.array(draws)
        elif self.grid is None:
            flat = source.gaussian(size, self.scale, n_threads)
        else:
            # Below 2**53 steps, times a power of two: no rounding.
            steps = source.gaussian_on_grid(size, self.scale, self.grid, n_threads)
            flat = steps.astype(np.float64) * self.grid
        return np.asarray(flat.reshape(n, *self.shape))


# Gaussian objective perturbation: noise scales in the unit "bound of the rows' norm", and lambda.
#
# The laws are those of :func:`dpsvm_fast.accounting.objective_sigma`, on the proof pages
# docs/proofs/objective_perturbation.md and docs/proofs/joint_bound.md. Calibrations are remembered:
# each depends on public settings only, and those of many classes take a good part of a second.


# extra_regularization="auto" adds nothing while the Jacobian makes the noise at most this much
# larger than it would be without one.
LARGEST_PRICE = 2.0


def automatic_regularization(
    loss: Loss, epsilon: float, delta: float, adjacency: str, row_norm: float
) -> float:
    r"""Return lambda for C="auto": :math:`\lambda \tau = \sigma \kappa_t`, temperature tau.

    Between 0.7 and 1.4 of it the accuracy on six data sets (epsilon 1 to 8) is almost the same.

    The curvature ratio is then :math:`\kappa_t / \sigma`, and sigma is calibrated along that curve.
    A solution always exists, because less curvature and more noise go together. The result is
    infinite if it overflows.
    """
    multiplier = noise_multiplier(loss, epsilon, delta, adjacency, kappa_per_t=1.0)
    if multiplier is None:
        return math.inf
    # In the unit row_norm = 1; upwards, so that the curvature ratio stays at or below the curve.
    lam = multiplier / loss.temperature
    while loss.curvature_ratio(1.0, lam) > div_down(1.0, multiplier):
        lam = round_up(lam)
    scaled = row_norm * lam * row_norm
    while loss.curvature_ratio(row_norm, scaled) > loss.curvature_ratio(1.0, lam):
        scaled = round_up(scaled)
    return scaled


def of_unit(loss: Loss, unit: str) -> Loss:
    """Return the loss of the unit by which neighbouring data sets differ."""
    return replace(loss, averaged=unit == "person")


# Noise for persons is at least this share of the largest change of the gradient.
MIN_NOISE = 0.5


def person_price(loss: Loss, kappa: float, multiplier: float, adjacency: str) -> float:
    r"""Return the extra constant in the privacy law of a person, rounded up.

    It is the largest trace of the Hessian over lambda, plus the squared ratio of the largest
    gradient change to the noise (docs/proofs/persons.md, "Objective perturbation").

    Parameters
    ----------
    loss : Loss
    kappa : float > 0
        Curvature ratio.
    multiplier : float > 0
        Sigma over row norm.
    adjacency : {"add_remove", "replace_one"}
    """
    reach = div_up(RELATION_FACTOR[adjacency] * loss.lipschitz, multiplier)
    return add_up(loss.jacobian(kappa), mul_up(reach, reach))


def _for_persons(
    loss: Loss, epsilon: float, delta: float, adjacency: str, kappa: Callable[[float], float]
) -> float | None:
    """Return sigma / row norm for persons; ``kappa`` is the curvature ratio at a sigma."""
    law, replace_one = (loss.law, loss.n_scores), adjacency == "replace_one"

    def excess(log_sigma: float) -> float:
        sigma = math.exp(log_sigma)
        price = person_price(loss, kappa(sigma), sigma, adjacency)
        found = _core.objective_delta(*law, epsilon, sigma, None, price, replace_one)
        return math.log(found / delta)

    # Cost of the curvature alone, with any noise.
    if -math.expm1(min(epsilon - loss.jacobian(kappa(LARGEST)), 0.0)) >= delta:
        return None
    low = math.log(MIN_NOISE * RELATION_FACTOR[adjacency] * loss.lipschitz * (1.0 + ROUNDING))
    high = low
    while excess(high) > 0.0:
        low, high = high, high + 1.0
        if high > math.log(LARGEST):
            return None
    if high > low:
        high = brentq(excess, low, high, xtol=1e-10) + 1e-10
    while excess(high) > -1e-9:
        high += 1e-9
    return math.exp(high)


@lru_cache(maxsize=1024)
def noise_multiplier(
    loss: Loss,
    epsilon: float,
    delta: float,
    adjacency: str,
    *,
    kappa: float | None = None,
    kappa_per_t: float | None = None,
    jacobian: float | None = None,
) -> float | None:
    """Return sigma / row norm for single rows or persons; None if no noise suffices."""
    if loss.averaged and jacobian is None:
        if kappa is not None:
            return _for_persons(loss, epsilon, delta, adjacency, lambda _: kappa)
        assert kappa_per_t is not None
        return _for_persons(loss, epsilon, delta, adjacency, lambda s: kappa_per_t / s)
    law, replace_one = (loss.law, loss.n_scores), adjacency == "replace_one"
    try:
        return _core.objective_sigma(
            *law, epsilon, delta, kappa, kappa_per_t, jacobian, replace_one
        )
    except ValueError:
        return None


# Pure objective perturbation: the price of a curvature, the noise rate, the best regularisation.
#
# The minimiser W of :math:`\sum_i \phi_{y_i}(W \tilde x_i) + \tfrac{\lambda}{2} \|W\|_F^2 + \langle
# B, W \rangle` with B of density proportional to :math:`\exp(-\beta \|B\|)`. As proved in
# docs/proofs/objective_perturbation.md, section "Pure epsilon", one record whose loss has gradient
# a and Hessian H in the scores moves the log-density of W by at most
#
# .. math:: \beta \kappa_t \|a\| + \log \det(1 + \rho H), \qquad \rho = \kappa_t^2 / \lambda,
#
# a replaced record by :math:`\beta \kappa_t L` more. Where curvature is large only when the
# gradient is small, the largest sum is less than the sum of the largest terms, and often no more
# than its first term. In the unit :math:`\kappa_t = 1` (b = beta kappa_t, f = 1 or 2 records, kappa
# the curvature ratio, n scores):
#
# - ``logistic`` law: :math:`\max_{0 \le u \le 1} b \sqrt n (f-1+u) + n \log(1 + \kappa u (1-u))`.
#   With the gradients :math:`u_k`, the sum over scores of :math:`\log(1 + \kappa (u_k - u_k^2))` is
#   concave in the squares of :math:`u_k`, so equal ones are the worst of a given norm.
# - ``softmax`` law: :math:`\max_{0 \le S \le 1 - 1/K} b ((f-1) \sqrt 2 + \sqrt{2 - S}) +
#   (K - 1) \log(1 + \kappa S / (K-1))`, S = 1 - ||p||^2.
# - other laws: :math:`f b L + c_0(\kappa)`.
#
# For a mean of records, a person, :math:`\log(1 + x)` becomes x everywhere.
#
# Both maxima are of concave functions: a tangent bounds them from above.


# More than the relative error of a dozen floating-point operations on positive numbers.
ROUNDING = 1e-14

BISECTIONS = 64
# The regularisation is searched for on this many points a decade, then between two of them.
POINTS_PER_DECADE = 8
# A loss without a margin distinguishes scores of this many temperatures.
SIZE_IN_TEMPERATURES = 2.5


def pure_epsilon(loss: Loss, rate: float, kappa: float, factor: int) -> float:
    """Return epsilon for Gamma noise of the given rate, rounded up.

    Parameters
    ----------
    loss : Loss
    rate : float >= 0
        Beta times the norm bound of the rows.
    kappa : float > 0
        Curvature ratio.
    factor : {1, 2}
        Number of changed records: 1 for add_remove, 2 for replace_one.
    """
    if loss.law == "logistic":
        of_scores = _mean_logistic_epsilon if loss.averaged else _logistic_epsilon
        bound = of_scores(loss.n_scores, rate, kappa, factor)
    elif loss.law == "softmax":
        of_classes = _mean_softmax_epsilon if loss.averaged else _softmax_epsilon
        bound = of_classes(loss.n_classes, rate, kappa, factor)
    else:
        bound = factor * rate * loss.lipschitz + loss.jacobian(kappa)
    return mul_up(bound, 1.0 + ROUNDING)


def _logistic_epsilon(n_scores: int, rate: float, kappa: float, factor: int) -> float:
    """Return the maximum over the size u of one score's gradient."""
    n, b = n_scores, rate * math.sqrt(n_scores)
    # Root of b (1 + kappa u (1 - u)) + n kappa (1 - 2 u), in whichever form does not cancel.
    root = math.sqrt(b * b + 4.0 * n * n + 4.0 * b * b / kappa)
    if b > 2.0 * n:
        u = 0.5 * (b - 2.0 * n + root) / b
    else:
        u = 2.0 * (b / kappa + n) / (root + 2.0 * n - b)
    u = min(u, 1.0)
    value = b * (factor - 1.0 + u) + n * math.log1p(kappa * u * (1.0 - u))
    slope = b + n * kappa * (1.0 - 2.0 * u) / (1.0 + kappa * u * (1.0 - u))
    return value + max(slope * (1.0 - u), -slope * u)


def _softmax_epsilon(n_classes: int, rate: float, kappa: float, factor: int) -> float:
    """Return the maximum over S, one minus the squared norm of the probabilities."""
    n, top = n_classes - 1, 1.0 - 1.0 / n_classes
    # In q = sqrt(2 - S) the slope vanishes where (rate / n) q^2 + 2 q = rate (1/kappa + 2/n).
    right = rate * (1.0 / kappa + 2.0 / n)
    q = right / (1.0 + math.sqrt(1.0 + rate * right / n))
    S = min(max(2.0 - q * q, 0.0), top)
    length = math.sqrt(2.0 - S)
    value = rate * ((factor - 1.0) * math.sqrt(2.0) + length) + n * math.log1p(kappa * S / n)
    slope = kappa / (1.0 + kappa * S / n) - 0.5 * rate / length
    return value + max(slope * (top - S), -slope * S)


def _mean_logistic_epsilon(n_scores: int, rate: float, kappa: float, factor: int) -> float:
    """Compute ``_logistic_epsilon`` for a mean of records: the maximum of a quadratic function."""
    n, b = n_scores, rate * math.sqrt(n_scores)
    u = min(0.5 + 0.5 * b / (n * kappa), 1.0)
    return b * (factor - 1.0 + u) + n * kappa * u * (1.0 - u)


def _mean_softmax_epsilon(n_classes: int, rate: float, kappa: float, factor: int) -> float:
    """Compute ``_softmax_epsilon`` for a mean of records, bounded by a tangent."""
    top, half = 1.0 - 1.0 / n_classes, 0.5 * rate / kappa
    S = min(max(2.0 - half * half, 0.0), top)
    length = math.sqrt(2.0 - S)
    slope = kappa - 0.5 * rate / length
    value = rate * ((factor - 1.0) * math.sqrt(2.0) + length) + kappa * S
    return value + max(slope * (top - S), -slope * S)


def largest_rate(loss: Loss, epsilon: float, kappa: float, factor: int) -> float:
    """Return the largest rate * row norm that gives epsilon-privacy; 0 if none does.

    The result is rounded down: :func:`pure_epsilon` of it is at most ``epsilon``.
    """
    if loss.law not in ("logistic", "softmax"):
        left = add_down(epsilon, -mul_up(loss.jacobian(kappa), 1.0 + ROUNDING))
        return max(0.0, div_down(left, mul_up(factor * loss.lipschitz, 1.0 + 2.0 * ROUNDING)))
    if pure_epsilon(loss, 0.0, kappa, factor) >= epsilon:
        return 0.0
    low, high = 0.0, epsilon / (factor * loss.lipschitz) * (1.0 - 4.0 * ROUNDING)
    if pure_epsilon(loss, high, kappa, factor) <= epsilon:
        return high
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        enough = pure_epsilon(loss, middle, kappa, factor) <= epsilon
        low, high = (middle, high) if enough else (low, middle)
    return low


def smallest_regularization(loss: Loss, epsilon: float, row_norm: float) -> float:
    """Return the smallest lambda, rounded up, whose Jacobian costs less than ``epsilon``."""
    return row_norm * _least_regularization(loss, epsilon) * row_norm


def best_regularization(
    loss: Loss, epsilon: float, factor: int, row_norm: float, n_weights: int, least: float
) -> float:
    r"""Return the lambda that minimises an error proxy; the noise rate follows from it.

    The noise moves the minimum by about :math:`E\|B\|^2 / (2 \lambda)` in the objective, with
    :math:`E\|B\|^2 = p (p+1) / \beta(\lambda)^2` for p weights, and regularisation beyond ``least``
    costs :math:`\tfrac{\lambda - \lambda_0}{2} \|W\|^2`. With :math:`\|W\|^2 \approx
    p (s / \kappa_t)^2`, s the size of the scores that the loss asks for (its margin, or 2.5
    temperatures if that is more), the sum is least where

    .. math:: \frac{(p + 1) \kappa_t^2}{\beta(\lambda)^2 \lambda} + s^2 \lambda

    is. For constant beta that is :math:`\lambda = \kappa_t \sqrt{p+1} / (s \beta)`, the standard
    deviation of one component of B in the objective's own units. Unlike the rule of Chaudhuri,
    Monteleoni and Sarwate (2011), which enlarges lambda only where the Jacobian would take all of
    epsilon, it has no threshold above which the noise explodes. Every lambda gives the same
    privacy; this one depends on public numbers only.

    Parameters
    ----------
    loss : Loss
    epsilon : float > 0
    factor : {1, 2}
        Number of changed records.
    row_norm : float > 0
    n_weights : int
    least : float >= 0
        Smallest regularisation, already present.
    """
    size = max(loss.margin, SIZE_IN_TEMPERATURES * loss.temperature)

    def proxy(log_lambda: float) -> float:
        lam = math.exp(log_lambda)
        rate = largest_rate(loss, epsilon, loss.curvature_ratio(1.0, lam), factor)
        if not rate > 0.0:
            return math.inf
        return (n_weights + 1.0) / (rate * rate * lam) + size * size * lam

    # Everything in units of row_norm = 1.
    floor = least / row_norm / row_norm
    start = max(floor, _least_regularization(loss, epsilon))
    at_full_rate = math.sqrt(n_weights + 1.0) * factor * loss.lipschitz / (epsilon * size)
    # Beyond this both terms grow: the rate is within a factor of two of its largest value.
    end = 4.0 * max(start, at_full_rate, _least_regularization(loss, 0.5 * epsilon))
    # No rate is above epsilon / (f L), so below this the first term alone exceeds proxy(end).
    least_noise = at_full_rate * size * at_full_rate * size
    start = max(start, min(least_noise / proxy(math.log(end)), end))
    low, high = math.log(start), math.log(end)
    count = 2 + int(POINTS_PER_DECADE * (high - low) / math.log(10.0))
    points = [low + (high - low) * i / count for i in range(count + 1)]
    best = min(range(count + 1), key=lambda i: proxy(points[i]))
    found = _golden_section(proxy, points[max(best - 1, 0)], points[min(best + 1, count)])
    if floor == start and proxy(low) <= proxy(found):
        return least
    return max(least, row_norm * math.exp(found) * row_norm)


def _least_regularization(loss: Loss, epsilon: float) -> float:
    """Return :func:`smallest_regularization` for rows of norm 1."""
    low, high = math.log(SMALLEST), math.log(LARGEST)
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if loss.jacobian(math.exp(middle)) < epsilon else (low, middle)
    return 1.000001 / math.exp(low) / loss.temperature


def _golden_section(f: Callable[[float], float], low: float, high: float) -> float:
    """Return the minimum of a unimodal function, to a millionth of the bracket."""
    ratio = 0.5 * (math.sqrt(5.0) - 1.0)
    left, right = high - ratio * (high - low), low + ratio * (high - low)
    at_left, at_right = f(left), f(right)
    for _ in range(29):
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - ratio * (high - low)
            at_left = f(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + ratio * (high - low)
            at_right = f(right)
    return 0.5 * (low + high)


# Share of epsilon and of delta that pays for the approximate minimum.
OUTPUT_SHARE = 0.01
# The constant feature, over the bound of the rows' norm. What did best on the data sets on which
# the rules for C were chosen: more noise in all weights asks for a smaller one.
INTERCEPT = {"gaussian": 0.1, "gamma": 0.2}


@dataclass(frozen=True, kw_only=True)
class ObjectivePerturbation(WeightsPlan):
    r"""Plan of one release of weights, complete before any data are read.

    ``noise`` is the distribution of B, the loss is smooth, and ``lambda = 1 / C + extra``. The
    solver certifies a gradient norm of ``tol`` times the largest gradient norm of one record (or,
    if larger, 1e-5 tol times the noise in one component of B).

    Parameters
    ----------
    extra_regularization : float >= 0 or None
        Regularisation added to lambda for privacy; None for the public rule.
    unit : {"row", "person"}, default="row"
        What neighbouring data sets differ by.

    Raises
    ------
    InvalidParameterError
        Settings for which no positive finite noise scale exists: for example a C so large that the
        change of variables costs more than epsilon with any noise.

    Notes
    -----
    Guarantees: ``release`` is (epsilon, delta)-differentially private for weights that minimise the
    objective with ``draw_linear`` to within ``gradient_tol``. With
    ``noise="gaussian", noise_grid="exact"`` this holds for the program in floating-point
    arithmetic, otherwise only in real arithmetic. Released weights are multiples of a public power
    of two.

    References
    ----------
    Chaudhuri, Monteleoni, Sarwate, JMLR 12 (2011), Algorithm 2; Kifer, Smith, Thakurta, COLT 2012;
    Iyengar et al., S&P 2019 (approximate minimum); Redberg, Koskela, Wang, NeurIPS 2023 (privacy
    loss of one score); Karney, ACM TOMS 42 (2016) (exact sampling).
    """

    extra_regularization: float | None
    unit: str = "row"

    def __post_init__(self) -> None:
        """Refuse settings whose noise scale would not be positive and finite."""
        if self.noise == "gaussian":
            check_delta_of_gaussian(self.delta)
        check_range("epsilon", self._outside[0], "one hundredth of epsilon")
        check_row_norm(self.data_norm, self.intercept_scaling, self.row_norm)
        # Building the parts refuses invalid settings. Gamma noise is never rounded before.
        check_solvable(self.regularization, self.row_norm)
        self.check_noise()

    @property
    def _outside(self) -> tuple[float, float]:
        """Epsilon and delta that cover the approximate minimum."""
        return OUTPUT_SHARE * self.epsilon, OUTPUT_SHARE * self._delta

    @property
    def _delta(self) -> float:
        """Delta of the whole release."""
        return self.delta if self.noise == "gaussian" else 0.0

    @cached_property
    def inside(self) -> LinearNoise:
        """Noise in the objective, with the remaining budget, rounded down."""
        epsilon, delta = self._outside
        return filled(
            LinearNoise,
            self,
            epsilon=add_down(self.epsilon, -epsilon),
            delta=max(0.0, add_down(self._delta, -delta)),
            loss=of_unit(self.loss, self.unit),
            extra=self.extra_regularization,
        )

    @cached_property
    def output(self) -> WeightNoise:
        """Noise on the weights, which covers twice the solver's distance to the minimiser."""
        epsilon, delta = self._outside
        return filled(
            WeightNoise,
            self,
            epsilon=epsilon,
            delta=delta,
            distance=2.0 * self.inside.radius,
            grid_share=GRID_SHARE,
        )

    @property
    def regularization(self) -> float:
        """Regularisation lambda of the objective, including the extra regularisation."""
        return self.inside.regularization

    @property
    def gradient_tol(self) -> float:
        """Gradient norm of the objective that the solver must certify."""
        return self.inside.gradient_tol

    @property
    def events(self) -> tuple[PrivacyEvent, ...]:
        """Privacy events: noise in the objective and noise on the weights."""
        return (self.inside.event, self.output.event)

    @property
    def problem(self) -> dict[str, Any]:
        """Problem for the compiled solver, without rows, regularisation and linear term."""
        own = ("data_norm", "intercept_scaling", "gradient_tol", "max_iter")
        return self.loss.compiled | {name: getattr(self, name) for name in own}

    def run(self, rows: Rows, source: _core.NoiseSource) -> NDArray[np.float64]:
        """Return noisy weights for rows with labels."""
        weights, low_memory = rows.loss_weights, rows.low_memory
        return self.trained(
            rows.X, rows.codes, source, rows.n_threads, weights=weights, low_memory=low_memory
        )

    def trained(
        self,
        X: Any,
        codes: NDArray[np.int64],
        source: _core.NoiseSource,
        n_threads: int,
        *,
        weights: NDArray[np.float64] | None = None,
        low_memory: bool = False,
        regularization: float | None = None,
        shuffle_seed: int | None = None,
    ) -> NDArray[np.float64]:
        """Return weights whose gradient is within the tolerance, with noise.

        Losses are multiplied by ``weights``, which sum to at most 1 per person. More
        ``regularization`` than planned only strengthens the guarantee. The order in which the
        solver visits the rows is public.
        """
        found = certified(
            "solve_smooth",
            X,
            codes,
            weights,
            **self.problem,
            regularization=regularization or self.regularization,
            linear=self.draw_linear(source, n_threads=n_threads),
            shuffle_seed=source.public_seed() if shuffle_seed is None else shuffle_seed,
            n_threads=n_threads,
            low_memory=low_memory,
        )
        return self.release(found, source, n_threads=n_threads)

    def summary(self) -> str:
        """Return a one-line summary of public facts."""
        kind = "sigma" if self.noise == "gaussian" else "beta"
        return (
            f"{self.n_weights} weights, lambda = {self.regularization:.4g}, {self.noise} noise "
            f"with {kind} = {self.inside.scale:.4g} in the objective and "
            f"{self.output.scale:.4g} on the weights"
        )

    def statement(self, released: Any = None, **occasion: Any) -> PrivacyStatement:
        """Return the statement of one release, with every number to recompute it.

        ``occasion`` holds the statement's fields about the fit, such as ``library_version``.
        """
        # The exact minimisers coincide.
        numbers = (1.0 / self.regularization, 0.0, self.inside.radius)
        return self.stated(
            *numbers,
            mechanism="objective_perturbation",
            objective=self.inside.record,
            **occasion,
        )

    def draw_linear(self, source: _core.NoiseSource, *, n_threads: int) -> NDArray[np.float64]:
        """Draw B, of shape (n_scores, n_features [+ 1]). Private: it can remove the noise.

        Parameters
        ----------
        source : NoiseSource
        n_threads : int
            Does not change the result.
        """
        return np.asarray(self.inside.draw(source, n_threads)[0])
