r"""Delta of objective perturbation, recomputed with NumPy and SciPy for verification.

It follows docs/proofs/objective_perturbation.md, "Independent recomputation", and shares no
numerical code with the compiled laws. All results are upper bounds. With :math:`t = 1/\sigma` and
the privacy loss at most :math:`U = c_0 + V`, V >= 0,

.. math:: \delta(\epsilon) = E (1 - e^{\epsilon - U})_+
    = \begin{cases} E (1 - e^{e - V})_+ & e = \epsilon - c_0 \ge 0 \\
      1 - e^e (1 - E (1 - e^{-V})_+) & e < 0. \end{cases}
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline
from scipy.optimize import minimize_scalar
from scipy.special import log_ndtr, logsumexp, ndtr

from dpsvm_fast.certificates.events import ObjectiveEvent
from dpsvm_fast.rounding import subnormal
from dpsvm_fast.verification.losses import (
    gaussian_delta,
    normal_density,
    normal_excess,
    one_score_delta,
    power_of_spectrum,
    sum_of_pairs,
    sum_of_scores,
    work,
)

# An upper bound of the joint law of softmax objective perturbation, for verification.
#
# Follows docs/proofs/joint_bound.md for K > 2 classes: with n = K - 1, w the largest of the n
# competitors' normal numbers and :math:`X = t \Xi`, for every
# :math:`\theta_1 \in [\min(\omega, \kappa), \kappa]` and both forms of psi,
#
# .. math:: \delta(\epsilon) \le \int d\Phi^n(w) \, E[h(w + \Xi) \mid w], \quad
#     h(x) = E_\zeta (1 - e^{r (e - \psi(2 \omega + t (x + \zeta)))})_+, \quad e = \epsilon - c.
#
# Every step is an upper bound, and none is a copy of the compiled one (the same page, "Independent
# recomputation"): h is a mixture of shifted normal distribution functions by chords; the law of Xi
# is moved to a grid by keeping means; the integral over w is a trapezoidal rule whose error is
# below any rounding.


Array = NDArray[np.float64]
# Smallest, middle and largest epsilon or level for which a bound is tuned; and its grid.
Levels = tuple[float, float, float]
Grid = tuple[float, int, float]

# First guesses of theta_1 between its two ends, and looks beside the best of them.
FRACTIONS = (0.0, 0.3, 0.55, 0.75, 0.87, 0.94, 1.0)

LOOKS, NUDGE = 7, 0.025
# By how much a form may be above the other one and still be searched.
NEAR = 2.0
# Larger ratios theta / t are useless: the search leaves them out.
LARGEST_RATIO = 12.0
# Spacing of grids in standard deviations, points of the law of a gap, and what moving all gaps to
# them may cost: in a search, for one of many bounds, and for one alone.
COARSE, QUICK, FINE = (0.1, 64, 0.1), (0.02, 256, 1e-4), (0.01, 512, 1e-4)
# With more competitors than the first number the points grow with the square root of their number,
# or to what that cost asks for, whatever is less; a smaller ratio theta / t counts as the second.
MANY, MIN_RATIO = 64.0, 2.0
# An eighth of the largest curvature of the normal distribution function.
BEND = 0.03025
# Values of the largest number this near to each other share a law of Xi, and stand where two of
# them are.
TOGETHER = 0.05
# Smallest share of the level of either of two losses, and levels looked at.
MIN_SHARE, LEVELS = 0.3, 9
# No mass of a normal law is beyond this that a double could hold; where psi is above its level by
# CERTAIN, its payoff counts as 1.
BEYOND, CERTAIN = 38.5, 60.0
# All roundings together, and more than what underflows: no function does above 1e-310, and weights
# add up to 1.
ROUNDING, SMALLEST = 1e-9, subnormal("1e-308")
# Work of one bound before the law of Xi.
WORK_OF_BOUND = 1e6

UNIT = 2.0**-53
# Largest mass of a power beyond the transform for which it is computed at once.
WRAPPED = 1e-10

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)


@dataclass(frozen=True)
class _Setting:
    r"""Arguments of the bound; ``quadratic`` is omega, the factor of :math:`|p - e_y|^2`.

    With ``rate`` r it is a bound on :math:`E (1 - e^{r (level - U)})_+`.
    """

    t: float
    kappa: float
    n: int
    quadratic: float
    rate: float


def joint_delta(
    epsilon: float,
    t: float,
    kappa: float,
    K: int,
    *,
    replace_one: bool,
    quickly: bool = False,
    near: float | None = None,
) -> float:
    """Return the smallest joint bound over theta_1 and both forms.

    For one of many epsilons they are taken from a neighbour: a power of the square root of 2, or
    ``near`` if that gives less.
    """
    if replace_one:
        setting = _Setting(t, kappa, K - 1, t * t, 2.0)
    else:
        setting = _Setting(t, kappa, K - 1, 0.5 * t * t, 1.0)
    if not quickly:
        theta1, form = _best(epsilon, setting)
        low = min(setting.quadratic, kappa)
        # Coarse grids find the best theta_1 about.
        most = min(kappa, max(theta1, low + LARGEST_RATIO * t))
        tried = {min(max(theta1 + x * (kappa - low), low), most) for x in (-NUDGE, 0.0, NUDGE)}
        epsilons = (epsilon, epsilon, epsilon)
        bounds = (_Bound(setting, x, epsilons, FINE, logarithmic=form) for x in tried)
        return min(bound.at(epsilon) for bound in bounds)
    # Far below the noise, delta almost does not depend on epsilon.
    place = max(round(2.0 * math.log2(max(epsilon, 1e-9))), round(2.0 * math.log2(0.5 * t)))
    found = _neighbour(2.0 ** (0.5 * place), setting).at(epsilon)
    return found if near is None else min(found, _neighbour(near, setting).at(epsilon))


@lru_cache(maxsize=256)
def _neighbour(near: float, setting: _Setting) -> _Bound:
    """Return the bound shared by all epsilons near one."""
    found = {_best(near, setting)}
    if setting.kappa - setting.quadratic <= LARGEST_RATIO * setting.t:
        # There the Jacobian costs nothing.
        found.add((setting.kappa, True))
    theta1, form = min(
        found, key=lambda each: _at_once(near, setting, each[0], logarithmic=each[1])
    )
    epsilons = (near / 1.19, near, near * 1.19)
    return _Bound(setting, theta1, epsilons, QUICK, logarithmic=form)


def _at_once(epsilon: float, setting: _Setting, theta1: float, *, logarithmic: bool) -> float:
    """Return an estimate of the bound at one epsilon."""
    price = _price(theta1, setting.kappa, setting.n if logarithmic else setting.n + 1)
    if theta1 - setting.quadratic > LARGEST_RATIO * setting.t or epsilon <= price:
        return 1.0
    alone = (epsilon, epsilon, epsilon)
    return _Bound(setting, theta1, alone, COARSE, logarithmic=logarithmic).about(epsilon)


@lru_cache(maxsize=256)
def _best(epsilon: float, setting: _Setting) -> tuple[float, bool]:
    """Choose theta_1 and the form; every choice gives a valid bound."""
    forms = (True, False) if epsilon < 2.0 * setting.kappa else (True,)
    low = min(setting.quadratic, setting.kappa)
    fractions = FRACTIONS if low < setting.kappa else (1.0,)
    found = [
        [
            (_at_once(epsilon, setting, low + (setting.kappa - low) * x, logarithmic=form), x)
            for x in fractions
        ]
        for form in forms
    ]
    least = min(min(values) for values in found)[0]
    best = (2.0, setting.kappa, True)
    for form, values in zip(forms, found, strict=True):
        # A form that is far behind will not catch up between two guesses.
        if min(values)[0] <= NEAR * least:
            best = min(best, _searched(epsilon, setting, values, logarithmic=form))
    return best[1:]


class _Bound:
    """The bound at one theta_1, for both relations, at many epsilons.

    Parameters
    ----------
    setting : _Setting
    theta1 : float
    epsilons : tuple of three floats
        Smallest, middle and largest epsilon for which the bound is tuned; it is valid at all
        others.
    grid : spacing, number of points, and allowed cost of moving gaps to them
    logarithmic : bool
        Whether to use the logarithmic form of psi.
    """

    def __init__(
        self, setting: _Setting, theta1: float, epsilons: Levels, grid: Grid, *, logarithmic: bool
    ) -> None:
        n = setting.n
        self._setting = setting
        self._price = _price(theta1, setting.kappa, n if logarithmic else n + 1)
        low, middle, high = (max(epsilon - self._price, 1e-9) for epsilon in epsilons)
        if setting.rate == 1.0:
            levels = (low, middle, high)
            self._first = _Sum(setting, theta1, levels, grid, logarithmic=logarithmic)
            return
        # The replacement: a second loss without a Jacobian, dependent on the first in any way. Any
        # split of the level is a bound; both parts fall about as fast, so the best is near the
        # middle. It is chosen by splines of logarithms.
        levels = (MIN_SHARE * low, 0.5 * middle, (1.0 - MIN_SHARE) * high)
        self._first = _Sum(setting, theta1, levels, grid, logarithmic=logarithmic)
        known = np.linspace(levels[0], levels[2], LEVELS)
        firsts = [max(self._first.at(float(level)), SMALLEST) for level in known]
        self._logs = (
            CubicSpline(known, np.log(firsts)),
            CubicSpline(known, np.log(self._seconds(known) + SMALLEST)),
        )

    def _seconds(self, levels: Array) -> Array:
        """Return delta of the second loss at each level."""
        t, rate = self._setting.t, self._setting.rate
        return _largest_excess(self._setting.n, 2.0 * t - levels / t, rate * t)

    def split(self, epsilon: float) -> tuple[float, float]:
        """Return the best threshold for the first of two losses, and the total there."""
        e = epsilon - self._price
        levels = e * np.linspace(MIN_SHARE, 1.0 - MIN_SHARE, 801)
        sums = np.logaddexp(self._logs[0](levels), self._logs[1](e - levels))
        place = int(np.argmin(sums))
        return float(levels[place]), math.exp(min(float(sums[place]), 0.0))

    def about(self, epsilon: float) -> float:
        """Estimate the bound where it is tuned, to compare it with others."""
        if self._setting.rate == 1.0 or epsilon <= self._price:
            return self.at(epsilon)
        return self.split(epsilon)[1]

    def at(self, epsilon: float) -> float:
        """Return the bound at one epsilon."""
        e = epsilon - self._price
        if e <= 0.0:
            return 1.0
        if self._setting.rate == 1.0:
            return self._first.at(e)
        level = self.split(epsilon)[0]
        return self._first.at(level) + float(self._seconds(np.array([e - level]))[0])


def _searched(
    epsilon: float, setting: _Setting, guesses: list[tuple[float, float]], *, logarithmic: bool
) -> tuple[float, float, bool]:
    """Return the smallest bound of one form over theta_1, and its theta_1."""
    low = min(setting.quadratic, setting.kappa)
    place = guesses.index(min(guesses))
    least, fraction = guesses[place]
    found = [(least, low + (setting.kappa - low) * fraction, logarithmic)]

    def at(fraction: float) -> float:
        theta1 = low + (setting.kappa - low) * fraction
        value = _at_once(epsilon, setting, theta1, logarithmic=logarithmic)
        found.append((value, theta1, logarithmic))
        return found[-1][0]

    if len(guesses) > 1:
        ends = FRACTIONS[max(place - 1, 0)], FRACTIONS[min(place + 1, len(FRACTIONS) - 1)]
        minimize_scalar(at, bounds=ends, method="bounded", options={"maxiter": LOOKS})
    return min(found)


@lru_cache(maxsize=32)
def largest_nodes(n: int) -> tuple[Array, Array]:
    """Return trapezoidal nodes and masses of the largest of n standard normal numbers.

    The integrand is a mixture of normal densities of variance 1/(n + 1). The rule's relative error
    is at most 4 exp(-2 pi^2 / (step^2 (n + 1))): e^-40 at this step.
    """
    step = math.pi * math.sqrt(2.0 / (42.0 * (n + 1)))
    work(200.0 * BEYOND / step)
    w = np.arange(-BEYOND, BEYOND, step)
    masses = step * n * normal_density(w) * np.exp((n - 1) * log_ndtr(w)) * (1.0 + 1e-12)
    return w[masses > 0.0], masses[masses > 0.0]


def _largest_excess(n: int, shifts: Array, mu: float) -> Array:
    """Return means of the normal excess at the largest of n normal numbers plus each shift."""
    w, masses = largest_nodes(n)
    work(30.0 * w.size * shifts.size)
    return np.asarray(masses @ normal_excess(w[:, None] + shifts, mu))


def _thinned(w: Array, masses: Array) -> tuple[Array, Array, float]:
    """Keep the lowest of neighbouring nodes, with shares of its law there and beyond.

    A mass between two places is split between them so that its mean is kept. The first row of
    shares is for the returned nodes, the second for places above them by the returned number.
    """
    spacing = float(w[1] - w[0]) if w.size > 1 else TOGETHER
    shared = int(TOGETHER / spacing)
    if shared < 2:
        return w, masses[None], 0.0
    first = np.arange(0, w.size, shared)
    between = shared * spacing
    right = masses * np.clip((w - np.repeat(w[first], shared)[: w.size]) / between, 0.0, 1.0)
    shares = np.stack([masses - right, right])
    return w[first], np.add.reduceat(shares, first, axis=1), between


class _Sum:
    """Law of w + Xi at one theta_1 on the knots of the payoff, for all levels.

    The payoff is bounded by chords between knots, so a mass between two knots can be split between
    them. Rows that matter at the first or last of ``levels`` are computed, the others are bounded
    by the cap; the slope at the middle level is the tilt.
    """

    def __init__(
        self, setting: _Setting, theta1: float, levels: Levels, grid: Grid, *, logarithmic: bool
    ) -> None:
        n, ratio = setting.n, max(theta1 - setting.quadratic, 0.0) / setting.t
        step, points, moved = grid
        enough = max(ratio, MIN_RATIO) * math.sqrt(2.0 * BEND * n / moved)
        points = max(points, round(min(enough, points * math.sqrt(n / MANY))))
        w, masses = largest_nodes(n)
        cap = ratio * (1.0 - 1.0 / n)
        work(WORK_OF_BOUND + 10.0 * (2.0 * BEYOND + cap) / step)
        knots = np.arange(-BEYOND - step, BEYOND + TOGETHER + cap + 2.0 * step, step)
        self._payoff = _Payoff(knots, setting, ratio, step, logarithmic=logarithmic)
        self._chord = (1.0 + _chord_excess(step)) * (1.0 + ROUNDING)
        self._masses = np.zeros(knots.size)

        def add(x: Array, weights: Array) -> None:
            place = (x - knots[0]) / step
            left = np.clip(place.astype(np.intp), 0, knots.size - 2)
            right = np.clip(place - left, 0.0, 1.0) * weights
            for index, share in ((left, weights - right), (left + 1, right)):
                self._masses += np.bincount(index.ravel(), share.ravel(), knots.size)

        def add_rise(x: Array, length: float, weights: Array) -> None:
            """Add the rise of h from x - length to x, as a share of the rise between two knots."""
            left = np.floor((x - length - knots[0]) / step - 1e-6).astype(np.intp)
            right = np.ceil((x - knots[0]) / step + 1e-6).astype(np.intp)
            between = step * (right - left)
            share = length / between * np.exp((BEYOND + 1.0) * between)
            weights = weights * np.minimum(1.0, share * (1.0 + ROUNDING))
            self._masses += np.bincount(right, weights, knots.size)
            self._masses -= np.bincount(left, weights * (1.0 - 2.0 * ROUNDING), knots.size)

        if ratio == 0.0:
            add(w, masses)
            return
        # Take the cap where even that makes no difference to the result.
        kept = np.zeros(w.size, dtype=bool)
        for level in {levels[0], levels[2]}:
            most = masses * np.interp(w + cap, knots, self._payoff.heights(level))
            kept |= most > 1e-9 * most.sum()
        first, last = np.flatnonzero(kept)[[0, -1]]
        kept[first : last + 1] = True
        add(w[~kept] + cap, masses[~kept])
        w, shares, between = _thinned(w[kept], masses[kept])
        logs = np.log(self._payoff.heights(levels[1]))
        rise = np.interp(w + cap / 2.0, knots, logs) - np.interp(w, knots, logs)
        lam = np.clip(2.0 * rise / cap, 1e-6, 500.0 / ratio)
        cell = ratio / points
        window = cap - cell * (1.0 + ROUNDING + math.sqrt(n - 1.0))
        for rows, values, law, may_pass in _laws_of_xi(w, lam, ratio, n, points):
            values = np.minimum(values, cap)
            places = [(w[rows] + k * between, share[rows]) for k, share in enumerate(shares)]
            for x, weights in places:
                add(x[:, None] + values, weights[:, None] * law)
            if may_pass and grid != COARSE:
                # The cut at the cap is a concave kink: each term costs a rise of h over one cell
                # where the sum ends near the cap.
                near = np.where(values >= window, law, 0.0).sum(1) / -math.expm1(-2.0)
                chance = np.minimum(near, 1.0) * (1.0 + ROUNDING)
                for x, weights in places:
                    add_rise(x + cap, cell, (n - 1) * weights * chance)
        self._chord *= (1.0 + _chord_excess(ratio / points)) ** (n - 1)
        self._chord *= 1.0 + _chord_excess(between)

    def at(self, level: float) -> float:
        """Return the bound, in the logarithmic (A) or the quadratic form (B) of psi."""
        if level <= 0.0:
            return 1.0
        return self._chord * float(self._masses @ self._payoff.heights(level)) + SMALLEST


def _chord_excess(step: float) -> float:
    """Return the relative excess of the normal distribution function over its chords (L5)."""
    return BEND * step * step / float(ndtr(-step))


class _Payoff:
    """Upper bounds on h at equidistant knots of w + Xi: L4 of the proof."""

    def __init__(
        self, knots: Array, setting: _Setting, ratio: float, step: float, *, logarithmic: bool
    ) -> None:
        self._knots, self._setting, self._step = knots, setting, step
        self._theta, self._logarithmic = ratio * setting.t, logarithmic
        self._known: dict[float, tuple[float, Array]] = {}

    def _curve(self, top: float) -> tuple[float, Array]:
        """Return the first node, and psi at all nodes from ``top`` down to negligible noise."""
        if top not in self._known:
            setting, t, step = self._setting, self._setting.t, self._step
            shift = 2.0 * setting.quadratic / t
            first = top / t - shift
            lowest = max((-self._end - 1.0) / t - shift, -2.0 * BEYOND - 2.0)
            count = 2 + max(math.ceil((first - lowest) / step), 0)
            work(100.0 * count)
            s = first - step * np.arange(count)
            v = np.asarray(t * (s + shift))
            psi = _psi(v, setting, self._theta, logarithmic=self._logarithmic)
            # It increases with V: rounding of single values must not reverse that.
            psi = np.maximum.accumulate(psi[::-1])[::-1]
            self._known = {top: (first, psi * (1.0 + 4.0 * UNIT))}
        return self._known[top]

    @property
    def _end(self) -> float:
        """Return the point from which psi(V) = V."""
        gap = max(self._setting.kappa - self._setting.quadratic, 0.0)
        return 2.0 * (gap if self._logarithmic else self._theta)

    def heights(self, e: float) -> Array:
        """Return the bounds at one level."""
        setting, knots, step, m = self._setting, self._knots, self._step, self._end
        t, rate = setting.t, setting.rate
        shift = 2.0 * setting.quadratic / t
        found = np.full(knots.size, SMALLEST)
        # Above this the payoff counts as 1: it nearly is, or no noise gets there.
        top = min(m, e + CERTAIN / rate, t * (float(knots[-1]) + BEYOND + 1.0 + shift))
        whole = top == m
        if whole:
            start = max(m, e)
            rest = normal_excess(shift + knots - start / t, rate * t)
            found += math.exp(rate * (e - start)) * rest
        if m <= e:
            return found * (1.0 + ROUNDING)
        # Nodes from the top down to where the payoff is 0, or where noise practically never gets.
        first, psi = self._curve(top)
        above = rate * np.maximum(psi - e, 0.0)
        # Below the first node without a payoff there are no increments.
        above = above[: max(int(np.count_nonzero(above)) + 2, 2)]
        payoff = -np.expm1(-above)
        # Means between nodes; the lowest payoff counts as one of all that lies below.
        mean = payoff[1:] + np.exp(-above[1:]) * _mean_rise(above[:-1] - above[1:])
        ends = np.concatenate([[payoff[0] if whole else 1.0], mean, payoff[-1:]])
        weights = np.maximum(ends[:-1] - ends[1:], 0.0)
        found += payoff[-1]
        last = int(np.flatnonzero(weights > 0.0)[-1]) + 1 if weights.any() else 1
        # Knot i and node k meet at knots[0] - first + (i + k) step.
        places = knots[0] - first + step * np.arange(knots.size + last - 1)
        work(0.05 * knots.size * last)
        normal = ndtr(places + 1e-13 * (1.0 + np.abs(places)))
        found += (1.0 + _chord_excess(step)) * np.correlate(normal, weights[:last], "valid")
        return found * (1.0 + ROUNDING)


def _mean_rise(d: Array) -> Array:
    """Return an upper bound on 1 - (1 - e^-d) / d."""
    small = np.minimum(d, 0.02)
    series = small * (0.5 - small * (1.0 / 6.0 - small / 24.0))
    large = np.maximum(d, 0.02)
    return np.asarray(np.where(d <= 0.02, series, 1.0 + np.expm1(-large) / large + 1e-15))


def _price(x: float, kappa: float, m: int) -> float:
    """Return c_m(x): a rank m - 1 log-determinant less x times its trace, at most."""
    if m == 1 or x >= kappa:
        return 0.0
    trace = 1.0 - 1.0 / m
    if x > 0.0:
        trace = min(max((m - 1) * (1.0 / x - 1.0 / kappa), 0.0), trace)
    gain, cost = (m - 1) * math.log1p(kappa * trace / (m - 1)), x * trace
    return max(gain - cost, 0.0) + 1e-14 * (gain + cost)


def _psi(v: Array, setting: _Setting, theta: float, *, logarithmic: bool) -> Array:
    """Return an upper bound on psi at V = v."""
    if not logarithmic:
        if theta == 0.0:
            return np.maximum(v, 0.0)
        middle = np.maximum(v + 2.0 * theta, 0.0) ** 2 / (8.0 * theta)
        return np.asarray(np.where(v >= 2.0 * theta, v, middle))
    # A tangent of the concave l at any u bounds it: bisect for the best one.
    low, high = np.zeros(v.size), np.ones(v.size)
    for _ in range(45):
        u = 0.5 * (low + high)
        rises = v + _own_class(u, setting)[1] > 0.0
        low, high = np.where(rises, u, low), np.where(rises, high, u)
    u = 0.5 * (low + high)
    value, slope = _own_class(u, setting)
    size = np.abs(value) + np.abs(slope) * u + np.abs(v)
    found = value - slope * u + np.maximum(v + slope, 0.0) + 1e-14 * size
    # Two tangents are known without any search: at the ends.
    m = 2.0 * max(setting.kappa - setting.quadratic, 0.0)
    return np.asarray(np.minimum(found, np.maximum(v + m, 0.0)))


def _own_class(u: Array, setting: _Setting) -> tuple[Array, Array]:
    """Return l(u), the largest log(1 + kappa x) - omega x for x <= 2 u (1 - u), and its slope."""
    omega, kappa = setting.quadratic, setting.kappa
    most = max(1.0 / omega - 1.0 / kappa, 0.0)
    reach = 2.0 * u * (1.0 - u)
    x = np.minimum(reach, most)
    slope = np.where(reach < most, kappa / (1.0 + kappa * x) - omega, 0.0) * 2.0 * (1.0 - 2.0 * u)
    return np.asarray(np.log1p(kappa * x) - omega * x), np.asarray(slope)


def _laws_of_xi(w: Array, lam: Array, T: float, n: int, points: int) -> Any:
    """Yield rows of w with values and masses of a bound on Xi's law, and cells with the cap.

    A constant c removes c^2 T from the sum of n - 1 independent terms and leaves (2 T (1 - c) -
    gap)_+^2 / (4 T); the other form has terms half as large, with c = 0 and no constant. The one
    with the smallest exponential moment at ``lam`` is used.
    """
    work(300.0 * points * w.size)
    fine = 0.01 if n > MANY or points > COARSE[1] else 0.12
    offers = [(0.0, 8.0 * T), *((c, 4.0 * T) for c in np.arange(0.0, 0.98, fine))]
    costs = np.stack([_log_moment(w, lam, T, n, c, scale) for c, scale in offers])
    chosen = costs.argmin(axis=0)
    step = T / points
    grid = step * np.arange(points)
    # Neighbouring rows of one form, so many that an array of rows and points takes 8 MB.
    together = 1 + 2**20 // points
    groups = np.split(np.arange(w.size), 1 + np.flatnonzero(np.diff(chosen)))
    for rows in (
        group[k : k + together] for group in groups for k in range(0, group.size, together)
    ):
        c, scale = offers[chosen[rows[0]]]
        tilt = lam[rows, None]
        masses = _masses_of_term(w[rows], 2.0 * T * (1.0 - c), scale, step, points)
        with np.errstate(divide="ignore"):
            logs = np.log(masses) + tilt * np.append(grid, T)
        one = logsumexp(logs, axis=1, keepdims=True)
        inside, error = _power(np.exp(logs - one)[:, :points], n - 1)
        # Mass above the grid is above the cap: the caller puts it there.
        lost = np.maximum(1.0 + error - inside.sum(1, keepdims=True), 0.0)
        total = np.exp((n - 1) * one) * (1.0 + ROUNDING)
        law = inside * np.exp(-tilt * grid) * total
        rest = lost * np.exp(-tilt * T) * total
        values = np.append(grid, T) + T * c * c
        values = np.broadcast_to(values, (rows.size, points + 1))
        # For one term without a constant the cap, T / 2, is a point of the grid: no cell holds it.
        yield rows, values, np.append(law, rest, axis=1), n > 2 or c > 0.0


def _power(base: Array, exponent: int) -> tuple[Array, Array]:
    """Return upper bounds on convolution powers of rows, without mass above the grid.

    The total excess of each row's entries is returned too (L3 of the proof).
    """
    points = base.shape[1]
    size = 2 ** math.ceil(math.log2(2 * points))
    beyond = _beyond(base, exponent, size)
    at_once = beyond <= WRAPPED
    power, error = np.empty_like(base), np.empty((base.shape[0], 1))
    if at_once.any():
        power[at_once], error[at_once] = _power_at_once(base[at_once], exponent, size)
        error[at_once, 0] += beyond[at_once]
    if not at_once.all():
        power[~at_once], error[~at_once] = _power_by_squares(base[~at_once], exponent, size)
    return power, error


def _beyond(base: Array, exponent: int, size: int) -> Array:
    """Return Chernoff's bound on the mass of each row's power beyond ``size`` points."""
    if exponent == 1:
        # One factor has no points there.
        return np.zeros(base.shape[0])
    rates = np.array([40.0, 80.0, 160.0]) / size
    moments = base @ np.exp(np.outer(np.arange(base.shape[1]), rates))
    logs = exponent * (np.log(moments) + 1e-11) - size * rates * (1.0 - 1e-12)
    return np.asarray(np.exp(np.minimum(logs.min(axis=1), 0.0)))


def _power_at_once(base: Array, exponent: int, size: int) -> tuple[Array, Array]:
    """Return the power by spectra; mass that wraps around only adds to a row.

    The error also covers the rounding of ``base``, because it grows with the number of points.
    """
    result = power_of_spectrum(np.fft.rfft(base, size), exponent)
    norm = np.sqrt(np.sum(base * base, axis=1, keepdims=True))
    rounding = 16.0 * UNIT * (math.log2(size) + 1.0) * (exponent + 2.0) * norm
    entries = np.fft.irfft(result, size)[:, : base.shape[1]]
    return np.maximum(entries, 0.0) + rounding, 2.0 * base.shape[1] * rounding


def _power_by_squares(base: Array, exponent: int, size: int) -> tuple[Array, float]:
    """Return the power by repeated products, each cut at the end of the grid."""
    points = base.shape[1]
    rounding = 32.0 * math.log2(size) * UNIT

    def product(one: tuple[Array, float], other: tuple[Array, float]) -> tuple[Array, float]:
        spectra = np.fft.rfft(one[0], size) * np.fft.rfft(other[0], size)
        entries = np.maximum(np.fft.irfft(spectra, size)[:, :points], 0.0) + rounding
        return entries, (one[1] + other[1]) * (1.0 + 1e-6) + 2.0 * points * rounding

    square, result = (base, points * 1e-15), None
    while True:
        if exponent & 1:
            result = square if result is None else product(result, square)
        exponent >>= 1
        if not exponent:
            break
        square = product(square, square)
    assert result is not None
    return result


def _masses_of_term(w: Array, top: float, scale: float, step: float, points: int) -> Array:
    """Return masses of (top - gap)_+^2 / scale on 0, step, ..., keeping the mean.

    The mass at j is the mean of P(term > x) over the cell left of j minus that over the cell right
    of j. These means are bounded from above by the trapezoid rule where the probability is convex
    in x, the midpoint where it is concave, and the left end where the curvature changes sign: at
    the two roots of r^2 + (w - top) r + 1, r = sqrt(scale x) = top - gap.
    """
    largest = top * top / scale
    cells = step * np.arange(points + 1)
    x = np.unique(
        np.concatenate([cells, np.linspace(0.0, top, points + 1) ** 2 / scale, [largest]])
    )
    middle = 0.5 * (x[:-1] + x[1:])
    width = np.diff(x)
    ends, between = (_exceeds(w, top, scale, largest, places) for places in (x, middle))
    best = np.maximum(0.5 * (ends[:, :-1] + ends[:, 1:]), between)
    spread = np.sqrt(np.maximum((top - w) ** 2 - 4.0, 0.0))
    for root in (0.5 * (top - w + spread), 0.5 * (top - w - spread)):
        turn = np.where((top - w >= 2.0) & (root > 0.0), root * root / scale, -1.0)[:, None]
        best = np.where(
            (x[:-1] <= turn * (1.0 + 1e-9)) & (turn <= x[1:] * (1.0 + 1e-9)), ends[:, :-1], best
        )
    starts = np.searchsorted(x, cells)
    means = np.add.reduceat(best * width, np.minimum(starts[:-1], width.size - 1), axis=1) / step
    # A cell that starts where no term reaches has no mass.
    means = np.where(cells[:-1] < largest, means, 0.0) * (1.0 + 1e-13)
    means = np.maximum.accumulate(np.minimum(means, 1.0)[:, ::-1], axis=1)[:, ::-1]
    one, none = np.ones((w.size, 1)), np.zeros((w.size, 1))
    return np.asarray(-np.diff(np.concatenate([one, means, none], axis=1), axis=1))


def _exceeds(w: Array, top: float, scale: float, largest: float, x: Array) -> Array:
    """Return an upper bound on P(term > x | w) = P(gap < top - sqrt(scale x) | w)."""
    gap = np.maximum(top - np.sqrt(scale * np.minimum(x, largest)), 0.0)
    w, below = w[:, None], w[:, None] - gap
    # Both tails of the normal law, so that no digits are lost in either.
    right = ndtr(-below) - ndtr(-w) + 8.0 * UNIT * ndtr(-below)
    logs = log_ndtr(below), log_ndtr(w)
    left = -np.expm1(logs[0] - logs[1]) + 8.0 * UNIT * (1.0 - logs[0])
    found = np.where(w > 0.0, right / ndtr(w), left)
    return np.where(x < largest, np.clip(found, 0.0, 1.0), 0.0)


def _log_moment(w: Array, lam: Array, T: float, n: int, c: float, scale: float) -> Array:
    """Return the log of the exponential moment of the bound on Xi for given c and scale."""
    top = 2.0 * T * (1.0 - c)
    gap = 0.5 * top * (1.0 + _NODES)
    density = normal_density(w[:, None] - gap) / ndtr(w)[:, None]
    gain = np.expm1(lam[:, None] * (top - gap) ** 2 / scale)
    moment = 0.5 * top * ((density * gain) @ _WEIGHTS)
    return np.asarray(lam * T * c * c + (n - 1) * np.log1p(moment))


@lru_cache(maxsize=4096)
def objective_delta(
    law: str,
    n_scores: int,
    epsilon: float,
    sigma: float,
    *,
    kappa: float | None,
    jacobian: float | None,
    replace_one: bool,
    quickly: bool = False,
    near: float | None = None,
) -> float:
    """Return delta of one objective event, by the smallest proved bound.

    With ``quickly`` coarser grids are used. The result is still a bound, larger by about 1 %: by
    0.1 % at epsilons ``near`` the given one, and by a few percent if thousands of scores share a
    softmax.
    """
    t, K = 1.0 / sigma, n_scores
    how: dict[str, Any] = {"replace_one": replace_one, "quickly": quickly}
    if law == "softmax" and K == 2:
        # Only the difference of the two scores matters: one score with all of it doubled.
        law, K, t = "logistic", 1, math.sqrt(2.0) * t
        kappa = None if kappa is None else 2.0 * kappa
    c0 = float(jacobian or 0.0) if kappa is None else _smaller_price(law, K, kappa, t)
    zero = partial(_replaced if replace_one else _added, law, K, t=t, quickly=quickly)
    bounds = [_shifted(zero, epsilon - c0 * (1.0 + 1e-14))]
    if kappa is not None and law == "logistic" and not replace_one:
        bounds.append(
            one_score_delta(epsilon, t, kappa, quickly=quickly)
            if K == 1
            else sum_of_scores(t, K, kappa, quickly=quickly).delta(epsilon)
        )
    if kappa is not None and law == "softmax":
        bounds.append(joint_delta(epsilon, t, kappa, K, near=near, **how))
    if min(bounds) >= 1.0 and epsilon > 1.0:
        # A far tail may not be computable; delta only falls in epsilon.
        price = {"kappa": kappa, "jacobian": jacobian}
        return objective_delta(law, K, 0.5 * epsilon, 1.0 / t, **price, **how)
    # Rounding errors of a closed form, and underflow.
    return min(1.0, min(bounds) * (1.0 + 1e-12) + SMALLEST)


def event_delta(
    event: ObjectiveEvent, epsilon: float, *, quickly: bool = False, near: float | None = None
) -> float:
    """Return delta of an event; many bounds at once may use coarser grids ``near`` an epsilon."""
    return objective_delta(
        event.law,
        event.n_scores,
        epsilon,
        event.sigma,
        kappa=event.kappa,
        jacobian=event.jacobian,
        replace_one=event.adjacency == "replace_one",
        quickly=quickly,
        near=near,
    )


def jacobian_of(law: str, n_scores: int, kappa: float) -> float:
    """Return c0, the largest log-determinant of one record's Hessian."""
    K = n_scores
    if law == "softmax":
        return (K - 1) * math.log1p(kappa / K)
    if law == "weston_watkins":
        return math.log1p(K * kappa / 2.0) + (K - 2) * math.log1p(kappa / 2.0)
    return K * math.log1p(kappa / 4.0)


