r"""Exact epsilon of mechanisms with known output density: no sampling, no false alarms.

Objective perturbation releases the minimiser W of an objective with a random linear term B, so W
determines :math:`B = -(\lambda W + g(W))`, g the sum of the gradients, and has the density
:math:`\nu(B(W)) \det H(W)`, H the Hessian of the objective. The densities of both worlds are
compared at the same W. Nodes are points b of the second world's noise: there its density is that of
b, and the first world's density is :math:`\nu(B_1(W)) \det H_1(W) / \det H_2(W)` per unit of b.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from dpsvm_fast import _core
from dpsvm_fast.accounting import gaussian_epsilon
from dpsvm_fast.audit.bounds import boundary, largest
from dpsvm_fast.audit.pair_audit import (
    AuditReport,
    DescentWorld,
    ObjectiveWorld,
    OutputWorld,
    Pair,
    TransformerWorld,
    subject_of,
)
from dpsvm_fast.exceptions import InvalidParameterError

Array = NDArray[np.float64]

# The noise is integrated over this many deviations: 1e-15 of its mass lies outside.
DEVIATIONS = 8.0

NODES = {1: 40_001, 2: 301}
# Largest deviation from 1 of the integral of the first density.
MASS_TOL = {1: 1e-6, 2: 2e-3}

LARGEST_EPSILON = 1e4


def audit_density(estimator: Any, *, pair: Pair | None = None) -> AuditReport:
    """Return the exact epsilon of a pair of neighbours at the claimed delta.

    Parameters
    ----------
    estimator : estimator or transformer
        ``OutputPerturbationSVC``; ``ObjectivePerturbationSVC`` with one score (two classes, not
        "m3" or "huber_ww") and at most two weights; ``GradientPerturbationSVC`` with one step and a
        gradient that is clipped in both worlds; or a transformer of this library.
    pair : Pair or None, default=None
        As in ``audit``.

    Returns
    -------
    AuditReport
        Report with ``confidence`` 1 and no trials. ``certified`` is exact for this pair up to
        quadrature error (relative 1e-6; 1e-3 for two weights), and a lower bound over all pairs.

    Raises
    ------
    InvalidParameterError
        No closed form is known for these settings.

    Notes
    -----
    For objective perturbation the exact minimiser is considered; the small additional noise that
    covers the solver's tolerance can only lower epsilon. For output perturbation the distance of
    the two solutions is measured and the noise is assumed to have its stated scale, which the tests
    of the samplers check.

    Examples
    --------
    >>> from dpsvm_fast import OutputPerturbationSVC
    >>> from dpsvm_fast.audit import audit_density
    >>> report = audit_density(OutputPerturbationSVC(1.0, 1e-5, C=0.1))
    >>> 0.9 < report.certified <= report.epsilon
    True
    """
    started = time.monotonic()
    subject = subject_of(estimator, pair=pair)
    found = _exact_epsilon(subject.worlds, subject.claim.delta)
    return AuditReport.on(
        subject.name,
        subject.claim,
        started,
        certified=found,
        method="density",
        confidence=1.0,
        n_trials=0,
        statistic="the ratio of the densities",
    )


def _exact_epsilon(worlds: tuple[Any, Any], delta: float) -> float:
    """Return the exact epsilon of a pair of worlds, by their kind."""
    first, second = worlds
    if isinstance(first, OutputWorld):
        solutions = [world.solution(_core.NoiseSource(0)) for world in worlds]
        noise = first.plan.output
        distance = float(np.linalg.norm(solutions[0] - solutions[1]))
        return _of_distance(distance, noise.scale, delta, gamma=noise.noise == "gamma")
    if isinstance(first, TransformerWorld):
        noise = first.total.sum
        distance = float(np.linalg.norm(first.exact - second.exact))
        return _of_distance(distance, noise.scale, delta, gamma=noise.mu is None)
    if isinstance(first, ObjectiveWorld):
        return _of_objective(first, second, delta)
    if isinstance(first, DescentWorld):
        return _of_step(first.plan, delta)
    kind = type(getattr(first, "estimator", None)).__name__
    raise InvalidParameterError(f"estimator: got {kind}, whose density has no closed form")


def _of_distance(distance: float, scale: float, delta: float, *, gamma: bool) -> float:
    """Return epsilon for Gaussian noise of deviation ``scale`` or Gamma noise of rate ``scale``."""
    if distance == 0.0:
        return 0.0
    return distance * scale if gamma else gaussian_epsilon(delta, scale / distance)


def hockey_stick_epsilon(delta_at: Callable[[float], float], delta: float) -> float:
    """Return the smallest epsilon with delta at most ``delta``, by bisection."""
    if delta_at(0.0) <= delta:
        return 0.0
    found = largest(lambda epsilon: delta_at(epsilon) > delta, LARGEST_EPSILON)
    return math.inf if found > LARGEST_EPSILON else found


def _of_step(mechanism: Any, delta: float) -> float:
    r"""Return epsilon of one step on a Poisson sample: mixtures of two normals, by their tails.

    The record's contribution is assumed to have the clip norm, the largest possible. So this checks
    noise, sampling rate and accounting against each other, but not the clipping, which audits by
    many runs check.

    :math:`(1-q) N(0, z^2) + q N(1, z^2)` against :math:`N(0, z^2)`, both ways, or against the
    mixture with -1 instead of 1. Their ratio increases with x, so the best event is a half line
    that starts where the ratio is :math:`e^\epsilon`.
    """
    if mechanism.steps != 1:
        raise InvalidParameterError.of("n_steps", got=mechanism.steps, accepted="1")
    q, z = mechanism.rate, mechanism.noise.sigma / mechanism.noise.clip
    means = (-1.0, 1.0) if mechanism.adjacency == "replace_one" else (0.0, 1.0)

    def tail(x: float, mean: float) -> float:
        return float((1.0 - q) * stats.norm.sf(x / z) + q * stats.norm.sf((x - mean) / z))

    stays = math.log1p(-q) if q < 1.0 else -math.inf

    def log_tilt(x: float, mean: float) -> float:
        """Return the log of the ratio of (1 - q) N(0, z^2) + q N(mean, z^2) to N(0, z^2)."""
        return float(np.logaddexp(stays, math.log(q) + mean * (x - 0.5 * mean) / z**2))

    def root(level: float) -> float:
        """Return where the worlds' increasing ratio reaches a level, or an end of the range."""
        reach = 50.0 * z + 2.0
        return boundary(
            lambda x: log_tilt(x, means[1]) - log_tilt(x, means[0]) < level, -reach, reach
        )

    def delta_at(epsilon: float) -> float:
        right, left = root(epsilon), root(-epsilon)
        grown = math.exp(epsilon)
        over = tail(right, means[1]) - grown * tail(right, means[0])
        under = (1.0 - tail(left, means[0])) - grown * (1.0 - tail(left, means[1]))
        return max(over, under)

    return hockey_stick_epsilon(delta_at, delta)


