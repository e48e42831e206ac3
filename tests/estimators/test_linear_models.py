"""What estimators with linear scores have in common: shapes, intercepts, what they learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import normalize

from dpsvm_fast import (
    GradientPerturbationSVC,
    ObjectivePerturbationSVC,
    OutputPerturbationSVC,
    verify,
)
from dpsvm_fast.losses import SMOOTH_LOSSES

TrainingSet = tuple[NDArray[np.float64], NDArray[np.int64]]
MODELS: dict[str, Any] = {
    "output": OutputPerturbationSVC,
    "objective": ObjectivePerturbationSVC,
    "gradient": GradientPerturbationSVC,
}


def shape_of_noise(model: Any) -> tuple[int, ...]:
    statement = model.privacy_
    shape: tuple[int, ...] = (statement.noise or statement.parts[0]).shape
    return shape


@pytest.mark.parametrize(
    ("kind", "loss"),
    [
        ("output", "crammer_singer"),
        *((k, loss) for k in list(MODELS)[1:] for loss in SMOOTH_LOSSES),
    ],
)
def test_two_classes_give_one_row(kind: str, loss: str, clusters: TrainingSet) -> None:
    X, y = clusters
    labels = np.array(["no", "yes"])[(y > 0).astype(int)]
    model = MODELS[kind](loss=loss, classes=["no", "yes"], epsilon=100.0).fit(X, labels)
    assert (model.coef_.shape, model.intercept_.shape) == ((1, 5), (1,))
    scores = model.decision_function(X)
    assert scores.shape == (90,)
    np.testing.assert_array_equal(model.predict(X) == "yes", scores > 0)
    assert model.score(X, labels) > 0.9
    # Losses over pairs of classes have a score for each of two.
    pairs = loss in ("m3", "huber_ww", "crammer_singer")
    assert shape_of_noise(model) == (2 if pairs else 1, 6)


RECIPES: list[tuple[str, dict[str, Any]]] = [
    *(("objective", {"noise": noise}) for noise in ("gaussian", "gamma")),
    *(("gradient", {"optimizer": optimizer}) for optimizer in ("gd", "sgd", "adam")),
]


@pytest.mark.sampled(times=2)
@pytest.mark.parametrize("loss", SMOOTH_LOSSES)
@pytest.mark.parametrize(("kind", "settings"), RECIPES)
@pytest.mark.parametrize("form", [np.asarray, np.float32, sparse.csr_matrix])
def test_every_loss_learns_and_its_certificate_holds(
    loss: str, kind: str, settings: dict[str, Any], form: Any, clusters: TrainingSet
) -> None:
    X, y = clusters
    model = MODELS[kind](100.0, classes=range(3), loss=loss, **settings).fit(form(X), y)
    assert model.score(form(X), y) > 0.9
    assert (model.coef_.shape, model.intercept_.shape) == ((3, 5), (3,))
    statement = model.privacy_
    assert verify(statement).ok
    delta = 0.0 if settings.get("noise") == "gamma" else 1e-6
    assert (statement.epsilon, statement.delta, statement.loss) == (100.0, delta, loss)
    assert sum(e.epsilon for e in statement.events if hasattr(e, "epsilon")) <= 100.0


PLAIN: list[tuple[str, dict[str, Any]]] = [
    ("objective", {"data_norm": 2.0, "extra_regularization": 0.0}),
    # C is scikit-learn's, also where rows are divided by another norm.
    ("gradient", {"data_norm": 2.0, "learning_rate": 0.05}),
    ("gradient", {"data_norm": 4.0, "learning_rate": 0.2, "momentum": 0.5}),
]


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize(("kind", "settings"), PLAIN)
def test_with_a_huge_budget_it_is_logistic_regression(
    kind: str, settings: dict[str, Any], n_classes: int, clusters: TrainingSet
) -> None:
    X, y = clusters[0], np.minimum(clusters[1], n_classes - 1)
    plain = LogisticRegression(C=0.5, fit_intercept=False, tol=1e-10, max_iter=1000).fit(X, y)
    settings = settings | {"loss": "softmax_margin", "smoothing": 1.0, "margin": 0.0, "C": 0.5}
    if kind == "gradient":
        settings |= {"n_steps": 2000, "max_grad_norm": 1.5}
    model = MODELS[kind](1e4, classes=range(n_classes), fit_intercept=False, **settings).fit(X, y)
    allowed = 0.1 * np.abs(plain.coef_).max()
    if kind == "objective":
        noise = model.privacy_.objective.sigma / model.privacy_.objective.regularization
        # Negative control: the noise is small beside the weights.
        assert 6.0 * noise < 2.0 * allowed
        allowed = 6.0 * noise + 1e-4
    assert np.abs(model.coef_ - plain.coef_).max() <= allowed


@pytest.mark.parametrize("kind", MODELS)
def test_without_an_intercept(kind: str, clusters: TrainingSet) -> None:
    model = MODELS[kind](classes=range(3), fit_intercept=False).fit(*clusters)
    np.testing.assert_array_equal(model.intercept_, np.zeros(3))
    assert shape_of_noise(model) == (3, 5)


LEARNT: list[tuple[str, float, dict[str, Any], float]] = [
    ("objective", 8.0, {}, 0.88),
    ("objective", 1.0, {}, 0.70),
    ("objective", 8.0, {"loss": "huber"}, 0.80),
    ("objective", 8.0, {"adjacency": "replace_one"}, 0.82),
    ("gradient", 8.0, {}, 0.92),
    ("gradient", 8.0, {"optimizer": "adam", "noise_correction": True}, 0.90),
    ("gradient", 8.0, {"loss": "huber", "momentum": 0.9, "nesterov": True}, 0.90),
]
BY_NIGHT: list[tuple[str, float, dict[str, Any], float]] = [
    ("gradient", 1.0, {}, 0.83),
    ("gradient", 1.0, {"max_samples": 1400}, 0.83),
    ("gradient", 8.0, {"optimizer": "sgd"}, 0.91),
    ("gradient", 8.0, {"optimizer": "adam"}, 0.91),
    ("gradient", 8.0, {"loss": "m3"}, 0.92),
    ("gradient", 8.0, {"adjacency": "replace_one", "schedule": "linear"}, 0.90),
]


@pytest.mark.parametrize(
    ("kind", "epsilon", "settings", "least"),
    [*LEARNT, *(pytest.param(*one, marks=pytest.mark.slow) for one in BY_NIGHT)],
)
def test_digits(kind: str, epsilon: float, settings: dict[str, Any], least: float) -> None:
    """Test accuracy of one split, with room of several standard errors for the noise."""
    X, y = load_digits(return_X_y=True)
    X = normalize(X)
    train = np.arange(y.size) % 4 > 0
    model = MODELS[kind](epsilon, classes=range(10), **settings).fit(X[train], y[train])
    assert model.score(X[~train], y[~train]) > least
