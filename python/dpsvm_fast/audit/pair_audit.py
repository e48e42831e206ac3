"""Audit by many runs on a pair of neighbouring data sets.

Pilot runs select the statistic that best separates the two worlds and its threshold; they are then
discarded. The counted runs are fresh, so the choice costs no confidence: the bound holds for every
choice, and a poor choice only makes it smaller.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse, stats
from sklearn.base import clone

from dpsvm_fast import _core, estimators, preprocessing
from dpsvm_fast import validation as check
from dpsvm_fast.accounting import composed_epsilon
from dpsvm_fast.audit.bounds import Claim, Counts, certified_epsilon, event_score, resolved_method
from dpsvm_fast.estimators.base import linear_attributes
from dpsvm_fast.estimators.fit import PrivatelyTrained
from dpsvm_fast.estimators.inputs import ArrayRows, checked_bounds
from dpsvm_fast.estimators.linear import PipelineClassifier
from dpsvm_fast.exceptions import (
    CertificationError,
    InvalidParameterError,
    InvalidTypeError,
    PrivacyLeakWarning,
)
from dpsvm_fast.mechanisms.gaussian_margin import CONSTANT, unit_rows
from dpsvm_fast.mechanisms.noise import SecondMoments
from dpsvm_fast.mechanisms.pipeline import Prepared
from dpsvm_fast.mechanisms.plan import Facts
from dpsvm_fast.pipelines import total_privacy
from dpsvm_fast.validation import ADJACENCIES, check_fraction

# The result of an audit, for people and for files.


FORMAT, VERSION = "dpsvm_fast.audit_report", 1
# Bins of the histogram in a report.
N_BINS = 80

METHOD_NAMES = {
    "clopper_pearson": "counts alone (Clopper and Pearson)",
    "gaussian": "Gaussian trade-off curve (Clopper and Pearson, Nasr et al. 2023)",
    "profile": "the claimed mechanism with unknown noise (Clopper and Pearson)",
    "one_run": "one run with many canaries (Steinke et al. 2023, Mahloujifar et al. 2025)",
    "one_run_gaussian": "one run, Gaussian trade-off curve (Mahloujifar et al. 2025)",
    "one_run_profile": "one run, claimed mechanism with unknown noise (Mahloujifar et al. 2025)",
    "density": "exact densities, no sampling",
}


@dataclasses.dataclass(frozen=True)
class AuditReport:
    """Result of an audit: a certified lower bound on epsilon, and the claim.

    Parameters
    ----------
    mechanism : str
        Name of the audited mechanism.
    adjacency : {"add_remove", "replace_one"}
        Neighbouring relation of the two data sets and of the claim.
    epsilon, delta : float
        The claim.
    certified : float
        Lower bound on the program's true epsilon at the claimed delta.
    method : {"gaussian", "profile", "clopper_pearson", "density", or one of these with
        "one_run" before it; "one_run" alone assumes nothing} Method of the bound; docs/auditing.md
        lists the assumption of each.
    confidence : float
        Probability that the bound holds, over the program's noise.
    n_trials : int
        Counted runs of each world (number of canaries for one run; 0 for densities).
    n_pilot : int
        Pilot runs of each world, which selected statistic and event and are not counted.
    seconds : float
        Wall-clock time.
    statistic : str
        Statistic of a release that is compared with the threshold.
    threshold : float
        The threshold.
    counts : tuple of two ints
        Runs beyond the threshold on the data set where more were expected, and on the other.
    histogram : dict
        ``edges`` (n_bins + 1 floats), ``first`` and ``second`` (n_bins ints): histogram of the
        statistic in the counted runs of both worlds.
    """

    mechanism: str
    adjacency: str
    epsilon: float
    delta: float
    certified: float
    method: str
    confidence: float
    n_trials: int
    n_pilot: int = 0
    seconds: float = 0.0
    statistic: str = ""
    threshold: float = 0.0
    counts: tuple[int, int] = (0, 0)
    histogram: dict[str, list[float]] = dataclasses.field(default_factory=dict)

    @classmethod
    def on(cls, mechanism: str, claim: Claim, started: float, **found: Any) -> AuditReport:
        """Return the report of an audit of this claim that ends now."""
        stated = {name: getattr(claim, name) for name in ("adjacency", "epsilon", "delta")}
        return cls(mechanism, **stated, seconds=time.monotonic() - started, **found)

    @property
    def exceeds_claim(self) -> bool:
        """Return whether the certified epsilon exceeds the claim."""
        return self.certified > self.epsilon * (1.0 + 1e-9)

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as plain JSON values, with format name and version."""
        fields = dataclasses.asdict(self) | {"counts": list(self.counts)}
        return {"format": FORMAT, "version": VERSION, **fields, "exceeds_claim": self.exceeds_claim}

    def to_json(self, *, indent: int | None = 2) -> str:
        """Return ``to_dict`` as JSON text."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    def __str__(self) -> str:
        """Return the verdict as text."""
        verdict = (
            "REFUTED: the program is less private than it claims"
            if self.exceeds_claim
            else "consistent with the claim"
        )
        kind = "canaries" if self.method.startswith("one_run") else "runs of each world"
        runs = f", {self.n_trials} {kind} in {self.seconds:.1f} s"
        # Without nines lost to rounding.
        shown = "1" if self.confidence == 1.0 else f"1 - {1.0 - self.confidence:.2g}"
        bound = f"epsilon >= {self.certified:.4g} at confidence {shown}"
        return (
            f"{self.mechanism} ({self.adjacency})\n"
            f"  claimed    epsilon {self.epsilon:.4g}, delta {self.delta:.3g}\n"
            f"  certified  {bound}\n"
            f"  by         {METHOD_NAMES[self.method]}{'' if self.method == 'density' else runs}\n"
            f"  {verdict}"
        )


def alpha_of(confidence: float) -> float:
    """Return one minus the confidence: the probability that a bound is wrong.

    Raises
    ------
    InvalidParameterError, TypeError
        The confidence is outside (0, 1).
    """
    alpha = 1.0 - check_fraction("confidence", confidence)
    if alpha <= 0.0:
        raise InvalidParameterError.of("confidence", got=confidence, accepted="a number below 1")
    return alpha


def histogram_of(first: NDArray[np.float64], second: NDArray[np.float64]) -> dict[str, list[float]]:
    """Count runs in bins shared by both worlds; about 0.2 % of the runs fall outside."""
    low, high = np.quantile(np.concatenate([first, second]), [0.001, 0.999])
    if not low < high:
        low, high = low - 0.5, high + 0.5
    edges = np.linspace(low, high, N_BINS + 1)
    counts = [np.histogram(v, edges)[0].tolist() for v in (first, second)]
    return {"edges": edges.tolist(), "first": counts[0], "second": counts[1]}


# The subject of an audit: neighbouring data sets, one mechanism on each, and its claim.


Rows = NDArray[Any]


@dataclass(frozen=True)
class Pair:
    """Two neighbouring data sets.

    Parameters
    ----------
    first, second : tuple of (X, y), or of (X, y, groups)
        X of shape (n_samples, n_features), y and groups of shape (n_samples,). With groups
        neighbours differ by a person.
    adjacency : {"add_remove", "replace_one"}
        Relation in which the data sets are neighbours.
    """

    first: tuple[Any, ...]
    second: tuple[Any, ...]
    adjacency: str


def tight_minimisers(
    adjacency: str, n_classes: int, intercept_scaling: float
) -> tuple[tuple[Rows, Rows], tuple[Rows, Rows]]:
    r"""Return neighbours whose minimisers differ by the sensitivity, for small C.

    While every row is on a linear piece of the hinge, record (x, y) contributes C (e_y - e_k) x^T,
    with k its strongest rival class. Two classes need one record, added or with its label changed.
    More classes need the rival to be strict before and after: rows of every class but 0 and 1,
    opposite to x, make class 1 the strongest rival of class 0 (and 0 of 1) along x; rows of class 1
    in a direction orthogonal to x, including the intercept, make 1 their strongest rival.
    """
    s = intercept_scaling
    x = np.array([1.0, 0.0, 0.0])
    rows: list[Rows] = []
    labels: list[int] = []
    if n_classes > 2:
        # <x, u> + s^2 = 0.
        u = np.array([-s * s, math.sqrt(1.0 - s**4), 0.0])
        z = -0.8 * x + 0.6 * u
        z /= np.linalg.norm(z)
        rows += [u] * 12 * (n_classes - 2)
        labels += [1] * 12 * (n_classes - 2)
        for k in range(2, n_classes):
            rows += [z] * 4
            labels += [k] * 4
    X, y = np.array(rows).reshape(-1, 3), np.array(labels, dtype=np.int64)
    longer = np.vstack([X, x]), np.append(y, 0)
    return longer, ((X, y) if adjacency == "add_remove" else (longer[0], np.append(y, 1)))


def margin_pair(
    adjacency: str, labels: Rows, *, data_norm: float, intercept_scaling: float
) -> Pair:
    """Return neighbours that differ by a record of the largest norm, or by its label.

    A row of zeros, whose only gradient is in the constant feature, keeps the training set
    non-empty. While the record is far from its margin, its gradient has the largest norm.
    """
    if labels.size == 2:
        rows = np.array([[0.0], [data_norm]])
        first = rows, labels[[0, 1]]
        second = (rows[:1], labels[:1]) if adjacency == "add_remove" else (rows, labels[[0, 0]])
        return Pair(first, second, adjacency)
    sets = tight_minimisers(adjacency, labels.size, intercept_scaling / data_norm)
    first, second = (
        (np.vstack([np.zeros((1, 3)), X]) * data_norm, labels[np.append(0, y)]) for X, y in sets
    )
    return Pair(first, second, adjacency)


def _with_canary(base: Rows, adjacency: str, record: Any, other: Any, label: Any = 0) -> Pair:
    """Return data with the canary, and with nothing or another record instead; labels are equal."""
    first = np.vstack([base, record])
    second = base if adjacency == "add_remove" else np.vstack([base, other])
    sets = [(X, np.full(len(X), label)) for X in (first, second)]
    return Pair(sets[0], sets[1], adjacency)


def centre_pair(adjacency: str, data_norm: float, label: Any = 0) -> Pair:
    """Return neighbours in one dimension, with opposite rows."""
    base = np.repeat([[data_norm], [0.0]], 20, axis=0)
    return _with_canary(base, adjacency, [data_norm], [-data_norm], label)


def moments_pair(adjacency: str, data_norm: float, label: Any = 0) -> Pair:
    """Return neighbours that differ by a row on an axis, or by a row rotated by a right angle."""
    base = data_norm * np.repeat(np.vstack([np.eye(2), -np.eye(2)]), 5, axis=0)
    if adjacency == "add_remove":
        return _with_canary(base, adjacency, [data_norm, 0.0], None, label)
    half = data_norm / math.sqrt(2.0)
    return _with_canary(base, adjacency, [half, half], [half, -half], label)


def columns_pair(adjacency: str, low: float, high: float) -> Pair:
    """Return neighbours that differ by a record at the midpoint, or at either end, of the bounds.

    At the midpoint a record's contribution, all due to its square, is largest; an exchange is
    largest between the ends.
    """
    base = np.repeat([[low], [high], [0.25 * low + 0.75 * high]], [5, 5, 10], axis=0)
    if adjacency == "add_remove":
        return _with_canary(base, adjacency, [0.5 * (low + high)], None)
    return _with_canary(base, adjacency, [high], [low])


# Releases of a pipeline that may be audited alone.
PARTS = ("centre", "whitening", "training")
# Arguments that do not affect the guarantee, and their values in a run.
RUNNING: dict[str, Any] = {"ledger": None, "random_state": None, "n_threads": 1, "verbose": 0}


@dataclass(frozen=True, eq=False)
class Subject:
    """Subject of an audit.

    Parameters
    ----------
    name : str
    worlds : tuple of two World
    claim : Claim
    """

    name: str
    worlds: tuple[World, World]
    claim: Claim


def subject_of(
    estimator: Any,
    *,
    adjacency: str | None = None,
    pair: Pair | None = None,
    claim: tuple[float, float] | None = None,
    part: str | None = None,
) -> Subject:
    """Return both worlds of ``estimator`` and its claim; parameters as in ``audit``."""
    if part not in (None, *PARTS):
        raise InvalidParameterError.of("part", got=part, accepted=f"None or one of {PARTS}")
    if not hasattr(estimator, "fit"):
        return _called(estimator, adjacency, pair, claim)
    estimator = prepared(estimator)
    if adjacency is None:
        usual = "add_remove" if pair is None else pair.adjacency
        adjacency = getattr(estimator, "adjacency", usual)
    adjacency = check.check_adjacency("adjacency", adjacency)
    pair = default_pair(estimator, adjacency, part) if pair is None else pair
    if "classes" in estimator.get_params(deep=False) and estimator.classes is None:
        both = [np.asarray(data[1]) for data in (pair.first, pair.second)]
        labels = np.unique(np.concatenate(both))
        estimator.set_params(classes=labels if labels.size > 1 else [0, 1])
    found = claim_of(estimator, adjacency, pair, claim, part)
    name = type(estimator).__name__ + ("" if part is None else f", {part}")
    first, second = (world_of(estimator, *data, part=part) for data in (pair.first, pair.second))
    return Subject(name, (first, second), found)


def _called(
    function: Any, adjacency: str | None, pair: Pair | None, claim: tuple[float, float] | None
) -> Subject:
    """Return the subject for a function of (X, y), which needs pair and claim."""
    if not callable(function):
        raise InvalidTypeError.of("estimator", function, "an object with fit, or a callable")
    if pair is None or claim is None:
        raise InvalidParameterError.of(
            "pair" if pair is None else "claim",
            got=None,
            accepted="neighbouring data sets and (epsilon, delta) for a callable",
        )
    relation = pair.adjacency if adjacency is None else adjacency
    worlds = CalledWorld(function, *pair.first), CalledWorld(function, *pair.second)
    return Subject(getattr(function, "__name__", "callable"), worlds, Claim(*claim, relation))


def prepared(estimator: Any) -> Any:
    """Return a copy that spends no budget, draws fresh noise and shares the cores."""
    estimator = clone(estimator)
    parameters = estimator.get_params(deep=True)
    changes = {}
    for name in parameters:
        path, _, last = name.rpartition("__")
        owner = parameters.get(path) if path else estimator
        # Other owners' parameters of these names stay: public random choices among them.
        if last in RUNNING and hasattr(owner, "epsilon"):
            changes[name] = RUNNING[last]
    return estimator.set_params(**changes)


def default_pair(estimator: Any, adjacency: str, part: str | None = None) -> Pair:
    """Return the pair on which this mechanism is known to lose most privacy.

    Raises
    ------
    InvalidParameterError
        No such pair is known.
    """
    norm = float(getattr(estimator, "data_norm", 1.0))
    if isinstance(estimator, PipelineClassifier):
        if part == "training":
            pair = _trained_pair(estimator, adjacency, 1.0)
        else:
            first = labels_of(estimator)[0]
            pair = (moments_pair if part == "whitening" else centre_pair)(adjacency, 1.0, first)
        return _checked_width(pair, estimator.bounds)
    if isinstance(estimator, PrivatelyTrained):
        return _trained_pair(estimator, adjacency, norm)
    if isinstance(estimator, preprocessing.PrivateCenter):
        return centre_pair(adjacency, norm)
    if isinstance(estimator, (preprocessing.PrivatePCA, preprocessing.PrivateWhitener)):
        return moments_pair(adjacency, norm)
    if isinstance(estimator, preprocessing.PrivateStandardScaler):
        bounds = checked_bounds("bounds", estimator.bounds)
        low, high = (float(np.ravel(bound)[0]) for bound in bounds)
        return columns_pair(adjacency, low, high)
    raise InvalidParameterError.of(
        "pair", got=None, accepted=f"neighbouring data sets for a {type(estimator).__name__}"
    )


def labels_of(estimator: Any) -> NDArray[Any]:
    """Return the sorted label set of an estimator, 0 and 1 if it is not given."""
    given = getattr(estimator, "classes", None)
    return np.array([0, 1]) if given is None else np.sort(np.asarray(list(given)))


def _checked_width(pair: Pair, bounds: Any) -> Pair:
    """Return the pair; refuse bounds for another number of features."""
    n_features = pair.first[0].shape[1]
    bounds = None if bounds is None or isinstance(bounds, str) else checked_bounds("bounds", bounds)
    if bounds is not None and any(np.size(side) not in (1, n_features) for side in bounds):
        raise InvalidParameterError(
            "bounds: got one pair per feature, expected one pair of numbers, or your own rows as "
            f"pair=: the default rows have {n_features} feature{('s' if n_features > 1 else '')}"
        )
    return pair


def _trained_pair(estimator: Any, adjacency: str, norm: float) -> Pair:
    """Return a pair with one record far from its margin."""
    labels, scaling = labels_of(estimator), 0.0
    if getattr(estimator, "fit_intercept", False):
        facts = Facts(n_features=1, n_classes=labels.size)
        plan = copy.copy(estimator).set_params(classes=labels).checked().plan(facts)
        scaling = float(getattr(plan.weighed_training, "intercept_scaling", 0.0))
    return margin_pair(adjacency, labels, data_norm=norm, intercept_scaling=scaling)


def claim_of(
    estimator: Any, adjacency: str, pair: Pair, given: tuple[float, float] | None, part: str | None
) -> Claim:
    """Return the claim of a fit's statement, or the caller's claim."""
    if given is not None:
        return Claim(float(given[0]), float(given[1]), adjacency)
    fitted = clone(estimator).fit(*pair.first)
    statement = getattr(fitted, "privacy_", None)
    if statement is None and hasattr(fitted, "steps"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyLeakWarning)
            statement = total_privacy(fitted)
    if statement is None:
        raise InvalidParameterError.of(
            "claim", got=None, accepted="(epsilon, delta) for an estimator without privacy_"
        )
    if part is not None:
        return _claim_of_part(statement, adjacency, part)
    events = tuple(getattr(statement, "events", ()))
    return Claim(float(statement.epsilon), float(statement.delta), adjacency, events)


def _claim_of_part(statement: Any, adjacency: str, part: str) -> Claim:
    """Return one release's share of the budget; the training has what the sums leave."""
    sums = {p.name: e for p, e in zip(statement.parts, statement.events, strict=False)}
    events = (sums[part],) if part in sums else ()
    if part == "training" and not events:
        events = tuple(statement.events[len(sums) :])
    if not events:
        raise InvalidParameterError.of(
            "part", got=part, accepted=f"one of {sorted({*sums} & {*PARTS} | {'training'})}"
        )
    delta = float(statement.delta)
    return Claim(composed_epsilon(events, delta), delta, adjacency, events)


