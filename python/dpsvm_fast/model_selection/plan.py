"""Budget plans of a search, for both strategies, decided before any private value is read.

The functions look for the largest epsilon of a candidate that fits the total budget. The accountant
accepts the result, so its validity does not depend on how it was found.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from itertools import pairwise
from typing import Any, cast

from sklearn.base import clone

from dpsvm_fast.accounting import gaussian_epsilon
from dpsvm_fast.accounting.composition import totals_delta, totals_fit
from dpsvm_fast.accounting.totals import of_events
from dpsvm_fast.certificates import AlternativesEvent, GaussianEvent, PrivacyEvent, PureEvent
from dpsvm_fast.certificates.statement import SelectionNoise, Stopping, selection_events
from dpsvm_fast.exceptions import BudgetExceededError, InvalidParameterError
from dpsvm_fast.ledger import PrivacyLedger
from dpsvm_fast.ledger.ledger import SLACK
from dpsvm_fast.mechanisms.noise import SMALLEST, gaussian_parameter
from dpsvm_fast.mechanisms.plan import Facts, filled
from dpsvm_fast.noise import few_bits_down
from dpsvm_fast.pipelines import planned_events, private_steps
from dpsvm_fast.rounding import add_down, div_up, mul_down, mul_up

Events = tuple[PrivacyEvent, ...]

# Bisection ends when the largest epsilon is known to this relative precision; the second one is for
# compositions without a formula, each of which takes seconds.
PRECISION, COSTLY_PRECISION = 2.0**-9, 2.0**-5
# Factor by which a bracket grows or shrinks.
STRIDE, COSTLY_STRIDE = 1.3, 1.08
# A smaller share of the requested budget is practically none.
SMALLEST_SHARE = 2.0**-30
# Smallest rate of discrete Laplace noise that is a ratio of numbers in the sampler's range.
SMALLEST_RATE = 2.0**-30


@dataclass(frozen=True)
class Budget:
    """Epsilon and delta for one neighbouring relation."""

    epsilon: float
    delta: float
    adjacency: str

    def covers(self, events: Events) -> bool:
        """Return whether the events fit this budget, by the accountant of the ledger."""
        epsilon, delta = mul_up(self.epsilon, 1.0 + SLACK), mul_up(self.delta, 1.0 + SLACK)
        totals = of_events(events)
        if self.delta == 0.0:
            return totals_fit(totals, epsilon, delta)
        # A ledger first computes what later events reuse; that would be wasted here.
        return totals_delta(totals, epsilon) <= delta

    def share(self, share: float, delta: float) -> float:
        """Return the epsilon of a share of this budget at a given delta.

        The share is of epsilon if the budget is pure, otherwise of the squared Gaussian parameter,
        which is additive.
        """
        if self.delta == 0.0:
            return mul_down(share, self.epsilon)
        mu = math.sqrt(share) * gaussian_parameter(self.epsilon, self.delta)
        return min(self.epsilon, gaussian_epsilon(delta, 1.0 / mu))


@dataclass(frozen=True)
class Allotment:
    """A candidate with its budget.

    Parameters
    ----------
    estimator : object
        Copy of the candidate whose private steps have their epsilon and delta.
    budget : Budget
        Budget of all its steps together.
    events : tuple of PrivacyEvent
        Events that the steps will spend.
    unit : {"row", "person"}
    """

    estimator: Any
    budget: Budget
    events: Events
    unit: str = "row"


@dataclass(frozen=True, kw_only=True)
class Budgets:
    """Split of a search's budget.

    Parameters
    ----------
    branches : tuple of Allotment
        One for each candidate.
    refits : tuple of Allotment
        One for each candidate, to refit it if it wins; empty without a refit.
    selection : SelectionNoise
    stopping : Stopping or None
    """

    branches: tuple[Allotment, ...]
    refits: tuple[Allotment, ...]
    selection: SelectionNoise
    stopping: Stopping | None = None

    @property
    def refit(self) -> Events:
        """Events that cover the refit of any winner.

        The largest composed guarantee over fixed choices would not suffice, because the choice may
        depend on the privacy loss so far.
        """
        alternatives = tuple(dict.fromkeys(again.events for again in self.refits))
        if len(alternatives) < 2:
            return alternatives[0] if alternatives else ()
        return (AlternativesEvent(alternatives, self.refits[0].budget.adjacency),)

    @property
    def events(self) -> Events:
        """Events that a ledger is charged at once."""
        return self.events_of(tuple(branch.events for branch in self.branches))

    def events_of(self, branches: tuple[Events, ...]) -> Events:
        """Return the events of a search whose branches spend the given events."""
        adjacency = self.branches[0].budget.adjacency
        return selection_events(branches, self.selection, self.stopping, self.refit, adjacency)


def allot(candidate: Any, budget: Budget, facts: Facts) -> Allotment:
    """Return a candidate with its budget.

    A single private step gets the whole budget. Several steps get equal parts of delta and the
    largest epsilons that fit, in the proportions of their own. A step with delta = 0 stays pure.

    Raises
    ------
    InvalidParameterError, TypeError
        A parameter of the candidate is outside its range.
    """
    estimator = clone(candidate)
    steps = private_steps(estimator)
    weights = [float(step.epsilon) for step in steps] if len(steps) > 1 else [1.0]

    def planned(scale: float) -> Events:
        for step, weight in zip(steps, weights, strict=True):
            delta = 0.0 if getattr(step, "delta", 0.0) == 0.0 else budget.delta / len(steps)
            own = min(budget.epsilon, mul_down(scale, weight))
            step.set_params(epsilon=own, **({"delta": delta} if hasattr(step, "delta") else {}))
        return planned_events(estimator, facts)

    scale = budget.epsilon
    if len(steps) > 1:
        scale = largest_epsilon(
            lambda scale: budget.covers(planned(scale)),
            budget.epsilon / sum(weights),
            budget.epsilon / max(weights),
        )
    return Allotment(estimator, budget, planned(scale), facts.unit)


def partition_budgets(search: Any, facts: Facts) -> Budgets:
    """Return the budgets of a partition: each part may use all that the refit leaves.

    Parameters
    ----------
    search : PrivateGridSearch
        With checked parameters.
    facts : Facts
        Public facts about all rows.

    Raises
    ------
    InvalidParameterError, TypeError
        The budget is too small for a candidate, or a parameter is outside its range.
    """
    budget, candidates = filled(Budget, search), search.candidates
    sensitivity = search.counted.sensitivity
    adjacency = budget.adjacency
    parts = [facts] * len(candidates)
    if facts.n_samples is not None:
        sizes = part_sizes(facts.n_samples, len(candidates), search.validation_fraction)[1:]
        parts = [replace(facts, n_samples=size) for size in sizes]
    factor = 2 if adjacency == "replace_one" else 1
    delta, refits = _refits(search, budget, facts)

    def spent_on(epsilon: float, chosen: float) -> Budgets:
        own = Budget(epsilon, delta, adjacency)
        selection = SelectionNoise(
            mechanism=search.selection,
            sensitivity=sensitivity,
            relation_factor=factor,
            rate=_rate(Fraction(chosen) / (factor * sensitivity), SMALLEST),
        )
        branches = tuple(allot(c, own, part) for c, part in zip(candidates, parts, strict=True))
        return Budgets(branches=branches, refits=refits, selection=selection)

    # Left by the refit: exactly where epsilons add up, else about.
    left = budget.epsilon
    if refits and budget.delta == 0.0:
        left = add_down(budget.epsilon, -refits[0].budget.epsilon)
    elif refits:
        left = budget.share(1.0 - search.refit_fraction, delta)
    guess = spent_on(left, left)
    refit, own_events = guess.refit, [branch.events for branch in guess.branches]

    def fits_budget(epsilon: float) -> bool:
        branches = dict.fromkeys(branch.events for branch in spent_on(epsilon, left).branches)
        return all(budget.covers((*events, *refit)) for events in branches)

    def largest(allowed: Callable[[float], bool], *, cheap: bool) -> float:
        if left != budget.epsilon and budget.delta > 0.0:
            return largest_epsilon(allowed, left, budget.epsilon, cheap=cheap)
        if not allowed(left):
            raise InvalidParameterError(
                "estimator: a candidate declares events beyond its share of the budget"
            )
        return left

    cheap = is_cheap(refit)
    spent = largest(fits_budget, cheap=cheap and all(map(is_cheap, own_events)))
    chosen = largest(lambda e: budget.covers((PureEvent(e, adjacency), *refit)), cheap=cheap)
    return spent_on(spent, chosen)


def stopping_budgets(search: Any, facts: Facts) -> Budgets:
    """Return the budgets of one run if the best of a random number of runs is released.

    Parameters
    ----------
    search : PrivateGridSearch
        With checked parameters.
    facts : Facts

    Raises
    ------
    InvalidParameterError, TypeError
        The budget is too small for a run, or a parameter of a candidate is outside its range.
    """
    budget, for_score = filled(Budget, search), search.score_fraction
    stopping = Stopping(law=search.stopping, mean=search.mean_runs)
    delta, refits = _refits(search, budget, facts)
    delta /= 4.0 * max(1.0, stopping.mean)

    def spent_on(epsilon: float) -> Budgets:
        own = Budget(epsilon, delta, budget.adjacency)
        if budget.delta == 0.0:
            own = Budget(mul_down(epsilon, 1.0 - for_score), 0.0, budget.adjacency)
        return Budgets(
            branches=tuple(allot(candidate, own, facts) for candidate in search.candidates),
            refits=refits,
            selection=_score_noise(epsilon, delta, search.counted.sensitivity, for_score),
            stopping=stopping,
        )

    most = budget.epsilon
    guess = most / 3.0

    def fits_if_gaussian(epsilon: float) -> bool:
        """Estimate cheaply whether the fits stay within the budget."""
        event = GaussianEvent(1.0 / gaussian_parameter(epsilon, delta), 1.0, budget.adjacency)
        return budget.covers(spent_on(epsilon).events_of(((event,),)))

    if budget.delta > 0.0:
        guess = largest_epsilon(fits_if_gaussian, guess, most)
    cheap = all(is_cheap(branch.events) for branch in spent_on(guess).branches)

    def fits(epsilon: float) -> bool:
        return budget.covers(spent_on(epsilon).events)

    return spent_on(largest_epsilon(fits, guess, most, cheap=cheap))


def _refits(search: Any, budget: Budget, facts: Facts) -> tuple[float, tuple[Allotment, ...]]:
    """Return the delta for calibrating the other fits, and the refit of every candidate."""
    if search.refit_fraction == 0.0:
        return budget.delta, ()
    delta = 0.5 * budget.delta
    own = Budget(budget.share(search.refit_fraction, delta), delta, budget.adjacency)
    return delta, tuple(allot(candidate, own, facts) for candidate in search.candidates)


def _score_noise(
    epsilon: float, delta: float, sensitivity: int, score_fraction: float
) -> SelectionNoise:
    """Return the noise of the score of a run with this epsilon (that of the fit if delta > 0)."""
    own: dict[str, Any] = {"sensitivity": sensitivity, "relation_factor": 1}
    if delta == 0.0:
        rate = _rate(Fraction(epsilon) * Fraction(score_fraction) / sensitivity, SMALLEST_RATE)
        return SelectionNoise(mechanism="discrete_laplace", rate=rate, **own)
    odds = score_fraction / (1.0 - score_fraction)
    mu = math.sqrt(odds) * gaussian_parameter(epsilon, delta)
    return SelectionNoise(mechanism="gaussian_on_grid", sigma=div_up(sensitivity, mu), **own)


def _rate(exact: Fraction, least: float) -> float:
    """Return the rate of a choice or of discrete noise, rounded down for the sampler."""
    rate = few_bits_down(exact)
    if rate < least:
        raise InvalidParameterError(
            "epsilon: expected a larger value, as the noise of the choice exceeds the range of the "
            "sampler"
        )
    return rate


def part_sizes(n_samples: int, n_candidates: int, validation_fraction: float) -> list[int]:
    """Return the sizes of the validation part and of each candidate's part, for ``replace_one``."""
    chosen_by = round(validation_fraction * n_samples)
    left = n_samples - chosen_by
    ends = [chosen_by + left * i // n_candidates for i in range(n_candidates + 1)]
    return [chosen_by, *(b - a for a, b in pairwise(ends))]


def is_cheap(events: Events) -> bool:
    """Return whether the accountant has a closed formula for these events."""
    kinds = {price for event in events for price in event.prices}
    # A curve of several kinds is known in points only.
    either = any(not event.price for event in events)
    return "" not in kinds and not (either and len(kinds) > 1)


def largest_epsilon(
    allowed: Callable[[float], bool], guess: float, most: float, *, cheap: bool = True
) -> float:
    """Return an allowed epsilon close to the largest one.

    Parameters
    ----------
    allowed : callable
        Function of epsilon that is True below some number and False above.
    guess : float
        Start of the search.
    most : float
        End of the search.
    cheap : bool, default=True
        Whether calls of ``allowed`` are cheap; otherwise few are made, around the guess.

    Raises
    ------
    InvalidParameterError
        Nothing above a tiny share of ``most`` is allowed.
    """
    stride, precision = (STRIDE, PRECISION) if cheap else (COSTLY_STRIDE, COSTLY_PRECISION)
    low, high, step = min(guess, most), math.inf, stride
    while not allowed(low):
        low, high, step = low / step, low, step * step
        if low < SMALLEST_SHARE * most:
            raise InvalidParameterError(
                "epsilon: this budget is too small for any candidate; use a larger epsilon or delta"
            )
    while low < most and math.isinf(high):
        trial = min(most, stride * low)
        low, high = (trial, high) if allowed(trial) else (low, trial)
    while math.isfinite(high) and high > low * (1.0 + precision):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if allowed(middle) else (low, middle)
    return low


class CandidateLedger(PrivacyLedger):
    """Ledger of one fit whose events were charged beforehand.

    Parameters
    ----------
    allotment : Allotment
        Its events may be spent once each, in order. An event that the next of these does not cover
        is refused before anything is drawn.
    """

    def __init__(self, allotment: Allotment) -> None:
        budget = allotment.budget
        super().__init__(budget.epsilon, budget.delta, budget.adjacency, unit=allotment.unit)
        self._planned = allotment.events
        self._paid = 0

    def spend(self, event: PrivacyEvent | Events, label: str = "", **how: Any) -> None:
        """Accept planned events; refuse all others."""
        events = event if isinstance(event, tuple) else (event,)
        with self._lock:
            plan = self._planned[self._paid :][: len(events)]
            if len(plan) < len(events) or not all(map(covers, plan, events)):
                raise BudgetExceededError(
                    "this fit differs from the release that the search paid for: the parameters of "
                    "an estimator changed after planning"
                )
            super().spend(events, label, **how)
            self._paid += len(events)


# Numbers of events of which a smaller one is more private, and a larger one; others have to agree.
SMALLER = ("epsilon", "delta", "rho", "distance", "n_steps")
LARGER = ("sigma", "noise_multiplier")


def covers(planned: PrivacyEvent, spent: PrivacyEvent) -> bool:
    """Return whether one event dominates another of the same kind."""
    if type(planned) is not type(spent):
        return False
    if planned.mu is not None and spent.mu is not None:
        return spent.adjacency == planned.adjacency and spent.mu <= planned.mu
    for name in (field.name for field in fields(cast(Any, spent))):
        value, limit = getattr(spent, name), getattr(planned, name)
        smaller, larger = name in SMALLER and value < limit, name in LARGER and value > limit
        if not (value == limit or smaller or larger):
            return False
    return True
