"""Rows and labels of a search, checked before anything is spent."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import indexable
from sklearn.utils.validation import _num_samples

from dpsvm_fast.estimators._pipeline_steps import OURS, leaf_steps
from dpsvm_fast.estimators._training import FEATURE_FACTS
from dpsvm_fast.estimators._training_data import checked_training_set
from dpsvm_fast.model_selection._declared import DeclaredTrainer

__all__ = ["Data", "checked_data"]


@dataclass(frozen=True, eq=False)
class Data:
    """Rows that can be indexed, and labels.

    Parameters
    ----------
    X : array-like
    y : ndarray of shape (n_samples,)
    facts : dict
        What is known about the features.
    """

    X: Any
    y: NDArray[Any]
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def n_samples(self) -> int:
        """Number of rows; private with ``add_remove``."""
        return int(self.y.shape[0])

    @property
    def sparse(self) -> bool:
        """Whether rows are sparse."""
        return bool(sparse.issparse(self.X))


def checked_data(search: Any, candidates: list[Any], X: Any, y: Any) -> Data:
    """Rows and labels as far as they can be checked before the candidates see them.

    Where every candidate begins with an estimator of this library, X has to be what all of those
    take. Other first steps, and functions, may take anything with rows.

    Raises
    ------
    ValueError, TypeError
        Something else; the text does not quote it.
    """
    if all(map(_takes_numbers, candidates)):
        # Validation writes what it learns about X onto the copy.
        probe = copy.copy(search)
        numbers, y = checked_training_set(probe, X, y)
        facts = {name: vars(probe)[name] for name in FEATURE_FACTS if name in vars(probe)}
        # Rows of a table keep their names for the candidates.
        return Data(X if "feature_names_in_" in facts else numbers, y, facts)
    try:
        X, labels = indexable(X, y)
        labels = np.asarray(labels)
        same = labels.ndim == 1 and _num_samples(X) == labels.shape[0]
    except (TypeError, ValueError):
        same = False
    if not same:
        raise ValueError("X and y: expected rows, and one label for each of them")
    return Data(X if hasattr(X, "shape") else np.asarray(X), labels)


def _takes_numbers(candidate: Any) -> bool:
    """Whether the first that rows meet is an estimator of this library."""
    first = next(leaf_steps(candidate, ""), None)
    if first is None or isinstance(first.estimator, DeclaredTrainer):
        return False
    return type(first.estimator).__module__.startswith(OURS)
