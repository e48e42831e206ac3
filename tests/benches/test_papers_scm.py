"""Figures of Sarwate, Chaudhuri and Monteleoni: what is compared, and that its budgets hold."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from benches.papers import (
    balls,
    scm,
)
from benches.tables import as_rows

EVERYTHING = (scm.NOT_PRIVATE, scm.SENSITIVITY, *scm.TUNED, *scm.RULED)


def clusters(n: int, rng: np.random.Generator) -> tuple[Any, Any]:
    """Two classes of unit rows that a line separates."""
    y = rng.integers(0, 2, n)
    X = rng.normal(size=(n, 4)) + 3.0 * np.outer(2.0 * y - 1.0, [1.0, 0.0, 0.0, 0.0])
    return X / np.linalg.norm(X, axis=1, keepdims=True), y


@pytest.fixture
def part() -> scm.Part:
    X, y = clusters(1200, np.random.default_rng(0))
    return scm.Part(X[:1000], y[:1000], X[1000:], y[1000:])


def test_lambda_is_that_of_the_mean(part: scm.Part) -> None:
    """The gradient of the paper's objective, written out, is zero at the solution."""
    Lambda, h, n = 1e-2, scm.SMOOTHING, len(part.y)
    weights = scm.huber(part.X, part.y, n * Lambda)
    signs = 2.0 * part.y - 1.0
    margins = signs * (part.X @ weights)
    slope = np.where(margins < 1.0 - h, -1.0, 0.0)
    bent = np.abs(1.0 - margins) <= h
    slope[bent] = -(1.0 + h - margins[bent]) / (2.0 * h)
    gradient = (slope * signs) @ part.X / n + Lambda * weights
    assert np.linalg.norm(gradient) < 1e-5
    assert np.linalg.norm(weights) > 0.5


@pytest.mark.parametrize("loss", ["huber", "logistic"])
@pytest.mark.parametrize("total", [1e-3, 1.0, 1e3])
def test_curvature_never_costs_more_than_half(loss: str, total: float) -> None:
    for epsilon in (0.01, 0.2, 3.0):
        added = scm.extra(loss, epsilon, total)
        cost = math.log1p(scm.CURVATURE[loss] / (total + added))
        assert cost <= 0.5 * epsilon * (1.0 + 1e-9)
        assert added == 0.0 or cost == pytest.approx(0.5 * epsilon)


def test_every_method_keeps_its_budget(part: scm.Part) -> None:
    rows = as_rows(scm.sweep(part, 0, EVERYTHING, (1e-1, 1e-4), (1.0,), 1))
    assert {row["method"] for row in rows} == set(EVERYTHING)
    for row in rows:
        private = row["method"] != scm.NOT_PRIVATE
        assert row["holds"] == ("True" if private else "")
        assert row["delta"] == (
            "" if not private else "1e-05" if row["method"] == scm.OURS else "0"
        )
        assert (float(row["spent"]) <= 1.0 + 1e-6) if private else row["spent"] == ""
    assert scm.broken("x", [row | {"data": "adult", "holds": "True"} for row in rows]) == []
    without = [float(row["error"]) for row in rows if row["method"] == scm.NOT_PRIVATE]
    assert max(without) < 0.05


def test_draws_of_the_sensitivity_method_differ_and_its_solution_is_checked(
    part: scm.Part, monkeypatch: pytest.MonkeyPatch
) -> None:
    total = 100.0
    minimiser = scm.huber(part.X, part.y, total)
    model = scm.sensitivity(total, minimiser)
    model.set_params(epsilon=2.0)
    drawn = np.array([model.fit(part.X, part.y).coef_[0] for _ in range(200)])
    assert len(np.unique(drawn[:, 0])) == 200
    # Its noise has the rate epsilon / sensitivity, hence a mean length of d / (100 * 2).
    lengths = np.linalg.norm(drawn - minimiser, axis=1)
    assert lengths.mean() == pytest.approx(4 / (total * 2.0), rel=0.15)
    monkeypatch.setattr(scm, "GRADIENT_TOL", 0.1)
    with pytest.raises(RuntimeError, match="needed"):
        model.fit(part.X, part.y)


def test_features_of_algorithm_2_are_as_long_as_the_noise_assumes() -> None:
    X, _, _ = balls.points(500, np.random.default_rng(3))
    longest = np.linalg.norm(balls.long_features(0).transform(X), axis=1).max()
    assert 1.0 < longest <= balls.LONGEST


@pytest.mark.slow
def test_kernel_machines_keep_their_budgets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(balls, "TEST_POINTS", 2000)
    monkeypatch.setattr(balls, "LAMBDAS", (1e-4,))
    rows = as_rows(balls.fits(3000, 0, (4.0,)))
    expected = {scm.NOT_PRIVATE, balls.ALGORITHM_2, *balls.METHODS}
    assert {row["method"] for row in rows} == expected
    for row in rows:
        if row["method"] != scm.NOT_PRIVATE:
            assert row["holds"] == "True"
            assert float(row["spent"]) <= 4.0 * (1.0 + 1e-6)
    errors = {row["method"]: float(row["error"]) for row in rows}
    assert errors[balls.PURE_KERNEL_GAMMA] < 0.1 < errors[balls.LINEAR]
