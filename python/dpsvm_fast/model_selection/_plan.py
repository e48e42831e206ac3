"""All that a search will spend, for either strategy, before any data are seen."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dpsvm_fast._rounding import add_down, div_up, mul_down
from dpsvm_fast.accounting import GaussianEvent, PrivacyEvent, PureEvent
from dpsvm_fast.accounting.selection import SelectionNoise, Stopping, selection_events
from dpsvm_fast.estimators._planned_events import Planned
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.mechanisms._noisy_sum import gaussian_parameter
from dpsvm_fast.model_selection._budgets import (
    Allotment,
    Budget,
    allot,
    fits,
    is_cheap,
    largest_epsilon,
    refit_events,
    shares,
)
from dpsvm_fast.noise._selection import few_bits_down

__all__ = ["Plan", "Shape", "partition_plan", "stopping_plan"]

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
