"""Where a party writes down which rounds it has answered, so that it answers none twice."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Protocol

from flwr.app import ConfigRecord, Context

__all__ = ["ContextJournal", "FileJournal", "Journal"]

ANSWERED = "dpsvm_fast.answered"


class Journal(Protocol):
    """Rounds that were answered, by the specification's fingerprint."""

    def holds(self, digest: str, name: str) -> bool:
        """Tell whether the round was answered."""

    def add(self, digest: str, name: str) -> None:
        """Write down that it is being answered."""


class ContextJournal:
    """In the state that Flower keeps for a party during one run."""

    def __init__(self, context: Context) -> None:
        self._records = context.state.config_records

    def holds(self, digest: str, name: str) -> bool:
        """Tell whether the round was answered in this run."""
        return ANSWERED in self._records and f"{digest} {name}" in self._records[ANSWERED]["rounds"]

    def add(self, digest: str, name: str) -> None:
        """Write down that it is being answered."""
        rounds = list(self._records[ANSWERED]["rounds"]) if ANSWERED in self._records else []
        self._records[ANSWERED] = ConfigRecord({"rounds": [*rounds, f"{digest} {name}"]})


class FileJournal:
    """In a file of the party, for all runs. To answer a round again, remove the file by hand.

    Parameters
    ----------
    path : path
        Created with access for its owner alone.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)

    def holds(self, digest: str, name: str) -> bool:
        """Tell whether the round was answered in any run."""
        if not self._path.exists():
            return False
        lines = self._path.read_text(encoding="utf-8").splitlines()
        return [digest, name] in [json.loads(line) for line in lines if line.strip()]

    def add(self, digest: str, name: str) -> None:
        """Write down that it is being answered, on the disk when this returns."""
        handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(handle, (json.dumps([digest, name]) + "\n").encode("utf-8"))
            os.fsync(handle)
        finally:
            os.close(handle)
