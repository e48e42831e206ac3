"""Wrong programs on purpose: each named fault of objective perturbation is seen by a check.

Scales that do not follow from the public numbers are seen by ``verify``, which shares no numerical
code with them; noise that is not the stated one by the audits below. Every test first shows that
the untouched program passes the check that the mutant fails.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dpsvm_fast import ObjectivePerturbationSVC, _core, verify
from dpsvm_fast.estimators import fit as training
from dpsvm_fast.losses import Loss
from dpsvm_fast.mechanisms import noise as settings
from dpsvm_fast.mechanisms import objective as objective_module
from dpsvm_fast.mechanisms import output as output_module
from dpsvm_fast.mechanisms.noise import WeightNoise
from dpsvm_fast.mechanisms.objective import LinearNoise
from oracles.audit import ALPHA
from oracles.plans import promised
from twins.smooth_erm import Problem

Patch = pytest.MonkeyPatch
Mutate = Callable[[Patch], None]


def plan(**changes: Any) -> objective_module.ObjectivePerturbation:
    # Enough curvature for the change of variables to cost something.
    settings: dict[str, Any] = {
        "epsilon": 1.0, "delta": 1e-6, "adjacency": "add_remove", "noise": "gaussian",
        "noise_grid": "exact", "loss": Loss(name="huber", n_classes=2, smoothing=0.5),
        "n_features": 6, "data_norm": 1.0, "intercept_scaling": 0.5, "C": 0.2,
        "extra_regularization": 0.0, "tol": 1e-5,
    }  # fmt: skip
    return objective_module.ObjectivePerturbation(**(settings | changes))


def certificate_holds(**changes: Any) -> bool:
    """Whether the statement's numbers follow from each other."""
    return verify(promised(plan(**changes))).ok


def scaled(module: Any, name: str, factor: float) -> Mutate:
    """Mutant: a function or property returns ``factor`` times its value."""

    def apply(patch: Patch) -> None:
        if isinstance(module, type):
            attribute = vars(module)[name]
            original = attribute.fget if isinstance(attribute, property) else attribute.func
            patch.setattr(module, name, property(lambda self: factor * original(self)))
        else:
            function = getattr(module, name)
            patch.setattr(module, name, lambda *a, **k: factor * function(*a, **k))

    return apply


def replaced(target: Any, name: str, value: Any) -> Mutate:
    """Mutant: another value of a constant, or of an entry of a table."""
    if isinstance(target, dict):
        return lambda patch: patch.setitem(target, name, value)
    return lambda patch: patch.setattr(target, name, value)


def added_for_replaced(patch: Patch) -> None:
    """The law of one record more or fewer for a replaced one."""
    original = objective_module._calibrated
    patch.setattr(
        objective_module,
        "_calibrated",
        lambda loss, epsilon, delta, _, **k: original(loss, epsilon, delta, "add_remove", **k),
    )


def budget_spent_twice(patch: Patch) -> None:
    """The noise in the objective has all of epsilon, and the noise on the weights a part."""
    patch.setattr(objective_module, "add_down", lambda whole, _: whole)


def without_the_constant_feature(patch: Patch) -> None:
    patch.setattr(output_module, "hypot_up", lambda a, _: a)


SOFTMAX = {"loss": Loss(name="softmax_margin", n_classes=4, smoothing=0.5), "C": 0.1}
GAMMA = {"noise": "gamma"}
SCALES: dict[str, tuple[Mutate, dict[str, Any]]] = {
    "sigma 5 percent too small": (scaled(LinearNoise, "multiplier", 0.95), {}),
    "sigma 5 percent too small, softmax": (scaled(LinearNoise, "multiplier", 0.95), SOFTMAX),
    "beta 5 percent too large": (scaled(LinearNoise, "multiplier", 1.05), GAMMA),
    "curvature halved": (scaled(Loss, "temperature", 2.0), {}),
    "curvature ratio halved": (scaled(LinearNoise, "curvature_ratio", 0.5), {}),
    "no Jacobian": (replaced(Loss, "jacobian", lambda *_: 0.0), GAMMA),
    "L of one class": (scaled(Loss, "lipschitz", 0.7), GAMMA | SOFTMAX),
    "replacement as addition": (added_for_replaced, {"adjacency": "replace_one"}),
    "replacement without 2": (
        replaced(settings.RELATION_FACTOR, "replace_one", 1),
        {"adjacency": "replace_one"} | GAMMA,
    ),
    "noise on the weights halved": (scaled(WeightNoise, "scale", 0.5), {}),
    "solver's distance halved": (scaled(LinearNoise, "radius", 0.5), {}),
    "the budget twice": (budget_spent_twice, {}),
    "the budget twice, pure": (budget_spent_twice, GAMMA),
    "constant feature forgotten": (without_the_constant_feature, {}),
}


@pytest.mark.proof("objective_perturbation", "The mechanism and its estimator")
@pytest.mark.parametrize("name", SCALES)
def test_a_wrong_scale_is_rejected(name: str, monkeypatch: Patch) -> None:
    mutate, settings = SCALES[name]
    assert certificate_holds(**settings)
    mutate(monkeypatch)
    assert not certificate_holds(**settings)


def plausible(noise: Any, sigma: float) -> bool:
    """Two-sided chi-square test of the standard deviation at level ALPHA."""
    low, high = stats.chi2.ppf([ALPHA / 2, 1 - ALPHA / 2], df=noise.size)
    return bool(low <= float(((noise / sigma) ** 2).sum()) <= high)


