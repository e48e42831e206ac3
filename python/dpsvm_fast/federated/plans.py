"""Plans of the rounds: training, noise and events. All numbers are public."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast.accounting import gaussian_sigma
from dpsvm_fast.accounting.composition import distance_delta
from dpsvm_fast.certificates import PrivacyEvent
from dpsvm_fast.certificates.releases import SecureRound
from dpsvm_fast.certificates.words import ROWS_OF_PERSON, summed_over_parties
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.federated.secsum import LIMIT, ROUNDED_STEPS, FixedPointCodec, PartyCounts
from dpsvm_fast.losses import Loss
from dpsvm_fast.mechanisms.noise import RELATION_FACTOR, check_range, check_row_norm
from dpsvm_fast.mechanisms.objective import ObjectivePerturbation
from dpsvm_fast.mechanisms.output import ProjectedSGD
from dpsvm_fast.mechanisms.plan import filled
from dpsvm_fast.rounding import (
    SMALLEST_FLOAT,
    add_down,
    add_up,
    div_down,
    div_up,
    fraction_down,
    fraction_up,
    hypot_up,
    mul_down,
    mul_up,
    round_up,
    sqrt_down,
    sqrt_up,
)

if TYPE_CHECKING:
    from dpsvm_fast.federated.spec import FederatedSpec

# Fit of one party, and how far one unit can move its contribution.
#
# Party i holds n_i rows of norm at most :math:`\kappa_t`, or rows of n_i persons whose losses count
# by their mean, and contributes :math:`w_i \Pi_R(f_i)`,
#
# .. math:: f_i \approx \arg\min_W \tfrac{\Lambda}{2} \|W\|_F^2
#           + \frac{1}{n_i} \sum_j \phi_{y_j}(W \tilde x_j)
#
# with w_i = n_i (``weighting="records"``) or 1 (``"users"``) and the projection onto a ball or a
# product of balls. Replacing one row or person moves it by at most
# :math:`2 L \kappa_t / \Lambda`, whatever n_i, or :math:`2 L \kappa_t / (n_{min} \Lambda)`, and
# by at most the diameter of the balls.
# docs/proofs/federated.md. All numbers are rounded towards more noise; none of them reads data.


Array = NDArray[np.float64]

ADJACENCY = "replace_one"
# Rounding errors of norms, of the projection and of the product with the weight, relative to the
# norm: a few units in the last place for each weight.
ROUNDING_PER_WEIGHT = 2.0**-51


@dataclass(frozen=True)
class LocalTraining:
    """Training of one party; parties differ only in the number of rows, or of persons.

    Parameters
    ----------
    spec : FederatedSpec
        Specification with "auto" replaced by numbers.
    """

    spec: FederatedSpec

    def __post_init__(self) -> None:
        """Refuse settings whose products overflow or underflow, or whose rounding is too large."""
        check_row_norm(self.spec.data_norm, self.spec.intercept_scaling, self.row_norm)
        check_range("regularization", self.spec.regularization, "regularization")
        check_range("radius", self.spec.radius, "radius")
        check_range("regularization", self.by_record, "what one record moves")
        if self.by_sgd:
            if math.isinf(self.loss.curvature):
                raise InvalidParameterError.of(
                    "loss", got=self.loss.name, accepted="a smooth loss with projected SGD"
                )
            for n in {self.spec.min_records, self.spec.max_records}:
                if not self.accurate(n):
                    raise InvalidParameterError(
                        f"tol: the rounding errors of projected SGD on {n} records exceed "
                        f"{self.spec.tol:g} of the sensitivity; expected a larger tol or fewer "
                        "updates"
                    )

    @property
    def loss(self) -> Loss:
        """Loss with its number of classes."""
        return self.spec.trained_loss

    @property
    def by_sgd(self) -> bool:
        """Whether parties run projected SGD; otherwise they certify minimisers."""
        return self.spec.local not in ("exact", "output")

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the weights."""
        return (self.loss.n_scores, self.spec.n_trained + (self.spec.intercept_scaling > 0.0))

    @property
    def size(self) -> int:
        """Number of weights."""
        return math.prod(self.shape)

    @cached_property
    def row_norm(self) -> float:
        """Bound on the norm of a row with its constant feature."""
        return hypot_up(self.spec.data_norm, self.spec.intercept_scaling)

    @property
    def n_balls(self) -> int:
        """Number of balls onto which weights are projected."""
        return 1 if self.spec.projection == "joint" else self.loss.n_scores

    @cached_property
    def model_norm(self) -> float:
        """Bound on the norm of projected weights."""
        return mul_up(self.spec.radius, sqrt_up(float(self.n_balls)))

    @cached_property
    def C(self) -> float:
        """Factor of one record's loss in the objective, times its party's weight, rounded up."""
        least = 1 if self.spec.weighting == "records" else self.spec.min_records
        return fraction_up(1 / (Fraction(self.spec.regularization) * least))

    @cached_property
    def by_record(self) -> float:
        """Sensitivity ``2 L C kt`` by strong convexity."""
        factor = RELATION_FACTOR[ADJACENCY]
        return factor * mul_up(mul_up(self.loss.lipschitz, self.C), self.row_norm)

    @cached_property
    def diameter(self) -> float:
        """Largest change of a party's contribution, whatever its records."""
        return mul_up(2.0 * self.spec.max_weight, self.model_norm)

    @cached_property
    def solver_radius(self) -> float:
        """Distance of a computed contribution from the exact one, rounded up."""
        natural = div_up(mul_up(self.loss.lipschitz, self.row_norm), self.spec.regularization)
        # Bound on weights before the projection.
        largest = mul_up(2.0, max(natural, self.model_norm))
        rounded = mul_up(float(self.spec.max_weight), mul_up(self._projection_error, largest))
        return add_up(mul_up(self.spec.tol, self.by_record), rounded)

    @property
    def _projection_error(self) -> float:
        """Relative rounding error of norm, projection and product with a weight."""
        return ROUNDING_PER_WEIGHT * (self.size + 16.0)

    @cached_property
    def distance(self) -> float:
        """Sensitivity to one unit, including errors of its party, rounded up."""
        if self.spec.unit == "party":
            return self.diameter
        return min(add_up(self.by_record, 2.0 * self.solver_radius), self.diameter)

    @property
    def bound(self) -> float:
        """Bound on the norm of a contribution."""
        return mul_up(float(self.spec.max_weight), self.model_norm)

    # One party's own numbers, of its records or persons.

    def sum_regularization(self, n_records: int) -> float:
        """Return lambda of the sum-form objective, rounded up, the safe side."""
        return fraction_up(Fraction(self.spec.regularization) * n_records)

    def own_radius(self, n_records: int) -> float:
        """Return the distance to the minimiser that the party's solver certifies, rounded down."""
        return div_down(mul_down(self.spec.tol, self.by_record), float(self.spec.weight(n_records)))

    def gradient_tol(self, n_records: int) -> float:
        """Return the gradient norm that certifies ``own_radius``, rounded down."""
        return mul_down(self.own_radius(n_records), self.sum_regularization(n_records))

    def own_C(self, n_records: int) -> float:
        """Return 1 / ``sum_regularization``, rounded down."""
        return fraction_down(1 / (Fraction(self.spec.regularization) * n_records))

    def run(self, n_records: int) -> ProjectedSGD:
        """Return the plan of one party's projected SGD."""
        most = ROWS_OF_PERSON if self.spec.unit == "person" else 1
        own: Any = {"n_samples": n_records, "average": "last", "most_rows": most}
        return filled(ProjectedSGD, self.spec, **own)

    def accurate(self, n_records: int) -> bool:
        """Return whether rounding errors of the run stay within the tolerance."""
        return _sgd_rounding(self, n_records) <= self.own_radius(n_records)

    def projected(self, weights: Array) -> Array:
        """Project weights onto the ball or balls."""
        rows = weights.reshape(self.n_balls, -1)
        with np.errstate(over="ignore"):
            norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        # A little smaller, so that the computed weights are within the radius.
        radius = self.spec.radius * (1.0 - self._projection_error)
        factors = radius / np.maximum(norms, radius)
        return np.asarray(rows * factors[:, None]).reshape(weights.shape)


