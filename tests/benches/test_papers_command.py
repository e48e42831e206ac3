"""The command line of the accuracy benchmarks: what runs, where it writes, what is a failure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from benches.papers import auto, command

from benches import tables


@pytest.fixture
def folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A project of our own to write into, and a data set of six classes."""
    for name in ("results", "images", "data"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(command, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(command, "IMAGES", tmp_path / "images")
    monkeypatch.setattr(command, "PAGE", tmp_path / "results.md")
    rng = np.random.default_rng(7)
    y = rng.integers(0, 6, 200)
    X = 3.0 * np.clip(0.5 * np.eye(6, 34)[y] + 0.1 * rng.random((200, 34)), 0.0, 1.0)
    np.savez(tmp_path / "data" / "dermatology.npz", X=X, y=y)
    monkeypatch.setenv("DPSVM_DATA", str(tmp_path / "data"))
    return tmp_path


def fake(**changes: Any) -> SimpleNamespace:
    """A module that measures nothing; its rows are counted."""

    def run(names: Sequence[str], repeats: int | None) -> list[tables.Row]:
        return [{"data": name, "repeats": str(repeats)} for name in names]

    parts: dict[str, Any] = {
        "DATA": ("first", "second", "third"),
        "QUICK_DATA": ("second",),
        "QUICK_REPEATS": 2,
        "run": run,
        "analyse": list,
        "failures": lambda table: [],
        "plot": lambda table, path: path.write_bytes(b"picture"),
    }
    return SimpleNamespace(**(parts | changes))


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Registers modules of the test's own."""

    def register(**modules: SimpleNamespace) -> None:
        monkeypatch.setattr(command, "MODULES", tuple(modules))
        monkeypatch.setattr(command, "module_of", modules.__getitem__)

    return register


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (["nothing"], "nothing"),
        (["auto", "nothing"], "nothing"),
        (["auto", "--data", "mnist"], "dermatology"),
        (["auto", "tuning", "--data", "dermatology"], "tuning"),
        (["page", "--data", "usps"], "page"),
        (["auto", "--repeats", "0"], "--repeats"),
        (["auto", "--step", "fly"], "--step"),
        ([], "NAME"),
    ],
)
def test_what_is_unknown_is_refused(
    given: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        command.main(given)
    assert stopped.value.code == 2
    assert named in capsys.readouterr().err


def test_each_set_is_stored_when_it_is_done(folders: Path, only: Any) -> None:
    def run(names: Sequence[str], repeats: int | None) -> list[tables.Row]:
        if names == ["third"]:
            raise ValueError("interrupted")
        return [{"data": name, "repeats": str(repeats)} for name in names]

    only(one=fake(run=run))
    assert command.main(["one"]) == 1
    rows, facts = tables.read(folders / "results" / "papers_one_runs.csv")
    assert [row["data"] for row in rows] == ["first", "second"]
    assert "dpsvm_fast" in facts
    assert not (folders / "results" / "papers_one.csv").exists()


def test_failures_count_but_in_quick_runs(
    folders: Path, only: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    only(one=fake(failures=lambda table: ["too low"]), two=fake())
    assert command.main(["one"]) == 1
    assert command.main(["one", "--quick"]) == 0
    assert capsys.readouterr().err.count("too low") == 2
    # A summary is stored nevertheless: what was measured was measured.
    assert (folders / "results" / "papers_one.csv").is_file()


@pytest.mark.slow
def test_a_quick_run_stores_nothing(
    folders: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(auto.DRAWS, "dermatology", 1)
    assert command.main(["auto", "--quick", "--repeats", "1"]) == 0
    assert "dermatology" in capsys.readouterr().out
    assert [path.name for path in folders.rglob("papers_*")] == []
    wanted = folders / "wanted"
    given = ["auto", "--quick", "--repeats", "1", "--step", "run", "--out", str(wanted)]
    assert command.main(given) == 0
    rows, _ = tables.read(wanted / "papers_auto_runs.csv")
    assert {row["data"] for row in rows} == set(auto.QUICK_DATA)
    assert len(rows) == len(auto.EPSILONS)
    assert list((folders / "results").iterdir()) == []
