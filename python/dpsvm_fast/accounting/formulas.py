r"""Composition of Gaussian, pure and objective events, by formulas.

*Gaussian events* with parameters :math:`\mu_i` compose to one with :math:`\mu^2 = \sum \mu_i^2`
(Dong, Roth and Su, JRSS-B 2022, Corollary 3.3), also when each is chosen after seeing the
results of the earlier ones, as long as the sizes asked for are what is summed.

*A pure event* with parameter e is dominated by randomised response, whose privacy loss is +e with
probability :math:`1/(1 + e^{-e})` and -e otherwise (Kairouz, Oh and Viswanath, ICML 2015).

*Both together*: the pair of product measures has, with L the sum of the randomised-response
losses,

.. math:: \delta(\epsilon) = E_L[\delta_G(\epsilon - L; \mu)],

where :math:`\delta_G` is the delta of the Gaussian mechanism, and :math:`(1 - e^t)_+` without
one. Basic composition, :math:`\delta_G(\epsilon - \sum e_i; \mu)`, also holds; the smaller of the
two is returned. All rounding is upwards.

*An objective event* has a profile, bounded at every epsilon by what is proved about it. One of them
takes the place of :math:`\delta_G`, with the Gaussian loss among the others; further ones become
losses with finitely many atoms. How, and why these are bounds, is told in ``formulas.py``. Basic
composition holds too: :math:`\sum_i \delta_i(\epsilon_i)` with :math:`\sum_i \epsilon_i =
\epsilon`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import gammaln, ndtr

from dpsvm_fast import _core
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
from dpsvm_fast.rounding import (
    add_down,
    add_up,
    div_down,
    div_up,
    fraction_up,
    mul_up,
    round_up,
    sqrt_up,
)
from dpsvm_fast.validation import MAX_EPSILON

# Zero-concentrated differential privacy as (epsilon, delta), and Renyi divergences in general.
#
# A release whose Renyi divergences of order alpha between neighbours are at most tau has
#
# .. math:: \delta \le \frac{e^{(\alpha - 1)(\tau - \epsilon)}}{\alpha - 1} (1 - 1/\alpha)^\alpha
#
# for every alpha > 1 (Canonne, Kamath and Steinke, NeurIPS 2020, Proposition 12), here with
# :math:`\tau = \alpha \rho`. Every order gives a bound, so a search for the best may end anywhere.


# Logarithms of alpha - 1 between which the best order is sought.
LOWEST, HIGHEST = -30.0, 30.0
# A larger rho promises nothing that anyone could use.
LARGEST_RHO = 1e8
# More than all rounding errors of the formulas, relative to the largest number in them.
ZCDP_ERROR = 1e-13


def zcdp_delta(rho: float, epsilon: float) -> float:
    """Upper bound of delta at ``epsilon >= 0`` of a rho-zCDP release."""
    if not rho <= LARGEST_RHO:
        return 1.0

    def log_delta(u: float) -> float:
        a = math.exp(float(u))
        first, second = a * (1.0 + a) * rho, a * epsilon
        third = log_factor(a) - u
        return first - second + third + ZCDP_ERROR * (1.0 + first + second + abs(third))

    best = best_order(log_delta)
    return math.exp(best) if best < 0.0 else 1.0


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Upper bound of epsilon at ``delta`` of a rho-zCDP release."""
    if delta == 0.0 or not rho <= LARGEST_RHO:
        return math.inf
    wanted = -math.log(delta)

    def epsilon(u: float) -> float:
        a = math.exp(float(u))
        first, factor = (1.0 + a) * rho, log_factor(a)
        value = first + (wanted + factor - u) / a
        return value + ZCDP_ERROR * (first + (abs(wanted) + abs(factor) + abs(u)) / a)

    return max(0.0, best_order(epsilon))


def log_factor(a: float) -> float:
    """Logarithm of (1 - 1/alpha)^alpha at alpha = 1 + a."""
    return -(1.0 + a) * math.log1p(1.0 / a)


def best_order(f: Callable[[float], float]) -> float:
    """About the least value of a function of log(alpha - 1) with one valley; a value anyway."""
    found = minimize_scalar(f, bounds=(LOWEST, HIGHEST), method="bounded", options={"xatol": 1e-9})
    return float(found.fun)


# What a list of events adds up to: all that its guarantee depends on.
#
# Adding an event does not look at the earlier ones. Steps of sampled sums with one noise multiplier
# and one rate are added up, and what is a Gaussian mechanism by another name is counted as one.


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
TOTALS_ERROR = 1e-15


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
        Those known by a curve, ``composition.py``.
    parallel : Counter of ParallelEvent
        Resolved by ``composition.py``, as are those curved ones that need no curve; nothing else
        here looks at them.
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
        told = -math.expm1(math.fsum(logs) * (1.0 + 8.0 * TOTALS_ERROR))
        return min(1.0, mul_up(told, 1.0 + 8.0 * TOTALS_ERROR))


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


# Laws of privacy losses with finitely many atoms: sums of them, and fewer atoms for the same law.
#
# When a sum would have too many atoms, atoms are moved to a grid so that the mass and the mean of
# :math:`e^{-L}` stay the same. What is integrated over the law is a supremum of linear functions of
# :math:`u = e^{-L}`, hence convex, so this can only enlarge delta (Jensen). All rounding is
# upwards.