@lru_cache(maxsize=4096)
def _sgd_rounding(training: LocalTraining, n_records: int) -> float:
    """Bound the distance of the computed iterate from the exact one."""
    return training.run(n_records).rounding(
        training.loss,
        training.own_C(n_records),
        n_columns=training.shape[1],
        data_norm=training.spec.data_norm,
        intercept_scaling=training.spec.intercept_scaling,
        row_norm=training.row_norm,
    )


# How much discrete noise each party adds, and on which grid: known before any data are read.
#
# Every party adds independent noise :math:`D_{\mathbb Z}(\sigma)`, :math:`P(k) \propto \exp(-k^2 /
# (2 \sigma^2))` with a power of two for sigma, to its integers. In any sum that is released at
# least h of these noises are unknown to everybody, and the sum is within total variation distance
# tau of a post-processing of the Gaussian mechanism with standard deviation :math:`g \sqrt{h
# \sigma^2 - r^2}`: docs/proofs/federated.md. So the step g follows from the deviation that is
# wanted. All numbers are rounded towards more noise.


# r: the part of the noise, in steps, that makes the sum like one of real numbers.
SMOOTHING = 3.0
# Noise of this many standard deviations still fits beside every contribution.
DEVIATIONS = 14
# Range of the noise parameter in steps: powers of two.
MIN_BITS, MAX_BITS = 4, 24
# Assumed advantage of any feasible observer of the protocol over one who sees only the sum.
COMPUTATIONAL = 2.0**-80
# Limit on the sum of all distances of a round; a round stays below it.
DISTANCE_ALLOWED = 2.0**-79
# A share of zero is stated as this: the formulas are positive, however small.
MIN_DISTANCE = 1e-300


