r"""Gradient perturbation: descent on noisy sums of clipped gradients.

Proved in docs/proofs/gradient_perturbation.md. Rows are divided by their norm bound. In each of T
steps every record joins the batch with probability q; its gradient :math:`a x^\top` (a with respect
to the scores) is clipped to norm R; Gaussian noise is added to the sum over the batch. With a
declared number v and a penalty lambda,

.. math:: g = \tfrac1v (S + N(0, \sigma^2 I)) + \tfrac{q \lambda}{v} W

is the direction of gradient descent with momentum or of Adam. On average g is q / v times the
gradient of :math:`\sum_i \phi_{y_i}(W x_i) + \tfrac\lambda2 \|W\|_F^2`: with
:math:`\lambda = 1 / (C \kappa^2)`, kappa the norm bound, C multiplies the sum of losses as in
scikit-learn. The penalty does not depend on records and is neither clipped nor noisy.

Iterates, their means and the moments of Adam are functions of the noisy sums. If only the last
iterate of plain descent is released, less noise may suffice.

Every number is rounded towards more noise. All numbers are public: the plans read no data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast import _core
from dpsvm_fast.accounting import (
    composed_epsilon,
    gaussian_sigma,
    subsampled_gaussian_noise_multiplier,
)
from dpsvm_fast.certificates import LastIterate, PrivacyEvent, PrivacyStatement, ReleasePart
from dpsvm_fast.certificates.words import GRADIENTS
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.losses import Loss
from dpsvm_fast.mechanisms.noise import (
    LARGEST,
    RELATION_FACTOR,
    CalibratedNoise,
    check_range,
    check_row_norm,
    grid_below,
    law_of,
)
from dpsvm_fast.mechanisms.pipeline import (
    AVERAGED_SHARE,
    CLIP,
    FEWEST_STEPS,
    MAX_STEPS,
    ROWS_A_STEP,
    unit_of,
    usual_c,
)
from dpsvm_fast.mechanisms.plan import LinearPlan, OnStep, Rows, filled, sums_exactly
from dpsvm_fast.mechanisms.rows import PublicMap
from dpsvm_fast.rounding import (
    add_up,
    div_up,
    fraction_down,
    fraction_up,
    hypot_up,
    mul_up,
    round_up,
    sqrt_up,
)
from dpsvm_fast.validation import refuse

# Public defaults of gradient perturbation: functions of settings, never of data.
#
# Everything is in units of rows divided by their norm bound, so that :math:`\kappa_t` is the norm
# of such a row with its constant feature.
#
# Noise of standard deviation sigma on each of T sums, each over a share q of the records, counts
# for :math:`s = \sigma / (q \sqrt T)` on one sum over all. With full batches s is R / mu, R the
# clip norm and mu the parameter of Gaussian differential privacy. The total step, over which W goes
# from 0 to where it is released, is :math:`1 / \lambda` with
#
# .. math:: \lambda = c \, \kappa_t \, s
#
# so that the noise moves each weight by about :math:`1 / (c \kappa_t)`, whatever the data set. This
# total step regularises: there is no penalty on W unless C is given.


# Defaults of sampled batches: records in a batch, passes over the data, and the rate if the
# number of records is not public.
BATCH = 128

PASSES = 20

SAMPLING_RATE = 0.1
# c where the number of records is not public.
UNKNOWN_C = 0.5
# Longest full-batch steps without visible oscillation of the weights, for rows that spread over six
# directions: LONGEST_STEP over the number of records, or LONGEST_STEP_UNKNOWN_N if that is private.
# If the steps do not cover the path, momentum extends it up to MAX_MOMENTUM_GAIN times. Beyond, the
# path is shortened by some factor, and the clip norm grows by its square root, as in the pipeline,
# up to MAX_CLIP_FACTOR times. So do steps over samples if the number is private; Adam's, whose
# length is fixed, only have the larger clip norm.
LONGEST_STEP, LONGEST_STEP_UNKNOWN_N, MAX_MOMENTUM_GAIN, MAX_CLIP_FACTOR = 24.0, 0.021, 10.0, 2.8

EULER = 0.5772156649015329


def _schedule_sum(schedule: str, n_steps: int) -> float:
    """Return the sum over all steps of the schedule's factors of the learning rate."""
    if schedule == "linear":
        return 0.5 * (n_steps + 1)
    if schedule == "inverse":
        # The harmonic number, to 1 / (12 n_steps^2).
        return math.log(n_steps) + EULER + 0.5 / n_steps
    return float(n_steps)


