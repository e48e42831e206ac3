"""Who gets how much of a search's budget, before any data are seen.

Everything here is a search for the largest epsilon of a candidate with which the whole still fits;
what is found is accepted because the accountant says so, not because of how it was found.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sklearn.base import clone

from dpsvm_fast._rounding import mul_down, mul_up
from dpsvm_fast.accounting import (
    AlternativesEvent,
    GaussianEvent,
    PrivacyEvent,
    PureEvent,
    gaussian_epsilon,
)
from dpsvm_fast.accounting.accountant import Composition
from dpsvm_fast.accounting.ledger import SLACK
from dpsvm_fast.estimators._planned_events import Planned, planned_events, private_steps
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.mechanisms._noisy_sum import gaussian_parameter

__all__ = [
    "Allotment",
    "Budget",
    "allot",
    "fits",
    "is_cheap",
    "largest_epsilon",
    "refit_events",
    "shares",
]

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
