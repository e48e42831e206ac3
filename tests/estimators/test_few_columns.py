"""PrivateLinearSVC with one and two columns: rows keep a constant, so that lengths count."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from dpsvm_fast import PrivateLinearSVC, _core, verify
from dpsvm_fast.mechanisms import pipeline
from dpsvm_fast.mechanisms.rows import ReleasedMap
from oracles.coupled import use_slow_core
from oracles.plans import planned

seeded = pytest.mark.filterwarnings("ignore::dpsvm_fast.NotPrivateWarning")
Array = NDArray[np.float64]
Patch = pytest.MonkeyPatch
GRID = 2.0**-20


def rare(kind: str, n_rows: int = 6000) -> tuple[Array, NDArray[np.int64], Any]:
    """Fewer positives than negatives by a logistic model, and public bounds."""
    rng = np.random.default_rng(len(kind))
    if kind == "two columns":
        X = rng.normal(size=(n_rows, 2)) @ np.array([[1.0, 0.8], [0.0, 0.6]])
        scores, bounds = 2.0 * X[:, 0] + X[:, 1] - 3.3, (-6, 6)
    else:
        draw, slope, shift, bounds = {
            "normal": (rng.standard_normal, 2.0, 2.5, (-6, 6)),
            "exponential": (rng.standard_exponential, 1.0, 3.5, (0, 10)),
            "narrow": (rng.standard_normal, 2.0, 2.0, (-40, 40)),
        }[kind]
        X = draw(n_rows)[:, None]
        scores = slope * X[:, 0] - shift
    return X, (rng.random(n_rows) < expit(scores)).astype(np.int64), bounds


def model(epsilon: float = 4.0, **changes: Any) -> PrivateLinearSVC:
    return PrivateLinearSVC(epsilon, 1e-5, **({"classes": [0, 1]} | changes))


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
@pytest.mark.parametrize("kind", ["normal", "exponential", "narrow", "two columns"])
def test_it_is_as_good_as_logistic_regression(kind: str, adjacency: str) -> None:
    X, y, bounds = rare(kind)
    exact = LogisticRegression().fit(X, y).score(X, y)
    majority = 1.0 - y.mean()
    fits = [model(bounds=bounds, adjacency=adjacency).fit(X, y) for _ in range(3)]
    scores = [fitted.score(X, y) for fitted in fits]
    assert np.mean(scores) > exact - 0.01
    assert min(scores) > majority
    assert all(fitted.whitened_ and not np.any(fitted.centre_) for fitted in fits)
    assert verify(fits[0].privacy_).ok


@seeded
def test_without_the_constant_it_is_worse(monkeypatch: Patch) -> None:
    """Negative control: the recipe for more columns."""
    X, y, bounds = rare("two columns")
    settings: dict[str, Any] = {"bounds": bounds, "random_state": 0, "epsilon": 1000.0}
    now = model(**settings).fit(X, y).score(X, y)
    monkeypatch.setattr(pipeline, "MOST_STRAIGHTENED", 0)
    assert model(**settings).fit(X, y).score(X, y) < now - 0.003


@pytest.mark.proof("auto_pipeline", "Budget and paths")
@pytest.mark.parametrize("kind", ["normal", "two columns"])
def test_rows_are_affine_in_the_entries(kind: str, monkeypatch: Patch) -> None:
    """(W (z - c), kappa), scaled to norm 1: the training and the prediction see the same rows."""
    X, y, bounds = rare(kind)
    mechanism, rows = planned(model(bounds=bounds), X, y)
    use_slow_core(monkeypatch)
    ready = mechanism.prepared(rows, _core.NoiseSource(3))
    assert ready.whitening is not None
    seen = ReleasedMap(ready.centre, ready.whitening).apply(mechanism.public.apply(X))
    stored = ready.records.rows
    assert np.allclose(stored, seen, atol=1e-4)
    z = np.column_stack([mechanism.public.entries(X), np.full(len(X), mechanism.public.constant)])
    moved = z @ ready.whitening.T
    assert np.ptp(moved[:, -1]) == 0.0 < moved[0, -1]
    assert np.allclose(seen, moved / np.linalg.norm(moved, axis=1, keepdims=True))
    assert np.linalg.norm(ready.whitening, 2) <= 1.0
    # The centre and the scale are those of the rows: about KEPT deviations beside the constant.
    spread = moved[:, :-1] / moved[:, -1:]
    assert np.abs(spread.mean(axis=0)).max() < 0.2
    assert 0.3 < spread.std() * pipeline.KEPT < 3.0


@pytest.mark.proof("auto_pipeline", "Exact sums")
def test_one_record_moves_the_moments_by_its_own_row() -> None:
    """Given the releases, whatever they are: exactly, and by at most 1."""
    X, y, bounds = rare("two columns", 300)
    rng = np.random.default_rng(5)
    mechanism, _ = planned(model(bounds=bounds), X, y)
    for trial in range(20):
        first, second = rng.normal(size=(2, 3, 3)) * 10.0 ** rng.integers(-3, 4, size=(2, 3, 3))
        grams = []
        for rows in (X, X[:-1], X[-1:]):
            records = mechanism.public.records(rows, y[: len(rows)], 2, 1)
            records.transform(first, 1)
            if trial % 2:
                records.transform(second, 1)
            grams.append(records.gram(1) / GRID**2)
        everyone, others, alone = grams
        assert np.array_equal(everyone - others, alone)
        assert np.array_equal(alone, np.round(alone))
        # The trace of u u^T is the squared norm.
        assert np.trace(alone) <= 1.0 / GRID**2


@seeded
def test_sparse_rows_are_treated_alike() -> None:
    X, y, _ = rare("exponential")
    X = np.where(X < 0.5, 0.0, X)
    settings: dict[str, Any] = {"bounds": (0, 10), "random_state": 1}
    dense, stored = model(**settings).fit(X, y), model(**settings).fit(sparse.csr_matrix(X), y)
    assert stored.whitened_
    assert np.allclose(dense.decision_function(X), stored.decision_function(X), atol=1e-3)


@seeded
@pytest.mark.parametrize("n_features", [3, 5])
def test_more_columns_keep_their_bits(n_features: int, monkeypatch: Patch) -> None:
    rng = np.random.default_rng(n_features)
    X = rng.normal(size=(3000, n_features))
    y = (X[:, 0] > 0).astype(int)
    settings: dict[str, Any] = {"bounds": (-4, 4), "random_state": 1}
    now = model(**settings).fit(X, y)
    monkeypatch.setattr(pipeline, "MOST_STRAIGHTENED", 0)
    before = model(**settings).fit(X, y)
    assert now.whitened_
    assert now.whitening_ is not None
    assert before.whitening_ is not None
    assert np.array_equal(now.coef_, before.coef_)
    assert np.array_equal(now.whitening_, before.whitening_)
