"""The accuracy benchmarks: what they promise about privacy holds, on tiny synthetic rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benches.papers import (
    auto,
    budget,
    command,
    kernel,
    op,
    tuning,
)
from benches.papers.data import DataSet, load

from dpsvm_fast import PrivateCenter
from dpsvm_fast.accounting import composed_epsilon, gaussian_sigma
from dpsvm_fast.certificates import GaussianEvent


def test_missing_data_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.delenv("DPSVM_DATA", raising=False)
    assert load("usps") is None
    assert command.main(["op", "--data", "usps", "--out", str(tmp_path)]) == 0
    assert "SKIPPED usps" in capsys.readouterr().out


def save_vehicles(patch: pytest.MonkeyPatch, folder: Path, n_classes: int = 4) -> None:
    """Rows with the shape of the vehicle data, where the benchmarks look for them."""
    rng = np.random.default_rng(4)
    y = rng.integers(0, n_classes, 240)
    X = (np.eye(n_classes, 18)[y] + 0.1 * rng.random((240, 18))) * 100.0 + 50.0
    np.savez(folder / "vehicle.npz", X=X, y=y)
    patch.setenv("DPSVM_DATA", str(folder))


@pytest.mark.slow
def test_pipelines_run_and_are_judged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # Two classes: their law is a closed form, so that this is quick.
    save_vehicles(monkeypatch, tmp_path, n_classes=2)
    monkeypatch.setattr(op, "EPSILONS", (8.0,))
    monkeypatch.setitem(op.PROTOTYPE, "vehicle", (0.5,))
    monkeypatch.setitem(op.PAPER, "vehicle", (0.5,))
    assert command.main(["op", "--data", "vehicle", "--repeats", "2", "--out", str(tmp_path)]) == 0
    table = op.analyse(command.tables.read(tmp_path / "papers_op_runs.csv")[0])
    assert float(table[0]["delta"]) <= 1e-5 * (1.0 + 1e-9)
    assert float(table[0]["accuracy"]) > 0.5
    too_low = table[0] | {"difference": "-0.5", "delta": "2e-05"}
    assert len(op.failures([too_low])) == 2


@pytest.mark.slow
def test_the_whole_pipeline_runs_and_is_judged(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    save_vehicles(monkeypatch, tmp_path)
    monkeypatch.setattr(auto, "EPSILONS", (8.0,))
    monkeypatch.setitem(auto.PAPER, "vehicle", (0.5,))
    assert (
        command.main(["auto", "--data", "vehicle", "--repeats", "2", "--out", str(tmp_path)]) == 0
    )
    table = auto.analyse(command.tables.read(tmp_path / "papers_auto_runs.csv")[0])
    assert table[0]["holds"] == "True"
    assert float(table[0]["accuracy"]) > 0.5
    assert len(auto.failures([table[0] | {"holds": "False"}])) == 1
    assert len(auto.failures([table[0] | {"paper": "1.0", "accuracy": "0.9"}] * 5)) == 1


def test_shares_of_a_budget_fill_it() -> None:
    epsilons = [budget.share_of_budget(1.0, 1e-5, share) for share in (0.3, 0.7)]
    events = [
        GaussianEvent(gaussian_sigma(epsilon, 1e-5), 1.0, "add_remove") for epsilon in epsilons
    ]
    assert 0.9999 < composed_epsilon(events, 1e-5) <= 1.0


def test_what_is_left_of_a_budget_fills_it() -> None:
    def events(own: float) -> list[GaussianEvent]:
        return [GaussianEvent(gaussian_sigma(own, 1e-5), 1.0, "add_remove")]

    own = budget.epsilon_beside(1.0, 1e-5, events(0.5), events)
    assert 0.98 < composed_epsilon([*events(0.5), *events(own)], 1e-5) <= 1.0


def test_events_do_not_depend_on_rows(digits_like: tuple[Any, Any]) -> None:
    X, y = digits_like
    model = PrivateCenter(0.5, 1e-5)
    assert budget.events_of(model, X.shape[1], 2) == model.fit(X, y).privacy_.events


@pytest.fixture
def digits_like() -> tuple[Any, Any]:
    rng = np.random.default_rng(1)
    y = np.arange(600) % 10
    return np.abs(np.eye(10, 12)[y] * 200.0 + rng.integers(0, 50, (600, 12))), y


@pytest.mark.slow
def test_kernels_run_and_are_judged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    save_vehicles(monkeypatch, tmp_path)
    monkeypatch.setitem(kernel.CELLS, "vehicle", kernel.Cell(2, 20, {8.0: 0.6}, 1))
    assert command.main(["kernel", "--data", "vehicle", "--out", str(tmp_path)]) == 0
    table = command.tables.read(tmp_path / "papers_kernel.csv")[0]
    assert len(table) == 1
    assert float(table[0]["accuracy"]) > 0.6
    assert float(table[0]["not_private"]) > 0.9
    assert kernel.failures([table[0] | {"difference": "-0.5"}]) != []
    assert kernel.failures([table[0] | {"holds": "False"}]) != []


@pytest.mark.slow
def test_searches_run_within_their_budget_and_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    y = rng.integers(0, 2, 420)
    X = np.eye(2, 6)[y] + rng.random((420, 6))
    data = DataSet(X, y, 2, np.zeros(6), np.full(6, 2.0))
    monkeypatch.setattr(tuning, "load", lambda name: data if name == "usps" else None)
    monkeypatch.setattr(tuning, "EPSILONS", (2.0,))
    monkeypatch.setattr(tuning, "SEARCHES", {"partition, refit 0.5": {"refit_fraction": 0.5}})
    monkeypatch.setattr(tuning, "OF_OUTPUT", ("partition, refit 0.5",))
    monkeypatch.setattr(tuning, "OUTPUT_GRID", {"svc__C": [0.01, 0.1]})
    rows = tuning.run(["usps", "adult"], 2)
    table = tuning.analyse(rows)
    assert {row["data"] for row in table} == {"usps"}
    (found,) = [row for row in table if row["how"] != "default" and row["model"] == "linear"]
    assert (found["splits"], found["holds"]) == ("2", "True")
    assert 1.9 < float(found["total"]) <= 2.0 * (1.0 + 1e-6)
    assert tuning.failures(table) == []
    assert tuning.failures([found | {"total": "2.1"}])
    assert tuning.failures([found | {"holds": "False"}])
