"""Who runs the tasks: this process, or the workers of a Dask cluster."""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

from dpsvm_fast.accounting.words import CLUSTER_CAVEAT
from dpsvm_fast.distributed._operations import Operation
from dpsvm_fast.distributed._stored import StoredExecutor, may_be_stored, prepared, stored
from dpsvm_fast.distributed._tasks import (
    Loader,
    Recipe,
    Share,
    build,
    forget,
    merged,
    share_of_bundle,
)
from dpsvm_fast.distributed.errors import ClusterError
from dpsvm_fast.exceptions import InvalidParameterError, PrivacyLeakWarning

__all__ = ["ClusterExecutor", "Executor", "LocalExecutor"]

# Bundles of partitions for each thread of a worker, where any worker takes any bundle: few, because
# each brings a sum that waits to be added, and enough for the faster worker to take more.
BUNDLES_A_THREAD = 4
# Sums that one task adds up.
FAN_IN = 4
# Loaders that are larger than this, because they hold rows, are sent once and not with each task.
SMALL_LOADER = 1 << 16
# Seconds between two looks at which workers are left.
POLL = 1.0
# How often one sum is begun anew because a worker was lost.
ATTEMPTS = 5


class Executor(Protocol):
    """Runs one operation over all partitions."""

    # What a statement says about where the sums were made.
    caveats: tuple[str, ...]

    def run(self, recipe: Recipe, operation: Operation) -> Share:
        """Exact sums over all partitions."""

    def stored(self, recipe: Recipe, *, together: bool) -> tuple[Executor, Recipe] | None:
        """Who runs on rows that are mapped and stored now; None where rows stay as they are.

        Several partitions may be summed ``together`` where all rows are.
        """

    def close(self) -> None:
        """Drops all records, and stops what still runs."""


class LocalExecutor:
    """One partition after the other, in this process.

    Parameters
    ----------
    loaders : sequence of callables
    n_threads : int
        Inside a partition. Does not change the result.
    resident : int
        Of how many partitions, the first ones, records are kept for the next sum.
    scratch : Path or None, default=None
        Folder for mapped rows.
    """

    caveats: tuple[str, ...] = ()

    def __init__(
        self,
        loaders: Sequence[Loader],
        n_threads: int,
        *,
        resident: int,
        scratch: Path | None = None,
    ) -> None:
        self._loaders, self._scratch = list(loaders), scratch
        self._n_threads, self._n_resident = n_threads, min(resident, len(self._loaders))
        self._token = uuid.uuid4().hex
        self._after: Executor | None = None

    def run(self, recipe: Recipe, operation: Operation) -> Share:
        """Exact sums over all partitions."""
        bundle, kept = list(enumerate(self._loaders)), self._n_resident
        total = Share()
        for part, resident in ((bundle[:kept], True), (bundle[kept:], False)):
            if total.failure is None:
                total.add(
                    share_of_bundle(
                        part, recipe, operation, self._token, self._n_threads, resident=resident
                    )
                )
        return total

    def stored(self, recipe: Recipe, *, together: bool) -> tuple[Executor, Recipe] | None:
        """Who runs on rows that are mapped and stored now; None where rows stay as they are."""
        if self._scratch is None or not may_be_stored(recipe):
            return None
        loaders, again = prepared(self._loaders, recipe, self._n_threads)
        kept = self._n_resident
        files, room = stored(
            list(enumerate(loaders))[kept:],
            again,
            self._scratch,
            together=together,
            n_threads=self._n_threads,
        )
        self.close()
        resident = LocalExecutor(loaders[:kept], self._n_threads, resident=kept)
        self._after = StoredExecutor(resident, files, room, self._n_threads)
        return self._after, again

    def close(self) -> None:
        """Drops all records."""
        forget(self._token)
        if self._after is not None:
            self._after.close()


