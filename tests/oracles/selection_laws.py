"""Laws of private selection on finite spaces, from their definitions, and what bounds them.

Everything here is written from docs/proofs/private_selection.md and knows nothing of the package.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Profile = Callable[[Array], Array]


def hockey(p: Array, q: Array, epsilon: float) -> float:
    """Largest ``p(S) - e^epsilon q(S)`` over sets of values, the larger of both directions."""
    x = math.exp(epsilon)
    there = float(np.maximum(p - x * q, 0.0).sum())
    return max(there, float(np.maximum(q - x * p, 0.0).sum()))


def profile_of(p: Array, q: Array) -> Profile:
    """``hockey`` as a function of an array of epsilons, of any sign, both directions covered."""

    def profile(epsilon: Array) -> Array:
        x = np.exp(np.asarray(epsilon, dtype=float))[..., None]
        there = np.maximum(p - x * q, 0.0).sum(axis=-1)
        return np.asarray(np.maximum(there, np.maximum(q - x * p, 0.0).sum(axis=-1)))

    return profile


def exponential_law(scores: Array, rate: float) -> Array:
    """Exponential mechanism on scores of which the lowest is best."""
    weights = np.exp(-rate * (scores - scores.min()))
    return np.asarray(weights / weights.sum())


def permute_and_flip_law(scores: Array, rate: float) -> Array:
    """Permute-and-flip by going through all orders of visiting."""
    law = np.zeros(len(scores))
    accept = np.exp(-rate * (scores - scores.min()))
    orders = list(itertools.permutations(range(len(scores))))
    for order in orders:
        left = 1.0
        for i in order:
            law[i] += left * accept[i] / len(orders)
            left *= 1.0 - accept[i]
    return law


@dataclass(frozen=True)
class Stopping:
    """Law of the number of runs: f(x) = E x^K, and f'(1 - u)."""

    kind: str
    parameter: float

    def generating(self, x: Array) -> Array:
        """F(x)."""
        g = self.parameter
        if self.kind == "geometric":
            return np.asarray(g * x / (1.0 - (1.0 - g) * x))
        if self.kind == "logarithmic":
            return np.asarray(np.log1p(-(1.0 - g) * x) / math.log(g))
        return np.asarray(np.exp(g * (x - 1.0)))

    def slope(self, u: Array) -> Array:
        """F'(1 - u)."""
        g = self.parameter
        if self.kind == "geometric":
            return np.asarray(g / (g + (1.0 - g) * u) ** 2)
        if self.kind == "logarithmic":
            return np.asarray((1.0 - g) / -math.log(g) / (g + (1.0 - g) * u))
        return np.asarray(g * np.exp(-g * u))

    @property
    def mean(self) -> float:
        """Mean of K."""
        return float(self.slope(np.array(0.0)))

    @property
    def shape(self) -> float:
        """Eta of the truncated negative binomial."""
        return {"geometric": 1.0, "logarithmic": 0.0}[self.kind]

    def best_law(self, run: Array) -> Array:
        """Law of the best of K runs on values in increasing order; for Poisson also of no run."""
        below = np.append(0.0, np.cumsum(run))
        below[-1] = 1.0
        law = np.diff(self.generating(below))
        return np.append(law, math.exp(-self.parameter)) if self.kind == "poisson" else law


EPSILONS = np.linspace(0.0, 12.0, 501)


def upper_curve(u: Array, profile: Profile) -> Array:
    """B(u) of the page: what the other law can give to a set of mass u, from the profile."""
    delta = profile(EPSILONS)
    x = np.exp(EPSILONS)
    up = (x * u[:, None] + delta).min(axis=1)
    down = (1.0 - (1.0 - u[:, None] - delta) / x).min(axis=1)
    return np.asarray(np.minimum(1.0, np.minimum(up, down)))


def stopping_bound(stopping: Stopping, profile: Profile, epsilon: float, cells: int = 60) -> float:
    """Theorem 3 of the page, in floating point."""
    u = np.append(0.0, np.geomspace(1e-9, 1.0, cells))
    a = stopping.slope(u[:-1])
    b = stopping.slope(upper_curve(u[1:], profile))
    largest = math.exp(-epsilon) * float((a / b).max())
    nodes = np.append(0.0, np.geomspace(largest * 1e-4, largest, 150))
    heights = np.maximum((a - math.exp(epsilon) * b * nodes[:, None]).max(axis=1), 0.0)
    heights[-1] = 0.0
    slopes = np.append(np.diff(heights) / np.diff(nodes), 0.0)
    weights = np.diff(slopes) * nodes[1:]
    at = -np.log(nodes[1:])
    delta = profile(np.abs(at))
    delta = np.where(at >= 0.0, delta, 1.0 - np.exp(at) * (1.0 - delta))
    return float((weights * delta).sum())
