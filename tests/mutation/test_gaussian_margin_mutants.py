"""Wrong large-margin ellipsoids on purpose: each named fault fails a named check.

Exact densities for the noise in the objective (oracles/objective_density.py), exact composition for
what is added to sums and to matrices (oracles/coupled.py), and numbers recomputed from formulas:
nothing is sampled and there are no false alarms.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsvm_fast import PrivateGaussianMarginClassifier, _core
from dpsvm_fast.certificates import GaussianEvent
from dpsvm_fast.exceptions import NotPrivateWarning
from dpsvm_fast.losses import Loss
from dpsvm_fast.mechanisms import gaussian_margin, objective
from dpsvm_fast.mechanisms.gaussian_margin import (
    CONSTANT,
    STEPS,
    GaussianMargin,
    MatrixPerturbation,
    NoisyAnchors,
)
from dpsvm_fast.mechanisms.noise import NoisySum, WeightNoise
from dpsvm_fast.mechanisms.objective import LinearNoise
from oracles.coupled import coupled
from oracles.faults import (
    ONCE,
    Fault,
    around,
    forgotten_record,
    forgotten_relation,
    halved_curvature,
    is_seen,
    no_gaussian_jacobian,
    no_jacobian,
    one_pairs_gradient,
    put,
    scaled,
    unused_extra,
)
from oracles.objective_pairs import World
from oracles.plans import plan_of
from twins.gaussian_margin import solve_gaussian_margin

pytestmark = pytest.mark.proof(
    "gaussian_margin", "Constants, budgets, anchors, certificates of the code"
)

Array = NDArray[Any]
Patch = pytest.MonkeyPatch

# Lambda = 4 with the extra part.
plan = partial(
    plan_of,
    GaussianMargin,
    epsilon=2.0,
    delta=0.0,
    loss="huber_ww",
    n_features=2,
    C=0.5,
    extra_regularization=2.0,
)


def is_private(world: World) -> bool:
    """Whether the exact densities of records of one direction keep the claim.

    Coordinates of the noise are independent and alike in every orthonormal basis: along the rows'
    direction the matrices' problem is a linear one with one feature.
    """
    loss, smoothing, margin = world.kernel
    inside = plan(
        loss=loss,
        n_classes=world.n_scores,
        epsilon=world.epsilon,
        delta=world.delta,
        adjacency=world.adjacency,
        smoothing=smoothing,
        margin=margin,
    ).solver.inside
    return world.is_kept_by(inside.regularization, inside.scale)


class Recorder:
    """The system's source, noting what it hands out."""

    def __init__(self) -> None:
        self.real, self.drawn = _core.NoiseSource(5), []

    def gaussian_on_grid(self, size: int, sigma: float, grid: float, n_threads: int) -> Array:
        noise = self.real.gaussian_on_grid(size, sigma, grid, n_threads)
        self.drawn.append((sigma, noise * grid))
        return noise

    def gamma_ball(self, size: int, beta: float, n_threads: int) -> Array:
        noise = self.real.gamma_ball(size, beta, n_threads)
        self.drawn.append((beta, noise))
        return noise


def noise_is_isotropic(delta: float) -> bool:
    """Whether each coordinate of each matrix has a number of its own, of the declared scale.

    In an orthonormal basis of symmetric matrices, where isotropic noise has sigma on the diagonal
    and sigma / sqrt 2 off it.
    """
    found = plan(n_classes=3, delta=delta)
    source = Recorder()
    linear = found.draw_linear(source, n_threads=1)  # type: ignore[arg-type]
    ((scale, numbers),) = source.drawn
    if linear.shape != (3, 6) or scale != found.solver.inside.scale:
        return False
    return np.array_equal(linear.ravel(), numbers) and np.unique(linear).size == linear.size


