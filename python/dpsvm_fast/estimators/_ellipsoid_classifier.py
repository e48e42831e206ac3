"""What follows from released ellipsoids: scores, predictions, distances."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from dpsvm_fast.estimators._ellipsoids import centres_of, quadratic_forms
from dpsvm_fast.estimators._training import PrivatelyTrained
from dpsvm_fast.estimators._training_data import checked_rows
from dpsvm_fast.mechanisms._row_maps import PublicMap, row_blocks

__all__ = ["EllipsoidClassifier", "refuse_sparse", "unit_rows"]

Array = NDArray[np.float64]


class EllipsoidClassifier(PrivatelyTrained):
    """Base of classifiers whose classes are ellipsoids; everything here is post-processing."""

    ellipsoids_: Array
    precisions_: Array
    means_: Array
    offsets_: Array
    lambda_: float
    data_norm_: float

    def _publish(self, weights: Array, scaling: float, **facts: Any) -> None:
        """Sets all fitted attributes at once from the noisy matrices; pure post-processing."""
        del scaling
        centres, least = centres_of(weights)
        self.__dict__.update(
            ellipsoids_=weights,
            precisions_=np.ascontiguousarray(weights[..., :-1, :-1]),
            means_=centres,
            offsets_=least,
            **facts,
        )

    def decision_function(self, X: Any) -> Array:
        """Score of every class, or of the second of two classes less that of the first.

        The score of a class is minus its smallest form, ``-(distance + offset)``. Rows longer than
        the bound of the fit are scaled down to it first, as in training.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes), or (n_samples,) for two classes
        """
        scores = -self._forms(X)[0]
        return np.asarray(scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores)

    def predict(self, X: Any) -> NDArray[Any]:
        """Label of the class with the smallest distance plus offset.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        forms, _ = self._forms(X)
        return np.asarray(self.classes_[forms.argmin(axis=1)])

    def mahalanobis(self, X: Any) -> Array:
        """Squared Mahalanobis distances to the classes, without offsets.

        Of several ellipsoids of a class, to the one that decides. Long rows as in
        ``decision_function``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        forms, which = self._forms(X)
        offsets = np.take_along_axis(self.offsets_[None], which[..., None], axis=2)[..., 0]
        return np.maximum(forms - offsets, 0.0)

    def _forms(self, X: Any) -> tuple[Array, NDArray[np.int64]]:
        """The smallest form of each class, and which of its ellipsoids has it."""
        check_is_fitted(self)
        X = checked_rows(self, X)
        refuse_sparse(X)
        n_classes, n_ellipsoids, side = self.ellipsoids_.shape[:3]
        forms = np.empty((X.shape[0], n_classes))
        which = np.zeros((X.shape[0], n_classes), dtype=np.int64)
        public = _public_map(self.data_norm_)
        for block in row_blocks(X, side + n_classes * n_ellipsoids):
            rows = public.apply(X[block]) * self.data_norm_
            values = quadratic_forms(rows, self.ellipsoids_)
            which[block] = values.argmin(axis=2)
            forms[block] = values.min(axis=2)
        return forms, which

    def __sklearn_tags__(self) -> Any:
        """Sparse rows are refused: what is trained is dense in the products of features."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        return tags


def _public_map(data_norm: float) -> PublicMap:
    """Rows over the bound of their norm."""
    return PublicMap(unit=False, data_norm=data_norm)


def unit_rows(X: NDArray[Any], data_norm: float) -> NDArray[Any]:
    """Rows of norm at most 1 in the precision of X, each a function of itself alone."""
    rows: NDArray[Any] = np.empty(X.shape, dtype=X.dtype)
    public = _public_map(data_norm)
    for block in row_blocks(X):
        rows[block] = public.apply(X[block])
    return rows


def refuse_sparse(X: Any) -> None:
    """The model has a number for every pair of features."""
    if sparse.issparse(X):
        raise TypeError(
            "X: got a sparse matrix, expected a dense array: this model has a weight for every "
            "pair of features; reduce sparse rows to a few dense features first"
        )
