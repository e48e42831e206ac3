"""Probabilities of the classes, for estimators whose loss may be a likelihood."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit, softmax
from sklearn.utils.metaestimators import available_if

from dpsvm_fast.estimators._base import PrivateLinearClassifier
from dpsvm_fast.estimators._parameters import chosen_loss
from dpsvm_fast.losses import Loss

__all__ = ["Probabilities"]

# Scores over temperatures are cut here, far beyond where probabilities are 0 or 1.
LARGEST_LOGIT = 1e300


def _is_likelihood(estimator: Probabilities) -> bool:
    """Whether scores are log-odds; says what would make them so when not."""
    if not estimator._used_loss().is_likelihood:
        raise AttributeError(
            "predict_proba needs a loss that is a likelihood: loss='logistic', or 'softmax_margin' "
            "or 'softplus' with margin=0"
        )
    return True


class Probabilities(PrivateLinearClassifier):
    """Adds ``predict_proba`` to an estimator that knows its loss."""

    _parameters: ClassVar[Mapping[str, Callable[[Any], Any]]]

    def _used_loss(self) -> Loss:
        """The loss of the fitted model, or the one that a fit would use for two classes."""
        fitted: Loss | None = vars(self).get("_fitted_loss")
        if fitted is not None:
            return fitted
        names = ("loss", "smoothing", "margin")
        name, *shape = (self._parameters[name](getattr(self, name)) for name in names)
        return chosen_loss(name, 2, *shape)

    @available_if(_is_likelihood)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        r"""Probabilities of the classes, where the loss is a likelihood.

        Softmax of the scores over the temperature for ``softmax_margin`` with margin 0, the
        logistic function of the one score of two classes, and for one-vs-rest losses the logistic
        functions divided by their sum. Post-processing of the released weights; the noise in them
        makes the probabilities less calibrated than those of a plain model.

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
            logits = np.clip(scores / loss.temperature, -LARGEST_LOGIT, LARGEST_LOGIT)
        if loss.n_scores == 1:
            return np.stack([expit(-logits), expit(logits)], axis=1)
        return np.asarray(softmax(logits if loss.joint else log_expit(logits), axis=1))
