r"""Slow numpy twin of the Crammer-Singer solver.

The problem, with :math:`\tilde x_i = (\mathrm{clip}(x_i, \kappa), s)`:

.. math::
    F(W) = \tfrac12 \|W\|_F^2
           + C \sum_i \max_k \left( 1[k \ne y_i] + \langle w_k - w_{y_i}, \tilde x_i \rangle \right)

and its dual, with :math:`W(\alpha) = \sum_i \alpha_i \tilde x_i^T`:

.. math::
    \min_\alpha \tfrac12 \|W(\alpha)\|_F^2 + \sum_{i,m} 1[m \ne y_i] \alpha_{im}
    \quad \text{s.t.} \quad \alpha_{im} \le C\, 1[m = y_i], \; \sum_m \alpha_{im} = 0.

Both are strongly convex in W, so :math:`\|W(\alpha) - W^*\|_F \le \sqrt{\mathrm{gap}(\alpha)}`.

References
----------
Crammer and Singer, "On the algorithmic implementation of multiclass kernel-based vector
machines", JMLR 2 (2001).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["clip_rows", "duality_gap", "objective", "primal_point", "solve"]

Array = NDArray[np.float64]


def clip_rows(X: Array, data_norm: float, intercept_scaling: float = 0.0) -> Array:
    """Rows scaled back to L2 norm ``data_norm``, with the constant column appended if positive.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
    data_norm : float > 0
    intercept_scaling : float >= 0
        Value of the appended column; 0 appends none.

    Returns
    -------
    ndarray of shape (n_samples, n_features + (intercept_scaling > 0))
    """
    X = np.array(X, dtype=np.float64)
    # Scaling by the largest entry first keeps the squares of huge and tiny rows in range.
    largest = np.abs(X).max(axis=1, initial=0.0, keepdims=True)
    scaled = np.divide(X, largest, out=np.zeros_like(X), where=largest > 0)
    shape_norm = np.sqrt((scaled**2).sum(axis=1, keepdims=True))
    # The norm is largest * shape_norm, which may overflow, so the two are compared as a quotient.
    limit = np.divide(
        data_norm, shape_norm, out=np.full_like(shape_norm, np.inf), where=shape_norm > 0
    )
    rows = np.where(largest > limit, scaled * np.where(np.isfinite(limit), limit, 0.0), X)
    if intercept_scaling > 0:
        rows = np.hstack([rows, np.full((rows.shape[0], 1), intercept_scaling)])
    return rows


def objective(W: Array, rows: Array, y: NDArray[np.int64], C: float) -> float:
    """Value of F at ``W`` of shape (n_classes, n_columns) for rows that are already clipped."""
    margins = _margins(W, rows, y)
    return float(0.5 * (W**2).sum() + C * margins.max(axis=1).sum())


def primal_point(alpha: Array, rows: Array) -> Array:
    """W(alpha) for ``alpha`` of shape (n_samples, n_classes)."""
    return np.asarray(alpha.T @ rows)


def duality_gap(alpha: Array, rows: Array, y: NDArray[np.int64], C: float) -> float:
    """F(W(alpha)) minus the dual value; at least ``||W(alpha) - W*||_F ** 2``.

    Written as a sum of terms that are each non-negative, so that nothing cancels.
    """
    margins = _margins(primal_point(alpha, rows), rows, y)
    room = -alpha.copy()
    room[np.arange(y.size), y] += C
    return float((room * (margins.max(axis=1, keepdims=True) - margins)).sum())


def solve(
    X: Array,
    y: NDArray[np.int64],
    n_classes: int,
    C: float,
    data_norm: float = 1.0,
    intercept_scaling: float = 0.0,
    tol: float = 1e-6,
    max_epochs: int = 20_000,
) -> tuple[Array, float]:
    """Minimise F by cyclic dual coordinate descent, one row at a time.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
    y : ndarray of shape (n_samples,)
        Class indices in ``0 .. n_classes - 1``.
    n_classes : int
    C : float > 0
        Multiplies the sum of the losses.
    data_norm : float > 0
        Rows are clipped to this L2 norm.
    intercept_scaling : float >= 0
        Value of the constant column; 0 for none.
    tol : float > 0
        Stops once the certified distance ``sqrt(gap)`` is at most ``tol``. Rounding keeps the gap
        near ``1e-16 * n_samples * C`` at best.
    max_epochs : int
        A RuntimeError is raised beyond it.

    Returns
    -------
    W : ndarray of shape (n_classes, n_columns)
    radius : float
        Upper bound of ``||W - W*||_F`` up to the rounding of the gap.
    """
    rows = clip_rows(X, data_norm, intercept_scaling)
    n_samples = rows.shape[0]
    alpha = np.zeros((n_samples, n_classes))
    W: NDArray[np.float64] = np.zeros((n_classes, rows.shape[1]))
    square_norms = (rows**2).sum(axis=1)
    for epoch in range(max_epochs):
        for i in range(n_samples):
            step = _best_row(W @ rows[i], alpha[i], int(y[i]), float(square_norms[i]), C)
            W += np.outer(step - alpha[i], rows[i])
            alpha[i] = step
        if epoch % 10 == 0:
            W = primal_point(alpha, rows)
            gap = duality_gap(alpha, rows, y, C)
            if gap <= tol * tol:
                return W, math.sqrt(max(gap, 0.0))
    raise RuntimeError(f"no certified solution after {max_epochs} epochs")


def _margins(W: Array, rows: Array, y: NDArray[np.int64]) -> Array:
    """1[k != y_i] + <w_k - w_{y_i}, x_i>, shape (n_samples, n_classes)."""
    scores = rows @ W.T
    own = np.arange(y.size)
    margins = scores - scores[own, y][:, None] + 1.0
    margins[own, y] = 0.0
    return np.asarray(margins)


def _best_row(scores: Array, alpha_i: Array, label: int, square_norm: float, C: float) -> Array:
    """The row of alpha that minimises the dual with all other rows fixed."""
    linear = scores - square_norm * alpha_i + 1.0
    linear[label] -= 1.0
    upper = np.zeros_like(alpha_i)
    upper[label] = C
    if square_norm == 0.0:
        # Nothing but the linear term: all the mass goes to the best rival.
        linear[label] = -np.inf
        result = upper.copy()
        result[int(np.argmax(linear))] -= C
        return result
    # alpha_m = min(upper_m, (beta - linear_m) / square_norm), beta set by the zero sum.
    knots = np.sort(linear + square_norm * upper)[::-1]
    counts = np.arange(1, knots.size + 1)
    betas = (np.cumsum(knots) - square_norm * C) / counts
    last = np.append(knots[1:], -np.inf)
    beta = betas[int(np.argmax(betas >= last))]
    return np.asarray(np.minimum(upper, (beta - linear) / square_norm))
