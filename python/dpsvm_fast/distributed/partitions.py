"""Where the rows are: partitions that are loaded one at a time."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from dpsvm_fast import _validation as check
from dpsvm_fast._optional import optional_module
from dpsvm_fast.distributed._loaders import (
    ArrowBatch,
    Columns,
    DaskBlock,
    MappedRows,
    Pair,
    RowGroup,
    TableRows,
)
from dpsvm_fast.distributed._sources import (
    blocks_of,
    columns_of,
    files_of,
    has_blocks,
    is_path,
    is_persisted,
    parts_of,
)
from dpsvm_fast.estimators._frames import label_values, named_array
from dpsvm_fast.estimators._pipeline_steps import learned_steps
from dpsvm_fast.exceptions import InvalidParameterError

__all__ = ["Partitions"]

# More would not be told apart by the streams of batches.
MOST_PARTITIONS = 2**31 - 1


@dataclass(frozen=True, eq=False, repr=False)
class Partitions:
    """Rows in parts, each of which fits into memory; nothing is loaded before a fit has paid.

    Made by :meth:`from_arrays`, :meth:`from_parquet`, :meth:`from_arrow`, :meth:`from_dask` or
    :meth:`from_loaders`. Everything here is a public fact but for ``n_rows`` with
    ``adjacency="add_remove"``, which is as private as in ``estimator.fit(X, y)``.

    Parameters
    ----------
    loaders : tuple of callables
        Each returns (X, y), the same rows whenever it is called.
    n_features : int
    n_rows : int or None
        What is known of the number of rows without loading them.
    sparse : bool
        Whether X are CSR matrices.
    labelled : bool
        Whether there are labels.
    feature_names : tuple of str or None
        Where the source names its columns.
    """

    loaders: tuple[Callable[[], Any], ...]
    n_features: int
    n_rows: int | None = None
    sparse: bool = False
    labelled: bool = True
    feature_names: tuple[str, ...] | None = None

    def __len__(self) -> int:
        """Number of partitions."""
        return len(self.loaders)

    def __repr__(self) -> str:
        kind = "sparse" if self.sparse else "dense"
        return f"Partitions({len(self)} parts of {kind} rows of {self.n_features} features)"

    def transformed(self, transformer: Any) -> Partitions:
        """The same rows under a fitted transformer, applied whenever a partition is loaded.

        Parameters
        ----------
        transformer : object
            Fitted by this library (`PrivatePCA`, `PrivateStandardScaler`, ...), so that it has a
            statement of its own, which counts beside that of what is fitted next
            (``total_privacy``); or one that learns nothing, such as ``Normalizer``. It must map
            every row by itself.

        Returns
        -------
        Partitions
            Without names of columns.

        Raises
        ------
        InvalidParameterError
            The transformer has learned from rows without privacy.
        """
        wrong = learned_steps([("transformer", transformer)])
        if wrong or not callable(getattr(transformer, "transform", None)):
            raise InvalidParameterError(
                f"transformer: got {type(transformer).__name__}, expected one that this library "
                "has fitted, or one that learns nothing from rows: otherwise what is released "
                "next is not private"
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
    ) -> Partitions:
        """Partitions that functions load or generate.

        Parameters
        ----------
        loaders : iterable of callables
            Each takes nothing and returns (X, y), or X alone with ``labelled=False``: an array or
            CSR matrix of some rows, perhaps none, and their labels. Called again it must return the
            same. For a cluster it must be picklable.
        n_features : int
            Public.
        n_rows : int or None, default=None
            Number of rows in all. Needed, and public, with ``adjacency="replace_one"`` for
            `GradientPerturbationSVC`; the fit fails if it is wrong.
        sparse : bool, default=False
            Whether X are sparse; public. A partition of the other kind is refused.
        labelled : bool, default=True

        Returns
        -------
        Partitions
        """
        found = tuple(loaders)
        if not all(map(callable, found)):
            raise TypeError("loaders: expected functions without arguments that return (X, y)")
        return cls._of(
            found,
            check.check_integer("n_features", n_features, 1),
            n_rows=None if n_rows is None else check.check_integer("n_rows", n_rows, 1),
            sparse=check.check_bool("sparse", sparse),
            labelled=check.check_bool("labelled", labelled),
        )

    @classmethod
    def from_arrays(cls, X: Any, y: Any = None, *, rows_per_partition: int = 65536) -> Partitions:
        """Rows of an array, a memory map or a CSR matrix, a few at a time.

        Parameters
        ----------
        X : ndarray, memmap, CSR matrix or table of shape (n_samples, n_features)
            Of a memory map (``np.load(path, mmap_mode="r")``, ``np.memmap``, or a view of one) only
            the name of the file is kept: no partition is in memory but the one that is worked on,
            and workers open the file themselves, under the same path. An array is sent to them.
        y : array-like or memmap of shape (n_samples,), or None
        rows_per_partition : int, default=65536

        Returns
        -------
        Partitions
        """
        step = check.check_integer("rows_per_partition", rows_per_partition, 1)
        names = None
        if sparse.issparse(X):
            X = sparse.csr_matrix(X)
        elif not isinstance(X, np.ndarray):
            X, names = named_array(X)
        if X.ndim != 2 or X.shape[1] == 0:
            raise ValueError("X: expected two dimensions and at least one column")
        if y is not None:
            y = label_values(y)
            y = y if isinstance(y, np.ndarray) else np.asarray(y)
            if y.shape != (X.shape[0],):
                raise ValueError("y: expected one label for each row")
        cuts = range(0, X.shape[0], step)
        rows = parts_of(X, cuts, step)
        labels = [None] * len(rows) if y is None else parts_of(y, cuts, step)
        return cls._of(
            tuple(map(Pair, rows, labels)),
            X.shape[1],
            n_rows=X.shape[0],
            sparse=bool(sparse.issparse(X)),
            labelled=y is not None,
            feature_names=names,
        )

    @classmethod
    def from_parquet(
        cls,
        paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        label: str | None,
        features: Sequence[str] | None = None,
    ) -> Partitions:
        """Row groups of Parquet files. A row group is what has to fit into memory.

        Parameters
        ----------
        paths : str, path or sequence of them
            Files, folders (all ``*.parquet`` in them) or patterns with ``*``. Workers open them
            under the same path.
        label : str or None
            The column of the labels; None for rows without.
        features : sequence of str or None, default=None
            Columns of numbers; None for all but the label.

        Returns
        -------
        Partitions
        """
        parquet = optional_module("pyarrow.parquet", "Partitions.from_parquet", "arrow")
        loaders: list[RowGroup] = []
        columns: Columns | None = None
        n_rows = 0
        for path in files_of(paths, ".parquet"):
            with parquet.ParquetFile(path) as file:
                columns = columns_of(file.schema_arrow, label, features, before=columns)
                n_rows += file.metadata.num_rows
                groups = file.num_row_groups
            loaders += [RowGroup(path, group, columns) for group in range(groups)]
        return cls._of_table(loaders, columns, n_rows)

    @classmethod
    def from_arrow(
        cls,
        source: Any,
        *,
        label: str | None,
        features: Sequence[str] | None = None,
        rows_per_partition: int = 65536,
        n_rows: int | None = None,
    ) -> Partitions:
        """Rows of an Arrow table, or record batches of Arrow files.

        Parameters
        ----------
        source : pyarrow.Table, pyarrow.RecordBatch, or path or sequence of paths
            Files in the Arrow IPC format (Feather 2), or folders of ``*.arrow``, are mapped; a
            record batch is what has to fit into memory. A stream can be read only once and is
            refused: training reads rows many times.
        label : str or None
            The column of the labels; None for rows without.
        features : sequence of str or None, default=None
            Columns of numbers; None for all but the label.
        rows_per_partition : int, default=65536
            Of a table.
        n_rows : int or None, default=None
            Of files, as of :meth:`from_loaders`.

        Returns
        -------
        Partitions
        """
        pa = optional_module("pyarrow", "Partitions.from_arrow", "arrow")
        step = check.check_integer("rows_per_partition", rows_per_partition, 1)
        if isinstance(source, pa.RecordBatch):
            source = pa.Table.from_batches([source])
        if isinstance(source, pa.Table):
            chosen = columns_of(source.schema, label, features)
            table = source.select(chosen.names)
            cuts = range(0, table.num_rows, step)
            parts = [TableRows(table.slice(start, step), chosen) for start in cuts]
            return cls._of_table(parts, chosen, table.num_rows)
        if not is_path(source) and not isinstance(source, (list, tuple)):
            raise TypeError(
                f"source: got {type(source).__name__}, expected a Table or paths of Arrow files; a "
                "stream is read once, and training reads rows many times: write it to a file"
            )
        loaders: list[ArrowBatch] = []
        columns: Columns | None = None
        for path in files_of(source, ".arrow"):
            with pa.memory_map(path) as mapped, pa.ipc.open_file(mapped) as file:
                columns = columns_of(file.schema, label, features, before=columns)
                loaders += [ArrowBatch(path, i, columns) for i in range(file.num_record_batches)]
        known = None if n_rows is None else check.check_integer("n_rows", n_rows, 1)
        return cls._of_table(loaders, columns, known)

    @classmethod
    def from_dask(cls, X: Any, y: Any = None, *, n_rows: int | None = None) -> Partitions:
        """Blocks of rows of a Dask array or DataFrame.

        Parameters
        ----------
        X : dask.array.Array or dask.dataframe.DataFrame
            Not persisted: blocks are computed from their source by the tasks that need them, again
            for each sum unless ``fit(..., resident=True)``. Blocks may be CSR matrices.
        y : dask.array.Array or dask.dataframe.Series, or None
            As many blocks as X, of the same rows.
        n_rows : int or None, default=None
            As of :meth:`from_loaders`, where Dask does not know it.

        Returns
        -------
        Partitions
        """
        dask = optional_module("dask", "Partitions.from_dask", "distributed")
        for name, value in (("X", X), ("y", y)):
            if value is not None and not (dask.is_dask_collection(value) and has_blocks(value)):
                raise TypeError(f"{name}: got {type(value).__name__}, expected a Dask collection")
            if value is not None and is_persisted(value):
                raise InvalidParameterError(
                    f"{name}: got a persisted collection, expected one that is computed from its "
                    "source; fit(..., resident=True) keeps what is needed of it in memory"
                )
        names, blocks, known = blocks_of(X)
        labels: list[Any] | None
        if y is not None and hasattr(y, "chunks"):
            _, labels, _ = blocks_of(y)
        else:
            labels = None if y is None else list(y.to_delayed())
        if labels is not None and len(labels) != len(blocks):
            raise ValueError("y: expected as many blocks as X has, with the same rows")
        pairs = zip(blocks, labels or [None] * len(blocks), strict=True)
        given = None if n_rows is None else check.check_integer("n_rows", n_rows, 1)
        return cls._of(
            tuple(DaskBlock(*dask.optimize(a, b)) for a, b in pairs),
            int(X.shape[1]),
            n_rows=given if known is None else known,
            sparse=bool(sparse.issparse(getattr(X, "_meta", None))),
            labelled=y is not None,
            feature_names=names,
        )

    @classmethod
    def _of_table(cls, loaders: Sequence[Any], columns: Any, n_rows: int | None) -> Partitions:
        """Partitions with named columns."""
        if columns is None:
            raise InvalidParameterError("paths: expected at least one file")
        return cls._of(
            tuple(loaders),
            len(columns.features),
            n_rows=n_rows,
            labelled=columns.label is not None,
            feature_names=columns.features,
        )

    @classmethod
    def _of(cls, loaders: tuple[Any, ...], n_features: int, **facts: Any) -> Partitions:
        """Partitions, at least one."""
        if not 1 <= len(loaders) <= MOST_PARTITIONS:
            raise InvalidParameterError.of(
                "partitions", got=len(loaders), accepted=f"1 to {MOST_PARTITIONS} of them"
            )
        return cls(loaders, int(n_features), **facts)
