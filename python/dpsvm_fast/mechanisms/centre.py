r"""The noisy mean of private rows, with their noisy number, in one release.

Proved in docs/proofs/auto_pipeline.md, sections "Exact sums" and "Centre". With rows of norm at
most 1, one record moves :math:`(\sum_i u_i, n/2)` by at most :math:`\sqrt{1 + 1/4}`: the number of
rows costs an eighth more noise instead of a budget of its own. Where it is public
(``replace_one``), the sum alone is released, and a replacement moves it by at most 2.

Sums come from rows whose entries are multiples of 2**-20 and are exact; the noise is drawn exactly
on a grid at least as coarse.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast import _core
from dpsvm_fast._rounding import sqrt_up
from dpsvm_fast.accounting import PrivacyEvent
from dpsvm_fast.accounting.words import summed
from dpsvm_fast.mechanisms._noise_grid import grid_of_sums
from dpsvm_fast.mechanisms._noisy_sum import NoisySum
from dpsvm_fast.mechanisms._settings import RELATION_FACTOR

__all__ = ["NoisyMean", "ReleasedMean"]

# Rows, hence their sums and a released centre, are multiples of this.
ROW_GRID = 2.0**-20
# The number of rows beside the sum of rows of norm 1. A smaller factor makes the number noisier,
# a larger one the sum.
COUNT_SCALE = 0.5


@dataclass(frozen=True, eq=False)
class ReleasedMean:
    """What was released, and what follows from it.

    Parameters
    ----------
    count : float >= 1
        The noisy number of rows, or the public one.
    point : ndarray of shape (n_features,)
        The noisy mean, shrunk towards zero; a multiple of 2**-20 in every entry.
    """

    count: float
    point: NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class NoisyMean:
    """Release of the sum of rows of norm at most 1 and of their number.

    Parameters
    ----------
    n_features : int
    adjacency : {"add_remove", "replace_one"}
    noise_grid : {"exact", "float"}
        How Gaussian noise is drawn.
    mu : float > 0 or None
        Parameter of Gaussian noise.
    epsilon : float > 0 or None
        Of Gamma noise, which is pure; exactly one of the two.

    Notes
    -----
    Guarantees: ``release`` is a Gaussian mechanism with parameter ``mu``, or epsilon-private, for
    exact sums of rows of norm at most 1.
    """

    n_features: int
    adjacency: str
    noise_grid: str
    mu: float | None = None
    epsilon: float | None = None

    @property
    def counts(self) -> bool:
        """Whether the number of rows is private and released with noise."""
        return self.adjacency == "add_remove"

    @cached_property
    def sum(self) -> NoisySum:
        """The noise and what it covers."""
        size = self.n_features + self.counts
        clip_norm = sqrt_up(1.0 + COUNT_SCALE**2) if self.counts else 1.0
        factor = float(RELATION_FACTOR[self.adjacency])
        grid, rounding = None, 0.0
        if self.mu is not None and self.noise_grid == "exact":
            grid, rounding = grid_of_sums(ROW_GRID, 2.0 * factor * clip_norm / self.mu, size)
        return NoisySum(
            name="centre",
            what=summed("centre", self.adjacency),
            adjacency=self.adjacency,
            clip_norm=clip_norm,
            relation_factor=factor,
            shape=(size,),
            mu=self.mu,
            epsilon=self.epsilon,
            grid=grid,
            rounding=rounding,
        )

    @property
    def event(self) -> PrivacyEvent:
        """What a ledger records."""
        return self.sum.event

    def release(
        self, total: NDArray[np.float64], n_rows: int, source: _core.NoiseSource, n_threads: int
    ) -> ReleasedMean:
        """Noisy mean of ``n_rows`` rows with the exact sum ``total``."""
        exact = self.exact(total, n_rows)
        return self.finished(self.sum.release(exact, source, n_threads), n_rows)

    def exact(self, total: NDArray[np.float64], n_rows: int) -> NDArray[np.float64]:
        """What noise is added to: the sum and, where it is private, half the number of rows."""
        return np.append(total, COUNT_SCALE * n_rows) if self.counts else total

    def finished(self, noisy: NDArray[np.float64], n_rows: int) -> ReleasedMean:
        """Post-processing; the number of rows is used only where it is public."""
        if not self.counts:
            return self._mean(noisy, float(n_rows))
        return self._mean(noisy[:-1], max(1.0, float(noisy[-1]) / COUNT_SCALE))

    def _mean(self, total: NDArray[np.float64], count: float) -> ReleasedMean:
        r"""Post-processing of a noisy sum.

        Of its squared length, :math:`d \sigma^2` is noise on average; the mean is shrunk by that
        share (James and Stein) and never longer than the rows it is a mean of.
        """
        squared = float(total @ total)
        noise = self.n_features * self.sum.deviation**2
        kept = max(0.0, 1.0 - noise / squared) if squared > 0.0 else 0.0
        mean = total * (kept / count)
        length = float(np.linalg.norm(mean))
        if not math.isfinite(length):
            mean, length = np.zeros_like(total), 0.0
        mean = mean / max(1.0, length)
        return ReleasedMean(count=count, point=np.trunc(mean / ROW_GRID) * ROW_GRID)
