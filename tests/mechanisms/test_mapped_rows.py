"""Rows that are mapped for good are functions of themselves: one record moves no other's bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

import dpsvm_fast as dp
from dpsvm_fast.data.executors import Change, PreparedRows, Recipe
from dpsvm_fast.mechanisms.rows import PublicMap, ReleasedMap

N = 301
# Of one row, of few, and of enough for another path through a matrix product.
CUTS = [slice(0, 1), slice(7, 9), slice(3, 200), slice(N - 1, N), slice(150, N)]
FORMS: dict[str, Callable[[Any], Any]] = {
    "rows first": np.ascontiguousarray,
    "columns first": np.asfortranarray,
    "float32": lambda X: X.astype(np.float32),
    "every other": lambda X: np.repeat(X, 2, axis=0)[::2],
}
CHANGES = ("none", "centred", "whitened", "both")


def prepared(X: Any, changes: str, n_threads: int) -> Any:
    """Rows as a descent sums them."""
    d = X.shape[1]
    rng = np.random.default_rng(d)
    centre = Change("centre", 0.1 * rng.normal(size=d))
    matrix = Change("transform", rng.normal(size=(d, d)))
    chosen = {"none": (), "centred": (centre,), "whitened": (matrix,), "both": (centre, matrix)}
    recipe = Recipe(
        n_features=d,
        sparse=False,
        classes=np.array([0, 1]),
        public=PublicMap.from_bounds(np.full(d, -2.0), np.full(d, 2.5)),
        n_classes=2,
        changes=chosen[changes],
    )
    labels = np.zeros(len(X), dtype=np.int64)
    return PreparedRows(lambda: (X, labels), recipe, n_threads)()[0]


@pytest.mark.sampled
@pytest.mark.parametrize("changes", CHANGES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("d", [1, 9, 33, 130])
def test_other_rows_change_no_bit(d: int, form: str, changes: str) -> None:
    X = np.random.default_rng(0).normal(size=(N, d))
    whole = prepared(FORMS[form](X), changes, 3)
    assert np.linalg.norm(whole.astype(float), axis=1).max() <= 1.0 + 1e-6
    for cut in CUTS:
        alone = prepared(FORMS[form](X[cut]), changes, 1)
        assert alone.tobytes() == np.ascontiguousarray(whole[cut]).tobytes()


@pytest.mark.parametrize("changes", CHANGES)
def test_no_bit_changes_before_rounding_either(changes: str) -> None:
    """Single precision hides most changes of the last bit in double; one in 10^9 it does not."""
    X = np.random.default_rng(1).normal(size=(N, 130))
    rng = np.random.default_rng(2)
    released = ReleasedMap(
        0.1 * rng.normal(size=130) if changes in ("centred", "both") else None,
        rng.normal(size=(130, 130)) if changes in ("whitened", "both") else None,
    )
    whole = released.apply(X)
    for cut in CUTS:
        assert released.apply(X[cut]).tobytes() == np.ascontiguousarray(whole[cut]).tobytes()


SCORED: dict[str, Any] = {
    "output": dp.OutputPerturbationSVC(classes=[0, 1]),
    "linear": dp.PrivateLinearSVC(bounds=(-3, 3), whiten=True, classes=[0, 1]),
    "kernel": dp.PrivateKernelSVC(n_components=40, classes=[0, 1]),
    "ellipsoids": dp.PrivateGaussianMarginClassifier(classes=[0, 1]),
}


@pytest.mark.proof("evaluation", "Cells")
@pytest.mark.parametrize("name", SCORED)
def test_scores_of_a_row_are_its_own(name: str) -> None:
    """Otherwise one record more could change the predictions of others."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(2001, 17)), rng.integers(0, 2, 2001)
    model = clone(SCORED[name]).fit(X, y)
    whole = model.decision_function(X)
    for cut in (*CUTS, slice(1, 2001), rng.random(2001) < 0.5, [5]):
        assert model.decision_function(X[cut]).tobytes() == whole[cut].tobytes()


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix], ids=["dense", "csr"])
@pytest.mark.parametrize("unit", [True, False])
def test_a_row_that_became_nan_is_nan_without_a_warning(unit: bool, form: Any) -> None:
    """Another thread may write into rows after their check: the fit refuses its result later."""
    X = np.array([[np.nan, 1e300, 1.0], [3.0, 0.0, 4.0], [0.0, 0.0, 0.0]])
    mapped = PublicMap(unit=unit, data_norm=5.0).apply(form(X))
    rows = mapped.toarray() if sparse.issparse(mapped) else mapped
    assert np.isnan(rows[0]).all()
    np.testing.assert_allclose(rows[1:], [[0.6, 0.0, 0.8], [0.0, 0.0, 0.0]])
