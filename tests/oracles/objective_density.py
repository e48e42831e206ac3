r"""Exact output densities of objective perturbation on data sets small enough to integrate.

Released is the minimiser W of J(W) = sum phi + lambda/2 ||W||^2 + <B, W>. So W determines
B = -(lambda W + sum of gradients), and W has density nu(B(W)) det(Hessian of J at W), nu that of
the noise. Both densities of a pair of neighbours are evaluated at the same W; no sample is drawn.

Losses over all classes at once do not see a common shift of the scores. Its noise is the same in
both worlds and independent of the rest, so it is left out: V holds the coordinates of W in an
orthonormal basis of the remaining subspace, and p = 1 or 2 numbers are integrated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.signal import fftconvolve
from scipy.special import ndtri
from scipy.stats import qmc

from twins import smooth_erm

Array = NDArray[np.float64]

# A density is integrated over this many deviations of the noise: 2e-15 of its mass is outside.
DEVIATIONS = 8.0
# On a plane over fewer: 2e-10 are outside, and the steps are smaller.
PLANE_DEVIATIONS = 6.5
# The mass of both densities must be 1 up to this, or the quadrature counts as failed.
MASS_TOL_LINE = 1e-8
MASS_TOL_PLANE = 2e-4
# Of a density that jumps along lines, which a grid meets at an angle that the platform decides.
MASS_TOL_JUMPS = 6e-4
TURN = 0.58
# Losses made of parabolas and lines: their shape changes at two places only.
HUBER = ("huber", "huber_ww")


@dataclass(frozen=True)
class Pair:
    """Two neighbouring data sets: one list of records, and how often each world has each.

    Parameters
    ----------
    rows : ndarray of shape (n, d)
    y : ndarray of shape (n,)
    first, second : ndarray of shape (n,)
        Counts of the records in the two worlds.
    kernel : (name, smoothing, margin)
    n_scores : int
    regularization : float > 0
    """

    rows: Array
    y: NDArray[np.int64]
    first: Array
    second: Array
    kernel: tuple[str, float, float]
    n_scores: int
    regularization: float

    @cached_property
    def basis(self) -> Array:
        """Orthonormal rows, shape (m, n_scores): the subspace that the loss sees."""
        k = self.n_scores
        if self.kernel[0] not in ("softmax_margin", "m3", "huber_ww"):
            return np.eye(k)
        return np.linalg.svd(np.eye(k) - 1.0 / k)[2][: k - 1]

    @property
    def size(self) -> int:
        """Number of coordinates p of V."""
        return self.basis.shape[0] * self.rows.shape[1]

    def swapped(self) -> Pair:
        """The worlds exchanged."""
        return replace(self, first=self.second, second=self.first)

    def scores(self, V: Array) -> Array:
        """Scores of all records at V of shape (G, p): shape (G, n, n_scores)."""
        d = self.rows.shape[1]
        W = np.einsum("gmd,mk->gkd", V.reshape(len(V), -1, d), self.basis)
        return np.einsum("gkd,nd->gnk", W, self.rows)

    def noises(self, V: Array) -> tuple[Array, Array]:
        """The noise that each world needs to release V: twice shape (G, p)."""
        a = smooth_erm.score_gradient(self.scores(V), self.y, self.kernel) @ self.basis.T
        return self._noise(V, a, self.first), self._noise(V, a, self.second)

    def _noise(self, V: Array, a: Array, counts: Array) -> Array:
        moved = np.einsum("gnm,nd->gmd", a * counts[:, None], self.rows)
        return -(self.regularization * V + moved.reshape(V.shape))

    def hessians(self, V: Array) -> tuple[Array, Array]:
        """Hessian of J in the coordinates V in each world: twice shape (G, p, p)."""
        k = self.n_scores
        curves = smooth_erm.score_hessian(self.scores(V), self.y, self.kernel)
        # B C B^T of all C at once, as one product of matrices.
        curves = curves.reshape(-1, k * k) @ np.kron(self.basis, self.basis).T
        curves = curves.reshape(len(V), len(self.y), *2 * self.basis.shape[:1])
        return self._hessian(V, curves, self.first), self._hessian(V, curves, self.second)

    def _hessian(self, V: Array, curves: Array, counts: Array) -> Array:
        p = V.shape[1]
        outer = self.rows[:, :, None] * self.rows[:, None, :] * counts[:, None, None]
        total = np.einsum("gnab,nij->gaibj", curves, outer).reshape(len(V), p, p)
        return total + self.regularization * np.eye(p)

    def reach(self) -> float:
        """Largest difference of the two noises at one V."""
        slope = 1.0 if self.n_scores == 1 else math.sqrt(2.0 * self.n_scores**2)
        norms = np.linalg.norm(self.rows, axis=1)
        return float(slope * (np.abs(self.first - self.second) * norms).sum())

    def log_determinants(self, V: Array) -> tuple[Array, Array]:
        """Log-determinant of each world's Hessian: twice shape (G,)."""
        first, second = self.hessians(V)
        return np.linalg.slogdet(first)[1], np.linalg.slogdet(second)[1]


