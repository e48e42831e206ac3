"""Wrong programs on purpose: each named fault of output perturbation is seen by the audits.

Every test first shows that the untouched program passes the check that the mutant fails.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dpsvm_fast import ObjectivePerturbationSVC, _core
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
from oracles.faults import Fault, around, is_seen, put, scaled
from oracles.worlds import claimed_sigma, estimator, worlds_of

pytestmark = [
    pytest.mark.statistical,
    pytest.mark.proof("output_perturbation", "The whole release, and what may leave with it"),
]

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


GAUSSIAN = partial(scaled, noises, "gaussian_sigma")
ONE_RECORD = put(mechanisms.RELATION_FACTOR, "replace_one", 1)
MUTANTS: dict[str, tuple[Fault, Check, str]] = {
    "sigma / sqrt 2": (GAUSSIAN(0.5**0.5), gaussian_epsilon_holds, "add_remove"),
    "sigma / 2": (GAUSSIAN(0.5), gaussian_epsilon_holds, "replace_one"),
    "sigma sqrt 2": (GAUSSIAN(2.0**0.5), gaussian_deviation_holds, "add_remove"),
    "replacement without 2": (ONE_RECORD, gaussian_epsilon_holds, "replace_one"),
    "L = 1": (put(mechanisms.Loss, "lipschitz", 1.0), gaussian_epsilon_holds, "add_remove"),
    # The noise is calibrated to sensitivity 1 instead of the actual one, which is smaller.
    "sensitivity unused": (
        around(noises, "gaussian_sigma", lambda right, e, d, *_: 0.1 * right(e, d)),
        gaussian_deviation_holds, "add_remove",
    ),
    "beta doubled": (scaled(noises, "div_down", 2.0), gamma_epsilon_holds, "add_remove"),
    "replacement without 2, gamma": (ONE_RECORD, gamma_epsilon_holds, "replace_one"),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_scale_is_rejected(name: str, monkeypatch: Patch) -> None:
    fault, holds, adjacency = MUTANTS[name]
    assert is_seen(fault, monkeypatch, holds, adjacency)


class LaplacePerCoordinate:
    """Mutant source: independent Laplace entries instead of a Gamma radius."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)

    def gamma_ball(self, size: int, beta: float, n_threads: int) -> Any:
        return self.rng.laplace(scale=1.0 / beta, size=size)


def test_laplace_entries_are_rejected() -> None:
    assert gamma_direction_holds("add_remove")
    assert not gamma_direction_holds("add_remove", LaplacePerCoordinate())


def separation_is_covered(**settings: Any) -> bool:
    """Whether the certified weights of the worlds are as close as the plan claims."""
    worlds = worlds_of("add_remove", **settings)
    distance = float(np.linalg.norm(worlds.first - worlds.second))
    return distance <= (worlds.plan.exact_sensitivity + 2.0 * worlds.plan.radius) * (1.0 + 1e-9)


def unclipped(right: Any, *given: Any, **named: Any) -> Any:
    return right(*given, **named | {"data_norm": 10.0})


DISTANCES: dict[str, tuple[Fault, dict[str, Any]]] = {
    # The pair's rows have norm 1.
    "missing clipping": (around(_core, "solve_crammer_singer", unclipped), {"data_norm": 0.5}),
    "a constant feature left out of the norm": (
        put(mechanisms, "hypot_up", lambda a, _: a),
        {"fit_intercept": True, "intercept_scaling": 1.0},
    ),
}


@pytest.mark.parametrize("name", DISTANCES)
def test_a_longer_way_of_the_weights_is_seen(name: str, monkeypatch: Patch) -> None:
    fault, settings = DISTANCES[name]
    assert is_seen(fault, monkeypatch, lambda: separation_is_covered(**settings))


def fits_differ(model: Any) -> bool:
    """Whether two fits of one estimator have different noise in every weight."""
    X, y = np.eye(3), np.array([0, 1, 0])
    first, second = (model.fit(X, y).coef_.copy() for _ in range(2))
    return bool((first != second).all())


@pytest.mark.parametrize(
    "model", [estimator("add_remove"), ObjectivePerturbationSVC(classes=[0, 1], n_threads=1)]
)
def test_a_source_with_a_fixed_key_is_rejected(model: Any, monkeypatch: Patch) -> None:
    class Fixed:
        NoiseSource = staticmethod(lambda _: _core.NoiseSource(0))

        def __getattr__(self, name: str) -> Any:
            return getattr(_core, name)

    assert is_seen(put(estimators, "_core", Fixed()), monkeypatch, fits_differ, model)
