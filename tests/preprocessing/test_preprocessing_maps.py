"""Maps of single rows: they are those of the training rows, sparse rows stay sparse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse

from dpsvm_fast.estimators.inputs import public_map
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.mechanisms.rows import PublicMap, ReleasedMap, mapped_rows, mapped_scores
from oracles.noisy_descent import records_of, run
from twins.noisy_descent import Records

D = 7
RNG = np.random.default_rng(3)
X = RNG.normal(size=(40, D)) * np.geomspace(0.1, 30.0, D)
X[5] = 0.0
LABELS = np.zeros(40, dtype=np.int64)
LOW, HIGH = np.linspace(-4.0, 0.0, D), np.linspace(1.0, 50.0, D)
MAPS = {
    "as is": PublicMap(),
    "clipped": PublicMap(unit=False, data_norm=5.0),
    "to 0..1": PublicMap.from_bounds(LOW, HIGH),
    "from 0": PublicMap.from_bounds(np.zeros(D), HIGH),
    "signed": PublicMap.from_bounds(-HIGH, HIGH),
    "lifted": PublicMap.lifted(LOW, HIGH),
    "lifted, some from 0": PublicMap.lifted(np.where(LOW < -2.0, 0.0, LOW), HIGH),
    "lifted, sparse, some from 0": PublicMap.lifted(np.where(LOW < -2.0, 0.0, -HIGH), HIGH),
    "lifted from 0": PublicMap.lifted(np.zeros(D), HIGH),
}
# Rows of the twin are cut to multiples of 2**-20; after centring they are up to 16 times as long.
CUT = D**0.5 * 2.0**-20
each_map = pytest.mark.parametrize("name", MAPS)


def twin_rows(public: PublicMap, rows: NDArray[np.float64]) -> Records:
    """As the compiled records."""
    return Records(
        rows,
        np.zeros(len(rows), dtype=np.int64),
        n_classes=2,
        offset=public.offset,
        scale=public.scale,
        low=public.low,
        floor=public.floor,
        high=public.high,
        constant=public.constant,
        data_norm=public.data_norm,
        unit=public.unit,
        n_threads=1,
    )


@each_map
def test_the_public_map_is_that_of_the_training_rows(name: str) -> None:
    public = MAPS[name]
    rows = public.apply(X)
    assert np.linalg.norm(rows - twin_rows(public, X).rows, axis=1).max() <= 1.01 * CUT
    assert np.linalg.norm(rows, axis=1).max() <= 1.0 + 1e-12


@each_map
def test_the_records_are_the_mapped_rows(name: str) -> None:
    public = MAPS[name]
    exact = twin_rows(public, X).rows.sum(axis=0)
    assert np.allclose(public.records(X, LABELS, 2, 1).sums(1), exact, atol=40 * 2.0**-19)
    if public.offset is None:
        rows = sparse.csr_matrix(X)
        assert np.allclose(public.records(rows, LABELS, 2, 1).sums(1), exact, atol=40 * 2.0**-19)


def appended(public: PublicMap, X: Any, codes: Any) -> Any:
    """Records of rows to which the constant was appended before, and whose ends were cut before."""
    assert public.scale is not None
    least = np.full(D, -np.inf) if public.floor is None else np.where(public.floor < 0, -np.inf, 0)
    if sparse.issparse(X):
        cut = sparse.csr_matrix((np.maximum(X.data, least[X.indices]), X.indices, X.indptr))
        rows = sparse.hstack([cut, np.full((X.shape[0], 1), public.constant)], format="csr")
    else:
        last = np.full(len(X), public.constant)
        rows = np.column_stack([np.maximum(X.astype(np.float64), least), last])
    offset = None if public.offset is None else np.append(public.offset, 0.0)
    scale = np.append(public.scale, 1.0)
    limits = {"low": public.low, "high": public.high, "unit": True}
    if offset is not None:
        limits["offset"] = offset
    return records_of(rows, codes, scale=scale, **limits)


@pytest.mark.parametrize("name", [name for name in MAPS if name.startswith("lifted")])
@pytest.mark.parametrize("form", [np.asarray, np.float32, sparse.csr_matrix])
def test_the_constant_is_that_of_rows_which_hold_it(name: str, form: Any) -> None:
    public, rows, codes = MAPS[name], form(X), np.arange(40) % 2
    if sparse.issparse(rows) and public.offset is not None:
        pytest.skip("sparse rows have no offset")
    ours, theirs = public.records(rows, codes, 2, 1), appended(public, rows, codes)
    assert ours.n_features == D + 1
    assert np.array_equal(ours.gram(1), theirs.gram(1))
    assert np.array_equal(ours.sums(1), theirs.sums(1))
    ends = [run(records, 5, sampling_rate=0.5, sigma=0.1) for records in (ours, theirs)]
    assert np.array_equal(ends[0].weights(), ends[1].weights())


def test_bounds_decide_the_range() -> None:
    halves = PublicMap.from_bounds(np.array([0.0, 10.0]), np.array([4.0, 20.0]))
    assert np.allclose(
        halves.apply(np.array([[2.0, 15.0], [-9.0, 90.0]])), [[0.5**0.5] * 2, [0, 1]]
    )
    signed = PublicMap.from_bounds(np.array([-2.0, -4.0]), np.array([2.0, 4.0]))
    assert np.allclose(signed.apply(np.array([[-2.0, 0.0]])), [[-1.0, 0.0]])
    assert np.allclose(signed.apply(np.array([[1.0, -9.0]])), np.array([[0.5, -1.0]]) / 1.25**0.5)


@pytest.mark.proof("auto_pipeline", "Rows, sums, centre, whitening")
def test_a_constant_keeps_lengths_and_norms_of_1() -> None:
    public = PublicMap.lifted(np.zeros(4), np.full(4, 2.0))
    rows = public.apply(np.array([[2.0] * 4, [1.0] * 4, [0.0] * 4, [-5.0] * 4]))
    # A quarter of the longest row's norm.
    long = np.array([[1.0] * 4 + [0.5], [0.5] * 5, [0.0] * 4 + [0.5], [0.0] * 4 + [0.5]])
    assert np.allclose(rows, long / np.linalg.norm(long, axis=1, keepdims=True))
    middle = PublicMap.lifted(np.ones(1), np.full(1, 3.0)).apply(np.array([[2.0]]))
    assert np.allclose(middle, [[0.0, 1.0]])
    assert PublicMap.lifted(np.zeros(400), np.ones(400)).constant == 1.0


@pytest.mark.parametrize("whitened", [False, True])
def test_the_released_map_is_that_of_the_training_rows(whitened: bool) -> None:
    public = MAPS["to 0..1"]
    mean = public.apply(X).mean(axis=0)
    # The second row is the centre itself and the third lies near it.
    rows = np.vstack([X, LOW + (HIGH - LOW) * mean, LOW + (HIGH - LOW) * (mean + 0.01)])
    centre = np.rint(public.apply(rows)[40] * 2.0**20) * 2.0**-20
    matrix = np.cov(public.apply(X).T) + 0.01 * np.eye(D) if whitened else None
    records = twin_rows(public, rows)
    records.centre(centre, 1)
    if matrix is not None:
        records.transform(matrix, 1)
    mapped = mapped_rows(public, ReleasedMap(centre, matrix), rows, np.float64)
    away = np.linalg.norm(public.apply(rows) - centre, axis=1) > 1e-3
    assert np.count_nonzero(~away) == 1
    # Whitening stretches what was cut by at most the ratio of extreme eigenvalues.
    stretch = 1.0 if matrix is None else float(np.linalg.cond(matrix))
    error = np.linalg.norm(mapped[away] - records.rows[away], axis=1).max()
    assert error <= 40 * stretch * CUT
    near = np.linalg.norm(mapped[41])
    assert (near < 0.9) == (not whitened)


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("whitened", [False, True])
@pytest.mark.parametrize("as_sparse", [False, True])
def test_scores_are_those_of_mapped_rows(centred: bool, whitened: bool, as_sparse: bool) -> None:
    public = MAPS["from 0"]
    rows = np.abs(X) * (X > 0.0)
    centre = public.apply(rows).mean(axis=0) if centred else None
    matrix = np.diag(np.linspace(0.1, 1.0, D)) + 0.01 if whitened else None
    released = ReleasedMap(centre, matrix)
    weights, intercept = RNG.normal(size=(3, D)), RNG.normal(size=3)
    folded = weights if matrix is None else weights @ matrix
    given = sparse.csr_matrix(rows) if as_sparse else rows
    expected = mapped_rows(public, released, rows, np.float64) @ weights.T + intercept
    assert np.allclose(mapped_scores(public, released, given, folded, intercept), expected)


def test_scores_of_sparse_rows_do_not_cost_all_columns_for_each_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    n_columns, apply = 2**21, PublicMap.apply
    blocks: list[int] = []

    def counted(self: PublicMap, X: Any) -> Any:
        blocks.append(X.shape[0])
        return apply(self, X)

    monkeypatch.setattr(PublicMap, "apply", counted)
    places = (np.arange(500), np.arange(0, n_columns, n_columns // 500)[:500])
    given = sparse.csr_matrix((np.ones(500), places), shape=(500, n_columns))
    centre, weights = np.full(n_columns, 2.0**-20), RNG.normal(size=(1, n_columns))
    scores = mapped_scores(PublicMap(), ReleasedMap(centre, None), given, weights, np.zeros(1))
    length = np.linalg.norm(np.append(1.0 - 2.0**-20, centre[1:]))
    expected = (weights[0, places[1]] - weights[0] @ centre) / length
    assert np.allclose(scores[:, 0], expected)
    assert blocks == [500]


@each_map
def test_sparse_rows_stay_sparse_and_mean_the_same(name: str) -> None:
    public = MAPS[name]
    if public.offset is not None:
        return
    given = sparse.csr_matrix(X * (np.abs(X) > 1.0))
    mapped = public.apply(given)
    assert sparse.issparse(mapped)
    assert np.allclose(mapped.toarray(), public.apply(given.toarray()))


def test_bounds_that_would_fill_sparse_rows_are_refused() -> None:
    assert public_map((np.zeros(D), HIGH), sparse_rows=True).offset is None
    with pytest.raises(InvalidParameterError, match="low = 0"):
        public_map((LOW, HIGH), sparse_rows=True)


@each_map
def test_no_row_is_too_large_or_too_small(name: str) -> None:
    extreme = np.zeros((4, D))
    extreme[0], extreme[1, 0], extreme[2], extreme[3, :2] = 1e308, -1.7e308, 5e-324, (1e-300, 1e300)
    rows = MAPS[name].apply(extreme)
    assert np.isfinite(rows).all()
    assert np.linalg.norm(rows, axis=1).max() <= 1.0 + 1e-12
    if name == "as is":
        assert np.allclose(np.linalg.norm(rows, axis=1), 1.0)
