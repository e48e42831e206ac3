"""Every class has noise of its own: one draw shared by the scores hides no difference of scores."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from dpsvm_fast import (
    GradientPerturbationSVC,
    ObjectivePerturbationSVC,
    OutputPerturbationSVC,
    PrivateLinearSVC,
)

pytestmark = [
    pytest.mark.statistical,
    pytest.mark.filterwarnings("ignore::dpsvm_fast.NotPrivateWarning"),
]

N_FEATURES = 3000
# Of one test, over its three pairs of classes.
ALPHA = 1e-6
CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "output": (OutputPerturbationSVC, {}),
    "output in floats": (OutputPerturbationSVC, {"noise_grid": "float"}),
    "output, pure": (OutputPerturbationSVC, {"noise": "gamma"}),
    "objective": (ObjectivePerturbationSVC, {}),
    "objective in floats": (ObjectivePerturbationSVC, {"noise_grid": "float"}),
    "objective, pure": (ObjectivePerturbationSVC, {"noise": "gamma"}),
    "gradient": (GradientPerturbationSVC, {"n_steps": 3}),
    "pipeline": (PrivateLinearSVC, {"whiten": False}),
}


def independent(weights: NDArray[np.float64]) -> bool:
    """Whether no two rows of noise are correlated.

    Of independent directions in p dimensions, (1 + r) / 2 with the cosine r is
    Beta((p - 1) / 2, (p - 1) / 2), whatever their lengths.
    """
    pairs = list(itertools.combinations(weights, 2))
    shape = 0.5 * (weights.shape[1] - 1)
    largest = 1.0 - 2.0 * float(stats.beta.ppf(0.5 * ALPHA / len(pairs), shape, shape))
    cosines = [float(a @ b) / math.sqrt(float(a @ a) * float(b @ b)) for a, b in pairs]
    return max(map(abs, cosines)) <= largest


@pytest.mark.parametrize("name", CASES)
def test_the_noise_of_one_class_says_nothing_about_that_of_another(name: str) -> None:
    kind, options = CASES[name]
    X, y = np.zeros((6, N_FEATURES)), np.arange(6) % 3
    settings = {"classes": range(3), "fit_intercept": False, "random_state": 4} | options
    weights = kind(epsilon=0.5, **settings).fit(X, y).coef_
    assert weights.shape == (3, N_FEATURES)
    assert independent(weights)
    # One draw for all classes, or for two of them, is found.
    assert not independent(np.tile(weights[0], (3, 1)))
    assert not independent(weights[[0, 1, 0]])
