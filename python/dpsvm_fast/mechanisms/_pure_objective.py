r"""Pure objective perturbation: the price of a curvature, the noise rate, the best regularisation.

The minimiser W of :math:`\sum_i \phi_{y_i}(W \tilde x_i) + \tfrac{\lambda}{2} \|W\|_F^2 +
\langle B, W \rangle` with B of density proportional to :math:`\exp(-\beta \|B\|)`. As proved in
docs/proofs/objective_perturbation.md, section "Pure epsilon", one record whose loss has gradient a
and Hessian H in the scores moves the log-density of W by at most

.. math:: \beta \kappa_t \|a\| + \log \det(1 + \rho H), \qquad \rho = \kappa_t^2 / \lambda,

a replaced record by :math:`\beta \kappa_t L` more. Where curvature is large only when the gradient
is small, the largest sum is less than the sum of the largest terms, and often no more than its
first term. In the unit :math:`\kappa_t = 1` (b = beta kappa_t, f = 1 or 2 records, kappa the
curvature ratio, n scores):

- ``logistic`` law: :math:`\max_{0 \le u \le 1} b \sqrt n (f-1+u) + n \log(1 + \kappa u (1-u))`.
  With the gradients :math:`u_k`, the sum over scores of :math:`\log(1 + \kappa (u_k - u_k^2))` is
  concave in the squares of :math:`u_k`, so equal ones are the worst of a given norm.
- ``softmax`` law: :math:`\max_{0 \le S \le 1 - 1/K} b ((f-1) \sqrt 2 + \sqrt{2 - S}) +
  (K - 1) \log(1 + \kappa S / (K-1))`, S = 1 - ||p||^2.
- other laws: :math:`f b L + c_0(\kappa)`.

Both maxima are of concave functions: a tangent bounds them from above.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from dpsvm_fast._rounding import add_down, div_down, mul_up
from dpsvm_fast.losses import Loss
from dpsvm_fast.mechanisms._settings import LARGEST, SMALLEST

__all__ = [
    "best_regularization",
    "largest_rate",
    "pure_epsilon",
    "smallest_regularization",
]

# More than the relative error of a dozen floating-point operations on positive numbers.
ROUNDING = 1e-14
BISECTIONS = 64
# The regularisation is searched for on this many points a decade, then between two of them.
POINTS_PER_DECADE = 8
# A loss without a margin distinguishes scores of this many temperatures.
SIZE_IN_TEMPERATURES = 2.5


def pure_epsilon(loss: Loss, rate: float, kappa: float, factor: int) -> float:
    """Epsilon of noise of the given rate, rounded up.

    Parameters
    ----------
    loss : Loss
    rate : float >= 0
        beta times the bound of the rows' norm.
    kappa : float > 0
        Curvature ratio.
    factor : {1, 2}
        Records that change: 1 for add_remove, 2 for replace_one.
    """
    if loss.law == "logistic":
        bound = _logistic_epsilon(loss.n_scores, rate, kappa, factor)
    elif loss.law == "softmax":
        bound = _softmax_epsilon(loss.n_classes, rate, kappa, factor)
    else:
        bound = factor * rate * loss.lipschitz + loss.jacobian(kappa)
    return mul_up(bound, 1.0 + ROUNDING)


def _logistic_epsilon(n_scores: int, rate: float, kappa: float, factor: int) -> float:
    """Maximum over the size u of one score's gradient."""
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
    """Maximum over S, one minus the squared norm of the probabilities."""
    n, top = n_classes - 1, 1.0 - 1.0 / n_classes
    # In q = sqrt(2 - S) the slope vanishes where (rate / n) q^2 + 2 q = rate (1/kappa + 2/n).
    right = rate * (1.0 / kappa + 2.0 / n)
    q = right / (1.0 + math.sqrt(1.0 + rate * right / n))
    S = min(max(2.0 - q * q, 0.0), top)
    length = math.sqrt(2.0 - S)
    value = rate * ((factor - 1.0) * math.sqrt(2.0) + length) + n * math.log1p(kappa * S / n)
    slope = kappa / (1.0 + kappa * S / n) - 0.5 * rate / length
    return value + max(slope * (top - S), -slope * S)


def largest_rate(loss: Loss, epsilon: float, kappa: float, factor: int) -> float:
    """Largest beta times row norm with which the release is epsilon-private; 0 if none is.

    Rounded down: :func:`pure_epsilon` at the result is at most ``epsilon``.
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
        if pure_epsilon(loss, middle, kappa, factor) <= epsilon:
            low = middle
        else:
            high = middle
    return low


def smallest_regularization(loss: Loss, epsilon: float, row_norm: float) -> float:
    """Least lambda, a little rounded up, whose Jacobian alone does not cost all of ``epsilon``."""
    return row_norm * _least_regularization(loss, epsilon) * row_norm


def best_regularization(
    loss: Loss, epsilon: float, factor: int, row_norm: float, n_weights: int, least: float
) -> float:
    r"""Lambda that minimises an error proxy; the noise rate follows from it.

    The noise moves the minimum by about :math:`E\|B\|^2 / (2 \lambda)` in the objective, with
    :math:`E\|B\|^2 = p (p+1) / \beta(\lambda)^2` for p weights, and regularisation beyond ``least``
    costs :math:`\tfrac{\lambda - \lambda_0}{2} \|W\|^2`. With :math:`\|W\|^2 \approx
    p (s / \kappa_t)^2`, s the size of the scores that the loss asks for (its margin, or 2.5
    temperatures if that is more), the sum is least where

    .. math:: \frac{(p + 1) \kappa_t^2}{\beta(\lambda)^2 \lambda} + s^2 \lambda

    is. For constant beta that is :math:`\lambda = \kappa_t \sqrt{p+1} / (s \beta)`, the
    standard deviation of one component of B in the objective's own units. Unlike the rule of
    Chaudhuri, Monteleoni and Sarwate (2011), which enlarges lambda only where the Jacobian would
    take all of epsilon, it has no threshold above which the noise explodes. Every lambda is as
    private as any other; this one is a function of public numbers only.

    Parameters
    ----------
    loss : Loss
    epsilon : float > 0
    factor : {1, 2}
        Records that change.
    row_norm : float > 0
    n_weights : int
    least : float >= 0
        Regularisation that is there already.
    """
    size = max(loss.margin, SIZE_IN_TEMPERATURES * loss.temperature)

    def proxy(log_lambda: float) -> float:
        lam = math.exp(log_lambda)
        rate = largest_rate(loss, epsilon, loss.curvature_ratio(1.0, lam), factor)
        if not rate > 0.0:
            return math.inf
        return (n_weights + 1.0) / (rate * rate * lam) + size * size * lam

    # Everything in the unit row_norm = 1.
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
    """As :func:`smallest_regularization`, for rows of norm 1."""
    low, high = math.log(SMALLEST), math.log(LARGEST)
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if loss.jacobian(math.exp(middle)) < epsilon else (low, middle)
    return 1.000001 / math.exp(low) / loss.temperature


def _golden_section(f: Callable[[float], float], low: float, high: float) -> float:
    """Where a function with one minimum in the bracket is least, to a millionth of its width."""
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
