"""The compiled records: map, exact sums, centring, transforms, against integer arithmetic."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from numpy.typing import NDArray

from dpsvm_fast._core import Records

GRID = 2.0**-20
FREE: dict[str, Any] = {"scale": None, "low": -np.inf, "high": np.inf, "n_threads": 2}


def data(n: int = 400, d: int = 37, seed: int = 0) -> NDArray[np.float64]:
    """Return rows of which a third of the entries are not zero."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.3)


def labels(n: int) -> NDArray[np.int64]:
    return np.arange(n, dtype=np.int64) % 3


def dense(X: NDArray[Any], *, unit: bool = True, data_norm: float = 1.0, **given: Any) -> Records:
    options = {**FREE, "offset": None, **given}
    return Records.of(X, labels(len(X)), n_classes=3, unit=unit, data_norm=data_norm, **options)


def csr(X: NDArray[Any], *, unit: bool = True, data_norm: float = 1.0, **given: Any) -> Records:
    m = scipy.sparse.csr_matrix(X)
    y = labels(len(X))
    options = {**FREE, "offset": None, **given}
    rows = (m.data, m.indices, m.indptr, X.shape[1])
    return Records.of(rows, y, n_classes=3, unit=unit, data_norm=data_norm, **options)


def single(X: NDArray[Any], **given: Any) -> NDArray[np.float64]:
    """Return the row of every record, as the sum of that record alone."""
    return np.array([dense(x[None], **given).sums(1) for x in X])


def test_rows_follow_the_map() -> None:
    X = 3.0 * data(60)
    offset, scale = np.linspace(-1, 1, 37), np.linspace(0.5, 2, 37)
    z = np.clip((X - offset) * scale, -1.5, 2.0)
    norm = np.linalg.norm(z, axis=1, keepdims=True)
    given = {"offset": offset, "scale": scale, "low": -1.5, "high": 2.0}
    rows = single(X, **given)
    np.testing.assert_allclose(rows, z / norm, atol=GRID * 1.01)
    assert (np.abs(rows) <= np.abs(z / norm) * (1 + 1e-12)).all()
    for bound in (0.5, 7.0, 1e3):
        rows = single(X, **given, unit=False, data_norm=bound)
        expected = z * np.minimum(1.0, bound / norm) / bound
        np.testing.assert_allclose(rows, expected, atol=GRID * 1.01)


@pytest.mark.parametrize("size", [1e-320, 1e-200, 1.0, 1e200, 1.7e308])
def test_rows_have_norm_at_most_one_exactly(size: float) -> None:
    X = np.random.default_rng(1).uniform(-1, 1, (40, 23)) * size
    whole = np.rint(single(X) / GRID).astype(np.int64)
    square = (whole**2).sum(axis=1)
    assert (square <= 2**40).all()
    assert (square >= 0.9999 * 2**40).all()


def test_zero_and_exact_rows_stay() -> None:
    X = np.array([[0.0, 0.0, 0.0, 0.0], [0.0, 5.0, 0.0, 0.0], [3.0, 3.0, -3.0, 3.0]])
    np.testing.assert_array_equal(single(X), [[0] * 4, [0, 1, 0, 0], [0.5, 0.5, -0.5, 0.5]])


def test_sums_are_exact_in_both_layouts_for_all_threads() -> None:
    X = data()
    expected = single(X).sum(axis=0)  # Multiples of the grid: exact in any order.
    for n_threads in (1, 2, 4):
        np.testing.assert_array_equal(dense(X).sums(n_threads), expected)
        np.testing.assert_array_equal(csr(X).sums(n_threads), expected)
    np.testing.assert_array_equal(dense(X.astype(np.float32)).sums(1), csr(X.astype("f4")).sums(1))


def grid_point(d: int, size: float) -> NDArray[np.float64]:
    m = np.random.default_rng(2).standard_normal(d) * size
    return np.rint(m / GRID) * GRID


