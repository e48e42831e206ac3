"""Features of mapped rows and scores of them, in blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpsvm_fast.mechanisms._row_maps import PublicMap, ReleasedMap, row_blocks
from dpsvm_fast.mechanisms.fourier import FourierFeatures

__all__ = ["feature_rows", "feature_scores"]

Array = NDArray[np.float64]


def feature_rows(
    features: FourierFeatures, public: PublicMap, released: ReleasedMap, X: Any, n_threads: int
) -> NDArray[np.float32]:
    """Features of raw rows for a solver, shape (n_samples, 2 n_components).

    Each row is a function of the raw row and of public and released numbers alone, to the last bit.
    """
    rows = np.empty((X.shape[0], 2 * features.n_components), dtype=np.float32)
    for block in row_blocks(X, max(X.shape[1], 2 * features.n_components)):
        mapped = _mapped(public, released, X[block], released.apply)
        rows[block] = _features(features, mapped, np.float32, n_threads)
    return rows


def feature_scores(
    features: FourierFeatures,
    public: PublicMap,
    released: ReleasedMap,
    X: Any,
    coef: Array,
    intercept: Array,
    n_threads: int,
) -> Array:
    """Scores of raw rows, shape (n_samples, n_scores).

    Parameters
    ----------
    coef : ndarray of shape (n_scores, 2 n_components)
        Weights of the features.
    intercept : ndarray of shape (n_scores,)
    """
    scores = np.empty((X.shape[0], coef.shape[0]))
    for block in row_blocks(X, max(X.shape[1], 2 * features.n_components)):
        mapped = _mapped(public, released, X[block], released.mapped)
        phi = _features(features, mapped, np.float64, n_threads)
        scores[block] = phi @ coef.T + intercept
    return scores


def _mapped(public: PublicMap, released: ReleasedMap, X: Any, apply: Callable[[Any], Array]) -> Any:
    """Rows under both maps; sparse ones stay so where nothing was released."""
    rows = public.apply(X)
    if not sparse.issparse(rows):
        return apply(rows)
    if released.centre is None and released.matrix is None:
        return rows
    return apply(rows.toarray())


def _features(features: FourierFeatures, rows: Any, dtype: type, n_threads: int) -> NDArray[Any]:
    """Features of mapped rows in the given precision."""
    drawn = features.map()
    if sparse.issparse(rows):
        data = rows.data.astype(dtype)
        return drawn.transform_csr(data, rows.indices, rows.indptr, rows.shape[1], n_threads)
    return drawn.transform_dense(np.ascontiguousarray(rows, dtype=dtype), n_threads)