def fit_of_zeros(noise: str = "gaussian") -> ObjectivePerturbationSVC:
    """With rows of zeros W* = -B / lambda: the release shows the noise itself."""
    X, y = np.zeros((6, 4000)), np.array([0, 1, 2, 0, 1, 2])
    return ObjectivePerturbationSVC(
        noise=noise, classes=range(3), fit_intercept=False, n_threads=1
    ).fit(X, y)


def noise_is_the_stated_one() -> bool:
    """Deviation of the release of a fit of zeros, against its own statement."""
    model = fit_of_zeros()
    statement = model.privacy_
    inside = statement.objective.sigma / statement.objective.regularization
    return plausible(model.coef_, math.hypot(inside, statement.noise.sigma))


def gamma_noise_is_the_stated_one() -> bool:
    """Radius of the release of a fit of zeros: Gamma(p), up to the noise on the weights."""
    model = fit_of_zeros("gamma")
    objective = model.privacy_.objective
    radius = np.linalg.norm(model.coef_) * objective.regularization * objective.beta
    low, high = stats.gamma.ppf([ALPHA / 2, 1 - ALPHA / 2], model.coef_.size)
    return bool(0.99 * low <= radius <= 1.01 * high)


def stationary() -> bool:
    """Whether the weights handed to the release balance B with clipped rows, and get noise."""
    rng = np.random.default_rng(0)
    X, y = 3.0 * rng.normal(size=(40, 500)), rng.integers(0, 2, 40)
    seen: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        draw, release = LinearNoise.draw, WeightNoise.release
        patch.setattr(
            LinearNoise,
            "draw",
            lambda self, *a: seen.append(draw(self, *a)) or seen[-1],
        )
        patch.setattr(
            WeightNoise,
            "release",
            lambda self, weights, *a: (
                seen.append((self, weights, release(self, weights, *a))) or seen[-1][2]
            ),
        )
        model = ObjectivePerturbationSVC(classes=range(2), n_threads=1, loss="huber").fit(X, y)
    linear, (output, weights, released) = seen
    statement = model.privacy_
    s, o = statement.sensitivity, statement.objective
    clipped = X * (s.data_norm / np.linalg.norm(X, axis=1))[:, None]
    rows = np.hstack([clipped, np.full((40, 1), s.intercept_scaling)])
    kernel = (statement.loss, o.smoothing, o.margin)
    problem = Problem(rows, y, 1, kernel, o.regularization, linear=linear)
    exact = float(np.linalg.norm(problem.gradient(weights))) <= o.gradient_tol + 40 * 2e-7
    return exact and plausible(released - weights, output.scale)


def solver_with(**changes: Callable[[Any], Any]) -> Mutate:
    """Mutant: the solver is given other numbers than the statement says."""

    def apply(patch: Patch) -> None:
        original = _core.solve_smooth

        def call(*args: Any, **options: Any) -> Any:
            return original(
                *args, **(options | {k: change(options[k]) for k, change in changes.items()})
            )

        patch.setattr(_core, "solve_smooth", call)

    return apply


def half_the_noise(patch: Patch) -> None:
    original = LinearNoise.draw
    patch.setattr(LinearNoise, "draw", lambda self, *a: 0.5 * original(self, *a))


def no_noise_on_the_weights(patch: Patch) -> None:
    patch.setattr(WeightNoise, "release", lambda self, weights, *_: weights)


PROGRAMS: dict[str, tuple[Mutate, Callable[[], bool]]] = {
    "no B": (solver_with(linear=np.zeros_like), noise_is_the_stated_one),
    "half of B": (half_the_noise, noise_is_the_stated_one),
    "half of B, pure": (half_the_noise, gamma_noise_is_the_stated_one),
    "lambda doubled": (solver_with(regularization=lambda x: 2.0 * x), noise_is_the_stated_one),
    "B another than was drawn": (solver_with(linear=np.negative), stationary),
    "rows not clipped": (solver_with(data_norm=lambda _: 100.0), stationary),
    "a rough minimum": (solver_with(gradient_tol=lambda x: 1e15 * x), stationary),
    "no noise on the weights": (no_noise_on_the_weights, stationary),
}


@pytest.mark.proof("objective_perturbation", "The mechanism and its estimator")
@pytest.mark.statistical
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_wrong_program_is_rejected(name: str, monkeypatch: Patch) -> None:
    mutate, holds = PROGRAMS[name]
    assert holds()
    mutate(monkeypatch)
    assert not holds()


def fits_differ() -> bool:
    """Whether two fits of one estimator have different noise in every weight."""
    X, y = np.eye(3), np.array([0, 1, 0])
    model = ObjectivePerturbationSVC(classes=[0, 1], n_threads=1)
    first, second = (model.fit(X, y).coef_.copy() for _ in range(2))
    return bool((first != second).all())


def test_a_source_with_a_fixed_key_is_rejected(monkeypatch: Patch) -> None:
    assert fits_differ()
    original = _core.NoiseSource

    class Fixed:
        NoiseSource = staticmethod(lambda _: original(0))

        def __getattr__(self, name: str) -> Any:
            return getattr(_core, name)

    monkeypatch.setattr(training, "_core", Fixed())
    assert not fits_differ()


@pytest.mark.proof("objective_perturbation", "The mechanism and its estimator")
def test_the_pure_bound_without_its_maximum_is_rejected(monkeypatch: Patch) -> None:
    """The free Jacobian of logistic losses, claimed where it is not free."""
    settings = {"noise": "gamma", "loss": Loss(name="softplus", n_classes=2, smoothing=0.5)}
    assert certificate_holds(**settings, C=0.5)
    original = objective_module.largest_rate
    monkeypatch.setattr(
        objective_module,
        "largest_rate",
        lambda loss, epsilon, _, factor: original(loss, epsilon, 1e-9, factor),
    )
    assert not certificate_holds(**settings, C=0.5)
