"""The noise in released models of GradientPerturbationSVC, where nothing else is in them.

Seeds are fixed, the false-alarm rate is ALPHA = 1e-6: a sum of squares of m standard normals lies
between the ALPHA/2 and 1 - ALPHA/2 quantiles of chi-square with m degrees of freedom. Each test has
a negative control.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from dpsvm_fast import GradientPerturbationSVC

ALPHA = 1e-6
seeded = pytest.mark.filterwarnings("ignore::dpsvm_fast.NotPrivateWarning")


def model(**changes: Any) -> GradientPerturbationSVC:
    return GradientPerturbationSVC(**({"classes": [0, 1, 2], "n_threads": 1} | changes))


@seeded
@pytest.mark.parametrize("noise_grid", ["exact", "float"])
@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
@pytest.mark.parametrize("optimizer", ["gd", "sgd"])
def test_with_zero_rows_the_release_is_the_noise(
    optimizer: str, adjacency: str, noise_grid: str
) -> None:
    """Each of T steps adds its noise times the learning rate: a sum of T normal deviates."""
    X, y = np.zeros((6, 4000)), np.arange(6) % 3
    steps, rate = 20, 0.01
    settings: dict[str, Any] = {"optimizer": optimizer, "adjacency": adjacency, "random_state": 7}
    if optimizer == "sgd":
        settings["sampling_rate"] = 0.5
    estimator = model(
        **settings, n_steps=steps, learning_rate=rate, expected_batch_size=3.0, average=0.0,
        max_grad_norm=1.0, fit_intercept=False, noise_grid=noise_grid,
    ).fit(X, y)  # fmt: skip
    (part,) = estimator.privacy_.parts
    scale = rate / 3.0 * part.sigma * np.sqrt(steps)
    low, high = stats.chi2.ppf([ALPHA / 2, 1 - ALPHA / 2], df=12_000)
    squares = float((estimator.coef_**2).sum())
    assert low <= squares / scale**2 <= high
    for wrong in (np.sqrt(2.0), np.sqrt(0.5)):
        assert not low <= squares / (wrong * scale) ** 2 <= high
    if optimizer == "gd":
        # Computed afresh: sigma over the sensitivity at (1, 1e-6) is 4.2246788893.
        factor = 2.0 if adjacency == "replace_one" else 1.0
        expected = 4.2246788893 * factor * np.sqrt(20.0)
        assert expected <= part.sigma <= 1.002 * expected


@seeded
def test_the_noise_of_a_step_is_not_that_of_the_one_before() -> None:
    """The sum over T steps of one deviate would be sqrt(T) times as large; of none, 0."""
    X, y = np.zeros((6, 4000)), np.arange(6) % 3
    common: dict[str, Any] = {
        "random_state": 3, "learning_rate": 1.0, "average": 0.0, "fit_intercept": False,
        "max_grad_norm": 1.0, "epsilon": 5.0,
    }  # fmt: skip
    one, two = (model(n_steps=T, **common).fit(X, y) for T in (1, 2))
    scales = [e.privacy_.parts[0].sigma for e in (one, two)]
    first = one.coef_.ravel() / scales[0]
    both = two.coef_.ravel() / scales[1]
    correlation = np.corrcoef(first, both - first)[0, 1]
    # Independent: normal with deviation 1 / sqrt(m).
    assert abs(correlation) * np.sqrt(first.size) < stats.norm.isf(ALPHA / 2)
    assert np.corrcoef(first, both)[0, 1] > 0.6