def trace_of(law: str, n_scores: int, kappa: float) -> float:
    """Return the largest trace of the Hessian of one record, or of a mean, divided by lambda."""
    if law == "softmax":
        return kappa * (1.0 - 1.0 / n_scores)
    return kappa * (n_scores - 1.0 if law == "weston_watkins" else 0.25 * n_scores)


def _smaller_price(law: str, K: int, kappa: float, t: float) -> float:
    """Return c0 less the quadratic term's share, for curvature u (1 - u) or of a softmax."""
    half = 0.5 * t * t
    if law == "softmax":
        S = min(max((K - 1) * (1.0 / half - 1.0 / kappa), 0.0), 1.0 - 1.0 / K)
        return (K - 1) * math.log1p(kappa * S / (K - 1)) - half * S
    if law == "logistic":
        g = min(max(1.0 / half - 1.0 / kappa, 0.0), 0.25)
        return K * (math.log1p(kappa * g) - half * g)
    return jacobian_of(law, K, kappa)


def _shifted(zero: Callable[[float], float], e: float) -> float:
    """Return delta at e = epsilon - c0 of either sign, from the delta of V at e >= 0."""
    return zero(e) if e >= 0.0 else -math.expm1(e) + math.exp(e) * zero(0.0)


def _added(law: str, K: int, e: float, t: float, *, quickly: bool = False) -> float:
    """Return delta for ``add_remove`` without a Jacobian, e >= 0."""
    if law == "softmax":
        return float(_largest_excess(K - 1, np.array([t - e / t]), t)[0])
    if law == "weston_watkins":
        # Two scores have one difference.
        if K == 2:
            return gaussian_delta(e, math.sqrt(2.0) * t)
        return sum_of_pairs(t, 0.5 * K * t * t, K, quickly=quickly).delta(e)
    return gaussian_delta(e, t) if K == 1 else sum_of_scores(t, K, None, quickly=quickly).delta(e)


