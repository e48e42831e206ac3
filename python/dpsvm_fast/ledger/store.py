"""Storage of a ledger's spends outside memory: one SQLite file, or a JSON snapshot.

*The SQLite file* is for more than one process. Every call opens its own connection and closes it,
because SQLite connections may cross neither a fork nor a thread. Each call is one
``BEGIN IMMEDIATE`` transaction: nobody else can append between reading the spends and appending to
them. The file is opened in a mode that never creates it, so a store that was deleted is an error
and not an empty budget. It is looked at by name only and never opened outside SQLite: closing a
file releases the locks that other threads of the process hold on it.

What a handle has seen stays: each transaction compares file, identity, tables and the last known
spend. *An anchor* is a second file with the number of spends and a digest of them, advanced after
each commit; it tells when the first is an older copy.
"""

from __future__ import annotations

import atexit
import errno
import hashlib
import json
import os
import re
import shutil
import sqlite3
import stat
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

from dpsvm_fast.certificates import record as field
from dpsvm_fast.certificates.events import PrivacyEvent
from dpsvm_fast.certificates.record import Record, read_json
from dpsvm_fast.certificates.words import UNITS
from dpsvm_fast.exceptions import InvalidParameterError, LedgerError
from dpsvm_fast.files import write_bytes

# Seconds to wait for the other processes; a transaction takes about a millisecond.
PATIENCE = 120.0

LONGEST_PAUSE = 0.05

# Whatever is in a file, reading it takes less than 10 s and 256 MB. Snapshots are read as a whole,
# and JSON takes up to 24 times its size.
LARGEST_STORE, LARGEST_SNAPSHOT, LARGEST_ANCHOR = 1 << 25, 1 << 23, 1 << 23

MAX_SPENDS, LONGEST_TEXT = 100_000, 1 << 18
# One header names all periods; their names look different on any screen.
MAX_PERIODS = 4000
_PERIOD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:+/-]{0,39}")
# Steps of SQLite's machine to read two definitions, in thousands.
STEPS_OF_TABLES = 10

_TABLES = {
    "ledger": "CREATE TABLE ledger (one INTEGER PRIMARY KEY CHECK (one = 1), header TEXT NOT NULL)",
    "spends": "CREATE TABLE spends (number INTEGER PRIMARY KEY, spend TEXT NOT NULL)",
}

_MARK = re.compile(r"(0|[1-9][0-9]{0,5})-[0-9a-f]{32}")
# Matches no ledger: written to an anchor that a ledger has left.
_NO_MORE = f"999999-{'0' * 32}"

# Errors that unreadable bytes can raise, other than those of SQLite.
_UNREADABLE = (sqlite3.Error, ValueError, ArithmeticError, RecursionError, MemoryError)


@dataclass(frozen=True)
class Budget(Record):
    """A budget: (epsilon, delta), relation, unit and composition rule."""

    tag_field: ClassVar[str] = "format"
    tag: ClassVar[str] = "dpsvm_fast.ledger"
    VERSION: ClassVar[int] = 1

    epsilon: field.Epsilon
    delta: field.Delta
    adjacency: field.Adjacency
    adaptive: Annotated[bool, field.OmitIfDefault()] = False
    unit: Annotated[str, field.Options(*UNITS), field.OmitIfDefault()] = "row"
    periods: Annotated[field.Several[field.Text], field.Range(0, MAX_PERIODS)] = ()

    def _rules(self) -> Iterator[tuple[object, str]]:
        """Check that periods differ, and that no unit spans several."""
        odd = [name for name in self.periods if not _PERIOD.fullmatch(name)]
        yield (
            odd or len(set(self.periods)) < len(self.periods),
            "periods: expected different names of 1 to 40 letters, digits or any of ._:+/-, "
            "beginning with a letter or digit",
        )
        yield (
            self.periods and self.unit != "row",
            f"periods: a {self.unit} can have rows in several periods, each with the whole budget; "
            "expected unit='row', or no periods",
        )

    def __str__(self) -> str:
        rule = ", adaptive" if self.adaptive else ""
        unit = "" if self.unit == "row" else f", {self.unit}"
        if self.periods:
            unit += f", {len(self.periods)} periods {self.periods[0]}..{self.periods[-1]}"
        return f"epsilon={self.epsilon!r}, delta={self.delta!r}, {self.adjacency}{unit}{rule}"

    def check_spend(self, spend: SpendRecord, path: Path) -> None:
        """Refuse a spend in a file that is of another relation, or of an unknown period."""
        if spend.event.adjacency != self.adjacency:
            raise LedgerError(f"{path}: a spend has another neighbouring relation")
        if not set(spend.periods) <= set(self.periods):
            raise LedgerError(f"{path}: a spend has an undeclared period")


