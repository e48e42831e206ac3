r"""Components first, then models in their space: the two rounds of FedDPDR-DPML.

Round 1 sums the parties' matrices of products of features, :math:`\sum_i X_i^\top X_i`, under noise
(``aggregation="gram"``), or what parties made of noisy matrices of their own. Round 2 averages
models of rows projected on the components. The two compose: squares of Gaussian parameters add up,
and noise inside an objective gets what the accountant says is left.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

from dpsvm_fast._rounding import div_down, div_up, mul_up, round_up, sqrt_up
from dpsvm_fast.accounting import PrivacyEvent, composed_delta, gaussian_epsilon
from dpsvm_fast.accounting.words import summed_over_parties
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.federated._counts import PartyCounts
from dpsvm_fast.federated._helmet_plan import averaged_models
from dpsvm_fast.federated.encoding import FixedPointCodec
from dpsvm_fast.federated.noise import delta_left, multiplier_of, plan_noise
from dpsvm_fast.federated.plans import RoundPlan
from dpsvm_fast.federated.training import LocalTraining
from dpsvm_fast.losses import Loss
from dpsvm_fast.mechanisms._noisy_sum import share_of
from dpsvm_fast.mechanisms._projected_sgd import loss_at_zero
from dpsvm_fast.mechanisms.objective import ObjectivePerturbation
from dpsvm_fast.mechanisms.pca import NoisyComponents

__all__ = ["DpdrPlan", "ObjectiveTraining"]

OBJECTIVE_TOL = 1e-5
# Of the search for what the first round leaves to the second: where it begins, relative to what
# Gaussian noise would be left; by how much delta may be missed from below; and when it ends.
FIRST_GUESS = 0.97
UNUSED = 0.1
SLOPE = 5.0
STEPS = 16
LEAST_DELTA = 5e-324
# Released numbers that are only hidden among others are rounded to this share of their bound.
PLAIN_STEPS = 2**28
# A vector of more numbers than this is surely a mistake.
MOST_NUMBERS = 2**26


@dataclass(frozen=True, kw_only=True)
class ObjectiveTraining:
    """A party's own objective perturbation: the noise is the same for every number of records.

    Parameters
    ----------
    mechanism : ObjectivePerturbation
        Of a party with the fewest records, whose regularisation is the smallest.
    regularization : float or None
        Lambda of the mean-form objective; None for the mechanism's own rule.
    weighting : {"records", "users"}
    max_records : int
    """

    mechanism: ObjectivePerturbation
    regularization: float | None
    weighting: str
    max_records: int

    def weight(self, n_records: int) -> int:
        """Factor of the party's model in its contribution."""
        return n_records if self.weighting == "records" else 1

    def sum_regularization(self, n_records: int) -> float:
        """Lambda of the sum-form objective: never less than the noise was made for."""
        if self.regularization is None:
            return self.mechanism.regularization
        return max(self.mechanism.regularization, mul_up(self.regularization, float(n_records)))

    @property
    def radius(self) -> float:
        """Bound of released weights: beyond it, rarely, they are scaled down."""
        loss, regularization = self.mechanism.loss, self.mechanism.regularization
        n = self.max_records
        most = self.sum_regularization(n)
        by_gradient = n * loss.lipschitz * self.mechanism.row_norm / most
        by_value = math.sqrt(2.0 * n * loss_at_zero(loss) / most)
        noise = self.mechanism.inside.deviation * math.sqrt(self.mechanism.n_weights)
        noise += self.mechanism.output.deviation * math.sqrt(self.mechanism.n_weights)
        return 2.0 * (min(by_gradient, by_value) + 2.0 * noise / regularization)

    @property
    def bound(self) -> float:
        """Of a contribution."""
        return self.radius * self.weight(self.max_records)


