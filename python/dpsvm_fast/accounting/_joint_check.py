r"""The joint bound of softmax objective perturbation, recomputed for verification.

Follows docs/proofs/joint_bound.md for ``add_remove`` and K > 2 classes: with n = K - 1, w the
largest of the n competitors' normal numbers and :math:`X = t \Xi`, for every
:math:`\theta_1 \in [\min(t^2/2, \kappa), \kappa]` and both forms of psi,

.. math:: \delta(\epsilon) \le \int d\Phi^n(w) \, E[h(t^2 + t w + X) \mid w], \quad
    h(c) = E_\zeta (1 - e^{e - \psi(c + t \zeta)})_+, \quad e = \epsilon - c(\theta_1).

The compiled version rounds each step up; this one integrates to nearest, so it stays a little below
it. The search over theta_1 is modest: every theta_1 gives a bound, and the best is flat.
For ``replace_one``, t^2/2 becomes t^2 and a second loss without a Jacobian is added.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_ndtr, logsumexp, ndtr

from dpsvm_fast.accounting._gaussian_check import normal_density, normal_excess
from dpsvm_fast.accounting._work_check import work

__all__ = ["joint_delta"]

Array = NDArray[np.float64]

# First guesses of theta_1 between its two ends, and steps of the golden section after them.
FRACTIONS = (0.0, 0.3, 0.55, 0.75, 0.87, 0.94, 1.0)
GOLDEN_STEPS = 5
# Larger ratios theta / t are useless: the search leaves them out.
LARGEST_RATIO = 12.0
# Steps of w (trapezoidal) and points of the law of Xi.
W_STEP, POINTS = 0.1, 512
# What one bound takes before the law of Xi.
WORK_OF_BOUND = 1e6

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)


@dataclass(frozen=True)
class _Setting:
    """What the bound depends on; ``quadratic`` is the factor of :math:`|p - e_y|^2` in the loss.

    With ``rate`` r the bound is of :math:`E (1 - e^{r (level - U)})_+`.
    """

    t: float
    kappa: float
    n: int
    quadratic: float
    rate: float


def joint_delta(epsilon: float, t: float, kappa: float, K: int, *, replace_one: bool) -> float:
    """Smallest joint bound over theta_1 and both forms."""
    if replace_one:
        return _replaced(epsilon, _Setting(t, kappa, K - 1, t * t, 2.0))
    setting = _Setting(t, kappa, K - 1, 0.5 * t * t, 1.0)
    forms = (True, False) if epsilon < 2.0 * kappa else (True,)
    return min(_searched(epsilon, setting, logarithmic=form)[0] for form in forms)


def _replaced(epsilon: float, setting: _Setting) -> float:
    r"""Two losses that may depend on each other in any way: the record's and its replacement's.

    The second has no Jacobian. For every split of the level,
    :math:`(1 - e^{a + b})_+ \le (1 - e^{2a})_+ + (1 - e^{2b})_+`, as a + b >= 2 min(a, b).
    """
    t, n = setting.t, setting.n
    w = np.arange(-9.0, 38.0, 0.02)
    masses = 0.02 * n * normal_density(w) * ndtr(w) ** (n - 1)

    def second(level: float) -> float:
        return float(masses @ normal_excess(w + 2.0 * t - level / t, 2.0 * t))

    best = 1.0
    for form in (True, False) if epsilon < 2.0 * setting.kappa else (True,):
        _, theta1 = _searched(0.5 * epsilon, setting, logarithmic=form)
        # Both parts fall about as fast in their levels, so the best split is near the middle.
        found = minimize_scalar(
            lambda first, form=form, theta1=theta1: (
                _fixed(first, setting, theta1, logarithmic=form) + second(epsilon - first)
            ),
            bounds=(0.3 * epsilon, 0.7 * epsilon),
            method="bounded",
            options={"maxiter": 12},
        )
        best = min(best, float(found.fun))
    return best


def _searched(epsilon: float, setting: _Setting, *, logarithmic: bool) -> tuple[float, float]:
    """Smallest bound over theta_1 of one form, and where: guesses, then a golden section."""
    low_end = min(setting.quadratic, setting.kappa)

    def at(fraction: float) -> tuple[float, float]:
        theta1 = low_end + (setting.kappa - low_end) * fraction
        if theta1 - setting.quadratic > LARGEST_RATIO * setting.t:
            return 1.0, theta1
        return _fixed(epsilon, setting, theta1, logarithmic=logarithmic), theta1

    if low_end == setting.kappa:
        return at(1.0)
    values = [at(fraction) for fraction in FRACTIONS]
    place = values.index(min(values))
    low, high = FRACTIONS[max(place - 1, 0)], FRACTIONS[min(place + 1, len(FRACTIONS) - 1)]
    best, ratio = values[place], (math.sqrt(5.0) - 1.0) / 2.0
    left, right = high - ratio * (high - low), low + ratio * (high - low)
    at_left, at_right = at(left), at(right)
    for _ in range(GOLDEN_STEPS):
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - ratio * (high - low)
            at_left = at(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + ratio * (high - low)
            at_right = at(right)
    return min(best, at_left, at_right)


def _fixed(epsilon: float, setting: _Setting, theta1: float, *, logarithmic: bool) -> float:
    """The bound at one theta_1, in the logarithmic (A) or the quadratic form (B) of psi."""
    n, ratio = setting.n, max(theta1 - setting.quadratic, 0.0) / setting.t
    e = epsilon - _price(theta1, setting.kappa, n if logarithmic else n + 1)
    if e <= 0.0:
        return 1.0
    work(WORK_OF_BOUND)
    w = np.arange(-9.0 if n <= 3 else -6.0, 38.0, W_STEP)
    masses = W_STEP * n * normal_density(w) * ndtr(w) ** (n - 1)
    knots = np.arange(-12.0, 38.0 + ratio + 1.0, 0.04)
    heights = np.log(np.maximum(_excess(knots, e, setting, ratio, logarithmic), 1e-320))
    if ratio == 0.0:
        return float(masses @ np.exp(np.interp(w, knots, heights)))
    cap = ratio * (1.0 - 1.0 / n)
    # Where even the cap makes no difference to the result, w needs no law of Xi.
    most = masses * np.exp(np.interp(w + cap, knots, heights))
    kept = most > 1e-7 * most.sum()
    w, masses = w[kept], masses[kept]
    if w.size == 0:
        return 0.0
    rise = np.interp(w + cap / 2.0, knots, heights) - np.interp(w, knots, heights)
    lam = np.clip(2.0 * rise / cap, 1e-6, 500.0 / ratio)
    values, law = _laws_of_xi(w, lam, ratio, n)
    inner = (law * np.exp(np.interp(w[:, None] + np.minimum(values, cap), knots, heights))).sum(1)
    return float(masses @ inner)


def _excess(w: Array, e: float, setting: _Setting, ratio: float, logarithmic: bool) -> Array:  # noqa: FBT001
    """Return h as a function of w + Xi, with psi(V) = V from ``end`` on."""
    t, rate, theta = setting.t, setting.rate, ratio * setting.t
    end = 2.0 * (setting.kappa - setting.quadratic) if logarithmic else 2.0 * theta
    v, weights = _panels(e, end)
    inverse = _inverse_psi(v, setting) if logarithmic else np.sqrt(8.0 * theta * v) - 2.0 * theta
    shift, above = 2.0 * setting.quadratic / t + w, max(e, end)
    body = ndtr(shift[:, None] - inverse / t) @ (weights * rate * np.exp(rate * (e - v)))
    tail = math.exp(rate * (e - above)) * normal_excess(shift - above / t, rate * t)
    return np.asarray(body + tail)


def _price(x: float, kappa: float, m: int) -> float:
    """c_m(x): what is left of a rank m - 1 Jacobian when x times its trace is taken away."""
    if m == 1 or x >= kappa:
        return 0.0
    trace = 1.0 - 1.0 / m
    if x > 0.0:
        trace = min(max((m - 1) * (1.0 / x - 1.0 / kappa), 0.0), trace)
    return (m - 1) * math.log1p(kappa * trace / (m - 1)) - x * trace


def _panels(low: float, high: float) -> tuple[Array, Array]:
    """Gauss-Legendre nodes and weights on 12 panels of [low, high]; none when that is empty."""
    if low >= high:
        return np.empty(0), np.empty(0)
    edges = np.linspace(low, high, 13)
    half = 0.5 * np.diff(edges)[:, None]
    return (edges[:-1, None] + half * (1.0 + _NODES)).ravel(), (half * _WEIGHTS).ravel()


def _inverse_psi(v: Array, setting: _Setting) -> Array:
    """Smallest V with psi(V) > v in the logarithmic form: inf over u of (v - l(u)) / u."""

    def height(u: Array) -> Array:
        return np.asarray((v[:, None] - _own_class(u, setting)) / u)

    logits = np.broadcast_to(np.linspace(-30.0, 30.0, 241), (v.size, 241))
    best, width = v.copy(), 0.25
    for _ in range(3):
        u = 1.0 / (1.0 + np.exp(-logits))
        values = height(u)
        place = values.argmin(axis=1)
        best = np.minimum(best, values.min(axis=1))
        logits = np.take_along_axis(logits, place[:, None], axis=1)
        logits = logits + np.linspace(-width, width, 33)
        width /= 16.0
    return best


def _own_class(u: Array, setting: _Setting) -> Array:
    """l(u): largest log(1 + kappa g s) - quadratic g s, g = u (1 - u), s in [1 + 1/n, 2]."""
    g, kappa = u * (1.0 - u), setting.kappa
    with np.errstate(divide="ignore"):
        s = np.clip((1.0 / setting.quadratic - 1.0 / kappa) / g, 1.0 + 1.0 / setting.n, 2.0)
    return np.asarray(np.log1p(kappa * g * s) - setting.quadratic * g * s)


def _laws_of_xi(w: Array, lam: Array, T: float, n: int) -> tuple[Array, Array]:
    """Values and masses of the bound of Xi at each w: a constant plus n - 1 iid terms.

    A constant c takes c^2 T out of the sum and leaves terms (2 T (1 - c) - gap)_+^2 / (4 T); the
    other form has terms half as large, with c = 0, and no constant. Whichever has the smallest
    exponential moment at ``lam`` is taken.
    """
    work(30 * POINTS * w.size)
    offers = [(0.0, 8.0 * T), *((c, 4.0 * T) for c in np.arange(0.0, 0.98, 0.04))]
    costs = np.stack([_log_moment(w, lam, T, n, c, scale) for c, scale in offers])
    chosen = costs.argmin(axis=0)
    c = np.array([offers[i][0] for i in chosen])[:, None]
    scale = np.array([offers[i][1] for i in chosen])[:, None]
    largest = (2.0 * T * (1.0 - c)) ** 2 / scale
    step = T / POINTS
    grid = step * np.arange(POINTS)

    def above(y: Any) -> Array:
        reach = np.minimum(y, largest)
        gap = 2.0 * T * (1.0 - c) - np.sqrt(scale * reach)
        probability = -np.expm1(log_ndtr(w[:, None] - gap) - log_ndtr(w[:, None]))
        return np.where(y < largest, probability, 0.0)

    ends = above(grid + 0.5 * step)
    masses = np.concatenate([1.0 - ends[:, :1], ends[:, :-1] - ends[:, 1:]], axis=1)
    logs = np.log(np.maximum(masses, 1e-320)) + lam[:, None] * grid
    one = logsumexp(logs, axis=1, keepdims=True)
    transform = np.fft.rfft(np.exp(logs - one), 2 * POINTS)
    tilted = np.maximum(np.fft.irfft(transform ** (n - 1), 2 * POINTS), 0.0)
    # What wraps around, or lies above the grid, is above the cap: the caller puts it there.
    inside = tilted[:, :POINTS]
    lost = np.maximum(1.0 - inside.sum(1, keepdims=True), 0.0)
    total = np.exp((n - 1) * one)
    law = inside * np.exp(-lam[:, None] * grid) * total
    rest = lost * np.exp(-lam[:, None] * T) * total
    values = grid + T * c * c
    return np.concatenate([values, np.full_like(c, T)], 1), np.concatenate([law, rest], 1)


def _log_moment(w: Array, lam: Array, T: float, n: int, c: float, scale: float) -> Array:
    """Logarithm of the exponential moment of the bound of Xi at one choice of c and scale."""
    top = 2.0 * T * (1.0 - c)
    gap = 0.5 * top * (1.0 + _NODES)
    density = normal_density(w[:, None] - gap) / ndtr(w)[:, None]
    gain = np.expm1(lam[:, None] * (top - gap) ** 2 / scale)
    moment = 0.5 * top * ((density * gain) @ _WEIGHTS)
    return np.asarray(lam * T * c * c + (n - 1) * np.log1p(moment))
