r"""Slow numpy twin of random Fourier features.

.. math:: \phi(x) \propto (\cos\langle w_j, x\rangle - e_j, \sin\langle w_j, x\rangle)_{j \le D},
    \qquad \|\phi(x)\| = 1

with frequencies from the spectrum of a kernel, and constants e that depend on them alone. Draws are
not those of the compiled map; for the same frequencies and constants the features are.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["FourierMap", "features_of"]

Array = NDArray[np.float64]


def features_of(rows: Array, weights: Array, constants: Array) -> Array:
    """Features of rows, shape (n_rows, 2 n_components), from given frequencies and constants.

    Cosines first; rows of norm 1, or 0 where every entry is 0.
    """
    angles = np.asarray(rows, dtype=np.float64) @ weights.T
    features = np.hstack([np.cos(angles) - constants, np.sin(angles)])
    norms = np.linalg.norm(features, axis=1, keepdims=True)
    return np.asarray(features / np.where(norms > 0.0, norms, 1.0))


class FourierMap:
    r"""A drawn map.

    Parameters
    ----------
    n_features, n_components : int >= 1
    gamma : float > 0
        ``exp(-gamma ||x - x'||^2)`` has normal frequencies of covariance ``2 gamma I``;
        ``exp(-gamma ||x - x'||_1)`` has independent Cauchy entries of scale gamma.
    kernel : {"rbf", "laplacian"}
    structure : {"independent", "orthogonal", "fast"}
        The last two for "rbf": orthogonal directions in blocks of ``n_features``, or rows of three
        rounds of signs and Hadamard matrices of the next power of two, with the lengths of normal
        vectors.
    centre : {"none", "sphere", "ball"}
        What the constants approximate: 0, or the mean cosine over the unit sphere or ball.
    seed : int
    """

    def __init__(
        self,
        *,
        n_features: int,
        n_components: int,
        gamma: float,
        kernel: str,
        structure: str,
        centre: str,
        seed: int,
    ) -> None:
        self.n_features, self.n_components = n_features, n_components
        rng = np.random.default_rng(seed)
        d, D = n_features, n_components
        if kernel == "laplacian":
            if structure != "independent":
                raise ValueError("structure: expected 'independent' with the laplacian kernel")
            self._weights = gamma * rng.standard_cauchy((D, d))
        elif structure == "independent":
            self._weights = math.sqrt(2.0 * gamma) * rng.standard_normal((D, d))
        else:
            block = _orthogonal if structure == "orthogonal" else _signed_hadamard
            parts: list[Array] = []
            while sum(map(len, parts)) < D:
                parts.append(block(d, rng))
            directions = np.vstack(parts)[:D]
            lengths = np.sqrt(2.0 * gamma * rng.chisquare(d, D))
            norms = np.linalg.norm(directions, axis=1)
            self._weights = directions * (lengths / norms)[:, None]
        squares = (self._weights**2).sum(axis=1)
        dimension = {"none": None, "sphere": d, "ball": d + 2}[centre]
        self._constants = np.zeros(D)
        if dimension is not None:
            self._constants = np.exp(-squares / (2.0 * dimension))

    def weights(self) -> Array:
        """The frequencies, shape (n_components, n_features)."""
        return self._weights.copy()

    def constants(self) -> Array:
        """What is subtracted from the cosines, shape (n_components,)."""
        return self._constants.copy()

    def transform(self, X: Any, n_threads: int) -> NDArray[Any]:
        """Features of the rows, an array or the parts of a CSR matrix, in their precision."""
        if isinstance(X, tuple):
            data, indices, indptr, n_features = X
            X = np.zeros((len(indptr) - 1, n_features), dtype=data.dtype)
            for i in range(len(X)):
                inside = slice(int(indptr[i]), int(indptr[i + 1]))
                np.add.at(X[i], indices[inside], data[inside])
        return features_of(X, self._weights, self._constants).astype(X.dtype)


def _orthogonal(d: int, rng: np.random.Generator) -> Array:
    """A uniformly random orthogonal matrix."""
    q, r = np.linalg.qr(rng.standard_normal((d, d)))
    return np.asarray(q * np.sign(np.diagonal(r)))


def _signed_hadamard(d: int, rng: np.random.Generator) -> Array:
    """The first d columns of three rounds of random signs and Hadamard matrices."""
    hadamard = np.ones((1, 1))
    while len(hadamard) < d:
        hadamard = np.block([[hadamard, hadamard], [hadamard, -hadamard]])
    p = len(hadamard)
    product: Array = np.eye(p)
    for _ in range(3):
        product = hadamard @ (rng.choice([-1.0, 1.0], p)[:, None] * product) / math.sqrt(p)
    return np.asarray(product[:, :d])
