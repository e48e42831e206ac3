"""All that a search will spend, for either strategy, before any data are seen."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from sklearn.base import clone

from dpsvm_fast.accounting import gaussian_epsilon
from dpsvm_fast.accounting.composition import Composition
from dpsvm_fast.certificates import (
    AlternativesEvent,
    ApproximateEvent,
    DistanceEvent,
    GaussianEvent,
    ObjectiveEvent,
    PrivacyEvent,
    PureEvent,
    SubsampledGaussianEvent,
    ZCDPEvent,
)
from dpsvm_fast.certificates.statement import SelectionNoise, Stopping, selection_events
from dpsvm_fast.exceptions import BudgetExceededError, InvalidParameterError
from dpsvm_fast.ledger import PrivacyLedger
from dpsvm_fast.ledger.ledger import SLACK
from dpsvm_fast.mechanisms.noise import gaussian_parameter
from dpsvm_fast.noise import few_bits_down
from dpsvm_fast.pipelines import Planned, planned_events, private_steps
from dpsvm_fast.rounding import add_down, div_up, mul_down, mul_up

# Who gets how much of a search's budget, before any data are seen.
#
# Everything here is a search for the largest epsilon of a candidate with which the whole still
# fits;
# what is found is accepted because the accountant says so, not because of how it was found.


Events = tuple[PrivacyEvent, ...]

# Bisection ends when the largest epsilon is known to this relative precision; the second one is for
# compositions without a formula, each of which takes seconds.
PRECISION, DEAR_PRECISION = 2.0**-9, 2.0**-5
# Below this share of what is asked for, a budget is as good as none.
SMALLEST_SHARE = 2.0**-30
# By how much a bracket grows or shrinks at a time.
STRIDE, DEAR_STRIDE = 1.3, 1.08


@dataclass(frozen=True)
class Budget:
    """Epsilon and delta for one relation."""

    epsilon: float
    delta: float
    adjacency: str


@dataclass(frozen=True)
class Allotment:
    """One candidate with a budget.

    Parameters
    ----------
    estimator : object
        Copy of the candidate whose private steps have their epsilon and delta.
    budget : Budget
        Of all its steps together.
    events : tuple of PrivacyEvent
        What they will spend.
    """

    estimator: Any
    budget: Budget
    events: Events


def fits(events: Events, budget: Budget) -> bool:
    """Whether the accountant shows that events cost no more than a budget, as a ledger decides."""
    epsilon, delta = mul_up(budget.epsilon, 1.0 + SLACK), mul_up(budget.delta, 1.0 + SLACK)
    composed = Composition.of(events)
    if budget.delta == 0.0:
        return composed.fits(epsilon, delta)
    # What a ledger tries first, so as to have it ready for the events to come, is in vain here.
    return composed.delta(epsilon) <= delta


def shares(budget: Budget, share: float, delta: float) -> float:
    """Epsilon, at a given delta, of a share of a budget.

    Of epsilon where all is pure; of the squared parameter of Gaussian noise otherwise, which is
    what adds up.
    """
    if budget.delta == 0.0:
        return mul_down(share, budget.epsilon)
    mu = math.sqrt(share) * gaussian_parameter(budget.epsilon, budget.delta)
    return min(budget.epsilon, gaussian_epsilon(delta, 1.0 / mu))


def allot(candidate: Any, budget: Budget, rows: Planned) -> Allotment:
    """Give a candidate a budget.

    One private step gets all of it. Several get epsilons in the proportions that they have, as
    large as together fit, and equal parts of delta. A step whose delta is 0 keeps that: it is one
    that should be pure.

    Raises
    ------
    InvalidParameterError, TypeError
        A parameter of the candidate is outside its range.
    """
    estimator = clone(candidate)
    steps = [step.estimator for step in private_steps(estimator)]
    weights = [float(step.epsilon) for step in steps]

    def planned(scale: float) -> Events:
        for step, weight in zip(steps, weights, strict=True):
            delta = 0.0 if getattr(step, "delta", 0.0) == 0.0 else budget.delta / len(steps)
            own = min(budget.epsilon, mul_down(scale, weight))
            step.set_params(epsilon=own, **({"delta": delta} if hasattr(step, "delta") else {}))
        return planned_events(estimator, rows)

    if len(steps) == 1:
        weights = [1.0]
        return Allotment(estimator, budget, planned(budget.epsilon))
    total = budget.epsilon / sum(weights)
    scale = largest_epsilon(
        lambda scale: fits(planned(scale), budget), total, budget.epsilon / max(weights)
    )
    return Allotment(estimator, budget, planned(scale))


def refit_events(candidates: list[Any], budget: Budget, rows: Planned) -> Events:
    """What a fit of any of the candidates, chosen by what was released, costs at most.

    The largest of the composed guarantees of fixed choices would not be enough: the choice may
    follow the loss so far.
    """
    fits_of = (allot(candidate, budget, rows).events for candidate in candidates)
    alternatives = tuple(dict.fromkeys(fits_of))
    if len(alternatives) == 1:
        return alternatives[0]
    return (AlternativesEvent(alternatives, budget.adjacency),)


def is_cheap(events: Events) -> bool:
    """Whether the accountant has a formula for these, so that questions about them are cheap."""
    inside = [
        branch
        for event in events
        for branch in (event.branches if isinstance(event, AlternativesEvent) else ((event,),))
    ]
    kinds = {type(event) for branch in inside for event in branch}
    # A curve of several kinds is known in points only.
    mixed = any(isinstance(event, AlternativesEvent) for event in events) and len(kinds) > 1
    return kinds <= {GaussianEvent, PureEvent} and not mixed


def largest_epsilon(
    allowed: Callable[[float], bool], guess: float, most: float, *, cheap: bool = True
) -> float:
    """About the largest epsilon that is allowed, and surely one that is.

    Parameters
    ----------
    allowed : callable
        Of an epsilon; True below some number and False above.
    guess : float
        Where to begin.
    most : float
        Where to end.
    cheap : bool, default=True
        Whether questions are; else few are asked, around the guess.

    Raises
    ------
    InvalidParameterError
        Nothing above a tiny share of ``most`` is allowed.
    """
    stride, precision = (STRIDE, PRECISION) if cheap else (DEAR_STRIDE, DEAR_PRECISION)
    low, high = min(guess, most), math.inf
    if allowed(low):
        while low < most and math.isinf(high):
            trial = min(most, stride * low)
            low, high = (trial, high) if allowed(trial) else (low, trial)
        if math.isinf(high):
            return low
    else:
        high, step = low, stride
        while True:
            low, step = high / step, step * step
            if low < SMALLEST_SHARE * most:
                raise InvalidParameterError(
                    "epsilon: expected more of it, or of delta: with this budget no candidate can "
                    "be paid for"
                )
            if allowed(low):
                break
            high = low
    while high > low * (1.0 + precision):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if allowed(middle) else (low, middle)
    return low


# Of discrete Laplace noise: the least that is a ratio of numbers of the sampler's range.
SMALLEST_RATE = 2.0**-30


@dataclass(frozen=True)
class Plan:
    """Budgets of all fits and of the choice.

    Parameters
    ----------
    branches : tuple of Allotment
        One for each candidate.
    selection : SelectionNoise
    stopping : Stopping or None
    refit_budget : Budget or None
        Of the fit of the winner on all rows.
    refit : tuple of PrivacyEvent
        What that costs, whichever it is.
    """

    branches: tuple[Allotment, ...]
    selection: SelectionNoise
    stopping: Stopping | None
    refit_budget: Budget | None
    refit: tuple[PrivacyEvent, ...]

    @property
    def events(self) -> tuple[PrivacyEvent, ...]:
        """What a ledger is charged, all at once."""
        return selection_events(
            tuple(branch.events for branch in self.branches),
            self.selection,
            self.stopping,
            self.refit,
            self.branches[0].budget.adjacency,
        )


@dataclass(frozen=True)
class Shape:
    """Public facts about the rows.

    Parameters
    ----------
    parts : sequence of Planned
        Of the rows of each candidate's part.
    whole : Planned
        Of all rows.
    """

    parts: Sequence[Planned]
    whole: Planned


def partition_plan(
    candidates: list[Any],
    budget: Budget,
    shape: Shape,
    *,
    mechanism: str,
    sensitivity: int,
    refit_fraction: float,
) -> Plan:
    """Budgets where every record is in one part: each part may use what the refit leaves.

    Parameters
    ----------
    candidates : list of estimator
    budget : Budget
    shape : Shape
    mechanism : {"permute_and_flip", "exponential"}
    sensitivity : int
        Of the scores.
    refit_fraction : float in [0, 1)
        Share of the budget for the fit of the winner on all rows.

    Raises
    ------
    InvalidParameterError, TypeError
        A candidate cannot be paid for, or has a parameter outside its range.
    """
    refit_budget, refit, delta = _refit(candidates, budget, shape.whole, refit_fraction)
    adjacency = budget.adjacency

    def branches(epsilon: float) -> tuple[Allotment, ...]:
        own = Budget(epsilon, delta, adjacency)
        return tuple(allot(c, own, rows) for c, rows in zip(candidates, shape.parts, strict=True))

    def payable(epsilon: float) -> bool:
        distinct = dict.fromkeys(branch.events for branch in branches(epsilon))
        return all(fits((*events, *refit), budget) for events in distinct)

    def choosable(epsilon: float) -> bool:
        return fits((PureEvent(epsilon, adjacency), *refit), budget)

    left = _left(budget, refit_budget, refit_fraction, delta)
    cheap = is_cheap(refit) and all(is_cheap(branch.events) for branch in branches(left))
    spent = _largest(payable, left, budget, cheap=cheap)
    chosen = _largest(choosable, left, budget, cheap=is_cheap(refit))
    factor = 2 if adjacency == "replace_one" else 1
    selection = SelectionNoise(
        mechanism=mechanism,
        sensitivity=sensitivity,
        relation_factor=factor,
        rate=few_bits_down(Fraction(chosen) / (factor * sensitivity)),
    )
    return Plan(branches(spent), selection, None, refit_budget, refit)


def stopping_plan(
    candidates: list[Any],
    budget: Budget,
    rows: Planned,
    *,
    stopping: Stopping,
    sensitivity: int,
    score_fraction: float,
    refit_fraction: float,
) -> Plan:
    """Budgets of one run where the best of a random number of them is released.

    Parameters
    ----------
    candidates : list of estimator
    budget : Budget
        Of the whole search.
    rows : Planned
    stopping : Stopping
    sensitivity : int
        Of the scores.
    score_fraction : float in (0, 1)
        Share of a run's budget for its score.
    refit_fraction : float in [0, 1)

    Raises
    ------
    InvalidParameterError, TypeError
        A run cannot be paid for, or a candidate has a parameter outside its range.
    """
    refit_budget, refit, delta = _refit(candidates, budget, rows, refit_fraction)
    delta /= 4.0 * max(1.0, stopping.mean)

    def plan(epsilon: float) -> Plan:
        own = Budget(epsilon, delta, budget.adjacency)
        if budget.delta == 0.0:
            own = Budget(mul_down(epsilon, 1.0 - score_fraction), 0.0, budget.adjacency)
        branches = tuple(allot(candidate, own, rows) for candidate in candidates)
        noise = _score_noise(epsilon, delta, sensitivity, score_fraction)
        return Plan(branches, noise, stopping, refit_budget, refit)

    def about(epsilon: float) -> bool:
        return fits(_as_gaussian(plan(epsilon), Budget(epsilon, delta, budget.adjacency)), budget)

    most = budget.epsilon
    guess = largest_epsilon(about, most / 3.0, most) if budget.delta > 0.0 else most / 3.0
    cheap = all(is_cheap(branch.events) for branch in plan(guess).branches)
    allowed = lambda e: fits(plan(e).events, budget)  # noqa: E731 - as short as its use
    return plan(largest_epsilon(allowed, guess, most, cheap=cheap))


def _as_gaussian(plan: Plan, run: Budget) -> tuple[PrivacyEvent, ...]:
    """The events if fits with the budget of a run were Gaussian: a guess that costs little."""
    mu = gaussian_parameter(run.epsilon, run.delta)
    fit = (GaussianEvent(1.0 / mu, 1.0, run.adjacency),)
    return selection_events((fit,), plan.selection, plan.stopping, plan.refit, run.adjacency)


def _score_noise(
    epsilon: float, delta: float, sensitivity: int, score_fraction: float
) -> SelectionNoise:
    """Noise for the score of a run with this epsilon (that of the fit where delta is not 0)."""
    if delta == 0.0:
        rate = few_bits_down(Fraction(epsilon) * Fraction(score_fraction) / sensitivity)
        if rate < SMALLEST_RATE:
            raise InvalidParameterError(
                "epsilon: expected more of it: with this budget the noise of a score would be "
                "beyond the range of the sampler"
            )
        return SelectionNoise(
            mechanism="discrete_laplace", sensitivity=sensitivity, relation_factor=1, rate=rate
        )
    odds = score_fraction / (1.0 - score_fraction)
    mu = math.sqrt(odds) * gaussian_parameter(epsilon, delta)
    return SelectionNoise(
        mechanism="gaussian_on_grid",
        sensitivity=sensitivity,
        relation_factor=1,
        sigma=div_up(float(sensitivity), mu),
    )


def _refit(
    candidates: list[Any], budget: Budget, rows: Planned, fraction: float
) -> tuple[Budget | None, tuple[PrivacyEvent, ...], float]:
    """Budget and events of the refit, and the delta with which all other fits are calibrated."""
    if fraction == 0.0:
        return None, (), budget.delta
    delta = 0.5 * budget.delta
    own = Budget(shares(budget, fraction, delta), delta, budget.adjacency)
    return own, refit_events(candidates, own, rows), delta


def _left(budget: Budget, refit: Budget | None, fraction: float, delta: float) -> float:
    """About what the refit leaves; exactly that where epsilons add up."""
    if refit is None:
        return budget.epsilon
    if budget.delta == 0.0:
        return add_down(budget.epsilon, -refit.epsilon)
    return shares(budget, 1.0 - fraction, delta)


def _largest(
    allowed: Callable[[float], bool], left: float, budget: Budget, *, cheap: bool
) -> float:
    """What a part may spend: what is left where that is known exactly, else what is found."""
    if left == budget.epsilon or budget.delta == 0.0:
        if not allowed(left):
            raise InvalidParameterError(
                "estimator: a candidate declares events beyond the budget that there is for it"
            )
        return left
    return largest_epsilon(allowed, left, budget.epsilon, cheap=cheap)


# The purse of one candidate: it pays for exactly the events that its search has paid for.


class CandidateLedger(PrivacyLedger):
    """A ledger for one fit, whose events were charged elsewhere beforehand.

    Parameters
    ----------
    epsilon : float
    delta : float
    adjacency : {"add_remove", "replace_one"}
    planned : tuple of PrivacyEvent
        What may be spent, in this order, each event once. One that is not covered by the next of
        these is refused, before anything is drawn.
    """

    def __init__(
        self, epsilon: float, delta: float, adjacency: str, planned: tuple[PrivacyEvent, ...]
    ) -> None:
        super().__init__(epsilon, delta, adjacency)
        self._planned = planned
        self._paid = 0

    def spend(self, event: PrivacyEvent | tuple[PrivacyEvent, ...], label: str = "") -> None:
        """Record events that were planned; refuse all others."""
        events = event if isinstance(event, tuple) else (event,)
        with self._lock:
            plan = self._planned[self._paid :][: len(events)]
            if len(plan) < len(events) or not all(map(covers, plan, events)):
                raise BudgetExceededError(
                    "this fit asks for another release than the search has paid for, because an "
                    "estimator has other parameters than when the search was planned"
                )
            super().spend(events, label)
            self._paid += len(events)


def covers(larger: PrivacyEvent, smaller: PrivacyEvent) -> bool:
    """Whether one event is known to promise no more privacy than another of the same kind."""
    if type(larger) is not type(smaller) or larger.adjacency != smaller.adjacency:
        return False
    if larger == smaller:
        return True
    if isinstance(larger, GaussianEvent) and isinstance(smaller, GaussianEvent):
        return smaller.mu <= larger.mu
    if isinstance(larger, PureEvent) and isinstance(smaller, PureEvent):
        return smaller.epsilon <= larger.epsilon
    if isinstance(larger, ZCDPEvent) and isinstance(smaller, ZCDPEvent):
        return smaller.rho <= larger.rho
    if isinstance(larger, ApproximateEvent) and isinstance(smaller, ApproximateEvent):
        return smaller.epsilon <= larger.epsilon and smaller.delta <= larger.delta
    if isinstance(larger, DistanceEvent) and isinstance(smaller, DistanceEvent):
        return smaller.distance <= larger.distance
    if isinstance(larger, SubsampledGaussianEvent) and isinstance(smaller, SubsampledGaussianEvent):
        return (
            smaller.sampling_rate == larger.sampling_rate
            and smaller.n_steps <= larger.n_steps
            and smaller.noise_multiplier >= larger.noise_multiplier
        )
    if isinstance(larger, ObjectiveEvent) and isinstance(smaller, ObjectiveEvent):
        names = ("law", "n_scores", "kappa", "jacobian")
        alike = all(getattr(larger, name) == getattr(smaller, name) for name in names)
        return alike and smaller.sigma >= larger.sigma
    return False
