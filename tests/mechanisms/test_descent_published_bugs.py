"""Privacy bugs that other libraries of private gradient descent had, each as a test.

They are listed in the order in which a step goes wrong: who is in the batch, what a record
contributes, what the noise is added to, by what it is divided.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse, stats

from dpsvm_fast import _core
from oracles.audit import ALPHA
from oracles.noisy_checks import (
    batches,
    marginals_hold,
    moves_within_bound,
    noise_is_blind_to_the_data,
    sizes_hold,
)
from oracles.noisy_descent import (
    STEEP,
    TWIN,
    clipped_sum,
    distance_bound,
    kernel,
    records_of,
    run,
    zero_rows,
)

Array = NDArray[Any]
SIGMA, GRID = 2.0, 2.0**-20


def noise_of(n_samples: int, **changes: Any) -> Array:
    """One released step over records without gradients."""
    options: dict[str, Any] = {"sigma": SIGMA, "grid": GRID, "seed": 3} | changes
    return np.asarray(run(zero_rows(n_samples, 500), 1, **options).weights().ravel())


@pytest.mark.proof("gradient_perturbation", "Noise, sampling, whole runs")
@pytest.mark.parametrize("rate", [1.0, 0.25, 1e-9])
def test_the_noise_is_divided_by_the_declared_number_and_by_nothing_else(rate: float) -> None:
    """A batch-size factor: noise on the mean scaled as if on the sum, or the other way round."""
    for divisor in (1.0, 50.0, 1e4):
        for n_samples in (1, 400):
            noise = noise_of(n_samples, divisor=divisor, sampling_rate=rate) * divisor / SIGMA
            low, high = stats.chi2.ppf([ALPHA / 2, 1.0 - ALPHA / 2], df=noise.size)
            assert low <= float((noise**2).sum()) <= high
    assert noise_is_blind_to_the_data()


def test_the_contributions_are_divided_by_the_declared_number_and_by_nothing_else() -> None:
    """Dividing by the batch's own size makes every record's share depend on the others."""
    canary = np.array([[1.0, 0.0]])
    for n_zeros in (0, 1, 500):
        X = np.vstack([canary, np.zeros((n_zeros, 2))])
        records = records_of(X, np.ones(n_zeros + 1))
        for divisor in (1.0, 8.0):
            moved = run(records, 1, divisor=divisor, clip=0.5, **STEEP).weights()
            assert moved[0, 0] == pytest.approx(0.5 / divisor, rel=1e-3)


def test_shuffled_passes_are_not_what_is_accounted_as_poisson_sampling() -> None:
    """Over ten steps at rate 0.1 a record joins Binomial(10, 0.1) times, not once."""
    joined = batches(20, 3000, 0.1)
    times = joined.reshape(300, 10, 20).sum(axis=1).ravel()
    expected = stats.binom.pmf(np.arange(4), 10, 0.1)
    seen = np.bincount(np.minimum(times, 3), minlength=4)
    expected[3] = 1.0 - expected[:3].sum()
    statistic = float(((seen - times.size * expected) ** 2 / (times.size * expected)).sum())
    assert statistic <= float(stats.chi2.isf(ALPHA, 3))
    # Batches differ in size too.
    assert len(np.unique(joined.sum(axis=1))) > 3


@pytest.mark.proof("gradient_perturbation", "Noise, sampling, whole runs")
def test_an_empty_batch_is_a_step_like_any_other() -> None:
    """It neither fails nor is drawn again; noise, schedule, moments and means go on."""
    rate = 1e-12
    for optimizer in ("gd", "adam"):
        options: dict[str, Any] = {"optimizer": optimizer, "sampling_rate": rate, "seed": 1}
        quiet = run(zero_rows(3, 4), 5, **options).weights()
        assert (quiet == 0.0).all()
        noisy = [run(zero_rows(3, 4), t, sigma=1.0, **options).weights() for t in (1, 2, 3)]
        assert all((a != b).all() for a, b in itertools.pairwise(noisy))
    # The rate 1 / (t + 1) goes on falling: a record at step 10 moves W by a tenth.
    schedule = {"schedule": "inverse", "seed": 1}
    empty = run(zero_rows(3, 1), 9, sampling_rate=rate, **schedule)
    records = records_of(np.ones((1, 1)), [1])
    later = run(records, 1, state=empty.state(), **schedule).weights()
    assert later[0, 0] == pytest.approx(0.1, rel=1e-3)
    # Momentum too: what was fast stays so.
    fast = run(records, 1, momentum=0.5)
    slow = run(records, 2, momentum=0.5, sampling_rate=rate, state=fast.state(), seed=2)
    assert slow.weights()[0, 0] == pytest.approx(1.75, rel=1e-3)


def test_a_set_without_records_is_noised() -> None:
    records = records_of(np.zeros((0, 3)), np.zeros(0))
    for rate in (1.0, 0.5):
        assert (run(records, 2, sigma=1.0, sampling_rate=rate).weights() != 0.0).all()


@pytest.mark.parametrize("precision", ["f32", "f64"])
def test_nothing_but_the_declared_rate_decides_who_joins(precision: str) -> None:
    """Class weights, thread counts, clips or the number of records must not change the rate."""
    for changes in ({}, {"divisor": 7.0, "learning_rate": 7.0}, {"clip": 100.0}):
        joined = batches(50, 2000, 0.3, precision=precision, **changes)
        assert marginals_hold(joined, 0.3)
        assert sizes_hold(joined, 0.3)
    # One record of a rare class, beside many of another.
    rows = np.eye(30)
    labels = (np.arange(30) == 0).astype(np.int64)
    descent = run(records_of(rows, labels), 1, sampling_rate=0.3)
    source, path = _core.NoiseSource(5), [descent.weights()[0]]
    for _ in range(2000):
        descent.run(records_of(rows, labels), source, 1, 2)
        path.append(descent.weights()[0])
    assert marginals_hold(np.abs(np.diff(path, axis=0)) > 0.5, 0.3)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("precision", ["f32", "f64"])
def test_the_clip_norm_is_the_one_that_was_asked_for(form: Any, precision: str) -> None:
    """A norm per layer, an infinity norm, or a default that overrides the argument."""
    rng = np.random.default_rng(0)
    for loss, n_classes in (("m3", 4), ("softmax_margin", 3), ("huber", 2), ("logistic", 5)):
        x = rng.normal(size=(1, 6))
        records = records_of(form(x), [1], n_classes, unit=True)
        options = kernel(loss, n_classes) | {"precision": precision, "row_scale": 2.0}
        slow = records_of(x, [1], n_classes, kind=TWIN, unit=True)
        free = clipped_sum(slow, kind=TWIN, clip=1e3, **options)
        natural = float(np.linalg.norm(free))
        assert natural > 0.5
        for clip in (1e-3, 0.1, 0.5 * natural, 0.99 * natural, 2.0 * natural, 10.0 * natural):
            S = clipped_sum(records, clip=clip, **options)
            slack = distance_bound(clip, S.size, None) / clip - 1.0
            wanted = min(clip, natural)
            assert wanted * (1 - 1e-3) <= np.linalg.norm(S) <= wanted * (1 + 1e-6) + slack * clip
            # Scaled as a whole, so the direction stays.
            cosine = float((S * free).sum() / np.linalg.norm(S) / natural)
            assert cosine >= 1.0 - 1e-5


def test_noise_is_drawn_once_a_step_for_any_number_of_records_and_threads() -> None:
    """Once for every part of a batch, or the mean of several draws, is another variance."""
    one = noise_of(1)
    for n_samples in (2, 65, 1000, 5000):
        for n_threads in (1, 2, 4):
            np.testing.assert_array_equal(one, noise_of(n_samples, n_threads=n_threads))
    two = run(zero_rows(5, 500), 2, sigma=SIGMA, grid=GRID, seed=3).weights().ravel()
    assert (two != one).mean() > 0.99


def test_every_record_is_clipped_by_itself() -> None:
    """Clipping means of parts lets a record move other records' shares: twice the sensitivity."""
    assert moves_within_bound()
    rng = np.random.default_rng(1)
    X = rng.normal(size=(700, 4))
    y = rng.integers(0, 2, 700)
    clip = 0.25
    for form in (np.asarray, sparse.csr_matrix):
        whole = clipped_sum(records_of(form(X), y, unit=True), clip=clip)
        for i in (0, 1, 31, 32, 63, 64, 127, 128, 255, 256, 511, 512, 699):
            kept = np.arange(700) != i
            part = clipped_sum(records_of(form(X[kept]), y[kept], unit=True), clip=clip)
            alone = clipped_sum(records_of(form(X[[i]]), y[[i]], unit=True), clip=clip)
            # The others contribute what they did, to the rounding of sums.
            np.testing.assert_allclose(whole - part, alone, atol=1e-4 * clip)
            assert np.linalg.norm(whole - part) <= distance_bound(clip, 4, None) * 1.001
