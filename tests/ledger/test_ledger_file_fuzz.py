"""Ledger files with anything in them: read, or refused with a ``LedgerError``, soon.

Bits, bytes and pages of real files are changed, and rows and definitions through SQL. What is still
read as a ledger must answer questions.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from dpsvm_fast import BudgetExceededError, LedgerError, PrivacyLedger
from dpsvm_fast.certificates import GaussianEvent, PureEvent, SubsampledGaussianEvent, ZCDPEvent
from oracles.stored import CORPUS, HOW_TO_KEEP, STORED, repeated

MUTANTS = 300
MANY = int(os.environ.get("DPSVM_LEDGER_MUTANTS", "20000"))
# Promised of any file.
SECONDS, BYTES = 10.0, 256 << 20

ODD: list[Any] = [
    None, True, -1, 0, 2**63, 10**400, 1e308, 5e-324, 1e-320, float("nan"), float("inf"), "",
    "\ud800", "\0", "x" * 300_000, [], {}, [[]] * 1000, {"": None}, "add_remove", "replace_one",
]  # fmt: skip
TEXTS = ["NULL", "7", "1e308", "x'00ff'", "zeroblob(5000000)", "char(0)", "'{'", "'[[[[['",
         "replace(hex(zeroblob(100000)), '0', '[')", "cast(x'ff80' AS TEXT)"]  # fmt: skip
STATEMENTS = [
    "CREATE TRIGGER t AFTER INSERT ON spends BEGIN DELETE FROM spends; END",
    "CREATE VIEW v AS SELECT 1",
    "DROP TABLE ledger",
    "DELETE FROM spends WHERE number % 2",
    "UPDATE spends SET number = number + 99999",
    "INSERT INTO spends SELECT number + 100, spend FROM spends",
    "UPDATE spends SET number = -number",
    "PRAGMA journal_mode = WAL",
    "PRAGMA user_version = 7",
    "VACUUM",
    "ALTER TABLE spends RENAME TO spent",
    "CREATE INDEX i ON spends (spend)",
]


def made(folder: Path) -> list[Path]:
    """Files to begin with."""
    paths = [folder / name for name in ("old", "short", "long", "anchored")]
    shutil.copy(STORED / "ledger_v1.sqlite", paths[0])
    for path, spends in zip(paths[1:], (3, 200, 3), strict=True):
        anchor = folder / "anchor" if path.name == "anchored" else None
        ledger = PrivacyLedger(1.0, 1e-5, path=path, anchor=anchor)
        ledger.spend((PureEvent(2.0**-20, "add_remove"),) * spends, "one of many" * 3)
        ledger.spend(
            (
                GaussianEvent(100.0, 1.0, "add_remove"),
                SubsampledGaussianEvent(9.0, 0.01, 100, "add_remove"),
                ZCDPEvent(1e-4, "add_remove"),
            )
        )
    return paths


def some_value(text: str, coins: random.Random) -> str:
    """JSON with another value somewhere."""
    document = json.loads(text)
    inside = document
    while True:
        keys = list(inside) if isinstance(inside, dict) else list(range(len(inside)))
        key = coins.choice(keys)
        if isinstance(inside[key], (dict, list)) and inside[key] and coins.random() < 0.7:
            inside = inside[key]
            continue
        choice = coins.random()
        if choice < 0.6 or not isinstance(inside[key], (int, float)):
            inside[key] = coins.choice(ODD)
        else:
            inside[key] *= 10.0 ** coins.uniform(-12.0, 12.0)
        return json.dumps(document)


def changed_by_sql(path: Path, coins: random.Random) -> None:
    """The same as a database tool does it."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        # A file that is kept may have a view without an end.
        connection.set_progress_handler(lambda: 1, 10**7)
        table, column = coins.choice((("spends", "spend"), ("ledger", "header")))
        kind = coins.randrange(5)
        # Some cannot be done to a file that was changed before.
        with suppress(sqlite3.Error, TypeError, ValueError, LookupError, RecursionError):
            connection.execute("PRAGMA synchronous = OFF")
            if kind == 0:
                connection.execute(coins.choice(STATEMENTS))
            elif kind == 1:
                connection.execute(f"UPDATE {table} SET {column} = {coins.choice(TEXTS)}")
            elif kind == 2:
                connection.execute("PRAGMA writable_schema = ON")
                field = coins.choice(("type", "name", "tbl_name", "rootpage", "sql"))
                value = coins.choice([*TEXTS, "2", "3", "'view'", "'CREATE VIEW x AS SELECT 1'"])
                connection.execute(f"UPDATE sqlite_master SET {field} = {value}")
            else:
                number, text = connection.execute(
                    f"SELECT rowid, {column} FROM {table} ORDER BY random() LIMIT 1"
                ).fetchone()
                text = some_value(text, coins)
                connection.execute(
                    f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (text, number)
                )


