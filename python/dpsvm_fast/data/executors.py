"""Sums over partitions, and executors for them: this process or a Dask cluster."""

from __future__ import annotations

import hashlib
import threading
import uuid
import warnings
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpsvm_fast import _core
from dpsvm_fast.estimators.frames import label_values
from dpsvm_fast.estimators.inputs import (
    Owners,
    checked_groups,
    checked_outputs,
    column_moments,
    encoded_labels,
    owners,
)
from dpsvm_fast.exceptions import (
    ClusterError,
    InvalidParameterError,
    InvalidTypeError,
    PartitionError,
    PrivacyLeakWarning,
)
from dpsvm_fast.mechanisms.rows import PublicMap, ReleasedMap, mapped_rows

# Sums over the records of a partition: exact, so that the order of partitions does not matter.


Array = NDArray[np.float64]


class Loaded(NamedTuple):
    """Checked rows of a partition; rows of persons with several rows come last."""

    X: Any
    codes: NDArray[np.int64]
    # None if every row is a separate person.
    owners: Owners | None
    # Ids of persons as given.
    ids: NDArray[Any] | None

    @property
    def counts(self) -> tuple[float, int]:
        """Return the number of rows (or sum of their weights), and the number of persons."""
        if self.owners is None:
            return self.X.shape[0], self.X.shape[0]
        return self.owners.total, self.owners.n_persons


class Operation(ABC):
    """Sum over the records of a partition."""

    @abstractmethod
    def parts(self, rows: Any, partition: int, n_threads: int) -> tuple[NDArray[Any], ...]:
        """Return arrays that add up over partitions, exactly and in any order."""

    def digests_of(self, rows: Loaded) -> tuple[NDArray[Any], ...]:
        """Return digests of persons, if the operation compares them."""
        return ()


@dataclass(frozen=True, eq=False)
class Sums(Operation):
    """Results of methods of the records; without methods, only the number of rows.

    Parameters
    ----------
    methods : tuple of str
        "sums" gives multiples of 2**-20, "gram_parts" integers in two halves.
    """

    methods: tuple[str, ...] = ()

    def parts(self, rows: Any, partition: int, n_threads: int) -> tuple[NDArray[Any], ...]:
        """Return sums that doubles add exactly."""
        return tuple(getattr(rows, method)(n_threads) for method in self.methods)


@dataclass(frozen=True, eq=False)
class Moments(Operation):
    """Sums of the entries of bounded columns, of their squares, and of weights."""

    offset: Array
    scale: Array

    def parts(self, rows: Any, partition: int, n_threads: int) -> tuple[NDArray[Any], ...]:
        """Return integers, and a multiple of 2**-13."""
        return column_moments(rows.X, rows.owners, self.offset, self.scale, n_threads)


@dataclass(frozen=True, eq=False)
class ClassCounts(Operation):
    """Class counts, where a person counts by shares."""

    n_classes: int

    def parts(self, rows: Any, partition: int, n_threads: int) -> tuple[NDArray[Any], ...]:
        """Return integers."""
        owners = rows.owners or Owners(None, np.empty(0, np.int64), np.empty(0), 0, 0.0)
        return (owners.class_counts(rows.codes, self.n_classes),)


@dataclass(frozen=True, eq=False)
class Persons(Operation):
    """Digests of the persons with rows in a partition, to compare partitions.

    Parameters
    ----------
    key : bytes
        Secret key, used once: ids leave a partition only as digests under it.
    part, n_parts : int
        Digests are compared in ``n_parts`` parts, to bound memory; with 0, rows are only counted.
    """

    key: bytes = field(repr=False)
    part: int
    n_parts: int

    def parts(self, rows: Any, partition: int, n_threads: int) -> tuple[NDArray[Any], ...]:
        """Return nothing: digests are not a sum."""
        return ()

    def digests_of(self, rows: Loaded) -> tuple[NDArray[Any], ...]:
        """Return the digests of the distinct ids of these rows that are in the part."""
        return (self.digests(rows.ids),)

    def digests(self, ids: NDArray[Any] | None) -> NDArray[Any]:
        """Return the digests of the distinct ids in the part."""
        if ids is None or self.n_parts == 0:
            return np.empty(0, dtype=DIGEST)
        found = [self._digest(one) for one in np.unique(ids).tolist()]
        own = [one for one in found if int.from_bytes(one[:8], "big") % self.n_parts == self.part]
        return np.frombuffer(b"".join(own), dtype=DIGEST)

    def _digest(self, one: Any) -> bytes:
        """Return a digest that is equal for equal ids, whatever their type."""
        text = one if isinstance(one, (str, bytes)) else str(int(one))
        text = text.encode() if isinstance(text, str) else text
        return hashlib.blake2b(text, digest_size=DIGEST.itemsize, key=self.key).digest()


