"""From events to (epsilon, delta).

Gaussian, pure and objective events compose by formulas (``formulas.py``); sampled Gaussian sums,
zCDP and random stopping, alone or among others, by loss distributions (``composition.py``).
Infinite losses and distances are set apart (``composition.py``), parallel branches tried in turn
(``composition.py``). All round upwards.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtri

from dpsvm_fast import _core
from dpsvm_fast.accounting.formulas import (
    ZCDP_ERROR,
    CurvedEvent,
    Totals,
    best_order,
    few_sizes,
    formula_delta,
    formula_epsilon,
    formula_fits,
    log_factor,
    profile_points,
    zcdp_delta,
    zcdp_epsilon,
)
from dpsvm_fast.accounting.subsampled import HOPELESS, is_hopeless, sampled_delta, sampled_epsilon
from dpsvm_fast.certificates.events import (
    AlternativesEvent,
    ObjectiveEvent,
    ParallelEvent,
    PrivacyEvent,
    RandomStoppingEvent,
)
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.rounding import add_down, add_up, div_down, fraction_up, mul_up, round_up
from dpsvm_fast.validation import check_delta, check_epsilon, check_real

# What a distance from the described laws costs.
#
# A release within T of an :math:`(\epsilon, \delta)`-private one, on every data set, is
# :math:`(\epsilon, \delta + (1 + e^\epsilon) T)`-private; docs/proofs/accountant.md, section
# "Distances". That grows with epsilon, while a promise with a smaller epsilon is also one with a
# larger epsilon: the smallest value up to epsilon counts.


# Beyond this an exponential is not computed by itself.
LARGEST_EXPONENT = 700.0
# More than the relative error of an exponential of a sum of numbers up to 1e4.
DISTANCE_ERROR, QUANTILE_ERROR = 1e-11, 1e-12
# What a distance adds is not worth a search for a smaller epsilon below this share of delta.
NEGLIGIBLE_DISTANCE = 1e-9
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
    return 1.0 if exponent >= 0.0 else min(1.0, math.exp(exponent) * (1.0 + 2.0 * DISTANCE_ERROR))


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
    if distance_delta(distance, epsilon) <= NEGLIGIBLE_DISTANCE * best:
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
    found = needed(low * (1.0 + NEGLIGIBLE_DISTANCE))
    if found <= low * (1.0 + NEGLIGIBLE_DISTANCE):
        return found
    high = _top(distance, delta)
    middle = _lowest(rest, distance, low, high)
    if not needed(middle) <= middle:
        return math.inf
    high = middle
    for _ in range(HALVINGS):
        if high - low <= NEGLIGIBLE_DISTANCE * high:
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
        if high - low <= NEGLIGIBLE_DISTANCE * high:
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
    tail = math.exp(float(log_ndtr(mu + quantile)) * (1.0 - DISTANCE_ERROR)) * (
        1.0 + DISTANCE_ERROR
    )
    return min(1.0, add_up(distance, tail))


# Delta and epsilon of totals, whatever is in them.
#
# For each choice of branches that a record can meet, infinite losses are set apart: with
# probability
# ``told`` there is one, and otherwise the rest composes by formulas (``formulas.py``) or by loss
# distributions (``composition.py``), so
#
# .. math:: \delta(\epsilon) = t + (1 - t) \, \delta_{rest}(\epsilon).
#
# Distances from the described laws are added on top (``composition.py``).


# By how much log delta may fall between two points of a curve.
CHEAP_STEP, STEP, DEAR_STEP = 0.1, 0.3, 0.8


def totals_delta(totals: Totals, epsilon: float) -> float:
    """Upper bound of delta at ``epsilon >= 0``."""
    return max(_choice_delta(choice, epsilon) for choice in choices(totals))


def totals_epsilon(totals: Totals, delta: float) -> float:
    """Upper bound of the smallest epsilon at ``delta``."""
    return max(_choice_epsilon(choice, delta) for choice in choices(totals))


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


def _choice_delta(choice: Totals, epsilon: float) -> float:
    """Delta of one choice."""

    def exact(x: float) -> float:
        return _joined(rest_delta(choice, x), choice.told)

    if choice.distance:
        return least_delta(exact, choice.distance, epsilon, choice.pure_epsilon)
    found = exact(epsilon)
    # Never 0, also where the value underflows: what is not pure has no guarantee with delta = 0.
    return found if choice.is_pure else max(found, math.ulp(0.0))


def _choice_epsilon(choice: Totals, delta: float) -> float:
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


# Composition by loss distributions, for sampled sums, zCDP and what has a curve.
#
# Every event goes in by a pair of laws that dominates it in both directions: the pairs of sampled
# steps, one Gaussian loss for all Gaussian mechanisms, randomised responses, and for zCDP,
# objective
# perturbation, random stopping and alternatives the pair that belongs to an upper bound of the
# profile. The compiled accountant moves their losses to a grid from above and adds them up;
# docs/proofs/accountant.md, section "Mixed events". Where one closed bound covers everything it is
# taken instead; charging all pure events in full is tried beside it, and the smaller bound counts.


# Deltas that basic composition is tried for.
LAST_RESORTS = (1e-2, 1e-4, 1e-6, 1e-9, 1e-12, 1e-16)
# A Gaussian part smaller than the first counts as one of that size; beyond the second all is told.
LEAST_MU, MOST_MU = 1e-300, 1e150
# From here on a Gaussian part may be too large for a grid.
LARGE_MU = 99.0
# Where grids of losses end.
LEAST_DELTA = 2.3e-308
# Kinds of sampled steps that a grid is made for, and of how many the best to merge are looked for.
MOST_GROUPS, MANY_GROUPS = 24, 128
# Noise, rate and number of equal sampled steps.
Group = tuple[float, float, int]

# The same is asked again and again.
_remembered_delta = lru_cache(maxsize=256)(sampled_delta)

_remembered_epsilon = lru_cache(maxsize=256)(sampled_epsilon)


class _Mixture(NamedTuple):
    """Totals as a key of the cache."""

    sampled: tuple[Group, ...]
    mu: float
    pure: tuple[tuple[float, int], ...]
    rho: float
    objective: tuple[tuple[ObjectiveEvent, int], ...]
    curved: tuple[tuple[CurvedEvent, int], ...]
    replace_one: bool


def distribution_delta(totals: Totals, epsilon: float) -> float:
    """Upper bound of delta at ``epsilon >= 0``."""
    left = add_down(epsilon, -totals.pure_epsilon)
    bound = _impure_delta(totals, left) if left >= 0.0 else 1.0
    return min(bound, _delta(_mixture(totals), epsilon)) if totals.pure else bound


def distribution_epsilon(totals: Totals, delta: float) -> float:
    """Upper bound of the smallest epsilon at ``delta``."""
    if delta == 0.0:
        return math.inf
    bound = add_up(_impure_epsilon(totals, delta), totals.pure_epsilon)
    return min(bound, _epsilon(_mixture(totals), delta)) if totals.pure else bound


def distribution_curve(totals: Totals) -> Callable[[float], float]:
    """Delta as a function of epsilon, for many questions."""
    law = _distribution(_mixture(totals))
    if law is None:
        return lambda _: 1.0
    return lambda epsilon: min(1.0, law.delta(epsilon))


def _impure_delta(totals: Totals, epsilon: float) -> float:
    """Delta of all but the pure events."""
    if _is_one_sampled(totals):
        ((z, q), steps), *_ = totals.sampled.items()
        return _remembered_delta(z, q, steps, epsilon, replace_one=totals.replace_one)
    closed = zcdp_delta(_renyi_rate(totals), epsilon) if _is_concentrated(totals) else 1.0
    if _is_one_curve(totals):
        return curved_delta(next(iter(totals.curved)), epsilon)
    if _is_concentrated(totals) and not totals.mu_squared:
        return closed
    return min(closed, _delta(_mixture(totals, pure=False), epsilon))


def _impure_epsilon(totals: Totals, delta: float) -> float:
    """Epsilon of all but the pure events."""
    if _is_one_sampled(totals):
        ((z, q), steps), *_ = totals.sampled.items()
        return _remembered_epsilon(z, q, steps, delta, replace_one=totals.replace_one)
    closed = zcdp_epsilon(_renyi_rate(totals), delta) if _is_concentrated(totals) else math.inf
    if _is_one_curve(totals):
        return curved_epsilon(next(iter(totals.curved)), delta)
    if _is_concentrated(totals) and not totals.mu_squared:
        return closed
    return min(closed, _epsilon(_mixture(totals, pure=False), delta))


def _is_one_sampled(totals: Totals) -> bool:
    """Whether equal sampled steps are all there is beside pure events."""
    others = totals.objective or totals.mu_squared or totals.rho or totals.curved
    return len(totals.sampled) == 1 and not others


def _is_one_curve(totals: Totals) -> bool:
    """Whether one event with a curve is all there is beside pure events."""
    others = totals.objective or totals.mu_squared or totals.rho or totals.sampled
    return totals.curved.total() == 1 and not others


def _is_concentrated(totals: Totals) -> bool:
    """Whether all that is there beside pure events is zCDP."""
    return not (totals.sampled or totals.objective or totals.curved)


def _renyi_rate(totals: Totals) -> float:
    """Rho of the zCDP events and of the Gaussian ones, which are zCDP too."""
    return fraction_up(totals.rho + totals.mu_squared / 2)


def _mixture(totals: Totals, *, pure: bool = True) -> _Mixture:
    """Everything that the distribution depends on, with or without the pure events."""
    return _Mixture(
        sampled=tuple(sorted((z, q, n) for (z, q), n in totals.sampled.items())),
        mu=totals.mu,
        pure=tuple(sorted(totals.pure.items())) if pure else (),
        rho=fraction_up(totals.rho),
        objective=tuple(sorted(totals.objective.items(), key=repr)),
        curved=tuple(sorted(totals.curved.items(), key=repr)),
        replace_one=totals.replace_one,
    )


@lru_cache(maxsize=256)
def _delta(mixture: _Mixture, epsilon: float) -> float:
    """Delta of a mixture."""
    law = _distribution(mixture)
    found = 1.0 if law is None else law.delta(epsilon)
    if found < 1.0 or (law is not None and mixture.mu <= LARGE_MU):
        return min(1.0, found)
    return _apart_delta(mixture, epsilon)


@lru_cache(maxsize=256)
def _epsilon(mixture: _Mixture, delta: float) -> float:
    """Epsilon of a mixture."""
    if delta < LEAST_DELTA:
        return math.inf
    law = _distribution(mixture)
    found = math.inf if law is None else law.epsilon(delta)
    if found < math.inf or (law is not None and mixture.mu <= LARGE_MU):
        return found
    return apart_epsilon(mixture, delta)


def apart_epsilon(mixture: _Mixture, delta: float) -> float:
    """Epsilon of a mixture by basic composition of its parts, with equal shares of delta.

    Where there is no grid, one part being too large for any, and nothing was asked to be sharp.
    """
    empty = _Mixture((), 0.0, (), 0.0, (), (), mixture.replace_one)
    parts = [empty._replace(sampled=(group,)) for group in few_groups(mixture.sampled)]
    parts += [empty._replace(objective=(group,)) for group in mixture.objective]
    parts += [empty._replace(curved=(group,)) for group in mixture.curved]
    share = div_down(delta, float(len(parts) + bool(mixture.mu) + bool(mixture.rho)))
    if share < LEAST_DELTA or mixture.mu > MOST_MU:
        return math.inf
    sums = [fraction_up(sum((Fraction(size) * n for size, n in mixture.pure), Fraction(0)))]
    if mixture.mu:
        sums.append(_core.gaussian_epsilon(share, div_down(1.0, max(mixture.mu, LEAST_MU))))
    if mixture.rho:
        sums.append(zcdp_epsilon(mixture.rho, share))
    for part in parts:
        law = _distribution(part)
        sums.append(math.inf if law is None else law.epsilon(share))
        if math.isinf(sums[-1]):
            return math.inf
    return add_up(0.0, *sums)


def _apart_delta(mixture: _Mixture, epsilon: float) -> float:
    """The least of a few deltas at which :func:`apart_epsilon` is at most ``epsilon``."""
    found = 1.0
    for delta in LAST_RESORTS:
        if apart_epsilon(mixture, delta) > epsilon:
            break
        found = delta
    return found


@lru_cache(maxsize=64)
def _distribution(mixture: _Mixture) -> _core.LossDistribution | None:
    """Loss distribution of all events; None where one may have a loss too large for any grid."""
    sizes = [0.5 * mixture.mu**2, mixture.rho, *(size * n for size, n in mixture.pure)]
    if max(sizes) > HOPELESS or any(is_hopeless(*group) for group in mixture.sampled):
        return None
    profiles = []
    for event, count in mixture.objective:
        points = profile_points(event)
        if points is None:
            return None
        profiles.append((*points, count))
    profiles += [(*curved_points(event), count) for event, count in mixture.curved]
    return _core.LossDistribution(
        subsampled=few_groups(mixture.sampled),
        gaussian_mu=mixture.mu,
        pure=few_sizes(mixture.pure),
        zcdp_rho=mixture.rho,
        profiles=profiles,
        replace_one=mixture.replace_one,
    )


def few_groups(sampled: tuple[Group, ...]) -> list[Group]:
    """Sampled steps of at most ``MOST_GROUPS`` kinds: less noise and larger rates tell more."""
    groups = sorted(sampled)
    width = 1e-3
    while len(groups) > MANY_GROUPS:
        # Equal but for a little in both: ever more, until few enough are left.
        near: dict[tuple[int, int], Group] = {}
        for z, q, n in groups:
            key = math.floor(math.log(z) / width), math.floor(math.log(q) / width)
            near[key] = _both(near.get(key, (z, q, 0)), (z, q, n))
        groups = sorted(near.values())
        width *= 2.0
    while len(groups) > MOST_GROUPS:
        pairs = [_both(one, other) for one, other in itertools.pairwise(groups)]
        costs = [
            _size(both) - _size(one) - _size(other)
            for both, one, other in zip(pairs, groups[:-1], groups[1:], strict=True)
        ]
        i = costs.index(min(costs))
        groups[i : i + 2] = [pairs[i]]
    return groups


def _both(one: Group, other: Group) -> Group:
    """Steps that tell at least as much as those of both groups."""
    return min(one[0], other[0]), max(one[1], other[1]), one[2] + other[2]


def _size(group: Group) -> float:
    """About the variance of the loss of a group."""
    z, q, n = group
    return n * q * min(q * math.expm1(min(1.0 / z / z, 700.0)), 1.0 / z / z)


# Privacy of the best of K runs, K random: from the profile of one run to that of the best one.
#
# Let Q and Q' be the laws of one run on two neighbours, :math:`\delta(\cdot)` an upper bound of
# their
# deltas in both directions, and :math:`f(x) = E[x^K]`. Ties are broken by a coin of each run, so
# that no output has any probability of its own. With :math:`u = Q(> y)`, the best run has density
# :math:`Q(y) a(u)` for :math:`a(u) = f'(1 - u)`, which falls in u.
#
# *What u can become.* From the profile alone, :math:`Q'(> y) \le B(u) = \inf_x (e^x u + \delta(x))`
# over all real x, where :math:`\delta(-x) = 1 - e^{-x} (1 - \delta(x))`.
#
# *Bound by the kernel.* With :math:`h(s) = \sup_u (a(u) - a(B(u)) s)_+`, convex and falling in s,
#
# .. math:: \delta_A(\epsilon) \le E_Q[h(e^\epsilon Q'/Q)] \le \sum_j w_j \delta(\epsilon - \log
# s_j)
#
# for every :math:`\sum_j w_j (1 - s / s_j)_+ \ge h(s)`; such a sum is what chords of h are.
#
# *Bound by the largest ratio.* With :math:`R = \sup_u a(u) / a(B(u))`, also
# :math:`\delta_A(\epsilon)
# \le 1 - f(1 - \delta(\epsilon - \log R))`; and if a run is pure with :math:`\epsilon_0`, the best
# one is pure with :math:`\epsilon_0 + \log R`.
#
# ===========  ==========================  ==========================================
# law of K     a(u)                        1 - f(1 - u)
# ===========  ==========================  ==========================================
# geometric    g / (g + (1-g) u)^2         u / (g + (1-g) u)
# logarithmic  (1-g) / l / (g + (1-g) u)   log(1 + u (1-g) / g) / l
# Poisson      m exp(-m u)                 1 - exp(-m u)
# ===========  ==========================  ==========================================
#
# with g the parameter gamma, l = log(1/g), and m the mean. All rounding is outward.
# Proof: docs/proofs/private_selection.md.


Array = NDArray[np.float64]

# More than the rounding of one formula here, relative to the numbers in it.
STOPPING_ERROR = 1e-13
# Of chords of several hundred nodes: proportional to their number, not to their distances.
SUM_ERROR = 1e-11
# Cells of u, and the least u but 0. Lines that bound B.
CELLS, FAR_CELLS, EVEN_CELLS, LEAST_U, MOST_LINES = 400, 100, 100, 1e-20, 400
# A number of runs is never so skewed that a ratio beyond this says anything.
LARGEST_LOG_RATIO = 600.0
# Weights that fall more slowly than this do not end for any purpose.
LEAST_FALL = 1e-280


@dataclass(frozen=True)
class StoppingLaw:
    """The law of the number of runs.

    Parameters
    ----------
    kind : {"geometric", "logarithmic", "poisson"}
    gamma : float in (0, 1)
        Of the first two.
    mean : float
        Of the last.
    """

    kind: str
    gamma: float
    mean: float

    @property
    def expected(self) -> float:
        """Mean of K, to nearest."""
        return float(self.weight(np.zeros(1))[0])

    def weight(self, u: Array) -> Array:
        """Density a(u) of the best run over that of one run, rounded up."""
        if self.kind == "poisson":
            return np.asarray(
                self.mean * np.exp(-self.mean * u) * (1.0 + STOPPING_ERROR * (1.0 + self.mean * u))
            )
        rest = self.gamma + (1.0 - self.gamma) * u
        if self.kind == "geometric":
            return np.asarray(self.gamma / rest**2 * (1.0 + STOPPING_ERROR))
        return np.asarray(
            (1.0 - self.gamma) / -math.log(self.gamma) / rest * (1.0 + STOPPING_ERROR)
        )

    def log_ratio(self, u: Array, moved: Array) -> Array:
        """Logarithm of a(u) over a(moved), rounded up; a moved u beyond 1 is harmless."""
        if self.kind == "poisson":
            return np.asarray(self.mean * (moved - u) + STOPPING_ERROR * self.mean * (moved + u))
        g = self.gamma
        power = 2.0 if self.kind == "geometric" else 1.0
        ratio = np.log((g + (1.0 - g) * moved) / (g + (1.0 - g) * u))
        return np.asarray(power * ratio + STOPPING_ERROR * (1.0 + np.abs(ratio)))

    def upper_tail(self, u: float) -> float:
        """Probability 1 - f(1 - u) that the best of K runs is among the top u, rounded up."""
        if self.kind == "poisson":
            tail = -math.expm1(-self.mean * u)
        elif self.kind == "geometric":
            tail = u / (self.gamma + (1.0 - self.gamma) * u)
        else:
            tail = math.log1p(u * ((1.0 - self.gamma) / self.gamma)) / -math.log(self.gamma)
        return min(1.0, mul_up(tail, 1.0 + STOPPING_ERROR))


def pure_stopping_epsilon(law: StoppingLaw, epsilon: float) -> float:
    r"""Epsilon of the best run when one run is pure with ``epsilon``, rounded up.

    B has its kink at u = 1/(1 + e^epsilon), where it is e^epsilon/(1 + e^epsilon) and where the
    ratio is largest: :math:`\epsilon + (1 + \eta) \log \frac{\gamma + e^\epsilon}{1 + \gamma
    e^\epsilon}` with :math:`\eta` = 1 for geometric and 0 for logarithmic K, which is less than
    :math:`(2 + \eta) \epsilon`; and :math:`\epsilon + m \tanh(\epsilon/2)` for Poisson.
    """
    if law.kind == "poisson":
        more = law.mean * math.tanh(0.5 * epsilon)
    else:
        small = math.exp(-epsilon)
        power = 2.0 if law.kind == "geometric" else 1.0
        # At most epsilon, which it nears as gamma goes to 0.
        more = power * min(epsilon, math.log((law.gamma * small + 1.0) / (small + law.gamma)))
    return add_up(epsilon, mul_up(more, 1.0 + STOPPING_ERROR), STOPPING_ERROR * min(1.0, epsilon))


class BaseCurve:
    r"""Upper bounds of the delta of one run, at every real epsilon.

    Between two points, delta lies below the chord in :math:`e^\epsilon`; beyond the last one it
    does not rise.

    Parameters
    ----------
    epsilons : ndarray, increasing from 0
    deltas : ndarray
        Upper bounds there, in both directions of the relation.
    """

    def __init__(self, epsilons: Array, deltas: Array) -> None:
        if not np.all(np.diff(epsilons) > 0.0):
            raise ValueError("epsilons: expected increasing numbers")
        self.epsilons = epsilons
        self.deltas = np.minimum(np.minimum.accumulate(deltas), 1.0)

    def at(self, epsilon: Array) -> Array:
        """Bounds at any real arguments, minus infinity included."""
        size = np.abs(epsilon)
        cell = np.searchsorted(self.epsilons, size, side="right") - 1
        last = cell >= self.epsilons.size - 1
        cell = np.minimum(cell, self.epsilons.size - 2)
        low, high = self.epsilons[cell], self.epsilons[cell + 1]
        with np.errstate(over="ignore", invalid="ignore"):
            share = np.expm1(size - low) / np.expm1(high - low) * (1.0 - 1e-12)
        share = np.where(last, 1.0, np.clip(share - 1e-14, 0.0, 1.0))
        bound = self.deltas[cell] * (1.0 - share) + self.deltas[cell + 1] * share
        mirrored = -np.expm1(-size) + np.exp(-size) * bound
        return np.minimum(np.where(epsilon < 0.0, mirrored, bound) * (1.0 + STOPPING_ERROR), 1.0)

    def lines(self) -> tuple[Array, Array]:
        """Slopes and intercepts of lines in u above B(u)."""
        step = max(1, math.ceil(2 * self.epsilons.size / MOST_LINES))
        x = np.unique(np.append(self.epsilons[::step], self.epsilons[-1]))
        d = self.at(x)
        slopes = np.concatenate([np.exp(x), np.exp(-x), [0.0]])
        starts = np.concatenate([d, -np.expm1(-x) + np.exp(-x) * d, [1.0]])
        return slopes * (1.0 + STOPPING_ERROR), starts * (1.0 + STOPPING_ERROR)


class StoppingKernel:
    """The profile of the best run.

    Parameters
    ----------
    law : StoppingLaw
    base : BaseCurve
        Of one run.
    """

    def __init__(self, law: StoppingLaw, base: BaseCurve) -> None:
        self._law, self._base = law, base
        u = _cells(law)
        logs = _cell_log_ratios(law, base, u)
        tops = law.weight(u[:-1])
        # Cells where nothing is known count with all of their weight.
        hopeless = (logs > LARGEST_LOG_RATIO) | (
            tops * np.exp(-np.minimum(logs, LARGEST_LOG_RATIO)) < LEAST_FALL
        )
        self._lost = float(tops[hopeless].max(initial=0.0))
        self.log_ratio = float(logs[~hopeless].max(initial=0.0))
        self._shifts, self._masses = _chord_weights(tops[~hopeless], logs[~hopeless])

    def delta(self, epsilon: float) -> float:
        """Upper bound of delta at ``epsilon >= 0``.

        Not below: a Poisson K of 0 releases the same for all data, which counts there.
        """
        if self._shifts.size:
            parts = self._masses * self._base.at(epsilon - self._shifts)
            bound = float(parts.sum()) * (1.0 + STOPPING_ERROR * (1.0 + self._shifts.size))
        else:
            bound = 0.0
        bound = add_up(bound, self._lost)
        if self._lost == 0.0:
            top = self._base.at(
                np.array([epsilon - self.log_ratio - STOPPING_ERROR * (1.0 + abs(epsilon))])
            )
            bound = min(bound, self._law.upper_tail(float(top[0])))
        return min(1.0, round_up(bound))


def _cells(law: StoppingLaw) -> Array:
    """Ends of the cells of u: fine where the weight of the best run changes, and near 1."""
    scale = 1e-3 / max(1.0, law.expected)
    parts = (
        np.geomspace(LEAST_U, scale, FAR_CELLS),
        np.geomspace(scale, 1.0, CELLS),
        np.linspace(0.0, 1.0, EVEN_CELLS),
    )
    return np.unique(np.concatenate(parts))


def _cell_log_ratios(law: StoppingLaw, base: BaseCurve, u: Array) -> Array:
    """Upper bound of log(a(u) / a(B(u))) in each cell.

    Along one line above B the ratio is monotone in u for each of the laws, so its ends suffice.
    """
    slopes, starts = base.lines()
    moved = u[:, None] * slopes + starts
    logs = law.log_ratio(u[:, None], moved)
    return np.asarray(np.maximum(logs[:-1], logs[1:]).min(axis=1))


def _chord_weights(tops: Array, logs: Array) -> tuple[Array, Array]:
    """Logarithms of nodes s_j and weights w_j of a sum of hinges above h.

    Each cell gives a line ``tops * (1 - s / ratio)``; h lies below the largest of them and 0.
    """
    if not tops.size:
        return np.zeros(0), np.zeros(0)
    fall = tops * np.exp(-logs)
    nodes = _vertices(tops, fall)
    heights = np.maximum((tops - fall * nodes[:, None]).max(axis=1), 0.0) * (1.0 + STOPPING_ERROR)
    heights[-1] = 0.0
    slopes = np.append(np.diff(heights) / np.diff(nodes), 0.0)
    # The weight at a node is what the chord loses of its slope there, times the node.
    masses = nodes[1:] * np.maximum(np.diff(slopes), 0.0) * (1.0 + SUM_ERROR)
    return np.log(nodes[1:]) + STOPPING_ERROR, masses


def _vertices(tops: Array, fall: Array) -> Array:
    """0, the places where the largest of falling lines changes, and where it meets 0 for good."""
    order = np.lexsort((tops, -fall))
    kept: list[int] = []
    ends: list[float] = []
    for i in order:
        while kept:
            k = kept[-1]
            if tops[i] >= tops[k]:
                kept.pop()
                if ends:
                    ends.pop()
                continue
            place = (tops[k] - tops[i]) / (fall[k] - fall[i]) if fall[k] > fall[i] else math.inf
            if ends and place <= ends[-1]:
                kept.pop()
                ends.pop()
                continue
            if math.isfinite(place):
                ends.append(float(place))
                kept.append(int(i))
            break
        else:
            kept.append(int(i))
    last = float(np.max(tops / fall)) * (1.0 + STOPPING_ERROR)
    inner = [x for x in ends if 0.0 < x < last]
    return np.unique(np.array([0.0, *inner, last]))


# The best of K runs of a rho-zCDP mechanism, by Renyi divergences of every order alpha.
#
# For geometric and logarithmic K (Papernot and Steinke, ICLR 2022, Theorem 2), for every
# :math:`\hat\alpha \ge 1`,
#
# .. math:: \tau_A = \alpha \rho + (1 + \eta) \left[(\hat\alpha - 1) \rho +
#     \frac{\log(1/\gamma)}{\hat\alpha}\right] + \frac{\log E[K]}{\alpha - 1},
#
# so delta is that of zCDP at epsilon less the middle term, times E[K]. For Poisson K with mean m
# (Theorem 6), :math:`\tau_A = \alpha \rho + m \delta_\rho(\log(1 + 1/(\alpha - 1))) + \log(m) /
# (\alpha - 1)`. Better than the bounds of ``composition.py`` in a few cases only, where
# nothing
# but rho is known of a run.


# A larger rho promises nothing.
LARGEST_STOPPED_RHO = 1e3


def stopped_zcdp_delta(law: StoppingLaw, rho: float, epsilon: float) -> float:
    """Upper bound of delta at ``epsilon`` of any sign of the best run of a rho-zCDP mechanism."""
    if not 0.0 < rho <= LARGEST_STOPPED_RHO:
        return 1.0
    if law.kind == "poisson":
        return _poisson_delta(law, rho, epsilon)
    power = 2.0 if law.kind == "geometric" else 1.0
    rarity = -math.log(law.gamma)
    order = max(1.0, math.sqrt(rarity / rho))
    middle = power * ((order - 1.0) * rho + rarity / order) * (1.0 + ZCDP_ERROR)
    mean = law.expected * (1.0 + ZCDP_ERROR)
    left = epsilon - middle - ZCDP_ERROR * (1.0 + abs(epsilon))
    return min(1.0, mul_up(mean, zcdp_delta(rho, left))) if left > 0.0 else 1.0


def _poisson_delta(law: StoppingLaw, rho: float, epsilon: float) -> float:
    """Delta for a Poisson number of runs."""
    log_mean = math.log(law.mean)

    def log_delta(u: float) -> float:
        a = math.exp(float(u))
        near = zcdp_delta(rho, math.log1p(1.0 / a) * (1.0 - ZCDP_ERROR))
        moved, asked = a * ((1.0 + a) * rho + law.mean * near), a * epsilon
        factor = log_factor(a) - u + log_mean
        return (
            moved - asked + factor + ZCDP_ERROR * (1.0 + moved + abs(asked) + abs(factor) + abs(u))
        )

    best = best_order(log_delta)
    return math.exp(best) if best < 0.0 else 1.0


# Profiles of events known by a curve, from the profile of one run or of alternatives.


# Most points of the profile of one run, and the least first step from one to the next.
MOST_POINTS, SMALLEST_STEP = 2000, 1e-9
# Points of a profile that is composed with other events.
COMPOSED_POINTS = 512
# Below this a profile has ended, and beyond this epsilon nobody looks.
NEGLIGIBLE_DELTA, LARGEST_EPSILON = 1e-16, 256.0
# A profile counts as ended where it is that close to its limit.
CLOSE = 1.0 + 1e-6


def curved_delta(event: CurvedEvent, epsilon: float) -> float:
    """Upper bound of delta at any epsilon >= 0."""
    return _profile(event)(epsilon)


def curved_epsilon(event: CurvedEvent, delta: float) -> float:
    """Upper bound of the smallest epsilon >= 0 at ``delta``."""
    profile = _profile(event)
    high = 1.0
    while profile(high) > delta:
        high *= 2.0
        if high > 4.0 * LARGEST_EPSILON:
            return math.inf
    low = 0.0
    if profile(0.0) <= delta:
        return 0.0
    while high - low > 1e-10 * high:
        middle = 0.5 * (low + high)
        if profile(middle) <= delta:
            high = middle
        else:
            low = middle
    return high


@lru_cache(maxsize=64)
def curved_points(event: CurvedEvent) -> tuple[Array, Array]:
    """Increasing epsilons from 0 and bounds of delta there, for a loss distribution."""
    profile = _profile(event)
    limit = profile(4.0 * LARGEST_EPSILON)
    enough = max(limit * CLOSE, 1e-17)
    top = 1.0
    while profile(top) > enough and top < 4.0 * LARGEST_EPSILON:
        top *= 2.0
    while top > 1e-9 and profile(0.8 * top) <= enough:
        top *= 0.8
    x = np.linspace(0.0, top, COMPOSED_POINTS)
    return x, np.array([profile(float(point)) for point in x])


@lru_cache(maxsize=256)
def _profile(event: CurvedEvent) -> Callable[[float], float]:
    """Delta as a function of epsilon."""
    if isinstance(event, AlternativesEvent):
        curve = base_curve(of_events([ParallelEvent(event.branches, event.adjacency)]))
        return lambda epsilon: float(curve.at(np.array([epsilon]))[0])
    law, totals = stopping_law(event), of_events(event.base)
    kernel = StoppingKernel(law, base_curve(totals))
    rho = _rho(totals)
    if rho is None:
        return kernel.delta
    return lambda epsilon: min(kernel.delta(epsilon), stopped_zcdp_delta(law, rho, epsilon))


def _rho(totals: Totals) -> float | None:
    """Return rho of one run where hardly more is known of it; None elsewhere."""
    found = choices(totals)
    if not any(choice.rho for choice in found):
        return None
    others = (c.pure or c.sampled or c.objective or c.certain or c.curved for c in found)
    if any(others):
        return None
    return fraction_up(max(choice.rho + choice.mu_squared / 2 for choice in found))


def base_curve(totals: Totals) -> BaseCurve:
    """Profile of one run, in points between which log delta falls about evenly."""
    # Imported here because a profile of totals may in turn be that of random stopping.

    delta, fall = totals_curve(totals)
    limit = max(delta(LARGEST_EPSILON) * CLOSE, NEGLIGIBLE_DELTA)
    x, g = [0.0], [delta(0.0)]
    step = fall * min(max(g[0], SMALLEST_STEP), 1.0)
    while g[-1] > limit and x[-1] < LARGEST_EPSILON and len(x) < MOST_POINTS:
        value = delta(x[-1] + step)
        fell = math.log(g[-1] / max(value, 0.5 * limit))
        if fell > 2.0 * fall and value > limit and step > SMALLEST_STEP * (1.0 + x[-1]):
            step *= 0.5
            continue
        x.append(x[-1] + step)
        g.append(value)
        step *= min(2.0, max(0.5, fall / max(fell, 1e-3 * fall)))
        step = max(step, SMALLEST_STEP * (1.0 + x[-1]))
    return BaseCurve(np.array([*x, x[-1] + 1.0]), np.array([*g, g[-1]]))


# What a list of events can be for one record: parallel branches chosen, pure ones made plain.
#
# For one record, conditionally on the branches that it meets, everything composes as a plain list
# of
# events. Delta is a mean over such choices, hence at most the largest of them. Branches with no
# more
# of anything than another one need not be tried. Where the choices are too many, a parallel event
# counts as its join: the most of each kind that any branch has.


# Combinations of branches that are tried.
MOST_CHOICES = 64


def of_events(events: Iterable[PrivacyEvent]) -> Totals:
    """Totals of all ``events``."""
    totals = Totals()
    for event in events:
        totals.add(event)
    return totals


def stopping_law(event: RandomStoppingEvent) -> StoppingLaw:
    """Law of the number of runs."""
    return StoppingLaw(event.stopping, event.gamma, event.mean)


def choices(totals: Totals) -> list[Totals]:
    """Totals without parallel events, one of which is at least as bad as ``totals``."""
    if not (totals.parallel or totals.curved):
        return [totals]
    plain = totals.copy()
    plain.parallel = Counter()
    plain.curved = Counter()
    for curved, count in totals.curved.items():
        simple = _without_curve(curved)
        if simple is None:
            plain.curved[curved] += count
        else:
            plain = _sum(plain, simple.enlarged(Fraction(count)))
    found = [plain]
    for event, count in sorted(totals.parallel.items(), key=repr):
        branches = _branches(event)
        if len(found) * math.comb(count + len(branches) - 1, count) > MOST_CHOICES:
            branches = (_join(branches),)
        found = [
            _sum(known, *(branch.enlarged(Fraction(n)) for branch, n in shares))
            for known in found
            for shares in _shared_out(branches, count)
        ]
    return _worst(found)


@lru_cache(maxsize=1024)
def _without_curve(event: CurvedEvent) -> Totals | None:
    """Totals of an event that needs no curve; None for one that does; nobody may change them.

    Alternatives of which one covers all others are that one, and the best of pure runs is pure.
    """
    if isinstance(event, AlternativesEvent):
        bases = list(_branches(event))
        if len(bases) == 1:
            return bases[0]
    else:
        bases = choices(of_events(event.base))
    if not all(base.is_pure and not base.certain for base in bases):
        return None
    epsilon = max(base.pure_epsilon for base in bases)
    if isinstance(event, RandomStoppingEvent):
        epsilon = pure_stopping_epsilon(stopping_law(event), epsilon)
    simple = Totals(event.adjacency)
    simple.pure[epsilon] = 1
    simple.pure_sum = Fraction(epsilon)
    return simple


@lru_cache(maxsize=1024)
def _branches(event: ParallelEvent) -> tuple[Totals, ...]:
    """Totals of the branches that no other one covers; nobody may change them."""
    return tuple(_worst([of_events(branch) for branch in event.branches]))


def _worst(found: list[Totals]) -> list[Totals]:
    """Those that no other one covers."""
    kept: list[Totals] = []
    for totals in found:
        if not any(covers(other, totals) for other in kept):
            kept = [other for other in kept if not covers(totals, other)]
            kept.append(totals)
    return kept


def covers(larger: Totals, smaller: Totals) -> bool:
    """Whether nothing is known to be worse about ``smaller``."""
    return (
        smaller.within(larger)
        and smaller.told <= larger.told
        and smaller.distance <= larger.distance
    )


def _sum(*parts: Totals) -> Totals:
    """All of it, as new totals."""
    whole = Totals(parts[0].adjacency)
    for part in parts:
        whole.adjacency = whole.adjacency or part.adjacency
        whole.mu_squared += part.mu_squared
        whole.pure_sum += part.pure_sum
        whole.rho += part.rho
        whole.distance += part.distance
        for name in ("pure", "sampled", "objective", "certain", "curved"):
            getattr(whole, name).update(getattr(part, name))
    return whole


def _join(branches: tuple[Totals, ...]) -> Totals:
    """The most of each kind that any branch has."""
    whole = Totals(branches[0].adjacency)
    whole.mu_squared = max(branch.mu_squared for branch in branches)
    whole.rho = max(branch.rho for branch in branches)
    whole.distance = max(branch.distance for branch in branches)
    whole.certain = max(branches, key=lambda branch: branch.told).certain
    for branch in branches:
        # The union of counters has the larger count of each key.
        whole.sampled |= branch.sampled
        whole.objective |= branch.objective
        whole.curved |= branch.curved
    whole.pure = _paired([branch.pure for branch in branches])
    whole.pure_sum = sum((Fraction(e) * n for e, n in whole.pure.items()), Fraction(0))
    return whole


def _paired(lists: list[Counter[float]]) -> Counter[float]:
    """Sizes of which each list is a smaller copy: the larger of the largest ones, and so on."""
    sizes = sorted({size for counts in lists for size in counts}, reverse=True)
    found: Counter[float] = Counter()
    seen = [0] * len(lists)
    placed = 0
    for size in sizes:
        seen = [known + counts[size] for known, counts in zip(seen, lists, strict=True)]
        if max(seen) > placed:
            found[size] = max(seen) - placed
            placed = max(seen)
    return found


def _shared_out(branches: tuple[Totals, ...], count: int) -> Iterator[list[tuple[Any, int]]]:
    """All ways in which ``count`` meetings can fall on branches, without those of no meeting."""
    first, *others = branches
    if not others:
        yield [(first, count)] if count else []
        return
    for n in range(count + 1):
        for rest in _shared_out(tuple(others), count - n):
            yield ([(first, n)] if n else []) + rest


# By how much more than what is asked is tried: what fits then fits for many events to come.
AHEAD = (Fraction(2), Fraction(6, 5), Fraction(51, 50))
# How many such proofs are remembered.
REMEMBERED = 8


def composed_delta(events: Iterable[PrivacyEvent], epsilon: float) -> float:
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
    >>> from dpsvm_fast.accounting import composed_delta
    >>> from dpsvm_fast.certificates import GaussianEvent
    >>> event = GaussianEvent(sigma=4.0, sensitivity=1.0, adjacency="add_remove")
    >>> round(composed_delta([event] * 4, 1.0), 6)
    0.00683
    """
    return Composition.of(events).delta(
        check_real("composed_epsilon", epsilon, low=0.0, high=math.inf)
    )


def composed_epsilon(events: Iterable[PrivacyEvent], delta: float) -> float:
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
    >>> from dpsvm_fast.accounting import composed_epsilon
    >>> from dpsvm_fast.certificates import PureEvent
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
