"""Sums over the records of a partition: exact, so that the order of partitions does not matter."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpsvm_fast import _core

__all__ = ["Count", "DescentStep", "Moments", "Operation", "SecondMoments", "Sums"]

Array = NDArray[np.float64]


class Operation(Protocol):
    """A sum over the records of a partition."""

    @property
    def raw(self) -> bool:
        """Whether it needs rows as they come instead of records."""

    def parts(self, rows: Any, partition: int, n_threads: int) -> tuple[NDArray[Any], ...]:
        """Arrays that are added up over partitions, exactly, in any order."""


@dataclass(frozen=True)
class Count:
    """The number of rows alone."""

    raw: bool = False

    def parts(self, rows: Any, partition: int, n_threads: int) -> tuple[NDArray[Any], ...]:
        """None."""
        return ()


@dataclass(frozen=True)
class Sums:
    """The sum of the rows."""

    raw: bool = False

    def parts(self, rows: Any, partition: int, n_threads: int) -> tuple[NDArray[Any], ...]:
        """Multiples of 2**-20, which doubles add exactly."""
        return (rows.sums(n_threads),)


@dataclass(frozen=True)
class SecondMoments:
    """The sum of the rows' outer products with themselves."""

    raw: bool = False

    def parts(self, rows: Any, partition: int, n_threads: int) -> tuple[NDArray[Any], ...]:
        """Integers in two halves."""
        return (rows.gram_parts(n_threads),)


@dataclass(frozen=True, eq=False)
class Moments:
    """Sums of the entries of bounded columns and of their squares."""

    offset: Array
    scale: Array
    raw: bool = True

    def parts(self, rows: Any, partition: int, n_threads: int) -> tuple[NDArray[Any], ...]:
        """Integers."""
        how: dict[str, Any] = {"offset": self.offset, "scale": self.scale, "n_threads": n_threads}
        if sparse.issparse(rows):
            return _core.column_moments_csr(rows.data, rows.indices, rows.indptr, rows.shape, **how)
        return _core.column_moments_dense(rows, **how)


@dataclass(frozen=True, eq=False)
class DescentStep:
    """The sum of clipped gradients over the records, or over a random batch of them.

    Parameters
    ----------
    options : dict
        Settings of the descent.
    weights : ndarray of shape (n_scores, n_columns)
        Where it stands: noisy.
    key : bytes
        From which batches are drawn. Secret: whoever has it knows them.
    step : int
    """

    options: dict[str, Any]
    weights: Array
    key: bytes = field(repr=False)
    step: int
    raw: bool = False

    def parts(self, rows: Any, partition: int, n_threads: int) -> tuple[NDArray[Any], ...]:
        """Integers in two halves."""
        descent = _core.Descent(**self.options)
        return (descent.partial(rows, self.weights, self.key, partition, self.step, n_threads),)
