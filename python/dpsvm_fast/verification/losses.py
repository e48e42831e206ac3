r"""Upper bounds on delta for sums of privacy losses: Gaussian losses, tables, curves.

A curve is a table of upper bounds on delta, with the loss distribution derived from it.

A table bounds delta at some epsilons, for both directions. Delta is convex in :math:`e^\epsilon`,
so it lies below the chords of the table in :math:`e^\epsilon`, and below the greatest convex
function under these, which is the curve of a loss with finitely many values.

The best of K runs has :math:`h(s) = \sup_u (a(u) - a(B(u)) s)_+`, and with :math:`w_j` the mass
that the second derivative of h has at :math:`s_j`, times :math:`s_j`,
:math:`\delta_A(\epsilon) = \sum_j w_j \delta(\epsilon - \log s_j)`. h is bounded from above on
cells of u and by chords in s (docs/proofs/accountant.md, "What verify computes").
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize_scalar
from scipy.special import erfcx, log_ndtr, logsumexp, ndtr

from dpsvm_fast.rounding import subnormal

# Limit on the work of a verification, which the maker of the certificate must not decide.


# Entries of arrays in a computation, which take about 4 ns each.
MAX_WORK = 2.5e9

_left: ContextVar[float] = ContextVar("work that is left", default=math.inf)


class TooMuchWorkError(Exception):
    """A recomputation takes more work than allowed for certificates of fits."""


@contextmanager
def limited_work() -> Iterator[None]:
    """Limit the work of the body to ``MAX_WORK`` operations, counted and not timed."""
    token = _left.set(MAX_WORK)
    try:
        yield
    finally:
        _left.reset(token)


def work(amount: float) -> None:
    """Declare an amount of work before doing it.

    Raises
    ------
    TooMuchWorkError
        The work exceeds what is left.
    """
    left = _left.get() - amount
    _left.set(left)
    if left < 0.0:
        raise TooMuchWorkError


# Delta of Gaussian noise from SciPy's tail functions, for verification.
#
# .. math:: \delta = \varphi(x) \, [m(-x) - m(y)], \quad x = \tfrac{\mu}{2} - \tfrac{\epsilon}{\mu},
#     \quad y = \tfrac{\mu}{2} + \tfrac{\epsilon}{\mu},
#
# with :math:`m(t) = (1 - \Phi(t)) / \varphi(t)` the Mills ratio, because
# :math:`e^\epsilon \varphi(y) = \varphi(x)`. Shares no numerical code with the calibration.


# Largest relative error of SciPy's functions.
ROUNDING = 2e-15
# A Gaussian parameter below which differences of Mills ratios are taken by their slope; that adds
# at most t^2 / 6 of delta.
SMALL_MU, MIDDLE = 1e-4, 5.0
MAX_FLOAT = sys.float_info.max
# Gauss-Legendre on [-1, 1]: the slope is smooth and the interval at most 1 long.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Return delta of the Gaussian mechanism."""
    if math.isnan(mu):
        return 1.0
    if mu <= 0.0:
        return 0.0
    x, y = mu / 2.0 - epsilon / mu, mu / 2.0 + epsilon / mu
    if not (math.isfinite(x) and math.isfinite(y)):
        return 1.0 if mu > 1.0 else 0.0
    if x > 0.0 and mu >= 1.0:
        # Both terms are of the order of delta here.
        first, second = float(log_ndtr(x)), float(epsilon + log_ndtr(-y))
        # Never larger than the first, except for the rounding of absurd numbers: then at least
        # delta is returned.
        return math.exp(first) - (math.exp(second) if second < first else 0.0)
    density = math.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)
    if mu >= 1.0:
        return density * float(_mills(-x) - _mills(y))
    # The two arguments are only mu apart: integrate the slope instead of subtracting.
    middle, half = epsilon / mu, mu / 2.0
    points = middle + half * _NODES
    return density * half * float(_WEIGHTS @ (1.0 - points * _mills(points)))


def two_sided_delta(epsilon: float, mu: float) -> float:
    """Return delta of a Gaussian loss (mu = 0: of no loss) at any real epsilon."""
    if mu == 0.0:
        return max(0.0, -math.expm1(min(epsilon, 0.0)))
    if epsilon >= 0.0:
        return gaussian_delta(epsilon, mu)
    return 1.0 - math.exp(epsilon) * (1.0 - gaussian_delta(-epsilon, mu))


