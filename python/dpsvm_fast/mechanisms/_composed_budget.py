"""What noisy sums leave to a mechanism that follows them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache

from dpsvm_fast._rounding import div_down, round_down
from dpsvm_fast.accounting import (
    PrivacyEvent,
    composed_delta,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_sigma,
)
from dpsvm_fast.exceptions import InvalidParameterError

__all__ = ["budget_of", "epsilon_left", "largest_within"]

# Delta may be missed by this share, always from below; each step of the search takes a while.
SHARE_UNUSED = 0.01
# The first step of the search over what a Gaussian mechanism would need, and as a share at least.
MORE, LEAST_STEP = 1.3, 1e-4
STEPS = 20
LEAST_DELTA = 5e-324
# Of epsilon, that a smaller parameter should leave at the same delta.
GOOD_PART = 0.1


def epsilon_left(
    epsilon: float,
    delta: float,
    spent: Sequence[PrivacyEvent],
    events: Callable[[float], Sequence[PrivacyEvent]],
    guess: float,
) -> float:
    """About the largest own epsilon of a mechanism that keeps the whole within (epsilon, delta).

    Parameters
    ----------
    epsilon : float > 0
    delta : float in (0, 1)
        Of everything together.
    spent : sequence of PrivacyEvent
        What comes before.
    events : callable
        The mechanism's events, from its own epsilon.
    guess : float > 0
        What is likely a little too much.

    Raises
    ------
    InvalidParameterError
        Half of epsilon is already too much.
    """

    @cache
    def log_excess(own: float) -> float:
        # A delta below the floats is none the less.
        found = max(composed_delta([*spent, *events(own)], epsilon), LEAST_DELTA)
        return math.log(found) - math.log(delta)

    low = high = guess if 0.5 * epsilon < guess < epsilon else 0.75 * epsilon
    # About how far delta is missed, over the slope of a Gaussian mechanism's curve, and some more.
    step = MORE * abs(log_excess(low)) * low / (2.0 * math.log(1.0 / delta) + 1.0)
    step = max(step, LEAST_STEP * low)
    while log_excess(low) > 0.0 and low > 0.5 * epsilon:
        low, high, step = max(0.5 * epsilon, low - step), low, 4.0 * step
    while low == high and high < epsilon:
        high = min(epsilon, high + step)
        if log_excess(high) <= 0.0:
            low, step = high, 4.0 * step
    return largest_within(log_excess, low, high)


def largest_within(log_excess: Callable[[float], float], low: float, high: float) -> float:
    """A point at which an increasing function is at most 0, and hardly less.

    ``low`` must be one; regula falsi with the Illinois rule.
    """
    at_low, at_high = log_excess(low), log_excess(high)
    if at_low > 0.0:
        raise InvalidParameterError(
            "epsilon: the pre-processing leaves less than half of it to the training; use "
            "mechanism='gradient'"
        )
    if at_high <= 0.0:
        return high
    weight_low, weight_high = at_low, at_high
    for _ in range(STEPS):
        if at_low >= -SHARE_UNUSED:
            break
        # Aimed a little below the root, so that the safe side moves too.
        aim = -0.5 * SHARE_UNUSED
        middle = low + (high - low) * (aim - weight_low) / (weight_high - weight_low)
        if not low < middle < high:
            middle = 0.5 * (low + high)
        value = log_excess(middle)
        if value <= 0.0:
            low, at_low, weight_low = middle, value, value
            weight_high *= 0.5
        else:
            high, weight_high = middle, value
            weight_low *= 0.5
    return low


def budget_of(mu: float, epsilon: float, delta: float) -> tuple[float, float]:
    """An epsilon and a delta whose Gaussian noise has a parameter of at most ``mu``, hardly less.

    The same delta where that leaves a good part of epsilon; for tiny budgets the same epsilon.
    """
    own = gaussian_epsilon(delta, div_down(1.0, mu))
    if own >= GOOD_PART * epsilon:
        while div_down(1.0, gaussian_sigma(own, delta)) > mu:
            own = round_down(own * (1.0 - 1e-14))
        return own, delta
    own = gaussian_delta(epsilon, div_down(1.0, mu))
    while div_down(1.0, gaussian_sigma(epsilon, own)) > mu:
        own = round_down(own * (1.0 - 1e-14))
    return epsilon, own