@dataclass(frozen=True, kw_only=True)
class DpdrPlan:
    """Two rounds within one budget.

    Parameters
    ----------
    epsilon, delta : float
    counts : PartyCounts
    loss : Loss
    n_features, n_components : int
    data_norm, intercept_scaling : float
    aggregation : {"gram", "projectors", "eigenvectors"}
    first_share : float in (0, 1)
        Of the squared Gaussian parameter, for round 1.
    regularization : float or None
        None with ``training=None`` only: the rule of objective perturbation.
    training : LocalTraining or None
        None for objective perturbation of every party by itself.
    weighting : {"records", "users"}
    unit : {"record", "group", "user"}
    group_size, min_records, max_records : int
    objective_epsilon : float or None
        What round 2 may spend with ``training=None``; None for what round 1 leaves.
    """

    epsilon: float
    delta: float
    counts: PartyCounts
    loss: Loss
    n_features: int
    n_components: int
    data_norm: float
    intercept_scaling: float
    aggregation: str
    first_share: float
    regularization: float | None
    training: LocalTraining | None
    weighting: str
    unit: str
    group_size: int
    min_records: int
    max_records: int
    objective_epsilon: float | None = None

    def __post_init__(self) -> None:
        """Refuse what has no proof, or no room."""
        if self.unit != "record" and (self.training is None or self.aggregation != "gram"):
            raise InvalidParameterError.of(
                "unit",
                got=self.unit,
                accepted="'record' where parties add noise of their own: local='output' and "
                "aggregation='gram' protect more",
            )
        if self._first_size > MOST_NUMBERS:
            raise InvalidParameterError.of(
                "n_features", got=self.n_features, accepted="fewer: products of pairs are summed"
            )

    @property
    def _first_size(self) -> int:
        """Numbers of round 1."""
        if self.aggregation == "eigenvectors":
            return self.n_components * self.n_features
        return self.n_features * (self.n_features + 1) // 2

    @property
    def _delta(self) -> float:
        """What the distances of the noisy sums leave."""
        sums = (self.aggregation == "gram") + (self.training is not None)
        return delta_left(self.epsilon, self.delta, sums) if sums else self.delta

    @cached_property
    def _mu(self) -> float:
        """Gaussian parameter of the whole budget."""
        return div_down(1.0, multiplier_of(self.epsilon, self._delta))

    @cached_property
    def components(self) -> NoisyComponents | None:
        """A party's own noisy matrix, where there is one."""
        if self.aggregation == "gram":
            return None
        return NoisyComponents(
            n_features=self.n_features,
            adjacency="replace_one",
            noise_grid="exact",
            mu=share_of(self._mu, self.first_share),
        )

    @cached_property
    def objective(self) -> ObjectiveTraining | None:
        """A party's own noisy objective, where there is one."""
        if self.training is not None:
            return None
        return ObjectiveTraining(
            mechanism=self._objective,
            regularization=self.regularization,
            weighting=self.weighting,
            max_records=self.max_records,
        )

    @cached_property
    def left_for_objective(self) -> float:
        """Epsilon of the noise in the objective: as given, or what the first round leaves."""
        if self.objective_epsilon is not None:
            return self.objective_epsilon
        return _left_for_objective(self)

    @cached_property
    def _objective(self) -> ObjectivePerturbation:
        """Noise in the objective, of which it is certain that both rounds are within the budget."""
        mechanism = self.objective_with(self.left_for_objective)
        both = (*self.spent_first(), *mechanism.events)
        if not _delta_of(both, self.epsilon) <= self.delta:
            raise InvalidParameterError(
                "objective_epsilon: the two rounds together exceed epsilon and delta"
            )
        return mechanism

    @cached_property
    def rounds(self) -> tuple[RoundPlan, ...]:
        """Components, then models."""
        return (self._first, self._second)

    @cached_property
    def _first(self) -> RoundPlan:
        """Round 1."""
        if self.components is None:
            return self._gram
        weight = self.max_records if self.weighting == "records" else 1
        times = ", times their numbers of records" if weight > 1 else ""
        return RoundPlan(
            name="components",
            what=f"the parties' own noisy {self.aggregation}{times}",
            size=self._first_size,
            codec=FixedPointCodec(step=round_up(1.001 * weight / PLAIN_STEPS)),
            local_events=(self.components.event,),
        )

    @property
    def _gram(self) -> RoundPlan:
        """The sum of matrices of products of features, under noise."""
        clip_norm = mul_up(self.data_norm, self.data_norm)
        rows = {"record": 1, "group": self.group_size, "user": self.max_records}[self.unit]
        noise = plan_noise(
            size=self._first_size,
            distance=mul_up(mul_up(sqrt_up(2.0), clip_norm), float(rows)),
            bound=mul_up(self.max_records * (1.0 + 2.0**-20), clip_norm),
            n_affected=min(rows, self.counts.n_users) if self.unit == "group" else 1,
            counts=self.counts,
            multiplier=div_up(1.0, share_of(self._mu, self.first_share)),
        )
        return RoundPlan(
            name="gram",
            what=summed_over_parties("gram", self.weighting),
            size=self._first_size,
            codec=noise.codec,
            noise=noise,
            clip_norm=clip_norm,
        )

    @cached_property
    def _second(self) -> RoundPlan:
        """Round 2."""
        if self.training is not None:
            left = share_of(self._mu, 1.0 - self.first_share)
            return averaged_models(self.training, self.counts, div_up(1.0, left))
        training = self.objective
        assert training is not None
        times = ", times their numbers of records" if self.weighting == "records" else ""
        return RoundPlan(
            name="model",
            what=f"the weights of the parties' own noisy models{times}",
            size=training.mechanism.n_weights,
            codec=FixedPointCodec(step=round_up(training.bound / PLAIN_STEPS)),
            local_events=training.mechanism.events,
        )

    def spent_first(self) -> tuple[PrivacyEvent, ...]:
        """Events of round 1."""
        return self._first.events()

    def objective_with(self, own: float) -> ObjectivePerturbation:
        """Objective perturbation with an epsilon of its own."""
        C = None
        if self.regularization is not None:
            C = div_down(1.0, mul_up(self.regularization, float(self.min_records)))
        return ObjectivePerturbation(
            epsilon=own,
            delta=self._delta,
            adjacency="replace_one",
            noise="gaussian",
            noise_grid="exact",
            loss=self.loss,
            n_features=self.n_components,
            data_norm=self.data_norm,
            intercept_scaling=self.intercept_scaling,
            C=C,
            extra_regularization=None,
            tol=OBJECTIVE_TOL,
        )


