"""What stands for X and for its records in a fit whose rows are elsewhere."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast import _core
from dpsvm_fast.distributed._executors import Executor
from dpsvm_fast.distributed._operations import (
    Count,
    DescentStep,
    Moments,
    Operation,
    SecondMoments,
    Sums,
)
from dpsvm_fast.distributed._tasks import Centred, Features, Recipe, Share, Transformed
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.mechanisms._row_maps import PublicMap
from dpsvm_fast.mechanisms.fourier import FourierFeatures

__all__ = ["ShardedRecords", "ShardedRows"]

Array = NDArray[np.float64]

# Beyond, doubles do not add rows exactly any more.
MOST_ROWS = 2**32 - 1


class ShardedRows:
    """Raw rows of all partitions; a ``PartitionedRows``.

    Nothing is loaded before records or sums are asked for, which a fit does once it has paid.

    Parameters
    ----------
    executor : Executor
    recipe : Recipe
        How what is loaded is checked.
    n_rows : int or None
        What is known of their number without loading them.
    on_step : callable or None, default=None
        Told, after each step of a descent, how many are done, and of how many.
    """

    def __init__(
        self,
        executor: Executor,
        recipe: Recipe,
        n_rows: int | None,
        on_step: Callable[[int, int], None] | None = None,
    ) -> None:
        self._executor, self._recipe = executor, recipe
        self._on_step = on_step
        self._declared, self._counted = n_rows, False
        self._n_rows = n_rows
        self._records: ShardedRecords | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and of features.

        Raises
        ------
        InvalidParameterError
            The number of rows is asked for before the budget is spent, and is not known.
        """
        if self._n_rows is None:
            if self._records is None:
                raise InvalidParameterError(
                    "n_rows: got partitions of unknown size, expected their number of rows "
                    "(Partitions.from_loaders(..., n_rows=...)): with adjacency='replace_one' it "
                    "is public, and accountant='last_iterate' needs it before the budget is spent"
                )
            self._records.run(Count())
        assert self._n_rows is not None
        return self._n_rows, self._recipe.n_features

    def mapped_records(self, public: PublicMap, n_classes: int) -> ShardedRecords:
        """What stands for the records of the mapped rows."""
        recipe = dataclasses.replace(self._recipe, public=public, n_classes=n_classes)
        self._records = ShardedRecords(self, recipe)
        return self._records

    def column_moments(self, offset: Array, scale: Array) -> tuple[NDArray[Any], NDArray[Any]]:
        """Exact sums of the entries of bounded columns and of their squares."""
        first, second = self.parts(self._recipe, Moments(offset, scale))
        return first, second

    def parts(self, recipe: Recipe, operation: Operation) -> tuple[NDArray[Any], ...]:
        """Sums over all partitions. Private."""
        share = self._executor.run(recipe, operation).checked()
        self._check_count(share)
        assert share.parts is not None
        return share.parts

    def stored(self, recipe: Recipe, *, together: bool) -> Recipe:
        """Map rows for good where that is wanted; returns how records are made from now on."""
        found = self._executor.stored(recipe, together=together)
        if found is None:
            return recipe
        self._executor, again = found
        return again

    def stepped(self, done: int, n_steps: int) -> None:
        """Tell whoever wants to know how far a descent has come; both numbers are public."""
        if self._on_step is not None:
            self._on_step(done, n_steps)

    def _check_count(self, share: Share) -> None:
        """Refuse partitions that changed, and data sets that no fit accepts."""
        if share.n_rows == 0 or share.n_rows > MOST_ROWS:
            raise ValueError(
                f"partitions: expected 1 to {MOST_ROWS} rows in all; the budget is spent"
            )
        if self._n_rows is not None and share.n_rows != self._n_rows:
            known = "before" if self._counted else "declared"
            raise ValueError(
                f"partitions: expected as many rows as {known}; a loader must return the same rows "
                "each time. The budget is spent"
            )
        self._n_rows, self._counted = share.n_rows, True


class ShardedRecords:
    """Records of all partitions, with the methods of ``_core.Records`` that fits use.

    Sums are exact integers, so they have the bits that the records of one process would give.

    Parameters
    ----------
    rows : ShardedRows
    recipe : Recipe
        With a map.
    """

    def __init__(self, rows: ShardedRows, recipe: Recipe) -> None:
        self._rows, self._recipe = rows, recipe

    def run(self, operation: Operation) -> tuple[NDArray[Any], ...]:
        """Sums over all records. Private."""
        return self._rows.parts(self._recipe, operation)

    def sums(self, n_threads: int) -> Array:
        """The sum of the rows."""
        return np.asarray(self.run(Sums())[0])

    def gram(self, n_threads: int) -> Array:
        """The sum of the rows' outer products with themselves."""
        return _core.Records.gram_from_parts(self.run(SecondMoments())[0])

    def centre(self, point: Array, n_threads: int) -> None:
        """Moves the rows by a released point."""
        self._change(Centred(point))

    def transform(self, matrix: Array, n_threads: int) -> None:
        """Multiplies the rows by a released matrix."""
        self._change(Transformed(matrix))

    def lift_by(self, features: FourierFeatures, stored: bool) -> None:  # noqa: FBT001
        """Replaces the rows by random features of them."""
        self._change(Features(features, stored))

    def _change(self, change: Any) -> None:
        changes = (*self._recipe.changes, change)
        self._recipe = dataclasses.replace(self._recipe, changes=changes)

    def descend(
        self,
        descent: _core.Descent,
        options: dict[str, Any],
        source: _core.NoiseSource,
        n_steps: int,
    ) -> None:
        """Steps of a descent: sums there, noise here.

        Parameters
        ----------
        descent : Descent
            Its state is moved on.
        options : dict
            What it was made with.
        source : NoiseSource
            Never leaves this process.
        n_steps : int
        """
        # Batches are drawn for each partition, sums over all rows are one.
        together = options["sampling_rate"] == 1.0
        self._recipe = self._rows.stored(self._recipe, together=together)
        run = descent.shards(source, n_steps)
        for step in range(n_steps):
            (total,) = self.run(DescentStep(options, run.weights, run.key, step))
            run.advance(total)
            self._rows.stepped(step + 1, n_steps)