# Many releases of one estimator on one data set, by the estimator's own mechanism.
#
# Work common to all fits is done once: parameters, validation, the plan of the noise,
# exact sums, and minimisers that the noise does not reach. Everything random comes from the source
# that is passed, in the order in which ``fit`` takes it, so that one release from a seeded source
# is what ``fit`` with that seed publishes, to the last bit.


Array = NDArray[np.float64]

# Fitted attributes that hold noisy numbers, in the order in which they are read.
RELEASED = (
    *("n_samples_", "n_samples_seen_", "mean_", "var_", "centre_", "whitening_"),
    *("eigenvalues_", "components_", "coef_", "intercept_", "ellipsoids_", "best_index_"),
)


class World(ABC):
    """Data set and mechanism; ``draw`` makes independent releases."""

    # Releases of one call that keep the cost of a call small and memory bounded.
    chunk = 2000

    def draw(self, n: int, source: _core.NoiseSource) -> Array:
        """Return independent releases, shape (n, number of released values)."""
        return np.array([self._vector(source) for _ in range(n)])

    @abstractmethod
    def _vector(self, source: _core.NoiseSource) -> Array:
        """Return one release."""


def released_vector(fitted: Any) -> Array:
    """Return all noisy numbers of a fitted object or of a pipeline's steps, as one row."""
    if hasattr(fitted, "steps"):
        return np.concatenate([released_vector(step) for _, step in fitted.steps])
    if hasattr(fitted, "best_estimator_"):
        return np.append(released_vector(fitted.best_estimator_), float(fitted.best_index_))
    values = {name: getattr(fitted, name, None) for name in RELEASED}
    centre = values.get("centre_")
    if centre is not None and "whitening_" in values and values["whitening_"] is None:
        # A released number decides whether the field exists: vectors must not differ in length.
        values["whitening_"] = np.eye(np.size(centre))
    return _joined([value for value in values.values() if value is not None])


