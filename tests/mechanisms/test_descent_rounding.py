"""Double precision: how far computed sums are from those of the exact gradients.

The guarantee of the last iterate needs this bound for every data set and all weights in a ball.
"""

from __future__ import annotations

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


def exact_sum(X: Array, y: Array, W: Array, loss: Loss) -> Array:
    """Sum of the gradients in extended precision."""
    rows = np.hstack([X, np.full((len(X), 1), INTERCEPT)]).astype(np.longdouble)
    a = score_gradient(rows @ W.astype(np.longdouble).T, y, loss.kernel)
    return np.asarray(a.T @ rows)


def bound(loss: Loss, radius: float, clip: float, grid: float | None) -> float:
    name, smoothing, margin = loss.kernel
    return _core.descent_rounding(
        loss=name,
        n_scores=loss.n_scores,
        smoothing=smoothing,
        margin=margin,
        n_columns=FEATURES + 1,
        row_norm=1.04,
        clip=clip,
        max_records=N,
        radius=radius,
        grid=grid,
        step=1.0,
    )


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("grid", [None, 2.0**-24, 2.0**-10])
@pytest.mark.parametrize("smoothing", [0.5, 0.01])
@pytest.mark.parametrize(("name", "n_classes"), LOSSES)
def test_sums_are_within_the_bound_of_exact_ones(
    name: str, n_classes: int, smoothing: float, grid: float | None, form: str
) -> None:
    if name == "logistic" and smoothing != 0.5:
        return
    loss = Loss(name=name, n_classes=n_classes, smoothing=smoothing)
    rng = np.random.default_rng(n_classes)
    X = rng.normal(size=(N, FEATURES)) * (rng.random((N, FEATURES)) > 0.4)
    # Multiples of 2**-12, so that rows are taken as they are.
    X = np.trunc(X / np.linalg.norm(X, axis=1).max() * 4096) / 4096
    y = rng.integers(0, n_classes, N)
    records = records_of(FORMS[form](X), y, n_classes)
    clip = 1.001 * 1.04 * loss.lipschitz
    options = kernel(name, n_classes, smoothing) | {"precision": "f64", "intercept": INTERCEPT}
    options |= {"clip": clip, "grid": grid}
    shape = (loss.n_scores, FEATURES + 1)
    for size in (0.0, 0.3, 5.0):
        W = rng.normal(size=shape)
        # On the lattice of the grid, as every iterate is.
        W = np.rint(size * W / np.linalg.norm(W) * 256) / 256
        state = run(records, 1, **options).state() | {"weights": W}
        S = W - run(records, 1, state=state, **options).weights()
        error = float(np.linalg.norm(S - exact_sum(X, y, W, loss)))
        allowed = bound(loss, size + 0.1, clip, grid)
        assert error <= allowed
        # Far below what one record contributes, where the grid is fine.
        assert allowed <= (1e-3 if grid != 2.0**-10 else 0.3) * clip * N
    # Negative control: clipping that acts is no rounding.
    wrong = W - run(records, 1, state=state, **(options | {"clip": 0.3 * clip})).weights()
    assert np.linalg.norm(wrong - exact_sum(X, y, W, loss)) > allowed
