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
from dpsvm_fast.mechanisms import gaussian_margin
from dpsvm_fast.mechanisms.gaussian_margin import GaussianMargin, MatrixPerturbation
from dpsvm_fast.mechanisms.noise import WeightNoise
from dpsvm_fast.mechanisms.objective import LinearNoise
from oracles.coupled import coupled
from oracles.objective_density import Pair, gaussian_deltas
from oracles.objective_pairs import kernel_of, pushed
from oracles.objective_pure import pure_epsilon
from oracles.wrong_losses import (
    halved_curvature,
    no_gaussian_jacobian,
    no_jacobian,
    one_pairs_gradient,
)
from oracles.wrong_noise import forgotten_record, forgotten_relation, scaled, unused_extra
from twins.gaussian_margin import solve_gaussian_margin

Array = NDArray[Any]
Patch = pytest.MonkeyPatch
Check = Callable[[], bool]

# As in the property tests: integration error on a line, and the local search's rounding.
DELTA_TOL, EPSILON_TOL = 5e-4, 1e-9
LAMBDA = 4.0


def plan(**changes: Any) -> GaussianMargin:
    settings: dict[str, Any] = {
        "epsilon": 2.0,
        "delta": 0.0,
        "adjacency": "add_remove",
        "noise": "gaussian" if changes.get("delta") else "gamma",
        "noise_grid": "exact",
        "loss": "huber_ww",
        "smoothing": 0.5,
        "margin": 1.0,
        "n_classes": 2,
        "n_ellipsoids": 1,
        "n_features": 2,
        "data_norm": 1.0,
        "trace_weight": 0.0,
        "C": 2.0 / LAMBDA,
        "extra_regularization": 0.5 * LAMBDA,
        "tol": 1e-5,
    }
    return GaussianMargin(**(settings | changes))


@dataclasses.dataclass(frozen=True)
class World:
    """Records of one direction on which the claim is met, or nearly, and the budget.

    Coordinates of the noise are independent and alike in every orthonormal basis: along the rows'
    direction the matrices' problem is a linear one with one feature.
    """

    loss: str
    n_classes: int
    kappa: float
    epsilon: float
    delta: float = 0.0
    adjacency: str = "add_remove"
    target: float = 0.0
    # In units of the smoothing: how far the place of full gradients is from W = 0.
    depth: float = 20.0

    def plan(self) -> GaussianMargin:
        _, smoothing, _ = kernel_of(self.loss, self.kappa, LAMBDA, 0.0)
        return plan(
            loss=self.loss,
            n_classes=self.n_classes,
            epsilon=self.epsilon,
            delta=self.delta,
            adjacency=self.adjacency,
            smoothing=smoothing,
            margin=1.0 + self.depth * smoothing,
        )

    @property
    def pair(self) -> Pair:
        """Exact row norms of 1: a row at the bound is that long."""
        _, smoothing, _ = kernel_of(self.loss, self.kappa, LAMBDA, 0.0)
        return pushed(
            (self.loss, smoothing, 1.0 + self.depth * smoothing),
            LAMBDA,
            self.target,
            replace_one=self.adjacency == "replace_one",
            n_scores=self.n_classes,
        )

    def is_private(self) -> bool:
        """Whether the exact densities of the pair keep the claim."""
        inside = self.plan().solver.inside
        pair = dataclasses.replace(self.pair, regularization=inside.regularization)
        if not self.delta:
            return pure_epsilon(pair, inside.scale) <= self.epsilon * (1.0 + EPSILON_TOL)
        n = 121 if pair.size == 1 else 341
        found = gaussian_deltas(pair, inside.scale, np.array([self.epsilon]), n)
        return bool(found.max() <= self.delta * (1.0 + DELTA_TOL))


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
    if not np.array_equal(*found.outcomes):
        return False
    event = solver.output.event
    claimed = event.mu if isinstance(event, GaussianEvent) else event.epsilon  # type: ignore[union-attr]
    return float(np.linalg.norm(found.sizes)) <= claimed * (1.0 + 1e-12)


