"""Epsilon and delta of a list of events, recomputed for verification.

This module shares no numerical code with the accountant. It goes through the branches of a record
one by one; events without a closed form enter as curves of losses with finitely many values. All
results are upper bounds: docs/proofs/accountant.md, "What verify computes".
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import gammaln, ndtr

from dpsvm_fast.certificates.events import (
    AlternativesEvent,
    ApproximateEvent,
    DistanceEvent,
    GaussianEvent,
    ObjectiveEvent,
    PrivacyEvent,
    PureEvent,
    RandomStoppingEvent,
    SubsampledGaussianEvent,
    ZCDPEvent,
)
from dpsvm_fast.rounding import NEARLY_ZERO
from dpsvm_fast.verification.losses import (
    DEPTH,
    FALL,
    FULL_TABLE,
    LARGEST,
    Curve,
    cost,
    crossing,
    least_delta,
    stopped_curve,
    two_sided_delta,
    two_sided_deltas,
    work,
    zcdp_curve,
    zcdp_delta,
)
from dpsvm_fast.verification.objective import event_delta
from dpsvm_fast.verification.sampled import FIRST_POINTS, MAX_POINTS, Losses, composed_delta

# Bounds for lists of events, given the branches that a record meets.


Array = NDArray[np.float64]

# Choices of branches that are gone through, and losses known as curves that are composed.
MAX_CHOICES, MAX_CURVES = 4096, 8
# Work of one event, in entries of an array.
WORK_OF_EVENT = 500
# Outcomes of randomised responses.
MAX_OUTCOMES = 20_000
# Sampled steps count as whole batches if their Gaussian parameter is at most this share of the
# largest parameter of another event, or its square at most this share of that of Gaussian sums.
FAINT, FAINT_AMONG_GAUSSIANS = 1e-5, 1e-4
# Standard deviations below its mean that the loss of a joined step nearly never falls, and the
# number of expected joins up to which it matters.
NEARLY_SURELY, MAX_JOINS = 3.0, 20.0
# A Gaussian parameter, or a rho, beyond which delta is 1 at every epsilon; noise that hides all.
LARGEST_MU, LARGEST_NOISE = 1e9, 1e60


@dataclass
class Choice:
    """Events of one record on one choice of branches."""

    replace_one: bool
    squares: list[float] = field(default_factory=list)
    pure: list[float] = field(default_factory=list)
    stays: list[float] = field(default_factory=list)
    sampled: list[tuple[float, float, int]] = field(default_factory=list)
    rho: list[float] = field(default_factory=list)
    objectives: list[ObjectiveEvent] = field(default_factory=list)
    # Alternatives, and the best of several runs.
    nested: list[PrivacyEvent] = field(default_factory=list)
    distances: list[float] = field(default_factory=list)
    # How far down, and to which epsilon, curves reach.
    reach: tuple[float, float] = field(default=(DEPTH, LARGEST), compare=False)

    @property
    def curved(self) -> list[PrivacyEvent]:
        """Events known only as curves."""
        return [*self.objectives, *self.nested]

    @property
    def leak(self) -> float:
        """Probability of an infinite loss."""
        return -math.expm1(math.fsum(map(math.log1p, self.stays)))

    @property
    def mu(self) -> float:
        """Gaussian parameter of the Gaussian losses together."""
        return math.sqrt(math.fsum(self.squares))

    @property
    def distance(self) -> float:
        """Sum of the distances."""
        return math.fsum(self.distances)

    @property
    def steps(self) -> Counter[tuple[float, float]]:
        """Number of sampled steps of each kind."""
        counts: Counter[tuple[float, float]] = Counter()
        for z, q, n in self.sampled:
            counts[z, q] += n
        return counts

    @property
    def is_pure(self) -> bool:
        """Return whether all events are randomised responses."""
        others = self.stays or self.sampled or self.rho or self.curved or self.distances
        return not (self.squares or others)

    def without_faint_steps(self) -> Choice:
        """Return an upper bound in which negligible sampled steps become full-batch steps."""
        gaussian = math.fsum(self.squares)
        others = [*self.pure, math.sqrt(math.fsum(self.rho))]
        others += [1.0 / one.sigma for one in self.objectives]
        most = max((FAINT * max(others)) ** 2, FAINT_AMONG_GAUSSIANS * gaussian)
        moved = 2.0 if self.replace_one else 1.0
        sizes = {kind: n * (moved / kind[0]) ** 2 for kind, n in self.steps.items() if kind[0] > 1}
        faint, total = set(), 0.0
        for kind in sorted(sizes, key=lambda kind: (sizes[kind], kind)):
            total += sizes[kind] * (1.0 + ROUNDING)
            if total > most:
                break
            faint.add(kind)
        kept = [step for step in self.sampled if step[:2] not in faint]
        squares = [*self.squares, *(sizes[kind] * (1.0 + ROUNDING) for kind in faint)]
        return replace(self, sampled=kept, squares=squares) if faint else self

    def with_leaks_beyond(self, epsilon: float) -> Choice:
        """Return an upper bound in which sampled steps of so little noise leak if a record joins.

        What they lose by a join is nearly surely larger: docs/proofs/accountant.md, "Tiny noise".
        """
        rare = {
            (z, q): n
            for (z, q), n in self.steps.items()
            if -n * math.log1p(-q) < MAX_JOINS
            and (0.5 / z - NEARLY_SURELY) / z + math.log(q) > epsilon
        }
        if not rare:
            return self
        stays = [math.expm1(n * math.log1p(-q)) * (1.0 + ROUNDING) for (_, q), n in rare.items()]
        kept = [step for step in self.sampled if step[:2] not in rare]
        return replace(self, sampled=kept, stays=[*self.stays, *stays])

    def composable(self, epsilon: float = 0.0, delta: float = 1.0) -> Choice:
        """Return the choice without curves that are too many or too large to compose here.

        Curves are tabulated until their tails are negligible for this claim.
        """
        objectives = self.objectives[:MAX_CURVES]
        nested = [event for event in self.nested if _is_within_reach(event)]
        depth = min(DEPTH, max(math.log(delta) - BELOW_CLAIM, DEEPEST)) if delta > 0.0 else DEPTH
        largest = min(max(LARGEST, 2.0 * epsilon), FARTHEST)
        nested = nested[: MAX_CURVES - len(objectives)]
        return replace(self, objectives=objectives, nested=nested, reach=(depth, largest))


def _gaussian_square(event: ObjectiveEvent) -> float | None:
    """Return the squared Gaussian parameter of objective noise, if it is a Gaussian mechanism.

    It is one for one score, or a softmax of two, if the Jacobian costs nothing at any epsilon >= 0:
    kappa is at most 1/(2 sigma^2). docs/proofs/objective_perturbation.md, "One score and
    one-vs-rest".
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


