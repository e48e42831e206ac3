"""numpy's .npz files with X and y, a block of rows at a time.

Nothing that a file declares is believed: sizes of arrays have to be those of the members that hold
them, and rows have to fit into their share of the room before any of them is read.
"""

from __future__ import annotations

import io
import math
import os
import struct
import tempfile
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast.exceptions import TableError
from dpsvm_fast.io._columns import quoted
from dpsvm_fast.io._decode import RowDecoder
from dpsvm_fast.io._source import ROOM, Progress
from dpsvm_fast.io.schema import TableSchema

__all__ = ["NpzSource", "npz_width"]

# Parts of the room: rows that are read at a time, one row, and an array that is kept whole.
BLOCK_SHARE, ROW_SHARE, WHOLE_SHARE = 64, 16, 4
PIECE = 2**20
# Of a file's list of members, of an array's description, and of a label.
LARGEST_LIST, LONGEST_HEADER, WIDEST_LABEL = 2**20, 10_000, 4096
# numpy writes no others, and those of others are not unpacked a little at a time.
COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
# Kinds of numpy's types, dimensions, and both in words.
ARRAYS = {
    "X": ("biuf", 2, "numbers in two dimensions"),
    "y": ("biufUS", 1, "integers or text in one dimension"),
}
# What reading bytes that are no such file has been seen to raise.
DAMAGED = (
    AttributeError,
    EOFError,
    IndexError,
    KeyError,
    MemoryError,
    NotImplementedError,
    OSError,
    OverflowError,
    RuntimeError,
    SyntaxError,
    TypeError,
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
    room : int, default=ROOM
        Bytes that reading may take.
    """

    sparse = False

    def __init__(self, path: str, schema: TableSchema, *, labelled: bool, room: int = ROOM) -> None:
        self._path, self._file, self._room = path, os.path.basename(path), room
        with ExitStack() as stack:
            rows, labels = _members(path, stack, labelled=labelled)
            self.n_rows: int | None = rows.shape[0]
            self._row_bytes = max(1, rows.row_bytes)
            if labels is not None:
                if labels.shape != rows.shape[:1]:
                    raise TableError(f"{self._file}: y: expected one label for each row of X")
                if labels.row_bytes > WIDEST_LABEL:
                    raise TableError(
                        f"{self._file}: y: got labels of {labels.row_bytes} bytes each, expected "
                        f"at most {WIDEST_LABEL}"
                    )
                self._row_bytes += labels.row_bytes
            if self._row_bytes > room // ROW_SHARE:
                raise TableError(
                    f"{self._file}: X: a row takes {self._row_bytes} bytes, expected at most "
                    f"{room // ROW_SHARE}; write so wide a table as LIBSVM text, or give more "
                    "memory: max_memory= of open_table, --max-memory of a command"
                )
            self.schema = schema.of_width(rows.shape[1], file=self._file)
        self._decoder = RowDecoder(
            self.schema, labelled=labelled, file=self._file, room=room, by_place=True
        )

    def blocks(self, progress: Progress) -> Iterator[tuple[Any, Any]]:
        """Rows and labels."""
        size, n_rows = os.path.getsize(self._path), int(self.n_rows or 0)
        step = max(1, min(self._room // BLOCK_SHARE // self._row_bytes, self._decoder.max_rows))
        decoded = self._decoder.labels
        with ExitStack() as stack:
            rows, labels = _members(self._path, stack, labelled=decoded is not None)
            try:
                rows.unpack(self._room // WHOLE_SHARE, stack)
            except DAMAGED as error:
                if isinstance(error, OSError) and error.errno is not None:
                    # The disk is full: not the file's fault.
                    raise
                raise _damaged(self._file) from None
            for start in range(0, n_rows, step):
                count = min(step, n_rows - start)
                try:
                    block = rows.read(count)
                    given = None if labels is None else labels.read(count)
                except DAMAGED:
                    raise _damaged(self._file) from None
                X = self._decoder.matrix(block, start)
                yield X, None if decoded is None else decoded(given, start)
                progress(size * (start + count) // n_rows)


def npz_width(path: str) -> int:
    """Return the number of columns of X."""
    with ExitStack() as stack:
        return int(_members(path, stack, labelled=False)[0].shape[1])


def _members(path: str, stack: ExitStack, *, labelled: bool) -> tuple[_Member, _Member | None]:
    """X and y, opened."""
    file = os.path.basename(path)
    content = stack.enter_context(_File(path))
    try:
        archive = stack.enter_context(zipfile.ZipFile(content))
        found = {name.removesuffix(".npy"): name for name in archive.namelist()}
    except DAMAGED:
        raise _damaged(file) from None
    content.longest = -1
    wanted = ("X", "y") if labelled else ("X",)
    for name in wanted:
        if name not in found:
            has = ", ".join(map(quoted, list(found)[:10])) or "none"
            raise TableError(f"{file}: it has no array {name!r}; it has {has}")
    opened = []
    for name in wanted:
        kinds, rank, expected = ARRAYS[name]
        try:
            about = archive.getinfo(found[name])
            member = _Member(stack.enter_context(archive.open(about)), about)
        except DAMAGED:
            raise _damaged(file) from None
        if member.dtype.kind not in kinds or len(member.shape) != rank:
            raise TableError(
                f"{file}: {name}: got {len(member.shape)} dimensions of type "
                f"{str(member.dtype)[:40]}, expected {expected}"
            )
        opened.append(member)
    return opened[0], opened[1] if labelled else None


def _damaged(file: str) -> TableError:
    """Return an error for a file that cannot be read to its end."""
    return TableError(f"{file}: not an .npz file, or cut off or damaged; copy it again")


class _File(io.FileIO):
    """A file of which no more than ``longest`` is read at once, where that is not negative."""

    longest = LARGEST_LIST

    def read(self, size: int | None = -1, /) -> Any:
        """Read the next bytes."""
        if size is None or size < 0:
            size = max(0, os.fstat(self.fileno()).st_size - self.tell())
        if 0 <= self.longest < size:
            raise EOFError("the list of members is too long")
        return super().read(size)


class _Member:
    """An array in an archive, read from its start.

    Raises
    ------
    Exception
        One of ``DAMAGED``.
    """

    def __init__(self, stream: Any, about: zipfile.ZipInfo) -> None:
        if about.compress_type not in COMPRESSIONS:
            raise ValueError("no compression of numpy's")
        version = np.lib.format.read_magic(stream)
        size = stream.read(2 if version == (1, 0) else 4)
        length = int.from_bytes(size, "little")
        if length > LONGEST_HEADER:
            raise ValueError("no header is so long")
        header = io.BytesIO(size + stream.read(length))
        read = np.lib.format.read_array_header_1_0
        if version != (1, 0):
            read = np.lib.format.read_array_header_2_0
        self.shape, columns_first, self.dtype = read(header)
        self.row_bytes = math.prod(self.shape[1:]) * self.dtype.itemsize
        n_bytes = math.prod(self.shape) * self.dtype.itemsize
        differs = stream.tell() + n_bytes != about.file_size and not self.dtype.hasobject
        if differs or min(self.shape, default=0) < 0:
            raise ValueError("the size is not the one that is declared")
        self._stream, self._n_bytes = stream, n_bytes
        # Where rows are scattered over the whole array: the array, or a file that holds it.
        self._columns_first = columns_first and len(self.shape) == 2 and min(self.shape) > 1
        self._whole: NDArray[Any] | None = None
        self._unpacked: Any = None
        self._at = 0

    def unpack(self, room: int, stack: ExitStack) -> None:
        """Make an array in Fortran order one of which rows can be read."""
        if not self._columns_first:
            return
        if self._n_bytes <= room:
            self._whole = self._take(self.shape[::-1]).T
            return
        self._unpacked = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
        left = self._n_bytes
        while left:
            piece = self._bytes(min(PIECE, left))
            self._unpacked.write(piece)
            left -= len(piece)

    def read(self, count: int) -> NDArray[Any]:
        """Read the next rows."""
        start, self._at = self._at, self._at + count
        if self._whole is not None:
            return self._whole[start : self._at]
        if self._unpacked is None:
            return self._take((count, *self.shape[1:]))
        n_rows, n_columns = self.shape
        columns = np.empty((n_columns, count), dtype=self.dtype)
        for j, column in enumerate(columns):
            self._unpacked.seek((j * n_rows + start) * self.dtype.itemsize)
            self._unpacked.readinto(column.view(np.uint8).data)
        return columns.T

    def _take(self, shape: tuple[int, ...]) -> NDArray[Any]:
        """The next numbers, or texts of characters that there are."""
        content = self._bytes(math.prod(shape) * self.dtype.itemsize)
        if self.dtype.kind == "U" and self.dtype.itemsize:
            order = self.dtype.byteorder if self.dtype.byteorder in "<>" else "="
            if np.frombuffer(content, np.dtype("u4").newbyteorder(order)).max(initial=0) > 0x10FFFF:
                raise ValueError("no character has this number")
        return (
            np.frombuffer(content, dtype=self.dtype).reshape(shape)
            if self.dtype.itemsize
            else (np.zeros(shape, dtype=self.dtype))
        )

    def _bytes(self, n_bytes: int) -> bytes:
        """The next bytes."""
        content: bytes = self._stream.read(n_bytes)
        if len(content) != n_bytes:
            raise EOFError
        return content