def changed_bytes(path: Path, coins: random.Random) -> None:
    """The same as a disk does it."""
    data = bytearray(path.read_bytes())
    kind = coins.randrange(6)
    if kind == 0:
        data = data[: coins.randrange(len(data))]
    elif kind == 1:
        start, size = coins.randrange(len(data)), coins.choice((1, 2, 4, 100, 4096))
        data[start : start + size] = coins.randbytes(size)
    elif kind == 2:
        a, b = (4096 * coins.randrange(1 + len(data) // 4096) for _ in range(2))
        data[a : a + 4096] = data[b : b + 4096]
    elif kind == 3:
        # Fields of the file, or of the head of a page.
        start = coins.choice((0, 100, 4096, 8192)) + coins.randrange(100)
        data[start : start + 4] = coins.choice((b"\0", b"\1\0\0\0", b"\xff" * 4, b"\x7f\xff"))
    else:
        for _ in range(coins.choice((1, 1, 1, 2, 8, 64))):
            place = coins.randrange(len(data))
            data[place] ^= 1 << coins.randrange(8)
    path.write_bytes(data)


def mutant(seeds: list[Path], path: Path, coins: random.Random) -> None:
    """A changed ledger at ``path``."""
    for beside in ("-journal", "-wal", "-shm"):
        Path(f"{path}{beside}").unlink(missing_ok=True)
    shutil.copy(coins.choice(seeds), path)
    changes: list[Callable[[Path, random.Random], None]] = [changed_by_sql, changed_bytes]
    for _ in range(coins.choice((1, 1, 1, 2))):
        coins.choice(changes)(path, coins)
        # Changing a file of many blobs once more would take more memory than reading it may.
        if not 0 < path.stat().st_size < 16 << 20:
            return
    if coins.random() < 0.05:
        journal = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + coins.randbytes(coins.choice((0, 20, 9000)))
        Path(f"{path}-journal").write_bytes(journal)


def outcome(path: Path) -> str:
    """What a mutant is: a ledger, or refused. Anything else is raised."""
    try:
        ledger = PrivacyLedger.open(path)
        assert ledger.total()[0] >= 0.0
        assert ledger.remaining() >= 0.0
        str(ledger)
        with suppress(BudgetExceededError):
            ledger.spend(PureEvent(1e-9, ledger.adjacency))
    except LedgerError as error:
        assert len(str(error)) < 2000  # noqa: PT017
        return "refused"
    return "ledger"


def kept(folder: Path) -> Iterator[Path]:
    """Ledgers that broke the reader once."""
    for stored in sorted(CORPUS.glob("*.ledger.gz")):
        path = folder / stored.stem
        path.write_bytes(gzip.decompress(stored.read_bytes()))
        yield path


def searched(folder: Path, n: int, seed: int, *, stored: bool = False) -> Counter[str]:
    """Outcomes of so many mutants, also of those kept; none took too long or too much."""
    resource = pytest.importorskip("resource")
    coins = random.Random(seed)
    seeds = made(folder)
    outcomes: Counter[str] = Counter()
    longest, scale = 0.0, 1 if sys.platform == "darwin" else 1024
    for path in seeds:
        assert outcome(path) == "ledger"
    if stored:
        # Most mutants are of good files: fewer checks refuse them.
        seeds = [*seeds * 4, *kept(folder)]
    anchor = (folder / "anchor").read_bytes()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale
    for number in range(n):
        path = folder / f"mutant{number % 2}"
        mutant(seeds, path, coins)
        (folder / "anchor").write_bytes(anchor)
        begun = time.process_time()
        try:
            outcomes[outcome(path)] += 1
        except Exception as error:
            said = f"mutant {number} of seed {seed}: {repeated(path)}. {HOW_TO_KEEP}"
            raise AssertionError(said) from error
        taken = time.process_time() - begun
        assert taken < SECONDS, (seed, number)
        longest = max(longest, taken)
    room = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale - before
    assert room < BYTES
    told = f"seed {seed}: {dict(outcomes)}, longest {longest:.3f} s, room {room >> 20} MB"
    sys.stdout.write(f"{told}\n")
    return outcomes


def test_a_sample_of_changed_files(tmp_path: Path) -> None:
    outcomes = searched(tmp_path, MUTANTS, 20)
    # Negative controls: most are noticed, and some of what is changed does not matter.
    assert outcomes["refused"] > MUTANTS // 4
    assert outcomes["ledger"] > MUTANTS // 50


@pytest.mark.nightly
def test_many_changed_files(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(2**32)
    assert searched(tmp_path, MANY, seed, stored=True)["refused"] > MANY // 4