# Sizes of pure events that are told apart, and of how many the best ones to merge are looked for.
MOST_SIZES, MOST_EXACT_SIZES = 64, 256
# Bound of the relative error of one function of scipy.special or numpy, generously.
ERROR = 4e-15

Atoms = tuple[NDArray[np.float64], NDArray[np.float64]]


def few_sizes(pure: tuple[tuple[float, int], ...]) -> list[tuple[float, int]]:
    """Pure events of at most ``MOST_SIZES`` sizes, each at least as large as the one it is for."""
    groups = _rounded_up(sorted(pure)) if len(pure) > MOST_EXACT_SIZES else sorted(pure)
    while len(groups) > MOST_SIZES:
        costs = [n * (groups[i + 1][0] - size) for i, (size, n) in enumerate(groups[:-1])]
        i = costs.index(min(costs))
        groups[i : i + 2] = [(groups[i + 1][0], groups[i][1] + groups[i + 1][1])]
    return groups


def _rounded_up(groups: list[tuple[float, int]]) -> list[tuple[float, int]]:
    """Sorted pure events of at most ``MANY_SIZES`` sizes: nearly equal ones get the largest.

    Ratios that count as nearly equal grow until there are few enough.
    """
    sizes = np.array([size for size, _ in groups])
    counts = [n for _, n in groups]
    logs = np.log(np.maximum(sizes, np.finfo(float).tiny))
    width = max(1e-4, float(np.ptp(logs)) / 1e6)
    while True:
        bins = np.floor((logs - logs[0]) / width)
        ends = np.flatnonzero(np.append(bins[1:] != bins[:-1], True)).tolist()
        if len(ends) <= MOST_EXACT_SIZES:
            break
        width *= 2.0
    merged, start = [], 0
    for end in ends:
        merged.append((float(sizes[end]), sum(counts[start : end + 1])))
        start = end + 1
    return merged


@lru_cache(maxsize=64)
def randomised_response_losses(groups: tuple[tuple[float, int], ...], cap: int) -> Atoms:
    """Atoms of the summed loss of ``groups`` of (epsilon, count), masses rounded up."""
    atoms: Atoms = (np.zeros(1), np.ones(1))
    for size, count in few_sizes(groups):
        atoms = sum_of_losses(atoms, _binomial_losses(size, count), cap)
    return atoms


def sum_of_losses(one: Atoms, other: Atoms, cap: int) -> Atoms:
    """Atoms of the sum of two independent losses, no more than ``cap`` of them."""
    losses, masses = one
    more, their_masses = other
    if losses.size * more.size <= cap:
        return (
            np.add.outer(losses, more).ravel(),
            np.multiply.outer(masses, their_masses).ravel() * (1.0 + ERROR),
        )
    span = float(np.ptp(losses)) + float(np.ptp(more))
    width = span / (cap - 4)
    low, masses = _on_grid(losses, masses, width)
    their_low, their_masses = _on_grid(more, their_masses, width)
    # A sum of non-negative products: its relative error grows with the number of terms.
    masses = np.asarray(np.convolve(masses, their_masses) * (1.0 + cap * ERROR), dtype=np.float64)
    steps = np.arange(masses.size, dtype=np.float64)
    return np.asarray(low + their_low + width * steps, dtype=np.float64), masses


def thinned(atoms: Atoms, negligible: float) -> tuple[Atoms, float]:
    """Atoms without those at the ends that carry no more than ``negligible`` mass.

    What is cut off below is added to the least atom that stays, a larger loss; returned besides is
    the mass that was cut off above, whose loss has to count as infinite.
    """
    losses, masses = atoms
    order = np.argsort(losses, kind="stable")
    losses, masses = losses[order], masses[order]
    below = np.cumsum(masses)
    above = np.cumsum(masses[::-1])[::-1]
    first = int(np.searchsorted(below, negligible, side="right"))
    last = int(np.searchsorted(-above, -negligible, side="left"))
    if first >= last:
        return atoms, 0.0
    cut = float(above[last]) if last < losses.size else 0.0
    kept = masses[first:last].copy()
    kept[0] += below[first - 1] if first else 0.0
    return (losses[first:last], kept * (1.0 + losses.size * ERROR)), cut * (1.0 + ERROR)


def _binomial_losses(size: float, count: int) -> Atoms:
    """Atoms of ``count`` independent randomised responses of one size."""
    minus = np.arange(count + 1, dtype=np.float64)
    losses = (count - 2.0 * minus) * size
    logs = gammaln(count + 1.0) - gammaln(minus + 1.0) - gammaln(count - minus + 1.0)
    logs = logs - minus * size - count * math.log1p(math.exp(-size))
    # The absolute error of a logarithm is the relative error of its mass.
    widen = ERROR * (1.0 + 3.0 * float(gammaln(count + 1.0)) + count * (size + 1.0))
    return losses, np.exp(np.minimum(logs + widen, 0.0))


