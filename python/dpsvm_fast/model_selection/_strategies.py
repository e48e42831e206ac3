"""Both ways to search: fits, scores, noise and the choice. Nothing un-noised leaves this file."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import NDArray
from sklearn.utils.parallel import Parallel, delayed

from dpsvm_fast import _core
from dpsvm_fast._validation import check_n_threads
from dpsvm_fast.accounting import RandomStoppingEvent
from dpsvm_fast.accounting.selection import SelectionNoise
from dpsvm_fast.estimators._frames import rows_at
from dpsvm_fast.model_selection._budgets import Allotment
from dpsvm_fast.model_selection._plan import Plan
from dpsvm_fast.model_selection._runs import Fit, fitted, fitted_and_scored, seeds
from dpsvm_fast.model_selection._scores import Scoring
from dpsvm_fast.model_selection._stopping import number_of_runs

__all__ = ["Chosen", "Rows", "best_of_parts", "best_of_runs", "part_sizes", "refitted"]

# Of a seed: the noise of the choice, fair draws, the refit, all other fits.
N_STREAMS = 4


@dataclass(frozen=True)
class Rows:
    """Rows and labels, and how to go about them.

    Parameters
    ----------
    X : array-like
    y : ndarray
    n_jobs : int or None
    random_state : int or None
    """

    X: Any
    y: NDArray[Any]
    n_jobs: int | None
    random_state: int | None

    def some(self, members: NDArray[np.intp]) -> tuple[Any, NDArray[Any]]:
        """The rows with these numbers."""
        return rows_at(self.X, members), self.y[members]

    def together(self, calls: Iterable[Any], n_calls: int) -> list[Any]:
        """Results of calls, in their order, from as many workers as wanted and no idle ones."""
        idle = effective_n_jobs(self.n_jobs) > n_calls
        return list(Parallel(n_jobs=n_calls if idle else self.n_jobs)(calls))

    @property
    def n_threads(self) -> int | None:
        """Threads of one fit where several are made at a time: the cores divided among them."""
        workers = effective_n_jobs(self.n_jobs)
        return None if workers == 1 else max(1, check_n_threads(None) // workers)


@dataclass(frozen=True)
class Chosen:
    """What is released.

    Parameters
    ----------
    index : int
        Of the candidate; -1 where no run was made.
    estimator : object or None
        Fitted; None where no run was made.
    score : float or None
        The noisy score, where there is one.
    """

    index: int
    estimator: Any
    score: float | None


def part_sizes(n_samples: int, n_candidates: int, validation_fraction: float) -> list[int]:
    """Sizes of the part to choose by and of one part for each candidate, for ``replace_one``."""
    chosen_by = round(validation_fraction * n_samples)
    ends = [
        chosen_by + (n_samples - chosen_by) * i // n_candidates for i in range(n_candidates + 1)
    ]
    return [chosen_by, *(b - a for a, b in pairwise(ends))]


def part_weights(n_candidates: int, validation_fraction: float) -> NDArray[np.int64]:
    """Probabilities of the parts, for ``add_remove``, as whole numbers in proportion to them."""
    whole = 2**20
    chosen_by = max(1, round(validation_fraction * whole))
    # Of parts alike, so that the sum is in the range of the sampler for any number of candidates.
    return np.array([chosen_by * n_candidates, *[whole - chosen_by] * n_candidates], dtype=np.int64)


def assigned_parts(
    rows: Rows, plan: Plan, validation_fraction: float, sources: Sources
) -> list[NDArray[np.intp]]:
    """Row numbers of every part; no record has a say in who is where.

    Under ``add_remove`` every record draws its part independently, so that one more or fewer does
    not move the others. Under ``replace_one`` positions are shuffled and cut up. Nobody is told.
    """
    source, coins = sources
    n, m = len(rows.y), len(plan.branches)
    if plan.branches[0].budget.adjacency == "replace_one":
        # Positions sorted by two words of random bits each: in random order whatever they hold.
        order = np.lexsort(np.frombuffer(coins.randbytes(16 * n), dtype=np.uint64).reshape(2, n))
        ends = np.cumsum(part_sizes(n, m, validation_fraction))
        return [np.sort(part) for part in np.split(order, ends[:-1])]
    weights = part_weights(m, validation_fraction)
    drawn = np.asarray(source.random_parts(n, weights, check_n_threads(None)))
    return [np.flatnonzero(drawn == part) for part in range(m + 1)]


def best_of_parts(rows: Rows, plan: Plan, scoring: Scoring, validation_fraction: float) -> Chosen:
    """One fit for each candidate on its own part, and a noisy choice by errors on another."""
    m = len(plan.branches)
    sources = _sources(rows.random_state)
    parts = assigned_parts(rows, plan, validation_fraction, sources)
    if any(part.size == 0 for part in parts):
        raise RuntimeError(
            "a part of the rows is empty, which has a probability below 1e-17 with as many rows "
            "as are expected; nothing is released and the budget is spent"
        )
    scored = rows.some(parts[0])
    results = rows.together(
        (
            delayed(fitted_and_scored)(
                Fit(branch, seed, rows.n_threads), *rows.some(part), *scored, scoring
            )
            for branch, part, seed in zip(
                plan.branches, parts[1:], fit_seeds(rows.random_state, m), strict=True
            )
        ),
        m,
    )
    scores = np.array([score for _, score in results], dtype=np.int64)
    index = chosen_index(scores, plan.selection, sources.noise)
    return Chosen(index, results[index][0], None)


def chosen_index(
    scores: NDArray[np.int64], selection: SelectionNoise, source: _core.NoiseSource
) -> int:
    """The noisy choice: low scores are good."""
    assert selection.rate is not None
    if selection.mechanism == "exponential":
        return int(source.exponential_choice(scores, selection.rate))
    return int(source.permute_and_flip(scores, selection.rate))


def best_of_runs(rows: Rows, plan: Plan, scoring: Scoring) -> Chosen:
    """The run with the best noisy score, out of a number of them that nobody is told."""
    source, coins = _sources(rows.random_state)
    event = plan.events[0]
    assert isinstance(event, RandomStoppingEvent)
    n_runs, m = number_of_runs(event, coins), len(plan.branches)
    if n_runs == 0:
        return Chosen(-1, None, None)
    drawn = [coins.randrange(m) for _ in range(n_runs)]
    results = rows.together(
        (
            delayed(fitted_and_scored)(
                Fit(plan.branches[index], seed, rows.n_threads),
                rows.X,
                rows.y,
                rows.X,
                rows.y,
                scoring,
            )
            for index, seed in zip(drawn, fit_seeds(rows.random_state, n_runs), strict=True)
        ),
        n_runs,
    )
    exact = np.array([score for _, score in results], dtype=np.int64)
    noisy = exact + score_noise(plan.selection, n_runs, source)
    # A run's rank among equals is another coordinate of it, independent of everything: so is a
    # fair draw among the best.
    best = np.flatnonzero(noisy == noisy.min())
    winner = int(best[coins.randrange(best.size)])
    return Chosen(drawn[winner], results[winner][0], float(noisy[winner]))


def score_noise(
    selection: SelectionNoise, size: int, source: _core.NoiseSource
) -> NDArray[np.int64]:
    """Whole numbers of noise."""
    if selection.sigma is not None:
        return np.asarray(source.gaussian_on_grid(size, selection.sigma, 1.0, 1))
    assert selection.rate is not None
    denominator, numerator = selection.rate.as_integer_ratio()
    return np.asarray(source.discrete_laplace(size, numerator, denominator))


def refitted(rows: Rows, allotment: Allotment) -> Any:
    """The winner, fitted on all rows with the budget that was kept for it."""
    seed = seeds(rows.random_state, N_STREAMS)[2]
    return fitted(Fit(allotment, seed, None), rows.X, rows.y)


class Sources(NamedTuple):
    """Randomness of the search itself."""

    noise: _core.NoiseSource
    coins: random.Random


def _sources(random_state: int | None) -> Sources:
    """Sources of noise and of fair draws: of the operating system, or those of a seed."""
    if random_state is None:
        return Sources(_core.NoiseSource(None), random.SystemRandom())
    noise, coins, *_ = seeds(random_state, N_STREAMS)
    # Not private, and the statement says so.
    return Sources(_core.NoiseSource(noise), random.Random(coins))


def fit_seeds(random_state: int | None, n: int) -> list[int | None]:
    """Seeds of the fits, none of which is one of the search itself."""
    return seeds(seeds(random_state, N_STREAMS)[3], n)
