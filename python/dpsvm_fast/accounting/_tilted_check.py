r"""Composition with Poisson-sampled Gaussian sums, for verification: tilted sums of sampled laws.

Each privacy loss is sampled on a fine grid of the noise itself, tilted by :math:`e^{\lambda L}`,
and its nodes are given to the three nearest points of a common grid so that mass, mean and variance
stay the same. One transform gives the law of the tilted sum, and

.. math:: \delta(\epsilon) = e^{K(\lambda) - \lambda \epsilon}
    \sum_y p_\lambda(y) e^{-\lambda (y - \epsilon)} (1 - e^{\epsilon - y})_+

with K the logarithm of the moments of the sum. Any tilt gives the same delta; the one taken is the
smallest that keeps the transform's rounding errors far below it. The grid is refined until delta
settles. Moments of a sampled loss are dominated, beyond some order, by noise that never occurs:
it is cut off where its probability is far below delta, and that probability is added to delta. All
is rounded to nearest where the promise rounded up, and no code is shared with the compiled
accountant, which moves mass from above to a grid of losses.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import logsumexp

from dpsvm_fast.accounting._work_check import work

__all__ = ["Losses", "composed_delta", "composed_epsilon"]

Array = NDArray[np.float64]

# Points of the first and of the finest common grid; delta has settled when it changes by less.
FIRST_POINTS, MOST_POINTS, SETTLED = 2**14, 2**21, 2e-5
# Nodes of one law, and of a first look at it; what such a look takes.
NODES, FIRST_NODES, WORK_OF_LOOK = 2**13, 2**9, 2e4
# Noise is cut off where its density is below its maximum by this factor's logarithm. What is cut
# off must be this far below delta, or less is cut off.
FIRST_CUT, LAST_CUT, BELOW_DELTA = 40.0, 760.0, 1e-5
# Nodes whose tilted density is below its maximum by this factor's logarithm do not count.
DEPTH = 60.0
# Logarithm of the tilted mass that may be left outside the grid.
OUTSIDE = 45.0
# Logarithm by which exp(K - tilt * epsilon) may exceed delta: the transform has 36 to lose.
ABOVE_DELTA = 16.0
# Between these an epsilon is sought; a smaller one counts as 0.
SMALLEST_EPSILON, LARGEST_EPSILON = 1e-9, 1e6
# Tilts beyond this belong to probabilities that are zero for every purpose.
LARGEST_TILT = 1e5
# Logarithm of a delta that counts as 0; what the transform's rounding may add to delta, and what
# each power to which it is raised may.
LOG_SMALLEST, ROUNDING, POWER_ROUNDING = -700.0, 1e-15, 2e-16


@dataclass(frozen=True)
class Losses:
    """Privacy losses that add up, for both directions of a neighbouring relation.

    Parameters
    ----------
    mu : float >= 0
        Parameter of all Gaussian mechanisms together.
    sampled : tuple of (noise multiplier, sampling rate, number of steps)
        Poisson-sampled Gaussian sums; the multiplier is relative to one record's contribution.
    pure : tuple of (epsilon, count)
        Randomised responses.
    replace_one : bool
        The relation, which the sampled sums depend on.
    """

    mu: float = 0.0
    sampled: tuple[tuple[float, float, int], ...] = ()
    pure: tuple[tuple[float, int], ...] = ()
    replace_one: bool = False


@lru_cache(maxsize=256)
def composed_delta(epsilon: float, losses: Losses) -> float:
    """Delta of the composition at ``epsilon >= 0``, to nearest."""
    directions = ("replace",) if losses.replace_one else ("remove", "add")
    return max(_directed_delta(epsilon, losses, direction) for direction in directions)


def _directed_delta(epsilon: float, losses: Losses, direction: str) -> float:
    """Delta in one direction, with as little of the noise as it takes."""
    cut = FIRST_CUT
    while True:
        found = _Sum(losses, direction, cut)
        if found.largest <= epsilon:
            return 0.0
        delta = found.delta(epsilon)
        if found.rest <= BELOW_DELTA * delta or cut >= LAST_CUT:
            return min(1.0, delta + found.rest)
        needed = cut + math.log(found.rest / BELOW_DELTA) - math.log(max(delta, 1e-320))
        cut = min(max(1.2 * cut, min(needed + 1.0, 2.0 * cut)), LAST_CUT)


@lru_cache(maxsize=64)
def composed_epsilon(delta: float, losses: Losses, near: float = 1.0) -> float:
    """Epsilon of the composition at ``delta``, to nearest; sought around ``near``."""
    if delta <= 0.0:
        return math.inf

    def excess(epsilon: float) -> float:
        return math.log(max(composed_delta(epsilon, losses), 1e-320) / delta)

    low, high, factor = 0.0, near, 1.25
    while excess(high) > 0.0:
        low, high, factor = high, factor * high, factor * factor
        if high > LARGEST_EPSILON:
            return math.inf
    while low == 0.0 and high > SMALLEST_EPSILON:
        if excess(high / factor) > 0.0:
            low = high / factor
        else:
            high, factor = high / factor, factor * factor
    return float(brentq(excess, low, high, xtol=1e-12, rtol=1e-7)) if low else 0.0


class _Law:
    """One loss as a function of the noise: its density's logarithm and its value at any point."""

    def __init__(self, z: float, rate: float, direction: str, cut: float) -> None:
        self.z, self.rate, self.direction = z, rate, direction
        self.reach = math.sqrt(2.0 * cut) * z + 1.0

    @property
    def rest(self) -> float:
        """Bound of the probability of noise beyond ``reach``."""
        return 2.0 * math.exp(-0.5 * ((self.reach - 1.0) / self.z) ** 2)

    def at(self, x: Array) -> tuple[Array, Array]:
        """Loss and logarithm of its density (up to a constant) at points of the noise."""
        base = -0.5 * (x / self.z) ** 2
        up = self._ratio(x)
        if self.direction == "remove":
            return up, base + up
        if self.direction == "add":
            return -up, base
        return up - self._ratio(-x), base + up

    def _ratio(self, x: Array) -> Array:
        """Logarithm of (1-q) + q exp((2x - 1)/(2 z^2))."""
        shift = (x - 0.5) / (self.z * self.z)
        if self.rate == 1.0:
            return np.asarray(shift)
        small = self.rate * np.expm1(np.minimum(shift, 1.0))
        large = np.logaddexp(math.log1p(-self.rate), math.log(self.rate) + shift)
        return np.asarray(np.where(shift < 1.0, np.log1p(small), large))

    def nodes(self, tilt: float, count: int) -> tuple[Array, Array]:
        """Losses and logarithms of their masses, where the tilted density is not negligible."""
        reach = min(self.reach, 12.0 * self.z + 1.0 + 2.0 * abs(tilt))
        x = np.linspace(-reach, reach, FIRST_NODES)
        # Halve the interval around what matters until the first nodes resolve it.
        for _ in range(60):
            work(WORK_OF_LOOK)
            loss, log = self.at(x)
            tilted = tilt * loss + log
            inside = np.flatnonzero(tilted > float(tilted.max()) - DEPTH)
            low, high = x[max(inside[0] - 1, 0)], x[min(inside[-1] + 1, x.size - 1)]
            done = inside.size > 0.25 * x.size
            x = np.linspace(low, high, count if done else FIRST_NODES)
            if done:
                break
        loss, log = self.at(x)
        step = float(x[1] - x[0]) / (self.z * math.sqrt(2.0 * math.pi))
        return loss, log + math.log(step)


