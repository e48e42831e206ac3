"""Numbers behind docs/proofs/gaussian_margin.md, each from first principles."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import ndtr

from dpsvm_fast import _core
from dpsvm_fast.accounting import gaussian_delta
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.mechanisms.gaussian_margin import CONSTANT, GaussianMargin
from oracles.plans import plan_of

pytestmark = pytest.mark.proof("gaussian_margin")

Array = NDArray[np.float64]


def svec(matrix: Array) -> Array:
    """Coordinates of symmetric matrices in an orthonormal basis."""
    above, right = np.triu_indices(matrix.shape[-1])
    scale = np.where(above == right, 1.0, math.sqrt(2.0))
    return np.asarray(matrix[..., above, right] * scale)


def smat(coordinates: Array, size: int) -> Array:
    """The symmetric matrices with these coordinates."""
    above, right = np.triu_indices(size)
    scale = np.where(above == right, 1.0, math.sqrt(0.5))
    matrix = np.zeros((*coordinates.shape[:-1], size, size))
    matrix[..., above, right] = matrix[..., right, above] = coordinates * scale
    return matrix


def nearest_psd(coordinates: Array, size: int) -> Array:
    """Projection of each matrix, in coordinates."""
    values, vectors = np.linalg.eigh(smat(coordinates, size))
    kept = np.maximum(values, 0.0)
    return svec((vectors * kept[..., None, :]) @ np.swapaxes(vectors, -1, -2))


# -- Lifted rows ---------------------------------------------------------------------------------


@pytest.mark.parametrize("bound", [0.3, 1.0, 20.0])
def test_lifted_rows_have_norm_at_most_one(bound: float) -> None:
    rng = np.random.default_rng(1)
    largest = 0.0
    for d in (1, 2, 5):
        for _ in range(50):
            x = rng.normal(size=d)
            x *= bound * rng.choice([1.0, rng.uniform()]) / np.linalg.norm(x)
            lifted = np.append(x, 1.0) / math.sqrt(bound**2 + 1.0)
            row = svec(np.outer(lifted, lifted))
            assert np.linalg.norm(row) == pytest.approx(float(lifted @ lifted))
            largest = max(largest, float(np.linalg.norm(row)))
            phi = rng.normal(size=(d + 1, d + 1))
            phi = phi + phi.T
            assert svec(phi) @ row == pytest.approx(float(lifted @ phi @ lifted))
    assert 0.999 < largest <= 1.0 + 1e-12
    # With the constant appended and nothing divided, rows would be longer than the printed 1.
    assert np.linalg.norm(np.outer([1.0, 1.0], [1.0, 1.0])) == pytest.approx(2.0)


# -- Constants of the loss -----------------------------------------------------------------------


def pairwise_gradient(slopes: Array, own: int) -> Array:
    """Gradient in the scores for slopes of all scores (the own one is ignored)."""
    gradient = np.where(np.arange(slopes.size) == own, 0.0, slopes)
    gradient[own] = -gradient.sum()
    return gradient


@pytest.mark.parametrize("n_scores", [2, 3, 5, 9])
def test_pairwise_constants_are_attained_and_not_exceeded(n_scores: int) -> None:
    rng = np.random.default_rng(n_scores)
    half_width, rho = 0.3, 1.7
    lipschitz = math.sqrt(n_scores * (n_scores - 1))
    beta = n_scores / (2 * half_width)
    price = math.log1p(rho * beta) + (n_scores - 2) * math.log1p(rho / (2 * half_width))
    norms, curvatures, prices = [], [], []
    for share in [np.ones(n_scores), *rng.uniform(size=(200, n_scores))]:
        norms.append(np.linalg.norm(pairwise_gradient(share, 0)))
        rays = np.eye(n_scores)[1:] - np.eye(n_scores)[0]
        hessian = (rays.T * share[1:] / (2 * half_width)) @ rays
        curvatures.append(np.linalg.eigvalsh(hessian)[-1])
        prices.append(np.linalg.slogdet(np.eye(n_scores) + rho * hessian)[1])
    for found, bound in ((norms, lipschitz), (curvatures, beta), (prices, price)):
        assert max(found) <= bound * (1 + 1e-12)
        assert found[0] == pytest.approx(bound)


def test_two_matrices_are_two_scores_and_not_one() -> None:
    """Softmax over two scores costs what one score costs for rows of norm sqrt 2."""
    for epsilon, sigma, kappa in itertools.product((0.3, 1.0), (1.0, 4.0), (0.1, 3.0)):
        for replace_one in (False, True):
            two = _core.objective_delta("softmax", 2, epsilon, sigma, kappa, None, replace_one)
            moved = sigma / math.sqrt(2.0)
            same = _core.objective_delta(
                "logistic", 1, epsilon, moved, 2 * kappa, None, replace_one
            )
            one = _core.objective_delta("logistic", 1, epsilon, sigma, kappa, None, replace_one)
            assert two == pytest.approx(same, rel=1e-6)
            assert one < 0.95 * two or two > 0.95


# -- Positive semidefinite minimisation ----------------------------------------------------------


class HalfLines:
    """Two classes in no dimension: matrices are two numbers phi >= 0, rows numbers q in [0, 1].

    The loss of label y is H(s_y - s_k), the Huber hinge of half width h around margin m, with
    s = -q phi. Noise B ~ N(0, sigma^2 I); the law of the minimiser over phi >= 0 has a density
    inside, densities on both half lines and an atom at 0.
    """

    def __init__(self, rows: list[tuple[float, int]], *, lam: float, h: float, m: float) -> None:
        self.rows, self.lam, self.h, self.m = rows, lam, h, m

    def slopes(self, first: Array, second: Array) -> tuple[Array, Array, Array]:
        """Gradient without B in both coordinates, and the curvature of the difference."""
        left, right = self.lam * first, self.lam * second
        curved = np.zeros(np.broadcast(first, second).shape)
        for q, label in self.rows:
            sign = 1.0 if label == 0 else -1.0
            # s_y - s_k = q (phi_k - phi_y)
            gap = sign * q * (second - first)
            share = np.clip((self.m + self.h - gap) / (2 * self.h), 0.0, 1.0)
            left = left + sign * q * share
            right = right - sign * q * share
            curved += np.where((share > 0) & (share < 1), q * q / (2 * self.h), 0.0)
        return left, right, curved

    def pieces(self, sigma: float, grid: Array) -> tuple[Array, Array, Array, float]:
        """Masses: of cells inside, of cells of both half lines, of the point 0."""
        step = grid[1] - grid[0]

        def normal(x: Array) -> Array:
            return np.asarray(np.exp(-0.5 * (x / sigma) ** 2) / (sigma * math.sqrt(2 * math.pi)))

        left, right, curved = self.slopes(grid[:, None], grid[None, :])
        determinant = self.lam * (self.lam + 2 * curved)
        inside = normal(left) * normal(right) * determinant * step**2
        zero = np.zeros(1)
        left, right, curved = self.slopes(zero, grid)
        on_first = ndtr(left / sigma) * normal(right) * (self.lam + curved) * step
        left, right, curved = self.slopes(grid, zero)
        on_second = normal(left) * ndtr(right / sigma) * (self.lam + curved) * step
        left, right, _ = self.slopes(zero, zero)
        atom = ndtr(left / sigma) * ndtr(right / sigma)
        return inside, on_first, on_second, atom.item()


def profile(
    world: HalfLines, other: HalfLines, sigma: float, epsilons: Array
) -> tuple[Array, Array]:
    """Largest P(S) - e^epsilon Q(S) from both laws, and how far the integration may be off.

    Cells that a jump of the curvature cuts are counted wholly on one side of it; what the total
    masses lack or exceed shows by how much.
    """
    far = (8.0 * sigma + len(world.rows) + 1.0) / world.lam
    grid: Array = (np.arange(800, dtype=np.float64) + 0.5) * (far / 800)
    mine, theirs = world.pieces(sigma, grid), other.pieces(sigma, grid)
    errors = [abs(1.0 - sum(float(np.sum(p)) for p in pieces)) for pieces in (mine, theirs)]
    assert max(errors) < 5e-3
    found = []
    for factor in np.exp(epsilons):
        parts = [np.maximum(p - factor * q, 0.0).sum() for p, q in zip(mine, theirs, strict=True)]
        found.append(sum(parts))
    return np.array(found), errors[0] + np.exp(epsilons) * errors[1] + 1e-4


def settings(seed: int) -> tuple[list[tuple[float, int]], dict[str, float], float]:
    rng = np.random.default_rng(seed)
    rows = [(float(rng.uniform(0.2, 1.0)), int(rng.integers(2))) for _ in range(rng.integers(4))]
    numbers = {
        "lam": float(rng.uniform(0.5, 3.0)),
        "h": float(rng.uniform(0.2, 1.0)),
        "m": float(rng.uniform(0.0, 1.0)),
    }
    return rows, numbers, float(rng.uniform(1.0, 3.0))


EPSILONS = np.array([-1.0, 0.0, 0.5, 1.0, 2.0])


def claim(epsilon: float, numbers: dict[str, float], sigma: float, replace_one: bool) -> float:
    """The library's delta for two pairwise scores; below 0 what follows from 0."""
    kappa = 1.0 / (numbers["lam"] * numbers["h"])
    at = _core.objective_delta(
        "weston_watkins", 2, max(epsilon, 0.0), sigma, kappa, None, replace_one
    )
    return at if epsilon >= 0.0 else 1.0 - math.exp(epsilon) * (1.0 - at)


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("replace_one", [False, True])
def test_the_constrained_minimiser_keeps_the_claim(replace_one: bool) -> None:
    ratios, faces = [], []
    for seed in range(12):
        rows, numbers, sigma = settings(seed)
        world = HalfLines([*rows, (1.0, seed % 2)], **numbers)
        other = HalfLines([*rows, (1.0, 1 - seed % 2)] if replace_one else rows, **numbers)
        claims = np.array([claim(e, numbers, sigma, replace_one) for e in EPSILONS])
        for pair in ((world, other), (other, world)):
            found, error = profile(*pair, sigma, EPSILONS)
            assert (found <= claims + error).all()
            ratios.append(float((found / claims)[1:].max()))
        faces.append(float(world.pieces(sigma, np.array([0.5, 1.5]))[3]))
    # The claims mean something, and so does the constraint.
    assert max(ratios) > 0.4
    assert max(faces) > 0.1


