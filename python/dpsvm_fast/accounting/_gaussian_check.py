r"""Delta of Gaussian noise from SciPy's tail functions, for verification.

.. math:: \delta = \varphi(x) \, [m(-x) - m(y)], \quad x = \tfrac{\mu}{2} - \tfrac{\epsilon}{\mu},
    \quad y = \tfrac{\mu}{2} + \tfrac{\epsilon}{\mu},

with :math:`m(t) = (1 - \Phi(t)) / \varphi(t)` the Mills ratio, because
:math:`e^\epsilon \varphi(y) = \varphi(x)`. Shares no numerical code with the calibration.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import erfcx, log_ndtr, ndtr

__all__ = [
    "gaussian_delta",
    "gaussian_epsilon",
    "normal_density",
    "normal_excess",
    "two_sided_delta",
    "two_sided_deltas",
]

# What SciPy's functions may err by, relatively.
ROUNDING = 2e-15
# Gauss-Legendre on [-1, 1]: the slope is smooth and the interval at most 1 long.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Delta of the Gaussian mechanism; see the formula at the head of this file."""
    if math.isnan(mu):
        return 1.0
    if mu <= 0.0:
        return 0.0
    x, y = mu / 2.0 - epsilon / mu, mu / 2.0 + epsilon / mu
    if not (math.isfinite(x) and math.isfinite(y)):
        return 1.0 if mu > 1.0 else 0.0
    if x > 0.0 and mu >= 1.0:
        # Both terms are of the order of delta here.
        first, second = float(log_ndtr(x)), float(epsilon + log_ndtr(-y))
        # Never larger than the first, but for the rounding of absurd numbers: then no less than
        # delta is returned.
        return math.exp(first) - (math.exp(second) if second < first else 0.0)
    density = math.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)
    if mu >= 1.0:
        return density * float(_mills(-x) - _mills(y))
    # The two arguments are only mu apart: integrate the slope instead of subtracting.
    middle, half = epsilon / mu, mu / 2.0
    points = middle + half * _NODES
    return density * half * float(_WEIGHTS @ (1.0 - points * _mills(points)))


def two_sided_delta(epsilon: float, mu: float) -> float:
    """Delta of a Gaussian loss, or of none, at any real epsilon."""
    if mu == 0.0:
        return max(0.0, -math.expm1(min(epsilon, 0.0)))
    if epsilon >= 0.0:
        return gaussian_delta(epsilon, mu)
    return 1.0 - math.exp(epsilon) * (1.0 - gaussian_delta(-epsilon, mu))


def two_sided_deltas(epsilon: NDArray[np.float64], mu: float) -> NDArray[np.float64]:
    """Upper bounds of delta of a Gaussian loss, or of none, at any real epsilons."""
    if mu == 0.0:
        return np.asarray(np.maximum(-np.expm1(np.minimum(epsilon, 0.0)), 0.0))
    return normal_excess(0.5 * mu - epsilon / mu, mu)


def gaussian_epsilon(delta: float, mu: float) -> float:
    """Epsilon of the Gaussian mechanism at ``delta``, to report beside the claim."""
    if delta == 0.0 or not math.isfinite(mu):
        return math.inf
    if gaussian_delta(0.0, mu) <= delta:
        return 0.0
    high = 1.0
    while gaussian_delta(high, mu) > delta:
        high *= 2.0
        if math.isinf(high):
            return math.inf
    return float(
        brentq(lambda e: gaussian_delta(e, mu) - delta, 0.0, high, xtol=1e-300, rtol=1e-14)
    )


def normal_excess(a: NDArray[np.float64], t: float) -> NDArray[np.float64]:
    r""":math:`E (1 - e^{-t (a + z)})_+` for standard normal z, at each a, from above."""
    below = np.minimum(a, 0.0)
    mills = _mills(-below)
    tail = normal_density(below) * (mills * (1.0 + ROUNDING) - _mills(t - below))
    above = np.maximum(a, 0.0)
    body = ndtr(above) * (1.0 + ROUNDING) - np.exp(0.5 * t * t - above * t + log_ndtr(above - t))
    return np.asarray(np.maximum(np.where(a < 0.0, tail, body), 0.0) * (1.0 + 1e-12))


def normal_density(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Density of the standard normal law."""
    return np.asarray(np.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi))


def _mills(t: Any) -> Any:
    """Tail of the normal distribution over its density; its slope is ``t * _mills(t) - 1``."""
    return math.sqrt(math.pi / 2.0) * erfcx(t / math.sqrt(2.0))
