"""The compiled solver against its slow twin, and the twin against first principles."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse

from dpsvm_fast import _core
from dpsvm_fast.accounting import gaussian_sigma
from twins import crammer_singer as twin
from twins import gaussian as gaussian_twin

TWIN_TOL = 1e-6

Problem = dict[str, Any]


def problem(seed: int, *, n_samples: int, n_features: int, n_classes: int, **kw: float) -> Problem:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, n_samples).astype(np.int64)
    X = rng.normal(size=(n_samples, n_features)) + 2.5 * np.eye(n_classes, n_features)[y]
    X[rng.random(X.shape) < 0.4] = 0.0
    return {
        "X": X * kw.get("scale", 1.0),
        "y": y,
        "n_classes": n_classes,
        "C": kw.get("C", 0.1),
        "data_norm": kw.get("data_norm", 1.0),
        "intercept_scaling": kw.get("s", 0.2),
    }


PROBLEMS = [
    problem(0, n_samples=40, n_features=4, n_classes=3),
    problem(1, n_samples=30, n_features=2, n_classes=2, s=0.0),
    problem(2, n_samples=30, n_features=5, n_classes=5, C=0.5),
    problem(3, n_samples=25, n_features=3, n_classes=4, C=0.003),
    problem(4, n_samples=30, n_features=3, n_classes=3, scale=1e6, data_norm=1e6, C=1e-13, s=2e5),
    problem(5, n_samples=1, n_features=3, n_classes=3, C=2.0),
    problem(6, n_samples=20, n_features=1, n_classes=2, C=5.0),
]


def radius_of(case: Problem, tol: float) -> float:
    row_norm = math.hypot(case["data_norm"], case["intercept_scaling"])
    return tol * math.sqrt(2.0) * case["C"] * row_norm


def compiled(
    case: Problem, X: Any, tol: float, *, n_threads: int = 1, low_memory: bool = False
) -> NDArray[np.float64]:
    options = {name: value for name, value in case.items() if name not in ("X", "y")}
    options |= {"max_iter": None, "shuffle_seed": 5, "n_threads": n_threads}
    options |= {"radius": radius_of(case, tol), "low_memory": low_memory}
    if sparse.issparse(X):
        arrays = (X.data, X.indices, X.indptr, X.shape[1])
        weights, info = _core.solve_crammer_singer(arrays, case["y"], **options)
    else:
        weights, info = _core.solve_crammer_singer(X, case["y"], **options)
    assert weights is not None
    assert info["radius"] <= options["radius"]
    return weights


def slow(case: Problem) -> NDArray[np.float64]:
    scale = radius_of(case, 1.0)
    return twin.solve(**case, tol=TWIN_TOL * scale)[0]


@pytest.mark.sampled(times=2)
@pytest.mark.proof("output_perturbation", "Inexact minimiser")
@pytest.mark.parametrize("case", PROBLEMS)
@pytest.mark.parametrize("low_memory", [False, True])
def test_compiled_weights_are_within_the_radius_of_the_twin(
    case: Problem, low_memory: bool
) -> None:
    tol = 1e-3
    weights = compiled(case, case["X"], tol, low_memory=low_memory)
    # The core stores rows in single precision, rounded towards zero: at most 2**-23 of each entry,
    # which moves the minimiser by less than that share of n_samples * Delta.
    quantised = case["y"].size * radius_of(case, 2.0**-22)
    allowed = radius_of(case, tol) + radius_of(case, TWIN_TOL) + quantised
    expected = slow(case)
    # Overlapping classes can have their minimum at 0, where every comparison would pass.
    assert np.linalg.norm(expected) > 100.0 * allowed
    assert np.linalg.norm(weights - expected) <= allowed


@pytest.mark.proof("output_perturbation", "Inexact minimiser")
def test_the_comparison_rejects_another_cost() -> None:
    """Negative control: a tenth more C is seen."""
    case = PROBLEMS[0]
    other = case | {"C": 1.1 * case["C"]}
    assert np.linalg.norm(compiled(other, case["X"], 1e-3) - slow(case)) > radius_of(case, 4e-3)


@pytest.mark.proof("output_perturbation", "Inexact minimiser")
def test_the_twin_clips_rows() -> None:
    X = np.array([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0], [1e300, 1e300], [5e-324, 0.0]])
    rows = twin.clip_rows(X, 1.0, 0.5)
    np.testing.assert_allclose(rows[0], [0.6, 0.8, 0.5], rtol=1e-15)
    np.testing.assert_array_equal(rows[[1, 2, 4], :2], X[[1, 2, 4]])
    np.testing.assert_allclose(rows[3, :2], math.sqrt(0.5), rtol=1e-15)
    assert (rows[:, 2] == 0.5).all()


@pytest.mark.proof("analytic_gaussian")
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5])
def test_sigma_agrees_with_the_twin(epsilon: float, delta: float) -> None:
    expected = gaussian_twin.sigma(epsilon, delta)
    assert gaussian_sigma(epsilon, delta) == pytest.approx(expected, rel=1e-8)
