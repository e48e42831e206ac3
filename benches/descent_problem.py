"""One private gradient descent that every library runs: the same loss, clip, batch and noise."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

CLIP, NOISE_MULTIPLIER, LEARNING_RATE = 0.25, 1.0, 0.1


@dataclass(frozen=True)
class DescentProblem:
    r"""With W of shape (n_classes, n_features), no intercept, a step is

    .. math:: W \leftarrow W - \frac{\eta}{B} \Big( \sum_{i \in batch}
              \min\Big(1, \frac{R}{\|g_i\|_F}\Big) g_i + N(0, \sigma^2 I) \Big),
              \quad g_i = \nabla_W \big( \log \sum_k e^{\langle w_k, x_i \rangle}
              - \langle w_{y_i}, x_i \rangle \big)

    Every record joins the batch independently with probability B / n_samples; all of them do when
    B = n_samples. W starts at 0.

    Parameters
    ----------
    X : ndarray or CSR array of shape (n_samples, n_features), rows of norm at most 1
    y : ndarray of shape (n_samples,), int64 codes 0 .. n_classes - 1
    n_classes : int
    batch : int
        B, the expected number of records of a step.
    sigma : float >= 0
        Standard deviation of the noise on the sum.
    """

    X: Any
    y: NDArray[np.int64]
    n_classes: int
    batch: int
    sigma: float = NOISE_MULTIPLIER * CLIP
    clip: float = CLIP
    learning_rate: float = LEARNING_RATE

    @property
    def n_samples(self) -> int:
        """Rows of X."""
        return int(self.X.shape[0])

    @property
    def full(self) -> bool:
        """Whether every record joins every step."""
        return self.batch >= self.n_samples

    @property
    def shape(self) -> tuple[int, int]:
        """Of W."""
        return self.n_classes, int(self.X.shape[1])

    @property
    def step(self) -> float:
        """What a noisy sum is multiplied by before it is subtracted from W."""
        return self.learning_rate / self.batch

    @property
    def padded(self) -> int:
        """Five standard deviations above the expected size of a batch."""
        deviation = math.sqrt(self.batch * (1.0 - min(1.0, self.batch / self.n_samples)))
        return min(self.n_samples, math.ceil(self.batch + 5.0 * deviation))

    def quiet(self, n_samples: int) -> DescentProblem:
        """The first records, all in every step, without noise: its steps are deterministic."""
        n_samples = min(n_samples, self.n_samples)
        return replace(self, X=self.X[:n_samples], y=self.y[:n_samples], batch=n_samples, sigma=0.0)


def drawn(rng: np.random.Generator, n_samples: int, batch: int) -> NDArray[np.int64]:
    """A Poisson sample: its size, which is binomial, and then which records, without replacement.

    The same law as one coin a record, in O(batch) instead of O(n_samples) steps.
    """
    size = rng.binomial(n_samples, batch / n_samples)
    return rng.choice(n_samples, size, replace=False, shuffle=False)


def synthetic(n_samples: int, n_features: int, n_classes: int) -> tuple[Any, NDArray[np.int64]]:
    """Dense rows of norm 1 with the labels of a planted linear model."""
    rng = np.random.default_rng(11)
    X = rng.normal(size=(n_samples, n_features))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return X, (X @ rng.normal(size=(n_features, n_classes))).argmax(axis=1).astype(np.int64)


def store(problem: DescentProblem, folder: Path) -> None:
    """Dense rows in single precision and labels, for a process that measures another library."""
    X = problem.X.toarray() if hasattr(problem.X, "toarray") else problem.X
    np.save(folder / "X.npy", X.astype(np.float32))
    np.save(folder / "y.npy", problem.y)


def stored(folder: Path, n_classes: int, batch: int) -> DescentProblem:
    """The problem of ``store``, with a batch."""
    X, y = np.load(folder / "X.npy"), np.load(folder / "y.npy")
    return DescentProblem(X, y, n_classes, batch)
