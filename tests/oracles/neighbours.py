"""Neighbouring data sets whose Crammer-Singer minimisers are as far apart as the theorem allows."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Pair:
    """Two neighbouring data sets."""

    first: tuple[Array, NDArray[np.int64]]
    second: tuple[Array, NDArray[np.int64]]
    n_classes: int
    adjacency: str


def tight_pair(adjacency: str, n_classes: int, intercept_scaling: float) -> Pair:
    r"""Rows of norm 1 and a record that moves the minimiser by the whole sensitivity, for small C.

    While every row stays at a vertex, record (x, y) contributes C (e_y - e_k) x^T with k its best
    rival. Two classes: one record, added, or with its label changed. More classes need the rival to
    be strict before and after: rows of every class but 0 and 1, which lie against x, make class 1
    the best rival of class 0 (and 0 of 1) along x; rows of class 1 in a direction orthogonal to x,
    intercept included, make 1 their best rival.
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
    other = (X, y) if adjacency == "add_remove" else (longer[0], np.append(y, 1))
    return Pair(longer, other, n_classes, adjacency)
