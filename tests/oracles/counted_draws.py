"""Whether counted draws may come from a law on the integers.

Pearson's chi-square over the cells with at least 10 expected draws, at level ALPHA / 2, and the
count of all other cells together, at level ALPHA / 2 by its exact Poisson bound.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray
from scipy import stats

Array = NDArray[Any]

# False-alarm probability: how often a right law is refused. With cells of 10 expected draws the
# tail of Pearson's statistic is up to ten times that: who calls this fixes the draws.
ALPHA = 1e-6


def fits(counts: Array, law: Array) -> bool:
    """Whether the counts may be draws of the law."""
    expected = law * counts.sum()
    usual = expected >= 10.0
    seldom, rare = counts[~usual].sum(), expected[~usual].sum()
    # Beyond its mean by one a binomial tail is at most the Poisson one (Anderson, Samuels 1967).
    if seldom > stats.poisson.isf(ALPHA / 2, rare) + 1:
        return False
    if usual.sum() < 2:
        return True
    statistic = ((counts[usual] - expected[usual]) ** 2 / expected[usual]).sum()
    return bool(statistic <= stats.chi2.isf(ALPHA / 2, usual.sum() - 1))
