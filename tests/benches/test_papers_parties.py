"""Benchmarks of FedDPDR, DP-Helmet and LMGC: tasks and budgets of methods, on tiny rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from benches.papers import (
    feddpdr,
    helmet,
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


def test_a_budget_that_is_exceeded_is_noticed(few_digits: Path) -> None:
    task = feddpdr.task_of("3 or 8", 0)
    assert task is not None
    model = feddpdr.make_pipeline(*feddpdr.halves(task, 4, 2.0)).fit(task.X, task.y)
    assert feddpdr.within(model, 2.0)
    assert not feddpdr.within(model, 1.0)


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
