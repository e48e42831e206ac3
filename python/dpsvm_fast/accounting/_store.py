"""Where a ledger's spends live outside memory: one SQLite file, or a JSON snapshot.

*The SQLite file* is for more than one process. Every call opens its own connection and closes it,
because SQLite connections may cross neither a fork nor a thread. Each call is one
``BEGIN IMMEDIATE`` transaction: between reading what was spent and appending to it nobody else
can append. The file is opened in a mode that never creates it, so a store that was deleted is an
error and not an empty budget.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import sqlite3
import tempfile
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpsvm_fast.accounting._certificate import read_json
from dpsvm_fast.accounting.events import PrivacyEvent
from dpsvm_fast.exceptions import LedgerError

__all__ = [
    "Budget",
    "Session",
    "SpendRecord",
    "SpendStore",
    "private_directory",
    "read_snapshot",
    "write_snapshot",
]

FORMAT = "dpsvm_fast.ledger"
# Of a ledger with adaptive=True: the second; of all others: the first, as ever.
VERSION, ADAPTIVE_VERSION = 1, 2

# Seconds to wait for the other processes; a transaction takes about a millisecond.
BUSY_TIMEOUT = 120.0
# Looks at a file that is there and empty, a fiftieth of a second apart.
TRIES_OF_EMPTY = 50

_SCHEMA = (
    "CREATE TABLE ledger (one INTEGER PRIMARY KEY CHECK (one = 1), header TEXT NOT NULL)",
    "CREATE TABLE spends (number INTEGER PRIMARY KEY, spend TEXT NOT NULL)",
)


@dataclass(frozen=True)
class Budget:
    """What a ledger may spend: (epsilon, delta) for one relation, and by which rule."""

    epsilon: float
    delta: float
    adjacency: str
    adaptive: bool = False

    def __str__(self) -> str:
        rule = ", adaptive" if self.adaptive else ""
        return f"epsilon={self.epsilon!r}, delta={self.delta!r}, {self.adjacency}{rule}"

    def to_dict(self) -> dict[str, object]:
        """Plain values with the version of the format that can say them."""
        fields = {"epsilon": self.epsilon, "delta": self.delta, "adjacency": self.adjacency}
        if self.adaptive:
            return {"version": ADAPTIVE_VERSION} | fields | {"adaptive": True}
        return {"version": VERSION} | fields

    @classmethod
    def from_dict(cls, record: Mapping[str, Any], where: str) -> Budget:
        """Read what ``to_dict`` wrote; anything else is a ``LedgerError``."""
        version = record.get("version")
        names = {"version", "epsilon", "delta", "adjacency"}
        if type(version) is not int or version not in (VERSION, ADAPTIVE_VERSION):
            raise LedgerError(
                f"{where} has version {version!r}, not {VERSION} or {ADAPTIVE_VERSION}"
            )
        if version == ADAPTIVE_VERSION:
            names |= {"adaptive"}
        if set(record) != names or record.get("adaptive", True) is not True:
            raise LedgerError(f"{where} has unknown or missing fields")
        return cls(
            record["epsilon"], record["delta"], record["adjacency"], version == ADAPTIVE_VERSION
        )


@dataclass(frozen=True)
class SpendRecord:
    """One line of a ledger.

    Parameters
    ----------
    event : PrivacyEvent
    label : str
        Free text of whoever spent.
    time : str
        ISO 8601, in UTC.
    process : int
        Number of the process that spent.
    """

    event: PrivacyEvent
    label: str
    time: str
    process: int

    def __str__(self) -> str:
        return f"{self.time[:19]}Z  {_in_short(self.event.to_dict())}  {self.label}".rstrip()

    def to_dict(self) -> dict[str, object]:
        """Plain values, for JSON."""
        return {
            "event": self.event.to_dict(),
            "label": self.label,
            "time": self.time,
            "process": self.process,
        }

    @classmethod
    def from_dict(cls, record: object) -> SpendRecord:
        """Read what ``to_dict`` wrote; anything else is a ``LedgerError``."""
        if not isinstance(record, dict) or set(record) != {"event", "label", "time", "process"}:
            raise LedgerError("a spend has unknown or missing fields")
        texts = isinstance(record["label"], str) and isinstance(record["time"], str)
        if not texts or type(record["process"]) is not int:
            raise LedgerError("a spend has fields of the wrong type")
        try:
            event = PrivacyEvent.from_dict(record["event"])
        except (TypeError, ValueError) as error:
            raise LedgerError(f"a spend cannot be read: {error}") from error
        return cls(event, record["label"], record["time"], record["process"])


def _in_short(value: Any) -> str:
    """Return an event or a field of one on one line, to six digits."""
    if isinstance(value, dict):
        facts = [
            f"{name} = {_in_short(inside)}"
            for name, inside in value.items()
            if name not in ("type", "adjacency") and inside is not None
        ]
        return f"{value['type']} ({', '.join(facts)})"
    if isinstance(value, list):
        return f"[{', '.join(map(_in_short, value))}]"
    return value if isinstance(value, str) else f"{value:.6g}"


class SpendStore:
    """The file of one ledger.

    Parameters
    ----------
    path : Path
        Absolute.
    lasting : bool
        Whether spends must survive a crash of the machine.
    """

    def __init__(self, path: Path, *, lasting: bool) -> None:
        self.path = path
        self.lasting = lasting

    @classmethod
    def create(
        cls, path: Path, identity: str, budget: Budget, *, lasting: bool
    ) -> tuple[SpendStore, str]:
        """Open the store at ``path``, or make it; returns it with the ledger's identity.

        Raises
        ------
        LedgerError
            The file is no ledger, or one with another budget.
        """
        store = cls(path, lasting=lasting)
        new = _made_file(path)
        for _ in range(TRIES_OF_EMPTY):
            try:
                with store.transaction() as session:
                    if new and session.is_empty():
                        session.initialise(identity, budget)
                    if not session.is_empty():
                        found_identity, found = session.header()
                        break
            except LedgerError:
                # A full disk, say. Nobody else fills a file that this call has made.
                with suppress(OSError):
                    if new and path.stat().st_size == 0:
                        path.unlink()
                raise
            # Another process has made the file and is about to fill it.
            time.sleep(0.02)
        else:
            raise LedgerError(
                f"the file {path} is there and empty: a ledger that was cut off must not become a "
                "new budget; remove the file to begin one"
            )
        if found != budget:
            raise LedgerError(
                f"the ledger in {path} has the budget ({found}), not ({budget}); open it with its "
                "own, or use another file"
            )
        return store, found_identity

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        """One exclusive look at the file, committed on success and undone on any error."""
        if not self.path.is_file():
            raise LedgerError(
                f"the ledger's file {self.path} is gone; spends can no longer be counted, so "
                "nothing more can be spent. A temporary ledger ends with the process that made "
                "it: give path= for one that stays"
            )
        try:
            uri = f"{self.path.as_uri()}?mode=rw"
            connection = sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT, isolation_level=None)
            with closing(connection):
                connection.execute(f"PRAGMA synchronous = {'FULL' if self.lasting else 'OFF'}")
                connection.execute("BEGIN IMMEDIATE")
                try:
                    yield Session(connection)
                    connection.execute("COMMIT")
                except BaseException:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                    raise
        except sqlite3.Error as error:
            raise LedgerError(f"the ledger's file {self.path} cannot be used: {error}") from error


class Session:
    """What may be done inside one transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def is_empty(self) -> bool:
        """Whether the file has no tables at all, ours or another program's."""
        rows = self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        return bool(rows[0] == 0)

    def initialise(self, identity: str, budget: Budget) -> None:
        """Make the tables of an empty file."""
        header = {"format": FORMAT, "identity": identity} | budget.to_dict()
        for statement in _SCHEMA:
            self._connection.execute(statement)
        self._connection.execute("INSERT INTO ledger VALUES (1, ?)", (json.dumps(header),))

    def header(self) -> tuple[str, Budget]:
        """Identity and budget."""
        row = self._connection.execute("SELECT header FROM ledger").fetchone()
        header = _json(row[0]) if row else None
        if not isinstance(header, dict) or header.get("format") != FORMAT:
            raise LedgerError("the file is no ledger")
        identity = header.pop("identity", None)
        del header["format"]
        if not isinstance(identity, str):
            raise LedgerError("the ledger has no identity")
        return identity, Budget.from_dict(header, "the ledger")

    def read_after(self, count: int) -> list[SpendRecord]:
        """Spends beyond the first ``count``, in their order; fewer than ``count`` is an error."""
        known = self._connection.execute("SELECT count(*) FROM spends").fetchone()[0]
        if known < count:
            raise LedgerError("spends have vanished from the ledger's file")
        rows = self._connection.execute(
            "SELECT spend FROM spends WHERE number > ? ORDER BY number", (count,)
        )
        return [SpendRecord.from_dict(_json(row[0])) for row in rows]

    def append(self, number: int, records: Iterable[SpendRecord]) -> None:
        """Add spends with the numbers ``number``, ``number + 1``, ..."""
        self._connection.executemany(
            "INSERT INTO spends VALUES (?, ?)",
            ((number + i, json.dumps(record.to_dict())) for i, record in enumerate(records)),
        )


