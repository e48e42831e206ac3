"""A cluster without processes: every task is run at once, twice, from a pickle of it.

It has what fits ask of a ``distributed.Client``. Each worker has a store of records of its own, so
that what one keeps another has to make anew. Workers can be lost at a chosen task; tasks that may
run elsewhere then do, as on a cluster.
"""

from __future__ import annotations

import asyncio
import pickle
from collections import OrderedDict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from dpsvm_fast.data import executors as tasks

__all__ = ["Cluster", "Future"]


class Future:
    """A result, or that there will be none."""

    def __init__(self, value: Any, *, lost: bool = False) -> None:
        self.value, self.lost, self.status = value, lost, "finished"
        self.released = False

    def release(self) -> None:
        self.released = True

    def result(self, timeout: float | None = None) -> Any:
        if self.lost:
            raise asyncio.TimeoutError
        if isinstance(self.value, BaseException):
            raise self.value
        return self.value


class Cluster:
    """Workers by name with their threads.

    Parameters
    ----------
    threads : dict of str to int
    lost_at : int or None
        Number of the sum, from 0, at which the last worker is lost.
    before : callable or None
        Called with the function of each task.
    """

    def __init__(
        self,
        threads: dict[str, int] | None = None,
        *,
        lost_at: int | None = None,
        before: Callable[[Any], None] | None = None,
        address: str = "inproc://here",
    ) -> None:
        self.threads = dict(threads or {"a": 1, "b": 2})
        self.stores: dict[str, Any] = {name: OrderedDict() for name in self.threads}
        self.scheduler = SimpleNamespace(address=address)
        self.lost_at, self.before, self.n_sums = lost_at, before, 0
        self.keys: list[str] = []
        self.sent: list[bytes] = []
        self.results: list[Any] = []
        self.futures: list[Future] = []
        self.builds: dict[str, Any] = {}

    def nthreads(self) -> dict[str, int]:
        return dict(self.threads)

    def run(self, function: Any, *given: Any, on_error: str) -> dict[str, Any]:
        found = {name: self._on(name, lambda: function(*given)) for name in self.threads}
        return found | (self.builds if not given else {})

    def submit(
        self,
        function: Any,
        *given: Any,
        key: str,
        pure: bool,
        workers: str | None = None,
        allow_other_workers: bool = False,
        priority: int = 0,
        **named: Any,
    ) -> Future:
        assert pure is False
        assert key not in self.keys
        self.keys.append(key)
        if self.before is not None:
            self.before(function)
        given, lost = _values(given)
        if function is tasks.share_of_bundle:
            self.n_sums += 1
            if self.n_sums - 1 == self.lost_at:
                gone = list(self.threads)[-1]
                del self.threads[gone], self.stores[gone]
        if workers not in self.threads and allow_other_workers:
            workers = None
        lost = lost or not self.threads or (workers is not None and workers not in self.threads)
        if lost:
            return self._future(None, lost=True)
        task = pickle.dumps((function, given, named))
        self.sent.append(task)
        # A free task goes to a worker that depends on how many there were before.
        names = list(self.threads)
        once, again = (names[len(self.keys) % len(names)], names[(len(self.keys) + 1) % len(names)])
        if workers is not None:
            once = again = workers
        first, second = (self._on(name, lambda: _called(task)) for name in (once, again))
        if isinstance(first, tasks.Share):
            _check_same(first, second)
        self.results.append(first)
        return self._future(pickle.loads(pickle.dumps(first)))

    def _future(self, value: Any, *, lost: bool = False) -> Future:
        self.futures.append(Future(value, lost=lost))
        return self.futures[-1]

    def _on(self, worker: str, call: Callable[[], Any]) -> Any:
        """What a call returns in the process of a worker."""
        ours, tasks._KEPT = tasks._KEPT, self.stores[worker]
        try:
            return call()
        finally:
            tasks._KEPT = ours


def _called(task: bytes) -> Any:
    function, given, named = pickle.loads(task)
    return function(*given, **named)


def _values(given: Any) -> tuple[Any, bool]:
    """Arguments with results in the place of futures, and whether one is lost."""
    if isinstance(given, Future):
        return given.value, given.lost
    if isinstance(given, (list, tuple)):
        pairs = [_values(item) for item in given]
        return type(given)(value for value, _ in pairs), any(lost for _, lost in pairs)
    return given, False


def _check_same(first: Any, second: Any) -> None:
    """A task that is run again returns the same bits."""
    assert first.failure == second.failure
    assert first.n_rows == second.n_rows
    assert (first.parts is None) == (second.parts is None)
    for a, b in zip(first.parts or (), second.parts or (), strict=True):
        assert a.dtype == b.dtype
        assert np.array_equal(a, b)