@dataclass(frozen=True)
class SpendRecord(Record):
    """One line of a ledger.

    Parameters
    ----------
    event : PrivacyEvent
        What was spent.
    label : str
        Free text of the caller.
    time : str
        ISO 8601, in UTC.
    process : int
        Number of the process that spent.
    periods : tuple of str
        The only ones whose rows are charged; empty for all rows.
    """

    event: PrivacyEvent
    label: str
    time: str
    process: Annotated[int, field.Range(0)]
    periods: field.Several[field.Text] = ()

    def __str__(self) -> str:
        what = " ".join([_in_short(self.event.to_dict()), *self.periods])
        return f"{self.time[:19]}Z  {what}  {self.label}".rstrip()


Read = TypeVar("Read", bound=Record)


def _read(kind: type[Read], record: object, what: str) -> Read:
    """Read a record from a file; anything else is a ``LedgerError``."""
    try:
        return kind.read(record)
    except (TypeError, AttributeError, LookupError, *_UNREADABLE) as error:
        raise LedgerError(f"{what} cannot be read: {_brief(error)}") from error


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
    """The file of one ledger, and the part that this process has read.

    Parameters
    ----------
    path : Path
        Symbolic links are followed once, now.
    lasting : bool
        Whether spends must survive a crash of the machine.

    Attributes
    ----------
    identity : str
        Identity of the ledger; "" before the first transaction, and so for ``budget``.
    budget : Budget
    anchor : Path or None
        File with the number and the digest of the spends, if there is one.
    """

    def __init__(self, path: Path, *, lasting: bool) -> None:
        self.path = Path(os.path.realpath(path))
        self.lasting = lasting
        self.identity = ""
        self.budget: Budget
        self.anchor: Path | None = None
        self._former_anchor: Path | None = None
        self._header: str | None = None
        self._file: tuple[int, int] | None = None
        # Digest of the first 0, 1, 2, ... spends.
        self._chain: list[bytes] = []

    @classmethod
    def create(
        cls, path: Path, identity: str, budget: Budget, *, lasting: bool
    ) -> tuple[SpendStore, list[SpendRecord]]:
        """Open the store at ``path``, or make it; returns it with its spends.

        Raises
        ------
        LedgerError
            The file is not a ledger, or has another budget.
        """
        store = cls(path, lasting=lasting)
        if not os.path.lexists(store.path):
            try:
                put_new(store.path, _new_file(identity, budget), lasting=lasting)
            except (OSError, sqlite3.Error) as error:
                reason = getattr(error, "strerror", None) or error
                raise LedgerError(f"cannot create the ledger file {path}: {reason}") from error
        with store.transaction() as session:
            spends = session.new_spends
        if store.budget != budget:
            raise LedgerError(
                f"the ledger in {path} has the budget ({store.budget}), not ({budget}); open it "
                "with its own budget, or use another file"
            )
        return store, spends

    @contextmanager
    def transaction(self, known: int = 0) -> Iterator[Session]:
        """Hold the file exclusively; commit on success, roll back on any error.

        Parameters
        ----------
        known : int
            Number of spends that the caller has. The last of them must still be there.
        """
        self._look()
        try:
            # No waiting inside SQLite, which Ctrl-C cannot interrupt.
            uri = f"{self.path.as_uri()}?mode=rw"
            connection = sqlite3.connect(uri, uri=True, timeout=0.0, isolation_level=None)
        except sqlite3.Error as error:
            raise self._useless(error) from error
        with closing(connection):
            try:
                session = self._begun(connection, known)
            except _UNREADABLE as error:
                raise self._useless(error) from error
            try:
                try:
                    yield session
                    if session.written:
                        self._commit(connection)
                finally:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
            except sqlite3.Error as error:
                raise self._useless(error) from error

    def mark(self, count: int) -> str:
        """Return the number of spends and their digest."""
        return f"{count}-{self._chain[count].hex()}"

    def continues(self, mark: str) -> bool:
        """Return whether the spends begin with those of a mark."""
        count = int(mark.partition("-")[0])
        return count < len(self._chain) and self.mark(count) == mark

    def _useless(self, error: BaseException) -> LedgerError:
        """Return an error that quotes SQLite."""
        return LedgerError(f"the ledger file {self.path} cannot be used: {_brief(error)}")

    def _look(self) -> None:
        """Check the file and those that SQLite keeps next to it, without opening them.

        Raises
        ------
        LedgerError
            The file is gone, replaced, not a file, or has a second name.
        """
        found = _looked_at(self.path)
        if found is None:
            raise LedgerError(
                f"the ledger file {self.path} is missing; nothing more can be spent. A temporary "
                "ledger ends with its process: give path= to keep it"
            )
        if found.st_nlink == 2 and _drop_draft(self.path, found):
            found = os.stat(self.path)
        if found.st_nlink > 1:
            raise LedgerError(
                f"{self.path}: the file has {found.st_nlink} hard links, and replacing one would "
                "make two budgets; remove all but one"
            )
        for suffix in ("-journal", "-wal", "-shm"):
            _looked_at(Path(f"{self.path}{suffix}"))
        place = (found.st_dev, found.st_ino)
        if self._file not in (None, place):
            raise LedgerError(
                f"{self.path}: the file was replaced while the ledger was open, so spends may be "
                "missing and nothing can be spent; if intended, open the ledger again"
            )
        self._file = place

    def _begun(self, connection: sqlite3.Connection, known: int) -> Session:
        """Take the lock, and read all that is new."""
        if hasattr(connection, "setlimit"):
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LARGEST_STORE)
        connection.set_progress_handler(_steps(STEPS_OF_TABLES), 1000)
        # With FULL, the journal's end is not on the disk when COMMIT returns: after a power cut
        # the next process would find the journal and undo the spend.
        _patiently(connection, f"PRAGMA synchronous = {'EXTRA' if self.lasting else 'OFF'}")
        _patiently(connection, "BEGIN IMMEDIATE")
        # Check that it is still the same file.
        self._look()
        _check_tables(self.path, connection)
        connection.set_progress_handler(None, 0)
        self._read_header(connection)
        session = Session(connection, self, known)
        if self.anchor is not None and not self.continues(_anchored(self.anchor, self.identity)):
            raise LedgerError(
                f"{self.path}: its anchor {self.anchor} counts spends that are missing here: this "
                "is an older copy of the budget; restore the latest"
            )
        return session

    def _read_header(self, connection: sqlite3.Connection) -> None:
        """Read identity, budget and anchor; the first two never change."""
        rows = connection.execute("SELECT header FROM ledger LIMIT 2").fetchall()
        if len(rows) != 1:
            raise LedgerError(f"{self.path}: the ledger has no header")
        text = rows[0][0]
        if text is not None and text == self._header:
            return
        header = _json(text)
        if not isinstance(header, dict):
            raise LedgerError(f"{self.path} is not a ledger")
        identity, anchor = header.pop("identity", None), header.pop("anchor", None)
        if not isinstance(identity, str) or not re.fullmatch("[0-9a-f]{32}", identity):
            raise LedgerError(f"{self.path}: the ledger has no identity")
        if not isinstance(anchor, str | None):
            raise LedgerError(f"{self.path}: the header of the ledger is damaged")
        budget = _read(Budget, header, "the ledger")
        if self._header is None:
            self.identity, self.budget = identity, budget
            self._chain = [_digest(identity.encode(), b"")]
        elif (identity, budget) != (self.identity, self.budget):
            raise LedgerError(f"{self.path}: now holds another ledger; nothing can be spent")
        self.anchor = None if anchor is None else Path(anchor)
        self._header = text

    def _commit(self, connection: sqlite3.Connection) -> None:
        """Make it last, and let the anchor know."""
        _patiently(connection, "COMMIT")
        self._look()
        if self.anchor is None:
            return
        # Processes take turns; another one may have been faster.
        _patiently(connection, "BEGIN IMMEDIATE")
        last = len(self._chain) - 1
        if int(_anchored(self.anchor, self.identity).partition("-")[0]) < last:
            _advance(self.anchor, self.mark(last))
        if self._former_anchor is not None:
            # Copies that name it must stop.
            _advance(self._former_anchor, _NO_MORE)
            self._former_anchor = None


