r"""Events whose sizes are chosen by looking at earlier results: filter and odometer.

Every event counts as a part that a Gaussian release of parameter mu can simulate, plus a
probability of an outright leak. With limits B and D that are fixed beforehand, sums of :math:`\mu^2
\le B^2` and of these probabilities :math:`\le D` are :math:`(\epsilon, \delta_G(\epsilon; B) +
D)`-private whatever is chosen; and so are events with sums of epsilons :math:`\le \epsilon` and of
probabilities :math:`\le D`. The odometer is the boundary :math:`\epsilon(v) = v/2 + \inf\{w :
M_v(w) \ge 1/\delta\}` that a privacy loss with variance v crosses at any time with probability at
most delta, :math:`M_v(w) = \sqrt{s/(v + s)}\, 2 \Phi(w/\sqrt{v + s})\, e^{w^2/(2 (v + s))}`.
Proofs: docs/proofs/adaptive_composition.md.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache, reduce
from typing import NamedTuple

from scipy.special import erf, erfinv, log_ndtr, ndtri_exp

from dpsvm_fast import _core
from dpsvm_fast.accounting.composition import distance_delta, leak_near_gaussian, totals_epsilon
from dpsvm_fast.accounting.totals import check_event, of_events
from dpsvm_fast.certificates.events import ParallelEvent, PrivacyEvent
from dpsvm_fast.rounding import (
    add_down,
    add_up,
    div_down,
    div_up,
    fraction_down,
    fraction_up,
    mul_down,
    mul_up,
    sqrt_down,
    sqrt_up,
)
from dpsvm_fast.validation import MAX_EPSILON

# Share of delta that is kept for outright leaks, and the share of that which one event known by its
# profile takes. Both belong to the meaning of a ledger's file.
LEAK_SHARE, PAIR_SHARE = 0.1, 1.0 / 16.0
# Smallest delta of a Gaussian calibration, and the largest float below 1.
MIN_DELTA = 2.3e-308

LARGEST_DELTA = math.nextafter(1.0, 0.0)
# More than the relative error of one function of scipy.special.
ERROR = 1e-12


class Size(NamedTuple):
    """Size of events: their Gaussian and pure parts, and the probability of an infinite loss.

    Also the limits of such a size.

    Parameters
    ----------
    square : Fraction
        Square of the parameter of a Gaussian release that simulates it.
    leak : Fraction
        Probability of an outright leak.
    epsilon : Fraction or infinity
        Epsilon of pure events, apart from an outright leak; infinity with other events.
    distance : Fraction
        Sum of the distances from the laws that the rest is about.
    n_distances : int
        Number of releases with a distance.
    """

    square: Fraction
    leak: Fraction
    epsilon: Fraction | float
    distance: Fraction = Fraction(0)
    n_distances: int = 0

    @property
    def basic(self) -> float:
        """Sum of the epsilons, rounded up."""
        return fraction_up(self.epsilon) if isinstance(self.epsilon, Fraction) else math.inf

    def plus(self, other: Size) -> Size:
        """Return the size of both events together."""
        return Size(*map(operator.add, self, other))

    def leak_near_gaussian(self, mu: float) -> Fraction:
        """Return the loss with distances between Gaussian releases of at most that size.

        The leak of one release is concave in its distance, so equal distances cost at least as
        much.
        """
        if not self.n_distances:
            return self.leak
        mean = fraction_up(self.distance / self.n_distances)
        most = Fraction(leak_near_gaussian(mu, mean)) if mean < 1.0 else Fraction(1)
        return self.leak + self.n_distances * most

    def leak_near_pure(self, epsilon: float) -> Fraction:
        """Return the loss with distances of pure releases of at most that size."""
        return self.leak + Fraction(distance_delta(self.distance, epsilon))


NOTHING = Size(Fraction(0), Fraction(0), Fraction(0))
# Size of an event that no limit admits: nothing is known of it at the delta that it may have.
UNKNOWN = Size(Fraction(10**40), Fraction(0), math.inf)


def pure_mu(epsilon: float) -> float:
    r"""Return mu of a pure event, :math:`2 \Phi^{-1}(e^\epsilon/(1 + e^\epsilon))`, rounded up."""
    if epsilon < 2.0:
        found = 2.0 * math.sqrt(2.0) * float(erfinv(math.tanh(0.5 * epsilon)))
    else:
        found = -2.0 * float(ndtri_exp(-epsilon - math.log1p(math.exp(-epsilon))))
    return mul_up(found, 1.0 + ERROR)


def pure_of_mu(mu: float) -> float:
    """Return the epsilon of a pure event with parameter ``mu``, rounded down."""
    if mu < 1.0:
        found = 2.0 * math.atanh(float(erf(mu / (2.0 * math.sqrt(2.0)))))
    else:
        found = float(log_ndtr(0.5 * mu) - log_ndtr(-0.5 * mu))
    return max(0.0, mul_down(found, 1.0 - ERROR))


class AdaptiveComposition:
    """Composition of events whose sizes depend on earlier results.

    Parameters
    ----------
    epsilon : float > 0
    delta : float in [0, 1)
        The budget, from which the limits follow once and for all.
    adjacency : {"add_remove", "replace_one"}
    slack : float >= 0
        Relative, in both numbers, for events that were made to fill the budget.
    """

    def __init__(self, epsilon: float, delta: float, adjacency: str, slack: float = 0.0) -> None:
        self._adjacency = adjacency
        self._pair = mul_down(mul_down(delta, LEAK_SHARE), PAIR_SHARE)
        self._limits = _limits(epsilon, delta)
        wider = min(mul_up(epsilon, 1.0 + slack), MAX_EPSILON)
        self._wider_limits = _limits(wider, min(mul_up(delta, 1.0 + slack), LARGEST_DELTA))
        self._size = NOTHING

    def add(self, *events: PrivacyEvent) -> None:
        """Add events; refuse an unknown kind or another relation."""
        for event in events:
            check_event(event, self._adjacency)
            self._size = self._size.plus(_size_of(event, self._pair))

    def fits(self, looks: Iterator[None] | None = None) -> bool:
        """Return whether all events together stay within the limits; that takes no ``looks``."""
        return _is_basic(self._size, self._wider_limits) or _is_gaussian(
            self._size, self._wider_limits
        )

    def epsilon(self, delta: float, *, quick: bool = False) -> float:
        """Return the epsilon of a filter for these events at ``delta``, the same if ``quick``.

        Its limits are what the events sum up to; leaks leave the rest of delta.
        """
        size, whole = self._size, Fraction(delta)
        if size.square >= UNKNOWN.square:
            return math.inf
        basic = size.basic
        if math.isfinite(basic) and size.leak_near_pure(basic) > whole:
            basic = math.inf
        mu = sqrt_up(fraction_up(size.square))
        left = fraction_down(max(Fraction(0), whole - size.leak_near_gaussian(mu)))
        if left < MIN_DELTA or not size.square:
            return basic
        return min(basic, _core.gaussian_epsilon(left, div_down(1.0, mu)))

    def simple_epsilon(self) -> float:
        """Return infinity: no bound costs less than ``epsilon``."""
        return math.inf

    def remaining(self, *, quick: bool = False) -> float:
        """Return the largest epsilon of a pure event that still fits, the same if ``quick``."""
        size, limits = self._size, self._limits
        by_square = by_sum = 0.0
        left = limits.square - size.square
        if left > 0 and _is_gaussian(size, limits):
            by_square = pure_of_mu(sqrt_down(fraction_down(left)))
        if _is_basic(size, limits):
            by_sum = fraction_down(Fraction(limits.epsilon) - Fraction(size.epsilon))
        return max(by_square, by_sum)

    def odometer(self, delta: float, tuned_to: float) -> tuple[float, float]:
        """Return epsilon and delta that hold at any time, also one chosen by results."""
        size = self._size
        basic, leak = size.basic, 1.0
        if math.isfinite(basic):
            leak = min(1.0, fraction_up(size.leak_near_pure(basic)))
        if delta < MIN_DELTA:
            return basic, leak if math.isfinite(basic) else fraction_up(size.leak)
        if size.square >= UNKNOWN.square:
            return basic, add_up(fraction_up(size.leak), delta)
        by_size = min(1.0, fraction_up(size.leak_near_gaussian(sqrt_up(fraction_up(size.square)))))
        mu = div_up(1.0, _core.gaussian_sigma(tuned_to, delta))
        prior = mu * mu / (2.0 * math.log(1.0 / delta))
        crossed = boundary(fraction_up(size.square), delta, prior)
        if basic <= crossed:
            # Both hold for a pure release.
            return basic, add_up(min(leak, by_size), delta)
        return crossed, add_up(by_size, delta)


def _limits(epsilon: float, delta: float) -> Size:
    """Return the limits of a filter for that budget."""
    leak = mul_down(delta, LEAK_SHARE)
    kept = add_down(delta, -leak)
    mu = div_down(1.0, _core.gaussian_sigma(epsilon, kept)) if kept >= MIN_DELTA else 0.0
    return Size(Fraction(mu) ** 2, Fraction(leak), Fraction(epsilon))


def _is_basic(size: Size, limits: Size) -> bool:
    """Return whether all events are pure and within the limits."""
    if size.epsilon > limits.epsilon:
        return False
    return size.leak_near_pure(limits.basic) <= limits.leak


def _is_gaussian(size: Size, limits: Size) -> bool:
    """Return whether all events are within the limits as Gaussian releases."""
    if size.square > limits.square:
        return False
    return size.leak_near_gaussian(sqrt_up(fraction_up(limits.square))) <= limits.leak


def boundary(square: float, delta: float, prior: float) -> float:
    """Return the boundary at variance ``square``, rounded up, for any public ``prior > 0``."""
    width = square + prior
    wanted = -math.log(delta) - 0.5 * math.log(prior / width) - math.log(2.0)
    wanted += ERROR * (1.0 + abs(wanted))

    def reached(z: float) -> bool:
        return 0.5 * z * z * (1.0 - ERROR) + float(log_ndtr(z)) - ERROR >= wanted

    low, high = 0.0, 1.0
    while not reached(high):
        low, high = high, 2.0 * high
    while high - low > 1e-13 * high:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if reached(middle) else (middle, high)
    return add_up(0.5 * square, mul_up(high, sqrt_up(width) * (1.0 + ERROR)))


@lru_cache(maxsize=4096)
def _size_of(event: PrivacyEvent, pair: float) -> Size:
    """Return the size of an event; one known by its profile counts by epsilon at ``pair``."""
    if isinstance(event, ParallelEvent):
        # The largest of each number over the branches.
        sizes = [
            reduce(Size.plus, (_size_of(inner, pair) for inner in branch), NOTHING)
            for branch in event.branches
        ]
        return Size(*map(max, zip(*sizes, strict=True)))
    totals = of_events([event])
    if totals.mu_squared:
        return Size(totals.mu_squared, Fraction(0), math.inf)
    if totals.distance:
        return Size(Fraction(0), Fraction(0), Fraction(0), totals.distance, 1)
    if totals.pure:
        return _pure(*totals.pure, *(totals.leaks or [0.0]))
    # By one point of the profile. A file may hold many events, so each is asked quickly.
    epsilon, by_profile = math.inf, UNKNOWN
    if pair > 0.0:
        epsilon = totals_epsilon(totals, pair, quick=True)
    if math.isfinite(epsilon):
        nothing = Size(Fraction(0), Fraction(pair), Fraction(0))
        by_profile = _pure(epsilon, pair) if epsilon > 0.0 else nothing
    for (noise_multiplier, _), n_steps in totals.sampled.items():
        # The same steps on all records are a Gaussian mechanism, which leaks more.
        moved = 2.0 if event.adjacency == "replace_one" else 1.0
        square = Fraction(div_up(moved, noise_multiplier)) ** 2 * n_steps
        if square <= by_profile.square:
            return Size(square, Fraction(0), math.inf)
    return by_profile


def _pure(epsilon: float, leak: float) -> Size:
    """Return the size of a pure event with a given probability of a leak."""
    return Size(Fraction(pure_mu(epsilon)) ** 2, Fraction(leak), Fraction(epsilon))
