"""Ledger files that were copied, linked, replaced, rewritten or cut off: no budget comes back."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dpsvm_fast.accounting.composition import Composition
from dpsvm_fast.certificates import GaussianEvent, PureEvent
from dpsvm_fast.exceptions import BudgetExceededError, InvalidParameterError, LedgerError
from dpsvm_fast.ledger import PrivacyLedger, store
from oracles.ledgers import assert_refused, change_header, executed

HALF, TENTH = PureEvent(0.5, "add_remove"), PureEvent(0.1, "add_remove")
posix = pytest.mark.skipif(os.name == "nt", reason="no such files or signals here")


def copied_onto(source: Path, target: Path) -> None:
    """The same file with other contents, as cp makes it."""
    target.write_bytes(source.read_bytes())


def moved_onto(source: Path, target: Path) -> None:
    """Another file of that name, as mv makes it."""
    copy = source.with_name("copy of the copy")
    shutil.copy(source, copy)
    copy.replace(target)


PUT_BACK = pytest.mark.parametrize("put_back", [copied_onto, moved_onto])


# ------------------------------------------------------------ what a handle knows


@PUT_BACK
def test_a_handle_notices_that_its_own_last_spend_is_gone(
    put_back: Callable[[Path, Path], None], ledger: PrivacyLedger, path: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    ledger.spend(PureEvent(0.4, "add_remove"))
    shutil.copy(path, copy)
    ledger.spend(HALF)
    put_back(copy, path)
    assert_refused(lambda: ledger.spend(HALF), lambda: ledger.check(TENTH), ledger.total)


@PUT_BACK
def test_a_handle_notices_another_ledger(
    put_back: Callable[[Path, Path], None], ledger: PrivacyLedger, path: Path, tmp_path: Path
) -> None:
    other = tmp_path / "b.budget"
    PrivacyLedger(1.0, 0.0, path=other)
    put_back(other, path)
    assert_refused(lambda: ledger.spend(TENTH))
    assert PrivacyLedger.open(other).history == ()


def test_a_handle_notices_as_many_other_spends(
    ledger: PrivacyLedger, path: Path, tmp_path: Path
) -> None:
    """An older copy that was put back and spent from until it had as many lines."""
    copy = tmp_path / "copy"
    shutil.copy(path, copy)
    ledger.spend(HALF)
    copied_onto(copy, path)
    PrivacyLedger.open(path).spend(PureEvent(0.01, "add_remove"))
    assert_refused(lambda: ledger.spend(TENTH))


def test_a_handle_in_another_process_notices_it_too(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "b.budget"
    pickled = pickle.dumps(PrivacyLedger(1.0, 0.0, path=path))
    PrivacyLedger(1.0, 0.0, path=other)
    moved_onto(other, path)
    code = "import pickle, sys; pickle.loads(sys.stdin.buffer.read())"
    done = subprocess.run([sys.executable, "-c", code], input=pickled, capture_output=True)
    assert b"LedgerError" in done.stderr


def test_a_file_that_is_replaced_before_it_is_locked(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "copy"
    PrivacyLedger(1.0, 0.0, path=path)
    shutil.copy(path, copy)
    connect = sqlite3.connect

    def late(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection = connect(*arguments, **options)
        connection.execute("SELECT 1")
        moved_onto(copy, path)
        return connection

    monkeypatch.setattr(sqlite3, "connect", late)
    assert_refused(lambda: PrivacyLedger.open(path))


def test_a_file_that_is_replaced_while_it_is_written(
    ledger: PrivacyLedger, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "copy"
    shutil.copy(path, copy)
    append = store.Session.append

    def late(session: Any, *arguments: Any) -> None:
        append(session, *arguments)
        moved_onto(copy, path)

    monkeypatch.setattr(store.Session, "append", late)
    assert_refused(lambda: ledger.spend(TENTH))


def test_a_renamed_folder_is_no_new_budget(tmp_path: Path) -> None:
    folder = tmp_path / "people"
    folder.mkdir()
    ledger = PrivacyLedger(1.0, 0.0, path=folder / "a.budget")
    folder.rename(tmp_path / "other people")
    assert_refused(lambda: ledger.spend(TENTH))
    assert not folder.exists()


# ------------------------------------------------------------ links


@posix
@pytest.mark.parametrize("by_symlink", [False, True])
def test_a_hard_link_is_refused_by_all_handles(
    by_symlink: bool, ledger: PrivacyLedger, path: Path, tmp_path: Path
) -> None:
    second = tmp_path / "second"
    ledger.spend(TENTH)
    os.link(path, second)
    name = tmp_path / "name"
    name.symlink_to(second)
    opened = name if by_symlink else second
    assert_refused(
        lambda: ledger.spend(TENTH),
        ledger.total,
        lambda: PrivacyLedger.open(opened),
        lambda: PrivacyLedger(1.0, 0.0, path=opened),
    )
    second.unlink()
    ledger.spend(TENTH)
    assert len(ledger.history) == 2


@posix
def test_a_symbolic_link_is_the_ledger_itself(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(path)
    PrivacyLedger(1.0, 0.0, path=link).spend(HALF)
    assert link.is_symlink()
    assert PrivacyLedger.open(path).remaining() == 0.5
    with pytest.raises(BudgetExceededError):
        PrivacyLedger.open(link).spend(PureEvent(0.6, "add_remove"))


# ------------------------------------------------------------ other tables


TAMPERED = {
    "trigger": "CREATE TRIGGER t AFTER INSERT ON spends BEGIN DELETE FROM spends WHERE "
    "number = new.number; END",
    "table": "CREATE TABLE more (x)",
    "index": "CREATE INDEX i ON spends (spend)",
    "view": "CREATE VIEW v AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) "
    "SELECT x FROM c",
    "column": "ALTER TABLE spends ADD COLUMN more TEXT",
    "journal": "PRAGMA journal_mode = WAL",
    "gap": "INSERT INTO spends SELECT number + 2, spend FROM spends WHERE number = 1",
    "bytes": "UPDATE spends SET spend = x'ff00ff'",
    "header": "DELETE FROM ledger",
    "identity": "UPDATE ledger SET header = replace(header, 'identity\": \"', 'identity\": \"X')",
}


@pytest.mark.parametrize("name", TAMPERED)
def test_tampered_tables_are_refused(name: str, ledger: PrivacyLedger, path: Path) -> None:
    ledger.spend(TENTH)
    executed(path, TAMPERED[name])
    assert_refused(lambda: PrivacyLedger.open(path), lambda: ledger.spend(TENTH))


def test_spends_with_other_numbers_are_refused(path: Path) -> None:
    PrivacyLedger(1.0, 0.0, path=path).spend(TENTH)
    executed(path, "INSERT INTO spends SELECT -1, spend FROM spends")
    assert_refused(lambda: PrivacyLedger.open(path))


@pytest.mark.parametrize("name", ["spends", "ledger"])
def test_a_view_that_never_ends_in_the_place_of_a_table(name: str, path: Path) -> None:
    PrivacyLedger(1.0, 0.0, path=path)
    column = "number, '' AS spend" if name == "spends" else "1 AS one, 'x' AS header"
    executed(
        path,
        f"DROP TABLE {name}",
        f"CREATE VIEW {name} AS WITH RECURSIVE c(number) AS (SELECT 1 UNION ALL SELECT number + 1 "
        f"FROM c) SELECT {column} FROM c WHERE number < 0",
    )
    assert_refused(lambda: PrivacyLedger.open(path))


def test_what_is_written_is_read_back_before_it_counts(
    ledger: PrivacyLedger, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executed(path, TAMPERED["trigger"])
    monkeypatch.setattr(store, "_check_tables", lambda *_: None)
    assert_refused(lambda: ledger.spend(TENTH))


def test_errors_of_the_database_that_are_no_text(path: Path) -> None:
    """SQLite quotes what it cannot read, and Python cannot read that either."""
    PrivacyLedger(1.0, 0.0, path=path)
    data = path.read_bytes()
    for old, new in ((b"tablespends", b"table\xff\xfe\xc3\xc3\xff\xff"), (b"TABLE s", b"TABEL s")):
        assert data.count(old) == 1
        data = data.replace(old, new)
    path.write_bytes(data)
    with pytest.raises(LedgerError) as caught:
        PrivacyLedger.open(path)
    assert len(str(caught.value)) < 1000


def test_a_header_that_is_nothing(path: Path) -> None:
    """Against the definition of its column, which a changed byte goes round."""
    PrivacyLedger(1.0, 0.0, path=path).spend(TENTH)
    sql = store._TABLES["ledger"]
    executed(
        path,
        "PRAGMA writable_schema = ON",
        f"UPDATE sqlite_master SET sql = '{sql.replace(' NOT NULL', '')}' WHERE name = 'ledger'",
    )
    executed(path, "UPDATE ledger SET header = NULL", "PRAGMA writable_schema = ON",
             f"UPDATE sqlite_master SET sql = '{sql}' WHERE name = 'ledger'")  # fmt: skip
    assert_refused(lambda: PrivacyLedger.open(path))


def test_a_long_text_of_a_file_is_not_quoted(path: Path) -> None:
    PrivacyLedger(1.0, 0.0, path=path)
    change_header(path, epsilon="x" * 10_000)
    with pytest.raises(LedgerError) as caught:
        PrivacyLedger(1.0, 0.0, path=path)
    assert len(str(caught.value)) < 1000


# ------------------------------------------------------------ power cuts


@pytest.mark.parametrize("lasting", [True, False])
def test_the_end_of_a_spend_is_on_the_disk_before_anything_is_drawn(
    lasting: bool, tmp_path: Path
) -> None:
    """EXTRA: the folder is synchronised after the journal was unlinked, which ends a commit."""
    ledger = PrivacyLedger(1.0, 0.0, path=tmp_path / "a.budget" if lasting else None)
    pickle.dumps(ledger)
    assert ledger._store is not None
    with ledger._store.transaction() as session:
        level = session._connection.execute("PRAGMA synchronous").fetchone()[0]
    assert level == (3 if lasting else 0)


@posix
def test_a_new_file_is_on_the_disk_before_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        synced.append(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    PrivacyLedger(1.0, 0.0, path=tmp_path / "a.budget")
    assert synced == [(tmp_path / "a.budget").stat().st_ino, tmp_path.stat().st_ino]


KILLED = """
import os, signal, sys
from dpsvm_fast.ledger import PrivacyLedger
link = os.link
def killed(*names, **options):
    if sys.argv[2] == "after":
        link(*names, **options)
    os.kill(os.getpid(), signal.SIGKILL)
