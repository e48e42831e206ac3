"""Slow scipy twin of the calibration of the Gaussian mechanism (sensitivity 1).

References
----------
Balle and Wang, "Improving the Gaussian mechanism for differential privacy", ICML 2018, Theorem 8.
"""

from __future__ import annotations

import math

from scipy.optimize import brentq
from scipy.special import log_ndtr

__all__ = ["delta", "sigma"]


def delta(epsilon: float, sigma: float) -> float:
    """Smallest delta of noise ``sigma``: Phi(1/(2 sigma) - e sigma) - exp(e) Phi(-...).

    Both terms are taken in logarithms; digits are lost where they nearly cancel (tiny epsilon).
    """
    first = float(log_ndtr(0.5 / sigma - epsilon * sigma))
    second = epsilon + float(log_ndtr(-0.5 / sigma - epsilon * sigma))
    return -math.exp(first) * math.expm1(min(second - first, 0.0))


def sigma(epsilon: float, delta_: float) -> float:
    """Smallest sigma whose ``delta(epsilon, sigma)`` is at most ``delta_``, to about 1e-9."""

    def excess(log_sigma: float) -> float:
        return math.log(max(delta(epsilon, math.exp(log_sigma)), 1e-320)) - math.log(delta_)

    low, high = math.log(1e-6), math.log(1e6)
    return math.exp(float(brentq(excess, low, high, xtol=1e-13)))
