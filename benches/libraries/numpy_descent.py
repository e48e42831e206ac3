"""The step in vectorised numpy, as one would write it who knows that gradients have rank one.

The same loss, clip and noise as ``DescentProblem``: the norm of a record's gradient is that of its
slopes times that of its row, which is known before the clock starts, so no gradient of a record is
ever formed. Noise comes from numpy's generator: floating point, not cryptographic. In double or in
single precision (then noise is drawn in single precision too). Sparse rows stay sparse; gathering
and multiplying them is scipy's. One thread.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from benches.descent_problem import DescentProblem, drawn


class Stepper:
    """Descends step by step; ``precision`` is float64 or float32."""

    def __init__(self, problem: DescentProblem, precision: str) -> None:
        self.problem, self.type = problem, np.dtype(precision).type
        self.X = problem.X.astype(precision)
        squares = self.X.multiply(self.X) if hasattr(self.X, "multiply") else self.X**2
        self.norms = np.sqrt(np.asarray(squares.sum(axis=1))).ravel()
        self.weights = np.zeros(problem.shape, dtype=precision)
        self.rng = np.random.default_rng(1)

    def advance(self, n_steps: int) -> None:
        """Take steps."""
        problem = self.problem
        for _ in range(n_steps):
            if problem.full:
                total = self._sum(self.X, problem.y, self.norms)
            else:
                batch = drawn(self.rng, problem.n_samples, problem.batch)
                total = self._sum(self.X[batch], problem.y[batch], self.norms[batch])
            if problem.sigma > 0.0:
                noise = self.rng.standard_normal(problem.shape, dtype=self.type)
                total += self.type(problem.sigma) * noise
            self.weights -= self.type(problem.step) * total

    def _sum(self, X: Any, y: NDArray[np.int64], norms: NDArray[Any]) -> NDArray[Any]:
        """Of the clipped gradients."""
        slopes = X @ self.weights.T
        slopes -= slopes.max(axis=1, keepdims=True)
        np.exp(slopes, out=slopes)
        slopes /= slopes.sum(axis=1, keepdims=True)
        slopes[np.arange(y.size), y] -= self.type(1.0)
        lengths = np.sqrt(np.einsum("ij,ij->i", slopes, slopes)) * norms
        tiny = np.finfo(self.type).tiny
        factors = np.minimum(self.type(1.0), self.type(self.problem.clip) / (lengths + tiny))
        slopes *= factors[:, None]
        # The transposed product of a sparse matrix is the fast one.
        return (X.T @ slopes).T if hasattr(X, "indptr") else slopes.T @ X
