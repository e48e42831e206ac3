"""What a list of events adds up to: all that its guarantee depends on.

Adding an event does not look at the earlier ones. Steps of sampled sums with one noise multiplier
and one rate are added up, and what is a Gaussian mechanism by another name is counted as one.
"""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from typing import Any

from dpsvm_fast._rounding import div_up, fraction_up, mul_up, sqrt_up
from dpsvm_fast.accounting._profile import gaussian_mu
from dpsvm_fast.accounting.compound import AlternativesEvent, ParallelEvent, RandomStoppingEvent
from dpsvm_fast.accounting.events import (
    ApproximateEvent,
    DistanceEvent,
    GaussianEvent,
    ObjectiveEvent,
    PrivacyEvent,
    PureEvent,
    SubsampledGaussianEvent,
    ZCDPEvent,
)
from dpsvm_fast.exceptions import InvalidParameterError

__all__ = ["CurvedEvent", "Totals", "at_most", "without_distances"]

KINDS = (
    GaussianEvent,
    SubsampledGaussianEvent,
    PureEvent,
    ApproximateEvent,
    ZCDPEvent,
    ObjectiveEvent,
    DistanceEvent,
    ParallelEvent,
    AlternativesEvent,
    RandomStoppingEvent,
)

CurvedEvent = RandomStoppingEvent | AlternativesEvent

# More than the rounding of one logarithm or exponential.
ERROR = 1e-15


class Totals:
    """Sums over events of one neighbouring relation.

    Parameters
    ----------
    adjacency : {"add_remove", "replace_one"} or None
        The relation of every event; None takes that of the first one.

    Attributes
    ----------
    mu_squared : Fraction
        Exact sum of the squared parameters of all Gaussian mechanisms.
    pure : Counter of float
        Number of pure events of each epsilon.
    pure_sum : Fraction
        Exact sum of their epsilons.
    sampled : Counter of (noise multiplier, sampling rate)
        Number of steps of sampled Gaussian sums.
    rho : Fraction
        Exact sum of the rhos of all zCDP events.
    objective : Counter of ObjectiveEvent
    certain : Counter of float
        Number of events of each probability of an infinite loss; ``told`` is that of any of them.
    distance : Fraction
        Exact sum of all distances from the laws that everything else describes.
    curved : Counter of RandomStoppingEvent or AlternativesEvent
        Those known by a curve, ``_stopping_curve.py``.
    parallel : Counter of ParallelEvent
        Resolved by ``_choices.py``, as are those curved ones that need no curve; nothing else here
        looks at them.
    """

    def __init__(self, adjacency: str | None = None) -> None:
        self.adjacency = adjacency
        self.mu_squared = Fraction(0)
        self.pure: Counter[float] = Counter()
        self.pure_sum = Fraction(0)
        self.sampled: Counter[tuple[float, float]] = Counter()
        self.rho = Fraction(0)
        self.objective: Counter[ObjectiveEvent] = Counter()
        self.certain: Counter[float] = Counter()
        self.distance = Fraction(0)
        self.curved: Counter[CurvedEvent] = Counter()
        self.parallel: Counter[ParallelEvent] = Counter()

    def copy(self) -> Totals:
        """Return independent totals of the same events."""
        # A ledger does this at every spend.
        other = Totals(self.adjacency)
        for name, value in vars(self).items():
            setattr(other, name, value.copy() if isinstance(value, Counter) else value)
        return other

    def enlarged(self, factor: Fraction) -> Totals:
        """Totals of at least ``factor`` times as much of everything."""
        other = Totals(self.adjacency)
        other.mu_squared = self.mu_squared * factor
        other.rho = self.rho * factor
        other.distance = self.distance * factor
        other.pure = _times(self.pure, factor)
        other.pure_sum = self.pure_sum
        if factor != 1:
            other.pure_sum = sum((Fraction(e) * n for e, n in other.pure.items()), Fraction(0))
        other.sampled = _times(self.sampled, factor)
        other.objective = _times(self.objective, factor)
        other.certain = _times(self.certain, factor)
        other.curved = _times(self.curved, factor)
        other.parallel = _times(self.parallel, factor)
        return other

    def within(self, other: Totals) -> bool:
        """Whether ``other`` has at least as much of everything, and so the weaker guarantee.

        Infinite losses and distances apart.
        """
        return (
            self.adjacency in (None, other.adjacency)
            and self.mu_squared <= other.mu_squared
            and self.rho <= other.rho
            and at_most(self.pure, other.pure)
            and self.sampled <= other.sampled
            and self.objective <= other.objective
            and self.curved <= other.curved
            and self.parallel <= other.parallel
        )

    def add(self, event: PrivacyEvent) -> None:
        """Add one event; an event of unknown kind or of another relation is refused."""
        if not isinstance(event, KINDS):
            names = ", ".join(kind.__name__ for kind in KINDS)
            raise TypeError(f"event: got {type(event).__name__}, expected one of {names}")
        if self.adjacency is None:
            self.adjacency = event.adjacency
        if event.adjacency != self.adjacency:
            raise InvalidParameterError(
                f"event: got adjacency {event.adjacency!r} among events of {self.adjacency!r}; "
                "guarantees of different relations do not compose"
            )
        if isinstance(event, PureEvent):
            self.pure[event.epsilon] += 1
            self.pure_sum += Fraction(event.epsilon)
        elif isinstance(event, ZCDPEvent):
            self.rho += Fraction(event.rho)
        elif isinstance(event, ApproximateEvent):
            self.pure[event.epsilon] += 1
            self.pure_sum += Fraction(event.epsilon)
            self.certain[event.delta] += 1
        elif isinstance(event, DistanceEvent):
            self.distance += Fraction(event.distance)
        elif isinstance(event, AlternativesEvent):
            self._add_alternatives(event)
        elif isinstance(event, RandomStoppingEvent):
            self.curved[event] += 1
        elif isinstance(event, ParallelEvent):
            self.parallel[event] += 1
        elif isinstance(event, SubsampledGaussianEvent):
            self._add_sampled(event)
        else:
            mu = event.mu if isinstance(event, GaussianEvent) else gaussian_mu(event)
            if mu is not None:
                self.mu_squared += Fraction(mu) ** 2
            elif isinstance(event, ObjectiveEvent):
                self.objective[event] += 1

    def _add_alternatives(self, event: AlternativesEvent) -> None:
        """Add alternatives: whichever is chosen, none is further away than the farthest."""
        exact, distance = without_distances(event)
        self.distance += distance
        if exact is not None:
            self.curved[exact] += 1

    def _add_sampled(self, event: SubsampledGaussianEvent) -> None:
        """Add sampled steps, or the Gaussian mechanism that they are when everyone is in them."""
        if event.sampling_rate < 1.0:
            self.sampled[event.noise_multiplier, event.sampling_rate] += event.n_steps
            return
        moved = 2 if event.adjacency == "replace_one" else 1
        mu = Fraction(div_up(float(moved), event.noise_multiplier))
        self.mu_squared += mu**2 * event.n_steps

    @property
    def is_pure(self) -> bool:
        """Whether there is a guarantee with delta = 0, infinite losses and distances apart."""
        losses = self.mu_squared or self.sampled or self.rho or self.objective
        return not (losses or self.curved)

    @property
    def has_formula(self) -> bool:
        """Whether beside infinite losses and distances all is Gaussian, pure and objective."""
        return not (self.sampled or self.rho or self.curved)

    @property
    def replace_one(self) -> bool:
        """Whether the relation is ``replace_one``."""
        return self.adjacency == "replace_one"

    @property
    def mu(self) -> float:
        """Parameter of all Gaussian mechanisms together, rounded up."""
        return sqrt_up(fraction_up(self.mu_squared))

    @property
    def pure_epsilon(self) -> float:
        """Sum of the epsilons of all pure events, rounded up."""
        return fraction_up(self.pure_sum)

    @property
    def told(self) -> float:
        """Probability of an infinite loss, rounded up: that of any of independent ones."""
        if not self.certain:
            return 0.0
        logs = [n * math.log1p(-delta) for delta, n in self.certain.items()]
        told = -math.expm1(math.fsum(logs) * (1.0 + 8.0 * ERROR))
        return min(1.0, mul_up(told, 1.0 + 8.0 * ERROR))


