r"""Composition by loss distributions, for sampled sums, zCDP and what has a curve.

Every event goes in by a pair of laws that dominates it in both directions: the pairs of sampled
steps, one Gaussian loss for all Gaussian mechanisms, randomised responses, and for zCDP, objective
perturbation, random stopping and alternatives the pair that belongs to an upper bound of the
profile. The compiled accountant moves their losses to a grid from above and adds them up;
docs/proofs/accountant.md, section "Mixed events". Where one closed bound covers everything it is
taken instead; charging all pure events in full is tried beside it, and the smaller bound counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from dpsvm_fast import _core
from dpsvm_fast._rounding import add_down, add_up, fraction_up, mul_up
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
    SMALLEST_MULTIPLIER,
    is_hopeless,
    sampled_delta,
    sampled_epsilon,
)

__all__ = ["distribution_curve", "distribution_delta", "distribution_epsilon"]

# Where the first look for an unknown epsilon or delta is made.
FIRST_EPSILON, FIRST_DELTA = 1.0, 1e-6
# For which delta a whole curve is made.
CURVE_DELTA = 1e-9
# A first look that is off by this factor is followed by a second.
NEAR = 4.0

# The same is asked again and again.
_remembered_delta = lru_cache(maxsize=256)(sampled_delta)
_remembered_epsilon = lru_cache(maxsize=256)(sampled_epsilon)


class _Mixture(NamedTuple):
    """Totals as a key of the cache."""

    sampled: tuple[tuple[float, float, int], ...]
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
    return min(bound, _epsilon(_mixture(totals), delta, bound)) if totals.pure else bound


def distribution_curve(totals: Totals) -> Callable[[float], float]:
    """Delta as a function of epsilon, for many questions: less sharp, and made once."""
    told, mixture = _told_outright(_mixture(totals))
    first = _distribution(mixture, FIRST_EPSILON, CURVE_DELTA)
    if first is None:
        return lambda _: 1.0
    hint = first.epsilon(CURVE_DELTA)
    near = _distribution(mixture, hint, CURVE_DELTA) if math.isfinite(hint) else None
    law = first if near is None else near
    return lambda epsilon: min(1.0, add_up(law.delta(epsilon), told))


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
    return min(closed, _epsilon(_mixture(totals, pure=False), delta, closed))


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
    """Delta of a mixture; the distribution is made for the place that is asked about."""
    told, mixture = _told_outright(mixture)
    first = _distribution(mixture, epsilon, FIRST_DELTA)
    if first is None:
        return 1.0
    delta = first.delta(epsilon)
    if not FIRST_DELTA / NEAR <= delta <= FIRST_DELTA * NEAR and delta > told:
        second = _distribution(mixture, epsilon, delta)
        delta = delta if second is None else min(delta, second.delta(epsilon))
    return min(1.0, add_up(delta, told))


@lru_cache(maxsize=256)
def _epsilon(mixture: _Mixture, delta: float, closed: float) -> float:
    """Epsilon of a mixture; ``closed`` is a bound that is known already."""
    told, mixture = _told_outright(mixture)
    delta = add_down(delta, -told)
    hint = closed if math.isfinite(closed) else FIRST_EPSILON
    first = _distribution(mixture, hint, delta) if delta > 0.0 else None
    if first is None:
        return math.inf
    epsilon = first.epsilon(delta)
    if not math.isfinite(epsilon) or hint / NEAR <= epsilon <= hint * NEAR:
        return epsilon
    second = _distribution(mixture, epsilon, delta)
    return epsilon if second is None else min(epsilon, second.epsilon(delta))


def _told_outright(mixture: _Mixture) -> tuple[float, _Mixture]:
    """Probability that a record was in a step with hardly any noise, and all other events.

    Such a step is (0, q)-private, whatever its noise: nothing else is worth saying about it.
    """
    plain = tuple(group for group in mixture.sampled if group[0] >= SMALLEST_MULTIPLIER)
    told = (mul_up(q, float(n)) for z, q, n in mixture.sampled if z < SMALLEST_MULTIPLIER)
    return add_up(0.0, *told), mixture._replace(sampled=plain)


def _distribution(mixture: _Mixture, epsilon: float, delta: float) -> _core.LossDistribution | None:
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
        subsampled=list(mixture.sampled),
        gaussian_mu=mixture.mu,
        pure=list(mixture.pure),
        zcdp_rho=mixture.rho,
        profiles=profiles,
        replace_one=mixture.replace_one,
        epsilon_hint=epsilon,
        delta_hint=delta,
    )
