"""The plan of a Gaussian-margin fit: scores that count, budgets, certificate, anchors."""

from __future__ import annotations

import json
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsvm_fast import _core, verify
from dpsvm_fast.accounting import composed_delta, gaussian_sigma, objective_sigma
from dpsvm_fast.losses import Loss
from dpsvm_fast.mechanisms.gaussian_margin import (
    STEPS,
    GaussianMargin,
    NoisyAnchors,
    n_coordinates,
    nearest_ellipsoids,
)
from oracles.plans import plan_of, promised

plan = partial(
    plan_of,
    GaussianMargin,
    epsilon=2.0,
    loss="softmax_margin",
    smoothing=0.4,
    margin=0.6,
    n_classes=4,
)


@lru_cache
def mixture(adjacency: str = "add_remove") -> GaussianMargin:
    """Exact composition beside a law of noise in an objective takes seconds: once a relation."""
    found = plan(n_classes=2, n_ellipsoids=2, adjacency=adjacency)
    assert found.events
    return found


@pytest.mark.proof("gaussian_margin", "Constants, budgets, anchors, certificates of the code")
@pytest.mark.parametrize(("K", "M", "count"), [(2, 1, 2), (4, 1, 4), (2, 2, 3), (3, 4, 9)])
def test_scores_of_a_record_are_its_own_and_those_of_other_classes(
    K: int, M: int, count: int
) -> None:
    found = plan(n_classes=K, n_ellipsoids=M, noise="gamma")
    assert found.score_loss.n_scores == count
    assert found.solver.shape == (K * M, n_coordinates(3))
    assert n_coordinates(3) == 10


@pytest.mark.proof("gaussian_margin", "Constants, budgets, anchors, certificates of the code")
def test_two_classes_pay_for_two_scores() -> None:
    """One score moves by sqrt(2) when two do: noise as for rows of norm sqrt(2)."""
    two = plan(n_classes=2).solver.inside
    one = objective_sigma(
        two.epsilon, two.delta, loss="softplus", n_classes=2, kappa=2.0 * two.curvature_ratio
    )
    assert two.scale == pytest.approx(np.sqrt(2.0) * one, rel=1e-6)
    loss = Loss(name="softmax_margin", n_classes=2)
    assert (loss.n_scores, loss.lipschitz) == (1, 1.0)


def test_the_automatic_price_of_margins() -> None:
    """lambda = 0.6 times the lambda at which lambda * smoothing = sigma."""
    whole = _core.objective_sigma("softmax", 4, 2.0, 1e-6, None, 1.0, None, False)
    assert plan().regularization == pytest.approx(0.6 * whole / 0.4, rel=1e-9)
    # The law that a ledger is asked for, before the number of features is known.
    assert plan(n_features=1).events[0] == plan(n_features=40).events[0]
    assert plan(C=0.25).regularization == 4.0


def test_traces_are_a_public_part_of_the_linear_term() -> None:
    plain, traced = plan(), plan(trace_weight=2.5)
    assert plain.events == traced.events
    gap = traced.draw_linear(_core.NoiseSource(1), n_threads=1) - plain.draw_linear(
        _core.NoiseSource(1), n_threads=1
    )
    # Upper triangle of a 4 x 4 matrix row by row; the constant's place is last.
    expected = np.zeros(10)
    expected[[0, 4, 7]] = 2.5
    assert np.allclose(gap, expected, atol=1e-9)


@pytest.mark.proof("gaussian_margin", "Constants, budgets, anchors, certificates of the code")
@pytest.mark.parametrize(
    "adjacency", ["add_remove", pytest.param("replace_one", marks=pytest.mark.nightly)]
)
def test_everything_together_is_within_the_budget(adjacency: str) -> None:
    found = mixture(adjacency)
    assert len(found.events) == STEPS + 2
    spent = composed_delta(found.events, 2.0)
    assert 0.88e-6 < spent <= 1e-6
    # Anchors have 15 % of the squared parameter of Gaussian noise.
    mu = 1.0 / gaussian_sigma(2.0, 1e-6)
    share = sum(event.mu**2 for event in found.events[:STEPS]) / mu**2  # type: ignore[attr-defined]
    assert share == pytest.approx(0.15, rel=1e-9)
    assert verify(promised(found))


@pytest.mark.proof("gaussian_margin", "Constants, budgets, anchors, certificates of the code")
@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
def test_pure_epsilons_add_up(adjacency: str) -> None:
    found = plan(noise="gamma", n_ellipsoids=3, adjacency=adjacency)
    epsilons = [event.epsilon for event in found.events]  # type: ignore[attr-defined]
    assert 2.0 - 1e-12 < sum(epsilons) <= 2.0
    assert sum(epsilons[:STEPS]) == pytest.approx(0.3)