def _is_within_reach(event: PrivacyEvent) -> bool:
    """Return whether the nested events can be composed, so that the event has a curve."""
    inner = [choices_of(branch) for branch in event.inside]
    return all(bases and all(base == base.composable() for base in bases) for bases in inner)


def choices_of(events: tuple[PrivacyEvent, ...]) -> list[Choice] | None:
    """Return the choices of branches of a record; None if there are too many."""
    counts = Counter(events)
    ways = 1
    options: list[list[tuple[PrivacyEvent, ...]]] = []
    for event, count in counts.items():
        ways *= math.comb(count + len(event.met) - 1, count)
        if ways > MAX_CHOICES:
            return None
        meetings = itertools.combinations_with_replacement(event.met, count)
        options.append([tuple(itertools.chain(*meeting)) for meeting in meetings])
    work(ways * WORK_OF_EVENT * len(events))
    found = {
        tuple(sorted(itertools.chain(*each), key=repr)) for each in itertools.product(*options)
    }
    return [choice_of(each) for each in found]


def choice_of(events: tuple[PrivacyEvent, ...]) -> Choice:
    """Group events by their kind of privacy loss."""
    work(WORK_OF_EVENT * len(events))
    choice = Choice(replace_one=events[0].adjacency == "replace_one")
    account = _Charge(choice)
    for event in events:
        event.charge(account)
    return choice


