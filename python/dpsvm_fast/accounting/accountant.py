r"""From events to (epsilon, delta): composition of Gaussian and pure events.

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

When L would have too many atoms, atoms are moved to a grid so that the mass and the mean of
:math:`e^{-L}` stay the same. In :math:`u = e^{-L}` the integrand is a supremum of linear
functions, hence convex, so this can only enlarge delta (Jensen).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

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
from dpsvm_fast.accounting.events import GaussianEvent, PrivacyEvent, PureEvent
from dpsvm_fast.exceptions import InvalidParameterError

__all__ = ["Composition", "delta", "epsilon"]

# Atoms of the loss of all pure events together; fewer when each costs one Gaussian evaluation.
MAX_ATOMS = 20_000
MAX_ATOMS_WITH_GAUSSIAN = 2_000

# Bound of the relative error of one function of scipy.special or numpy, generously.
ERROR = 4e-15

# More than all masses lost to underflow in one convolution.
UNDERFLOW = 1e-310

# The smallest positive float.
SMALLEST_DELTA = math.ulp(0.0)

# Below this, mu is replaced by it: its inverse would overflow, and a larger mu is an upper bound.
SMALLEST_MU = 1e-300

Atoms = tuple[NDArray[np.float64], NDArray[np.float64]]


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
        An upper bound; without pure events, or with pure events of few different sizes, the
        exact value up to rounding.

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
        An upper bound; infinity for ``delta=0`` with a Gaussian event among them.

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
        return other

    def add(self, event: PrivacyEvent) -> None:
        """Add one event; an event of unknown kind or of another relation is refused."""
        if not isinstance(event, (GaussianEvent, PureEvent)):
            raise TypeError(
                f"event: got {type(event).__name__}, expected GaussianEvent or PureEvent"
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
        else:
            self._pure[event.epsilon] += 1
            self._pure_sum += Fraction(event.epsilon)

    @property
    def is_pure(self) -> bool:
        """Whether the composition has a guarantee with delta = 0."""
        return not self._mu_squared

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
        bound = self._basic_delta(epsilon)
        if bound == 0.0 or not self._pure:
            return bound
        return min(bound, self._mixture_delta(epsilon))

    def epsilon(self, delta: float) -> float:
        """Upper bound of the smallest epsilon at ``delta``."""
        gaussian = self._gaussian_epsilon(delta)
        high = add_up(gaussian, self.pure_epsilon)
        if delta == 0.0 or not self._pure or math.isinf(high):
            return high
        return _smallest(lambda e: self.delta(e) <= delta, high)

    def basic_fits(self, epsilon: float, delta: float) -> bool:
        """Whether basic composition alone shows (epsilon, delta); cheap and sufficient."""
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
        losses, masses = _randomised_response_losses(groups, cap)
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


def _smallest(holds: Callable[[float], bool], high: float) -> float:
    """Smallest epsilon in [0, high] at which a monotone condition holds; it does at ``high``."""
    low = 0.0
    if holds(low):
        return low
    while high - low > 1e-12 * high:
        middle = low + 0.5 * (high - low)
        if holds(middle):
            high = middle
        else:
            low = middle
    return high


@lru_cache(maxsize=64)
def _randomised_response_losses(groups: tuple[tuple[float, int], ...], cap: int) -> Atoms:
    """Atoms of the summed loss of ``groups`` of (epsilon, count), masses rounded up."""
    losses: NDArray[np.float64] = np.zeros(1)
    masses: NDArray[np.float64] = np.ones(1)
    for size, count in groups:
        more, their_masses = _binomial_losses(size, count)
        if losses.size * more.size <= cap:
            losses = np.add.outer(losses, more).ravel()
            masses = np.multiply.outer(masses, their_masses).ravel() * (1.0 + ERROR)
        else:
            span = float(np.ptp(losses)) + float(np.ptp(more))
            width = span / (cap - 4)
            low, masses = _on_grid(losses, masses, width)
            their_low, their_masses = _on_grid(more, their_masses, width)
            # A sum of non-negative products: its relative error grows with the number of terms.
            masses = np.asarray(
                np.convolve(masses, their_masses) * (1.0 + cap * ERROR), dtype=np.float64
            )
            steps = np.arange(masses.size, dtype=np.float64)
            losses = np.asarray(low + their_low + width * steps, dtype=np.float64)
    return losses, masses


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
