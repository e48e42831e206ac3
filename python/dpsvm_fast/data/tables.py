"""Tables in files, with rows as blocks, arrays or memory maps."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import sparse

from dpsvm_fast import validation as check
from dpsvm_fast.data import Partitions, readers
from dpsvm_fast.data.partitions import FileRows, SomeRows, parts_of, together
from dpsvm_fast.data.schema import (
    CLASSES,
    HINTS,
    NO_NAMES,
    TableSchema,
    TextFormat,
    columns_in_words,
    may_be_a_row,
    other_delimiter,
    template_lines,
    toml_string,
)
from dpsvm_fast.exceptions import InvalidParameterError, TableError
from dpsvm_fast.files import ROOM

# A schema file to be filled in.


def template(
    path: str | os.PathLike[str], *, target: str | None, person: str | None, format: str | None
) -> str:
    """Implement ``TableSchema.template``."""
    path = check.check_path("path", path)
    target, person = check.check_column("target", target), check.check_column("person", person)
    kind = table_format(path, format)
    if kind in ("npz", "libsvm"):
        # Such files do not name their columns.
        width = readers.npz_width(path) if kind == "npz" else 0
        lines = (CLASSES, f"n_features = {width}", "", "[all_other_columns]", HINTS[-1])
        return "\n".join((*lines, "bounds = []\n"))
    mark = ""
    if kind in ("csv", "tsv"):
        names = readers.read_header(path, TextFormat(), "," if kind == "csv" else "\t")
        if mark := other_delimiter(names):
            names = readers.read_header(path, TextFormat(), mark)
        if may_be_a_row(names):
            # Nor are they written to a file.
            raise TableError(f"{os.path.basename(path)}: it has {NO_NAMES}")
        columns = dict.fromkeys(names, "bounds = []")
    else:
        types = readers.parquet_types(path)[0] if kind == "parquet" else readers.arrow_types(path)
        columns = {name: readers.hint(one) for name, one in types.items()}
    for role, name in (("target", target), ("person", person)):
        if name is not None and name not in columns:
            raise TableError(
                f"{os.path.basename(path)}: {role}: no column {name!r}; it has "
                f"{columns_in_words(list(columns))}"
            )
    text = template_lines(target, columns, person=person)
    return text + (f"\n[csv]\ndelimiter = {toml_string(mark)}\n" if mark else "")


# Decoded rows in .npy files, of which only the names are passed on.


CSR_FILES = {"data": np.float32, "indices": np.int32, "indptr": np.int64}

MAX_ROWS, MAX_BYTES, MAX_SPARSE_ROWS = 65536, 2**26, 16384


class NpyWriter:
    """Writer of an ``.npy`` file whose first dimension is known only at the end.

    Parameters
    ----------
    path : str
        Path of a new file.
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
        self._write_header()
        self._start = self._file.tell()

    def append(self, rows: Any) -> None:
        """Append rows."""
        self.place(self.n_rows, rows)

    def place(self, row: int, rows: Any) -> None:
        """Write rows at a given position."""
        rows = np.ascontiguousarray(rows, dtype=self._dtype)
        self._file.seek(self._start + row * self._dtype.itemsize * math.prod(self._width))
        self._file.write(rows.data if rows.size else b"")
        self.n_rows = max(self.n_rows, row + len(rows))

    def finish(self) -> None:
        """Write the number of rows and close the file."""
        self._file.seek(0)
        self._write_header()
        self._file.close()

    def discard(self) -> None:
        """Close and remove the file."""
        self._file.close()
        os.unlink(self.path)

    def _write_header(self) -> None:
        """Write NumPy's header, padded to a fixed length for any number of rows."""
        shape = (self.n_rows, *self._width)
        facts = {"descr": self._dtype.str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self._file, facts)


