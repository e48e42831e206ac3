r"""Composition by loss distributions: wherever sampled Gaussian sums or zCDP are among the events.

Every event goes in by a pair of laws that dominates it in both directions: the pairs of sampled
steps, one Gaussian loss for all Gaussian mechanisms, randomised responses, and for zCDP and for
objective perturbation the pair that belongs to an upper bound of the profile. The compiled
accountant moves their losses to a grid from above and adds them up; docs/proofs/accountant.md,
section "Mixed events". Where one closed bound covers everything it is taken instead; charging all
pure events in full is tried beside it, and the smaller bound counts.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

from dpsvm_fast import _core
from dpsvm_fast._rounding import add_down, add_up, fraction_up
from dpsvm_fast.accounting._profile import profile_points
from dpsvm_fast.accounting._totals import Totals
from dpsvm_fast.accounting._zcdp import zcdp_delta, zcdp_epsilon
from dpsvm_fast.accounting.events import ObjectiveEvent

__all__ = ["distribution_delta", "distribution_epsilon"]

# Where the first look for an unknown epsilon or delta is made.
FIRST_EPSILON, FIRST_DELTA = 1.0, 1e-6
# A first look that is off by this factor is followed by a second.
NEAR = 4.0


class _Mixture(NamedTuple):
    """Totals as a key of the cache."""

    sampled: tuple[tuple[float, float, int], ...]
    mu: float
    pure: tuple[tuple[float, int], ...]
    rho: float
    objective: tuple[tuple[ObjectiveEvent, int], ...]
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


def _impure_delta(totals: Totals, epsilon: float) -> float:
    """Delta of all but the pure events."""
    if _is_one_sampled(totals):
        ((z, q), steps), *_ = totals.sampled.items()
        return min(1.0, _sampled_delta(z, q, steps, epsilon, replace_one=totals.replace_one))
    closed = zcdp_delta(_renyi_rate(totals), epsilon) if _is_concentrated(totals) else 1.0
    if not (totals.sampled or totals.objective or totals.mu_squared):
        return closed
    return min(closed, _delta(_mixture(totals, pure=False), epsilon))


def _impure_epsilon(totals: Totals, delta: float) -> float:
    """Epsilon of all but the pure events."""
    if _is_one_sampled(totals):
        ((z, q), steps), *_ = totals.sampled.items()
        return _sampled_epsilon(z, q, steps, delta, replace_one=totals.replace_one)
    closed = zcdp_epsilon(_renyi_rate(totals), delta) if _is_concentrated(totals) else math.inf
    if not (totals.sampled or totals.objective or totals.mu_squared):
        return closed
    return min(closed, _epsilon(_mixture(totals, pure=False), delta, closed))


def _is_one_sampled(totals: Totals) -> bool:
    """Whether equal sampled steps are all there is beside pure events."""
    others = totals.objective or totals.mu_squared or totals.rho
    return len(totals.sampled) == 1 and not others


def _is_concentrated(totals: Totals) -> bool:
    """Whether all that is there beside pure events is zCDP."""
    return not (totals.sampled or totals.objective)


def _renyi_rate(totals: Totals) -> float:
    """Rho of the zCDP events and of the Gaussian ones, which are zCDP too."""
    return fraction_up(totals.rho + totals.mu_squared / 2)


@lru_cache(maxsize=256)
def _sampled_delta(z: float, q: float, n_steps: int, epsilon: float, *, replace_one: bool) -> float:
    """One closed call, remembered."""
    return _core.subsampled_gaussian_delta(z, q, n_steps, epsilon, replace_one)


@lru_cache(maxsize=256)
def _sampled_epsilon(z: float, q: float, n_steps: int, delta: float, *, replace_one: bool) -> float:
    """One closed call, remembered."""
    return _core.subsampled_gaussian_epsilon(z, q, n_steps, delta, replace_one)


def _mixture(totals: Totals, *, pure: bool = True) -> _Mixture:
    """Everything that the distribution depends on, with or without the pure events."""
    return _Mixture(
        sampled=tuple(sorted((z, q, n) for (z, q), n in totals.sampled.items())),
        mu=totals.mu,
        pure=tuple(sorted(totals.pure.items())) if pure else (),
        rho=fraction_up(totals.rho),
        objective=tuple(sorted(totals.objective.items(), key=repr)),
        replace_one=totals.replace_one,
    )


@lru_cache(maxsize=256)
def _delta(mixture: _Mixture, epsilon: float) -> float:
    """Delta of a mixture; the distribution is made for the place that is asked about."""
    first = _distribution(mixture, epsilon, FIRST_DELTA)
    if first is None:
        return 1.0
    delta = min(1.0, first.delta(epsilon))
    if FIRST_DELTA / NEAR <= delta <= FIRST_DELTA * NEAR or delta == 0.0:
        return delta
    second = _distribution(mixture, epsilon, delta)
    return delta if second is None else min(delta, second.delta(epsilon))


@lru_cache(maxsize=256)
def _epsilon(mixture: _Mixture, delta: float, closed: float) -> float:
    """Epsilon of a mixture; ``closed`` is a bound that is known already."""
    hint = closed if math.isfinite(closed) else FIRST_EPSILON
    first = _distribution(mixture, hint, delta)
    if first is None:
        return math.inf
    epsilon = first.epsilon(delta)
    if not math.isfinite(epsilon) or hint / NEAR <= epsilon <= hint * NEAR:
        return epsilon
    second = _distribution(mixture, epsilon, delta)
    return epsilon if second is None else min(epsilon, second.epsilon(delta))


def _distribution(mixture: _Mixture, epsilon: float, delta: float) -> _core.LossDistribution | None:
    """Loss distribution of all events; None where one may have a loss too large for any grid."""
    profiles = []
    for event, count in mixture.objective:
        points = profile_points(event)
        if points is None:
            return None
        profiles.append((*points, count))
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
