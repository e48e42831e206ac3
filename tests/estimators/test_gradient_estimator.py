"""GradientPerturbationSVC: order of the fit, agreement with first principles, what it learns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from dpsvm_fast import (
    GradientPerturbationSVC,
    PrivacyLedger,
    _core,
    verify,
)
from dpsvm_fast.exceptions import InvalidParameterError
from oracles.watching import fitted_names

TrainingSet = tuple[NDArray[np.float64], NDArray[np.int64]]
Patch = pytest.MonkeyPatch
slow = pytest.mark.slow
seeded = pytest.mark.filterwarnings("ignore::dpsvm_fast.NotPrivateWarning")
OPTIMIZERS = ("gd", "sgd", "adam")
LAST: dict[str, Any] = {
    "accountant": "last_iterate", "C": 0.1, "max_samples": 100, "n_steps": 200,
}  # fmt: skip


def model(**changes: Any) -> GradientPerturbationSVC:
    return GradientPerturbationSVC(**({"classes": [0, 1, 2], "n_threads": 1} | changes))


@seeded
@pytest.mark.parametrize("csr", [False, True])
@pytest.mark.parametrize("data_norm", [0.8, 5.0])
def test_the_weights_are_those_of_the_twin_for_raw_rows(
    csr: bool, data_norm: float, clusters: TrainingSet, monkeypatch: Patch
) -> None:
    """Same steps without noise, by numpy on clipped raw rows, and scores of raw rows."""
    X, y = clusters
    seen: list[dict[str, Any]] = []
    descent = _core.Descent

    def quiet(**options: Any) -> Any:
        seen.append(options)
        return descent(**(options | {"sigma": 0.0}))

    monkeypatch.setattr(_core, "Descent", quiet)
    estimator = model(
        data_norm=data_norm, C=0.7, n_steps=30, intercept_scaling=0.5, random_state=1, momentum=0.5
    ).fit(sparse.csr_matrix(X) if csr else X, y)
    options = seen[-1]
    clipped = X * np.minimum(1.0, data_norm / np.linalg.norm(X, axis=1))[:, None]
    # In raw units: gradients and R times data_norm, steps over data_norm squared.
    rows = np.hstack([clipped, np.full((90, 1), 0.5)])
    W, velocity, kept = np.zeros((3, 6)), np.zeros((3, 6)), []
    for t in range(30):
        scores = rows @ W.T + (np.arange(3) != y[:, None])
        a = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True) - np.eye(3)[y]
        size = np.linalg.norm(a, axis=1) * np.linalg.norm(rows, axis=1)
        factor = np.minimum(1.0, options["clip"] * data_norm / size)
        # The gradient of the objective over C, whose penalty is |W|^2 / 2.
        g = (factor[:, None] * a).T @ rows + W / 0.7
        velocity = 0.5 * velocity + g
        W = W - options["learning_rate"] / data_norm**2 * velocity
        if t >= 22:
            kept.append(W)
    expected = np.mean(kept, axis=0)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(estimator.coef_, expected[:, :5], atol=1e-3 * scale)
    np.testing.assert_allclose(estimator.intercept_, 0.5 * expected[:, 5], atol=1e-3 * scale)
    assert scale > 0.01


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
def test_the_last_iterate_is_near_the_minimum(adjacency: str, clusters: TrainingSet) -> None:
    X, y = clusters
    settings = LAST | {"adjacency": adjacency, "epsilon": 1e3, "margin": 0.0, "data_norm": 2.0}
    if adjacency == "replace_one":
        settings["max_samples"] = None
    estimator = model(**settings, fit_intercept=False).fit(X, y)
    plain = LogisticRegression(C=0.1, fit_intercept=False, tol=1e-10, max_iter=1000).fit(X, y)
    assert np.abs(estimator.coef_ - plain.coef_).max() < 0.1 * np.abs(plain.coef_).max()
    statement = estimator.privacy_
    assert statement.parts[0].last_iterate.max_records == (
        90 if adjacency == "replace_one" else 100
    )
    assert verify(statement).ok
    # Only the last iterate is kept.
    assert "_continuation" not in vars(estimator)
    assert not hasattr(estimator, "partial_fit")
    estimator.set_params(accountant="composition")
    with pytest.raises(InvalidParameterError, match=r"^accountant: this model cannot be continued"):
        estimator.partial_fit(X, y)


def test_more_rows_than_the_last_iterate_may_have_cost_nothing(clusters: TrainingSet) -> None:
    ledger = PrivacyLedger(epsilon=2.0, delta=1e-5)
    estimator = model(**(LAST | {"max_samples": 89}), ledger=ledger)
    with pytest.raises(InvalidParameterError, match=r"^max_samples: ") as caught:
        estimator.fit(*clusters)
    assert "90" not in str(caught.value)
    assert ledger.history == ()
    # Where it only sets the rules, the bound need not hold.
    model(max_samples=5).fit(*clusters)


def test_weights_that_leave_the_floats_are_not_released(clusters: TrainingSet) -> None:
    ledger = PrivacyLedger(epsilon=2.0, delta=1e-5)
    estimator = model(ledger=ledger, learning_rate=1e90, C=1.0, n_steps=50)
    with pytest.raises(InvalidParameterError, match=r"^learning_rate: too large"):
        estimator.fit(*clusters)
    assert fitted_names(estimator) == []
    assert len(ledger.history) == 1
