r"""Laws of privacy losses with finitely many atoms: sums of them, and fewer atoms for the same law.

When a sum would have too many atoms, atoms are moved to a grid so that the mass and the mean of
:math:`e^{-L}` stay the same. What is integrated over the law is a supremum of linear functions of
:math:`u = e^{-L}`, hence convex, so this can only enlarge delta (Jensen). All rounding is upwards.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

__all__ = ["ERROR", "Atoms", "few_sizes", "randomised_response_losses", "sum_of_losses", "thinned"]

# Sizes of pure events that are told apart, and of how many the best ones to merge are looked for.
MOST_SIZES, MANY_SIZES = 64, 256
# Bound of the relative error of one function of scipy.special or numpy, generously.
ERROR = 4e-15

Atoms = tuple[NDArray[np.float64], NDArray[np.float64]]


def few_sizes(pure: tuple[tuple[float, int], ...]) -> list[tuple[float, int]]:
    """Pure events of at most ``MOST_SIZES`` sizes, each at least as large as the one it is for."""
    groups = _rounded_up(sorted(pure)) if len(pure) > MANY_SIZES else sorted(pure)
    while len(groups) > MOST_SIZES:
        costs = [n * (groups[i + 1][0] - size) for i, (size, n) in enumerate(groups[:-1])]
        i = costs.index(min(costs))
        groups[i : i + 2] = [(groups[i + 1][0], groups[i][1] + groups[i + 1][1])]
    return groups


def _rounded_up(groups: list[tuple[float, int]]) -> list[tuple[float, int]]:
    """Sorted pure events of at most ``MANY_SIZES`` sizes: nearly equal ones get the largest.

    Ratios that count as nearly equal grow until there are few enough.
    """
    sizes = np.array([size for size, _ in groups])
    counts = [n for _, n in groups]
    logs = np.log(np.maximum(sizes, np.finfo(float).tiny))
    width = max(1e-4, float(np.ptp(logs)) / 1e6)
    while True:
        bins = np.floor((logs - logs[0]) / width)
        ends = np.flatnonzero(np.append(bins[1:] != bins[:-1], True)).tolist()
        if len(ends) <= MANY_SIZES:
            break
        width *= 2.0
    merged, start = [], 0
    for end in ends:
        merged.append((float(sizes[end]), sum(counts[start : end + 1])))
        start = end + 1
    return merged


@lru_cache(maxsize=64)
def randomised_response_losses(groups: tuple[tuple[float, int], ...], cap: int) -> Atoms:
    """Atoms of the summed loss of ``groups`` of (epsilon, count), masses rounded up."""
    atoms: Atoms = (np.zeros(1), np.ones(1))
    for size, count in few_sizes(groups):
        atoms = sum_of_losses(atoms, _binomial_losses(size, count), cap)
    return atoms


def sum_of_losses(one: Atoms, other: Atoms, cap: int) -> Atoms:
    """Atoms of the sum of two independent losses, no more than ``cap`` of them."""
    losses, masses = one
    more, their_masses = other
    if losses.size * more.size <= cap:
        return (
            np.add.outer(losses, more).ravel(),
            np.multiply.outer(masses, their_masses).ravel() * (1.0 + ERROR),
        )
    span = float(np.ptp(losses)) + float(np.ptp(more))
    width = span / (cap - 4)
    low, masses = _on_grid(losses, masses, width)
    their_low, their_masses = _on_grid(more, their_masses, width)
    # A sum of non-negative products: its relative error grows with the number of terms.
    masses = np.asarray(np.convolve(masses, their_masses) * (1.0 + cap * ERROR), dtype=np.float64)
    steps = np.arange(masses.size, dtype=np.float64)
    return np.asarray(low + their_low + width * steps, dtype=np.float64), masses


def thinned(atoms: Atoms, negligible: float) -> tuple[Atoms, float]:
    """Atoms without those at the ends that carry no more than ``negligible`` mass.

    What is cut off below is added to the least atom that stays, a larger loss; returned besides is
    the mass that was cut off above, whose loss has to count as infinite.
    """
    losses, masses = atoms
    order = np.argsort(losses, kind="stable")
    losses, masses = losses[order], masses[order]
    below = np.cumsum(masses)
    above = np.cumsum(masses[::-1])[::-1]
    first = int(np.searchsorted(below, negligible, side="right"))
    last = int(np.searchsorted(-above, -negligible, side="left"))
    if first >= last:
        return atoms, 0.0
    cut = float(above[last]) if last < losses.size else 0.0
    kept = masses[first:last].copy()
    kept[0] += below[first - 1] if first else 0.0
    return (losses[first:last], kept * (1.0 + losses.size * ERROR)), cut * (1.0 + ERROR)


def _binomial_losses(size: float, count: int) -> Atoms:
    """Atoms of ``count`` independent randomised responses of one size."""
    minus = np.arange(count + 1, dtype=np.float64)
    losses = (count - 2.0 * minus) * size
    logs = gammaln(count + 1.0) - gammaln(minus + 1.0) - gammaln(count - minus + 1.0)
    logs = logs - minus * size - count * math.log1p(math.exp(-size))
    # The absolute error of a logarithm is the relative error of its mass.
    widen = ERROR * (1.0 + 3.0 * float(gammaln(count + 1.0)) + count * (size + 1.0))
    return losses, np.exp(np.minimum(logs + widen, 0.0))


def _on_grid(
    losses: NDArray[np.float64], masses: NDArray[np.float64], width: float
) -> tuple[float, NDArray[np.float64]]:
    """Move atoms to multiples of ``width`` above the least, keeping mass and mean of exp(-loss).

    Returns the position of the first grid point and the masses of all.
    """
    low = float(losses.min())
    steps = (losses - low) / width
    left = np.floor(steps)
    # Distance to the point above, in (0, width]; the share below follows from the two conditions.
    ahead = (left + 1.0 - steps) * width
    share = np.expm1(ahead) / math.expm1(width)
    # Less below is the safe side: the mean of exp(-loss) then falls.
    doubt = ERROR * (1.0 + float(np.abs(losses).max()) / width)
    share = np.clip(share - doubt, 0.0, 1.0)
    left = left.astype(np.intp)
    size = int(left.max()) + 2
    coarse = np.bincount(left, masses * share, size)
    coarse += np.bincount(left + 1, masses * (1.0 - share), size)
    return low, np.asarray(coarse * (1.0 + losses.size * ERROR), dtype=np.float64)