ROWS = np.random.default_rng(1).normal(size=(60, 2)) * 0.6
CODES = (np.linalg.norm(ROWS, axis=1) > 0.7).astype(np.int64)


def minimum_is_certified(psd: str) -> bool:
    """Whether what the noise is added to lies within its radius of the true minimiser."""
    noted: dict[str, Any] = {}

    def solve(rows: Array, target: Array, weights: None, **options: Any) -> Any:
        noted.update(options, rows=rows, target=target)
        return original(rows, target, weights, **options)

    def release(self: MatrixPerturbation, weights: Array, *others: Any, **more: Any) -> Array:
        noted["released"] = weights
        return add_noise(self, weights, *others, **more)

    with pytest.MonkeyPatch.context() as patch:
        original, add_noise = (
            gaussian_margin._core.solve_gaussian_margin,
            MatrixPerturbation.release,
        )
        core = SimpleNamespace(**{n: getattr(gaussian_margin._core, n) for n in dir(_core)})
        core.solve_gaussian_margin = solve
        patch.setattr(gaussian_margin, "_core", core)
        patch.setattr(MatrixPerturbation, "release", release)
        with pytest.warns(NotPrivateWarning):
            estimator = PrivateGaussianMarginClassifier(
                8.0, 1e-5, loss="huber_ww", classes=[0, 1], psd=psd, tol=1e-3, random_state=1
            ).fit(ROWS, CODES)
    statement = estimator.privacy_
    assert statement.objective is not None
    radius = statement.objective.gradient_tol / statement.objective.regularization
    told = noted | {
        "gradient_tol": 0.01 * statement.objective.gradient_tol,
        "regularization": statement.objective.regularization,
        "max_iter": None,
        "psd": psd == "constraint",
    }
    positional = [told.pop(name) for name in ("rows", "target")]
    released = told.pop("released")
    exact, error = solve_gaussian_margin(*positional, **told)
    assert exact is not None
    return float(np.linalg.norm(released - exact)) <= radius + error


def one_score_for_two_classes(patch: Patch) -> None:
    """As for a linear model, where the difference of two scores is all that counts."""
    patch.setattr(
        GaussianMargin,
        "score_loss",
        property(
            lambda p: Loss(
                name=p.loss, n_classes=p.n_classes, smoothing=p.smoothing, margin=p.margin
            )
        ),
    )


def linear_noise(change: Callable[[Array], Array]) -> Callable[[Patch], None]:
    """Mutant: the linear term is not the noise that was drawn, but a function of it."""

    def apply(patch: Patch) -> None:
        original = GaussianMargin.draw_linear
        patch.setattr(
            GaussianMargin,
            "draw_linear",
            lambda self, source, *, n_threads: change(original(self, source, n_threads=n_threads)),
        )

    return apply


# Places of the diagonal in the upper triangle of a 3 x 3 matrix, row by row.
DIAGONAL = np.array([1.0, 0.0, 0.0, 1.0, 0.0, 1.0])


def no_output_noise(patch: Patch) -> None:
    """The minimiser is released as it is."""
    patch.setattr(WeightNoise, "release", lambda _, weights, *others: weights)


def halved_distance(patch: Patch) -> None:
    """Noise for one radius, although two minimisers are off."""
    original = LinearNoise.radius
    patch.setattr(LinearNoise, "radius", property(lambda p: 0.5 * original.func(p)))


def told(name: str, change: Callable[[Any], Any]) -> Callable[[Patch], None]:
    """Mutant: the solver is told something else than the statement says."""

    def solve(*data: Any, **options: Any) -> Any:
        return real(*data, **options | {name: change(options[name])})

    real = _core.solve_gaussian_margin
    core = SimpleNamespace(**{attribute: getattr(_core, attribute) for attribute in dir(_core)})
    core.solve_gaussian_margin = solve
    return lambda patch: patch.setattr(gaussian_margin, "_core", core)