# The noise on sums of clipped gradients, calibrated to (epsilon, delta).
#
# Proved in docs/proofs/gradient_perturbation.md. T full sums are one Gaussian mechanism of
# sensitivity :math:`\sqrt T f R'` ("Full batch"), with f = 1 for ``add_remove``, 2 for
# ``replace_one`` and R' the clip norm with what rounding adds ("Rounding"). Poisson samples are
# composed by the accountant of docs/proofs/accountant.md ("Poisson sampling").


# Steps of the grid in one standard deviation of the noise, unless the grid itself would then be
# more than this share of the clip norm; rounding to it costs up to 34 times that.
NOISE_STEPS = 2.0**36

GRID_SHARE = 2e-5


def sum_grid(clip: float, sigma: float, n_weights: int) -> float:
    """Return the grid spacing of noisy sums for noise of about ``sigma``: a power of two."""
    fine = min(sigma / NOISE_STEPS, GRID_SHARE * clip / math.sqrt(n_weights))
    # Twice what is known so far: the scale itself still grows with the grid.
    return grid_below(fine, 2.0 * sigma)


# Cached: needed before and after data are seen.
_noise_multiplier = lru_cache(maxsize=64)(subsampled_gaussian_noise_multiplier)


@dataclass(frozen=True, kw_only=True)
class DescentSums(CalibratedNoise):
    """Gaussian noise on the sums of a descent with bounded contributions of records.

    Parameters
    ----------
    n_steps : int >= 1
    """

    n_steps: int

    # If only the last iterate is released: why less noise suffices, the ball of the iterates, and
    # how many rows of a person take part.
    last_iterate: ClassVar[Any] = None
    radius: ClassVar[Any] = None
    rows_a_record: ClassVar[Any] = 0

    # A subclass has ``clip``, the bound R of what one record contributes before rounding,
    # ``sampling_rate``, ``grid`` (None for floating-point noise), ``rounding``, what that adds to a
    # contribution, and ``_sigma_at``, the deviation for a given contribution.

    @property
    def acting_clip(self) -> float:
        """Clip norm of the compiled descent."""
        own: Any = self
        return float(own.clip)

    @cached_property
    def contribution(self) -> float:
        """Bound R' on the norm of one record's contribution, including rounding."""
        own: Any = self
        return add_up(own.clip, own.rounding)

    @cached_property
    def sigma(self) -> float:
        """Standard deviation of the noise in each entry of each sum."""
        own: Any = self
        return float(own._sigma_at(self.contribution))

    @property
    def event(self) -> PrivacyEvent:
        """Privacy event of the release."""
        return self.part.event(self.adjacency)

    @property
    def part(self) -> ReleasePart:
        """Record of the noise for the statement."""
        own: Any = self
        law = law_of("gaussian", own.sigma, own.grid)
        facts = {"clip_norm": own.clip, "relation_factor": float(self.factor)}
        named: dict[str, Any] = {"name": "training", "what": GRADIENTS, "factor": ()}
        return filled(ReleasePart, self, epsilon=None, **named, **facts, **law)


@dataclass(frozen=True, kw_only=True)
class ClippedSums(DescentSums):
    """Noise for all sums together, each over a Poisson sample of the records.

    Parameters
    ----------
    clip : float > 0
        Bound R on the norm of one record's contribution to a sum, before rounding.
    sampling_rate : float in (0, 1]
        Probability that a record is in a sum; 1 means every record in every sum.

    Raises
    ------
    InvalidParameterError
        Rounding would cost more than the contributions themselves.
    """

    clip: float
    sampling_rate: float

    def __post_init__(self) -> None:
        """Refuse a budget so small that its noise cannot be drawn on a useful grid."""
        too_coarse = self.grid is not None and self.grid > LARGEST
        if too_coarse or self.contribution > 2.0 * self.clip:
            raise InvalidParameterError(
                f"epsilon: got {self.epsilon!r} with delta {self.delta!r}, expected a budget whose "
                "noise can be drawn on a grid finer than the clipped gradients; use larger values "
                "or noise_grid='float'"
            )

    def _sigma_at(self, contribution: float) -> float:
        """Return the standard deviation of the noise for a given contribution."""
        if self.sampling_rate == 1.0:
            return gaussian_sigma(self.epsilon, self.delta, self._moved(contribution))
        multiplier = _noise_multiplier(
            self.epsilon, self.delta, self.sampling_rate, self.n_steps, self.adjacency
        )
        return mul_up(multiplier, contribution)

    def _moved(self, contribution: float) -> float:
        """Return the distance between all full sums of neighbours together, rounded up."""
        return mul_up(sqrt_up(float(self.n_steps)), self.factor * contribution)

    @cached_property
    def grid(self) -> float | None:
        """Grid spacing of the noisy sums; None if noise is drawn in floating point."""
        if not self.exact:
            return None
        return sum_grid(self.clip, self._sigma_at(self.clip), self.n_weights)

    @cached_property
    def rounding(self) -> float:
        """Bound on what rounding adds to the norm of a contribution."""
        distance = _core.clipped_sum_distance(self.clip, self.n_weights, self.grid)
        return max(0.0, add_up(distance, -self.clip))


