"""The analytic Gaussian mechanism from scipy's parts, as one would write it in a notebook.

Same inequality as ours (Balle and Wang 2018, Theorem 8) at sensitivity 1, solved by Brent's method
on log delta over log sigma. It rounds to nearest, not towards more noise.
"""

from __future__ import annotations

import math

from scipy.optimize import brentq
from scipy.special import log_ndtr


def log_delta(epsilon: float, sigma: float) -> float:
    """Natural log of the smallest delta for (epsilon, sigma)."""
    half, slope = 0.5 / sigma, epsilon * sigma
    first, second = log_ndtr(half - slope), epsilon + log_ndtr(-half - slope)
    return float(first + math.log(-math.expm1(min(second - first, -1e-300))))


def gaussian_sigma(epsilon: float, delta: float) -> float:
    """Smallest sigma, to about 1e-12."""
    target = math.log(delta)
    low, high = -3.0, 3.0
    while log_delta(epsilon, math.exp(low)) < target:
        low -= 3.0
    while log_delta(epsilon, math.exp(high)) > target:
        high += 3.0
    root = brentq(lambda s: log_delta(epsilon, math.exp(s)) - target, low, high, xtol=1e-13)
    return math.exp(root)
