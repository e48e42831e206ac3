"""What estimators with linear scores have in common: shapes, intercepts, what they learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.preprocessing import normalize

from dpsvm_fast import GradientPerturbationSVC, ObjectivePerturbationSVC, OutputPerturbationSVC
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
