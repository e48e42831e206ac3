"""The ledger on disk: stores that vanish, are continued, or are something else; save and load."""

from __future__ import annotations

import errno
import json
import os
import pickle
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dpsvm_fast.certificates import GaussianEvent, PureEvent
from dpsvm_fast.exceptions import BudgetExceededError, LedgerError
from dpsvm_fast.ledger import PrivacyLedger
from oracles.ledgers import assert_refused, change_header, executed
from oracles.tampering import at

DATA = Path(__file__).parents[1] / "stored"
TENTH = PureEvent(0.1, "add_remove")


def test_unpickling_after_the_store_is_gone_is_an_error() -> None:
    code = (
        "import pickle, sys\n"
        "from dpsvm_fast.ledger import PrivacyLedger\n"
        "sys.stdout.buffer.write(pickle.dumps(PrivacyLedger(1.0, 0.0)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    with pytest.raises(LedgerError, match="missing"):
        pickle.loads(done.stdout)


def test_a_store_that_could_not_be_begun_leaves_no_file(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty file would be refused ever after, as one that was cut off."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(LedgerError, match="No space left"):
            PrivacyLedger(1.0, 0.0, path=path)
    assert not list(tmp_path.iterdir())
    PrivacyLedger(1.0, 0.0, path=path).spend(TENTH)
    # A file of somebody else is never removed.
    path.write_bytes(b"")
    with pytest.raises(LedgerError, match="is empty"):
        PrivacyLedger(1.0, 0.0, path=path)
    assert path.exists()


def test_a_deleted_store_is_never_a_new_budget(ledger: PrivacyLedger, path: Path) -> None:
    ledger.spend(TENTH)
    path.unlink()
    for use in (lambda: ledger.spend(TENTH), ledger.total, lambda: ledger.history):
        with pytest.raises(LedgerError, match="missing"):
            use()
    assert not path.exists()
    assert "PrivacyLedger" in repr(ledger)


def test_a_lasting_ledger_is_continued(path: Path) -> None:
    PrivacyLedger(1.0, 0.0, path=path).spend(PureEvent(0.75, "add_remove"), "yesterday")
    again = PrivacyLedger(1.0, 0.0, path=path)
    assert again.total() == (0.75, 0.0)
    assert again.history[0].label == "yesterday"
    with pytest.raises(BudgetExceededError):
        again.spend(PureEvent(0.5, "add_remove"))
    other = PrivacyLedger(1.0, 0.0, path=path)
    other.spend(PureEvent(0.25, "add_remove"))
    assert again.remaining() == 0.0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 or os.name == "nt"


def test_another_budget_or_another_file_is_refused(path: Path, tmp_path: Path) -> None:
    PrivacyLedger(1.0, 0.0, path=path)
    with pytest.raises(LedgerError, match="has the budget"):
        PrivacyLedger(2.0, 0.0, path=path)
    text = tmp_path / "notes.txt"
    text.write_text("not a ledger, and long enough to be looked at\n" * 40)
    assert_refused(lambda: PrivacyLedger(1.0, 0.0, path=text))
    assert text.read_text().startswith("not a ledger")
    foreign = tmp_path / "foreign.sqlite"
    executed(foreign, "CREATE TABLE birds (name TEXT)")
    assert_refused(lambda: PrivacyLedger(1.0, 0.0, path=foreign))
    with pytest.raises(LedgerError, match="cannot create"):
        PrivacyLedger(1.0, 0.0, path=tmp_path / "missing" / "ledger.sqlite")


def test_temporary_stores_are_private() -> None:
    ledger = PrivacyLedger(1.0, 0.0)
    pickle.dumps(ledger)
    assert ledger._store is not None
    path = ledger._store.path
    if os.name != "nt":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_save_and_load_keep_the_history(tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    ledger = PrivacyLedger(1.0, 1e-6, "replace_one")
    ledger.spend(PureEvent(0.25, "replace_one"), label="first")
    ledger.spend(GaussianEvent(9.7, 1.0, "replace_one"), label="second")
    ledger.save(path)
    loaded = PrivacyLedger.load(path)
    assert loaded is not ledger
    assert loaded.history == ledger.history
    assert loaded.total() == ledger.total()
    assert (loaded.epsilon, loaded.delta, loaded.adjacency) == (1.0, 1e-6, "replace_one")
    with pytest.raises(BudgetExceededError):
        loaded.spend(PureEvent(0.9, "replace_one"))
    assert [p.name for p in tmp_path.iterdir()] == ["ledger.json"]


EVENT = ("spends", 1, "event")
PARALLEL = {"type": "parallel", "branches": [], "adjacency": "add_remove"}


@pytest.mark.parametrize(
    ("place", "change"),
    [
        *(((), {"version": version}) for version in (2, 3, 1.0)),
        *(((), {"epsilon": epsilon}) for epsilon in (-1.0, "1")),
        ((), {"adaptive": False}),
        ((), {"format": "something else"}),
        ((), {"surplus": 1}),
        ((), {"adjacency": "replace_one"}),
        *(((), {"spends": spends}) for spends in ({}, [{}])),
        (EVENT, {"type": "x"}),
        *((EVENT, {"epsilon": epsilon}) for epsilon in (-0.1, 1e999)),
        (EVENT, {"delta": 0.0}),
        *((EVENT, {"branches": branches}) for branches in ([], [[PARALLEL]])),
        (EVENT, {"surplus": 1}),
    ],
    ids=str,
)
def test_a_damaged_file_is_refused(
    tmp_path: Path, place: tuple[Any, ...], change: dict[str, Any]
) -> None:
    document = json.loads((DATA / "ledger_v1.json").read_text())
    at(document, place).update(change)
    (tmp_path / "ledger.json").write_text(json.dumps(document))
    assert_refused(lambda: PrivacyLedger.load(tmp_path / "ledger.json"))


def test_what_is_not_json_is_refused(path: Path, tmp_path: Path) -> None:
    PrivacyLedger(1.0, 0.0, path=path)
    for content in (path.read_bytes(), b"", b"{", b"[]"):
        (tmp_path / "other").write_bytes(content)
        assert_refused(lambda: PrivacyLedger.load(tmp_path / "other"))


def test_a_file_is_opened_with_its_own_budget(path: Path) -> None:
    PrivacyLedger(1.5, 1e-6, "replace_one", path=path, adaptive=True)
    again = PrivacyLedger.open(path)
    assert (again.epsilon, again.delta, again.adjacency) == (1.5, 1e-6, "replace_one")
    assert again.adaptive
    again.spend(PureEvent(0.1, "replace_one"), "by another handle")
    assert [record.label for record in PrivacyLedger.open(path).history] == ["by another handle"]


def test_opening_never_makes_a_file_or_a_budget(tmp_path: Path) -> None:
    absent, empty, other = (tmp_path / name for name in ("absent", "empty", "other"))
    empty.touch()
    other.write_text("no ledger at all, but long enough to be looked at" * 9)
    for path, why in ((absent, "no such file"), (empty, "empty"), (other, "not a database")):
        with pytest.raises(LedgerError, match=why):
            PrivacyLedger.open(path)
    assert not absent.exists()
    assert empty.stat().st_size == 0


def test_a_damaged_budget_is_not_opened(path: Path) -> None:
    PrivacyLedger(1.0, 0.0, path=path)
    change_header(path, epsilon=-1)
    with pytest.raises(LedgerError, match="epsilon"):
        PrivacyLedger.open(path)
