"""Wrong programs on purpose: each named fault of gradient perturbation fails a named check.

Faults of the calibration are put into the mechanism itself and run by the compiled descent. Faults
of the step are put into the slow twin, which passes every check as it is, and so does the compiled
descent.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsvm_fast.accounting import gaussian_sigma
from dpsvm_fast.mechanisms import gradient as mechanism
from oracles.faults import BOTH, EXCHANGE, Fault, around, in_each, is_seen, put, scaled
from oracles.noisy_checks import (
    DELTA,
    batches,
    moves_within_bound,
    noise_holds,
    noise_is_blind_to_the_data,
    poisson_holds,
    proved_epsilon,
    step_noise,
    steps_are_independent,
)
from oracles.noisy_descent import COMPILED, TWIN, Kind
from oracles.sampled_law import step_delta, two_steps_delta
from twins import noisy_descent as twin

pytestmark = [
    pytest.mark.statistical,
    pytest.mark.proof("gradient_perturbation", "Noise, sampling, whole runs"),
]

Array = NDArray[Any]
Patch = pytest.MonkeyPatch
N, STEPS = 5000, 4


def plan(adjacency: str, rate: float = 1.0, n_steps: int = STEPS) -> mechanism.ClippedSums:
    """The mechanism's noise on one weight, calibrated to epsilon 4."""
    return mechanism.ClippedSums(
        epsilon=4.0,
        delta=DELTA,
        adjacency=adjacency,
        noise_grid="exact",
        clip=1.0,
        shape=(1, 1),
        n_steps=n_steps,
        sampling_rate=rate,
    )


def epsilon_holds(adjacency: str) -> bool:
    """Whether final weights under the mechanism's noise prove no more than epsilon 4."""
    noise = plan(adjacency)
    return proved_epsilon(N, noise.sigma, adjacency, STEPS, grid=noise.grid) <= 4.0


def scale_holds(adjacency: str) -> bool:
    """Whether the noise is what the written formula says, to a tenth of a percent."""
    wanted = gaussian_sigma(4.0, DELTA, STEPS**0.5 * {"add_remove": 1, "replace_one": 2}[adjacency])
    return wanted <= plan(adjacency).sigma <= 1.001 * wanted


def sampled_law_holds(adjacency: str) -> bool:
    """Whether the integrated law of one and of two sampled steps keeps delta at epsilon 4."""
    for n_steps, delta_of in ((1, step_delta), (2, two_steps_delta)):
        noise = plan(adjacency, 0.2, n_steps)
        exact = delta_of(4.0, noise.sigma, 0.2, 1.0, adjacency == "replace_one")
        if exact > DELTA * (1 + 1e-5):
            return False
    return True


def asked_about(change: Callable[[float, int, str], tuple[Any, ...]]) -> Fault:
    """The accountant is asked about another rate, number of steps or relation than promised."""
    return around(mechanism, "_noise_multiplier", lambda f, e, d, *about: f(e, d, *change(*about)))


GAUSSIAN, SAMPLED = (partial(scaled, mechanism, n) for n in ("gaussian_sigma", "_noise_multiplier"))
CALIBRATION: dict[str, tuple[Fault, Callable[[str], bool], tuple[str, ...]]] = {
    "sigma halved": (GAUSSIAN(0.5), epsilon_holds, BOTH),
    "sigma / sqrt 2": (GAUSSIAN(0.5**0.5), epsilon_holds, BOTH),
    "sigma sqrt 2": (GAUSSIAN(2.0**0.5), scale_holds, BOTH),
    "sqrt(T) forgotten": (put(mechanism, "sqrt_up", lambda _: 1.0), epsilon_holds, BOTH),
    "replacement without 2": (
        put(mechanism.RELATION_FACTOR, "replace_one", 1), epsilon_holds, EXCHANGE,
    ),
    "sampled: sigma halved": (SAMPLED(0.5), sampled_law_holds, BOTH),
    "sampled: 2 percent": (SAMPLED(0.98), sampled_law_holds, BOTH),
    "sampled: replacement": (
        asked_about(lambda q, n, _: (q, n, "add_remove")), sampled_law_holds, EXCHANGE,
    ),
    "sampled: one step of two": (
        asked_about(lambda q, _, relation: (q, 1, relation)), sampled_law_holds, BOTH,
    ),
    # Amplification counted twice.
    "sampled: rate squared": (
        asked_about(lambda q, n, relation: (q * q, n, relation)), sampled_law_holds, BOTH,
    ),
}  # fmt: skip


@pytest.mark.sampled
@in_each(CALIBRATION)
def test_a_wrong_calibration_is_rejected(name: str, adjacency: str, monkeypatch: Patch) -> None:
    fault, holds, _ = CALIBRATION[name]
    assert is_seen(fault, monkeypatch, holds, adjacency)


def test_a_clip_that_is_not_the_declared_one_is_rejected() -> None:
    """The descent is given twice the clip norm that the noise was calibrated to."""
    noise = plan("add_remove")
    options = {"sigma": noise.sigma, "adjacency": "add_remove", "n_steps": STEPS}
    assert proved_epsilon(N, grid=noise.grid, **options) <= 4.0
    # A canary twice as long as the clip: rows of norm 2 where they should have norm 1.
    long = dataclasses.replace(noise, clip=0.5)
    options["sigma"] = long.sigma
    assert proved_epsilon(N, grid=long.grid, **options) > 4.0


