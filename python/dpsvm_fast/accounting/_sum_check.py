r"""Sums of independent privacy losses, for verification: tilted convolution on a grid.

A loss Y >= 0 has an atom at 0 and a tail P(Y > v). Masses are given to the nearest grid point;
tilting them by :math:`e^{\lambda y}` before the transform puts the tail that matters where the
transform is accurate.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_ndtr, logsumexp, ndtr

from dpsvm_fast.accounting._gaussian_check import gaussian_delta
from dpsvm_fast.accounting._work_check import work

__all__ = ["conditional_sums", "one_score_delta", "one_score_threshold", "sum_delta"]

Array = NDArray[np.float64]

# Grid points of one convolution, and of each of the many of ``conditional_sums``.
POINTS, FEW_POINTS = 2**15, 2**12
# A sum is cut off that many of its standard deviations above the point of interest.
REACH = 14.0

# What the tables of one term take.
WORK_OF_TERM = 2e6

# Integrals against exp(epsilon - v) end this far above epsilon.
FARTHEST = 64.0

# Logarithms of a probability that counts as 0, and of an empty cell.
LOG_SMALLEST, LOG_ZERO = -740.0, -1e4

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)


def one_score_delta(epsilon: float, t: float, kappa: float) -> float:
    """Delta of one score whose curvature is proportional to u (1 - u)."""
    work(WORK_OF_TERM)
    start = max(epsilon, kappa - 0.5 * t * t)
    # From there on the supremum is attained at u = 1, where there is no curvature.
    rest = math.exp(epsilon - start) * gaussian_delta(start, t)
    if start == epsilon:
        return rest
    # Farther out the integrand is less than e^-64 of what it was; with much noise it falls steeply
    # near the logarithm of the largest curvature.
    high = min(start, epsilon + FARTHEST)
    steep = math.log1p(0.25 * kappa) + t * np.linspace(-8.0, 8.0, 33)
    edges = np.unique(np.append(np.linspace(epsilon, high, 65), np.clip(steep, epsilon, high)))
    half = 0.5 * np.diff(edges)[:, None]
    v = (edges[:-1, None] + half * (1.0 + _NODES)).ravel()
    weights = (half * _WEIGHTS).ravel()
    tails = ndtr(-one_score_threshold(v, t, kappa))
    return rest + float(weights @ (np.exp(epsilon - v) * tails))


def one_score_threshold(v: Array, t: float, kappa: float) -> Array:
    r"""Smallest z at which the loss passes v.

    The infimum over u of :math:`(v - t^2 u^2/2 - \log(1 + \kappa u (1 - u)))/(t u)`.
    """

    def height(u: Array) -> Array:
        gain = 0.5 * t * t * u * u + np.log1p(kappa * u * (1.0 - u))
        return np.asarray((v[:, None] - gain) / (t * u))

    logits = np.broadcast_to(np.linspace(-30.0, 30.0, 241), (v.size, 241))
    best = np.asarray((v - 0.5 * t * t) / t)
    width = 0.25
    for _ in range(3):
        values = height(expit(logits))
        place = values.argmin(axis=1)
        best = np.minimum(best, values.min(axis=1))
        centre = np.take_along_axis(logits, place[:, None], axis=1)
        logits = centre + np.linspace(-width, width, 33)
        width /= 16.0
    return best


def sum_delta(
    epsilon: float, t: float, n: int, *, kappa: float | None = None, replace_one: bool = False
) -> float:
    """Delta of the sum of n independent one-score losses."""

    def tail(v: Any) -> Array:
        if replace_one:
            both = ndtr(t - v / (2.0 * t)) + 2.0 * ndtr(t / 2.0 - v / t)
            return np.asarray(np.minimum(1.0, both))
        if kappa is None:
            return np.asarray(ndtr(0.5 * t - v / t))
        knots = np.linspace(0.0, max(kappa - 0.5 * t * t, 0.0), 500)
        threshold = np.interp(v, knots, one_score_threshold(knots, t, kappa))
        beyond = v >= knots[-1]
        return np.asarray(ndtr(np.where(beyond, 0.5 * t - v / t, -threshold)))

    work(2 * WORK_OF_TERM)
    # First on a coarse grid, to see where the tilted sum lives.
    top = _quantile_bound(tail, t)
    coarse = np.linspace(0.0, top, 4001)
    masses = _nearest_masses(tail, coarse)
    lam, bound = _tilt(coarse, _logs(masses), n, epsilon)
    if bound < LOG_SMALLEST:
        return 0.0
    tilted = lam * coarse + _logs(masses)
    tilted = np.exp(tilted - logsumexp(tilted))
    mean = float(tilted @ coarse)
    spread = math.sqrt(n * max(float(tilted @ coarse**2) - mean * mean, 0.0))
    reach = max(epsilon, n * mean) + REACH * spread + top / 4.0
    grid = np.arange(POINTS) * (reach / (POINTS - 1))
    masses = _nearest_masses(tail, grid)
    excess = np.maximum(-np.expm1(epsilon - grid), 0.0)
    logs = _logs(masses) + lam * grid
    logs[1:] -= _log_inflation(lam * grid[1:2])
    scale = float(logsumexp(logs))
    # Twice the points: what wraps around would be below 1e-16 of the tilted law.
    transform = np.fft.rfft(np.exp(logs - scale), 2 * POINTS)
    law = np.fft.irfft(transform**n, 2 * POINTS)[:POINTS]
    above = grid > epsilon
    weighted = np.maximum(law[above], 0.0) * np.exp(lam * (epsilon - grid[above])) * excess[above]
    return math.exp(n * scale - lam * epsilon) * float(weighted.sum())


def _quantile_bound(tail: Callable[[Any], Array], t: float) -> float:
    """A loss that one term passes with a probability that underflows."""
    top = t
    while float(tail(np.array([top]))[0]) > 1e-300:
        top *= 1.25
    return top


def _nearest_masses(tail: Callable[[Any], Array], grid: Any) -> Array:
    """Masses of a law on a grid from 0, each to the nearest point."""
    step = grid[1]
    ends = tail(grid + 0.5 * step)
    return np.concatenate([[1.0 - ends[0]], ends[:-1] - ends[1:]])


def _logs(masses: Array) -> Array:
    """Logarithms of masses; what is hardly a normal float any more counts as nothing."""
    return np.where(masses > 1e-306, np.log(np.maximum(masses, 1e-306)), LOG_ZERO)


def _tilt(grid: Array, logs: Array, n: int, point: float) -> tuple[float, float]:
    """Exponent for which the bound of the probability of a sum of n beyond ``point`` is smallest.

    Returns it and the logarithm of the bound.
    """
    candidates = np.concatenate([[0.0], np.geomspace(1e-3, 1e4, 141) / grid[-1]])
    bounds = [n * float(logsumexp(logs + lam * grid)) - lam * point for lam in candidates]
    place = int(np.argmin(bounds))
    return float(candidates[place]), bounds[place]


def conditional_sums(
    epsilon: float, s: float, n: int, shifts: Array, *, tail: bool = False
) -> Array:
    r""":math:`E (1 - e^{\epsilon - Y})_+` of :math:`Y = \sum_{i \le n} \max(0, a + s z_i)`.

    At each a of ``shifts``; with ``tail`` the probability of Y > epsilon instead.
    """
    work(20 * FEW_POINTS * shifts.size)
    a = shifts[:, None]
    # The generating function of one term is known, so the best tilt needs no grid.
    lams = np.concatenate([[0.0], np.geomspace(1e-2, 60.0, 90)]) / s
    with np.errstate(over="ignore"):
        rises = lams * a + 0.5 * (lams * s) ** 2 + log_ndtr(a / s + lams * s)
    generating = np.logaddexp(log_ndtr(-a / s), rises)
    bounds = n * generating - lams * epsilon
    best = bounds.argmin(axis=1)
    # A probability below the smallest float counts as 0, and needs no tilt.
    alive = bounds.min(axis=1) > LOG_SMALLEST
    lam = np.where(alive, lams[best], 0.0)[:, None]
    log_masses, grid = _conditional_masses(epsilon, s, n, a, lam)
    logs = log_masses + lam * grid
    scale = logsumexp(logs, axis=1, keepdims=True)
    law = np.fft.irfft(np.fft.rfft(np.exp(logs - scale), 2 * FEW_POINTS) ** n, 2 * FEW_POINTS)
    gain = np.where(grid > epsilon, 1.0, 0.0) if tail else np.maximum(-np.expm1(epsilon - grid), 0)
    above = np.where(grid > epsilon, np.exp(np.minimum(lam * (epsilon - grid), 0.0)) * gain, 0.0)
    sums = (np.maximum(law[:, :FEW_POINTS], 0.0) * above).sum(axis=1)
    logs = n * scale[:, 0] - lam[:, 0] * epsilon
    return np.where(alive, sums * np.exp(np.minimum(logs, 700.0)), 0.0)


def _conditional_masses(
    epsilon: float, s: float, n: int, a: Array, lam: Array
) -> tuple[Array, Array]:
    """Logarithms of the masses of one term on a grid for each row, wide enough for the sum."""
    centre = np.maximum(a + lam * s * s, 0.0)
    top = np.maximum(epsilon, n * (centre + s)) + REACH * s * math.sqrt(n) + 8.0 * s
    step = top / (FEW_POINTS - 1)
    grid = np.arange(FEW_POINTS) * step
    upper = log_ndtr((a - grid - 0.5 * step) / s)
    lower = np.concatenate([np.zeros_like(a), upper[:, :-1]], axis=1)
    with np.errstate(divide="ignore"):
        logs = np.maximum(lower + np.log(-np.expm1(upper - lower)), LOG_ZERO)
    logs[:, 1:] -= _log_inflation(lam * step)
    return logs, grid


def _log_inflation(x: Any) -> Array:
    """How much a cell of width h gains at tilt lam, x = lam h, when its mass moves to its middle.

    A tilted density that hardly varies over the cell makes it log(sinh(x/2) / (x/2)).
    """
    x = np.maximum(x, 1e-8)
    return np.asarray(0.5 * x + np.log(-np.expm1(-x) / x))
