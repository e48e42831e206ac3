"""The benchmark of private steps: every library takes the same step, and figures are reduced right.

JAX and Opacus are compared where they are installed, by the benchmark itself on every run.
"""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benches.config import Plan
from benches.descent_problem import DescentProblem, synthetic
from benches.libraries import numpy_descent, ours_descent
from benches.subjects import descent, linear_fit
from scipy import sparse

from benches import descent_peers, run, tables

ALPHA = 1e-6
TINY = Plan(repeats=2, batch_seconds=1e-4, max_rows=150)


@pytest.fixture(autouse=True)
def _no_data_and_no_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DPSVM_DATA", raising=False)
    monkeypatch.setattr(descent_peers, "PEERS", {})


def small() -> DescentProblem:
    X, y = synthetic(60, 7, 4)
    return DescentProblem(X, y, 4, 60, sigma=0.0, learning_rate=2.0)


def by_hand(problem: DescentProblem, n_steps: int) -> np.ndarray:
    """Record by record, gradients in full."""
    W = np.zeros(problem.shape)
    for _ in range(n_steps):
        total = np.zeros(problem.shape)
        for x, label in zip(problem.X, problem.y, strict=True):
            slopes = np.exp(W @ x) / np.exp(W @ x).sum() - np.eye(problem.n_classes)[label]
            gradient = np.outer(slopes, x)
            total += min(1.0, problem.clip / np.linalg.norm(gradient)) * gradient
        W -= problem.learning_rate * total / problem.batch
    return W


def stepped(stepper: Any, n_steps: int) -> np.ndarray:
    stepper.advance(n_steps)
    return np.asarray(stepper.weights)


def test_numpy_and_ours_take_the_step_written_out() -> None:
    problem = small()
    expected = by_hand(problem, 6)
    length = np.linalg.norm(expected)
    for X in (problem.X, sparse.csr_matrix(problem.X)):
        stored = replace(problem, X=X)
        peer = stepped(numpy_descent.Stepper(stored, "float64"), 6)
        assert np.linalg.norm(peer - expected) <= 1e-12 * length
        single = stepped(numpy_descent.Stepper(stored, "float32"), 6)
        assert np.linalg.norm(single - expected) <= 1e-5 * length
        rows = ours_descent.records(X, problem.y, problem.n_classes)
        mine = stepped(ours_descent.Stepper(stored, rows, "exact", 1), 6)
        assert np.linalg.norm(mine - expected) <= 1e-4 * length
        # Negative control: the plain kind does not clip, and that shows.
        plain = stepped(ours_descent.Stepper(stored, rows, "plain", 1), 6)
        assert np.linalg.norm(plain - expected) > 0.1 * length


@pytest.mark.parametrize(
    ("adapter", "package"), [("jax_descent", "jax"), ("opacus_descent", "opacus")]
)
def test_peers_take_the_step_written_out(adapter: str, package: str) -> None:
    pytest.importorskip(package)
    module = importlib.import_module(f"benches.libraries.{adapter}")
    problem = small()
    expected = by_hand(problem, 6)
    for formulation in module.FORMULATIONS:
        found = stepped(module.Stepper(problem, formulation), 6)
        assert np.linalg.norm(found - expected) <= 1e-4 * np.linalg.norm(expected)


@pytest.mark.slow
@pytest.mark.parametrize("subject", ["descent", "linear_fit"])
def test_measure_and_analyse(
    subject: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(linear_fit, "TYPES", ("uint8",))
    monkeypatch.setattr(descent, "DESCENT_SYNTHETIC", {"made": (150, 9, 3)})
    run.run_step(subject, tmp_path, TINY, {"cpu": "any: one", "solver threads": "1"})
    assert run.analyse_step(subject, tmp_path) == []
    raw = tables.read(tmp_path / f"{subject}_runs.csv")[0]
    assert all(float(row["seconds"]) > 0.0 for row in raw)
    assert "SKIPPED mnist" in capsys.readouterr().out
    summary = tables.read(tmp_path / f"{subject}.csv")[0]
    if subject == "descent":
        assert {(row["data"], row["batch"]) for row in summary} == {
            ("made", "128"),
            ("made", "150"),
        }
        assert all(row["jax_ms"] == "" for row in summary)
    else:
        assert all(0.0 <= float(row["test_accuracy"]) <= 1.0 for row in summary)