DIGEST = np.dtype("S16")


@dataclass(frozen=True, eq=False)
class DescentStep(Operation):
    """Sum of clipped gradients over the records, or over a random batch of them.

    Parameters
    ----------
    options : dict
        Settings of the descent.
    weights : ndarray of shape (n_scores, n_columns)
        Current noisy weights.
    key : bytes
        Secret key of the batches, which it would reveal.
    step : int
    """

    options: dict[str, Any]
    weights: Array
    key: bytes = field(repr=False)
    step: int

    def parts(self, rows: Any, partition: int, n_threads: int) -> tuple[NDArray[Any], ...]:
        """Return integers in two halves."""
        descent = _core.Descent(**self.options)
        return (descent.partial(rows, self.weights, self.key, partition, self.step, n_threads),)


# Work done where the rows are: load, check, map, clip, sum.
#
# A task is a pure function of its arguments: wherever and however often it runs, it returns the
# same exact sums. It draws nothing but batches, from a key that it is given. Errors are returned
# and not raised: a cluster writes the text of an exception, and what it was about, into its logs.


# Returns (X, y), or X alone where there are no labels.
Loader = Callable[[], Any]

STOPPED = "the fit was cancelled"

NO_MEMORY = "there is not enough memory"

BAD_LABELS = "expected one label for each row, each of them in `classes`"
BAD_OWNERS = "expected a person id and a finite, non-negative weight for each row, if declared"
# Number of fits whose records one process keeps; beyond it, an unfinished fit is dropped.
MAX_FITS = 4
# Number of ended fits that are remembered, so that a late task keeps nothing for them.
MAX_ENDED = 256


class RefusedError(Exception):
    """Error about loaded rows, with a constant text."""


@contextmanager
def refusing(reason: str) -> Iterator[None]:
    """Replace errors, whose messages may quote a number, by one with a constant text."""
    try:
        yield
    except (MemoryError, RefusedError):
        raise
    except Exception as error:
        raise RefusedError(reason.format(type(error).__name__)) from None


@dataclass(frozen=True, eq=False)
class Change:
    """Map of the records by public or released numbers.

    Parameters
    ----------
    method : {"centre", "transform", "weigh", "lift"}
        What to do: subtract a released point, multiply by a released matrix, weight by class, or
        replace by random features.
    value : ndarray or FourierFeatures
    stored : bool
        Whether to store random features.
    """

    method: str
    value: Any
    stored: bool = False

    def apply(self, records: _core.Records, n_threads: int) -> None:
        """Apply the map to the records."""
        if self.method == "weigh":
            records.weigh(self.value)
        elif self.method == "lift":
            records.lift(self.value.map(), self.stored, n_threads)
        else:
            getattr(records, self.method)(self.value, n_threads)


