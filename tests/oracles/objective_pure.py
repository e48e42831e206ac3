"""The largest pure loss of objective perturbation: a search over what a pair may release."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from oracles.objective_density import Pair, kinks_of

Array = NDArray[np.float64]


def pure_loss(pair: Pair, rate: float, V: Array) -> Array:
    """Log-ratio of the worlds' densities at V, shape (G,), under noise exp(-rate ||B||)."""
    first, second = pair.noises(V)
    larger, smaller = pair.log_determinants(V)
    fall = np.linalg.norm(second, axis=1) - np.linalg.norm(first, axis=1)
    return np.asarray(rate * fall + larger - smaller)


def pure_epsilon(pair: Pair, rate: float, n_refined: int = 3) -> float:
    """Largest |log-ratio| found: on a grid, beside every kink, and by local search from the best.

    With noise of density exp(-rate ||B||) this is the epsilon that the pair has, or a little less.
    A common shift of the scores is left out here too: it lengthens both noises and so brings the
    two lengths closer to each other.
    """
    V = _places(pair, rate)
    first = np.argsort(np.abs(pure_loss(pair, rate, V)))[-n_refined:]
    place, best = _climbed(pair, rate, V[first])
    if pair.size == 1:
        return best
    found = minimize(
        lambda v: -abs(float(pure_loss(pair, rate, v[None, :])[0])),
        place,
        method="Nelder-Mead",
        options={"maxiter": 150, "xatol": 1e-10, "fatol": 1e-12},
    )
    return max(best, -float(found.fun))


def _climbed(pair: Pair, rate: float, at: Array) -> tuple[Array, float]:
    """Where random steps from some places lead that never lower |log-ratio|, and its value."""
    n, tries = len(at), 24
    best = np.abs(pure_loss(pair, rate, at))
    rng = np.random.default_rng(1)
    reach = 0.3 * np.linalg.norm(at, axis=1)
    for _ in range(40):
        steps = rng.normal(size=(n, tries, pair.size))
        moved = at[:, None, :] + reach[:, None, None] * steps
        there = np.abs(pure_loss(pair, rate, moved.reshape(-1, pair.size))).reshape(n, tries)
        k = there.argmax(axis=1)
        top = there[np.arange(n), k]
        better = top > best
        at = np.where(better[:, None], moved[np.arange(n), k], at)
        best = np.maximum(best, top)
        reach = np.where(better, reach, 0.6 * reach)
    return at[best.argmax()], float(best.max())


def _places(pair: Pair, rate: float) -> Array:
    """Where to look for the largest ratio: from the smallest scale of a loss to far out."""
    push = float(np.linalg.norm(pair.rows, axis=1) @ (pair.first + pair.second))
    far = 100.0 * (push + 1.0 / rate) * pair.n_scores / pair.regularization
    near = 1e-3 * min(pair.kernel[1], far)
    if pair.size == 1:
        radii = np.geomspace(near, far, 600)
        kinks = kinks_of(pair)
        middle = np.linspace(kinks[0], kinks[-1], 400)
        beside = 1e-9 * (np.abs(kinks) + pair.kernel[1])
        line = np.concatenate([-radii, radii, middle, kinks, kinks - beside, kinks + beside])
        return line[:, None]
    rng = np.random.default_rng(0)
    radii = np.geomspace(near, far, 60)
    turns = rng.normal(size=(80, pair.size))
    turns /= np.linalg.norm(turns, axis=1, keepdims=True)
    anywhere = (radii[:, None, None] * turns).reshape(-1, pair.size)
    # Where a record's own score is ahead of all others alike, and they change their shape at once.
    beside = np.array([-1e-9, 0.0, 1e-9])
    together = [anywhere]
    for way in _own_ways(pair):
        kinks = kinks_of(pair, way)
        # Beyond, the two noises are so long that their difference has no digits left.
        kinks = kinks[np.abs(kinks) < far]
        together.append(np.outer(np.outer(kinks, 1.0 + beside), way))
    return np.concatenate(together)


def _own_ways(pair: Pair) -> Array:
    """Unit vectors in V along which a record's own score rises against all others."""
    ahead = np.eye(pair.n_scores)[pair.y] if pair.n_scores > 1 else np.ones((pair.y.size, 1))
    ways = ((ahead @ pair.basis.T)[:, :, None] * pair.rows[:, None, :]).reshape(-1, pair.size)
    length = np.linalg.norm(ways, axis=1, keepdims=True)
    return (ways / np.where(length > 0.0, length, 1.0))[length[:, 0] > 0.0]