LIES: dict[str, tuple[str, ...]] = {
    "less noise in the objective": ("objective", "beta"),
    "a shorter row": ("objective", "row_norm"),
    "less noise on anchors": ("parts", "beta"),
    "a smaller contribution": ("parts", "clip_norm"),
}


@pytest.mark.proof("gaussian_margin", "Constants, budgets, anchors, certificates of the code")
@pytest.mark.parametrize("lie", LIES)
def test_lies_are_found(lie: str) -> None:
    record = json.loads(promised(plan(noise="gamma", n_ellipsoids=2)).to_json())
    assert verify(record)
    place, field = LIES[lie]
    target = record[place][0] if place == "parts" else record[place]
    target[field] *= 2.0 if field == "beta" else 0.9
    assert not verify(record)


# -- Anchors -------------------------------------------------------------------------------------


anchors = partial(NoisyAnchors, n_classes=2, mu=1.0, n_ellipsoids=3, n_features=4)


def unit_rows(rng: np.random.Generator, n: int, dtype: type) -> NDArray[Any]:
    """Rows of norm at most 1 up to the rounding of their type, some of them exactly on axes."""
    rows = rng.normal(size=(n, 4))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    rows[rng.random(n) < 0.2] = np.eye(4)[1]
    rows[rng.random(n) < 0.2] = 0.5
    rows[rng.random(n) < 0.3] *= 0.3
    return rows.astype(dtype)


@pytest.mark.proof("gaussian_margin", "Constants, budgets, anchors, certificates of the code")
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("first", [True, False])
def test_one_record_moves_the_sums_by_its_bound_at_most(dtype: type, first: bool) -> None:
    rng = np.random.default_rng(3)
    found, largest = anchors(), 0.0
    for _ in range(40):
        rows, codes = unit_rows(rng, 30, dtype), rng.integers(0, 2, 30)
        points = None if first else rng.normal(size=(6, 4)) * 0.4
        whole = found._total(rows, codes, points)
        kept = rng.permutation(30)[:-1]
        moved = whole - found._total(rows[kept], codes[kept], points)
        # One cell, whatever the others do; sums are exact, in any order.
        assert (np.abs(moved).sum(axis=1) > 0.0).sum() == 1
        largest = max(largest, float(np.linalg.norm(moved)))
    assert 0.999 * found.sum.clip_norm < largest <= found.sum.clip_norm


@pytest.mark.proof("gaussian_margin", "Constants, budgets, anchors, certificates of the code")
def test_an_exchanged_record_moves_two_cells_at_most() -> None:
    rng = np.random.default_rng(4)
    found, largest = anchors(adjacency="replace_one"), 0.0
    for _ in range(200):
        rows, codes = unit_rows(rng, 2, np.float64), rng.integers(0, 2, 2)
        points = rng.normal(size=(6, 4)) * 0.4
        here, there = (found._total(rows[i : i + 1], codes[i : i + 1], points) for i in (0, 1))
        largest = max(largest, float(np.linalg.norm(here - there)))
    assert 1.5 < largest <= found.sum.sensitivity


def test_rows_go_to_the_nearest_anchor_of_their_class() -> None:
    rng = np.random.default_rng(5)
    rows, codes = unit_rows(rng, 200, np.float64), rng.integers(0, 2, 200)
    points = rng.normal(size=(6, 4))
    gaps = np.linalg.norm(rows[:, None] - points, axis=2)
    gaps[np.arange(6) // 3 != codes[:, None]] = np.inf
    assert (nearest_ellipsoids(rows, codes, points, 3) == gaps.argmin(axis=1)).all()
    # What one record gets depends on no other one.
    alone = [nearest_ellipsoids(rows[i : i + 1], codes[i : i + 1], points, 3) for i in range(200)]
    assert (np.concatenate(alone) == nearest_ellipsoids(rows, codes, points, 3)).all()


def test_anchors_find_separate_groups() -> None:
    rng = np.random.default_rng(6)
    centres = np.array([[0.6, 0.0], [-0.6, 0.0], [0.0, 0.7], [0.0, -0.7]])
    which = rng.integers(0, 4, 4000)
    rows = centres[which] + 0.05 * rng.normal(size=(4000, 2))
    found = anchors(n_features=2, n_ellipsoids=2, mu=1.0)
    points = found.release(rows, which // 2, _core.NoiseSource(2), 1)
    gaps = np.linalg.norm(points[:, None] - centres, axis=2)
    assert (gaps.min(axis=0) < 0.1).all()
    again = found.release(rows[::-1].copy(), (which // 2)[::-1], _core.NoiseSource(2), 2)
    assert (again == points).all()


def test_anchors_of_noise_alone_stay_finite() -> None:
    rows, codes = np.zeros((2, 4)), np.array([0, 1])
    for mu in (1e-6, 1e6):
        points = anchors(mu=mu, n_ellipsoids=7).release(rows, codes, _core.NoiseSource(1), 1)
        assert points.shape == (14, 4)
        assert np.isfinite(points).all()