def without_distances(event: AlternativesEvent) -> tuple[AlternativesEvent | None, Fraction]:
    """Alternatives of the laws that their branches describe, and the largest of the distances.

    None where nothing but distances was there. A branch with nothing else tells nothing, and any
    other one covers it.
    """
    kept, largest = [], Fraction(0)
    for branch in event.branches:
        far = [Fraction(e.distance) for e in branch if isinstance(e, DistanceEvent)]
        largest = max(largest, sum(far, Fraction(0)))
        kept.append(tuple(e for e in branch if not isinstance(e, DistanceEvent)))
    if not largest:
        return event, largest
    rest = tuple(filter(None, kept))
    return (AlternativesEvent(rest, event.adjacency) if rest else None), largest


def at_most(one: Counter[float], other: Counter[float]) -> bool:
    """Whether each size of ``one`` has a partner in ``other`` that is no smaller."""
    if one <= other:
        return True
    # From the largest size on, there must never be more of one than of the other.
    theirs = sorted(other.items())
    left = 0
    for size, n in sorted(one.items(), reverse=True):
        while theirs and theirs[-1][0] >= size:
            left += theirs.pop()[1]
        left -= n
        if left < 0:
            return False
    return True


def _times(counts: Counter[Any], factor: Fraction) -> Counter[Any]:
    """At least ``factor`` times as many of everything."""
    return Counter({key: math.ceil(n * factor) for key, n in counts.items()})
