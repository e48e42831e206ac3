"""Both ways to search: fits, scores, noise and the choice. Nothing un-noised leaves this file."""

from __future__ import annotations

import math
import os
import random
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.parallel import Parallel, delayed

from dpsvm_fast import _core
from dpsvm_fast.certificates import RandomStoppingEvent
from dpsvm_fast.certificates.statement import SelectionNoise
from dpsvm_fast.estimators.fit import within_search
from dpsvm_fast.estimators.frames import rows_at
from dpsvm_fast.estimators.inputs import encoded_labels, public_classes
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.model_selection.plan import Allotment, CandidateLedger, Plan
from dpsvm_fast.pipelines import leaf_steps, private_steps
from dpsvm_fast.validation import check_n_threads, check_option, check_positive

# One fit of one candidate, in whatever thread or process it is made.


# What a fit is given and gives back.
GIVEN = frozenset({"ledger", "random_state", "n_threads"})

# Seconds between two looks of a worker at its parent.
LOOK = 0.5
# The process that looks; a fork of it does not.
_looking = 0


@dataclass(frozen=True)
class Fit:
    """How a candidate is to be fitted.

    Parameters
    ----------
    allotment : Allotment
        Its copy is not touched: runs of one candidate share it.
    seed : int or None
        None for entropy of the operating system.
    n_threads : int or None
        For estimators that leave it open; does not change the result.
    process : int
        Number of the process that searches.
    """

    allotment: Allotment
    seed: int | None
    n_threads: int | None
    process: int = field(default_factory=os.getpid)


def seeds(random_state: int | None, n: int) -> list[int | None]:
    """Seeds of so many fits, different ones, or None for each."""
    if random_state is None:
        return [None] * n
    source = _core.NoiseSource(random_state)
    return [source.public_seed() for _ in range(n)]


def fitted(how: Fit, X: Any, y: Any) -> Any:
    """A fitted copy of the candidate, that can spend what the search has paid for and no more."""
    estimator = clone(how.allotment.estimator)
    with _prepared(estimator, how), within_search():
        estimator.fit(X, y)
    return estimator


def fitted_and_scored(
    how: Fit, X: Any, y: Any, X_scored: Any, y_scored: Any, scoring: Scoring
) -> tuple[Any, int]:
    """A fitted copy and its score on other rows. The score is private."""
    _end_with(how.process)
    estimator = fitted(how, X, y)
    return estimator, scoring.score(estimator.predict(X_scored), y_scored)


def _end_with(process: int) -> None:
    """Make a worker end when the process that searches does, also by SIGTERM or SIGKILL.

    A worker that is left alone would hold rows in memory, and the pipes of its parent open, for as
    long as its fit takes and minutes more. Threads, and workers of another parent, are let be.
    """
    global _looking
    if os.getppid() == process and _looking != os.getpid():
        _looking = os.getpid()
        threading.Thread(target=_look, args=(process,), daemon=True).start()


def _look(parent: int) -> None:
    """Wait until the parent has ended, and end too."""
    while os.getppid() == parent:
        time.sleep(LOOK)
    os._exit(1)


@contextmanager
def _prepared(estimator: Any, how: Fit) -> Iterator[None]:
    """Gives the steps inside ledger, seed and threads, and takes them away again."""
    allotment = how.allotment
    budget = allotment.budget
    ledger = CandidateLedger(budget.epsilon, budget.delta, budget.adjacency, allotment.events)
    spending = {id(step.estimator) for step in private_steps(estimator)}
    leaves = [leaf.estimator for leaf in leaf_steps(estimator, "")]
    silent = _silent(estimator)
    before = [(estimator, {name: estimator.get_params()[name] for name in silent})]
    for leaf in leaves:
        own = leaf.get_params(deep=False) if hasattr(leaf, "get_params") else {}
        before.append((leaf, {name: own[name] for name in own if name in GIVEN}))
    estimator.set_params(**silent)
    for leaf, seed in zip(leaves, seeds(how.seed, len(leaves)), strict=True):
        own = leaf.get_params(deep=False) if hasattr(leaf, "get_params") else {}
        given: dict[str, Any] = {}
        if id(leaf) in spending and "ledger" in own:
            given["ledger"] = ledger
        if "random_state" in own and own["random_state"] is None:
            given["random_state"] = seed
        if "n_threads" in own and own["n_threads"] is None:
            given["n_threads"] = how.n_threads
        if given:
            leaf.set_params(**given)
    try:
        yield
    finally:
        for owner, parameters in before:
            if parameters:
                owner.set_params(**parameters)


