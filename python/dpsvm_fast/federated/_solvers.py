"""Local models of many parties in one call: rows of all of them, one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast import _core
from dpsvm_fast.federated._dpdr_plan import ObjectiveTraining
from dpsvm_fast.federated.errors import PartyRefusedError
from dpsvm_fast.federated.training import LocalTraining

__all__ = ["fit_objective", "fit_parties"]

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

UNCERTIFIED = "training: the minimum could not be certified in double precision"


def fit_parties(
    training: LocalTraining,
    X: NDArray[Any],
    codes: Integers,
    offsets: Integers,
    seed: int,
    n_threads: int,
) -> Array:
    """Weights of every party's model, shape (n_parties, n_scores, n_columns). Private.

    Parameters
    ----------
    training : LocalTraining
    X : ndarray of shape (n_rows, n_features)
        Rows of all parties; those of party i are ``offsets[i]:offsets[i + 1]``.
    codes : ndarray of shape (n_rows,)
    offsets : ndarray of shape (n_parties + 1,)
    seed : int
        Of the orders of rows; public.
    n_threads : int
        Does not change the result.

    Raises
    ------
    PartyRefusedError
        A party's minimum was not certified.
    """
    if training.solver == "psgd":
        return _sgd(training, X, codes, offsets, seed, n_threads)
    if training.loss.name == "crammer_singer":
        return _crammer_singer(training, X, codes, offsets, seed, n_threads)
    return _smooth(training, X, codes, offsets, seed, n_threads)


def _loss_options(training: LocalTraining) -> dict[str, Any]:
    """What the solvers of smooth losses want to know about the loss and the rows."""
    kernel, smoothing, margin = training.loss.kernel
    return {
        "loss": kernel,
        "n_scores": training.loss.n_scores,
        "smoothing": smoothing,
        "margin": margin,
        "data_norm": training.data_norm,
        "intercept_scaling": training.intercept_scaling,
    }


def _sizes(offsets: Integers) -> list[int]:
    """Records of each party."""
    return [int(n) for n in np.diff(offsets)]


def _certified(weights: Array, certified: NDArray[np.bool_]) -> Array:
    """Weights, if the solver certified those of all parties."""
    if not certified.all():
        raise PartyRefusedError(UNCERTIFIED)
    return np.asarray(weights)


def _smooth(
    training: LocalTraining,
    X: NDArray[Any],
    codes: Integers,
    offsets: Integers,
    seed: int,
    n_threads: int,
) -> Array:
    """Certified minimisers of a smooth loss."""
    sizes = _sizes(offsets)
    found = _core.solve_smooth_parties_dense(
        X,
        codes,
        offsets,
        regularizations=np.array([training.sum_regularization(n) for n in sizes]),
        gradient_tols=np.array([training.gradient_tol(n) for n in sizes]),
        shuffle_seed=seed,
        n_threads=n_threads,
        **_loss_options(training),
    )
    return _certified(*found)


def _crammer_singer(
    training: LocalTraining,
    X: NDArray[Any],
    codes: Integers,
    offsets: Integers,
    seed: int,
    n_threads: int,
) -> Array:
    """Certified minimisers of the multi-class hinge."""
    sizes = _sizes(offsets)
    found = _core.solve_crammer_singer_parties_dense(
        X,
        codes,
        offsets,
        n_classes=training.loss.n_classes,
        C=np.array([training.own_C(n) for n in sizes]),
        radius=np.array([training.own_radius(n) for n in sizes]),
        data_norm=training.data_norm,
        intercept_scaling=training.intercept_scaling,
        shuffle_seed=seed,
        n_threads=n_threads,
    )
    return _certified(*found)


def _sgd(
    training: LocalTraining,
    X: NDArray[Any],
    codes: Integers,
    offsets: Integers,
    seed: int,
    n_threads: int,
) -> Array:
    """Last iterates of projected SGD."""
    return np.asarray(
        _core.projected_sgd_parties_dense(
            X,
            codes,
            offsets,
            regularizations=np.full(offsets.size - 1, training.regularization),
            n_epochs=training.n_epochs,
            batch_size=training.batch_size,
            radius=training.radius,
            projection=training.projection,
            average="last",
            permutation_seed=seed,
            n_threads=n_threads,
            **_loss_options(training),
        )
    )


def fit_objective(
    training: ObjectiveTraining,
    X: NDArray[Any],
    codes: Integers,
    source: _core.NoiseSource,
    seed: int,
    n_threads: int,
) -> Array:
    """One party's weights with noise of their own; what was known before the noise is dropped."""
    mechanism = training.mechanism
    kernel, smoothing, margin = mechanism.loss.kernel
    weights, _ = _core.solve_smooth_dense(
        X,
        codes,
        loss=kernel,
        n_scores=mechanism.loss.n_scores,
        smoothing=smoothing,
        margin=margin,
        regularization=training.sum_regularization(X.shape[0]),
        linear=mechanism.draw_linear(source, n_threads=n_threads),
        data_norm=mechanism.data_norm,
        intercept_scaling=mechanism.intercept_scaling,
        gradient_tol=mechanism.gradient_tol,
        max_iter=None,
        shuffle_seed=seed,
        n_threads=n_threads,
        low_memory=False,
    )
    if weights is None:
        raise PartyRefusedError(UNCERTIFIED)
    return mechanism.release(weights, source, n_threads=n_threads)