def _response(size: float) -> tuple[Array, Array]:
    """Losses and logarithms of the masses of randomised response."""
    return np.array([size, -size]), np.array([0.0, -size]) - math.log1p(math.exp(-size))


class _Sum:
    """The summed loss in one direction, its largest value, and what it leaves out."""

    def __init__(self, losses: Losses, direction: str, cut: float) -> None:
        self._mu = losses.mu
        laws = [(_Law(z, q, direction, cut), count) for z, q, count in losses.sampled]
        # Of noise that is left out, in any of the steps.
        self.rest = math.fsum(law.rest * count for law, count in laws)
        self._parts: list[tuple[Callable[[float, int], tuple[Array, Array]], int]] = [
            (law.nodes, count) for law, count in laws
        ]
        for size, count in losses.pure:
            self._parts.append((_constant(_response(size)), count))
        # Powers make it larger, so that there is less of it to lose.
        self._rounding = ROUNDING + POWER_ROUNDING * math.fsum(count for _, count in self._parts)
        self.largest = math.inf
        if direction == "add" and not losses.mu and all(q < 1.0 for _, q, _ in losses.sampled):
            # No loss is beyond that of a record that was in no sample.
            self.largest = math.fsum(
                [-count * math.log1p(-q) for _, q, count in losses.sampled]
                + [count * size for size, count in losses.pure]
            )

    def delta(self, epsilon: float) -> float:
        """Delta at ``epsilon``."""
        tilt = self._tilt(epsilon)
        bound = self._moment(tilt, NODES) - tilt * epsilon
        if bound < LOG_SMALLEST:
            return 0.0
        low, high = self._span(tilt)
        nodes = [(*part(tilt, NODES), count) for part, count in self._parts]
        scale = math.exp(bound)
        points, known = FIRST_POINTS, math.inf
        while True:
            steps, masses = self._law_of_sum(tilt, nodes, low, (high - low) / points, points)
            beyond = steps - epsilon
            kept = beyond > 0.0
            weights = np.exp(-tilt * beyond[kept]) * -np.expm1(-beyond[kept])
            delta = min(1.0, scale * (max(float(masses[kept] @ weights), 0.0) + self._rounding))
            settled = SETTLED * delta + scale * self._rounding
            if abs(delta - known) <= settled or points >= MOST_POINTS:
                return delta
            points, known = 2 * points, delta

    def _law_of_sum(
        self, tilt: float, nodes: list[tuple[Array, Array, int]], low: float, step: float, size: int
    ) -> tuple[Array, Array]:
        """Points from ``low`` on, and the tilted masses of the sum there."""
        work(10 * size * (1 + len(nodes)))
        frequency = 2.0 * math.pi * np.fft.rfftfreq(size, step)
        square = self._mu * self._mu
        transform = np.exp(-1j * frequency * square * (tilt + 0.5) - 0.5 * square * frequency**2)
        for loss, log, count in nodes:
            tilted = log + tilt * loss
            ring = _assigned(loss / step, np.exp(tilted - logsumexp(tilted)), size)
            transform *= np.fft.rfft(ring) ** count
        steps = math.ceil(low / step) + np.arange(size)
        law: Array = np.fft.irfft(transform, size)[np.mod(steps, size)]
        return np.asarray(steps * step, dtype=np.float64), law

    def _moment(self, tilt: float, n_nodes: int = FIRST_NODES) -> float:
        """Logarithm of the mean of exp(tilt * loss)."""
        total = 0.5 * self._mu**2 * tilt * (1.0 + tilt)
        for part, count in self._parts:
            loss, log = part(tilt, n_nodes)
            total += count * float(logsumexp(log + tilt * loss))
        return total

    def _spread(self, tilt: float) -> tuple[float, float]:
        """Mean and standard deviation of the tilted sum."""
        mean, square = self._mu**2 * (tilt + 0.5), self._mu**2
        for part, count in self._parts:
            loss, log = part(tilt, FIRST_NODES)
            tilted = log + tilt * loss
            masses = np.exp(tilted - logsumexp(tilted))
            middle = float(masses @ loss)
            mean += count * middle
            square += count * float(masses @ (loss - middle) ** 2)
        return mean, math.sqrt(square)

    def _tilt(self, epsilon: float) -> float:
        """Tilt for which the bound exp(K(tilt) - tilt * epsilon) is not far above delta."""
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
        if enough >= 0.0:
            return 0.0
        return _crossing(lambda tilt: self._moment(tilt) - tilt * epsilon <= enough, best)

    def _span(self, tilt: float) -> tuple[float, float]:
        """Interval that holds all but a negligible share of the tilted sum, by Chernoff."""
        deviation, at = self._spread(tilt)[1], self._moment(tilt)
        shifts = [min(2.0**k / deviation, LARGEST_TILT) for k in range(-4, 5)]
        high = min((self._moment(tilt + s) - at + OUTSIDE) / s for s in shifts)
        low = max((at - self._moment(tilt - s) - OUTSIDE) / s for s in shifts)
        return low, high


def _constant(nodes: tuple[Array, Array]) -> Callable[[float, int], tuple[Array, Array]]:
    """Nodes that no tilt moves."""
    return lambda _tilt, _count: nodes


def _crossing(holds: Callable[[float], bool], high: float) -> float:
    """Least tilt at which a monotone condition holds, to a few digits."""
    low = 0.0
    while high - low > 1e-4 * high:
        middle = 0.5 * (low + high)
        if holds(middle):
            high = middle
        else:
            low = middle
    return high


def _assigned(places: Array, masses: Array, size: int) -> Array:
    """Masses on a ring of grid points, each given to three so that its first moments stay."""
    nearest = np.rint(places)
    off = places - nearest
    index = np.mod(nearest, size).astype(np.intp)
    ring = np.bincount(index, masses * (1.0 - off * off), size)
    ring += np.bincount((index + 1) % size, masses * 0.5 * (off * off + off), size)
    ring += np.bincount((index - 1) % size, masses * 0.5 * (off * off - off), size)
    return np.asarray(ring)