@dataclass(frozen=True, kw_only=True)
class SumNoise:
    """Noise of one sum over parties.

    Parameters
    ----------
    size : int >= 1
        Number p of noisy entries of a vector.
    distance : float > 0
        Largest distance between sums of neighbours before encoding.
    bound : float > 0
        Bound on the norm of one party's vector.
    counts : PartyCounts
    step : float > 0
        g.
    sigma_steps : int
        Noise parameter of each party in steps: a power of two from 2**4 to 2**24.
    """

    size: int
    distance: float
    bound: float
    counts: PartyCounts
    step: float
    sigma_steps: int

    @property
    def codec(self) -> FixedPointCodec:
        """Codec from contributions to integers."""
        return FixedPointCodec(step=self.step)

    @property
    def honest_survivors(self) -> int:
        """Number of honest parties in every released sum."""
        return self.counts.honest_survivors

    @property
    def bound_steps(self) -> int:
        """Largest norm R_g of one party's integers, including half a step of rounding in each."""
        return self.codec.bound_steps(self.bound) + math.isqrt(self.size) + 1

    @property
    def fits(self) -> bool:
        """Whether noise of ``DEVIATIONS`` standard deviations fits the range."""
        return self.bound_steps + DEVIATIONS * self.sigma_steps <= LIMIT - 1

    @cached_property
    def rounding(self) -> float:
        """Largest distance that encoding adds between sums of neighbours, rounded up."""
        return self.codec.rounding(self.size)

    @cached_property
    def total(self) -> float:
        """Largest distance between integer sums of neighbours, in units of the numbers."""
        return add_up(self.distance, self.rounding)

    @cached_property
    def sigma(self) -> float:
        """Standard deviation of the Gaussian mechanism that the sum approximates, rounded down."""
        return mul_down(self.step, _root(self.honest_survivors, self.sigma_steps))

    @cached_property
    def discreteness(self) -> float:
        """Distance of the sum from post-processed continuous Gaussian noise, rounded up.

        It covers the h - 1 successive merges of discrete Gaussians and the randomised rounding from
        continuous to discrete noise. Each changes the probability of an integer by a factor within
        ``exp(+-a)``.
        """
        sigma, h = float(self.sigma_steps), self.honest_survivors
        merges = (h - 1) * _log_ratio(0.5 * sigma * sigma)
        # For one noise alone; more of them are closer.
        smooth = SMOOTHING**2 * (1.0 - SMOOTHING**2 / (sigma * sigma))
        bound = self.size * (merges + _log_ratio(smooth))
        return max(bound * (1.0 + 1e-9), MIN_DISTANCE)

    @cached_property
    def overflow(self) -> float:
        """Probability that some party's noise leaves the range, rounded up."""
        room = float(LIMIT - self.bound_steps - 1)
        exponent = -0.5 * (room / self.sigma_steps) ** 2
        # Beyond the floats' exponents, the largest value that such a tail can have.
        tail = math.exp(max(exponent, -700.0) * (1.0 - 1e-12))
        return 2.0 * self.counts.n_users * self.size * tail * (1.0 + 1e-9)