def release_is_covered(delta: float) -> bool:
    """Whether minimisers found for neighbours, each within its radius, are hidden by the noise."""
    solver = plan(delta=delta).solver
    inside, root = solver.inside, math.sqrt(solver.n_weights)
    grid = inside.grid or 0.0
    # The gradient's tolerance, and what rounding of the noise in the objective moves.
    radius = (solver.gradient_tol + 0.5 * grid * root) / solver.regularization
    here = np.zeros(solver.shape)
    there = here.copy()
    there[0, 1] = 2.0 * radius
    found = coupled(lambda M, source: solver.release(M, source, n_threads=1), there, here)
    event = solver.output.event
    claimed = event.mu if isinstance(event, GaussianEvent) else event.epsilon  # type: ignore[union-attr]
    return np.array_equal(*found.outcomes) and found.spent <= claimed * (1.0 + 1e-12)


ROWS = np.random.default_rng(1).normal(size=(60, 2)) * 0.6
CODES = (np.linalg.norm(ROWS, axis=1) > 0.7).astype(np.int64)


def core_with(solve: Callable[..., Any]) -> Any:
    """The compiled module with another solver."""
    core = SimpleNamespace(**{name: getattr(_core, name) for name in dir(_core)})
    core.solve_gaussian_margin = solve
    return core


def minimum_is_certified(psd: str) -> bool:
    """Whether what the noise is added to lies within its radius of the true minimiser."""
    noted: dict[str, Any] = {}
    used = gaussian_margin._core.solve_gaussian_margin

    def solve(rows: Array, target: Array, weights: None, **options: Any) -> Any:
        noted.update(options, rows=rows, target=target)
        return used(rows, target, weights, **options)

    def release(right: Any, self: MatrixPerturbation, weights: Array, *o: Any, **more: Any) -> Any:
        noted["released"] = weights
        return right(self, weights, *o, **more)

    estimator = PrivateGaussianMarginClassifier(
        8.0, 1e-5, loss="huber_ww", classes=[0, 1], psd=psd, tol=1e-3, random_state=1
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gaussian_margin, "_core", core_with(solve))
        around(MatrixPerturbation, "release", release)(patch)
        with pytest.warns(NotPrivateWarning):
            estimator.fit(ROWS, CODES)
    told = estimator.privacy_.objective
    assert told is not None
    rows, target, released = (noted.pop(name) for name in ("rows", "target", "released"))
    noted |= {"gradient_tol": 0.01 * told.gradient_tol, "regularization": told.regularization}
    noted |= {"max_iter": None, "psd": psd == "constraint"}
    exact, error = solve_gaussian_margin(rows, target, **noted)
    assert exact is not None
    radius = told.gradient_tol / told.regularization
    return float(np.linalg.norm(released - exact)) <= radius + error


def centres_are_covered(adjacency: str, mu: float | None) -> bool:
    """Whether all steps together spend no more than their events say, and nothing is told.

    Rows are twice as long as allowed, and the estimator shortens them; then their opposites.
    """
    found = NoisyAnchors(
        n_classes=2,
        n_ellipsoids=2,
        n_features=4,
        adjacency=adjacency,
        noise_grid="exact",
        mu=mu,
        epsilon=None if mu else 0.4,
    )
    base = 0.5 * np.random.default_rng(2).normal(size=(500, 4))
    axis, codes = 2.0 * np.eye(4)[:1], np.arange(500) % 2

    def ending(sign: float, code: int) -> tuple[Array, Array]:
        return np.vstack([base, sign * axis]), np.append(codes, code)

    def run(data: Any, source: Any) -> Array:
        return found.release(gaussian_margin.unit_rows(data[0], 1.0), data[1], source, 1)

    exchanged = [ending(-1.0, 1), ending(1.0, 0)]
    events: Any = [part.event for part in found.sums]
    for other in [(base, codes)] if adjacency == "add_remove" else exchanged:
        one = coupled(run, ending(1.0, 1), other)
        spent = one.spent if mu else float(one.sizes.sum())
        claimed = math.hypot(*(e.mu for e in events)) if mu else sum(e.epsilon for e in events)
        if not np.array_equal(*one.outcomes) or spent > claimed * (1.0 + 1e-12):
            return False
    return True


def budget_is_kept() -> bool:
    """Whether the epsilons of all that is drawn add up to no more than the budget."""
    found = plan(n_ellipsoids=2)
    assert found.anchors is not None
    rates = [part.scale * part.sensitivity for part in (found.anchors.sum,) * STEPS]
    solver = found.solver
    rates += [solver.inside.epsilon, solver.output.scale * solver.output.total]
    return sum(rates) <= found.epsilon * (1.0 + 1e-12)


