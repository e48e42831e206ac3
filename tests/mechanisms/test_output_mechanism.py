"""The output-perturbation mechanism: scales recomputed from scratch, exact grid, law of the noise.

Statistical tests use fixed seeds and the false-alarm rate ALPHA = 1e-6: a sum of squares of m
standard normals is compared with the ALPHA/2 and 1 - ALPHA/2 quantiles of chi-square with m
degrees of freedom, a Gamma radius with a Kolmogorov-Smirnov bound. Each has a negative control.
"""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from dpsvm_fast import _core
from dpsvm_fast.certificates import GaussianEvent, PureEvent
from dpsvm_fast.certificates.words import CAVEATS
from dpsvm_fast.exceptions import CertificationError, InvalidParameterError
from dpsvm_fast.mechanisms.output import OutputPerturbation, ProjectedSGD
from dpsvm_fast.verification import verify
from oracles.descent import output_plan
from oracles.plans import promised
from twins import gaussian as gaussian_twin

ALPHA = 1e-6

ONE_RUN = ProjectedSGD(
    n_samples=100, n_epochs=2, batch_size=10, radius=None, projection="joint", average="last"
)


mechanism = partial(
    output_plan,
    noise="gaussian",
    n_classes=4,
    n_features=50,
    data_norm=2.0,
    intercept_scaling=0.4,
    C=0.05,
)


