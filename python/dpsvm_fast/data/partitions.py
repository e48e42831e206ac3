"""Partitions: rows that are loaded one part at a time."""

from __future__ import annotations

import dataclasses
import glob
import mmap
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpsvm_fast import validation as check
from dpsvm_fast.estimators.frames import label_values, named_array
from dpsvm_fast.estimators.inputs import checked_groups, checked_weights, compressed_rows
from dpsvm_fast.exceptions import InvalidParameterError, InvalidTypeError
from dpsvm_fast.pipelines import learned_steps
from dpsvm_fast.validation import optional_module

# Loaders of partitions: each returns (X, y), or (X, None), of rows that fit into memory, and behind
# them the persons that rows belong to and their weights, where there are any.
#
# A loader can be pickled. It opens what it needs when it is called and holds it no longer: a worker
# that has called it keeps neither files nor mappings. None of them shows rows in its ``repr``,
# which a cluster may write into a log.


@dataclass(frozen=True, eq=False, repr=False)
class FileRows:
    """Loader of rows of a memory map, which each call maps again.

    Parameters
    ----------
    path : str
    dtype : dtype
    shape : tuple of int
    strides : tuple of int
    offset : int
        Offset of the first number, in bytes from the start of the file.
    """

    path: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    @classmethod
    def of(cls, rows: np.memmap[Any, Any]) -> FileRows | None:
        """Return the loader for a view of a memory-mapped file; None without a file name."""
        mapped, path = getattr(rows, "_mmap", None), getattr(rows, "filename", None)
        if mapped is None or path is None or any(stride < 0 for stride in rows.strides):
            return None
        # A view of a view remembers the offset of the whole map only: compare addresses.
        first = np.frombuffer(mapped, dtype=np.uint8).__array_interface__["data"][0]
        start = rows.offset - rows.offset % mmap.ALLOCATIONGRANULARITY
        offset = start + rows.__array_interface__["data"][0] - first
        return cls(str(path), rows.dtype, rows.shape, rows.strides, int(offset))

    def __call__(self) -> NDArray[Any]:
        """Return the rows, as a view of a map that ends with them."""
        with open(self.path, "rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return np.ndarray(
            self.shape, self.dtype, buffer=mapped, offset=self.offset, strides=self.strides
        )


