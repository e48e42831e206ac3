r"""Slow numpy twin of the solver of smooth regularised problems.

.. math::
    J(W) = \sum_i w_i \phi_{y_i}(W \tilde x_i) + \tfrac{\lambda}{2} \|W\|_F^2 + \langle B, W \rangle

with W of shape (n_scores, n_columns). A kernel is the triple (name, smoothing, margin); with k the
scores, y the own class and t_k = +1 for it and -1 otherwise (one score: label 1 has t = +1):

- ``softmax_margin``: :math:`\tau \log \sum_k \exp((m 1[k \ne y] + s_k - s_y) / \tau)`
- ``softplus``: :math:`\sum_k \tau \log(1 + \exp((m - t_k s_k) / \tau))`
- ``huber``: :math:`\sum_k H(t_k s_k)`, H = 0 above m + h, m - z below m - h, a parabola between
- ``m3``: :math:`\sum_{k \ne y} (g_k + \sqrt{g_k^2 + \tau^2}) / 2`, g_k = m - s_y + s_k
- ``huber_ww``: :math:`\sum_{k \ne y} H(s_y - s_k)`
- ``margin_distance``: d - h/2, below h the parabola d^2 / (2h), with d the distance of the scores
  to those with s_y at least m above all others

J is lambda-strongly convex, so :math:`\|W - W^*\|_F \le \|\nabla J(W)\|_F / \lambda`: the minimiser
is certified by a gradient evaluated in extended precision.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

__all__ = [
    "Problem",
    "minimise",
    "score_arguments",
    "score_gradient",
    "score_hessian",
    "score_loss",
]

# Real arrays of any precision: the same code runs in double and in extended precision.
Real = NDArray[Any]
Labels = NDArray[np.int64]
Kernel = tuple[str, float, float]

NEWTON_STEPS = 500
POLISH_STEPS = 60


def score_loss(scores: Real, y: Labels, kernel: Kernel) -> Real:
    """Loss of each record.

    Parameters
    ----------
    scores : ndarray of shape (..., n_samples, n_scores)
    y : ndarray of shape (n_samples,)
    kernel : (name, smoothing, margin)

    Returns
    -------
    ndarray of shape (..., n_samples)
    """
    name, tau, _ = kernel
    z, _, _ = score_arguments(scores, y, kernel)
    if name == "softmax_margin":
        top = z.max(axis=-1, keepdims=True)
        return np.asarray(top[..., 0] + tau * np.log(np.exp((z - top) / tau).sum(axis=-1)))
    if name == "softplus":
        return np.asarray(_softplus(z, tau).sum(axis=-1))
    if name == "margin_distance":
        distance = _length(_residual(z, y))
        return np.where(distance > tau, distance - tau / 2, distance**2 / (2 * tau))
    if name in ("huber", "huber_ww"):
        inside = (z + tau) ** 2 / (4 * tau)
        hinge = np.where(z > tau, z, np.where(z < -tau, 0, inside))
        counted = True if name == "huber" else ~_own(z, y)
        return np.asarray(np.where(counted, hinge, 0).sum(axis=-1))
    root = np.hypot(z, tau)
    own = np.where(_own(z, y), 0, 1)
    # (z + root) / 2, without the cancellation at large negative z.
    value = np.where(z > 0, z + root, tau**2 / (root + np.abs(z))) / 2
    return np.asarray((value * own).sum(axis=-1))


def score_gradient(scores: Real, y: Labels, kernel: Kernel) -> Real:
    """Gradient of each record's loss in its scores: the shape of ``scores``."""
    z, sign, joint = score_arguments(scores, y, kernel)
    if kernel[0] == "margin_distance":
        residual = _residual(z, y)
        return np.asarray(residual / np.maximum(_length(residual), kernel[1])[..., None])
    slope = _slopes(scores, y, kernel)
    if not joint:
        return np.asarray(-sign * slope)
    own = _own(slope, y)
    # The own class balances the others; summing them loses nothing, 1 - p_y would.
    others = np.where(own, 0, slope)
    return np.where(own, -others.sum(axis=-1, keepdims=True), others)


def score_hessian(scores: Real, y: Labels, kernel: Kernel) -> Real:
    """Second derivative of each record's loss, shape (..., n_samples, n_scores, n_scores).

    At the two kinks of a Huber hinge it is the value inside.
    """
    name, tau, _ = kernel
    z, _, joint = score_arguments(scores, y, kernel)
    eye = np.eye(z.shape[-1], dtype=z.dtype)
    if name == "margin_distance":
        return _distance_hessian(_residual(z, y), tau, eye)
    slope = _slopes(scores, y, kernel)
    if name == "softmax_margin":
        spread = slope[..., None] * eye - slope[..., None] * slope[..., None, :]
        return np.asarray(spread / tau)
    if name == "softplus":
        curve = slope * _sigmoid(-z / tau) / tau
    elif name in ("huber", "huber_ww"):
        inside = np.abs(z) <= tau
        counted = inside if name == "huber" else inside & ~_own(z, y)
        curve = np.where(counted, 1 / (2 * tau) + 0 * z, 0 * z)
    else:
        own = _own(z, y)
        # tau^2 / (2 (z^2 + tau^2)^1.5) for each rival, in an order that cannot overflow.
        root = np.hypot(z, tau)
        curve = np.where(own, 0, (tau / root) ** 2 / (2 * root))
    if not joint:
        return np.asarray(curve[..., None] * eye)
    # Sum over rivals of curve * (e_k - e_y)(e_k - e_y)^T.
    own = np.where(_own(z, y), 1, 0)
    across = curve[..., None] * own[..., None, :]
    total = curve.sum(axis=-1)[..., None, None] * (own[..., None] * own[..., None, :])
    return np.asarray(curve[..., None] * eye - across - np.swapaxes(across, -1, -2) + total)


