r"""Slow scipy twins of the laws of objective perturbation's privacy loss, and of the pure bounds.

Throughout t = row norm / sigma, kappa = row norm^2 / (regularization * temperature), z is standard
normal, and a law is a random variable U, at least c0, that the privacy loss does not exceed. So

.. math:: \delta(\epsilon) = (1 - e^{\epsilon - c_0})_+
          + \int_{\max(\epsilon, c_0)}^\infty e^{\epsilon - u} P(U > u) du.

Here e = epsilon - c0. Every survival function is integrated numerically; nothing is shared with
the closed forms of the compiled module. Where a convolution is needed the law is rounded down and
up to a grid, which brackets it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize_scalar
from scipy.special import log_ndtr, ndtr

Array = NDArray[np.float64]
Survival = Callable[[Array], Array]

NODES, WEIGHTS = np.polynomial.legendre.leggauss(8)


def panels(edges: Array) -> tuple[Array, Array]:
    """Gauss-Legendre nodes and weights on consecutive panels."""
    width = np.diff(edges)
    nodes = edges[:-1, None] + 0.5 * width[:, None] * (NODES + 1.0)
    return nodes.ravel(), (0.5 * width[:, None] * WEIGHTS).ravel()


def delta_of(survival: Survival, e: float, t: float) -> float:
    """Integral of the module's text for a law with c0 = 0 that varies on the scale t."""
    start = max(e, 0.0)
    steps, weights = panels(np.append(0.0, np.geomspace(1e-5, 60.0, 160)))
    u = start + t * steps
    tail = float((weights * t * np.exp(e - u) * survival(u)).sum())
    return -math.expm1(min(e, 0.0)) + tail


def gaussian_delta(e: float, mu: float) -> float:
    """The Gaussian mechanism with sensitivity / sigma = mu, for e >= 0."""
    first = float(log_ndtr(0.5 * mu - e / mu))
    second = e + float(log_ndtr(-0.5 * mu - e / mu))
    return -math.exp(first) * math.expm1(min(second - first, 0.0))


def rival_survival(x: Array, n_classes: int) -> Array:
    """P(max over the other classes of z_k - z_y > x)."""
    w, weights = panels(np.linspace(-12.0, 12.0, 61))
    density = weights * np.exp(-0.5 * w * w) / math.sqrt(2.0 * math.pi)
    density *= (n_classes - 1) * ndtr(w) ** (n_classes - 2)
    return np.asarray(np.exp(log_ndtr(w[None, :] - np.asarray(x)[:, None])) @ density)


def softmax_delta(e: float, t: float, n_classes: int) -> float:
    """U = max(0, t^2 + t max_{k != y} (z_k - z_y)): add or remove."""
    return delta_of(lambda u: rival_survival(u / t - t, n_classes), e, t)


def one_score_delta(e: float, t: float) -> float:
    """U = max(0, t^2 / 2 + t z): add or remove, one score."""
    return delta_of(lambda u: ndtr(0.5 * t - u / t), e, t)


def curved_survival(kappa: float, t: float) -> Survival:
    """P(S > v), S = sup over u of t u z + t^2 u^2 / 2 + log(1 + kappa u (1 - u)): one score."""
    u = np.concatenate([np.geomspace(1e-7, 0.02, 300, endpoint=False), np.linspace(0.02, 1.0, 900)])
    gain = 0.5 * (t * u) ** 2 + np.log1p(kappa * u * (1.0 - u))

    def survival(v: Array) -> Array:
        least = ((np.asarray(v)[:, None] - gain) / (t * u)).min(axis=1)
        return np.asarray(ndtr(-least))

    return survival


def curved_delta(epsilon: float, t: float, kappa: float) -> float:
    """One score with curvature u (1 - u) / temperature where the gradient has size u."""
    return delta_of(curved_survival(kappa, t), epsilon, t)


def softmax_replaced_delta(e: float, t: float, n_classes: int) -> float:
    """The smaller of the two bounds for a replaced record, e >= 0."""
    K = n_classes

    def law(u: Array) -> Array:
        half = 0.5 * (u - 4.0 * t * t) / t
        return np.where(half <= 0.0, 1.0, np.minimum(1.0, 2.0 * rival_survival(half, K)))

    first = delta_of(law, e, t)
    twice = softmax_delta(e, 2.0 * t, K)
    six, eight, two = (gaussian_delta(e, r * t) for r in (math.sqrt(6.0), math.sqrt(8.0), 2.0))
    same = twice + (K - 1) * (K - 2) * six
    other = eight + 3 * (K - 2) * six + (K - 2) * (K - 3) * two
    return min(first, 2.0 * softmax_delta(e, t, K) + max(same, other))


