"""One private fit of the kernel pipeline: the linear one, with features where the rule says so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast import _core
from dpsvm_fast.estimators._linear_fit import LinearFit, descended, prepared, solved, trained
from dpsvm_fast.mechanisms._feature_rows import feature_rows
from dpsvm_fast.mechanisms._row_maps import PublicMap, ReleasedMap
from dpsvm_fast.mechanisms.fourier import FourierFeatures
from dpsvm_fast.mechanisms.kernel_pipeline import KernelChoice, PrivateKernel

__all__ = ["KernelFit", "fitted_kernel"]

# low_memory="auto": features are kept where all of them take at most so many bytes, and are
# computed anew in every pass beyond.
LARGEST_STORE = 1 << 28
BYTES_A_NUMBER = 4


@dataclass(frozen=True, eq=False)
class KernelFit(LinearFit):
    """Everything that was released, and the public map that was drawn.

    Parameters
    ----------
    choice : KernelChoice
    features : FourierFeatures or None
        None for the linear model; otherwise ``weights`` are those of the features.
    """

    choice: KernelChoice
    features: FourierFeatures | None


def fitted_kernel(
    mechanism: PrivateKernel,
    public: PublicMap,
    X: Any,
    codes: NDArray[np.int64],
    source: _core.NoiseSource,
    n_threads: int,
    *,
    low_memory: bool | str,
) -> KernelFit:
    """Makes the releases of one fit; everything else that was known is dropped.

    Parameters
    ----------
    mechanism : PrivateKernel
        Its events have been recorded (owed by the caller).
    public : PublicMap
    X : ndarray or CSR matrix of shape (n_samples, n_features)
        Checked raw rows.
    codes : ndarray of shape (n_samples,)
        Class indices.
    source : NoiseSource
    n_threads : int
        Does not change the result.
    low_memory : bool or "auto"
        Does not change the result.
    """
    ready = prepared(mechanism, public, X, codes, source, n_threads)
    choice = mechanism.choice(ready.count)
    # Drawn only where it is used: a linear model is then that of the linear pipeline.
    features = (
        None if choice.kernel == "linear" else mechanism.features(choice, source.public_seed())
    )
    if features is None:
        linear = trained(ready, public, X, codes, source, n_threads)
        return KernelFit(**vars(linear), choice=choice, features=None)
    rule, solver = ready.training.rule, ready.training.solver
    if rule is not None:
        assert ready.records is not None
        size = BYTES_A_NUMBER * 2 * features.n_components * X.shape[0]
        stored = size <= LARGEST_STORE if low_memory == "auto" else not low_memory
        _lift(ready.records, features, stored=stored, n_threads=n_threads)
        weights, scaling = descended(rule, ready.records, source, n_threads)
    else:
        assert solver is not None
        released = ReleasedMap(ready.centre, ready.matrix)
        rows = feature_rows(features, public, released, X, n_threads)
        weights, scaling = solved(
            solver, rows, codes, source, n_threads, n_releases=ready.training.n_releases
        )
    return KernelFit(
        weights, scaling, ready.count, ready.centre, ready.matrix, ready.training, choice, features
    )


def _lift(records: Any, features: FourierFeatures, *, stored: bool, n_threads: int) -> None:
    """Features of the records; who holds them elsewhere draws the public map there."""
    elsewhere = getattr(records, "lift_by", None)
    if elsewhere is None:
        records.lift(features.map(), stored, n_threads)
    else:
        elsewhere(features, stored)
