"""Settings of noisy descent, with the public rules for those that are left open.

All of it is public: nothing here reads data.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from dpsvm_fast._rounding import fraction_up, hypot_up
from dpsvm_fast.accounting import gaussian_sigma
from dpsvm_fast.losses import Loss
from dpsvm_fast.mechanisms._descent_rule import AVERAGED_SHARE
from dpsvm_fast.mechanisms._gradient_defaults import (
    automatic_clip,
    automatic_divisor,
    automatic_sampling_rate,
    automatic_steps,
)
from dpsvm_fast.mechanisms._settings import RELATION_FACTOR

__all__ = ["GradientSettings"]


@dataclass(frozen=True, kw_only=True)
class GradientSettings:
    """What :class:`dpsvm_fast.mechanisms.gradient.GradientPerturbation` describes, and the rules.

    Of a parameter that may be None the number in use is a property of its own, which does not
    depend on the noise.
    """

    epsilon: float
    delta: float
    adjacency: str
    noise_grid: str
    loss: Loss
    n_features: int
    data_norm: float
    intercept_scaling: float
    C: float | None
    optimizer: str
    n_steps: int | None
    sampling_rate: float | None
    expected_batch_size: float | None
    max_grad_norm: float | None
    learning_rate: float | None
    schedule: str
    momentum: float
    nesterov: bool
    betas: tuple[float, float]
    stabilizer: float | None
    noise_correction: bool
    average: float | None
    accountant: str
    n_records: int | None

    @property
    def score_loss(self) -> Loss:
        """The loss as a function of the scores."""
        return self.loss

    @property
    def shape(self) -> tuple[int, int]:
        """Number of scores, and of features with the constant one."""
        return (self.loss.n_scores, self.n_features + (self.intercept_scaling > 0.0))

    @property
    def intercept(self) -> float:
        """The constant feature in units of the divided rows."""
        return self.intercept_scaling / self.data_norm

    @cached_property
    def row_norm(self) -> float:
        """Bound of the norm of a divided row with its constant feature."""
        return hypot_up(1.0, self.intercept)

    @property
    def rate(self) -> float:
        """Q, given or automatic."""
        if self.sampling_rate is not None:
            return self.sampling_rate
        return automatic_sampling_rate(self.optimizer, self.n_records)

    @cached_property
    def steps(self) -> int:
        """T, given or automatic."""
        if self.n_steps is not None:
            return self.n_steps
        # The parameter at which one record would be protected.
        mu = 1.0 / gaussian_sigma(self.epsilon, self.delta, RELATION_FACTOR[self.adjacency])
        return automatic_steps(mu, self.rate, self.n_records)

    @property
    def clip(self) -> float:
        """R, given or automatic; with the accountant of the last iterate it never acts."""
        if self.max_grad_norm is not None:
            return self.max_grad_norm
        if self.accountant == "last_iterate":
            return self.loss.lipschitz * self.row_norm
        return automatic_clip(self.row_norm, self.loss.n_scores)

    @property
    def divisor(self) -> float:
        """V, given or automatic."""
        if self.expected_batch_size is not None:
            return self.expected_batch_size
        return automatic_divisor(self.optimizer, self.rate, self.n_records)

    @cached_property
    def regularization(self) -> float:
        """The coefficient of W in a step, q / (C kappa^2 v), rounded up; 0 without a penalty."""
        if self.C is None:
            return 0.0
        square = Fraction(self.data_norm) ** 2
        return fraction_up(
            Fraction(self.rate) / (Fraction(self.C) * square * Fraction(self.divisor))
        )

    @property
    def share(self) -> float:
        """Share of the iterates whose mean is released, given or automatic."""
        if self.average is not None:
            return self.average
        return 0.0 if self.accountant == "last_iterate" else AVERAGED_SHARE
