"""Private descent is the same to the last bit for every number of threads, and for equal seeds."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse

from oracles.noisy_descent import kernel, records_of, run

Array = NDArray[Any]

# Enough work for steps to be shared out: 2**20 multiplications or more.
N, FEATURES, CLASSES = 16_000, 90, 5


@lru_cache(maxsize=1)
def large_set() -> tuple[Array, Array]:
    rng = np.random.default_rng(6)
    y = rng.integers(0, CLASSES, N)
    X = rng.normal(size=(N, FEATURES)) + 3.0 * np.eye(CLASSES, FEATURES)[y]
    X[rng.random(X.shape) < 0.5] = 0.0
    return X, y


FORMS = {
    "dense": np.ascontiguousarray,
    "single": lambda X: X.astype(np.float32),
    "csr": sparse.csr_matrix,
    "sparse": lambda X: sparse.csr_matrix(X * (np.arange(FEATURES) % 4 == 0)),
}
BATCHES: dict[str, dict[str, Any]] = {
    "full": {},
    "sampled": {"sampling_rate": 0.3},
    "noisy": {"sigma": 1.0, "grid": 2.0**-20},
    "noisy float": {"sigma": 1.0},
    "noisy sampled": {"sigma": 1.0, "grid": 2.0**-20, "sampling_rate": 0.2},
}


def centred_records(rows: Any, y: Array, n_threads: int) -> Any:
    records = records_of(rows, y, CLASSES, unit=True, n_threads=n_threads)
    mean = records.sums(n_threads) / N
    records.centre(np.rint(mean * 2**20) / 2**20, n_threads)
    return records


@lru_cache(maxsize=2)
def prepared(form: str, centred: bool) -> Any:
    X, y = large_set()
    rows = FORMS[form](X)
    return centred_records(rows, y, 1) if centred else records_of(rows, y, CLASSES, unit=True)


def weights(records: Any, n_threads: int = 1, seed: int = 9, **options: Any) -> Array:
    loss = kernel("softmax_margin", CLASSES)
    plain = {"clip": 0.5, "divisor": 100.0, "intercept": 0.5, "regularization": 0.01}
    descent = run(records, 3, seed=seed, n_threads=n_threads, **(loss | plain | options))
    return np.asarray(descent.weights())


@pytest.mark.sampled
@pytest.mark.proof("gradient_perturbation", "Clipped sums and their rounding")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("precision", ["f32", pytest.param("f64", marks=pytest.mark.slow)])
def test_threads_do_not_change_a_bit(form: str, centred: bool, batch: str, precision: str) -> None:
    records = prepared(form, centred)
    # In double precision weights on a grid need a power of two and a radius.
    options = BATCHES[batch] | {"precision": precision, "divisor": 128.0, "radius": 50.0}
    one = weights(records, 1, **options)
    for n_threads in (2, 4):
        np.testing.assert_array_equal(one, weights(records, n_threads, **options))
    assert np.abs(one).max() > 0.01


@pytest.mark.proof("auto_pipeline", "Rows, sums, centre, whitening")
def test_threads_do_not_change_sums_grams_and_maps() -> None:
    X, y = large_set()
    for rows in (X, sparse.csr_matrix(X)):
        found = []
        for n_threads in (1, 2, 4):
            records = centred_records(rows, y, n_threads)
            gram = records.gram(n_threads)
            records.transform(np.linalg.inv(np.eye(FEATURES) + gram / N), n_threads)
            found.append((gram, records.gram(n_threads), weights(records)))
        for other in found[1:]:
            for a, b in zip(found[0], other, strict=True):
                np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("batch", [b for b in BATCHES if b != "full"])
def test_seeds_decide_the_draws(batch: str) -> None:
    records = prepared("dense", centred=False)
    first, again, other = (weights(records, seed=s, **BATCHES[batch]) for s in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert (first != other).mean() > 0.9


@pytest.mark.proof("gradient_perturbation", "Clipped sums and their rounding")
def test_order_of_the_rows_changes_no_bit_of_a_sum_on_the_grid() -> None:
    """Integers have no order: sums of sparse rows are exact, those of dense ones nearly so."""
    X, y = large_set()
    shuffled = np.random.default_rng(0).permutation(N)
    options = {"sigma": 1.0, "grid": 2.0**-20}
    first, other = (
        weights(records_of(FORMS["sparse"](X[order]), y[order], CLASSES, unit=True), **options)
        for order in (np.arange(N), shuffled)
    )
    np.testing.assert_array_equal(first, other)
    dense = weights(prepared("dense", centred=False), **options)
    other = weights(records_of(X[shuffled], y[shuffled], CLASSES, unit=True), **options)
    np.testing.assert_allclose(dense, other, atol=1e-4 * float(np.abs(dense).max()))