def _silent(estimator: Any) -> dict[str, Any]:
    """What keeps an estimator and all inside from telling how many fits there are, by name.

    Neither a line for each fit nor a copy of every step's rows in a cache may be left behind.
    """
    found: dict[str, Any] = {}
    for name, value in estimator.get_params().items():
        last = name.rpartition("__")[2]
        if last == "memory" and value is not None:
            found[name] = None
        if last == "verbose" and value:
            found[name] = False if isinstance(value, bool) else 0
    return found


def release_only(estimator: Any, statement: Any) -> Any:
    """The fitted estimator with the promise of the search in place of that of its own fit.

    Its own would be about one fit, and whoever reads it would leave out the search. What a fit
    keeps to be continued from goes too: a continuation would account for that fit alone.
    """
    for leaf in leaf_steps(estimator, ""):
        leaf.estimator.__dict__.pop("_continuation", None)
    steps = private_steps(estimator)
    if steps and "privacy_" in vars(steps[-1].estimator):
        steps[-1].estimator.privacy_ = statement
    return estimator


# Scores of candidates: whole numbers that one record changes by a known whole number.


SCORINGS = ("errors", "balanced_errors")
# Weights of classes are rounded to multiples of the largest over this.
RESOLUTION = 256
# Scores end here, so that differences of them stay exact in the samplers. Fewer records reach it
# than fit into memory, and cutting all scores off at one public number changes no sensitivity.
LARGEST_SCORE = 2**32 - 1


class Scoring:
    """How errors are counted.

    Parameters
    ----------
    scoring : {"errors", "balanced_errors"}
    class_weight : dict or None
        Public weight of an error on each class, for "balanced_errors" alone.

    Attributes
    ----------
    classes : ndarray or None
        The classes that have weights.
    weights : ndarray of int
        In their order; None stands for 1 for every class.
    sensitivity : int
        By how much one record changes a score: it adds nothing to those of candidates that are
        right about it, and its class's weight to the others.
    """

    def __init__(self, scoring: Any, class_weight: Any) -> None:
        kind = check_option("scoring", scoring, SCORINGS)
        self.classes: NDArray[Any] | None = None
        self.weights: NDArray[np.int64] | None = None
        self.sensitivity = 1
        if kind == "errors":
            if class_weight is not None:
                raise InvalidParameterError(
                    "class_weight: expected None with scoring='errors'; 'balanced_errors' uses it"
                )
            return
        if not isinstance(class_weight, Mapping):
            raise TypeError(
                f"class_weight: got {type(class_weight).__name__}, expected a dict with a public "
                "weight for every class; those of the data are private"
            )
        try:
            self.classes = public_classes(list(class_weight))
        except TypeError as error:
            raise TypeError(f"class_weight: {error}") from None
        except ValueError as error:
            raise InvalidParameterError(f"class_weight: {error}") from None
        given = [check_positive("class_weight", value) for value in class_weight.values()]
        order = encoded_labels(np.asarray(list(class_weight)), self.classes)
        self.weights = np.empty(len(given), dtype=np.int64)
        self.weights[order] = _whole(given)
        self.sensitivity = int(self.weights.max())

    def check_labels(self, y: NDArray[Any]) -> None:
        """Refuse labels that have no weight; the text does not quote them."""
        if self.classes is not None:
            encoded_labels(y, self.classes)

    def score(self, predicted: Any, y: NDArray[Any]) -> int:
        """Weighted number of errors: private.

        Parameters
        ----------
        predicted, y : array-like of shape (n_samples,)
        """
        wrong = np.asarray(predicted).reshape(-1) != y
        if self.weights is None or self.classes is None:
            total = int(np.count_nonzero(wrong))
        else:
            total = int(self.weights[encoded_labels(y, self.classes)][wrong].sum())
        return min(total, LARGEST_SCORE)


