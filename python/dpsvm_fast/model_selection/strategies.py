"""Both search strategies: fits, scores, noise and choice. Only noisy values leave this module."""

from __future__ import annotations

import copy
import math
import multiprocessing
import os
import random
import threading
import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from inspect import signature
from typing import Any, NamedTuple

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import NDArray
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import _num_samples

from dpsvm_fast import _core
from dpsvm_fast import validation as check
from dpsvm_fast.certificates import PrivacyEvent, RandomStoppingEvent
from dpsvm_fast.certificates.statement import SelectionNoise
from dpsvm_fast.estimators.inputs import encoded_labels, public_classes
from dpsvm_fast.exceptions import InvalidParameterError, InvalidTypeError
from dpsvm_fast.mechanisms.plan import Plan
from dpsvm_fast.model_selection.plan import Allotment, Budgets, CandidateLedger, part_sizes
from dpsvm_fast.pipelines import leaf_steps, private_steps, takes

# Records that every part is expected to have.
SMALLEST_PART = 50
# Seconds between checks of a worker for its parent.
LOOK = 0.5
# The process that checks; a fork of it does not.
_looking = 0


class Part(NamedTuple):
    """Part of the rows; rows of a person are adjacent."""

    X: Any
    y: NDArray[Any]
    # Numbers of persons, and weights, where there are any.
    groups: NDArray[np.intp] | None = None
    weights: NDArray[np.float64] | None = None

    @property
    def owners(self) -> dict[str, Any]:
        """Arguments of a fit other than rows and labels."""
        found = {"groups": self.groups, "sample_weight": self.weights}
        return {name: value for name, value in found.items() if value is not None}


@dataclass(frozen=True)
class Chosen:
    """Release of a search.

    Parameters
    ----------
    index : int
        Index of the candidate; -1 if no run was made and nothing is refitted.
    estimator : object
        Fitted.
    score : float or None
        Noisy score, if any.
    """

    index: int
    estimator: Any
    score: float | None = None


@dataclass(frozen=True)
class Sources:
    """Randomness of a search: the operating system's, or four streams of one seed.

    Parameters
    ----------
    noise : NoiseSource
        Noise of the choice.
    coins : random.Random
        Generator of uniform draws.
    refit, fits : int or None
        Seeds of the refit and of the other fits.
    """

    noise: _core.NoiseSource
    coins: random.Random
    refit: int | None = None
    fits: int | None = None


def noise_sources(source: _core.NoiseSource, *, seeded: bool) -> Sources:
    """Return the streams of a search; seeded streams are not private."""
    if not seeded:
        return Sources(source, random.SystemRandom())
    noise, coins, refit, fits = (source.public_seed() for _ in range(4))
    return Sources(_core.NoiseSource(noise), random.Random(coins), refit, fits)


def seeds(seed: int | None, n: int) -> list[int | None]:
    """Return different seeds for ``n`` fits, or None for each."""
    if seed is None:
        return [None] * n
    source = _core.NoiseSource(seed)
    return [source.public_seed() for _ in range(n)]


