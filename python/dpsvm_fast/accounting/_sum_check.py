r"""Upper bounds for sums of independent privacy losses, for verification.

A loss Y >= 0 is given by thresholds z(v) with :math:`P(Y > v) \le \Phi(-z(v))`, z concave. On a
grid, mass is moved to both ends of its cell so that it and :math:`E e^{-Y}` stay: that is the law
whose mass at a grid point is the mean of the tail over the cell left of it, less that over the cell
right of it, means with the weight :math:`e^{-v}`. As :math:`(1 - e^{\epsilon - \sum Y})_+` is
convex in each :math:`e^{-Y}`, it can only gain. Tilting by :math:`e^{\lambda y}` puts the tail that
matters where a transform is accurate; what the transform and everything beyond the grid may come to
is added. docs/proofs/objective_perturbation.md, "Recomputed".
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, logsumexp, ndtr

from dpsvm_fast.accounting._gaussian_check import gaussian_delta
from dpsvm_fast.accounting._work_check import work

__all__ = [
    "cell_means",
    "conditional_sums",
    "one_score_delta",
    "one_score_threshold",
    "power",
    "sum_delta",
]

Array = NDArray[np.float64]

# Grid points of one convolution, and of each of the many of ``conditional_sums``.
POINTS, FEW_POINTS = 2**17, 2**14
# By how much fewer there are for one of many bounds.
COARSER = 16
# Knots of a table of thresholds, and cells of an integral.
KNOTS, CELLS = 4096, 2**18
# A sum is cut off that many of its standard deviations above the point of interest.
REACH = 9.0
# What the tables of one term take.
WORK_OF_TERM = 2e6
# Beyond this above epsilon an integral against exp(epsilon - v) is bounded at once.
FARTHEST = 64.0
# What functions and sums may err by, relatively; what underflows.
ROUNDING, SMALLEST = 1e-12, 1e-300
# A row that adds less than this share is bounded by its exponential moment alone.
NEGLIGIBLE = -28.0
UNIT = 2.0**-53


def one_score_delta(epsilon: float, t: float, kappa: float, *, quickly: bool = False) -> float:
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
    v = _dense(epsilon, high, t, kappa, CELLS // (COARSER if quickly else 1))
    z = one_score_threshold(v, t, kappa)
    means = cell_means(z, np.diff(v))
    weights = np.exp(epsilon - v[:-1]) * -np.expm1(-np.diff(v))
    far = math.exp(epsilon - high) * float(ndtr(-z[-1])) if high < start else 0.0
    return float(rest + (weights @ means + far) * (1.0 + ROUNDING))


def _dense(low: float, high: float, t: float, kappa: float, count: int) -> Array:
    """Points from low to high, more of them where a loss with this curvature falls steeply."""
    steep = math.log1p(0.25 * kappa) + t * np.linspace(-9.0, 9.0, count // 2 + 1)
    small = low + (high - low) * np.geomspace(1e-9, 1.0, count // 8)
    even = np.linspace(low, high, count // 2 + 1)
    return np.unique(np.concatenate([even, small, np.clip(steep, low, high)]))


def one_score_threshold(v: Array, t: float, kappa: float) -> Array:
    r"""Smallest z at which the loss passes v, from below.

    The infimum over u of :math:`(v - \psi(u))/(t u)`, :math:`\psi = t^2 u^2/2 + \log(1 + \kappa u
    (1 - u))`. It is attained at u = 1 or at the only root of :math:`\psi - u \psi' = v` in one of
    the at most two intervals where psi is concave, and the roots are bisected.
    """
    square = t * t
    # psi is concave where 1 / (1 + kappa g), g = u (1 - u), is above this.
    four = kappa * kappa + 4.0 * kappa
    least = (kappa + math.sqrt(kappa * kappa + square * four)) / four
    g = min((1.0 / least - 1.0) / kappa, 0.25) if least < 1.0 else 0.0
    turn = 0.5 * (1.0 - math.sqrt(1.0 - 4.0 * g))

    def terms(u: Array) -> tuple[Array, Array]:
        bend = kappa * u * (1.0 - u)
        return np.log1p(bend), kappa * u * (1.0 - 2.0 * u) / (1.0 + bend)

    def height(u: Array) -> Array:
        log, _ = terms(u)
        half = 0.5 * square * u * u
        doubt = 8.0 * UNIT * (v + half + log)
        return np.asarray((v - half - log - doubt) / (t * u))

    found = height(np.ones(v.size))
    for start, end in ((0.0, turn), (1.0 - turn, 1.0)) if g < 0.25 else ((0.0, 1.0),):
        low, high = np.full(v.size, start), np.full(v.size, end)
        for _ in range(64):
            u = 0.5 * (low + high)
            log, slope = terms(u)
            below = log - slope - 0.5 * square * u * u < v
            low, high = np.where(below, u, low), np.where(below, high, u)
        for u in (low, high):
            inside = np.maximum(u, 1e-18)
            found = np.minimum(found, height(inside))
    # At 0 the infimum is a limit.
    return np.asarray(np.where(v <= 0.0, -(kappa + 0.5 * square) / t, found))


def cell_means(z: Array, step: Any) -> Array:
    """Upper bounds of the means of a tail over cells, given thresholds at the ends of cells.

    Means have the weight exp(-v). Between the ends a concave threshold is above its chord, and the
    tail along the chord is convex above 0 (below its own chord) and concave below 0 (below its
    value at the mean place); where z changes its sign, the left end counts.
    """
    # Lower bound of the mean place in a cell.
    place = np.maximum(0.5 - np.asarray(step) / 12.0, 0.0)
    left, right = z[..., :-1], z[..., 1:]
    tail = ndtr(-z)
    chord = (1.0 - place) * tail[..., :-1] + place * tail[..., 1:]
    means = np.where(right <= 0.0, ndtr(-(left + place * (right - left))), chord)
    means = np.where((left < 0.0) & (right > 0.0), tail[..., :-1], means)
    return np.asarray(np.minimum(means * (1.0 + ROUNDING), 1.0))


def _masses(means: Array) -> Array:
    """Masses on a grid from 0, from the means of the tail over its cells."""
    falling = np.maximum.accumulate(means[..., ::-1], axis=-1)[..., ::-1]
    ends = np.ones((*means.shape[:-1], 1)), np.zeros((*means.shape[:-1], 1))
    return np.asarray(-np.diff(np.concatenate([ends[0], falling, ends[1]], axis=-1), axis=-1))


class _Term:
    """One of several equal losses: the means of its tail, and its moments on a coarse grid."""

    def __init__(self, t: float, kappa: float | None, replace_one: bool, quickly: bool) -> None:  # noqa: FBT001
        work(2 * WORK_OF_TERM)
        self._t, self._replace_one, self._knots = t, replace_one, None
        top = (4.0 if replace_one else 1.0) * t * (t + 38.0)
        if kappa is not None:
            count = KNOTS // (4 if quickly else 1)
            self._knots = _dense(0.0, max(kappa - 0.5 * t * t, 0.0), t, kappa, count)
            self._table = one_score_threshold(self._knots, t, kappa)
            top = min(top + self._knots[-1], math.log1p(0.25 * kappa) + t * (t + 38.0))
        self.grid: Array = np.linspace(0.0, top, 4001)
        self.logs = _logs(_masses(self.means(self.grid)))
        self.lams = np.concatenate([[0.0], np.geomspace(1e-3, 1e4, 141) / top])
        self.moments = np.array([float(logsumexp(self.logs + x * self.grid)) for x in self.lams])

    def means(self, v: Array) -> Array:
        """Upper bounds of the means of the tail over cells of equal size."""
        t, step = self._t, v[1] - v[0]
        # Less by what rounding takes from a difference of large numbers.
        plain = v / t - 0.5 * t - 8.0 * UNIT * (v / t + t)
        if self._replace_one:
            both = v / (2.0 * t) - t - 8.0 * UNIT * (v / t + t)
            return np.minimum(cell_means(both, step) + 2.0 * cell_means(plain, step), 1.0)
        if self._knots is not None:
            inside = np.interp(v, self._knots, self._table)
            plain = np.where(v >= self._knots[-1], plain, inside)
        return cell_means(plain, step)


_term = lru_cache(maxsize=16)(_Term)


def sum_delta(
    epsilon: float,
    t: float,
    n: int,
    *,
    kappa: float | None = None,
    replace_one: bool = False,
    quickly: bool = False,
) -> float:
    """Delta of the sum of n independent one-score losses."""
    # First on a coarse grid, to see where the tilted sum lives.
    term = _term(t, kappa, replace_one, quickly)
    bounds = n * term.moments - term.lams * epsilon
    place = int(np.argmin(bounds))
    lam, bound, coarse = float(term.lams[place]), float(bounds[place]), term.grid
    if bound < -680.0:
        return math.exp(bound) * 2.0 + SMALLEST
    points = POINTS // (COARSER if quickly else 1)
    work(30 * points)
    tilted = np.exp(lam * coarse + term.logs - term.moments[place])
    mean = float(tilted @ coarse)
    spread = math.sqrt(n * max(float(tilted @ coarse**2) - mean * mean, 0.0))
    reach = max(epsilon, n * mean) + REACH * spread + 6.0 / max(lam, 1.0)
    grid = np.arange(points) * (reach / (points - 1))
    masses = _masses(term.means(np.asarray(grid)))
    logs = _logs(masses)
    scale = float(logsumexp(logs + lam * grid))
    law, error = power(np.exp(logs + lam * grid - scale), n)
    beyond = grid - epsilon
    weights = np.where(beyond > 0.0, np.exp(-lam * np.maximum(beyond, 0.0)), 0.0)
    weights *= np.maximum(-np.expm1(-beyond), 0.0)
    # What lies beyond the grid: a term alone, or a sum of terms that are not.
    shares = lam + np.geomspace(0.1, 30.0, 9) / max(spread, 1e-9)
    chernoff = min(n * float(logsumexp(logs + s * grid)) - s * reach for s in shares)
    rest = n * float(masses[-1]) + math.exp(min(chernoff, 0.0))
    inside = float(law @ weights) + error * float(np.linalg.norm(weights))
    return math.exp(n * scale - lam * epsilon) * inside * (1.0 + 1e-11 * n) + rest + SMALLEST


def power(masses: Array, n: int) -> tuple[Array, float]:
    """Convolution power of masses with sums of 1 at most, and the 2-norm of its error.

    What leaves the grid comes back at its other end, where it only adds. Powers are products, so
    that the rounding of each is that of one multiplication.
    """
    points = masses.shape[-1]
    size = 2 ** math.ceil(math.log2(2 * points))
    base: Any = np.fft.rfft(masses, size)
    result: Any = None
    exponent = n
    while True:
        if exponent & 1:
            result = base if result is None else result * base
        exponent >>= 1
        if not exponent:
            break
        base = base * base
    law = np.maximum(np.fft.irfft(result, size)[..., :points], 0.0)
    return law, (8.0 * (math.log2(size) + 2.0) * (n + 1) + 8.0 * n) * UNIT


def _logs(masses: Array) -> Array:
    """Logarithms of masses, from above; of none, one that adds nothing."""
    return np.asarray(np.log(np.maximum(masses, 0.0) + 1e-307))


def conditional_sums(
    epsilon: float, s: float, n: int, shifts: Array, log_weights: Array, *, quickly: bool = False
) -> Array:
    r""":math:`E (1 - e^{\epsilon - Y})_+` of :math:`Y = \sum_{i \le n} \max(0, a + s z_i)`.

    At each a of ``shifts``, from above; where the weight makes it negligible, coarsely.
    """
    work(100 * shifts.size)
    a = shifts[:, None]
    # The generating function of one term is known: moments without a grid.
    lams = np.concatenate([[0.0], np.geomspace(1e-2, 60.0, 90)]) / s
    with np.errstate(over="ignore"):
        rises = lams * a + 0.5 * (lams * s) ** 2 + log_ndtr(a / s + lams * s)
    generating = np.logaddexp(log_ndtr(-a / s), rises)
    bounds = n * generating - lams * epsilon
    found = np.exp(np.minimum(bounds.min(axis=1), 0.0)) * (1.0 + 1e-9)
    total = log_weights + np.minimum(bounds.min(axis=1), 0.0)
    rows = np.flatnonzero(total > total.max() + NEGLIGIBLE - math.log(total.size))
    points = FEW_POINTS // (4 if quickly else 1)
    work(60 * points * rows.size)
    lam, a = lams[bounds[rows].argmin(axis=1)][:, None], a[rows]
    centre = np.maximum(a + lam * s * s, 0.0)
    top = np.maximum(epsilon, n * (centre + s)) + REACH * s * math.sqrt(n)
    beyond = np.exp(np.minimum((n * generating[rows] - lams * top).min(axis=1), 0.0))
    step = top / (points - 1)
    grid = np.arange(points) * step
    masses = _masses(cell_means((grid - a) / s, step))
    logs = _logs(masses) + lam * grid
    scale = logsumexp(logs, axis=1, keepdims=True)
    law, error = power(np.exp(logs - scale), n)
    above = np.maximum(grid - epsilon, 0.0)
    weights = np.exp(-lam * above) * -np.expm1(-above)
    inside = (law * weights).sum(axis=1) + error * np.linalg.norm(weights, axis=1)
    whole = np.exp(n * scale[:, 0] - lam[:, 0] * epsilon) * inside * (1.0 + 1e-11 * n)
    found[rows] = np.minimum(found[rows], whole + beyond * (1.0 + 1e-9) + n * masses[:, -1])
    return np.asarray(found + SMALLEST)
