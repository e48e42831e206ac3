r"""The noisy matrix of second moments of private rows, and the whitening that follows from it.

Proved in docs/proofs/auto_pipeline.md, section "Whitening". One row u of norm at most 1 moves
:math:`\sum_i u_i u_i^\top` by :math:`\|u\|^2 \le 1` in Frobenius norm. A replacement moves it by at
most :math:`\sqrt2`, because

.. math:: \|u u^\top - v v^\top\|_F^2 = \|u\|^4 + \|v\|^4 - 2 \langle u, v \rangle^2 \le 2.

In the space of symmetric matrices with that norm the isotropic Gaussian has variance
:math:`\sigma^2` on the diagonal and :math:`\sigma^2 / 2` off it (Dwork, Talwar, Thakurta and Zhang,
STOC 2014, with half the variance off the diagonal).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast._core import NoiseSource
from dpsvm_fast._rounding import mul_up, sqrt_down, sqrt_up
from dpsvm_fast.accounting import PrivacyEvent
from dpsvm_fast.mechanisms._noise_grid import grid_below, release_on_grid
from dpsvm_fast.mechanisms._noisy_sum import NoisySum

__all__ = ["NoisyMoments"]

# Rounding to the grid costs at most this share of the sensitivity, unless the noise would then
# have too many steps.
GRID_SHARE = 1e-6
# Clamped to 2**51 grid steps, an exact entry and its rounded one are less than 5/8 of a step apart:
# 1/8 for the sum's conversion to a float, 1/2 for the grid. Two of them, generously.
ROUNDED_STEPS = 2.0
# Whitening needs this many rows a squared dimension, and noise at most this share of the rows.
ROWS_A_SQUARE, LARGEST_NOISE = 0.5, 0.15
# The ridge below the noisy eigenvalues, in units of the norm of the noise. From a quarter to a half
# most data sets do alike; small ones do better with less.
RIDGE = 0.35


@dataclass(frozen=True, kw_only=True)
class NoisyMoments:
    """Release of the second moments of rows of norm at most 1.

    Parameters
    ----------
    n_features : int
    adjacency : {"add_remove", "replace_one"}
    noise_grid : {"exact", "float"}
    mu : float > 0
        Parameter of the Gaussian noise.

    Notes
    -----
    Guarantees: ``release`` is a Gaussian mechanism with parameter ``mu`` for exact sums over rows
    of norm at most 1; everything else it does is post-processing.
    """

    n_features: int
    adjacency: str
    noise_grid: str
    mu: float

    @cached_property
    def sum(self) -> NoisySum:
        """The noise and what it covers; sigma is that of the diagonal."""
        d = self.n_features
        factor = 1.0 if self.adjacency == "add_remove" else sqrt_up(2.0)
        grid = None
        if self.noise_grid == "exact":
            grid = grid_below(GRID_SHARE / d, 2.0 * factor / self.mu)
        return NoisySum(
            name="whitening",
            what="the sum of the rows' outer products with themselves",
            adjacency=self.adjacency,
            clip_norm=1.0,
            relation_factor=factor,
            shape=(d, d),
            mu=self.mu,
            grid=grid,
            rounding=0.0 if grid is None else mul_up(ROUNDED_STEPS * grid, float(d)),
        )

    @property
    def event(self) -> PrivacyEvent:
        """What a ledger records."""
        return self.sum.event

    @property
    def ridge(self) -> float:
        """What is added to every eigenvalue: a part of the typical spectral norm of the noise."""
        return RIDGE * self.sum.scale * math.sqrt(2.0 * self.n_features)

    def worthwhile(self, count: float) -> bool:
        """Whether the noise would be small beside the moments of so many rows."""
        noise = math.sqrt(2.0 * self.n_features) * self.sum.scale
        return count >= ROWS_A_SQUARE * self.n_features**2 and noise <= LARGEST_NOISE * count

    def release(
        self, moments: NDArray[np.float64], source: NoiseSource, n_threads: int
    ) -> NDArray[np.float64]:
        r"""Whitening matrix :math:`(A + r I)^{-1/2}`, scaled to spectral norm 1.

        Parameters
        ----------
        moments : ndarray of shape (n_features, n_features)
            Symmetric; entries that are not exact are rounded to nearest.
        source : NoiseSource
        n_threads : int
            Does not change the result.

        Returns
        -------
        ndarray of shape (n_features, n_features)
            Symmetric and positive definite.
        """
        values, vectors = np.linalg.eigh(self._noisy(moments, source, n_threads))
        roots = np.sqrt(np.maximum(values, 0.0) + self.ridge)
        whitening = (vectors * (roots.min() / roots)) @ vectors.T
        return np.asarray(0.5 * (whitening + whitening.T))

    def _noisy(
        self, moments: NDArray[np.float64], source: NoiseSource, n_threads: int
    ) -> NDArray[np.float64]:
        """Diagonal and upper triangle with noise, mirrored."""
        above = np.triu_indices(self.n_features, 1)
        # Upwards: a little more noise than isotropic.
        off_scale = self.sum.scale / sqrt_down(2.0)
        off_scale = math.nextafter(off_scale, math.inf)
        flat = np.ascontiguousarray(moments[above])
        if self.sum.grid is None:
            off = flat + source.gaussian(flat.size, off_scale, n_threads)
        else:
            off = release_on_grid(flat, off_scale, self.sum.grid, source, n_threads)
        diagonal = np.ascontiguousarray(np.diagonal(moments))
        noisy = np.diag(self.sum.release(diagonal, source, n_threads))
        noisy[above] = off
        noisy[above[::-1]] = off
        return noisy