def _joined(parts: list[Any]) -> Array:
    if not parts:
        return np.zeros(0)
    return np.concatenate([np.ravel(np.asarray(part, dtype=np.float64)) for part in parts])


class CalledWorld(World):
    """World of a function of (X, y) that draws its own noise.

    The function returns numbers or a fitted object. Clones of other objects with ``fit`` are run
    this way too.
    """

    chunk = 8

    def __init__(self, subject: Any, X: Any, y: Any, groups: Any = None) -> None:
        self._subject = subject
        self._data = (X, y) if groups is None else (X, y, groups)

    def _vector(self, source: _core.NoiseSource) -> Array:
        """Return one release by calling the function; the source is not used."""
        if hasattr(self._subject, "fit"):
            return released_vector(clone(self._subject).fit(*self._data))
        result = self._subject(*self._data)
        if isinstance(result, (int, float, np.number, np.ndarray, list, tuple)):
            return _joined([result])
        return released_vector(result)


class PlannedWorld(World):
    """World of an estimator of this package; everything before its plan's run is done once."""

    chunk = 50

    def __init__(self, estimator: Any, X: Any, y: Any, groups: Any = None) -> None:
        self.estimator: Any = estimator.checked()
        self.estimator._forget()
        labelled = hasattr(self.estimator, "classes")
        classes = self.estimator.classes if labelled else None
        own: Any = {"classes": classes, "labelled": labelled, "groups": groups}
        self.rows = ArrayRows(self.estimator, X, y, **own)
        self.rows.read()
        self.rows.verbose = False
        self.plan: Any = self.estimator.plan(self.rows.facts)
        self.n_threads = self.rows.n_threads

    def _vector(self, source: _core.NoiseSource) -> Array:
        """Return the numbers that one fit publishes."""
        fitted = copy.copy(self.estimator)
        released = self.plan.run(self.rows, source)
        vars(fitted).update(self.estimator._attributes(self.plan.weighed_training, released))
        return released_vector(fitted)


