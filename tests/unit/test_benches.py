"""The benchmark harness on tiny data: it runs, its yardsticks are right, bad figures are named."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benches import report, run, tables  # noqa: E402
from benches.config import DATA_SETS, TARGETS, Plan  # noqa: E402
from benches.libraries import ours, scipy_calibration, sklearn_liblinear  # noqa: E402
from benches.machine import require_release  # noqa: E402
from benches.measuring import interleaved  # noqa: E402
from benches.problem import Problem  # noqa: E402
from benches.subjects import memory, memory_child, solver  # noqa: E402

from dpsvm_fast import _core  # noqa: E402

TINY = Plan(repeats=2, n_draws=1000, batch_seconds=1e-4, max_rows=80, C_values=(0.1,))


@pytest.fixture(autouse=True)
def _bundled_data_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DPSVM_DATA", raising=False)


def small_problem() -> Problem:
    rng = np.random.default_rng(5)
    y = rng.integers(0, 3, 40).astype(np.int64)
    X = rng.normal(size=(40, 4)) + 2.0 * np.eye(3, 4)[y]
    return Problem(X / np.linalg.norm(X, axis=1, keepdims=True), y, 3, 0.5)


@pytest.mark.parametrize("subject", ["solver", "noise", "accounting", "crossing"])
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


def test_report_of_the_solver(tmp_path: Path) -> None:
    table = tables.as_rows(
        [
            {"data": "a", "C": 0.1, "ratio": 8.0, "ratio_default": 6.0}
            | {"ours_default_ms": 10.0, "liblinear_ms": 60.0},
            {"data": "geometric mean", "C": None, "ratio": 8.0, "ratio_default": 6.0},
            {"data": "minimum", "C": None, "ratio": 8.0, "ratio_default": 6.0},
        ]
    )
    content = report.markdown(table, {"cpu": "chip", "solver threads": "1"})
    assert "(10 ms against 60 ms)" in content
    page = tmp_path / "page.md"
    page.write_text(f"before {report.OPENING} old {report.CLOSING} after\n", encoding="utf-8")
    for _ in range(2):  # filling it again changes nothing
        report.update(page, content)
        assert (
            page.read_text(encoding="utf-8")
            == f"before {report.OPENING}\n{content}\n{report.CLOSING} after\n"
        )
    page.write_text(report.OPENING, encoding="utf-8")
    with pytest.raises(SystemExit, match="expected"):
        report.update(page, content)


def test_plot(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    rows = [("a", 0.1), ("b", 0.1), ("geometric mean", None)]
    table = tables.as_rows(
        {"data": data, "C": C, "ratio": 2.0, "ratio_default": 3.0} for data, C in rows
    )
    report.plot(table, tmp_path / "solver.png")
    assert (tmp_path / "solver.png").read_bytes().startswith(b"\x89PNG")


def test_a_debug_build_is_refused() -> None:
    require_release({"profile": "release"})
    with pytest.raises(SystemExit, match="debug build"):
        require_release({"profile": "debug"})


def test_quick_figures_stay_out_of_the_readme(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run.arguments(["--quick", "--step", "update"])
    assert "README" in capsys.readouterr().err


def test_rounds_rotate() -> None:
    calls = {label: (lambda repeat, label=label: (label, repeat)) for label in "abc"}
    done = list(interleaved(calls, 3))
    assert [measured.label for measured in done] == list("abcbcacab")
    assert all(measured.result == (measured.label, measured.repeat) for measured in done)


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


def test_a_worse_objective_is_named() -> None:
    relation, tol = TARGETS[0]
    assert f"r <= {tol:g} Delta, {relation}" == solver.COARSE
    settings = (solver.COARSE, solver.TIGHT, solver.DEFAULT, solver.PEER, solver.PEER_DEFAULT)

    def table(objective: float) -> list[tables.Row]:
        rows = [
            {
                "data": "a",
                "C": 1.0,
                "setting": setting,
                "seconds": 2.0 if setting == solver.PEER else 0.5,
                "cpu_seconds": 2.0 if setting == solver.PEER else 0.4,
                "objective": objective if setting == solver.COARSE else 10.0,
                "distance_over_delta": 0.1,
                "certified_over_delta": 0.01,
            }
            for setting in (*settings, solver.PRIVATE_FIT, "nothing")
        ]
        return solver.analyse(tables.as_rows(rows))

    good, bad = table(10.0), table(10.1)
    assert [row["ratio"] for row in good] == ["4", "4", "4"]
    assert [row["ratio_cpu"] for row in good] == ["5", "5", "5"]
    assert solver.failures(good) == []
    assert "C=1" in solver.failures(bad)[0]


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
    report = memory._measured(job | {"low_memory": False, "C": 0.1, "n_threads": 1})
    assert report["x_bytes"] == problem.X.nbytes
    assert 0 <= int(str(report["peak_beyond_x_bytes"])) < 50_000_000
    # Memory that is given back before the end counts, and only once.
    temporary = memory_child.peak_growth(lambda: np.ones(8_000_000).sum())
    assert 60_000_000 <= temporary <= 70_000_000


def test_the_scipy_peer_agrees_with_ours() -> None:
    for epsilon, delta in ((0.1, 1e-5), (8.0, 1e-10)):
        peer = scipy_calibration.gaussian_sigma(epsilon, delta)
        assert peer == pytest.approx(_core.gaussian_sigma(epsilon, delta), rel=1e-11)
