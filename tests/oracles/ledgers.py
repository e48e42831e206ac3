"""What is done to ledgers and to their files."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dpsvm_fast.certificates import PrivacyEvent
from dpsvm_fast.exceptions import BudgetExceededError, LedgerError
from dpsvm_fast.ledger import PrivacyLedger


def admitted(ledger: PrivacyLedger, event: PrivacyEvent) -> bool:
    """Spend, and tell whether it was admitted."""
    try:
        ledger.spend(event)
    except BudgetExceededError:
        return False
    return True


def spend_all(ledger: PrivacyLedger, event: PrivacyEvent, tries: int) -> int:
    """Return how many of so many spends were admitted."""
    return sum(admitted(ledger, event) for _ in range(tries))


def assert_refused(*uses: Callable[[], object]) -> None:
    """Whatever is done with such a file ends in the error of a ledger."""
    for use in uses:
        with pytest.raises(LedgerError):
            use()


def executed(path: Path, *statements: str) -> None:
    """Run SQL on the file of a ledger."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def change_header(path: Path, **changes: Any) -> None:
    """Write other facts into the header of a file."""
    with closing(sqlite3.connect(path)) as connection, connection:
        header = json.loads(connection.execute("SELECT header FROM ledger").fetchone()[0])
        connection.execute("UPDATE ledger SET header = ?", (json.dumps(header | changes),))
