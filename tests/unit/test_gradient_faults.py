"""Faults during a fit of GradientPerturbationSVC, and what a fitted one holds.

Whatever happens, the budget counts as spent once the first step may have been taken, nothing
half-fitted is left, and the next fit works with new noise.
"""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsvm_fast import GradientPerturbationSVC, PrivacyLedger
from unit.test_released_attributes import RELEASED, arrays_in

seeded = pytest.mark.filterwarnings("ignore::dpsvm_fast.NotPrivateWarning")
OPTIMIZERS = ("gd", "sgd", "adam")
TrainingSet = tuple[NDArray[np.float64], NDArray[np.int64]]


def model(**settings: Any) -> GradientPerturbationSVC:
    return GradientPerturbationSVC(**({"classes": range(3), "n_threads": 2} | settings))


def test_many_calls_on_one_estimator_at_once(clusters: TrainingSet) -> None:
    """Calls may overtake each other; every state that is left is a whole one."""
    ledger = PrivacyLedger(epsilon=100.0, delta=1e-4)
    one = model(ledger=ledger, n_steps=5)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: one.partial_fit(*clusters), range(24)))
    assert len(ledger.history) == 24
    assert np.isfinite(one.coef_).all()
    assert len(one.privacy_.parts) == vars(one)["_continuation"].n_calls
    one.partial_fit(*clusters)


@seeded
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("noise_grid", ["exact", "float"])
def test_everything_that_is_kept_moves_with_the_noise(
    optimizer: str, noise_grid: str, clusters: TrainingSet
) -> None:
    """A tiny budget: an array with a trace of sums without noise would not change."""
    found: list[dict[str, NDArray[Any]]] = [{}, {}]
    for seed in (0, 1):
        estimator = model(
            epsilon=0.01, random_state=seed, optimizer=optimizer, noise_grid=noise_grid
        ).fit(*clusters)
        parameters = set(estimator.get_params())
        assert set(vars(estimator)) - parameters <= {*RELEASED, "_continuation"}
        arrays_in(pickle.loads(pickle.dumps(estimator)), "", found[seed])
    # Labels are public, and moments that are not in use are empty or 0.
    names = {name for name in found[0] if found[0][name].dtype.kind == "f" and found[0][name].any()}
    assert {".coef_", ".intercept_"} < names
    assert any("_continuation" in name for name in names)
    for name in names:
        assert (found[0][name] != found[1][name]).all(), name


@seeded
def test_equal_data_give_equal_continuations(clusters: TrainingSet) -> None:
    """Negative control of the test above: with one seed the whole pickle is the same."""
    first, second = (model(random_state=5, n_threads=n).fit(*clusters) for n in (1, 1))
    assert pickle.dumps(vars(first)["_continuation"]) == pickle.dumps(vars(second)["_continuation"])
