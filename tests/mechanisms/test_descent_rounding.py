"""Double precision: how far computed sums are from those of the exact gradients.

The guarantee of the last iterate needs this bound for every data set and all weights in a ball.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse

from dpsvm_fast import _core
from dpsvm_fast.losses import Loss
from oracles.noisy_descent import kernel, records_of, run
from twins.smooth_erm import score_gradient

Array = NDArray[Any]

LOSSES = [("m3", 3), ("huber_ww", 3), ("softmax_margin", 4), ("huber", 2)]
LOSSES += [("logistic", 3), ("softplus", 2)]
FORMS = {"dense": np.asarray, "csr": sparse.csr_matrix}
N, FEATURES, INTERCEPT = 200, 6, 0.25
# Numbers of single precision, as weights are stored.
WEIGHTS = {
    "equal": np.ones(N),
    "random": np.random.default_rng(0).random(N).astype(np.float32).astype(np.float64),
}


def exact_sum(X: Array, y: Array, W: Array, loss: Loss, intercept: float, weights: Array) -> Array:
    """Sum of the gradients, times weights, in extended precision."""
    rows = np.hstack([X, np.full((len(X), 1), intercept)]).astype(np.longdouble)
    a = score_gradient(rows @ W.astype(np.longdouble).T, y, loss.kernel)
    return np.asarray((a * weights[:, np.newaxis]).T @ rows)


def bound(loss: Loss, radius: float, clip: float, grid: float | None, **changes: Any) -> float:
    name, smoothing, margin = loss.kernel
    facts: Any = {"row_norm": 1.04, "max_records": N, "max_rows": N, "truncated": True} | changes
    return _core.descent_rounding(
        loss=name,
        n_scores=loss.n_scores,
        smoothing=smoothing,
        margin=margin,
        n_columns=FEATURES + 1,
        **facts,
        clip=clip,
        radius=radius,
        grid=grid,
        step=1.0,
    )


@pytest.mark.sampled
@pytest.mark.proof("persons", "Last iterate")
@pytest.mark.parametrize("weighted", WEIGHTS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("grid", [None, 2.0**-24, 2.0**-10])
@pytest.mark.parametrize("smoothing", [0.5, 0.01])
@pytest.mark.parametrize(("name", "n_classes"), LOSSES)
def test_sums_are_within_the_bound_of_exact_ones(
    name: str, n_classes: int, smoothing: float, grid: float | None, form: str, weighted: str
) -> None:
    if name == "logistic" and smoothing != 0.5:
        return
    loss = Loss(name=name, n_classes=n_classes, smoothing=smoothing)
    rng = np.random.default_rng(n_classes)
    records, X, y = some_records(rng, n_classes, form)
    weights = WEIGHTS[weighted]
    records.own(np.empty(0, dtype=np.int64), weights)
    clip = 1.001 * 1.04 * loss.lipschitz
    options = kernel(name, n_classes, smoothing) | {"precision": "f64", "intercept": INTERCEPT}
    options |= {"clip": clip, "grid": grid}
    shape = (loss.n_scores, FEATURES + 1)
    # Of weights their sum counts, beside the number of rows; dense coefficients are not truncated.
    facts = {"max_records": math.ceil(weights.sum()), "truncated": form == "csr"}
    for size in (0.0, 0.3, 5.0):
        W = rng.normal(size=shape)
        # On the lattice of the grid, as every iterate is.
        W = np.rint(size * W / np.linalg.norm(W) * 256) / 256
        state = run(records, 1, **options).state() | {"weights": W}
        S = W - run(records, 1, state=state, **options).weights()
        error = float(np.linalg.norm(S - exact_sum(X, y, W, loss, INTERCEPT, weights)))
        allowed = bound(loss, size + 0.1, clip, grid, **facts)
        assert error <= allowed
        # Far below what one record contributes, where the grid is fine.
        assert allowed <= (1e-3 if grid != 2.0**-10 else 0.3) * clip * N
    # Negative control: clipping that acts is no rounding.
    wrong = W - run(records, 1, state=state, **(options | {"clip": 0.3 * clip})).weights()
    exact = exact_sum(X, y, W, loss, INTERCEPT, weights)
    assert np.linalg.norm(wrong - exact) > allowed


def some_records(rng: np.random.Generator, n_classes: int, form: str) -> tuple[Any, Array, Array]:
    """Rows of multiples of 2**-12, which are taken as they are."""
    X = rng.normal(size=(N, FEATURES)) * (rng.random((N, FEATURES)) > 0.4)
    X = np.trunc(X / np.linalg.norm(X, axis=1).max() * 4096) / 4096
    y = rng.integers(0, n_classes, N)
    return records_of(FORMS[form](X), y, n_classes), X, y


@pytest.mark.proof("persons", "Last iterate")
def test_each_row_of_a_person_is_truncated() -> None:
    """Equal rows of one person, whose coefficients all lose the same."""
    loss, weights = Loss(name="softmax_margin", n_classes=3, smoothing=1.0), np.full(N, 2.0**-8)
    X, y = np.tile([0.5, *[0.0] * (FEATURES - 1)], (N, 1)), np.zeros(N, dtype=np.int64)
    records = records_of(sparse.csr_matrix(X), y, 3)
    records.own(np.empty(0, dtype=np.int64), weights)
    clip = 1.001 * 1.04 * loss.lipschitz
    options = kernel("softmax_margin", 3, 1.0) | {"precision": "f64", "intercept": INTERCEPT}
    S = -run(records, 1, **options, clip=clip).weights()
    W = np.zeros((3, FEATURES + 1))
    error = float(np.linalg.norm(S - exact_sum(X, y, W, loss, INTERCEPT, weights)))
    assert error <= bound(loss, 0.1, clip, None, max_records=1)
    # Negative control: one truncation for the whole person.
    assert error > 10.0 * bound(loss, 0.1, clip, None, max_records=1, max_rows=1)


@pytest.mark.parametrize("form", FORMS)
def test_a_long_constant_feature_is_within_the_bound(form: str) -> None:
    """A truncated coefficient moves the whole row, its constant feature above all."""
    intercept, loss = 2.0**17, Loss(name="softmax_margin", n_classes=3, smoothing=1.0)
    records, X, y = some_records(np.random.default_rng(0), 3, form)
    clip = 1.001 * intercept * loss.lipschitz
    options = kernel("softmax_margin", 3, 1.0) | {"precision": "f64", "intercept": intercept}
    W = np.zeros((3, FEATURES + 1))
    S = -run(records, 1, **options, clip=clip).weights()
    error = float(np.linalg.norm(S - exact_sum(X, y, W, loss, intercept, np.ones(N))))
    assert error <= bound(loss, 0.1, clip, None, row_norm=1.001 * intercept)
    if form == "csr":
        # Negative control: a fixed number of steps of their grid would not cover it.
        assert error > 34.0 * N * 3.0**0.5 * clip * 2.0**-26