@dataclass(frozen=True, eq=False, repr=False)
class SomeRows:
    """Loader of some rows of an array or CSR matrix or of a file; only these are pickled."""

    rows: Any
    places: slice | NDArray[np.intp]

    @property
    def nbytes(self) -> int:
        """Estimate the bytes of a pickle."""
        if isinstance(self.rows, FileRows):
            return getattr(self.places, "nbytes", 0)
        every, chosen = range(self.rows.shape[0]), self.places
        n_rows = len(every[chosen]) if isinstance(chosen, slice) else chosen.size
        parts = (self.rows.data, self.rows.indices) if sparse.issparse(self.rows) else (self.rows,)
        return int(sum(part.nbytes for part in parts) * (n_rows / max(1, len(every))))

    def __call__(self) -> Any:
        """Return the rows, as a view if they are a slice of an array or file."""
        rows = self.rows() if isinstance(self.rows, FileRows) else self.rows
        return rows[self.places]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without the other rows."""
        if isinstance(self.rows, FileRows):
            return type(self), (self.rows, self.places)
        rows = self()
        return type(self), (rows if sparse.issparse(rows) else rows.copy(), slice(None))


@dataclass(frozen=True, eq=False, repr=False)
class Loaders:
    """Loader that combines loaders of rows, labels (or None) and other columns."""

    parts: tuple[Any, ...]

    @property
    def nbytes(self) -> int:
        """Estimate the bytes of a pickle."""
        return sum(getattr(one, "nbytes", 0) for one in self.parts)

    def __call__(self) -> tuple[Any, ...]:
        """Return rows, labels, and the rest."""
        return tuple(None if one is None else one() for one in self.parts)


@dataclass(frozen=True, eq=False, repr=False)
class Columns:
    """Columns of features, labels, persons and weights of a table.

    Parameters
    ----------
    features : tuple of str
    label : str or None
    owners : dict of str
        Columns of "groups" and "sample_weight", if any.
    dtype : dtype
        Type of the features.
    """

    features: tuple[str, ...]
    label: str | None
    owners: dict[str, str]
    dtype: np.dtype[Any]

    @property
    def names(self) -> list[str]:
        """Return the names of all columns to read."""
        labels = [] if self.label is None else [self.label]
        return [*self.features, *labels, *self.owners.values()]

    def of(self, table: Any) -> tuple[Any, ...]:
        """Return rows, labels and owners of an Arrow table or batch; missing values become NaN."""
        X = np.empty((table.num_rows, len(self.features)), dtype=self.dtype)
        for j, name in enumerate(self.features):
            X[:, j] = table.column(name).to_numpy(zero_copy_only=False)
        labels = None if self.label is None else self._values(table.column(self.label))
        return X, labels, *(self._values(table.column(name)) for name in self.owners.values())

    @staticmethod
    def _values(column: Any) -> NDArray[Any]:
        """Return a copy of the cells of one column, which may outlive the file."""
        if hasattr(column, "combine_chunks"):
            column = column.combine_chunks()
        if hasattr(column, "dictionary_decode"):
            column = column.dictionary_decode()
        return np.array(column.to_numpy(zero_copy_only=False))


def row_group(path: str, group: int, columns: Columns) -> tuple[Any, ...]:
    """Return rows, labels and owners of a row group of a Parquet file."""
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        table = file.read_row_group(group, columns=columns.names, use_threads=False)
    return columns.of(table)


def arrow_batch(path: str, batch: int, columns: Columns) -> tuple[Any, ...]:
    """Return rows, labels and owners of a record batch of an Arrow file, which is mapped again."""
    import pyarrow as pa

    with pa.memory_map(path) as source, pa.ipc.open_file(source) as file:
        return columns.of(file.get_batch(batch))


@dataclass(frozen=True, eq=False, repr=False)
class DaskBlock:
    """Loader of blocks of Dask collections, computed in the calling thread."""

    blocks: tuple[Any, ...]

    def __call__(self) -> tuple[Any, ...]:
        """Return rows, labels and owners."""
        import dask

        found: tuple[Any, ...] = dask.compute(*self.blocks, scheduler="synchronous")
        return found


@dataclass(frozen=True, eq=False, repr=False)
class MappedRows:
    """Loader whose rows pass through a fitted transformer."""

    loader: Any
    transformer: Any

    @property
    def nbytes(self) -> int:
        """Estimate the bytes of a pickle, without the transformer."""
        return getattr(self.loader, "nbytes", 0)

    def __call__(self) -> Any:
        """Return rows and labels."""
        loaded = self.loader()
        X, *others = loaded if isinstance(loaded, tuple) else (loaded, None)
        # Transformers refuse empty input.
        return self.transformer.transform(X) if np.shape(X)[0] else self._nothing(X), *others

    def _nothing(self, X: Any) -> Any:
        """Return zero rows with as many columns as the transformer returns."""
        row = np.zeros((1, X.shape[1]))
        return self.transformer.transform(sparse.csr_matrix(row) if sparse.issparse(X) else row)[:0]


# Splitting of arrays, files, tables and collections into partitions.


def parts_of(values: Any, cuts: Sequence[int], order: NDArray[np.intp] | None = None) -> list[Any]:
    """Return loaders of the rows between cuts; a memory map is loaded by file name."""
    file = FileRows.of(values) if isinstance(values, np.memmap) else None
    places: Any = [slice(start, end) for start, end in pairwise(cuts)]
    if order is not None:
        places = [order[part] for part in places]
    return [SomeRows(values if file is None else file, some) for some in places]


def together(rows: list[Any], labels: list[Any] | None, owners: list[list[Any]]) -> list[Loaders]:
    """Return loaders of parts of the rows together with the same parts of the other columns."""
    columns = rows, labels or [None] * len(rows), *owners
    return [Loaders(parts) for parts in zip(*columns, strict=True)]


def by_persons(
    groups: Any, n_rows: int, step: int
) -> tuple[NDArray[np.int64], NDArray[np.intp] | None, list[int]]:
    """Return an index of each row's person, an order that groups persons, and cuts."""
    _, first, codes = np.unique(
        checked_groups(groups, n_rows), return_index=True, return_inverse=True
    )
    starts = first[codes.ravel()]
    order = np.argsort(starts, kind="stable")
    begins = np.flatnonzero(np.diff(starts[order], prepend=-1))
    wanted = np.searchsorted(begins, np.arange(0, n_rows, step))
    cuts = np.unique(np.append(begins, n_rows)[[*wanted, begins.size]]).tolist()
    together = bool((np.diff(order) > 0).all())
    return starts.astype(np.int64), None if together else order, cuts


