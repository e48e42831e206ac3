r"""Curves of delta for verification: tables of upper bounds, and what is made from them.

A table bounds delta at some epsilons, for both directions. What is bounded is convex in
:math:`e^\epsilon`, so it lies below the chords in :math:`e^\epsilon` of any such table, and below
the greatest convex function under these: that is the curve of a loss with finitely many values.

The best of K runs has :math:`h(s) = \sup_u (a(u) - a(B(u)) s)_+`, and with :math:`w_j` the mass
that the second derivative of h has at :math:`s_j`, times :math:`s_j`,
:math:`\delta_A(\epsilon) = \sum_j w_j \delta(\epsilon - \log s_j)`. h is bounded from above on
cells of u and by chords in s (docs/proofs/accountant.md, "What verify computes").
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast.accounting._work_check import work

__all__ = ["Curve", "stopped_curve", "zcdp_curve", "zcdp_delta"]

Array = NDArray[np.float64]

# Logarithm of the smallest delta of a table, and the largest epsilon.
DEPTH, LARGEST = -41.0, 300.0
# By how much log delta falls between points of a table: its square over 12 is lost.
FALL = 0.025
# Most points of a table.
MOST_POINTS = 3000
# Points of u and of s, lines that bound what u can become, and orders of Renyi divergences: first
# looked at, and around the best of these.
POINTS_U, POINTS_S, LINES = 3000, 6000, 4001
ORDERS, NEAR_ORDERS = 500, 100
_ALL_ORDERS = np.geomspace(1e-4, 1e7, ORDERS)
# A bend of what u can become in one cell, relative to it, that counts as a corner.
CORNER = 2e-4
# More than the roundings of a value.
ROUNDING = 1e-12


class Curve:
    """Upper bound of delta at any real epsilon, in both directions.

    Parameters
    ----------
    epsilons : ndarray, increasing from 0
    deltas : ndarray of values in (0, 1]
    """

    def __init__(self, epsilons: Array, deltas: Array) -> None:
        self._x = epsilons
        self._g = np.minimum(_convex(epsilons, deltas) * (1.0 + ROUNDING), 1.0)

    @classmethod
    def of(cls, delta: Callable[[float], float], fall: float = FALL, depth: float = DEPTH) -> Curve:
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
        return cls(np.array([*x, x[-1] + 1.0]), np.array([*g, g[-1]]))

    def closer(
        self,
        delta: Callable[[float], float],
        epsilon: float,
        below: Callable[[Array], Array],
        points: float,
    ) -> Curve:
        """The same with more points where it counts for a sum of losses at ``epsilon``.

        ``below``: distribution function of the other losses. A chord between points that differ by
        f in log delta exceeds by f^2 / 12, and counts by how probable it makes the sum.
        """
        x, g = self._x, self._g
        reached = np.abs(np.diff(below(epsilon - x))) * g[:-1]
        reached += np.abs(np.diff(below(epsilon + x))) * g[:-1] * np.exp(-x[:-1])
        fall = np.log(g[:-1] / g[1:])
        share = reached / max(float(reached.sum()), 1e-300)
        pieces = np.ceil(points * np.cbrt(share * fall * fall))
        pieces[-1] = 1.0
        found_x, found_g = [x], [g]
        for place in np.flatnonzero(pieces > 1.0):
            inner = np.linspace(x[place], x[place + 1], int(pieces[place]) + 1)[1:-1]
            found_x.append(inner)
            found_g.append(np.array([max(delta(float(point)), 1e-300) for point in inner]))
        every_x, every_g = np.concatenate(found_x), np.concatenate(found_g)
        order = np.argsort(every_x)
        return Curve(every_x[order], np.minimum.accumulate(every_g[order]))

    @property
    def size(self) -> int:
        """Number of points."""
        return self._x.size

    @classmethod
    def hopeless(cls) -> Curve:
        """Nothing is known."""
        return cls(np.array([0.0, 1.0]), np.ones(2))

    @property
    def limit(self) -> float:
        """Epsilon at which the table ends."""
        return float(self._x[-2])

    def at(self, epsilon: Array) -> Array:
        """Values at any arguments: chords in exp(epsilon), and the last value beyond."""
        size = np.minimum(np.abs(epsilon), self._x[-1])
        left = np.clip(np.searchsorted(self._x, size, "right") - 1, 0, self._x.size - 2)
        share = np.expm1(size - self._x[left]) / np.expm1(np.diff(self._x))[left]
        value = self._g[left] - share * (self._g[left] - self._g[left + 1])
        mirrored = -np.expm1(-np.abs(epsilon)) + np.exp(-np.abs(epsilon)) * value
        found = np.where(epsilon < 0.0, mirrored, value) * (1.0 + ROUNDING)
        return np.asarray(np.minimum(found, 1.0))

    def atoms(self) -> tuple[Array, Array, float]:
        """Losses and masses of the loss with this curve, and the mass of an infinite one.

        Above 0 a corner at epsilon has the mass exp(epsilon) times the change of slope; below 0 it
        is the other direction's, and what is left is at 0.
        """
        gap, fall = np.diff(self._x), -np.diff(self._g)
        # A slope times exp of its left and of its right end, and what rounding may change it by.
        before, after = fall / -np.expm1(-gap), fall / np.expm1(gap)
        doubt = 1e-15 * self._g[:-1] / -np.expm1(-gap)
        masses = np.maximum(before - np.append(after[1:], 0.0), 0.0)
        masses += doubt + np.append(doubt[1:], 0.0)
        x, infinite = self._x[1:], float(self._g[-1])
        mirrored = masses * np.exp(-x)
        at_zero = max(1.0 - infinite - float(masses.sum()) - float(mirrored.sum()), 0.0) + ROUNDING
        return (
            np.concatenate([-x[::-1], [0.0], x]),
            np.concatenate([mirrored[::-1], [at_zero], masses]),
            infinite,
        )


def _convex(x: Array, g: Array) -> Array:
    """Values at x of the greatest convex function of exp(epsilon) below the curve, both ways.

    What is bounded is convex, so it lies below that function too.
    """
    mirrored = -np.expm1(-x[:0:-1]) + np.exp(-x[:0:-1]) * g[:0:-1]
    alpha = np.concatenate([[0.0], np.exp(-x[:0:-1]), np.exp(x)])
    value = np.concatenate([[1.0], mirrored, g])
    kept = _hull(alpha, value)
    found = np.interp(alpha, alpha[kept], value[kept])
    return np.asarray(np.minimum(found[-x.size :], g))


def _hull(x: Array, y: Array) -> list[int]:
    """Indices of the greatest convex function below points with increasing x."""
    kept: list[int] = []
    for i in range(x.size):
        while len(kept) > 1:
            a, b = kept[-2], kept[-1]
            if (y[b] - y[a]) * (x[i] - x[b]) < (y[i] - y[b]) * (x[b] - x[a]):
                break
            kept.pop()
        kept.append(i)
    return kept


def zcdp_delta(rho: float, epsilon: float) -> float:
    """Delta of rho-zCDP at ``epsilon >= 0``, by the best of many orders; each is a bound."""

    def logs(a: Array) -> Array:
        large = a * ((1.0 + a) * rho + epsilon)
        found = a * ((1.0 + a) * rho - epsilon) - (1.0 + a) * np.log1p(1.0 / a) - np.log(a)
        return np.asarray(found + 1e-15 * (2.0 + large))

    work(2 * ORDERS)
    orders = _ALL_ORDERS
    for _ in range(3):
        found = logs(orders)
        place = int(np.argmin(found))
        near = orders[[max(place - 1, 0), min(place + 1, orders.size - 1)]]
        orders = np.geomspace(near[0], near[1], NEAR_ORDERS)
    least = float(found.min())
    return math.exp(min(0.0, least)) * (1.0 + ROUNDING)


@lru_cache(maxsize=32)
def zcdp_curve(rho: float, fall: float = FALL) -> Curve:
    """Table of the same."""
    return Curve.of(lambda epsilon: zcdp_delta(rho, epsilon), fall)


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
    work(4 * POINTS_U * (LINES + POINTS_S))
    top, bottom = _weights_of_runs(kind, gamma, mean, base)
    with np.errstate(divide="ignore"):
        last = float(np.max(np.log(top) - np.log(bottom))) + ROUNDING
    if not last < 500.0:
        return Curve.hopeless()
    log_s = np.linspace(min(-8.0, -2.0 * last), last, POINTS_S)
    s = np.append(0.0, np.exp(log_s))
    h = np.array([max(0.0, float((top - bottom * point).max())) for point in s])
    # h is convex: below its chords, and below the greatest convex function under them.
    kept = _hull(s, h * (1.0 + ROUNDING))
    s, h = s[kept], h[kept] * (1.0 + ROUNDING)
    slopes = np.append(np.diff(h) / np.diff(s), 0.0)
    masses, log_s = s[1:] * np.diff(slopes), np.log(s[1:])

    renyi = None if rho is None else _renyi_curve(kind, gamma, mean, rho)

    def delta(epsilon: float) -> float:
        work(20 * POINTS_S)
        found = float(masses @ base.at(epsilon - log_s)) * (1.0 + 1e-9) + float(h[-1])
        d = float(base.at(np.array([epsilon - last]))[0])
        found = min(found, _upper_tail(kind, gamma, mean, d), 1.0)
        if renyi is not None:
            found = min(found, renyi(epsilon))
        return max(found, 1e-300)

    return Curve.of(delta)


def _weights_of_runs(kind: str, gamma: float, mean: float, base: Curve) -> tuple[Array, Array]:
    """Pairs (a, b) such that a(u) - a(B(u)) s is at most the largest a - b s, at every s >= 0.

    The density a falls and is convex, and a(B(u)) with B a minimum of lines is too. On a cell of u,
    a is below its chord and a(B(u)) above the chords of both neighbouring cells: the largest
    difference is at an end of the cell, or where those two meet.
    """
    u = np.concatenate([[0.0], np.geomspace(1e-18, 1.0, POINTS_U)])
    x = np.linspace(-base.limit, base.limit, LINES)
    lines, starts = np.exp(x), base.at(x)

    def reached(points: Array) -> Array:
        # Column by column: the whole table would be large.
        return np.array([min(1.0, float((lines * point + starts).min())) for point in points])

    reach = reached(u)
    for _ in range(2):
        # Corners of B are points of their own: where the lines of two cells meet.
        slope = np.diff(reach) / np.diff(u)
        bend = (slope[:-2] - slope[2:]) * np.diff(u)[1:-1] > CORNER * reach[1:-2]
        at = np.flatnonzero(bend)
        place = reach[at + 2] - reach[at + 1] - slope[at + 2] * np.diff(u)[at + 1]
        corners = u[at + 1] + place / (slope[at] - slope[at + 2])
        inside = (corners > u[at + 1]) & (corners < u[at + 2])
        width = 1e-3 * np.diff(u)[at + 1][inside]
        more = np.concatenate([corners[inside] + k * width for k in (-1.0, 0.0, 1.0)])
        u = np.unique(np.concatenate([u, np.clip(more, 0.0, 1.0)]))
        reach = reached(u)
    a, b = _weight(kind, gamma, mean, u), _weight(kind, gamma, mean, reach * (1.0 + ROUNDING))
    gap, slope = np.diff(u), np.diff(b) / np.diff(u)
    # Where the chord of the cell before and that of the cell after meet, and what they are there.
    with np.errstate(divide="ignore", invalid="ignore"):
        place = (b[2:-1] - b[1:-2] - slope[2:] * gap[1:-1]) / (slope[:-2] - slope[2:])
    place = np.clip(np.nan_to_num(place, nan=0.0), 0.0, gap[1:-1])
    low = np.maximum(b[1:-2] + slope[:-2] * place, b[2:-1] - slope[2:] * (gap[1:-1] - place))
    inner = a[1:-2] + (a[2:-1] - a[1:-2]) * place / gap[1:-1]
    # The first cell has no cell before it, the last none after it.
    ends = np.array([b[1] - slope[1] * gap[0], b[-2] + slope[-2] * gap[-1]])
    top = np.concatenate([a, inner, [a[0], a[-1]]]) * (1.0 + ROUNDING)
    bottom = np.concatenate([b, low, np.maximum(ends, b[-1])]) * (1.0 - ROUNDING)
    return top, bottom


def _upper_tail(kind: str, gamma: float, mean: float, d: float) -> float:
    """Mass 1 - E (1 - d)^K of the best run on an event of mass d."""
    if kind == "poisson":
        return 1.0 - math.exp(-mean * d)
    rest = gamma + (1.0 - gamma) * d
    return d / rest if kind == "geometric" else 1.0 - math.log(rest) / math.log(gamma)


def _renyi_curve(kind: str, gamma: float, mean: float, rho: float) -> Callable[[float], float]:
    """Delta by Papernot and Steinke, Theorems 2 and 6, over many orders."""
    a = np.geomspace(1e-4, 1e7, 10 * ORDERS)
    if kind == "poisson":
        near = zcdp_curve(rho).at(np.log1p(1.0 / a))
        fixed = a * ((1.0 + a) * rho + mean * near) + math.log(mean)
    else:
        other = np.geomspace(1.0, 1e9, 10 * ORDERS)
        power = 2.0 if kind == "geometric" else 1.0
        least = float(np.min((other - 1.0) * rho - math.log(gamma) / other))
        expected = float(_weight(kind, gamma, mean, np.zeros(1))[0])
        fixed = a * ((1.0 + a) * rho + power * least) + math.log(expected)
    fixed += -(1.0 + a) * np.log1p(1.0 / a) - np.log(a)
    return lambda epsilon: math.exp(min(0.0, float(np.min(fixed - a * epsilon))))
