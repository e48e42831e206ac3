r"""From events to (epsilon, delta).

Gaussian, pure and objective events compose by formulas (``_formulas.py``); sampled Gaussian sums,
zCDP and random stopping, alone or among others, by loss distributions (``_distributions.py``).
Infinite losses and distances are set apart (``_composed.py``), parallel branches tried in turn
(``_choices.py``). All round upwards.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction

from dpsvm_fast._rounding import add_down
from dpsvm_fast._validation import check_delta, check_real
from dpsvm_fast.accounting._choices import choices
from dpsvm_fast.accounting._composed import share_left, totals_delta, totals_epsilon, totals_need
from dpsvm_fast.accounting._distances import distance_delta
from dpsvm_fast.accounting._distributions import distribution_delta, distribution_epsilon
from dpsvm_fast.accounting._formulas import formula_delta, formula_fits
from dpsvm_fast.accounting._totals import Totals
from dpsvm_fast.accounting.events import PrivacyEvent

__all__ = ["Composition", "delta", "epsilon"]

# By how much more than what is asked is tried: what fits then fits for many events to come.
AHEAD = (Fraction(2), Fraction(6, 5), Fraction(51, 50))
# How many such proofs are remembered.
REMEMBERED = 8


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
        An upper bound; infinity for ``delta=0`` with a Gaussian or objective event among them, and
        where distances cost all of delta.

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

    Parameters
    ----------
    adjacency : {"add_remove", "replace_one"} or None
        The relation of every event; None takes that of the first one.
    """

    def __init__(self, adjacency: str | None = None) -> None:
        self._totals = Totals(adjacency)
        # Totals that were shown to fit (epsilon, delta); shared by all copies.
        self._fitting: list[tuple[float, float, Totals]] = []

    @classmethod
    def of(cls, events: Iterable[PrivacyEvent]) -> Composition:
        """Composition of all ``events``."""
        composition = cls()
        for event in events:
            composition.add(event)
        return composition

    def copy(self) -> Composition:
        """Return an independent composition of the same events."""
        other = Composition()
        other._totals = self._totals.copy()
        other._fitting = self._fitting
        return other

    def add(self, event: PrivacyEvent) -> None:
        """Add one event; an event of unknown kind or of another relation is refused."""
        self._totals.add(event)

    def delta(self, epsilon: float) -> float:
        """Upper bound of delta at ``epsilon >= 0``."""
        return totals_delta(self._totals, epsilon)

    def epsilon(self, delta: float) -> float:
        """Upper bound of the smallest epsilon at ``delta``."""
        return totals_epsilon(self._totals, delta)

    @property
    def has_distance(self) -> bool:
        """Whether some release is known up to a distance only."""
        return any(choice.distance for choice in choices(self._totals))

    def room(self, epsilon: float, delta: float) -> float:
        """Epsilon of a pure event that still fits into a budget, rounded down."""
        return max(0.0, add_down(epsilon, -totals_need(self._totals, epsilon, delta)))

    def fits(self, epsilon: float, delta: float) -> bool:
        """Whether (epsilon, delta) is shown; the cheapest bound that shows it is enough."""
        return all(self._fits(choice, epsilon, delta) for choice in choices(self._totals))

    def _fits(self, totals: Totals, epsilon: float, delta: float) -> bool:
        """Whether (epsilon, delta) is shown for one choice of branches."""
        if totals.distance:
            if self._fits_without(totals, epsilon, delta):
                return True
            # What a distance costs grows with epsilon: a smaller one may do.
            return totals_epsilon(totals, delta) <= epsilon
        return self._fits_exactly(totals, epsilon, delta)

    def _fits_without(self, totals: Totals, epsilon: float, delta: float) -> bool:
        """Whether it is shown at this epsilon, beside what distances cost there."""
        left = add_down(delta, -distance_delta(totals.distance, epsilon))
        return left >= 0.0 and self._fits_exactly(totals, epsilon, left)

    def _fits_exactly(self, totals: Totals, epsilon: float, delta: float) -> bool:
        """Whether it is shown without distances."""
        if totals.certain:
            delta = share_left(delta, totals.told)
            if delta < 0.0:
                return False
        if totals.has_formula:
            if formula_fits(totals, epsilon, delta):
                return True
            return delta > 0.0 and formula_delta(totals, epsilon) <= delta
        if delta == 0.0:
            return False
        if any(e <= epsilon and d <= delta and totals.within(t) for e, d, t in self._fitting):
            return True
        found = self._shown(totals, epsilon, delta, AHEAD[0])
        if found <= epsilon:
            return True
        # Epsilon at a delta that was asked for is cheaper than a delta that may be tiny.
        alone = self._shown(totals, epsilon, delta, Fraction(1))
        if alone > epsilon:
            return distribution_delta(totals, epsilon) <= delta
        power = math.log2(found / alone) if 0.0 < alone < found < math.inf else 1.0
        for factor in AHEAD[1:]:
            if alone * float(factor) ** power <= epsilon:
                self._shown(totals, epsilon, delta, factor)
                break
        return True

    def _shown(self, totals: Totals, epsilon: float, delta: float, factor: Fraction) -> float:
        """Epsilon of so many times as much of everything; remembered where it is small enough."""
        more = totals.enlarged(factor)
        found = distribution_epsilon(more, delta)
        if found <= epsilon:
            self._fitting[:] = [(epsilon, delta, more), *self._fitting[: REMEMBERED - 1]]
        return found
