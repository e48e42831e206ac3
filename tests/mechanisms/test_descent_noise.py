"""The noise that private descent releases: its variance, its independence, its law per optimiser.

Records with zero gradients leave nothing but noise in the weights. Sums of squares follow the
chi-square law; every test also rejects a deviation 3 percent off.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsvm_fast import _core
from oracles.audit import plausible_deviation
from oracles.noisy_checks import noise_holds, step_noise, steps_are_independent
from oracles.noisy_descent import run, zero_rows

pytestmark = pytest.mark.statistical

Array = NDArray[Any]
WEIGHTS, STEPS = 40_000, 5
SIGMA, RATE, DIVISOR = 2.5, 0.125, 20.0
GRIDS = [None, 2.0**-20, 2.0**-4]
# An empty batch and a full one are steps like any other.
SAMPLING = [1.0, 0.5, 1e-9]


def expected(sigma: float, grid: float | None) -> float:
    """Deviation of normal noise rounded to the grid, up to exp(-2 pi^2 sigma^2 / grid^2)."""
    return math.hypot(sigma, 0.0 if grid is None else grid / math.sqrt(12.0))


def final(**changes: Any) -> Array:
    options: dict[str, Any] = {"sigma": SIGMA, "learning_rate": RATE, "divisor": DIVISOR}
    descent = run(zero_rows(3, WEIGHTS), STEPS, **(options | changes))
    return np.asarray(descent.weights().ravel())


def holds_sharply(samples: Array, sigma: float) -> bool:
    """The law holds, and neighbouring scales are rejected: 40,000 squares are known to 1.7%."""
    wrong = any(plausible_deviation(samples, f * sigma) for f in (1.05, 1.0 / 1.05))
    return noise_holds(samples, sigma) and not wrong


@pytest.mark.proof("gradient_perturbation", "Noise, sampling, whole runs")
@pytest.mark.parametrize("rate", SAMPLING)
@pytest.mark.parametrize("grid", GRIDS)
def test_variance_after_plain_steps(grid: float | None, rate: float) -> None:
    step = RATE / DIVISOR * expected(SIGMA, grid)
    weights = final(grid=grid, sampling_rate=rate)
    assert holds_sharply(weights, step * math.sqrt(STEPS))


@pytest.mark.parametrize("nesterov", [False, True])
def test_variance_after_steps_with_momentum(nesterov: bool) -> None:
    """W_T = -lr sum_t c_t noise_t, c_t the sum of the momentum's powers that step t reaches."""
    m = 0.7
    weights = final(grid=2.0**-20, momentum=m, nesterov=nesterov)
    # v_s holds m^(s - t) of step t; Nesterov adds the step itself and m v.
    reach = [sum(m**k for k in range(STEPS - t + nesterov)) for t in range(STEPS)]
    step = RATE / DIVISOR * SIGMA
    assert holds_sharply(weights, step * math.sqrt(sum(c * c for c in reach)))


@pytest.mark.parametrize("schedule", ["inverse", "linear"])
def test_variance_under_a_schedule(schedule: str) -> None:
    weights = final(grid=2.0**-20, schedule=schedule, horizon=8)
    rates = [1.0 / (t + 1) if schedule == "inverse" else 1.0 - t / 8 for t in range(STEPS)]
    step = RATE / DIVISOR * SIGMA
    assert holds_sharply(weights, step * math.sqrt(sum(r * r for r in rates)))


def test_variance_of_the_mean_of_the_iterates() -> None:
    """The mean of T iterates holds (T - t) / T of step t."""
    weights = final(grid=2.0**-20, average_from=0)
    share = [(STEPS - t) / STEPS for t in range(STEPS)]
    step = RATE / DIVISOR * SIGMA
    assert holds_sharply(weights, step * math.sqrt(sum(c * c for c in share)))


