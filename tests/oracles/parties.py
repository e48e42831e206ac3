"""Parties for tests: small tables of records, and streams without noise."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast.federated import FederatedSpec

__all__ = ["NoNoise", "Party", "digits_of", "helmet", "reduction"]

Party = tuple[NDArray[np.float64], NDArray[np.int64]]


class NoNoise:
    """A source whose discrete noise is zero: for looking at what noise is added to."""

    def discrete_gaussian(self, size: int, sigma: int, n_threads: int = 1) -> NDArray[np.int64]:
        return np.zeros(size, dtype=np.int64)


def digits_of(sizes: tuple[int, ...], seed: int = 0) -> list[Party]:
    """Parties with rows of digits of norm 1."""
    from sklearn.datasets import load_digits
    from sklearn.preprocessing import normalize

    X, y = load_digits(return_X_y=True)
    X = normalize(X)
    order = np.random.default_rng(seed).permutation(len(X))
    ends = np.concatenate([[0], np.cumsum(sizes)])
    return [(X[order[a:b]], y[order[a:b]]) for a, b in pairwise(ends)]


def helmet(**settings: Any) -> FederatedSpec:
    """Blind averaging of four parties of up to 20 records, unless told otherwise."""
    given: dict[str, Any] = {
        "n_users": 4,
        "n_features": 3,
        "classes": [0, 1],
        "epsilon": 1.0,
        "delta": 1e-6,
        "max_records": 20,
        "n_epochs": 5,
    }
    return FederatedSpec.dp_helmet(**(given | settings))


def reduction(**settings: Any) -> FederatedSpec:
    """Components and models of four parties of up to 20 records, unless told otherwise."""
    given: dict[str, Any] = {
        "n_users": 4,
        "n_features": 6,
        "classes": [0, 1],
        "epsilon": 1.0,
        "delta": 1e-6,
        "max_records": 20,
        "n_components": 2,
    }
    return FederatedSpec.fed_dpdr(**(given | settings))
