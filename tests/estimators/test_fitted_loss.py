"""Probabilities belong to the fit that they come from, whatever the parameters are set to later."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.base import clone

from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.losses import Loss
from oracles.odd_inputs import ESTIMATORS, every_estimator

TrainingSet = tuple[NDArray[np.float64], NDArray[np.int64]]
LIKELIHOOD: dict[str, Any] = {"loss": "softmax_margin", "smoothing": 0.5, "margin": 0.0}


def fitted(data: TrainingSet, estimator: str, n_classes: int = 3) -> Any:
    X, y = data[0], data[1] % n_classes
    return ESTIMATORS[estimator](epsilon=50.0, classes=range(n_classes), **LIKELIHOOD).fit(X, y)


@every_estimator
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize(
    "later", [{"smoothing": 5.0}, {"margin": 1.0}, {"loss": "huber", "margin": "auto"}]
)
def test_later_parameters_do_not_change_probabilities(
    estimator: str, n_classes: int, later: dict[str, Any], clusters: TrainingSet
) -> None:
    X = clusters[0]
    model = fitted(clusters, estimator, n_classes)
    before = model.predict_proba(X)
    model.set_params(**later)
    np.testing.assert_array_equal(model.predict_proba(X), before)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict_proba(X), before)
    # What is not fitted goes by its parameters.
    assert hasattr(clone(model), "predict_proba") == ("smoothing" in later)


@every_estimator
def test_the_next_fit_counts_and_a_refused_one_forgets(
    estimator: str, clusters: TrainingSet
) -> None:
    X, y = clusters
    model = fitted(clusters, estimator)
    before = model.predict_proba(X)
    model.set_params(smoothing=5.0).fit(X, y)
    assert model._fitted_loss == Loss(name="softmax_margin", n_classes=3, smoothing=5.0, margin=0.0)
    # By the new smoothing, whatever the noise of the new fit.
    now = softmax(model.decision_function(X) / 5.0, axis=1)
    np.testing.assert_allclose(model.predict_proba(X), now, rtol=1e-12)
    assert (now != before).any()
    with pytest.raises(InvalidParameterError, match="margin"):
        model.set_params(loss="huber").fit(X, y)
    assert "_fitted_loss" not in vars(model)
    assert not hasattr(model, "predict_proba")