def test_a_claim_for_four_times_the_noise_is_exceeded() -> None:
    """Negative control: the integration sees a wrong scale, constraint and all."""
    rows, numbers, sigma = settings(3)
    world = HalfLines([*rows, (1.0, 0)], **numbers)
    other = HalfLines([*rows, (1.0, 1)], **numbers)
    claims = [claim(epsilon, numbers, 4.0 * sigma, False) for epsilon in EPSILONS]
    found, error = profile(world, other, sigma, EPSILONS)
    assert (found - error > np.array(claims))[1:].any()


def quadratic(seed: int, size: int) -> tuple[Array, Array]:
    """Hessian (at least 1) and minimiser of a quadratic objective of one symmetric matrix."""
    rng = np.random.default_rng(seed)
    p = size * (size + 1) // 2
    factor = rng.normal(size=(p, p))
    return np.eye(p) + factor @ factor.T / p, svec(smat(3.0 * rng.normal(size=p), size))


def minimised(hessian: Array, centre: Array, size: int, penalty: float | None) -> Array:
    """Minimiser over the cone, or with a penalty times half the squared distance from it."""
    top = float(np.linalg.eigvalsh(hessian)[-1])
    point = nearest_psd(centre, size)
    for _ in range(20_000 if penalty is None else 200_000):
        slope = hessian @ (point - centre)
        if penalty is None:
            moved = nearest_psd(point - slope / top, size)
        else:
            away = point - nearest_psd(point, size)
            moved = point - (slope + penalty * away) / (top + penalty)
        if np.linalg.norm(moved - point) < 1e-11:
            break
        point = moved
    return point


