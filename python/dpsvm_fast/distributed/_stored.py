"""Rows that are mapped once and kept in files, where memory has no room for their records.

Mapping a row anew for every step of a descent costs ten times what the step itself costs. What is
stored is a function of a row and of public or released numbers (:class:`ReleasedMap`), in single
precision. The records that are made of it enforce the bound of the norm themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from dpsvm_fast.mechanisms._row_maps import PublicMap, ReleasedMap, mapped_rows

__all__ = ["may_be_stored", "stored"]


def may_be_stored(recipe: Recipe) -> bool:
    """Whether mapped rows are as large as the rows."""
    simple = all(isinstance(change, (Centred, Transformed)) for change in recipe.changes)
    return simple and not recipe.sparse and recipe.public is not None


def stored(loaders: Sequence[Loader], recipe: Recipe, folder: Path) -> tuple[list[Loader], Recipe]:
    """Mapped rows in files that do not exist yet, and how records are made of them.

    Parameters
    ----------
    loaders : sequence of callables
    recipe : Recipe
        Of which ``may_be_stored``.
    folder : Path
        Of the caller, who removes it.

    Raises
    ------
    PartitionError
        A partition holds something else than was declared, or cannot be written.
    """
    assert recipe.public is not None
    released = _released(recipe)
    found = []
    for number, loader in enumerate(loaders):
        try:
            X, codes = loaded(loader, recipe)
            rows = _file(folder / f"mapped-{number}.npy", _mapped(recipe.public, released, X))
            found.append(Pair(rows, _file(folder / f"codes-{number}.npy", codes)))
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
    return list(found), again


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


def _mapped(public: PublicMap, released: ReleasedMap | None, X: Any) -> Any:
    """Rows of norm at most 1, up to rounding."""
    if released is not None:
        return mapped_rows(public, released, X, np.float32)
    return public.apply(X).astype(np.float32)


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