class ClusterExecutor:
    """Bundles of partitions on the workers of a cluster; their sums are added in a tree.

    Records that are kept are tied to the worker that has them. Where it is lost, its partitions go
    to those that are left, which build them anew. Everything else may run anywhere.

    Parameters
    ----------
    client : distributed.Client
        Connected, and not asynchronous.
    loaders : sequence of callables
    n_threads : int
        Inside one task.
    resident : bool

    Raises
    ------
    ClusterError
        There is no worker, or they run several versions or kinds of processors.
    """

    def __init__(
        self, client: Any, loaders: Sequence[Loader], n_threads: int, *, resident: bool
    ) -> None:
        self._client, self._loaders = client, list(loaders)
        self._n_threads, self._resident = n_threads, resident
        self._token = uuid.uuid4().hex
        self._held: dict[int, Any] = {}
        self._home: dict[int, str] = {}
        self._recipe: tuple[Recipe, Any] | None = None
        self._n_runs = 0
        self._build = _check_client(client)
        self.caveats: tuple[str, ...] = (CLUSTER_CAVEAT.format(protocol=_protocol(client)),)

    def run(self, recipe: Recipe, operation: Operation) -> Share:
        """Exact sums over all partitions.

        Raises
        ------
        ClusterError
            Workers were lost again and again, or a task could not run there.
        """
        for _ in range(ATTEMPTS):
            self._n_runs += 1
            futures: list[Any] = []
            try:
                share = self._attempt(recipe, operation, futures)
            except BaseException:
                _release(futures)
                raise
            if share is not None:
                # Workers may have joined since they were asked.
                _one_build(share.builds | {self._build}, "the budget is spent")
                return share
            _release(futures)
        raise ClusterError(
            f"workers were lost in each of {ATTEMPTS} attempts; smaller partitions, or "
            "resident=False, need less memory"
        )

    def stored(self, recipe: Recipe, *, together: bool) -> tuple[Executor, Recipe] | None:
        """None: workers share no folder."""
        return None

    def close(self) -> None:
        """Drops all records on all workers, and stops what still runs."""
        held = [*self._held.values(), *(() if self._recipe is None else (self._recipe[1],))]
        _release(held)
        self._held, self._recipe = {}, None
        try:
            self._client.run(forget, self._token, on_error="ignore")
        except Exception:
            # The cluster may be gone; then so are the records. What else a worker keeps is
            # bounded, and dropped for the next fits.
            return

    def _attempt(self, recipe: Recipe, operation: Operation, futures: list[Any]) -> Share | None:
        """One try; ``futures`` takes what was submitted. None where a worker was lost."""
        threads = self._client.nthreads()
        if not threads:
            raise ClusterError("client: the cluster has no workers left")
        with _large_messages_allowed():
            for place, (bundle, worker) in enumerate(self._bundles(threads)):
                held = [(i, self._loader(i)) for i in bundle]
                futures.append(
                    self._submit(
                        share_of_bundle,
                        held,
                        self._held_recipe(recipe),
                        operation,
                        self._token,
                        self._n_threads,
                        resident=self._resident,
                        name=f"sum-{place}",
                        workers=worker,
                    )
                )
            few = self._added(list(futures), futures)
        total = Share()
        for future in few:
            share = self._awaited(future)
            if share is None:
                return None
            total.add(share)
        return total

    def _bundles(self, threads: dict[str, int]) -> Iterator[tuple[list[int], str | None]]:
        """Numbers of partitions that one task takes, and the worker that it is tied to."""
        everything = range(len(self._loaders))
        if not self._resident:
            n = min(len(everything), BUNDLES_A_THREAD * sum(threads.values()))
            cuts = [len(everything) * k // n for k in range(n + 1)]
            yield from ((list(everything[a:b]), None) for a, b in pairwise(cuts))
            return
        # In proportion to threads; those whose worker is still there stay.
        seats = [worker for worker in sorted(threads) for _ in range(threads[worker])]
        for i in everything:
            if self._home.get(i) not in threads:
                self._home[i] = seats[i % len(seats)]
        for worker in sorted(threads):
            own = [i for i in everything if self._home[i] == worker]
            for k in range(threads[worker]):
                if own[k :: threads[worker]]:
                    yield own[k :: threads[worker]], worker

    def _added(self, level: list[Any], futures: list[Any]) -> list[Any]:
        """Sums of all shares, few of them, by a tree of tasks that are done before others begin."""
        depth = 0
        while len(level) > FAN_IN:
            groups = [level[k : k + FAN_IN] for k in range(0, len(level), FAN_IN)]
            level = [
                self._submit(merged, group, name=f"tree-{depth}-{k}", priority=1)
                for k, group in enumerate(groups)
            ]
            futures += level
            depth += 1
        return level

    def _awaited(self, future: Any) -> Share | None:
        """The result; None where records were lost with their worker."""
        from concurrent.futures import CancelledError

        from distributed import TimeoutError as TooLate

        while True:
            try:
                share: Share = future.result(timeout=POLL)
            except TooLate:
                if self._resident and not set(self._home.values()) <= set(self._client.nthreads()):
                    return None
            except CancelledError:
                raise ClusterError("the cluster cancelled the tasks of this fit") from None
            except Exception as error:
                # Tasks return their own errors: this one is about workers.
                raise ClusterError(
                    f"a task could not be run by the workers: {type(error).__name__}"
                ) from None
            else:
                return share

    def _loader(self, i: int) -> Any:
        """A loader, or the future of one that is large."""
        loader = self._loaders[i]
        if getattr(loader, "nbytes", 0) <= SMALL_LOADER:
            return loader
        if i not in self._held or self._held[i].status in ("cancelled", "error", "lost"):
            self._held[i] = self._client.submit(
                _itself, loader, key=f"dpsvm-{self._token}-rows-{i}-{self._n_runs}", pure=False
            )
        return self._held[i]

    def _held_recipe(self, recipe: Recipe) -> Any:
        """The future of a recipe, whose matrices are sent once."""
        if self._recipe is None or self._recipe[0] is not recipe:
            key = f"dpsvm-{self._token}-recipe-{self._n_runs}"
            self._recipe = recipe, self._client.submit(_itself, recipe, key=key, pure=False)
        return self._recipe[1]

    def _submit(self, function: Any, *given: Any, name: str, **how: Any) -> Any:
        """A task under a name of its own: run again, it is the same task."""
        key = f"dpsvm-{self._token}-{self._n_runs}-{name}"
        return self._client.submit(function, *given, key=key, pure=False, **how)


def _release(futures: list[Any]) -> None:
    """Tells the cluster that results are not wanted any more: what has not begun never will.

    Exceptions keep references to futures for as long as somebody looks at them, so it is told.
    """
    for future in futures:
        future.release()


def _itself(value: Any) -> Any:
    """What is kept on a worker, and made again where it is lost."""
    return value


def _check_client(client: Any) -> str:
    """The build that all workers run; refuses what cannot run a fit, before anything is spent."""
    for name in ("submit", "nthreads", "run"):
        if not callable(getattr(client, name, None)):
            raise TypeError(
                f"client: got {type(client).__name__}, expected a distributed.Client or None"
            )
    if getattr(client, "asynchronous", False):
        raise InvalidParameterError(
            "client: got an asynchronous one, expected a Client made with asynchronous=False"
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
    """Refuse a mixture: what one record adds must not depend on who happens to sum it."""
    if len(builds) != 1:
        raise ClusterError(
            f"client: the workers run {', '.join(sorted(builds))}; expected one version, and one "
            f"kind of processor, on all of them; {spent}"
        )
    return next(iter(builds))


def _protocol(client: Any) -> str:
    """How the machines talk; warns where anyone on the way can listen."""
    address = str(getattr(client.scheduler, "address", "") or "")
    protocol, _, place = address.partition("://")
    near = place.startswith(("127.", "localhost", "[::1]"))
    if protocol in ("tcp", "ws") and not near:
        warnings.warn(
            f"client: the cluster talks over {protocol} without encryption; sums without noise "
            "cross the network in clear. Start it with distributed.Security (tls://)",
            PrivacyLeakWarning,
            stacklevel=5,
        )
    return protocol or "unknown protocol"


@contextmanager
def _large_messages_allowed() -> Iterator[None]:
    """Rows of the caller's own arrays have to be sent once, whatever Dask thinks of it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sending large graph")
        yield
