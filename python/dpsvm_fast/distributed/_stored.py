"""Records that are made once and kept in files, where memory has no room for them.

Mapping a row anew for every step of a descent costs ten times what the step itself costs. What is
stored is the record of a mapped row, a function of a row and of public or released numbers
(:class:`ReleasedMap`). Whatever is read again is checked: entries on their grid, norms at most 1.

Partitions whose records are kept get rows of the same bits, without a file: how many are kept may
follow from the private number of rows, and must not change what a row contributes.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from dpsvm_fast import _core
from dpsvm_fast.distributed._operations import Operation
from dpsvm_fast.distributed._tasks import (
    NO_MEMORY,
    Centred,
    Loader,
    Recipe,
    RefusedError,
    Share,
    Transformed,
    loaded,
    unsummed,
)
from dpsvm_fast.distributed.errors import PartitionError
from dpsvm_fast.mechanisms._row_maps import PublicMap, ReleasedMap, row_blocks

__all__ = ["StoredExecutor", "may_be_stored", "prepared", "stored"]

# Partitions whose records share a file. They are read into memory together: less than a partition
# and what is made of it take while it is mapped.
PARTITIONS_OF_FILE = 4


def may_be_stored(recipe: Recipe) -> bool:
    """Whether mapped rows are as large as the rows."""
    simple = all(isinstance(change, (Centred, Transformed)) for change in recipe.changes)
    return simple and not recipe.sparse and recipe.public is not None


@dataclass(frozen=True, eq=False)
class PreparedRows:
    """A partition whose rows come as a descent sums them.

    Parameters
    ----------
    loader : callable
        Of the rows as they are.
    recipe : Recipe
        Of which ``may_be_stored``.
    n_threads : int
        Does not change the result.
    """

    loader: Loader
    recipe: Recipe
    n_threads: int

    def __call__(self) -> tuple[Any, Any]:
        """Mapped rows and class indices."""
        assert self.recipe.public is not None
        X, codes = loaded(self.loader, self.recipe)
        return _mapped(self.recipe.public, _released(self.recipe), X, self.n_threads), codes


def prepared(
    loaders: Sequence[Loader], recipe: Recipe, n_threads: int
) -> tuple[list[Loader], Recipe]:
    """Loaders of mapped rows, and how records are made of these."""
    found: list[Loader] = [PreparedRows(loader, recipe, n_threads) for loader in loaders]
    again = Recipe(
        n_features=recipe.n_features,
        sparse=False,
        classes=np.arange(recipe.n_classes),
        public=PublicMap(unit=False, data_norm=1.0),
        n_classes=recipe.n_classes,
    )
    return found, again


@dataclass(eq=False, repr=False)
class RecordFile:
    """Records of some partitions.

    Parameters
    ----------
    partition : int
        The first one.
    entries, classes : Path
    n_partitions : int
    n_rows : int
    """

    partition: int
    entries: Path
    classes: Path
    n_partitions: int = 0
    n_rows: int = 0

    @classmethod
    def new(cls, partition: int, folder: Path) -> RecordFile:
        """Files that only this user may read."""
        made = cls(partition, folder / f"entries-{partition}", folder / f"classes-{partition}")
        for path in (made.entries, made.classes):
            path.touch(mode=0o600, exist_ok=False)
        return made

    def append(self, records: _core.Records) -> None:
        """Write the records of the next partition."""
        records.append_to(self.entries, self.classes)
        self.n_partitions += 1
        self.n_rows += records.n_rows

    def share(self, room: _core.Records, operation: Operation, n_threads: int) -> Share:
        """Exact sums over the records, which replace those in ``room``."""
        try:
            room.read_from(self.entries, self.classes, self.n_rows, n_threads)
            return Share(self.n_rows, operation.parts(room, self.partition, n_threads))
        except Exception as error:
            return unsummed(self.partition, error)


def stored(
    loaders: Sequence[tuple[int, Loader]],
    recipe: Recipe,
    folder: Path,
    *,
    together: bool,
    n_threads: int,
) -> tuple[list[RecordFile], _core.Records | None]:
    """Files of records, and some records whose memory can be used again.

    Parameters
    ----------
    loaders : sequence of (int, callable)
        Numbers and loaders of mapped rows.
    recipe : Recipe
        How records are made of these.
    folder : Path
        For files that do not exist yet. Of the caller, who removes it.
    together : bool
        Whether several partitions may be summed as one: batches are drawn for each.
    n_threads : int
        Does not change the result.

    Raises
    ------
    PartitionError
        A partition holds something else than was declared, or cannot be written.
    """
    files: list[RecordFile] = []
    records = None
    for number, loader in loaders:
        try:
            X, codes = loader()
            if X.shape[0] == 0:
                continue
            records = recipe.mapped(X, codes, n_threads)
            if not files or not together or files[-1].n_partitions == PARTITIONS_OF_FILE:
                files.append(RecordFile.new(number, folder))
            files[-1].append(records)
        except MemoryError:
            raise PartitionError(number, NO_MEMORY) from None
        except RefusedError as refused:
            raise PartitionError(number, str(refused)) from None
        except OSError as error:
            reason = f"its records cannot be written: {error.strerror or error}"
            raise PartitionError(number, reason) from None
    return files, records


class Summing(Protocol):
    """What of an executor is needed of partitions that stay in memory."""

    def run(self, recipe: Recipe, operation: Operation) -> Share:
        """Exact sums over them."""

    def close(self) -> None:
        """Drops their records."""


class StoredExecutor:
    """Partitions in memory, then those in files, one file after the other.

    Parameters
    ----------
    resident : Executor
    files : list of RecordFile
    room : Records or None
        Whose memory the records of a file are read into; None where there are no files.
    n_threads : int
        Does not change the result.
    """

    caveats: tuple[str, ...] = ()

    def __init__(
        self,
        resident: Summing,
        files: list[RecordFile],
        room: _core.Records | None,
        n_threads: int,
    ) -> None:
        self._resident, self._files = resident, files
        self._room, self._n_threads = room, n_threads

    def run(self, recipe: Recipe, operation: Operation) -> Share:
        """Exact sums over all partitions."""
        total = self._resident.run(recipe, operation)
        for file in self._files:
            if total.failure is None and self._room is not None:
                total.add(file.share(self._room, operation, self._n_threads))
        return total

    def stored(self, recipe: Recipe, *, together: bool) -> None:
        """None: that has been done."""

    def close(self) -> None:
        """Drops all records."""
        self._room = None
        self._resident.close()


def _released(recipe: Recipe) -> ReleasedMap | None:
    """All changes as one map: lengths in between cancel."""
    centre = matrix = None
    for change in recipe.changes:
        if isinstance(change, Centred):
            centre = change.point
        elif isinstance(change, Transformed):
            own = change.matrix
            matrix = own if matrix is None else _core.row_products(own, matrix, 1)
    return ReleasedMap(centre, matrix) if recipe.changes else None


def _mapped(public: PublicMap, released: ReleasedMap | None, X: Any, n_threads: int) -> Any:
    """Rows of norm at most 1, up to rounding; each a function of itself alone, to the last bit."""
    rows = np.empty(X.shape, dtype=np.float32)

    def fill(block: slice) -> None:
        mapped = public.apply(X[block])
        rows[block] = mapped if released is None else released.apply(mapped)

    # Together the blocks of all threads are as large as one would be.
    with ThreadPoolExecutor(n_threads) as pool:
        list(pool.map(fill, row_blocks(X, n_threads * X.shape[1])))
    return rows