def _json(text: Any) -> Any:
    """Return parsed JSON; damage is a ``LedgerError``."""
    try:
        return json.loads(text)
    except (TypeError, ValueError) as error:
        raise LedgerError("the ledger's file is damaged: a line is not JSON") from error


def write_snapshot(path: Path, budget: Budget, records: Iterable[SpendRecord]) -> None:
    """Write budget and spends as JSON; a reader sees the old file or the new one, never half."""
    document = {
        "format": FORMAT,
        **budget.to_dict(),
        "spends": [record.to_dict() for record in records],
    }
    text = json.dumps(document, indent=2, allow_nan=False) + "\n"
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def _made_file(path: Path) -> bool:
    """Whether the file was not there before."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        return False
    except OSError as error:
        raise LedgerError(f"cannot create the ledger's file {path}: {error.strerror}") from error
    return True


def read_snapshot(path: Path) -> tuple[Budget, list[SpendRecord]]:
    """Read what ``write_snapshot`` wrote; the budget's numbers are not checked here.

    Raises
    ------
    LedgerError
        The file is no ledger of a known version.
    """
    try:
        document = read_json(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise LedgerError(
            f"{path} is not JSON; a ledger made with path= is opened with path="
        ) from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise LedgerError(f"{path} is no ledger")
    del document["format"]
    spends = document.pop("spends", None)
    if not isinstance(spends, list):
        raise LedgerError(f"{path}: the spends are no list")
    budget = Budget.from_dict(document, str(path))
    return budget, [SpendRecord.from_dict(record) for record in spends]


_directory: tuple[int, Path] | None = None
_directory_lock = threading.Lock()


def private_directory() -> Path:
    """Directory of this process for temporary stores: 0700, removed when the process exits."""
    global _directory
    with _directory_lock:
        if _directory is None or _directory[0] != os.getpid():
            path = Path(tempfile.mkdtemp(prefix="dpsvm_fast-ledger-")).resolve()
            _directory = (os.getpid(), path)
            atexit.register(_remove, os.getpid(), path)
        return _directory[1]


def _remove(process: int, path: Path) -> None:
    """Remove the directory in the process that made it; a forked child leaves it alone."""
    if os.getpid() == process:
        shutil.rmtree(path, ignore_errors=True)