# The noise of full-batch gradient descent of which the last iterate alone is released.
#
# Proved in docs/proofs/gradient_perturbation.md, "Last iterate". Each step
#
# .. math:: W \leftarrow W - \tfrac{\eta}{v} (S(W) + N(0, \sigma^2 I)) - \eta m W
#
# on the sum S of all gradients brings two points closer by the factor
# :math:`c = \max(|1 - \eta m|, |1 - \eta M|)` once :math:`\eta \le 2 / (m + M)`, M the largest
# curvature of any data of at most n records. What one record did in an early step is hidden by the
# noise of the later ones: T steps count as
# :math:`\frac{1 - c^T}{1 + c^T} \cdot \frac{1 + c}{1 - c} \le T`.


# The computed norm of the longest gradient is a little off: the clip must not act on it.
UNCLIPPED = 1.0 + 2.0**-20
# Exact noise reaches this many standard deviations at most.
FARTHEST = 1100.0
# Rows of a person take part as long as their rounding is at most this share of a contribution.
ROUNDING_SHARE = 0.05


@dataclass(frozen=True, kw_only=True)
class LastIterateSums(DescentSums):
    """Noise for full-batch sums if only the last iterate is released.

    Parameters
    ----------
    loss : Loss
        Smooth loss.
    row_norm : float > 0
        Bound on the norm of a row with its constant feature.
    n_records : int >= 1
        Public bound on the number of records.
    divisor : float > 0
        Divisor v of the noisy sums.
    regularization : float > 0
        Coefficient m of W in a step.
    step : float > 0 or None
        Step size eta; None for the largest allowed.
    most_rows : int >= 1, default=1
        Largest number of rows of a person that take part.
    truncated : bool, default=True
        Whether coefficients of rows may be truncated, as for sparse rows and rows in parts.
    """

    loss: Loss
    row_norm: float
    n_records: int
    divisor: float
    regularization: float
    step: float | None
    most_rows: int = 1
    truncated: bool = True

    sampling_rate = 1.0

    @cached_property
    def clip(self) -> float:
        """Bound on one record's unclipped contribution: L times the norm bound of the rows."""
        return mul_up(self.loss.lipschitz, self.row_norm)

    @cached_property
    def smoothness(self) -> float:
        """Largest curvature M of the objective divided by v, rounded up."""
        curved = Fraction(self.loss.curvature) * Fraction(self.row_norm) ** 2 * self.n_records
        return fraction_up(Fraction(self.regularization) + curved / Fraction(self.divisor))

    @cached_property
    def largest_step(self) -> float:
        """Largest allowed step size 2 / (m + M), rounded down."""
        return fraction_down(2 / (Fraction(self.regularization) + Fraction(self.smoothness)))

    @property
    def learning_rate(self) -> float:
        """Step size eta, given or the largest allowed; on a grid a power of two times v."""
        if self.step is not None or not self.exact:
            return self.largest_step if self.step is None else self.step
        largest = fraction_down(Fraction(self.largest_step) / Fraction(self.divisor))
        return math.ldexp(1.0, math.frexp(largest)[1] - 1) * self.divisor

    @property
    def _on_grid(self) -> bool:
        """Whether iterates stay on a grid: eta / v times the grid of the noise.

        Otherwise the last digits of an iterate would reveal the noise of every step.
        """
        return self.grid is None or math.frexp(self.learning_rate / self.divisor)[0] == 0.5

    @cached_property
    def contraction(self) -> float:
        """Contraction factor c of a step, rounded up."""
        eta = Fraction(self.learning_rate)
        ends = (Fraction(self.regularization), Fraction(self.smoothness))
        return fraction_up(max(abs(1 - eta * end) for end in ends))

    @property
    def refusal(self) -> str:
        """Reason why the guarantee does not hold for these settings, or ""."""
        asked = "with accountant='last_iterate'"
        if self.learning_rate > self.largest_step or not self.contraction < 1.0:
            return (
                f"learning_rate: got {self.step!r}, expected at most {self.largest_step!r}, and a "
                f"C at which a step contracts, {asked}"
            )
        if not self._on_grid:
            return (
                f"learning_rate: got {self.step!r}, expected 'auto' or a power of two times "
                f"expected_batch_size {asked}, as rounded iterates would reveal the noise of every "
                "step"
            )
        if self.contribution > 2.0 * self.clip:
            return (
                f"max_samples: got {self.n_records!r}, expected fewer, as rounding errors of their "
                f"sums would exceed one gradient {asked}"
            )
        return ""

    @cached_property
    def effective_steps(self) -> float:
        """Effective number of steps of the run, rounded up."""
        c, T = self.contraction, self.n_steps
        if c == 0.0:
            return 1.0
        # 1 - c is exact for c near 1, and what is left of c^T has no cancellation.
        log_power = T * math.log1p(-(1.0 - c))
        counted = -math.expm1(log_power) / (1.0 + math.exp(log_power)) * (1.0 + c) / (1.0 - c)
        return min(float(T), counted * (1.0 + 64.0 * 2.0**-53))

    @cached_property
    def radius(self) -> float:
        """Radius of the ball onto which iterates are projected; it contains the minimiser.

        At the minimiser the gradient vanishes, and the objective is at most its value at 0.
        """
        penalty = self.regularization * self.divisor
        by_gradient = div_up(mul_up(self.clip, float(self.n_records)), penalty)
        by_value = math.sqrt(2.0 * self.loss.at_zero * self.n_records / penalty)
        return min(by_gradient, round_up(by_value, 8))

    @cached_property
    def grid(self) -> float | None:
        """Grid spacing of the noisy sums; None if noise is drawn in floating point."""
        if not self.exact:
            return None
        fine = sum_grid(self.clip, self._sigma_at(self.clip), self.n_weights)
        # Iterates and noisy sums are whole steps of the lattice, and exact: below 2**52 of them.
        noise = FARTHEST * self._sigma_at(2.0 * self.clip)
        largest = self.radius * self.divisor / self.learning_rate
        largest += self.n_records * self.acting_clip + noise
        return max(fine, grid_below(largest * 2.0**-50))

    @property
    def acting_clip(self) -> float:
        """Clip norm of the compiled descent, just above the largest gradient norm."""
        return self.clip * UNCLIPPED

    @cached_property
    def rounding(self) -> float:
        """Bound on what rounding adds to the norm of a contribution.

        Both neighbours' runs round: the bound is twice the error of one step, in units of the sum,
        divided by the number of contributions by which the sums differ.
        """
        return self._rounding_of(self.rows_a_record)

    @cached_property
    def rows_a_record(self) -> int:
        """Number of rows used per person: a power of two with little rounding error, or 1.

        Every row adds a rounding error, and the number of rows is private.
        """
        rows, most = self.most_rows, ROUNDING_SHARE * self.clip
        while rows > 1 and self._rounding_of(rows) > most:
            rows //= 2
        return rows

    def _rounding_of(self, rows: int) -> float:
        """Return the rounding bound for this number of rows per person."""
        bound: float = _core.descent_rounding(
            **self.loss.compiled,
            n_columns=self.shape[1],
            row_norm=self.row_norm,
            clip=self.acting_clip,
            max_records=self.n_records,
            max_rows=self.n_records * rows,
            truncated=self.truncated,
            radius=self.radius,
            grid=self.grid,
            step=self.learning_rate / self.divisor,
        )
        return div_up(2.0 * bound, float(self.factor))

    def _moved(self, contribution: float) -> float:
        """Return the sensitivity of one Gaussian mechanism as leaky as the last iterate."""
        return mul_up(sqrt_up(self.effective_steps), self.factor * contribution)

    def _sigma_at(self, contribution: float) -> float:
        """Return the standard deviation of the noise for a given contribution."""
        return gaussian_sigma(self.epsilon, self.delta, self._moved(contribution))

    @property
    def last_iterate(self) -> LastIterate:
        """Record for the statement: why this noise suffices."""
        smoothing = 1.0 if self.loss.name == "logistic" else self.loss.smoothing
        return filled(LastIterate, self, self.loss, smoothing=smoothing, max_records=self.n_records)


