r"""Composition by loss distributions, for sampled sums, zCDP and what has a curve.

Every event goes in by a pair of laws that dominates it in both directions: the pairs of sampled
steps, one Gaussian loss for all Gaussian mechanisms, randomised responses, and for zCDP, objective
perturbation, random stopping and alternatives the pair that belongs to an upper bound of the
profile. The compiled accountant moves their losses to a grid from above and adds them up;
docs/proofs/accountant.md, section "Mixed events". Where one closed bound covers everything it is
taken instead; charging all pure events in full is tried beside it, and the smaller bound counts.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from dpsvm_fast import _core
from dpsvm_fast._rounding import add_down, add_up, div_down, fraction_up
from dpsvm_fast.accounting._atoms import few_sizes
from dpsvm_fast.accounting._profile import profile_points
from dpsvm_fast.accounting._stopping_curve import (
    curved_delta,
    curved_epsilon,
    curved_points,
)
from dpsvm_fast.accounting._totals import CurvedEvent, Totals
from dpsvm_fast.accounting._zcdp import zcdp_delta, zcdp_epsilon
from dpsvm_fast.accounting.events import ObjectiveEvent
from dpsvm_fast.accounting.subsampled import (
    HOPELESS,
    is_hopeless,
    sampled_delta,
    sampled_epsilon,
)

__all__ = ["distribution_curve", "distribution_delta", "distribution_epsilon"]

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