@dataclass(frozen=True, eq=False)
class Recipe:
    """Conversion of a loader's result to records.

    Parameters
    ----------
    n_features : int
    sparse : bool
        Whether rows are CSR matrices.
    classes : ndarray of shape (n_classes,) or None
        Public label set; None if labels are not used.
    public : PublicMap or None
        Map of the rows; None before they are mapped.
    n_classes : int
    changes : tuple of Change
    owners : tuple of str
        Which of "groups" and "sample_weight" are loaded after the labels.
    max_weight : float
        Weight to which weights are clipped, and which counts as one row.
    averaged : int
        Number of rows per person that count, weighted by their shares; 0 for all rows, unweighted.
    counted : bool
        Whether persons of weight 0 count, because the number of persons is public.
    """

    n_features: int
    sparse: bool
    classes: NDArray[Any] | None
    public: PublicMap | None = None
    n_classes: int = 2
    changes: tuple[Change, ...] = ()
    owners: tuple[str, ...] = ()
    max_weight: float = 1.0
    averaged: int = 0
    counted: bool = False

    def loaded(self, loader: Loader) -> Loaded:
        """Load rows for the compiled module, with class indices and owners.

        Raises
        ------
        RefusedError
            The loader failed, or its result is not as declared.
        """
        with refusing("its loader raised {}"):
            found = loader()
        if isinstance(loader, PreparedRows):
            # They have been checked.
            return found  # type: ignore[no-any-return]
        known = isinstance(found, tuple) and len(found) == 2 + len(self.owners)
        X, y, *given = found if known else (found, None)
        expected = f"expected {'CSR' if self.sparse else 'dense'} rows of {self.n_features}"
        with refusing(f"{expected} finite numbers"):
            n_rows, n_columns = X.shape
            if sparse.issparse(X) is not self.sparse or n_columns != self.n_features:
                raise ValueError("another kind or number of columns")
            codes = self._codes(y, n_rows)
            if n_rows == 0:
                return Loaded(X, codes, None, None)
            if len(given) < len(self.owners):
                raise RefusedError(BAD_OWNERS)
            return self._owned(checked_outputs(None, X), codes, given)

    def _owned(self, X: Any, codes: NDArray[np.int64], given: list[Any]) -> Loaded:
        """Return rows in the order of their persons."""
        if not given and self.max_weight == 1.0:
            return Loaded(X, codes, None, None)
        own = dict(zip(self.owners, given, strict=True))
        weights, n_rows = own.get("sample_weight"), X.shape[0]
        with refusing(BAD_OWNERS):
            ids = checked_groups(own["groups"], n_rows) if "groups" in own else None
            none = weights is not None and np.shape(weights) == (n_rows,) and not np.any(weights)
            if none and not self.counted:
                # Weights may all be zero here, not everywhere.
                return Loaded(X[:0], codes[:0], None, None)
            facts = (n_rows, self.max_weight)
            found = owners(ids, weights, *facts, counted=self.counted, partial=True)
        X, codes = found.ordered(X, codes)
        found = found.averaged(codes.size, self.averaged) if self.averaged else found
        return Loaded(X, codes, found._replace(order=None), ids)

    def _codes(self, y: Any, n_rows: int) -> NDArray[np.int64]:
        """Return class indices; rows without labels have class 0."""
        if self.classes is None or n_rows == 0:
            return np.zeros(n_rows, dtype=np.int64)
        with refusing(BAD_LABELS):
            labels = np.asarray(label_values(y))
            if labels.shape != (n_rows,):
                raise RefusedError(BAD_LABELS)
            return encoded_labels(labels, self.classes)

    def mapped(self, rows: Loaded, n_threads: int) -> _core.Records:
        """Return records before any change."""
        assert self.public is not None
        return self.public.records(rows.X, rows.codes, self.n_classes, n_threads, rows.owners)


@dataclass(repr=False)
class Share:
    """Exact sums over some partitions. Private: no noise is added.

    Parameters
    ----------
    n_rows : float
        Number of rows, or sum of their weights, at most 1 per person.
    n_persons : int
        Number of persons; without groups each row is one.
    parts : tuple of ndarray or None
        Sums; None if there were no rows.
    digests : tuple of ndarray
        Digests of persons, one array per partition.
    failure : tuple of (int, str) or None
        First partition that failed, and a constant text.
    builds : frozenset of str
        Builds of the processes that computed the sums.
    """

    n_rows: float = 0
    n_persons: int = 0
    parts: Any = None
    digests: tuple[NDArray[Any], ...] = ()
    failure: tuple[int, str] | None = None
    builds: frozenset[str] = frozenset()

    def add(self, other: Share) -> None:
        """Add another share exactly, so that the order does not matter."""
        self.n_rows += other.n_rows
        self.n_persons += other.n_persons
        self.digests += other.digests
        self.builds |= other.builds
        if self.failure is None or (other.failure is not None and other.failure < self.failure):
            self.failure = other.failure
        if self.parts is None:
            self.parts = other.parts
        elif other.parts is not None:
            pairs = zip(self.parts, other.parts, strict=True)
            self.parts = tuple(a + b for a, b in pairs)


