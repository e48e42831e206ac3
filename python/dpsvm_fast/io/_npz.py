"""numpy's .npz files with X and y, a block of rows at a time."""

from __future__ import annotations

import os
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast.exceptions import TableError
from dpsvm_fast.io._decode import RowDecoder
from dpsvm_fast.io._source import Progress
from dpsvm_fast.io.schema import TableSchema

__all__ = ["NpzSource", "npz_width"]

BLOCK_BYTES = 2**22
# Kinds of numpy's types, dimensions, and both in words.
ARRAYS = {
    "X": ("biuf", 2, "numbers in two dimensions"),
    "y": ("biufUS", 1, "integers or text in one dimension"),
}
# What reading bytes that are no such file has been seen to raise.
DAMAGED = (
    EOFError,
    KeyError,
    NotImplementedError,
    OSError,
    OverflowError,
    RuntimeError,
    SyntaxError,
    ValueError,
    struct.error,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)


class NpzSource:
    """Rows ``X`` of shape (n_samples, n_features), and labels ``y``.

    Parameters
    ----------
    path : str
    schema : TableSchema
        Its columns are those of X, in order.
    labelled : bool
    """

    sparse = False

    def __init__(self, path: str, schema: TableSchema, *, labelled: bool) -> None:
        self._path, self._file = path, os.path.basename(path)
        with ExitStack() as stack:
            rows, labels = _members(path, stack, labelled=labelled)
            self.n_rows: int | None = rows.shape[0]
            self._row_bytes = max(1, rows.shape[1] * rows.dtype.itemsize)
            if labels is not None and labels.shape != rows.shape[:1]:
                raise TableError(f"{self._file}: y: expected one label for each row of X")
            self.schema = schema.of_width(rows.shape[1], file=self._file)
        self._decoder = RowDecoder(self.schema, labelled=labelled, file=self._file)

    def blocks(self, progress: Progress) -> Iterator[tuple[Any, Any]]:
        """Rows and labels."""
        size, n_rows = os.path.getsize(self._path), int(self.n_rows or 0)
        step = max(1, BLOCK_BYTES // self._row_bytes)
        with ExitStack() as stack:
            rows, labels = _members(self._path, stack, labelled=self._decoder.labels is not None)
            for start in range(0, n_rows, step):
                count = min(step, n_rows - start)
                try:
                    block = rows.read(count)
                    given = None if labels is None else labels.read(count)
                except DAMAGED:
                    raise _damaged(self._file) from None
                X = self._decoder.matrix(block, start)
                decoded = self._decoder.labels
                yield X, None if decoded is None else decoded(given, start)
                progress(size * (start + count) // n_rows)


def npz_width(path: str) -> int:
    """Return the number of columns of X."""
    with ExitStack() as stack:
        return int(_members(path, stack, labelled=False)[0].shape[1])


def _members(path: str, stack: ExitStack, *, labelled: bool) -> tuple[_Member, _Member | None]:
    """X and y, opened."""
    file = os.path.basename(path)
    try:
        archive = stack.enter_context(zipfile.ZipFile(path))
        found = {name.removesuffix(".npy"): name for name in archive.namelist()}
    except DAMAGED:
        raise _damaged(file) from None
    wanted = ("X", "y") if labelled else ("X",)
    for name in wanted:
        if name not in found:
            has = ", ".join(map(repr, found)) or "none"
            raise TableError(f"{file}: it has no array {name!r}; it has {has}")
    opened = []
    for name in wanted:
        kinds, rank, expected = ARRAYS[name]
        try:
            member = _Member(stack.enter_context(archive.open(found[name])))
        except DAMAGED:
            raise _damaged(file) from None
        if member.dtype.kind not in kinds or len(member.shape) != rank:
            raise TableError(
                f"{file}: {name}: got {len(member.shape)} dimensions of type "
                f"{member.dtype}, expected {expected}"
            )
        opened.append(member)
    return opened[0], opened[1] if labelled else None


def _damaged(file: str) -> TableError:
    """Return an error for a file that cannot be read to its end."""
    return TableError(f"{file}: not an .npz file, or cut off or damaged; copy it again")


class _Member:
    """An array in an archive, read from its start."""

    def __init__(self, stream: Any) -> None:
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0
        if version != (1, 0):
            read = np.lib.format.read_array_header_2_0
        self.shape, columns_first, self.dtype = read(stream)
        self._stream = stream
        self._whole: NDArray[Any] | None = None
        self._at = 0
        if min(self.shape, default=0) < 0:
            raise ValueError("no size is negative")
        self._columns_first = columns_first and len(self.shape) == 2 and min(self.shape) > 1

    def read(self, count: int) -> NDArray[Any]:
        """Read the next rows."""
        if self._columns_first:
            # Rows are scattered over the whole array.
            if self._whole is None:
                self._whole = self._take(self.shape[::-1]).T
            self._at += count
            return self._whole[self._at - count : self._at]
        return self._take((count, *self.shape[1:]))

    def _take(self, shape: tuple[int, ...]) -> NDArray[Any]:
        """The next numbers."""
        n_bytes = int(np.prod(shape, dtype=np.int64)) * self.dtype.itemsize
        content = self._stream.read(n_bytes)
        if len(content) != n_bytes:
            raise EOFError
        return np.frombuffer(content, dtype=self.dtype).reshape(shape)