class ClippedMean(twin.Descent):
    """Mutant: the mean is clipped, not every record."""

    def clipped_sum(self, rows: Array, y: Array) -> Array:
        clip, self.clip = self.clip, np.inf
        total = super().clipped_sum(rows, y)
        self.clip = clip
        n = max(1, len(rows))
        return total * min(1.0, clip * n / max(float(np.linalg.norm(total)), 1e-300))


class NoClip(twin.Descent):
    """Mutant: the clip norm is ignored."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**(options | {"clip": np.inf}))


class PerScore(twin.Descent):
    """Mutant: records are clipped in halves, each to the whole norm, as if in layers."""

    def clipped_sum(self, rows: Array, y: Array) -> Array:
        total = np.zeros_like(self._state["weights"])
        for part in (slice(0, 1), slice(1, None)):
            kept = np.zeros_like(rows)
            kept[:, part] = rows[:, part]
            total += super().clipped_sum(kept, y)
        return total


class OwnSize(twin.Descent):
    """Mutant: sums are divided by the number of records in the batch."""

    def clipped_sum(self, rows: Array, y: Array) -> Array:
        self.divisor = float(max(1, len(rows)))
        return super().clipped_sum(rows, y)


class NoiseOnce(twin.Descent):
    """Mutant: the noise of the first step serves all steps."""

    noise: Array | None = None

    def _with_noise(self, total: Array, source: Any, n_threads: int) -> Array:
        if self.noise is None:
            self.noise = super()._with_noise(np.zeros_like(total), source, n_threads)
        return total + self.noise


class NoiseOnMean(twin.Descent):
    """Mutant: noise is added after the division, with the deviation that belongs to the sum."""

    def _with_noise(self, total: Array, source: Any, n_threads: int) -> Array:
        noise = super()._with_noise(np.zeros_like(total), source, n_threads)
        return total + noise * self.divisor


class PartsAveraged(twin.Descent):
    """Mutant: four parts of a batch are noised apart and averaged."""

    def _with_noise(self, total: Array, source: Any, n_threads: int) -> Array:
        parts = [super(PartsAveraged, self)._with_noise(total, source, n_threads) for _ in "1234"]
        return np.asarray(np.mean(parts, axis=0))


class FixedSize(twin.Descent):
    """Mutant: batches of one size, drawn without replacement."""

    def batch(self, n_samples: int) -> NDArray[np.bool_]:
        size = round(self.sampling_rate * n_samples)
        return np.asarray(self.generator.permutation(n_samples) < size)


class Shuffled(twin.Descent):
    """Mutant: passes in a random order, cut into batches."""

    order: Array = np.zeros(0, dtype=np.int64)

    def batch(self, n_samples: int) -> NDArray[np.bool_]:
        size = max(1, round(self.sampling_rate * n_samples))
        if self.order.size < size:
            self.order = self.generator.permutation(n_samples)
        chosen, self.order = self.order[:size], self.order[size:]
        return np.isin(np.arange(n_samples), chosen)


class NeverEmpty(twin.Descent):
    """Mutant: an empty batch is drawn again."""

    def batch(self, n_samples: int) -> NDArray[np.bool_]:
        found = super().batch(n_samples)
        return found if found.any() else self.batch(n_samples)


class HalfBatches(twin.Descent):
    """Mutant: empty batches are skipped, without noise."""

    def _with_noise(self, total: Array, source: Any, n_threads: int) -> Array:
        return super()._with_noise(total, source, n_threads) if total.any() else total


def independent(kind: Kind) -> bool:
    """Whether steps are noised independently of each other."""
    return steps_are_independent(step_noise(4, 3000, kind, sigma=1.0, grid=2.0**-20))


def deviation(kind: Kind) -> bool:
    """Whether the noise has the declared deviation on the sum, for a divisor of 5."""
    options: dict[str, Any] = {"sigma": 1.0, "grid": 2.0**-20, "divisor": 5.0}
    return noise_holds(step_noise(3, 3000, kind, **options), 1.0 / 5.0)


def empty_is_noised(kind: Kind) -> bool:
    options: dict[str, Any] = {"sigma": 1.0, "grid": 2.0**-20, "sampling_rate": 1e-12}
    return noise_holds(step_noise(3, 3000, kind, **options), 1.0)


def poisson(kind: Kind) -> bool:
    return poisson_holds(batches(40, 6000, 0.05, kind), 0.05)


STEP = {
    "clip after the mean": (ClippedMean, moves_within_bound),
    "no clip": (NoClip, moves_within_bound),
    "clipped in layers": (PerScore, moves_within_bound),
    "divided by the batch": (OwnSize, noise_is_blind_to_the_data),
    "noise reused over steps": (NoiseOnce, independent),
    "noise on the mean": (NoiseOnMean, deviation),
    "noisy parts averaged": (PartsAveraged, deviation),
    "batches of one size": (FixedSize, poisson),
    "shuffled passes": (Shuffled, poisson),
    "empty batches drawn again": (NeverEmpty, poisson),
    "empty batches without noise": (HalfBatches, empty_is_noised),
}


def seeded(descent: type[twin.Descent]) -> Kind:
    """The twin's classes, with batches that are the same in every run of the tests."""

    def build(**options: Any) -> twin.Descent:
        return descent(generator=np.random.default_rng(0), **options)

    return Kind(TWIN.records, build)


@pytest.mark.parametrize("name", STEP)
def test_a_wrong_step_is_rejected(name: str) -> None:
    mutant, holds = STEP[name]
    assert holds(COMPILED)
    assert holds(seeded(twin.Descent))
    assert not holds(seeded(mutant))
