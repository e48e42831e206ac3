"""Mapped rows: their norms, the exact sums and Gram matrices, centring and whitening.

A set of one record shows its row in its sum. All bounds are decided in exact arithmetic.
"""

from __future__ import annotations

import copy
import math
import pickle
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse

from oracles.noisy_descent import COMPILED, TWIN, clipped_sum, records_of

Array = NDArray[Any]
UNIT = 2.0**-20
FORMS = (np.asarray, sparse.csr_matrix)


def square(values: Array) -> Fraction:
    """Exact sum of squares."""
    return sum((Fraction(float(v)) ** 2 for v in np.ravel(values)), Fraction(0))


def mapped(X: Array, **options: Any) -> list[Array]:
    """Every row of X as a set of its own, dense and in compressed form."""
    found = []
    for form in FORMS:
        if form is not np.asarray and options.get("offset") is not None:
            continue
        taken = {k: v for k, v in options.items() if form is np.asarray or k != "offset"}
        rows = [records_of(form(x[None, :]), [0], **taken).sums(1) for x in X]
        found.append(np.array(rows))
    return found


def close(found: Array, exact: Array) -> bool:
    """Multiples of the unit, within one of the exact entries, and up to rounding towards zero."""
    on_grid = bool((np.rint(found / UNIT) * UNIT == found).all())
    near = bool((np.abs(found - exact) <= UNIT * (1 + 1e-6)).all())
    inwards = bool((np.abs(found) <= np.abs(exact) * (1 + 1e-12) + 1e-15).all())
    return on_grid and near and inwards


def test_short_rows_are_kept_and_long_ones_cut() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 4)) * np.exp(rng.normal(size=(50, 1)))
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    for data_norm in (0.3, 1.0, 5.0):
        expected = X * np.minimum(1.0, data_norm / norms) / data_norm
        for rows in mapped(X, data_norm=data_norm):
            assert close(rows, expected)
    for rows in mapped(X, unit=True, data_norm=123.0):
        assert close(rows, X / norms)


def test_scale_offset_and_limits_come_before_the_norm() -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(30, 4))
    scale, offset = np.array([0.5, 2.0, 1e-3, 3.0]), np.array([0.1, -0.5, 0.0, 1.0])
    for low, high in ((-math.inf, math.inf), (-0.5, 0.25), (0.0, 1.0)):
        for shift in (None, offset):
            z = np.clip((X - (0.0 if shift is None else shift)) * scale, low, high)
            norms = np.linalg.norm(z, axis=1, keepdims=True)
            limits = {"scale": scale, "offset": shift, "low": low, "high": high}
            for rows in mapped(X, unit=True, **limits):
                assert close(rows, z / np.maximum(norms, 1e-300))
            for rows in mapped(X, data_norm=0.7, **limits):
                assert close(rows, z * np.minimum(1.0, 0.7 / np.maximum(norms, 1e-300)) / 0.7)


FLOATS = st.one_of(
    st.floats(-2.0, 2.0, allow_subnormal=True),
    st.sampled_from([0.0, 5e-324, 1e-300, 1e-160, 1e160, 1e300, 1.7e308, -1.7e308, 1.0, 0.6, 0.8]),
)


@pytest.mark.proof("auto_pipeline", "Rows, sums, centre, whitening")
@given(
    row=st.lists(FLOATS, min_size=1, max_size=6),
    data_norm=st.sampled_from([1e-3, 0.9, 1.0, 7.0, 1e90]),
    unit=st.booleans(),
)
def test_no_row_is_longer_than_one(row: list[float], data_norm: float, unit: bool) -> None:
    X = np.array([row])
    slow = records_of(X, [0], kind=TWIN, data_norm=data_norm, unit=unit).rows
    for rows in mapped(X, data_norm=data_norm, unit=unit):
        assert square(rows) <= 1
        assert np.abs(rows - slow).max() <= UNIT * (1 + 1e-9)
        # A unit row loses less than a unit an entry.
        if unit and X.any():
            assert np.linalg.norm(rows) >= 1.0 - UNIT * math.sqrt(X.size) - 1e-12


