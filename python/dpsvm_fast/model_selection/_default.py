"""What is released when a random number of runs is zero: a model that nobody's data went into."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import _num_samples

__all__ = ["ConstantClassifier"]


class ConstantClassifier(ClassifierMixin, BaseEstimator):
    """Predicts the first of the public classes for every row.

    Parameters
    ----------
    classes : array-like of shape (n_classes,)
        Public label set.

    Examples
    --------
    >>> from dpsvm_fast.model_selection import ConstantClassifier
    >>> ConstantClassifier(["no", "yes"]).predict([[0.0], [1.0]]).tolist()
    ['no', 'no']
    """

    def __init__(self, classes: Any) -> None:
        self.classes = classes

    @property
    def classes_(self) -> NDArray[Any]:
        """The label set."""
        return np.asarray(self.classes)

    def fit(self, X: Any, y: Any = None) -> ConstantClassifier:
        """Does nothing: there is nothing to be learned.

        Parameters
        ----------
        X, y : object
            Not looked at.

        Returns
        -------
        ConstantClassifier
            Itself.
        """
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """The first class for every row."""
        return np.full(_num_samples(X), self.classes_[0])

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Zeros of the shape that scores have."""
        n, k = _num_samples(X), self.classes_.size
        return np.zeros(n if k == 2 else (n, k))

    def __sklearn_is_fitted__(self) -> bool:
        """It always is."""
        return True
