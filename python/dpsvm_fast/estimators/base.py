"""Base classes of the private linear classifiers: scores, predictions and tags."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from dpsvm_fast.certificates import PrivacyStatement
from dpsvm_fast.estimators.inputs import checked_rows
from dpsvm_fast.estimators.parameters import chosen_loss, tests_of
from dpsvm_fast.losses import Loss
from dpsvm_fast.mechanisms.rows import row_scores

# Common parts of estimators, transformers and searches: their fitted state.


# State that a fit leaves under other names: the loss, and what later calls continue from.
HIDDEN_STATE = ("_fitted_loss", "_continuation", "_running")


class Released:
    """Mixin for fitted state: attributes end in ``_``, and a release sets ``privacy_``."""

    # Loss of the release, even if parameters are set later; public like the statement.
    _fitted_loss: Loss | None = None
    # State that ``partial_fit`` continues from.
    _continuation: Any = None

    def _forget(self) -> None:
        """Remove every fitted attribute."""
        for name in (*vars(self), *HIDDEN_STATE):
            if name in HIDDEN_STATE or (name.endswith("_") and name[0] != "_"):
                # Another thread may be fitting, and forgetting, the same object.
                self.__dict__.pop(name, None)

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether a release has been published."""
        return "privacy_" in vars(self)


# Rows whose scores overflow are scored at 2**-600 of their size.
LARGE_ROW_EXPONENT = 600


class PrivateLinearClassifier(Released, ClassifierMixin, BaseEstimator):
    """Base of linear classifiers whose fitted attributes form one private release.

    All fitted attributes are set at once at the end: a model is fitted completely or not at all.
    """

    coef_: NDArray[np.float64]
    intercept_: NDArray[np.float64]
    classes_: NDArray[Any]
    n_features_in_: int
    privacy_: PrivacyStatement

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return the score of every class, or of the second class of two.

        `PrivateLinearSVC` and `PrivateKernelSVC` map raw rows as in training. Other estimators
        score rows as they are: unlike in training, long rows are not clipped.

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
        """Return the label of the class with the largest score.

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
        """Return scores and, for each row, the power of two by which to multiply them.

        The power is 0 unless a row is so large that a score would overflow.
        """
        check_is_fitted(self)
        X = checked_rows(self, X)
        with np.errstate(over="ignore", invalid="ignore"):
            scores = row_scores(X, self.coef_) + self.intercept_
        exponents = np.zeros(scores.shape[0], dtype=np.int64)
        large = ~np.isfinite(scores).all(axis=1)
        if large.any():
            exponents[large] = LARGE_ROW_EXPONENT
            small = math.ldexp(1.0, -LARGE_ROW_EXPONENT)
            rows = X[large].astype(np.float64) * small
            scores[large] = row_scores(rows, self.coef_) + self.intercept_ * small
        return np.asarray(scores), exponents

    def __sklearn_tags__(self) -> Any:
        """Declare that sparse rows are accepted and that noise may dominate on small data."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.poor_score = True
        return tags


def linear_attributes(weights: NDArray[np.float64], scaling: float) -> dict[str, Any]:
    """Split noisy weights into coefficients and intercepts; this is post-processing.

    Parameters
    ----------
    weights : ndarray of shape (..., n_scores, n_columns)
    scaling : float
        Value of the constant feature, whose weights are last; 0 for none.
    """
    coef: NDArray[np.float64] = weights
    intercept: NDArray[np.float64] = np.zeros(weights.shape[:-1])
    if scaling > 0.0:
        coef, intercept = weights[..., :-1], weights[..., -1] * scaling
    if weights.shape[-2] == 2:
        # The common part of the two rows changes no prediction.
        coef = coef[..., 1:, :] - coef[..., :1, :]
        intercept = intercept[..., 1:] - intercept[..., :1]
    return {"coef_": np.ascontiguousarray(coef), "intercept_": intercept}


# Probabilities of the classes, for estimators whose loss may be a likelihood.


# Scores over temperatures are cut here, far beyond where probabilities are 0 or 1.
LARGEST_LOGIT = 1e300


def _is_likelihood(estimator: Probabilities) -> bool:
    """Return whether scores are log-odds; if not, raise an error that says how to get them."""
    if not estimator._used_loss().is_likelihood:
        raise AttributeError(
            "predict_proba needs a loss that is a likelihood: loss='logistic', or 'softmax_margin' "
            "or 'softplus' with margin=0"
        )
    return True


class Probabilities(PrivateLinearClassifier):
    """Mixin that adds ``predict_proba`` if the loss is a likelihood."""

    def _used_loss(self) -> Loss:
        """Return the loss of the fitted model, or the one that a fit would use for two classes."""
        return self._fitted_loss or self._loss_of(2)

    def _loss_of(self, n_classes: int) -> Loss:
        """Return the loss for these parameters."""
        names, tests = ("loss", "smoothing", "margin"), tests_of(type(self))
        loss, smoothing, margin = (tests[name](name, getattr(self, name)) for name in names)
        return chosen_loss(loss, n_classes, smoothing, margin)

    def likelihood_scale(self) -> float:
        """Return the divisor that turns scores into log-odds: loss times released temperature."""
        released: float = vars(self).get("temperature_", 1.0)
        return self._used_loss().temperature * released

    @available_if(_is_likelihood)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        r"""Return class probabilities if the loss is a likelihood.

        The result is the softmax of the scores over the temperature for ``softmax_margin`` with
        margin 0, the logistic function of the score for two classes, and the normalised logistic
        functions for one-vs-rest losses. This is post-processing. `PrivateLinearSVC` and
        `PrivateKernelSVC` also release a calibrating temperature; with other estimators the noise
        in the weights makes probabilities less calibrated than those of a non-private model.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Columns in the order of ``classes_``; rows sum to 1.
        """
        scores = self.decision_function(X)
        loss = self._used_loss()
        with np.errstate(over="ignore"):
            logits = np.clip(scores / self.likelihood_scale(), -LARGEST_LOGIT, LARGEST_LOGIT)
        if loss.n_scores == 1:
            return np.stack([expit(-logits), expit(logits)], axis=1)
        return np.asarray(softmax(logits if loss.joint else log_expit(logits), axis=1))