def files_of(paths: Any, suffix: str) -> list[str]:
    """Return sorted file names from files, folders and patterns."""
    found: list[str] = []
    if isinstance(paths, (str, os.PathLike)):
        paths = [paths]
    for one in check.check_items("paths", paths, "paths of files"):
        path = check.check_path("paths", one)
        if os.path.isdir(path):
            found += sorted(glob.glob(os.path.join(glob.escape(path), f"*{suffix}")))
        elif glob.has_magic(path) and not os.path.exists(path):
            found += sorted(glob.glob(path))
        else:
            found.append(path)
    if not found:
        raise InvalidParameterError("paths: expected at least one file")
    return [os.path.abspath(path) for path in found]


@contextmanager
def _named(name: str, path: str, kind: str) -> Iterator[None]:
    """Replace pyarrow's error by one that names the file of the wrong kind."""
    try:
        yield
    except InvalidParameterError:
        raise
    except ValueError as error:
        if not type(error).__module__.startswith("pyarrow"):
            raise
        damaged = f"{name}: got {os.path.basename(path)!r}, expected {kind} that is not damaged"
    else:
        return
    raise InvalidParameterError(damaged)


def columns_of(
    schema: Any,
    label: str | None,
    features: Sequence[str] | None,
    person: str | None,
    weight: str | None,
    before: Columns | None = None,
) -> Columns:
    """Return the columns to read and their types, which must agree between files."""
    from pyarrow import types

    given = {"groups": person, "sample_weight": weight}
    owners = {role: name for role, name in given.items() if name is not None}
    counts = Counter(schema.names)
    others = [*owners.values()] if label is None else [label, *owners.values()]
    names = [n for n in schema.names if n not in others] if features is None else list(features)
    for name in [*names, *others]:
        if counts[name] != 1:
            raise InvalidParameterError(f"{name}: expected exactly one such column in each file")
    if not names or len({*names, *others}) < len(names) + len(others):
        raise InvalidParameterError(
            "features: expected at least one column other than the label, person and weight"
        )
    kinds = [schema.field(name).type for name in names]
    for name, kind in zip(names, kinds, strict=True):
        if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
            raise InvalidTypeError(f"features: column {name!r} has type {kind}, expected numbers")
    small = all(types.is_float32(kind) or types.is_float16(kind) for kind in kinds)
    found = Columns(tuple(names), label, owners, np.dtype(np.float32 if small else np.float64))
    if before is not None and found.features != before.features:
        raise InvalidParameterError("features: expected the same columns in each file")
    return found


def is_persisted(collection: Any) -> bool:
    """Return whether blocks are already on a cluster."""
    try:
        from distributed.client import futures_of
    except ImportError:
        return False
    return bool(futures_of(collection))


def blocks_of(X: Any) -> tuple[tuple[str, ...] | None, list[Any], int | None]:
    """Return column names, blocks of rows, and the number of rows if known."""
    if not hasattr(X, "chunks"):
        return tuple(map(str, X.columns)), list(X.to_delayed()), None
    if X.ndim == 2 and len(X.chunks[1]) > 1:
        X = X.rechunk({1: -1})
    sizes = X.chunks[0]
    known = None if any(np.isnan(size) for size in sizes) else int(sum(sizes))
    return None, list(X.to_delayed().ravel()), known


def named_owners(groups: object, sample_weight: object) -> tuple[str, ...]:
    """Return which of these arguments of a fit are given."""
    given = {"groups": groups, "sample_weight": sample_weight}
    return tuple(name for name, value in given.items() if value is not None and value is not False)


# The streams of batches cannot distinguish more.
MAX_PARTITIONS = 2**31 - 1