def one_score_replaced_delta(e: float, t: float) -> float:
    """One score, a replaced record, e >= 0."""
    return gaussian_delta(e, 2.0 * t) + 2.0 * gaussian_delta(e, t)


def replaced_score_survival(t: float) -> Survival:
    """Bound of P(Y > x) for one of several scores of a replaced record."""
    return lambda x: np.minimum(1.0, ndtr(t - x / (2.0 * t)) + 2.0 * ndtr(0.5 * t - x / t))


def plain_score_survival(t: float) -> Survival:
    """P(max(0, t^2 / 2 + t z) > x)."""
    return lambda x: np.asarray(ndtr(0.5 * t - x / t))


def sum_delta(
    survival: Survival, n_terms: int, e: float, largest: float, n_cells: int = 1500
) -> tuple[float, float]:
    """Bracket of delta for a sum of independent non-negative terms, c0 = 0.

    ``largest`` is a value that a term passes with probability below 1e-14.
    """
    grid = np.linspace(0.0, largest, n_cells + 1)
    tails = survival(grid)
    return _bracket(tails[None, :], np.ones(1), n_terms, grid[1], e)


def rival_sum_survival_grid(t: float, n_classes: int, scale: float, grid: Array) -> Array:
    """P(max(0, scale + t (z_k - z_y)) > x) given z_y on the rows, x = grid on the columns."""
    own = Z_NODES[:, None]
    return np.asarray(ndtr((scale - grid[None, :]) / t - own))


Z_NODES, Z_WEIGHTS = panels(np.linspace(-8.5, 8.5, 18))
Z_WEIGHTS = Z_WEIGHTS * np.exp(-0.5 * Z_NODES**2) / math.sqrt(2.0 * math.pi)


def pairwise_delta(e: float, t: float, n_classes: int, n_cells: int = 1500) -> tuple[float, float]:
    """Bracket for U = sum_{k != y} max(0, K t^2 / 2 + t (z_k - z_y)): m3, add or remove."""
    scale = 0.5 * n_classes * t * t
    grid = np.linspace(0.0, scale + 17.0 * t, n_cells + 1)
    tails = rival_sum_survival_grid(t, n_classes, scale, grid)
    return _bracket(tails, Z_WEIGHTS, n_classes - 1, grid[1], e)


def pairwise_replaced_delta(
    e: float, t: float, n_classes: int, n_cells: int = 1500
) -> tuple[float, float]:
    """Bracket for U = 2K(K-1)t^2 + t(M + M'), P(M + M' > x) <= min(1, 2 P(M > x/2))."""
    K = n_classes
    grid = np.linspace(0.0, 17.0, n_cells + 1)
    tails = rival_sum_survival_grid(1.0, K, 0.0, grid)
    base = 2.0 * K * (K - 1) * t * t
    found = []
    for mass in _masses(tails, Z_WEIGHTS, K - 1):
        survival = np.append(np.cumsum(mass[::-1])[::-1], 0.0)
        # P(M >= j h) for the rounded M, hence P(M > x / 2) is constant on steps of x.
        capped = np.minimum(1.0, 2.0 * survival[1:])
        u = base + 2.0 * t * grid[1] * np.arange(capped.size)
        drops = np.append(1.0 - capped[0], -np.diff(capped))
        found.append(float((drops * -np.expm1(-np.maximum(u - e, 0.0))).sum()))
    return found[0], found[1]


def _masses(tails: Array, weights: Array, n_terms: int) -> list[Array]:
    """Law of the sum with every term rounded down, then up, to multiples of the step."""
    out = []
    drops = -np.diff(tails, axis=1)
    for down in (True, False):
        atom = 1.0 - tails[:, :1]
        mass = (
            np.hstack([atom + drops[:, :1], drops[:, 1:], tails[:, -1:]])
            if down
            else (np.hstack([atom, drops]))
        )
        if not down:
            mass[:, -1:] += tails[:, -1:]
        size = n_terms * mass.shape[1]
        power = np.fft.irfft(np.fft.rfft(mass, size, axis=1) ** n_terms, size, axis=1)
        out.append(np.maximum(weights @ power, 0.0))
    return out


