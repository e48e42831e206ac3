"""What distances from the described laws cost, recomputed for verification."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize_scalar

__all__ = ["cost", "least_delta"]

# Points among which the best epsilon is looked for first.
GRID_POINTS = 65
# A cost below this share of delta is not worth a smaller epsilon.
NEGLIGIBLE = 1e-9


def cost(distance: float, epsilon: float) -> float:
    r""":math:`(1 + e^\epsilon) T`, at most 1."""
    if distance == 0.0:
        return 0.0
    return min(1.0, distance + math.exp(min(0.0, epsilon + math.log(distance))))


def least_delta(
    rest: Callable[[float], float], distance: float, kink: float, epsilon: float
) -> tuple[float, float]:
    """Delta at the best epsilon up to a given one, and which that is.

    Parameters
    ----------
    rest : function of an epsilon
        Delta of everything else, decreasing.
    distance : float >= 0
    kink : float >= 0
        An epsilon from which ``rest`` may not fall any more.
    epsilon : float >= 0
    """
    if distance == 0.0:
        return rest(epsilon), epsilon
    # Beyond this the distance alone costs 1.
    top = min(epsilon, max(0.0, -math.log(distance)))

    def whole(x: float) -> float:
        return min(1.0, rest(x) + cost(distance, x))

    at_top = whole(top)
    if cost(distance, top) <= NEGLIGIBLE * at_top or top <= 0.0:
        return at_top, top
    # It falls before it rises, with a corner where everything else is pure.
    points = [kink, *np.linspace(0.0, top, GRID_POINTS)]
    at_best, best = min((whole(float(x)), float(x)) for x in points if x <= top)
    step = top / (GRID_POINTS - 1)
    near = (max(0.0, best - step), min(top, best + step))
    found = minimize_scalar(whole, bounds=near, method="bounded", options={"xatol": 1e-10})
    return min((at_top, top), (at_best, best), (float(found.fun), float(found.x)))