@pytest.mark.proof("auto_pipeline", "Rows, sums, centre, whitening")
@pytest.mark.parametrize("form", FORMS)
def test_one_record_moves_sums_and_grams_by_at_most_one(form: Any) -> None:
    rng = np.random.default_rng(2)
    X = rng.normal(size=(40, 5))
    y = np.zeros(40)
    for centred in (False, True):
        pairs = []
        for rows in (X, X[1:]):
            records = records_of(form(rows), y[: len(rows)], unit=True)
            if centred:
                records.centre(np.full(5, 0.125), 1)
                records.transform(np.diag([1.0, 2.0, 3.0, 4.0, 50.0]), 1)
            else:
                pairs.append(records.sums(1))
            pairs.append(records.gram(1))
        half = len(pairs) // 2
        for first, second in zip(pairs[:half], pairs[half:], strict=True):
            moved = square(first - second)
            assert moved <= 1
            assert moved >= Fraction(98, 100)


def gram_of_one(form: Any, x: Array, point: Array | None, matrix: Array | None) -> Array:
    records = records_of(form(x[None, :]), [0])
    if point is not None:
        records.centre(point, 1)
    if matrix is not None:
        records.transform(matrix, 1)
    return np.asarray(records.gram(1))


@pytest.mark.proof("auto_pipeline", "Rows, sums, centre, whitening")
@pytest.mark.parametrize("form", FORMS)
def test_centred_rows_have_at_most_norm_one(form: Any) -> None:
    rng = np.random.default_rng(3)
    x = np.rint(rng.normal(size=5) * 0.2 / UNIT) * UNIT
    for size in (0.0, 2.0**-20, 0.01, 0.06, 0.07, 0.5, 1.0):
        direction = rng.normal(size=5)
        point = np.rint((x - size * direction / np.linalg.norm(direction)) / UNIT) * UNIT
        moved = x - point
        u = moved / max(float(np.linalg.norm(moved)), 1.0 / 16.0)
        gram = gram_of_one(form, x, point, None)
        np.testing.assert_allclose(gram, np.outer(u, u), atol=4 * UNIT)
        # The trace is the squared norm of a row that was rounded towards zero.
        assert sum((Fraction(float(v)) for v in np.diag(gram)), Fraction(0)) <= 1
        assert np.trace(gram) >= min(1.0, (size * 16.0) ** 2) - 30 * UNIT


@pytest.mark.proof("auto_pipeline", "Rows, sums, centre, whitening")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("centred", [False, True])
def test_transformed_rows_have_norm_one(form: Any, centred: bool) -> None:
    rng = np.random.default_rng(4)
    x = rng.normal(size=5) * 0.2
    point = np.rint(np.linspace(-0.1, 0.1, 5) / UNIT) * UNIT if centred else None
    for d2 in (1, 3, 5, 8):
        for scale in (1e-150, 1.0, 1e150):
            matrix = rng.normal(size=(d2, 5))
            start = np.trunc(x / UNIT) * UNIT - (0.0 if point is None else point)
            u = matrix @ start
            u /= np.linalg.norm(u)
            gram = gram_of_one(form, x, point, matrix * scale)
            assert gram.shape == (d2, d2)
            np.testing.assert_allclose(gram, np.outer(u, u), atol=2e-5)
            assert sum((Fraction(float(v)) for v in np.diag(gram)), Fraction(0)) <= 1
    assert (gram_of_one(form, x, point, np.zeros((2, 5))) == 0.0).all()


