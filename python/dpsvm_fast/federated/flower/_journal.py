"""Where a party writes down which rounds it has answered, so that it answers none twice.

A vector that is in two sums of different parties is as good as public: the difference of the sums
is a sum of few. So a party claims a round before it makes its vector, and a claim is never undone.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Protocol

from flwr.app import ConfigRecord, Context

__all__ = ["ContextJournal", "FileJournal", "Journal"]

ANSWERED = "dpsvm_fast.answered"


class Journal(Protocol):
    """Rounds that were answered, by the specification's fingerprint."""

    def holds(self, digest: str, name: str) -> bool:
        """Tell whether the round was claimed."""

    def claim(self, digest: str, name: str) -> bool:
        """Claim the round; False, and nothing else, where it was claimed before."""


class ContextJournal:
    """In the state that Flower keeps for a party during one run.

    Another run begins with an empty one: its vector has noise of its own, and the ledger is
    charged again.
    """

    def __init__(self, context: Context) -> None:
        self._records = context.state.config_records

    def holds(self, digest: str, name: str) -> bool:
        """Tell whether the round was claimed in this run."""
        return ANSWERED in self._records and f"{digest} {name}" in self._records[ANSWERED]["rounds"]

    def claim(self, digest: str, name: str) -> bool:
        """Claim the round for this run."""
        if self.holds(digest, name):
            return False
        rounds = list(self._records[ANSWERED]["rounds"]) if ANSWERED in self._records else []
        self._records[ANSWERED] = ConfigRecord({"rounds": [*rounds, f"{digest} {name}"]})
        return True


class FileJournal:
    """In a directory of the party, for all runs, also for runs at the same time.

    To answer a round again, remove its file by hand.

    Parameters
    ----------
    directory : path
        Created with access for its owner alone.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._directory = Path(directory)

    def holds(self, digest: str, name: str) -> bool:
        """Tell whether the round was claimed in any run."""
        return self._entry(digest, name).exists()

    def claim(self, digest: str, name: str) -> bool:
        """Claim the round for all times; it is on the disk when this returns."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            # The file system lets one of several processes win.
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            handle = os.open(self._entry(digest, name), flags, 0o600)
        except FileExistsError:
            return False
        try:
            os.write(handle, f"{digest} {name}\n".encode())
            os.fsync(handle)
        finally:
            os.close(handle)
        _flush_directory(self._directory)
        return True

    def _entry(self, digest: str, name: str) -> Path:
        return self._directory / hashlib.sha256(f"{digest} {name}".encode()).hexdigest()


def _flush_directory(path: Path) -> None:
    """Make sure that the new name survives a crash, where the system can be asked to."""
    if os.name != "posix":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