class Session:
    """Operations inside one transaction.

    Attributes
    ----------
    new_spends : list of SpendRecord
        Beyond those that the caller knew, in their order.
    written : bool
        Whether there is something to commit.
    """

    def __init__(self, connection: sqlite3.Connection, store: SpendStore, known: int) -> None:
        self._connection = connection
        self._store = store
        self.new_spends: list[SpendRecord] = []
        self.written = False
        self._read(known)

    def append(self, number: int, records: Iterable[SpendRecord]) -> None:
        """Add spends with the numbers ``number``, ``number + 1``, ...

        Raises
        ------
        InvalidParameterError
            A spend has a label of many thousands of characters.
        LedgerError
            The file is full, or does not keep what it is given.
        """
        texts = [json.dumps(record.to_dict()) for record in records]
        if any(len(text) > LONGEST_TEXT for text in texts):
            raise InvalidParameterError(
                f"label: got a spend of more than {LONGEST_TEXT} characters with its label; "
                "expected a shorter label"
            )
        size = self._store.path.stat().st_size + 2 * sum(map(len, texts))
        if number + len(texts) - 1 > MAX_SPENDS or size > LARGEST_STORE - LONGEST_TEXT:
            raise LedgerError(
                f"{self._store.path}: the ledger is full: it holds at most {MAX_SPENDS} spends "
                f"and {LARGEST_STORE >> 20} MB"
            )
        rows = list(enumerate(texts, number))
        self.written = True
        self._connection.executemany("INSERT INTO spends VALUES (?, ?)", rows)
        found = self._connection.execute(
            "SELECT number, spend FROM spends WHERE number >= ? ORDER BY number", (number,)
        )
        if found.fetchall() != rows:
            raise LedgerError(f"{self._store.path}: the file did not retain a write")
        chain = self._store._chain
        for text in texts:
            chain.append(_digest(chain[-1], text.encode()))

    def tie(self, anchor: Path) -> None:
        """From now on, also keep number and digest of the spends in another file.

        Raises
        ------
        InvalidParameterError
            The path is that of the ledger itself.
        LedgerError
            The file cannot be made, or it is there and not an anchor of this ledger.
        """
        store = self._store
        anchor = Path(os.path.realpath(anchor))
        if anchor == store.anchor:
            return
        if anchor == store.path:
            raise InvalidParameterError.of(
                "anchor", got=os.fspath(anchor), accepted="a file other than the ledger itself"
            )
        last = store.mark(len(store._chain) - 1)
        try:
            put_new(anchor, f"{_anchor_head(store.identity)}\n{last}\n".encode(), lasting=True)
        except OSError as error:
            reason = error.strerror or error
            raise LedgerError(f"cannot create the anchor {anchor}: {reason}") from error
        # There may be one left by an interrupted call.
        if not store.continues(_anchored(anchor, store.identity)):
            raise LedgerError(
                f"{anchor} counts spends that are missing in {store.path}: this is an older copy"
            )
        header = _header(store.identity, store.budget) | {"anchor": os.fspath(anchor)}
        self.written = True
        store._former_anchor = store.anchor
        self._connection.execute("UPDATE ledger SET header = ?", (json.dumps(header),))
        store._read_header(self._connection)
        if store.anchor != anchor:
            raise LedgerError(f"{store.path}: the file did not retain a write")

    def _read(self, known: int) -> None:
        """Read new spends; the last known spend must be unchanged."""
        store, chain = self._store, self._store._chain
        del chain[known + 1 :]
        number = known or 1
        rows = self._connection.execute(
            "SELECT number, spend FROM spends WHERE number >= ? ORDER BY number",
            (known or -(2**63),),
        )
        for found, text in rows:
            if found != number or type(text) is not str or found > MAX_SPENDS:
                raise LedgerError(f"{store.path}: the spends of the ledger are damaged")
            digest = _digest(chain[number - 1], text.encode("utf-8", "surrogatepass"))
            if number > known:
                record = _read(SpendRecord, _json(text), "a spend")
                store.budget.check_spend(record, store.path)
                self.new_spends.append(record)
                chain.append(digest)
            elif digest != chain[number]:
                raise LedgerError(f"{store.path}: spends are missing from the ledger file")
            number += 1
        if number <= known:
            raise LedgerError(f"{store.path}: spends are missing from the ledger file")


