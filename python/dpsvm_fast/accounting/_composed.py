r"""Delta and epsilon of totals, whatever is in them.

For each choice of branches that a record can meet, infinite losses are set apart: with probability
``told`` there is one, and otherwise the rest composes by formulas (``_formulas.py``) or by loss
distributions (``_distributions.py``), so

.. math:: \delta(\epsilon) = t + (1 - t) \, \delta_{rest}(\epsilon).

Distances from the described laws are added on top (``_distances.py``).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from dpsvm_fast._rounding import add_down, add_up, div_down, mul_up
from dpsvm_fast.accounting._choices import choices
from dpsvm_fast.accounting._distances import distance_delta, least_delta, least_epsilon
from dpsvm_fast.accounting._distributions import (
    distribution_curve,
    distribution_delta,
    distribution_epsilon,
)
from dpsvm_fast.accounting._formulas import formula_delta, formula_epsilon
from dpsvm_fast.accounting._totals import Totals

# By how much log delta may fall between two points of a curve.
CHEAP_STEP, STEP, DEAR_STEP = 0.1, 0.3, 0.8

__all__ = [
    "rest_delta",
    "rest_epsilon",
    "share_left",
    "totals_curve",
    "totals_delta",
    "totals_epsilon",
    "totals_need",
]


def totals_delta(totals: Totals, epsilon: float) -> float:
    """Upper bound of delta at ``epsilon >= 0``."""
    return max(_delta(choice, epsilon) for choice in choices(totals))


def totals_epsilon(totals: Totals, delta: float) -> float:
    """Upper bound of the smallest epsilon at ``delta``."""
    return max(_epsilon(choice, delta) for choice in choices(totals))


def totals_need(totals: Totals, epsilon: float, delta: float) -> float:
    """Epsilon without distances, at the delta that these leave at ``epsilon``."""
    return max(_need(choice, epsilon, delta) for choice in choices(totals))


def totals_curve(totals: Totals) -> tuple[Callable[[float], float], float]:
    """Delta as a function of epsilon for many questions, and what log delta may fall in a step.

    Smaller steps are suggested where questions are cheap.
    """
    found = choices(totals)
    assert not any(choice.distance for choice in found)
    curves = [(_rest_curve(choice), choice.told) for choice in found]
    step = CHEAP_STEP
    if not all(_is_cheap(choice) for choice in found):
        step = DEAR_STEP if any(choice.sampled for choice in found) else STEP
    return lambda epsilon: max(_joined(curve(epsilon), told) for curve, told in curves), step


def _rest_curve(choice: Totals) -> Callable[[float], float]:
    """Delta of one choice without its infinite losses, as a function."""
    if _is_cheap(choice):
        return lambda epsilon: rest_delta(choice, epsilon)
    return distribution_curve(choice)


def _is_cheap(choice: Totals) -> bool:
    """Whether there is a closed form for everything but infinite losses."""
    return not (choice.pure or choice.sampled or choice.objective or choice.curved) and (
        not choice.rho or not choice.mu_squared
    )


def _joined(rest: float, told: float) -> float:
    """Delta with infinite losses of that probability."""
    return min(1.0, add_up(told, mul_up(add_up(1.0, -told), rest))) if told else rest


def share_left(delta: float, told: float) -> float:
    """Delta that the rest may have, rounded down; negative where ``told`` is too much."""
    return div_down(add_down(delta, -told), add_up(1.0, -told)) if told < 1.0 else -1.0


def _delta(choice: Totals, epsilon: float) -> float:
    """Delta of one choice."""

    def exact(x: float) -> float:
        return _joined(rest_delta(choice, x), choice.told)

    if choice.distance:
        return least_delta(exact, choice.distance, epsilon, choice.pure_epsilon)
    found = exact(epsilon)
    # Never 0, also where the value underflows: what is not pure has no guarantee with delta = 0.
    return found if choice.is_pure else max(found, math.ulp(0.0))


def _epsilon(choice: Totals, delta: float) -> float:
    """Epsilon of one choice."""
    if not choice.distance:
        return _exact_epsilon(choice, delta)
    return least_epsilon(
        lambda x: _joined(rest_delta(choice, x), choice.told),
        lambda left: _exact_epsilon(choice, left),
        choice.distance,
        delta,
    )


def _exact_epsilon(choice: Totals, delta: float) -> float:
    """Epsilon of one choice without its distances."""
    left = share_left(delta, choice.told) if choice.told else delta
    return rest_epsilon(choice, left) if left >= 0.0 else math.inf


def _need(choice: Totals, epsilon: float, delta: float) -> float:
    """Epsilon of one choice beside what its distances cost at another epsilon."""
    left = add_down(delta, -distance_delta(choice.distance, epsilon))
    return _exact_epsilon(choice, left) if left >= 0.0 else math.inf


def rest_delta(choice: Totals, epsilon: float) -> float:
    """Delta of one choice without its infinite losses."""
    if choice.has_formula:
        return formula_delta(choice, epsilon)
    return distribution_delta(choice, epsilon)


def rest_epsilon(choice: Totals, delta: float) -> float:
    """Epsilon of one choice without its infinite losses."""
    if choice.has_formula:
        return formula_epsilon(choice, delta)
    return distribution_epsilon(choice, delta)