@dataclass(frozen=True, kw_only=True)
class SearchPlan(Plan):
    """Plan of a search.

    Parameters
    ----------
    budgets : Budgets
    scoring : Scoring
    validation_fraction : float in (0, 1)
        Share of the records by which a partition chooses.
    n_jobs : int or None
    seeded : bool
        Whether the noise is seeded.
    """

    budgets: Budgets
    scoring: Scoring
    validation_fraction: float
    n_jobs: int | None
    seeded: bool

    @property
    def events(self) -> tuple[PrivacyEvent, ...]:
        """Events that a ledger is charged at once."""
        return self.budgets.events

    def summary(self) -> str:
        """Return a one-line summary of public facts."""
        budgets = self.budgets
        each = f"epsilon = {budgets.branches[0].budget.epsilon:.4g} for a fit"
        if budgets.refits:
            each += f", {budgets.refits[0].budget.epsilon:.4g} for the refit"
        strategy = "partition" if budgets.stopping is None else "random_stopping"
        return f"{strategy}, {len(budgets.branches)} candidates, {each}; {budgets.selection}"

    def run(self, rows: Any, source: _core.NoiseSource) -> Chosen:
        """Run the search, and refit the winner if the plan includes it."""
        sources = noise_sources(source, seeded=self.seeded)
        chosen = self.choose(rows, sources)
        if not self.budgets.refits:
            return chosen
        # Without a run there is no winner; the first candidate is then fitted, at the same cost.
        index = max(chosen.index, 0)
        again = self.budgets.refits[index], rows.some(None), rows.classes
        return Chosen(index, fitted(*again, seed=sources.refit), chosen.score)

    @abstractmethod
    def choose(self, rows: Any, sources: Sources) -> Chosen:
        """Return the winner, as fitted for the comparison."""

    def fitted_and_scored(
        self, tasks: list[tuple[Allotment, Part, Part]], classes: Any, seed: int | None
    ) -> tuple[tuple[Any, ...], NDArray[np.int64]]:
        """Return fitted candidates and their private scores, in the order of the tasks.

        Parameters
        ----------
        tasks : list of (Allotment, Part, Part to score)
        classes : ndarray or None
        seed : int or None
        """
        # As many workers as wanted and no idle ones; the cores are divided among them.
        workers = effective_n_jobs(self.n_jobs)
        cores = check.check_n_threads("n_threads", None)
        n_threads = None if workers == 1 else max(1, cores // workers)
        watched: dict[str, Any] = {"initializer": _begin, "initargs": (os.getpid(),)}
        if "backend_kwargs" not in signature(Parallel).parameters:
            # Before joblib 1.5; its workers check for their parent from their first task on.
            watched = {}
        how = {"scoring": self.scoring, "classes": classes, "n_threads": n_threads}
        results = Parallel(n_jobs=len(tasks) if workers > len(tasks) else self.n_jobs, **watched)(
            delayed(fitted_and_scored)(os.getpid(), *task, seed=own, **how)
            for task, own in zip(tasks, seeds(seed, len(tasks)), strict=True)
        )
        estimators, scores = zip(*results, strict=True)
        return estimators, np.array(scores, dtype=np.int64)


@dataclass(frozen=True, kw_only=True)
class PartitionPlan(SearchPlan):
    """Plan of one fit per candidate on its own part, and a noisy choice on another part."""

    def check_rows(self, rows: Any) -> None:
        """Refuse a partition with parts that are too small.

        Raises
        ------
        InvalidParameterError
            A part is too small; the message omits the number of rows, which may be private.
        """
        n, v, m = rows.n_rows, self.validation_fraction, len(self.budgets.branches)
        smallest = int(n * min(v, (1.0 - v) / m))
        if self.budgets.branches[0].budget.adjacency == "replace_one":
            smallest = min(part_sizes(n, m, v))
        if smallest < SMALLEST_PART:
            raise InvalidParameterError(
                f"param_grid: got too few rows (or persons) for {m} candidates, expected at least "
                f"{SMALLEST_PART} in each of {m + 1} parts, one of which has the share {v:g}; use "
                "fewer candidates or strategy='random_stopping'"
            )

    def choose(self, rows: Any, sources: Sources) -> Chosen:
        """Return the winner among the parts."""
        branches = self.budgets.branches
        parts = assigned_parts(
            rows.n_rows,
            len(branches),
            self.validation_fraction,
            sources,
            counted=branches[0].budget.adjacency == "replace_one",
        )
        if any(part.size == 0 for part in parts):
            raise RuntimeError(
                "a part of the rows is empty, which has probability below 1e-17 with the expected "
                "number of rows; nothing is released and the budget is spent"
            )
        scored = rows.some(parts[0])
        tasks = [
            (branch, rows.some(part), scored)
            for branch, part in zip(branches, parts[1:], strict=True)
        ]
        estimators, scores = self.fitted_and_scored(tasks, rows.classes, sources.fits)
        index = chosen_index(scores, self.budgets.selection, sources.noise)
        return Chosen(index, estimators[index])


def part_weights(n_candidates: int, validation_fraction: float) -> NDArray[np.int64]:
    """Return integers proportional to the probabilities of the parts, for ``add_remove``."""
    whole = 2**20
    chosen_by = max(1, round(validation_fraction * whole))
    # Rounded: the sum stays in the range of the sampler for any number of candidates.
    return np.array([chosen_by * n_candidates, *[whole - chosen_by] * n_candidates], dtype=np.int64)


def assigned_parts(
    n: int, n_candidates: int, validation_fraction: float, sources: Sources, *, counted: bool
) -> list[NDArray[np.intp]]:
    """Draw the parts independently of the contents; return the indices of rows or persons.

    If the number is private, each draws its part independently, so that adding or removing one does
    not move the others. If it is public, positions are shuffled and cut. The parts stay secret.
    """
    if counted:
        # Positions sorted by two words of random bits each: in random order whatever they hold.
        words = np.frombuffer(sources.coins.randbytes(16 * n), dtype=np.uint64)
        ends = np.cumsum(part_sizes(n, n_candidates, validation_fraction))
        parts = np.split(np.lexsort(words.reshape(2, n)), ends[:-1])
        return [np.sort(part) for part in parts]
    weights = part_weights(n_candidates, validation_fraction)
    n_threads = check.check_n_threads("n_threads", None)
    drawn = np.asarray(sources.noise.random_parts(n, weights, n_threads))
    return [np.flatnonzero(drawn == part) for part in range(n_candidates + 1)]


def chosen_index(
    scores: NDArray[np.int64], selection: SelectionNoise, source: _core.NoiseSource
) -> int:
    """Return the index of the noisy choice; lower scores are better."""
    assert selection.rate is not None
    exponential = selection.mechanism == "exponential"
    choose = source.exponential_choice if exponential else source.permute_and_flip
    return int(choose(scores, selection.rate))


@dataclass(frozen=True, kw_only=True)
class StoppingPlan(SearchPlan):
    """Plan of a secret number of runs, of which the one with the best noisy score is released."""

    def choose(self, rows: Any, sources: Sources) -> Chosen:
        """Return the winner among the runs."""
        branches, coins = self.budgets.branches, sources.coins
        event: Any = self.events[0]
        n_runs = number_of_runs(event, coins)
        if n_runs == 0:
            return Chosen(-1, ConstantClassifier(rows.classes))
        drawn = [coins.randrange(len(branches)) for _ in range(n_runs)]
        whole = rows.some(None)
        tasks = [(branches[index], whole, whole) for index in drawn]
        estimators, scores = self.fitted_and_scored(tasks, rows.classes, sources.fits)
        noisy = scores + score_noise(self.budgets.selection, n_runs, sources.noise)
        # A run's rank among equals is another coordinate of it, independent of everything: so is a
        # fair draw among the best.
        best = np.flatnonzero(noisy == noisy.min())
        winner = int(best[coins.randrange(best.size)])
        return Chosen(drawn[winner], estimators[winner], float(noisy[winner]))


class ConstantClassifier(ClassifierMixin, BaseEstimator):
    """Classifier that predicts the first public class; released if no fit was run.

    Parameters
    ----------
    classes : array-like of shape (n_classes,)
        Public label set.

    Examples
    --------
    >>> from dpsvm_fast.model_selection import ConstantClassifier
    >>> ConstantClassifier(["no", "yes"]).predict([[0.0], [1.0]]).tolist()
    ['no', 'no']
    """

    def __init__(self, classes: Any) -> None:
        self.classes = classes

    @property
    def classes_(self) -> NDArray[Any]:
        """Public label set."""
        return np.asarray(self.classes)

    def fit(self, X: Any, y: Any = None) -> ConstantClassifier:
        """Do nothing: there is nothing to learn.

        Parameters
        ----------
        X, y : object
            Ignored.

        Returns
        -------
        ConstantClassifier
            Itself.
        """
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the first class for every row."""
        return np.full(_num_samples(X), self.classes_[0])

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return zeros in the shape of scores."""
        n, k = _num_samples(X), self.classes_.size
        return np.zeros(n if k == 2 else (n, k))

    def __sklearn_is_fitted__(self) -> bool:
        """Return True: no fit is needed."""
        return True


def score_noise(
    selection: SelectionNoise, size: int, source: _core.NoiseSource
) -> NDArray[np.int64]:
    """Return integer noise."""
    if selection.sigma is not None:
        return np.asarray(source.gaussian_on_grid(size, selection.sigma, 1.0, 1))
    assert selection.rate is not None
    denominator, numerator = selection.rate.as_integer_ratio()
    return np.asarray(source.discrete_laplace(size, numerator, denominator))


# One fit of one candidate, in whatever thread or process it is made.


def fitted(
    allotment: Allotment,
    part: Part,
    classes: NDArray[Any] | None,
    *,
    seed: int | None,
    n_threads: int | None = None,
) -> Any:
    """Return a fitted copy of a candidate that can spend only its share of the budget.

    Parameters
    ----------
    allotment : Allotment
        Candidate and budget. The estimator is not changed, because runs of a candidate share it.
    part : Part
        Training rows.
    classes : ndarray or None
        Label set of estimators that do not set it.
    seed : int or None
        Seed; None takes entropy from the operating system.
    n_threads : int or None, default=None
        Number of threads of estimators that do not set it; does not change the result.
    """
    estimator = clone(allotment.estimator)
    step = label_step(estimator)
    if step is not None and step.classes is None:
        step.set_params(classes=classes)
    with check.within_search(), _prepared(estimator, allotment, seed, n_threads):
        if part.owners:
            _fit_owned(estimator, part)
        else:
            estimator.fit(part.X, part.y)
    return estimator


@contextmanager
def _prepared(
    estimator: Any, allotment: Allotment, seed: int | None, n_threads: int | None
) -> Iterator[None]:
    """Set ledger, seed and threads of the steps, and reset them afterwards.

    The number of fits is secret: no log line per fit and no cached rows of a step may be left
    behind.
    """
    before = estimator.get_params()
    given: dict[str, Any] = {}
    for name, value in before.items():
        last = name.rpartition("__")[2]
        if last == "memory" and value is not None:
            given[name] = None
        if last == "verbose" and value:
            given[name] = False if isinstance(value, bool) else 0
    ledger = CandidateLedger(allotment)
    leaves = list(leaf_steps(estimator, ""))
    for leaf, own_seed in zip(leaves, seeds(seed, len(leaves)), strict=True):
        own: dict[str, Any] = {"random_state": own_seed, "n_threads": n_threads}
        own |= {"ledger": ledger} if leaf.spends else {}
        for parameter, value in own.items():
            path = f"{leaf.name}__{parameter}" if leaf.name else parameter
            if before.get(path, 0) is None:
                given[path] = value
    estimator.set_params(**given)
    try:
        yield
    finally:
        estimator.set_params(**{name: before[name] for name in given})


def _fit_owned(estimator: Any, part: Part) -> None:
    """Fit on rows of persons or with weights; each step gets the arguments that it accepts."""
    taken = {name for step in private_steps(estimator) for name in takes(step)}
    with config_context(enable_metadata_routing=True):
        for leaf in leaf_steps(estimator, ""):
            asked = leaf.estimator.get_metadata_routing().fit.requests
            if wanted := {name: name in takes(leaf.estimator) for name in taken & set(asked)}:
                leaf.estimator.set_fit_request(**wanted)
        own = {name: value for name, value in part.owners.items() if name in taken}
        estimator.fit(part.X, part.y, **own)


def fitted_and_scored(
    process: int, allotment: Allotment, part: Part, scored: Part, *, scoring: Scoring, **how: Any
) -> tuple[Any, int]:
    """Return a fitted copy and its private score on other rows.

    A worker exits when the searching process ends, even by SIGTERM or SIGKILL. Otherwise it would
    keep rows in memory, and its parent's pipes open, until minutes after its fit. Threads, and
    workers of another parent, are not affected.
    """
    _watch(process)
    estimator = fitted(allotment, part, **how)
    return estimator, scoring.score(estimator.predict(scored.X), scored)


def label_step(candidate: Any) -> Any | None:
    """Return the step that has the label set as a parameter; None if there is none."""
    steps = reversed(private_steps(candidate))
    return next((step for step in steps if hasattr(step, "classes")), None)


def _begin(parent: int) -> None:
    """Exit if the parent of this joblib worker has already ended; otherwise watch it."""
    if os.getppid() != parent and "loky" in type(multiprocessing.current_process()).__module__:
        os._exit(1)
    _watch(parent)


def _watch(parent: int) -> None:
    """Start the one thread that watches the parent process."""
    global _looking
    if os.getppid() == parent and _looking != os.getpid():
        _looking = os.getpid()
        threading.Thread(target=_look, args=(parent,), daemon=True).start()


def _look(parent: int) -> None:
    """Exit as soon as the parent process has ended."""
    while os.getppid() == parent:
        time.sleep(LOOK)
    os._exit(1)


# Scores of candidates: whole numbers that one record changes by a known whole number.


SCORINGS = ("errors", "balanced_errors")
# Weights of classes are rounded to multiples of the largest over this.
RESOLUTION = 256
# Scores end here, so that differences of them stay exact in the samplers. Fewer records reach it
# than fit into memory, and cutting all scores off at one public number changes no sensitivity.
LARGEST_SCORE = 2**32 - 1


class Scoring:
    """Rule that counts errors.

    Parameters
    ----------
    scoring : {"errors", "balanced_errors"}
    class_weight : dict or None
        Public weight of an error on each class, for "balanced_errors" only.

    Attributes
    ----------
    classes : ndarray or None
        Classes with weights.
    weights : ndarray of int
        Weights in the order of ``classes``; None means 1 for every class.
    sensitivity : int
        Largest change of a score by one record, which adds its class's weight to the scores of
        candidates that misclassify it and nothing to the others.
    max_weight : float or None
        Weight that counts as one row, if rows have weights or persons are protected. A person adds
        the mean over its rows, in units of 1/256, and less if its weights sum to less than one.
    """

    max_weight: float | None = None

    def __init__(self, scoring: Any, class_weight: Any) -> None:
        kind = check.check_option("scoring", scoring, SCORINGS)
        self.classes: NDArray[Any] | None = None
        self.weights: NDArray[np.int64] | None = None
        self.sensitivity = 1
        if kind == "errors":
            if class_weight is not None:
                raise InvalidParameterError(
                    "class_weight: expected None with scoring='errors'; 'balanced_errors' uses it"
                )
            return
        accepted = "a dict with a public weight for every class, as class frequencies are private"
        check.check_type("class_weight", class_weight, Mapping, accepted)
        try:
            self.classes = public_classes("classes", list(class_weight))
        except (InvalidTypeError, InvalidParameterError) as error:
            raise type(error)(f"class_weight: {error}") from None
        given = [check.check_positive("class_weight", value) for value in class_weight.values()]
        order = encoded_labels(np.asarray(list(class_weight)), self.classes)
        self.weights = np.empty(len(given), dtype=np.int64)
        # Whole numbers in about the ratio of the weights; the largest is RESOLUTION, or 1 for all.
        ratios = [Fraction(weight) / Fraction(max(given)) for weight in given]
        whole = [max(1, round(ratio * RESOLUTION)) for ratio in ratios]
        self.weights[order] = [1] * len(given) if set(ratios) == {1} else whole
        self.sensitivity = int(self.weights.max())

    def of_persons(self, max_weight: float) -> Scoring:
        """Return the same rule for persons or weighted rows, in units of 1/256 of a weight."""
        found = copy.copy(self)
        found.max_weight = max_weight
        if self.sensitivity == 1 and self.weights is not None:
            found.weights = RESOLUTION * self.weights
        found.sensitivity = RESOLUTION
        return found

    def score(self, predicted: Any, part: Part) -> int:
        """Return the weighted number of errors. Private.

        Parameters
        ----------
        predicted : array-like of shape (n_samples,)
        part : Part
        """
        wrong = np.asarray(predicted).reshape(-1) != part.y
        if self.weights is None or self.classes is None:
            errors = wrong * (1 if self.max_weight is None else RESOLUTION)
        else:
            errors = self.weights[encoded_labels(part.y, self.classes)] * wrong
        if self.max_weight is not None:
            n, groups = len(wrong), part.groups
            starts = np.arange(n) if groups is None else np.flatnonzero(np.diff(groups, prepend=-1))
            share = np.ones(n)
            if part.weights is not None:
                share = np.minimum(part.weights, self.max_weight) / self.max_weight
            # Both sums are taken in one order, so that no quotient exceeds the largest error.
            lost, whole = (np.add.reduceat(own, starts) for own in (share * errors, share))
            errors = np.floor(lost / np.maximum(whole, 1.0))
        return int(min(errors.sum(), LARGEST_SCORE))


# The number of runs of a search by random stopping, drawn exactly.
#
# Only fair draws of whole numbers and comparisons of whole numbers are used, so there is no
# rounding whose effect on the law would have to be argued. With :math:`\gamma = p/q` the rational
# number that the floating-point parameter of the event is:
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
    """Draw the number of runs, which must stay secret.

    Parameters
    ----------
    event : RandomStoppingEvent
        Event charged for the runs; it defines the distribution.
    source : random.Random
        ``random.SystemRandom()``, with bits of the operating system; a seeded generator is for
        searches that are not private.
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
    """Return True with probability p."""
    return source.randrange(p.denominator) < p.numerator


def _geometric(p: Fraction, source: random.Random) -> int:
    """Draw the number of trials until the first success."""
    k = 1
    while not _bernoulli(p, source):
        k += 1
    return k


def _small_poisson(mean: Fraction, source: random.Random) -> int:
    """Draw a Poisson number with mean at most 1."""
    while True:
        k = _geometric(Fraction(1, 2), source) - 1
        if _bernoulli((2 * mean) ** k / (2 * math.factorial(k)), source):
            return k
