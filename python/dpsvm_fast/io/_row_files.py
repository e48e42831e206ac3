"""Decoded rows in .npy files, of which only the names are passed on."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike
from scipy import sparse

from dpsvm_fast import _validation as check
from dpsvm_fast.distributed import Partitions
from dpsvm_fast.distributed._loaders import FileRows, Pair
from dpsvm_fast.exceptions import TableError

if TYPE_CHECKING:
    from types import TracebackType

    from dpsvm_fast.io.tables import Table

__all__ = ["RowFiles"]

HEADER_BYTES = 128
CSR_FILES = {"data": np.float32, "indices": np.int32, "indptr": np.int64}
MOST_ROWS, MOST_BYTES, MOST_SPARSE_ROWS = 65536, 2**26, 16384


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


@dataclass(frozen=True, eq=False, repr=False)
class CsrRows:
    """Some rows of a CSR matrix whose three arrays are in files, opened anew by each call.

    Parameters
    ----------
    data, indices : FileRows or None
        Of the whole matrix; None where it has no entries.
    indptr : FileRows
        Of these rows, one more than there are.
    n_features : int
    """

    data: FileRows | None
    indices: FileRows | None
    indptr: FileRows
    n_features: int

    def __call__(self) -> Any:
        """The rows, in memory."""
        offsets = self.indptr()
        shape = (len(offsets) - 1, self.n_features)
        if self.data is None or self.indices is None:
            return sparse.csr_matrix(shape, dtype=np.float32)
        first, last = int(offsets[0]), int(offsets[-1])
        data, indices = (np.array(one.part(first, last)()) for one in (self.data, self.indices))
        return sparse.csr_matrix((data, indices, offsets - first), shape=shape)


class RowFiles:
    """The files of one table, removed if anything fails before they are complete.

    Parameters
    ----------
    folder : str or path
    table : Table
    """

    def __init__(self, folder: str | os.PathLike[str], table: Table) -> None:
        self._folder, self._table = os.path.abspath(os.fspath(folder)), table
        self._writers: dict[str, NpyWriter] = {}
        self._n_rows = 0
        self._finished = False

    def __enter__(self) -> RowFiles:
        table = self._table
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        try:
            if table.sparse:
                for name, dtype in CSR_FILES.items():
                    self._add(name, dtype)
                self._writers["indptr"].append(np.zeros(1, dtype=np.int64))
            else:
                self._add("X", np.float32, (table.n_features,))
            if table.labelled:
                self._add("y", np.array(table.schema.classes).dtype)
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
        writers = self._writers
        if self._table.sparse:
            writers["indptr"].append(X.indptr[1:] + np.int64(writers["data"].n_rows))
            writers["indices"].append(X.indices)
            writers["data"].append(X.data)
        else:
            writers["X"].append(X)
        if y is not None:
            writers["y"].append(y)
        self._n_rows += X.shape[0]

    def partitions(self, rows_per_partition: int | None) -> Partitions:
        """Finish the files and open them as partitions."""
        if not self._n_rows:
            raise TableError(f"{os.path.basename(self._table.path)}: the table has no rows")
        step = MOST_SPARSE_ROWS
        if not self._table.sparse:
            step = max(1, min(MOST_ROWS, MOST_BYTES // (4 * self._table.n_features)))
        if rows_per_partition is not None:
            step = check.check_integer("rows_per_partition", rows_per_partition, 1)
        for writer in self._writers.values():
            writer.finish()
        maps = {name: np.load(one.path, mmap_mode="r") for name, one in self._writers.items()}
        if self._table.sparse:
            found = self._of_csr(maps, step)
        else:
            found = Partitions.from_arrays(maps["X"], maps.get("y"), rows_per_partition=step)
        self._finished = True
        return found

    def _of_csr(self, maps: dict[str, Any], step: int) -> Partitions:
        """Partitions of CSR matrices."""
        n_features, n_rows = self._table.n_features, self._n_rows
        files = {name: FileRows.of(one) if one.size else None for name, one in maps.items()}
        loaders = []
        for start in range(0, n_rows, step):
            stop = min(start + step, n_rows)
            offsets, labels = files["indptr"], files.get("y")
            assert offsets is not None
            rows = CsrRows(
                files["data"], files["indices"], offsets.part(start, stop + 1), n_features
            )
            loaders.append(Pair(rows, None if labels is None else labels.part(start, stop)))
        return Partitions.from_loaders(
            loaders,
            n_features=n_features,
            n_rows=n_rows,
            sparse=True,
            labelled=self._table.labelled,
        )

    def _add(self, name: str, dtype: DTypeLike, width: tuple[int, ...] = ()) -> None:
        """A new file."""
        path = os.path.join(self._folder, f"{name}.npy")
        self._writers[name] = NpyWriter(path, dtype, width)

    def _discard(self) -> None:
        """Remove what was written."""
        for writer in self._writers.values():
            writer.discard()