# As for a linear model, where the difference of two scores is all that counts.
one_score_for_two_classes = around(
    GaussianMargin,
    "score_loss",
    lambda _, p: Loss(name=p.loss, n_classes=p.n_classes, smoothing=p.smoothing, margin=p.margin),
)


def linear_noise(change: Callable[[Array], Array]) -> Fault:
    """The linear term is not the noise that was drawn, but a function of it."""
    return around(GaussianMargin, "draw_linear", lambda right, *a, **k: change(right(*a, **k)))


def told(name: str, change: Callable[[Any], Any]) -> Fault:
    """The solver is told something else than the statement says."""
    solve = _core.solve_gaussian_margin
    other = core_with(lambda *data, **o: solve(*data, **o | {name: change(o[name])}))
    return put(gaussian_margin, "_core", other)


# Places of the diagonal in the upper triangle of a 3 x 3 matrix, row by row.
DIAGONAL = np.array([1.0, 0.0, 0.0, 1.0, 0.0, 1.0])
PAIR = World("huber_ww", 0.5, 1.0, n_scores=2)
THREE = World("huber_ww", 0.3, 1.5, n_scores=3)
SOFT = World("softmax_margin", 0.5, 1.0, 1e-5, target=-10.0, n_scores=2)
PRIVATE: dict[str, tuple[Fault, World]] = {
    "no c0": (no_jacobian, PAIR),
    "no c0, three classes": (no_jacobian, THREE),
    "no c0, Gaussian": (
        no_gaussian_jacobian, World("huber_ww", 0.25, 0.3, 1e-4, target=4.5, n_scores=2),
    ),
    "no c0, Gaussian, three classes": (
        no_gaussian_jacobian, World("huber_ww", 0.25, 0.5, 1e-4, target=3.0, n_scores=3),
    ),
    "L = sqrt 2 instead of sqrt(K (K - 1))": (one_pairs_gradient, THREE),
    "curvature halved": (halved_curvature, PAIR),
    "one score for two classes": (
        one_score_for_two_classes, dataclasses.replace(SOFT, delta=0.0),
    ),
    "one score for two classes, Gaussian": (one_score_for_two_classes, SOFT),
    "rows half as long": (put(MatrixPerturbation, "row_norm", 0.5), SOFT),
    "beta 2 percent too large": (scaled(objective, "largest_rate", 1.02), PAIR),
    "sigma 5 percent too small": (scaled(objective, "noise_multiplier", 0.95), SOFT),
    "sigma / sqrt 2": (scaled(objective, "noise_multiplier", 0.5**0.5), SOFT),
    "replacement as addition": (
        forgotten_record, dataclasses.replace(PAIR, adjacency="replace_one"),
    ),
    "replacement as addition, Gaussian": (
        forgotten_relation,
        World("softmax_margin", 0.5, 1.0, 1e-5, "replace_one", n_scores=2),
    ),
    "extra regularisation unused": (unused_extra, PAIR),
}  # fmt: skip
ISOTROPIC, COVERED = (
    [partial(check, delta) for delta in (0.0, 1e-5)]
    for check in (noise_is_isotropic, release_is_covered)
)
CERTIFIED = [partial(minimum_is_certified, psd) for psd in ("constraint", "project")]
EXCHANGED = [partial(centres_are_covered, "replace_one", mu) for mu in (0.4, None)]
ADDED = [partial(centres_are_covered, "add_remove", mu) for mu in (0.4, None)]
MUTANTS: dict[str, tuple[Fault, list[Any]]] = {
    "noise: off the diagonal sigma / 2": (
        linear_noise(lambda B: B * np.where(DIAGONAL, 1.0, 0.5**0.5)), ISOTROPIC,
    ),
    "noise: diagonal only": (linear_noise(lambda B: B * DIAGONAL), ISOTROPIC),
    "noise: shared by all classes": (linear_noise(lambda B: B[:1] + 0.0 * B), ISOTROPIC),
    "noise: none": (linear_noise(lambda B: 0.0 * B), ISOTROPIC),
    "output: no noise": (put(WeightNoise, "release", lambda _, weights, *o: weights), COVERED),
    "output: half the distance": (scaled(LinearNoise, "radius", 0.5), COVERED),
    "solver: ends early": (told("gradient_tol", lambda tol: 1e3 * tol), CERTIFIED),
    "solver: another lambda": (told("regularization", lambda x: 0.5 * x), CERTIFIED),
    "solver: another constraint": (told("psd", lambda psd: not psd), CERTIFIED),
    "centres: count for nothing": (put(gaussian_margin, "sqrt_up", lambda _: 1.0), ADDED),
    "centres: replacement without 2": (put(gaussian_margin, "RELATION_FACTOR", ONCE), EXCHANGED),
    "centres: one step counted": (
        put(NoisyAnchors, "sums", property(lambda anchors: (anchors.sum,))), ADDED + EXCHANGED,
    ),
    "centres: rows not shortened": (
        put(gaussian_margin, "unit_rows", lambda X, data_norm: X / data_norm), ADDED + EXCHANGED,
    ),
    "centres: sums not noisy": (
        around(NoisySum, "release", lambda right, self, total, *o: (
            right(self, total, *o), total
        )[1]),
        ADDED + EXCHANGED,
    ),
    "centres: first cells meet in the exact mean": (
        around(NoisyAnchors, "release", lambda right, self, rows, *o: np.asarray(
            right(self, rows, *o) + rows.mean(axis=0)
        )),
        ADDED + EXCHANGED,
    ),
    "centres: for nothing": (
        around(GaussianMargin, "solver", lambda _, p: p.with_budget(p.epsilon, p.delta)),
        [budget_is_kept],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PRIVATE)
def test_a_wrong_price_is_seen(name: str, monkeypatch: Patch) -> None:
    fault, world = PRIVATE[name]
    assert is_seen(fault, monkeypatch, is_private, world)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("name", "i"), [(name, i) for name, (_, checks) in MUTANTS.items() for i in range(len(checks))]
)
def test_wrong_ellipsoids_are_rejected(name: str, i: int, monkeypatch: Patch) -> None:
    fault, checks = MUTANTS[name]
    assert is_seen(fault, monkeypatch, checks[i])


