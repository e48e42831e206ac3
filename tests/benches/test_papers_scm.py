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


def test_features_of_algorithm_2_are_as_long_as_the_noise_assumes() -> None:
    X, _, _ = balls.points(500, np.random.default_rng(3))
    longest = np.linalg.norm(balls.long_features(0).transform(X), axis=1).max()
    assert 1.0 < longest <= balls.LONGEST
