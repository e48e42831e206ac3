"""Noise that covers a known distance between the weights of neighbours, released on a grid."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast import _core
from dpsvm_fast._rounding import add_up, div_down
from dpsvm_fast.accounting import GaussianEvent, Noise, PrivacyEvent, PureEvent, gaussian_sigma
from dpsvm_fast.mechanisms._noise_grid import (
    flat_weights,
    grid_below,
    nearest_on_grid,
    release_on_grid,
    rounding_distance,
)

__all__ = ["WeightNoise"]


@dataclass(frozen=True)
class WeightNoise:
    """Gaussian or Gamma noise on weights at a given distance, calibrated to (epsilon, delta).

    Parameters
    ----------
    epsilon : float > 0
    delta : float in [0, 1)
        Positive with Gaussian noise, unused with Gamma noise.
    adjacency : {"add_remove", "replace_one"}
    noise : {"gaussian", "gamma"}
    exact : bool
        Whether Gaussian noise is drawn exactly on the grid. Otherwise noise is added in floats and
        the sum is rounded to the grid, which is post-processing.
    distance : float > 0
        Bound of the distance between the weights of neighbours.
    grid_share : float > 0 or None
        What rounding may cost, as a share of the distance: the grid is as coarse as that allows,
        and coarser where the noise would have too many steps. None: no rounding, for noise in
        floats.
    shape : tuple of int
        (number of scores, n_features, plus 1 with an intercept).
    """

    epsilon: float
    delta: float
    adjacency: str
    noise: str
    exact: bool
    distance: float
    grid_share: float | None
    shape: tuple[int, int]

    @property
    def n_weights(self) -> int:
        """Number of weights."""
        return math.prod(self.shape)

    @cached_property
    def grid(self) -> float | None:
        """Spacing of the released weights, a power of two; None when they are not rounded."""
        if self.grid_share is None:
            return None
        fine = self.grid_share * self.distance / math.sqrt(self.n_weights)
        # Twice what is known so far: the scale itself still grows with the grid.
        return grid_below(fine, 2.0 * self._multiplier * self.distance)

    @cached_property
    def rounding(self) -> float:
        """How far rounding before the noise can move two weight matrices apart."""
        if self.noise == "gamma" or not self.exact or self.grid is None:
            # Noise is added before the rounding, which is then post-processing.
            return 0.0
        return rounding_distance(self.grid, self.n_weights)

    @cached_property
    def total(self) -> float:
        """Bound of the distance between what two neighbours hand to the noise."""
        return add_up(self.distance, self.rounding)

    @cached_property
    def scale(self) -> float:
        """Standard deviation sigma of Gaussian noise, or the rate beta of Gamma noise."""
        if self.noise == "gaussian":
            return gaussian_sigma(self.epsilon, self.delta, self.total)
        return div_down(self.epsilon, self.total)

    @cached_property
    def _multiplier(self) -> float:
        """Root mean square of the noise in one weight at distance 1."""
        if self.noise == "gaussian":
            return gaussian_sigma(self.epsilon, self.delta)
        return math.sqrt(self.n_weights + 1.0) / self.epsilon

    @property
    def deviation(self) -> float:
        """Root mean square of the noise in one weight."""
        return self._multiplier * self.total

    @property
    def event(self) -> PrivacyEvent:
        """What a ledger records."""
        if self.noise == "gamma":
            return PureEvent(epsilon=self.epsilon, adjacency=self.adjacency)
        return GaussianEvent(sigma=self.scale, sensitivity=self.total, adjacency=self.adjacency)

    @property
    def record(self) -> Noise:
        """The noise as it is drawn, for the statement."""
        gaussian = self.noise == "gaussian"
        return Noise(
            distribution=self.noise,
            sampler="exact_grid" if gaussian and self.exact else "floating_point",
            sigma=self.scale if gaussian else None,
            beta=None if gaussian else self.scale,
            grid=self.grid,
            shape=self.shape,
        )

    def release(
        self, weights: NDArray[np.float64], source: _core.NoiseSource, n_threads: int
    ) -> NDArray[np.float64]:
        """Noisy copy of ``weights``, of their shape.

        Raises
        ------
        CertificationError
            ``weights`` are not finite numbers, so they cannot have been certified.
        """
        flat = flat_weights(weights, self.n_weights)
        return self._noisy(flat, source, n_threads).reshape(weights.shape)

    def release_many(
        self, weights: NDArray[np.float64], source: _core.NoiseSource, n_threads: int
    ) -> NDArray[np.float64]:
        """Independent releases of each of many weights, along the first axis.

        For audits: every one of them spends the budget.
        """
        n = len(weights)
        flat = flat_weights(weights, n * self.n_weights)
        if self.noise == "gamma":
            rows = flat.reshape(n, -1)
            noisy = [self._noisy(row, source, n_threads) for row in rows]
            return np.reshape(noisy, weights.shape)
        return self._noisy(flat, source, n_threads).reshape(weights.shape)

    def _noisy(
        self, flat: NDArray[np.float64], source: _core.NoiseSource, n_threads: int
    ) -> NDArray[np.float64]:
        """Numbers with noise; Gamma noise is one draw for all of them."""
        if self.noise == "gaussian" and self.exact and self.grid is not None:
            return release_on_grid(flat, self.scale, self.grid, source, n_threads)
        draw = source.gamma_ball if self.noise == "gamma" else source.gaussian
        released = flat + draw(flat.size, self.scale, n_threads)
        return released if self.grid is None else nearest_on_grid(released, self.grid)
