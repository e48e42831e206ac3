"""Attacks on fits over partitions: batches that can be predicted, noise that can be removed.

Rows are unit vectors, one for each record of a partition, so that an un-noised sum of gradients
shows which records were in the batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from dpsvm_fast import GradientPerturbationSVC
from dpsvm_fast.data import Partitions, fit
from dpsvm_fast.data import executors as operations

FALSE_ALARM = 1e-6
N_ROWS, N_STEPS, RATE = 600, 4, 0.5
Batches = dict[tuple[int, int], NDArray[np.bool_]]


def loader() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    return np.eye(N_ROWS), np.zeros(N_ROWS, dtype=np.int64)


def estimator(**changes: Any) -> GradientPerturbationSVC:
    given: dict[str, Any] = {
        "epsilon": 2.0,
        "delta": 1e-5,
        "classes": [0, 1],
        "sampling_rate": RATE,
        "n_steps": N_STEPS,
        "optimizer": "sgd",
        "fit_intercept": False,
        "learning_rate": 1e-6,
        "adjacency": "replace_one",
    }
    return GradientPerturbationSVC(**(given | changes))


class Spy:
    """Keeps the un-noised sums of all tasks, which only their owner may see."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sums: dict[tuple[int, int], NDArray[np.int64]] = {}
        real = operations.DescentStep.parts
        spy = self

        def parts(self: Any, rows: Any, partition: int, n_threads: int) -> Any:
            found = real(self, rows, partition, n_threads)
            spy.sums[partition, self.step] = found[0]
            assert np.array_equal(real(self, rows, partition, n_threads)[0], found[0])
            return found

        monkeypatch.setattr(operations.DescentStep, "parts", parts)

    def batches(self) -> Batches:
        return {key: (total != 0).any(axis=(0, 1)) for key, total in self.sums.items()}


def run(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> tuple[Batches, NDArray[np.float64]]:
    spy = Spy(monkeypatch)
    parts = Partitions.from_loaders([loader] * 3, n_features=N_ROWS, n_rows=3 * N_ROWS)
    model = fit(estimator(**changes), parts, resident=True)
    return spy.batches(), np.asarray(model.coef_)


def agreement(one: NDArray[np.bool_], other: NDArray[np.bool_]) -> float:
    """Standardised number of records on which two batches agree."""
    return float(abs(int((one == other).sum()) - N_ROWS / 2) / (0.5 * N_ROWS**0.5))


def test_batches_of_partitions_steps_and_fits_are_independent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every task is run twice by the spy: it has the same batch again."""
    first, _ = run(monkeypatch)
    second, _ = run(monkeypatch)
    assert len(first) == 3 * N_STEPS
    every = [*first.values(), *second.values()]
    n_pairs = len(every) * (len(every) - 1) // 2
    limit = stats.norm.isf(FALSE_ALARM / (2 * (n_pairs + len(every)))) * 1.02
    for i, one in enumerate(every):
        assert abs(float(one.sum()) - RATE * N_ROWS) / (0.5 * N_ROWS**0.5) < limit
        for other in every[i + 1 :]:
            assert agreement(one, other) < limit
    assert agreement(every[0], every[0]) > limit  # control


def test_the_noise_is_not_a_function_of_the_batches_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers know the key of the batches: what is released must not follow from it."""
    keys: list[bytes] = []
    real = operations.DescentStep.parts

    def parts(self: Any, rows: Any, partition: int, n_threads: int) -> Any:
        keys.append(self.key)
        return real(self, rows, partition, n_threads)

    monkeypatch.setattr(operations.DescentStep, "parts", parts)
    partitions = Partitions.from_loaders([loader], n_features=N_ROWS, n_rows=N_ROWS)
    released = [fit(estimator(), partitions).coef_ for _ in range(2)]
    assert len(set(keys)) == 2
    assert len(set(map(len, keys))) == 1
    assert np.abs(released[0] - released[1]).min() > 0


@pytest.mark.filterwarnings("ignore::dpsvm_fast.exceptions.NotPrivateWarning")
def test_noise_is_added_once_however_the_rows_are_cut() -> None:
    """Full batches and one seed: the same noise for one partition and for six."""
    X, y = loader()
    found = [
        fit(
            estimator(sampling_rate=1.0, random_state=5),
            Partitions.from_arrays(X, y, rows_per_partition=rows),
        ).coef_
        for rows in (N_ROWS, N_ROWS // 6)
    ]
    assert np.array_equal(found[0], found[1])
    other = fit(estimator(sampling_rate=1.0, random_state=6), Partitions.from_arrays(X, y)).coef_
    assert not np.array_equal(found[0], other)


def test_a_fitted_model_has_the_attributes_of_one_that_was_fitted_here() -> None:
    X, y = loader()
    here = estimator().fit(X, y)
    there = fit(estimator(), Partitions.from_arrays(X, y, rows_per_partition=100))
    assert set(vars(there)) == set(vars(here))
