"""The compiled module reads memory in C order: arrays in Fortran order are refused, not misread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsvm_fast import _core

X = np.random.default_rng(0).normal(size=(6, 3))
Y = np.arange(6, dtype=np.int64) % 2
SMOOTH: dict[str, Any] = {
    "loss": "huber",
    "n_scores": 2,
    "smoothing": 0.5,
    "margin": 1.0,
    "regularization": 1.0,
    "data_norm": 1.0,
    "intercept_scaling": 0.0,
    "gradient_tol": 1e-6,
    "max_iter": None,
    "shuffle_seed": 0,
    "n_threads": 1,
}
ROWS: dict[str, Any] = {
    "n_classes": 2,
    "offset": None,
    "scale": None,
    "low": -np.inf,
    "floor": None,
    "high": np.inf,
    "constant": 0.0,
    "data_norm": 1.0,
    "unit": False,
    "n_threads": 1,
}


def smooth(rows: NDArray[np.float64], linear: NDArray[np.float64]) -> Any:
    return _core.solve_smooth(rows, Y, linear=linear, low_memory=False, **SMOOTH)[0]


READERS: dict[str, tuple[tuple[int, ...], Callable[[NDArray[np.float64]], Any]]] = {
    "rows": ((6, 3), lambda a: smooth(a, np.zeros((2, 3)))),
    "rows of records": ((6, 3), lambda a: _core.Records(a, Y, **ROWS).sums(1)),
    "linear": ((2, 3), lambda a: smooth(X, a)),
    "left factor": ((6, 3), lambda a: _core.row_products(a, np.eye(3), 1)),
    "right factor": ((3, 4), lambda a: _core.row_products(X, a, 1)),
    "map of records": (
        (3, 3),
        lambda a: _core.Records(X, Y, **ROWS).transform(a, 1),
    ),
}


@pytest.mark.parametrize(("shape", "read"), READERS.values(), ids=READERS.keys())
def test_fortran_order_is_refused(
    shape: tuple[int, ...], read: Callable[[NDArray[np.float64]], Any]
) -> None:
    array = np.random.default_rng(1).normal(size=shape)
    read(array)
    with pytest.raises(TypeError, match="C order"):
        read(np.asfortranarray(array))
    # Columns of a wider array have gaps.
    wide = np.zeros((shape[0], 2 * shape[1]))
    with pytest.raises(TypeError, match="C order"):
        read(wide[:, ::2])