def _replaced_pairs(K: int, x: float, t: float, *, quickly: bool) -> float:
    """Return twice the excess over x of one record's loss over pairs, ``replace_one``."""
    if K == 2:
        scale = 2.0 * math.sqrt(2.0) * t
        return 2.0 * float(normal_excess(np.array([-x / scale]), scale)[0])
    return 2.0 * sum_of_pairs(2.0 * t, 0.0, K, quickly=quickly).delta(x)


def _replaced(law: str, K: int, e: float, t: float, *, quickly: bool) -> float:
    """Return delta for ``replace_one`` without a Jacobian, e >= 0."""
    if law == "softmax":
        twice = _doubled(
            e - 4.0 * t * t,
            lambda x: 2.0 * float(_largest_excess(K - 1, np.array([-x / (2.0 * t)]), 2.0 * t)[0]),
            t,
        )
        return min(twice, _union_of_extremes(K, e, t))
    if law == "weston_watkins":
        return _doubled(
            e - 2.0 * K * (K - 1) * t * t,
            lambda x: _replaced_pairs(K, x, t, quickly=quickly),
            K * t,
        )
    if K > 1:
        return sum_of_scores(t, K, None, replace_one=True, quickly=quickly).delta(e)
    # Two gradients add up, or one of them acts alone; no probability is above 1.
    return _doubled(e, lambda x: gaussian_delta(x, 2.0 * t) + 2.0 * gaussian_delta(x, t), t)