class _Charge(NamedTuple):
    """Visitor that adds an event to the losses of one record, by the method with its tag."""

    choice: Choice

    def add_gaussian(self, event: GaussianEvent) -> None:
        self.choice.squares.append(_square(event.sensitivity / event.sigma))

    def add_pure(self, event: PureEvent) -> None:
        self.choice.pure.append(event.epsilon)

    def add_approximate(self, event: ApproximateEvent) -> None:
        self.choice.pure.append(event.epsilon)
        self.choice.stays.append(-event.delta)

    def add_subsampled_gaussian(self, event: SubsampledGaussianEvent) -> None:
        if event.sampling_rate < 1.0:
            # More noise counts as this much.
            noise = min(event.noise_multiplier, LARGEST_NOISE)
            self.choice.sampled.append((noise, event.sampling_rate, event.n_steps))
        else:
            # A Gaussian mechanism: every record is in every step.
            moved = 2.0 if self.choice.replace_one else 1.0
            self.choice.squares.append(event.n_steps * _square(moved / event.noise_multiplier))

    def add_zcdp(self, event: ZCDPEvent) -> None:
        self.choice.rho.append(min(event.rho, LARGEST_MU))

    def add_objective(self, event: ObjectiveEvent) -> None:
        square = _gaussian_square(event)
        if square is None:
            self.choice.objectives.append(event)
        else:
            self.choice.squares.append(square)

    def add_distance(self, event: DistanceEvent) -> None:
        self.choice.distances.append(event.distance)

    def add_alternatives(self, event: AlternativesEvent) -> None:
        # One loss that covers all alternatives: pure if all are, else a curve.
        branches = [choice_of(branch) for branch in event.branches]
        # No alternative has a larger distance than the largest.
        farthest = max(branches, key=lambda branch: branch.distance)
        self.choice.distances.extend(farthest.distances)
        for branch in branches:
            branch.distances = []
        for branch in branches:
            if all(_covers(branch, other) for other in branches):
                for name in ("squares", "pure", "stays", "sampled", "rho", "objectives", "nested"):
                    getattr(self.choice, name).extend(getattr(branch, name))
                return
        if all(branch.is_pure for branch in branches):
            self.choice.pure.append(max(math.fsum(branch.pure) for branch in branches))
        else:
            self.choice.nested.append(event)

    def add_random_stopping(self, event: RandomStoppingEvent) -> None:
        # The best of several runs is pure if a run is.
        bases = choices_of(event.base)
        if bases is None or not all(base.is_pure for base in bases):
            self.choice.nested.append(event)
            return
        epsilon = max(math.fsum(base.pure) for base in bases)
        # The largest ratio of densities is at the kink of what u can become.
        low, high = 1.0 / (1.0 + math.exp(epsilon)), 1.0 / (1.0 + math.exp(-epsilon))
        if event.stopping == "poisson":
            self.choice.pure.append(epsilon + event.mean * (high - low))
            return
        rest = 1.0 - event.gamma
        power = {"geometric": 2.0, "logarithmic": 1.0}[event.stopping]
        ratio = math.log(event.gamma + rest * high) - math.log(event.gamma + rest * low)
        self.choice.pure.append(epsilon + power * ratio)


def _square(mu: float) -> float:
    """Return the square of a Gaussian parameter, limited to a vacuous value."""
    return min(mu, LARGEST_MU) ** 2


def _covers(large: Choice, small: Choice) -> bool:
    """Return whether ``large`` has at least as much of every loss."""
    pairs = itertools.zip_longest(
        sorted(large.pure, reverse=True), sorted(small.pure, reverse=True), fillvalue=0.0
    )
    return (
        all(one >= other for one, other in pairs)
        and math.fsum(large.squares) >= math.fsum(small.squares)
        and large.leak >= small.leak
        and math.fsum(large.rho) >= math.fsum(small.rho)
        and Counter(small.curved) <= Counter(large.curved)
        and small.steps <= large.steps
    )