def test_the_line_is_that_of_the_solver() -> None:
    """The densities are about what is minimised by the compiled solver.

    Two classes, matrices not constrained: along the row u, v = <Phi_1 - Phi_0, u> / sqrt 2
    minimises phi(sqrt 2 v) + lambda v^2 / 2 + b v.
    """
    mechanism = plan(delta=1e-3, smoothing=0.1, C=0.01, extra_regularization=0.0)
    X = np.array([[0.6, -0.8]])
    lifted = np.append(X[0], CONSTANT) / math.hypot(1.0, CONSTANT)
    above, right = np.triu_indices(3)
    row = np.outer(lifted, lifted)[above, right] * np.where(above == right, 1.0, math.sqrt(2.0))
    assert np.linalg.norm(row) == pytest.approx(1.0)
    linear = 60.0 * np.random.default_rng(3).normal(size=(2, row.size))
    found, _ = _core.solve_gaussian_margin(
        X / CONSTANT,
        np.array([0]),
        loss=mechanism.loss,
        n_classes=2,
        n_ellipsoids=1,
        smoothing=mechanism.smoothing,
        margin=mechanism.margin,
        regularization=mechanism.regularization,
        linear=linear,
        data_norm=1.0 / CONSTANT,
        psd=False,
        gradient_tol=1e-9,
        max_iter=None,
        n_threads=1,
    )
    assert found is not None
    v, b = (float((x[1] - x[0]) @ row) / math.sqrt(2.0) for x in (found, linear))
    # The Huber loss's slope in the margin that is missing.
    x = (mechanism.margin - math.sqrt(2.0) * v) / mechanism.smoothing
    share = np.clip(0.5 * (x + 1.0), 0.0, 1.0)
    slope = mechanism.regularization * v - math.sqrt(2.0) * share
    assert slope + b == pytest.approx(0.0, abs=1e-5)
