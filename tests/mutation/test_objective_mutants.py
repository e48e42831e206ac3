"""Wrong programs on purpose: each named fault of objective perturbation is seen by a check.

Scales that do not follow from the public numbers are seen by ``verify``, which shares no numerical
code with them; noise that is not the stated one by the audits below. Every test first shows that
the untouched program passes the check that the mutant fails.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dpsvm_fast import ObjectivePerturbationSVC, _core, verify
from dpsvm_fast.losses import Loss
from dpsvm_fast.mechanisms import objective as objective_module
from dpsvm_fast.mechanisms import output as output_module
from dpsvm_fast.mechanisms.noise import WeightNoise
from dpsvm_fast.mechanisms.objective import LinearNoise
from oracles.audit import ALPHA
from oracles.faults import (
    Fault,
    around,
    forgotten_record,
    is_seen,
    no_jacobian,
    put,
    scaled,
)
from oracles.plans import plan_of, promised
from twins.smooth_erm import Problem

pytestmark = pytest.mark.proof("objective_perturbation", "The mechanism and its estimator")

Patch = pytest.MonkeyPatch


# Enough curvature for the change of variables to cost something.
plan = partial(
    plan_of,
    objective_module.ObjectivePerturbation,
    noise="gaussian",
    loss=Loss(name="huber", n_classes=2, smoothing=0.5),
    n_features=6,
    intercept_scaling=0.5,
    C=0.2,
    extra_regularization=0.0,
)


def certificate_holds(**changes: Any) -> bool:
    """Whether the statement's numbers follow from each other."""
    return verify(promised(plan(**changes))).ok


SOFTMAX = {"loss": Loss(name="softmax_margin", n_classes=4, smoothing=0.5), "C": 0.1}
GAMMA = {"noise": "gamma"}


def about_one_record_more(right: Any, loss: Any, epsilon: Any, delta: Any, _: Any, **k: Any) -> Any:
    """The law of one record more or fewer for a replaced one."""
    return right(loss, epsilon, delta, "add_remove", **k)


# The noise in the objective has all of epsilon, and the noise on the weights a part.
TWICE = put(objective_module, "add_down", lambda whole, _: whole)
LOW_SIGMA = scaled(LinearNoise, "multiplier", 0.95)
SCALES: dict[str, tuple[Fault, dict[str, Any]]] = {
    "sigma 5 percent too small": (LOW_SIGMA, {}),
    "sigma 5 percent too small, softmax": (LOW_SIGMA, SOFTMAX),
    "beta 5 percent too large": (scaled(LinearNoise, "multiplier", 1.05), GAMMA),
    "curvature halved": (scaled(Loss, "temperature", 2.0), {}),
    "curvature ratio halved": (scaled(LinearNoise, "curvature_ratio", 0.5), {}),
    "no Jacobian": (no_jacobian, GAMMA),
    "L of one class": (scaled(Loss, "lipschitz", 0.7), GAMMA | SOFTMAX),
    "replacement as addition": (
        around(objective_module, "noise_multiplier", about_one_record_more),
        {"adjacency": "replace_one"},
    ),
    "replacement without 2": (forgotten_record, {"adjacency": "replace_one"} | GAMMA),
    "noise on the weights halved": (scaled(WeightNoise, "scale", 0.5), {}),
    "solver's distance halved": (scaled(LinearNoise, "radius", 0.5), {}),
    "the budget twice": (TWICE, {}),
    "the budget twice, pure": (TWICE, GAMMA),
    "constant feature forgotten": (put(output_module, "hypot_up", lambda a, _: a), {}),
    # The free Jacobian of logistic losses, claimed where it is not free.
    "the pure bound without its maximum": (
        around(
            objective_module,
            "largest_rate",
            lambda right, loss, epsilon, _, factor: right(loss, epsilon, 1e-9, factor),
        ),
        GAMMA | {"loss": Loss(name="softplus", n_classes=2, smoothing=0.5), "C": 0.5},
    ),
}


@pytest.mark.parametrize("name", SCALES)
def test_a_wrong_scale_is_rejected(name: str, monkeypatch: Patch) -> None:
    fault, settings = SCALES[name]
    assert is_seen(fault, monkeypatch, lambda: certificate_holds(**settings))


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

    def drawn(right: Any, *given: Any) -> Any:
        seen.append(right(*given))
        return seen[-1]

    def release(right: Any, self: WeightNoise, weights: Any, *others: Any) -> Any:
        seen.append((self, weights, right(self, weights, *others)))
        return seen[-1][2]

    with pytest.MonkeyPatch.context() as patch:
        around(LinearNoise, "draw", drawn)(patch)
        around(WeightNoise, "release", release)(patch)
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


def solver_with(name: str, change: Callable[[Any], Any]) -> Fault:
    """The solver is given another number than the statement says."""
    return around(
        _core, "solve_smooth", lambda right, *a, **k: right(*a, **k | {name: change(k[name])})
    )


HALF = scaled(LinearNoise, "draw", 0.5)
PROGRAMS: dict[str, tuple[Fault, Callable[[], bool]]] = {
    "no B": (solver_with("linear", np.zeros_like), noise_is_the_stated_one),
    "half of B": (HALF, noise_is_the_stated_one),
    "half of B, pure": (HALF, gamma_noise_is_the_stated_one),
    "lambda doubled": (solver_with("regularization", lambda x: 2.0 * x), noise_is_the_stated_one),
    "B another than was drawn": (solver_with("linear", np.negative), stationary),
    "rows not clipped": (solver_with("data_norm", lambda _: 100.0), stationary),
    "a rough minimum": (solver_with("gradient_tol", lambda x: 1e15 * x), stationary),
    "no noise on the weights": (
        put(WeightNoise, "release", lambda _, weights, *o: weights), stationary,
    ),
}  # fmt: skip


@pytest.mark.statistical
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_wrong_program_is_rejected(name: str, monkeypatch: Patch) -> None:
    fault, holds = PROGRAMS[name]
    assert is_seen(fault, monkeypatch, holds)
