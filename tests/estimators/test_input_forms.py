"""The same rows in other forms give the same model; rows that change during a fit never a crash."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy import sparse

from dpsvm_fast import PublicScaler
from dpsvm_fast.exceptions import CertificationError
from oracles.odd_inputs import X, Y, csr, duplicated_entries, every_estimator, model
from oracles.subjects import (
    MAIN,
    SUBJECTS,
    every_classifier,
    every_subject,
    known,
    made,
    outputs,
    released,
)

seeded = pytest.mark.filterwarnings("ignore::dpsvm_fast.NotPrivateWarning")
every_dense_or_sparse = pytest.mark.parametrize(
    "subject", [name for name in MAIN if not SUBJECTS[name].dense_only]
)
# Whose sums over rows are exact: not of solvers, which stop at a distance from their minimiser.
SUMMED = ("gradient", "linear", "kernel", "centre", "whitener", "pca", "standard scaler")


def memory_map(tmp_path: Any) -> NDArray[np.float64]:
    np.save(tmp_path / "rows.npy", X)
    loaded: NDArray[np.float64] = np.load(tmp_path / "rows.npy", mmap_mode="r")
    return loaded


class Foreign:
    """What frames and tables of other libraries offer: names, a shape and an array."""

    def __init__(self, rows: NDArray[np.float64]) -> None:
        self.shape = rows.shape
        self.columns = ["a", "b", "c"]
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        return np.asarray(self._rows, dtype=dtype)


def unaligned() -> NDArray[np.float64]:
    whole = np.frombuffer(b"\0" + X.tobytes(), np.uint8)[1:]
    return whole.view("<f8").reshape(12, 3)


# The same rows in other forms.
FORMS: dict[str, Callable[[Any], Any]] = {
    "fortran": lambda _: np.asfortranarray(X),
    "negative strides": lambda _: X[::-1, ::-1].copy()[::-1, ::-1],
    "slice": lambda _: np.repeat(np.repeat(X, 2, axis=0), 2, axis=1)[::2, ::2],
    "byte swapped": lambda _: X.astype(">f8"),
    "memory map": memory_map,
    "unaligned": lambda _: unaligned(),
    "objects": lambda _: X.astype(object),
    "frame": lambda _: pd.DataFrame(X),
    "lists": lambda _: X.tolist(),
    "another library's": lambda _: Foreign(X),
}


def fitted(subject: str, rows: Any, labels: Any = Y, **settings: Any) -> dict[str, Any]:
    """What a fit with a fixed seed publishes, and what it then says about rows."""
    if known(subject, {"random_state": 1}):
        settings = {"random_state": 1} | settings
    estimator = made(subject, **settings).fit(rows, labels)
    return released(estimator) | {f"{k}()": v for k, v in outputs(estimator, X).items()}


def assert_same(found: dict[str, Any], expected: dict[str, Any], share: float = 0.0) -> None:
    """Equal, or off by no more than this share of the largest number."""
    assert found.keys() == expected.keys()
    for name, value in found.items():
        if share == 0.0 or value.dtype.kind != "f":
            np.testing.assert_array_equal(value, expected[name], err_msg=name)
        else:
            allowed = share * np.abs(expected[name]).max()
            np.testing.assert_allclose(value, expected[name], atol=allowed, err_msg=name)


@pytest.mark.sampled(times=3)
@seeded
@every_subject
@pytest.mark.parametrize("name", FORMS)
@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_the_form_of_the_rows_does_not_change_the_model(
    subject: str, name: str, tmp_path: Any
) -> None:
    assert_same(fitted(subject, FORMS[name](tmp_path)), fitted(subject, X))


@every_subject
def test_missing_values_in_frames_of_other_libraries(subject: str) -> None:
    rows = X.copy()
    rows[4, 1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        made(subject).fit(Foreign(rows), Y)


def permuted(matrix: sparse.csr_matrix) -> sparse.csr_matrix:
    """The same matrix with the entries of every row in reverse order."""
    order = np.concatenate(
        [np.arange(a, b)[::-1] for a, b in zip(matrix.indptr, matrix.indptr[1:], strict=False)]
    )
    return sparse.csr_matrix(
        (matrix.data[order], matrix.indices[order], matrix.indptr), shape=matrix.shape
    )


def long_indices(matrix: sparse.csr_matrix) -> sparse.csr_matrix:
    matrix = matrix.copy()
    matrix.indices, matrix.indptr = matrix.indices.astype(np.int64), matrix.indptr.astype(np.int64)
    return matrix


def with_stored_zeros(matrix: sparse.csr_matrix) -> sparse.csr_matrix:
    full = sparse.csr_matrix(np.ones(matrix.shape))
    full.data = matrix.toarray().ravel()
    return full


SPARSE_FORMS: dict[str, Callable[[sparse.csr_matrix], Any]] = {
    "unsorted": permuted,
    "long indices": long_indices,
    "stored zeros": with_stored_zeros,
    "csc": lambda m: m.tocsc(),
    "coo": lambda m: m.tocoo(),
    "bsr": lambda m: m.tobsr(),
    "lil": lambda m: m.tolil(),
    "array": sparse.csr_array,
}


@pytest.mark.sampled(times=3)
@seeded
@every_dense_or_sparse
@pytest.mark.parametrize("name", SPARSE_FORMS)
def test_the_sparse_form_does_not_change_the_model(subject: str, name: str) -> None:
    given = csr()
    before = given.copy()
    # More entries may be kept in another layout, whose sums round otherwise.
    share = 1e-3 if subject in SUMMED and name == "stored zeros" else 0.0
    assert_same(fitted(subject, SPARSE_FORMS[name](given)), fitted(subject, given), share)
    # Nothing of the caller's is changed in place.
    np.testing.assert_array_equal(given.toarray(), before.toarray())


@pytest.mark.parametrize("subject", ["ellipsoids"])
@pytest.mark.parametrize("name", SPARSE_FORMS)
def test_those_who_take_no_sparse_rows_say_so(subject: str, name: str) -> None:
    with pytest.raises(TypeError, match=r"^X: got a sparse matrix"):
        made(subject).fit(SPARSE_FORMS[name](csr()), Y)


@pytest.mark.proof("output_perturbation", "Sensitivity, declared radius, rounding")
@seeded
@every_estimator
def test_sparse_duplicates_are_clipped_after_they_are_summed(estimator: str) -> None:
    rows = duplicated_entries()
    settings: dict[str, Any] = {"random_state": 1, "data_norm": 4.0, "C": 1e-3}
    fits = [model(estimator, **settings).fit(form, Y) for form in (rows.toarray(), rows)]
    statement = fits[0].privacy_
    allowed = 2.0 * statement.sensitivity.solver_radius + statement.noise.grid
    assert np.abs(fits[0].coef_ - fits[1].coef_).max() <= allowed
    np.testing.assert_array_equal(rows.data, 3.0)


@seeded
@every_dense_or_sparse
def test_sparse_duplicates_are_summed_before_anything_else(subject: str) -> None:
    rows = duplicated_entries()
    settings: dict[str, Any] = {"data_norm": 4.0} if known(subject, {"data_norm": 4.0}) else {}
    dense, summed = (fitted(subject, form, **settings) for form in (rows.toarray(), rows))
    assert_same(summed, dense, 1e-3)
    np.testing.assert_array_equal(rows.data, 3.0)
    # Negative control: half of the entries.
    half = fitted(subject, sparse.csr_matrix(rows.toarray() / 2.0), **settings)
    if subject in ("centre", "whitener", "pca"):
        with pytest.raises(AssertionError):
            assert_same(half, dense, 1e-3)


def with_duplicates(own: NDArray[np.float64], columns: Any, other: Any) -> sparse.coo_matrix:
    """A row with several entries in each column, and another with two entries."""
    parts = (np.append(own, [1.0, 2.0]), (np.repeat([0, 1], [own.size, 2]), [*columns, *other]))
    return sparse.coo_matrix(parts, shape=(2, 40))


@pytest.mark.parametrize("form", ["coo", "csr", "csc", "array"])
def test_the_sum_of_duplicates_in_a_row_does_not_depend_on_other_rows(form: str) -> None:
    """SciPy moves them if any row is out of order: sums of three numbers have other last bits."""
    rng = np.random.default_rng(0)
    moved = 0
    for _ in range(30):
        columns = np.sort(np.concatenate([np.repeat([3, 7], 9), rng.integers(0, 40, 20)]))
        own = rng.normal(size=38) * 10.0 ** rng.integers(-5, 5, 38)
        found, by_scipy = [], []
        for other in ([2, 5], [5, 2]):
            rows: Any = with_duplicates(own, columns, other)
            ordered = sparse.csr_matrix((rows.data, rows.col, [0, 38, 40]), shape=rows.shape)
            if form == "array":
                rows = sparse.coo_array(rows)
            elif form != "coo":
                rows = ordered.asformat(form)
            found.append(PublicScaler((-1e9, 1e9)).fit_transform(rows)[[0]].toarray())
            by_scipy.append(ordered.copy())
            by_scipy[-1].sum_duplicates()
        np.testing.assert_array_equal(*found)
        moved += not np.array_equal(*(rows[[0]].toarray() for rows in by_scipy))
    # Negative control.
    assert moved > 0


@seeded
@every_subject
def test_the_order_of_the_rows_gives_away_nothing(subject: str) -> None:
    """Exact sums are the same to the last bit; others as far apart as their guarantee allows.

    Descent sums dense rows in small groups that are drawn for each position, solvers stop at a
    distance from their minimiser: the sensitivity has room for either.
    """
    order = np.random.default_rng(0).permutation(12)
    straight, turned = (fitted(subject, X[o], Y[o]) for o in (np.arange(12), order))
    if subject == "psgd":
        # Its steps take rows in a public random order: which row comes when is no secret.
        assert_same(turned, straight, 1.0)
        return
    exact = ("centre", "whitener", "pca", "standard scaler", "public scaler", "features")
    assert_same(
        turned, straight, 0.0 if subject in exact else 1e-2 if subject not in SUMMED else 1e-6
    )


@seeded
@every_classifier
def test_other_names_of_the_labels_give_the_same_model(subject: str) -> None:
    expected = fitted(subject, X, Y)
    for names in (["a", "b", "c"], [-5, 0, 10**12], [2.0, 3.0, 5.0]):
        found = fitted(subject, X, np.array(names)[Y], classes=names)
        guesses = found.pop("predict()")
        np.testing.assert_array_equal(guesses, np.array(names)[expected["predict()"]])
        assert_same(found, {k: v for k, v in expected.items() if k != "predict()"})


@every_subject
@pytest.mark.parametrize("kind", ["dense", "csr"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_rows_changed_by_another_thread_during_a_fit(subject: str, kind: str) -> None:
    """Outside the guarantee, but never a crash: an error or a model of finite numbers.

    A column index that leaves the matrix after it was checked is caught by a bounds check, which
    Python sees as a RuntimeError that says nothing more. NumPy may warn of an overflow, wherever
    the numbers change between two reads.
    """
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(2000, 20 if subject == "ellipsoids" else 60))
    labels = rng.integers(0, 3, len(rows))
    matrix = sparse.csr_matrix(rows) if kind == "csr" else rows
    target = matrix.data if kind == "csr" else rows.reshape(-1)
    stop = threading.Event()

    def spoil() -> None:
        while not stop.is_set():
            target[::7] = np.nan
            time.sleep(1e-4)
            target[::7] = 1e300
            if kind == "csr":
                matrix.indices[::80] = 2**31 - 1
            time.sleep(1e-4)
            if kind == "csr":
                matrix.indices[::80] = 0
            target[::7] = 1.0

    thread = threading.Thread(target=spoil)
    thread.start()
    known_errors = (ValueError, TypeError, CertificationError, IndexError)
    try:
        for _ in range(5):
            fitting = made(subject)
            if known(subject, {"max_iter": 200}) and subject != "psgd":
                fitting.set_params(max_iter=200)
            try:
                fitting.fit(matrix, labels)
            except known_errors:
                continue
            except RuntimeError as error:
                assert str(error).startswith("internal error: the computation")  # noqa: PT017
                continue
            assert all(np.isfinite(value).all() for value in released(fitting).values())
    finally:
        stop.set()
        thread.join()
