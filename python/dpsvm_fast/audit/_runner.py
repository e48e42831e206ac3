"""Runs of both worlds on all cores: first those that are learned from, then those that count."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast import _core
from dpsvm_fast.audit._claims import event_score
from dpsvm_fast.audit._statistic import Event, Statistic, chosen_event, learned_statistics
from dpsvm_fast.audit._subjects import Subject

__all__ = ["MOST_TRIALS", "Runner"]

Array = NDArray[np.float64]
Mapped = Callable[[Array], Array]

# Counted runs of a world at most: a million certifies within two percent of epsilon at 4.
MOST_TRIALS = 1_000_000
# The pilot: a fifth of the runs, and no more than help the choice.
PILOT_SHARE, LEAST_PILOT, MOST_PILOT = 0.2, 100, 40_000


class Runner:
    """Draws releases of a subject, in chunks whose noise does not depend on the threads.

    Parameters
    ----------
    subject : Subject
    n_threads : int
    seed : int or None
        None: every chunk has noise of the operating system.
    """

    event: Event
    statistic: Statistic

    def __init__(self, subject: Subject, n_threads: int, seed: int | None) -> None:
        self.subject = subject
        self._n_threads = n_threads
        self._root = None if seed is None else _core.NoiseSource(seed)

    def learn(self, n: int | None, deadline: float, method: str) -> int:
        """Choose statistic and event on runs that are not counted; returns how many there were."""
        wanted = MOST_PILOT if n is None else int(PILOT_SHARE * n)
        wanted = min(max(wanted, LEAST_PILOT), MOST_PILOT)
        started = time.monotonic()
        until = started + PILOT_SHARE * (deadline - started)
        vectors = self._draw(wanted, until, lambda v: v)
        size = min(len(v) for v in vectors)
        spent = time.monotonic() - started
        if n is None:
            rate = size / max(spent, 1e-6)
            left = min(deadline - time.monotonic(), 1e9)
            n = int(min(max(rate * left, size), MOST_TRIALS))
        self._choose(*vectors, n, method)
        return size

    def _choose(self, first: Array, second: Array, n: int, method: str) -> None:
        """One half teaches the statistics, the other chooses among them and cuts."""
        half = min(len(first), len(second)) // 2
        pure = method == "clopper_pearson"
        score_of = event_score(method, self.subject.claim)
        best = -math.inf
        for statistic in learned_statistics(first[:half], second[:half], pure=pure):
            parts = statistic.of(first[half:]), statistic.of(second[half:])
            score, event = chosen_event(*parts, n, score_of, smooth=not pure)
            if score > best or not hasattr(self, "event"):
                best, self.statistic, self.event = score, statistic, event

    def values(self, n: int | None, deadline: float) -> tuple[Array, Array]:
        """The statistic of fresh runs in both worlds: ``n`` of them, or as many as time allows."""
        most = MOST_TRIALS if n is None else n
        return self._draw(most, deadline, self.statistic.of)

    def _draw(self, n: int, deadline: float, of: Mapped) -> tuple[Array, Array]:
        """``of`` of n releases of each world, or fewer once the time is over."""
        chunk = min(world.chunk for world in self.subject.worlds)
        sizes = [min(chunk, n - begun) for begun in range(0, n, chunk)]
        found: tuple[list[Array], list[Array]] = ([], [])
        wave = max(1, math.ceil(self._n_threads / 2))
        with ThreadPoolExecutor(self._n_threads) as pool:
            for i in range(0, len(sizes), wave):
                jobs = [
                    (w, pool.submit(self._job, w, size, self._source(), of))
                    for size in sizes[i : i + wave]
                    for w in (0, 1)
                ]
                for w, job in jobs:
                    found[w].append(job.result())
                if time.monotonic() > deadline:
                    break
        return np.concatenate(found[0]), np.concatenate(found[1])

    def _job(self, world: int, size: int, source: _core.NoiseSource, of: Mapped) -> Array:
        return of(self.subject.worlds[world].draw(size, source))

    def _source(self) -> _core.NoiseSource:
        """Noise of its own for every chunk, of the operating system without a seed."""
        if self._root is None:
            return _core.NoiseSource(None)
        return _core.NoiseSource(self._root.public_seed())
