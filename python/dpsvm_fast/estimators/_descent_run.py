"""A run of the compiled descent: rows, steps, progress."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpsvm_fast import _core
from dpsvm_fast.estimators._continuation import Continuation, resumed
from dpsvm_fast.estimators._progress import shares_with_progress
from dpsvm_fast.mechanisms.gradient import GradientPerturbation

__all__ = ["descend", "started", "training_records"]

# Noise that one call of the compiled descent draws at most: it counts its streams in 32 bits.
MOST_NUMBERS = 2**32


def started(mechanism: GradientPerturbation, before: Continuation | None) -> _core.Descent:
    """The descent before its first step, or where the calls before have left it."""
    if before is None:
        return _core.Descent(**mechanism.descent_options())
    options = mechanism.descent_options(before.n_steps)
    return _core.Descent(**options, state=resumed(before.state))


def descend(
    descent: _core.Descent,
    X: Any,
    codes: NDArray[np.int64],
    mechanism: GradientPerturbation,
    settings: SimpleNamespace,
    source: _core.NoiseSource,
) -> None:
    """Take all steps of one call. What the descent knows then are noisy sums alone."""
    records = training_records(X, codes, mechanism, settings.n_threads)
    most = max(1, MOST_NUMBERS // math.prod(mechanism.shape))
    shown = settings.verbose > 0
    for share in shares_with_progress(mechanism.steps, most=most, shown=shown):
        descent.run(records, source, share, settings.n_threads)


def training_records(
    X: Any, codes: NDArray[np.int64], mechanism: GradientPerturbation, n_threads: int
) -> _core.Records:
    """The rows divided by the bound of their norm, in the form of the compiled descent."""
    options: dict[str, Any] = {
        "n_classes": mechanism.loss.n_classes,
        "scale": None,
        "low": -np.inf,
        "high": np.inf,
        "data_norm": mechanism.data_norm,
        "unit": False,
        "n_threads": n_threads,
    }
    if sparse.issparse(X):
        return _core.Records.csr(X.data, X.indices, X.indptr, X.shape[1], codes, **options)
    return _core.Records.dense(X, codes, offset=None, **options)
