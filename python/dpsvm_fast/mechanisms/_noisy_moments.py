r"""A symmetric matrix of second moments of private rows, with symmetric Gaussian noise.

Proved in docs/proofs/private_pca.md, sections "Second moments" and "Symmetric noise". One row u of
norm at most 1 moves :math:`\sum_i u_i u_i^\top` by :math:`\|u\|^2 \le 1` in Frobenius norm. A
replacement moves it by at most :math:`\sqrt2`, because

.. math:: \|u u^\top - v v^\top\|_F^2 = \|u\|^4 + \|v\|^4 - 2 \langle u, v \rangle^2 \le 2.

In the space of symmetric matrices with that norm the isotropic Gaussian has variance
:math:`\sigma^2` on the diagonal and :math:`\sigma^2 / 2` off it (Dwork, Talwar, Thakurta and Zhang,
STOC 2014, with half the variance off the diagonal).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast import _core
from dpsvm_fast._rounding import mul_up, sqrt_down, sqrt_up
from dpsvm_fast.accounting import PrivacyEvent
from dpsvm_fast.accounting.words import PRODUCTS
from dpsvm_fast.mechanisms._noise_grid import grid_below, release_on_grid
from dpsvm_fast.mechanisms._noisy_sum import NoisySum

__all__ = ["MOST_FEATURES", "SecondMoments"]

# Rounding to the grid costs at most this share of the sensitivity, unless the noise would then
# have too many steps.
GRID_SHARE = 1e-6
# Clamped to 2**51 grid steps, an exact entry and its rounded one are less than 5/8 of a step apart:
# 1/8 for the sum's conversion to a float, 1/2 for the grid. Two of them, generously.
ROUNDED_STEPS = 2.0
# A matrix of 8 GB, of which several are needed: beyond, memory would surely be lacking, and only
# once the budget is spent.
MOST_FEATURES = 2**15


@dataclass(frozen=True, kw_only=True)
class SecondMoments:
    """Release of the second moments of rows of norm at most 1; subclasses process it further.

    Parameters
    ----------
    n_features : int
    adjacency : {"add_remove", "replace_one"}
    noise_grid : {"exact", "float"}
    mu : float > 0
        Parameter of the Gaussian noise.

    Notes
    -----
    Guarantees: ``noisy`` is a Gaussian mechanism with parameter ``mu`` for exact sums over rows of
    norm at most 1.
    """

    n_features: int
    adjacency: str
    noise_grid: str
    mu: float

    # The part's name in a statement.
    part_name: ClassVar[str]

    def __post_init__(self) -> None:
        """Refuses matrices that no machine holds several of."""
        if self.n_features > MOST_FEATURES:
            raise ValueError(
                f"X: got {self.n_features} features, expected at most {MOST_FEATURES} where a "
                "matrix of second moments is released"
            )

    @cached_property
    def sum(self) -> NoisySum:
        """The noise and what it covers; sigma is that of the diagonal."""
        d = self.n_features
        factor = 1.0 if self.adjacency == "add_remove" else sqrt_up(2.0)
        grid = None
        if self.noise_grid == "exact":
            grid = grid_below(GRID_SHARE / d, 2.0 * factor / self.mu)
        return NoisySum(
            name=self.part_name,
            what=PRODUCTS,
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
    def spectral_noise(self) -> float:
        """About the spectral norm of the noise."""
        return math.sqrt(2.0 * self.n_features) * self.sum.scale

    def noisy(
        self, moments: NDArray[np.float64], source: _core.NoiseSource, n_threads: int
    ) -> NDArray[np.float64]:
        """Diagonal and upper triangle with noise, mirrored.

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
            Exactly symmetric.
        """
        return np.asarray(self.noisy_many(moments, 1, source, n_threads)[0])

    def noisy_many(
        self, moments: NDArray[np.float64], n: int, source: _core.NoiseSource, n_threads: int
    ) -> NDArray[np.float64]:
        """``n`` independent noisy matrices, shape (n, n_features, n_features).

        More than one for audits: every one of them spends the budget.
        """
        d = self.n_features
        rows, columns = np.triu_indices(d, 1)
        # Upwards: a little more noise than isotropic.
        off_scale = self.sum.scale / sqrt_down(2.0)
        off_scale = math.nextafter(off_scale, math.inf)
        flat = np.tile(moments[rows, columns], n)
        if self.sum.grid is None:
            off = flat + source.gaussian(flat.size, off_scale, n_threads)
        else:
            off = release_on_grid(flat, off_scale, self.sum.grid, source, n_threads)
        diagonal = np.ascontiguousarray(np.diagonal(moments))
        noisy = np.zeros((n, d, d))
        noisy[:, np.arange(d), np.arange(d)] = self.sum.release_many(diagonal, n, source, n_threads)
        noisy[:, rows, columns] = off.reshape(n, -1)
        noisy[:, columns, rows] = off.reshape(n, -1)
        return noisy
