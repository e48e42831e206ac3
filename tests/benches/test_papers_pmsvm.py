"""The methods of PMSVM's table 2 spend exactly what they are given, and the table says what is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from benches.papers import (
    pmsvm_methods,
)
from benches.papers.data import DataSet
from benches.papers.pmsvm_methods import BASELINES, OneVsRest, Task
from benches.papers.pmsvm_settings import DELTA, GRADIENT_METHODS
from numpy.typing import NDArray
from scipy import sparse

from dpsvm_fast import total_privacy, verify
from dpsvm_fast.accounting import composed_delta

N_ROWS, N_FEATURES, N_CLASSES = 300, 5, 3


def some_rows(norm: float = 1.0) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    generator = np.random.default_rng(0)
    y = generator.integers(0, N_CLASSES, N_ROWS)
    X = generator.normal(size=(N_ROWS, N_FEATURES)) + 3.0 * np.eye(N_FEATURES)[y]
    return norm * X / np.linalg.norm(X, axis=1, keepdims=True), y


def a_task(norm: float = 1.0) -> Task:
    return Task("vehicle", N_ROWS, N_FEATURES, N_CLASSES, norm)


def fitted(method: str, epsilon: float) -> Any:
    X, y = some_rows()
    constants = pmsvm_methods.printed(method, "vehicle")
    if method in GRADIENT_METHODS:
        # Few steps: what is judged is the budget.
        constants = (2, constants[1])
    return BASELINES[method](a_task(), epsilon, constants).fit(X, y)


@pytest.mark.parametrize("method", ["PrivateSVM", "GRPUA"])
def test_one_vs_rest_is_charged_for_every_class(method: str) -> None:
    model = fitted(method, 4.0)
    assert isinstance(model, OneVsRest)
    assert len(model.models_) == N_CLASSES
    for binary in model.models_:
        assert verify(binary.privacy_).ok
        assert binary.privacy_.delta == DELTA
        assert 4.0 / N_CLASSES < binary.privacy_.epsilon < 4.0
    events = [event for binary in model.models_ for event in binary.privacy_.events]
    assert composed_delta(events, 4.0) <= DELTA
    # One more model would not have been paid for.
    assert composed_delta([*events, *model.models_[0].privacy_.events], 4.0) > DELTA
    whole = total_privacy(model.models_, delta=DELTA)
    assert whole.private
    assert whole.adjacency == "add_remove"


def test_rows_of_methods_are_within_their_norms() -> None:
    generator = np.random.default_rng(1)
    X = generator.uniform(0.0, 9.0, size=(40, 6)) * (generator.uniform(size=(40, 6)) < 0.05)
    X[0] = 20.0
    data = DataSet(X, np.arange(40) % 2, 2, np.zeros(6), np.full(6, 9.0))
    for method in BASELINES:
        rows, norm = pmsvm_methods.rows_of(method, "vehicle", data, "public")
        assert sparse.issparse(rows) or rows.shape == X.shape
        lengths = (
            np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)))
            if sparse.issparse(rows)
            else (np.linalg.norm(rows, axis=1))
        )
        assert lengths.max() <= norm * (1.0 + 1e-9)
        # A row is mapped by itself: the others may be anybody's.
        alone = DataSet(X[:1], data.y[:1], 2, data.low, data.high)
        first = pmsvm_methods.rows_of(method, "vehicle", alone, "public")[0]
        assert np.allclose(
            np.ravel(first), np.ravel(rows[0].todense() if sparse.issparse(rows) else rows[0])
        )