def _whole(weights: list[float]) -> list[int]:
    """Whole numbers in about the ratio of the weights; the largest is RESOLUTION, or 1 for all."""
    largest = Fraction(max(weights))
    ratios = [Fraction(weight) / largest for weight in weights]
    if all(ratio == 1 for ratio in ratios):
        return [1] * len(ratios)
    return [max(1, round(ratio * RESOLUTION)) for ratio in ratios]


# The number of runs of a search by random stopping, drawn exactly.
#
# Only fair draws of whole numbers and comparisons of whole numbers are used, so there is no
# rounding
# whose effect on the law would have to be argued. With :math:`\gamma = p/q` the rational number
# that
# the floating-point parameter of the event is:
#
# - geometric: repeat a trial that succeeds with probability p/q until it does;
# - logarithmic, :math:`P(k) \propto (1-\gamma)^k / k`: draw a geometric number k and keep it with
#   probability 1/k, else begin again. What is kept has probabilities in proportion to
#   :math:`\gamma (1-\gamma)^{k-1} / k`;
# - Poisson of mean m: the sum of :math:`n = \lceil m \rceil` Poisson numbers of mean
#   :math:`\lambda = m/n \le 1`. For each, draw k with probability :math:`2^{-k-1}` and keep it with
#   probability :math:`(2\lambda)^k / (2\, k!) \le 1`; what is kept has probabilities in
#   proportion to
#   :math:`\lambda^k / k!`.
#
# None of it looks at data, so how long it takes says nothing about them.


def number_of_runs(event: RandomStoppingEvent, source: random.Random) -> int:
    """Draw the number of runs. To be told to nobody.

    Parameters
    ----------
    event : RandomStoppingEvent
        What is charged for them: its law is the one drawn from.
    source : random.Random
        ``random.SystemRandom()``, whose bits are the operating system's; a seeded generator is for
        searches that promise nothing.
    """
    if event.stopping == "poisson":
        mean = Fraction(event.mean)
        n = math.ceil(mean)
        return sum(_small_poisson(mean / n, source) for _ in range(n))
    gamma = Fraction(event.gamma)
    if event.stopping == "geometric":
        return _geometric(gamma, source)
    while True:
        k = _geometric(gamma, source)
        if source.randrange(k) == 0:
            return k


def _bernoulli(p: Fraction, source: random.Random) -> bool:
    """True with probability p."""
    return source.randrange(p.denominator) < p.numerator


def _geometric(p: Fraction, source: random.Random) -> int:
    """Number of trials until the first success."""
    k = 1
    while not _bernoulli(p, source):
        k += 1
    return k


def _small_poisson(mean: Fraction, source: random.Random) -> int:
    """Poisson number of a mean of at most 1."""
    while True:
        k = _geometric(Fraction(1, 2), source) - 1
        if _bernoulli((2 * mean) ** k / (2 * math.factorial(k)), source):
            return k


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
    sources = noise_sources(rows.random_state)
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
    source, coins = noise_sources(rows.random_state)
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


def noise_sources(random_state: int | None) -> Sources:
    """Sources of noise and of fair draws: of the operating system, or those of a seed."""
    if random_state is None:
        return Sources(_core.NoiseSource(None), random.SystemRandom())
    noise, coins, *_ = seeds(random_state, N_STREAMS)
    # Not private, and the statement says so.
    return Sources(_core.NoiseSource(noise), random.Random(coins))


def fit_seeds(random_state: int | None, n: int) -> list[int | None]:
    """Seeds of the fits, none of which is one of the search itself."""
    return seeds(seeds(random_state, N_STREAMS)[3], n)
