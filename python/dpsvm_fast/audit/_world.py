"""Many releases of one estimator on one data set, by the estimator's own mechanism.

What does not differ between fits is done once: parameters, validation, the plan of the noise, exact
sums, and minimisers that the noise does not reach. Everything random comes from the source that is
passed, in the order in which ``fit`` takes it, so that one release from a seeded source is what
``fit`` with that seed publishes, to the last bit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from dpsvm_fast import _core

__all__ = ["RELEASED", "Array", "CalledWorld", "FittedWorld", "World", "released_vector"]

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
