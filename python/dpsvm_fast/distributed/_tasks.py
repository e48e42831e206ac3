"""What is done where the rows are: load, check, map, clip, sum.

A task is a pure function of its arguments: whoever runs it, and however often, it returns the same
exact sums. It draws nothing but batches, from a key that it is given. Errors are returned and not
raised: a cluster writes the text of an exception, and what it was about, into its logs.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpsvm_fast import _core
from dpsvm_fast.distributed._operations import Operation
from dpsvm_fast.distributed.errors import PartitionError
from dpsvm_fast.estimators._frames import label_values
from dpsvm_fast.estimators._training_data import checked_outputs, encoded_labels
from dpsvm_fast.mechanisms._row_maps import PublicMap
from dpsvm_fast.mechanisms.fourier import FourierFeatures

__all__ = [
    "NO_MEMORY",
    "Centred",
    "Features",
    "Loader",
    "Recipe",
    "RefusedError",
    "Share",
    "Transformed",
    "build",
    "forget",
    "loaded",
    "merged",
    "share_of_bundle",
    "unsummed",
]

Array = NDArray[np.float64]
# Returns (X, y), or X alone where there are no labels.
Loader = Callable[[], Any]

STOPPED = "the fit was cancelled"
NO_MEMORY = "there is not enough memory for it"
BAD_LABELS = "expected one label for each row, each of them in `classes`"
# Fits whose records one process keeps at a time; one that was not told to end is dropped then.
MOST_FITS = 4
# Numbers of ended fits that are remembered, so that a late task keeps nothing for them.
MOST_ENDED = 256


class RefusedError(Exception):
    """A constant text about what was loaded."""


class Change(Protocol):
    """A step from one form of the records to the next, by public or released numbers."""

    def apply(self, records: _core.Records, n_threads: int) -> None:
        """Changes the records."""


@dataclass(frozen=True, eq=False)
class Centred:
    """Rows less a released point."""

    point: Array

    def apply(self, records: _core.Records, n_threads: int) -> None:
        """Changes the records."""
        records.centre(self.point, n_threads)


@dataclass(frozen=True, eq=False)
class Transformed:
    """Rows times a released matrix."""

    matrix: Array

    def apply(self, records: _core.Records, n_threads: int) -> None:
        """Changes the records."""
        records.transform(self.matrix, n_threads)


@dataclass(frozen=True, eq=False)
class Features:
    """Random features of the rows, of a public map."""

    features: FourierFeatures
    stored: bool

    def apply(self, records: _core.Records, n_threads: int) -> None:
        """Changes the records."""
        records.lift(self.features.map(), self.stored, n_threads)


@dataclass(frozen=True, eq=False)
class Recipe:
    """How what a loader returns becomes records.

    Parameters
    ----------
    n_features : int
    sparse : bool
        Whether rows are CSR matrices.
    classes : ndarray of shape (n_classes,) or None
        The public label set; None where labels are not looked at.
    public : PublicMap or None
        None before the rows are mapped.
    n_classes : int
    changes : tuple of Change
    """

    n_features: int
    sparse: bool
    classes: NDArray[Any] | None
    public: PublicMap | None = None
    n_classes: int = 2
    changes: tuple[Change, ...] = ()

    def checked(self, loaded: Any) -> tuple[Any, NDArray[np.int64]]:
        """Rows as the compiled module takes them, and class indices.

        Raises
        ------
        RefusedError
            Something else was loaded.
        """
        pair = isinstance(loaded, tuple) and len(loaded) == 2
        X, y = loaded if pair else (loaded, None)
        shape: tuple[int, ...] = getattr(X, "shape", ())
        if sparse.issparse(X) is self.sparse and len(shape) == 2 and shape[1] == self.n_features:
            codes = self._codes(y, shape[0])
            try:
                return (X if shape[0] == 0 else checked_outputs(None, X)), codes
            except MemoryError:
                raise
            except Exception:
                # What it says may quote a number.
                pass
        kind = "CSR" if self.sparse else "dense"
        raise RefusedError(f"expected {kind} rows of {self.n_features} finite numbers")

    def _codes(self, y: Any, n_rows: int) -> NDArray[np.int64]:
        """Class indices; rows without labels are all of class 0."""
        if self.classes is None or n_rows == 0:
            return np.zeros(n_rows, dtype=np.int64)
        try:
            labels = np.asarray(label_values(y))
            if labels.shape == (n_rows,):
                return encoded_labels(labels, self.classes)
        except MemoryError:
            raise
        except Exception:
            pass
        raise RefusedError(BAD_LABELS)

    def mapped(self, X: Any, codes: NDArray[np.int64], n_threads: int) -> _core.Records:
        """Records before any change."""
        assert self.public is not None
        if self.public.offset is not None and sparse.issparse(X):
            X = X.toarray()
        return self.public.records(X, codes, self.n_classes, n_threads)


@dataclass(repr=False)
class Share:
    """Exact sums over some partitions: without noise, and private.

    Parameters
    ----------
    n_rows : int
    parts : tuple of ndarray or None
        None where there were no rows.
    failure : tuple of (int, str) or None
        The first partition that failed, and a constant text.
    builds : frozenset of str
        Of the processes that summed.
    """

    n_rows: int = 0
    parts: tuple[NDArray[Any], ...] | None = None
    failure: tuple[int, str] | None = None
    builds: frozenset[str] = frozenset()

    def add(self, other: Share) -> None:
        """Takes in another share. Exact, so that the order does not matter."""
        self.n_rows += other.n_rows
        self.builds |= other.builds
        if self.failure is None or (other.failure is not None and other.failure < self.failure):
            self.failure = other.failure
        if self.parts is None:
            self.parts = other.parts
        elif other.parts is not None:
            pairs = zip(self.parts, other.parts, strict=True)
            self.parts = tuple(a + b for a, b in pairs)

    def checked(self) -> Share:
        """The share itself, if every partition was summed."""
        if self.failure is not None:
            raise PartitionError(*self.failure)
        return self


def merged(shares: Sequence[Share]) -> Share:
    """One share of all partitions that are in some of ``shares``."""
    total = Share()
    for share in shares:
        total.add(share)
    return total


@dataclass(repr=False)
class _Kept:
    """Records of a partition and how many changes were made to them."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    records: _core.Records | None = None
    n_changes: int = 0
    n_rows: int = 0