def _on_grid(
    losses: NDArray[np.float64], masses: NDArray[np.float64], width: float
) -> tuple[float, NDArray[np.float64]]:
    """Move atoms to multiples of ``width`` above the least, keeping mass and mean of exp(-loss).

    Returns the position of the first grid point and the masses of all.
    """
    low = float(losses.min())
    steps = (losses - low) / width
    left = np.floor(steps)
    # Distance to the point above, in (0, width]; the share below follows from the two conditions.
    ahead = (left + 1.0 - steps) * width
    share = np.expm1(ahead) / math.expm1(width)
    # Less below is the safe side: the mean of exp(-loss) then falls.
    doubt = ERROR * (1.0 + float(np.abs(losses).max()) / width)
    share = np.clip(share - doubt, 0.0, 1.0)
    left = left.astype(np.intp)
    size = int(left.max()) + 2
    coarse = np.bincount(left, masses * share, size)
    coarse += np.bincount(left + 1, masses * (1.0 - share), size)
    return low, np.asarray(coarse * (1.0 + losses.size * ERROR), dtype=np.float64)


# Profiles of objective-perturbation events, and how they compose with other privacy losses.
#
# Proved in docs/proofs/objective_perturbation.md, section "Composition"; in short: let
# :math:`g(\epsilon)` be what is known about an event, an upper bound of its delta in both
# directions
# of every pair of neighbours. The *profile*
# :math:`\hat g`, the supremum of these deltas over all neighbours, lies below g, and as a
# function of
# :math:`\alpha = e^\epsilon` it is convex: each :math:`P(S) - \alpha Q(S)` is linear, and it is a
# supremum of such. Three consequences carry this module.
#
# *Negative epsilon.* :math:`P(S) - e^{-x} Q(S) = 1 - e^{-x} + e^{-x} [Q(S^c) - e^x P(S^c)]`, and g
# bounds the bracket too, which belongs to the other direction. So :math:`\hat g(-x) \le
# 1 - e^{-x} (1 - g(x))`.
#
# *Interpolation.* Between two arguments, :math:`\hat g` lies below the chord of g in alpha: no
# property of g is needed beyond being an upper bound at the two ends.
#
# *Composition.* A convex profile belongs to a pair of laws that dominates the event, whatever was
# released before and by whatever choice, as long as the event's own numbers were fixed beforehand;
# and products of dominating pairs dominate the composition (Zhu, Dong and Wang, AISTATS 2022,
# Theorem 10). With T the summed loss of all else,
#
# .. math:: \delta(\epsilon) = E[\hat g(\epsilon - T)].
#
# The right side needs :math:`\hat g` at many arguments and g may be dear, so it is bounded by
# chords
# over cells of :math:`\epsilon - T`. A pair
# that dominates an event outright is that of the greatest convex function below the chords: its
# second derivative in alpha gives the masses of its atoms (as in Doroshenko et al., PoPETs 2022).


Array = NDArray[np.float64]

# Nodes between which chords are drawn; fewer where each meets many atoms.
MOST_NODES, FEW_NODES, MOST_PAIRS = 800, 128, 60_000
# Where each costs a convolution: least and most nodes, and about the milliseconds for all of them.
LEAST_DEAR, MOST_DEAR, DEAR_TOTAL = 12, 96, 700.0
# Milliseconds of each value of a curve without chords: for few atoms and no Gaussian loss.
DIRECT = 10.0
# Jacobian of one score over the deviation of its loss from where on it is counted in full: then it
# is nearly all there is, and a node would cost 50 ms.
MOSTLY_JACOBIAN = 300.0
# Least deltas that dear nodes go down to, the next where a result is not far above the last.
FLOORS, FAR_ABOVE = (1e-17, 1e-60, 1e-300), 1e4

NODES_PER_DEVIATION, LEAST_NODES = 100.0, 16.0
# Where a law of atoms ends: what is beyond counts as an infinite loss.
NEGLIGIBLE = 1e-17
# Nodes of a law of atoms above 0, and its largest loss.
ATOM_NODES, LARGEST_LOSS = 512, 256.0
# A Gaussian part smaller than this share of the numbers around it is replaced by a larger one.
SMALLEST_MU_SHARE = 1e-9
# Beyond this delta is 1 at every epsilon worth a promise.
LARGEST_MU = 1e3


def gaussian_mu(event: ObjectiveEvent) -> float | None:
    """Parameter of the Gaussian mechanism whose profile bounds the event's everywhere, if any.

    One score (or a softmax of two) under ``add_remove`` whose change of variables is free at every
    epsilon >= 0: section "One score and one-vs-rest" of the proof page.
    """
    scores = {1: 1.0, 2: 2.0}.get(event.n_scores) if event.law == "softmax" else None
    if event.n_scores == 1:
        scores = 1.0
    if scores is None or event.adjacency != "add_remove":
        return None
    if event.kappa is None:
        free = event.jacobian == 0.0
    else:
        # kappa <= t^2 / 2; rounded so that a tie counts as not free.
        free = event.law in ("logistic", "softmax") and (
            mul_up(mul_up(2.0 * event.kappa, event.sigma), event.sigma) <= 1.0
        )
    return div_up(round_up(math.sqrt(scores)), event.sigma) if free else None


def profile(event: ObjectiveEvent, epsilon: float) -> float:
    """Upper bound of the event's delta at any real epsilon, in both directions."""
    if epsilon < 0.0:
        # Too small an exponential is the safe side, and so is too large a delta.
        return min(1.0, round_up(1.0 - math.exp(epsilon) * (1.0 - _bound(event, -epsilon)), 4))
    return _bound(event, epsilon)


@lru_cache(maxsize=65536)
def _bound(event: ObjectiveEvent, epsilon: float) -> float:
    """The compiled bound, which is known up to the largest epsilon and does not increase."""
    return min(
        1.0,
        _core.objective_delta(
            event.law,
            event.n_scores,
            min(epsilon, MAX_EPSILON),
            event.sigma,
            event.kappa,
            event.jacobian,
            event.adjacency == "replace_one",
        ),
    )