PAIR = World("huber_ww", 2, 0.5, 1.0)
THREE = World("huber_ww", 3, 0.3, 1.5)
SOFT = World("softmax_margin", 2, 0.5, 1.0, 1e-5, target=-10.0)
PRIVATE: dict[str, tuple[Callable[[Patch], None], World]] = {
    "no c0": (no_jacobian, PAIR),
    "no c0, three classes": (no_jacobian, THREE),
    "no c0, Gaussian": (
        no_gaussian_jacobian, World("huber_ww", 2, 0.25, 0.3, 1e-4, target=4.5),
    ),
    "no c0, Gaussian, three classes": (
        no_gaussian_jacobian, World("huber_ww", 3, 0.25, 0.5, 1e-4, target=3.0),
    ),
    "L = sqrt 2 instead of sqrt(K (K - 1))": (one_pairs_gradient, THREE),
    "curvature halved": (halved_curvature, PAIR),
    "one score for two classes": (
        one_score_for_two_classes, dataclasses.replace(SOFT, delta=0.0),
    ),
    "one score for two classes, Gaussian": (one_score_for_two_classes, SOFT),
    "beta 2 percent too large": (scaled("largest_rate", 1.02), PAIR),
    "sigma 5 percent too small": (scaled("noise_multiplier", 0.95), SOFT),
    "sigma / sqrt 2": (scaled("noise_multiplier", 0.5**0.5), SOFT),
    "replacement as addition": (
        forgotten_record, dataclasses.replace(PAIR, adjacency="replace_one"),
    ),
    "replacement as addition, Gaussian": (
        forgotten_relation, World("softmax_margin", 2, 0.5, 1.0, 1e-5, "replace_one"),
    ),
    "extra regularisation unused": (unused_extra, PAIR),
}  # fmt: skip
PURE, GAUSSIAN = 0.0, 1e-5
ISOTROPIC, COVERED = (
    [partial(check, delta) for delta in (PURE, GAUSSIAN)]
    for check in (noise_is_isotropic, release_is_covered)
)
CERTIFIED = [partial(minimum_is_certified, psd) for psd in ("constraint", "project")]
MUTANTS: dict[str, tuple[Callable[[Patch], None], list[Any]]] = {
    "noise: off the diagonal sigma / 2": (
        linear_noise(lambda B: B * np.where(DIAGONAL, 1.0, 0.5**0.5)), ISOTROPIC,
    ),
    "noise: diagonal only": (linear_noise(lambda B: B * DIAGONAL), ISOTROPIC),
    "noise: shared by all classes": (linear_noise(lambda B: B[:1] + 0.0 * B), ISOTROPIC),
    "noise: none": (linear_noise(lambda B: 0.0 * B), ISOTROPIC),
    "output: no noise": (no_output_noise, COVERED),
    "output: half the distance": (halved_distance, COVERED),
    "solver: ends early": (told("gradient_tol", lambda tol: 1e3 * tol), CERTIFIED),
    "solver: another lambda": (told("regularization", lambda x: 0.5 * x), CERTIFIED),
    "solver: another constraint": (told("psd", lambda psd: not psd), CERTIFIED),
}  # fmt: skip


@pytest.mark.proof("gaussian_margin", "Constants, budgets, anchors, certificates of the code")
@pytest.mark.parametrize("name", PRIVATE)
def test_a_wrong_price_is_seen(name: str, monkeypatch: Patch) -> None:
    mutate, world = PRIVATE[name]
    assert world.is_private()
    mutate(monkeypatch)
    assert not world.is_private()


@pytest.mark.proof("gaussian_margin", "Constants, budgets, anchors, certificates of the code")
@pytest.mark.parametrize(
    ("name", "i"), [(name, i) for name, (_, checks) in MUTANTS.items() for i in range(len(checks))]
)
def test_wrong_ellipsoids_are_rejected(name: str, i: int, monkeypatch: Patch) -> None:
    mutate, checks = MUTANTS[name]
    assert checks[i]()
    mutate(monkeypatch)
    assert not checks[i]()
