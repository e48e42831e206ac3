"""What is audited: neighbouring data sets, the worlds of one mechanism on them, and its claim."""

from __future__ import annotations

import copy
import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from dpsvm_fast.accounting import composed_epsilon
from dpsvm_fast.audit.bounds import Claim
from dpsvm_fast.audit.worlds import CalledWorld, PartWorld, World, world_of
from dpsvm_fast.estimators._private_pipeline import PrivatePipeline
from dpsvm_fast.estimators._training import PrivatelyTrained
from dpsvm_fast.exceptions import InvalidParameterError, PrivacyLeakWarning
from dpsvm_fast.pipelines import total_privacy
from dpsvm_fast.preprocessing import (
    PrivateCenter,
    PrivatePCA,
    PrivateStandardScaler,
    PrivateWhitener,
)

__all__ = [
    "Pair",
    "Subject",
    "centre_pair",
    "columns_pair",
    "margin_pair",
    "moments_pair",
    "subject_of",
    "tight_minimisers",
]

Array = NDArray[Any]


@dataclass(frozen=True)
class Pair:
    """Two neighbouring data sets.

    Parameters
    ----------
    first, second : tuple of (X, y)
        X of shape (n_samples, n_features), y of shape (n_samples,).
    adjacency : {"add_remove", "replace_one"}
        The relation in which they are neighbours.
    """

    first: tuple[Any, Any]
    second: tuple[Any, Any]
    adjacency: str


def tight_minimisers(
    adjacency: str, n_classes: int, intercept_scaling: float
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    r"""Rows of norm 1 and a record that moves the minimiser by the whole sensitivity, for small C.

    While every row stays at a vertex of the hinge, record (x, y) contributes C (e_y - e_k) x^T with
    k its best rival. Two classes: one record, added, or with its label changed. More classes need
    the rival to be strict before and after: rows of every class but 0 and 1, which lie against x,
    make class 1 the best rival of class 0 (and 0 of 1) along x; rows of class 1 in a direction
    orthogonal to x, intercept included, make 1 their best rival.
    """
    s = intercept_scaling
    x = np.array([1.0, 0.0, 0.0])
    rows: list[Array] = []
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
    adjacency: str, labels: Array, *, data_norm: float, intercept_scaling: float
) -> Pair:
    """One record of the largest norm, added to a row of zeros or with its label changed.

    A row of zeros has no gradient but that of the constant feature, and keeps the training set from
    being empty. While the record is far from its margin, its gradient is the longest there is.
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


def _with_canary(base: Array, adjacency: str, record: Any, other: Any) -> Pair:
    """The canary and, instead of it, nothing or the other record; all labels are alike."""
    first = np.vstack([base, record])
    second = base if adjacency == "add_remove" else np.vstack([base, other])
    sets = [(X, np.zeros(len(X), dtype=np.int64)) for X in (first, second)]
    return Pair(sets[0], sets[1], adjacency)


def centre_pair(adjacency: str, data_norm: float = 1.0, n: int = 20) -> Pair:
    """Opposite rows in one dimension, a mean of a half."""
    base = np.repeat([[data_norm], [0.0]], n, axis=0)
    return _with_canary(base, adjacency, [data_norm], [-data_norm])


def moments_pair(adjacency: str, data_norm: float = 1.0) -> Pair:
    """One more row on an axis, or a row turned by a right angle: both move the sum most."""
    base = data_norm * np.repeat(np.vstack([np.eye(2), -np.eye(2)]), 5, axis=0)
    if adjacency == "add_remove":
        return _with_canary(base, adjacency, [data_norm, 0.0], None)
    half = data_norm / math.sqrt(2.0)
    return _with_canary(base, adjacency, [half, half], [half, -half])


def columns_pair(adjacency: str, low: float, high: float, n: int = 5) -> Pair:
    """Entries in three quarters of their range; a record in the middle, or at either end.

    In the middle a record's squared length is all of its square's, and largest; an exchange is
    widest between the ends.
    """
    base = np.repeat([[low], [high], [0.25 * low + 0.75 * high]], [n, n, 2 * n], axis=0)
    if adjacency == "add_remove":
        return _with_canary(base, adjacency, [0.5 * (low + high)], None)
    return _with_canary(base, adjacency, [high], [low])


# Releases of a pipeline that may be audited alone.
PARTS = ("centre", "whitening", "training")
# Arguments that have nothing to do with the guarantee, and what they are for a run.
RUNNING: dict[str, Any] = {"ledger": None, "random_state": None, "n_threads": 1, "verbose": 0}


@dataclass(frozen=True, eq=False)
class Subject:
    """What is audited.

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
    """Both worlds of ``estimator`` and its claim; parameters as of ``audit``."""
    if part is not None and part not in PARTS:
        raise InvalidParameterError.of("part", got=part, accepted=f"None or one of {PARTS}")
    if not hasattr(estimator, "fit"):
        return _called(estimator, adjacency, pair, claim)
    estimator = prepared(estimator)
    adjacency = _adjacency(estimator, adjacency, pair)
    pair = default_pair(estimator, adjacency, part) if pair is None else pair
    if "classes" in estimator.get_params(deep=False) and estimator.classes is None:
        labels = np.unique(np.concatenate([np.asarray(y) for _, y in (pair.first, pair.second)]))
        estimator.set_params(classes=labels if labels.size > 1 else [0, 1])
    found = claim_of(estimator, adjacency, pair, claim, part)
    name = type(estimator).__name__
    worlds: list[World] = []
    for data in (pair.first, pair.second):
        whole = part is None
        world = world_of(estimator, *data) if whole else PartWorld(estimator, *data, str(part))
        worlds.append(world)
    return Subject(name if part is None else f"{name}, {part}", (worlds[0], worlds[1]), found)


