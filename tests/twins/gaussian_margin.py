r"""Slow numpy twin of the solver of large-margin Gaussian ellipsoids.

Ellipsoid j has a symmetric matrix of size d + 1, held as its coordinates :math:`\Phi_j` in the
orthonormal basis of symmetric matrices: the upper triangle row by row, entries off the diagonal
times :math:`\sqrt 2`. With :math:`\hat x = (x, 1) / \sqrt{\kappa^2 + 1}` and :math:`u` the
coordinates of :math:`\hat x \hat x^T`, the score of an ellipsoid is
:math:`s_j = -\langle \Phi_j, u \rangle`, and

.. math:: J(\Phi) = \sum_i \phi_{y_i}(s(u_i)) + \tfrac{\lambda}{2} \|\Phi\|^2
          + \langle B, \Phi \rangle

is minimised over all symmetric matrices, or over positive semidefinite ones. A record's loss
compares the score of its own ellipsoid with those of the ellipsoids of the other classes.

For :math:`\Phi^+ = \Pi(\Phi - \eta \nabla J(\Phi))`, Pi the projection, the vector
:math:`v = (\Phi - \Phi^+) / \eta + \nabla J(\Phi^+) - \nabla J(\Phi)` is a subgradient of J plus
the indicator of the set at :math:`\Phi^+`; strong convexity puts the minimiser within
:math:`\|v\| / \lambda` of it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "lifted_rows",
    "margin_gradient",
    "margin_loss",
    "solve_gaussian_margin",
    "svec",
    "unsvec",
]

Real = NDArray[Any]
Labels = NDArray[np.int64]

# Accelerated steps at most, and after how many the certificate is looked at.
STEPS, LOOK = 200_000, 10


def svec(matrices: Real) -> Real:
    """Coordinates, shape (..., p), of symmetric matrices of shape (..., m, m)."""
    m = matrices.shape[-1]
    rows, columns = np.triu_indices(m)
    return np.asarray(matrices[..., rows, columns] * np.where(rows == columns, 1.0, math.sqrt(2.0)))


def unsvec(coordinates: Real) -> Real:
    """Symmetric matrices of shape (..., m, m) of coordinates of shape (..., m (m + 1) / 2)."""
    m = (math.isqrt(8 * coordinates.shape[-1] + 1) - 1) // 2
    rows, columns = np.triu_indices(m)
    upper = np.zeros((*coordinates.shape[:-1], m, m), dtype=coordinates.dtype)
    upper[..., rows, columns] = coordinates / np.where(rows == columns, 1.0, math.sqrt(2.0))
    lower = np.swapaxes(np.triu(upper, 1), -1, -2)
    return np.asarray(upper + lower)


def lifted_rows(X: Real, data_norm: float) -> NDArray[np.float64]:
    """Coordinates u of every row, shape (n_samples, p), clipped to the norm ``data_norm``."""
    rows = np.asarray(X, dtype=np.float64)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    rows = rows * np.minimum(1.0, data_norm / np.where(norms > 0.0, norms, 1.0))
    lifted = np.column_stack([rows, np.ones(len(rows))]) / math.sqrt(data_norm**2 + 1.0)
    return svec(lifted[:, :, None] * lifted[:, None, :])


def margin_loss(scores: Real, target: Labels, n_ellipsoids: int, kernel: Any) -> Real:
    r"""Loss of each record.

    Parameters
    ----------
    scores : ndarray of shape (n_samples, n_matrices)
    target : ndarray of shape (n_samples,)
        Own ellipsoid; its class is ``target // n_ellipsoids``.
    n_ellipsoids : int
    kernel : (name, smoothing, margin)
        ``softmax_margin``: :math:`\tau \log(1 + \sum_k e^{g_k / \tau})`; ``huber_ww``:
        :math:`\sum_k H(g_k)`, H(g) = g above h, 0 below -h, (g + h)^2 / (4h) between; both over
        the rivals k, with g_k the margin minus the lead over the rival.
    """
    name, tau, _ = kernel
    g, rival = _arguments(scores, target, n_ellipsoids, kernel)
    if name == "softmax_margin":
        top = np.maximum(np.where(rival, g, 0.0).max(axis=1), 0.0)
        total = np.where(rival, np.exp((np.where(rival, g, 0.0) - top[:, None]) / tau), 0.0)
        return np.asarray(top + tau * np.log(np.exp(-top / tau) + total.sum(axis=1)))
    hinge = np.where(g > tau, g, np.where(g < -tau, 0.0, (g + tau) ** 2 / (4.0 * tau)))
    return np.asarray(np.where(rival, hinge, 0.0).sum(axis=1))


def margin_gradient(scores: Real, target: Labels, n_ellipsoids: int, kernel: Any) -> Real:
    """Gradient of each record's loss in the scores: the shape of ``scores``."""
    name, tau, _ = kernel
    g, rival = _arguments(scores, target, n_ellipsoids, kernel)
    if name == "softmax_margin":
        top = np.maximum(np.where(rival, g, 0.0).max(axis=1, keepdims=True), 0.0)
        e = np.where(rival, np.exp((np.where(rival, g, 0.0) - top) / tau), 0.0)
        slopes = e / (np.exp(-top / tau) + e.sum(axis=1, keepdims=True))
    elif name == "huber_ww":
        slopes = np.where(rival, np.clip((g + tau) / (2.0 * tau), 0.0, 1.0), 0.0)
    else:
        raise ValueError(f"unknown loss {name!r}")
    slopes[np.arange(len(target)), target] = -slopes.sum(axis=1)
    return np.asarray(slopes)


