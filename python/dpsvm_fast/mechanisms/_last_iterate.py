r"""The noise of full-batch gradient descent of which the last iterate alone is released.

Proved in docs/proofs/gradient_perturbation.md, "Last iterate". Each step

.. math:: W \leftarrow W - \tfrac{\eta}{v} (S(W) + N(0, \sigma^2 I)) - \eta m W

on the sum S of all gradients brings two points closer by the factor
:math:`c = \max(|1 - \eta m|, |1 - \eta M|)` once :math:`\eta \le 2 / (m + M)`, M the largest
curvature of any data of at most n records. What one record did in an early step is hidden by the
noise of the later ones: T steps count as
:math:`\frac{1 - c^T}{1 + c^T} \cdot \frac{1 + c}{1 - c} \le T`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from dpsvm_fast import _core
from dpsvm_fast._rounding import (
    add_up,
    div_up,
    fraction_down,
    fraction_up,
    mul_up,
    round_up,
    sqrt_up,
)
from dpsvm_fast.accounting import (
    GaussianEvent,
    LastIterate,
    PrivacyEvent,
    ReleasePart,
    gaussian_sigma,
)
from dpsvm_fast.losses import Loss
from dpsvm_fast.mechanisms._gradient_noise import sum_grid, training_part
from dpsvm_fast.mechanisms._noise_grid import grid_below
from dpsvm_fast.mechanisms._projected_sgd import loss_at_zero
from dpsvm_fast.mechanisms._settings import RELATION_FACTOR

__all__ = ["LastIterateSums"]

# The computed norm of the longest gradient is a little off: the clip must not act on it.
UNCLIPPED = 1.0 + 2.0**-20
# Exact noise reaches this many standard deviations at most.
FARTHEST = 1100.0


@dataclass(frozen=True)
class LastIterateSums:
    """Gaussian noise on the sums of all gradients, where only the last iterate is released.

    Parameters
    ----------
    epsilon : float > 0
    delta : float in (0, 1)
    adjacency : {"add_remove", "replace_one"}
    exact : bool
        Whether noise is drawn exactly on a grid.
    loss : Loss
        A smooth loss.
    row_norm : float > 0
        Bound of a row with its constant feature.
    shape : tuple of int
        Of a sum: (number of scores, n_features, plus 1 with an intercept).
    n_steps : int >= 1
    n_records : int >= 1
        Public bound of the number of records.
    divisor : float > 0
        v, by which noisy sums are divided.
    regularization : float > 0
        m, the coefficient of W in a step.
    step : float > 0 or None
        eta; None for the largest that is allowed.
    """

    epsilon: float
    delta: float
    adjacency: str
    exact: bool
    loss: Loss
    row_norm: float
    shape: tuple[int, int]
    n_steps: int
    n_records: int
    divisor: float
    regularization: float
    step: float | None

    sampling_rate = 1.0

    @property
    def factor(self) -> int:
        """By how many gradients the sums of neighbours differ."""
        return RELATION_FACTOR[self.adjacency]

    @cached_property
    def clip(self) -> float:
        """L times the bound of the rows' norm: what one record contributes without clipping."""
        return mul_up(self.loss.lipschitz, self.row_norm)

    @cached_property
    def smoothness(self) -> float:
        """M: largest curvature of the objective divided by v, rounded up."""
        square = Fraction(self.row_norm) ** 2
        curved = Fraction(self.loss.curvature) * square * self.n_records / Fraction(self.divisor)
        return fraction_up(Fraction(self.regularization) + curved)

    @cached_property
    def largest_step(self) -> float:
        """2 / (m + M), rounded down."""
        return fraction_down(2 / (Fraction(self.regularization) + Fraction(self.smoothness)))

    @property
    def learning_rate(self) -> float:
        """Eta, given or the largest; on a grid the largest power of two times v."""
        if self.step is not None or not self.exact:
            return self.largest_step if self.step is None else self.step
        largest = fraction_down(Fraction(self.largest_step) / Fraction(self.divisor))
        return math.ldexp(1.0, math.frexp(largest)[1] - 1) * self.divisor

    @property
    def _on_grid(self) -> bool:
        """Whether iterates stay on a grid: eta over v times that of the noise.

        An iterate in floats, off any grid, would show the noise of every step in its last digits.
        """
        return self.grid is None or math.frexp(self.learning_rate / self.divisor)[0] == 0.5

    @cached_property
    def contraction(self) -> float:
        """C of the module's formula, rounded up."""
        eta = Fraction(self.learning_rate)
        ends = (Fraction(self.regularization), Fraction(self.smoothness))
        return fraction_up(max(abs(1 - eta * end) for end in ends))

    @property
    def refusal(self) -> str:
        """Why the guarantee does not hold for these settings, or nothing."""
        asked = "with accountant='last_iterate'"
        if self.learning_rate > self.largest_step or not self.contraction < 1.0:
            return (
                f"learning_rate: got {self.step!r}, expected at most {self.largest_step!r}, and a "
                f"C at which a step contracts, {asked}"
            )
        if not self._on_grid:
            return (
                f"learning_rate: got {self.step!r}, expected 'auto' or a power of two times "
                f"expected_batch_size {asked}, as iterates in floats would tell the noise of every "
                "step"
            )
        if self.contribution > 2.0 * self.clip:
            return (
                f"max_samples: got {self.n_records!r}, expected fewer, as rounding errors of their "
                f"sums would cost more than a gradient {asked}"
            )
        return ""

    @cached_property
    def effective_steps(self) -> float:
        """As how many steps the run counts, rounded up."""
        c, T = self.contraction, self.n_steps
        if c == 0.0:
            return 1.0
        # 1 - c is exact for c near 1, and what is left of c^T has no cancellation.
        log_power = T * math.log1p(-(1.0 - c))
        counted = -math.expm1(log_power) / (1.0 + math.exp(log_power)) * (1.0 + c) / (1.0 - c)
        return min(float(T), counted * (1.0 + 64.0 * 2.0**-53))

    @cached_property
    def radius(self) -> float:
        """Radius of a ball that holds the minimiser of any data, onto which iterates go back.

        There the gradient vanishes, and the objective is at most its value at 0.
        """
        penalty = self.regularization * self.divisor
        by_gradient = div_up(mul_up(self.clip, float(self.n_records)), penalty)
        by_value = math.sqrt(2.0 * loss_at_zero(self.loss) * self.n_records / penalty)
        return min(by_gradient, round_up(by_value, 8))

    @cached_property
    def grid(self) -> float | None:
        """Spacing of the noisy sums; None where noise is drawn in floating point."""
        if not self.exact:
            return None
        fine = sum_grid(self.clip, self._sigma_at(self.clip), math.prod(self.shape))
        # Iterates and noisy sums are whole steps of the lattice, and exact: below 2**52 of them.
        noise = FARTHEST * self._sigma_at(2.0 * self.clip)
        largest = self.radius * self.divisor / self.learning_rate
        largest += self.n_records * self.acting_clip + noise
        return max(fine, grid_below(largest * 2.0**-50))

    @property
    def acting_clip(self) -> float:
        """Where the compiled descent clips: just beyond the longest gradient."""
        return self.clip * UNCLIPPED

    @cached_property
    def rounding(self) -> float:
        """What rounding adds to a contribution.

        Both runs round: twice what one step of one of them is off by, in units of the sum, shared
        by the contributions by which sums differ.
        """
        kernel, smoothing, margin = self.loss.kernel
        bound: float = _core.descent_rounding(
            loss=kernel,
            n_scores=self.loss.n_scores,
            smoothing=smoothing,
            margin=margin,
            n_columns=self.shape[1],
            row_norm=self.row_norm,
            clip=self.acting_clip,
            max_records=self.n_records,
            radius=self.radius,
            grid=self.grid,
            step=self.learning_rate / self.divisor,
        )
        return div_up(2.0 * bound, float(self.factor))

    @cached_property
    def contribution(self) -> float:
        """Bound of what one record contributes, with all rounding."""
        return add_up(self.clip, self.rounding)

    def _moved(self, contribution: float) -> float:
        """Sensitivity of one Gaussian mechanism that tells as much as the last iterate."""
        return mul_up(sqrt_up(self.effective_steps), self.factor * contribution)

    def _sigma_at(self, contribution: float) -> float:
        """Standard deviation of the noise for a contribution."""
        return gaussian_sigma(self.epsilon, self.delta, self._moved(contribution))

    @cached_property
    def sigma(self) -> float:
        """Standard deviation of the noise on each number of each sum."""
        return self._sigma_at(self.contribution)

    @property
    def event(self) -> PrivacyEvent:
        """What a ledger records."""
        return GaussianEvent(
            sigma=self.sigma,
            sensitivity=self._moved(self.contribution),
            adjacency=self.adjacency,
        )

    @property
    def part(self) -> ReleasePart:
        """The noise as it is drawn, for the statement."""
        return training_part(
            self,
            LastIterate(
                learning_rate=self.learning_rate,
                divisor=self.divisor,
                regularization=self.regularization,
                smoothing=1.0 if self.loss.name == "logistic" else self.loss.smoothing,
                lipschitz=self.loss.lipschitz,
                curvature=self.loss.curvature,
                row_norm=self.row_norm,
                max_records=self.n_records,
                smoothness=self.smoothness,
                contraction=self.contraction,
                effective_steps=self.effective_steps,
            ),
        )
