"""One number of a release and one event, learned on runs that are then thrown away.

The counted runs are fresh, so the choice costs no confidence: whatever is learned here, the bound
holds, and a bad choice only makes it smaller.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

__all__ = ["Event", "Score", "Statistic", "chosen_event", "learned_statistics"]

Array = NDArray[np.float64]
Score = Callable[[Array, Array], Array]

# Candidate thresholds are these many quantiles of the pilot's statistic.
N_THRESHOLDS = 400
# A proportion of the pilot is taken to be this many standard errors worse than it looked.
CAUTION = 4.0
# Of a column's spread; less is no difference that a float shows.
RIDGE = 1e-9


@dataclass(frozen=True, eq=False)
class Statistic:
    """A number of each release.

    Parameters
    ----------
    name : str
    of : callable
        From releases of shape (n, k) to n numbers.
    """

    name: str
    of: Callable[[Array], Array]


@dataclass(frozen=True)
class Event:
    """A half line of a statistic, and the world in which it is expected more often.

    Parameters
    ----------
    threshold : float
    above : bool
        Whether the statistic has to be larger than the threshold.
    likely : {0, 1}
        0: more often in the first world.
    """

    threshold: float
    above: bool
    likely: int

    def count(self, values: Array) -> int:
        """How many of the numbers are inside."""
        inside = values > self.threshold if self.above else values < self.threshold
        return int(inside.sum())


def learned_statistics(first: Array, second: Array, *, pure: bool) -> list[Statistic]:
    """Fisher's direction and, for pure laws, the difference of the distances to the worlds' means.

    The direction loses nothing of Gaussian noise, the distances nothing of radial noise. One
    number stays as it is.
    """
    spread = np.sqrt(0.5 * (first.var(axis=0) + second.var(axis=0)))
    moving = np.flatnonzero((spread > 0.0) | (first[0] != second[0]))
    if moving.size <= 1:
        column = int(moving[0]) if moving.size else 0
        return [Statistic("the released number", lambda v: v[:, column])]
    # What never varies and differs proves the worlds apart: it is not scaled down.
    scale = np.where(spread > 0.0, spread, 1.0)
    a, b = first / scale, second / scale
    centres = a.mean(axis=0), b.mean(axis=0)
    covariance = 0.5 * (np.cov(a.T) + np.cov(b.T)) + RIDGE * np.eye(a.shape[1])
    way = np.linalg.solve(covariance, centres[0] - centres[1]) / scale

    def closer(values: Array) -> Array:
        distances = [np.linalg.norm(values / scale - centre, axis=1) for centre in centres]
        # Of one number it has two atoms, which rounding would smear out.
        return np.asarray(np.round(distances[1] - distances[0], 6))

    fisher = Statistic("Fisher's direction", lambda v: np.asarray(v @ way))
    radial = Statistic("the difference of the distances to the means", closer)
    return [fisher, radial] if pure else [fisher]


def chosen_event(
    first: Array, second: Array, n: int, score: Score, *, smooth: bool
) -> tuple[float, Event]:
    """The event whose counts in ``n`` runs a world should prove most, and how much.

    Parameters
    ----------
    first, second : ndarray of shape (n_pilot,)
        The statistic in both worlds.
    n : int
        Runs of a world that will be counted.
    score : callable
        What arrays of lower bounds of the one probability and upper bounds of the other prove.
    smooth : bool
        Whether shares may be those of fitted normal laws, where these fit.
    """
    size = min(first.size, second.size)
    quantiles = np.linspace(0.0, 1.0, N_THRESHOLDS)
    edges = np.unique(np.quantile(np.concatenate([first, second]), quantiles))
    cuts = 0.5 * (edges[:-1] + edges[1:]) if edges.size > 1 else edges
    smooth = smooth and _looks_normal(first) and _looks_normal(second)
    best = (-math.inf, Event(float(cuts[0]), above=True, likely=0))
    for likely, (p, q) in enumerate([(first, second), (second, first)]):
        for above in (True, False):
            shares = [_share(values, cuts, above=above, smooth=smooth) for values in (p, q)]
            low = _cautious(shares[0], -1, size, n)
            high = _cautious(shares[1], 1, size, n)
            scores = score(low, high)
            i = int(np.argmax(scores))
            if scores[i] > best[0]:
                best = (float(scores[i]), Event(float(cuts[i]), above=above, likely=likely))
    return best


def _looks_normal(values: Array) -> bool:
    """Whether skewness and kurtosis are within five standard errors of a normal law's."""
    if not np.ptp(values) > 0.0:
        return False
    n = values.size
    return bool(
        abs(stats.skew(values)) < 5.0 * math.sqrt(6.0 / n)
        and abs(stats.kurtosis(values)) < 5.0 * math.sqrt(24.0 / n)
    )


def _share(values: Array, cuts: Array, *, above: bool, smooth: bool) -> Array:
    """Share of the values inside each event; of a normal law fitted to them, without its scatter.

    A choice among hundreds of noisy shares would fall on the luckiest one.
    """
    if smooth:
        below = stats.norm.cdf(cuts, values.mean(), values.std())
    else:
        below = np.searchsorted(np.sort(values), cuts, side="right") / values.size
    return np.asarray(1.0 - below if above else below)


def _cautious(share: Array, sign: int, pilot: int, n: int) -> Array:
    """Share that the bound of ``n`` runs might come to: the pilot's error and the bound's width."""
    error = np.sqrt(np.maximum(share * (1.0 - share), 1.0 / pilot) * (1.0 / pilot + 5.0 / n))
    return np.clip(share + sign * (CAUTION * error + 5.0 / n), 0.0, 1.0)