class TrainedWorld(PlannedWorld):
    """World of an estimator that releases weights."""

    def published(self, weights: Array) -> Array:
        """Return coefficients and intercepts for weights of shape (n, n_scores, n_columns)."""
        found = linear_attributes(weights, self.plan.intercept_scaling)
        return np.hstack([found["coef_"].reshape(len(weights), -1), found["intercept_"]])


class OutputWorld(TrainedWorld):
    """World of output perturbation: one solution, many draws of the noise."""

    chunk = 50_000

    def draw(self, n: int, source: _core.NoiseSource) -> Array:
        """Return published coefficients and intercepts."""
        solution = self.solution(source)
        many = np.broadcast_to(solution, (n, *solution.shape))
        return self.published(self.plan.output.release(many, source, self.n_threads))

    def solution(self, source: _core.NoiseSource) -> Array:
        """Return weights without noise, shape (n_scores, n_columns)."""
        rows = self.rows
        owned: Any = {"weights": rows.loss_weights, "owners": rows.owners}
        found = self.plan.solution(rows.X, rows.codes, source, self.n_threads, **owned)
        return np.asarray(found)


class ObjectiveWorld(TrainedWorld):
    """World of objective perturbation: many linear terms, solved in one call."""

    chunk = 20_000

    def draw(self, n: int, source: _core.NoiseSource) -> Array:
        """Return published coefficients and intercepts."""
        if sparse.issparse(self.rows.X) or self.rows.loss_weights is not None:
            return super().draw(n, source)
        plan, n_threads = self.plan, self.n_threads
        weights, solved = _core.solve_smooth_batch(
            self.rows.X,
            self.rows.codes,
            **plan.problem,
            regularization=plan.regularization,
            linear=plan.inside.draw(source, n_threads, n),
            shuffle_seed=source.public_seed(),
            n_threads=n_threads,
        )
        _all_solved(solved)
        return self.published(plan.output.release(weights, source, n_threads))