@pytest.mark.proof("gradient_perturbation", "Noise, sampling, whole runs")
@pytest.mark.parametrize("correction", [False, True])
@pytest.mark.parametrize("rate", SAMPLING)
def test_variance_inside_adam(correction: bool, rate: float) -> None:
    """Without memory an Adam step is a function of its own noisy gradient, which it gives back.

    x = g / (|g| + s) without the correction; with it, x = g / sqrt(max(g^2 - v, s^2)) with s so
    large that nothing else is ever the maximum.
    """
    stabilizer = 10.0 * SIGMA / DIVISOR if correction else 0.5 * SIGMA / DIVISOR
    memoryless = {"optimizer": "adam", "beta1": 0.0, "beta2": 0.0, "stabilizer": stabilizer}
    options = {"sigma": SIGMA, "grid": 2.0**-20, "divisor": DIVISOR, "sampling_rate": rate}
    moved = step_noise(STEPS, WEIGHTS, noise_correction=correction, **memoryless, **options)
    shares = np.abs(moved)
    gradients = moved * stabilizer if correction else moved * stabilizer / (1.0 - shares)
    for step in gradients:
        assert holds_sharply(step, SIGMA / DIVISOR)
    assert steps_are_independent(gradients)


def test_moments_of_adam_hold_the_noise_of_every_step() -> None:
    """With beta2 = 0 and a large stabilizer W is linear in the first moments."""
    beta, stabilizer = 0.6, 1e9
    options: dict[str, Any] = {"optimizer": "adam", "beta1": beta, "beta2": 0.0}
    weights = final(grid=2.0**-20, stabilizer=stabilizer, learning_rate=stabilizer, **options)
    # Step s adds (1 - b) b^(s - t) / (1 - b^(s + 1)) of the noise of step t.
    reach = [
        sum((1 - beta) * beta ** (s - t) / (1 - beta ** (s + 1)) for s in range(t, STEPS))
        for t in range(STEPS)
    ]
    assert holds_sharply(weights, SIGMA / DIVISOR * math.sqrt(sum(c * c for c in reach)))


@pytest.mark.proof("gradient_perturbation", "Noise, sampling, whole runs")
@pytest.mark.parametrize("grid", [None, 2.0**-20])
def test_steps_have_noise_of_their_own(grid: float | None) -> None:
    """Within one run and across runs of one source."""
    noise = step_noise(8, WEIGHTS, sigma=SIGMA, grid=grid)
    assert all(holds_sharply(step, SIGMA) for step in noise)
    assert steps_are_independent(noise)
    source = _core.NoiseSource(12)
    options = {"sigma": SIGMA, "grid": grid, "source": source}
    runs = [run(zero_rows(2, WEIGHTS), 2, **options).weights().ravel() for _ in range(4)]
    assert steps_are_independent(np.array(runs))
    # Negative control: noise drawn once for two steps.
    assert not steps_are_independent(np.vstack([noise[:3], noise[1] + 0.1 * noise[3]]))


def test_steps_of_one_run_are_independent() -> None:
    """The sum of T steps taken in one call has T times the variance of one."""
    for n_steps in (1, 4, 16):
        weights = run(zero_rows(2, WEIGHTS), n_steps, sigma=SIGMA, grid=2.0**-20).weights()
        assert holds_sharply(weights.ravel(), SIGMA * math.sqrt(n_steps))


def test_entries_are_independent() -> None:
    """Every lag up to 64 inside one step's noise."""
    noise = step_noise(1, WEIGHTS, sigma=1.0, grid=2.0**-20)[0]
    lagged = np.array([noise[lag : WEIGHTS - 64 + lag] for lag in range(65)])
    assert steps_are_independent(lagged)


@pytest.mark.proof("gradient_perturbation", "Noise, sampling, whole runs")
def test_released_sums_are_multiples_of_the_grid() -> None:
    grid = 2.0**-4
    noise = step_noise(3, 1000, sigma=SIGMA, grid=grid) / grid
    assert (noise == np.rint(noise)).all()
    loose = step_noise(3, 1000, sigma=SIGMA, grid=None) / grid
    assert (loose != np.rint(loose)).any()
