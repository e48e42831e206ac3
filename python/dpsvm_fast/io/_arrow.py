"""Parquet and Arrow IPC files, a few rows at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

from dpsvm_fast._optional import optional_module
from dpsvm_fast.exceptions import TableError
from dpsvm_fast.io._arrow_types import check_type, column_types, reading
from dpsvm_fast.io._columns import Column
from dpsvm_fast.io._decode import RowDecoder
from dpsvm_fast.io._source import ROOM, Progress
from dpsvm_fast.io.schema import TableSchema

__all__ = ["ArrowSource", "ParquetSource", "arrow_types", "parquet_types"]

BLOCK_ROWS = 65536
# Pages of a column are read as they are needed: a row group need not fit into memory.
READ_BYTES = 2**16


class _Columnar:
    """What both formats share: columns have names and types, which are public."""

    sparse = False
    n_rows: int | None = None

    def __init__(self, path: str, schema: TableSchema, *, labelled: bool, room: int = ROOM) -> None:
        self._path, self._file, self._room = path, os.path.basename(path), room
        types = self._types()
        self.schema = schema.of_names(list(types), labelled=labelled, file=self._file)
        self._target = str(self.schema.target) if labelled else None
        for column in self.schema.features:
            check_type(self._file, column, types[column.name])
        if self._target is not None:
            check_type(self._file, Column(self._target, categories=()), types[self._target])
        self._decoder = RowDecoder(self.schema, labelled=labelled, file=self._file, room=room)
        self._step = min(BLOCK_ROWS, self._decoder.max_rows)

    @property
    def _names(self) -> list[str]:
        """The columns that are read."""
        names = [column.name for column in self.schema.features]
        return names if self._target is None else [*names, self._target]

    def _types(self) -> dict[str, Any]:
        """Types by name of column."""
        raise NotImplementedError

    def _decoded(self, batch: Any, before: int) -> tuple[Any, Any]:
        """Rows and labels."""
        places = {name: place for place, name in enumerate(batch.schema.names)}
        X = self._decoder.rows(lambda name: batch.column(places[name]), batch.num_rows, before)
        labels = self._decoder.labels
        if labels is None:
            return X, None
        return X, labels(batch.column(places[str(self._target)]), before)


class ParquetSource(_Columnar):
    """Rows of a Parquet file.

    Parameters
    ----------
    path : str
    schema : TableSchema
    labelled : bool
    """

    def _types(self) -> dict[str, Any]:
        types, self.n_rows = parquet_types(self._path)
        return types

    def blocks(self, progress: Progress) -> Iterator[tuple[Any, Any]]:
        """Rows and labels."""
        parquet = optional_module("pyarrow.parquet", "reading Parquet files", "arrow")
        size, before = os.path.getsize(self._path), 0
        coded = [column.name for column in self.schema.features if column.bounds is None]
        with ExitStack() as stack:
            with reading(self._file):
                file = stack.enter_context(
                    parquet.ParquetFile(
                        self._path,
                        buffer_size=READ_BYTES,
                        read_dictionary=[*coded, *(self._names[len(self.schema.features) :])],
                    )
                )
                batches = file.iter_batches(self._step, columns=self._names)
            while True:
                with reading(self._file):
                    batch = next(batches, None)
                    if batch is not None:
                        batch.validate(full=True)
                if batch is None:
                    break
                yield self._decoded(batch, before)
                before += batch.num_rows
                progress(size * before // max(before, self.n_rows or 0))
        if before != self.n_rows:
            raise TableError(f"{self._file}: the file is damaged or cut off; copy it again")


class ArrowSource(_Columnar):
    """Rows of an Arrow IPC file, which Feather 2 is, or of a stored stream.

    Parameters
    ----------
    path : str
    schema : TableSchema
    labelled : bool
    """

    def _types(self) -> dict[str, Any]:
        return arrow_types(self._path)

    def blocks(self, progress: Progress) -> Iterator[tuple[Any, Any]]:
        """Rows and labels."""
        size, before = os.path.getsize(self._path), 0
        with ExitStack() as stack:
            with reading(self._file):
                reader = _opened(self._path, stack, self._names)
            for batch, done in self._batches(reader):
                with reading(self._file):
                    # Offsets and places of a damaged file may point anywhere.
                    batch.validate(full=True)
                for start in range(0, batch.num_rows, self._step):
                    part = batch.slice(start, self._step)
                    yield self._decoded(part, before)
                    before += part.num_rows
                progress(int(size * done))

    def _batches(self, reader: Any) -> Iterator[tuple[Any, float]]:
        """Record batches, and the part of the file that is read after each."""
        n_batches = getattr(reader, "num_record_batches", None)
        for place in range(2**62 if n_batches is None else n_batches):
            with reading(self._file):
                try:
                    known = n_batches is not None
                    batch = reader.get_batch(place) if known else reader.read_next_batch()
                except StopIteration:
                    return
            yield batch, 0.0 if n_batches is None else (place + 1) / n_batches


def parquet_types(path: str) -> tuple[dict[str, Any], int]:
    """Return types by name of column, and the number of rows."""
    parquet = optional_module("pyarrow.parquet", "reading Parquet files", "arrow")
    file = os.path.basename(path)
    with reading(file), parquet.ParquetFile(path) as opened:
        return column_types(file, opened.schema_arrow), opened.metadata.num_rows


def arrow_types(path: str) -> dict[str, Any]:
    """Return types by name of column."""
    file = os.path.basename(path)
    optional_module("pyarrow", "reading Arrow files", "arrow")
    with open(path, "rb") as start:
        if start.read(4) == b"FEA1":
            raise TableError(
                f"{file}: got version 1 of Feather, expected version 2: write the file again with "
                "pyarrow.feather.write_feather(table, path)"
            )
    with reading(file), ExitStack() as stack:
        return column_types(file, _opened(path, stack, None).schema)


def _opened(path: str, stack: ExitStack, names: Sequence[str] | None) -> Any:
    """A reader of these columns, or of all, of a file or of a stored stream."""
    import pyarrow as pa

    source = stack.enter_context(pa.memory_map(path))
    options = None
    if names is not None:
        fields = _opened(path, stack, None).schema.names
        options = pa.ipc.IpcReadOptions(included_fields=[fields.index(name) for name in names])
    try:
        return stack.enter_context(pa.ipc.open_file(source, options=options))
    except pa.ArrowInvalid:
        source.seek(0)
        return stack.enter_context(pa.ipc.open_stream(source, options=options))
