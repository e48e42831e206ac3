"""What is known of lists of events, once it is known which branches a record meets."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from dpsvm_fast.accounting._work_check import work
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

__all__ = ["Choice", "CurvedEvent", "choice_of", "choices_of", "responses"]

Array = NDArray[np.float64]

# Choices of branches that are gone through, and losses known as curves that are composed.
MOST_CHOICES, MOST_CURVES = 4096, 8
# Of one event among those of one record, as entries of an array.
WORK_OF_EVENT = 500
# Outcomes of randomised responses.
MOST_OUTCOMES = 20_000
# A Gaussian parameter, or a rho, beyond which delta is 1 at every epsilon; noise that hides all.
LARGEST_MU, LARGEST_NOISE = 1e9, 1e60

CurvedEvent = ObjectiveEvent | AlternativesEvent | RandomStoppingEvent


@dataclass
class Choice:
    """Events of one record, once its branches are known."""

    replace_one: bool
    squares: list[float] = field(default_factory=list)
    pure: list[float] = field(default_factory=list)
    stays: list[float] = field(default_factory=list)
    sampled: list[tuple[float, float, int]] = field(default_factory=list)
    rho: list[float] = field(default_factory=list)
    curved: list[CurvedEvent] = field(default_factory=list)
    distances: list[float] = field(default_factory=list)

    @property
    def told(self) -> float:
        """Probability of an infinite loss."""
        return -math.expm1(math.fsum(map(math.log1p, self.stays)))

    @property
    def mu(self) -> float:
        """Parameter of the Gaussian loss."""
        return math.sqrt(math.fsum(self.squares))

    @property
    def distance(self) -> float:
        """Sum of the distances."""
        return math.fsum(self.distances)

    @property
    def is_pure(self) -> bool:
        """Whether there are randomised responses alone."""
        others = self.stays or self.sampled or self.rho or self.curved or self.distances
        return not (self.squares or others)

    def composable(self) -> Choice:
        """The same, without the curves that are too many, or of too much, to be composed here."""
        within = [event for event in self.curved if _is_within_reach(event)]
        return replace(self, curved=within[:MOST_CURVES])


def _gaussian_square(event: ObjectiveEvent) -> float | None:
    """Squared parameter of the Gaussian mechanism that noise in an objective is, if it is one.

    One score, or a softmax of two, whose Jacobian costs nothing at any epsilon >= 0: kappa is at
    most 1/(2 sigma^2). docs/proofs/objective_perturbation.md, "One score and one-vs-rest".
    """
    scores = 2.0 if event.law == "softmax" and event.n_scores == 2 else 1.0
    if event.adjacency != "add_remove" or event.n_scores > scores:
        return None
    if event.kappa is None:
        free = event.jacobian == 0.0
    else:
        smooth = event.law in ("logistic", "softmax")
        free = smooth and 2.0 * event.kappa * event.sigma**2 <= 1.0 - 1e-12
    return scores / event.sigma**2 if free else None


def _is_within_reach(event: CurvedEvent) -> bool:
    """Whether the events inside can be composed, so that the whole has a curve."""
    if isinstance(event, ObjectiveEvent):
        return True
    if isinstance(event, RandomStoppingEvent):
        bases = choices_of(event.base)
    else:
        bases = [choice_of(branch) for branch in event.branches]
    return bases is not None and all(base == base.composable() for base in bases)


def choices_of(events: tuple[PrivacyEvent, ...]) -> list[Choice] | None:
    """What a record can meet; None where there is too much of it."""
    counts = Counter(events)
    ways = 1
    options: list[list[tuple[PrivacyEvent, ...]]] = []
    for event, count in counts.items():
        if not isinstance(event, ParallelEvent) or isinstance(event, AlternativesEvent):
            options.append([(event,) * count])
            continue
        ways *= math.comb(count + len(event.branches) - 1, count)
        if ways > MOST_CHOICES:
            return None
        meetings = itertools.combinations_with_replacement(event.branches, count)
        options.append([tuple(itertools.chain(*meeting)) for meeting in meetings])
    work(ways * WORK_OF_EVENT * len(events))
    found = {
        tuple(sorted(itertools.chain(*each), key=repr)) for each in itertools.product(*options)
    }
    return [choice_of(each) for each in found]


def choice_of(events: tuple[PrivacyEvent, ...]) -> Choice:
    """Sort events by what is known of them."""
    work(WORK_OF_EVENT * len(events))
    choice = Choice(replace_one=events[0].adjacency == "replace_one")
    for event in events:
        if isinstance(event, GaussianEvent):
            choice.squares.append(_square(event.sensitivity / event.sigma))
        elif isinstance(event, PureEvent):
            choice.pure.append(event.epsilon)
        elif isinstance(event, ApproximateEvent):
            choice.pure.append(event.epsilon)
            choice.stays.append(-event.delta)
        elif isinstance(event, SubsampledGaussianEvent):
            _add_sampled(choice, event)
        elif isinstance(event, ZCDPEvent):
            choice.rho.append(min(event.rho, LARGEST_MU))
        elif isinstance(event, RandomStoppingEvent):
            _add_stopping(choice, event)
        elif isinstance(event, AlternativesEvent):
            _add_alternatives(choice, event)
        elif isinstance(event, ObjectiveEvent):
            square = _gaussian_square(event)
            if square is None:
                choice.curved.append(event)
            else:
                choice.squares.append(square)
        elif isinstance(event, DistanceEvent):
            choice.distances.append(event.distance)
        else:
            raise TypeError(f"event: got {type(event).__name__}, which nothing is known about")
    return choice


def _square(mu: float) -> float:
    """Square of a Gaussian parameter; of one that promises nothing, as much as it takes."""
    return min(mu, LARGEST_MU) ** 2


def _add_sampled(choice: Choice, event: SubsampledGaussianEvent) -> None:
    """Sampled sums, which are Gaussian mechanisms where everyone is in each."""
    if event.sampling_rate < 1.0:
        # More noise than that is still counted as no more.
        noise = min(event.noise_multiplier, LARGEST_NOISE)
        steps = (noise, event.sampling_rate, event.n_steps)
        choice.sampled.append(steps)
    else:
        moved = 2.0 if choice.replace_one else 1.0
        choice.squares.append(event.n_steps * _square(moved / event.noise_multiplier))


def _add_alternatives(choice: Choice, event: AlternativesEvent) -> None:
    """One of several mechanisms: the one that covers all, pure where all are, or with a curve."""
    branches = [choice_of(branch) for branch in event.branches]
    # Whichever it is, it is no further away than the farthest.
    farthest = max(branches, key=lambda branch: branch.distance)
    choice.distances.extend(farthest.distances)
    for branch in branches:
        branch.distances = []
    for branch in branches:
        if all(_covers(branch, other) for other in branches):
            for name in ("squares", "pure", "stays", "sampled", "rho", "curved"):
                getattr(choice, name).extend(getattr(branch, name))
            return
    if all(branch.is_pure for branch in branches):
        choice.pure.append(max(math.fsum(branch.pure) for branch in branches))
    else:
        choice.curved.append(event)


def _covers(large: Choice, small: Choice) -> bool:
    """Whether there is no less of anything in ``large``."""
    pairs = itertools.zip_longest(
        sorted(large.pure, reverse=True), sorted(small.pure, reverse=True), fillvalue=0.0
    )
    return (
        all(one >= other for one, other in pairs)
        and math.fsum(large.squares) >= math.fsum(small.squares)
        and large.told >= small.told
        and math.fsum(large.rho) >= math.fsum(small.rho)
        and not Counter(small.curved) - Counter(large.curved)
        and not _steps(small) - _steps(large)
    )


def _steps(choice: Choice) -> Counter[tuple[float, float]]:
    """Number of sampled steps of each kind."""
    counts: Counter[tuple[float, float]] = Counter()
    for z, q, n in choice.sampled:
        counts[z, q] += n
    return counts


def _add_stopping(choice: Choice, event: RandomStoppingEvent) -> None:
    """Best of several runs, which is pure where a run is."""
    bases = choices_of(event.base)
    if bases is None or not all(base.is_pure for base in bases):
        choice.curved.append(event)
        return
    epsilon = max(math.fsum(base.pure) for base in bases)
    # The largest ratio of densities is at the kink of what u can become.
    low, high = 1.0 / (1.0 + math.exp(epsilon)), 1.0 / (1.0 + math.exp(-epsilon))
    if event.stopping == "poisson":
        choice.pure.append(epsilon + event.mean * (high - low))
        return
    rest = 1.0 - event.gamma
    power = {"geometric": 2.0, "logarithmic": 1.0}[event.stopping]
    ratio = math.log(event.gamma + rest * high) - math.log(event.gamma + rest * low)
    choice.pure.append(epsilon + power * ratio)


def responses(pure: list[float]) -> tuple[Array, Array]:
    """Losses and masses of randomised responses; of too many outcomes, the largest loss alone."""
    losses, masses = np.zeros(1), np.ones(1)
    for size, count in Counter(pure).items():
        minus = np.arange(count + 1.0)
        logs = gammaln(count + 1.0) - gammaln(minus + 1.0) - gammaln(count - minus + 1.0)
        logs -= minus * size + count * math.log1p(math.exp(-size))
        if losses.size * minus.size > MOST_OUTCOMES:
            return np.array([math.fsum(pure)]), np.ones(1)
        losses = np.add.outer(losses, (count - 2.0 * minus) * size).ravel()
        masses = np.multiply.outer(masses, np.exp(logs)).ravel()
    return losses, masses