def merged(shares: Sequence[Share]) -> Share:
    """Return the sum of some shares."""
    total = Share()
    for share in shares:
        total.add(share)
    return total


@dataclass(repr=False)
class _Kept:
    """Records of a partition, and the number of changes applied to them."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    records: _core.Records | None = None
    n_changes: int = 0
    counts: tuple[float, int] = (0, 0)

    def share(
        self, partition: int, loader: Loader, recipe: Recipe, operation: Operation, n_threads: int
    ) -> Share:
        """Return exact sums over the partition, or the reason of its failure."""
        try:
            with self.lock:
                rows: Any = self.records
                # Without a map, the sums are of rows as they are loaded.
                raw = recipe.public is None
                if rows is None or raw:
                    own = recipe.loaded(loader)
                    if own.X.shape[0] == 0:
                        return Share()
                    if raw:
                        parts = operation.parts(own, partition, n_threads)
                        return Share(*own.counts, parts, operation.digests_of(own))
                    rows = recipe.mapped(own, n_threads)
                    self.n_changes, self.counts = 0, own.counts
                    del own
                # No records are left if a change fails.
                self.records = None
                for change in recipe.changes[self.n_changes :]:
                    change.apply(rows, n_threads)
                self.records, self.n_changes = rows, len(recipe.changes)
                return Share(*self.counts, operation.parts(rows, partition, n_threads))
        except Exception as error:
            return Share(failure=(partition, unsummed(error)))


# In this process: records of running fits, and names of finished ones.
_KEPT: OrderedDict[str, dict[int, _Kept]] = OrderedDict()

_ENDED: OrderedDict[str, None] = OrderedDict()

_LOCK = threading.Lock()


def build() -> str:
    """Return the build that determines the bits of a contribution: version and processor kind."""
    info = _core.build_info()
    return f"dpsvm-fast {info['version']} for {info['simd']}"


def forget(token: str) -> None:
    """Drop the records of a fit; running tasks stop before their next partition."""
    with _LOCK:
        _KEPT.pop(token, None)
        _ENDED[token] = None
        while len(_ENDED) > MAX_ENDED:
            _ENDED.popitem(last=False)


def _kept(token: str, partition: int) -> _Kept:
    """Return the holder of a partition's records; it is not stored after the fit is over."""
    with _LOCK:
        if token in _ENDED:
            return _Kept()
        of_fit = _KEPT.setdefault(token, {})
        _KEPT.move_to_end(token)
        while len(_KEPT) > MAX_FITS:
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
    """Return exact sums over a few partitions, one after another.

    Parameters
    ----------
    bundle : sequence of (int, callable)
        Numbers and loaders of the partitions.
    recipe : Recipe
    operation : Operation
    token : str
        Token of the fit.
    n_threads : int
        Does not change the result.
    resident : bool
        Whether records are kept for the next call; otherwise one partition is in memory at a time.
    """
    total = Share(builds=frozenset({build()}))
    for partition, loader in bundle:
        if token in _ENDED:
            total.add(Share(failure=(partition, STOPPED)))
        else:
            kept = _kept(token, partition) if resident else _Kept()
            total.add(kept.share(partition, loader, recipe, operation, n_threads))
        if total.failure is not None:
            break
    return total


def unsummed(error: Exception) -> str:
    """Return why a partition has no sum, without the error's text, which may quote a row."""
    if isinstance(error, MemoryError):
        return NO_MEMORY
    if isinstance(error, RefusedError):
        return str(error)
    # The text of an error may quote data, the name of its type does not.
    return f"its records could not be summed: {type(error).__name__}"


