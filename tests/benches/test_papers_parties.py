"""Benchmarks of FedDPDR, DP-Helmet and LMGC: tasks and budgets of methods, on tiny rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from benches.papers import (
    feddpdr,
    helmet,
    lmgc,
    parties_features,
)

from dpsvm_fast.accounting import (
    subsampled_gaussian_noise_multiplier,
)


@pytest.fixture
def few_digits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Rows in the place of MNIST that peak in the column of their digit."""
    rng = np.random.default_rng(1)
    y = np.arange(600) % 10
    X = np.abs(np.eye(10, 12)[y] * 200.0 + rng.integers(0, 50, (600, 12)))
    np.savez(tmp_path / "mnist.npz", X=X, y=y, is_train=np.arange(600) < 500)
    monkeypatch.setenv("DPSVM_DATA", str(tmp_path))
    feddpdr._file.cache_clear()
    yield tmp_path
    feddpdr._file.cache_clear()


@pytest.mark.parametrize("method", feddpdr.METHODS)
def test_methods_run_within_their_budget(few_digits: Path, method: str) -> None:
    task = feddpdr.task_of("3 or 8", 0)
    assert task is not None
    found = feddpdr.measured(task, method, 4, 8.0, 100, check=True)
    rows = 100
    assert (found["rows"], found["holds"]) == (
        rows,
        True if method in feddpdr.CHECKED else None,
    )
    assert float(str(found["accuracy"])) > 0.4


def test_a_budget_that_is_exceeded_is_noticed(few_digits: Path) -> None:
    task = feddpdr.task_of("3 or 8", 0)
    assert task is not None
    model = feddpdr.make_pipeline(*feddpdr.halves(task, 4, 2.0)).fit(task.X, task.y)
    assert feddpdr.within(model, 2.0)
    assert not feddpdr.within(model, 1.0)


@pytest.fixture
def few_features() -> parties_features.Features:
    """Three classes along axes of their own."""
    rng = np.random.default_rng(2)
    y = np.arange(400) % 3
    X = np.eye(3, 5)[y] + 0.1 * rng.normal(size=(400, 5))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return parties_features.Features(X[:300], y[:300], X[300:], y[300:], 3)


def test_users_hold_their_points(few_features: parties_features.Features) -> None:
    mixed = helmet.parties_of(few_features, helmet.Setting("points", 10, 20, 1.0), 0)
    assert [len(y) for _, y in mixed] == [20] * 10
    rows = np.concatenate([X for X, _ in mixed])
    assert len(np.unique(rows, axis=0)) == 200
    biased = helmet.parties_of(few_features, helmet.Setting("one class", 10, 20, 1.0), 0)
    assert [(len(y), len(set(y))) for _, y in biased] == [(20, 1)] * 10
    assert {int(y[0]) for _, y in biased} == {0, 1, 2}
    assert (helmet.points(7, 1.0).points, helmet.spread(10, 1.0).points) == (50, 5000)


@pytest.mark.parametrize(("users", "points"), [(1, 50), (100, 50), (1000, 50)])
def test_each_user_of_the_baseline_protects_itself(users: int, points: int) -> None:
    """The noise of the sum is that of so many users, each of whom had enough for its own."""
    model = helmet.descent(helmet.Setting("points", users, points, 0.5885), 10, 4.0)
    n = users * points
    sampled = min(1.0, 1024 / n)
    assert model.n_steps == round(40 / sampled)
    assert model.expected_batch_size == pytest.approx(min(n, 1024))
    of_sum, of_one = (
        subsampled_gaussian_noise_multiplier(*budget, sampled, model.n_steps, "replace_one")
        for budget in ((model.epsilon, model.delta), (0.5885, 1e-5))
    )
    assert of_sum / of_one == pytest.approx(users**0.5, rel=1e-3)


def test_recipes_of_ellipsoids_fill_one_ledger() -> None:
    rng = np.random.default_rng(2)
    X = rng.random((300, 18))
    split = lmgc.Split(X, np.arange(300) % 2, X, np.arange(300) % 2, 2, (0.0, 1.0))
    own = lmgc.own_epsilon("vehicle", 8.0, "softmax_margin", 18, 2)
    model = lmgc.ellipsoids(lmgc.RECIPES["vehicle"], split, 8.0, "softmax_margin", own)
    model.fit(split.X, split.y)
    spent, _ = model[-1].ledger.total()
    assert 7.8 < spent <= 8.0
