"""A training set with its C, and the two yardsticks of a solution: objective and distance."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Distance that one record can move the minimiser, in units of C, for rows of norm 1: sqrt(2) bounds
# the loss's gradient; a replaced record counts twice.
SENSITIVITY = {"add_remove": math.sqrt(2.0), "replace_one": 2.0 * math.sqrt(2.0)}


@dataclass(frozen=True)
class Problem:
    r"""Minimise over W of shape (n_classes, n_features), rows of norm 1, no intercept:

    .. math::
        \tfrac12 \|W\|_F^2 + C \sum_i \max_k (1[k \ne y_i] + \langle w_k - w_{y_i}, x_i \rangle)

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features), float64, C order
    y : ndarray of shape (n_samples,), int64 codes 0 .. n_classes - 1
    n_classes : int
    C : float > 0
    """

    X: NDArray[np.float64]
    y: NDArray[np.int64]
    n_classes: int
    C: float

    def sensitivity(self, relation: str) -> float:
        """Delta of the exact minimiser for the neighbouring relation."""
        return SENSITIVITY[relation] * self.C

    def objective(self, W: NDArray[np.float64]) -> float:
        """Primal objective at W, in numpy."""
        scores = self.X @ W.T
        rows = np.arange(self.y.size)
        own = scores[rows, self.y].copy()
        scores += 1.0
        scores[rows, self.y] -= 1.0
        losses = scores.max(axis=1) - own
        return float(0.5 * np.vdot(W, W) + self.C * math.fsum(losses))

    def distance(self, W: NDArray[np.float64], other: NDArray[np.float64]) -> float:
        """Frobenius distance in units of the replace-one sensitivity."""
        return float(np.linalg.norm(W - other)) / self.sensitivity("replace_one")
