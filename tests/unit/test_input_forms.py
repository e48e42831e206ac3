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

from dpsvm_fast.exceptions import CertificationError
from oracles.odd_inputs import X, Y, csr, duplicated_entries, every_estimator, model


def memory_map(tmp_path: Any) -> NDArray[np.float64]:
    np.save(tmp_path / "rows.npy", X)
    loaded: NDArray[np.float64] = np.load(tmp_path / "rows.npy", mmap_mode="r")
    return loaded


# The same rows in other forms: with one seed the same model, bit for bit.
FORMS: dict[str, Callable[[Any], Any]] = {
    "fortran": lambda _: np.asfortranarray(X),
    "negative strides": lambda _: X[::-1, ::-1].copy()[::-1, ::-1],
    "slice": lambda _: np.repeat(np.repeat(X, 2, axis=0), 2, axis=1)[::2, ::2],
    "byte swapped": lambda _: X.astype(">f8"),
    "memory map": memory_map,
    "unaligned": lambda _: (
        np.frombuffer(b"\0" + X.tobytes(), np.uint8)[1:].view("<f8").reshape(12, 3)
    ),
    "objects": lambda _: X.astype(object),
    "frame": lambda _: pd.DataFrame(X),
    "lists": lambda _: X.tolist(),
}


@every_estimator
@pytest.mark.filterwarnings("ignore::dpsvm_fast.NotPrivateWarning")
@pytest.mark.parametrize("name", FORMS)
def test_the_form_of_the_rows_does_not_change_the_model(
    estimator: str, name: str, tmp_path: Any
) -> None:
    expected = model(estimator, random_state=1).fit(X, Y).coef_
    np.testing.assert_array_equal(
        model(estimator, random_state=1).fit(FORMS[name](tmp_path), Y).coef_, expected
    )


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


@every_estimator
@pytest.mark.filterwarnings("ignore::dpsvm_fast.NotPrivateWarning")
@pytest.mark.parametrize("name", SPARSE_FORMS)
def test_the_sparse_form_does_not_change_the_model(estimator: str, name: str) -> None:
    given = csr()
    before = given.copy()
    expected = model(estimator, random_state=1).fit(given, Y).coef_
    other = SPARSE_FORMS[name](given)
    np.testing.assert_array_equal(model(estimator, random_state=1).fit(other, Y).coef_, expected)
    # Nothing of the caller's is changed in place.
    np.testing.assert_array_equal(given.toarray(), before.toarray())


@every_estimator
@pytest.mark.filterwarnings("ignore::dpsvm_fast.NotPrivateWarning")
def test_sparse_duplicates_are_clipped_after_they_are_summed(estimator: str) -> None:
    rows = duplicated_entries()
    settings: dict[str, Any] = {"random_state": 1, "data_norm": 4.0, "C": 1e-3}
    fits = [model(estimator, **settings).fit(form, Y) for form in (rows.toarray(), rows)]
    statement = fits[0].privacy_
    allowed = 2.0 * statement.sensitivity.solver_radius + statement.noise.grid
    assert np.abs(fits[0].coef_ - fits[1].coef_).max() <= allowed
    np.testing.assert_array_equal(rows.data, 3.0)


@every_estimator
@pytest.mark.parametrize("low_memory", [False, True])
@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_rows_changed_by_another_thread_during_a_fit(
    estimator: str, low_memory: bool, kind: str
) -> None:
    """Outside the guarantee, but never a crash: an error or a model of finite numbers.

    A column index that leaves the matrix after it was checked is caught by a bounds check, which
    Python sees as a PanicException (no subclass of Exception).
    """
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(4000, 80))
    labels = rng.integers(0, 3, 4000)
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
    try:
        for _ in range(10):
            fitted = model(estimator, low_memory=low_memory, C=0.1, max_iter=200)
            try:
                fitted.fit(matrix, labels)
            except BaseException as error:
                known = isinstance(error, (ValueError, TypeError, CertificationError))
                assert known or type(error).__name__ == "PanicException"  # noqa: PT017
                continue
            assert np.isfinite(fitted.coef_).all()
    finally:
        stop.set()
        thread.join()
