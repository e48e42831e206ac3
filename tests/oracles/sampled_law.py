"""Exact laws of sampled noisy sums of one weight, and the delta between two of them.

No sampling: densities are integrated, so there are no false alarms. With P the law over the larger
set, delta(epsilon) is the larger of the integrals of (P - e^epsilon Q)_+ and (Q - e^epsilon P)_+.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Law = tuple[float, float]  # rate and shift

# 64 panels of 20 nodes over 40 deviations: far below rounding for these entire functions.
NODES, WEIGHTS = np.polynomial.legendre.leggauss(20)
PANELS = 64


def log_mixture(x: Array, law: Law, sigma: float) -> Array:
    """Logarithm of (1 - rate) N(0, sigma^2) + rate N(shift, sigma^2)."""
    rate, shift = law
    with np.errstate(divide="ignore"):
        apart = np.log1p(-rate) if rate < 1.0 else -np.inf
        joined = np.log(rate) + 0.5 * (2.0 * x - shift) * shift / sigma**2
    common = -0.5 * (x / sigma) ** 2 - np.log(sigma * np.sqrt(2.0 * np.pi))
    return np.asarray(common + np.logaddexp(apart, joined))


def one_sided(p: Law, q: Law, epsilon: float, sigma: float) -> float:
    """Integral of (p - e^epsilon q)_+ over the real line, for a monotone quotient p / q."""

    def loss(x: float) -> float:
        at = np.array([x])
        return float((log_mixture(at, p, sigma) - log_mixture(at, q, sigma))[0]) - epsilon

    # The reach covers every point from which on densities are below the smallest double.
    low, high = -40.0 * sigma - 2.0, 40.0 * sigma + 2.0
    left, right = loss(low) > 0.0, loss(high) > 0.0
    start, stop = low, high
    if not (left or right):
        return 0.0
    if left != right:
        for _ in range(200):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if (loss(middle) > 0.0) == left else (low, middle)
        start, stop = (start, low) if left else (high, stop)
    edges = np.linspace(start, stop, PANELS + 1)
    half = 0.5 * np.diff(edges)[:, None]
    x = edges[:-1, None] + half * (1.0 + NODES)
    log_p, log_q = log_mixture(x, p, sigma), log_mixture(x, q, sigma)
    # p - e^epsilon q without cancellation where the two nearly meet.
    excess = -np.exp(log_p) * np.expm1(np.minimum(epsilon + log_q - log_p, 0.0))
    return float((half * WEIGHTS * excess).sum())


def step_delta(epsilon: float, sigma: float, rate: float, moved: float, replace_one: bool) -> float:
    """Delta of one step that moves by ``moved`` where the record joins, other records apart."""
    p = (rate, moved)
    q = (rate, -moved) if replace_one else (0.0, 0.0)
    return max(one_sided(a, b, epsilon, sigma) for a, b in ((p, q), (q, p)))


def density(x: Array, contributions: Sequence[float], rate: float, sigma: float) -> Array:
    """Density of the noisy sum where every contribution joins by itself with this rate."""
    total = np.zeros_like(x)
    for joined in itertools.product((0, 1), repeat=len(contributions)):
        weight = math.prod(rate if j else 1.0 - rate for j in joined)
        centre = sum(c for j, c in zip(joined, contributions, strict=True) if j)
        total += weight * np.exp(-0.5 * ((x - centre) / sigma) ** 2)
    return total / (sigma * math.sqrt(2.0 * math.pi))


def sums_delta(
    epsilon: float, sigma: float, rate: float, first: Sequence[float], second: Sequence[float]
) -> float:
    """Delta between the sums over two sets of contributions, by the trapezium rule.

    The rule converges faster than any power of the step but for the kink at P = e^epsilon Q, where
    it errs by less than 1e-7 of delta at this step.
    """
    reach = sum(map(abs, [*first, *second])) + 12.0 * sigma
    x, step = np.linspace(-reach, reach, 100_001, retstep=True)
    p, q = (density(x, s, rate, sigma) for s in (first, second))
    sides = (np.maximum(a - math.exp(epsilon) * b, 0.0).sum() for a, b in ((p, q), (q, p)))
    return float(max(sides) * step)


def two_steps_delta(
    epsilon: float, sigma: float, rate: float, moved: float, replace_one: bool, points: int = 2001
) -> float:
    """Delta of two independent steps, by the trapezium rule in the plane."""
    reach = moved + 9.0 * sigma
    x, step = np.linspace(-reach, reach, points, retstep=True)
    p = density(x, [moved], rate, sigma)
    q = density(x, [-moved] if replace_one else [], rate, sigma)
    best = 0.0
    for a, b in ((p, q), (q, p)):
        excess = np.multiply.outer(a, a) - math.exp(epsilon) * np.multiply.outer(b, b)
        best = max(best, float(np.maximum(excess, 0.0).sum() * step * step))
    return best