def released_noise(plan: OutputPerturbation, seed: int = 0) -> NDArray[np.float64]:
    weights = np.zeros((plan.loss.n_classes, plan.n_weights // plan.loss.n_classes))
    return plan.release(weights, _core.NoiseSource(seed), n_threads=1).ravel()


def plausible_deviation(noise: NDArray[np.float64], sigma: float) -> bool:
    """Two-sided chi-square test of the standard deviation at level ALPHA."""
    total = float(((noise / sigma) ** 2).sum())
    low, high = stats.chi2.ppf([ALPHA / 2, 1 - ALPHA / 2], df=noise.size)
    return bool(low <= total <= high)


@pytest.mark.proof("output_perturbation", "Sensitivity, declared radius, rounding")
@pytest.mark.parametrize(("adjacency", "factor"), [("add_remove", 1.0), ("replace_one", 2.0)])
@pytest.mark.parametrize("intercept_scaling", [0.0, 0.4])
@pytest.mark.parametrize("tol", [1e-3, 0.1])
def test_scale_from_first_principles(
    adjacency: str, factor: float, intercept_scaling: float, tol: float
) -> None:
    plan = mechanism(adjacency=adjacency, intercept_scaling=intercept_scaling, tol=tol)
    moved = factor * math.sqrt(2.0) * 0.05 * math.sqrt(2.0**2 + intercept_scaling**2)
    n_weights = 4 * (50 + (intercept_scaling > 0))
    total = moved * (1.0 + 2.0 * tol) + plan.output.grid * math.sqrt(n_weights)
    assert plan.n_weights == n_weights
    assert plan.exact_sensitivity == pytest.approx(moved, rel=1e-14)
    assert plan.radius == pytest.approx(tol * moved, rel=1e-14)
    assert plan.output.total == pytest.approx(total, rel=1e-14)
    assert plan.output.scale == pytest.approx(gaussian_twin.sigma(1.0, 1e-6) * total, rel=1e-8)
    pure = mechanism(
        adjacency=adjacency, intercept_scaling=intercept_scaling, tol=tol, noise="gamma"
    )
    assert pure.output.scale == pytest.approx(1.0 / (moved * (1.0 + 2.0 * tol)), rel=1e-14)


@pytest.mark.proof("output_perturbation", "Sensitivity, declared radius, rounding")
def test_every_bound_is_rounded_towards_more_noise() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        C, kappa, s = (float(v) for v in 10.0 ** rng.uniform(-6, 6, 3))
        plan = mechanism(C=C, data_norm=kappa, intercept_scaling=s)
        norm, exact = Fraction(plan.row_norm), Fraction(plan.exact_sensitivity)
        assert norm**2 >= Fraction(kappa) ** 2 + Fraction(s) ** 2
        assert exact**2 >= 2 * Fraction(C) ** 2 * norm**2
        total = Fraction(plan.output.total) - exact - 2 * Fraction(plan.radius)
        assert total >= 0
        assert total**2 >= Fraction(plan.output.grid) ** 2 * plan.n_weights
        pure = mechanism(C=C, data_norm=kappa, intercept_scaling=s, noise="gamma")
        assert Fraction(pure.output.scale) * Fraction(pure.output.total) <= 1


@pytest.mark.proof("output_perturbation", "Noise and grid")
@pytest.mark.parametrize("epsilon", [1e-6, 1.0, 1e4])
@pytest.mark.parametrize("n_features", [1, 100_000])
def test_grid_is_a_small_power_of_two(epsilon: float, n_features: int) -> None:
    plan = mechanism(epsilon=epsilon, n_features=n_features)
    assert math.frexp(plan.output.grid)[0] == 0.5
    assert 2.0**-20 <= plan.output.scale / plan.output.grid <= 2.0**44
    assert plan.output.rounding <= 0.01 * plan.exact_sensitivity
    if epsilon >= 1.0:
        assert plan.output.rounding <= 1.001e-6 * plan.exact_sensitivity


@pytest.mark.proof("output_perturbation", "Noise and grid")
@pytest.mark.parametrize("noise", ["gaussian", "gamma"])
def test_releases_lie_on_the_grid(noise: str) -> None:
    plan = mechanism(noise=noise)
    weights = np.random.default_rng(0).normal(size=(4, 51))
    steps = plan.release(weights, _core.NoiseSource(3), n_threads=1) / plan.output.grid
    np.testing.assert_array_equal(steps, np.rint(steps))
    loose = mechanism(noise=noise, noise_grid="float")
    values = loose.release(weights, _core.NoiseSource(3), n_threads=1)
    assert loose.output.grid is None
    assert (values / plan.output.grid != np.rint(values / plan.output.grid)).any()


@pytest.mark.proof("output_perturbation", "Noise and grid")
def test_release_is_the_rounded_weights_plus_integer_noise() -> None:
    plan = mechanism()
    weights = np.random.default_rng(0).normal(size=(4, 51))
    released = plan.release(weights, _core.NoiseSource(3), n_threads=1)
    steps = (
        _core.NoiseSource(3)
        .gaussian_on_grid(204, plan.output.scale, plan.output.grid, 1)
        .reshape(4, 51)
    )
    for value, weight, step in zip(released.ravel(), weights.ravel(), steps.ravel(), strict=True):
        exact = (round(Fraction(weight) / Fraction(plan.output.grid)) + int(step)) * Fraction(
            plan.output.grid
        )
        assert Fraction(value) == exact


@pytest.mark.proof("output_perturbation", "Noise and grid")
def test_huge_weights_are_clamped_to_a_public_range() -> None:
    plan = mechanism()
    weights = np.full((4, 51), 1e300)
    released = plan.release(weights, _core.NoiseSource(3), n_threads=1)
    assert (
        np.abs(released / plan.output.grid - 2.0**51).max()
        <= 10.0 * plan.output.scale / plan.output.grid
    )


@pytest.mark.proof("output_perturbation", "Noise and grid")
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_weights_that_are_no_numbers_are_not_released(bad: float) -> None:
    weights = np.zeros((4, 51))
    weights[0, 0] = bad
    with pytest.raises(CertificationError, match="nothing is released"):
        mechanism().release(weights, _core.NoiseSource(0), n_threads=1)


@pytest.mark.proof("output_perturbation", "Noise and grid")
@pytest.mark.statistical
@pytest.mark.parametrize("noise_grid", ["exact", "float"])
@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
def test_gaussian_noise_has_the_stated_deviation(noise_grid: str, adjacency: str) -> None:
    plan = mechanism(noise_grid=noise_grid, adjacency=adjacency, n_features=5000)
    noise = released_noise(plan)
    assert plausible_deviation(noise, plan.output.scale)
    for wrong in (math.sqrt(2.0), 0.5, 1.06):
        assert not plausible_deviation(noise, wrong * plan.output.scale)
        assert not plausible_deviation(noise, plan.output.scale / wrong)
    # Kolmogorov-Smirnov: P(distance > t) <= 2 exp(-2 n t^2).
    bound = math.sqrt(math.log(2.0 / ALPHA) / (2.0 * noise.size))
    assert stats.kstest(noise / plan.output.scale, "norm").statistic < bound
    assert stats.kstest(noise / (1.2 * plan.output.scale), "norm").statistic > bound


@pytest.mark.proof("output_perturbation", "Noise and grid")
@pytest.mark.statistical
def test_gamma_noise_has_the_stated_radius_and_no_direction() -> None:
    plan = mechanism(noise="gamma", n_classes=2, n_features=2, intercept_scaling=0.0)
    draws = np.stack([released_noise(plan, seed) for seed in range(4000)])
    radii = np.linalg.norm(draws, axis=1) * plan.output.scale
    bound = math.sqrt(math.log(2.0 / ALPHA) / (2.0 * radii.size))
    assert stats.kstest(radii, "gamma", args=(4,)).statistic < bound
    # Negative controls: a scale wrong by sqrt(2), and the radius law of another dimension.
    assert stats.kstest(radii * math.sqrt(2.0), "gamma", args=(4,)).statistic > bound
    assert stats.kstest(radii, "gamma", args=(3,)).statistic > bound
    # A uniform direction in dimension 4 has squared entries of law Beta(1/2, 3/2); independent
    # Laplace entries, a frequent error, do not.
    squares = (draws[:, 0] * plan.output.scale / radii) ** 2
    assert stats.kstest(squares, "beta", args=(0.5, 1.5)).statistic < bound
    laplace = np.random.default_rng(0).laplace(size=draws.shape)
    wrong = laplace[:, 0] ** 2 / (laplace**2).sum(axis=1)
    assert stats.kstest(wrong, "beta", args=(0.5, 1.5)).statistic > bound


@pytest.mark.proof("output_perturbation", "Sensitivity, declared radius, rounding")
def test_events() -> None:
    plan = mechanism()
    assert plan.events[0] == GaussianEvent(
        sigma=plan.output.scale, sensitivity=plan.output.total, adjacency="add_remove"
    )
    pure = mechanism(noise="gamma", adjacency="replace_one", delta=0.0)
    assert pure.events[0] == PureEvent(epsilon=1.0, adjacency="replace_one")
    # What a ledger is asked before the width of the data is known costs the same.
    assert plan.events[0].mu == pytest.approx(
        mechanism(n_classes=2, n_features=1).events[0].mu, rel=1e-14
    )


@pytest.mark.parametrize(
    ("changes", "can_fail"),
    [
        ({}, False),
        ({"loss": "huber"}, True),
        # Projected SGD certifies nothing.
        ({"loss": "huber", "sgd": ONE_RUN}, False),
    ],
)
def test_a_solver_that_precision_can_stop_says_so(changes: dict[str, Any], can_fail: bool) -> None:
    plan = mechanism(adjacency="replace_one", **changes)
    assert (CAVEATS["precision"] in promised(plan).caveats) == can_fail


@pytest.mark.proof("output_perturbation", "Sensitivity, declared radius, rounding")
@pytest.mark.parametrize("noise", ["gaussian", "gamma"])
@pytest.mark.parametrize("noise_grid", ["exact", "float"])
def test_statement_verifies_and_names_its_caveats(noise: str, noise_grid: str) -> None:
    plan = mechanism(noise=noise, noise_grid=noise_grid)
    statement = promised(plan)
    assert verify(statement).ok, verify(statement).problems
    assert statement.private
    assert statement.delta == (1e-6 if noise == "gaussian" else 0.0)
    exact = noise == "gaussian" and noise_grid == "exact"
    assert statement.noise.sampler == ("exact_grid" if exact else "floating_point")
    assert any("floating" in caveat for caveat in statement.caveats) != exact
    halved = dataclasses.replace(
        statement.noise,
        sigma=statement.noise.sigma and statement.noise.sigma / 2,
        beta=statement.noise.beta and statement.noise.beta * 2,
    )
    certificate = statement.to_dict()
    certificate["noise"] = dataclasses.replace(statement, noise=statement.noise).to_dict()["noise"]
    for name in ("sigma", "beta"):
        if certificate["noise"].get(name) is not None:
            certificate["noise"][name] = getattr(halved, name)
    assert not verify(certificate).ok


@pytest.mark.proof("output_perturbation", "Sensitivity, declared radius, rounding")
@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"C": 1e-300}, "C"),
        ({"C": 1e300}, "C"),
        ({"C": 1e-60, "data_norm": 1e-60, "intercept_scaling": 0.0}, "C"),
        ({"C": 1e90, "data_norm": 1e90, "intercept_scaling": 0.0}, "C"),
        ({"data_norm": 1e-300}, "data_norm"),
        ({"data_norm": 1e300}, "data_norm"),
        ({"data_norm": 1.7e308, "intercept_scaling": 1.7e308}, "data_norm"),
        ({"intercept_scaling": 1e-300}, "intercept_scaling"),
        ({"intercept_scaling": 1e300}, "data_norm"),
        ({"delta": 0.0}, "delta"),
        ({"epsilon": 1e-300, "delta": 1e-300}, "epsilon"),
    ],
)
def test_extreme_settings_are_refused_by_name(changes: dict[str, float], name: str) -> None:
    with pytest.raises(InvalidParameterError, match=f"^{name}: "):
        mechanism(**changes)


@pytest.mark.parametrize("noise", ["gaussian", "gamma"])
def test_scales_stay_finite_at_the_edges(noise: str) -> None:
    for C, kappa in ((1e-90, 1e30), (1e90, 1e-30), (1e-30, 1e-30), (1e30, 1e30)):
        plan = mechanism(C=C, data_norm=kappa, intercept_scaling=0.2 * kappa, noise=noise)
        noisy = released_noise(plan)
        assert np.isfinite(noisy).all()
        assert (noisy != 0.0).all()
        assert plan.radius**2 > 0.0


@pytest.mark.parametrize("noise", ["gaussian", "gamma"])
@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
def test_automatic_C_fixes_the_noise_in_a_score(noise: str, adjacency: str) -> None:
    for row_norm in (1e-3, 1.0, 50.0):
        plan = mechanism(
            C=None,
            noise=noise,
            adjacency=adjacency,
            data_norm=row_norm,
            intercept_scaling=0.0,
            n_classes=5,
            n_features=40,
        )
        noise_per_weight = (
            plan.output.scale if noise == "gaussian" else math.sqrt(201.0) / plan.output.scale
        )
        assert noise_per_weight * row_norm == pytest.approx(0.2, rel=0.01)