def _all_solved(solved: NDArray[np.bool_]) -> None:
    if not np.all(solved):
        raise CertificationError("a minimiser could not be certified; the audit is void")


class DescentWorld(TrainedWorld):
    """World of private descent: many runs over the same rows in one call."""

    chunk = 20_000

    def draw(self, n: int, source: _core.NoiseSource) -> Array:
        """Return published coefficients and intercepts."""
        plan, rows = self.plan, self.rows
        plan.check_rows(rows)
        records = plan.records(rows)
        weights = plan.descent().run_batch(records, source, n, plan.steps, self.n_threads)
        return self.published(weights / plan.data_norm)


class EllipsoidWorld(PlannedWorld):
    """World of the Gaussian margin classifier before projection, which is post-processing."""

    chunk = 2000

    def draw(self, n: int, source: _core.NoiseSource) -> Array:
        """Return flattened noisy matrices."""
        plan, n_threads = self.plan, self.n_threads
        if plan.anchors is not None or self.rows.loss_weights is not None:
            # Noisy centres assign the rows, so every fit is a different problem.
            return np.array([plan.run(self.rows, source).ravel() for _ in range(n)])
        rows = unit_rows(self.rows.X, plan.data_norm)
        rows /= rows.dtype.type(CONSTANT)
        linear = [plan.draw_linear(source, n_threads=n_threads) for _ in range(n)]
        matrices, gradients = _core.solve_gaussian_margin_batch(
            rows, self.rows.codes, linear=np.array(linear), n_threads=n_threads, **plan.problem
        )
        _all_solved(gradients <= plan.solver.gradient_tol)
        released = plan.solver.output.release(matrices, source, n_threads)
        return np.asarray(released.reshape(n, -1))


def world_of(
    estimator: Any, X: Any, y: Any, groups: Any = None, *, part: str | None = None
) -> World:
    """Return the world that draws releases of ``estimator`` on (X, y) fastest.

    Parameters
    ----------
    estimator : object with ``fit``
        Estimator without ledger and seed.
    X, y, groups : array-like
        Training set; without groups each row is a separate person.
    part : str or None
        Name of a single release of a pipeline.
    """
    if part == "training":
        return TrainingWorld(estimator, X, y, groups)
    if part is not None:
        return TransformerWorld(estimator, X, y, groups, total=part)
    kinds: tuple[tuple[type, Callable[..., World]], ...] = (
        (PipelineClassifier, PlannedWorld),
        (estimators.PrivateGaussianMarginClassifier, EllipsoidWorld),
        (estimators.OutputPerturbationSVC, OutputWorld),
        (estimators.ObjectivePerturbationSVC, ObjectiveWorld),
        (estimators.GradientPerturbationSVC, DescentWorld),
        (preprocessing.PrivateTransformer, TransformerWorld),
    )
    for kind, world in kinds:
        # A user's subclass may do anything: it is fitted as a whole.
        if isinstance(estimator, kind) and type(estimator).__module__.startswith("dpsvm_fast."):
            # With noisy counts every fit is a different problem.
            counted = getattr(estimator, "class_weight", None) == "balanced"
            return (PlannedWorld if counted else world)(estimator, X, y, groups)
    return CalledWorld(estimator, X, y, groups)


class TrainingWorld(PlannedWorld):
    """World of a pipeline's training, with the earlier releases fixed.

    Composition allows the training to depend on earlier releases in any way, so any outcome may be
    fixed: the centre is 0, the number of rows is exact, nothing is whitened.
    """

    chunk = 500

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.records = self.rows.records(self.plan.public)
        self.rows.weigh(self.records)

    def draw(self, n: int, source: _core.NoiseSource) -> Array:
        """Return weights by the path of the pipeline for this number of rows."""
        count = float(self.rows.n_rows)
        training = self.plan.training(count)
        if training.rule is not None:
            descent = _core.Descent(**training.rule.descent_options())
            runs = descent.run_batch(self.records, source, n, training.rule.n_steps, self.n_threads)
            return np.asarray(runs.reshape(n, -1))
        ready = Prepared(count=count, centre=None, whitening=None, training=training, records=None)
        fits = [self.plan.trained(ready, self.rows, source) for _ in range(n)]
        return np.array([fit.weights.ravel() for fit in fits])


class TransformerWorld(PlannedWorld):
    """World of a transformer: sums are computed once, and the audit observes the noisy sums.

    All published attributes are computed from the noisy sums and public numbers. ``total`` names
    the sum of the plan.
    """

    chunk = 50_000

    def __init__(self, *given: Any, total: str = "total") -> None:
        super().__init__(*given)
        rows, public, self.total = self.rows, self.plan.public, getattr(self.plan, total)
        # Exact sums before noise.
        self.exact: Array = self.total.exact(*self.total.summed(rows, public))

    def draw(self, n: int, source: _core.NoiseSource) -> Array:
        """Return noisy sums; for a symmetric matrix its triangle, scaled to equal noise."""
        many = np.broadcast_to(self.exact, (n, *self.exact.shape))
        if not isinstance(self.total, SecondMoments):
            return np.asarray(self.total.sum.release(many, source, self.n_threads))
        noisy = self.total.noisy(many, source, self.n_threads)
        rows, columns = np.triu_indices(self.total.n_features)
        weights = np.where(rows == columns, 1.0, math.sqrt(2.0))
        return np.asarray(noisy[:, rows, columns] * weights)


