"""Lower bounds of delta of composed events: a real pair of laws for each, and outcomes merged.

Every event is replaced by one mechanism that it describes: Gaussian sums by themselves, zCDP by the
Gaussian mechanism of the same rho, noise in objectives by that of a record with the longest
gradient, pure events by randomised response, sampled steps by their dominating pair. Of the latter
only a whole number is kept, about the privacy loss in units of a step, and only the sum of these:
whoever sees less tells the worlds apart no better. All sums are of positive numbers, so that small
deltas keep their digits. Nothing is shared with the accountant or with ``verify``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr

Array = NDArray[np.float64]
# Losses and their probabilities in the first world.
Law = tuple[Array, Array]
# A whole number: its unit, its least value, its probabilities in the two worlds.
Grid = tuple[float, int, Array]

# What the roundings of one probability come to at most.
MARGIN = 1e-9
# Steps of one event beyond these are left out: fewer steps tell less.
MAX_STEPS = 64
# Whole numbers that are told apart at most: beyond them every two become one.
MAX_CELLS = 4000


def gaussian_deltas(epsilons: Array, mu: float) -> Array:
    """Delta of the Gaussian mechanism at any real epsilons, rounded down."""
    if mu == 0.0:
        return np.asarray(-np.expm1(np.minimum(epsilons, 0.0)))
    first = log_ndtr(0.5 * mu - epsilons / mu)
    second = epsilons + log_ndtr(-0.5 * mu - epsilons / mu)
    apart = np.maximum(first - second, 1e-300)
    lost = MARGIN + 1e-14 * (1.0 + np.abs(first)) / apart
    return np.asarray(np.exp(first) * -np.expm1(-apart) * np.maximum(0.0, 1.0 - lost))


def response(epsilon: float) -> Law:
    """Randomised response."""
    likely = 1.0 / (1.0 + math.exp(-epsilon))
    losses = np.array([-epsilon, epsilon]) - MARGIN * epsilon
    return losses, np.array([math.exp(-epsilon) * likely, likely]) * (1.0 - MARGIN)


def sampled(z: float, q: float, *, replace_one: bool, turned: bool) -> Grid:
    """One step on a Poisson sample; ``turned``: the record is not in the first world."""
    x = np.linspace(-12.0 * z - 1.0, 12.0 * z + 1.0, 20_001)

    def tilt(sign: float) -> Array:
        return np.logaddexp(np.log1p(-q), math.log(q) + (sign * x - 0.5) / z**2)

    def masses(sign: float) -> Array:
        return (1.0 - q) * _cells(x / z) + q * _cells((x - sign) / z)

    loss = tilt(1.0) - tilt(-1.0) if replace_one else tilt(1.0)
    worlds = [masses(1.0), masses(-1.0) if replace_one else _cells(x / z)]
    step = 2.0 ** math.ceil(math.log2((loss[-1] - loss[0]) / MAX_CELLS))
    cells = np.floor(0.5 * (loss[:-1] + loss[1:]) / step).astype(np.int64)
    start = int(cells.min())
    both = np.array([np.bincount(cells - start, mass) for mass in worlds])
    return step, start, both[::-1] if turned else both


def _cells(x: Array) -> Array:
    """Probabilities of a standard normal law between neighbours."""
    right = np.maximum(ndtr(-x[:-1]) - ndtr(-x[1:]), 0.0)
    left = np.maximum(ndtr(x[1:]) - ndtr(x[:-1]), 0.0)
    return np.asarray(np.where(x[:-1] > 0.0, right, left))


def lower_delta(events: Sequence[Any], epsilon: float) -> float:
    """A delta that the events together really have at epsilon, or less.

    Events of other kinds are left out; of alternatives one branch is enough.
    """
    return max(
        _lower(branch, epsilon, turned=turned)
        for branch in _branches(list(events))
        for turned in (False, True)
    )


def _branches(events: list[Any]) -> list[list[Any]]:
    """All that one record may meet."""
    for i, event in enumerate(events):
        options = getattr(event, "branches", None)
        if options is not None:
            rest = events[:i] + events[i + 1 :]
            return [b for branch in options for b in _branches([*rest, *branch])]
    return [events]


def least_square(event: Any, *, replace_one: bool) -> float:
    """Square of the Gaussian parameter that an event contains; 0 where it contains none."""
    if event.tag == "gaussian":
        return float((event.sensitivity / event.sigma) ** 2)
    if event.tag == "zcdp":
        return float(2.0 * event.rho)
    if event.tag == "subsampled_gaussian" and event.sampling_rate == 1.0:
        return float((4.0 if replace_one else 1.0) * event.n_steps / event.noise_multiplier**2)
    if event.tag == "objective":
        n = event.n_scores
        longest = {"softmax": 2.0, "weston_watkins": n * (n - 1.0)}.get(event.law, float(n))
        return float((4.0 if replace_one else 1.0) * longest / event.sigma**2)
    return 0.0


def _lower(events: list[Any], epsilon: float, *, turned: bool) -> float:
    exchanged = any(event.adjacency == "replace_one" for event in events)
    square = math.fsum(least_square(event, replace_one=exchanged) for event in events)
    told, laws, grids = 0.0, [], list[Grid]()
    for event in events:
        if event.tag in ("pure", "approximate"):
            laws.append(response(event.epsilon))
        if event.tag == "approximate":
            told += (1.0 - told) * event.delta
        if event.tag == "subsampled_gaussian" and event.sampling_rate < 1.0:
            z, q = event.noise_multiplier, event.sampling_rate
            one = sampled(z, q, replace_one=exchanged, turned=turned)
            grids.append(_power(one, min(event.n_steps, MAX_STEPS)))
    losses, masses = _composed(laws, grids)
    mu = math.sqrt(square) * (1.0 - MARGIN)
    rest = float(masses @ gaussian_deltas(epsilon * (1.0 + 1e-12) - losses, mu))
    return (told + (1.0 - told) * rest) * (1.0 - MARGIN)


def _composed(responses: list[Law], grids: list[Grid]) -> Law:
    """The law of the sum of losses."""
    losses, masses = np.zeros(1), np.ones(1)
    # More than a dozen responses: without the rest it is less.
    for one in responses[:12]:
        losses = (losses[:, None] + one[0]).ravel()
        masses = (masses[:, None] * one[1]).ravel()
    if not grids:
        return losses, masses
    whole = grids[0]
    for other in grids[1:]:
        whole = _sum(whole, other)
    first, second = whole[2] * (1.0 + MARGIN * np.array([[-1.0], [1.0]]))
    seen = (first > 0.0) & (second > 0.0)
    apart = np.log(first[seen] / second[seen])
    return (losses[:, None] + apart).ravel(), (masses[:, None] * first[seen]).ravel()


def _sum(first: Grid, second: Grid) -> Grid:
    """The sum of two independent numbers."""
    while first[0] < second[0]:
        first = _coarser(first)
    while second[0] < first[0]:
        second = _coarser(second)
    while first[2].shape[1] + second[2].shape[1] > MAX_CELLS:
        first, second = _coarser(first), _coarser(second)
    total = np.array([np.convolve(a, b) for a, b in zip(first[2], second[2], strict=True)])
    start = first[1] + second[1]
    # Ends that hardly ever occur: the lower one is left out, the upper one is not told apart.
    likely = total.min(axis=0)
    low = int(np.searchsorted(np.cumsum(likely), 1e-60))
    high = likely.size - int(np.searchsorted(np.cumsum(likely[::-1]), 1e-250))
    total[:, high - 1] += total[:, high:].sum(axis=1)
    return first[0], start + low, total[:, low:high]


def _coarser(grid: Grid) -> Grid:
    """Every two numbers as one."""
    step, start, masses = grid
    masses = np.pad(masses, ((0, 0), (start % 2, (start + masses.shape[1]) % 2)))
    return 2.0 * step, start // 2, masses.reshape(2, -1, 2).sum(axis=2)


def _power(grid: Grid, n: int) -> Grid:
    """The sum of n independent numbers of one law."""
    if n == 1:
        return grid
    half = _power(grid, n // 2)
    whole = _sum(half, half)
    return _sum(whole, grid) if n % 2 else whole
