"""Noise of parties: its size in a released sum, and that no two draws have anything in common.

Rows of zeros contribute zeros, so what comes out is the noise. Each test fails by chance once in a
million runs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from dpsvm_fast import _core
from dpsvm_fast.federated import local_update, simulate
from dpsvm_fast.federated.classifier import party_sources
from dpsvm_fast.federated.local import checked_records, contributions
from oracles.parties import helmet

FALSE_ALARM = 1e-6
USERS, FEATURES, ROWS = 5, 4000, 2
SPEC = helmet(
    n_users=USERS,
    n_features=FEATURES,
    max_records=ROWS,
    honest_fraction=0.8,
    max_dropout=0.2,
    intercept_scaling=0.0,
    n_epochs=1,
)
NOTHING = (np.zeros((ROWS, FEATURES)), np.arange(ROWS))


def bounds(variance: float) -> tuple[float, float]:
    """Of the mean square of so many draws; a discrete Gaussian this wide has a normal's moments."""
    low, high = stats.chi2.interval(1 - FALSE_ALARM, FEATURES)
    return variance * low / FEATURES, variance * high / FEATURES


def released(gone: Sequence[int]) -> float:
    """Mean square of the noise in the sum of weights, in squared steps."""
    model = simulate(SPEC, [NOTHING] * USERS, dropouts=gone)
    noise = SPEC.rounds[0].noise
    assert model.n_records_ == ROWS * (USERS - len(gone))
    steps = model.coef_ * model.n_records_ / noise.step
    return float(np.mean(steps**2))


@pytest.mark.proof("federated", "The library")
@pytest.mark.parametrize("gone", [(), (3,)])
def test_a_sum_has_the_noise_of_all_who_are_in_it(gone: tuple[int, ...]) -> None:
    noise = SPEC.rounds[0].noise
    left = USERS - len(gone)
    low, high = bounds(left * float(noise.sigma_steps) ** 2)
    found = released(gone)
    assert low <= found <= high
    # Controls: one noise more or fewer would be noticed.
    for wrong in (left - 1, left + 1):
        low, high = bounds(wrong * float(noise.sigma_steps) ** 2)
        assert not low <= found <= high


@pytest.mark.proof("federated", "The library")
def test_the_noise_of_the_honest_is_what_the_statement_says() -> None:
    """Without the noise of the colluder and with one party gone: h of them, and r^2 to spare."""
    noise = SPEC.rounds[0].noise
    assert noise.honest_survivors == USERS - 2
    found = released((4,)) * noise.honest_survivors / (USERS - 1) * noise.step**2
    low, high = bounds(noise.sigma**2)
    assert low <= found <= high


def vectors(sources: Sequence[_core.NoiseSource]) -> list[NDArray[np.float64]]:
    records = [checked_records(*NOTHING, SPEC)] * len(sources)
    made = contributions(SPEC, "model", records, None, list(sources), 1)
    return [np.asarray(vector[:-2], dtype=np.float64) for vector in made]


def largest_correlation(rows: list[NDArray[np.float64]]) -> float:
    found = np.abs(np.asarray(np.corrcoef(rows)))
    return float((found - np.eye(len(rows))).max())


@pytest.mark.proof("federated", "The library")
@pytest.mark.parametrize("seed", [None, 7])
@pytest.mark.filterwarnings("ignore::dpsvm_fast.exceptions.NotPrivateWarning")
def test_no_two_vectors_share_noise(seed: int | None) -> None:
    sources = party_sources(USERS, seed)
    rows = vectors(sources) + vectors(sources) + vectors(party_sources(USERS, None))
    pairs = len(rows) * (len(rows) - 1) / 2
    limit = stats.norm.isf(FALSE_ALARM / (2 * pairs)) / FEATURES**0.5 * 1.05
    assert largest_correlation(rows) < limit
    # Control: parties with one seed have one noise.
    same = [_core.NoiseSource(3), _core.NoiseSource(3)]
    assert largest_correlation(vectors(same)) > 0.99


def test_two_updates_of_a_party_without_a_state_have_noise_of_their_own() -> None:
    X, y = NOTHING
    rows = [local_update(X, y, SPEC, "model").vector[:-2].astype(float) for _ in range(2)]
    limit = stats.norm.isf(FALSE_ALARM / 2) / FEATURES**0.5 * 1.05
    assert largest_correlation(rows) < limit