def gaussian_deltas(pair: Pair, sigma: float, epsilons: Array, n: int = 121) -> Array:
    """Exact deltas of the pair under noise N(0, sigma^2 I), shape (2, n_epsilons).

    Row 0 is the integral of (p - e^eps p')_+ with p the density of the first world, row 1 the same
    with the worlds exchanged. Two coordinates take n^2 points. Raises ArithmeticError when the
    densities' masses miss 1.
    """
    if pair.size == 1:
        V, volume = _line(pair, sigma, np.asarray(epsilons))
        tol = MASS_TOL_LINE
        logdets = pair.log_determinants(V)
    else:
        V, volume, logdets = _plane(pair, sigma, n)
        tol = MASS_TOL_JUMPS if pair.kernel[0] in HUBER else MASS_TOL_PLANE
    masses, losses = _masses(pair, sigma, V, volume, logdets)
    worst = max(abs(float(m.sum()) - 1.0) for m in masses)
    if worst > tol:
        raise ArithmeticError(f"mass off by {worst:.2g}")
    return np.array(
        [
            [_hockey_stick(mass, loss - eps, pair.size) for eps in epsilons]
            for mass, loss in zip(masses, losses, strict=True)
        ]
    )


def _hockey_stick(mass: Array, surplus: Array, size: int) -> float:
    """Expectation of (1 - exp(-surplus))_+."""
    total = float((mass * -np.expm1(-np.maximum(surplus, 0.0))).sum())
    if size == 1:
        return total
    # Euler and Maclaurin: a jump of the slope by a at the part theta of a step h costs the
    # trapezoidal rule -a h^2 B(theta) / 2, B the second Bernoulli polynomial.
    n = math.isqrt(mass.size)
    s, m = surplus.reshape(n, n), mass.reshape(n, n)
    i, j = np.nonzero(np.signbit(s[1:]) != np.signbit(s[:-1]))
    jump = np.abs(s[i + 1, j] - s[i, j])
    # A steeper passage is a jump of the curvature, not a kink: no formula helps there.
    i, j, jump = i[jump < 1.0], j[jump < 1.0], jump[jump < 1.0]
    theta = np.abs(s[i, j]) / jump
    there = m[i, j] ** (1.0 - theta) * m[i + 1, j] ** theta
    return total + 0.5 * float((jump * there * (theta * (theta - 1.0) + 1.0 / 6.0)).sum())