def two_sided_deltas(epsilon: NDArray[np.float64], mu: float) -> NDArray[np.float64]:
    """Return upper bounds on delta of a Gaussian loss, or of no loss, at any real epsilons."""
    if mu == 0.0:
        return np.asarray(np.maximum(-np.expm1(np.minimum(epsilon, 0.0)), 0.0))
    return normal_excess(0.5 * mu - epsilon / mu, mu)


def gaussian_epsilon(delta: float, mu: float) -> float:
    """Return epsilon of the Gaussian mechanism at ``delta``, for comparison with the claim."""
    if delta == 0.0 or not math.isfinite(mu):
        return math.inf
    if gaussian_delta(0.0, mu) <= delta:
        return 0.0
    return crossing(lambda e: gaussian_delta(e, mu) - delta, 0.0, mu, rtol=1e-14, maxiter=2000)


def crossing(
    excess: Callable[[float], float], low: float, high: float, most: float = MAX_FLOAT, **how: Any
) -> float:
    """Return where a falling function of epsilon is 0, above ``low`` and perhaps ``high``.

    Infinity if it is positive up to ``most``. Tolerances are those of SciPy's ``brentq``.
    """
    while excess(high) > 0.0:
        low, high = high, 2.0 * high
        if high > most:
            return math.inf
    return float(brentq(excess, low, high, **({"xtol": 1e-300} | how)))


def normal_excess(a: NDArray[np.float64], t: float) -> NDArray[np.float64]:
    r"""Return an upper bound on :math:`E (1 - e^{-t (a + z)})_+` at each a, z standard normal."""
    below = np.minimum(a, 0.0)
    mills = _mills(-below)
    above = np.maximum(a, 0.0)
    body = ndtr(above) * (1.0 + ROUNDING) - np.exp(0.5 * t * t - above * t + log_ndtr(above - t))
    if t > SMALL_MU:
        tail = normal_density(below) * (mills * (1.0 + ROUNDING) - _mills(t - below))
        return np.asarray(np.maximum(np.where(a <= 0.0, tail, body), 0.0) * (1.0 + 1e-12))
    # Two ratios that differ by less than what they are rounded to: their slope is convex, so they
    # differ by no more than its trapezoid. On the other side 1 - exp(-x) is below x.
    x = -np.minimum(a, MIDDLE)
    tail = normal_density(x) * 0.5 * t * (_slope(x) + _slope(x + t))
    line = t * (above * ndtr(above) + normal_density(above)) * (1.0 + ROUNDING)
    return np.asarray(np.where(a < MIDDLE, tail, np.minimum(body, line)) * (1.0 + 1e-12))