def test_penalised_minimisers_tend_to_the_constrained_one() -> None:
    size = 3
    for seed in range(2):
        hessian, centre = quadratic(seed, size)
        exact = minimised(hessian, centre, size, None)
        slope = float(np.linalg.norm(hessian @ (exact - centre)))
        distances = []
        for penalty in (8.0, 40.0, 200.0):
            point = minimised(hessian, centre, size, penalty)
            outside = float(np.linalg.norm(point - nearest_psd(point, size)))
            distance = float(np.linalg.norm(point - exact))
            assert 0.5 * distance**2 <= slope * outside + 1e-9
            distances.append(distance)
        assert distances[0] > 3 * distances[1] > 9 * distances[2] > 0.0


# -- Certificate ---------------------------------------------------------------------------------


def certified(slope: Array, dual: Array, point: Array, lam: float) -> float:
    """The distance that a point and a dual matrix, both positive semidefinite, prove."""
    length = float(np.linalg.norm(slope - dual))
    slack = max(0.0, float(dual @ point))
    return (length + math.sqrt(length**2 + 4.0 * lam * slack)) / (2.0 * lam)


def test_certificates_are_true_and_can_be_tight() -> None:
    size = 3
    rng = np.random.default_rng(5)
    sharp = []
    for seed in range(20):
        hessian, centre = quadratic(seed, size)
        exact = minimised(hessian, centre, size, None)
        for scale in (1e-6, 1e-3, 0.3):
            point = nearest_psd(exact + scale * rng.normal(size=exact.size), size)
            slope = hessian @ (point - centre)
            for dual in (nearest_psd(slope, size), nearest_psd(rng.normal(size=6), size)):
                distance = float(np.linalg.norm(point - exact))
                assert distance <= certified(slope, dual, point, 1.0) * (1 + 1e-9) + 1e-11
        near = certified(
            hessian @ (exact - centre), nearest_psd(hessian @ (exact - centre), size), exact, 1.0
        )
        sharp.append(near)
    assert max(sharp) < 1e-3
    # J = |phi|^2 / 2 at a point: the slope is the point, and so may the dual matrix be.
    point = svec(np.diag([2.0, 0.0, 0.0]))
    assert certified(point, point, point, 1.0) == pytest.approx(2.0)


