"""The compiled solver of ellipsoids and its slow twin, and the twin against its formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize

from dpsvm_fast import _core
from twins import gaussian_margin as twin

Array = NDArray[np.float64]
LOSSES = ["softmax_margin", "huber_ww"]


def problem(seed: int, **changes: Any) -> dict[str, Any]:
    """Few rows, some longer than the bound; K classes of M ellipsoids; a random linear term."""
    rng = np.random.default_rng(seed)
    settings: dict[str, Any] = {"n": 60, "d": 3, "n_classes": 3, "n_ellipsoids": 1}
    own = {name: changes.pop(name, value) for name, value in settings.items()}
    J, d = own["n_classes"] * own["n_ellipsoids"], own["d"]
    p = (d + 1) * (d + 2) // 2
    case: dict[str, Any] = {
        "X": rng.normal(size=(own["n"], d)),
        "target": rng.integers(0, J, own["n"]),
        "loss": "softmax_margin",
        "n_classes": own["n_classes"],
        "n_ellipsoids": own["n_ellipsoids"],
        "smoothing": 0.4,
        "margin": 0.6,
        "regularization": 0.7,
        "linear": rng.normal(size=(J, p)),
        "data_norm": 2.0,
        "psd": False,
        "gradient_tol": 1e-6,
        "max_iter": None,
        "n_threads": 1,
    }
    return case | changes


CASES = [
    problem(0),
    problem(1, psd=True),
    problem(2, n_classes=2, d=1, psd=True, regularization=0.1),
    problem(3, n_ellipsoids=2, psd=True),
    problem(4, n_ellipsoids=3, n_classes=2, regularization=5.0),
    problem(5, data_norm=0.3, margin=0.0, psd=True),
    problem(6, n=1, psd=True),
]


def split(case: dict[str, Any]) -> tuple[Array, NDArray[np.int64], dict[str, Any]]:
    options = {name: value for name, value in case.items() if name not in ("X", "target")}
    return case["X"], case["target"], options


@pytest.mark.proof("gaussian_margin", "Constants, budgets, anchors, certificates of the code")
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_compiled_minimisers_are_the_twin_s(case: dict[str, Any], loss: str) -> None:
    X, target, options = split(case | {"loss": loss})
    found, radius = _core.solve_gaussian_margin(X, target, **options)
    slow, distance = twin.solve_gaussian_margin(X, target, **options)
    assert found is not None
    assert slow is not None
    assert radius <= options["gradient_tol"] / options["regularization"]
    # The compiled solver rounds rows to single precision, which moves the objective.
    lipschitz = np.sqrt(2.0) if loss == "softmax_margin" else len(options["linear"])
    rows = 2.0**-21 * lipschitz * len(X) / options["regularization"]
    assert np.linalg.norm(found - slow) <= radius + distance + rows
    again, _ = _core.solve_gaussian_margin(X, target, **(options | {"n_threads": 3}))
    assert np.array_equal(found, again)


@pytest.mark.parametrize("loss", LOSSES)
def test_rows_in_single_precision_give_the_same(loss: str) -> None:
    X, target, options = split(problem(7, loss=loss, psd=True))
    X = X.astype(np.float32)
    narrow, _ = _core.solve_gaussian_margin(X, target, **options)
    wide, _ = _core.solve_gaussian_margin(X.astype(np.float64), target, **options)
    assert np.allclose(narrow, wide, atol=1e-5)


def test_too_few_steps_are_no_minimiser() -> None:
    X, target, options = split(problem(8, max_iter=1, gradient_tol=1e-10))
    found, radius = _core.solve_gaussian_margin(X, target, **options)
    assert found is None
    assert radius == np.inf


# -- The twin ------------------------------------------------------------------------------------


def value(case: dict[str, Any], Phi: Array) -> float:
    """J from its formula."""
    X, target, options = split(case)
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    rows = X * np.minimum(1.0, options["data_norm"] / norms)
    lifted = np.column_stack([rows, np.ones(len(rows))]) / np.hypot(options["data_norm"], 1.0)
    scores = -np.einsum("na,jab,nb->nj", lifted, twin.unsvec(Phi), lifted)
    total = 0.0
    for own, s in zip(target, scores, strict=True):
        g = [
            options["margin"] - s[own] + s[k]
            for k in range(len(s))
            if k // options["n_ellipsoids"] != own // options["n_ellipsoids"]
        ]
        h = options["smoothing"]
        if options["loss"] == "softmax_margin":
            total += h * np.log1p(np.exp(np.array(g) / h).sum())
        else:
            total += sum(x if x > h else max(0.0, x + h) ** 2 / (4.0 * h) for x in g)
    squares = 0.5 * options["regularization"] * (Phi**2).sum()
    return float(total + squares + (options["linear"] * Phi).sum())


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("n_ellipsoids", [1, 2])
def test_the_twin_s_gradient_is_that_of_the_formula(loss: str, n_ellipsoids: int) -> None:
    case = problem(9, loss=loss, n_ellipsoids=n_ellipsoids, n_classes=2, n=12, d=2)
    X, target, options = split(case)
    rng = np.random.default_rng(0)
    Phi, along = rng.normal(size=(2, *options["linear"].shape))
    rows = twin.lifted_rows(X, options["data_norm"])
    kernel = (loss, options["smoothing"], options["margin"])
    a = twin.margin_gradient(-(rows @ Phi.T), target, n_ellipsoids, kernel)
    gradient = options["linear"] + options["regularization"] * Phi - a.T @ rows
    slope = (value(case, Phi + 1e-6 * along) - value(case, Phi - 1e-6 * along)) / 2e-6
    assert slope == pytest.approx(float((gradient * along).sum()), rel=1e-6)
    losses = twin.margin_loss(-(rows @ Phi.T), target, n_ellipsoids, kernel).sum()
    linear = (options["linear"] * Phi).sum() + 0.5 * options["regularization"] * (Phi**2).sum()
    assert losses + linear == pytest.approx(value(case, Phi))


@pytest.mark.parametrize("loss", LOSSES)
def test_the_twin_minimises_over_the_cone(loss: str) -> None:
    """Against a descent in the factors of the matrices, which are positive semidefinite always."""
    case = problem(10, loss=loss, n_classes=2, d=1, n=20, psd=True)
    X, target, options = split(case)
    found, _ = twin.solve_gaussian_margin(X, target, **options)
    assert found is not None
    assert np.linalg.eigvalsh(twin.unsvec(found)).min() >= -1e-12

    def through_factors(flat: Array) -> float:
        factors = flat.reshape(2, 2, 2)
        return value(case, twin.svec(factors @ np.swapaxes(factors, -1, -2)))

    rng = np.random.default_rng(1)
    least = min(minimize(through_factors, rng.normal(size=8)).fun for _ in range(4))
    assert value(case, found) <= least + 1e-9
    assert value(case, found) == pytest.approx(least, abs=1e-5)


def test_coordinates_are_orthonormal() -> None:
    rng = np.random.default_rng(2)
    A, B = rng.normal(size=(2, 5, 4, 4))
    A, B = A + np.swapaxes(A, -1, -2), B + np.swapaxes(B, -1, -2)
    assert np.allclose(twin.unsvec(twin.svec(A)), A)
    assert np.allclose((twin.svec(A) * twin.svec(B)).sum(axis=-1), (A * B).sum(axis=(-1, -2)))
