"""The objective-perturbation mechanism: budgets, scales and distances from first principles.

Statistical tests use fixed seeds and the false-alarm rate ALPHA = 1e-6: a sum of squares of m
standard normals is compared with the ALPHA/2 and 1 - ALPHA/2 quantiles of chi-square with m
degrees of freedom, a Gamma radius with a Kolmogorov-Smirnov bound. Each has a negative control.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dpsvm_fast import _core
from dpsvm_fast.certificates import GaussianEvent, ObjectiveEvent, PureEvent
from dpsvm_fast.certificates.words import CAVEATS
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.losses import SMOOTH_LOSSES, Loss
from dpsvm_fast.mechanisms.objective import INTERCEPT, ObjectivePerturbation
from dpsvm_fast.verification import verify
from dpsvm_fast.verification.objective import objective_delta
from oracles.plans import plan_of, promised
from twins import gaussian as gaussian_twin

ALPHA = 1e-6


def loss(name: str, n_classes: int = 2, smoothing: float = 0.5, margin: float = 1.0) -> Loss:
    if name == "logistic":
        smoothing, margin = 1.0, 0.0
    return Loss(name=name, n_classes=n_classes, smoothing=smoothing, margin=margin)


mechanism = partial(
    plan_of,
    ObjectivePerturbation,
    noise="gaussian",
    loss=loss("huber"),
    n_features=50,
    data_norm=2.0,
    intercept_scaling=0.2,
    C=0.02,
    extra_regularization=0.0,
)


@pytest.mark.proof("objective_perturbation", "The mechanism and its estimator")
@pytest.mark.parametrize("noise", ["gaussian", "gamma"])
def test_the_parts_of_the_budget_never_add_up_to_more(noise: str) -> None:
    rng = np.random.default_rng(0)
    for _ in range(30):
        epsilon, delta = float(10.0 ** rng.uniform(-2, 2)), float(10.0 ** rng.uniform(-12, -1))
        plan = mechanism(epsilon=epsilon, delta=delta, noise=noise, C=1e-4)
        parts = (plan.inside, plan.output)
        assert sum(Fraction(part.epsilon) for part in parts) <= Fraction(epsilon)
        assert sum(part.epsilon for part in parts) == pytest.approx(epsilon, rel=1e-15)
        whole = Fraction(delta) if noise == "gaussian" else Fraction(0)
        assert sum(Fraction(part.delta) for part in parts) <= whole
        assert plan.output.epsilon == pytest.approx(0.01 * epsilon, rel=1e-15)


@pytest.mark.proof("objective_perturbation", "The mechanism and its estimator")
@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
@pytest.mark.parametrize("name", ["huber", "logistic", "softplus", "softmax_margin"])
def test_gaussian_scale_of_one_score(name: str, adjacency: str) -> None:
    """Huber pays its Jacobian; with as little curvature as here the others have it for nothing."""
    plan = mechanism(loss=loss(name), adjacency=adjacency, C=0.002)
    kt = math.hypot(2.0, 0.2)
    temperature = {"huber": 0.25, "logistic": 1.0}.get(name, 0.5)
    kappa = kt * kt * 0.002 / temperature
    assert plan.inside.curvature_ratio == pytest.approx(kappa, rel=1e-13)
    epsilon = 0.99 - (math.log1p(kappa / 4.0) if name == "huber" else 0.0)
    if adjacency == "add_remove":
        sigma = gaussian_twin.sigma(epsilon, 0.99e-6)
        assert plan.inside.scale == pytest.approx(kt * sigma, rel=1e-7)
        return
    # Two gradients in one direction, or either of them alone.
    t = kt / plan.inside.scale
    spent = gaussian_twin.delta(epsilon, 0.5 / t) + 2.0 * gaussian_twin.delta(epsilon, 1.0 / t)
    assert spent <= 0.99e-6 * (1.0 + 1e-6)
    if name == "huber":
        assert spent == pytest.approx(0.99e-6, rel=1e-4)


@pytest.mark.proof("objective_perturbation", "The mechanism and its estimator")
@pytest.mark.parametrize("noise", ["gaussian", "gamma"])
@pytest.mark.parametrize("noise_grid", ["exact", "float"])
def test_the_noise_on_the_weights_covers_the_approximate_minimum(
    noise: str, noise_grid: str
) -> None:
    plan = mechanism(noise=noise, noise_grid=noise_grid)
    inside, output = plan.inside, plan.output
    assert plan.n_weights == 51
    assert plan.regularization == 50.0
    assert plan.gradient_tol == pytest.approx(1e-5 * math.hypot(2.0, 0.2), rel=1e-14)
    exact = noise == "gaussian" and noise_grid == "exact"
    assert (inside.grid is not None) == exact
    missed = plan.gradient_tol + (0.5 * inside.grid * math.sqrt(51.0) if exact else 0.0)
    assert inside.radius == pytest.approx(missed / 50.0, rel=1e-14)
    rounding = output.grid * math.sqrt(51.0) if exact else 0.0
    assert output.total == pytest.approx(2.0 * inside.radius + rounding, rel=1e-14)
    if noise == "gaussian":
        sigma = gaussian_twin.sigma(0.01, 1e-8) * output.total
        assert output.scale == pytest.approx(sigma, rel=1e-7)
    else:
        assert output.scale == pytest.approx(0.01 / output.total, rel=1e-14)


@pytest.mark.proof("objective_perturbation", "The mechanism and its estimator")
def test_every_distance_is_rounded_towards_more_noise() -> None:
    rng = np.random.default_rng(1)
    for _ in range(100):
        size, kappa, s = (float(v) for v in 10.0 ** rng.uniform([1, -3, -3], [4, 1, 1]))
        lam = size * (kappa * kappa + s * s)
        plan = mechanism(C=1.0 / lam, data_norm=kappa, intercept_scaling=s, noise_grid="exact")
        inside, output = plan.inside, plan.output
        p, norm = plan.n_weights, Fraction(plan.row_norm)
        assert norm**2 >= Fraction(kappa) ** 2 + Fraction(s) ** 2
        ratio = norm**2 / (Fraction(plan.regularization) * Fraction(inside.loss.temperature))
        assert Fraction(inside.curvature_ratio) >= ratio
        assert Fraction(inside.scale) >= Fraction(inside.multiplier) * norm
        missed = Fraction(inside.radius) * Fraction(plan.regularization)
        assert (2 * (missed - Fraction(plan.gradient_tol))) ** 2 >= p * Fraction(inside.grid) ** 2
        rounded = Fraction(output.total) - 2 * Fraction(inside.radius)
        assert rounded**2 >= p * Fraction(output.grid) ** 2


@pytest.mark.parametrize("name", SMOOTH_LOSSES)
@pytest.mark.parametrize("noise", ["gaussian", "gamma"])
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 8.0])
def test_the_noise_on_the_weights_is_negligible(name: str, noise: str, epsilon: float) -> None:
    plan = mechanism(
        loss=loss(name), noise=noise, epsilon=epsilon, C=None, extra_regularization=None
    )
    assert plan.output.deviation <= 0.01 * plan.inside.deviation / plan.regularization
    assert math.frexp(plan.output.grid)[0] == 0.5
    assert plan.output.grid <= 1e-3 * plan.output.total


@pytest.mark.proof("objective_perturbation", "The mechanism and its estimator")
def test_noise_in_the_objective_lies_on_its_grid() -> None:
    plan = mechanism()
    linear = plan.draw_linear(_core.NoiseSource(3), n_threads=1)
    steps = _core.NoiseSource(3).gaussian_on_grid(51, plan.inside.scale, plan.inside.grid, 1)
    assert linear.shape == (1, 51)
    for value, step in zip(linear.ravel(), steps, strict=True):
        assert Fraction(value) == int(step) * Fraction(plan.inside.grid)


@pytest.mark.proof("objective_perturbation", "The mechanism and its estimator")
@pytest.mark.parametrize("noise", ["gaussian", "gamma"])
@pytest.mark.parametrize("noise_grid", ["exact", "float"])
def test_released_weights_are_grid_points(noise: str, noise_grid: str) -> None:
    plan = mechanism(noise=noise, noise_grid=noise_grid)
    weights = np.random.default_rng(0).normal(size=(1, 51))
    released = plan.release(weights, _core.NoiseSource(3), n_threads=1)
    steps = released / plan.output.grid
    np.testing.assert_array_equal(steps, np.rint(steps))
    # Negative control: the weights themselves do not lie on the grid.
    assert (weights / plan.output.grid != np.rint(weights / plan.output.grid)).any()
    moved = np.abs(released - weights)
    assert (moved > 0.0).all()
    assert moved.max() <= 10.0 * plan.output.deviation


@pytest.mark.proof("objective_perturbation", "The mechanism and its estimator")
@pytest.mark.statistical
@pytest.mark.parametrize("noise_grid", ["exact", "float"])
@pytest.mark.parametrize("part", ["objective", "weights"])
def test_both_gaussian_noises_have_the_stated_deviation(noise_grid: str, part: str) -> None:
    plan = mechanism(noise_grid=noise_grid, n_features=20_000)
    source = _core.NoiseSource(0)
    if part == "objective":
        noise, sigma = plan.draw_linear(source, n_threads=1), plan.inside.scale
    else:
        noise = plan.release(np.zeros((1, 20_001)), source, n_threads=1)
        sigma = plan.output.scale
    low, high = stats.chi2.ppf([ALPHA / 2, 1 - ALPHA / 2], df=noise.size)
    total = float(((noise / sigma) ** 2).sum())
    assert low <= total <= high
    for wrong in (1.06, 1.0 / 1.06):
        assert not low <= total * wrong**2 <= high


@pytest.mark.proof("objective_perturbation", "The mechanism and its estimator")
@pytest.mark.statistical
def test_both_gamma_noises_have_the_stated_radius() -> None:
    plan = mechanism(noise="gamma", n_features=3, intercept_scaling=0.0)
    bound = math.sqrt(math.log(2.0 / ALPHA) / (2.0 * 4000))
    sources = [_core.NoiseSource(seed) for seed in range(4000)]
    zero = np.zeros((1, 3))
    linear = np.stack([plan.draw_linear(source, n_threads=1).ravel() for source in sources])
    output = np.stack([plan.release(zero, source, n_threads=1).ravel() for source in sources])
    for noise, rate in ((linear, plan.inside.scale), (output, plan.output.scale)):
        radii = np.linalg.norm(noise, axis=1) * rate
        assert stats.kstest(radii, "gamma", args=(3,)).statistic < bound
        assert stats.kstest(radii * math.sqrt(2.0), "gamma", args=(3,)).statistic > bound
        assert stats.kstest(radii, "gamma", args=(2,)).statistic > bound


def test_events() -> None:
    plan = mechanism(loss=loss("softmax_margin", 4), adjacency="replace_one", C=0.01)
    inside, output = plan.events
    assert inside == ObjectiveEvent(
        law="softmax",
        n_scores=4,
        sigma=plan.inside.multiplier,
        kappa=plan.inside.curvature_ratio,
        jacobian=None,
        adjacency="replace_one",
    )
    assert output == GaussianEvent(
        sigma=plan.output.scale, sensitivity=plan.output.total, adjacency="replace_one"
    )
    pure = mechanism(noise="gamma", delta=0.0)
    assert pure.events == tuple(
        PureEvent(epsilon=part.epsilon, adjacency="add_remove")
        for part in (pure.inside, pure.output)
    )


@pytest.mark.sampled
@pytest.mark.proof("objective_perturbation", "The mechanism and its estimator")
@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
@pytest.mark.parametrize("noise", ["gaussian", "gamma"])
@pytest.mark.parametrize("name", SMOOTH_LOSSES)
@pytest.mark.parametrize("n_classes", [3, pytest.param(2, marks=pytest.mark.slow)])
def test_statement_verifies(name: str, n_classes: int, noise: str, adjacency: str) -> None:
    plan = mechanism(
        loss=loss(name, n_classes),
        noise=noise,
        adjacency=adjacency,
        C=0.05,
        extra_regularization=None,
    )
    statement = promised(plan)
    assert verify(statement).ok, verify(statement).problems
    assert statement.private
    assert statement.delta == (1e-6 if noise == "gaussian" else 0.0)
    assert statement.mechanism == "objective_perturbation"
    assert statement.noise.grid == plan.output.grid


@pytest.mark.parametrize("noise", ["gaussian", "gamma"])
@pytest.mark.parametrize("noise_grid", ["exact", "float"])
def test_statement_names_its_caveats(noise: str, noise_grid: str) -> None:
    statement = promised(mechanism(noise=noise, noise_grid=noise_grid))
    exact = noise == "gaussian" and noise_grid == "exact"
    sampler = "exact_grid" if exact else "floating_point"
    assert statement.noise.sampler == statement.objective.sampler == sampler
    assert any("floating" in caveat for caveat in statement.caveats) != exact
    assert CAVEATS["precision"] in statement.caveats
    assert verify(statement).ok


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"C": 1e-300}, "C"),
        ({"C": 1e300}, "C"),
        ({"C": 1e90, "data_norm": 1e90, "intercept_scaling": 0.0}, "C"),
        ({"data_norm": 1e-300}, "data_norm"),
        ({"data_norm": 1e300}, "data_norm"),
        ({"intercept_scaling": 1e-300}, "intercept_scaling"),
        ({"intercept_scaling": 1e300}, "data_norm"),
        ({"delta": 0.0}, "delta"),
        ({"epsilon": 1e-300}, "epsilon"),
        ({"epsilon": 1e-300, "noise": "gamma"}, "epsilon"),
        ({"extra_regularization": 1e300}, "extra_regularization"),
        ({"C": 1e6}, "C"),
    ],
)
@pytest.mark.parametrize("C", [0.02, None])
def test_extreme_settings_are_refused_by_name(
    changes: dict[str, Any], name: str, C: float | None
) -> None:
    with pytest.raises(InvalidParameterError, match=f"^{name}: "):
        mechanism(**({"C": C} | changes))


@pytest.mark.parametrize("noise", ["gaussian", "gamma"])
def test_scales_stay_finite_at_the_edges(noise: str) -> None:
    # Beyond these the regularisation is out of its range.
    for kappa in (1e-29, 1e-3, 1e3, 1e28):
        plan = mechanism(
            C=None, data_norm=kappa, intercept_scaling=INTERCEPT[noise] * kappa,
            noise=noise,
        )  # fmt: skip
        linear = plan.draw_linear(_core.NoiseSource(1), n_threads=1)
        released = plan.release(np.zeros(plan.shape), _core.NoiseSource(1), n_threads=1)
        for noise_drawn in (linear, released):
            assert np.isfinite(noise_drawn).all()
            assert (noise_drawn != 0.0).all()


@pytest.mark.sampled
@pytest.mark.parametrize("kappa", [0.5, 10.0, 1e3, 1e6])
@pytest.mark.parametrize("sigma", [0.3, 10.0, 1e4])
def test_verification_is_not_blind_to_extreme_curvature(kappa: float, sigma: float) -> None:
    arguments = ("logistic", 1, 0.99, sigma, kappa, None, False)
    compiled = _core.objective_delta(*arguments)
    law = {"kappa": kappa, "jacobian": None, "replace_one": False}
    recomputed = objective_delta("logistic", 1, 0.99, sigma, **law)
    assert recomputed == pytest.approx(compiled, rel=2e-3, abs=1e-300)