# Records that are made once and kept in files, where memory has no room for them.
#
# Mapping a row anew for every step of a descent costs ten times what the step itself costs. What is
# stored is the record of a mapped row, a function of a row and of public or released numbers
# (:class:`ReleasedMap`). Whatever is read again is checked: entries on their grid, norms at most 1.
#
# Partitions whose records are kept get rows of the same bits, without a file: how many are kept may
# follow from the private number of rows, and must not change what a row contributes.


# Partitions whose records share a file. They are read into memory together: less than a partition
# and what is made of it take while it is mapped.
PARTITIONS_OF_FILE = 4


@dataclass(frozen=True, eq=False)
class PreparedRows:
    """Loader of a partition whose rows are already mapped for a descent.

    Parameters
    ----------
    loader : callable
        Loader of the raw rows.
    recipe : Recipe
        Recipe for dense rows, without random features.
    n_threads : int
        Does not change the result.
    """

    loader: Loader
    recipe: Recipe
    n_threads: int

    def __call__(self) -> Loaded:
        """Return the mapped rows, which need no further check."""
        assert self.recipe.public is not None
        rows = self.recipe.loaded(self.loader)
        maps = self.recipe.public, _released(self.recipe)
        return rows._replace(X=mapped_rows(*maps, rows.X, np.float32, self.n_threads))


@dataclass(eq=False, repr=False)
class RecordFile:
    """Records of some partitions.

    Parameters
    ----------
    partition : int
        First partition.
    folder : Path
    owners : Path or None
        File of starts of persons with several rows, and weights; None if there are none.
    n_partitions, n_stored : int
        Number of partitions and of rows in the files.
    n_rows : float
    n_persons : int
        As in `Share`.
    """

    partition: int
    folder: Path
    owners: Path | None = None
    n_partitions: int = 0
    n_stored: int = 0
    n_rows: float = 0
    n_persons: int = 0

    def __post_init__(self) -> None:
        self.entries, self.classes = self._created("entries"), self._created("classes")

    def _created(self, kind: str) -> Path:
        """Create a file that only this user can read."""
        path = self.folder / f"{kind}-{self.partition}"
        path.touch(mode=0o600, exist_ok=False)
        return path

    def append(self, records: _core.Records, rows: Loaded) -> None:
        """Append the records of the next partition; only one partition if rows have owners."""
        records.append_to(self.entries, self.classes)
        if rows.owners is not None:
            self.owners = self._created("owners")
            with self.owners.open("wb") as file:
                np.savez(file, rows.owners.persons, rows.owners.weights)
        n_rows, n_persons = rows.counts
        self.n_partitions += 1
        self.n_stored += records.n_rows
        self.n_rows, self.n_persons = self.n_rows + n_rows, self.n_persons + n_persons

    def share(
        self, room: _core.Records, changes: Sequence[Change], operation: Operation, n_threads: int
    ) -> Share:
        """Return exact sums over the records, read into ``room``."""
        try:
            room.read_from(self.entries, self.classes, self.n_stored, n_threads)
            if self.owners is not None:
                with np.load(self.owners) as owners:
                    room.own(owners["arr_0"], owners["arr_1"])
            for change in changes:
                change.apply(room, n_threads)
            parts = operation.parts(room, self.partition, n_threads)
            return Share(self.n_rows, self.n_persons, parts)
        except Exception as error:
            return Share(failure=(self.partition, unsummed(error)))


def _released(recipe: Recipe) -> ReleasedMap:
    """Return all changes as one map; intermediate normalisations cancel."""
    centre = matrix = None
    for change in recipe.changes:
        if change.method == "centre":
            centre = change.value
        elif change.method == "transform":
            own = change.value
            matrix = own if matrix is None else _core.row_products(own, matrix, 1)
    return ReleasedMap(centre, matrix)