def responses(pure: list[float]) -> tuple[Array, Array]:
    """Return losses and masses of randomised responses; for too many, only the largest loss."""
    losses, masses = np.zeros(1), np.ones(1)
    for size, count in Counter(pure).items():
        minus = np.arange(count + 1.0)
        logs = gammaln(count + 1.0) - gammaln(minus + 1.0) - gammaln(count - minus + 1.0)
        logs -= minus * size + count * math.log1p(math.exp(-size))
        if losses.size * minus.size > MAX_OUTCOMES:
            return np.array([math.fsum(pure)]), np.ones(1)
        losses = np.add.outer(losses, (count - 2.0 * minus) * size).ravel()
        masses = np.multiply.outer(masses, np.exp(logs)).ravel()
    return losses, masses


# A lower bound on delta, for verification: a list of events leaks at least as much as each of them.
#
# Gaussian sums, zCDP events and noise in objectives contain Gaussian mechanisms: of an objective,
# the one of a record whose gradient is the longest wherever the noise puts the weights. Together
# with randomised responses these are real pairs of neighbours, so a claim below their delta is
# false, whatever else is computed. docs/proofs/accountant.md, "What verify computes is an upper
# bound".


# Largest rounding error of one Gaussian delta, and of each outcome's loss.
MIN_ROUNDING = 1e-9


def least_gaussian(law: str, n_scores: int, sigma: float, *, replace_one: bool) -> float:
    """Return the Gaussian parameter of the record with the largest gradient."""
    if law == "softmax":
        square = 2.0
    elif law == "weston_watkins":
        square = n_scores * (n_scores - 1.0)
    else:
        square = float(n_scores)
    return (2.0 if replace_one else 1.0) * math.sqrt(square) / sigma


def least_delta_of(choice: Choice, epsilon: float) -> float:
    """Return a lower bound on delta for the events of one record."""
    squares = [*choice.squares, *(2.0 * rho for rho in choice.rho)]
    for event in choice.objectives:
        mu = least_gaussian(event.law, event.n_scores, event.sigma, replace_one=choice.replace_one)
        squares.append(mu * mu)
    mu = math.sqrt(math.fsum(squares)) * (1.0 - MIN_ROUNDING)
    losses, masses = responses(choice.pure)
    if losses.size == 1:
        # Too many outcomes: the bound without them is lower.
        losses = losses * 0.0
    found = math.fsum(
        mass * two_sided_delta(epsilon * (1.0 + MIN_ROUNDING) - loss * (1.0 - MIN_ROUNDING), mu)
        for loss, mass in zip(losses, masses, strict=True)
        if mass > 0.0
    )
    total = math.fsum(squares)
    each = (_least_of_steps(choice, kind, n, total, epsilon) for kind, n in choice.steps.items())
    found = max(found, *each, 0.0)
    leak = choice.leak
    return (1.0 - MIN_ROUNDING) * (leak + (1.0 - leak) * min(1.0, found))


