"""Many releases of estimators that are trained in one step."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpsvm_fast import _core
from dpsvm_fast.audit._world import Array, World
from dpsvm_fast.estimators._descent_run import training_records
from dpsvm_fast.estimators._ellipsoid_classifier import unit_rows
from dpsvm_fast.estimators._training_data import checked_training_set, encoded_labels
from dpsvm_fast.exceptions import CertificationError
from dpsvm_fast.mechanisms.gaussian_margin import CONSTANT

__all__ = ["DescentWorld", "EllipsoidWorld", "ObjectiveWorld", "OutputWorld", "TrainedWorld"]


class TrainedWorld(World):
    """An estimator whose release are weights: everything up to ``_released`` is done once."""

    def __init__(self, estimator: Any, X: Any, y: Any, names: tuple[str, ...]) -> None:
        settings = estimator._checked_parameters()
        X, y = checked_training_set(copy.copy(estimator), X, y)
        if settings.adjacency == "replace_one":
            settings.n_samples = X.shape[0]
        self.estimator, self.settings, self.X = estimator, settings, X
        self.codes = encoded_labels(y, settings.classes)
        self.mechanism = estimator._mechanism(settings, settings.classes.size, X.shape[1])

    def draw(self, n: int, source: _core.NoiseSource) -> Array:
        """Published coefficients and intercepts."""
        return self.published(np.array([self.weights(source) for _ in range(n)]))

    def weights(self, source: _core.NoiseSource) -> Array:
        """Noisy weights of one fit."""
        # A descent remembers its steps: every fit begins its own, and threads share nothing.
        settings = SimpleNamespace(**vars(self.settings))
        settings.kept = {}
        self.estimator._prepare(self.X, self.mechanism, settings)
        released: Array = self.estimator._released(
            self.X, self.codes, self.mechanism, settings, source
        )
        return released

    def published(self, weights: Array) -> Array:
        """Coefficients and intercepts of weights of shape (n, n_scores, n_columns)."""
        scaling = self.mechanism.intercept_scaling
        coef, intercept = weights, np.zeros((*weights.shape[:2], 1))
        if scaling > 0.0:
            coef, intercept = weights[..., :-1], weights[..., -1:] * scaling
        if weights.shape[1] == 2:
            coef, intercept = coef[:, 1:] - coef[:, :1], intercept[:, 1:] - intercept[:, :1]
        parts = [coef.reshape(len(weights), -1), intercept.reshape(len(weights), -1)]
        return np.hstack(parts)


class OutputWorld(TrainedWorld):
    """Output perturbation: one solution, many draws of the noise on it."""

    chunk = 50_000

    def draw(self, n: int, source: _core.NoiseSource) -> Array:
        """Published coefficients and intercepts."""
        return self.published(self.noisy(n, source))

    def noisy(self, n: int, source: _core.NoiseSource) -> Array:
        """Noisy weights, shape (n, n_scores, n_columns)."""
        solution = self.estimator._solution(
            self.X, self.codes, self.mechanism, self.settings, source
        )
        many = np.broadcast_to(solution, (n, *solution.shape))
        noisy: Array = self.mechanism.weight_noise.release_many(
            many, source, self.settings.n_threads
        )
        return noisy


class ObjectiveWorld(TrainedWorld):
    """Objective perturbation: many linear terms, solved in one call."""

    chunk = 20_000

    def draw(self, n: int, source: _core.NoiseSource) -> Array:
        """Published coefficients and intercepts."""
        if sparse.issparse(self.X):
            return super().draw(n, source)
        mechanism, n_threads = self.mechanism, self.settings.n_threads
        kernel, smoothing, margin = mechanism.loss.kernel
        weights, solved = _core.solve_smooth_batch_dense(
            self.X,
            self.codes,
            loss=kernel,
            n_scores=mechanism.loss.n_scores,
            smoothing=smoothing,
            margin=margin,
            regularization=mechanism.regularization,
            linear=mechanism.inside.draw_many(n, source, n_threads),
            data_norm=mechanism.data_norm,
            intercept_scaling=mechanism.intercept_scaling,
            gradient_tol=mechanism.gradient_tol,
            max_iter=self.settings.max_iter,
            shuffle_seed=source.public_seed(),
            n_threads=n_threads,
        )
        _all_solved(solved)
        return self.published(mechanism.output.release_many(weights, source, n_threads))


def _all_solved(solved: NDArray[np.bool_]) -> None:
    if not np.all(solved):
        raise CertificationError("a minimiser could not be certified; the audit is void")


class DescentWorld(TrainedWorld):
    """Private descent: many runs over the same rows in one call."""

    chunk = 20_000

    def draw(self, n: int, source: _core.NoiseSource) -> Array:
        """Published coefficients and intercepts."""
        mechanism, settings = self.mechanism, SimpleNamespace(**vars(self.settings))
        self.estimator._prepare(self.X, mechanism, settings)
        records = training_records(self.X, self.codes, mechanism, settings.n_threads)
        weights = settings.descent.run_batch(
            records, source, n, mechanism.steps, settings.n_threads
        )
        return self.published(weights / mechanism.data_norm)


class EllipsoidWorld(TrainedWorld):
    """The Gaussian margin classifier, before matrices are projected: nothing is lost by that."""

    chunk = 2000

    def draw(self, n: int, source: _core.NoiseSource) -> Array:
        """Noisy matrices, flat."""
        if self.mechanism.anchors is not None:
            # Noisy centres decide which rows are whose: every fit is a problem of its own.
            return np.array([self.matrices(source).ravel() for _ in range(n)])
        mechanism, settings = self.mechanism, self.settings
        n_threads = settings.n_threads
        rows = unit_rows(self.X, mechanism.data_norm)
        rows /= rows.dtype.type(CONSTANT)
        linear = [mechanism.draw_linear(source, n_threads=n_threads) for _ in range(n)]
        matrices, gradients = _core.solve_gaussian_margin_batch(
            rows,
            self.codes,
            loss=mechanism.loss,
            n_classes=mechanism.n_classes,
            n_ellipsoids=mechanism.n_ellipsoids,
            smoothing=mechanism.smoothing,
            margin=mechanism.margin,
            regularization=mechanism.regularization,
            linear=np.array(linear),
            data_norm=1.0 / CONSTANT,
            psd=settings.psd == "constraint",
            gradient_tol=mechanism.solver.gradient_tol,
            max_iter=settings.max_iter,
            n_threads=n_threads,
        )
        _all_solved(gradients <= mechanism.solver.gradient_tol)
        release = mechanism.solver.output.release_many
        return np.asarray(release(matrices, source, n_threads).reshape(n, -1))

    def matrices(self, source: _core.NoiseSource) -> Array:
        """Noisy matrices of one fit."""
        noisy: Array = self.estimator._noisy_matrices(
            self.X, self.codes, self.mechanism, self.settings, source
        )
        return noisy
