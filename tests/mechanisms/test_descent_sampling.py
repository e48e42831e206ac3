"""Who joins a step of private descent: every record by itself, with the declared probability.

With one-hot records and no noise a step's sum shows who was in it. Every check is shown to reject
the samplers that are often used in its place.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from oracles.noisy_checks import (
    ALPHA,
    batches,
    consecutive_hold,
    marginals_hold,
    pairs_hold,
    poisson_holds,
    sizes_hold,
    step_noise,
)

pytestmark = pytest.mark.statistical

Array = NDArray[Any]
N, STEPS = 40, 6000


@pytest.mark.proof("gradient_perturbation", "Noise, sampling, whole runs")
@pytest.mark.parametrize("rate", [0.01, 0.1, 0.37, 0.9, 0.97])
def test_batches_are_poisson_samples(rate: float) -> None:
    joined = batches(N, STEPS, rate)
    assert poisson_holds(joined, rate)
    # Negative control: a rate a fifth off in its odds.
    wrong = rate * 1.2 / (1.0 - rate + rate * 1.2)
    assert not poisson_holds(joined, wrong)


@pytest.mark.parametrize("n_samples", [1, 2, 500])
def test_numbers_of_records_do_not_matter(n_samples: int) -> None:
    joined = batches(n_samples, STEPS, 0.2)
    assert marginals_hold(joined, 0.2)
    assert sizes_hold(joined, 0.2)


@pytest.mark.nightly
@pytest.mark.parametrize("rate", [0.001, 0.02, 0.1, 0.5, 0.97])
def test_many_batches_are_poisson_samples(rate: float) -> None:
    assert poisson_holds(batches(60, 300_000, rate), rate)


def test_empty_batches_are_as_frequent_as_they_should_be() -> None:
    """(1 - q)^n of the steps; none of them is drawn again."""
    n, rate = 5, 0.1
    empty = int((~batches(n, STEPS, rate).any(axis=1)).sum())
    p = (1.0 - rate) ** n
    low, high = stats.binom.ppf([ALPHA / 2, 1.0 - ALPHA / 2], STEPS, p)
    assert low <= empty <= high


@pytest.mark.proof("gradient_perturbation", "Noise, sampling, whole runs")
def test_empty_batches_are_noised() -> None:
    noise = step_noise(200, 50, sigma=1.0, grid=2.0**-20, sampling_rate=1e-12)
    assert (noise != 0.0).mean() > 0.99
    total = float((noise**2).sum())
    low, high = stats.chi2.ppf([ALPHA / 2, 1.0 - ALPHA / 2], df=noise.size)
    assert low <= total <= high


def test_everyone_joins_at_rate_one() -> None:
    assert batches(N, 50, 1.0).all()


def test_seeds_give_different_batches() -> None:
    first, second = (batches(N, 200, 0.5, seed=seed) for seed in (1, 2))
    together = float((first == second).mean())
    assert 0.45 <= together <= 0.55


def rounds(size: int) -> Array:
    """Shuffled once a pass and cut into batches of one size."""
    rng = np.random.default_rng(0)
    joined = np.zeros((STEPS, N), dtype=bool)
    a_pass = N // size
    for start in range(0, STEPS, a_pass):
        places = rng.permutation(N).reshape(a_pass, size)
        joined[np.arange(start, start + a_pass)[:, None], places] = True
    return joined


def fixed_size(size: int) -> Array:
    """Drawn anew in every step, without replacement."""
    rng = np.random.default_rng(0)
    order = rng.random((STEPS, N)).argsort(axis=1)
    return np.asarray(order < size)


def redrawn(rate: float) -> Array:
    """Poisson samples, drawn again while empty."""
    rng = np.random.default_rng(0)
    joined = rng.random((2 * STEPS, N)) < rate
    return np.asarray(joined[joined.any(axis=1)][:STEPS])


def clustered(rate: float) -> Array:
    """Neighbouring records join together."""
    rng = np.random.default_rng(0)
    return np.repeat(rng.random((STEPS, N // 2)) < rate, 2, axis=1)


@pytest.mark.proof("gradient_perturbation", "Noise, sampling, whole runs")
def test_other_samplers_are_rejected() -> None:
    rng = np.random.default_rng(0)
    assert poisson_holds(rng.random((STEPS, N)) < 0.1, 0.1)
    assert not sizes_hold(fixed_size(4), 0.1)
    assert marginals_hold(fixed_size(4), 0.1)
    assert not sizes_hold(rounds(4), 0.1)
    assert not consecutive_hold(rounds(4), 0.1)
    assert not sizes_hold(redrawn(0.02), 0.02)
    assert not pairs_hold(clustered(0.1), 0.1)
    # A class that is drawn more often, as by a sampler that balances classes.
    rates = np.where(np.arange(N) < 4, 0.15, 0.1)
    assert not marginals_hold(rng.random((STEPS, N)) < rates, 0.1)
    sticky = np.repeat(rng.random((STEPS // 2, N)) < 0.1, 2, axis=0)
    assert not consecutive_hold(sticky, 0.1)