@dataclass(frozen=True, eq=False)
class Objective:
    """Smooth objective of one score over the records of one world.

    Parameters
    ----------
    rows : ndarray of shape (n, d)
        Clipped rows with the constant feature.
    signs : ndarray of shape (n,)
        1 or -1.
    kernel : (name, smoothing, margin)
        "softplus" or "huber".
    regularization : float > 0
    """

    rows: Array
    signs: Array
    kernel: tuple[str, float, float]
    regularization: float

    def _slopes(self, W: Array) -> tuple[Array, Array]:
        """Return the first and second derivative of the loss in its argument, each (G, n)."""
        name, tau, margin = self.kernel
        z = margin - (W @ self.rows.T) * self.signs
        if name == "huber":
            return np.clip((z + tau) / (2.0 * tau), 0.0, 1.0), (np.abs(z) < tau) / (2.0 * tau)
        u = 0.5 * (1.0 + np.tanh(0.5 * z / tau))
        return u, u * (1.0 - u) / tau

    def noise(self, W: Array) -> Array:
        """Return the noise B that makes W the minimiser, shape (G, d)."""
        slope = self._slopes(W)[0]
        return np.asarray((slope * self.signs) @ self.rows - self.regularization * W)

    def hessian(self, W: Array) -> Array:
        """Return Hessians of the objective, shape (G, d, d)."""
        curved = self._slopes(W)[1]
        d = self.rows.shape[1]
        outer = self.rows[:, :, None] * self.rows[:, None, :]
        return np.asarray(np.einsum("gn,nij->gij", curved, outer) + self.regularization * np.eye(d))

    def minimiser(self, B: Array) -> Array:
        """Return the minimiser W for every B, by Newton's method with step halving."""
        W = B / self.regularization * -1.0
        for _ in range(200):
            residual = B - self.noise(W)
            norm = np.linalg.norm(residual, axis=1)
            if (norm <= 1e-11 * (1.0 + np.linalg.norm(B, axis=1))).all():
                return W
            step = -np.linalg.solve(self.hessian(W), residual[..., None])[..., 0]
            size = np.ones(len(W))
            for _ in range(30):
                worse = np.linalg.norm(B - self.noise(W + size[:, None] * step), axis=1) > norm
                if not worse.any():
                    break
                size[worse] *= 0.5
            W = W + size[:, None] * step
        raise ArithmeticError("no minimiser found")