@lru_cache(maxsize=64)
def _delta_of(events: tuple[PrivacyEvent, ...], epsilon: float) -> float:
    """Composition, remembered: with many classes it takes a good part of a second."""
    return composed_delta(events, epsilon)


def _left_for_objective(plan: DpdrPlan) -> float:
    """About the largest epsilon of noise in the objective that keeps both rounds in the budget.

    By secants of the logarithm of delta, from what Gaussian noise would be left.
    """
    spent = plan.spent_first()

    def log_excess(own: float) -> float:
        events = (*spent, *plan.objective_with(own).events)
        return math.log(max(_delta_of(events, plan.epsilon), LEAST_DELTA) / plan.delta)

    left = share_of(plan._mu, 1.0 - plan.first_share)
    own = min(gaussian_epsilon(plan._delta, div_down(1.0, left)), plan.epsilon) * FIRST_GUESS
    low, at_low, high, at_high = 0.0, -math.inf, math.inf, math.inf
    for _ in range(STEPS):
        found = log_excess(own)
        if found <= 0.0:
            low, at_low = own, found
        else:
            high, at_high = own, found
        if at_low >= -UNUSED or low >= plan.epsilon:
            break
        own = _next_guess(low, at_low, high, at_high)
    if not low > 0.0:
        raise InvalidParameterError.of(
            "first_share",
            got=plan.first_share,
            accepted="less: the first round leaves nothing to noise in the objective",
        )
    return low


def _next_guess(low: float, at_low: float, high: float, at_high: float) -> float:
    """Between the two, aimed a little below the root; beyond one of them where there is no other.

    One percent less epsilon takes about five percent of delta away.
    """
    aim = -0.5 * UNUSED
    if math.isinf(high):
        return low * min(1.2, 1.0 + (aim - at_low) / SLOPE)
    if low == 0.0:
        return high * max(0.5, 1.0 + (aim - at_high) / SLOPE)
    guess = low + (high - low) * (aim - at_low) / (at_high - at_low)
    return guess if low < guess < high else 0.5 * (low + high)
