"""The audit of a pair of neighbouring data sets: many runs in both worlds, one certified number.

The first runs teach which number of a release tells the worlds apart and where to cut it; they are
then thrown away. The counted runs are fresh, so the choice costs no confidence: whatever was
learned there, the bound holds, and a bad choice only makes it smaller.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from dpsvm_fast import _core
from dpsvm_fast import _validation as check
from dpsvm_fast.audit.bounds import Counts, certified_epsilon, event_score, resolved_method
from dpsvm_fast.audit.report import AuditReport, alpha_of, histogram_of
from dpsvm_fast.audit.subjects import Pair, Subject, subject_of

__all__ = [
    "MOST_TRIALS",
    "Event",
    "Runner",
    "Score",
    "Statistic",
    "audit",
    "chosen_event",
    "learned_statistics",
]

Array = NDArray[np.float64]
Score = Callable[[Array, Array], Array]

# Candidate thresholds are these many quantiles of the pilot's statistic.
N_THRESHOLDS = 400
# A proportion of the pilot is taken to be this many standard errors worse than it looked.
CAUTION = 4.0
# Of a column's spread; less is no difference that a float shows.
RIDGE = 1e-9


@dataclass(frozen=True, eq=False)
class Statistic:
    """A number of each release.

    Parameters
    ----------
    name : str
    of : callable
        From releases of shape (n, k) to n numbers.
    """

    name: str
    of: Callable[[Array], Array]


@dataclass(frozen=True)
class Event:
    """A half line of a statistic, and the world in which it is expected more often.

    Parameters
    ----------
    threshold : float
    above : bool
        Whether the statistic has to be larger than the threshold.
    likely : {0, 1}
        0: more often in the first world.
    """

    threshold: float
    above: bool
    likely: int

    def count(self, values: Array) -> int:
        """How many of the numbers are inside."""
        inside = values > self.threshold if self.above else values < self.threshold
        return int(inside.sum())


def learned_statistics(first: Array, second: Array, *, pure: bool) -> list[Statistic]:
    """Fisher's direction and, for pure laws, the difference of the distances to the worlds' means.

    The direction loses nothing of Gaussian noise, the distances nothing of radial noise. One
    number stays as it is.
    """
    spread = np.sqrt(0.5 * (first.var(axis=0) + second.var(axis=0)))
    moving = np.flatnonzero((spread > 0.0) | (first[0] != second[0]))
    if moving.size <= 1:
        column = int(moving[0]) if moving.size else 0
        return [Statistic("the released number", lambda v: v[:, column])]
    # What never varies and differs proves the worlds apart: it is not scaled down.
    scale = np.where(spread > 0.0, spread, 1.0)
    a, b = first / scale, second / scale
    centres = a.mean(axis=0), b.mean(axis=0)
    covariance = 0.5 * (np.cov(a.T) + np.cov(b.T)) + RIDGE * np.eye(a.shape[1])
    way = np.linalg.solve(covariance, centres[0] - centres[1]) / scale

    def closer(values: Array) -> Array:
        distances = [np.linalg.norm(values / scale - centre, axis=1) for centre in centres]
        # Of one number it has two atoms, which rounding would smear out.
        return np.asarray(np.round(distances[1] - distances[0], 6))

    fisher = Statistic("Fisher's direction", lambda v: np.asarray(v @ way))
    radial = Statistic("the difference of the distances to the means", closer)
    return [fisher, radial] if pure else [fisher]


def chosen_event(
    first: Array, second: Array, n: int, score: Score, *, smooth: bool
) -> tuple[float, Event]:
    """The event whose counts in ``n`` runs a world should prove most, and how much.

    Parameters
    ----------
    first, second : ndarray of shape (n_pilot,)
        The statistic in both worlds.
    n : int
        Runs of a world that will be counted.
    score : callable
        What arrays of lower bounds of the one probability and upper bounds of the other prove.
    smooth : bool
        Whether shares may be those of fitted normal laws, where these fit.
    """
    size = min(first.size, second.size)
    quantiles = np.linspace(0.0, 1.0, N_THRESHOLDS)
    edges = np.unique(np.quantile(np.concatenate([first, second]), quantiles))
    cuts = 0.5 * (edges[:-1] + edges[1:]) if edges.size > 1 else edges
    smooth = smooth and _looks_normal(first) and _looks_normal(second)
    best = (-math.inf, Event(float(cuts[0]), above=True, likely=0))
    for likely, (p, q) in enumerate([(first, second), (second, first)]):
        for above in (True, False):
            shares = [_share(values, cuts, above=above, smooth=smooth) for values in (p, q)]
            low = _cautious(shares[0], -1, size, n)
            high = _cautious(shares[1], 1, size, n)
            scores = score(low, high)
            i = int(np.argmax(scores))
            if scores[i] > best[0]:
                best = (float(scores[i]), Event(float(cuts[i]), above=above, likely=likely))
    return best


def _looks_normal(values: Array) -> bool:
    """Whether skewness and kurtosis are within five standard errors of a normal law's."""
    if not np.ptp(values) > 0.0:
        return False
    n = values.size
    return bool(
        abs(stats.skew(values)) < 5.0 * math.sqrt(6.0 / n)
        and abs(stats.kurtosis(values)) < 5.0 * math.sqrt(24.0 / n)
    )


def _share(values: Array, cuts: Array, *, above: bool, smooth: bool) -> Array:
    """Share of the values inside each event; of a normal law fitted to them, without its scatter.

    A choice among hundreds of noisy shares would fall on the luckiest one.
    """
    if smooth:
        below = stats.norm.cdf(cuts, values.mean(), values.std())
    else:
        below = np.searchsorted(np.sort(values), cuts, side="right") / values.size
    return np.asarray(1.0 - below if above else below)


