"""One private fit of the linear pipeline, from raw rows to noisy weights of mapped rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpsvm_fast import _core
from dpsvm_fast.estimators._descent_run import take_steps
from dpsvm_fast.estimators._training import certified
from dpsvm_fast.mechanisms._descent_rule import DescentRule
from dpsvm_fast.mechanisms._row_maps import PublicMap, ReleasedMap, mapped_rows
from dpsvm_fast.mechanisms._training_path import Training
from dpsvm_fast.mechanisms.linear_pipeline import PrivateLinear
from dpsvm_fast.mechanisms.objective import ObjectivePerturbation
from dpsvm_fast.mechanisms.output import OutputPerturbation

__all__ = ["LinearFit", "Prepared", "descended", "fitted_weights", "prepared", "solved", "trained"]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LinearFit:
    """Everything that was released.

    Parameters
    ----------
    weights : ndarray of shape (n_scores, n_features [+ 1])
        Of the centred row, whitening folded in; the last column belongs to the constant feature.
    scaling : float
        The constant feature; 0 for none.
    count : float or None
        Noisy or public number of rows.
    centre : ndarray of shape (n_features,) or None
    whitening : ndarray of shape (n_features, n_features) or None
    training : Training
        The path that was taken.
    """

    weights: Array
    scaling: float
    count: float | None
    centre: Array | None
    whitening: Array | None
    training: Training


@dataclass(frozen=True, eq=False)
class Prepared:
    """What is there before the training: releases, and rows mapped by them.

    Parameters
    ----------
    count : float or None
        Noisy or public number of rows.
    centre : ndarray of shape (n_features,) or None
    matrix : ndarray of shape (n_features, n_features) or None
    training : Training
        The path that was taken.
    records : Records or None
        Private rows for the descent, mapped; None where a solver maps rows itself.
    """

    count: float | None
    centre: Array | None
    matrix: Array | None
    training: Training
    records: _core.Records | None


def fitted_weights(
    mechanism: PrivateLinear,
    public: PublicMap,
    X: Any,
    codes: NDArray[np.int64],
    source: _core.NoiseSource,
    n_threads: int,
) -> LinearFit:
    """Makes the releases of one fit; everything else that was known is dropped.

    Parameters
    ----------
    mechanism : PrivateLinear
        Its events have been recorded (owed by the caller).
    public : PublicMap
    X : ndarray or CSR matrix of shape (n_samples, n_features)
        Checked raw rows.
    codes : ndarray of shape (n_samples,)
        Class indices.
    source : NoiseSource
    n_threads : int
        Does not change the result.
    """
    ready = prepared(mechanism, public, X, codes, source, n_threads)
    return trained(ready, public, X, codes, source, n_threads)


def prepared(
    mechanism: PrivateLinear,
    public: PublicMap,
    X: Any,
    codes: NDArray[np.int64],
    source: _core.NoiseSource,
    n_threads: int,
) -> Prepared:
    """Makes the releases before the training; parameters as of :func:`fitted_weights`."""
    count: float | None
    centre = matrix = records = None
    if mechanism.centre is not None or mechanism.trainer == "gradient":
        records = public.records(X, codes, mechanism.loss.n_classes, n_threads)
    if mechanism.centre is not None and records is not None:
        mean = mechanism.centre.release(records.sums(n_threads), X.shape[0], source, n_threads)
        count, centre = mean.count, mean.point
    else:
        count = mechanism.known_count(X.shape[0], source, n_threads)
    training = mechanism.training(count)
    if (
        records is not None
        and centre is not None
        and (training.whitened or training.rule is not None)
    ):
        records.centre(centre, n_threads)
    for moments in mechanism.whitenings if training.whitened else ():
        assert records is not None
        own = moments.release(records.gram(n_threads), source, n_threads)
        matrix = own if matrix is None else _core.row_products(own, matrix, n_threads)
        if training.rule is not None or moments is not mechanism.whitening:
            records.transform(own, n_threads)
    if training.rule is None:
        records = None
    return Prepared(count, centre, matrix, training, records)


def trained(
    ready: Prepared,
    public: PublicMap,
    X: Any,
    codes: NDArray[np.int64],
    source: _core.NoiseSource,
    n_threads: int,
) -> LinearFit:
    """Weights of the mapped rows themselves."""
    training, matrix = ready.training, ready.matrix
    if training.rule is not None:
        assert ready.records is not None
        weights, scaling = descended(training.rule, ready.records, source, n_threads)
    else:
        assert training.solver is not None
        rows = _rows_of_solver(public, ReleasedMap(ready.centre, matrix), X)
        weights, scaling = solved(
            training.solver, rows, codes, source, n_threads, n_releases=training.n_releases
        )
    if matrix is not None:
        d = X.shape[1]
        weights = np.hstack([weights[:, :d] @ matrix, weights[:, d:]])
    return LinearFit(weights, scaling, ready.count, ready.centre, matrix, training)


def descended(
    rule: DescentRule, records: _core.Records, source: _core.NoiseSource, n_threads: int
) -> tuple[Array, float]:
    """Weights of the row before it was shortened to make room for the constant feature."""
    descent = rule.descent()
    take_steps(descent, rule.descent_options(), records, source, rule.n_steps, n_threads)
    return rule.row_scale * descent.weights(), rule.intercept


def _rows_of_solver(public: PublicMap, released: ReleasedMap, X: Any) -> Any:
    """Mapped rows for a solver: dense ones in single precision; sparse ones are not centred."""
    if not sparse.issparse(X):
        return mapped_rows(public, released, X, np.float32)
    return public.apply(X)


def solved(
    mechanism: ObjectivePerturbation | OutputPerturbation,
    rows: Any,
    codes: NDArray[np.int64],
    source: _core.NoiseSource,
    n_threads: int,
    *,
    n_releases: int = 1,
) -> tuple[Array, float]:
    """Certified weights with noise in the objective or on them, and the constant feature.

    Of several releases the last: each minimiser is regularised towards the release before it, whose
    half squared distance times lambda is the penalty of 0 and a linear term.
    """
    loss, linear = mechanism.score_loss, None
    if isinstance(mechanism, ObjectivePerturbation):
        linear = mechanism.draw_linear(source, n_threads=n_threads)
    kernel, smoothing, margin = loss.kernel
    options: dict[str, Any] = {
        "loss": kernel,
        "n_scores": loss.n_scores,
        "smoothing": smoothing,
        "margin": margin,
        "regularization": mechanism.regularization,
        "linear": linear,
        "gradient_tol": mechanism.gradient_tol,
        "data_norm": mechanism.data_norm,
        "intercept_scaling": mechanism.intercept_scaling,
        "max_iter": None,
        "n_threads": n_threads,
        "low_memory": False,
        "shuffle_seed": source.public_seed(),
    }
    solvers = (_core.solve_smooth_dense, _core.solve_smooth_csr)
    noisy = mechanism.release(
        certified(*solvers, rows, codes, options), source, n_threads=n_threads
    )
    for _ in range(1, n_releases):
        options["linear"] = -mechanism.regularization * noisy
        options["shuffle_seed"] = source.public_seed()
        again = certified(*solvers, rows, codes, options)
        noisy = mechanism.release(again, source, n_threads=n_threads)
    return noisy, mechanism.intercept_scaling