def sum_deltas(pairs: list[Pair], sigma: float, epsilons: Array, n_cells: int = 4096) -> Array:
    """The same for one-vs-rest scores: W has one independent row per pair of the list.

    The log-ratio is the sum of the rows' log-ratios. Each of these is put on a grid, a value shared
    out between its two neighbours so that the mean stays.
    """
    found = []
    for world in (0, 1):
        laws = []
        for pair in pairs:
            V, volume = _line(pair, sigma, np.asarray(epsilons))
            masses, losses = _masses(pair, sigma, V, volume, pair.log_determinants(V))
            laws.append((masses[world], losses[world]))
        kept = [(m[m > 1e-18], u[m > 1e-18]) for m, u in laws]
        step = max(*(float(np.ptp(u)) for _, u in kept), 1e-9) / n_cells
        total, start = np.ones(1), 0.0
        for mass, loss in kept:
            low = float(loss.min())
            cell = np.minimum(((loss - low) / step).astype(int), n_cells)
            part = (loss - low) / step - cell
            grid = np.bincount(cell, mass * (1.0 - part), n_cells + 2)
            grid += np.bincount(cell + 1, mass * part, n_cells + 2)
            total, start = fftconvolve(total, grid), start + low
        if abs(float(total.sum()) - 1.0) > MASS_TOL_LINE:
            raise ArithmeticError(f"mass off by {total.sum() - 1.0:.2g}")
        surplus = start + step * np.arange(total.size) - np.asarray(epsilons)[:, None]
        found.append((total * -np.expm1(-np.maximum(surplus, 0.0))).sum(axis=1))
    return np.array(found)


def sampled_deltas(
    pair: Pair, sigma: float, epsilons: Array, seed: int, n: int = 2048, repeats: int = 8
) -> tuple[Array, Array]:
    """The same for any number of coordinates by quasi-random points, and the standard errors.

    The second world's noise is drawn wider than it is, so that the first world's is covered too.
    """
    wide = 1.3 * sigma
    found = []
    for i in range(repeats):
        points = qmc.Sobol(pair.size, seed=np.random.default_rng([seed, i])).random(n)
        b = wide * ndtri(np.clip(points, 1e-12, 1.0 - 1e-12))
        drawn = np.exp(-0.5 * ((b / wide) ** 2).sum(axis=1)) / (wide * math.sqrt(math.tau)) ** (
            pair.size
        )
        V = invert(pair, b)
        logdets = pair.log_determinants(V)
        volume = 1.0 / (n * drawn * np.exp(logdets[1]))
        masses, losses = _masses(pair, sigma, V, volume, logdets)
        surplus = [loss - np.asarray(epsilons)[:, None] for loss in losses]
        found.append(
            [
                (mass * -np.expm1(-np.maximum(over, 0.0))).sum(axis=1)
                for mass, over in zip(masses, surplus, strict=True)
            ]
        )
    return np.mean(found, axis=0), np.std(found, axis=0, ddof=1) / math.sqrt(repeats)


def _masses(
    pair: Pair, sigma: float, V: Array, volume: Array, logdets: tuple[Array, Array]
) -> tuple[list[Array], list[Array]]:
    """Probability of each cell in each world, and the log-ratio of the densities there."""
    noises = pair.noises(V)
    scale = 0.5 * pair.size * math.log(2.0 * math.pi * sigma**2)
    logs = [
        ld - 0.5 * ((b / sigma) ** 2).sum(axis=1) - scale
        for b, ld in zip(noises, logdets, strict=True)
    ]
    loss = logs[0] - logs[1]
    return [np.exp(log) * volume for log in logs], [loss, -loss]


NODES, WEIGHTS = np.polynomial.legendre.leggauss(8)


def _line(pair: Pair, sigma: float, epsilons: Array) -> tuple[Array, Array]:
    """Gauss-Legendre nodes in V for one coordinate, in panels that end at every kink."""
    reach = DEVIATIONS * sigma + pair.reach()
    total = pair.reach() + float(np.abs(pair.rows).sum(axis=1) @ pair.second) * pair.n_scores
    far = (reach + total) / pair.regularization
    kinks = kinks_of(pair)
    edges = np.union1d(np.linspace(-far, far, 2001), kinks[np.abs(kinks) < far])
    targets = np.linspace(-reach, reach, 400)
    # Inverse interpolation, repeated: the panels need only be about equal in the noise.
    for _ in range(4):
        b = pair.noises(edges[:, None])[1][:, 0]
        edges = np.union1d(np.interp(-targets, -b, edges), kinks)
    for _ in range(3):
        edges = np.union1d(edges, _crossings(pair, sigma, edges, epsilons))
    width = np.diff(edges)
    V = edges[:-1, None] + 0.5 * width[:, None] * (NODES + 1.0)
    volume = 0.5 * width[:, None] * WEIGHTS
    return V.reshape(-1, 1), volume.ravel()


