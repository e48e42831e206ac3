r"""The noise on sums of clipped gradients, calibrated to (epsilon, delta).

Proved in docs/proofs/gradient_perturbation.md. T full sums are one Gaussian mechanism of
sensitivity :math:`\sqrt T f R'` ("Full batch"), with f = 1 for ``add_remove``, 2 for
``replace_one`` and R' the clip norm with what rounding adds ("Rounding"). Poisson samples are
composed by the accountant of docs/proofs/accountant.md ("Poisson sampling").
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from dpsvm_fast import _core
from dpsvm_fast._rounding import add_up, div_down, mul_up, sqrt_up
from dpsvm_fast.accounting import (
    GaussianEvent,
    LastIterate,
    PrivacyEvent,
    ReleasePart,
    SubsampledGaussianEvent,
    gaussian_sigma,
)
from dpsvm_fast.accounting.subsampled import subsampled_gaussian_noise_multiplier
from dpsvm_fast.accounting.words import GRADIENTS
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.mechanisms._noise_grid import grid_below
from dpsvm_fast.mechanisms._settings import LARGEST, RELATION_FACTOR

__all__ = ["ClippedSums", "sum_grid", "training_part"]

# Steps of the grid in one standard deviation of the noise, unless the grid itself would then be
# more than this share of the clip norm; rounding to it costs up to 34 times that.
NOISE_STEPS = 2.0**36
GRID_SHARE = 2e-5


def sum_grid(clip: float, sigma: float, n_weights: int) -> float:
    """Spacing of noisy sums for a noise of about ``sigma``, a power of two."""
    fine = min(sigma / NOISE_STEPS, GRID_SHARE * clip / math.sqrt(n_weights))
    # Twice what is known so far: the scale itself still grows with the grid.
    return grid_below(fine, 2.0 * sigma)


# Asked for before and after data are seen.
_noise_multiplier = lru_cache(maxsize=64)(subsampled_gaussian_noise_multiplier)


@dataclass(frozen=True)
class ClippedSums:
    """Gaussian noise on each of many sums to which a record contributes a bounded amount.

    Parameters
    ----------
    epsilon : float > 0
    delta : float in (0, 1)
    adjacency : {"add_remove", "replace_one"}
    exact : bool
        Whether noise is drawn exactly on a grid.
    clip : float > 0
        R, bound of the norm of what one record contributes to a sum, before rounding.
    shape : tuple of int
        Of a sum: (number of scores, n_features, plus 1 with an intercept).
    n_steps : int >= 1
    sampling_rate : float in (0, 1]
        Probability with which a record is in a sum; 1 is every record in every sum.

    Raises
    ------
    InvalidParameterError
        Rounding would cost more than the contributions themselves.
    """

    epsilon: float
    delta: float
    adjacency: str
    exact: bool
    clip: float
    shape: tuple[int, int]
    n_steps: int
    sampling_rate: float

    def __post_init__(self) -> None:
        """Refuses a budget so small that its noise cannot be drawn on a useful grid."""
        too_coarse = self.grid is not None and self.grid > LARGEST
        if too_coarse or self.contribution > 2.0 * self.clip:
            raise InvalidParameterError(
                f"epsilon: got {self.epsilon!r} with delta {self.delta!r}, expected a budget whose "
                "noise can be drawn on a grid finer than the clipped gradients; use larger values "
                "or noise_grid='float'"
            )

    @property
    def n_weights(self) -> int:
        """Number of weights."""
        return math.prod(self.shape)

    @property
    def factor(self) -> int:
        """By how many contributions the sums of neighbours differ."""
        return RELATION_FACTOR[self.adjacency]

    @cached_property
    def _multiplier(self) -> float:
        """Standard deviation of the noise at a contribution of 1."""
        if self.sampling_rate == 1.0:
            return gaussian_sigma(self.epsilon, self.delta, self._moved(1.0))
        return _noise_multiplier(
            self.epsilon, self.delta, self.sampling_rate, self.n_steps, self.adjacency
        )

    def _moved(self, contribution: float) -> float:
        """Distance of all full sums of neighbours together, rounded up."""
        return mul_up(sqrt_up(float(self.n_steps)), self.factor * contribution)

    @cached_property
    def grid(self) -> float | None:
        """Spacing of the noisy sums; None where noise is drawn in floating point."""
        if not self.exact:
            return None
        return sum_grid(self.clip, self._multiplier * self.clip, self.n_weights)

    @cached_property
    def rounding(self) -> float:
        """What rounding adds to a contribution."""
        distance = _core.clipped_sum_distance(self.clip, self.n_weights, self.grid)
        return max(0.0, add_up(distance, -self.clip))

    @cached_property
    def contribution(self) -> float:
        """R': bound of what one record contributes, with all rounding."""
        return add_up(self.clip, self.rounding)

    @cached_property
    def sigma(self) -> float:
        """Standard deviation of the noise on each number of each sum."""
        if self.sampling_rate == 1.0:
            return gaussian_sigma(self.epsilon, self.delta, self._moved(self.contribution))
        return mul_up(self._multiplier, self.contribution)

    @property
    def event(self) -> PrivacyEvent:
        """What a ledger records."""
        if self.sampling_rate == 1.0:
            return GaussianEvent(
                sigma=self.sigma,
                sensitivity=self._moved(self.contribution),
                adjacency=self.adjacency,
            )
        return SubsampledGaussianEvent(
            noise_multiplier=div_down(self.sigma, self.contribution),
            sampling_rate=self.sampling_rate,
            n_steps=self.n_steps,
            adjacency=self.adjacency,
        )

    @property
    def part(self) -> ReleasePart:
        """The noise as it is drawn, for the statement."""
        return training_part(self)


def training_part(sums: Any, last_iterate: LastIterate | None = None) -> ReleasePart:
    """The noise on the sums of a run as it is drawn, for the statement.

    ``sums`` are ClippedSums, or those of which the last iterate alone is released.
    """
    return ReleasePart(
        name="training",
        what=GRADIENTS,
        distribution="gaussian",
        sampler="exact_grid" if sums.exact else "floating_point",
        clip_norm=sums.clip,
        rounding=sums.rounding,
        contribution=sums.contribution,
        relation_factor=float(sums.factor),
        sigma=sums.sigma,
        beta=None,
        grid=sums.grid,
        shape=sums.shape,
        n_steps=sums.n_steps,
        sampling_rate=sums.sampling_rate,
        last_iterate=last_iterate,
    )
