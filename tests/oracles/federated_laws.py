"""Exact laws of sums of discrete Gaussians in one dimension, and what is claimed of them.

The formulas of docs/proofs/federated.md, written down without the package.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from twins.gaussian import gaussian_delta

Array = NDArray[np.float64]


def theta_error(s: float) -> float:
    """e(s) of the page: how far sum_z exp(-(z - x)^2 / 2s^2) is from constant in x."""
    return 2 * math.fsum(math.exp(-2 * (math.pi * s * m) ** 2) for m in range(1, 40))


def discrete_gaussian(sigma: float, half_width: int) -> Array:
    z = np.arange(-half_width, half_width + 1.0)
    weights = np.exp(-(z**2) / (2 * sigma**2))
    return np.asarray(weights / weights.sum())


def summed(law: Array, parties: int) -> Array:
    total = law
    for _ in range(parties - 1):
        total = np.convolve(total, law)
    return total


def merge_exponent(sigma: float, parties: int) -> float:
    """a_1 of the page."""
    errors = [theta_error(sigma * math.sqrt(k / (k + 1))) for k in range(1, parties)]
    return math.fsum(math.log1p(e) - math.log1p(-e) for e in errors)


def smoothing_exponent(r: float) -> float:
    """a_2 of the page."""
    e = theta_error(r)
    return math.log1p(e) - math.log1p(-e)


def hockey_stick(p: Array, q: Array, epsilon: float) -> float:
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


def shifted(law: Array, shift: int, room: int) -> Array:
    padded = np.zeros(law.size + 2 * room)
    padded[room + shift : room + shift + law.size] = law
    return padded


def plane(law: Array, shift: tuple[int, int], room: int) -> Array:
    """Law of two independent coordinates, moved."""
    return np.outer(shifted(law, shift[0], room), shifted(law, shift[1], room)).ravel()


def claimed(epsilon: float, shift: float, sigma: float, h: int, r: float, p: int) -> float:
    """Bound of the page for a whole shift and p coordinates."""
    deviation = math.sqrt(h * sigma**2 - r**2)
    distance = p * (merge_exponent(sigma, h) + smoothing_exponent(r))
    return float(gaussian_delta(epsilon, shift / deviation)) + (1 + math.exp(epsilon)) * distance


def kinks(shift: float, variance: float, spread: int = 12) -> Iterator[float]:
    """Epsilons at which the privacy loss of some whole number is met, and midpoints."""
    for k in range(-spread, spread + 1):
        epsilon = (shift**2 / 2 + k * shift / 2) / variance
        if 0 <= epsilon < 6:
            yield epsilon
