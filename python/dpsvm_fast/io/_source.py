"""What every kind of file offers, and the reading of bytes that tells how far it is."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from dpsvm_fast.io.schema import TableSchema

__all__ = ["CountedText", "Progress", "Source", "is_compressed"]

Progress = Callable[[int], None]


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
    quote : str, default=""
        A character that is counted.

    Attributes
    ----------
    n_quotes : int
        How often the character came so far.
    """

    def __init__(self, path: str, quote: str = "") -> None:
        self._file = open(path, "rb")  # noqa: SIM115
        self._text: Any = gzip.GzipFile(fileobj=self._file) if is_compressed(path) else self._file
        self._quote = quote.encode("ascii")
        self.n_quotes = 0

    @property
    def n_bytes(self) -> int:
        """Bytes of the file that were read."""
        return self._file.tell()

    def read(self, size: int = -1) -> bytes:
        """Read the next bytes of the text."""
        content: bytes = self._text.read(size)
        if self._quote:
            self.n_quotes += content.count(self._quote)
        return content

    def close(self) -> None:
        """Close the file."""
        self._text.close()
        self._file.close()

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self._file.closed


def is_compressed(path: str) -> bool:
    """Whether the name says gzip."""
    return path.lower().endswith(".gz")
