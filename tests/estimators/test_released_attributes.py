"""Nothing leaves a fit without noise: every attribute is listed, every array moves with the noise.

The budget is tiny here, so the noise is many times larger than any weight: an array that kept a
trace of the un-noised weights would not decorrelate between two noise seeds.
"""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from dpsvm_fast import PrivacyStatement
from oracles.odd_inputs import ESTIMATORS, every_estimator

TrainingSet = tuple[NDArray[np.float64], NDArray[np.int64]]
pytestmark = [
    pytest.mark.filterwarnings("ignore::dpsvm_fast.NotPrivateWarning"),
    pytest.mark.proof("output_perturbation", "The whole release, and what may leave with it"),
]

ALPHA = 1e-6
# Why each may be released: noisy weights, or public facts.
RELEASED = {
    "coef_": "noisy",
    "intercept_": "noisy",
    "classes_": "the public label set",
    "n_features_in_": "public",
    "feature_names_in_": "public",
    "privacy_": "public numbers only",
    "_fitted_loss": "public: name, smoothing, margin and the number of classes",
}


def fitted(data: TrainingSet, seed: int, kind: str = "output", **changes: Any) -> Any:
    settings = {"epsilon": 0.01, "classes": [0, 1, 2], "n_threads": 1, "random_state": seed}
    return ESTIMATORS[kind](**(settings | changes)).fit(*data)


def arrays_in(value: Any, path: str, found: dict[str, NDArray[Any]]) -> None:
    """Collects every numeric array reachable from a fitted object."""
    if isinstance(value, np.ndarray):
        found[path] = value
    elif isinstance(value, dict):
        for name, item in value.items():
            arrays_in(item, f"{path}.{name}", found)
    elif isinstance(value, (list, tuple)):
        for number, item in enumerate(value):
            arrays_in(item, f"{path}[{number}]", found)
    elif hasattr(value, "__dict__"):
        arrays_in(vars(value), path, found)


@every_estimator
@pytest.mark.parametrize("noise", ["gaussian", "gamma"])
def test_only_listed_attributes_are_set(clusters: TrainingSet, noise: str, estimator: str) -> None:
    model = fitted(clusters, 0, estimator, noise=noise)
    parameters = set(model.get_params())
    assert set(vars(model)) - parameters <= set(RELEASED)


@every_estimator
def test_statement_does_not_depend_on_the_data(clusters: TrainingSet, estimator: str) -> None:
    X, y = clusters
    here = fitted((X, y), 0, estimator).privacy_
    there = fitted((X[:7] * 100, y[:7]), 0, estimator).privacy_
    assert isinstance(here, PrivacyStatement)
    assert here.to_json() == there.to_json()


@every_estimator
@pytest.mark.parametrize("noise", ["gaussian", "gamma"])
@pytest.mark.parametrize("noise_grid", ["exact", "float"])
def test_every_array_moves_with_the_noise(
    clusters: TrainingSet, noise: str, noise_grid: str, estimator: str
) -> None:
    found: list[dict[str, NDArray[Any]]] = [{}, {}]
    for seed in (0, 1):
        model = fitted(clusters, seed, estimator, noise=noise, noise_grid=noise_grid)
        arrays_in(pickle.loads(pickle.dumps(model)), "", found[seed])
    assert set(found[0]) == {".coef_", ".intercept_", ".classes_"}
    for name in (".coef_", ".intercept_"):
        assert (found[0][name] != found[1][name]).all()


@every_estimator
def test_pickle_holds_no_plain_weights(clusters: TrainingSet, estimator: str) -> None:
    """With a huge budget the weights are nearly plain; their bytes must not sit in a noisy fit."""
    X = clusters[0]
    model = fitted(clusters, 0, estimator)
    blob = pickle.dumps(model)
    plain = fitted(clusters, 0, estimator, epsilon=1e4, C=model.privacy_.sensitivity.C).coef_
    for row in (*plain, *X):
        # Eight bytes of a double: the leading four already tell the value.
        assert not any(value.tobytes()[4:] in blob for value in row if value != 0.0)


@pytest.mark.statistical
@pytest.mark.parametrize("noise_grid", ["exact", "float"])
@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
def test_with_zero_rows_the_release_is_the_noise(noise_grid: str, adjacency: str) -> None:
    """All rows 0 and no intercept: the minimiser is 0, so the release must have the noise's law."""
    n_features, classes = 4000, [0, 1, 2]
    X, y = np.zeros((6, n_features)), np.array([0, 1, 2, 0, 1, 2])
    changes = {"noise_grid": noise_grid, "adjacency": adjacency, "fit_intercept": False, "C": 0.3}
    estimator = fitted((X, y), 5, "output", classes=classes, epsilon=1.0, **changes)
    # Computed afresh: sigma / Delta of (1, 1e-6) is 4.2246788893 (Balle and Wang 2018).
    factor = 2.0 if adjacency == "replace_one" else 1.0
    sigma = 4.2246788893 * factor * np.sqrt(2.0) * 0.3 * 1.002
    weights = estimator.coef_.ravel()
    low, high = stats.chi2.ppf([ALPHA / 2, 1 - ALPHA / 2], df=weights.size)
    assert low <= ((weights / sigma) ** 2).sum() <= high
    for wrong in (np.sqrt(2.0), np.sqrt(0.5)):
        assert not low <= ((weights / (wrong * sigma)) ** 2).sum() <= high


@pytest.mark.statistical
def test_with_zero_rows_the_gamma_release_is_the_noise() -> None:
    """Radius of p weights: Gamma(p, total / epsilon); its law is sharp for many weights."""
    n_weights = 3 * 4000
    X, y = np.zeros((6, 4000)), np.array([0, 1, 2, 0, 1, 2])
    changes = {"noise": "gamma", "fit_intercept": False, "C": 0.3, "epsilon": 1.0}
    weights = fitted((X, y), 5, **changes).coef_
    scaled = np.linalg.norm(weights) / (np.sqrt(2.0) * 0.3 * 1.002)
    low, high = stats.gamma.ppf([ALPHA / 2, 1 - ALPHA / 2], n_weights)
    assert low <= scaled <= high
    for wrong in (np.sqrt(2.0), np.sqrt(0.5)):
        assert not low <= wrong * scaled <= high
