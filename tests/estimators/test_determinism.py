"""The same seed gives the same model, bit for bit; the order of the rows gives away nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse

from oracles.odd_inputs import ESTIMATORS, every_estimator
from oracles.solver import compiled

pytestmark = pytest.mark.filterwarnings("ignore::dpsvm_fast.NotPrivateWarning")

# More than 2**18 entries: below, the solver does not share out its passes.
N_SAMPLES, N_FEATURES = 3000, 100


def large_set(n_samples: int = N_SAMPLES) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    rng = np.random.default_rng(3)
    y = rng.integers(0, 4, n_samples).astype(np.int64)
    X = rng.normal(size=(n_samples, N_FEATURES)) + 3.0 * np.eye(4, N_FEATURES)[y]
    X[rng.random(X.shape) < 0.05] = 0.0
    return X, y


def fitted(
    X: Any, y: Any, kind: str = "output", **settings: Any
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    settings = {"classes": range(4), "C": 0.01, "random_state": 11} | settings
    model = ESTIMATORS[kind](**settings).fit(X, y)
    return model.coef_, model.intercept_


def same(first: Any, second: Any) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


FORMS = {
    "dense": np.ascontiguousarray,
    "single": lambda X: X.astype(np.float32),
    "csr": sparse.csr_matrix,
}


@pytest.mark.sampled
@every_estimator
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("low_memory", [False, True])
def test_threads_do_not_change_the_model(form: str, low_memory: bool, estimator: str) -> None:
    X, y = large_set()
    X = FORMS[form](X)
    assert N_SAMPLES * N_FEATURES > 2**18
    one, two, four = (
        fitted(X, y, estimator, n_threads=n, low_memory=low_memory) for n in (1, 2, 4)
    )
    assert same(one, two)
    assert same(one, four)
    # Negative control: another seed is another model.
    assert not same(one, fitted(X, y, estimator, random_state=12, low_memory=low_memory))


@pytest.mark.proof("output_perturbation", "Inexact minimiser")
@pytest.mark.parametrize("csr", [False, True])
@pytest.mark.parametrize("C", [1e-4, 1e-2, 1.0])
def test_the_order_of_the_rows_moves_the_weights_by_no_more_than_the_radii(
    csr: bool, C: float
) -> None:
    X, y = large_set(400)
    order = np.random.default_rng(0).permutation(y.size)
    found = []
    for rows, labels in ((X, y), (X[order], y[order])):
        weights, radius, asked = compiled(
            sparse.csr_matrix(rows) if csr else rows,
            labels,
            n_classes=4,
            C=C,
            data_norm=2.0,
            intercept_scaling=0.4,
        )
        assert radius <= asked
        found.append((weights, radius))
    distance = float(np.linalg.norm(found[0][0] - found[1][0]))
    assert distance <= found[0][1] + found[1][1]
    # Negative control: labels in another order than their rows are another data set.
    wrong, radius, _ = compiled(X[order], y, n_classes=4, C=C, data_norm=2.0, intercept_scaling=0.4)
    assert np.linalg.norm(wrong - found[0][0]) > radius + found[0][1]