def test_centring_and_outer_products() -> None:
    X = data()
    m = grid_point(37, 0.05)
    rows = single(X)
    differences = rows - m
    length = np.maximum(np.linalg.norm(differences, axis=1, keepdims=True), 1 / 16)
    u = np.trunc(differences / length / GRID) * GRID
    first, second = dense(X), csr(X)
    first.centre(m, 1)
    second.centre(m, 2)
    gram = first.gram(2)
    np.testing.assert_array_equal(gram, second.gram(1))
    np.testing.assert_allclose(gram, u.T @ u, atol=len(X) * 2e-6)
    np.testing.assert_array_equal(gram, gram.T)
    assert (np.rint(gram / GRID**2) * GRID**2 == gram).all()
    for one in (first, second):
        with pytest.raises(ValueError, match="centre needs rows"):
            one.centre(m, 1)
        with pytest.raises(ValueError, match="sums needs rows"):
            one.sums(1)


@pytest.mark.parametrize("seed", range(3))
def test_one_record_moves_the_sums_by_at_most_one(seed: int) -> None:
    X = data(60, 19, seed)
    m = grid_point(19, 0.3)
    with_it, without = dense(X), dense(X[:-1])
    assert np.linalg.norm(with_it.sums(1) - without.sums(1)) <= 1.0
    with_it.centre(m, 1)
    without.centre(m, 1)
    distance = np.linalg.norm(with_it.gram(1) - without.gram(1))
    assert 0.999 < distance <= 1.0


def test_transforms_follow_the_matrix() -> None:
    X = data(50)
    M = np.random.default_rng(3).standard_normal((11, 37))
    for make in (dense, csr):
        records = make(X)
        records.transform(M, 2)
        assert records.n_features == 11
        v = single(X) @ M.T
        v /= np.linalg.norm(v, axis=1, keepdims=True)
        np.testing.assert_allclose(records.gram(1), v.T @ v, atol=50 * 1e-5)
        assert np.trace(records.gram(1)) <= 50.0
        with pytest.raises(ValueError, match="expected 11"):
            records.transform(M, 1)


def test_records_are_neither_copied_nor_pickled() -> None:
    records = dense(data(5))
    for leak in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="neither copied nor pickled"):
            leak(records)
    public = {name for name in dir(records) if not name.startswith("_")}
    made, facts = {"of", "gram_from_parts"}, {"n_features", "n_rows"}
    # The scratch files of fits over partitions, in a folder that only the fit's user reads.
    files = {"append_to", "read_from"}
    sums = {"sums", "centre", "gram", "gram_parts", "transform", "lift", "own", "weigh"}
    assert public == made | facts | files | sums


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_refused(bad: float) -> None:
    X = data(5)
    X[3, 7] = bad
    for make in (dense, csr):
        with pytest.raises(ValueError, match="X: contains NaN or infinity"):
            make(X, low=-1.0, high=1.0)


def test_arguments_out_of_range_are_refused() -> None:
    X = data(6)
    with pytest.raises(ValueError, match="low <= high"):
        dense(X, low=1.0, high=0.0)
    with pytest.raises(ValueError, match="low <= 0 <= high"):
        csr(X, low=0.1, high=1.0)
    with pytest.raises(ValueError, match="scale: got 3 entries"):
        dense(X, scale=np.ones(3))
    with pytest.raises(ValueError, match="data_norm"):
        dense(X, unit=False, data_norm=0.0)
    with pytest.raises(ValueError, match="n_threads"):
        dense(X, n_threads=0)
    options = {**FREE, "offset": None, "data_norm": 1.0, "unit": True}
    for y in (np.full(6, 3), np.full(6, -1), np.zeros(5)):
        with pytest.raises(ValueError, match=r"^y: "):
            Records.of(X, y.astype(np.int64), n_classes=3, **options)
    records = dense(X)
    for point in (np.full(37, np.nan), np.full(37, 1e3), np.zeros(36)):
        with pytest.raises(ValueError, match="point"):
            records.centre(point, 1)
    with pytest.raises(ValueError, match="matrix"):
        records.transform(np.full((2, 37), np.inf), 1)
    assert np.isfinite(records.sums(1)).all()