# Bundles of partitions for each thread of a worker, where any worker takes any bundle: few, because
# each brings a sum that waits to be added, and enough for the faster worker to take more.
BUNDLES_A_THREAD = 4
# Sums that one task adds up.
FAN_IN = 4
# Larger loaders, which hold rows, are sent once and not with each task.
SMALL_LOADER = 1 << 16
# Seconds between checks for workers: Dask itself waits forever.
POLL = 30.0


NO_WORKERS = "client: the cluster has no workers left"


class LocalExecutor:
    """Executor that sums one partition after another in this process.

    Parameters
    ----------
    loaders : sequence of callables
    n_threads : int
        Number of threads within a partition. Does not change the result.
    resident : int
        Number of first partitions whose records are kept for the next sum.
    scratch : Path or None
        Caller's folder for mapped rows of the other partitions.
    """

    cluster: str | None = None

    def __init__(
        self, loaders: Sequence[Loader], n_threads: int, *, resident: int, scratch: Path | None
    ) -> None:
        self._loaders, self._scratch = list(loaders), scratch
        self._n_threads, self._n_resident = n_threads, min(resident, len(self._loaders))
        self._token = uuid.uuid4().hex
        # Records of partitions that are not kept in memory, and memory to read them into.
        self._files: list[RecordFile] = []
        self._room: _core.Records | None = None

    def run(self, recipe: Recipe, operation: Operation) -> Share:
        """Return exact sums over all partitions."""
        bundle, kept = list(enumerate(self._loaders)), self._n_resident
        how = recipe, operation, self._token, self._n_threads
        total = share_of_bundle(bundle[:kept], *how, resident=True)
        if total.failure is None:
            total.add(share_of_bundle(bundle[kept:], *how, resident=False))
        for file in self._files:
            if total.failure is None and self._room is not None:
                total.add(file.share(self._room, recipe.changes, operation, self._n_threads))
        return total

    def stored(self, recipe: Recipe, *, together: bool) -> Recipe:
        """Map and store rows if requested; return the recipe for later sums.

        Several partitions may be summed ``together`` if all rows are stored.

        Raises
        ------
        PartitionError
            A partition is not as declared, or cannot be written.
        """
        weighed = tuple(one for one in recipe.changes if one.method == "weigh")
        simple = all(change.method != "lift" for change in recipe.changes)
        if self._scratch is None or not simple or recipe.sparse or recipe.public is None:
            return recipe
        if recipe.public.splines is not None:
            # Their values are sparse, too.
            return recipe
        found: list[Loader] = [PreparedRows(one, recipe, self._n_threads) for one in self._loaders]
        again = Recipe(
            n_features=recipe.n_features + recipe.public.n_added,
            sparse=False,
            classes=np.arange(recipe.n_classes),
            public=PublicMap(unit=False, data_norm=1.0),
            n_classes=recipe.n_classes,
            changes=weighed,
        )
        files = self._files
        for number, loader in list(enumerate(found))[self._n_resident :]:
            try:
                rows = loader()
                if rows.X.shape[0] == 0:
                    continue
                self._room = records = again.mapped(rows, self._n_threads)
                alone = not together or rows.owners is not None
                if not files or alone or files[-1].n_partitions == PARTITIONS_OF_FILE:
                    files.append(RecordFile(number, self._scratch))
                files[-1].append(records, rows)
            except (MemoryError, RefusedError) as error:
                raise PartitionError(number, unsummed(error)) from None
            except OSError as error:
                reason = f"its records cannot be written: {error.strerror or error}"
                raise PartitionError(number, reason) from None
        # The kept records were mapped differently.
        forget(self._token)
        self._token, self._loaders = uuid.uuid4().hex, found[: self._n_resident]
        self._scratch = None
        return again

    def close(self) -> None:
        """Drop all records."""
        self._room = None
        forget(self._token)


