"""A sum over records to which noise is added: how far neighbours move it, and the noise for that.

Gaussian noise is calibrated to a parameter of Gaussian differential privacy, mu = sensitivity over
sigma, because the squares of such parameters add up under composition. Every number is rounded
towards more noise; nothing here reads data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast import _core
from dpsvm_fast._rounding import (
    add_up,
    div_down,
    div_up,
    fraction_down,
    mul_up,
    round_up,
    sqrt_down,
    sqrt_up,
)
from dpsvm_fast.accounting import (
    GaussianEvent,
    PrivacyEvent,
    PureEvent,
    ReleasePart,
    gaussian_sigma,
)
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.mechanisms._noise_grid import release_on_grid
from dpsvm_fast.mechanisms._settings import check_range

__all__ = ["NoisySum", "gaussian_parameter", "joined_parameter", "scale_for", "share_of"]

# A standard deviation of more grid steps is refused by the exact sampler.
MOST_NOISE_STEPS = 2.0**46


def gaussian_parameter(epsilon: float, delta: float) -> float:
    """The largest mu of a Gaussian mechanism that is (epsilon, delta)-private, rounded down."""
    mu = div_down(1.0, gaussian_sigma(epsilon, delta))
    check_range("epsilon", mu, "the Gaussian parameter of the budget")
    return mu


def share_of(mu: float, share: float) -> float:
    """The parameter whose square is ``share`` times that of ``mu``, rounded down."""
    return sqrt_down(fraction_down(Fraction(share) * Fraction(mu) ** 2))


def joined_parameter(*parameters: float) -> float:
    """The parameter of several Gaussian mechanisms together, rounded down."""
    return sqrt_down(fraction_down(sum((Fraction(mu) ** 2 for mu in parameters), Fraction(0))))


def scale_for(sensitivity: float, mu: float) -> float:
    """Smallest sigma at which ``sensitivity / sigma``, rounded up, is at most ``mu``."""
    sigma = div_up(sensitivity, mu)
    while div_up(sensitivity, sigma) > mu:
        sigma = round_up(sigma)
    return sigma


@dataclass(frozen=True, kw_only=True)
class NoisySum:
    """One noisy sum over the records, or several of one kind.

    Parameters
    ----------
    name, what : str
        For the statement.
    adjacency : {"add_remove", "replace_one"}
    clip_norm : float > 0
        Bound of the norm of one record's contribution.
    relation_factor : float
        By how many contributions the sums of neighbours can differ.
    shape : tuple of int
    mu : float > 0 or None
        Parameter of the Gaussian noise, of all steps together.
    epsilon : float > 0 or None
        Of Gamma noise; exactly one of the two.
    grid : float > 0 or None
        A power of two on which the sum is rounded and Gaussian noise drawn exactly; None for
        floating-point noise.
    rounding : float >= 0
        What rounding adds to a contribution.
    n_steps : int >= 1
        Number of sums.
    """

    name: str
    what: str
    adjacency: str
    clip_norm: float
    relation_factor: float
    shape: tuple[int, ...]
    mu: float | None = None
    epsilon: float | None = None
    grid: float | None = None
    rounding: float = 0.0
    n_steps: int = 1

    def __post_init__(self) -> None:
        """Refuses budgets so small that no float, or no grid however coarse, suits the noise."""
        if self.epsilon is not None:
            check_range("epsilon", self.epsilon, "the budget of the noise")
        if self.mu is None or self.grid is None:
            return
        if self.scale > MOST_NOISE_STEPS * self.grid:
            raise InvalidParameterError(
                f"epsilon: the Gaussian parameter of the noise in {self.what} is {self.mu!r}, "
                "expected a budget whose noise can be drawn on a grid finer than what one record "
                "contributes; use larger values of epsilon and delta, or noise_grid='float'"
            )

    @property
    def size(self) -> int:
        """Number of components."""
        return math.prod(self.shape)

    @cached_property
    def contribution(self) -> float:
        """Bound of one record's contribution, rounding included."""
        return add_up(self.clip_norm, self.rounding)

    @cached_property
    def sensitivity(self) -> float:
        """Bound of the distance between what neighbours hand to the noise, over all steps."""
        moved = mul_up(self.relation_factor, self.contribution)
        return mul_up(sqrt_up(float(self.n_steps)), moved)

    @cached_property
    def scale(self) -> float:
        """Standard deviation sigma of Gaussian noise, or the rate beta of Gamma noise."""
        if self.mu is not None:
            return scale_for(self.sensitivity, self.mu)
        assert self.epsilon is not None
        return div_down(self.epsilon, self.sensitivity)

    @property
    def deviation(self) -> float:
        """Root mean square of the noise in one component."""
        if self.mu is not None:
            return self.scale
        return math.sqrt(self.size + 1.0) / self.scale

    @property
    def event(self) -> PrivacyEvent:
        """What a ledger records."""
        if self.mu is None:
            assert self.epsilon is not None
            return PureEvent(epsilon=self.epsilon, adjacency=self.adjacency)
        return GaussianEvent(
            sigma=self.scale, sensitivity=self.sensitivity, adjacency=self.adjacency
        )

    @property
    def part(self) -> ReleasePart:
        """The same for the statement."""
        gaussian = self.mu is not None
        return ReleasePart(
            name=self.name,
            what=self.what,
            distribution="gaussian" if gaussian else "gamma",
            sampler="floating_point" if self.grid is None else "exact_grid",
            clip_norm=self.clip_norm,
            rounding=self.rounding,
            contribution=self.contribution,
            relation_factor=self.relation_factor,
            sigma=self.scale if gaussian else None,
            beta=None if gaussian else self.scale,
            grid=self.grid,
            shape=self.shape,
            n_steps=self.n_steps,
        )

    def release(
        self, total: NDArray[np.float64], source: _core.NoiseSource, n_threads: int
    ) -> NDArray[np.float64]:
        """Noisy copy of a flat sum: the only value derived from it that may leave the host."""
        if self.mu is None:
            return np.asarray(total + source.gamma_ball(total.size, self.scale, n_threads))
        if self.grid is None:
            return np.asarray(total + source.gaussian(total.size, self.scale, n_threads))
        return release_on_grid(total, self.scale, self.grid, source, n_threads)

    def release_many(
        self, total: NDArray[np.float64], n: int, source: _core.NoiseSource, n_threads: int
    ) -> NDArray[np.float64]:
        """``n`` independent noisy copies of a flat sum, shape (n, size of the sum).

        For audits: every one of them spends the budget.
        """
        if self.mu is None:
            # One draw of Gamma noise belongs to all components together.
            return np.array([self.release(total, source, n_threads) for _ in range(n)])
        return self.release(np.tile(total, n), source, n_threads).reshape(n, total.size)
