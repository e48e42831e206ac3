"""Parquet and Arrow IPC files, a few rows at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

from dpsvm_fast.exceptions import TableError
from dpsvm_fast.io._columns import Column
from dpsvm_fast.io._decode import RowDecoder
from dpsvm_fast.io._source import Progress, imported
from dpsvm_fast.io.schema import TableSchema

__all__ = ["ArrowSource", "ParquetSource"]

BLOCK_BYTES, BLOCK_ROWS = 2**23, 65536
# Pages of a column are read as they are needed: a row group need not fit into memory.
READ_BYTES = 2**16


class _Columnar:
    """What both formats share: columns have names and types, which are public."""

    sparse = False
    n_rows: int | None = None

    def __init__(self, path: str, schema: TableSchema, *, labelled: bool) -> None:
        self._pa = imported("pyarrow", "reading Parquet and Arrow files")
        self._path, self._file = path, os.path.basename(path)
        with self._reading():
            kinds = self._kinds()
        names = list(kinds.names)
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            shown = ", ".join(map(repr, twice))
            raise TableError(f"{self._file}: got columns named {shown} twice")
        self.schema = schema.of_names(names, labelled=labelled, file=self._file)
        self._target = str(self.schema.target) if labelled else None
        for column in self.schema.features:
            self._check_type(column, kinds.field(column.name).type)
        if self._target is not None:
            self._check_type(Column(self._target, categories=()), kinds.field(self._target).type)
        self._decoder = RowDecoder(self.schema, labelled=labelled, file=self._file)
        self._step = max(1, min(BLOCK_ROWS, BLOCK_BYTES // (4 * self.schema.n_features)))

    @property
    def _names(self) -> list[str]:
        """The columns that are read."""
        names = [column.name for column in self.schema.features]
        return names if self._target is None else [*names, self._target]

    def _kinds(self) -> Any:
        """Arrow's schema of the file."""
        raise NotImplementedError

    def _reading(self) -> _Translated:
        """Turn Arrow's errors, which may quote cells, into ours."""
        return _Translated(self._file, (self._pa.ArrowException, OSError))

    def _check_type(self, column: Column, kind: Any) -> None:
        """Refuse a type that is no number, or no category."""
        types = self._pa.types
        if types.is_dictionary(kind):
            kind = kind.value_type
        known = types.is_integer(kind) or types.is_boolean(kind) or types.is_null(kind)
        known = known or types.is_floating(kind) or types.is_decimal(kind)
        text = types.is_string(kind) or types.is_large_string(kind)
        text = text or getattr(types, "is_string_view", lambda _: False)(kind)
        if not (known or (text and column.bounds is None)):
            expected = "numbers" if column.bounds is not None else "text, integers or truth values"
            raise TableError(
                f"{self._file}: column {column.name!r} has type {kind}, expected {expected}; "
                "correct the file, or what the schema says of the column"
            )

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

    def _kinds(self) -> Any:
        parquet = imported("pyarrow.parquet", "reading Parquet files")
        with parquet.ParquetFile(self._path) as file:
            self.n_rows = file.metadata.num_rows
            return file.schema_arrow

    def blocks(self, progress: Progress) -> Iterator[tuple[Any, Any]]:
        """Rows and labels."""
        parquet = imported("pyarrow.parquet", "reading Parquet files")
        size, before = os.path.getsize(self._path), 0
        coded = [column.name for column in self.schema.features if column.bounds is None]
        with ExitStack() as stack:
            with self._reading():
                file = stack.enter_context(
                    parquet.ParquetFile(
                        self._path,
                        buffer_size=READ_BYTES,
                        read_dictionary=[*coded, *(self._names[len(self.schema.features) :])],
                    )
                )
                batches = file.iter_batches(self._step, columns=self._names)
            while True:
                with self._reading():
                    batch = next(batches, None)
                if batch is None:
                    break
                yield self._decoded(batch, before)
                before += batch.num_rows
                progress(size * before // max(before, self.n_rows or 0))
        if before != self.n_rows:
            raise TableError(f"{self._file}: the file is damaged or cut off")


class ArrowSource(_Columnar):
    """Rows of an Arrow IPC file, which Feather 2 is, or of a stored stream.

    Parameters
    ----------
    path : str
    schema : TableSchema
    labelled : bool
    """

    def _kinds(self) -> Any:
        with open(self._path, "rb") as start:
            if start.read(4) == b"FEA1":
                raise TableError(
                    f"{self._file}: got version 1 of Feather, expected version 2: write the file "
                    "again with pyarrow.feather.write_feather(table, path)"
                )
        with ExitStack() as stack:
            return self._opened(stack, None).schema

    def blocks(self, progress: Progress) -> Iterator[tuple[Any, Any]]:
        """Rows and labels."""
        size, before = os.path.getsize(self._path), 0
        with ExitStack() as stack:
            with self._reading():
                reader = self._opened(stack, self._names)
            for batch, done in self._batches(reader):
                with self._reading():
                    # Offsets of a damaged file may point anywhere.
                    batch.validate(full=True)
                for start in range(0, batch.num_rows, self._step):
                    part = batch.slice(start, self._step)
                    yield self._decoded(part, before)
                    before += part.num_rows
                progress(int(size * done))

    def _opened(self, stack: ExitStack, names: Sequence[str] | None) -> Any:
        """A reader of these columns, or of all."""
        source = stack.enter_context(self._pa.memory_map(self._path))
        options = None
        if names is not None:
            fields = self._opened(stack, None).schema.names
            options = self._pa.ipc.IpcReadOptions(included_fields=[fields.index(n) for n in names])
        try:
            return stack.enter_context(self._pa.ipc.open_file(source, options=options))
        except self._pa.ArrowInvalid:
            source.seek(0)
            return stack.enter_context(self._pa.ipc.open_stream(source, options=options))

    def _batches(self, reader: Any) -> Iterator[tuple[Any, float]]:
        """Record batches, and the part of the file that is read after each."""
        n_batches = getattr(reader, "num_record_batches", None)
        for place in range(2**62 if n_batches is None else n_batches):
            with self._reading():
                try:
                    known = n_batches is not None
                    batch = reader.get_batch(place) if known else reader.read_next_batch()
                except StopIteration:
                    return
            yield batch, 0.0 if n_batches is None else (place + 1) / n_batches


class _Translated:
    """A block in which errors of a library become one that names the file only."""

    def __init__(self, file: str, errors: tuple[type[BaseException], ...]) -> None:
        self._file, self._errors = file, errors

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and issubclass(kind, self._errors):
            raise TableError(f"{self._file}: the file is damaged or cut off") from None
