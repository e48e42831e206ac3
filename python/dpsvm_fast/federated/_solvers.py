"""Local models of many parties in one call: rows of all of them, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
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


def _each(fit: Callable[[int, slice], Any], offsets: Integers, n_threads: int) -> list[Any]:
    """One result a party, several at a time."""
    rows = [slice(int(a), int(b)) for a, b in pairwise(offsets)]
    if n_threads == 1 or len(rows) == 1:
        return [fit(i, own) for i, own in enumerate(rows)]
    with ThreadPoolExecutor(n_threads) as pool:
        return list(pool.map(fit, range(len(rows)), rows))


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


def _certified(weights: Array | None) -> Array:
    """Weights, if the solver certified them."""
    if weights is None:
        raise PartyRefusedError(UNCERTIFIED)
    return weights


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
    lambdas = [training.sum_regularization(n) for n in sizes]
    tols = [training.gradient_tol(n) for n in sizes]
    shared = _loss_options(training) | {"shuffle_seed": seed}
    if hasattr(_core, "solve_smooth_parties_dense"):
        weights, certified = _core.solve_smooth_parties_dense(
            X,
            codes,
            offsets,
            regularizations=np.array(lambdas),
            gradient_tols=np.array(tols),
            n_threads=n_threads,
            **shared,
        )
        if not certified.all():
            raise PartyRefusedError(UNCERTIFIED)
        return np.asarray(weights)

    def fit(i: int, own: slice) -> Array:
        found, _ = _core.solve_smooth_dense(
            X[own],
            codes[own],
            regularization=lambdas[i],
            linear=None,
            gradient_tol=tols[i],
            max_iter=None,
            n_threads=1,
            low_memory=False,
            **shared,
        )
        return _certified(found)

    return np.array(_each(fit, offsets, n_threads))


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
    constants = [training.own_C(n) for n in sizes]
    radii = [training.own_radius(n) for n in sizes]
    shared: dict[str, Any] = {
        "n_classes": training.loss.n_classes,
        "data_norm": training.data_norm,
        "intercept_scaling": training.intercept_scaling,
        "shuffle_seed": seed,
    }
    if hasattr(_core, "solve_crammer_singer_parties_dense"):
        weights, certified = _core.solve_crammer_singer_parties_dense(
            X,
            codes,
            offsets,
            C=np.array(constants),
            radius=np.array(radii),
            n_threads=n_threads,
            **shared,
        )
        if not certified.all():
            raise PartyRefusedError(UNCERTIFIED)
        return np.asarray(weights)

    def fit(i: int, own: slice) -> Array:
        found, _ = _core.solve_crammer_singer_dense(
            X[own],
            codes[own],
            C=constants[i],
            radius=radii[i],
            max_iter=None,
            n_threads=1,
            low_memory=False,
            **shared,
        )
        return _certified(found)

    return np.array(_each(fit, offsets, n_threads))


def _sgd(
    training: LocalTraining,
    X: NDArray[Any],
    codes: Integers,
    offsets: Integers,
    seed: int,
    n_threads: int,
) -> Array:
    """Last iterates of projected SGD."""
    shared = _loss_options(training) | {
        "n_epochs": training.n_epochs,
        "radius": training.radius,
        "projection": training.projection,
        "average": "last",
        "permutation_seed": seed,
    }
    sizes = _sizes(offsets)
    if hasattr(_core, "projected_sgd_parties_dense"):
        return np.asarray(
            _core.projected_sgd_parties_dense(
                X,
                codes,
                offsets,
                regularizations=np.full(len(sizes), training.regularization),
                batch_size=training.batch_size,
                n_threads=n_threads,
                **shared,
            )
        )

    def fit(i: int, own: slice) -> Array:
        found, _ = _core.projected_sgd_dense(
            X[own],
            codes[own],
            regularization=training.regularization,
            batch_size=min(training.batch_size, sizes[i]),
            low_memory=False,
            **shared,
        )
        return np.asarray(found)

    return np.array(_each(fit, offsets, n_threads))


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
    return mechanism.release(_certified(weights), source, n_threads=n_threads)