def _cautious(share: Array, sign: int, pilot: int, n: int) -> Array:
    """Share that the bound of ``n`` runs might come to: the pilot's error and the bound's width."""
    error = np.sqrt(np.maximum(share * (1.0 - share), 1.0 / pilot) * (1.0 / pilot + 5.0 / n))
    return np.clip(share + sign * (CAUTION * error + 5.0 / n), 0.0, 1.0)


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


DEFAULT_SECONDS = 60.0


def audit(
    estimator: Any,
    *,
    n_trials: int | None = None,
    seconds: float | None = None,
    confidence: float = 1.0 - 1e-6,
    method: str = "auto",
    adjacency: str | None = None,
    pair: Pair | None = None,
    claim: tuple[float, float] | None = None,
    part: str | None = None,
    n_threads: int | None = None,
    random_state: int | None = None,
) -> AuditReport:
    """Try to refute what ``estimator`` claims, by many runs on two neighbouring data sets.

    Parameters
    ----------
    estimator : estimator, transformer, pipeline, or callable
        Anything of this library is run by the hundred thousand through its own mechanism. Anything
        else with ``fit`` is cloned and fitted as a whole, and a callable of (X, y) that returns
        numbers is called: both are slower, and need ``pair``. It is not changed; a ledger and a
        seed of its own are left out.
    n_trials : int >= 100 or None, default=None
        Counted runs of each world. None: as many as ``seconds`` allow, 1,000,000 at most.
    seconds : float > 0 or None, default=None
        Time to spend; None: 60, or what ``n_trials`` take.
    confidence : float in (0, 1), default=1 - 1e-6
        Of the bound. Both ends of it, the two proportions, have half of the rest each.
    method : {"auto", "gaussian", "profile", "clopper_pearson"}, default="auto"
        What is taken to be known of the law: that its trade-off curve is Gaussian; that it is the
        claimed one but for the size of its noise; or nothing. "auto" is the first that applies, and
        the last for pure mechanisms, for which it is as sharp.
    adjacency : {"add_remove", "replace_one"} or None, default=None
        Relation of ``pair``, for what does not have one; None takes the estimator's.
    pair : Pair or None, default=None
        Two neighbouring data sets (owed by the caller: nobody checks that they are). None takes
        those on which the mechanism is known to spend most.
    claim : tuple (epsilon, delta) or None, default=None
        What is claimed; None asks the fitted object for ``privacy_``.
    part : str or None, default=None
        Audit one release of a pipeline by its own share of the budget: "centre",
        "whitening" or "training".
    n_threads : int or None, default=None
        Threads; None is all cores. Never changes the result.
    random_state : int or None, default=None
        None: noise of the operating system. An int makes audits of this library's estimators
        reproducible (with ``n_trials``).

    Returns
    -------
    AuditReport

    Raises
    ------
    InvalidParameterError, TypeError
        A parameter outside its range, or nothing known about the claim or the pair.

    Notes
    -----
    Guarantees: if the program is as private as it claims, ``certified`` exceeds the claim with a
    probability of at most ``1 - confidence``, whatever was learned on the pilot runs. The reverse
    does not hold: a small bound proves nothing about privacy.

    References
    ----------
    Jagielski, Ullman and Oprea, NeurIPS 2020; Nasr, Hayes, Steinke, Balle, Tramer, Jagielski,
    Carlini and Terzis, USENIX Security 2023.

    Examples
    --------
    >>> from dpsvm_fast import OutputPerturbationSVC
    >>> from dpsvm_fast.audit import audit
    >>> report = audit(OutputPerturbationSVC(1.0, 1e-5, C=0.1), n_trials=20_000)
    >>> report.exceeds_claim
    False
    """
    started = time.monotonic()
    if n_trials is not None:
        n_trials = check.check_integer("n_trials", n_trials, 100, 2**40)
    if seconds is not None:
        seconds = check.check_positive("seconds", seconds)
    alpha = alpha_of(confidence)
    subject = subject_of(estimator, adjacency=adjacency, pair=pair, claim=claim, part=part)
    method = resolved_method(method, subject.claim)
    runner = Runner(
        subject, check.check_n_threads(n_threads), check.check_random_state(random_state)
    )
    budget = seconds if seconds is not None or n_trials is not None else DEFAULT_SECONDS
    deadline = math.inf if budget is None else started + budget
    n_pilot = runner.learn(n_trials, deadline, method)
    values = runner.values(n_trials, deadline)
    n = min(v.size for v in values)
    return _report(runner, method, alpha, values, n, n_pilot, time.monotonic() - started)


def _report(
    runner: Runner,
    method: str,
    alpha: float,
    values: tuple[Array, Array],
    n: int,
    n_pilot: int,
    seconds: float,
) -> AuditReport:
    """The bound and everything it rests on."""
    claim, event = runner.subject.claim, runner.event
    inside = [event.count(v[:n]) for v in values]
    counts = Counts(inside[event.likely], inside[1 - event.likely], n)
    return AuditReport(
        mechanism=runner.subject.name,
        adjacency=claim.adjacency,
        epsilon=claim.epsilon,
        delta=claim.delta,
        certified=certified_epsilon(method, counts, claim, alpha),
        method=method,
        confidence=1.0 - alpha,
        n_trials=n,
        n_pilot=n_pilot,
        seconds=seconds,
        statistic=runner.statistic.name,
        threshold=event.threshold,
        counts=(counts.likely, counts.rare),
        histogram=histogram_of(*values),
    )
