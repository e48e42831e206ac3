r"""Crammer-Singer minimiser of small problems by an interior-point method, with a certificate.

The dual over the simplex: with p_i in the simplex of the classes,
W(p) = C sum_i (e_{y_i} - p_i) x_i^T and G_ik = <w_k, x_i> - 1[k = y_i],

.. math:: \|W(p) - W^*\|_F^2 \le C \sum_i \sum_k p_{ik} (\max_l G_{il} - G_{ik}).

Nothing is shared with the compiled solver: another algorithm, another arithmetic (the certificate
is evaluated in extended precision), and rows rebuilt here from their written definition.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def stored_rows(X: Array, data_norm: float, intercept_scaling: float) -> Array:
    """The rows that the compiled solver works on: clipped, scaled, rounded towards zero to float32.

    Scaling by a power of two is exact, so the rows are returned in the user's units. The order of
    summation in the norm is that of the compiled code (eight lanes): the last bit of the clipping
    factor depends on it. Only for entries whose squares neither overflow nor vanish.
    """
    row_norm = data_norm
    if intercept_scaling:
        row_norm = math.hypot(data_norm, intercept_scaling) * (1.0 + 4.0 * 2.0**-52)
    mantissa, exponent = math.frexp(row_norm)
    scale = math.ldexp(1.0, exponent - (mantissa == 0.5))
    rows = np.zeros((X.shape[0], X.shape[1] + (intercept_scaling > 0.0)))
    for i, x in enumerate(np.asarray(X, dtype=np.float64)):
        norm = math.sqrt(_square_sum(x)) * (1.0 + (x.size + 8.0) * 2.0**-52)
        factor = 1.0 / scale
        if norm > data_norm:
            factor = data_norm / norm * (1.0 - 8.0 * 2.0**-52) * factor
        rows[i, : x.size] = _float32_towards_zero(x * factor)
    if intercept_scaling:
        rows[:, -1] = _float32_towards_zero(np.array([intercept_scaling / scale]))[0]
    return rows * scale


def _square_sum(x: Array) -> float:
    """Sum of squares in eight lanes, the remainder first."""
    lanes = [0.0] * 8
    whole = x.size - x.size % 8
    for lane, value in enumerate(x[whole:]):
        lanes[lane] = float(value) * float(value)
    for start in range(0, whole, 8):
        for lane in range(8):
            lanes[lane] += float(x[start + lane]) * float(x[start + lane])
    total = 0.0
    for lane_sum in lanes:
        total += lane_sum
    return total


def _float32_towards_zero(x: Array) -> Array:
    nearest = x.astype(np.float32)
    too_large = np.abs(nearest.astype(np.float64)) > np.abs(x)
    rounded = np.where(too_large, np.nextafter(nearest, np.float32(0.0)), nearest)
    rounded[np.abs(rounded) < np.finfo(np.float32).tiny] = 0.0
    return rounded.astype(np.float64)


def certified_distance(
    p: Array, rows: Array, y: NDArray[np.int64], C: float
) -> tuple[Array, float]:
    """W(p) and a bound of its distance to the minimiser, up to extended-precision rounding."""
    exact = np.clip(p, 0.0, None).astype(np.longdouble)
    exact /= exact.sum(axis=1, keepdims=True)
    own = np.arange(y.size)
    alpha = -exact
    alpha[own, y] += 1.0
    wide = rows.astype(np.longdouble)
    W = C * (alpha.T @ wide)
    G = wide @ W.T
    G[own, y] -= 1.0
    gap = C * (exact * (G.max(axis=1, keepdims=True) - G)).sum()
    # W is rounded to double precision on the way out.
    out = W.astype(np.float64)
    return out, float(np.sqrt(gap)) + 2.0**-53 * float(np.linalg.norm(out))


def minimiser(
    rows: Array, y: NDArray[np.int64], n_classes: int, C: float, steps: int = 60
) -> tuple[Array, float]:
    """Best of the iterates (W, bound of the distance to the minimiser)."""
    n = y.size
    if n == 0:
        return np.zeros((n_classes, rows.shape[1])), 0.0
    scale = max(1.0, C * float((rows**2).sum(axis=1).max()))
    product = C * (rows @ rows.T) / scale
    hessian = np.kron(product, np.eye(n_classes))
    own = np.arange(n)
    base = np.ones((n, n_classes))
    base[own, y] = 0.0
    onehot = 1.0 - base
    p = np.full((n, n_classes), 1.0 / n_classes)
    slack = np.ones((n, n_classes))
    best, best_bound = certified_distance(onehot, rows, y, C)
    for _ in range(steps):
        # Gradient of the scaled dual in p; slack and level are its multipliers.
        gradient = -(product @ (onehot - p)) - base / scale
        target = 0.1 * float((p * slack).mean())
        level = (gradient - slack).mean(axis=1, keepdims=True)
        step = _newton(hessian, p, slack, gradient, level, target)
        if step is None:
            return best, best_bound
        dp, ds = step
        p = p + min(1.0, 0.99 * _longest(p, dp)) * dp
        slack = slack + min(1.0, 0.99 * _longest(slack, ds)) * ds
        for candidate in (p, np.where(p > slack, p, 0.0)):
            if (candidate.sum(axis=1) <= 0.0).any():
                continue
            W, bound = certified_distance(candidate, rows, y, C)
            if bound < best_bound:
                best, best_bound = W, bound
    return best, best_bound


def _newton(
    hessian: Array, p: Array, slack: Array, gradient: Array, level: Array, target: float
) -> tuple[Array, Array] | None:
    """Newton step of the perturbed optimality conditions; None once it is not finite."""
    n, classes = p.shape
    diagonal = (slack / p).ravel()
    right = (-(gradient - level) + target / p).ravel()
    equality = np.kron(np.eye(n), np.ones((1, classes)))
    system = np.block([[hessian + np.diag(diagonal), -equality.T], [equality, np.zeros((n, n))]])
    miss = (1.0 - p.sum(axis=1)).ravel()
    try:
        solution = np.linalg.solve(system, np.concatenate([right, miss]))
    except np.linalg.LinAlgError:
        return None
    dp = solution[: n * classes].reshape(n, classes)
    ds = target / p - slack - slack / p * dp
    if not (np.isfinite(dp).all() and np.isfinite(ds).all()):
        return None
    return dp, ds


def _longest(value: Array, step: Array) -> float:
    """Largest multiple of the step that keeps the value non-negative."""
    falling = step < 0.0
    return float((-value[falling] / step[falling]).min()) if falling.any() else math.inf