@dataclass(frozen=True)
class OtherLosses:
    """The summed loss of all other events: atoms, plus a Gaussian loss, or infinity.

    Parameters
    ----------
    atoms : losses and masses
        Masses rounded up.
    infinite : float >= 0
        Mass of an infinite loss.
    mu : float >= 0
        Parameter of the Gaussian events together.
    """

    atoms: Atoms
    infinite: float
    mu: float

    def masses_between(self, low: Any, high: Any) -> tuple[Array, Array]:
        """Mass under P, and mean of exp(-loss), of a loss in each (low, high]; P rounded up."""
        losses, masses = self.atoms
        if self.mu == 0.0:
            inside = (losses > low[:, None]) & (losses <= high[:, None])
            return inside @ masses * (1.0 + losses.size * ERROR), inside @ (
                masses * np.exp(-losses)
            )
        half = 0.5 * self.mu
        a = (low[:, None] - losses) / self.mu
        b = (high[:, None] - losses) / self.mu
        first = _normal_between(a - half, b - half) @ masses
        second = _normal_between(a + half, b + half) @ (masses * np.exp(-losses))
        # Probabilities are differences of rounded ones, at arguments that are differences too.
        doubt = 1e-13 + ERROR * (1.0 + float(np.abs(losses).max())) / self.mu
        widen = doubt * float(masses.sum()) * np.exp(-0.5 * _nearest_zero(a, b, half) ** 2)
        return first * (1.0 + losses.size * ERROR) + widen, second

    def span(self, reach: float) -> tuple[float, float]:
        """Interval outside of which the Gaussian part is beyond ``reach`` standard deviations."""
        losses = self.atoms[0]
        widest = reach * self.mu + 0.5 * self.mu * self.mu
        return float(losses.min()) - widest, float(losses.max()) + widest


def _normal_between(low: Array, high: Array) -> Array:
    """Probability of a standard normal number between, from the tails where those are smaller."""
    flip = low + high > 0.0
    low, high = np.where(flip, -high, low), np.where(flip, -low, high)
    return np.asarray(ndtr(high) - ndtr(low))


def _nearest_zero(a: Array, b: Array, half: float) -> Array:
    """Least absolute value of an argument of the two normal tails, over all atoms."""
    low, high = a - half, b + half
    nearest = np.maximum(np.maximum(low, -high), 0.0)
    return np.asarray(nearest.min(axis=1))