def _crossings(pair: Pair, sigma: float, edges: Array, epsilons: Array) -> Array:
    """About where the log-ratio passes plus or minus each epsilon: there the integrand kinks."""
    V = edges[:, None]
    loss = _masses(pair, sigma, V, np.ones(len(V)), pair.log_determinants(V))[1][0]
    excess = loss - np.concatenate([epsilons, -epsilons])[:, None]
    level, i = np.nonzero(np.signbit(excess[:, :-1]) != np.signbit(excess[:, 1:]))
    low, high = excess[level, i], excess[level, i + 1]
    return edges[i] + (edges[i + 1] - edges[i]) * low / (low - high)


def kinks_of(pair: Pair, way: Array | None = None) -> Array:
    """Places on a line through 0 where a record's loss changes its shape, sorted.

    In units of ``way``, a vector of p coordinates; None for one coordinate, which is the line.
    """
    ends = np.outer([0.0, 1.0], np.ones(1) if way is None else way)
    at = smooth_erm.score_arguments(pair.scores(ends), pair.y, pair.kernel)[0]
    offset, slope = at[0].ravel(), (at[1] - at[0]).ravel()
    offset, slope = offset[slope != 0.0], slope[slope != 0.0]
    powers = 2.0 ** np.arange(-1, 7)
    levels = np.array([1.0]) if pair.kernel[0] in HUBER else np.append(powers, 0.0)
    levels = pair.kernel[1] * np.concatenate([-levels, levels])
    return np.unique((levels[:, None] - offset) / slope)


def _plane(pair: Pair, sigma: float, n: int) -> tuple[Array, Array, tuple[Array, Array]]:
    """A square grid in the second world's noise and its image in V, for two coordinates.

    Returns the images, the volumes of their cells and the worlds' log-determinants there.

    It is turned against the axes: a kink of the integrand along a grid line would be met at the
    same place of every cell, and the errors, which have mean 0 over a cell, would add up.
    """
    reach = PLANE_DEVIATIONS * sigma + pair.reach()
    side = np.linspace(-reach, reach, n)
    b = np.stack(np.meshgrid(side, side, indexing="ij"), axis=-1).reshape(-1, 2)
    b = b @ np.array([[math.cos(TURN), -math.sin(TURN)], [math.sin(TURN), math.cos(TURN)]])
    V = invert(pair, b)
    logdets = pair.log_determinants(V)
    return V, (side[1] - side[0]) ** 2 / np.exp(logdets[1]), logdets


def invert(pair: Pair, b: Array) -> Array:
    """V that the second world releases under noise b: damped Newton steps, all points at once."""
    V = np.zeros_like(b)
    residual = b - pair.noises(V)[1]
    for _ in range(200):
        norm = np.linalg.norm(residual, axis=1)
        active = norm > 1e-11 * (1.0 + np.linalg.norm(b, axis=1))
        if not active.any():
            return V
        W, target = V[active], b[active]
        # d noise / d V = -Hessian.
        step = -np.linalg.solve(pair.hessians(W)[1], residual[active][..., None])[..., 0]
        size = np.ones(len(W))
        for _ in range(40):
            moved = target - pair.noises(W + size[:, None] * step)[1]
            worse = np.linalg.norm(moved, axis=1) > (1.0 - 1e-4 * size) * norm[active]
            if not worse.any():
                break
            size[worse] *= 0.5
        V[active], residual[active] = W + size[:, None] * step, moved
    raise ArithmeticError("no minimiser found")
