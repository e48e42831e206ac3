"""Slow scipy twin of the Gaussian mechanism (sensitivity 1): its calibration and its profile.

References
----------
Balle and Wang, "Improving the Gaussian mechanism for differential privacy", ICML 2018, Theorem 8.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr

__all__ = ["delta", "gaussian_delta", "sigma"]


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


def gaussian_delta(epsilon: ArrayLike, mu: ArrayLike) -> NDArray[np.float64]:
    """Delta at any real epsilons of mechanisms with parameter mu; of nothing where that is 0."""
    epsilon, mu = np.broadcast_arrays(np.asarray(epsilon, float), np.asarray(mu, float))
    size = np.where(mu > 0, mu, 1.0)
    gain = ndtr(size / 2 - epsilon / size)
    delta = gain - np.exp(epsilon) * ndtr(-size / 2 - epsilon / size)
    return np.asarray(np.where(mu > 0, delta, np.maximum(-np.expm1(epsilon), 0.0)))
