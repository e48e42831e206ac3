r"""Curves of delta for verification: tables of log delta, to nearest, and what is made from them.

The best of K runs is recomputed from :math:`h(s) = \sup_u (a(u) - a(B(u)) s)_+` on dense tables of
u and of s: :math:`\delta_A(\epsilon) = \sum_j w_j \delta(\epsilon - \log s_j)` with :math:`w_j`
the mass that the second derivative of h has at :math:`s_j`, times :math:`s_j`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import PchipInterpolator

from dpsvm_fast.accounting._work_check import work

__all__ = ["Curve", "atoms_of", "stopped_curve", "zcdp_curve"]

Array = NDArray[np.float64]

# Logarithm of the smallest delta of a table, and the largest epsilon.
DEPTH, LARGEST = -41.0, 300.0
# Most points of a table.
MOST_POINTS = 3000
# Points of u, of s and of the orders of Renyi divergences.
POINTS_U, POINTS_S, ORDERS = 3000, 1500, 4000
# Cells of the law of atoms of a curve.
ATOMS = 6000


class Curve:
    """Delta at any real epsilon, in both directions.

    Parameters
    ----------
    epsilons : ndarray, increasing from 0
    deltas : ndarray of values in (0, 1]
    """

    def __init__(self, epsilons: Array, deltas: Array) -> None:
        self._x, self._logs = epsilons, np.log(np.maximum(deltas, 1e-300))
        self._table = PchipInterpolator(self._x, self._logs)

    @classmethod
    def of(cls, delta: Callable[[float], float], fall: float, depth: float = DEPTH) -> Curve:
        """Table of a function, whose logarithm falls by about ``fall`` from point to point."""
        x, g = [0.0], [min(1.0, delta(0.0))]
        if g[0] <= 0.0:
            return cls(np.array([0.0, 1.0]), np.array([1e-300, 1e-300]))
        enough = max(math.exp(depth), delta(LARGEST) * (1.0 + 1e-6))
        step = fall * max(g[0], 1e-9)
        while g[-1] > enough and x[-1] < LARGEST and len(x) < MOST_POINTS:
            value = max(delta(x[-1] + step), 1e-300)
            fell = math.log(g[-1] / value)
            if fell > 2.0 * fall and step > 1e-9 * (1.0 + x[-1]) and value > enough:
                step *= 0.5
                continue
            x.append(x[-1] + step)
            g.append(min(value, g[-1]))
            step *= min(2.0, max(0.5, fall / max(fell, 0.1 * fall)))
            step = max(step, 1e-9 * (1.0 + x[-1]))
        return cls(
            np.array([*x, x[-1] + 1.0]), _convex(np.array([*x, x[-1] + 1.0]), np.array([*g, g[-1]]))
        )

    @classmethod
    def hopeless(cls) -> Curve:
        """Nothing is known."""
        return cls(np.array([0.0, 1.0]), np.ones(2))

    @property
    def limit(self) -> float:
        """Epsilon at which the table ends."""
        return float(self._x[-2])

    def at(self, epsilon: Array) -> Array:
        """Values at any arguments."""
        size = np.minimum(np.abs(epsilon), self._x[-1])
        value = np.exp(np.asarray(self._table(size)))
        mirrored = -np.expm1(-np.abs(epsilon)) + np.exp(-np.abs(epsilon)) * value
        return np.asarray(np.where(epsilon < 0.0, mirrored, value))


def _convex(x: Array, g: Array) -> Array:
    """Values at x of the greatest convex function of exp(epsilon) below the curve, both ways.

    What is bounded is convex, so it lies below that function too.
    """
    mirrored = -np.expm1(-x[:0:-1]) + np.exp(-x[:0:-1]) * g[:0:-1]
    alpha = np.concatenate([[0.0], np.exp(-x[:0:-1]), np.exp(x)])
    value = np.concatenate([[1.0], mirrored, g])
    kept: list[int] = []
    for i in range(alpha.size):
        while len(kept) > 1:
            a, b = kept[-2], kept[-1]
            rise = (value[i] - value[a]) * (alpha[b] - alpha[a])
            if (value[b] - value[a]) * (alpha[i] - alpha[a]) < rise:
                break
            kept.pop()
        kept.append(i)
    found = np.interp(alpha, alpha[kept], value[kept])
    return np.asarray(np.minimum(found[-x.size :], g))


def zcdp_curve(rho: float) -> Curve:
    """Rho-zCDP, by the best of many orders."""
    a = np.geomspace(1e-4, 1e7, ORDERS)
    fixed = a * (1.0 + a) * rho - (1.0 + a) * np.log1p(1.0 / a) - np.log(a)

    def delta(epsilon: float) -> float:
        work(ORDERS)
        return math.exp(min(0.0, float(np.min(fixed - a * epsilon))))

    return Curve.of(delta, fall=0.1)


def atoms_of(curve: Curve) -> tuple[Array, Array, float]:
    """Losses and masses of many small atoms, and the mass of an infinite loss."""
    x = np.linspace(-curve.limit, curve.limit, ATOMS + 1)
    g = curve.at(x)
    step = float(x[1] - x[0])
    # Slope in exp(epsilon) between points, times exp of the left end; delta is 1 at 0.
    slopes = np.diff(g) / math.expm1(step)
    before = np.concatenate([[(g[0] - 1.0)], slopes * math.exp(step)])
    after = np.append(slopes, 0.0)
    return x, np.maximum(after - before, 0.0), float(g[-1])


def _weight(kind: str, gamma: float, mean: float, u: Array) -> Array:
    """Density of the best run over that of one run."""
    if kind == "poisson":
        return np.asarray(mean * np.exp(-mean * u))
    rest = gamma + (1.0 - gamma) * u
    if kind == "geometric":
        return np.asarray(gamma / rest**2)
    return np.asarray((gamma - 1.0) / (math.log(gamma) * rest))


def stopped_curve(kind: str, gamma: float, mean: float, base: Curve, rho: float | None) -> Curve:
    """Curve of the best of K runs with that curve; ``rho`` where a run is known by it alone."""
    work(4 * POINTS_U * (2000 + POINTS_S))
    u = np.concatenate([[0.0], np.geomspace(1e-18, 1.0, POINTS_U)])
    x = np.linspace(-base.limit, base.limit, 2001)
    lines, starts = np.exp(x), base.at(x)
    # Column by column: the whole table would be large.
    reach = np.array([min(1.0, float((lines * point + starts).min())) for point in u])
    top, bottom = _weight(kind, gamma, mean, u), _weight(kind, gamma, mean, reach)
    with np.errstate(divide="ignore"):
        last = float(np.max(np.log(top) - np.log(bottom)))
    if not last < 500.0:
        return Curve.hopeless()
    log_s = np.linspace(min(-8.0, -2.0 * last), last, POINTS_S)
    s = np.exp(log_s)
    h = np.array([max(0.0, float((top - bottom * point).max())) for point in s])
    s, h = np.append(0.0, s), np.append(float(top.max()), h)
    slopes = np.append(np.diff(h) / np.diff(s), 0.0)
    masses = s[1:] * np.diff(slopes)

    renyi = None if rho is None else _renyi_curve(kind, gamma, mean, rho)

    def delta(epsilon: float) -> float:
        work(20 * POINTS_S)
        found = float(masses @ base.at(epsilon - log_s))
        d = float(base.at(np.array([epsilon - last]))[0])
        found = min(found, _upper_tail(kind, gamma, mean, d), 1.0)
        if renyi is not None:
            found = min(found, renyi(epsilon))
        return max(found, 1e-300)

    return Curve.of(delta, fall=0.05)


def _upper_tail(kind: str, gamma: float, mean: float, d: float) -> float:
    """Mass 1 - E (1 - d)^K of the best run on an event of mass d."""
    if kind == "poisson":
        return 1.0 - math.exp(-mean * d)
    rest = gamma + (1.0 - gamma) * d
    return d / rest if kind == "geometric" else 1.0 - math.log(rest) / math.log(gamma)


def _renyi_curve(kind: str, gamma: float, mean: float, rho: float) -> Callable[[float], float]:
    """Delta by Papernot and Steinke, Theorems 2 and 6, over many orders."""
    a = np.geomspace(1e-4, 1e7, ORDERS)
    if kind == "poisson":
        near = zcdp_curve(rho).at(np.log1p(1.0 / a))
        fixed = a * ((1.0 + a) * rho + mean * near) + math.log(mean)
    else:
        other = np.geomspace(1.0, 1e9, ORDERS)
        power = 2.0 if kind == "geometric" else 1.0
        least = float(np.min((other - 1.0) * rho - math.log(gamma) / other))
        expected = float(_weight(kind, gamma, mean, np.zeros(1))[0])
        fixed = a * ((1.0 + a) * rho + power * least) + math.log(expected)
    fixed += -(1.0 + a) * np.log1p(1.0 / a) - np.log(a)
    return lambda epsilon: math.exp(min(0.0, float(np.min(fixed - a * epsilon))))