def is_mark(text: object) -> bool:
    """Return whether it is a mark of a store."""
    return isinstance(text, str) and _MARK.fullmatch(text) is not None


def _digest(before: bytes, text: bytes) -> bytes:
    """Return the digest of a list of texts, from that of all but the last."""
    return hashlib.sha256(before + text).digest()[:16]


def _steps(thousands: int) -> Callable[[], int]:
    """Return a handler that ends an SQLite statement after this many thousand steps."""
    left = iter(range(thousands))
    return lambda: int(next(left, None) is None)


def _patiently(connection: sqlite3.Connection, statement: str) -> None:
    """Execute a statement; wait for other processes in steps that Ctrl-C can interrupt."""
    deadline = time.monotonic() + PATIENCE
    pause = 1e-3
    while True:
        try:
            connection.execute(statement)
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
        else:
            return
        time.sleep(pause)
        pause = min(1.5 * pause, LONGEST_PAUSE)


def _check_tables(path: Path, connection: sqlite3.Connection) -> None:
    """Refuse a file with anything but the two tables: a trigger can undo what is written."""
    query = "SELECT type, name, tbl_name, sql FROM sqlite_master LIMIT 3"
    found = set(connection.execute(query))
    if not found:
        raise LedgerError(
            f"the file {path} is empty: a ledger that was cut off must not become a new budget; "
            "remove the file to begin a new one"
        )
    if found != {("table", name, name, text) for name, text in _TABLES.items()}:
        raise LedgerError(f"{path} is not a ledger: it has other tables, views or triggers")
    if connection.execute("PRAGMA journal_mode").fetchone() != ("delete",):
        raise LedgerError(
            f"{path}: another program changed journal_mode, so a copy of the file may lack the "
            "last spends; expected delete"
        )


