r"""Noisy means and mean squares of features with public bounds, in one release.

Proved in docs/proofs/private_scaling.md, section "Moments from public bounds". Every entry is
mapped from its bounds to z in [-1, 1], on a grid. A record contributes, for each of d features,
the pair

.. math:: \varphi(z) = \left(z, \; b\, (z^2 - t)\right), \qquad b = 11/8, \quad t = 49/64,

and, where the number of records is private, the constant :math:`a \approx d^{1/4}`. The length of
a pair is largest at z = 0, where all of it is the square's, and hardly less at the ends, where it
is the mean's: one budget pays for both. One record more or fewer moves the sum by at most
:math:`\sqrt{d\,(539/512)^2 + a^2}`, an exchange by at most :math:`2 \sqrt d`, the distance of
:math:`\varphi(1)` and :math:`\varphi(-1)`.

Of all pairs :math:`(z, b (z^2 - t))`, :math:`b = \sqrt 2` with :math:`t = 3/4` has the smallest sum
of the noise variances of mean and mean square; the numbers above are within half a percent of it,
and make the sums multiples of 2**-23.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast import _core
from dpsvm_fast._rounding import div_up, fraction_up, mul_up, sqrt_up
from dpsvm_fast.accounting import PrivacyEvent
from dpsvm_fast.accounting.words import summed
from dpsvm_fast.mechanisms._noise_grid import grid_of_sums
from dpsvm_fast.mechanisms._noisy_sum import NoisySum

__all__ = ["NoisyColumnMoments", "ReleasedColumns"]

# Of the entries and of their squares: what the compiled sums are multiples of.
MOMENT_GRID = 2.0**-20
# b, t, and their product: the largest length of a pair.
SQUARE_WEIGHT, SQUARE_OFFSET, PAIR_NORM = Fraction(11, 8), Fraction(49, 64), Fraction(539, 512)
# What the weighted sums are multiples of, and how many of them a float holds exactly.
SUM_GRID, MOST_UNITS = 2.0**-23, 2**53
# Variance of the uniform law on [-1, 1]: what a feature is taken to have where noise drowns it.
UNIFORM_VARIANCE = 1.0 / 3.0
# No feature is taken to be narrower than 2**-10 of half its bounds.
SMALLEST_VARIANCE = 2.0**-20
# A noisy variance is believed from that many standard deviations of its noise on.
BELIEVED = 2.0


@dataclass(frozen=True, eq=False)
class ReleasedColumns:
    """What follows from the release, in units of half the width of the bounds, from their middle.

    Parameters
    ----------
    count : float >= 1
        The noisy number of records, or the public one.
    mean : ndarray of shape (n_features,)
        In [-1, 1].
    variance : ndarray of shape (n_features,) or None
        In [2**-20, 1]; None where squares were not released.
    """

    count: float
    mean: NDArray[np.float64]
    variance: NDArray[np.float64] | None


@dataclass(frozen=True, kw_only=True)
class NoisyColumnMoments:
    """Release of the sums of bounded entries, of their squares, and of the number of records.

    Parameters
    ----------
    n_features : int
    adjacency : {"add_remove", "replace_one"}
        With ``replace_one`` the number of records is public and not released.
    noise_grid : {"exact", "float"}
        How Gaussian noise is drawn.
    with_std : bool
        Whether squares are released at all.
    mu : float > 0 or None
        Parameter of Gaussian noise.
    epsilon : float > 0 or None
        Of Gamma noise, which is pure; exactly one of the two.

    Notes
    -----
    Guarantees: ``release`` is a Gaussian mechanism with parameter ``mu``, or epsilon-private, for
    the exact sums of ``_core.column_moments_dense``; everything else it does is post-processing.
    """

    n_features: int
    adjacency: str
    noise_grid: str
    with_std: bool = True
    mu: float | None = None
    epsilon: float | None = None

    @property
    def counts(self) -> bool:
        """Whether the number of records is private and released with noise."""
        return self.adjacency == "add_remove"

    @property
    def count_weight(self) -> Fraction:
        """a: the fourth root of the number of features, rounded down to a multiple of 2**-10.

        It has 1 / (1 + sqrt(d)) of the squared sensitivity, which makes the variance of a mean
        square near 0 smallest.
        """
        return Fraction(math.isqrt(math.isqrt(self.n_features << 40)), 1024)

    @cached_property
    def sum(self) -> NoisySum:
        """The noise and what it covers."""
        d, squares, counts = self.n_features, self.with_std, self.counts
        size = d * (1 + squares) + counts
        pair = PAIR_NORM**2 if squares else Fraction(1)
        clip_norm = sqrt_up(fraction_up(d * pair + (self.count_weight**2 if counts else 0)))
        factor = 1.0
        if not counts:
            factor = div_up(2.0, float(PAIR_NORM)) if squares else 2.0
        grid, rounding = None, 0.0
        if self.mu is not None and self.noise_grid == "exact":
            grid, rounding = grid_of_sums(SUM_GRID, 2.0 * mul_up(factor, clip_norm) / self.mu, size)
        return NoisySum(
            name="moments" if squares else "means",
            what=summed("moments" if squares else "means", self.adjacency),
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
        self,
        first: NDArray[np.int64],
        second: NDArray[np.int64],
        n_rows: int,
        source: _core.NoiseSource,
        n_threads: int,
    ) -> ReleasedColumns:
        """Means and variances from the exact sums of ``n_rows`` records.

        Parameters
        ----------
        first, second : ndarray of shape (n_features,)
            Sums of the entries and of their squares, in units of 2**-20.
        n_rows : int
            Below 2**32.
        source : NoiseSource
        n_threads : int
            Does not change the result.
        """
        exact = self.exact(first, second, n_rows)
        return self.finished(self.sum.release(exact, source, n_threads), n_rows)

    def finished(self, noisy: NDArray[np.float64], n_rows: int) -> ReleasedColumns:
        """Post-processing; the number of rows is used only where it is public."""
        d = self.n_features
        count = float(n_rows)
        if self.counts:
            count = max(1.0, float(noisy[-1]) / float(self.count_weight))
        noise = self.sum.deviation / count
        # Towards the middle of the bounds by the share of noise, as if means were uniform.
        kept = UNIFORM_VARIANCE / (UNIFORM_VARIANCE + noise**2)
        raw = np.clip(noisy[:d] / count, -1.0, 1.0)
        mean = np.asarray(raw * kept)
        if not self.with_std:
            return ReleasedColumns(count, mean, None)
        squares = float(SQUARE_OFFSET) + noisy[d : 2 * d] / (count * float(SQUARE_WEIGHT))
        return ReleasedColumns(count, mean, self._variance(mean, np.clip(squares, 0.0, 1.0), noise))

    def exact(
        self, first: NDArray[np.int64], second: NDArray[np.int64], n_rows: int
    ) -> NDArray[np.float64]:
        """The sum of all contributions: multiples of 2**-23, clamped to those a float holds."""
        parts = [first * 8]
        if self.with_std:
            offset = int(PAIR_NORM * 2**23) * n_rows
            parts.append(second * int(SQUARE_WEIGHT * 8) - offset)
        units = np.clip(np.concatenate(parts), -MOST_UNITS, MOST_UNITS).astype(np.float64)
        if self.counts:
            rows = int(self.count_weight * 2**23) * n_rows
            units = np.append(units, float(min(rows, MOST_UNITS)))
        return np.asarray(units * SUM_GRID)

    def _variance(
        self, mean: NDArray[np.float64], squares: NDArray[np.float64], noise: float
    ) -> NDArray[np.float64]:
        r"""Mean squares less squared means, never below what the noise allows to tell.

        The noise in a variance has the standard deviation :math:`\nu \sqrt{1/b^2 + 4 m^2 + (t - s +
        2 m^2)^2 / a^2}`, with :math:`\nu` that of a sum over the count, m the mean and s the mean
        square; the last term is that of the count. Below twice it a variance is taken to be twice
        it, so that noise never widens a column, and where that is more than the variance of the
        uniform law the noise says nothing and the uniform law is taken.
        """
        of_count = np.zeros_like(mean)
        if self.counts:
            of_count = (float(SQUARE_OFFSET) - squares + 2.0 * mean**2) / float(self.count_weight)
        told = noise * np.sqrt(1.0 / float(SQUARE_WEIGHT) ** 2 + 4.0 * mean**2 + of_count**2)
        level = BELIEVED * told
        found = np.maximum(squares - mean**2, np.maximum(level, SMALLEST_VARIANCE))
        return np.where(level < UNIFORM_VARIANCE, found, UNIFORM_VARIANCE)