class ClusterExecutor:
    """Executor that sums bundles of partitions on the workers of a cluster, added in a tree.

    Kept records stay on their worker. If it is lost, Dask runs its tasks on other workers, which
    rebuild the records. All other tasks may run anywhere.

    Parameters
    ----------
    client : distributed.Client
        Connected client that is not asynchronous.
    loaders : sequence of callables
    n_threads : int
        Number of threads within one task.
    resident : bool

    Raises
    ------
    ClusterError
        There is no worker, or workers have different versions or kinds of processors.
    """

    def __init__(
        self, client: Any, loaders: Sequence[Loader], n_threads: int, *, resident: bool
    ) -> None:
        self._client, self._loaders = client, list(loaders)
        self._n_threads, self._resident = n_threads, resident
        self._token = uuid.uuid4().hex
        # Tasks of the current sum, and objects kept on workers for all sums.
        self._running: list[Any] = []
        self._held: dict[int, Any] = {}
        self._home: dict[int, str] = {}
        self._recipe: tuple[Recipe, Any] | None = None
        self._n_runs = 0
        self._build = _check_client(client)
        self.cluster: str | None = _protocol(client)

    def run(self, recipe: Recipe, operation: Operation) -> Share:
        """Return exact sums over all partitions.

        Raises
        ------
        ClusterError
            No worker is left, or a task could not run on any worker.
        """
        self._n_runs += 1
        try:
            few = self._submitted(recipe, operation)
            share = merged([self._awaited(future) for future in few])
        except BaseException:
            _release(self._running)
            raise
        finally:
            self._running = []
        # Workers may have joined since they were asked.
        _one_build(share.builds | {self._build}, "the budget is spent")
        return share

    def stored(self, recipe: Recipe, *, together: bool) -> Recipe:
        """Store nothing: workers share no folder."""
        return recipe

    def close(self) -> None:
        """Drop all records on all workers, and stop running tasks."""
        held = [*self._held.values(), *(() if self._recipe is None else (self._recipe[1],))]
        _release(held)
        self._held, self._recipe = {}, None
        try:
            self._client.run(forget, self._token, on_error="ignore")
        except Exception:
            # The cluster may be gone; then so are the records. What else a worker keeps is
            # bounded, and dropped for the next fits.
            return

    def _submitted(self, recipe: Recipe, operation: Operation) -> list[Any]:
        """Submit all tasks; return the futures of the last sums."""
        threads = self._client.nthreads()
        if not threads:
            raise ClusterError(NO_WORKERS)
        with warnings.catch_warnings():
            # Rows of the caller's own arrays have to be sent once, whatever Dask's estimate.
            warnings.filterwarnings("ignore", message="Sending large graph")
            given = self._held_recipe(recipe), operation, self._token, self._n_threads
            shares = [
                self._submit(
                    share_of_bundle,
                    [(i, self._loader(i)) for i in bundle],
                    *given,
                    resident=self._resident,
                    name=f"sum-{place}",
                    workers=worker,
                    # In case that worker is lost.
                    allow_other_workers=worker is not None,
                )
                for place, (bundle, worker) in enumerate(self._bundles(threads))
            ]
            return self._added(shares)

    def _bundles(self, threads: dict[str, int]) -> Iterator[tuple[list[int], str | None]]:
        """Yield the partitions of each task, and the worker where it belongs."""
        everything = range(len(self._loaders))
        if not self._resident:
            n = min(len(everything), BUNDLES_A_THREAD * sum(threads.values()))
            cuts = [len(everything) * k // n for k in range(n + 1)]
            yield from ((list(everything[a:b]), None) for a, b in pairwise(cuts))
            return
        # In proportion to threads; those whose worker is still there stay.
        slots = [worker for worker in sorted(threads) for _ in range(threads[worker])]
        for i in everything:
            if self._home.get(i) not in threads:
                self._home[i] = slots[i % len(slots)]
        for worker in sorted(threads):
            own = [i for i in everything if self._home[i] == worker]
            for k in range(threads[worker]):
                if own[k :: threads[worker]]:
                    yield own[k :: threads[worker]], worker

    def _added(self, level: list[Any]) -> list[Any]:
        """Add all shares, a few at a time, by a tree of tasks with priority over others."""
        depth = 0
        while len(level) > FAN_IN:
            groups = [level[k : k + FAN_IN] for k in range(0, len(level), FAN_IN)]
            level = [
                self._submit(merged, group, name=f"tree-{depth}-{k}", priority=1)
                for k, group in enumerate(groups)
            ]
            depth += 1
        return level

    def _awaited(self, future: Any) -> Share:
        """Wait for the result of a task."""
        from asyncio import TimeoutError as TooLate  # also Dask's
        from concurrent.futures import CancelledError

        while True:
            try:
                share: Share = future.result(timeout=POLL)
            except TooLate:
                if not self._client.nthreads():
                    raise ClusterError(NO_WORKERS) from None
            except CancelledError:
                raise ClusterError("the cluster cancelled the tasks of this fit") from None
            except Exception as error:
                # Tasks return their own errors: this one is about workers.
                raise ClusterError(
                    f"a task could not be run by the workers: {type(error).__name__}; if they ran "
                    "out of memory, use smaller partitions or resident=False"
                ) from None
            else:
                return share

    def _loader(self, i: int) -> Any:
        """Return a loader, or the future of a large one."""
        loader = self._loaders[i]
        if getattr(loader, "nbytes", 0) <= SMALL_LOADER:
            return loader
        if i not in self._held:
            self._held[i] = self._submit(_identity, loader, name=f"rows-{i}")
        return self._held[i]

    def _held_recipe(self, recipe: Recipe) -> Any:
        """Return the future of a recipe, so that its matrices are sent once."""
        if self._recipe is None or self._recipe[0] is not recipe:
            self._recipe = recipe, self._submit(_identity, recipe, name="recipe")
        return self._recipe[1]

    def _submit(self, function: Any, *given: Any, name: str, **how: Any) -> Any:
        """Submit a task under a unique name, so that a repetition is the same task."""
        key = f"dpsvm-{self._token}-{self._n_runs}-{name}"
        self._running.append(self._client.submit(function, *given, key=key, pure=False, **how))
        return self._running[-1]


def _release(futures: list[Any]) -> None:
    """Release results on the cluster, which cancels tasks that have not begun.

    Exceptions keep references to futures while they are inspected, so they are released explicitly.
    """
    for future in futures:
        future.release()


def _identity(value: Any) -> Any:
    """Return an object that is kept on a worker, and rebuilt if it is lost."""
    return value


Executor = LocalExecutor | ClusterExecutor


def _check_client(client: Any) -> str:
    """Return the build of all workers; refuse a client that cannot run a fit."""
    for name in ("submit", "nthreads", "run"):
        if not callable(getattr(client, name, None)):
            raise InvalidTypeError.of("client", client, "a distributed.Client or None")
    if getattr(client, "asynchronous", False):
        raise InvalidParameterError(
            "client: got an asynchronous Client, expected asynchronous=False"
        )
    if not client.nthreads():
        raise ClusterError("client: the cluster has no workers; nothing was spent")
    answers = client.run(build, on_error="return")
    failed = [answer for answer in answers.values() if not isinstance(answer, str)]
    if failed:
        raise ClusterError(
            f"client: a worker cannot import dpsvm-fast: {type(failed[0]).__name__}; nothing was "
            "spent"
        )
    return _one_build(frozenset(answers.values()), "nothing was spent")


def _one_build(builds: frozenset[str], spent: str) -> str:
    """Return the only build; mixed builds are refused, as sums must not depend on the worker."""
    if len(builds) != 1:
        raise ClusterError(
            f"client: the workers run {', '.join(sorted(builds))}; expected the same version and "
            f"kind of processor on all; {spent}"
        )
    return next(iter(builds))


def _protocol(client: Any) -> str:
    """Return the protocol between the machines; warn if it is not encrypted."""
    address = str(getattr(client.scheduler, "address", "") or "")
    protocol, _, place = address.partition("://")
    near = place.startswith(("127.", "localhost", "[::1]"))
    if protocol in ("tcp", "ws") and not near:
        warnings.warn(
            f"client: the cluster uses {protocol} without encryption, so sums without noise cross "
            "the network in clear; start it with distributed.Security (tls://)",
            PrivacyLeakWarning,
            stacklevel=5,
        )
    return protocol or "unknown protocol"