def plan_noise(
    *,
    size: int,
    distance: float,
    bound: float,
    counts: PartyCounts,
    multiplier: float,
) -> SumNoise:
    """Return the noise on the finest grid whose range holds noise and contributions.

    Parameters
    ----------
    size, distance, bound, counts
        As in :class:`SumNoise`.
    multiplier : float > 0
        Standard deviation of the intended Gaussian mechanism at sensitivity 1.

    Raises
    ------
    InvalidParameterError
        No grid is coarse enough for the contributions and fine enough for the noise.
    """
    for bits in range(MAX_BITS, MIN_BITS - 1, -1):
        step = _step(size, distance, counts.honest_survivors, multiplier, 2**bits)
        if step is None:
            break
        noise = SumNoise(
            size=size,
            distance=distance,
            bound=bound,
            counts=counts,
            step=step,
            sigma_steps=2**bits,
        )
        if noise.fits:
            return noise
    raise InvalidParameterError(
        "radius: contributions are too large for the noise on a common grid of 30 bits; expected a "
        "smaller radius or max_records, fewer weights or a smaller epsilon"
    )


def delta_left(epsilon: float, delta: float, n_rounds: int) -> float:
    """Return the delta left for noise after the distances of ``n_rounds`` sums.

    Raises
    ------
    InvalidParameterError
        Nothing is left.
    """
    cost = distance_delta(n_rounds * Fraction(DISTANCE_ALLOWED), epsilon)
    left = add_down(delta, -cost)
    if left > 0.5 * delta:
        return left
    counted = "the failure probability of the cryptography counts (1 + e^epsilon)-fold"
    if 2.0 * cost >= 1e-3:
        most = math.floor(math.log(0.5 * delta / (n_rounds * DISTANCE_ALLOWED)))
        accepted = f"at most {most} with this delta: {counted}"
        raise InvalidParameterError.of("epsilon", got=epsilon, accepted=accepted)
    accepted = f"at least {2.0 * cost:.3g} with this epsilon: {counted}"
    raise InvalidParameterError.of("delta", got=delta, accepted=accepted)


def multiplier_of(epsilon: float, delta: float) -> float:
    """Return the standard deviation of Gaussian noise at sensitivity 1, slightly rounded up.

    The margin absorbs rounding in later comparisons of ratios.
    """
    return round_up(gaussian_sigma(epsilon, delta), 8)


def _root(h: int, sigma_steps: int) -> float:
    """Return ``sqrt(h sigma^2 - r^2)``, rounded down."""
    square = fraction_down(Fraction(h * sigma_steps * sigma_steps) - Fraction(SMOOTHING) ** 2)
    return sqrt_down(square)


def _step(size: int, distance: float, h: int, multiplier: float, sigma_steps: int) -> float | None:
    """Return the smallest step at which the noise suffices; None if rounding dominates."""
    rounded = mul_up(multiplier, mul_up(ROUNDED_STEPS, sqrt_up(float(size))))
    left = add_down(_root(h, sigma_steps), -rounded)
    if not left > 0.0:
        return None
    step = div_up(mul_up(multiplier, distance), left)
    # Products rounded on the other side still have to agree.
    return fraction_up(Fraction(step) * (1 + Fraction(1, 2**40)))


def _log_ratio(square: float) -> float:
    r"""Bound ``log((1 + e) / (1 - e))``, :math:`e = 2 \sum_{m \ge 1} \exp(-2 \pi^2 s m^2)`.

    For s >= 1/2 it is the first term, twice that of the series, times 1.001; the logarithm adds at
    most 0.1 percent. An exponential that underflows is bounded by the smallest float.
    """
    exponent = -2.0 * math.pi**2 * square * (1.0 - 1e-12)
    first = math.exp(exponent) if exponent > -740.0 else SMALLEST_FLOAT
    return 4.0 * first * 1.01