@dataclass(frozen=True, eq=False, repr=False)
class Partitions:
    """Rows in parts that fit into memory; nothing is loaded before the budget is charged.

    Use :meth:`from_arrays`, :meth:`from_parquet`, :meth:`from_arrow`, :meth:`from_dask` or
    :meth:`from_loaders`. All attributes are public facts, except ``n_rows`` with
    ``adjacency="add_remove"``, which is as private as in ``estimator.fit(X, y)``.

    Parameters
    ----------
    loaders : tuple of callables
        Functions that return (X, y), the same rows at every call.
    n_features : int
    n_rows : int or None
        Number of rows, if known without loading them.
    sparse : bool
        Whether X is loaded as CSR matrices.
    labelled : bool
        Whether there are labels.
    feature_names : tuple of str or None
        Column names of the source, if any.
    owners : tuple of str
        Which of "groups" and "sample_weight" the loaders return after the labels. All rows of a
        person must be in one partition: a fit checks this before it spends.
    """

    loaders: tuple[Callable[[], Any], ...]
    n_features: int
    n_rows: int | None = None
    sparse: bool = False
    labelled: bool = True
    feature_names: tuple[str, ...] | None = None
    owners: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= len(self.loaders) <= MAX_PARTITIONS:
            raise InvalidParameterError.of(
                "partitions", got=len(self.loaders), accepted=f"1 to {MAX_PARTITIONS} of them"
            )

    def __len__(self) -> int:
        """Number of partitions."""
        return len(self.loaders)

    def __repr__(self) -> str:
        kind = "sparse" if self.sparse else "dense"
        return f"Partitions({len(self)} parts of {kind} rows of {self.n_features} features)"

    def transformed(self, transformer: Any) -> Partitions:
        """Return the rows mapped by a fitted transformer at each load.

        Parameters
        ----------
        transformer : object
            Fitted transformer of this library (`PrivatePCA`, `PrivateStandardScaler`, ...), whose
            privacy adds to that of the next fit (``total_privacy``); or one that learns nothing,
            such as ``Normalizer``. It must map each row independently.

        Returns
        -------
        Partitions
            Partitions without column names.

        Raises
        ------
        InvalidParameterError
            The transformer learned from rows without privacy.
        """
        wrong = learned_steps(transformer, "transformer")
        if wrong or not callable(getattr(transformer, "transform", None)):
            raise InvalidParameterError(
                f"transformer: got {type(transformer).__name__}, expected a private transformer, "
                "or one that learns nothing from rows: otherwise later releases are not private"
            )
        probe = np.zeros((1, self.n_features))
        mapped = transformer.transform(sparse.csr_matrix(probe) if self.sparse else probe)
        return dataclasses.replace(
            self,
            loaders=tuple(MappedRows(loader, transformer) for loader in self.loaders),
            n_features=int(mapped.shape[1]),
            sparse=bool(sparse.issparse(mapped)),
            feature_names=None,
        )

    @classmethod
    def from_loaders(
        cls,
        loaders: Iterable[Callable[[], Any]],
        *,
        n_features: int,
        n_rows: int | None = None,
        sparse: bool = False,
        labelled: bool = True,
        groups: bool = False,
        sample_weight: bool = False,
    ) -> Partitions:
        """Return partitions that functions load or generate.

        Parameters
        ----------
        loaders : iterable of callables
            Functions without arguments that return (X, y), or X with ``labelled=False``: an array
            or CSR matrix of zero or more rows, and their labels. Every call must return the same
            rows. For a cluster the functions must be picklable.
        n_features : int
            Public.
        n_rows : int or None, default=None
            Total number of rows. Required, and public, with ``adjacency="replace_one"`` for
            `GradientPerturbationSVC`; the fit fails if it is wrong.
        sparse : bool, default=False
            Whether X is sparse, a public fact. A partition of the other kind is refused.
        labelled : bool, default=True
        groups, sample_weight : bool, default=False
            Whether loaders also return persons and weights of rows, as for ``estimator.fit``: (X,
            y, groups, sample_weight), or three of these. All rows of a person must be in one
            partition, and a person must have the same id in all partitions.

        Returns
        -------
        Partitions
        """
        accepted = "functions without arguments that return (X, y)"
        found = check.check_items("loaders", loaders, accepted)
        if not all(map(callable, found)):
            raise InvalidTypeError(f"loaders: expected {accepted}")
        return cls(
            found,
            check.check_integer("n_features", n_features, 1),
            n_rows=None if n_rows is None else check.check_integer("n_rows", n_rows, 1),
            sparse=check.check_bool("sparse", sparse),
            labelled=check.check_bool("labelled", labelled),
            owners=named_owners(
                check.check_bool("groups", groups), check.check_bool("sample_weight", sample_weight)
            ),
        )

    @classmethod
    def from_arrays(
        cls,
        X: Any,
        y: Any = None,
        *,
        groups: Any = None,
        sample_weight: Any = None,
        rows_per_partition: int = 65536,
    ) -> Partitions:
        """Return partitions of an array, a memory map or a CSR matrix.

        Parameters
        ----------
        X : ndarray, memmap, CSR matrix or table of shape (n_samples, n_features)
            For a memory map (``np.load(path, mmap_mode="r")``, ``np.memmap``, or a view of one)
            only the file name is kept: only the current partition is in memory, and workers open
            the file under the same path. An array is sent to the workers.
        y : array-like or memmap of shape (n_samples,), or None
        groups : array-like of shape (n_samples,), optional
            Id of the person that each row belongs to, as in ``estimator.fit``. All rows of a person
            go to one partition; ids are not kept.
        sample_weight : array-like of shape (n_samples,), optional
            Private weights of rows.
        rows_per_partition : int, default=65536

        Returns
        -------
        Partitions
        """
        step = check.check_integer("rows_per_partition", rows_per_partition, 1)
        names = None
        if sparse.issparse(X):
            X = sparse.csr_matrix(compressed_rows(X))
        elif not isinstance(X, np.ndarray):
            X, names = named_array(X)
        if X.ndim != 2 or X.shape[1] == 0:
            raise InvalidParameterError("X: expected two dimensions and at least one column")
        if y is not None:
            y = np.asanyarray(label_values(y))
            if y.shape != (X.shape[0],):
                raise InvalidParameterError("y: expected one label for each row")
        n_rows, order, owners = X.shape[0], None, []
        cuts = [*range(0, n_rows, step), n_rows]
        if groups is not None:
            codes, order, cuts = by_persons(groups, n_rows, step)
            owners.append(parts_of(codes, cuts, order))
        if sample_weight is not None:
            owners.append(parts_of(checked_weights(sample_weight, n_rows), cuts, order))
        labels = None if y is None else parts_of(y, cuts, order)
        return cls(
            tuple(together(parts_of(X, cuts, order), labels, owners)),
            X.shape[1],
            n_rows=n_rows,
            sparse=bool(sparse.issparse(X)),
            labelled=y is not None,
            feature_names=names,
            owners=named_owners(groups, sample_weight),
        )

    @classmethod
    def from_parquet(
        cls,
        paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        label: str | None,
        features: Sequence[str] | None = None,
        person: str | None = None,
        weight: str | None = None,
    ) -> Partitions:
        """Return the row groups of Parquet files as partitions; each must fit into memory.

        Parameters
        ----------
        paths : str, path or sequence of them
            Files, folders (all ``*.parquet`` in them) or patterns with ``*``. Workers open them
            under the same path.
        label : str or None
            Label column; None for rows without labels.
        features : sequence of str or None, default=None
            Numeric feature columns; None for all other columns.
        person, weight : str or None, default=None
            Columns of person ids and of weights; no person may have rows in two row groups.

        Returns
        -------
        Partitions
        """
        parquet = optional_module("pyarrow.parquet", "Partitions.from_parquet", "arrow")
        loaders: list[Callable[[], Any]] = []
        columns: Columns | None = None
        n_rows = 0
        for path in files_of(paths, ".parquet"):
            with _named("paths", path, "a Parquet file"), parquet.ParquetFile(path) as file:
                schema = file.schema_arrow
                columns = columns_of(schema, label, features, person, weight, columns)
                n_rows += file.metadata.num_rows
                groups = file.num_row_groups
            loaders += [partial(row_group, path, group, columns) for group in range(groups)]
        return cls._of_table(loaders, columns, n_rows)

    @classmethod
    def from_arrow(
        cls,
        source: Any,
        *,
        label: str | None,
        features: Sequence[str] | None = None,
        person: str | None = None,
        weight: str | None = None,
        rows_per_partition: int = 65536,
        n_rows: int | None = None,
    ) -> Partitions:
        """Return partitions of an Arrow table, or the record batches of Arrow files.

        Parameters
        ----------
        source : pyarrow.Table, pyarrow.RecordBatch, or path or sequence of paths
            Files in the Arrow IPC format (Feather 2), or folders of ``*.arrow``, are memory-mapped;
            each record batch must fit into memory. A stream can be read only once and is refused,
            because training reads rows many times.
        label : str or None
            Label column; None for rows without labels.
        features : sequence of str or None, default=None
            Numeric feature columns; None for all other columns.
        person, weight : str or None, default=None
            Columns of person ids and of weights; no person may have rows in two record batches.
        rows_per_partition : int, default=65536
            Rows per partition of a table.
        n_rows : int or None, default=None
            Number of rows of files, as for :meth:`from_loaders`.

        Returns
        -------
        Partitions
        """
        pa = optional_module("pyarrow", "Partitions.from_arrow", "arrow")
        step = check.check_integer("rows_per_partition", rows_per_partition, 1)
        if isinstance(source, pa.RecordBatch):
            source = pa.Table.from_batches([source])
        if isinstance(source, pa.Table):
            chosen = columns_of(source.schema, label, features, person, weight)
            X, y, *owners = chosen.of(source)
            given = dict(zip(chosen.owners, owners, strict=True))
            found = cls.from_arrays(X, y, rows_per_partition=step, **given)
            return dataclasses.replace(found, feature_names=chosen.features)
        if not isinstance(source, (str, os.PathLike, list, tuple)):
            raise InvalidTypeError(
                f"source: got {type(source).__name__}, expected a Table or paths of Arrow files; "
                "write a stream to a file first, as training reads rows many times"
            )
        loaders: list[Callable[[], Any]] = []
        columns: Columns | None = None
        for path in files_of(source, ".arrow"):
            with (
                _named("source", path, "an Arrow file"),
                pa.memory_map(path) as mapped,
                pa.ipc.open_file(mapped) as file,
            ):
                columns = columns_of(file.schema, label, features, person, weight, columns)
                batches = range(file.num_record_batches)
                loaders += [partial(arrow_batch, path, batch, columns) for batch in batches]
        known = None if n_rows is None else check.check_integer("n_rows", n_rows, 1)
        return cls._of_table(loaders, columns, known)

    @classmethod
    def from_dask(
        cls,
        X: Any,
        y: Any = None,
        *,
        groups: Any = None,
        sample_weight: Any = None,
        n_rows: int | None = None,
    ) -> Partitions:
        """Return the blocks of a Dask array or DataFrame as partitions.

        Parameters
        ----------
        X : dask.array.Array or dask.dataframe.DataFrame
            Collection that is not persisted: tasks compute blocks from their source, again for each
            sum unless ``fit(..., resident=True)``. Blocks may be CSR matrices.
        y : dask.array.Array or dask.dataframe.Series, or None
            Labels in the same blocks of rows as X.
        groups, sample_weight : dask.array.Array or dask.dataframe.Series, optional
            Persons and weights in the same blocks of rows as X; no person may have rows in two
            blocks.
        n_rows : int or None, default=None
            As for :meth:`from_loaders`, if unknown to Dask.

        Returns
        -------
        Partitions
        """
        dask = optional_module("dask", "Partitions.from_dask", "distributed")
        given = {"X": X, "y": y, "groups": groups, "sample_weight": sample_weight}
        given = {name: value for name, value in given.items() if value is not None}
        for name, value in given.items():
            in_blocks = hasattr(value, "to_delayed") and hasattr(value, "shape")
            if not (dask.is_dask_collection(value) and in_blocks):
                raise InvalidTypeError.of(name, value, "a Dask collection")
            if is_persisted(value):
                raise InvalidParameterError(
                    f"{name}: got a persisted collection, expected one computed from its source; "
                    "use fit(..., resident=True) to keep rows in memory"
                )
        names, blocks, known = blocks_of(X)
        columns = {"X": blocks, "y": [None] * len(blocks)}
        for name, value in given.items():
            if name != "X":
                columns[name] = list(np.ravel(value.to_delayed()))
            if len(columns[name]) != len(blocks):
                raise InvalidParameterError(
                    f"{name}: expected as many blocks as X has, with the same rows"
                )
        counted = None if n_rows is None else check.check_integer("n_rows", n_rows, 1)
        return cls(
            tuple(DaskBlock(dask.optimize(*row)) for row in zip(*columns.values(), strict=True)),
            int(X.shape[1]),
            n_rows=counted if known is None else known,
            sparse=bool(sparse.issparse(getattr(X, "_meta", None))),
            labelled=y is not None,
            feature_names=names,
            owners=named_owners(groups, sample_weight),
        )

    @classmethod
    def _of_table(cls, loaders: Sequence[Any], columns: Any, n_rows: int | None) -> Partitions:
        """Return partitions with named columns."""
        return cls(
            tuple(loaders),
            len(columns.features),
            n_rows=n_rows,
            labelled=columns.label is not None,
            feature_names=columns.features,
            owners=tuple(columns.owners),
        )