def _looked_at(path: Path) -> os.stat_result | None:
    """Stat a path; None if missing; refuse anything but a file of acceptable size."""
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        reason = "a loop of symbolic links" if error.errno == errno.ELOOP else error.strerror
        raise LedgerError(f"{path} cannot be used: {reason}") from error
    _check_kind(path, found, LARGEST_STORE)
    return found


def _check_kind(path: Path, found: os.stat_result, largest: int) -> None:
    """Refuse what is not a file, or is too large."""
    if not stat.S_ISREG(found.st_mode):
        kind = "folder" if stat.S_ISDIR(found.st_mode) else "pipe or device"
        raise LedgerError(f"{path} is a {kind}, expected a file")
    if found.st_size > largest:
        raise LedgerError(f"{path} has {found.st_size} bytes, expected at most {largest}")


def _contents(path: Path, largest: int) -> bytes:
    """Return all bytes of a file that no SQLite has open; never wait for a pipe."""
    _looked_at(path)
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    with open(descriptor, "rb") as file:
        _check_kind(path, os.fstat(descriptor), largest)
        data = file.read(largest + 1)
    if len(data) > largest:
        raise LedgerError(f"{path} has more than {largest} bytes")
    return data


def put_new(path: Path, data: bytes, *, lasting: bool) -> bool:
    """Create a file with these bytes if there is none, atomically.

    Returns whether it was made. ``lasting``: it is on the disk when this returns.
    """
    made, draft = False, path.with_name(f".{uuid.uuid4().hex}.draft")
    try:
        with open(draft, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(data)
            file.flush()
            if lasting:
                os.fsync(file.fileno())
        with suppress(FileExistsError):
            try:
                os.link(draft, path)
            except FileExistsError:
                raise
            except OSError:
                # A file system without hard links.
                path.touch(0o600, exist_ok=False)
                draft.replace(path)
            made = True
    finally:
        draft.unlink(missing_ok=True)
    if lasting and os.name != "nt":
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    return made


def _drop_draft(path: Path, found: os.stat_result) -> bool:
    """Remove a draft name that a killed process left; return whether the file has one name."""
    for draft in path.parent.glob(".*.draft"):
        with suppress(OSError):
            if os.path.samestat(draft.lstat(), found):
                draft.unlink()
                return True
    # Its maker may have been faster.
    return os.stat(path).st_nlink == 1


def _header(identity: str, budget: Budget) -> dict[str, Any]:
    """Return the header of a ledger file."""
    return {"identity": identity} | budget.to_dict()


def _new_file(identity: str, budget: Budget) -> bytes:
    """Return a ledger's file without spends."""
    with tempfile.TemporaryDirectory(prefix="dpsvm_fast-ledger-") as folder:
        path = Path(folder, "ledger")
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            for statement in ("PRAGMA synchronous = OFF", "BEGIN", *_TABLES.values()):
                connection.execute(statement)
            connection.execute(
                "INSERT INTO ledger VALUES (1, ?)", (json.dumps(_header(identity, budget)),)
            )
            connection.execute("COMMIT")
        return path.read_bytes()


def _anchor_head(identity: str) -> str:
    """Return the first line of an anchor."""
    return f"dpsvm_fast anchor 1 {identity}"


def _anchored(path: Path, identity: str) -> str:
    """Return the last complete mark in an anchor; a line that is not ended is none.

    Raises
    ------
    LedgerError
        There is no anchor of this ledger.
    """
    try:
        head, *lines = _contents(path, LARGEST_ANCHOR).decode("ascii").split("\n")[:-1]
    except OSError as error:
        raise LedgerError(
            f"the anchor {path} cannot be read ({error.strerror}), so an older copy of the budget "
            "cannot be detected and nothing can be spent; restore the anchor"
        ) from error
    except ValueError as error:
        raise LedgerError(f"{path} is not an anchor") from error
    marks = [line for line in lines[-3:] if _MARK.fullmatch(line)]
    if head != _anchor_head(identity) or not marks:
        raise LedgerError(f"{path} is not the anchor of this ledger")
    return marks[-1]


def _advance(path: Path, mark: str) -> None:
    """Append a mark to an anchor. It is only appended to, so its owner can forbid other writes."""
    try:
        # On Windows a file that is not opened as binary gets \r in front of each newline.
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | getattr(os, "O_BINARY", 0))
        try:
            # The first newline ends a line that was cut off; an empty one does no harm.
            line = f"\n{mark}\n".encode()
            if os.write(descriptor, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise LedgerError(
            f"the spend is recorded, but the anchor {path} cannot be written "
            f"({error.strerror}); nothing may be released"
        ) from error


def _brief(error: BaseException) -> str:
    """Return the text of an error, which may quote a file, in one line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else f"{text[:200]} ..."


def _json(text: Any) -> Any:
    """Return parsed JSON; damage is a ``LedgerError``."""
    if type(text) is not str or len(text) > LONGEST_TEXT:
        raise LedgerError("the ledger file is damaged: a line is not valid text or is too long")
    try:
        return read_json(text)
    except (*_UNREADABLE, TypeError) as error:
        raise LedgerError("the ledger file is damaged: a line is not JSON") from error


def write_snapshot(path: Path, budget: Budget, records: Iterable[SpendRecord]) -> None:
    """Write budget and spends as JSON; a reader sees the old file or the new one, never half."""
    document = budget.to_dict() | {"spends": [record.to_dict() for record in records]}
    text = json.dumps(document, indent=2, allow_nan=False) + "\n"
    if len(text) > LARGEST_SNAPSHOT:
        raise LedgerError(
            f"a snapshot of this history exceeds {LARGEST_SNAPSHOT >> 20} MB; keep the ledger in a "
            "file with path="
        )
    _looked_at(path)
    write_bytes(path, text.encode("utf-8"))


def read_snapshot(path: Path) -> tuple[Budget, list[SpendRecord]]:
    """Read what ``write_snapshot`` wrote.

    Raises
    ------
    LedgerError
        The file is not a ledger of a known version.
    """
    try:
        document = read_json(_contents(path, LARGEST_SNAPSHOT).decode("utf-8"))
    except (ValueError, RecursionError, MemoryError) as error:
        raise LedgerError(f"{path} is not JSON; open a ledger made with path= by path=") from error
    if not isinstance(document, dict):
        raise LedgerError(f"{path} is not a ledger")
    spends = document.pop("spends", None)
    if not isinstance(spends, list):
        raise LedgerError(f"{path}: the spends are not a list")
    budget = _read(Budget, document, str(path))
    records = [_read(SpendRecord, record, "a spend") for record in spends]
    for record in records:
        budget.check_spend(record, path)
    return budget, records


def private_directory() -> Path:
    """Return this process's directory for temporary stores: 0700, removed at exit."""
    return _directory_of(os.getpid())


@lru_cache(maxsize=1)
def _directory_of(process: int) -> Path:
    """Return the directory of one process; a forked child gets its own."""
    path = Path(tempfile.mkdtemp(prefix="dpsvm_fast-ledger-")).resolve()
    atexit.register(_remove, process, path)
    return path


def _remove(process: int, path: Path) -> None:
    """Remove the directory in the process that made it; a forked child leaves it alone."""
    if os.getpid() == process:
        shutil.rmtree(path, ignore_errors=True)
