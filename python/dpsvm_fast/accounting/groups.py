r"""Group privacy: bounds for a person who owns several records.

A group of m records is joined by a path of m steps between neighbours. Whatever is known of one
step as a trade-off F, :math:`P(S) \le F(Q(S))` for all S, is known of the path as its m-th iterate;
:func:`path_points` evaluates it by chains of lines. Of a Poisson-sampled Gaussian sum more is
known: with each of the m records joining by itself, the dominating pair is

.. math:: \sum_k b_k N(k, z^2) \quad\text{and}\quad N(0, z^2), \text{ or } \sum_k b_k N(-k, z^2),

b the binomial law of m and the rate, the second form for ``replace_one``. All rounding is upwards.
Proofs: docs/proofs/accountant.md, section "Groups of records".
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, logsumexp, ndtri

from dpsvm_fast.rounding import NEARLY_ZERO

Array = NDArray[np.float64]
Points = tuple[Array, Array]

UNIT = 2.0**-53
# Distance of the places in the noise at which a sampled step is looked at, and the most of them.
SPACING, MAX_PLACES = 0.01, 8000
# So many records in one step count as telling everything: their number, over the noise, and beyond
# the mean in deviations and besides.
MAX_JOINS, LARGEST_MEAN, DEVIATIONS, EXTRA_JOINS = 500, 100.0, 14.0, 60.0
# Starts of chains of lines: the least probability, and how many on either side of 1/2, fewer for
# chains of more than so many lines.
MIN_START, STARTS, FEWER_STARTS, LONG, MIN_EPSILON = 1e-280, 4000, 1000, 100, 1e-12
# A path on which every probability ends here reveals everything.
CERTAIN = 1.0 - 1e-13


@lru_cache(maxsize=256)
def step_points(z: float, q: float, size: int, direction: str, cut: float) -> Points:
    """Return points of the curve of one sampled step for a group; below 0 for one direction.

    Parameters
    ----------
    z, q : float
        Noise multiplier and rate below 1.
    size : int
        How many records the group has.
    direction : {"remove", "add", "replace"}
        Which law is the first one; "replace" is both directions at once.
    cut : float
        Probability that may be counted as an infinite loss.

    Returns
    -------
    epsilons, deltas : ndarray
        Increasing, and upper bounds of delta there.
    """
    logs, rest, doubt = _joins(size, q, min(MAX_JOINS, int(LARGEST_MEAN * min(z, MAX_JOINS))))
    centres = np.arange(logs.size) / z
    tails = np.exp(np.minimum(math.log(cut) - logs, 0.0))
    high = float((centres - ndtri(np.maximum(tails, 1e-300)))[tails < 0.5].max())
    low = 0.0 if direction == "replace" else float(ndtri(max(cut, 1e-300)))
    count = int(min(MAX_PLACES, (high - low) / SPACING + 2.0))
    u = np.linspace(low, high, count)
    ratio, off = _log_ratio(u, centres, logs)
    if direction == "add":
        # The first law's tail is below u, where the mixture is rare.
        u, ratio, off, rest = -u[::-1], -ratio[::-1], off[::-1], 0.0
        first, second = log_ndtr(-u), logsumexp(logs + log_ndtr(-u[:, None] - centres), axis=1)
    else:
        first, second = logsumexp(logs + log_ndtr(centres - u[:, None]), axis=1), log_ndtr(-u)
    if direction == "replace":
        other, more = _log_ratio(-u, centres, logs)
        ratio, off = ratio - other, off + more
        second = logsumexp(logs + log_ndtr(-centres - u[:, None]), axis=1)
    # Logarithms of tails, and what is added to them, are known to a few roundoffs of their sizes.
    sizes = np.abs(first) + np.abs(second) + np.abs(ratio) + float(np.abs(logs).max())
    wide = off + 2.0 * doubt + 32.0 * UNIT * (2.0 + sizes + logs.size)
    first, second = np.exp(first), np.exp(second + ratio)
    found = first - second + (first + second) * wide + rest + NEARLY_ZERO
    epsilons, deltas = ratio + wide, np.clip(found, 0.0, 1.0)
    if direction == "replace":
        epsilons[0] = 0.0
    elif direction == "add":
        # No loss is beyond that of a group of which nobody joins.
        epsilons, deltas = np.append(epsilons, 2.0 * wide[-1] - logs[0]), np.append(deltas, 0.0)
    return increasing(epsilons, deltas)


def _joins(size: int, q: float, most: int) -> tuple[Array, float, float]:
    """Return the log probabilities of the number of joins up to one, the rest, and their error."""
    spread = math.sqrt(size * q * (1.0 - q))
    most = int(min(size, most, size * q + DEVIATIONS * spread + EXTRA_JOINS))
    k = np.arange(most)
    steps = np.log((size - k) / (k + 1.0)) + (math.log(q) - math.log1p(-q))
    logs = size * math.log1p(-q) + np.append(0.0, np.cumsum(steps))
    largest = float(np.abs(logs).max()) + float(np.abs(steps).max(initial=0.0))
    doubt = 4.0 * UNIT * (most + 4.0) * (1.0 + largest)
    if most == size:
        return logs, 0.0, doubt
    rest = -math.expm1(float(logsumexp(logs))) + 2.0 * doubt
    # Beyond the mean the terms fall faster and faster.
    fall = (size - most) / (most + 1.0) * q / (1.0 - q)
    if fall < 0.99:
        rest = min(
            rest, math.exp(float(logs[-1])) * (1.0 + 4.0 * doubt) * fall / (1.0 - fall) * 1.01
        )
    return logs, min(1.0, rest), doubt


def _log_ratio(u: Array, centres: Array, logs: Array) -> tuple[Array, Array]:
    """Return the logarithm of the ratio of the mixture to the noise at places, and its error."""
    parts = logs + u[:, None] * centres - 0.5 * centres**2
    found = logsumexp(parts, axis=1)
    weights = np.exp(parts - found[:, None])
    sizes = np.abs(logs) + np.abs(u[:, None] * centres) + centres**2
    return found, 8.0 * UNIT * (1.0 + (weights * sizes).sum(axis=1) + logs.size)


def increasing(epsilons: Array, deltas: Array) -> Points:
    """Return points in increasing order: a bound at one epsilon holds at all larger ones."""
    order = np.argsort(epsilons, kind="stable")
    x, g = epsilons[order], np.minimum.accumulate(deltas[order])
    last = np.append(x[1:] > x[:-1], True)
    return x[last], g[last]


def lower_hull(slopes: Array, g: Array) -> tuple[list[int], list[float]]:
    """Return the indices of points on the lower convex hull, and the slopes between them."""
    hull: list[int] = []
    turns: list[float] = []
    for i in range(g.size):
        while hull:
            width = slopes[i] - slopes[hull[-1]]
            turn = (g[hull[-1]] - g[i]) / width if width > 0.0 else math.inf
            if not turns or turn < turns[-1]:
                turns.append(turn)
                break
            hull.pop()
            turns.pop()
        hull.append(i)
    return hull, turns


def path_points(epsilons: Array, deltas: Array, size: int) -> Points:
    """Return points of the curve of a group from those of one record, valid in both directions.

    Parameters
    ----------
    epsilons, deltas : ndarray
        Increasing from 0 or more, and upper bounds of delta there, in both directions.
    size : int
        How many records the group has.
    """
    # Delta at one epsilon is a bound at larger ones, which lines tell apart.
    positive, deltas = increasing(np.maximum(epsilons, MIN_EPSILON), deltas)
    mirrored = -np.expm1(-positive) + np.exp(-positive) * deltas
    x = np.concatenate([-positive[::-1], positive])
    g = np.concatenate([np.minimum(mirrored * (1.0 + 8.0 * UNIT), 1.0)[::-1], deltas])
    slopes = np.exp(x) * (1.0 + 4.0 * UNIT)
    # Any lines bound the trade-off. Those of the convex hull are the lowest ones, each from one of
    # its turns to the next.
    hull, turns = lower_hull(slopes, g)
    x, g, slopes = x[hull], g[hull], slopes[hull]
    places = -np.array(turns)
    half = np.geomspace(MIN_START, 0.5, STARTS if size <= LONG else FEWER_STARTS)
    alpha = np.concatenate([half, 1.0 - half[::-1]])
    total, delta = np.zeros(alpha.size), np.zeros(alpha.size)
    for _ in range(size):
        line = np.searchsorted(places, -alpha)
        total = total + x[line]
        delta = (g[line] + slopes[line] * delta) * (1.0 + 4.0 * UNIT)
        alpha = np.minimum(g[line] + slopes[line] * alpha, 1.0)
        if alpha.min() > CERTAIN or not np.any(delta < 1.0):
            return np.zeros(1), np.ones(1)
    largest = float(np.abs(x).max())
    total = total + size * UNIT * (8.0 + (8.0 + size) * largest)
    good = (delta < 1.0) & np.isfinite(total)
    return increasing(np.append(np.maximum(total[good], 0.0), 0.0), np.append(delta[good], 1.0))
