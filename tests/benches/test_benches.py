"""The benchmark harness on tiny data: it runs, its yardsticks are right, bad figures are named."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from benches.config import DATA_SETS, GRADIENT_SHARE, Plan
from benches.libraries import (
    logistic_peers,
    ours,
    scipy_calibration,
    sklearn_liblinear,
)
from benches.logistic_problem import LogisticProblem
from benches.problem import Problem
from benches.subjects import memory, memory_child, objective

from benches import report, run, tables, weeks
from dpsvm_fast import _core

TINY = Plan(
    repeats=2,
    n_draws=1000,
    n_parties=3,
    batch_seconds=1e-4,
    max_rows=80,
    C_values=(0.1,),
    regularizations=(10.0,),
)


@pytest.fixture(autouse=True)
def _bundled_data_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DPSVM_DATA", raising=False)


def small_problem() -> Problem:
    rng = np.random.default_rng(5)
    y = rng.integers(0, 3, 40).astype(np.int64)
    X = rng.normal(size=(40, 4)) + 2.0 * np.eye(3, 4)[y]
    return Problem(X / np.linalg.norm(X, axis=1, keepdims=True), y, 3, 0.5)


SLOW = ("accounting", "objective", "objective_fit", "parties")


@pytest.mark.parametrize(
    "subject",
    ["solver", "noise", "crossing", *(pytest.param(one, marks=pytest.mark.slow) for one in SLOW)],
)
def test_measure_and_analyse(
    subject: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run.run_step(subject, tmp_path, TINY, {"cpu": "any: one", "solver threads": "1"})
    assert run.analyse_step(subject, tmp_path) == []
    raw, facts = tables.read(tmp_path / f"{subject}_runs.csv")
    summary, again = tables.read(tmp_path / f"{subject}.csv")
    assert facts == again == {"cpu": "any: one", "solver threads": "1"}
    assert all(float(row["seconds"]) > 0.0 for row in raw)
    assert 0 < len(summary) < len(raw)
    printed = capsys.readouterr().out
    if subject == "solver":
        for name in DATA_SETS:
            assert f"SKIPPED {name}" in printed
        assert {row["data"] for row in raw} == {"digits"}
    if subject == "objective":
        assert "SKIPPED adult" in printed
        assert {row["data"] for row in raw} >= {"digits", "text, 5 classes"}
        reached = [row for row in raw if row["outcome"] == objective.REACHED]
        assert max(float(row["gradient_over_start"]) for row in reached) <= GRADIENT_SHARE
        named = {row["library"] for row in reached}
        assert named >= {"dpsvm_fast", "scikit-learn"}
        page = report.objective_markdown(summary, [])
        assert all(name in page for name in named - {"dpsvm_fast"})


def test_objective_by_hand() -> None:
    problem = small_problem()
    W = np.random.default_rng(6).normal(size=(3, 4))
    total = 0.5 * (W**2).sum()
    for x, label in zip(problem.X, problem.y, strict=True):
        margins = [(k != label) + (W[k] - W[label]) @ x for k in range(3)]
        total += problem.C * max(margins)
    assert problem.objective(W) == pytest.approx(total, rel=1e-13)


def test_both_libraries_solve_the_same_problem() -> None:
    problem = small_problem()
    theirs = sklearn_liblinear.solve(problem, tol=1e-8, seed=0)
    mine, notes = ours.solve(problem, relation="add_remove", tol=1e-3, seed=0, n_threads=1)
    assert notes["radius"] <= 1e-3 * problem.sensitivity("add_remove")
    assert problem.distance(theirs, mine) <= 1e-3
    # Negative control: another C gives another optimum, so a wrong scale would show.
    other = Problem(problem.X, problem.y, 3, 1.1 * problem.C)
    assert problem.distance(sklearn_liblinear.solve(other, tol=1e-8, seed=0), mine) > 1e-2


def logistic_problem(n_classes: int) -> LogisticProblem:
    rng = np.random.default_rng(8)
    y = rng.integers(0, n_classes, 60).astype(np.int64)
    X = rng.normal(size=(60, 5)) + 2.0 * np.eye(n_classes, 5)[y]
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return LogisticProblem(X, y, n_classes, 0.7)


@pytest.mark.parametrize("name", logistic_peers.SOLVERS)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_all_libraries_minimise_the_same_smooth_objective(
    n_classes: int, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    problem = logistic_problem(n_classes)
    solver = logistic_peers.SOLVERS[name]
    pytest.importorskip(solver.module)
    if not solver.takes(problem):
        pytest.skip("it has another objective for more than two classes")
    # Far above what reading rows in single precision moves the gradient by.
    target = 1e-5 * problem.norm_at_zero()
    ask = partial(logistic_peers.prepared(problem, name), problem.regularization)
    first = solver.first(problem, target)
    found, answer = logistic_peers.loosest(lambda tol, _: ask(tol)[0], first, target, 60.0)
    assert answer is not None
    assert answer.norm <= target
    theirs = ask(found)[1]
    tol = objective.OWN_SHARE * target
    mine = ours.solve_smooth(problem, gradient_tol=tol, seed=0, n_threads=1)[0]
    assert np.linalg.norm(problem.gradient(theirs)) <= target
    assert np.linalg.norm(problem.gradient(mine)) <= target
    # The objective is strongly convex: both gradients bound the distance.
    assert np.linalg.norm(theirs - mine) <= 2.0 * target / problem.regularization
    # Negative control: another lambda gives another optimum, so a wrong scale would show.
    other = LogisticProblem(problem.X, problem.y, n_classes, 1.1 * problem.regularization)
    assert np.linalg.norm(other.gradient(mine)) > 1e-3


@pytest.mark.slow
def test_memory_is_measured_and_judged(tmp_path: Path) -> None:
    facts = {"data": "a", "library": "dpsvm_fast", "storage": "csr f64", "low_memory": False}
    fine = facts | {"x_bytes": 100_000_000, "peak_beyond_x_bytes": 199_000_000}
    large = facts | {"x_bytes": 100_000_000, "peak_beyond_x_bytes": 201_000_000}
    table = memory.analyse(tables.as_rows([fine, large]))
    assert [row["kept"] for row in table] == ["True", "False"]
    assert len(memory.failures(table)) == 1
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("needs Linux's /proc")
    problem = small_problem()
    memory._store(tmp_path, problem.X, problem.y)
    job = {"folder": str(tmp_path), "library": "dpsvm_fast", "storage": "dense f64"}
    for library in ("dpsvm_fast", "dpsvm_fast objective"):
        own = {"library": library, "low_memory": False, "C": 0.1, "n_threads": 1}
        report = memory._measured(job | own)
        assert report["x_bytes"] == problem.X.nbytes
        assert 0 <= int(str(report["peak_beyond_x_bytes"])) < 50_000_000
    # Memory that is given back before the end counts, and only once.
    temporary = memory_child.peak_growth(lambda: np.ones(8_000_000).sum())
    assert 60_000_000 <= temporary <= 70_000_000


def test_the_scipy_peer_agrees_with_ours() -> None:
    for epsilon, delta in ((0.1, 1e-5), (8.0, 1e-10)):
        peer = scipy_calibration.gaussian_sigma(epsilon, delta)
        assert peer == pytest.approx(_core.gaussian_sigma(epsilon, delta), rel=1e-11)


@pytest.mark.filterwarnings("ignore::dpsvm_fast.WeakPrivacyWarning")
def test_weekly_models_keep_one_budget_and_follow_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weeks, "EPSILON", 50.0)
    stream, low, high = weeks.drifting(lambda time: np.pi * time, 0)
    found = weeks.accuracies([stream[0], stream[1], stream[26], stream[51]], low, high)
    assert {method: len(of) for method, of in found.items()} == dict.fromkeys(weeks.METHODS, 4) | {
        "all rows so far, shared budget": 1
    }
    # After half a turn the classes are opposite; a model of the week knows.
    assert found["first week alone"][3] < 0.3 < 0.7 < found["every week"][3]
    assert found["mean of weekly scores"][3] > found["first week alone"][3]