Score = Callable[[Array, Array], Array]

# Candidate thresholds are these many quantiles of the pilot's statistic.
N_THRESHOLDS = 400
# A proportion of the pilot is taken to be this many standard errors worse than it looked.
CAUTION = 4.0
# Ridge in units of a column's spread; a float shows no smaller difference.
RIDGE = 1e-9


@dataclass(frozen=True, eq=False)
class Statistic:
    """Number computed from each release.

    Parameters
    ----------
    name : str
    of : callable
        Function from releases of shape (n, k) to n numbers.
    """

    name: str
    of: Callable[[Array], Array]


@dataclass(frozen=True)
class Event:
    """Half line of a statistic, and the world in which it is expected more often.

    Parameters
    ----------
    threshold : float
    above : bool
        Whether the statistic must exceed the threshold.
    likely : {0, 1}
        World in which the event is more likely; 0 is the first.
    """

    threshold: float
    above: bool
    likely: int

    def count(self, values: Array) -> int:
        """Count the values inside the event."""
        inside = values > self.threshold if self.above else values < self.threshold
        return int(inside.sum())


def learned_statistics(first: Array, second: Array, *, pure: bool) -> list[Statistic]:
    """Return Fisher's direction and, for pure laws, the difference of distances to the means.

    The direction is sufficient for Gaussian noise, the distances for radial noise. A single number
    is used as it is.
    """
    spread = np.sqrt(0.5 * (first.var(axis=0) + second.var(axis=0)))
    moving = np.flatnonzero((spread > 0.0) | (first[0] != second[0]))
    if moving.size <= 1:
        column = int(moving[0]) if moving.size else 0
        return [Statistic("the released number", lambda v: v[:, column])]
    # A number that never varies and differs distinguishes the data sets: it is not scaled down.
    scale = np.where(spread > 0.0, spread, 1.0)
    a, b = first / scale, second / scale
    centres = a.mean(axis=0), b.mean(axis=0)
    covariance = 0.5 * (np.cov(a.T) + np.cov(b.T)) + RIDGE * np.eye(a.shape[1])
    way = np.linalg.solve(covariance, centres[0] - centres[1]) / scale

    def closer(values: Array) -> Array:
        distances = [np.linalg.norm(values / scale - centre, axis=1) for centre in centres]
        # For one number the difference has two atoms, which rounding would smear out.
        return np.asarray(np.round(distances[1] - distances[0], 6))

    fisher = Statistic("Fisher's direction", lambda v: np.asarray(v @ way))
    radial = Statistic("the difference of the distances to the means", closer)
    return [fisher, radial] if pure else [fisher]


def chosen_event(
    first: Array, second: Array, n: int, score: Score, *, smooth: bool
) -> tuple[float, Event]:
    """Return the event expected to prove the largest bound in ``n`` runs, and that bound.

    Parameters
    ----------
    first, second : ndarray of shape (n_pilot,)
        Pilot values of the statistic in both worlds.
    n : int
        Number of counted runs of each world.
    score : callable
        Function from arrays of lower bounds on one probability and upper bounds on the other to
        scores.
    smooth : bool
        Whether shares may be computed from fitted normal distributions, if these fit.
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
            low = _pessimistic_share(shares[0], -1, size, n)
            high = _pessimistic_share(shares[1], 1, size, n)
            scores = score(low, high)
            i = int(np.argmax(scores))
            if scores[i] > best[0]:
                best = (float(scores[i]), Event(float(cuts[i]), above=above, likely=likely))
    return best


def _looks_normal(values: Array) -> bool:
    """Return whether skewness and kurtosis are within five standard errors of the normal ones."""
    if not np.ptp(values) > 0.0:
        return False
    n = values.size
    return bool(
        abs(stats.skew(values)) < 5.0 * math.sqrt(6.0 / n)
        and abs(stats.kurtosis(values)) < 5.0 * math.sqrt(24.0 / n)
    )


def _share(values: Array, cuts: Array, *, above: bool, smooth: bool) -> Array:
    """Return the share of values in each event, or that of a fitted normal distribution.

    A choice among hundreds of noisy empirical shares would favour the luckiest one.
    """
    if smooth:
        below = stats.norm.cdf(cuts, values.mean(), values.std())
    else:
        below = np.searchsorted(np.sort(values), cuts, side="right") / values.size
    return np.asarray(1.0 - below if above else below)


def _pessimistic_share(share: Array, sign: int, pilot: int, n: int) -> Array:
    """Return the share that a bound from ``n`` runs may reach, allowing for the pilot's error."""
    error = np.sqrt(np.maximum(share * (1.0 - share), 1.0 / pilot) * (1.0 / pilot + 5.0 / n))
    return np.clip(share + sign * (CAUTION * error + 5.0 / n), 0.0, 1.0)


Mapped = Callable[[Array], Array]

# Counted runs of a world at most: a million certifies within two percent of epsilon at 4.
MAX_TRIALS = 1_000_000
# The pilot: a fifth of the runs, but no more than improve the choice.
PILOT_SHARE, MIN_PILOT, MAX_PILOT = 0.2, 100, 40_000


