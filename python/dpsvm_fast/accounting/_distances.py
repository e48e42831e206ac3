r"""What a distance from the described laws costs.

A release within T of an :math:`(\epsilon, \delta)`-private one, on every data set, is
:math:`(\epsilon, \delta + (1 + e^\epsilon) T)`-private; docs/proofs/accountant.md, section
"Distances". That grows with epsilon, while a promise with a smaller epsilon is also one with a
larger epsilon: the smallest value up to epsilon counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from scipy.special import log_ndtr, ndtri

from dpsvm_fast._rounding import add_down, add_up, fraction_up, mul_up, round_up
from dpsvm_fast._validation import check_epsilon, check_real
from dpsvm_fast.exceptions import InvalidParameterError

__all__ = [
    "delta_without_distance",
    "distance_delta",
    "least_delta",
    "least_epsilon",
    "told_by_gaussian",
]

# Beyond this an exponential is not computed by itself.
LARGEST_EXPONENT = 700.0
# More than the relative error of an exponential of a sum of numbers up to 1e4.
ERROR, QUANTILE_ERROR = 1e-11, 1e-12
# What a distance adds is not worth a search for a smaller epsilon below this share of delta.
NEGLIGIBLE = 1e-9
# Halvings of an interval of epsilons, and of golden sections of one.
HALVINGS, SECTIONS = 60, 80
GOLDEN = 0.5 * (math.sqrt(5.0) - 1.0)


def distance_delta(distance: Fraction, epsilon: float) -> float:
    r""":math:`(1 + e^\epsilon) T`, rounded up, at most 1."""
    size = fraction_up(distance)
    if size == 0.0:
        return 0.0
    if epsilon <= LARGEST_EXPONENT:
        return min(1.0, mul_up(size, add_up(1.0, round_up(math.exp(epsilon), 2))))
    exponent = epsilon + math.log(size)
    # One more for the 1 beside the exponential.
    return 1.0 if exponent >= 0.0 else min(1.0, math.exp(exponent) * (1.0 + 2.0 * ERROR))


def delta_without_distance(epsilon: float, delta: float, distance: float) -> float:
    r"""Delta that is left for everything else beside a distance, at an epsilon.

    Parameters
    ----------
    epsilon : float in (0, 1e4]
    delta : float in (0, 1)
    distance : float in [0, 1)
        Sum of all distances.

    Returns
    -------
    float in (0, 1)
        :math:`\delta - (1 + e^\epsilon) T`, rounded down.

    Raises
    ------
    TypeError, InvalidParameterError
        An argument of another type or outside its range, or a distance that leaves nothing.

    Examples
    --------
    >>> from dpsvm_fast.accounting import delta_without_distance
    >>> delta_without_distance(1.0, 1e-5, 2.0**-80) < 1e-5
    True
    """
    epsilon = check_epsilon(epsilon)
    delta = check_real("delta", delta, low=0.0, high=1.0, open_low=True, open_high=True)
    distance = check_real("distance", distance, low=0.0, high=1.0, open_high=True)
    left = add_down(delta, -distance_delta(Fraction(distance), epsilon))
    if left <= 0.0:
        raise InvalidParameterError(
            f"epsilon: a distance of {distance:.3g} costs all of delta={delta:g} at "
            f"epsilon={epsilon:g}; expected a smaller epsilon or a larger delta"
        )
    return left


def least_delta(
    rest: Callable[[float], float], distance: Fraction, epsilon: float, kink: float
) -> float:
    r"""Least of :math:`\delta_{rest}(x) + (1 + e^x) T` over x up to epsilon.

    Parameters
    ----------
    rest : function of an epsilon
        Delta of everything else, decreasing.
    distance : Fraction
    epsilon : float >= 0
    kink : float >= 0
        An epsilon that is tried too: one from which ``rest`` hardly falls.
    """

    def whole(x: float) -> float:
        return min(1.0, add_up(rest(x), distance_delta(distance, x)))

    best = whole(epsilon)
    if distance_delta(distance, epsilon) <= NEGLIGIBLE * best:
        return best
    if 0.0 <= kink < epsilon:
        best = min(best, whole(kink))
    # Convex in e^x, so it falls and then rises; up to where the distance alone costs 1.
    low, high = 0.0, min(epsilon, _top(distance, 1.0))
    left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    at_left, at_right = whole(left), whole(right)
    for _ in range(SECTIONS):
        best = min(best, at_left, at_right)
        if high - low <= 1e-9 * high:
            break
        # Where both are 1 it is the rest that is.
        if at_left < at_right:
            high, right, at_right = right, left, at_left
            left = high - GOLDEN * (high - low)
            at_left = whole(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + GOLDEN * (high - low)
            at_right = whole(right)
    return best


def least_epsilon(
    rest: Callable[[float], float],
    inverse: Callable[[float], float],
    distance: Fraction,
    delta: float,
) -> float:
    r"""Least epsilon with :math:`\delta_{rest}(\epsilon) + (1 + e^\epsilon) T \le \delta`.

    Infinity where there is none.

    Parameters
    ----------
    rest : function of an epsilon
        Delta of everything else, decreasing.
    inverse : function of a delta >= 0
        Least epsilon of everything else, infinity where there is none.
    distance : Fraction
    delta : float in [0, 1)
    """

    def needed(epsilon: float) -> float:
        left = add_down(delta, -distance_delta(distance, epsilon))
        return inverse(left) if left >= 0.0 else math.inf

    low = needed(0.0)
    if not math.isfinite(low):
        return math.inf
    # Every promise lies above ``low``; what is needed at a point that is enough is enough itself.
    found = needed(low * (1.0 + NEGLIGIBLE))
    if found <= low * (1.0 + NEGLIGIBLE):
        return found
    high = _top(distance, delta)
    middle = _lowest(rest, distance, low, high)
    if not needed(middle) <= middle:
        return math.inf
    high = middle
    for _ in range(HALVINGS):
        if high - low <= NEGLIGIBLE * high:
            break
        middle = 0.5 * (low + high)
        low, high = (low, middle) if needed(middle) <= middle else (middle, high)
    return min(high, needed(high))


def _top(distance: Fraction, delta: float) -> float:
    """Return an epsilon at which a distance alone costs about delta."""
    return max(0.0, math.log(delta) - math.log(fraction_up(distance)))


def _lowest(rest: Callable[[float], float], distance: Fraction, low: float, high: float) -> float:
    """Where the whole delta is about least; golden sections in between."""

    def whole(x: float) -> float:
        return rest(x) + distance_delta(distance, x)

    for _ in range(SECTIONS):
        if high - low <= NEGLIGIBLE * high:
            break
        left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
        if whole(left) < whole(right):
            high = right
        else:
            low = left
    return 0.5 * (low + high)


def told_by_gaussian(mu: float, distance: float) -> float:
    r"""Probability that a release within a distance of a Gaussian one tells outright; rounded up.

    :math:`T + \Phi(\mu - z)` with :math:`\Phi(-z) = T`: beside T itself the most that an event can
    have under one data set which has probability T under a neighbour. Concave in T.

    Parameters
    ----------
    mu : float >= 0
    distance : float in (0, 1)
    """
    quantile = float(ndtri(distance))
    # A quantile too far to the right, a probability too large.
    quantile += QUANTILE_ERROR * (1.0 + abs(quantile))
    tail = math.exp(float(log_ndtr(mu + quantile)) * (1.0 - ERROR)) * (1.0 + ERROR)
    return min(1.0, add_up(distance, tail))
