"""Many releases of pipelines and transformers, and which way is the fastest of an estimator."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse

from dpsvm_fast import _core
from dpsvm_fast.audit._trained_worlds import (
    DescentWorld,
    EllipsoidWorld,
    ObjectiveWorld,
    OutputWorld,
    TrainedWorld,
)
from dpsvm_fast.audit._world import RELEASED, Array, FittedWorld, World, released_vector
from dpsvm_fast.estimators import (
    GradientPerturbationSVC,
    ObjectivePerturbationSVC,
    OutputPerturbationSVC,
    PrivateGaussianMarginClassifier,
)
from dpsvm_fast.estimators._bounds import broadcast_bounds
from dpsvm_fast.estimators._linear_fit import Prepared, trained
from dpsvm_fast.estimators._private_pipeline import PrivatePipeline
from dpsvm_fast.estimators._training import PrivatelyTrained
from dpsvm_fast.estimators._training_data import (
    checked_training_rows,
    checked_training_set,
    encoded_labels,
)
from dpsvm_fast.mechanisms._noisy_moments import SecondMoments
from dpsvm_fast.preprocessing._base import PrivateTransformer

__all__ = ["PartWorld", "PipelineWorld", "TransformerWorld", "world_of"]


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
