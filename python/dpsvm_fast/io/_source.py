"""What every kind of file offers, and the reading of bytes that tells how far it is.

No file is trusted with memory: what a reader takes is a share of a room that its caller gives, and
records, rows and declared sizes that need more are refused before they are read.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from dpsvm_fast.exceptions import TableError
from dpsvm_fast.io.schema import TableSchema

__all__ = ["ROOM", "CountedText", "Progress", "Source", "is_compressed", "too_long"]

Progress = Callable[[int], None]

# Bytes that reading may take beside the rows that it returns, where nobody says it.
ROOM = 2**28


class Source(Protocol):
    """An opened file: its header has been read, its rows have not.

    Attributes
    ----------
    schema : TableSchema
        With every column named.
    n_rows : int or None
        Where the file says it.
    sparse : bool
        Whether rows are CSR matrices.
    """

    schema: TableSchema
    n_rows: int | None
    sparse: bool

    def blocks(self, progress: Progress) -> Iterator[tuple[Any, Any]]:
        """Rows and labels, in order; ``progress`` is told how many bytes are behind."""
        ...


class CountedText:
    """A text file that is read once, from its beginning, perhaps by another thread.

    Parameters
    ----------
    path : str
        Unpacked where the name ends in ``.gz``.
    """

    def __init__(self, path: str) -> None:
        self._file = open(path, "rb")  # noqa: SIM115
        self._text: Any = gzip.GzipFile(fileobj=self._file) if is_compressed(path) else self._file

    @property
    def n_bytes(self) -> int:
        """Bytes of the file that were read."""
        return self._file.tell()

    def read(self, size: int = -1) -> bytes:
        """Read the next bytes of the text."""
        content: bytes = self._text.read(size)
        return content

    def close(self) -> None:
        """Close the file."""
        self._text.close()
        self._file.close()


def is_compressed(path: str) -> bool:
    """Whether the name says gzip."""
    return path.lower().endswith(".gz")


def too_long(file: str, row: int, n_bytes: int, reason: str) -> TableError:
    """Return an error for a row that is longer than the room for it."""
    return TableError(
        f"{file}: row {row} is longer than {n_bytes >> 10} KiB; {reason}. Longer rows need more "
        "memory: max_memory= of open_table, --max-memory of a command"
    )