def mixed_curve(
    event: ObjectiveEvent, others: OtherLosses, low: float, high: float, wanted: float = 0.0
) -> Callable[[float], float]:
    """Upper bound of delta of one objective event together with other losses.

    As a function of epsilon. It is close from ``low`` to ``high``, where it is above ``wanted``,
    and a bound everywhere: what lies outside the nodes counts with the profile's value at the
    nearest smaller node, or 1.
    """
    if not others.mu < LARGEST_MU:
        return lambda _: 1.0
    # The rounding of epsilon - T, on numbers no larger than these.
    largest = high + float(np.abs(others.atoms[0]).max())
    slack, beyond = 8.0 * math.ulp(1.0 + largest), 1e-9 * (1.0 + largest)
    if 0.0 < others.mu < SMALLEST_MU_SHARE * (1.0 + largest):
        others = replace(others, mu=SMALLEST_MU_SHARE * (1.0 + largest))
    if not _is_quick(event):
        if others.mu == 0.0 and others.atoms[0].size * _dear_cost(event) <= DIRECT:
            return lambda epsilon: _direct(event, others, epsilon - slack)
        farthest = others.span(37.0)[1] - low + beyond
        return lambda epsilon: _dear_chords(event, others, epsilon - slack, farthest, wanted)
    # Beyond the reach the Gaussian part weighs little beside the result.
    at_least = max(profile(event, max(high, 0.0)), 1e-300)
    reach = min(math.sqrt(25.0 - 2.0 * math.log(at_least)), 37.0)
    least, most = others.span(reach)
    count = min(MOST_NODES, max(FEW_NODES, MOST_PAIRS // others.atoms[0].size))
    # Over a short range the profile is nearly straight, and each node adds its rounding.
    enough = NODES_PER_DEVIATION * event.sigma * (high + most - low - least)
    count = int(min(max(enough, LEAST_NODES), count))
    nodes, g = _profile_between(event, low - most - beyond, high - least + beyond, count)
    return lambda epsilon: _chords(others, epsilon - slack, nodes, g)


def _profile_between(
    event: ObjectiveEvent, low: float, high: float, count: int
) -> tuple[Array, Array]:
    """Nodes from ``low`` to ``high``, of any sign, and bounds of delta there."""
    far = min(max(-low, high), MAX_EPSILON)
    near = min(max(low, -high, 0.0), 0.99 * far)
    x, g = _curve(event, near, far, count)
    if low >= 0.0:
        return x, g
    if high <= 0.0:
        return -x[::-1], _mirrored(x, g)[::-1]
    return _on_both_sides(x, g)


def _mirrored(x: Array, g: Array) -> Array:
    """Bounds of delta at ``-x``."""
    return np.asarray(
        np.minimum((-np.expm1(-x) + np.exp(-x) * g) * (1.0 + 4.0 * ERROR), 1.0), dtype=np.float64
    )


def _on_both_sides(x: Array, g: Array) -> tuple[Array, Array]:
    """Nodes and bounds on both sides of 0; the first, next to 0, needs no second one."""
    return np.concatenate([-x[:0:-1], x]), np.concatenate([_mirrored(x, g)[:0:-1], g])


@lru_cache(maxsize=256)
def _curve(event: ObjectiveEvent, low: float, high: float, count: int) -> tuple[Array, Array]:
    """Increasing epsilons from ``low >= 0`` to ``high`` and bounds of delta there."""
    x, g = _core.objective_profile(
        event.law,
        event.n_scores,
        low,
        high,
        count,
        event.sigma,
        event.kappa,
        event.jacobian,
        event.adjacency == "replace_one",
    )
    # What is known at one epsilon is known at all larger ones.
    return x, np.minimum.accumulate(np.minimum(g, 1.0))


def _chords(others: OtherLosses, epsilon: float, nodes: Array, g: Array) -> float:
    """Bound of E g(epsilon - T) by chords over the cells between the nodes."""
    # Cells of x = epsilon - T are cells of T, turned round.
    mass, image = others.masses_between(epsilon - nodes[1:], epsilon - nodes[:-1])
    width = np.diff(nodes)
    # Weight of the right end, where g is smaller: E (e^{x - left} - 1) / (e^{width} - 1).
    with np.errstate(over="ignore", invalid="ignore"):
        rise = np.exp(epsilon - nodes[:-1]) * image - mass
        steps = np.minimum(width / others.mu, 1.0) if others.mu else 1.0
        doubt = ERROR * (8.0 + abs(epsilon) + np.abs(nodes[:-1])) + (1e-12 + 1e-15 / steps)
        right = np.nan_to_num((rise - doubt * mass) / np.expm1(width), nan=0.0, posinf=0.0)
    right = np.clip(right, 0.0, mass)
    chords = g[:-1] * (mass - right) + g[1:] * right
    # A larger T than the cells have, where g is at most 1; a smaller one, where g falls further.
    above, _ = others.masses_between(np.array([epsilon - nodes[0]]), np.array([math.inf]))
    below, _ = others.masses_between(np.array([-math.inf]), np.array([epsilon - nodes[-1]]))
    rest = float(above[0]) + float(below[0]) * float(g[-1]) + others.infinite
    return min(1.0, (float(chords.sum()) + rest) * (1.0 + nodes.size * ERROR))


def _direct(event: ObjectiveEvent, others: OtherLosses, epsilon: float) -> float:
    """E g(epsilon - T) for a T of few atoms."""
    values = [profile(event, float(epsilon - loss)) for loss in others.atoms[0]]
    total = (float(others.atoms[1] @ values) + others.infinite) * (1.0 + len(values) * ERROR)
    return min(1.0, add_up(total, SMALLEST_DELTA))


def _dear_chords(
    event: ObjectiveEvent, others: OtherLosses, epsilon: float, farthest: float, wanted: float
) -> float:
    """Bound of E g(epsilon - T) by few nodes, the same ones for every epsilon.

    Below -top the bound is linear in :math:`e^x`: one node as far away as ``farthest`` is enough.
    """
    least = 1.0
    for floor in FLOORS:
        x, g = _dear_points(event, floor)
        x, g = np.append(x, max(x[-1] + 1.0, min(farthest, 600.0))), np.append(g, g[-1])
        least = min(least, _chords(others, epsilon, *_on_both_sides(x, g)))
        if max(least, wanted) > FAR_ABOVE * floor:
            break
    return least


@lru_cache(maxsize=256)
def _dear_points(event: ObjectiveEvent, floor: float) -> tuple[Array, Array]:
    """Few epsilons >= 0 and bounds of delta there, close to each other where it falls to ``floor``.

    Each is put where the chord may lie farthest above the curve, as a difference of epsilons.
    """
    event = _with_whole_jacobian(event)
    jacobian = event.n_scores * _jacobian_share(event) / event.sigma
    top = jacobian + _norm(event) / event.sigma * (9.0 + 0.5 * _norm(event) / event.sigma)
    at = sorted({0.0, min(jacobian, MAX_EPSILON), min(top, MAX_EPSILON)})
    values = [profile(event, x) for x in at]
    while values[-1] > floor and at[-1] < MAX_EPSILON:
        at.append(min(2.0 * at[-1], MAX_EPSILON))
        values.append(profile(event, at[-1]))
    count = min(max(DEAR_TOTAL / _dear_cost(event), LEAST_DEAR), MOST_DEAR)
    for _ in range(int(count)):
        i = int(np.argmax(_missed(np.array(at), np.maximum(values, floor))))
        at.insert(i + 1, 0.5 * (at[i] + at[i + 1]))
        values.insert(i + 1, profile(event, at[i + 1]))
    # What is known at one epsilon is known at all larger ones.
    return np.array(at), np.minimum.accumulate(values)


def _missed(x: Array, g: Array) -> Array:
    """About how much larger an epsilon the chord of each cell may show than the curve does.

    A convex curve lies above the neighbouring chords, drawn on into the cell.
    """
    alpha = np.exp(x - x[-1])
    slopes = np.diff(g) / np.diff(alpha)
    middle, half = 0.5 * (g[:-1] + g[1:]), 0.5 * np.diff(alpha)
    from_left = np.append(0.0, g[1:-1] + slopes[:-1] * half[1:])
    from_right = np.append(g[1:-1] - slopes[1:] * half[:-1], 0.0)
    least = np.maximum(np.maximum(from_left, from_right), g[1:])
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.nan_to_num(np.log(middle / least) / np.log(g[:-1] / g[1:]))
    # What is nearly nothing counts less.
    return np.asarray(np.diff(x) * np.minimum(share, 1.0) * np.where(g[:-1] < 1e-13, 0.25, 1.0))


def _dear_cost(event: ObjectiveEvent) -> float:
    """About the milliseconds that one point of the profile costs."""
    if event.law == "weston_watkins":
        return 10.0 + 1.3 * event.n_scores
    return 1.0 + min(0.55 * _jacobian_share(event), 80.0)


def _jacobian_share(event: ObjectiveEvent) -> float:
    """Jacobian of one score over the deviation of its loss; 0 where it is not computed jointly."""
    if event.law != "logistic" or event.kappa is None or event.adjacency == "replace_one":
        return 0.0
    return event.sigma * math.log1p(0.25 * event.kappa)


def _with_whole_jacobian(event: ObjectiveEvent) -> ObjectiveEvent:
    """Return the event, its Jacobian counted in full where that is nearly all there is."""
    if event.kappa is None or _jacobian_share(event) <= MOSTLY_JACOBIAN:
        return event
    whole = round_up(event.n_scores * math.log1p(0.25 * event.kappa), 8)
    return replace(event, kappa=None, jacobian=whole)


def _is_quick(event: ObjectiveEvent) -> bool:
    """Whether many points of the profile cost little: one score, or one law for many of them."""
    return event.n_scores == 1 or (event.law == "softmax" and event.kappa is not None)


@lru_cache(maxsize=256)
def profile_points(event: ObjectiveEvent) -> tuple[Array, Array] | None:
    r"""Increasing epsilons and bounds of delta there, convex in :math:`e^\epsilon`.

    None where the loss may be so large that a grid of it says nothing.
    """
    if not _is_quick(event):
        return _convex_points(*_on_both_sides(*_dear_points(event, NEGLIGIBLE)))
    top = _norm(event) / event.sigma * (9.0 + 0.5 * _norm(event) / event.sigma)
    while not top > LARGEST_LOSS and profile(event, top) > NEGLIGIBLE:
        top *= 1.3
    if top > LARGEST_LOSS:
        return None
    return _convex_points(*_profile_between(event, -top, top, ATOM_NODES))


def _convex_points(x: Array, g: Array) -> tuple[Array, Array] | None:
    """Points on the greatest convex function of exp(x) below; None beyond the largest loss."""
    if x[-1] > LARGEST_LOSS:
        return None
    # At alpha = 0 every delta is 1.
    kept = _convex_below(np.concatenate([[0.0], np.exp(x)]), np.concatenate([[1.0], g]))
    inner = np.array(kept[1:]) - 1
    return x[inner], g[inner]


@lru_cache(maxsize=256)
def loss_atoms(event: ObjectiveEvent) -> tuple[Atoms, float] | None:
    """Atoms of a loss that dominates the event's, and the mass of an infinite one, or None."""
    points = profile_points(event)
    if points is None:
        return None
    alpha = np.concatenate([[0.0], np.exp(points[0])])
    values = np.concatenate([[1.0], points[1]])
    rise, run = np.diff(values), np.diff(alpha)
    slopes = np.append(rise / run, 0.0)
    doubt = 4e-16 * np.append((values[:-1] + values[1:]) / run, 0.0)
    masses = alpha[1:] * (np.diff(slopes) + doubt[:-1] + doubt[1:])
    losses = np.log(alpha[1:])
    losses += 1e-15 * (1.0 + np.abs(losses))
    return (losses, np.maximum(masses, 0.0) * (1.0 + 1e-12)), float(values[-1])


def _norm(event: ObjectiveEvent) -> float:
    """Length of the largest change of all scores' gradients together, about."""
    k = float(event.n_scores)
    one = math.sqrt({"softmax": 2.0, "weston_watkins": k * (k - 1.0)}.get(event.law, k))
    return 2.0 * one if event.adjacency == "replace_one" else one


def _convex_below(x: Array, y: Array) -> list[int]:
    """Indices of the greatest convex function below points with increasing x."""
    kept: list[int] = []
    for i in range(x.size):
        while len(kept) > 1:
            a, b = kept[-2], kept[-1]
            if (y[b] - y[a]) * (x[i] - x[b]) <= (y[i] - y[b]) * (x[b] - x[a]):
                break
            kept.pop()
        kept.append(i)
    return kept


# Atoms of the loss of all pure events together; fewer where they are of many sizes, or each costs
# one Gaussian evaluation.
MAX_ATOMS, MANY_SIZES, ATOMS_OF_MANY = 20_000, 8, 6_000

MAX_ATOMS_WITH_GAUSSIAN = 2_000
# The same where each meets every node of a profile, for every epsilon.
MAX_ATOMS_WITH_PROFILE = 500

# More than all masses lost to underflow in one convolution.
UNDERFLOW = 1e-310

# The smallest positive float.
SMALLEST_DELTA = math.ulp(0.0)

# Below this, mu is replaced by it: its inverse would overflow, and a larger mu is an upper bound.
SMALLEST_MU = 1e-300

# Atoms of the loss of several objective events, and the loss that is none.
MAX_ATOMS_OF_SUM = 4_000

NO_LOSS: Atoms = (np.zeros(1), np.ones(1))

# No epsilon beyond this is searched for: it would say nothing.
LARGEST_SEARCHED = 1e5

# What is promised of noise in an objective beside others leaves this much of delta to those who
# check it with tables of their own.
HEADROOM = 1.0005

# Steps to where a curve crosses delta; about ten are usual.
MOST_CROSSINGS = 60

# Shares of delta that basic composition tries for the Gaussian events beside an objective one.
BASIC_SHARES = (0.01, 0.1, 0.5)


def formula_delta(totals: Totals, epsilon: float) -> float:
    """Upper bound of delta at ``epsilon >= 0``."""
    if totals.objective:
        return _objective_delta(totals, epsilon, 0.0)
    bound = _basic_delta(totals, epsilon)
    if bound == 0.0 or not totals.pure:
        return bound
    return min(bound, _mixture_delta(totals, epsilon))


def formula_epsilon(totals: Totals, delta: float) -> float:
    """Upper bound of the smallest epsilon at ``delta``."""
    if totals.objective:
        return _searched_epsilon(totals, delta)
    gaussian = _gaussian_epsilon(totals, delta)
    high = add_up(gaussian, totals.pure_epsilon)
    if delta == 0.0 or not totals.pure or math.isinf(high):
        return high
    return smallest(lambda e: formula_delta(totals, e) <= delta, high)


def formula_fits(totals: Totals, epsilon: float, delta: float) -> bool:
    """Whether basic composition alone shows (epsilon, delta); cheap and sufficient."""
    if totals.objective:
        return _split_fits(totals, epsilon, delta)
    return _basic_delta(totals, epsilon) <= delta


def _most_atoms(sizes: int) -> int:
    """Atoms for the sum of losses of so many sizes."""
    return MAX_ATOMS if sizes <= MANY_SIZES else ATOMS_OF_MANY


def _basic_delta(totals: Totals, epsilon: float) -> float:
    """Delta when every pure event is charged in full."""
    return gaussian_delta(add_down(epsilon, -totals.pure_epsilon), totals.mu)


def _gaussian_epsilon(totals: Totals, delta: float) -> float:
    """Epsilon of the Gaussian events alone."""
    if totals.is_pure:
        return 0.0
    if delta == 0.0 or math.isinf(totals.mu):
        return math.inf
    return _core.gaussian_epsilon(delta, _inverse(totals.mu))


def _mixture_delta(totals: Totals, epsilon: float) -> float:
    """Delta with the exact law of the randomised-response losses."""
    mu = totals.mu
    groups = tuple(sorted(totals.pure.items()))
    cap = _most_atoms(len(groups)) if mu == 0.0 else MAX_ATOMS_WITH_GAUSSIAN
    losses, masses = randomised_response_losses(groups, cap)
    # The rounding of the losses and of epsilon - L, on numbers no larger than these.
    slack = (4.0 + 4.0 * len(groups)) * math.ulp(epsilon + totals.pure_epsilon)
    shifted = epsilon - losses - slack
    if mu == 0.0:
        total = float(masses @ -np.expm1(np.minimum(shifted, 0.0)))
    else:
        total = math.fsum(
            mass * gaussian_delta(float(e), mu)
            for mass, e in zip(masses, shifted, strict=True)
            if mass > 0.0
        )
    total = mul_up(total, 1.0 + (losses.size + 8.0) * ERROR)
    return min(1.0, add_up(total, UNDERFLOW * len(groups)))


def _split_delta(totals: Totals, epsilon: float) -> float:
    """Delta by basic composition, epsilon shared in proportion to the size of the noise."""
    left = add_down(epsilon, -totals.pure_epsilon)
    sizes = [1.0 / event.sigma for event in totals.objective]
    whole = math.fsum(
        size * count for size, count in zip(sizes, totals.objective.values(), strict=True)
    )
    whole = (whole + totals.mu) * (1.0 + ERROR)
    if left <= 0.0 or math.isinf(whole):
        return 1.0
    total = gaussian_delta(left * totals.mu / whole, totals.mu) if totals.mu else 0.0
    for size, (event, count) in zip(sizes, totals.objective.items(), strict=True):
        total = add_up(total, mul_up(float(count), profile(event, left * size / whole)))
    return min(1.0, total)


def _split_fits(totals: Totals, epsilon: float, delta: float) -> bool:
    """Whether a few ways of sharing epsilon and delta show the bound."""
    left = add_down(epsilon, -totals.pure_epsilon)
    if totals.objective.total() > 1 or not totals.mu:
        return _split_delta(totals, epsilon) <= delta
    if delta == 0.0 or math.isinf(totals.mu):
        return False
    (event,) = totals.objective
    for share in BASIC_SHARES:
        outside = add_up(_core.gaussian_epsilon(share * delta, _inverse(totals.mu)), 0.0)
        rest = add_down(left, -outside)
        if rest > 0.0 and profile(event, rest) <= add_down(delta, -share * delta):
            return True
    return False


def _is_alone(totals: Totals) -> bool:
    """Whether one objective event is all there is."""
    return totals.objective.total() == 1 and not (totals.mu_squared or totals.pure)


def _objective_delta(totals: Totals, epsilon: float, wanted: float) -> float:
    """Delta with objective events; a result below ``wanted`` need not be close."""
    if _is_alone(totals):
        return _split_delta(totals, epsilon)
    mixed = _objective_curve(totals, epsilon, epsilon, wanted)(epsilon)
    if mixed < 1.0 and not all(map(_is_quick, totals.objective)):
        return mixed
    return min(mixed, _split_delta(totals, epsilon))


def _objective_curve(
    totals: Totals, low: float, high: float, wanted: float = 0.0
) -> Callable[[float], float]:
    """Delta from ``low`` to ``high`` by the profile of one event, all others being losses."""
    events = sorted(totals.objective, key=lambda event: (event.sigma, repr(event)))
    last = events[0]
    cap = _most_atoms(len(totals.pure) + len(events))
    atoms = randomised_response_losses(tuple(sorted(totals.pure.items())), cap)
    infinite = 0.0
    for event in events:
        power = _repeated(event, totals.objective[event] - (event == last))
        if power is None:
            return lambda _: 1.0
        atoms, cut = thinned(sum_of_losses(atoms, power[0], cap), NEGLIGIBLE)
        infinite = add_up(infinite, power[1], cut)
    atoms = sum_of_losses(atoms, NO_LOSS, MAX_ATOMS_WITH_PROFILE)
    curve = mixed_curve(last, OtherLosses(atoms, infinite, totals.mu), low, high, wanted)
    return lambda epsilon: min(1.0, mul_up(curve(epsilon), HEADROOM))


def _searched_epsilon(totals: Totals, delta: float) -> float:
    """Smallest epsilon at ``delta`` with objective events among the others."""
    if delta == 0.0:
        return math.inf
    high = max(1.0, totals.pure_epsilon)
    while _objective_delta(totals, high, delta) > delta:
        high *= 2.0
        if high > LARGEST_SEARCHED:
            return math.inf
    if _is_alone(totals):
        return crossing(lambda e: formula_delta(totals, e), delta, 0.0, high)
    low = 0.0
    # The nodes of a curve are spread over its whole range: a second one is drawn where it counts.
    for narrower in (0.9, 0.0):
        curve = _objective_curve(totals, low, high, delta)
        high = crossing(curve, delta, low, high)
        low = narrower * high
    return high


def _repeated(event: ObjectiveEvent, count: int) -> tuple[Atoms, float] | None:
    """Atoms of the summed loss of ``count`` equal events, and the mass of an infinite one."""
    total: tuple[Atoms, float] = (NO_LOSS, 0.0)
    if count == 0:
        return total
    square = loss_atoms(event)
    if square is None:
        return None
    while True:
        if count % 2:
            total = _sum_of_both(total, square)
        count //= 2
        if not count:
            return total
        square = _sum_of_both(square, square)


def _sum_of_both(one: tuple[Atoms, float], other: tuple[Atoms, float]) -> tuple[Atoms, float]:
    """Sum of two losses, either of which may be infinite."""
    atoms, cut = thinned(sum_of_losses(one[0], other[0], MAX_ATOMS_OF_SUM), NEGLIGIBLE)
    return atoms, add_up(one[1], other[1], cut)


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Upper bound of delta of a Gaussian mechanism, for epsilon of any sign, mu 0 included."""
    if mu == 0.0:
        return 0.0 if epsilon >= 0.0 else min(1.0, round_up(-math.expm1(epsilon), 4))
    if math.isinf(mu) or epsilon == -math.inf:
        return 1.0
    # Never 0, also where the value underflows: Gaussian noise has no guarantee with delta = 0.
    return min(1.0, max(SMALLEST_DELTA, _core.gaussian_delta(epsilon, _inverse(mu))))


def _inverse(mu: float) -> float:
    """Noise scale at sensitivity 1, rounded towards a worse guarantee."""
    return div_down(1.0, max(mu, SMALLEST_MU))


def crossing(curve: Callable[[float], float], delta: float, low: float, high: float) -> float:
    """Return about the smallest epsilon in [low, high] where a falling curve is at most ``delta``.

    By steps between logarithms, which are nearly straight. The curve was evaluated at what is
    returned and is low enough there, unless that is ``high``.
    """
    at_low = math.log(max(curve(low), SMALLEST_DELTA))
    at_high = math.log(max(curve(high), SMALLEST_DELTA))
    wanted = math.log(delta)
    if at_low <= wanted:
        return low
    weight_low, weight_high = at_low - wanted, at_high - wanted
    for step in range(MOST_CROSSINGS):
        if weight_high >= 0.0 or high - low <= 1e-9 * high:
            break
        share = weight_low / (weight_low - weight_high) if step % 4 < 3 else 0.5
        margin = 2e-10 * high / (high - low)
        middle = low + (high - low) * min(max(share, margin), 1.0 - margin)
        found = math.log(max(curve(middle), SMALLEST_DELTA)) - wanted
        if found <= 0.0:
            weight_low *= 0.5 if weight_high <= 0.0 else 1.0
            high, weight_high = middle, found
        else:
            low, weight_low = middle, found
            weight_high *= 0.5
    return high


def smallest(holds: Callable[[float], bool], high: float, accuracy: float = 1e-12) -> float:
    """Smallest epsilon in [0, high] at which a monotone condition holds; it does at ``high``."""
    low = 0.0
    if holds(low):
        return low
    while high - low > accuracy * high:
        middle = low + 0.5 * (high - low)
        if holds(middle):
            high = middle
        else:
            low = middle
    return high