def _bracket(
    tails: Array, weights: Array, n_terms: int, step: float, e: float
) -> tuple[float, float]:
    found = []
    for mass in _masses(tails, weights, n_terms):
        u = step * np.arange(mass.size)
        found.append(float((mass * -np.expm1(-np.maximum(u - e, 0.0))).sum()))
    below = -math.expm1(min(e, 0.0))
    # For e < 0 the sum already contains the first term of the module's text.
    return max(found[0], below), max(found[1], below)


def sigma_of(delta: Callable[[float], float], wanted: float) -> float:
    """Smallest sigma / row norm with delta(t) <= wanted, t = 1 / sigma, to about 1e-10."""

    def excess(log_t: float) -> float:
        return math.log(max(delta(math.exp(log_t)), 1e-300)) - math.log(wanted)

    return math.exp(-float(brentq(excess, math.log(1e-4), math.log(20.0), xtol=1e-12)))


def pathwise_lower(
    epsilon: float, t: float, kappa: float, n_classes: int, seed: int, n: int = 20_000
) -> tuple[float, float]:
    """Importance-sampled E(1 - e^(eps - U))_+ and its standard error, softmax add or remove.

    U = sup over p of <p, b> + log det(1 + kappa (diag p - p p^T)) - t^2/2 (1 - |p|^2), taken over a
    lattice in the simplex only: so never above the true expectation, up to the error.
    """
    K = n_classes
    lattice = _simplex(K, {2: 400, 3: 40, 4: 18, 5: 12}[K])
    spread = 1.0 - (lattice**2).sum(axis=1)
    sig = lattice[:, :, None] * np.eye(K) - lattice[:, :, None] * lattice[:, None, :]
    gain = np.linalg.slogdet(np.eye(K) + kappa * sig)[1] - 0.5 * t * t * spread
    rng = np.random.default_rng(seed)
    shift = max(0.5 * (epsilon / t - t), 0.0)
    z = rng.normal(size=(n, K))
    rival = rng.integers(1, K, n)
    z[np.arange(n), rival] += shift
    z[:, 0] -= shift
    ratio = np.exp(shift * (z[:, 1:] - z[:, :1]) - shift * shift).mean(axis=1)
    b = t * (z - z[:, :1]) + t * t
    b[:, 0] = 0.0
    loss = (b @ lattice.T + gain).max(axis=1)
    value = -np.expm1(-np.maximum(loss - epsilon, 0.0)) / ratio
    return float(value.mean()), float(value.std() / math.sqrt(n))


def _simplex(K: int, steps: int) -> Array:
    """All points of the simplex with coordinates in multiples of 1 / steps."""
    axes = np.meshgrid(*[np.arange(steps + 1)] * (K - 1), indexing="ij")
    head = np.stack([a.ravel() for a in axes], axis=1)
    head = head[head.sum(axis=1) <= steps]
    return np.column_stack([steps - head.sum(axis=1), head]) / steps


def pure_epsilon(
    loss: str, n_scores: int, rate: float, kappa: float, *, replace_one: bool
) -> float:
    """Pure epsilon of noise exp(-beta ||B||), rate = beta * row norm: the smaller valid bound.

    ``loss``: "softmax" (joint), "softplus", "huber" (one score or one-vs-rest) or "m3".
    """
    K = n_scores
    factor = 2.0 if replace_one else 1.0
    lipschitz = {"softmax": math.sqrt(2.0), "m3": math.sqrt(K * (K - 1.0))}.get(loss, math.sqrt(K))
    jacobian = {
        "softmax": (K - 1) * math.log1p(kappa / K),
        "m3": math.log1p(0.5 * K * kappa) + (K - 2) * math.log1p(0.5 * kappa),
    }.get(loss, K * math.log1p(0.25 * kappa))
    plain = factor * rate * lipschitz + jacobian
    # Only one of the two records can enter the larger Hessian; the other has its whole gradient.
    rest = (factor - 1.0) * rate * lipschitz
    if loss == "softmax":
        return min(
            plain,
            rest
            + _largest(
                lambda S: rate * math.sqrt(2.0 - S) + (K - 1) * math.log1p(kappa * S / (K - 1)),
                1.0 - 1.0 / K,
            ),
        )
    if loss == "softplus" and K == 1:
        return min(
            plain, rest + _largest(lambda u: rate * u + math.log1p(kappa * u * (1.0 - u)), 1.0)
        )
    return plain


def _largest(function: Callable[[float], float], end: float) -> float:
    """Maximum over [0, end] of a concave function."""
    inside = minimize_scalar(
        lambda x: -function(x), bounds=(0.0, end), method="bounded", options={"xatol": 1e-12}
    )
    return max(function(0.0), function(end), -float(inside.fun))
