"""Decoded rows in .npy files, of which only the names are passed on."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike

from dpsvm_fast import _validation as check
from dpsvm_fast.distributed import Partitions
from dpsvm_fast.exceptions import TableError

if TYPE_CHECKING:
    from types import TracebackType

    from dpsvm_fast.io.tables import Table

__all__ = ["RowFiles"]

HEADER_BYTES = 128
MOST_ROWS, MOST_BYTES = 65536, 2**26


class NpyWriter:
    """An array whose first dimension is known at the end.

    Parameters
    ----------
    path : str
        Must not exist.
    dtype : dtype
    width : tuple of int
        The other dimensions.
    """

    def __init__(self, path: str, dtype: DTypeLike, width: tuple[int, ...] = ()) -> None:
        self.path, self._dtype, self._width = path, np.dtype(dtype), width
        self.n_rows = 0
        handle = os.open(
            path, os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_BINARY", 0), 0o600
        )
        self._file = os.fdopen(handle, "wb")
        self._file.write(self._header())

    def append(self, rows: Any) -> None:
        """Write rows behind the others."""
        rows = np.ascontiguousarray(rows, dtype=self._dtype)
        self._file.write(rows.data if rows.size else b"")
        self.n_rows += len(rows)

    def finish(self) -> None:
        """Write the number of rows, and close."""
        self._file.seek(0)
        self._file.write(self._header())
        self._file.close()

    def discard(self) -> None:
        """Close and remove the file."""
        self._file.close()
        os.unlink(self.path)

    def _header(self) -> bytes:
        """Version 1.0 of the format, always of one length."""
        shape = (self.n_rows, *self._width)
        facts = {"descr": self._dtype.str, "fortran_order": False, "shape": shape}
        text = repr(facts).ljust(HEADER_BYTES - 11) + "\n"
        return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode("latin-1")


class RowFiles:
    """The files of one table, removed if anything fails before they are complete.

    Parameters
    ----------
    folder : str or path
    table : Table
    """

    def __init__(self, folder: str | os.PathLike[str], table: Table) -> None:
        self._folder, self._table = os.path.abspath(os.fspath(folder)), table
        self._writers: list[NpyWriter] = []
        self._finished = False

    def __enter__(self) -> RowFiles:
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        try:
            self._rows = self._writer("X", np.float32, (self._table.n_features,))
            if self._table.labelled:
                self._labels = self._writer("y", np.array(self._table.schema.classes).dtype)
        except BaseException:
            self._discard()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._finished:
            self._discard()

    def append(self, X: Any, y: Any) -> None:
        """Write a block."""
        self._rows.append(X)
        if y is not None:
            self._labels.append(y)

    def partitions(self, rows_per_partition: int | None) -> Partitions:
        """Finish the files and open them as partitions."""
        n_rows = self._rows.n_rows
        if not n_rows:
            raise TableError(f"{os.path.basename(self._table.path)}: the table has no rows")
        step = max(1, min(MOST_ROWS, MOST_BYTES // (4 * self._table.n_features)))
        if rows_per_partition is not None:
            step = check.check_integer("rows_per_partition", rows_per_partition, 1)
        for writer in self._writers:
            writer.finish()
        X, *y = (np.load(writer.path, mmap_mode="r") for writer in self._writers)
        found = Partitions.from_arrays(X, y[0] if y else None, rows_per_partition=step)
        self._finished = True
        return found

    def _writer(self, name: str, dtype: DTypeLike, width: tuple[int, ...] = ()) -> NpyWriter:
        """A new file."""
        writer = NpyWriter(os.path.join(self._folder, f"{name}.npy"), dtype, width)
        self._writers.append(writer)
        return writer

    def _discard(self) -> None:
        """Remove what was written."""
        for writer in self._writers:
            writer.discard()
