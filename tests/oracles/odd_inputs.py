"""Small training sets of odd kinds, and the estimators that have to cope with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy import sparse

from dpsvm_fast import ObjectivePerturbationSVC, OutputPerturbationSVC, PrivacyLedger

RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 3))
Y = np.arange(12) % 3

ESTIMATORS: dict[str, Any] = {
    "output": OutputPerturbationSVC,
    "objective": ObjectivePerturbationSVC,
}
# Number of events that one fit spends.
EVENTS = {"output": 1, "objective": 2}
every_estimator = pytest.mark.parametrize("estimator", ESTIMATORS)


def model(estimator: str, **settings: Any) -> Any:
    """An estimator for three classes with a budget that nothing exhausts."""
    ledger = PrivacyLedger(epsilon=1e4, delta=0.5, strict=False)
    return ESTIMATORS[estimator](
        **({"classes": range(3), "n_threads": 1, "ledger": ledger} | settings)
    )


def with_value(value: float, dtype: Any = np.float64) -> NDArray[Any]:
    changed = X.astype(dtype)
    changed[4, 1] = value
    return changed


def csr(**changes: Any) -> sparse.csr_matrix:
    """A small CSR matrix whose arrays are replaced without any check."""
    matrix = sparse.csr_matrix(X * (X > 0.0))
    for name, value in changes.items():
        setattr(matrix, name, value)
    return matrix


def with_index(column: int) -> sparse.csr_matrix:
    matrix = csr()
    matrix.indices[0] = column
    return matrix


class Raises:
    """An array that cannot be read."""

    shape = (12, 3)

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("unreadable")


def frame(**columns: Any) -> pd.DataFrame:
    return pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2]} | columns)


def duplicated_entries() -> sparse.csr_matrix:
    """Every row holds (3, 3) in one column: its norm is that of the sum, 6."""
    return sparse.csr_matrix(
        (np.full(24, 3.0), np.zeros(24, int), np.arange(0, 26, 2)), shape=(12, 3)
    )


def read_only() -> NDArray[np.float64]:
    rows = X.copy()
    rows.flags.writeable = False
    return rows
