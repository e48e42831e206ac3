"""Other libraries beside ours: environments, the pipe to another process, and what is judged."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benches.papers import (
    environments,
    helmet_figure8,
    outside_peers,
    peer_child,
    pmsvm_table4,
)

from dpsvm_fast.accounting import composed_delta

FAKE = """
import json, sys
print(json.dumps({"versions": "fake " + sys.argv[1]}), flush=True)
for line in sys.stdin:
    request = json.loads(line)
    if request.get("fail"):
        sys.exit(1)
    answer = {"accuracy": 0.5, "seconds": 0.1, "epsilon": request["epsilon"], "step_seconds": 0.01}
    print(json.dumps(answer | {"n_steps": 4}), flush=True)
"""


@pytest.fixture
def child(tmp_path: Path) -> Path:
    """A library's process that knows no library."""
    path = tmp_path / "child.py"
    path.write_text(FAKE, encoding="utf-8")
    return path


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No environment is made."""
    monkeypatch.setattr(environments, "FOLDER", tmp_path / "made")
    return tmp_path


def test_another_process_answers_line_by_line(child: Path) -> None:
    peer = environments.Peer("diffprivlib", Path(sys.executable), child)
    assert peer.versions == "fake diffprivlib"
    assert peer.ask(epsilon=2.0)["epsilon"] == 2.0
    assert peer.ask(epsilon=4.0)["epsilon"] == 4.0
    peer.end()
    assert peer.process.returncode == 0


def test_the_child_answers_with_a_library(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    class Noisy:
        """Prints what must not pass for an answer."""

        packages = ("numpy",)

        def answer(self, request: dict[str, Any], rows: Any) -> dict[str, Any]:
            sys.stdout.write("a remark\n")
            return {"accuracy": float(rows["y"].mean()), "seed": request["seed"]}

    np.savez(tmp_path / "rows.npz", X=np.eye(2), y=np.array([0, 1]))
    request = json.dumps({"rows": str(tmp_path / "rows.npz"), "seed": 3})
    (tmp_path / "asked.txt").write_text(f"{request}\n", encoding="utf-8")
    monkeypatch.setattr(peer_child, "LIBRARIES", {"noisy": Noisy})
    with (tmp_path / "asked.txt").open(encoding="utf-8") as asked:
        monkeypatch.setattr(sys, "stdin", asked)
        peer_child.main("noisy")
    out = capfd.readouterr().out.splitlines()
    answers = [json.loads(line) for line in out if line.startswith("{")]
    assert answers[0]["versions"].startswith("numpy ")
    assert answers[1] == {"accuracy": 0.5, "seed": 3}


def peers_row(data: str, method: str, epsilon: str, accuracy: str, **more: str) -> dict[str, str]:
    """A stored fit."""
    common = {"split": "0", "rate": "", "seconds": "0.1", "spent": epsilon, "version": ""}
    return (
        common | {"data": data, "method": method, "epsilon": epsilon, "accuracy": accuracy} | more
    )


def test_a_library_that_is_ahead_or_overspends_is_named() -> None:
    rows = [
        peers_row("ours: usps", outside_peers.OURS, "1", "0.8"),
        peers_row("others: usps", outside_peers.DESCENT, "1", "0.9", rate="1", spent="1.5"),
    ]
    found = outside_peers.failures(outside_peers.analyse(rows))
    assert len(found) == 2
    assert "spent 1.5" in found[0]


def test_times_are_taken_of_all_methods(
    monkeypatch: pytest.MonkeyPatch, nowhere: Path, tmp_path: Path
) -> None:
    rng = np.random.default_rng(3)
    y = np.arange(120) % 6
    X = 3.0 * np.clip(0.5 * np.eye(6, 34)[y] + 0.1 * rng.random((120, 34)), 0.0, 1.0)
    np.savez(tmp_path / "dermatology.npz", X=X, y=y)
    monkeypatch.setenv("DPSVM_DATA", str(tmp_path))
    rows = pmsvm_table4.run(["dermatology"], 1)
    assert {row["method"] for row in rows} == set(pmsvm_table4.METHODS) - {pmsvm_table4.OPACUS}
    assert {row["method"] for row in rows if row["n_steps"]} == {"GRPUA", "PMSVM-GP", "Linear"}
    assert all(float(row["time"]) > 0.0 for row in rows)


def test_models_of_one_class_each_share_a_budget() -> None:
    place = helmet_figure8.Place(0.59, 1e-5, 120, 5, 3)
    rng = np.random.default_rng(0)
    y = np.arange(120) % 3
    model = helmet_figure8.amp(place).fit(np.eye(3, 5)[y] + 0.1 * rng.random((120, 5)), y)
    events = [event for one in model.models_ for event in one.privacy_.events]
    # Nearly all of the budget is used, and no more.
    assert 0.9e-5 < composed_delta(events, 0.59) <= 1e-5
    assert helmet_figure8._spent(model, place) == 0.59
    assert helmet_figure8._spent(model, helmet_figure8.Place(0.3, 1e-5, 120, 5, 3)) is None