class Runner:
    """Draw releases of a subject in chunks whose noise does not depend on the threads.

    Parameters
    ----------
    subject : Subject
    n_threads : int
    seed : int or None
        Seed; None takes noise from the operating system for every chunk.
    """

    def __init__(self, subject: Subject, n_threads: int, seed: int | None) -> None:
        self.subject = subject
        self._n_threads = n_threads
        self._root = None if seed is None else _core.NoiseSource(seed)

    def learn(self, n: int | None, deadline: float, method: str) -> tuple[int, Statistic, Event]:
        """Return the number of pilot runs, and the statistic and event that are chosen on them.

        Statistics are fitted on one half; one and its threshold are selected on the other half.
        """
        wanted = MAX_PILOT if n is None else int(PILOT_SHARE * n)
        wanted = min(max(wanted, MIN_PILOT), MAX_PILOT)
        started = time.monotonic()
        until = started + PILOT_SHARE * (deadline - started)
        first, second = self.draw(wanted, until, lambda vectors: vectors)
        size = min(len(first), len(second))
        spent = time.monotonic() - started
        if n is None:
            rate = size / max(spent, 1e-6)
            left = min(deadline - time.monotonic(), 1e9)
            n = int(min(max(rate * left, size), MAX_TRIALS))
        half, pure = size // 2, method == "clopper_pearson"
        score_of = event_score(method, self.subject.claim)
        found = []
        for statistic in learned_statistics(first[:half], second[:half], pure=pure):
            parts = statistic.of(first[half:]), statistic.of(second[half:])
            score, event = chosen_event(*parts, n, score_of, smooth=not pure)
            found.append((score, statistic, event))
        _, statistic, event = max(found, key=itemgetter(0))
        return size, statistic, event

    def draw(self, n: int, deadline: float, of: Mapped) -> tuple[Array, Array]:
        """Apply ``of`` to n releases of each world, or fewer if time runs out."""
        chunk = min(world.chunk for world in self.subject.worlds)
        sizes = [min(chunk, n - begun) for begun in range(0, n, chunk)]
        found: tuple[list[Array], list[Array]] = ([], [])
        batch = max(1, math.ceil(self._n_threads / 2))

        def job(world: int, size: int, source: _core.NoiseSource) -> Array:
            return of(self.subject.worlds[world].draw(size, source))

        with ThreadPoolExecutor(self._n_threads) as pool:
            for i in range(0, len(sizes), batch):
                jobs = [
                    (w, pool.submit(job, w, size, self._source()))
                    for size in sizes[i : i + batch]
                    for w in (0, 1)
                ]
                for w, done in jobs:
                    found[w].append(done.result())
                if time.monotonic() > deadline:
                    break
        return np.concatenate(found[0]), np.concatenate(found[1])

    def _source(self) -> _core.NoiseSource:
        """Return a separate noise source for every chunk, seeded or from the operating system."""
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
    """Audit the claim of ``estimator`` by many runs on two neighbouring data sets.

    Parameters
    ----------
    estimator : estimator, transformer, pipeline, or callable
        Estimators of this library are run hundreds of thousands of times through their mechanism.
        Other objects with ``fit`` are cloned and fitted, and a callable of (X, y) that returns
        numbers is called: both are slower, and need ``pair``. The estimator is not changed; its
        ledger and seed are ignored.
    n_trials : int >= 100 or None, default=None
        Counted runs of each world. None: as many as ``seconds`` allow, at most 1,000,000.
    seconds : float > 0 or None, default=None
        Time limit. None: 60 seconds, or no limit with ``n_trials``.
    confidence : float in (0, 1), default=1 - 1e-6
        Confidence of the bound. Each of the two proportions gets half of the error probability.
    method : {"auto", "gaussian", "profile", "clopper_pearson"}, default="auto"
        Assumption about the privacy law. "gaussian": the trade-off curve is Gaussian. "profile":
        the law is the claimed one with noise of unknown size. "clopper_pearson": none. "auto" takes
        the first that applies, and the last for pure mechanisms, for which it is as sharp.
    adjacency : {"add_remove", "replace_one"} or None, default=None
        Relation of ``pair`` for an estimator without one; None takes the estimator's.
    pair : Pair or None, default=None
        Two data sets. You must ensure that they are neighbours; this is not checked. None takes
        those on which the mechanism is known to lose most privacy.
    claim : tuple (epsilon, delta) or None, default=None
        Claimed privacy parameters; None takes them from ``privacy_`` of the fitted object.
    part : str or None, default=None
        Audit a single release of a pipeline, with its share of the budget: "centre", "whitening" or
        "training".
    n_threads : int or None, default=None
        Number of threads; None for all cores. Never changes the result.
    random_state : int or None, default=None
        None draws noise from the operating system. An int makes audits of this library's estimators
        reproducible (with ``n_trials``).

    Returns
    -------
    AuditReport

    Raises
    ------
    InvalidParameterError, TypeError
        A parameter is outside its range, or claim or pair are missing and not known.

    Notes
    -----
    Guarantees: if the program is as private as claimed, ``certified`` exceeds the claim with
    probability at most ``1 - confidence``, whatever the pilot runs selected. The reverse does not
    hold: a small bound proves nothing about privacy.

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
    threads = check.check_n_threads("n_threads", n_threads)
    seed = check.check_random_state("random_state", random_state)
    runner = Runner(subject, threads, seed)
    budget = seconds if seconds is not None or n_trials is not None else DEFAULT_SECONDS
    deadline = math.inf if budget is None else started + budget
    n_pilot, statistic, event = runner.learn(n_trials, deadline, method)
    most = MAX_TRIALS if n_trials is None else n_trials
    values = runner.draw(most, deadline, statistic.of)
    n = min(v.size for v in values)
    claimed = subject.claim
    inside = [event.count(v[:n]) for v in values]
    counts = Counts(inside[event.likely], inside[1 - event.likely], n)
    return AuditReport.on(
        subject.name,
        claimed,
        started,
        certified=certified_epsilon(method, counts, claimed, alpha),
        method=method,
        confidence=1.0 - alpha,
        n_trials=n,
        n_pilot=n_pilot,
        statistic=statistic.name,
        threshold=event.threshold,
        counts=(counts.likely, counts.rare),
        histogram=histogram_of(*values),
    )


# The audit table: every mechanism with settings and neighbours that spend nearly all they claim.
#
# The settings are public facts that the guarantee does not rest on: one feature, little C, so that
# a record far from its margin stays there; a small clip and short steps, so that a canary's
# gradient is clipped in every step. Every estimator is also audited with its defaults elsewhere in
# the tests.


DELTA = 1e-5


@dataclass(frozen=True)
class Row:
    """Mechanism in the table of ``dpsvm-fast audit``.

    Parameters
    ----------
    kind : type
        Class of the estimator.
    settings : dict
        Parameters of the estimator, except epsilon and relation.
    part : str or None
        Name of the audited release.
    relations : tuple of str
        Neighbouring relations that the mechanism supports.
    factor : float
        Ratio of the epsilon of the whole to that of the part.
    """

    kind: Any
    settings: dict[str, Any]
    part: str | None = None
    relations: tuple[str, ...] = ADJACENCIES
    factor: float = 1.0

    def make(self, epsilon: float, adjacency: str) -> Any:
        """Return the estimator for an epsilon of its part and a relation."""
        budget = {"epsilon": self.factor * epsilon, "delta": DELTA, "adjacency": adjacency}
        return self.kind(**budget | self.settings)


TWO: dict[str, Any] = {"classes": [0, 1], "fit_intercept": False}
SGD: dict[str, Any] = TWO | {"max_grad_norm": 0.1, "learning_rate": 1e-3}
HALF: dict[str, Any] = SGD | {"optimizer": "sgd", "sampling_rate": 0.5}
# Steps in proportion to the noisy gradients, and the same weight for each.
ADAM: dict[str, Any] = {"optimizer": "adam", "stabilizer": 1e6, "betas": (0.0, 0.999)}
LAST: dict[str, Any] = {"accountant": "last_iterate", "max_grad_norm": 1.0, "max_samples": 4}
GAMMA: dict[str, Any] = {"loss": "huber", "noise": "gamma"}
MAPPED: dict[str, Any] = {"bounds": (-1.0, 1.0), "classes": [0, 1], "whiten": False}

OUTPUT, OBJECTIVE = estimators.OutputPerturbationSVC, estimators.ObjectivePerturbationSVC
GRADIENT = estimators.GradientPerturbationSVC
ELLIPSOIDS = estimators.PrivateGaussianMarginClassifier
LINEAR, KERNEL = estimators.PrivateLinearSVC, estimators.PrivateKernelSVC

ROWS: dict[str, Row] = {
    "output, Gaussian": Row(OUTPUT, TWO | {"C": 0.1}),
    "output, Gamma": Row(OUTPUT, TWO | GAMMA | {"C": 0.1}),
    "output, Huber": Row(OUTPUT, TWO | {"C": 0.1, "loss": "huber"}),
    "output, softmax": Row(OUTPUT, TWO | {"C": 0.01, "loss": "softmax_margin", "margin": 2.0}),
    "output, M3": Row(OUTPUT, TWO | {"C": 0.05, "loss": "m3"}),
    "output, projected SGD": Row(
        OUTPUT, TWO | {"C": 0.1, "loss": "huber", "solver": "psgd"}, relations=("replace_one",)
    ),
    "objective, Gaussian": Row(OBJECTIVE, TWO | {"C": 0.005, "margin": 5.0}),
    "objective, Gaussian, Huber": Row(OBJECTIVE, TWO | {"C": 0.01, "loss": "huber"}),
    "objective, Gaussian, curved": Row(OBJECTIVE, TWO),
    "objective, Gamma": Row(OBJECTIVE, TWO | GAMMA | {"C": 0.01}),
    "objective, Gamma, curved": Row(OBJECTIVE, TWO | {"noise": "gamma"}),
    "descent": Row(GRADIENT, SGD | {"n_steps": 3}),
    "descent, one sampled step": Row(GRADIENT, HALF | {"n_steps": 1}),
    "descent, sampled": Row(GRADIENT, HALF | {"n_steps": 10}),
    "descent, Adam": Row(GRADIENT, SGD | ADAM | {"n_steps": 3, "sampling_rate": 1.0}),
    "descent, last iterate": Row(
        GRADIENT, TWO | LAST | {"loss": "huber", "n_steps": 20, "C": 0.1}, relations=("add_remove",)
    ),
    "ellipsoids, Gaussian": Row(ELLIPSOIDS, {"classes": [0, 1], "C": 0.001}),
    "ellipsoids, Gamma": Row(
        ELLIPSOIDS, {"classes": [0, 1], "C": 0.001, "loss": "huber_ww", "noise": "gamma"}
    ),
    "PrivateCenter": Row(preprocessing.PrivateCenter, {}),
    "PrivateCenter, Gamma": Row(preprocessing.PrivateCenter, {"delta": 0.0}),
    "PrivateWhitener": Row(preprocessing.PrivateWhitener, {}),
    "PrivatePCA": Row(preprocessing.PrivatePCA, {}),
    "PrivateStandardScaler": Row(preprocessing.PrivateStandardScaler, {"bounds": (-1.0, 1.0)}),
    "PrivateLinearSVC, centre": Row(LINEAR, MAPPED, "centre", factor=4.4),
    "PrivateLinearSVC, whitening": Row(LINEAR, MAPPED | {"whiten": True}, "whitening", factor=3.6),
    "PrivateLinearSVC, training": Row(LINEAR, MAPPED, "training", factor=1.04),
    "PrivateKernelSVC, centre": Row(KERNEL, MAPPED, "centre", factor=4.4),
}


def selected(words: str | None) -> dict[str, Row]:
    """Return the rows whose names contain the words, ignoring case."""
    return {name: row for name, row in ROWS.items() if (words or "").lower() in name.lower()}


def audited(
    rows: dict[str, Row], epsilons: tuple[float, ...], **options: Any
) -> Iterator[tuple[str, AuditReport]]:
    """Yield the audits of all rows, relations and epsilons; ``options`` as in ``audit``."""
    for name, row in rows.items():
        for adjacency in row.relations:
            for epsilon in epsilons:
                estimator = row.make(epsilon, adjacency)
                yield name, audit(estimator, part=row.part, **options)
