"""Numbers behind docs/proofs/random_features.md, each from first principles."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from dpsvm_fast.accounting import gaussian_delta
from dpsvm_fast.mechanisms.pipeline import NoisyCount
from dpsvm_fast.mechanisms.rows import FourierFeatures

pytestmark = pytest.mark.proof("random_features")

Array = NDArray[np.float64]


def paired(rows: Array, frequencies: Array, constants: Array | float = 0.0) -> Array:
    """Cosines minus constants, and sines, over the root of the number of pairs."""
    angles = rows @ frequencies.T
    features = np.hstack([np.cos(angles) - constants, np.sin(angles)])
    return np.asarray(features / math.sqrt(len(frequencies)))


def on_sphere(rng: np.random.Generator, n: int, d: int) -> Array:
    rows = rng.normal(size=(n, d))
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def test_pairs_of_features_have_norm_one_and_single_ones_do_not() -> None:
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(500, 3))
    for D in (1, 7, 50):
        frequencies = rng.normal(size=(D, 3))
        norms = np.linalg.norm(paired(rows, frequencies), axis=1)
        np.testing.assert_allclose(norms, 1.0, rtol=1e-14)
        # sqrt(2 / D) cos(<w, x> + psi)
        shifts = rng.uniform(0.0, 2 * math.pi, D)
        single = np.sqrt(2.0 / D) * np.cos(rows @ frequencies.T + shifts)
        assert np.linalg.norm(single, axis=1).max() > 1.1
    # With one frequency the bound sqrt 2 is reached.
    assert math.sqrt(2.0) * math.cos(0.0) == pytest.approx(math.sqrt(2.0))


@pytest.mark.sampled
@pytest.mark.parametrize("d", [8, 60])
@pytest.mark.parametrize("length", [0.5, 1.5])
def test_public_centres_are_means_over_public_sets(d: int, length: float) -> None:
    rng = np.random.default_rng(d)
    frequency = np.zeros(d)
    frequency[0] = length
    sphere = on_sphere(rng, 150_000, d)
    ball = sphere * rng.uniform(size=(len(sphere), 1)) ** (1.0 / d)
    for rows, spread in ((sphere, 2.0 * d), (ball, 2.0 * (d + 2.0))):
        cosines, sines = np.cos(rows @ frequency), np.sin(rows @ frequency)
        # Six standard errors, and the stated order of what is left out.
        for values, mean in ((cosines, math.exp(-(length**2) / spread)), (sines, 0.0)):
            error = 6.0 * values.std() / math.sqrt(len(values))
            assert abs(values.mean() - mean) < error + length**4 / d**3


def test_centred_features_are_too_long_before_they_are_scaled() -> None:
    frequencies = np.array([[0.1], [0.2]])
    far = np.array([[31.0]])
    constants = np.exp(-np.square(frequencies).sum(axis=1) / 2.0)
    assert np.linalg.norm(paired(far, frequencies, constants)) > 1.3


def composed(epsilon: float, mu: float, losses: Array, masses: Array) -> float:
    """Delta of a Gaussian release followed by a mechanism with these privacy losses."""
    return float(
        sum(
            mass * gaussian_delta_at(epsilon - loss, mu)
            for loss, mass in zip(losses, masses, strict=True)
        )
    )


def gaussian_delta_at(epsilon: float, mu: float) -> float:
    """Profile of the Gaussian mechanism, at negative arguments too."""
    upper = stats.norm.cdf(mu / 2 - epsilon / mu)
    return float(upper - math.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu))


def test_two_laws_of_one_budget_are_not_one_profile() -> None:
    """Gaussian noise and randomised response, the same delta at epsilon 1, compose differently."""
    sigma, mu = 2.0, 0.7
    delta = gaussian_delta(1.0, sigma)
    assert 0.0 < delta < 0.1
    # Response with loss b or -b whose delta at epsilon 1 is that of the Gaussian.
    low, high = 1.0, 20.0
    for _ in range(200):
        middle = 0.5 * (low + high)
        found = (1.0 - math.exp(1.0 - middle)) / (1.0 + math.exp(-middle))
        low, high = (middle, high) if found < delta else (low, middle)
    losses = np.array([high, -high])
    masses = np.array([1.0, math.exp(-high)]) / (1.0 + math.exp(-high))
    response = [composed(epsilon, mu, losses, masses) for epsilon in (0.0, 0.5, 1.0, 2.0)]
    both = math.hypot(mu, 1.0 / sigma)
    gaussian = [gaussian_delta(epsilon, 1.0 / both) for epsilon in (0.0, 0.5, 1.0, 2.0)]
    # A claim computed with the profile of Gaussian noise would be exceeded.
    assert max(r / g for r, g in zip(response, gaussian, strict=True)) > 1.05


def test_a_scale_from_the_records_tells_a_record() -> None:
    """The median distance of 0, 0 and x is that of x: nothing bounds what one record moves."""
    for x in (0.01, 1.0, 1e6):
        rows = np.array([0.0, 0.0, x])
        distances = np.abs(rows[:, None] - rows[None, :])[np.triu_indices(3, 1)]
        assert np.median(distances) == x


def test_the_code_has_the_numbers_of_the_page() -> None:
    count = NoisyCount(noise_grid="exact", mu=0.25).sum
    assert count.sensitivity == 1.0
    assert count.grid is not None
    assert float(7) / count.grid == round(7 / count.grid)
    for centre, room in (("none", math.inf), ("sphere", 0.0), ("ball", 2.0)):
        drawn = FourierFeatures(
            n_features=5, n_components=12, gamma=0.7, kernel="rbf", structure="orthogonal",
            centre=centre, seed=3,
        ).map()  # fmt: skip
        squares = np.square(drawn.weights()).sum(axis=1)
        expected = np.exp(-squares / (2.0 * (5.0 + room))) if room < math.inf else np.zeros(12)
        np.testing.assert_allclose(drawn.constants(), expected, rtol=1e-12)
        rows = np.random.default_rng(0).normal(size=(20, 5))
        features = drawn.transform(rows, 1)
        plain = paired(rows, drawn.weights(), drawn.constants())
        plain /= np.linalg.norm(plain, axis=1, keepdims=True)
        np.testing.assert_allclose(features, plain, atol=1e-12)