# Numbers of a vector behind those of the contribution: records of the party, and the number 1.
CHECKS = 2


@dataclass(frozen=True, kw_only=True)
class RoundPlan:
    """Round with one vector of each party, and their sum.

    Parameters
    ----------
    name : {"model", "gram", "components"}
    what : str
        Description of the summed values.
    size : int
        Number p of entries of a contribution. A vector has two more, without noise: the party's
        number of records (0 if parties have equal weight) and 1.
    codec : FixedPointCodec
    noise : SumNoise or None
        None if parties release their own noisy numbers, and the sum only hides who sent what.
    clip_norm : float or None
        For ``"gram"``: bound on the norm of one row's outer product with itself.
    local_events : tuple of PrivacyEvent
        Privacy events of a party's own noise.
    """

    name: str
    what: str
    size: int
    codec: FixedPointCodec
    noise: SumNoise | None = None
    clip_norm: float | None = None
    local_events: tuple[PrivacyEvent, ...] = ()

    @property
    def length(self) -> int:
        """Length of a vector."""
        return self.size + CHECKS

    @property
    def sigma_steps(self) -> int:
        """Parameter of each party's discrete Gaussian noise in the sum; 0 for none."""
        return 0 if self.noise is None else self.noise.sigma_steps

    def events(self, trust: str = "secure_sum") -> tuple[PrivacyEvent, ...]:
        """Return the events that this round charges to a ledger."""
        summed = self.secure_round(trust)
        return (*(() if summed is None else summed.events), *self.local_events)

    def secure_round(self, trust: str) -> SecureRound | None:
        """Return the record of the sum for the statement; None if it has no noise."""
        noise = self.noise
        if noise is None:
            return None
        return filled(
            SecureRound,
            self,
            noise,
            exact=noise.distance,
            grid=noise.step,
            smoothing=SMOOTHING,
            computational=COMPUTATIONAL if trust == "secure_sum" else 0.0,
            range_steps=noise.bound_steps,
        )


def noisy_sum(
    name: str, noise: SumNoise, weighting: str, clip_norm: float | None = None
) -> RoundPlan:
    """Return the round of a sum with common noise."""
    return RoundPlan(
        name=name,
        what=summed_over_parties(name, weighting),
        size=noise.size,
        codec=noise.codec,
        noise=noise,
        clip_norm=clip_norm,
    )


def averaged_models(spec: FederatedSpec, multiplier: float) -> RoundPlan:
    """Return the round that sums local models, with the given noise at sensitivity 1."""
    training = spec.training
    assert training is not None
    noise = plan_noise(
        size=training.size,
        distance=training.distance,
        bound=training.bound,
        counts=spec,
        multiplier=multiplier,
    )
    return noisy_sum("model", noise, spec.weighting)


@dataclass(frozen=True)
class ObjectiveTraining:
    """Objective perturbation of one party, with the same noise for every number of records.

    Parameters
    ----------
    mechanism : ObjectivePerturbation
        Mechanism of a party with the fewest records, whose regularisation is the smallest.
    spec : FederatedSpec
    """

    mechanism: ObjectivePerturbation
    spec: FederatedSpec

    def sum_regularization(self, n_records: int) -> float:
        """Return lambda of the sum-form objective, at least the one of the noise."""
        mean_form, least = self.spec.regularization, self.mechanism.regularization
        return least if mean_form is None else max(least, mul_up(mean_form, float(n_records)))

    @property
    def radius(self) -> float:
        """Bound on the norm of released weights, to which they are rarely scaled down."""
        loss, regularization = self.mechanism.loss, self.mechanism.regularization
        n = self.spec.max_records
        most = self.sum_regularization(n)
        by_gradient = n * loss.lipschitz * self.mechanism.row_norm / most
        by_value = math.sqrt(2.0 * n * loss.at_zero / most)
        noise = self.mechanism.inside.deviation * math.sqrt(self.mechanism.n_weights)
        noise += self.mechanism.output.deviation * math.sqrt(self.mechanism.n_weights)
        return 2.0 * (min(by_gradient, by_value) + 2.0 * noise / regularization)

    @property
    def bound(self) -> float:
        """Bound on the norm of a contribution."""
        return self.radius * self.spec.max_weight
