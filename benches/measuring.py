"""Timing: measurements of several candidates alternate, so that a slow minute hits all alike."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")


@dataclass(frozen=True)
class Measurement(Generic[Result]):
    """One timed call: wall time, and processor time of all threads of this process."""

    label: str
    repeat: int
    seconds: float
    cpu_seconds: float
    result: Result


def interleaved(
    candidates: Mapping[str, Callable[[int], Result]], repeats: int
) -> Iterator[Measurement[Result]]:
    """Call every candidate ``repeats`` times, in turn.

    The order rotates by one each round, so that no candidate always runs after the same other.
    A candidate receives the number of the round, to vary its seed.
    """
    labels = list(candidates)
    for repeat in range(repeats):
        start = repeat % len(labels)
        for label in labels[start:] + labels[:start]:
            begin, cpu_begin = time.perf_counter(), time.process_time()
            result = candidates[label](repeat)
            seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - cpu_begin
            yield Measurement(label, repeat, seconds, cpu_seconds, result)


def calls_for(call: Callable[[], object], batch_seconds: float) -> int:
    """How many calls take about ``batch_seconds``."""
    count = 1
    while True:
        elapsed = _batch(call, count)
        if elapsed >= batch_seconds / 2.0:
            return max(1, round(count * batch_seconds / max(elapsed, 1e-9)))
        count *= 4


def short_calls(
    candidates: Mapping[str, Callable[[], object]], repeats: int, batch_seconds: float
) -> Iterator[tuple[str, int, float]]:
    """Seconds a call, from interleaved batches: (label, repeat, seconds)."""
    counts = {label: calls_for(call, batch_seconds) for label, call in candidates.items()}
    batches = {
        label: (lambda _, call=call, n=counts[label]: _batch(call, n))
        for label, call in candidates.items()
    }
    for batch in interleaved(batches, repeats):
        yield batch.label, batch.repeat, batch.result / counts[batch.label]


def _batch(call: Callable[[], object], count: int) -> float:
    """Seconds of ``count`` calls."""
    begin = time.perf_counter()
    for _ in range(count):
        call()
    return time.perf_counter() - begin


class Child:
    """A function in a process of its own, which ends when a call takes too long.

    Parameters
    ----------
    ready : float
        Seconds to get ready.
    make : callable
        Makes the function there, of what is ``given``.
    """

    def __init__(self, ready: float, make: Callable[..., Any], *given: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, make, given), daemon=True)
        self.process.start()
        theirs.close()
        self.alive = True
        self._answer(ready)

    def ask(self, limit: float, *request: Any) -> Any:
        """The function's value; None where it takes longer than the limit, or a call before did."""
        if not self.alive:
            return None
        self.pipe.send(request)
        return self._answer(limit)

    def end(self) -> None:
        """End the process."""
        self.alive = False
        self.process.kill()
        self.process.join()

    def _answer(self, limit: float) -> Any:
        # Where it broke down there is nothing to receive.
        with suppress(EOFError):
            if self.pipe.poll(limit):
                return self.pipe.recv()
        return self.end()


def _serve(pipe: Any, make: Callable[..., Any], given: tuple[Any, ...]) -> None:
    """Answer until the process is ended; first that it is ready."""
    function = make(*given)
    pipe.send("ready")
    while True:
        pipe.send(function(*pipe.recv()))
