"""Ellipsoids from released coordinates: arithmetic on released and public numbers only."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast.mechanisms.gaussian_margin import CONSTANT

__all__ = [
    "centres_of",
    "quadratic_forms",
    "released_ellipsoids",
    "symmetric_matrices",
]

# Eigenvalues below this share of the largest count as zero where a matrix is inverted.
SINGULAR = 1e-10

Array = NDArray[np.float64]


def symmetric_matrices(coordinates: Array) -> Array:
    """Matrices of shape (..., m, m) from coordinates of shape (..., m (m + 1) / 2).

    The coordinates are the upper triangle row by row, entries off the diagonal times sqrt(2).
    """
    side = (math.isqrt(8 * coordinates.shape[-1] + 1) - 1) // 2
    rows, columns = np.triu_indices(side)
    entries = coordinates / np.where(rows == columns, 1.0, math.sqrt(2.0))
    matrices = np.empty((*coordinates.shape[:-1], side, side))
    matrices[..., rows, columns] = entries
    matrices[..., columns, rows] = entries
    return matrices


def released_ellipsoids(coordinates: Array, data_norm: float, *, psd: str) -> Array:
    """Positive semidefinite matrices of (x, 1), one for each row of noisy coordinates.

    Parameters
    ----------
    coordinates : ndarray of shape (n_matrices, n_coordinates)
        Of matrices of the lifted rows (x / data_norm, s) / sqrt(1 + s^2).
    data_norm : float > 0
    psd : {"constraint", "project"}
        "constraint": each the nearest one in the Frobenius norm; they hardly differ. "project": the
        same multiple of the identity is added to all, which changes no difference of scores.
    """
    matrices = symmetric_matrices(coordinates)
    if psd == "project":
        matrices = matrices + _common_shift(matrices)
    # After a shift this removes nothing, and rounding errors at most.
    matrices = _clipped(matrices)
    side = matrices.shape[-1]
    units = np.append(np.full(side - 1, 1.0 / data_norm), CONSTANT) / math.hypot(1.0, CONSTANT)
    return np.asarray(matrices * units[:, None] * units)


def _common_shift(matrices: Array) -> Array:
    """A multiple of the identity that makes all of them positive definite when it is added.

    Twice what positive semidefinite ones need: then no ellipsoid is degenerate.
    """
    least = float(np.linalg.eigvalsh(matrices).min())
    return 2.0 * max(-least, 0.0) * np.eye(matrices.shape[-1])


def _clipped(matrices: Array) -> Array:
    """Nearest positive semidefinite matrices, exactly symmetric."""
    values, vectors = np.linalg.eigh(matrices)
    nearest = (vectors * np.maximum(values, 0.0)[..., None, :]) @ np.swapaxes(vectors, -1, -2)
    return np.asarray(0.5 * (nearest + np.swapaxes(nearest, -1, -2)))


def centres_of(ellipsoids: Array) -> tuple[Array, Array]:
    """Centres, shape (..., d), and least values, shape (...), of the quadratic forms.

    Where the block of x is singular, of all centres the one nearest to the origin.
    """
    precisions, sides = ellipsoids[..., :-1, :-1], ellipsoids[..., :-1, -1]
    inverses = np.linalg.pinv(precisions, rcond=SINGULAR, hermitian=True)
    centres = -(inverses @ sides[..., None])[..., 0]
    least = ellipsoids[..., -1, -1] + (sides * centres).sum(axis=-1)
    return centres, np.maximum(least, 0.0)


def quadratic_forms(rows: Array, ellipsoids: Array) -> Array:
    """Values (x, 1) Phi (x, 1), shape (n_samples, ...), at least 0.

    Parameters
    ----------
    rows : ndarray of shape (n_samples, d)
    ellipsoids : ndarray of shape (..., d + 1, d + 1)
    """
    flat = ellipsoids.reshape(-1, *ellipsoids.shape[-2:])
    lifted = np.column_stack([rows, np.ones(len(rows))])
    values = np.empty((len(rows), len(flat)))
    for j, matrix in enumerate(flat):
        values[:, j] = ((lifted @ matrix) * lifted).sum(axis=1)
    return np.maximum(values, 0.0).reshape(len(rows), *ellipsoids.shape[:-2])
