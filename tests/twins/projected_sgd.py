r"""Slow numpy twin of projected SGD, in the precision of its rows.

Update m on the batch B of b rows, over all passes m = 1..T:

.. math:: W \leftarrow \Pi\Big( (1 - q_m) W - \frac{q_m}{\Lambda b}
    \sum_{i \in B} \nabla\phi_{y_i}(W \tilde x_i) \tilde x_i^\top \Big), \qquad
    q_m = \min(\Lambda / \beta_J, 1 / m)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Descent"]

Real = NDArray[Any]
Labels = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Descent:
    """A run; the numbers of the module's text.

    Parameters
    ----------
    gradient : callable
        Gradient of the loss in the scores: (scores of shape (n, n_scores), y) -> the same shape.
    n_scores : int
    curvature : float
        beta: largest eigenvalue of the loss's Hessian in the scores.
    row_norm : float
        Bound of the rows' norm.
    batch_size, regularization, radius : int, float, float
        b, Lambda, R.
    per_class : bool
        A ball for each row of W.
    average : {"last", "uniform", "weighted"}
    own_size : bool
        Divide a short batch by its own size: what the proof forbids, for negative controls.
    """

    gradient: Callable[[Real, Labels], Real]
    n_scores: int
    curvature: float
    row_norm: float
    batch_size: int
    regularization: float
    radius: float
    per_class: bool = False
    average: str = "last"
    own_size: bool = False

    def run(self, rows: Real, y: Labels, orders: NDArray[Any]) -> Real:
        """Result over ``rows`` (n_samples, n_columns), a line of ``orders`` for each pass."""
        W = np.zeros((self.n_scores, rows.shape[1]), dtype=rows.dtype)
        mean, total, m = W.copy(), rows.dtype.type(0), 0
        one, cap = rows.dtype.type(1), rows.dtype.type(self.regularization)
        smooth = rows.dtype.type(self.curvature) * rows.dtype.type(self.row_norm) ** 2 + cap
        for order in orders:
            for start in range(0, len(order), self.batch_size):
                batch = np.asarray(order[start : start + self.batch_size], dtype=np.intp)
                m += 1
                q = min(cap / smooth, one / m)
                size = len(batch) if self.own_size else self.batch_size
                a = self.gradient(rows[batch] @ W.T, y[batch])
                W = self._projected((one - q) * W - q / (cap * size) * (a.T @ rows[batch]))
                weight = m if self.average == "weighted" else 1
                mean, total = mean + weight * W, total + weight
        return W if self.average == "last" else mean / total

    def _projected(self, W: Real) -> Real:
        """The closest point of the ball, or of each row's ball."""
        square = (W * W).sum(axis=1, keepdims=True) if self.per_class else (W * W).sum()
        length = np.sqrt(square)
        return np.asarray(
            W * np.where(length > self.radius, self.radius / np.maximum(length, 1e-300), 1)
        )
