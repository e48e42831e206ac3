"""The accuracy benchmarks: what they promise about privacy holds, on tiny synthetic rows."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benches.papers import adult, auto, op, run  # noqa: E402
from benches.papers.data import bounds, load  # noqa: E402


def test_bounds_of_the_named_columns() -> None:
    low, high = bounds("adult", 7, ["race=a", *adult_columns()])
    assert (low[0], high[0]) == (0.0, 1.0)
    assert high[list(adult_columns()).index("age") + 1] == 100.0
    assert bounds("wisdm", 43, [])[1][33] == 5000.0


def adult_columns() -> tuple[str, ...]:
    return ("age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week")


def test_missing_data_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.delenv("DPSVM_DATA", raising=False)
    assert load("usps") is None
    assert run.main(["op", "--data", "usps", "--out", str(tmp_path)]) == 0
    assert "SKIPPED usps" in capsys.readouterr().out


def test_pipelines_run_and_are_judged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    # Two classes: their law is a closed form, so that this is quick.
    y = rng.integers(0, 2, 240)
    X = (np.eye(2, 18)[y] + 0.1 * rng.random((240, 18))) * 100.0 + 50.0
    np.savez(tmp_path / "vehicle.npz", X=X, y=y)
    monkeypatch.setenv("DPSVM_DATA", str(tmp_path))
    monkeypatch.setattr(op, "EPSILONS", (8.0,))
    monkeypatch.setitem(op.PROTOTYPE, "vehicle", (0.5,))
    monkeypatch.setitem(op.PAPER, "vehicle", (0.5,))
    assert run.main(["op", "--data", "vehicle", "--repeats", "2", "--out", str(tmp_path)]) == 0
    table = op.analyse(run.tables.read(tmp_path / "papers_op_runs.csv")[0])
    assert float(table[0]["delta"]) <= 1e-5 * (1.0 + 1e-9)
    assert float(table[0]["accuracy"]) > 0.5
    too_low = table[0] | {"difference": "-0.5", "delta": "2e-05"}
    assert len(op.failures([too_low])) == 2


def test_the_whole_pipeline_runs_and_is_judged(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rng = np.random.default_rng(4)
    y = rng.integers(0, 4, 240)
    X = (np.eye(4, 18)[y] + 0.1 * rng.random((240, 18))) * 100.0 + 50.0
    np.savez(tmp_path / "vehicle.npz", X=X, y=y)
    monkeypatch.setenv("DPSVM_DATA", str(tmp_path))
    monkeypatch.setattr(auto, "EPSILONS", (8.0,))
    monkeypatch.setitem(auto.PROTOTYPE, "vehicle", (0.5,))
    monkeypatch.setitem(auto.PAPER, "vehicle", (0.5,))
    assert run.main(["auto", "--data", "vehicle", "--repeats", "2", "--out", str(tmp_path)]) == 0
    table = auto.analyse(run.tables.read(tmp_path / "papers_auto_runs.csv")[0])
    assert table[0]["holds"] == "True"
    assert float(table[0]["accuracy"]) > 0.5
    assert len(auto.failures([table[0] | {"difference": "-0.5", "holds": "False"}])) == 2
    assert len(auto.failures([table[0] | {"paper": "1.0", "accuracy": "0.9"}] * 5)) == 1


def test_whitening_of_published_rows_follows_the_rule() -> None:
    whitened = {name for name in op.SPLITS if op.worth_whitening(name, columns(name), 1.0)}
    assert whitened == {"vehicle", "wisdm"}


def columns(name: str) -> int:
    known = {"cornell": 4134, "dermatology": 34, "isolet": 617, "usps": 256}
    return known.get(name, 18 if name == "vehicle" else 43)


def test_errors_above_the_paper_are_named() -> None:
    rows = [
        {"amounts": "linear", "epsilon": "0.1", "spent": "0.1", "error": error}
        for error in ("0.2", "0.22")
    ]
    table = adult.analyse(rows)
    assert float(table[0]["error"]) == pytest.approx(0.21)
    assert len(adult.failures(table)) == 1
    assert adult.failures([table[0] | {"error": "0.18"}]) == []
