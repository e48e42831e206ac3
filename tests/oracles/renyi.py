r"""Renyi divergences of Poisson-sampled Gaussian sums by integration, and what they say.

:math:`D_\alpha(P \| Q) = \frac{1}{\alpha - 1} \log \int p^\alpha q^{1-\alpha}`, added up over the
steps, turned into epsilon by Canonne, Kamath and Steinke, Proposition 12, at the best of many
orders. Every accountant that composes exactly returns less.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import logsumexp

ORDERS = 1.0 + np.exp(np.linspace(math.log(0.02), math.log(1000.0), 40))


def renyi_epsilon(z: float, q: float, n_steps: int, delta: float, *, replace_one: bool) -> float:
    """Epsilon of ``n_steps`` steps at ``delta``; z is relative to one record's contribution."""
    best = math.inf
    for order in ORDERS:
        rate = n_steps * divergence(z, q, float(order), replace_one=replace_one)
        gap = order - 1.0
        conversion = math.log1p(-1.0 / order) - math.log(delta * order) / gap
        best = min(best, rate + conversion)
    return max(0.0, best)


def divergence(z: float, q: float, order: float, *, replace_one: bool) -> float:
    """The larger of the divergences of the two directions, by the trapezoidal rule."""
    reach = 2.0 * order + 1.0 + 40.0 * z
    x = np.arange(-reach, reach, min(z, z * z) / 16.0) if reach / z < 1e4 else np.array([])
    if x.size == 0 or x.size > 2_000_000:
        return math.inf

    def mixture(centre: float) -> np.ndarray:
        """Logarithm of (1-q) N(0, z^2) + q N(centre, z^2)."""
        with np.errstate(divide="ignore"):
            zero, one = np.log(1.0 - q), math.log(q)
        return np.logaddexp(zero - 0.5 * (x / z) ** 2, one - 0.5 * ((x - centre) / z) ** 2)

    step = math.log((x[1] - x[0]) / (z * math.sqrt(2.0 * math.pi)))
    present = mixture(1.0)
    absent = mixture(-1.0) if replace_one else -0.5 * (x / z) ** 2
    pairs = [(present, absent), (absent, present)]
    return max(
        float(logsumexp(order * p + (1.0 - order) * r) + step) / (order - 1.0) for p, r in pairs
    )