@dataclass(frozen=True)
class Problem:
    """J of the module's text.

    Parameters
    ----------
    rows : ndarray of shape (n_samples, n_columns)
        As the solver sees them: clipped, with the intercept's column.
    y : ndarray of shape (n_samples,)
    n_scores : int
    kernel : (name, smoothing, margin)
    regularization : float > 0
    linear : ndarray of shape (n_scores, n_columns), or None for 0
    weights : ndarray of shape (n_samples,), or None for 1
        How often each record is present.
    """

    rows: Real
    y: Labels
    n_scores: int
    kernel: Kernel
    regularization: float
    linear: Real | None = None
    weights: Real | None = None

    def value(self, W: Real) -> float:
        """J(W)."""
        loss = score_loss(self.rows @ W.T, self.y, self.kernel)
        total = (loss * self._counts()).sum() + self.regularization / 2 * (W**2).sum()
        return float(total + (0.0 if self.linear is None else (self.linear * W).sum()))

    def gradient(self, W: Real) -> Real:
        """Gradient of J at W of shape (..., n_scores, n_columns), in the precision of W."""
        scores = np.einsum("...kd,nd->...nk", W, self.rows.astype(W.dtype))
        a = score_gradient(scores, self.y, self.kernel) * self._counts()[:, None]
        total = np.einsum("...nk,nd->...kd", a, self.rows.astype(W.dtype))
        total = total + self.regularization * W
        return np.asarray(total if self.linear is None else total + self.linear)

    def hessian(self, W: Real) -> Real:
        """Hessian of J, shape (..., p, p) with p = n_scores * n_columns, for W in C order."""
        rows = self.rows
        scores = np.einsum("...kd,nd->...nk", W, rows)
        curves = score_hessian(scores, self.y, self.kernel) * self._counts()[:, None, None]
        n, k, d = rows.shape[0], self.n_scores, rows.shape[1]
        outer = (rows[:, :, None] * rows[:, None, :]).reshape(n, d * d)
        flat = np.moveaxis(curves, -3, -1).reshape(*W.shape[:-2], k * k, n) @ outer
        blocks = flat.reshape(*W.shape[:-2], k, k, d, d)
        p = k * d
        total = np.moveaxis(blocks, -3, -2).reshape(*W.shape[:-2], p, p)
        return np.asarray(total + self.regularization * np.eye(p))

    def _counts(self) -> Real:
        return np.ones(self.y.size) if self.weights is None else self.weights


def minimise(problem: Problem, tol: float = 1e-13) -> tuple[NDArray[np.float64], float]:
    """Minimiser of J by damped Newton steps, then Newton steps on the extended gradient.

    Parameters
    ----------
    problem : Problem
    tol : float > 0
        Wanted distance to the minimiser, relative to 1 + its norm.

    Returns
    -------
    W : ndarray of shape (n_scores, n_columns)
    radius : float
        ``||W - W*||_F`` is at most this: the extended gradient's norm over lambda.

    Raises
    ------
    ArithmeticError
        If ``tol`` is not reached.
    """
    W = _damped_newton(problem)
    extended = W.astype(np.longdouble)
    for _ in range(POLISH_STEPS):
        gradient = problem.gradient(extended)
        radius = float(np.sqrt((gradient**2).sum())) / problem.regularization
        if radius <= 0.1 * tol * (1.0 + float(np.sqrt((extended**2).sum()))):
            break
        extended = _polish(problem, extended, gradient)
    found = extended.astype(np.float64)
    rounding = float(np.sqrt(((extended - found) ** 2).sum()))
    if radius + rounding > tol * (1.0 + float(np.linalg.norm(found))):
        raise ArithmeticError(
            f"distance {radius + rounding:.3g} to the minimiser, wanted {tol:.3g}"
        )
    return found, radius + rounding


