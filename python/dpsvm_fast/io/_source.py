"""What every kind of file offers, and the reading of bytes that tells how far it is."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from dpsvm_fast.io.schema import TableSchema

__all__ = ["CountedFile", "Progress", "Source", "imported"]

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


class CountedFile:
    """A file that is read once, from its beginning, perhaps by another thread."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = open(path, "rb")  # noqa: SIM115
        self.n_bytes = 0

    def read(self, size: int = -1) -> bytes:
        """Read the next bytes."""
        content = self._file.read(size)
        self.n_bytes += len(content)
        return content

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self._file.closed


def imported(module: str, what: str) -> Any:
    """Return pyarrow or a part of it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise ImportError(
            f'{what} needs pyarrow, which is not installed: pip install "dpsvm-fast[arrow]"'
        ) from None