def csr_rows(
    data: FileRows | None, indices: FileRows | None, indptr: SomeRows, n_features: int
) -> Any:
    """Return rows of a CSR matrix in three files, which are opened again.

    Parameters
    ----------
    data, indices : FileRows or None
        Entries of the whole matrix; None if it has no entries.
    indptr : SomeRows
        Row pointers, one more than rows.
    n_features : int
    """
    offsets = indptr()
    shape = (len(offsets) - 1, n_features)
    if data is None or indices is None:
        return sparse.csr_matrix(shape, dtype=np.float32)
    first, last = int(offsets[0]), int(offsets[-1])
    entries, columns = (np.array(one()[first:last]) for one in (data, indices))
    return sparse.csr_matrix((entries, columns, offsets - first), shape=shape)


def _csr_parts(maps: dict[str, Any], n_features: int, cuts: list[int]) -> list[Any]:
    """Return a loader for each part of a CSR matrix whose arrays are memory maps."""
    files = {name: FileRows.of(maps[name]) if maps[name].size else None for name in CSR_FILES}
    parts = [SomeRows(files["indptr"], slice(start, stop + 1)) for start, stop in pairwise(cuts)]
    return [
        partial(csr_rows, files["data"], files["indices"], offsets, n_features) for offsets in parts
    ]


MIN_MEMORY, MAX_MEMORY = 2**22, 2**60


class TsvSource(readers.CsvSource):
    """Source of a tab-separated file."""

    delimiter = "\t"


SOURCES: dict[str, type[readers.Source]] = {
    "csv": readers.CsvSource,
    "tsv": TsvSource,
    "parquet": readers.ParquetSource,
    "arrow": readers.ArrowSource,
    "npz": readers.NpzSource,
    "libsvm": readers.LibsvmSource,
}
FORMATS = tuple(SOURCES)

SUFFIXES = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".npz": "npz",
    ".svm": "libsvm",
    ".libsvm": "libsvm",
    ".txt": "libsvm",
}

# Largest number of values to allocate before they are read.
MAX_EXPECTED = 2**24