def _least_of_steps(
    choice: Choice, kind: tuple[float, float], n: int, square: float, epsilon: float
) -> float:
    """Return a lower bound on delta of sampled steps of one kind and a Gaussian loss, by two tests.

    One test uses the total of the noisy sums, in which a record takes part K times, K binomial.
    """
    z, q = kind
    middle, spread = n * q, 9.0 * math.sqrt(n * q * (1.0 - q)) + 1.0
    low, high = max(0, math.floor(middle - spread)), min(n, math.ceil(middle + spread))
    if high - low > MAX_DRAWN or not z * z > 0.0 or epsilon > FARTHEST:
        return 0.0
    work(TESTS * (high - low + 1))
    drawn = np.arange(low, high + 1.0)
    size = gammaln(n + 1.0)
    chances = size - gammaln(drawn + 1.0) - gammaln(n - drawn + 1.0)
    masses = np.exp(chances + drawn * math.log(q) + (n - drawn) * math.log1p(-q))
    deviation = math.sqrt(n / z / z + square)
    last = (middle + spread) / z / z + square + 9.0 * deviation
    ends = np.linspace(-2.0 * deviation, last, TESTS)[:, None]
    found = ndtr((drawn / z / z + square - ends) / deviation) @ masses
    neighbour = ndtr(-ends[:, 0] / deviation)
    if choice.replace_one:
        lost = max(0.0, 1.0 - float(masses.sum())) + 1e-14 * size
        neighbour = ndtr((-drawn / z / z - ends) / deviation) @ masses + lost * neighbour
    # Another test decides whether a single noisy sum is large.
    at = np.linspace(0.0, 1.0 + 10.0 * z, TESTS)
    chance = q * ndtr((1.0 - at) / z) + (1.0 - q) * ndtr(-at / z)
    other = ndtr(-at / z)
    if choice.replace_one:
        other = q * ndtr((-1.0 - at) / z) + (1.0 - q) * other
    once = [-np.expm1(n * np.log1p(-p)) for p in (chance, other)]
    found, neighbour = np.append(found, once[0]), np.append(neighbour, once[1])
    # Far more than the rounding errors, those of the masses first.
    slack = 1e-10 + 1e-14 * size
    return float(np.max(found * (1.0 - slack) - math.exp(epsilon) * neighbour * (1.0 + slack)))


# A claim may be below the recomputed bound on delta by this share: what is confirmed holds up to a
# ten-millionth of delta. Some bounds exceed the truth by as much.
ALLOWANCE = 1e-7
# Numbers of steps with a record, and thresholds, of a test that refutes.
MAX_DRAWN, TESTS = 20_000, 300
# More than what roundings, and masses of responses, may come to.
ROUNDING = 1e-11
# Slack for sums of epsilons, and the largest epsilon to search.
EPSILON_SLACK, LARGEST_EPSILON = 1e-12, 1e5
# Values of the sum of all losses but the Gaussian one that are gone through, and curves.
MAX_ATOMS, MAX_AT_ONCE = 5_000_000, 2
# Values looked at when points of a curve are chosen.
MAX_INSPECTED = 2000
# Number of them in one step.
CHUNK = 2**18
# The fall of log delta between points of a curve that is looked at more closely where it counts;
# points there, and where each of them takes long; of one that is used as it is.
FIRST_FALL, CLOSER, COSTLY_CLOSER, COSTLY_FALL = 0.3, 150.0, 60.0, 0.05
# The logarithm of the smallest delta of a curve each point of which takes long.
COSTLY_DEPTH = -34.0
# By how much the logarithm of a curve's end is below that of the claim; no curve goes farther down
# than this, or farther out, where exponentials end.
BELOW_CLAIM, DEEPEST, FARTHEST = 20.0, -690.0, 700.0
# Outcomes of randomised responses at each of which an objective alone beside them is looked at.
FEW_OUTCOMES = 40


def recomputed_events(
    events: tuple[PrivacyEvent, ...], epsilon: float, delta: float
) -> tuple[float, float, bool | None]:
    """Recompute epsilon at the claimed delta, and delta at the claimed epsilon.

    Parameters
    ----------
    events : tuple of PrivacyEvent
        Events of one neighbouring relation, all on the same records.
    epsilon, delta : float
        Claimed values.

    Returns
    -------
    epsilon, delta : float
    holds : bool or None
        Whether the claim holds. False if a lower bound exceeds it. None if it is neither confirmed
        nor refuted: the upper bounds are above it, or the events cannot be composed here and the
        bounds are infinity and 1.
    """
    whole = choices_of(events)
    if whole is None:
        return math.inf, 1.0, None
    if all(choice.is_pure for choice in whole):
        total = max(math.fsum(choice.pure) for choice in whole)
        if total <= epsilon * (1.0 + EPSILON_SLACK):
            return total, 0.0, True
    elif delta == 0.0:
        # Delta may underflow, but is never 0.
        return math.inf, 1.0, False
    least = max(least_delta_of(choice, epsilon) for choice in whole)
    if least > delta:
        return _refuted(whole, delta, epsilon), least, False
    # Fewer events leak less: if they exceed a bound, so do all.
    choices = [choice.composable(epsilon, delta) for choice in whole]
    found, best = max(_least_delta(choice, epsilon, delta) for choice in choices)
    holds = found <= delta * (1.0 + ALLOWANCE)
    if holds and choices != whole:
        return math.inf, 1.0, None
    # Where delta is met, so is epsilon.
    met = 0.97 * delta <= found <= delta and best == epsilon
    # Sums of losses of randomised responses are exact.
    wrong = delta == 0.0 and all(choice.is_pure for choice in whole)
    verdict = True if holds else (False if wrong else None)
    return epsilon if met else _epsilon(choices, delta, best), found, verdict