def _doubled(e: float, excess: Callable[[float], float], scale: float) -> float:
    r"""Return delta of a loss Y >= 0 with a tail bounded by 1 and by that of ``excess``.

    ``excess(x)`` is :math:`\int_x^\infty e^{x - v} T(v) dv` of a tail T. For every s >= max(e, 0),
    :math:`\delta \le 1 - e^{e - s} + e^{e - s} \, excess(s)`; the smallest bound is where T is 1.
    """

    def bound(s: float) -> float:
        return -math.expm1(e - s) + math.exp(e - s) * excess(s)

    low = max(e, 0.0)
    found = bound(low)
    if found > 0.01:
        best = minimize_scalar(
            bound, bounds=(low, low + 8.0 * scale), method="bounded", options={"maxiter": 12}
        )
        found = min(found, float(best.fun))
    return found


def _union_of_extremes(K: int, e: float, t: float) -> float:
    """Return the union bound over pairs of extreme gradients of two records."""

    def pairs(scale: float) -> float:
        return gaussian_delta(e, math.sqrt(scale) * t)

    same = _added("softmax", K, e, 2.0 * t) + (K - 1) * (K - 2) * pairs(6.0)
    other = pairs(8.0) + 3 * (K - 2) * pairs(6.0) + (K - 2) * (K - 3) * pairs(4.0)
    return 2.0 * _added("softmax", K, e, t) + max(same, other)
