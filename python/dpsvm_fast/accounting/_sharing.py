"""Ledgers of this process, and what happens to them when it forks.

Before a fork every ledger moves to a file, so that parent and child share one budget.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING

from dpsvm_fast.exceptions import LedgerError

if TYPE_CHECKING:
    from dpsvm_fast.accounting.ledger import PrivacyLedger

__all__ = ["remember", "remembered"]

# By identity for unpickling, and all of them for forks (two may have been opened on one file).
_all: weakref.WeakSet[PrivacyLedger] = weakref.WeakSet()
_live: weakref.WeakValueDictionary[str, PrivacyLedger] = weakref.WeakValueDictionary()
_fork_lock = threading.RLock()
_held: list[PrivacyLedger] = []


def remember(identity: str, ledger: PrivacyLedger) -> None:
    """Make a ledger visible to unpickling and to forks."""
    with _fork_lock:
        _live[identity] = ledger
        _all.add(ledger)


def remembered(identity: str) -> PrivacyLedger | None:
    """Return the ledger of that identity in this process, if it is still alive."""
    with _fork_lock:
        return _live.get(identity)


def _before_fork() -> None:
    """Hold every ledger and move it to a file, so that parent and child share one budget."""
    _fork_lock.acquire()
    for ledger in list(_all):
        ledger._lock.acquire()
        _held.append(ledger)
        try:
            ledger._in_file()
        except (LedgerError, OSError):
            # Stays in memory here; the child notices and refuses to spend.
            continue


def _after_fork_in_parent() -> None:
    """Let go of what ``_before_fork`` holds."""
    while _held:
        _held.pop()._lock.release()
    _fork_lock.release()


def _after_fork_in_child() -> None:
    """Make new locks: the owners of the old ones do not exist here."""
    global _fork_lock
    while _held:
        _held.pop()._lock = threading.RLock()
    _fork_lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )
