"""Whole fits by noisy descent, audited: nothing but the estimator and what it publishes.

By night fits take their noise from the operating system: the rates hold for every run.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsvm_fast import GradientPerturbationSVC
from dpsvm_fast.accounting import gaussian_sigma
from oracles.audit import epsilon_of_separation, plausible_deviation, separation_bound
from oracles.noisy_checks import FACTOR
from oracles.noisy_descent import distance_bound

pytestmark = pytest.mark.statistical

Array = NDArray[Any]
EPSILON, DELTA = 4.0, 1e-5
CLIP, STEPS, RATE, BATCH = 0.5, 4, 1e-4, 4.0
WIDE = 20_000


def model(**changes: Any) -> GradientPerturbationSVC:
    """Weights so small that the canary's gradient stays what it is at 0, longer than the clip."""
    settings: dict[str, Any] = {
        "epsilon": EPSILON,
        "delta": DELTA,
        "loss": "huber",
        "classes": [0, 1],
        "fit_intercept": False,
        "max_grad_norm": CLIP,
        "n_steps": STEPS,
        "learning_rate": RATE,
        "expected_batch_size": BATCH,
        "average": 0.0,
        "n_threads": 1,
    }
    return GradientPerturbationSVC(**(settings | changes))


def wide_noise(**changes: Any) -> Array:
    """Released weights of a fit on zero rows, in units of the noise on one sum."""
    fitted = model(**changes).fit(np.zeros((3, WIDE)), [0, 1, 0])
    sigma = fitted.privacy_.parts[0].sigma
    assert sigma is not None
    return np.asarray(fitted.coef_.ravel() * BATCH / (RATE * sigma))


# Strong regularisation: gradients stay what they are at 0, and iterates forget earlier noise.
LAST: dict[str, Any] = {
    "accountant": "last_iterate",
    "C": 1e-3,
    "max_grad_norm": "auto",
    "learning_rate": 2.0**-12,
    "expected_batch_size": 1.0,
    "n_steps": 30,
}
ZEROS = 40
LABELS = [0, 1] * (ZEROS // 2) + [1]


def last_iterate(adjacency: str) -> dict[str, Any]:
    """Its settings; the number of rows is public under ``replace_one``."""
    bound = ZEROS + 1 if adjacency == "add_remove" else None
    return LAST | {"max_samples": bound}


# A stabilizer far above the gradients makes Adam linear in them.
LINEAR: dict[str, Any] = {"stabilizer": 1e9, "learning_rate": RATE * 1e9, "betas": (0.0, 0.0)}
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "gd": {},
    "sgd": {"optimizer": "sgd", "sampling_rate": 0.25},
    "adam": {"optimizer": "adam", "sampling_rate": 0.25} | LINEAR,
    "adam corrected": {"optimizer": "adam", "sampling_rate": 0.25, "noise_correction": True}
    | LINEAR,
}


@pytest.mark.proof("gradient_perturbation", "Noise, sampling, whole runs")
@pytest.mark.parametrize("adjacency", FACTOR)
@pytest.mark.parametrize("noise_grid", ["exact", "float"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_released_noise_has_the_stated_variance(
    optimizer: str, noise_grid: str, adjacency: str
) -> None:
    """The chi-square law of 20,000 weights; 5 percent more or less is rejected."""
    options = OPTIMIZERS[optimizer] | {"noise_grid": noise_grid, "adjacency": adjacency}
    noise = wide_noise(**options)
    assert plausible_deviation(noise, math.sqrt(STEPS))
    assert not plausible_deviation(noise, 1.05 * math.sqrt(STEPS))
    assert not plausible_deviation(noise, math.sqrt(STEPS) / 1.05)


@pytest.mark.parametrize("adjacency", FACTOR)
def test_the_stated_variance_is_that_of_the_written_formula(adjacency: str) -> None:
    """sqrt(T) contributions of the clip norm, twice that for an exchange, and rounding."""
    part = model(adjacency=adjacency).fit(np.eye(3, 5), [0, 1, 0]).privacy_.parts[0]
    contribution = distance_bound(CLIP, 5, part.grid)
    moved = FACTOR[adjacency] * math.sqrt(STEPS) * contribution
    wanted = gaussian_sigma(EPSILON, DELTA, moved)
    assert part.sigma is not None
    assert wanted * (1 - 1e-12) <= part.sigma <= wanted * (1 + 1e-9)
    assert contribution <= CLIP * (1 + 2e-3)


def releases(adjacency: str, n_fits: int, **changes: Any) -> tuple[Array, Array]:
    """One coefficient of whole fits with one canary at the clip bound, and without or against it.

    It stands beside rows without gradients.
    """
    zeros, labels = np.zeros((ZEROS, 2)), LABELS[:-1]
    with_canary = np.vstack([zeros, [[1.0, 0.0]]])
    first = (with_canary, LABELS)
    second = (zeros, labels) if adjacency == "add_remove" else (with_canary, [*labels, 0])
    estimator = model(**({"adjacency": adjacency} | changes))
    found = [
        np.array([estimator.fit(X, y).coef_[0, 0] for _ in range(n_fits)])
        for X, y in (first, second)
    ]
    return found[0], found[1]


def proved(first: Array, second: Array) -> float:
    return epsilon_of_separation(separation_bound(first, second), DELTA)


def sharper(samples: Array) -> Array:
    """As if the noise had been smaller by sqrt 2."""
    return np.asarray(samples.mean() + (samples - samples.mean()) / math.sqrt(2.0))


@pytest.mark.slow
@pytest.mark.parametrize("adjacency", FACTOR)
def test_whole_fits_never_prove_more_than_the_claim(adjacency: str) -> None:
    """Expected are 2.2 of 4; a fifth of the claim is missed with a probability below ALPHA."""
    assert 0.2 * EPSILON <= proved(*releases(adjacency, 500)) <= EPSILON


@pytest.mark.slow
@pytest.mark.parametrize("adjacency", FACTOR)
def test_last_iterates_have_the_stated_noise_and_never_prove_more_than_the_claim(
    adjacency: str,
) -> None:
    """Noise of step t reaches the end as (1 - lr lambda)^(T - 1 - t) lr sigma."""
    options = last_iterate(adjacency)
    fitted = model(adjacency=adjacency, **options).fit(np.zeros((ZEROS + 1, 2)), LABELS)
    part = fitted.privacy_.parts[0]
    assert part.sigma is not None
    contraction = 1.0 - LAST["learning_rate"] / LAST["C"]
    shares = sum(contraction ** (2 * t) for t in range(LAST["n_steps"]))
    wanted = LAST["learning_rate"] * part.sigma * math.sqrt(shares)
    # As many steps as would count if there were no end, far fewer than composition counts.
    effective = (1.0 + contraction) / (1.0 - contraction)
    assert effective < 0.3 * LAST["n_steps"]
    moved = FACTOR[adjacency] * math.sqrt(effective) * part.contribution
    assert part.sigma <= gaussian_sigma(EPSILON, DELTA, moved)
    first, second = releases(adjacency, 500, **options)
    for samples in (first, second):
        assert plausible_deviation(samples, wanted)
        assert not plausible_deviation(sharper(samples), wanted)
    assert 0.2 * EPSILON <= proved(first, second) <= EPSILON


@pytest.mark.nightly
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("adjacency", FACTOR)
def test_many_whole_fits_prove_most_of_the_claim_and_never_more(adjacency: str, last: bool) -> None:
    options = last_iterate(adjacency) if last else {}
    first, second = releases(adjacency, 20_000, **options)
    assert 0.8 * EPSILON <= proved(first, second) <= EPSILON
    # Power: noise too small by sqrt 2 would be seen.
    assert proved(sharper(first), sharper(second)) > EPSILON