def normal_density(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the density of the standard normal law."""
    return np.asarray(np.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi))


def _slope(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return an upper bound on the decrease of the Mills ratio at x."""
    return np.asarray(1.0 - x * _mills(x) + ROUNDING * np.abs(x) * _mills(x))


def _mills(t: Any) -> Any:
    """Return the Mills ratio, tail over density; its slope is ``t * _mills(t) - 1``."""
    return math.sqrt(math.pi / 2.0) * erfcx(t / math.sqrt(2.0))


# Cost of distances from the described laws, recomputed for verification.


# Points to search first for the best epsilon.
GRID_POINTS = 65
# A cost below this share of delta is not worth a smaller epsilon.
NEGLIGIBLE_DISTANCE = 1e-9


def cost(distance: float, epsilon: float) -> float:
    r"""Return :math:`(1 + e^\epsilon) T`, at most 1."""
    if distance == 0.0:
        return 0.0
    return min(1.0, distance + math.exp(min(0.0, epsilon + math.log(distance))))


def least_delta(
    rest: Callable[[float], float], distance: float, kink: float, epsilon: float
) -> tuple[float, float]:
    """Return the smallest delta up to a given epsilon, and its epsilon.

    Parameters
    ----------
    rest : function of an epsilon
        Delta of all other losses, decreasing in epsilon.
    distance : float > 0
    kink : float >= 0
        Epsilon beyond which ``rest`` may be constant.
    epsilon : float >= 0
    """
    # Beyond this the distance alone costs 1.
    top = min(epsilon, max(0.0, -math.log(distance)))

    def whole(x: float) -> float:
        return min(1.0, rest(x) + cost(distance, x))

    at_top = whole(top)
    if cost(distance, top) <= NEGLIGIBLE_DISTANCE * at_top or top <= 0.0:
        return at_top, top
    # It falls before it rises, with a corner where everything else is pure.
    points = [kink, *np.linspace(0.0, top, GRID_POINTS)]
    at_best, best = min((whole(float(x)), float(x)) for x in points if x <= top)
    step = top / (GRID_POINTS - 1)
    near = (max(0.0, best - step), min(top, best + step))
    found = minimize_scalar(whole, bounds=near, method="bounded", options={"xatol": 1e-10})
    return min((at_top, top), (at_best, best), (float(found.fun), float(found.x)))


# Upper bounds for sums of independent privacy losses, for verification.
#
# A loss Y >= 0 is given by thresholds z(v) with :math:`P(Y > v) \le \Phi(-z(v))`, z concave. On a
# grid, mass is moved to both ends of its cell so that it and :math:`E e^{-Y}` stay: that is the law
# whose mass at a grid point is the mean of the tail over the cell left of it, less that over the
# cell right of it, means with the weight :math:`e^{-v}`. As :math:`(1 - e^{\epsilon - \sum Y})_+`
# is convex in each :math:`e^{-Y}`, it can only gain. Tilting by :math:`e^{\lambda y}` puts the tail
# that matters where a transform is accurate; what the transform and everything beyond the grid may
# come to is added. docs/proofs/objective_perturbation.md, "Independent recomputation".


Array = NDArray[np.float64]

# Grid points of one convolution, and of each of many.
POINTS, FEW_POINTS = 2**17, 2**14
# Factor by which there are fewer for one of many bounds.
COARSER = 16
# Knots of a table of thresholds, and cells of an integral.
KNOTS, CELLS = 4096, 2**18
# Logarithm of the tilted mass that is left outside a grid.
OUTSIDE = 45.0
# Beyond this above epsilon an integral against exp(epsilon - v) is bounded at once.
FARTHEST = 64.0
# Largest relative error of functions and sums. A tail that is smaller than SMALLEST, where
# functions underflow, counts as that of an infinite loss.
SUM_ROUNDING, SMALLEST = 1e-12, subnormal("1e-309")
# Logarithm of a bound below which no better one is searched.
MIN_BOUND = -704.0

UNIT = 2.0**-53
# Pairs of scores up to which the law of their sum is computed.
MAX_PAIRS = 48


def one_score_delta(epsilon: float, t: float, kappa: float, *, quickly: bool = False) -> float:
    """Return delta of one score whose curvature is proportional to u (1 - u)."""
    start = max(epsilon, kappa - 0.5 * t * t)
    # From there on the supremum is attained at u = 1, where there is no curvature.
    rest = math.exp(epsilon - start) * gaussian_delta(start, t)
    if start == epsilon:
        return rest
    # Farther out the integrand is less than e^-64 of what it was; with much noise it falls steeply
    # near the logarithm of the largest curvature.
    high = min(start, epsilon + FARTHEST)
    if quickly:
        # Between the knots of a table the threshold is above its chords.
        knots, table = _thresholds(t, kappa, CELLS // COARSER)
        work(10.0 * knots.size)
        v = np.concatenate([[epsilon], knots[(knots > epsilon) & (knots < high)], [high]])
        z = np.interp(v, knots, table)
    else:
        v = _dense(epsilon, high, t, kappa, CELLS)
        z = one_score_threshold(v, t, kappa)
    means = cell_means(z, np.diff(v))
    weights = np.exp(epsilon - v[:-1]) * -np.expm1(-np.diff(v))
    far = math.exp(epsilon - high) * float(ndtr(-z[-1])) if high < start else 0.0
    return float(rest + (weights @ means + far) * (1.0 + SUM_ROUNDING))


@lru_cache(maxsize=16)
def _thresholds(t: float, kappa: float, count: int) -> tuple[Array, Array]:
    """Return the losses below the point without curvature, and their thresholds."""
    v = _dense(0.0, max(kappa - 0.5 * t * t, 0.0), t, kappa, count)
    return v, one_score_threshold(v, t, kappa)


def _dense(low: float, high: float, t: float, kappa: float, count: int) -> Array:
    """Return points from low to high, denser where a loss with this curvature is steep."""
    steep = math.log1p(0.25 * kappa) + t * np.linspace(-9.0, 9.0, count // 2 + 1)
    small = low + (high - low) * np.geomspace(1e-9, 1.0, count // 8)
    even = np.linspace(low, high, count // 2 + 1)
    return np.unique(np.concatenate([even, small, np.clip(steep, low, high)]))


def one_score_threshold(v: Array, t: float, kappa: float) -> Array:
    r"""Return a lower bound on the smallest z at which the loss exceeds v.

    The infimum over u of :math:`(v - \psi(u))/(t u)`, :math:`\psi = t^2 u^2/2 + \log(1 + \kappa u
    (1 - u))`. It is attained at u = 1 or at the only root of :math:`\psi - u \psi' = v` in one of
    the at most two intervals where psi is concave, and the roots are bisected.
    """
    work(8.0 * 64.0 * v.size)
    square = t * t
    # psi is concave where 1 / (1 + kappa g), g = u (1 - u), is above this.
    four = kappa * kappa + 4.0 * kappa
    least = (kappa + math.sqrt(kappa * kappa + square * four)) / four
    g = min((1.0 / least - 1.0) / kappa, 0.25) if least < 1.0 else 0.0
    turn = 0.5 * (1.0 - math.sqrt(1.0 - 4.0 * g))

    def terms(u: Array) -> tuple[Array, Array]:
        bend = kappa * u * (1.0 - u)
        return np.log1p(bend), kappa * u * (1.0 - 2.0 * u) / (1.0 + bend)

    def height(u: Array) -> Array:
        log, _ = terms(u)
        half = 0.5 * square * u * u
        doubt = 8.0 * UNIT * (v + half + log)
        return np.asarray((v - half - log - doubt) / (t * u))

    found = height(np.ones(v.size))
    for start, end in ((0.0, turn), (1.0 - turn, 1.0)) if g < 0.25 else ((0.0, 1.0),):
        low, high = np.full(v.size, start), np.full(v.size, end)
        for _ in range(64):
            u = 0.5 * (low + high)
            log, slope = terms(u)
            below = log - slope - 0.5 * square * u * u < v
            low, high = np.where(below, u, low), np.where(below, high, u)
        for u in (low, high):
            inside = np.maximum(u, 1e-18)
            found = np.minimum(found, height(inside))
    # At 0 the infimum is a limit.
    return np.asarray(np.where(v <= 0.0, -(kappa + 0.5 * square) / t, found))


def cell_means(z: Array, step: Any) -> Array:
    """Return upper bounds on the means of a tail over cells, from thresholds at the edges.

    Means have the weight exp(-v). Between the ends a concave threshold is above its chord, and the
    tail along the chord is convex above 0 (below its own chord) and concave below 0 (below its
    value at the mean place); where z changes its sign, the left end counts.
    """
    # Lower bound of the mean place in a cell.
    place = np.maximum(0.5 - np.asarray(step) / 12.0, 0.0)
    left, right = z[..., :-1], z[..., 1:]
    tail = ndtr(-z)
    chord = (1.0 - place) * tail[..., :-1] + place * tail[..., 1:]
    means = np.where(right <= 0.0, ndtr(-(left + place * (right - left))), chord)
    means = np.where((left < 0.0) & (right > 0.0), tail[..., :-1], means)
    return np.asarray(np.minimum(means * (1.0 + SUM_ROUNDING), 1.0))


def _masses(means: Array) -> Array:
    """Return masses on a grid from 0, from the means of the tail over its cells."""
    falling = np.maximum.accumulate(means[..., ::-1], axis=-1)[..., ::-1]
    falling = np.where(falling < SMALLEST, 0.0, falling)
    ends = np.ones((*means.shape[:-1], 1)), np.zeros((*means.shape[:-1], 1))
    return np.asarray(-np.diff(np.concatenate([ends[0], falling, ends[1]], axis=-1), axis=-1))


@dataclass(eq=False)
class SumOfLosses:
    r""":math:`E (1 - e^{\epsilon - Y})_+` at any epsilon, Y a mixture of sums of n equal losses.

    Given its row of the mixture, Y is a sum of independent losses of one law.

    Parameters
    ----------
    n : int
    log_weights : ndarray
        Logarithms of the masses of the mixture's rows.
    lams, moments : ndarray
        Tilts, increasing from 0, and the log-moments of one loss of each row at each tilt.
    means : function of the rows and of a grid
        Upper bounds on the means of one loss's tail over the cells, for each row.
    points : int
        Number of grid points.
    """

    n: int
    log_weights: Array
    lams: Array
    moments: Array
    means: Callable[[Any, Array], Array]
    points: int

    def __post_init__(self) -> None:
        self._whole = logsumexp(self.log_weights[:, None] + self.n * self.moments, axis=0)
        self._known: dict[int, tuple[Array, Array, float, float, float, float]] = {}

    def delta(self, epsilon: float) -> float:
        """Return the bound with the best tilt."""
        bounds = (self._whole - self.lams * epsilon)[:-1]
        place = int(np.argmin(bounds))
        lam = float(self.lams[place])
        if bounds[place] < MIN_BOUND:
            return math.exp(bounds[place]) * 2.0 + self.n * SMALLEST
        if place not in self._known:
            self._known[place] = self._law(place)
        grid, law, error, total, lost, rest = self._known[place]
        work(6 * grid.size)
        first = int(np.searchsorted(grid, epsilon, "right"))
        beyond = grid[first:] - epsilon
        weights = np.exp(-lam * beyond) * -np.expm1(-beyond)
        inside = float(law[first:] @ weights) + error * float(np.linalg.norm(weights))
        found = math.exp(min(total - lam * epsilon, 700.0)) * inside * (1.0 + 1e-11 * self.n)
        return found + math.exp(min(lost - lam * epsilon, 0.0)) + rest + self.n * SMALLEST

    def _law(self, place: int) -> tuple[Array, Array, float, float, float, float]:
        """Return the law of the tilted sum on a grid, the 2-norm of its error, and the rest.

        The rest consists of the log-moments of the law and of negligible rows, and the probability
        of a sum above the grid.
        """
        n, lam, more = self.n, self.lams[place], self.lams[place + 1 :]
        # Above the reach there is less than e^-OUTSIDE of the tilted sum.
        rises = self._whole[place + 1 :] - self._whole[place]
        reach = float(((rises + OUTSIDE) / (more - lam)).min())
        grid = np.linspace(0.0, reach, self.points)
        shares = self.log_weights + n * self.moments[:, place]
        kept = shares > shares.max() - OUTSIDE
        lost = float(logsumexp(shares[~kept])) if not kept.all() else -math.inf
        work(60 * grid.size * int(kept.sum()))
        masses = _masses(self.means(kept, grid))
        with np.errstate(divide="ignore"):
            tilted = np.log(np.maximum(masses, 0.0)) + lam * grid
        scale = logsumexp(tilted, axis=1)
        laws, error = power(np.exp(tilted - scale[:, None]), n)
        shares = self.log_weights[kept] + n * scale
        total = float(logsumexp(shares))
        # A loss above the grid, or a sum of losses that each were moved up by a cell at most.
        above = float((self._whole + self.lams * (n * grid[1] - reach)).min())
        rest = n * float(np.exp(self.log_weights[kept]) @ masses[:, -1])
        rest += math.exp(min(above, 0.0)) * (1.0 + 1e-9)
        return grid, np.exp(shares - total) @ laws, error, total, lost, rest


@lru_cache(maxsize=16)
def sum_of_scores(
    t: float, n: int, kappa: float | None, *, replace_one: bool = False, quickly: bool = False
) -> SumOfLosses:
    """Return the sum of n independent one-score losses."""
    top = (4.0 if replace_one else 1.0) * t * (t + 38.0)
    knots, table = np.zeros(1), np.zeros(1)
    if kappa is not None:
        knots, table = _thresholds(t, kappa, KNOTS // (4 if quickly else 1))
        top = min(top + float(knots[-1]), math.log1p(0.25 * kappa) + t * (t + 38.0))

    def means(_: Any, v: Array) -> Array:
        step = v[1] - v[0]
        # Less by what rounding takes from a difference of large numbers.
        plain = v / t - 0.5 * t - 8.0 * UNIT * (v / t + t)
        if replace_one:
            both = v / (2.0 * t) - t - 8.0 * UNIT * (v / t + t)
            tails = cell_means(both, step) + 2.0 * cell_means(plain, step)
            return np.minimum(tails, 1.0)[None, :]
        if kappa is not None:
            plain = np.where(v >= knots[-1], plain, np.interp(v, knots, table))
        return cell_means(plain, step)[None, :]

    # Moments on a coarse grid are larger than the true ones.
    grid = np.linspace(0.0, top, 4001)
    work(4001 * 100)
    with np.errstate(divide="ignore"):
        logs = np.log(np.maximum(_masses(means(None, grid))[0], 0.0))
    lams = np.concatenate([[0.0], np.geomspace(1e-3, 1e4, 48) / top])
    moments = np.array([[float(logsumexp(logs + lam * grid)) for lam in lams]])
    points = POINTS // (COARSER if quickly else 1)
    return SumOfLosses(n, np.zeros(1), lams, moments, means, points)


class ConcentratedSum:
    """Sum over many classes k of max(0, drift + s (z_k - z_y)), one cell of z_y at a time.

    Given z_y, the tail is bounded by 1 up to the mean and by a normal tail beyond. The bound
    decreases in z_y, so each cell is bounded at its left end:
    docs/proofs/objective_perturbation.md, "Many pairs".
    """

    def __init__(self, s: float, drift: float, n: int, cells: float) -> None:
        # 0 is an edge, and the last cell has no end.
        parts = [(-38.0, -14.0, 128.0), (-14.0, 6.0, cells), (6.0, 12.0, 16.0)]
        left = np.concatenate([np.arange(a, b, 1.0 / each) for a, b, each in parts] + [[12.0]])
        right = np.append(left[1:], math.inf)
        tails = ndtr(-np.maximum(-right, left)) - ndtr(-np.maximum(-left, right))
        self._masses = tails * (1.0 + SUM_ROUNDING)
        a = drift / s - left
        excess = np.maximum(a * ndtr(a) + normal_density(a), 0.0) + 1e-14 * (1.0 + np.abs(a))
        self._means, self._deviation = n * s * excess, s * math.sqrt(n)

    def delta(self, epsilon: float) -> float:
        r"""Return a bound on :math:`E (1 - e^{\epsilon - Y})_+`."""
        work(20 * self._means.size)
        short = np.minimum((epsilon - self._means) * (1.0 + 4.0 * UNIT), 0.0)
        beyond = (self._means - np.maximum(epsilon, self._means)) / self._deviation
        tails = normal_excess(beyond * (1.0 - 4.0 * UNIT), self._deviation)
        curve = -np.expm1(short) + np.exp(short) * tails
        return min(1.0, float(self._masses @ curve) + SMALLEST)


@lru_cache(maxsize=16)
def sum_of_pairs(
    s: float, drift: float, K: int, *, quickly: bool = False
) -> SumOfLosses | ConcentratedSum:
    r"""Return the sum over classes k of max(0, drift + s (z_k - z_y)), z standard normal."""
    if K - 1 > MAX_PAIRS:
        return ConcentratedSum(s, drift, K - 1, 256.0 if quickly else 1024.0)
    z, masses = _normal_nodes(K)
    shifts = drift - s * z

    def means(rows: Any, v: Array) -> Array:
        return cell_means((v - shifts[rows, None]) / s, v[1] - v[0])

    # The generating function of one loss is known.
    lams = np.concatenate([[0.0], np.geomspace(1e-2, 60.0, 60)]) / s
    a = shifts[:, None]
    work(100 * a.size * lams.size)
    rises = lams * a + 0.5 * (lams * s) ** 2 + log_ndtr(a / s + lams * s)
    moments = np.logaddexp(log_ndtr(-a / s), rises)
    points = FEW_POINTS // (4 if quickly else 1)
    return SumOfLosses(K - 1, np.log(masses), lams, moments, means, points)


def _normal_nodes(K: int) -> tuple[Array, Array]:
    """Return nodes and masses of the standard normal distribution, far into both tails.

    The integrand is a mixture of normal densities of variance 1/K. The rule's relative error is at
    most 4 exp(-2 pi^2 / (step^2 K)): e^-40 at this step.
    """
    step = math.pi * math.sqrt(2.0 / (42.0 * K))
    z = np.arange(-38.0, 38.0, step)
    return z, step * normal_density(z) * (1.0 + 1e-12)


def power(masses: Array, n: int) -> tuple[Array, float]:
    """Return the convolution power of masses with sums at most 1, and the 2-norm of its error.

    Mass beyond the grid wraps around, where it only adds.
    """
    points = masses.shape[-1]
    size = 2 ** math.ceil(math.log2(2 * points))
    spectrum = power_of_spectrum(np.fft.rfft(masses, size), n)
    law = np.maximum(np.fft.irfft(spectrum, size)[..., :points], 0.0)
    return law, (8.0 * (math.log2(size) + 2.0) * (n + 1) + 8.0 * n) * UNIT


def power_of_spectrum(base: Any, exponent: int) -> Any:
    """Return a power as products, each with the rounding error of one multiplication."""
    result = np.ones_like(base)
    while exponent:
        if exponent & 1:
            result *= base
        exponent >>= 1
        if exponent:
            base = base * base
    return result


# Logarithm of the smallest delta of a table, and the largest epsilon.
DEPTH, LARGEST = -41.0, 300.0
# By how much log delta falls between points of a table: its square over 12 is lost.
FALL = 0.025
# Most points of a table.
MAX_POINTS, FULL_TABLE = 3000, 2500.0
# Points of u and of s, lines that bound what u can become, and orders of Renyi divergences: first
# looked at, and around the best of these.
POINTS_U, POINTS_S, LINES = 3000, 6000, 4001

ORDERS, NEAR_ORDERS = 500, 100

_ALL_ORDERS = np.geomspace(1e-4, 1e7, ORDERS)
# A bend of what u can become in one cell, relative to it, that counts as a corner.
CORNER = 2e-4
# More than the roundings of a value.
CURVE_ROUNDING = 1e-12


class Curve:
    """Upper bound on delta at any real epsilon, in both directions.

    Parameters
    ----------
    epsilons : ndarray, increasing from 0
    deltas : ndarray of values in (0, 1]
    """

    def __init__(self, epsilons: Array, deltas: Array) -> None:
        self._x = epsilons
        self._g = np.minimum(_convex(epsilons, deltas) * (1.0 + CURVE_ROUNDING), 1.0)

    @classmethod
    def of(
        cls,
        delta: Callable[[float], float],
        fall: float = FALL,
        depth: float = DEPTH,
        largest: float = LARGEST,
    ) -> Curve:
        """Tabulate a function at points between which its logarithm falls by about ``fall``."""
        x, g = [0.0], [min(1.0, delta(0.0))]
        if g[0] <= 0.0:
            return cls(np.array([0.0, 1.0]), np.array([1e-300, 1e-300]))
        enough = max(math.exp(depth), delta(largest) * (1.0 + 1e-6))
        step = fall * max(g[0], 1e-9)
        while g[-1] > enough and x[-1] < largest and len(x) < MAX_POINTS:
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
        """Return the curve with more points where they matter for losses near ``epsilon``.

        ``below``: distribution function of the other losses. A chord between points that differ by
        f in log delta is too high by a relative f^2 / 12; its effect is weighted by the probability
        of the sum.
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
    def vacuous(cls) -> Curve:
        """Return the curve of an unknown loss: delta = 1 everywhere."""
        return cls(np.array([0.0, 1.0]), np.ones(2))

    @property
    def limit(self) -> float:
        """Epsilon at which the table ends."""
        return float(self._x[-2])

    def at(self, epsilon: Array) -> Array:
        """Return values at any epsilons: chords in exp(epsilon), constant beyond the table."""
        size = np.minimum(np.abs(epsilon), self._x[-1])
        left = np.clip(np.searchsorted(self._x, size, "right") - 1, 0, self._x.size - 2)
        share = np.expm1(size - self._x[left]) / np.expm1(np.diff(self._x))[left]
        value = self._g[left] - share * (self._g[left] - self._g[left + 1])
        mirrored = -np.expm1(-np.abs(epsilon)) + np.exp(-np.abs(epsilon)) * value
        found = np.where(epsilon < 0.0, mirrored, value) * (1.0 + CURVE_ROUNDING)
        return np.asarray(np.minimum(found, 1.0))

    def atoms(self) -> tuple[Array, Array, float]:
        """Return losses and masses with this curve, and the mass of an infinite loss.

        Above 0 a corner at epsilon has mass exp(epsilon) times the change of slope; below 0 the
        other direction's corners are used, and the remaining mass is at 0.
        """
        gap, fall = np.diff(self._x), -np.diff(self._g)
        # A slope times exp of its left and of its right end, and what rounding may change it by.
        before, after = fall / -np.expm1(-gap), fall / np.expm1(gap)
        doubt = 1e-15 * self._g[:-1] / -np.expm1(-gap)
        masses = np.maximum(before - np.append(after[1:], 0.0), 0.0)
        masses += doubt + np.append(doubt[1:], 0.0)
        x, infinite = self._x[1:], float(self._g[-1])
        mirrored = masses * np.exp(-x)
        at_zero = (
            max(1.0 - infinite - float(masses.sum()) - float(mirrored.sum()), 0.0) + CURVE_ROUNDING
        )
        return (
            np.concatenate([-x[::-1], [0.0], x]),
            np.concatenate([mirrored[::-1], [at_zero], masses]),
            infinite,
        )


def _convex(x: Array, g: Array) -> Array:
    """Return the greatest convex function of exp(epsilon) below the curve, in both directions.

    Delta is convex, so this function bounds it too.
    """
    mirrored = -np.expm1(-x[:0:-1]) + np.exp(-x[:0:-1]) * g[:0:-1]
    alpha = np.concatenate([[0.0], np.exp(-x[:0:-1]), np.exp(x)])
    value = np.concatenate([[1.0], mirrored, g])
    kept = _hull(alpha, value)
    found = np.interp(alpha, alpha[kept], value[kept])
    return np.asarray(np.minimum(found[-x.size :], g))


def _hull(x: Array, y: Array) -> list[int]:
    """Return the indices of the lower convex hull of points with increasing x."""
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
    """Return delta of rho-zCDP at ``epsilon >= 0``, by the best of many orders."""

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
    return math.exp(min(0.0, least)) * (1.0 + CURVE_ROUNDING)


@lru_cache(maxsize=32)
def zcdp_curve(
    rho: float, fall: float = FALL, reach: tuple[float, float] = (DEPTH, LARGEST)
) -> Curve:
    """Return the curve of rho-zCDP."""
    fall = max(fall, -reach[0] / FULL_TABLE)
    return Curve.of(lambda epsilon: zcdp_delta(rho, epsilon), fall, *reach)


def _weight(kind: str, gamma: float, mean: float, u: Array) -> Array:
    """Return the density ratio of the best run to one run."""
    if kind == "poisson":
        return np.asarray(mean * np.exp(-mean * u))
    rest = gamma + (1.0 - gamma) * u
    if kind == "geometric":
        return np.asarray(gamma / rest**2)
    return np.asarray((gamma - 1.0) / (math.log(gamma) * rest))


def stopped_curve(kind: str, gamma: float, mean: float, base: Curve, rho: float | None) -> Curve:
    """Return the curve of the best of K runs; with ``rho`` each run is rho-zCDP."""
    work(8 * POINTS_U * (LINES + POINTS_S))
    top, bottom = _weights_of_runs(kind, gamma, mean, base)
    with np.errstate(divide="ignore"):
        last = float(np.max(np.log(top) - np.log(bottom))) + CURVE_ROUNDING
    if not last < 500.0:
        return Curve.vacuous()
    log_s = np.linspace(min(-8.0, -2.0 * last), last, POINTS_S)
    s = np.append(0.0, np.exp(log_s))
    h = np.array([max(0.0, float((top - bottom * point).max())) for point in s])
    # h is convex: below its chords, and below the greatest convex function under them.
    kept = _hull(s, h * (1.0 + CURVE_ROUNDING))
    s, h = s[kept], h[kept] * (1.0 + CURVE_ROUNDING)
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
    """Return pairs (a, b) with a(u) - a(B(u)) s <= max(a - b s) for every s >= 0.

    The density a is decreasing and convex, and so is a(B(u)) with B a minimum of lines. On a cell
    of u, a is below its chord and a(B(u)) above the chords of both neighbouring cells: the
    difference is largest at an end of the cell, or where those chords meet.
    """
    # If runs tell little, all is decided within a few hundredths of a half.
    u = np.unique(np.append(np.geomspace(1e-18, 1.0, POINTS_U), np.linspace(0.0, 1.0, POINTS_U)))
    x = np.linspace(-base.limit, base.limit, LINES)
    lines, starts = np.exp(x), base.at(x)

    def reached(points: Array) -> Array:
        # Column by column: the whole table would be large.
        return np.array([min(1.0, float((lines * point + starts).min())) for point in points])

    reach = reached(u)
    for _ in range(2):
        # Corners of B are separate points: where the lines of two cells meet.
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
    a, b = _weight(kind, gamma, mean, u), _weight(kind, gamma, mean, reach * (1.0 + CURVE_ROUNDING))
    gap, slope = np.diff(u), np.diff(b) / np.diff(u)
    # Intersections of the chords of the cells before and after, and their heights.
    with np.errstate(divide="ignore", invalid="ignore"):
        place = (b[2:-1] - b[1:-2] - slope[2:] * gap[1:-1]) / (slope[:-2] - slope[2:])
    place = np.clip(np.nan_to_num(place, nan=0.0), 0.0, gap[1:-1])
    low = np.maximum(b[1:-2] + slope[:-2] * place, b[2:-1] - slope[2:] * (gap[1:-1] - place))
    inner = a[1:-2] + (a[2:-1] - a[1:-2]) * place / gap[1:-1]
    # The first cell has no cell before it, the last none after it.
    ends = np.array([b[1] - slope[1] * gap[0], b[-2] + slope[-2] * gap[-1]])
    top = np.concatenate([a, inner, [a[0], a[-1]]]) * (1.0 + CURVE_ROUNDING)
    bottom = np.concatenate([b, low, np.maximum(ends, b[-1])]) * (1.0 - CURVE_ROUNDING)
    return top, bottom


def _upper_tail(kind: str, gamma: float, mean: float, d: float) -> float:
    """Return the mass 1 - E (1 - d)^K of the best run on an event of mass d."""
    if kind == "poisson":
        return 1.0 - math.exp(-mean * d)
    rest = gamma + (1.0 - gamma) * d
    return d / rest if kind == "geometric" else 1.0 - math.log(rest) / math.log(gamma)


def _renyi_curve(kind: str, gamma: float, mean: float, rho: float) -> Callable[[float], float]:
    """Return the curve by Theorems 2 and 6 of Papernot and Steinke, over many orders."""
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
