"""PMSVM's ablations: settings as printed, public rows, a curve that ends where a fit does."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from benches.papers import (
    pmsvm_figure3,
    pmsvm_settings,
)
from benches.papers.data import DataSet
from benches.papers.pmsvm_settings import gradient_arguments, scaled_rows

from dpsvm_fast import GradientPerturbationSVC
from dpsvm_fast.mechanisms.plan import Facts


def arguments(method: str, name: str, **changes: Any) -> dict[str, Any]:
    given = {"epsilon": 4.0, "n_rows": 1000, "n_classes": 10, "norm": 2.0}
    return gradient_arguments(method, name, **given | changes)


def test_arguments_are_accepted() -> None:
    for method in pmsvm_settings.GRADIENT_METHODS:
        for name in pmsvm_settings.NAMES:
            model = GradientPerturbationSVC(**arguments(method, name, n_classes=3))
            model.checked().plan(Facts(n_features=4, n_classes=3))


def test_public_rows_know_nothing_of_other_rows() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 5.0, (20, 8))
    data = DataSet(X, np.arange(20) % 2, 2, np.zeros(8), np.full(8, 4.0))
    rows, norm = scaled_rows(data, "usps")
    assert norm == pytest.approx(math.sqrt(8))
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), norm)
    other = DataSet(X.copy(), data.y, 2, data.low, data.high)
    other.X[0] += 1.0
    np.testing.assert_array_equal(scaled_rows(other, "usps")[0][1:], rows[1:])
    within, norm = scaled_rows(data, "cornell")
    assert norm == pytest.approx(math.sqrt(8))
    assert within.max() == 4.0
    standardised, norm = scaled_rows(data, "usps", "standardised")
    np.testing.assert_allclose(standardised.std(axis=0), 1.0)
    assert norm == np.linalg.norm(standardised, axis=1).max()


def test_a_curve_ends_where_a_fit_does() -> None:
    rng = np.random.default_rng(1)
    y = rng.integers(0, 3, 400)
    X = 2.0 * np.eye(3, 6)[y] + 0.1 * rng.random((400, 6))
    given = arguments("PMSVM-AGP", "vehicle", epsilon=50.0, n_rows=400, n_classes=3)
    curve = list(pmsvm_figure3.curve(given, (X, y), (X[:100], y[:100])))
    assert curve[0]["step"] == 0
    assert curve[-1]["step"] == given["n_steps"]
    # At the start all gaps are the margin.
    assert curve[0]["loss"] == pytest.approx(2 * 0.5 * (1.0 + math.hypot(1.0, 0.5)))
    fitted = GradientPerturbationSVC(**given).fit(X, y).score(X, y)
    assert curve[-1]["train"] == pytest.approx(fitted, abs=0.05)
    assert fitted > 0.9
