r"""From events to (epsilon, delta): composition of Gaussian, pure and objective events.

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
losses with finitely many atoms. How, and why these are bounds, is told in ``_profile.py``. Basic
composition holds too: :math:`\sum_i \delta_i(\epsilon_i)` with :math:`\sum_i \epsilon_i =
\epsilon`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from fractions import Fraction

import numpy as np

from dpsvm_fast import _core
from dpsvm_fast._rounding import (
    add_down,
    add_up,
    div_down,
    fraction_up,
    mul_up,
    round_up,
    sqrt_up,
)
from dpsvm_fast._validation import check_delta, check_real
from dpsvm_fast.accounting._atoms import (
    ERROR,
    Atoms,
    randomised_response_losses,
    sum_of_losses,
    thinned,
)
from dpsvm_fast.accounting._profile import (
    NEGLIGIBLE,
    OtherLosses,
    gaussian_mu,
    loss_atoms,
    mixed_delta,
    profile,
)
from dpsvm_fast.accounting.events import GaussianEvent, ObjectiveEvent, PrivacyEvent, PureEvent
from dpsvm_fast.exceptions import InvalidParameterError

__all__ = ["Composition", "delta", "epsilon"]

# Atoms of the loss of all pure events together; fewer when each costs one Gaussian evaluation.
MAX_ATOMS = 20_000
MAX_ATOMS_WITH_GAUSSIAN = 2_000

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

# Shares of delta that basic composition tries for the Gaussian events beside an objective one.
BASIC_SHARES = (0.01, 0.1, 0.5)


def delta(events: Iterable[PrivacyEvent], epsilon: float) -> float:
    """Delta of a composition of events at a given epsilon.

    Parameters
    ----------
    events : iterable of PrivacyEvent
        All of one neighbouring relation.
    epsilon : float >= 0

    Returns
    -------
    float in [0, 1]
        An upper bound; without objective events, and without pure events or with pure events of
        few different sizes, the exact value up to rounding.

    Raises
    ------
    TypeError, InvalidParameterError
        An event of unknown kind, events of two relations, or an epsilon outside its range.

    Examples
    --------
    >>> from dpsvm_fast.accounting import GaussianEvent, composed_delta
    >>> event = GaussianEvent(sigma=4.0, sensitivity=1.0, adjacency="add_remove")
    >>> round(composed_delta([event] * 4, 1.0), 6)
    0.00683
    """
    return Composition.of(events).delta(check_real("epsilon", epsilon, low=0.0, high=math.inf))


def epsilon(events: Iterable[PrivacyEvent], delta: float) -> float:
    """Epsilon of a composition of events at a given delta.

    Parameters
    ----------
    events : iterable of PrivacyEvent
        All of one neighbouring relation.
    delta : float in [0, 1)

    Returns
    -------
    float >= 0
        An upper bound; infinity for ``delta=0`` with a Gaussian or objective event among them.

    Raises
    ------
    TypeError, InvalidParameterError
        An event of unknown kind, events of two relations, or a delta outside its range.

    Examples
    --------
    >>> from dpsvm_fast.accounting import PureEvent, composed_epsilon
    >>> composed_epsilon([PureEvent(0.5, "add_remove")] * 3, 0.0)
    1.5
    """
    return Composition.of(events).epsilon(check_delta(delta))


class Composition:
    """A running composition: events are added one by one, questions may be asked in between.

    Keeps the exact sum of squared mus and the number of pure events of each size, so adding an
    event does not look at the earlier ones.

    Parameters
    ----------
    adjacency : {"add_remove", "replace_one"} or None
        The relation of every event; None takes that of the first one.
    """

    def __init__(self, adjacency: str | None = None) -> None:
        self.adjacency = adjacency
        self._mu_squared = Fraction(0)
        self._pure: Counter[float] = Counter()
        self._pure_sum = Fraction(0)
        self._objective: Counter[ObjectiveEvent] = Counter()

    @classmethod
    def of(cls, events: Iterable[PrivacyEvent]) -> Composition:
        """Composition of all ``events``."""
        composition = cls()
        for event in events:
            composition.add(event)
        return composition

    def copy(self) -> Composition:
        """Return an independent composition of the same events."""
        other = Composition(self.adjacency)
        other._mu_squared = self._mu_squared
        other._pure = self._pure.copy()
        other._pure_sum = self._pure_sum
        other._objective = self._objective.copy()
        return other

    def add(self, event: PrivacyEvent) -> None:
        """Add one event; an event of unknown kind or of another relation is refused."""
        if not isinstance(event, (GaussianEvent, ObjectiveEvent, PureEvent)):
            raise TypeError(
                f"event: got {type(event).__name__}, expected GaussianEvent, ObjectiveEvent or "
                "PureEvent"
            )
        if self.adjacency is None:
            self.adjacency = event.adjacency
        if event.adjacency != self.adjacency:
            raise InvalidParameterError(
                f"event: got adjacency {event.adjacency!r} among events of {self.adjacency!r}; "
                "guarantees of different relations do not compose"
            )
        if isinstance(event, GaussianEvent):
            self._mu_squared += Fraction(event.mu) ** 2
        elif isinstance(event, ObjectiveEvent):
            mu = gaussian_mu(event)
            if mu is None:
                self._objective[event] += 1
            else:
                self._mu_squared += Fraction(mu) ** 2
        else:
            self._pure[event.epsilon] += 1
            self._pure_sum += Fraction(event.epsilon)

    @property
    def is_pure(self) -> bool:
        """Whether the composition has a guarantee with delta = 0."""
        return not self._mu_squared and not self._objective

    @property
    def mu(self) -> float:
        """Gaussian parameter of all Gaussian events together, rounded up."""
        return sqrt_up(fraction_up(self._mu_squared))

    @property
    def pure_epsilon(self) -> float:
        """Sum of the epsilons of all pure events, rounded up."""
        return fraction_up(self._pure_sum)

    def delta(self, epsilon: float) -> float:
        """Upper bound of delta at ``epsilon >= 0``."""
        if self._objective:
            return min(self._split_delta(epsilon), self._objective_delta(epsilon))
        bound = self._basic_delta(epsilon)
        if bound == 0.0 or not self._pure:
            return bound
        return min(bound, self._mixture_delta(epsilon))

    def epsilon(self, delta: float) -> float:
        """Upper bound of the smallest epsilon at ``delta``."""
        if self._objective:
            return self._searched_epsilon(delta)
        gaussian = self._gaussian_epsilon(delta)
        high = add_up(gaussian, self.pure_epsilon)
        if delta == 0.0 or not self._pure or math.isinf(high):
            return high
        return _smallest(lambda e: self.delta(e) <= delta, high)

    def basic_fits(self, epsilon: float, delta: float) -> bool:
        """Whether basic composition alone shows (epsilon, delta); cheap and sufficient."""
        if self._objective:
            return self._split_fits(epsilon, delta)
        return self._basic_delta(epsilon) <= delta

    def _basic_delta(self, epsilon: float) -> float:
        """Delta when every pure event is charged in full."""
        return _gaussian_delta(add_down(epsilon, -self.pure_epsilon), self.mu)

    def _gaussian_epsilon(self, delta: float) -> float:
        """Epsilon of the Gaussian events alone."""
        if self.is_pure:
            return 0.0
        if delta == 0.0 or math.isinf(self.mu):
            return math.inf
        return _core.gaussian_epsilon(delta, _inverse(self.mu))

    def _mixture_delta(self, epsilon: float) -> float:
        """Delta with the exact law of the randomised-response losses."""
        mu = self.mu
        groups = tuple(sorted(self._pure.items()))
        cap = MAX_ATOMS if mu == 0.0 else MAX_ATOMS_WITH_GAUSSIAN
        losses, masses = randomised_response_losses(groups, cap)
        # The rounding of the losses and of epsilon - L, on numbers no larger than these.
        slack = (4.0 + 4.0 * len(groups)) * math.ulp(epsilon + self.pure_epsilon)
        shifted = epsilon - losses - slack
        if mu == 0.0:
            total = float(masses @ np.maximum(-np.expm1(shifted), 0.0))
        else:
            total = math.fsum(
                mass * _gaussian_delta(float(e), mu)
                for mass, e in zip(masses, shifted, strict=True)
                if mass > 0.0
            )
        total = mul_up(total, 1.0 + (losses.size + 8.0) * ERROR)
        return min(1.0, add_up(total, UNDERFLOW * len(groups)))

    def _split_delta(self, epsilon: float) -> float:
        """Delta by basic composition, epsilon shared in proportion to the size of the noise."""
        left = add_down(epsilon, -self.pure_epsilon)
        sizes = [1.0 / event.sigma for event in self._objective]
        whole = math.fsum(
            size * count for size, count in zip(sizes, self._objective.values(), strict=True)
        )
        whole = (whole + self.mu) * (1.0 + ERROR)
        if left <= 0.0 or math.isinf(whole):
            return 1.0
        total = _gaussian_delta(left * self.mu / whole, self.mu) if self.mu else 0.0
        for size, (event, count) in zip(sizes, self._objective.items(), strict=True):
            total = add_up(total, mul_up(float(count), profile(event, left * size / whole)))
        return min(1.0, total)

    def _split_fits(self, epsilon: float, delta: float) -> bool:
        """Whether a few ways of sharing epsilon and delta show the bound."""
        left = add_down(epsilon, -self.pure_epsilon)
        if self._objective.total() > 1 or not self.mu:
            return self._split_delta(epsilon) <= delta
        if delta == 0.0 or math.isinf(self.mu):
            return False
        (event,) = self._objective
        for share in BASIC_SHARES:
            outside = add_up(_core.gaussian_epsilon(share * delta, _inverse(self.mu)), 0.0)
            rest = add_down(left, -outside)
            if rest > 0.0 and profile(event, rest) <= add_down(delta, -share * delta):
                return True
        return False

    def _objective_delta(self, epsilon: float) -> float:
        """Delta by the profile of one objective event, all others being losses beside it."""
        events = sorted(self._objective, key=lambda event: (event.sigma, repr(event)))
        last = events[0]
        atoms = randomised_response_losses(tuple(sorted(self._pure.items())), MAX_ATOMS)
        infinite = 0.0
        for event in events:
            power = _repeated(event, self._objective[event] - (event == last))
            if power is None:
                return 1.0
            atoms, cut = thinned(sum_of_losses(atoms, power[0], MAX_ATOMS), NEGLIGIBLE)
            infinite = add_up(infinite, power[1], cut)
        atoms = sum_of_losses(atoms, NO_LOSS, MAX_ATOMS_WITH_GAUSSIAN)
        return mixed_delta(last, OtherLosses(atoms, infinite, self.mu), epsilon)

    def _searched_epsilon(self, delta: float) -> float:
        """Smallest epsilon at ``delta`` with objective events among the others."""
        if delta == 0.0:
            return math.inf
        high = max(1.0, self.pure_epsilon)
        while self.delta(high) > delta:
            high *= 2.0
            if high > LARGEST_SEARCHED:
                return math.inf
        return _smallest(lambda e: self.delta(e) <= delta, high, 1e-9)


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
            total = _both(total, square)
        count //= 2
        if not count:
            return total
        square = _both(square, square)


def _both(one: tuple[Atoms, float], other: tuple[Atoms, float]) -> tuple[Atoms, float]:
    """Sum of two losses, either of which may be infinite."""
    atoms, cut = thinned(sum_of_losses(one[0], other[0], MAX_ATOMS_OF_SUM), NEGLIGIBLE)
    return atoms, add_up(one[1], other[1], cut)


def _gaussian_delta(epsilon: float, mu: float) -> float:
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


def _smallest(holds: Callable[[float], bool], high: float, accuracy: float = 1e-12) -> float:
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
