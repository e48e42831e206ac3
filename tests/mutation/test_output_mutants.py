"""Wrong programs on purpose: each named fault of output perturbation is seen by the audits.

Every test first shows that the untouched program passes the check that the mutant fails.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dpsvm_fast import _core
from dpsvm_fast.estimators import fit as estimators
from dpsvm_fast.mechanisms import noise as noises
from dpsvm_fast.mechanisms import output as mechanisms
from oracles.audit import (
    ALPHA,
    counting_bound,
    epsilon_of_separation,
    plausible_deviation,
    separation_bound,
)
from oracles.worlds import Worlds, claimed_sigma, estimator, worlds_of

pytestmark = pytest.mark.statistical

N = 6_000
Patch = pytest.MonkeyPatch
Check = Callable[[str], bool]


def gaussian_epsilon_holds(adjacency: str) -> bool:
    """Whether Gaussian releases prove no more than the claimed epsilon = 4."""
    worlds = worlds_of(adjacency)
    first, second = (np.array([worlds.project(w) for w in ws]) for ws in worlds.releases(N))
    return epsilon_of_separation(separation_bound(first, second), 1e-5) <= 4.0


def gaussian_deviation_holds(adjacency: str) -> bool:
    """Whether the noise has the deviation that follows from the written formula."""
    worlds = worlds_of(adjacency)
    first, _ = worlds.releases(N)
    return plausible_deviation(
        np.array([worlds.project(w) for w in first]), claimed_sigma(adjacency)
    )


def gamma_epsilon_holds(adjacency: str) -> bool:
    """Whether Gamma releases prove no more than the claimed epsilon = 1, by counting."""
    worlds = worlds_of(adjacency, n_features=1, noise="gamma", epsilon=1.0)
    first, second = (np.array([worlds.closeness(w) for w in ws]) for ws in worlds.releases(20_000))
    moved = float(np.linalg.norm(worlds.first - worlds.second))
    return counting_bound(first, second, moved * np.linspace(-0.9, 0.9, 10), 0.0) <= 1.0


def gamma_direction_holds(adjacency: str, source: Any = None) -> bool:
    """Whether Gamma noise has no preferred direction: in 6 dimensions u_1^2 ~ Beta(1/2, 5/2)."""
    worlds = worlds_of(adjacency, noise="gamma")
    noise = (worlds.releases(N, source)[0] - worlds.first).reshape(N, -1)
    share = noise[:, 0] ** 2 / (noise**2).sum(axis=1)
    bound = math.sqrt(math.log(2.0 / ALPHA) / (2.0 * N))
    return bool(stats.kstest(share, "beta", args=(0.5, 2.5)).statistic < bound)


def scaled(name: str, factor: float) -> Callable[[Patch], None]:
    """Mutant: a function that the scale is computed with returns ``factor`` times its value."""

    def apply(patch: Patch) -> None:
        original = getattr(noises, name)
        patch.setattr(noises, name, lambda *a, **k: factor * original(*a, **k))

    return apply


def forgotten_factor(patch: Patch) -> None:
    patch.setitem(mechanisms.RELATION_FACTOR, "replace_one", 1)


def wrong_lipschitz(patch: Patch) -> None:
    patch.setattr(mechanisms.Loss, "lipschitz", 1.0)


def noise_of_the_budget_before(patch: Patch) -> None:
    """The noise is calibrated to sensitivity 1 instead of the actual one, which is smaller."""
    original = noises.gaussian_sigma
    patch.setattr(noises, "gaussian_sigma", lambda e, d, *_: 0.1 * original(e, d))


MUTANTS = {
    "sigma / sqrt 2": (scaled("gaussian_sigma", 0.5**0.5), gaussian_epsilon_holds, "add_remove"),
    "sigma / 2": (scaled("gaussian_sigma", 0.5), gaussian_epsilon_holds, "replace_one"),
    "sigma sqrt 2": (scaled("gaussian_sigma", 2.0**0.5), gaussian_deviation_holds, "add_remove"),
    "replacement without 2": (forgotten_factor, gaussian_epsilon_holds, "replace_one"),
    "L = 1": (wrong_lipschitz, gaussian_epsilon_holds, "add_remove"),
    "sensitivity unused": (noise_of_the_budget_before, gaussian_deviation_holds, "add_remove"),
    "beta doubled": (scaled("div_down", 2.0), gamma_epsilon_holds, "add_remove"),
    "replacement without 2, gamma": (forgotten_factor, gamma_epsilon_holds, "replace_one"),
}


@pytest.mark.proof("output_perturbation", "The whole release, and what may leave with it")
@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_scale_is_rejected(name: str, monkeypatch: Patch) -> None:
    mutate, holds, adjacency = MUTANTS[name]
    assert holds(adjacency)
    mutate(monkeypatch)
    assert not holds(adjacency)


class LaplacePerCoordinate:
    """Mutant source: independent Laplace entries instead of a Gamma radius."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)

    def gamma_ball(self, size: int, beta: float, n_threads: int) -> Any:
        return self.rng.laplace(scale=1.0 / beta, size=size)


@pytest.mark.proof("output_perturbation", "The whole release, and what may leave with it")
def test_laplace_entries_are_rejected() -> None:
    assert gamma_direction_holds("add_remove")
    assert not gamma_direction_holds("add_remove", LaplacePerCoordinate())


def separation_is_covered(worlds: Worlds) -> bool:
    """Whether the certified weights of the worlds are as close as the plan claims."""
    distance = float(np.linalg.norm(worlds.first - worlds.second))
    return distance <= (worlds.plan.exact_sensitivity + 2.0 * worlds.plan.radius) * (1.0 + 1e-9)


@pytest.mark.proof("output_perturbation", "The whole release, and what may leave with it")
def test_missing_clipping_is_rejected(monkeypatch: Patch) -> None:
    settings = {"data_norm": 0.5}  # the pair's rows have norm 1
    assert separation_is_covered(worlds_of("add_remove", **settings))
    original = _core.solve_crammer_singer
    monkeypatch.setattr(
        _core,
        "solve_crammer_singer",
        lambda *a, **k: original(*a, **(k | {"data_norm": 10.0})),
    )
    assert not separation_is_covered(worlds_of("add_remove", **settings))


@pytest.mark.proof("output_perturbation", "The whole release, and what may leave with it")
def test_a_constant_feature_left_out_of_the_norm_is_rejected(monkeypatch: Patch) -> None:
    settings = {"fit_intercept": True, "intercept_scaling": 1.0}
    assert separation_is_covered(worlds_of("add_remove", **settings))
    monkeypatch.setattr(mechanisms, "hypot_up", lambda a, _: a)
    assert not separation_is_covered(worlds_of("add_remove", **settings))


def fits_differ() -> bool:
    """Whether two fits of one estimator have different noise in every weight."""
    X, y = np.eye(3), np.array([0, 1, 0])
    model = estimator("add_remove")
    first, second = (model.fit(X, y).coef_.copy() for _ in range(2))
    return bool((first != second).all())


@pytest.mark.proof("output_perturbation", "The whole release, and what may leave with it")
def test_a_source_with_a_fixed_key_is_rejected(monkeypatch: Patch) -> None:
    assert fits_differ()
    original = _core.NoiseSource

    class Fixed:
        NoiseSource = staticmethod(lambda _: original(0))

        def __getattr__(self, name: str) -> Any:
            return getattr(_core, name)

    monkeypatch.setattr(estimators, "_core", Fixed())
    assert not fits_differ()
