"""Numbers behind docs/proofs/auto_pipeline.md, each from first principles."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from scipy.special import ndtr

from dpsvm_fast.mechanisms.rows import PublicMap, ReleasedMap, mapped_rows
from twins.gaussian import gaussian_delta

pytestmark = pytest.mark.proof("auto_pipeline", "The statements as numbers")

Array = NDArray[np.float64]

# Chance of a false alarm of one statistical test.
ALPHA = 1e-6


def two_steps(epsilon: float, first: float, second: Callable[[Array], Array]) -> float:
    """Profile of a step of size ``first`` and one whose size depends on the first result."""
    y = np.linspace(-12.0, 12.0 + first, 20_001)
    density = np.exp(-((y - first) ** 2) / 2) / math.sqrt(2 * math.pi)
    loss = first * y - first * first / 2
    values = density * gaussian_delta(epsilon - loss, second(y))
    return float(values.sum() * (y[1] - y[0]))


SIZES = (0.6, 0.8)
TOTAL = 1.0


@pytest.mark.parametrize("epsilon", [-1.0, 0.0, 0.5, 1.0, 3.0])
def test_sizes_that_depend_on_results_cost_no_more(epsilon: float) -> None:
    first, second = SIZES
    bound = float(gaussian_delta(epsilon, TOTAL))
    always = two_steps(epsilon, first, lambda y: np.full_like(y, second))
    assert always == pytest.approx(bound, abs=1e-9)
    for threshold in (-1.0, 0.0, 0.3, 1.5):
        for sign in (-1.0, 1.0):

            def stops(y: Array, threshold: float = threshold, sign: float = sign) -> Array:
                return np.asarray(np.where(sign * (y - threshold) > 0, second, 0.0))

            assert two_steps(epsilon, first, stops) <= bound + 1e-9


def test_a_mean_square_is_not_enough() -> None:
    """Negative control: all of the second budget where the first result was favourable."""
    first, second = SIZES
    share = float(ndtr(-(0.3 - first / 2)))
    larger = second / math.sqrt(share)

    def favoured(y: Array) -> Array:
        return np.asarray(np.where(y > 0.3 + first / 2, larger, 0.0))

    exceeded = [
        two_steps(epsilon, first, favoured) / float(gaussian_delta(epsilon, TOTAL))
        for epsilon in (0.5, 1.0, 2.0, 3.0)
    ]
    assert max(exceeded) > 1.2


def losses_of_paths(n_paths: int, spend: Callable[[Array, Array], Array]) -> Array:
    """Privacy losses of ten steps; ``spend`` gives the square of each size from path and rest."""
    rng = np.random.default_rng(3)
    rest, loss = np.full(n_paths, TOTAL**2), np.zeros(n_paths)
    for step in range(10):
        square = rest if step == 9 else spend(loss, rest)
        size = np.sqrt(square)
        loss += size * rng.standard_normal(n_paths) + square / 2
        rest = rest - square
    return loss


def test_the_loss_of_adaptive_steps_is_normal() -> None:
    def greedy(loss: Array, rest: Array) -> Array:
        return np.asarray(rest * np.where(loss > 0.2, 0.05, 0.6))

    n_paths = 200_000
    law = stats.norm(TOTAL**2 / 2, TOTAL)
    assert stats.kstest(losses_of_paths(n_paths, greedy), law.cdf).pvalue > ALPHA
    stopped = losses_of_paths(n_paths, lambda loss, rest: np.where(loss > 0.2, 0.0, rest * 0.3))
    assert stats.kstest(stopped, law.cdf).pvalue > ALPHA
    shorter = stats.norm((0.97 * TOTAL) ** 2 / 2, 0.97 * TOTAL)
    assert stats.kstest(losses_of_paths(n_paths, greedy), shorter.cdf).pvalue < ALPHA


def test_outer_products_of_neighbours_are_at_most_sqrt_2_apart() -> None:
    rng = np.random.default_rng(7)
    largest = 0.0
    for d in (1, 2, 3, 10):
        for _ in range(200):
            u, v = rng.normal(size=(2, d))
            u, v = (x / np.linalg.norm(x) * rng.choice([1.0, rng.uniform()]) for x in (u, v))
            difference = np.outer(u, u) - np.outer(v, v)
            distance = float(np.linalg.norm(difference))
            assert distance <= (1.0 if d == 1 else math.sqrt(2.0)) + 1e-12
            largest = max(largest, distance)
    assert largest > 1.4
    # Rows themselves can be 2 apart.
    assert np.linalg.norm(np.array([1.0, 0.0]) - np.array([-1.0, 0.0])) == 2.0


def test_symmetric_noise_has_unit_variance_in_every_direction() -> None:
    rng = np.random.default_rng(9)
    d = 4
    variances = np.where(np.eye(d) > 0, 1.0, 0.5)
    for _ in range(20):
        direction = rng.normal(size=(d, d))
        direction = direction + direction.T
        direction /= np.linalg.norm(direction)
        # <N, direction> = sum_j N_jj E_jj + 2 sum_{j<k} N_jk E_jk
        factors = np.where(np.eye(d) > 0, direction, 2 * direction)
        upper = np.triu(factors**2 * variances)
        assert upper.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("d", [1, 3, 17, 64, 130])
def test_rows_for_solvers_do_not_depend_on_other_rows(d: int) -> None:
    rng = np.random.default_rng(d)
    X = rng.normal(size=(201, d))
    matrix = rng.normal(size=(d, d))
    released = ReleasedMap(rng.normal(size=d) / d, matrix)
    public = PublicMap(data_norm=1.0, unit=True)
    rows = mapped_rows(public, released, X, np.float64)
    for part in (slice(0, 1), slice(3, 5), slice(200, 201), slice(1, 190)):
        np.testing.assert_array_equal(
            mapped_rows(public, released, X[part], np.float64), rows[part]
        )
    # They are the rows that the map says.
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    moved = (unit - released.centre) @ matrix.T
    np.testing.assert_allclose(
        rows, moved / np.linalg.norm(moved, axis=1, keepdims=True), atol=1e-9
    )