os.link = killed
PrivacyLedger(1.0, 0.0, path=sys.argv[1])
"""


@posix
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_process_that_is_killed_while_it_makes_a_ledger(when: str, path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, os.fspath(path), when], check=False)
    assert done.returncode == -signal.SIGKILL
    assert path.exists() == (when == "after")
    for _ in range(2):
        assert PrivacyLedger(1.0, 0.0, path=path).history == ()
    assert path.stat().st_nlink == 1


def test_many_make_one_ledger(tmp_path: Path) -> None:
    start = threading.Barrier(8)

    def made(_: int) -> PrivacyLedger:
        start.wait()
        return PrivacyLedger(1.0, 0.0, path=tmp_path / "a.budget")

    with ThreadPoolExecutor(8) as pool:
        ledgers = list(pool.map(made, range(8)))
    assert len({ledger._identity for ledger in ledgers}) == 1
    assert [p.name for p in tmp_path.iterdir()] == ["a.budget"]


def test_a_file_system_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    PrivacyLedger(1.0, 0.0, path=tmp_path / "a.budget").spend(HALF)
    assert PrivacyLedger(1.0, 0.0, path=tmp_path / "a.budget").remaining() == 0.5
    assert [p.name for p in tmp_path.iterdir()] == ["a.budget"]


# ------------------------------------------------------------ what is no file


@posix
@pytest.mark.parametrize("kind", ["folder", "pipe", "device", "loop", "dangling loop"])
def test_what_is_no_file_is_reported(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "thing"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path = Path("/dev/zero")
    else:
        path.symlink_to(tmp_path / "other" if kind == "loop" else path)
        if kind == "loop":
            (tmp_path / "other").symlink_to(path)
    ledger = PrivacyLedger(1.0, 0.0)
    in_file = PrivacyLedger(1.0, 0.0, path=tmp_path / "a.budget")
    assert_refused(
        lambda: PrivacyLedger(1.0, 0.0, path=path),
        lambda: PrivacyLedger.open(path),
        lambda: PrivacyLedger.load(path),
        lambda: PrivacyLedger(1.0, 0.0, path=in_file._store and in_file._store.path, anchor=path),
        lambda: ledger.save(path),
    )
    assert in_file.anchor is None


@posix
def test_a_pipe_with_a_ledger(ledger: PrivacyLedger, path: Path) -> None:
    os.mkfifo(f"{path}-journal")
    assert_refused(lambda: ledger.spend(TENTH))


def test_files_that_are_too_large(path: Path, tmp_path: Path) -> None:
    PrivacyLedger(1.0, 0.0, path=path)
    for name in (path, tmp_path / "snapshot"):
        with name.open("ab") as file:
            file.truncate(1 << 40)
    assert_refused(lambda: PrivacyLedger.open(path))
    assert_refused(lambda: PrivacyLedger.load(tmp_path / "snapshot"))


def test_a_snapshot_never_replaces_the_ledger_itself(ledger: PrivacyLedger, path: Path) -> None:
    ledger.spend(TENTH)
    with pytest.raises(InvalidParameterError):
        ledger.save(path)
    assert len(PrivacyLedger.open(path).history) == 1


def test_a_label_that_nobody_could_read_again(tmp_path: Path) -> None:
    ledger = PrivacyLedger(1.0, 0.0, path=tmp_path / "a.budget")
    with pytest.raises(InvalidParameterError):
        ledger.spend(TENTH, "x" * 1_000_000)
    assert ledger.history == ()
    assert ledger.remaining() == 1.0


# ------------------------------------------------------------ locks


@posix
def test_ctrl_c_ends_waiting_for_a_lock(ledger: PrivacyLedger, path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as holder:
        holder.execute("BEGIN EXCLUSIVE")
        begun = time.monotonic()
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))

        def waiting() -> None:
            timer.start()
            ledger.spend(TENTH)

        # Shells start programs in the background with SIGINT ignored.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            # Started in here: this thread may not run for longer than the timer.
            with pytest.raises(KeyboardInterrupt):
                waiting()
        finally:
            signal.signal(signal.SIGINT, before)
        # What matters is that it does not take the two minutes of the whole wait.
        assert time.monotonic() - begun < 100.0
        timer.join()
    assert ledger.history == ()


def test_others_that_read_are_waited_for(ledger: PrivacyLedger, path: Path) -> None:
    """A reader, such as a backup, holds a shared lock, which a commit has to wait for."""
    reader = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    with closing(reader):
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM spends").fetchall()
        timer = threading.Timer(0.3, reader.execute, ("COMMIT",))
        timer.start()
        ledger.spend(TENTH)
        timer.join()
    assert len(PrivacyLedger.open(path).history) == 1


def test_a_lock_that_stays_ends_in_a_ledger_error(
    ledger: PrivacyLedger, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "PATIENCE", 0.1)
    with closing(sqlite3.connect(path, isolation_level=None)) as holder:
        holder.execute("BEGIN EXCLUSIVE")
        assert_refused(lambda: ledger.spend(TENTH))
    assert ledger.history == ()


@pytest.mark.parametrize("name", ["epsilon", "fits"])
def test_nobody_waits_while_a_composition_is_computed(
    name: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = PrivacyLedger(1.0, 1e-6, path=path)
    ledger.spend(GaussianEvent(30.0, 1.0, "add_remove"))
    computed = getattr(Composition, name)
    free: list[bool] = []

    def noted(self: Any, *arguments: Any, **options: Any) -> Any:
        with closing(sqlite3.connect(path, timeout=0.0, isolation_level=None)) as other:
            try:
                other.execute("BEGIN EXCLUSIVE")
                free.append(True)
            except sqlite3.OperationalError:
                free.append(False)
        return computed(self, *arguments, **options)

    monkeypatch.setattr(Composition, name, noted)
    ledger.total()
    ledger.remaining()
    ledger.check(TENTH)
    ledger.spend(TENTH)
    with pytest.raises(BudgetExceededError):
        ledger.spend(PureEvent(2.0, "add_remove"))
    assert free
    assert all(free)


def test_a_decision_does_not_outlive_the_spends_of_others(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others spend whenever a decision is made beside the lock; the budget holds, and it ends."""
    ledger, other = (PrivacyLedger(1.0, 0.0, path=path) for _ in range(2))
    decided = PrivacyLedger._admitted
    tries: list[int] = []

    def disturbed(self: Any, *asked: Any) -> Any:
        decision = decided(self, *asked)
        if self is ledger and len(tries) < 3:
            tries.append(1)
            other.spend(TENTH)
        return decision

    monkeypatch.setattr(PrivacyLedger, "_admitted", disturbed)
    with pytest.raises(BudgetExceededError):
        ledger.spend(PureEvent(0.8, "add_remove"))
    ledger.spend(PureEvent(0.7, "add_remove"))
    assert len(ledger.history) == 4
    assert ledger.total()[0] <= 1.0 + 1e-9