def _refuted(choices: list[Choice], delta: float, low: float) -> float:
    """Return a lower bound on epsilon at ``delta``, to three digits; it is above ``low``."""

    def excess(epsilon: float) -> float:
        return max(least_delta_of(choice, epsilon) for choice in choices) - delta

    return crossing(excess, low, max(2.0 * low, 1e-3), LARGEST_EPSILON, rtol=1e-12)


def _epsilon(choices: list[Choice], delta: float, near: float) -> float:
    """Return epsilon at ``delta``, to four digits; with distances, the smallest one."""
    if delta == 0.0:
        pure = all(choice.is_pure for choice in choices)
        return max(math.fsum(choice.pure) for choice in choices) if pure else math.inf

    def excess(epsilon: float) -> float:
        found = max(
            min(1.0, _delta(c, epsilon, near=near, quickly=True) + cost(c.distance, epsilon))
            for c in choices
        )
        return math.log(max(found, NEARLY_ZERO) / delta)

    low, high = 0.0, near
    if 0.0 < excess(near) <= math.log1p(ALLOWANCE):
        return near
    while excess(high) > 0.0:
        low, high = high, max(1.5 * high, 1e-3)
        if high > 1e4 or max(cost(c.distance, high) for c in choices) > delta:
            return math.inf
    if excess(low) <= 0.0:
        return low
    return float(brentq(excess, low, high, xtol=1e-12, rtol=1e-3))


def _least_delta(choice: Choice, epsilon: float, claimed: float) -> tuple[float, float]:
    """Return the smallest delta at any epsilon up to the given one, and that epsilon."""
    if choice.distance == 0.0:
        return _delta(choice, epsilon, near=epsilon, enough=claimed), epsilon
    kink = math.fsum(choice.pure)
    found, best = least_delta(lambda x: _delta(choice, x), choice.distance, kink, epsilon)
    return min(found, _delta(choice, best, near=best) + cost(choice.distance, best)), best


def _delta(
    choice: Choice,
    epsilon: float,
    *,
    near: float | None = None,
    quickly: bool = False,
    enough: float = 0.0,
) -> float:
    """Return delta of one choice without distances; curves are refined near the given epsilon."""
    leaky = choice.with_leaks_beyond(epsilon)
    found = _delta_beside_leaks(leaky, epsilon, near, quickly=quickly, enough=enough)
    if leaky is choice or found <= enough:
        return found
    return min(found, _delta_beside_leaks(choice, epsilon, near, quickly=quickly, enough=enough))


def _delta_beside_leaks(
    choice: Choice, epsilon: float, near: float | None, *, quickly: bool, enough: float
) -> float:
    """Return delta of one choice without distances, of its infinite losses and the others."""
    leak = choice.leak
    left = (enough - leak) / (1.0 - leak) if leak < 1.0 else 0.0
    rest = _delta_of_finite_losses(choice, epsilon, near, quickly=quickly, enough=max(left, 0.0))
    return leak + (1.0 - leak) * min(1.0, rest)


