"""What every private linear classifier shares: scores, predictions, tags, and forgetting."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import check_is_fitted

from dpsvm_fast.accounting import PrivacyStatement
from dpsvm_fast.estimators._released import Released
from dpsvm_fast.estimators._training_data import checked_rows
from dpsvm_fast.losses import Loss

__all__ = ["PrivateLinearClassifier"]

# Rows whose scores overflow are scored at 2**-600 of their size.
LARGE_ROW_EXPONENT = 600


class PrivateLinearClassifier(Released, ClassifierMixin, BaseEstimator):
    """Base of linear classifiers whose fitted attributes are one private release.

    A subclass fits locally and hands everything to ``_publish`` at the very end: an estimator is
    fitted as a whole or not at all.
    """

    coef_: NDArray[np.float64]
    intercept_: NDArray[np.float64]
    classes_: NDArray[Any]
    n_features_in_: int
    privacy_: PrivacyStatement
    # Of the release, whatever the parameters are set to later; public like the statement.
    _fitted_loss: Loss

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Score of every class, or of the second of two classes.

        `PrivateLinearSVC` and `PrivateKernelSVC` map raw rows as in training. Others score rows as
        they are: unlike in training, long ones are not clipped.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes), or (n_samples,) for two classes
        """
        scores, exponents = self._scaled_scores(X)
        with np.errstate(over="ignore"):
            scores = np.ldexp(scores, exponents[:, None])
        # A score beyond the floats keeps its sign and a finite value.
        scores = np.clip(scores, -sys.float_info.max, sys.float_info.max)
        return np.asarray(scores.ravel() if scores.shape[1] == 1 else scores)

    def predict(self, X: Any) -> NDArray[Any]:
        """Label of the class with the largest score.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        scores, _ = self._scaled_scores(X)
        two = scores.shape[1] == 1
        best = (scores[:, 0] > 0).astype(np.int64) if two else scores.argmax(axis=1)
        return np.asarray(self.classes_[best])

    def _scaled_scores(self, X: Any) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Scores and, for each row, the power of two by which they have to be multiplied.

        The powers are 0 except where rows are so large that a score would leave the floats.
        """
        check_is_fitted(self)
        X = checked_rows(self, X)
        with np.errstate(over="ignore", invalid="ignore"):
            scores = safe_sparse_dot(X, self.coef_.T, dense_output=True) + self.intercept_
        exponents = np.zeros(scores.shape[0], dtype=np.int64)
        large = ~np.isfinite(scores).all(axis=1)
        if large.any():
            exponents[large] = LARGE_ROW_EXPONENT
            small = math.ldexp(1.0, -LARGE_ROW_EXPONENT)
            rows = X[large].astype(np.float64) * small
            product = safe_sparse_dot(rows, self.coef_.T, dense_output=True)
            scores[large] = product + self.intercept_ * small
        return np.asarray(scores), exponents

    def __sklearn_tags__(self) -> Any:
        """Sparse rows are accepted; no accuracy is promised on small data: noise may drown it."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.poor_score = True
        return tags

    def _forget(self) -> None:
        """Removes every fitted attribute, and the loss."""
        super()._forget()
        self.__dict__.pop("_fitted_loss", None)

    def _publish(self, weights: NDArray[np.float64], scaling: float, **facts: Any) -> None:
        """Sets all fitted attributes at once from the noisy ``weights``; pure post-processing."""
        coef: NDArray[np.float64] = weights
        intercept: NDArray[np.float64] = np.zeros(weights.shape[0])
        if scaling > 0.0:
            coef, intercept = weights[:, :-1], weights[:, -1] * scaling
        if weights.shape[0] == 2:
            # The common part of the two rows changes no prediction.
            coef, intercept = coef[1:] - coef[:1], intercept[1:] - intercept[:1]
        self.__dict__.update(coef_=np.ascontiguousarray(coef), intercept_=intercept, **facts)
