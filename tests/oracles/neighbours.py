"""Neighbouring data sets whose Crammer-Singer minimisers are as far apart as the theorem allows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast.audit.pair_audit import tight_minimisers

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Pair:
    """Two neighbouring data sets."""

    first: tuple[Array, NDArray[np.int64]]
    second: tuple[Array, NDArray[np.int64]]
    n_classes: int
    adjacency: str


def tight_pair(adjacency: str, n_classes: int, intercept_scaling: float) -> Pair:
    """The pair of the audits, for small C."""
    first, second = tight_minimisers(adjacency, n_classes, intercept_scaling)
    return Pair(first, second, n_classes, adjacency)