def test_a_dual_matrix_that_is_not_semidefinite_proves_nothing() -> None:
    """Negative control: the slope itself as the dual, at a point that is not the minimiser."""
    point = svec(np.diag([2.0, 0.0, 0.0]))
    centre = svec(np.diag([3.0, 0.0, 0.0]))
    slope = point - centre
    assert certified(slope, slope, point, 1.0) < float(np.linalg.norm(point - centre))


def test_noise_rounded_to_a_grid_moves_the_constrained_minimiser_little() -> None:
    size = 3
    rng = np.random.default_rng(6)
    for seed in range(10):
        hessian, centre = quadratic(seed, size)
        linear = rng.normal(size=centre.size)
        moved = minimised(hessian, centre - np.linalg.solve(hessian, linear), size, None)
        distance = np.linalg.norm(moved - minimised(hessian, centre, size, None))
        assert distance <= np.linalg.norm(linear) + 1e-9


# -- Mixtures ------------------------------------------------------------------------------------


def products_of_pairs(K: int, M: int, own: int, other: int) -> list[int]:
    """Inner products of (e_k - e_t) and (e_l - e_t') over all rivals of two targets."""
    ellipsoids = range(K * M)
    rivals = [[k for k in ellipsoids if k // M != target // M] for target in (own, other)]
    return [
        (k == rival) - (k == other) - (own == rival) + (own == other)
        for k, rival in itertools.product(*rivals)
    ]


@pytest.mark.parametrize(("K", "M"), [(2, 1), (2, 2), (3, 1), (3, 2), (4, 3)])
def test_pairs_of_extreme_points_are_counted_right(K: int, M: int) -> None:
    n = (K - 1) * M
    for own, other in itertools.product(range(K * M), repeat=2):
        products = products_of_pairs(K, M, own, other)
        count = {value: products.count(value) for value in (-2, -1, 0, 1, 2)}
        assert sum(count.values()) == n * n
        if own == other:
            assert (count[2], count[1]) == (n, n * (n - 1))
        elif own // M == other // M:
            assert (count[1], count[0]) == (n, n * (n - 1))
        else:
            assert (count[-2], count[-1]) == (1, 2 * (n - 1))
            assert count[1] == (K - 2) * M <= n - 1
            assert count[0] == (n - 1) ** 2 - (K - 2) * M


def test_targets_of_one_class_cost_no_more_than_two_classes() -> None:
    for epsilon, t, n in itertools.product((0.0, 0.5, 2.0), (0.05, 0.5, 2.0), (2, 3, 8)):
        near, middle, far = (gaussian_delta(epsilon, 1.0 / (f * t)) for f in (2, 6**0.5, 8**0.5))
        same_class = n * middle + n * (n - 1) * near
        two_classes = far + 3 * (n - 1) * middle + (n - 1) * (n - 2) * near
        assert same_class <= two_classes * (1 + 1e-12)


def test_traces_round_nothing_away_from_the_noise() -> None:
    """The linear term stays on the noise's grid: subtracting the traces gives the noise itself."""
    margins = partial(plan_of, GaussianMargin, loss="softmax_margin", smoothing=0.4, tol=1e-8)
    plain, traced = (margins(trace_weight=weight) for weight in (0.0, 1 / 3))
    noise, term = (m.draw_linear(_core.NoiseSource(5), n_threads=1) for m in (plain, traced))
    grid = traced.solver.inside.grid
    assert grid is not None
    weight = round(1 / 3 / grid) * grid
    assert 0.0 < abs(weight - 1 / 3) <= 0.5 * grid
    moved = [0, 4, 7]
    exact = [[Fraction(float(x)) + Fraction(weight) for x in row[moved]] for row in noise]
    assert [[Fraction(float(x)) for x in row[moved]] for row in term] == exact
    # Without the grid the low bits would be lost, another distance than the one declared.
    plainly = [[Fraction(float(x) + 1 / 3) for x in row[moved]] for row in noise]
    wanted = [[Fraction(float(x)) + Fraction(1 / 3) for x in row[moved]] for row in noise]
    assert plainly != wanted
    with pytest.raises(InvalidParameterError, match="trace_weight"):
        margins(trace_weight=1e9)


@pytest.mark.sampled
@pytest.mark.parametrize(("K", "M"), [(2, 1), (3, 1), (2, 3), (4, 2)])
@pytest.mark.parametrize("loss", ["softmax_margin", "huber_ww"])
def test_the_code_has_the_constants_of_the_page(loss: str, K: int, M: int) -> None:
    assert CONSTANT == 0.5
    scores, smoothing, rho = (K - 1) * M + 1, 0.4, 1.3
    found = plan_of(
        GaussianMargin, delta=0.0, adjacency="replace_one", loss=loss, smoothing=smoothing,
        n_classes=K, n_ellipsoids=M, n_features=2, data_norm=7.0,
    )  # fmt: skip
    table = found.score_loss
    unit = rho / smoothing
    if loss == "softmax_margin":
        lipschitz, price = math.sqrt(2.0), (scores - 1) * math.log1p(unit / scores)
    else:
        lipschitz = math.sqrt(scores * (scores - 1))
        price = math.log1p(unit * scores / 2) + (scores - 2) * math.log1p(unit / 2)
    assert (table.n_scores, table.temperature) == (scores, smoothing)
    assert table.lipschitz == pytest.approx(lipschitz, rel=1e-12)
    assert table.jacobian(unit) == pytest.approx(price, rel=1e-12)
    assert found.solver.row_norm == 1.0
    assert found.solver.shape == (K * M, 6)
    if found.anchors is not None:
        assert found.anchors.sum.sensitivity == pytest.approx(2.0 * math.sqrt(1.25), rel=1e-12)
