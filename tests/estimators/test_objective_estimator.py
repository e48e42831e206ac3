"""ObjectivePerturbationSVC: order of the fit, agreement with plain models, probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsvm_fast import (
    CertificationError,
    ObjectivePerturbationSVC,
    _core,
)
from dpsvm_fast.losses import SMOOTH_LOSSES
from dpsvm_fast.mechanisms.objective import ObjectivePerturbation
from oracles.watching import fitted_names
from twins.smooth_erm import Problem

TrainingSet = tuple[NDArray[np.float64], NDArray[np.int64]]
seeded = pytest.mark.filterwarnings("ignore::dpsvm_fast.NotPrivateWarning")


def model(**changes: Any) -> ObjectivePerturbationSVC:
    return ObjectivePerturbationSVC(**({"classes": [0, 1, 2], "n_threads": 1} | changes))


@pytest.mark.proof("objective_perturbation", "The mechanism and its estimator")
@seeded
@pytest.mark.parametrize("loss", SMOOTH_LOSSES)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_released_weights_are_stationary_but_for_the_noise_on_them(
    loss: str, n_classes: int, clusters: TrainingSet
) -> None:
    """B, drawn again from the seed, balances the gradient of the slow twin at the weights."""
    X, y = clusters
    y = np.minimum(y, n_classes - 1)
    settings = {"random_state": 3, "classes": range(n_classes), "data_norm": 0.8, "C": 0.2}
    seen: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        original = ObjectivePerturbation.release
        patch.setattr(
            ObjectivePerturbation,
            "release",
            lambda plan, weights, *a, **k: (
                seen.append((plan, weights)) or original(plan, weights, *a, **k)
            ),
        )
        model(loss=loss, **settings).fit(X, y)
    plan, weights = seen[0]
    linear = plan.draw_linear(_core.NoiseSource(3), n_threads=1)
    clipped = X * np.minimum(1.0, 0.8 / np.linalg.norm(X, axis=1))[:, None]
    rows = np.hstack([clipped, np.full((90, 1), plan.intercept_scaling)])
    problem = Problem(
        rows, y, plan.loss.n_scores, plan.loss.kernel, plan.regularization, linear=linear
    )
    # The solver stores rows in single precision: their rounding is part of the public record model.
    allowed = plan.gradient_tol + 90.0 * plan.loss.lipschitz * 2e-7
    assert np.linalg.norm(problem.gradient(weights)) <= allowed
    # Negative controls: another B, and another lambda.
    for wrong in (
        Problem(rows, y, plan.loss.n_scores, plan.loss.kernel, plan.regularization),
        Problem(rows, y, plan.loss.n_scores, plan.loss.kernel, 1.01 * plan.regularization, linear),
    ):
        assert np.linalg.norm(wrong.gradient(weights)) > 10.0 * allowed


def test_probabilities_exist_only_for_likelihoods(clusters: TrainingSet) -> None:
    X, y = clusters
    for settings, available in (
        ({}, False),
        ({"loss": "huber"}, False),
        ({"loss": "m3", "margin": 0.0}, False),
        ({"loss": "softplus"}, False),
        ({"loss": "softplus", "margin": 0.0}, True),
        ({"margin": 0.0}, True),
        ({"loss": "logistic"}, True),
    ):
        assert hasattr(model(**settings), "predict_proba") == available
        assert hasattr(model(**settings).fit(X, y), "predict_proba") == available
    with pytest.raises(AttributeError) as caught:
        model().predict_proba(X)
    assert "margin=0" in str(caught.value.__cause__ or caught.value)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize(
    "settings", [{"margin": 0.0}, {"loss": "logistic"}, {"loss": "softplus", "margin": 0.0}]
)
def test_probabilities(settings: dict[str, Any], n_classes: int, clusters: TrainingSet) -> None:
    X, y = clusters
    y = np.minimum(y, n_classes - 1)
    estimator = model(epsilon=100.0, classes=range(n_classes), **settings).fit(X, y)
    found = estimator.predict_proba(X)
    assert found.shape == (90, n_classes)
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_array_equal(found.argmax(axis=1), estimator.predict(X))
    temperature = 1.0 if settings.get("loss") == "logistic" else 0.4
    odds = np.exp(estimator.decision_function(X) / temperature)
    if n_classes == 2:
        expected = odds / (1.0 + odds)
        np.testing.assert_allclose(found[:, 1], expected, rtol=1e-9)
    else:
        shares = odds if "loss" not in settings else odds / (1.0 + odds)
        expected = shares / shares.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(found, expected, rtol=1e-9)
    # Parameters changed after the fit are those of the next one.
    np.testing.assert_array_equal(estimator.set_params(loss="huber").predict_proba(X), found)
    for rows in (np.full((2, 5), 1e308), np.full((2, 5), -1e308)):
        np.testing.assert_allclose(estimator.predict_proba(rows).sum(axis=1), 1.0, rtol=1e-12)


def test_a_longer_constant_feature_is_part_of_the_row(clusters: TrainingSet) -> None:
    estimator = model(intercept_scaling=2.0, epsilon=100.0).fit(*clusters)
    assert estimator.privacy_.objective.row_norm == pytest.approx(5.0**0.5, rel=1e-15)
    X, y = clusters
    assert estimator.score(X, y) > 0.9


def test_a_certificate_out_of_reach_is_an_error_that_says_so() -> None:
    """Weights so large that their rounding alone exceeds the tolerance."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(2000, 20)), rng.integers(0, 3, 2000)
    estimator = model(
        noise="gamma", epsilon=1e3, C=1e8, tol=1e-8, smoothing=1e-3, extra_regularization=0.0
    )
    with pytest.raises(CertificationError, match=r"^tol: .*double precision.*not covered"):
        estimator.fit(X, y)
    assert fitted_names(estimator) == []
