"""Many releases of one estimator on one data set, by the estimator's own mechanism.

What does not differ between fits is done once: parameters, validation, the plan of the noise, exact
sums, and minimisers that the noise does not reach. Everything random comes from the source that is
passed, in the order in which ``fit`` takes it, so that one release from a seeded source is what
``fit`` with that seed publishes, to the last bit.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone

from dpsvm_fast import _core
from dpsvm_fast.estimators import (
    GradientPerturbationSVC,
    ObjectivePerturbationSVC,
    OutputPerturbationSVC,
    PrivateGaussianMarginClassifier,
)
from dpsvm_fast.estimators._bounds import broadcast_bounds
from dpsvm_fast.estimators._descent_run import training_records
from dpsvm_fast.estimators._ellipsoid_classifier import unit_rows
from dpsvm_fast.estimators._linear_fit import Prepared, trained
from dpsvm_fast.estimators._private_pipeline import PrivatePipeline
from dpsvm_fast.estimators._training import PrivatelyTrained
from dpsvm_fast.estimators._training_data import (
    checked_training_rows,
    checked_training_set,
    encoded_labels,
)
from dpsvm_fast.exceptions import CertificationError
from dpsvm_fast.mechanisms._noisy_moments import SecondMoments
from dpsvm_fast.mechanisms.gaussian_margin import CONSTANT
from dpsvm_fast.preprocessing._base import PrivateTransformer

__all__ = [
    "RELEASED",
    "Array",
    "CalledWorld",
    "DescentWorld",
    "EllipsoidWorld",
    "FittedWorld",
    "ObjectiveWorld",
    "OutputWorld",
    "PartWorld",
    "PipelineWorld",
    "TrainedWorld",
    "TransformerWorld",
    "World",
    "released_vector",
    "world_of",
]

Array = NDArray[np.float64]

# Fitted attributes that hold noisy numbers, in the order in which they are read.
RELEASED = (
    *("n_samples_", "n_samples_seen_", "mean_", "var_", "centre_", "whitening_"),
    *("eigenvalues_", "components_", "coef_", "intercept_", "ellipsoids_", "best_index_"),
)


class World(ABC):
    """One data set and a mechanism; ``draw`` makes independent releases."""

    # Releases of one call that keep the cost of a call small and memory bounded.
    chunk = 2000

    @abstractmethod
    def draw(self, n: int, source: _core.NoiseSource) -> Array:
        """Independent releases, shape (n, number of released numbers)."""


def released_vector(fitted: Any, names: tuple[str, ...] = RELEASED) -> Array:
    """All noisy numbers of a fitted object as one row; of a pipeline, of all its steps."""
    if hasattr(fitted, "steps"):
        return np.concatenate([released_vector(step, names) for _, step in fitted.steps])
    if hasattr(fitted, "best_estimator_"):
        return np.append(released_vector(fitted.best_estimator_, names), float(fitted.best_index_))
    values = {name: getattr(fitted, name, None) for name in names}
    centre = values.get("centre_")
    if centre is not None and "whitening_" in values and values["whitening_"] is None:
        # A released number decides whether there is one: vectors must not differ in length.
        values["whitening_"] = np.eye(np.size(centre))
    return _joined([value for value in values.values() if value is not None])


def _joined(parts: list[Any]) -> Array:
    if not parts:
        return np.zeros(0)
    return np.concatenate([np.ravel(np.asarray(part, dtype=np.float64)) for part in parts])


class FittedWorld(World):
    """Whole fits of anything that can be cloned; noise from the operating system."""

    chunk = 8

    def __init__(self, estimator: Any, X: Any, y: Any, names: tuple[str, ...]) -> None:
        self._estimator, self._data, self._names = estimator, (X, y), names

    def draw(self, n: int, source: _core.NoiseSource) -> Array:
        """Whole fits; the source is not used."""
        return np.array([self._vector(clone(self._estimator)) for _ in range(n)])

    def _vector(self, estimator: Any) -> Array:
        return released_vector(estimator.fit(*self._data), self._names)


def _numbers(result: Any) -> Array:
    """Of what a function returned: numbers, or a fitted object."""
    if isinstance(result, (int, float, np.number, np.ndarray, list, tuple)):
        return _joined([result])
    return released_vector(result)


class CalledWorld(World):
    """Calls of a function of (X, y) that returns numbers or a fitted object."""

    chunk = 64

    def __init__(self, function: Callable[[Any, Any], Any], X: Any, y: Any) -> None:
        self._function, self._data = function, (X, y)

    def draw(self, n: int, source: _core.NoiseSource) -> Array:
        """Whole calls; the source is not used."""
        return np.array([_numbers(self._function(*self._data)) for _ in range(n)])


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


def world_of(estimator: Any, X: Any, y: Any, names: tuple[str, ...] = RELEASED) -> World:
    """The fastest way to many releases of ``estimator`` on (X, y).

    Parameters
    ----------
    estimator : object with ``fit``
        Without a ledger and a seed of its own.
    X, y : array-like
        A training set.
    names : tuple of str
        The fitted attributes that are looked at.
    """
    kinds: tuple[tuple[type, Callable[..., World]], ...] = (
        (PrivatePipeline, PipelineWorld),
        (PrivateGaussianMarginClassifier, EllipsoidWorld),
        (OutputPerturbationSVC, OutputWorld),
        (ObjectivePerturbationSVC, ObjectiveWorld),
        (GradientPerturbationSVC, DescentWorld),
        (PrivatelyTrained, TrainedWorld),
        (PrivateTransformer, TransformerWorld),
    )
    for kind, world in kinds:
        # A subclass of a user's may do anything: it is fitted as a whole.
        if isinstance(estimator, kind) and type(estimator).__module__.startswith("dpsvm_fast."):
            return world(estimator, X, y, names)
    return FittedWorld(estimator, X, y, names)


class PipelineWorld(World):
    """The automatic pipelines: everything before the first look at the rows is done once."""

    chunk = 50

    def __init__(self, estimator: Any, X: Any, y: Any, names: tuple[str, ...]) -> None:
        settings = estimator._checked_parameters()
        X, y = checked_training_set(copy.copy(estimator), X, y)
        bounds = broadcast_bounds(settings.bounds, X.shape[1])
        settings.sparse = sparse.issparse(X)
        self.estimator, self.settings, self.X, self.names = estimator, settings, X, names
        self.codes = encoded_labels(y, settings.classes)
        self.mechanism = estimator._mechanism(settings, settings.classes.size, X.shape[1])
        self.public = estimator._public_map(bounds, settings)

    def draw(self, n: int, source: _core.NoiseSource) -> Array:
        """Published numbers."""
        return np.array([self._vector(source) for _ in range(n)])

    def _vector(self, source: _core.NoiseSource) -> Array:
        fit = self.estimator._fit_released(
            self.mechanism, self.public, self.X, self.codes, source, self.settings
        )
        fitted = copy.copy(self.estimator)
        fitted._publish(
            fit.weights, fit.scaling, **self.estimator._released_facts(fit, self.mechanism)
        )
        return released_vector(fitted, self.names)


class PartWorld(PipelineWorld):
    """One release of a pipeline alone, as if the ones before it had come out without effect.

    Composition lets the later releases depend on the earlier ones in any way, so any outcome of
    those may be fixed: the centre is 0, the number of rows is right, nothing is whitened.
    """

    chunk = 50_000

    def __init__(self, estimator: Any, X: Any, y: Any, part: str) -> None:
        super().__init__(estimator, X, y, ())
        self.part, self.n_threads = part, self.settings.n_threads
        if part == "training":
            self.chunk = 500
        self.records = self._new_records()

    def _new_records(self) -> _core.Records:
        n_classes = self.mechanism.loss.n_classes
        records: _core.Records = self.public.records(self.X, self.codes, n_classes, self.n_threads)
        return records

    def draw(self, n: int, source: _core.NoiseSource) -> Array:
        """Noisy sums, or noisy weights of the training."""
        if self.part == "training":
            return self._trained(n, source)
        if self.part == "whitening":
            moments = self.records.gram(self.n_threads)
            return _triangles(self.mechanism.whitening, moments, n, source, self.n_threads)
        centre = self.mechanism.centre
        exact = centre.exact(self.records.sums(self.n_threads), self.X.shape[0])
        many: Array = centre.sum.release_many(exact, n, source, self.n_threads)
        return many

    def _trained(self, n: int, source: _core.NoiseSource) -> Array:
        """Weights by the path that the pipeline takes for so many rows."""
        training = self.mechanism.training(float(self.X.shape[0]))
        if training.rule is not None:
            descent = training.rule.descent()
            runs = descent.run_batch(self.records, source, n, training.rule.n_steps, self.n_threads)
            return np.asarray(runs.reshape(n, -1))
        ready = Prepared(float(self.X.shape[0]), None, None, training, None)
        fits = [
            trained(ready, self.public, self.X, self.codes, source, self.n_threads)
            for _ in range(n)
        ]
        return np.array([fit.weights.ravel() for fit in fits])


def _triangles(
    mechanism: Any, moments: Array, n: int, source: _core.NoiseSource, n_threads: int
) -> Array:
    """Noisy matrices, each as the numbers that have noise of their own, all with the same."""
    noisy = mechanism.noisy_many(moments, n, source, n_threads)
    rows, columns = np.triu_indices(mechanism.n_features)
    weights = np.where(rows == columns, 1.0, math.sqrt(2.0))
    return np.asarray(noisy[:, rows, columns] * weights)


class TransformerWorld(World):
    """A transformer: exact sums are taken once, and what is looked at are the noisy sums.

    Everything that a transformer publishes is computed from them and from public numbers.
    """

    chunk = 50_000

    def __init__(self, estimator: Any, X: Any, y: Any, names: tuple[str, ...]) -> None:
        settings = estimator._checked_parameters()
        X = checked_training_rows(copy.copy(estimator), X)
        estimator._check_shape(settings, X.shape[1])
        self.n_rows, self.n_threads = X.shape[0], settings.n_threads
        self.mechanism = estimator._mechanism(settings, X.shape[1])
        self.records = estimator._records(X, settings)

    def draw(self, n: int, source: _core.NoiseSource) -> Array:
        """Noisy sums; of a matrix the triangle that has noise of its own."""
        mechanism = self.mechanism
        if isinstance(mechanism, SecondMoments):
            moments = self.records.gram(self.n_threads)
            return _triangles(mechanism, moments, n, source, self.n_threads)
        total: Array = mechanism.sum.release_many(self._exact(), n, source, self.n_threads)
        return total

    def _exact(self) -> Array:
        """What the noise is added to."""
        if isinstance(self.records, tuple):
            exact: Array = self.mechanism.exact(*self.records, self.n_rows)
        else:
            exact = self.mechanism.exact(self.records.sums(self.n_threads), self.n_rows)
        return exact