def _by_persons(paths: dict[str, str], step: int) -> list[int]:
    """Rewrite the files so that each person's rows are in one part; return where parts begin.

    The digest determines the part; within a part rows keep the order of the file. One block of rows
    is in memory at a time.
    """
    maps = {name: np.load(path, mmap_mode="r") for name, path in paths.items()}
    n_rows = len(maps["groups"])
    n_parts, blocks = -(-n_rows // step), range(0, n_rows, step)

    def parts(start: int) -> NDArray[np.int64]:
        digests = np.array(maps["groups"][start : start + step]).view(np.uint64)[::2]
        return (digests % n_parts).astype(np.int64)

    sizes = sum(np.bincount(parts(start), minlength=n_parts) for start in blocks)
    cuts = np.append(0, np.cumsum(sizes))
    moved = cuts[:-1].copy()
    with ExitStack() as undo:
        writers = {}
        for name, one in maps.items():
            writers[name] = NpyWriter(f"{paths[name]}.sorted", one.dtype, one.shape[1:])
            undo.callback(writers[name].discard)
        for start in blocks:
            own = parts(start)
            for part in np.unique(own).tolist():
                rows = np.flatnonzero(own == part)
                for name, writer in writers.items():
                    writer.place(int(moved[part]), maps[name][start : start + step][rows])
                moved[part] += rows.size
        for name, writer in writers.items():
            writer.finish()
            maps[name]._mmap.close()
            os.replace(writer.path, paths[name])
        undo.pop_all()
    return list(map(int, cuts))


class Table:
    """File whose header fits a schema, returned by :func:`open_table`.

    Every pass over the rows reads the file again, in bounded memory.

    Parameters
    ----------
    format : str
    source : Source

    Attributes
    ----------
    schema : TableSchema
        Schema with every column named; save it with a model.
    n_bytes_total : int
        Size of the file.
    n_rows : int or None
        Number of rows, if the file states it.
    n_features : int
    sparse : bool
        Whether rows are CSR matrices.
    labelled : bool
    owners : tuple of str
        Which of "groups" and "sample_weight" are read in addition to rows and labels.
    """

    def __init__(self, format: str, source: readers.Source) -> None:
        self.path, self.format, self._source = source.path, format, source
        self.schema, self.labelled = source.schema, source.labelled
        self.owners = (
            tuple(readers.OWNERS[role] for role in self.schema.owners) if source.owned else ()
        )
        self.sparse, self.n_rows = source.sparse, source.n_rows
        self.n_features = self.schema.n_features
        self.n_bytes_total = os.path.getsize(self.path)

    def __repr__(self) -> str:
        kind = "sparse" if self.sparse else "dense"
        return f"Table({os.path.basename(self.path)}: {kind} rows of {self.n_features} features)"

    def batches(self, on_bytes: readers.Progress | None = None) -> Iterator[tuple[Any, ...]]:
        """Yield rows in order, one block at a time.

        Parameters
        ----------
        on_bytes : callable or None, default=None
            Called with the number of bytes read so far, and at the end with the total.

        Yields
        ------
        X : ndarray or CSR matrix of shape (n_rows, n_features)
            float32; arrays are C-ordered.
        y : ndarray of shape (n_rows,) or None
            Labels with the type of the declared classes.
        owners : dict of ndarrays of shape (n_rows,)
            With ``open_table(..., owners=True)``: "groups" and "sample_weight", if the schema names
            their columns, for ``fit(X, y, **owners)``. Persons are digests under a key of this
            table.

        Raises
        ------
        TableError
            A cell violates the schema, or the file is damaged. Earlier blocks were valid.
        """
        for X, y, owners in self._blocks(on_bytes):
            yield (X, y, owners) if owners else (X, y)

    def _blocks(self, on_bytes: readers.Progress | None) -> Iterator[tuple[Any, ...]]:
        """Yield rows, labels and owners, which may be none; count bytes and rows."""
        done = n_rows = 0

        def progress(n_bytes: int) -> None:
            nonlocal done
            if on_bytes is not None and n_bytes > done:
                done = n_bytes
                on_bytes(done)

        try:
            for block in self._source.blocks(progress):
                yield block
                n_rows += block[0].shape[0]
        except readers.RowFault as fault:
            raise fault.error(os.path.basename(self.path), n_rows) from None
        progress(self.n_bytes_total)

    def _types(self) -> dict[str, np.dtype[Any]]:
        """Return the types of labels and owners, where these are read."""
        labels = {"y": np.array(self.schema.classes).dtype} if self.labelled else {}
        return labels | {name: OWNED[name] for name in self.owners}

    def read(self, on_bytes: readers.Progress | None = None) -> tuple[Any, ...]:
        """Return all rows at once.

        Parameters
        ----------
        on_bytes : callable or None, default=None
            As in :meth:`batches`.

        Returns
        -------
        X : ndarray or CSR matrix of shape (n_samples, n_features)
        y : ndarray of shape (n_samples,) or None
        owners : dict of ndarrays
            As in :meth:`batches`.
        """
        blocks: list[Any] = []
        rows = _GrowingArray(self.n_rows)
        columns = {name: [np.empty(0, dtype)] for name, dtype in self._types().items()}
        for X, y, owners in self._blocks(on_bytes):
            (blocks if self.sparse else rows).append(X)
            for name, parts in columns.items():
                parts.append(y if name == "y" else owners[name])
        whole: Any
        if self.sparse:
            none = sparse.csr_matrix((0, self.n_features), dtype=np.float32)
            whole = sparse.vstack(blocks or [none], format="csr")
        else:
            whole = rows.whole(self.n_features)
        joined = {name: np.concatenate(parts) for name, parts in columns.items()}
        found = whole, joined.pop("y", None)
        return (*found, joined) if joined else found

    def to_partitions(
        self,
        folder: str | os.PathLike[str],
        on_bytes: readers.Progress | None = None,
        *,
        rows_per_partition: int | None = None,
    ) -> Partitions:
        """Decode the rows into files, for training that reads them many times.

        Parameters
        ----------
        folder : str or path
            Folder for the files, created if missing: ``X.npy`` and ``y.npy`` (for sparse rows
            ``data.npy``, ``indices.npy`` and ``indptr.npy``; ``groups.npy`` and
            ``sample_weight.npy`` with owners). Only this user can read them, for example with
            ``numpy.load(path, mmap_mode="r")``. They contain the private data, with digests in
            place of person ids, and the caller must delete them. All rows of a person are put into
            one partition.
        on_bytes : callable or None, default=None
            As in :meth:`batches`.
        rows_per_partition : int or None, default=None
            None for at most 65536 rows of at most 64 MiB in total.

        Returns
        -------
        Partitions
            Partitions of memory maps; nothing is loaded yet.

        Raises
        ------
        TableError
            As in :meth:`batches`, or the table has no rows; no file is left.
        FileExistsError
            The folder already contains such files.
        """
        step = MAX_SPARSE_ROWS
        if not self.sparse:
            step = max(1, min(MAX_ROWS, MAX_BYTES // (4 * self.n_features)))
        if rows_per_partition is not None:
            step = check.check_integer("rows_per_partition", rows_per_partition, 1)
        folder = os.path.abspath(os.fspath(folder))
        os.makedirs(folder, mode=0o700, exist_ok=True)
        kinds: dict[str, Any] = {"X": (np.float32, (self.n_features,))}
        if self.sparse:
            kinds = {name: (dtype,) for name, dtype in CSR_FILES.items()}
        kinds |= {name: (dtype,) for name, dtype in self._types().items()}
        with ExitStack() as undo:
            writers = {}
            for name, kind in kinds.items():
                writers[name] = NpyWriter(os.path.join(folder, f"{name}.npy"), *kind)
                undo.callback(writers[name].discard)
            if self.sparse:
                writers["indptr"].append(np.zeros(1, dtype=np.int64))
            n_rows = 0
            for X, y, owners in self._blocks(on_bytes):
                n_rows += X.shape[0]
                columns = {"X": X, "y": y, **owners}
                if self.sparse:
                    columns |= {"data": X.data, "indices": X.indices}
                    columns["indptr"] = X.indptr[1:] + np.int64(writers["data"].n_rows)
                for name, writer in writers.items():
                    writer.append(columns[name])
            if not n_rows:
                raise TableError(f"{os.path.basename(self.path)}: the table has no rows")
            for writer in writers.values():
                writer.finish()
            paths = {name: one.path for name, one in writers.items()}
            cuts = [*range(0, n_rows, step), n_rows]
            if "groups" in self.owners:
                cuts = _by_persons(paths, step)
            maps = {name: np.load(path, mmap_mode="r") for name, path in paths.items()}
            parts = {name: parts_of(maps[name], cuts) for name in maps if name not in CSR_FILES}
            if self.sparse:
                parts["X"] = _csr_parts(maps, self.n_features, cuts)
            found = Partitions.from_loaders(
                together(parts["X"], parts.get("y"), [parts[name] for name in self.owners]),
                n_features=self.n_features,
                n_rows=n_rows,
                sparse=self.sparse,
                labelled=self.labelled,
                **dict.fromkeys(self.owners, True),
            )
            undo.pop_all()
        return found


# Types of persons and weights.
OWNED = {"groups": np.dtype("S16"), "sample_weight": np.dtype(np.float64)}


class _GrowingArray:
    """Array that grows in place, so that blocks of rows are never in memory twice."""

    def __init__(self, n_rows: int | None) -> None:
        self._array: NDArray[np.float32] | None = None
        self._expected, self._n_rows = n_rows or 0, 0

    def append(self, X: NDArray[np.float32]) -> None:
        """Append a block."""
        stop = self._n_rows + len(X)
        if self._array is None:
            # The length that a file declares is believed only up to a limit.
            expected = min(self._expected, len(X) + MAX_EXPECTED // X.shape[1])
            self._array = np.empty((max(expected, len(X)), X.shape[1]), dtype=np.float32)
        if stop > len(self._array):
            # Nobody else has seen this array.
            self._array.resize((stop + len(self._array) // 4, X.shape[1]), refcheck=False)
        self._array[self._n_rows : stop] = X
        self._n_rows = stop

    def whole(self, n_features: int) -> NDArray[np.float32]:
        """Return the whole array."""
        if self._array is None:
            return np.empty((0, n_features), dtype=np.float32)
        self._array.resize((self._n_rows, self._array.shape[1]), refcheck=False)
        return self._array


def open_table(
    path: str | os.PathLike[str],
    schema: TableSchema,
    *,
    format: str | None = None,
    labelled: bool = True,
    owners: bool = False,
    max_memory: int = ROOM,
) -> Table:
    r"""Open a file and check its columns against a schema; no row is read.

    Parameters
    ----------
    path : str or path
        CSV (``.csv``, ``.tsv``, optionally with ``.gz``), Parquet, Arrow IPC (``.arrow``,
        ``.feather``), NumPy (``.npz`` with X and y) or LIBSVM text (``.svm``, ``.libsvm``,
        ``.txt``, optionally with ``.gz``).
    schema : TableSchema
    format : {"csv", "tsv", "parquet", "arrow", "npz", "libsvm"} or None, default=None
        File format; None takes it from the file name.
    labelled : bool, default=True
        Whether to read labels. If False, the file needs no label column, and one is skipped.
    owners : bool, default=False
        Whether to read the person and weight columns named in the schema. They are never features.
    max_memory : int, default=2**28
        Memory limit in bytes for reading, in addition to the returned rows; at least 2**22. Block
        sizes are shares of it; a row that needs more than its share is refused.

    Returns
    -------
    Table

    Raises
    ------
    SchemaError
        The schema lacks a target, classes, or the declaration of a column.
    TableError
        The file is damaged, lacks a column, or has rows too long for ``max_memory``.
    InvalidParameterError
        The format is unknown.
    OSError
        The file cannot be opened.

    Notes
    -----
    If a compressed ``.npz`` with X in Fortran order, or a row group of a wide Parquet file, does
    not fit into memory, its columns go to an unnamed temporary file that only this process can
    read.

    Memory is bounded, but the number of rows is not: a compressed file of a few kilobytes may
    contain a billion equal rows. ``table.n_rows`` is their number, if the file states it; a loop
    over :meth:`Table.batches` can stop at any block, and Ctrl-C ends it.

    Examples
    --------
    >>> from pathlib import Path
    >>> from dpsvm_fast.data import TableSchema, open_table
    >>> _ = Path("people.csv").write_text("age,work,income\n39,Gov,low\n50,Private,high\n")
    >>> schema = TableSchema.from_dict({
    ...     "target": "income",
    ...     "classes": ["low", "high"],
    ...     "columns": {
    ...         "age": {"bounds": [0, 100]},
    ...         "work": {"categories": ["Private", "Gov"]},
    ...     },
    ... })
    >>> X, y = open_table("people.csv", schema).read()
    >>> X
    array([[39.,  0.,  1.],
           [50.,  1.,  0.]], dtype=float32)
    >>> [str(label) for label in y]
    ['low', 'high']
    """
    check.check_type("schema", schema, TableSchema, "a TableSchema")
    labelled = check.check_bool("labelled", labelled)
    owned = check.check_bool("owners", owners)
    room = check.check_integer("max_memory", max_memory, MIN_MEMORY, MAX_MEMORY)
    path = check.check_path("path", path)
    if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
        raise TableError(
            f"{path}: is a pipe or a device; write it to a file first, as a table is read more "
            "than once"
        )
    kind = table_format(path, format)
    with open(path, "rb") as file:
        # A file that cannot be read raises another error than a damaged one.
        if not file.read(1):
            raise TableError(f"{os.path.basename(path)}: the file is empty")
    return Table(kind, SOURCES[kind](path, schema, labelled=labelled, owned=owned, room=room))


def table_format(path: str, format: str | None) -> str:
    """Return the given format, or that of the file name."""
    if format is not None:
        return check.check_option("format", format, FORMATS)
    name = path.lower()
    stem = name.removesuffix(".gz")
    kind = SUFFIXES.get(os.path.splitext(stem)[1])
    if kind is None or (stem != name and kind not in ("csv", "tsv", "libsvm")):
        raise InvalidParameterError(
            f"path: got {os.path.basename(path)!r}, expected a name that ends in "
            f"{', '.join(SUFFIXES)} (text also in .gz), or format= one of {', '.join(FORMATS)}"
        )
    return kind
