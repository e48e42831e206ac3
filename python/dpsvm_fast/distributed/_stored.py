"""Rows that are mapped once and kept in files, where memory has no room for their records.

Mapping a row anew for every step of a descent costs ten times what the step itself costs. What is
stored is a function of a row and of public or released numbers (:class:`ReleasedMap`), in single
precision. The records that are made of it enforce the bound of the norm themselves.

Partitions whose records are kept get rows of the same bits, without a file: how many are kept may
follow from the private number of rows, and must not change what a row contributes.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpsvm_fast import _core
from dpsvm_fast.distributed._loaders import FileRows, Pair
from dpsvm_fast.distributed._tasks import (
    NO_MEMORY,
    Centred,
    Loader,
    Recipe,
    RefusedError,
    Transformed,
    loaded,
)
from dpsvm_fast.distributed.errors import PartitionError
from dpsvm_fast.mechanisms._row_maps import PublicMap, ReleasedMap, row_blocks

__all__ = ["may_be_stored", "stored"]


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


def stored(
    loaders: Sequence[Loader], recipe: Recipe, folder: Path, *, n_resident: int, n_threads: int
) -> tuple[list[Loader], Recipe]:
    """Loaders of mapped rows, and how records are made of these.

    Parameters
    ----------
    loaders : sequence of callables
    recipe : Recipe
        Of which ``may_be_stored``.
    folder : Path
        For files that do not exist yet. Of the caller, who removes it.
    n_resident : int
        How many of the first partitions are loaded once only, and need no file.
    n_threads : int
        Does not change the result.

    Raises
    ------
    PartitionError
        A partition holds something else than was declared, or cannot be written.
    """
    found: list[Loader] = [PreparedRows(loader, recipe, n_threads) for loader in loaders]
    for number in range(n_resident, len(found)):
        try:
            rows, codes = found[number]()
            mapped = _file(folder / f"mapped-{number}.npy", rows)
            found[number] = Pair(mapped, _file(folder / f"codes-{number}.npy", codes))
        except MemoryError:
            raise PartitionError(number, NO_MEMORY) from None
        except RefusedError as refused:
            raise PartitionError(number, str(refused)) from None
        except OSError as error:
            reason = f"its mapped rows cannot be written: {error.strerror}"
            raise PartitionError(number, reason) from None
    again = Recipe(
        n_features=recipe.n_features,
        sparse=False,
        classes=np.arange(recipe.n_classes),
        public=PublicMap(unit=False, data_norm=1.0),
        n_classes=recipe.n_classes,
    )
    return found, again


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


def _file(path: Path, values: Any) -> FileRows:
    """An array in a file that only this user may read."""
    path.touch(mode=0o600, exist_ok=False)
    np.save(path, values)
    mapped = np.load(path, mmap_mode="r")
    if mapped.size == 0:
        return FileRows(str(path), values.dtype, values.shape, values.strides, 0)
    rows = FileRows.of(mapped)
    assert rows is not None
    return rows