def _arguments(
    scores: Real, target: Labels, n_ellipsoids: int, kernel: Any
) -> tuple[Real, NDArray[np.bool_]]:
    """Margin minus the lead of the own score over each other one, and which are rivals."""
    own = scores[np.arange(len(target)), target]
    rival = np.arange(scores.shape[1]) // n_ellipsoids != (target // n_ellipsoids)[:, None]
    return kernel[2] - own[:, None] + scores, rival


def solve_gaussian_margin(
    X: Real,
    target: Labels,
    *,
    loss: str,
    n_classes: int,
    n_ellipsoids: int,
    smoothing: float,
    margin: float,
    regularization: float,
    linear: Real,
    data_norm: float,
    psd: bool,
    gradient_tol: float,
    max_iter: int | None,
    n_threads: int,
) -> tuple[NDArray[np.float64] | None, float]:
    """Minimiser by accelerated projected gradient steps; the compiled solver's signature.

    Returns
    -------
    Phi : ndarray of shape (n_classes * n_ellipsoids, p), or None
    radius : float
        Bound of the distance to the minimiser, up to the rounding of double precision.
    """
    del n_threads
    if linear.shape[0] != n_classes * n_ellipsoids:
        raise ValueError("linear: expected one row for each ellipsoid")
    rows, kernel = lifted_rows(X, data_norm), (loss, smoothing, margin)

    def gradient(Phi: Real) -> Real:
        a = margin_gradient(-(rows @ Phi.T), target, n_ellipsoids, kernel)
        return np.asarray(linear + regularization * Phi - a.T @ rows)

    def project(Phi: Real) -> Real:
        return _projected(Phi) if psd else Phi

    # softmax: 1 / (2 tau) bounds the Hessian in the scores; huber_ww: (number of scores) / (2h).
    curve = 1.0 if loss == "softmax_margin" else (n_classes - 1) * n_ellipsoids + 1.0
    top = float(np.linalg.eigvalsh(rows.T @ rows)[-1]) if len(rows) else 0.0
    step = 1.0 / (regularization + 0.5 * curve / smoothing * top)
    Phi = moved = np.zeros(linear.shape)
    weight = 1.0
    for i in range(STEPS if max_iter is None else max_iter):
        slope = gradient(moved)
        new = project(moved - step * slope)
        if i % LOOK == 0:
            v = (moved - new) / step + gradient(new) - slope
            radius = float(np.linalg.norm(v)) / regularization
            if radius <= gradient_tol / regularization:
                return new, radius
        if float(((moved - new) * (new - Phi)).sum()) > 0.0:
            weight = 1.0
        following = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * weight * weight))
        moved = new + (weight - 1.0) / following * (new - Phi)
        Phi, weight = new, following
    return None, math.inf


def _projected(Phi: Real) -> NDArray[np.float64]:
    """Nearest positive semidefinite matrices, in coordinates."""
    values, vectors = np.linalg.eigh(unsvec(Phi))
    kept = (vectors * np.maximum(values, 0.0)[:, None, :]) @ np.swapaxes(vectors, -1, -2)
    return svec(kept)