def _called(
    function: Any, adjacency: str | None, pair: Pair | None, claim: tuple[float, float] | None
) -> Subject:
    """A function of (X, y): everything about it has to be said."""
    if not callable(function):
        raise TypeError(
            f"estimator: got {type(function).__name__}, expected an object with fit, or a callable"
        )
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
    """A copy whose runs cost no budget, repeat no noise and share the cores among themselves."""
    estimator = clone(estimator)
    changes = {}
    for name in estimator.get_params(deep=True):
        last = name.rsplit("__", 1)[-1]
        # What others have by these names stays: public random choices among it.
        if last in RUNNING and _is_private(estimator, name):
            changes[name] = RUNNING[last]
    return estimator.set_params(**changes)


def _is_private(estimator: Any, parameter: str) -> bool:
    """Whether the object with this parameter spends a budget."""
    path = parameter.rsplit("__", 1)
    owner = estimator if len(path) == 1 else estimator.get_params(deep=True).get(path[0])
    return hasattr(owner, "epsilon")


def _adjacency(estimator: Any, adjacency: str | None, pair: Pair | None) -> str:
    """The relation of the claim."""
    if adjacency is None:
        own = getattr(estimator, "adjacency", None if pair is None else pair.adjacency)
        adjacency = "add_remove" if own is None else str(own)
    if adjacency not in ("add_remove", "replace_one"):
        raise InvalidParameterError.of(
            "adjacency", got=adjacency, accepted="'add_remove' or 'replace_one'"
        )
    return adjacency


def default_pair(estimator: Any, adjacency: str, part: str | None = None) -> Pair:
    """The pair on which this mechanism is known to spend most.

    Raises
    ------
    InvalidParameterError
        Nothing is known about it.
    """
    norm = float(getattr(estimator, "data_norm", 1.0))
    if isinstance(estimator, PrivatePipeline):
        if part == "training":
            return _of_width(_trained_pair(estimator, adjacency, 1.0), estimator.bounds)
        pair = moments_pair(adjacency) if part == "whitening" else centre_pair(adjacency)
        return _of_width(_relabelled(pair, estimator), estimator.bounds)
    if isinstance(estimator, PrivatelyTrained):
        return _trained_pair(estimator, adjacency, norm)
    if isinstance(estimator, PrivateCenter):
        return centre_pair(adjacency, norm)
    if isinstance(estimator, (PrivatePCA, PrivateWhitener)):
        return moments_pair(adjacency, norm)
    if isinstance(estimator, PrivateStandardScaler):
        low, high = (float(np.ravel(bound)[0]) for bound in estimator.bounds)
        return columns_pair(adjacency, low, high)
    raise InvalidParameterError.of(
        "pair", got=None, accepted=f"neighbouring data sets for a {type(estimator).__name__}"
    )


def _of_width(pair: Pair, bounds: Any) -> Pair:
    """The pair, unless bounds are those of another number of features."""
    n_features = pair.first[0].shape[1]
    if bounds is not None and any(np.size(side) not in (1, n_features) for side in bounds):
        raise InvalidParameterError(
            "bounds: got some for each feature, expected bounds=(low, high) of numbers, or pair= "
            f"with such rows: those that an audit makes by itself have {n_features} feature"
            f"{'s' if n_features > 1 else ''}"
        )
    return pair


def _trained_pair(estimator: Any, adjacency: str, norm: float) -> Pair:
    """One record far from its margin."""
    given = getattr(estimator, "classes", None)
    labels = np.array([0, 1]) if given is None else np.sort(np.asarray(list(given)))
    scaling = 0.0
    if getattr(estimator, "fit_intercept", False):
        settings = copy.copy(estimator).set_params(classes=labels)._checked_parameters()
        scaling = float(getattr(settings, "intercept_scaling", 0.0))
    return margin_pair(adjacency, labels, data_norm=norm, intercept_scaling=scaling)


def _relabelled(pair: Pair, estimator: Any) -> Pair:
    """The pair with labels that the estimator takes."""
    if estimator.classes is None:
        return pair
    first = np.sort(np.asarray(list(estimator.classes)))[0]
    sets = [(X, np.full(len(y), first)) for X, y in (pair.first, pair.second)]
    return Pair(sets[0], sets[1], pair.adjacency)


def claim_of(
    estimator: Any,
    adjacency: str,
    pair: Pair,
    given: tuple[float, float] | None,
    part: str | None,
) -> Claim:
    """What the statement of one fit promises, or what the caller says."""
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
    events = tuple(getattr(statement, "events", ()))
    if part is not None:
        return _claim_of_part(statement, adjacency, part)
    return Claim(float(statement.epsilon), float(statement.delta), adjacency, events)


def _claim_of_part(statement: Any, adjacency: str, part: str) -> Claim:
    """The share of the budget that one release has; the training has all that is not a sum's."""
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