# ------------------------------------------------------------ anchors and marks


@PUT_BACK
def test_an_older_copy_is_behind_its_anchor(
    put_back: Callable[[Path, Path], None], tmp_path: Path
) -> None:
    path, copy, anchor = (tmp_path / name for name in ("a.budget", "copy", "anchor"))
    ledger = PrivacyLedger(1.0, 0.0, path=path, anchor=anchor)
    ledger.spend(TENTH)
    shutil.copy(path, copy)
    ledger.spend(HALF)
    last = tmp_path / "last"
    shutil.copy(path, last)
    put_back(copy, path)
    assert_refused(
        lambda: PrivacyLedger.open(path),
        lambda: PrivacyLedger(1.0, 0.0, path=path),
        lambda: PrivacyLedger(1.0, 0.0, path=path, anchor=anchor),
        lambda: PrivacyLedger(1.0, 0.0, path=path, anchor=tmp_path / "another"),
    )
    put_back(last, path)
    PrivacyLedger.open(path).spend(TENTH)
    assert PrivacyLedger.open(path).anchor == anchor


def test_of_a_ledger_and_its_copy_one_goes_on(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    PrivacyLedger(1.0, 0.0, path=path, anchor=tmp_path / "anchor").spend(TENTH)
    shutil.copy(path, copy)
    PrivacyLedger.open(copy).spend(TENTH)
    assert_refused(lambda: PrivacyLedger.open(path))
    assert len(PrivacyLedger.open(copy).history) == 2


def test_as_many_other_spends_are_behind_the_anchor(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    ledger = PrivacyLedger(1.0, 0.0, path=path, anchor=tmp_path / "anchor")
    for event in (TENTH, HALF):
        ledger.spend(event)
    executed(path, """UPDATE spends SET spend = replace(spend, '0.5', '0.1')""")
    assert_refused(lambda: PrivacyLedger.open(path))
    assert not copy.exists()


@pytest.mark.parametrize(
    "damage",
    [
        lambda p: p.unlink(),
        lambda p: p.write_bytes(b""),
        lambda p: p.write_bytes(b"\xff\xfe"),
        lambda p: p.write_text("dpsvm_fast anchor 1 " + "0" * 32 + "\n0-" + "0" * 32 + "\n"),
        lambda p: p.write_text(p.read_text() + "\n7-" + "0" * 32 + "\n"),
    ],
)
def test_a_damaged_anchor_stops_the_ledger(
    damage: Callable[[Path], Any], path: Path, tmp_path: Path
) -> None:
    anchor = tmp_path / "anchor"
    ledger = PrivacyLedger(1.0, 0.0, path=path, anchor=anchor)
    ledger.spend(TENTH)
    before = anchor.read_bytes()
    damage(anchor)
    assert_refused(lambda: ledger.spend(TENTH), lambda: PrivacyLedger.open(path))
    anchor.write_bytes(before)
    ledger.spend(TENTH)


def test_an_anchor_that_was_cut_off_while_it_was_written(path: Path, tmp_path: Path) -> None:
    """Its last line is half of one: the spend was recorded, and nobody was told that it was."""
    anchor = tmp_path / "anchor"
    ledger = PrivacyLedger(1.0, 0.0, path=path, anchor=anchor)
    ledger.spend(TENTH)
    whole = anchor.read_bytes()
    ledger.spend(TENTH)
    longer = anchor.read_bytes()
    for size in range(len(whole), len(longer) + 1):
        anchor.write_bytes(longer[:size])
        again = PrivacyLedger.open(path)
        again.spend(PureEvent(1e-3, "add_remove"))
        assert anchor.read_text().split()[-1] == again.mark()


def test_a_spend_that_the_anchor_does_not_learn_of_fails(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = PrivacyLedger(1.0, 0.0, path=path, anchor=tmp_path / "anchor")
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda *_: 0)
        assert_refused(lambda: ledger.spend(HALF))
    assert ledger.remaining() == 0.5
    ledger.spend(TENTH)
    assert (tmp_path / "anchor").read_text().split()[-1] == ledger.mark()


def test_an_anchor_is_of_one_ledger(tmp_path: Path) -> None:
    anchor = tmp_path / "anchor"
    PrivacyLedger(1.0, 0.0, path=tmp_path / "a.budget", anchor=anchor)
    assert_refused(lambda: PrivacyLedger(1.0, 0.0, path=tmp_path / "b.budget", anchor=anchor))
    assert_refused(
        lambda: PrivacyLedger(1.0, 0.0, path=tmp_path / "c.budget", anchor=tmp_path / "b.budget")
    )
    with pytest.raises(InvalidParameterError):
        PrivacyLedger(1.0, 0.0, anchor=anchor)


def test_an_anchor_moves_and_is_learnt_by_all_handles(tmp_path: Path) -> None:
    path, first, second = (tmp_path / name for name in ("a.budget", "first", "second"))
    ledger = PrivacyLedger(1.0, 1e-6, path=path, adaptive=True)
    ledger.spend(TENTH)
    PrivacyLedger(1.0, 1e-6, path=path, adaptive=True, anchor=first).spend(TENTH)
    copy = tmp_path / "copy"
    shutil.copy(path, copy)
    PrivacyLedger(1.0, 1e-6, path=path, adaptive=True, anchor=second)
    ledger.spend(TENTH)
    assert ledger.anchor == second
    assert second.read_text().split()[-1] == ledger.mark()
    assert PrivacyLedger.open(path).adaptive
    assert_refused(lambda: PrivacyLedger(1.0, 1e-6, path=path, adaptive=True, anchor=first))
    assert_refused(lambda: PrivacyLedger.open(copy))


@posix
def test_processes_share_an_anchored_ledger(path: Path, tmp_path: Path) -> None:
    anchor = tmp_path / "anchor"
    code = (
        "import sys\n"
        "from dpsvm_fast.certificates import PureEvent\n"
        "from dpsvm_fast.ledger import PrivacyLedger\n"
        "ledger = PrivacyLedger(1.0, 0.0, path=sys.argv[1], anchor=sys.argv[2])\n"
        "for _ in range(12):\n"
        "    ledger.spend(PureEvent(2.0 ** -20, 'add_remove'))\n"
    )
    command = [sys.executable, "-c", code, os.fspath(path), os.fspath(anchor)]
    workers = [subprocess.Popen(command) for _ in range(2)]
    assert [worker.wait(timeout=300) for worker in workers] == [0, 0]
    ledger = PrivacyLedger.open(path)
    assert len(ledger.history) == 24
    assert anchor.read_text().split()[-1] == ledger.mark()


def test_marks(ledger: PrivacyLedger, path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    none = ledger.mark()
    shutil.copy(path, copy)
    ledger.spend(TENTH)
    one = ledger.mark()
    assert len({none, one}) == 2
    for since in (none, one, None):
        assert len(PrivacyLedger.open(path, since=since).history) == 1
    assert PrivacyLedger.open(copy, since=none).history == ()
    assert_refused(lambda: PrivacyLedger.open(copy, since=one))
    for bad in ("", "1", one + "0", 1):
        with pytest.raises(InvalidParameterError):
            PrivacyLedger.open(path, since=bad)  # type: ignore[arg-type]
    assert_refused(lambda: PrivacyLedger(1.0, 0.0).mark())