def _damped_newton(problem: Problem) -> NDArray[np.float64]:
    """Newton steps halved until J falls enough, from 0 to the floor of double precision."""
    W = np.zeros((problem.n_scores, problem.rows.shape[1]))
    value = problem.value(W)
    for _ in range(NEWTON_STEPS):
        gradient = problem.gradient(W)
        step = _newton_step(problem, W, gradient)
        slope = float((step * gradient).sum())
        size = 1.0
        while size > 1e-12:
            moved = problem.value(W - size * step)
            if moved <= value - 1e-4 * size * slope:
                break
            size *= 0.5
        if size <= 1e-12 or value - moved <= 1e-15 * abs(value):
            break
        W, value = W - size * step, moved
    return W


def _polish(problem: Problem, W: Real, gradient: Real) -> Real:
    """One Newton step, halved until the extended gradient's norm falls."""
    step = _newton_step(problem, W.astype(np.float64), gradient.astype(np.float64))
    norm = (gradient**2).sum()
    size = np.longdouble(1.0)
    while size > 1e-9 and (problem.gradient(W - size * step) ** 2).sum() >= norm:
        size /= 2
    return W - size * step


def _newton_step(problem: Problem, W: Real, gradient: Real) -> Real:
    H = problem.hessian(W)
    try:
        return np.asarray(cho_solve(cho_factor(H), gradient.ravel()).reshape(W.shape))
    except LinAlgError:  # numerically semi-definite beside a tiny regularisation
        return np.asarray(np.linalg.lstsq(H, gradient.ravel(), rcond=None)[0].reshape(W.shape))


def _own(z: Real, y: Labels) -> NDArray[np.bool_]:
    """One-hot labels, shape (n_samples, n_scores)."""
    return np.asarray(np.arange(z.shape[-1]) == y[:, None])


def score_arguments(scores: Real, y: Labels, kernel: Kernel) -> tuple[Real, Real, bool]:
    """Per score: what the scalar loss is applied to, the sign t, and whether classes meet."""
    name, _, margin = kernel
    own = (y == 1)[:, None] if scores.shape[-1] == 1 else _own(scores, y)
    if name in ("softmax_margin", "m3", "huber_ww", "margin_distance"):
        reference = np.where(own, scores, 0).sum(axis=-1, keepdims=True)
        return np.where(own, 0, margin) + scores - reference, np.ones(own.shape), True
    sign = np.where(own, 1.0, -1.0)
    return margin - sign * scores, sign, False


def _residual(z: Real, y: Labels) -> Real:
    """Scores less the nearest ones that keep the margin; z as of :func:`score_arguments`.

    The own score rises by u and every rival falls by what is left of z above u; these must balance,
    so u is the mean of 0 and of the largest z, as many as exceed it.
    """
    own = _own(z, y)
    rivals = np.where(own, 0, np.maximum(z, 0))
    sums = np.cumsum(-np.sort(-rivals, axis=-1), axis=-1)
    # The mean over too few or too many of them is smaller.
    u = (sums / np.arange(2, z.shape[-1] + 2)).max(axis=-1, keepdims=True)
    left = np.where(own, 0, np.maximum(rivals - u, 0))
    return np.where(own, -left.sum(axis=-1, keepdims=True), left)


def _length(residual: Real) -> Real:
    """Norm of each residual."""
    return np.asarray(np.sqrt((residual**2).sum(axis=-1)))


def _distance_hessian(residual: Real, tau: float, eye: Real) -> Real:
    """Centring of the moved scores, flat along a residual longer than tau."""
    moved = (residual != 0).astype(residual.dtype)
    count = np.maximum(moved.sum(axis=-1), 1)[..., None, None]
    centring = moved[..., None] * (eye - moved[..., None, :] / count)
    distance = _length(residual)[..., None, None]
    along = residual / np.maximum(distance[..., 0], 1e-300)
    tail = np.where(distance > tau, along[..., None] * along[..., None, :], 0)
    return np.asarray((centring - tail) / np.maximum(distance, tau))


def _slopes(scores: Real, y: Labels, kernel: Kernel) -> Real:
    """Derivative of the scalar loss in its argument; softmax: the probabilities."""
    name, tau, _ = kernel
    z, _, _ = score_arguments(scores, y, kernel)
    if name == "softmax_margin":
        e = np.exp((z - z.max(axis=-1, keepdims=True)) / tau)
        return np.asarray(e / e.sum(axis=-1, keepdims=True))
    if name == "softplus":
        return _sigmoid(z / tau)
    if name in ("huber", "huber_ww"):
        return np.clip((z + tau) / (2 * tau), 0, 1)
    root = np.hypot(z, tau)
    # (1 + z / root) / 2, without the cancellation at large negative z.
    low = (tau / root) * (tau / (root + np.abs(z))) / 2
    return np.where(z > 0, 1 - low, low)


def _softplus(z: Real, tau: float) -> Real:
    """Softplus of temperature tau, without overflow."""
    return np.asarray(np.maximum(z, 0) + tau * np.log1p(np.exp(-np.abs(z) / tau)))


def _sigmoid(z: Real) -> Real:
    """1 / (1 + exp(-z)) in the precision of z, without overflow."""
    e = np.exp(-np.abs(z))
    return np.where(z > 0, 1 / (1 + e), e / (1 + e))
