"""Epsilon of sums of privacy losses by the code of ``verify``, to compare the accountant with."""

from __future__ import annotations

import math
from functools import lru_cache

from scipy.optimize import brentq

from dpsvm_fast.verification.sampled import Losses, composed_delta

# Points of a grid; between these an epsilon is sought, and a smaller one counts as 0.
POINTS, SMALLEST, LARGEST = 2**18, 1e-9, 1e6


@lru_cache(maxsize=64)
def composed_epsilon(delta: float, losses: Losses, near: float = 1.0) -> float:
    """Epsilon of the composition at ``delta``, from above; sought around ``near``."""
    if delta <= 0.0:
        return math.inf

    def excess(epsilon: float) -> float:
        return math.log(max(composed_delta(epsilon, losses, POINTS), 1e-320) / delta)

    low, high, factor = 0.0, near, 1.25
    while excess(high) > 0.0:
        low, high, factor = high, factor * high, factor * factor
        if high > LARGEST:
            return math.inf
    while low == 0.0 and high > SMALLEST:
        if excess(high / factor) > 0.0:
            low = high / factor
        else:
            high, factor = high / factor, factor * factor
    return float(brentq(excess, low, high, xtol=1e-12, rtol=1e-5)) if low else 0.0