def _delta_of_finite_losses(
    choice: Choice, epsilon: float, near: float | None, *, quickly: bool, enough: float
) -> float:
    """Return delta of one choice without infinite losses; a bound below ``enough`` suffices."""
    choice = choice.without_faint_steps()
    bounds = [1.0]
    if choice.rho and not (choice.sampled or choice.curved):
        left = epsilon - math.fsum(choice.pure)
        if left >= 0.0:
            bounds.append(zcdp_delta(math.fsum(choice.rho) + 0.5 * choice.mu**2, left))
        if not (choice.mu or choice.pure):
            return bounds[-1]
    others = choice.mu or choice.sampled or choice.rho
    if not others and not choice.nested and len(choice.objectives) == 1:
        (event,) = choice.objectives
        if not choice.pure:
            return event_delta(event, epsilon, quickly=quickly)
        losses, masses = responses(choice.pure)
        if losses.size <= FEW_OUTCOMES:
            return _with_responses(event, epsilon, losses, masses)
    if choice.sampled or bool(choice.rho) + len(choice.curved) > MAX_AT_ONCE:
        curves = _curves(choice, COSTLY_FALL)
    else:
        curves = _curves(choice, FIRST_FALL)
        if near is not None:
            curves = _refined_curves(choice, curves, near)
        if not (others or choice.pure) and len(curves) == 1:
            return min(*bounds, float(curves[0].at(np.array([epsilon]))[0]))
        outcomes = responses(choice.pure)
        laws = [curve.atoms() for curve in curves]
        if outcomes[0].size * math.prod(law[0].size for law in laws) <= MAX_ATOMS:
            return min(*bounds, _of_curves(laws, outcomes, choice.mu, epsilon))
    whole = Losses(
        mu=choice.mu,
        sampled=tuple(choice.sampled),
        pure=tuple(Counter(choice.pure).items()),
        curves=tuple(curves),
        # Without sampled sums both directions are one.
        replace_one=choice.replace_one or not choice.sampled,
    )
    points = FIRST_POINTS if quickly else MAX_POINTS
    return min(*bounds, composed_delta(epsilon, whole, points, enough))


def _with_responses(event: ObjectiveEvent, epsilon: float, losses: Array, masses: Array) -> float:
    """Return delta of one objective and of randomised responses, summed over their outcomes."""
    found = 0.0
    for loss, mass in zip(losses, masses, strict=True):
        left = (epsilon - loss) - 1e-15 * (abs(epsilon) + abs(loss))
        value = event_delta(event, float(abs(left)), quickly=True)
        if left < 0.0:
            value = -math.expm1(left) + math.exp(left) * value
        found += mass * min(value, 1.0)
    return float(found * (1.0 + ROUNDING))


def _curves(choice: Choice, fall: float) -> list[Curve]:
    """Return the curves of one choice."""
    rho, fallen = math.fsum(choice.rho), min(fall, FALL)
    curves = [zcdp_curve(rho, fallen, choice.reach)] if choice.rho else []
    return curves + [_curve(event, fall, choice.reach) for event in choice.curved]