def test_every_form_gives_the_gradients_of_the_twin_after_all_maps() -> None:
    rng = np.random.default_rng(5)
    X, y = rng.normal(size=(60, 7)), rng.integers(0, 2, 60)
    X[rng.random(X.shape) < 0.5] = 0.0
    scale = rng.uniform(0.5, 2.0, 7)
    matrix = rng.normal(size=(4, 7))
    for kind, form in ((COMPILED, np.asarray), (COMPILED, sparse.csr_matrix)):
        sums = []
        for chosen, shape in ((kind, form), (TWIN, np.asarray)):
            records = records_of(shape(X), y, kind=chosen, scale=scale, low=-1.0, high=0.75)
            assert records.n_features == 7
            records.centre(np.rint(records.sums(1) / 60 / UNIT) * UNIT, 1)
            before = clipped_sum(records, kind=chosen, margin=1.0)
            records.transform(matrix, 1)
            assert records.n_features == 4
            sums.append((before, clipped_sum(records, kind=chosen, margin=1.0)))
        for found, slow in zip(*sums, strict=True):
            np.testing.assert_allclose(found, slow, atol=60 * 1e-4)
            assert np.abs(slow).max() > 0.5


BAD: list[tuple[str, dict[str, Any]]] = [
    ("y", {"y": np.array([0, 2, 1])}),
    ("y", {"y": np.array([0, -1, 1])}),
    ("X|y", {"y": np.array([0, 1])}),
    ("scale", {"scale": np.ones(3)}),
    ("low", {"low": 1.0, "high": -1.0}),
    ("data_norm", {"data_norm": 0.0}),
    ("data_norm", {"data_norm": math.nan}),
    ("n_threads", {"n_threads": 0}),
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("name", "changes"), BAD)
def test_bad_arguments_are_refused(form: Any, name: str, changes: dict[str, Any]) -> None:
    options: dict[str, Any] = {"y": np.array([0, 1, 1])} | changes
    with pytest.raises(ValueError, match=name):
        records_of(form(np.eye(3, 2)), options.pop("y"), **options)


def test_sparse_rows_need_limits_around_zero() -> None:
    rows = sparse.csr_matrix(np.eye(3, 2))
    for limits in ({"low": 0.5, "high": 1.0}, {"low": -1.0, "high": -0.5}):
        with pytest.raises(ValueError, match="low"):
            records_of(rows, [0, 1, 0], **limits)


@pytest.mark.parametrize("form", FORMS)
def test_calls_out_of_order_or_range_are_refused_and_change_nothing(form: Any) -> None:
    records = records_of(form(np.eye(3, 2)), [0, 1, 0])
    for point in (np.full(2, np.nan), np.full(2, 1e3), np.zeros(3)):
        with pytest.raises(ValueError, match="point"):
            records.centre(point, 1)
    for matrix in (np.full((2, 2), np.inf), np.ones((2, 3))):
        with pytest.raises(ValueError, match="matrix"):
            records.transform(matrix, 1)
    assert (records.sums(1) == [1.0, 1.0]).all()
    records.centre(np.zeros(2), 1)
    for call in (lambda: records.centre(np.zeros(2), 1), lambda: records.sums(1)):
        with pytest.raises(ValueError, match="needs rows"):
            call()
    for bad in (np.nan, np.inf, -np.inf):
        with pytest.raises(ValueError, match="X"):
            records_of(form(np.array([[bad, 1.0]])), [0], low=-1.0, high=1.0)


def test_records_are_neither_copied_nor_pickled() -> None:
    records = records_of(np.eye(3), [0, 1, 0])
    for leak in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="neither copied nor pickled"):
            leak(records)
    public = {name for name in dir(records) if not name.startswith("_")}
    made, facts = {"gram_from_parts"}, {"n_features", "n_rows"}
    # The scratch files of fits over partitions, in a folder that only the fit's user reads.
    files = {"append_to", "read_from"}
    sums = {"sums", "centre", "gram", "gram_parts", "transform", "lift", "own", "weigh"}
    assert public == made | facts | files | sums
