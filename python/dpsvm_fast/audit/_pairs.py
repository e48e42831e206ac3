"""Neighbouring data sets on which a mechanism spends all of what it claims, or nearly so."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Pair",
    "centre_pair",
    "columns_pair",
    "margin_pair",
    "moments_pair",
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
