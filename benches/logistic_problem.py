"""Multinomial or binary logistic regression with its lambda, and the yardstick: the gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import expit, softmax

Array = NDArray[np.float64]

# The constant feature, in its own column of ``with_constant``.
INTERCEPT = 0.2


@dataclass(frozen=True)
class LogisticProblem:
    r"""Minimise over W, with :math:`\tilde x_i = (x_i, 0.2)`:

    .. math:: \sum_i \log \sum_k \exp(\langle w_k - w_{y_i}, \tilde x_i \rangle)
              + \tfrac{\lambda}{2} \|W\|_F^2

    Two classes have one score s, positive for the second one, with loss
    :math:`\log(1 + \exp(\mp s))`.

    Parameters
    ----------
    X : ndarray or CSR array of shape (n_samples, n_features), float64, rows of norm at most 1
    y : ndarray of shape (n_samples,), int64 codes 0 .. n_classes - 1
    n_classes : int
    regularization : float > 0
        Lambda.
    """

    X: Any
    y: NDArray[np.int64]
    n_classes: int
    regularization: float

    @property
    def n_scores(self) -> int:
        """Rows of W."""
        return 1 if self.n_classes == 2 else self.n_classes

    @property
    def n_weights(self) -> int:
        """Entries of W."""
        return int(self.n_scores * (self.X.shape[1] + 1))

    def with_constant(self) -> Any:
        """X with the constant feature as its last column."""
        constant = np.full((self.X.shape[0], 1), INTERCEPT)
        if sparse.issparse(self.X):
            return sparse.csr_matrix(sparse.hstack([self.X, constant], format="csr"))
        return np.hstack([self.X, constant])

    def gradient(self, W: Array) -> Array:
        """Gradient at W of shape (n_scores, n_features + 1), in numpy's float64."""
        scores = self.X @ W[:, :-1].T + INTERCEPT * W[:, -1]
        if self.n_scores == 1:
            slopes = expit(scores) - self.y[:, None]
        else:
            slopes = softmax(scores, axis=1)
            slopes[np.arange(self.y.size), self.y] -= 1.0
        inner = (self.X.T @ slopes).T
        last = INTERCEPT * slopes.sum(axis=0)
        return np.hstack([inner, last[:, None]]) + self.regularization * W

    def norm_at_zero(self) -> float:
        """Norm of the gradient where every solver starts."""
        return float(np.linalg.norm(self.gradient(np.zeros((self.n_scores, self.X.shape[1] + 1)))))
