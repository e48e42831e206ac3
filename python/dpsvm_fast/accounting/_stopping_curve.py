"""Profiles of events known by a curve, from the profile of one run or of alternatives."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast._rounding import fraction_up
from dpsvm_fast.accounting._choices import choices, of_events, stopping_law
from dpsvm_fast.accounting._random_stopping import BaseCurve, StoppingKernel
from dpsvm_fast.accounting._stopped_zcdp import stopped_zcdp_delta
from dpsvm_fast.accounting._totals import CurvedEvent, Totals
from dpsvm_fast.accounting.compound import AlternativesEvent, ParallelEvent

__all__ = ["curved_delta", "curved_epsilon", "curved_points"]

Array = NDArray[np.float64]

# Most points of the profile of one run, and the least first step from one to the next.
MOST_POINTS, SMALLEST_STEP = 2000, 1e-9
# Points of a profile that is composed with other events.
COMPOSED_POINTS = 512
# Below this a profile has ended, and beyond this epsilon nobody looks.
NEGLIGIBLE, LARGEST_EPSILON = 1e-16, 256.0
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
    from dpsvm_fast.accounting._composed import totals_curve

    delta, fall = totals_curve(totals)
    limit = max(delta(LARGEST_EPSILON) * CLOSE, NEGLIGIBLE)
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
