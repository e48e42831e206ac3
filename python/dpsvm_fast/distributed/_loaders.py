"""Loaders of partitions: each returns (X, y), or (X, None), of rows that fit into memory.

A loader can be pickled. It opens what it needs when it is called and holds it no longer: a worker
that has called it keeps neither files nor mappings. None of them shows rows in its ``repr``, which
a cluster may write into a log.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

__all__ = [
    "ArrowBatch",
    "DaskBlock",
    "FileRows",
    "MappedRows",
    "MemoryRows",
    "Pair",
    "RowGroup",
    "TableRows",
]


@dataclass(frozen=True, eq=False, repr=False)
class MemoryRows:
    """Some rows of an array or CSR matrix in memory; only they are pickled."""

    rows: Any
    start: int
    stop: int

    @property
    def nbytes(self) -> int:
        """About what a pickle holds."""
        share = (self.stop - self.start) / max(1, self.rows.shape[0])
        if sparse.issparse(self.rows):
            return int((self.rows.data.nbytes + self.rows.indices.nbytes) * share)
        return int(self.rows.nbytes * share)

    def __call__(self) -> Any:
        """The rows, as a view where they are an array."""
        return self.rows[self.start : self.stop]

    def __reduce__(self) -> tuple[Any, ...]:
        """Without the other rows."""
        rows = self()
        if not sparse.issparse(rows):
            rows = np.ascontiguousarray(rows)
        return type(self), (rows, 0, self.stop - self.start)


@dataclass(frozen=True, eq=False, repr=False)
class FileRows:
    """Some rows of a memory map, mapped anew by each call.

    Parameters
    ----------
    path : str
    dtype : dtype
    shape : tuple of int
    strides : tuple of int
    offset : int
        Of the first number, in bytes from the start of the file.
    """

    path: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    @classmethod
    def of(cls, rows: np.memmap[Any, Any]) -> FileRows | None:
        """For an array that is a view of a mapped file; None where the file has no name."""
        mapped, path = getattr(rows, "_mmap", None), getattr(rows, "filename", None)
        if mapped is None or path is None or any(stride < 0 for stride in rows.strides):
            return None
        # A view of a view remembers the offset of the whole map only: addresses tell the rest.
        first = np.frombuffer(mapped, dtype=np.uint8).__array_interface__["data"][0]
        start = rows.offset - rows.offset % mmap.ALLOCATIONGRANULARITY
        offset = start + rows.__array_interface__["data"][0] - first
        return cls(str(path), rows.dtype, rows.shape, rows.strides, int(offset))

    def part(self, start: int, stop: int) -> FileRows:
        """Some of these rows."""
        shape = (stop - start, *self.shape[1:])
        offset = self.offset + start * self.strides[0]
        return FileRows(self.path, self.dtype, shape, self.strides, offset)

    def __call__(self) -> NDArray[Any]:
        """The rows, as a view of a map that ends with them."""
        with open(self.path, "rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return np.ndarray(
            self.shape, self.dtype, buffer=mapped, offset=self.offset, strides=self.strides
        )


@dataclass(frozen=True, eq=False, repr=False)
class Pair:
    """Rows and labels of two loaders."""

    rows: Any
    labels: Any

    @property
    def nbytes(self) -> int:
        """About what a pickle holds."""
        return getattr(self.rows, "nbytes", 0) + getattr(self.labels, "nbytes", 0)

    def __call__(self) -> tuple[Any, Any]:
        """Rows and labels."""
        return self.rows(), None if self.labels is None else self.labels()


@dataclass(frozen=True, eq=False, repr=False)
class Columns:
    """Which columns of a table are features, and which one is the label."""

    features: tuple[str, ...]
    label: str | None
    dtype: np.dtype[Any]

    @property
    def names(self) -> list[str]:
        """All that have to be read."""
        return [*self.features, *(() if self.label is None else (self.label,))]

    def of(self, table: Any) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """Rows and labels of an Arrow table or batch; missing values become NaN."""
        X = np.empty((table.num_rows, len(self.features)), dtype=self.dtype)
        for j, name in enumerate(self.features):
            X[:, j] = table.column(name).to_numpy(zero_copy_only=False)
        if self.label is None:
            return X, None
        labels = table.column(self.label)
        if hasattr(labels, "combine_chunks"):
            labels = labels.combine_chunks()
        if hasattr(labels, "dictionary_decode"):
            labels = labels.dictionary_decode()
        return X, labels.to_numpy(zero_copy_only=False)


@dataclass(frozen=True, eq=False, repr=False)
class RowGroup:
    """A row group of a Parquet file."""

    path: str
    group: int
    columns: Columns

    def __call__(self) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """Rows and labels."""
        from pyarrow import parquet

        with parquet.ParquetFile(self.path) as file:
            table = file.read_row_group(self.group, columns=self.columns.names, use_threads=False)
        return self.columns.of(table)


@dataclass(frozen=True, eq=False, repr=False)
class ArrowBatch:
    """A record batch of an Arrow file, mapped anew by each call."""

    path: str
    batch: int
    columns: Columns

    def __call__(self) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """Rows and labels."""
        import pyarrow as pa

        with pa.memory_map(self.path) as source, pa.ipc.open_file(source) as file:
            X, y = self.columns.of(file.get_batch(self.batch))
            # Labels may still be a view of the file.
            return X, None if y is None else np.array(y)


@dataclass(frozen=True, eq=False, repr=False)
class TableRows:
    """Some rows of an Arrow table in memory; only they are pickled."""

    table: Any
    columns: Columns

    @property
    def nbytes(self) -> int:
        """About what a pickle holds."""
        return int(self.table.nbytes)

    def __call__(self) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """Rows and labels."""
        return self.columns.of(self.table)

    def __reduce__(self) -> tuple[Any, ...]:
        """Without the other rows of its table."""
        import pyarrow as pa

        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.table.schema) as writer:
            writer.write_table(self.table)
        return _table_rows, (sink.getvalue().to_pybytes(), self.columns)


def _table_rows(stream: bytes, columns: Columns) -> TableRows:
    """A pickled ``TableRows`` again."""
    import pyarrow as pa

    with pa.ipc.open_stream(stream) as reader:
        return TableRows(reader.read_all(), columns)


@dataclass(frozen=True, eq=False, repr=False)
class DaskBlock:
    """A block of a Dask collection, computed where it is called, in that thread."""

    rows: Any
    labels: Any

    def __call__(self) -> tuple[Any, Any]:
        """Rows and labels."""
        import dask

        wanted = [self.rows] if self.labels is None else [self.rows, self.labels]
        X, *y = dask.compute(*wanted, scheduler="synchronous")
        return X, y[0] if y else None


@dataclass(frozen=True, eq=False, repr=False)
class MappedRows:
    """What a loader returns, with its rows under a fitted transformer."""

    loader: Any
    transformer: Any

    @property
    def nbytes(self) -> int:
        """About what a pickle holds, without the transformer."""
        return getattr(self.loader, "nbytes", 0)

    def __call__(self) -> Any:
        """Rows and labels."""
        loaded = self.loader()
        X, y = loaded if isinstance(loaded, tuple) and len(loaded) == 2 else (loaded, None)
        if np.shape(X)[0] > 0:
            return self.transformer.transform(X), y
        # Transformers refuse to transform nothing.
        return self._nothing(X), y

    def _nothing(self, X: Any) -> Any:
        """No rows of as many columns as the transformer returns."""
        row = np.zeros((1, X.shape[1]))
        return self.transformer.transform(sparse.csr_matrix(row) if sparse.issparse(X) else row)[:0]