# Adam's stabilizer; with the noise's variance subtracted from the second moment, what is left
# fluctuates by a few hundredths of it, and its root is meaningless below this share of the noise.
STABILIZER, CORRECTED_FLOOR = 1e-8, 0.5
# Larger values would take a step out of single precision.
LARGEST_INTERCEPT = 1e6

SMALLEST_CLIP, LARGEST_CLIP = 1e-20, 1e20


# Noise that one call of the compiled descent draws at most: it counts its streams in 32 bits.
MAX_NUMBERS = 2**32


class ReleasedIterate(NamedTuple):
    """Noisy weights, and the noisy state to continue from, None if it is not released."""

    weights: NDArray[np.float64]
    state: dict[str, Any] | None


@dataclass(frozen=True, kw_only=True)
class GradientPerturbation(LinearPlan):
    r"""Plan of one run of noisy descent, complete before any data are read.

    Parameters
    ----------
    delta : float in (0, 1)
    loss : Loss
        A smooth one.
    data_norm : float > 0
        Public bound on the L2 norm of rows, by which they are divided.
    intercept_scaling : float >= 0
        Constant feature, divided by ``data_norm`` like the others; 0 for none.
    C : float > 0 or None
        Factor of the sum of the losses; None for no penalty on the weights.
    optimizer : {"gd", "sgd", "adam"}
    n_steps : int >= 1 or None
        Number of steps. Here and below, None means the public rule.
    sampling_rate : float in (0, 1] or None
    expected_batch_size : float > 0 or None
        Divisor v of the noisy sums.
    max_grad_norm : float > 0 or None
        R.
    learning_rate : float > 0 or None
    schedule : {"constant", "inverse", "linear"}
    momentum : float in [0, 1) or None
    nesterov : bool
    betas : tuple of two floats in [0, 1)
    stabilizer : float > 0 or None
    noise_correction : bool
    average : float in [0, 1] or None
        Share of the iterates, counted back from the last, whose mean is released; 0 is the last
        iterate.
    accountant : {"auto", "composition", "last_iterate"}
    n_records : int >= 1 or None
        Public bound on the number of records, with ``replace_one`` the number itself; None if there
        is none.
    continues : PrivacyStatement or None
        Statement of earlier runs over the same records, which this run continues.
    state : dict or None
        State of the descent after the earlier runs; ``steps_before`` is their number of steps.
    steps_before : int
    unit : {"row", "person"}
    most_rows : int >= 1, default=1
        Largest number of rows used per person with ``accountant="last_iterate"``.
    truncated : bool, default=True
        Whether coefficients of rows may be truncated; for that accountant only.

    Raises
    ------
    InvalidParameterError
        Settings for which no positive finite noise scale exists, or for which
        ``accountant="last_iterate"`` has no guarantee.

    Notes
    -----
    Guarantees: the weights and the state of a descent with ``descent_options`` over rows of norm at
    most 1 are (epsilon, delta)-differentially private; with ``accountant="last_iterate"`` only the
    weights are. With ``noise_grid="exact"`` this holds for the program in floating-point
    arithmetic, otherwise only in real arithmetic.

    References
    ----------
    Song, Chaudhuri, Sarwate, GlobalSIP 2013; Abadi et al., CCS 2016 (clipped noisy gradients);
    Park, Choi, Lee, NeurIPS 2025 (support vector machines); Bok, Su, Altschuler, ICML 2024 (last
    iterate); Karney, ACM TOMS 42 (2016) (exact sampling).
    """

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
    momentum: float | None
    nesterov: bool
    betas: tuple[float, float]
    stabilizer: float | None
    noise_correction: bool
    average: float | None
    accountant: str
    n_records: int | None
    continues: PrivacyStatement | None = None
    state: dict[str, Any] | None = None
    steps_before: int = 0
    unit: str = "row"
    most_rows: int = 1
    truncated: bool = True

    def __post_init__(self) -> None:
        """Refuse settings whose noise scale would not be positive and finite."""
        refuse(self, ("delta", not self.delta > 0.0, "a number in (0, 1): the noise is Gaussian"))
        kappa = self.data_norm
        check_row_norm(kappa, self.intercept_scaling, hypot_up(kappa, self.intercept_scaling))
        longest = f"at most {LARGEST_INTERCEPT:g} data_norm"
        refuse(self, ("intercept_scaling", self.intercept > LARGEST_INTERCEPT, longest))
        clipped = SMALLEST_CLIP <= self.clip <= LARGEST_CLIP
        accepted = f"a number in [{SMALLEST_CLIP:g}, {LARGEST_CLIP:g}]"
        refuse(self, ("max_grad_norm", not clipped, accepted))
        if self.C is not None:
            check_range("C", self.regularization, "the penalty of a step, q / (C data_norm^2 v)")
        if self.accountant == "last_iterate" and (problem := self._not_last_iterate()):
            raise InvalidParameterError(problem)
        check_range("epsilon", self.noise.sigma, "the standard deviation of the noise")
        check_range("learning_rate", self.step, "the learning rate")

    @property
    def shape(self) -> tuple[int, int]:
        """Number of scores, and number of features including the constant."""
        return (self.loss.n_scores, self.n_features + (self.intercept_scaling > 0.0))

    @property
    def intercept(self) -> float:
        """Constant feature in units of the divided rows."""
        return self.intercept_scaling / self.data_norm

    @cached_property
    def row_norm(self) -> float:
        """Bound on the norm of a divided row with its constant feature."""
        return hypot_up(1.0, self.intercept)

    @property
    def rate(self) -> float:
        """Sampling rate q: given, 1 for gd, or that of batches of 128; 0.1 if n is unknown."""
        if self.sampling_rate is not None:
            return self.sampling_rate
        if self.optimizer == "gd":
            return 1.0
        return SAMPLING_RATE if self.n_records is None else min(1.0, BATCH / self.n_records)

    @cached_property
    def steps(self) -> int:
        """Number of steps T: given, 100 to 500 full batches, or twenty passes of samples.

        T is at least 100: twenty passes over samples of half the records would take steps so long
        that the weights oscillate with large budgets. The number of full batches grows with n mu,
        and up to 500 so that their steps stay short.
        """
        if self.n_steps is not None:
            return self.n_steps
        if self.rate < 1.0:
            return max(FEWEST_STEPS, math.ceil(PASSES / self.rate))
        wanted = max((self.n_records or 0) * self._mu / ROWS_A_STEP, self._longest_steps)
        return math.ceil(min(max(wanted, FEWEST_STEPS), MAX_STEPS))

    @cached_property
    def _mu(self) -> float:
        """Gaussian parameter that protects one record; of sampled steps, that of as much noise."""
        if self.rate < 1.0:
            own = (self.epsilon, self.delta, self.rate, self.steps, self.adjacency)
            return self.rate * math.sqrt(self.steps) / _noise_multiplier(*own)
        return 1.0 / gaussian_sigma(self.epsilon, self.delta, RELATION_FACTOR[self.adjacency])

    @property
    def _longest_steps(self) -> float:
        """Number of longest allowed steps that cover the path; 0 if the rule does not apply."""
        given = self.learning_rate or self.accountant == "last_iterate"
        ruled = self.n_records is None if self.rate < 1.0 else self.optimizer != "adam"
        if given or not ruled:
            return 0.0
        longest = LONGEST_STEP / self.n_records if self.n_records else LONGEST_STEP_UNKNOWN_N
        clip = self.max_grad_norm or CLIP * unit_of(self.loss.n_scores) * self.row_norm
        return self._mu / (self._c_kappa * clip * longest)

    @property
    def _wider(self) -> float:
        """Factor of the clip norm for steps that would be too long."""
        return min(MAX_CLIP_FACTOR, math.sqrt(self._excess)) if self.max_grad_norm is None else 1.0

    @property
    def inertia(self) -> float:
        """Momentum: given, or such that the longest allowed steps cover the path."""
        if self.momentum is not None:
            return self.momentum
        if self.optimizer == "adam":
            return 0.0
        return 1.0 - 1.0 / max(1.0, min(MAX_MOMENTUM_GAIN, self._longest_steps / self.steps))

    @property
    def _excess(self) -> float:
        """Factor by which steps would be too long, including momentum."""
        return max(1.0, (1.0 - self.inertia) * self._longest_steps / self.steps)

    @property
    def _c_kappa(self) -> float:
        """Constant c of the rule times kappa_t, for one score as for two."""
        n = self.n_records
        c = UNKNOWN_C if n is None else usual_c(self.n_features, n)
        return c * unit_of(self.loss.n_scores) * self.row_norm

    @property
    def clip(self) -> float:
        """Clip norm R: given, or a quarter of the norm bound of the rows, including the constant.

        R is larger if steps would be too long. With the last-iterate accountant nothing is clipped.
        """
        if self.max_grad_norm is not None:
            return self.max_grad_norm
        if self.accountant == "last_iterate":
            return self.loss.lipschitz * self.row_norm
        return mul_up(CLIP * unit_of(self.loss.n_scores) * self._wider, self.row_norm)

    @property
    def divisor(self) -> float:
        """Divisor v: given, 1 for gd, or the expected batch size."""
        if self.expected_batch_size is not None:
            return self.expected_batch_size
        if self.optimizer == "gd":
            return 1.0
        return float(BATCH) if self.n_records is None else max(1.0, self.rate * self.n_records)

    @cached_property
    def regularization(self) -> float:
        """Coefficient of W in a step, q / (C kappa^2 v), rounded up; 0 without a penalty."""
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

    @cached_property
    def noise(self) -> ClippedSums | LastIterateSums:
        """Noise on the sums, by the requested accountant or the one that needs less noise."""
        composed = filled(ClippedSums, self, sampling_rate=self.rate, n_steps=self.steps)
        if self.accountant == "composition" or self._not_last_iterate():
            return composed
        last = self._last_iterate
        less = self.accountant == "last_iterate" or last.sigma < composed.sigma
        return last if less else composed

    @property
    def keeps_state(self) -> bool:
        """Whether the final state may be kept to continue the run."""
        return self.noise.last_iterate is None

    @cached_property
    def _last_iterate(self) -> LastIterateSums:
        """Noise if only the last iterate is released."""
        own: Any = {"n_records": self.n_records or 1, "step": self.learning_rate}
        return filled(LastIterateSums, self, n_steps=self.steps, **own)

    def _not_last_iterate(self) -> str:
        """Return the reason why the last-iterate guarantee does not hold, or ""."""
        for name, got, holds, accepted in (
            ("optimizer", self.optimizer, self.optimizer == "gd", "'gd'"),
            ("sampling_rate", self.sampling_rate, self.rate == 1.0, "1"),
            ("momentum", self.momentum, not self.momentum, "0"),
            ("schedule", self.schedule, self.schedule == "constant", "'constant'"),
            ("average", self.average, self.share == 0.0, "0"),
            ("C", "auto", self.C is not None, "a number"),
            ("max_samples", None, self.n_records is not None, "a bound on the number of rows"),
        ):
            if not holds:
                return f"{name}: got {got!r}, expected {accepted} with accountant='last_iterate'"
        last = self._last_iterate
        if self.max_grad_norm is not None and self.max_grad_norm < last.clip:
            return (
                f"max_grad_norm: got {self.max_grad_norm!r}, expected at least {last.clip!r}, the "
                "largest gradient, with accountant='last_iterate'"
            )
        if self.max_grad_norm is None and self.accountant == "auto":
            return "max_grad_norm: 'auto' clips"
        return last.refusal

    @cached_property
    def step(self) -> float:
        """Learning rate: given, or such that noise moves a weight by 1 / (c kappa_t) in the run.

        Gradient descent moves in proportion to the sums. Adam moves by about the rate in each step,
        mostly in the direction of the noise, so ``sqrt(T)`` of its steps cover the path. With a
        penalty on W a step is at most the one at which the penalty alone settles.
        """
        if isinstance(self.noise, LastIterateSums):
            return self.noise.learning_rate
        if self.learning_rate is not None:
            return self.learning_rate
        total, root = _schedule_sum(self.schedule, self.steps), math.sqrt(self.steps)
        if self.optimizer == "adam":
            return root / (self._c_kappa * total)
        c_kappa = self._c_kappa * self._excess / self._wider
        per_sum, kept = self.noise.sigma / (self.rate * root), 1.0 - self.inertia
        found = kept * self.divisor / (self.rate * c_kappa * per_sum * total)
        return min(found, kept / self.regularization) if self.regularization > 0.0 else found

    @property
    def floor(self) -> float:
        """Stabilizer of Adam, given or automatic."""
        if self.stabilizer is not None:
            return self.stabilizer
        corrected = self.optimizer == "adam" and self.noise_correction
        return CORRECTED_FLOOR * self.noise.sigma / self.divisor if corrected else STABILIZER

    @property
    def events(self) -> tuple[PrivacyEvent, ...]:
        """Event of this run."""
        return (self.noise.event,)

    @cached_property
    def total_epsilon(self) -> float:
        """Epsilon of this run and the runs that it continues, at the delta of one run."""
        if self.continues is None:
            return self.epsilon
        together = (*self.continues.events, *self.events)
        return max(self.epsilon, composed_epsilon(together, self.delta))

    def check_rows(self, rows: Rows) -> None:
        """Refuse extreme settings, and more rows than the last-iterate guarantee covers."""
        self.descent()
        if not self.keeps_state and rows.n_persons > (self.n_records or 0):
            raise InvalidParameterError(
                f"max_samples: got {self.n_records} for data with more {self.unit}s, expected an "
                "upper bound on their number with accountant='last_iterate'"
            )

    def descent(self) -> _core.Descent:
        """Return the compiled descent at its start, or in the state of earlier calls."""
        options = self.descent_options()
        remembers = self.optimizer == "adam" or options["momentum"] > 0.0
        state = None if self.state is None else resumed(self.state, remembers=remembers)
        return _core.Descent(**options, state=state)

    def records(self, rows: Rows) -> Any:
        """Return weighted rows; the last-iterate accountant averages persons unclipped."""
        records = rows.records(self.public, averaged=self.noise.rows_a_record)
        rows.weigh(records)
        return records

    def run(self, rows: Rows, source: _core.NoiseSource) -> ReleasedIterate:
        """Return the weights after all steps, in units of the rows."""
        descent, options = self.descent(), self.descent_options()
        records = self.records(rows)
        most = max(1, MAX_NUMBERS // math.prod(self.shape))
        for before in range(0, self.steps, most):
            report = _counted(rows.on_step, before, self.steps)
            rows.descend(records, descent, options, source, min(most, self.steps - before), report)
        weights = np.asarray(descent.weights() / self.data_norm)
        if not np.isfinite(weights).all():
            # A fact about noisy numbers, which may be published.
            raise InvalidParameterError(
                "learning_rate: too large, the weights overflowed; nothing is released and the "
                "budget is spent; use a smaller one"
            )
        return ReleasedIterate(weights, descent.state() if self.keeps_state else None)

    @property
    def public(self) -> PublicMap:
        """Map of rows: division by their norm bound."""
        return PublicMap(unit=False, data_norm=self.data_norm)

    def descent_options(self) -> dict[str, Any]:
        """Return the settings of the compiled descent; steps count from those of earlier runs."""
        noise, last = self.noise, not self.keeps_state
        averaged = math.ceil(self.share * self.steps)
        own = ("n_features", "intercept", "divisor", "regularization", "schedule", "nesterov")
        options = self.loss.compiled | {name: getattr(self, name) for name in own}
        # Sampled records are scattered in memory in any case.
        in_order = 0 if last or self.rate < 1.0 else self.n_records or 0
        return options | {
            "exact_sums": sums_exactly(in_order, math.prod(self.shape)),
            "row_scale": 1.0,
            "clip": noise.acting_clip,
            "sigma": noise.sigma,
            "grid": noise.grid,
            "sampling_rate": self.rate,
            "optimizer": "adam" if self.optimizer == "adam" else "gd",
            "learning_rate": self.step,
            "horizon": self.steps,
            "momentum": 0.0 if last else self.inertia,
            "beta1": self.betas[0],
            "beta2": self.betas[1],
            "stabilizer": self.floor,
            "noise_correction": self.noise_correction,
            "average_from": self.steps_before + self.steps - averaged if averaged else None,
            "radius": noise.radius,
            "precision": "f64" if last else "f32",
        }

    def summary(self) -> str:
        """Return a one-line summary of public facts."""
        sampled = "" if self.rate == 1.0 else f" with sampling rate {self.rate:.4g}"
        return (
            f"{math.prod(self.shape)} weights, {self.steps} steps of {self.optimizer}{sampled}, "
            f"clip norm {self.noise.clip:.4g}, noise with sigma = {self.noise.sigma:.4g} on sums, "
            f"learning rate {self.step:.4g}"
        )

    def statement(self, released: Any = None, **occasion: Any) -> PrivacyStatement:
        """Return the statement of this run and all runs that it continues."""
        before, parts = self.continues, [self.noise.part]
        if before is not None:
            parts = [*before.parts, *parts]
            occasion["occasion"] = occasion["occasion"].joined(before.occasion)
            if before.random_source == "seed":
                occasion["random_source"] = "seed"
        return PrivacyStatement(
            mechanism="gradient_perturbation",
            loss=self.loss.name,
            adjacency=self.adjacency,
            epsilon=self.total_epsilon,
            delta=self.delta,
            parts=tuple(parts),
            **occasion,
        )


def _counted(on_step: OnStep | None, before: int, n_steps: int) -> OnStep | None:
    """Return a callback that counts steps on from earlier ones."""
    return None if on_step is None else lambda done, _: on_step(before + done, n_steps)


def resumed(state: dict[str, Any], *, remembers: bool) -> dict[str, Any]:
    """Return the state with a new mean for the next run, and a velocity if that run has one.

    Automatic momentum may differ between runs with different numbers of rows.
    """
    rest = np.zeros_like(state["weights"][: None if remembers else 0])
    velocity = state["first"] if state["first"].size == rest.size else rest
    return state | {"averaged": 0, "sum": np.zeros_like(state["sum"]), "first": velocity}
