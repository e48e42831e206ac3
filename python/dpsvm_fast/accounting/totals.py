"""Composition of events, as one record meets them.

Adding an event does not look at the earlier ones. What is a Gaussian mechanism by another name is
counted as one. For one record, conditionally on the branches that it meets, everything composes as
a plain list of events; delta is a mean over such choices, hence at most the largest of them.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache, partial
from operator import mul
from typing import NamedTuple

from dpsvm_fast.accounting.stopping import StoppingLaw, pure_stopping_epsilon
from dpsvm_fast.certificates.events import (
    AlternativesEvent,
    ApproximateEvent,
    DistanceEvent,
    GaussianEvent,
    ObjectiveEvent,
    ParallelEvent,
    PrivacyEvent,
    PureEvent,
    RandomStoppingEvent,
    SubsampledGaussianEvent,
    ZCDPEvent,
)
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.rounding import div_up, fraction_up, mul_up, round_up, sqrt_up
from dpsvm_fast.validation import check_items, check_type


class Grouped(NamedTuple):
    """An event for a person with ``size`` records, at least 2."""

    event: PrivacyEvent
    size: int


CurvedEvent = RandomStoppingEvent | AlternativesEvent | Grouped

# Fields of totals that add up as numbers, and those that count.
SUMS = ("mu_squared", "rho", "distance")
LAWS = ("sampled", "objective", "curved", "parallel")
COUNTS = ("pure", "leaks", *LAWS)
# More than the rounding of one logarithm or exponential; what no exponential is taken of.
ERROR, LARGEST_EXPONENT = 1e-15, 700.0
# Largest number of combinations of branches to try.
MAX_CHOICES = 40
# The loss of a joined step is almost never this many standard deviations below its mean.
NEARLY_SURELY = 3.0
# Binary digits of the larger amounts to try first: many totals share them, and with them cached
# results.
FEW_DIGITS = 3


@dataclass
class Totals:
    """Sums over events of one neighbouring relation.

    Attributes
    ----------
    adjacency : {"add_remove", "replace_one"} or None
        The relation of every event; None takes that of the first one.
    mu_squared : Fraction
        Exact sum of the squared parameters of all Gaussian mechanisms.
    rho : Fraction
        Exact sum of the rhos of all zCDP events.
    distance : Fraction
        Exact sum of all distances from the laws that everything else describes.
    pure : Counter of float
        Number of pure events of each epsilon.
    sampled : Counter of (noise multiplier, sampling rate)
        Number of steps of sampled Gaussian sums.
    objective : Counter of ObjectiveEvent
    leaks : Counter of float
        Number of events of each probability of an infinite loss; ``leak`` is that of any of them.
    curved : Counter of RandomStoppingEvent, AlternativesEvent or Grouped
    parallel : Counter of ParallelEvent or Grouped
        Gone in what :func:`choices` returns, as are those curved ones that need no curve.
    """

    adjacency: str | None = None
    mu_squared: Fraction = Fraction(0)
    rho: Fraction = Fraction(0)
    distance: Fraction = Fraction(0)
    pure: Counter[float] = field(default_factory=Counter)
    sampled: Counter[tuple[float, float]] = field(default_factory=Counter)
    objective: Counter[ObjectiveEvent] = field(default_factory=Counter)
    leaks: Counter[float] = field(default_factory=Counter)
    curved: Counter[CurvedEvent] = field(default_factory=Counter)
    parallel: Counter[ParallelEvent | Grouped] = field(default_factory=Counter)

    def plus(self, *others: Totals) -> Totals:
        """Return the sum as new totals."""
        whole = Totals()
        for part in (self, *others):
            whole.adjacency = whole.adjacency or part.adjacency
            for name in SUMS:
                setattr(whole, name, getattr(whole, name) + getattr(part, name))
            for name in COUNTS:
                getattr(whole, name).update(getattr(part, name))
        return whole

    def changed(self, number: Callable[[Fraction], Fraction]) -> Totals:
        """Return ``number`` of every sum and, rounded up, of every count."""
        other = Totals(self.adjacency)
        for name in SUMS:
            setattr(other, name, number(getattr(self, name)))
        for name in COUNTS:
            counts = {key: math.ceil(number(Fraction(n))) for key, n in getattr(self, name).items()}
            setattr(other, name, Counter(counts))
        return other

    def with_leaks_beyond(self, epsilon: float) -> Totals:
        """Return totals in which steps of so little noise leak with the probability of a join.

        What they lose by a join is nearly surely larger: docs/proofs/accountant.md, "Tiny noise".
        """
        leaky = {step for step in self.sampled if least_loss_of_join(*step) > epsilon}
        if not leaky:
            return self
        other = self.plus()
        for step in leaky:
            other.leaks[step[1]] += other.sampled.pop(step)
        return other

    def within(self, other: Totals) -> bool:
        """Return whether ``other`` is at least as large in everything."""
        return (
            self.adjacency in (None, other.adjacency)
            and all(getattr(self, name) <= getattr(other, name) for name in (*SUMS, *LAWS))
            and at_most(self.pure, other.pure)
            and self.leak <= other.leak
        )

    def add(self, event: PrivacyEvent, size: int = 1) -> None:
        """Add one event, as it is for ``size`` records of one person.

        An event of unknown kind or of another relation is refused.
        """
        check_event(event, self.adjacency)
        event.charge(_Charge(self, size))
        self.adjacency = event.adjacency

    @property
    def is_pure(self) -> bool:
        """Whether delta = 0 holds, infinite losses and distances aside."""
        return not (self.mu_squared or self.sampled or self.rho or self.objective or self.curved)

    @property
    def mu(self) -> float:
        """Parameter of all Gaussian mechanisms together, rounded up."""
        return sqrt_up(fraction_up(self.mu_squared))

    @property
    def pure_epsilon(self) -> float:
        """Sum of the epsilons of all pure events, rounded up."""
        return fraction_up(sum((Fraction(e) * n for e, n in self.pure.items()), Fraction(0)))

    @property
    def leak(self) -> float:
        """Probability, rounded up, that any of the events has an infinite loss."""
        if not self.leaks:
            return 0.0
        if max(self.leaks) >= 1.0:
            return 1.0
        logs = [n * math.log1p(-delta) for delta, n in self.leaks.items()]
        leak = -math.expm1(math.fsum(logs) * (1.0 + 8.0 * ERROR))
        return min(1.0, mul_up(leak, 1.0 + 8.0 * ERROR))


class _Charge(NamedTuple):
    """Adds the loss of an event for ``size`` records of one person, by the method with its tag."""

    totals: Totals
    size: int

    def add_gaussian(self, event: GaussianEvent) -> None:
        self.totals.mu_squared += (Fraction(event.mu) * self.size) ** 2

    def add_pure(self, event: PureEvent | ApproximateEvent) -> None:
        self.totals.pure[fraction_up(Fraction(event.epsilon) * self.size)] += 1

    def add_approximate(self, event: ApproximateEvent) -> None:
        self.add_pure(event)
        self.totals.leaks[_group_delta(event, self.size)] += 1

    def add_zcdp(self, event: ZCDPEvent) -> None:
        self.totals.rho += Fraction(event.rho) * self.size**2

    def add_subsampled_gaussian(self, event: SubsampledGaussianEvent) -> None:
        if event.sampling_rate == 1.0:
            # Steps over all records are Gaussian mechanisms.
            moved = 2.0 if event.adjacency == "replace_one" else 1.0
            mu = Fraction(div_up(moved, event.noise_multiplier)) * self.size
            self.totals.mu_squared += mu**2 * event.n_steps
        elif self.size > 1:
            step = Grouped(replace(event, n_steps=1), self.size)
            self.totals.curved[step] += event.n_steps
        else:
            self.totals.sampled[event.noise_multiplier, event.sampling_rate] += event.n_steps

    def add_objective(self, event: ObjectiveEvent) -> None:
        mu = gaussian_mu(event)
        if mu is not None:
            self.totals.mu_squared += (Fraction(mu) * self.size) ** 2
        elif self.size > 1:
            self.totals.curved[Grouped(event, self.size)] += 1
        else:
            self.totals.objective[event] += 1

    def add_distance(self, event: DistanceEvent) -> None:
        # The distance holds for every data set, so it is the same at both ends of a path.
        self.totals.distance += Fraction(event.distance)

    def add_alternatives(self, event: AlternativesEvent) -> None:
        # No alternative exceeds the largest distance.
        exact, distance = without_distances(event)
        self.totals.distance += distance
        if exact is not None:
            self.add_random_stopping(exact)

    def add_random_stopping(self, event: RandomStoppingEvent | AlternativesEvent) -> None:
        self.totals.curved[event if self.size == 1 else Grouped(event, self.size)] += 1

    def add_parallel(self, event: ParallelEvent) -> None:
        self.totals.parallel[event if self.size == 1 else Grouped(event, self.size)] += 1


def check_event(event: object, adjacency: str | None) -> None:
    """Refuse anything but an event, and an event of another relation."""
    known = check_type("event", event, PrivacyEvent, "a PrivacyEvent")
    if adjacency not in (None, known.adjacency):
        raise InvalidParameterError(
            f"event: got adjacency {known.adjacency!r} and {adjacency!r}; guarantees of different "
            "relations do not compose"
        )


def of_events(events: Iterable[PrivacyEvent], size: int = 1) -> Totals:
    """Return totals of all ``events``, as they are for ``size`` records of one person."""
    totals = Totals()
    for event in check_items("events", events, "events of releases"):
        totals.add(event, size)
    return totals


def ungrouped(event: Grouped | PrivacyEvent) -> tuple[PrivacyEvent, int]:
    """Return the event of one record, and the number of records of the group."""
    return (event.event, event.size) if isinstance(event, Grouped) else (event, 1)


def least_loss_of_join(noise: float, rate: float) -> float:
    """Return a bound that the loss of a step that samples the record nearly always exceeds."""
    return (0.5 / noise - NEARLY_SURELY) / noise + math.log(rate)


def _group_delta(event: ApproximateEvent, size: int) -> float:
    """Return delta of ``size`` steps at the sum of their epsilons, rounded up: a geometric sum."""
    if size == 1:
        return event.delta
    if event.epsilon * size > LARGEST_EXPONENT:
        return 1.0
    growth = math.expm1(event.epsilon * size) / math.expm1(event.epsilon)
    return min(1.0, mul_up(mul_up(growth, 1.0 + size * ERROR), event.delta))


def gaussian_mu(event: ObjectiveEvent) -> float | None:
    """Return mu of a Gaussian mechanism whose profile bounds that of the event; None without one.

    One score (or a softmax of two) under ``add_remove`` whose change of variables is free at every
    epsilon >= 0: section "One score and one-vs-rest" of the proof page.
    """
    scores = 2.0 if event.law == "softmax" and event.n_scores == 2 else 1.0
    if event.adjacency != "add_remove" or event.n_scores > scores:
        return None
    if event.kappa is None:
        free = event.jacobian == 0.0
    else:
        # kappa <= t^2 / 2; rounded so that a tie counts as not free.
        free = event.law in ("logistic", "softmax") and (
            mul_up(mul_up(2.0 * event.kappa, event.sigma), event.sigma) <= 1.0
        )
    return div_up(round_up(math.sqrt(scores)), event.sigma) if free else None


def without_distances(event: AlternativesEvent) -> tuple[AlternativesEvent | None, Fraction]:
    """Return the alternatives of the laws of the branches, and the largest of the distances.

    None if there were only distances. A branch without other events leaks nothing, and any other
    branch covers it.
    """
    kept, largest = [], Fraction(0)
    for branch in event.branches:
        exact = tuple(inner for inner in branch if not inner.has_distance)
        largest = max(largest, of_events(branch).distance)
        if exact:
            kept.append(exact)
    if not largest:
        return event, largest
    return (AlternativesEvent(tuple(kept), event.adjacency) if kept else None), largest


def few_digits(number: Fraction) -> Fraction:
    """Round a number up to about ``FEW_DIGITS`` binary digits."""
    exponent = number.numerator.bit_length() - number.denominator.bit_length() - FEW_DIGITS
    return math.ceil(number / Fraction(2) ** exponent) * Fraction(2) ** exponent


def at_most(one: Counter[float], other: Counter[float]) -> bool:
    """Return whether each size of ``one`` can be paired with one at least as large in ``other``."""
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


def choices(totals: Totals) -> list[Totals]:
    """Return totals without parallel events; one of them is at least as large as ``totals``."""
    if not (totals.parallel or totals.curved):
        return [totals]
    plain = totals.plus()
    plain.parallel, plain.curved = Counter(), Counter()
    for curved, count in totals.curved.items():
        simple = _without_curve(curved)
        if simple is None:
            plain.curved[curved] += count
        else:
            plain = plain.plus(simple.changed(partial(mul, count)))
    found = [plain]
    for event, count in sorted(totals.parallel.items(), key=repr):
        branches = _branches(event)
        if len(found) * math.comb(count + len(branches) - 1, count) > MAX_CHOICES:
            branches = (join(branches),)
        # All ways to distribute this many records over branches.
        shares = map(Counter, itertools.combinations_with_replacement(range(len(branches)), count))
        ways = [[branches[i].changed(partial(mul, n)) for i, n in one.items()] for one in shares]
        found = [known.plus(*way) for known in found for way in ways]
    return uncovered(found)


@lru_cache(maxsize=1024)
def _without_curve(event: CurvedEvent) -> Totals | None:
    """Return the totals of an event that needs no curve, not to be modified; None otherwise.

    Alternatives of which one covers all others are that one, and the best of pure runs is pure.
    """
    inner, size = ungrouped(event)
    if isinstance(inner, AlternativesEvent):
        runs = uncovered([of_events(branch, size) for branch in inner.branches])
        if len(runs) == 1:
            return runs[0]
    elif isinstance(inner, RandomStoppingEvent):
        runs = choices(of_events(inner.base, size))
    else:
        return None
    if not all(run.is_pure and not run.leaks for run in runs):
        return None
    epsilon = max(run.pure_epsilon for run in runs)
    if isinstance(inner, RandomStoppingEvent):
        epsilon = pure_stopping_epsilon(StoppingLaw.of(inner), epsilon)
    return Totals(inner.adjacency, pure=Counter({epsilon: 1}))


@lru_cache(maxsize=1024)
def _branches(event: ParallelEvent | Grouped) -> tuple[Totals, ...]:
    """Return the totals of the branches that no other branch covers; not to be modified.

    For several records of one person: all ways in which they may lie in the branches; where these
    are too many, totals that cover them all: section "Groups of records" of the proof page.
    """
    inner, size = ungrouped(event)
    alone = {branch: of_events(branch) for branch in inner.inside}
    worst = uncovered(list(alone.values()))
    any_leak = any(totals.leaks for totals in alone.values())
    kept = tuple(b for b, totals in alone.items() if any_leak or any(totals is w for w in worst))
    if size == 1:
        return tuple(worst)
    if math.comb(size + len(kept) - 1, len(kept) - 1) <= MAX_CHOICES:
        meetings = itertools.combinations_with_replacement(kept, size)
        shares = [Counter(meeting).items() for meeting in meetings]
        return tuple(
            uncovered([Totals().plus(*(_group_totals(b, n) for b, n in share)) for share in shares])
        )
    whole = join(tuple(_group_totals(branch, size) for branch in kept))
    if any_leak:
        whole.leaks = Counter({1.0: 1})
    return (whole,)


def _group_totals(branch: Iterable[PrivacyEvent], size: int) -> Totals:
    """Return the totals of several records that meet a branch, or others with the same events.

    These are separate distances, and for all else a path through one of them is the worst.
    """
    totals = of_events(branch, size)
    totals.distance *= size
    return totals


def uncovered(found: list[Totals]) -> list[Totals]:
    """Return the totals that no other one dominates."""
    kept: list[Totals] = []
    for totals in found:
        if not any(totals.within(other) for other in kept):
            kept = [other for other in kept if not other.within(totals)]
            kept.append(totals)
    return kept


def join(branches: tuple[Totals, ...]) -> Totals:
    """Return the maximum of each kind over all branches."""
    whole = Totals(branches[0].adjacency)
    for name in SUMS:
        setattr(whole, name, max(getattr(branch, name) for branch in branches))
    for branch in branches:
        # The union of counters has the larger count of each key.
        whole.sampled |= branch.sampled
        whole.objective |= branch.objective
        whole.curved |= branch.curved
    whole.leaks = max(branches, key=lambda branch: branch.leak).leaks
    # The larger of the largest sizes, and so on: each list has a partner for each of its own.
    for size in sorted({size for branch in branches for size in branch.pure}, reverse=True):
        seen = (sum(n for e, n in branch.pure.items() if e >= size) for branch in branches)
        whole.pure[size] = max(seen) - whole.pure.total()
    whole.pure = +whole.pure
    return whole
