"""One call for both entry points of the compiled solver."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpsvm_fast import _core

# Passes after which a small problem counts as not certified: a test must fail, not hang.
PATIENCE = 20_000


def compiled(
    X: Any,
    y: NDArray[np.int64],
    *,
    n_classes: int,
    C: float,
    data_norm: float = 1.0,
    intercept_scaling: float = 0.0,
    tol: float = 1e-3,
    **changes: Any,
) -> tuple[NDArray[np.float64], float, float]:
    """Weights, certified radius, and the radius asked for: ``tol`` times the sensitivity."""
    radius = tol * math.sqrt(2.0) * C * math.hypot(data_norm, intercept_scaling)
    options: dict[str, Any] = {
        "n_classes": n_classes,
        "C": C,
        "data_norm": data_norm,
        "intercept_scaling": intercept_scaling,
        "radius": radius,
        "max_iter": PATIENCE,
        "shuffle_seed": 1,
        "n_threads": 1,
        "low_memory": False,
    } | changes
    if sparse.issparse(X):
        arrays = (X.data, X.indices, X.indptr, X.shape[1])
        weights, info = _core.solve_crammer_singer(arrays, y, **options)
    else:
        weights, info = _core.solve_crammer_singer(X, y, **options)
    assert weights is not None, "not certified"
    return weights, info["radius"], radius