def _objective_of(world: ObjectiveWorld) -> Objective:
    """Return the objective of one world, as the solver sees it."""
    mechanism = world.plan
    kernel = mechanism.loss.kernel
    if mechanism.loss.n_scores != 1 or mechanism.n_weights > 2:
        raise InvalidParameterError(
            "estimator: expected one score and at most two weights: two classes, not 'm3' or "
            "'huber_ww', and one feature with an intercept or two without"
        )
    X = np.asarray(world.rows.X, dtype=np.float64)
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    X = X * np.minimum(1.0, mechanism.data_norm / np.maximum(norms, 1e-300))
    if mechanism.intercept_scaling > 0.0:
        X = np.hstack([X, np.full((len(X), 1), mechanism.intercept_scaling)])
    signs = np.where(world.rows.codes == 1, 1.0, -1.0)
    return Objective(X, signs, kernel, mechanism.regularization)


def _of_objective(first: ObjectiveWorld, second: ObjectiveWorld, delta: float) -> float:
    """Return epsilon of objective perturbation with noise in one or two weights."""
    worlds = _objective_of(first), _objective_of(second)
    inside = first.plan.inside
    size = inside.n_weights
    # Largest contribution of the records to B, in both worlds together.
    reach = sum(float(np.linalg.norm(world.rows, axis=1).sum()) for world in worlds)
    if inside.noise == "gamma":
        return _largest_log_ratio(worlds, inside.scale, size, reach)
    sigma = inside.scale
    side = np.linspace(-1.0, 1.0, NODES[size]) * (DEVIATIONS * sigma + reach)
    B = np.stack(np.meshgrid(*[side] * size, indexing="ij"), axis=-1).reshape(-1, size)
    if size == 2:
        # Rotated: a kink along a grid line would meet all its cells alike.
        c, s = math.cos(0.58), math.sin(0.58)
        B = B @ np.array([[c, -s], [s, c]])

    def log_density(noise: Array) -> Array:
        return np.asarray(-0.5 * (noise**2).sum(axis=1) / sigma**2)

    loss = _log_ratio(worlds, B, log_density)
    cell = (side[1] - side[0]) ** size / (2.0 * math.pi * sigma**2) ** (0.5 * size)
    rare = np.exp(log_density(B)) * cell
    likely = rare * np.exp(loss)
    if abs(float(likely.sum()) - 1.0) > MASS_TOL[size]:
        raise ArithmeticError(f"the density's mass is {likely.sum():.6g}")

    def delta_at(epsilon: float) -> float:
        # Without BLAS: its threads cost more than they save here.
        over = (likely * -np.expm1(np.minimum(epsilon - loss, 0.0))).sum()
        under = (rare * -np.expm1(np.minimum(epsilon + loss, 0.0))).sum()
        return float(max(over, under))

    return hockey_stick_epsilon(delta_at, delta)


def _log_ratio(
    worlds: tuple[Objective, Objective], B: Array, log_density: Callable[[Array], Array]
) -> Array:
    """Return the log-ratio of both densities at the minimisers for the second world's noise B."""
    W = worlds[1].minimiser(B)
    first, second = (np.linalg.slogdet(world.hessian(W))[1] for world in worlds)
    return np.asarray(log_density(worlds[0].noise(W)) - log_density(B) + first - second)


def _largest_log_ratio(
    worlds: tuple[Objective, Objective], rate: float, size: int, reach: float
) -> float:
    """Return the largest log-ratio for pure noise, on lines through 0 in all directions."""
    far = 50.0 * (reach + 1.0 / rate)
    radii = np.concatenate([np.linspace(0.0, 2.0 * reach, 4001), np.geomspace(1e-6, far, 4001)])
    turns = np.array([[1.0], [-1.0]])
    if size == 2:
        radii = radii[::10]
        angles = np.linspace(0.0, 2.0 * math.pi, 721)[:-1]
        turns = np.stack([np.cos(angles), np.sin(angles)], axis=1)

    def log_density(noise: Array) -> Array:
        return np.asarray(-rate * np.linalg.norm(noise, axis=1))

    ratios = (_log_ratio(worlds, radii[:, None] * turn, log_density) for turn in turns)
    return max(float(np.abs(ratio).max()) for ratio in ratios)