def _refined_curves(choice: Choice, curves: list[Curve], epsilon: float) -> list[Curve]:
    """Return the curves with more points where they affect delta at ``epsilon``."""
    # The source of each curve and its resolution; nothing for costly ones.
    functions: list[tuple[Callable[[float], float], float] | None] = []
    if choice.rho:
        functions.append((partial(zcdp_delta, math.fsum(choice.rho)), CLOSER))
    for event in choice.objectives:
        closely = COSTLY_CLOSER if _is_costly(event) else CLOSER
        bound = partial(event_delta, event, quickly=True, near=max(epsilon, 0.5 / event.sigma))
        functions.append((bound, closely))
    functions += [None] * len(choice.nested)
    losses, masses = responses(choice.pure)
    found = []
    for place, (curve, made) in enumerate(zip(curves, functions, strict=True)):
        if made is None:
            found.append(curve)
            continue
        rest, weights = losses, masses
        for other in curves[:place] + curves[place + 1 :]:
            values, more, _ = other.atoms()
            rest = np.add.outer(rest, values).ravel()
            weights = np.multiply.outer(weights, more).ravel()
        if rest.size > MAX_INSPECTED:
            # For a choice of points, a sample is enough.
            kept = slice(None, None, 1 + rest.size // MAX_INSPECTED)
            rest, weights = rest[kept], weights[kept]

        def below(x: Array, rest: Array = rest, weights: Array = weights) -> Array:
            if choice.mu:
                scaled = (np.subtract.outer(x, rest)) / choice.mu - 0.5 * choice.mu
                return np.asarray(ndtr(scaled) @ weights)
            order = np.argsort(rest)
            sums = np.append(0.0, np.cumsum(weights[order]))
            return np.asarray(sums[np.searchsorted(rest[order], x, "right")])

        work(20.0 * rest.size * curve.size)
        found.append(curve.closer(made[0], epsilon, below, made[1]))
    return found


def _is_costly(event: ObjectiveEvent) -> bool:
    """Return whether the sums of many scores are slow to compute."""
    return event.n_scores > (2 if event.law == "softmax" else 1)


@lru_cache(maxsize=32)
def _curve(event: PrivacyEvent, fall: float, reach: tuple[float, float]) -> Curve:
    """Return the curve of one event."""
    curve: Curve = event.charge(_Curve(fall, reach))
    return curve


class _Curve(NamedTuple):
    """Visitor that returns the curve of an event, by the method with its tag."""

    fall: float
    reach: tuple[float, float]

    def add_objective(self, event: ObjectiveEvent) -> Curve:
        depth, largest = self.reach
        # No table is longer than its most points.
        fall = max(self.fall, -depth / FULL_TABLE)
        depth = COSTLY_DEPTH if _is_costly(event) and depth >= DEPTH else depth
        return Curve.of(partial(event_delta, event, quickly=True), fall, depth, largest)

    def add_alternatives(self, event: AlternativesEvent) -> Curve:
        return _worst([choice_of(branch) for branch in event.branches])

    def add_random_stopping(self, event: RandomStoppingEvent) -> Curve:
        bases = choices_of(event.base)
        if bases is None:
            return Curve.vacuous()
        rho = None
        if all(b.rho and not (b.pure or b.stays or b.sampled or b.curved) for b in bases):
            rho = max(math.fsum(b.rho) + 0.5 * b.mu**2 for b in bases)
        return stopped_curve(event.stopping, event.gamma, event.mean, _worst(bases), rho)


def _worst(bases: list[Choice]) -> Curve:
    """Return the curve of the largest delta over several choices at each epsilon."""
    costly = any(base.sampled or base.curved for base in bases)
    return Curve.of(
        lambda epsilon: max(_delta(choice, epsilon, quickly=True) for choice in bases),
        *((COSTLY_FALL, COSTLY_DEPTH) if costly else (FALL, DEPTH)),
    )


def _of_curves(
    laws: list[tuple[Array, Array, float]],
    outcomes: tuple[Array, Array],
    mu: float,
    epsilon: float,
) -> float:
    """Return delta of curves together with a Gaussian loss and randomised responses.

    A curve belongs to a loss with finitely many values, so given each sum of these only the
    Gaussian mechanism remains, which has a formula.
    """
    losses, masses = outcomes
    work(30.0 * losses.size * math.prod(law[0].size for law in laws))
    for more, their_masses, _ in laws[1:]:
        losses = np.add.outer(losses, more).ravel()
        masses = np.multiply.outer(masses, their_masses).ravel()
    first, their_masses = laws[0][:2] if laws else (np.zeros(1), np.ones(1))
    found, rows = 0.0, max(1, CHUNK // losses.size)
    for start in range(0, first.size, rows):
        piece = first[start : start + rows, None]
        left = (epsilon - piece) - losses
        left -= 1e-15 * (abs(epsilon) + np.abs(piece) + np.abs(losses))
        found += float(their_masses[start : start + rows] @ (two_sided_deltas(left, mu) @ masses))
    return found * (1.0 + ROUNDING) + math.fsum(infinite for _, _, infinite in laws)