# Of this process: records of fits that go on, and names of fits that are over.
_KEPT: OrderedDict[str, dict[int, _Kept]] = OrderedDict()
_ENDED: OrderedDict[str, None] = OrderedDict()
_LOCK = threading.Lock()


def build() -> str:
    """What the bits of a record's contribution depend on: this library and the processor's kind."""
    info = _core.build_info()
    return f"dpsvm-fast {info['version']} for {info['simd']}"


def forget(token: str) -> None:
    """Drops the records of a fit; what still runs for it stops before its next partition."""
    with _LOCK:
        _KEPT.pop(token, None)
        _ENDED[token] = None
        while len(_ENDED) > MOST_ENDED:
            _ENDED.popitem(last=False)


def _kept(token: str, partition: int) -> _Kept:
    """Where the records of a partition are kept; outside of the store once the fit is over."""
    with _LOCK:
        if token in _ENDED:
            return _Kept()
        of_fit = _KEPT.setdefault(token, {})
        _KEPT.move_to_end(token)
        while len(_KEPT) > MOST_FITS:
            _KEPT.popitem(last=False)
        return of_fit.setdefault(partition, _Kept())


def share_of_bundle(
    bundle: Sequence[tuple[int, Loader]],
    recipe: Recipe,
    operation: Operation,
    token: str,
    n_threads: int,
    *,
    resident: bool,
) -> Share:
    """Exact sums over a few partitions, one after the other.

    Parameters
    ----------
    bundle : sequence of (int, callable)
        Numbers and loaders of partitions.
    recipe : Recipe
    operation : Operation
    token : str
        Of the fit.
    n_threads : int
        Does not change the result.
    resident : bool
        Whether records are kept for the next call; otherwise one partition is held at a time.
    """
    total = Share(builds=frozenset({build()}))
    for partition, loader in bundle:
        if token in _ENDED:
            total.add(Share(failure=(partition, STOPPED)))
        else:
            total.add(
                _share(partition, loader, recipe, operation, token if resident else None, n_threads)
            )
        if total.failure is not None:
            break
    return total


def _share(
    partition: int,
    loader: Loader,
    recipe: Recipe,
    operation: Operation,
    token: str | None,
    n_threads: int,
) -> Share:
    """Exact sums over one partition, or why there are none."""
    kept = _Kept() if token is None else _kept(token, partition)
    try:
        with kept.lock:
            rows = kept.records
            if rows is None or operation.raw:
                X, codes = loaded(loader, recipe)
                if X.shape[0] == 0:
                    return Share()
                rows, n_rows = X, X.shape[0]
                if not operation.raw:
                    kept.records = rows = recipe.mapped(X, codes, n_threads)
                    kept.n_changes, kept.n_rows = 0, n_rows
                del X
            else:
                n_rows = kept.n_rows
            if not operation.raw:
                _bring_up(kept, recipe, n_threads)
            return Share(n_rows, operation.parts(rows, partition, n_threads))
    except Exception as error:
        return unsummed(partition, error)


def unsummed(partition: int, error: Exception) -> Share:
    """Why there is no sum over a partition, without what an error says: it may quote a row."""
    if isinstance(error, MemoryError):
        return Share(failure=(partition, NO_MEMORY))
    if isinstance(error, RefusedError):
        return Share(failure=(partition, str(error)))
    return Share(failure=(partition, f"its records could not be summed: {_kind(error)}"))


def _bring_up(kept: _Kept, recipe: Recipe, n_threads: int) -> None:
    """Makes the changes that have not been made yet; records are dropped where one fails."""
    records, kept.records = kept.records, None
    assert records is not None
    for change in recipe.changes[kept.n_changes :]:
        change.apply(records, n_threads)
    kept.records, kept.n_changes = records, len(recipe.changes)


def loaded(loader: Loader, recipe: Recipe) -> tuple[Any, NDArray[np.int64]]:
    """Checked rows and class indices of a partition."""
    try:
        rows = loader()
    except (MemoryError, RefusedError):
        raise
    except Exception as error:
        raise RefusedError(f"its loader raised {_kind(error)}") from None
    return recipe.checked(rows)


def _kind(error: Exception) -> str:
    """Name of an error's type; its text may quote data."""
    return type(error).__name__
