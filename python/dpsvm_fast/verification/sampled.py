r"""Composition with Poisson-sampled Gaussian sums, by tilted transforms, for verification.

Each privacy loss is moved to a grid: the mass of a cell is split between its ends so that both
neighbours' laws keep the mass of the cell (docs/proofs/accountant.md, "Connect the dots"). Masses
are tilted by :math:`e^{\lambda L}`; a product of transforms gives the law p of the tilted sum, and

.. math:: \delta(\epsilon) \le e^{K(\lambda) - \lambda \epsilon}
    \sum_y p(y) e^{-\lambda (y - \epsilon)} (1 - e^{\epsilon - y})_+ + \text{what lies beyond}

with K the log-moment of the sum on the grid. Any tilt and grid give a bound: they are chosen by
moments on a few nodes, and the grid is refined until delta settles. The rounding error of the
transforms, the mass above the grid and the truncated noise are added. No code is shared with the
compiled accountant.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, logsumexp, ndtr

from dpsvm_fast.rounding import NEARLY_ZERO
from dpsvm_fast.verification.losses import Curve, TooMuchWorkError, normal_excess, work

Array = NDArray[np.float64]

# Points of the first and of the finest common grid; delta has settled when it changes by less.
FIRST_POINTS, MAX_POINTS, SETTLED = 2**15, 2**20, 1e-4
# A smaller noise multiplier is not worth a grid.
MIN_NOISE = 1e-3
# Most cells of one law on a grid.
MAX_CELLS = 2**21
# Nodes to examine one law, and the work of that.
FIRST_NODES, WORK_OF_LOOK = 2**9, 2e4
# Noise is cut off where its density is below its maximum by this factor's logarithm. What is cut
# off must be this far below delta, or less is cut off.
FIRST_CUT, LAST_CUT, BELOW_DELTA = 40.0, 760.0, 1e-5
# Nodes whose tilted density is below its maximum by this factor's logarithm do not count.
DEPTH = 60.0
# Logarithm of the tilted mass that may be left outside the grid.
OUTSIDE = 45.0
# Logarithm by which exp(K - tilt * epsilon) may exceed delta: errors of the transform grow with it.
ABOVE_DELTA = 5.0
# Tilts beyond this belong to probabilities that are zero for every purpose.
LARGEST_TILT = 1e5
# Logarithm of the smallest bound that a tilt is chosen for; about what the transform's rounding
# adds to delta, and what each power to which it is raised does.
LOG_SMALLEST, ROUNDING, POWER_ROUNDING = -600.0, 1e-14, 2e-16

UNIT = 2.0**-53


@dataclass(frozen=True)
class Losses:
    """Composed privacy losses, for both directions of a neighbouring relation.

    Parameters
    ----------
    mu : float >= 0
        Gaussian parameter of all Gaussian mechanisms together.
    sampled : tuple of (noise multiplier, sampling rate, number of steps)
        Poisson-sampled Gaussian sums; the multiplier is relative to one record's contribution.
    pure : tuple of (epsilon, count)
        Randomised responses.
    curves : tuple of Curve
        Losses given by a curve.
    replace_one : bool
        Whether the relation is replace_one, on which the sampled sums depend.
    """

    mu: float = 0.0
    sampled: tuple[tuple[float, float, int], ...] = ()
    pure: tuple[tuple[float, int], ...] = ()
    curves: tuple[Curve, ...] = ()
    replace_one: bool = False


@lru_cache(maxsize=256)
def composed_delta(
    epsilon: float, losses: Losses, points: int = MAX_POINTS, enough: float = 0.0
) -> float:
    """Return an upper bound on delta at ``epsilon >= 0``; a bound below ``enough`` suffices."""
    directions = ("replace",) if losses.replace_one else ("remove", "add")
    bound = 1.0
    # If a record rarely joins, no grid may be fine enough.
    if len(losses.sampled) == 1 and not (losses.mu or losses.pure or losses.curves):
        ((z, q, steps),) = losses.sampled
        bound = _joined_delta(epsilon, (2.0 if losses.replace_one else 1.0) / z, q, steps)
    found = 0.0
    for way in directions:
        found = max(found, _directed_delta(epsilon, losses, way, points, max(found, enough)))
    return min(bound, found)


def _joined_delta(epsilon: float, mu: float, q: float, steps: int) -> float:
    """Return delta of steps of which a record joins J, by the Gaussian mechanism of J steps.

    See "Rarely joined steps" on the proof page.
    """
    if q >= 1.0:
        return 1.0
    some = -math.expm1(steps * math.log1p(-q))
    inner = math.log1p(math.expm1(epsilon) / some) if epsilon < 600.0 else epsilon - math.log(some)
    most = min(steps, math.ceil(2.0 * q * steps + 40.0 * math.sqrt(q * steps) + 200.0))
    work(100.0 * most)
    times = np.arange(1.0, most + 1.0)
    logs = gammaln(steps + 1.0) - gammaln(times + 1.0) - gammaln(steps - times + 1.0)
    logs += times * math.log(q) + (steps - times) * math.log1p(-q)
    # Rounding errors of large logarithms; beyond, terms fall by half and more.
    masses = np.exp(logs) * (1.0 + 1e-14 * (steps + 10.0) * (10.0 + math.log(steps + 1.0)))
    left = (inner * (1.0 - 1e-14)) / (np.sqrt(times) * mu)
    size = np.sqrt(times) * mu
    deltas = [
        float(normal_excess(np.array([0.5 * m - x]), m)[0]) for m, x in zip(size, left, strict=True)
    ]
    return min(1.0, float(masses @ np.array(deltas)) * (1.0 + 1e-12) + 2.0 * float(masses[-1]))


def _directed_delta(
    epsilon: float, losses: Losses, direction: str, points: int, enough: float
) -> float:
    """Return delta in one direction; a bound below ``enough`` suffices."""
    cut = FIRST_CUT
    while True:
        found = _Sum(losses, direction, cut)
        if found.largest <= epsilon:
            return 0.0
        delta, rest = found.delta(epsilon, points, enough)
        done = delta + rest <= enough or rest <= BELOW_DELTA * max(delta, enough)
        if done or cut >= LAST_CUT:
            return min(1.0, delta + rest)
        needed = cut + math.log(rest / BELOW_DELTA) - math.log(max(delta, enough, NEARLY_ZERO))
        cut = min(max(1.2 * cut, min(needed + 1.0, 2.0 * cut)), LAST_CUT)


class _Law:
    """One loss as a function of the noise: its value and log-density at any point."""

    def __init__(self, z: float, rate: float, direction: str, cut: float) -> None:
        self.z, self.rate, self.direction = z, rate, direction
        self.reach = math.sqrt(2.0 * cut) * z + 1.0

    def at(self, x: Array) -> tuple[Array, Array]:
        """Return loss and log-density (up to a constant) at points of the noise."""
        base = -0.5 * (x / self.z) ** 2
        up = self._ratio(x)
        if self.direction == "remove":
            return up, base + up
        if self.direction == "add":
            return -up, base
        return up - self._ratio(-x), base + up

    def _ratio(self, x: Array) -> Array:
        """Return the logarithm of (1-q) + q exp((2x - 1)/(2 z^2))."""
        shift = (x - 0.5) / (self.z * self.z)
        if self.rate == 1.0:
            return np.asarray(shift)
        small = self.rate * np.expm1(np.minimum(shift, 1.0))
        large = np.logaddexp(math.log1p(-self.rate), math.log(self.rate) + shift)
        return np.asarray(np.where(shift < 1.0, np.log1p(small), large))

    def nodes(self, tilt: float) -> tuple[Array, Array]:
        """Return losses and log-masses where the tilted density is not negligible."""
        reach = min(self.reach, 12.0 * self.z + 1.0 + 2.0 * abs(tilt))
        x = np.linspace(-reach, reach, FIRST_NODES)
        # Halve the interval around what matters until the first nodes resolve it.
        for _ in range(60):
            work(WORK_OF_LOOK)
            loss, log = self.at(x)
            tilted = tilt * loss + log
            inside = np.flatnonzero(tilted > float(tilted.max()) - DEPTH)
            low, high = x[max(inside[0] - 1, 0)], x[min(inside[-1] + 1, x.size - 1)]
            x = np.linspace(low, high, FIRST_NODES)
            if inside.size > 0.25 * FIRST_NODES:
                break
        loss, log = self.at(x)
        step = float(x[1] - x[0]) / (self.z * math.sqrt(2.0 * math.pi))
        return loss, log + math.log(step)


class _Dots(NamedTuple):
    """A loss on a grid: lowest place, masses, infinite mass, and error bound.

    The masses, up to the error bound, are those of a law that dominates the loss.
    """

    first: int
    masses: Array
    infinite: float
    slack: float


def _between(a: Array, b: Array) -> tuple[Array, Array]:
    """Return the normal probability of an interval, and a bound on its rounding error."""
    right = a > 0.0
    low, high = np.where(right, -b, a), np.where(right, -a, b)
    large = ndtr(high)
    return np.asarray(large - ndtr(low)), 16.0 * UNIT * large * (1.0 + high * high)


def _connected(
    first: int, step: float, own: tuple[Array, Array], other: tuple[Array, Array]
) -> Array:
    """Return masses at the ends of cells that keep each cell's mass under both laws.

    Cell j has losses from (first + j) step on; its masses come with error bounds.
    """
    left = step * (first + np.arange(own[0].size))
    factor = np.exp(left)
    mass = own[0] + own[1]
    surplus = own[0] - factor * other[0] + own[1] + factor * other[1] + 8.0 * UNIT * own[0]
    right = np.clip(surplus / -math.expm1(-step), 0.0, mass)
    return np.asarray(np.append(mass - right, 0.0) + np.append(0.0, right))


def _placed(losses: Array, masses: Array, step: float) -> _Dots:
    """Return single losses, each split between the ends of its cell."""
    cells = np.floor(losses / step)
    first, size = int(cells.min()), int(cells.max() - cells.min()) + 2
    if size >= 2 * MAX_CELLS:
        raise TooMuchWorkError
    share = -np.expm1(cells * step - losses) / -math.expm1(-step)
    share = np.clip(share + 1e-15 * np.abs(losses) / step + 1e-14, 0.0, 1.0)
    index = (cells - first).astype(np.intp)
    found: Array = np.bincount(index, masses * (1.0 - share), size).astype(np.float64)
    found += np.bincount(index + 1, masses * share, size)
    return _Dots(first, found, 0.0, 0.0)


def _gaussian_dots(mu: float, cut: float, step: float) -> _Dots:
    """Return a Gaussian loss on the grid: mu x + mu^2 / 2 of a standard normal x."""
    reach = math.sqrt(2.0 * cut) + 1.0
    low, high = (math.floor(mu * (0.5 * mu + x) / step) for x in (-reach, reach))
    if high - low >= 2 * MAX_CELLS:
        raise TooMuchWorkError
    places = step * np.arange(low, high + 1)
    x = np.asarray(places / mu - 0.5 * mu)
    masses = _connected(low, step, _between(x[:-1], x[1:]), _between(x[:-1] + mu, x[1:] + mu))
    masses[0] += float(ndtr(x[0]))
    slack = 8.0 * UNIT * (float(np.abs(places).max()) + mu * mu)
    return _Dots(low, masses, float(ndtr(-x[-1])) * (1.0 + 1e-9), slack)


def _sampled_dots(law: _Law, step: float) -> _Dots:
    """Return a sampled loss on the grid; its cells are intervals of the noise."""
    z, q, replaced = law.z, law.rate, law.direction == "replace"
    loss = float(law.at(np.array([law.reach]))[0][0])
    high = math.floor((loss if law.direction != "add" else -loss) / step)
    low = -high if replaced else math.floor(math.log1p(-q) / step)
    if not replaced:
        # No cells are needed where noise is improbable.
        least = float(law.at(np.array([-law.reach]))[0][0])
        low = max(low, math.floor((least if law.direction != "add" else -least) / step))
    if high - low >= 2 * MAX_CELLS or high < 1:
        raise TooMuchWorkError
    work(200.0 * (high - low))
    places = step * np.arange(low, high + 1)
    if replaced:
        # w = exp(x / z^2) is the root of q c w^2 - (1 - q) (e^l - 1) w - e^l q c, for l >= 0.
        size = np.abs(places)
        with np.errstate(divide="ignore"):
            one = math.log1p(-q) + np.where(size > 30.0, size, np.log(np.expm1(size)))
        two = math.log(2.0 * q) - 0.5 / (z * z) + 0.5 * size
        root = np.logaddexp(one, 0.5 * np.logaddexp(2.0 * one, 2.0 * two))
        x = np.sign(places) * z * z * (root - math.log(2.0 * q) + 0.5 / (z * z))
        known = x
    else:
        with np.errstate(divide="ignore", invalid="ignore"):
            near = np.log((np.expm1(np.minimum(places, 30.0)) + q) / q)
        large = np.maximum(places, 1.0)
        far = large + np.log1p((q - 1.0) * np.exp(-large)) - math.log(q)
        x = 0.5 + z * z * np.where(places > 30.0, far, near)
        # The lowest cell begins where the loss does, or the noise is cut off.
        if not (places[0] > math.log1p(-q) and np.isfinite(x[0])):
            x[0] = -math.inf
        known = x if np.isfinite(x[0]) else x[1:]
    found = law.at(known)[0] * (-1.0 if law.direction == "add" else 1.0)
    off = np.abs(found - places[-known.size :])
    slack = float(off.max()) + 8.0 * UNIT * float(np.abs(places).max())
    if not slack < 0.1 * step:
        raise TooMuchWorkError

    def mixed(centre: float) -> tuple[Array, Array]:
        still, moved = (_between((x[:-1] - c) / z, (x[1:] - c) / z) for c in (0.0, centre))
        return (1.0 - q) * still[0] + q * moved[0], (1.0 - q) * still[1] + q * moved[1]

    above = (1.0 - q) * float(ndtr(-x[-1] / z)) + q * float(ndtr((1.0 - x[-1]) / z))
    plain = _between(x[:-1] / z, x[1:] / z)
    if law.direction != "add":
        masses = _connected(low, step, mixed(1.0), mixed(-1.0) if replaced else plain)
        masses[0] += (1.0 - q) * float(ndtr(x[0] / z)) + q * float(ndtr((x[0] - 1.0) / z))
        return _Dots(low, masses, above * (1.0 + 1e-9), slack)
    # The same cells, reversed.
    own, other = ((one[0][::-1], one[1][::-1]) for one in (plain, mixed(1.0)))
    masses = _connected(-high, step, own, other)
    masses[0] += float(ndtr(-x[-1] / z))
    return _Dots(-high, masses, float(ndtr(x[0] / z)) * (1.0 + 1e-9), slack)


class _Sum:
    """The summed loss in one direction, its largest value, and the mass it leaves out."""

    def __init__(self, losses: Losses, direction: str, cut: float) -> None:
        whole = [(z, n) for z, q, n in losses.sampled if q >= 1.0 and z >= MIN_NOISE]
        moved = 2.0 if direction == "replace" else 1.0
        self._mu = math.hypot(losses.mu, *(moved * math.sqrt(n) / z for z, n in whole))
        # Steps with almost no noise reveal that a record joined.
        noiseless = [(q, n) for z, q, n in losses.sampled if z < MIN_NOISE]
        stays = math.fsum(n * math.log1p(-q) if q < 1.0 else -math.inf for q, n in noiseless)
        self._lost = -math.expm1(stays) * (1.0 + 1e-12)
        laws = [
            (_Law(z, q, direction, cut), count)
            for z, q, count in losses.sampled
            if q < 1.0 and z >= MIN_NOISE
        ]
        # Candidates, in units of the window, of what is added to the tilt for losses above it.
        self._shifts = np.geomspace(0.05, 20.0, 7)
        # For choices: losses and logarithms of masses at a few nodes. For bounds: grids.
        self._parts: list[tuple[Callable[[float], tuple[Array, Array]], int]] = []
        self._dots: list[tuple[Callable[[float], _Dots], int]] = []
        for law, count in laws:
            self._parts.append((law.nodes, count))
            self._dots.append((partial(_sampled_dots, law), count))
        # The largest loss of one law on a grid, of either sign.
        ends = [law.at(law.reach * np.array([-1.0, 1.0]))[0] for law, _ in laws]
        reaches = [float(np.abs(one).max()) for one in ends]
        reaches.append(self._mu * (0.5 * self._mu + math.sqrt(2.0 * cut) + 1.0))
        reaches += [curve.limit + 1.0 for curve in losses.curves]
        self._widest = 2.0 * max([*reaches, *(size for size, _ in losses.pure)])
        for size, count in losses.pure:
            # Randomised response.
            outcomes, logs = np.array([size, -size]), np.array([0.0, -size])
            logs -= math.log1p(math.exp(-size))
            self._parts.append((_constant((outcomes, logs)), count))
            masses = np.exp(logs) * (1.0 + 1e-15)
            self._dots.append((partial(_placed, outcomes, masses), count))
        for curve in losses.curves:
            values, masses, infinite = curve.atoms()
            self._parts.append((_constant((values, np.log(masses + 1e-300))), 1))
            self._dots.append((partial(_placed, values, masses), 1))
            # Losses known by a curve may be infinite, too.
            self._lost += infinite
        if self._mu:
            self._dots.append((partial(_gaussian_dots, self._mu, cut), 1))
        # Powers make it larger, so that there is less of it to lose.
        self._rounding = ROUNDING + POWER_ROUNDING * math.fsum(count for _, count in self._parts)
        self.largest = math.inf
        if direction == "add" and not (self._mu or self._lost or losses.curves):
            # No loss is beyond that of a record that was in no sample.
            self.largest = math.fsum(
                [-count * math.log1p(-law.rate) for law, count in laws]
                + [count * size for size, count in losses.pure]
            ) * (1.0 + 1e-14)

    def delta(self, epsilon: float, most: int, enough: float) -> tuple[float, float]:
        """Return delta at ``epsilon`` and the mass cut off, no more accurate than ``enough``."""
        if self._lost >= 1.0:
            return 1.0, 0.0
        tilt = self._tilt(epsilon)
        low, high = self._span(tilt)
        points, known, last = FIRST_POINTS, (math.inf, 1.0), math.inf
        while True:
            step = max((high - low) / points, self._widest / MAX_CELLS)
            found = min(known, self._on_grid(epsilon, tilt, low, step, points))
            settled = known[0] - found[0] <= SETTLED * found[0] or step >= last
            settled = settled or found[0] + found[1] <= enough
            if settled or points >= most:
                return found
            points, known, last = 2 * points, found, step

    def _on_grid(
        self, epsilon: float, tilt: float, low: float, step: float, size: int
    ) -> tuple[float, float]:
        """Return delta on a grid of ``size`` points from ``low``, and the mass cut off."""
        work(20 * size * (1 + len(self._dots)))
        laws = [(make(step), count) for make, count in self._dots]
        lower = epsilon - math.fsum(count * dots.slack for dots, count in laws)
        lower -= 1e-15 * (abs(low) + step * size)
        # Mass below the window wraps around to above it, and must not count.
        first = math.floor(min(low, lower) / step)
        end = (first + size) * step
        shifts = tilt + self._shifts * OUTSIDE / max(end - low, 1e-300)
        logs, moment, above = [], 0.0, np.zeros(shifts.size)
        for dots, count in laws:
            held = np.flatnonzero(dots.masses)
            places = step * (dots.first + held)
            log = np.log(dots.masses[held])
            tilted = log + tilt * places
            one = float(logsumexp(tilted))
            moment += count * one
            above += [count * float(logsumexp(log + s * places)) for s in shifts]
            logs.append((dots.first + held, tilted - one, count))
        # Any shift gives a bound: the one that was best on the first grid serves all.
        best = int(np.argmin(above - shifts * end))
        self._shifts = self._shifts[[best]]
        law, error = _law_of_sum(logs, size)
        steps = first + np.arange(size)
        beyond = np.maximum(step * steps - lower, 0.0)
        weights = np.exp(-tilt * beyond) * -np.expm1(-beyond)
        inside = float(law[np.mod(steps, size)] @ weights) + error * float(weights.sum())
        counts = math.fsum(count for _, count in laws)
        # Exponents and sums, in each of the laws.
        doubt = 1e-9 + counts * 16.0 * UNIT * (1.0 + tilt * step * size)
        delta = math.exp(min(moment - tilt * lower + doubt, 700.0)) * inside
        delta += math.exp(min(float(above[best] - shifts[best] * end) + doubt, 0.0)) + self._lost
        return min(1.0, delta), math.fsum(count * dots.infinite for dots, count in laws)

    def _moment(self, tilt: float) -> float:
        """Return the logarithm of the mean of exp(tilt * loss)."""
        total = 0.5 * self._mu**2 * tilt * (1.0 + tilt)
        for part, count in self._parts:
            loss, log = part(tilt)
            total += count * float(logsumexp(log + tilt * loss))
        return total

    def _spread(self, tilt: float) -> tuple[float, float]:
        """Return the mean and standard deviation of the tilted sum."""
        mean, square = self._mu**2 * (tilt + 0.5), self._mu**2
        for part, count in self._parts:
            loss, log = part(tilt)
            tilted = log + tilt * loss
            masses = np.exp(tilted - logsumexp(tilted))
            middle = float(masses @ loss)
            mean += count * middle
            square += count * float(masses @ (loss - middle) ** 2)
        return mean, math.sqrt(square)

    def _tilt(self, epsilon: float) -> float:
        """Return a tilt for which exp(K(tilt) - tilt * epsilon) is not far above delta."""
        if self._spread(0.0)[0] >= epsilon:
            return 0.0
        high = 1.0
        while self._spread(high)[0] < epsilon and high < LARGEST_TILT:
            high *= 2.0
        best = _crossing(lambda tilt: self._spread(tilt)[0] >= epsilon, high)
        # Delta itself is about that bound over tilt^2 and the spread.
        shrink = max(1.0, 2.5 * best * (1.0 + best) * self._spread(best)[1])
        bound = self._moment(best) - best * epsilon
        above = ABOVE_DELTA - math.log(self._rounding / ROUNDING)
        enough = max(bound, bound - math.log(shrink) + above)
        enough = max(enough, LOG_SMALLEST)
        if enough >= 0.0:
            return 0.0
        return _crossing(lambda tilt: self._moment(tilt) - tilt * epsilon <= enough, best)

    def _span(self, tilt: float) -> tuple[float, float]:
        """Return an interval with all but a negligible share of the tilted sum, by Chernoff."""
        deviation, at = self._spread(tilt)[1], self._moment(tilt)
        shifts = [min(2.0**k / deviation, LARGEST_TILT) for k in range(-4, 5)]
        high = min((self._moment(tilt + s) - at + OUTSIDE) / s for s in shifts)
        low = max((at - self._moment(tilt - s) - OUTSIDE) / s for s in shifts)
        return low, high


def _constant(nodes: tuple[Array, Array]) -> Callable[[float], tuple[Array, Array]]:
    """Return nodes that do not depend on the tilt."""
    return lambda _: nodes


def _crossing(holds: Callable[[float], bool], high: float) -> float:
    """Return the smallest tilt at which a monotone condition holds, to a few digits."""
    low = 0.0
    while high - low > 1e-4 * high:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _law_of_sum(parts: list[tuple[NDArray[np.intp], Array, int]], size: int) -> tuple[Array, float]:
    """Return the law of a sum on a ring, from places, log-masses and counts, and its error.

    The error bounds the rounding of any entry: "Composition by tilted transforms" on the proof
    page.
    """
    total: Any = np.zeros(size // 2 + 1, dtype=np.complex128)
    most, doubts, offs = np.zeros(total.size), np.zeros(total.size), []
    transform = 8.0 * (math.log2(size) + 2.0) * UNIT
    for places, log, count in parts:
        index = np.mod(places, size)
        ring = np.bincount(index, np.exp(log), size)
        entries = np.fft.rfft(ring)
        # The 2-norm of all errors of a spectrum, which bounds each.
        off = transform * math.sqrt(size) * float(np.linalg.norm(ring))
        bound = np.abs(entries) + off
        logs = np.log(bound)
        total += count * np.log(entries + 1e-300)
        most += count * logs
        doubts += count * 8.0 * UNIT * (4.0 + np.abs(logs))
        offs.append((count * off, logs))
    product, largest = np.exp(total), np.exp(most)
    # Powers: of the errors of the spectra by Cauchy and Schwarz, of roundings one by one.
    error = 2.0 * float((largest * np.minimum(np.expm1(np.minimum(doubts, 1.0)), 2.0)).sum()) / size
    for off, logs in offs:
        error += math.sqrt(2.0) * off * float(np.linalg.norm(np.exp(most - logs))) / size
    spectrum = math.sqrt(2.0 * float(np.sum(np.abs(product) ** 2)) / size)
    error += transform * spectrum
    return np.maximum(np.fft.irfft(product, size), 0.0), error
