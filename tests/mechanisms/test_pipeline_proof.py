"""Numbers behind docs/proofs/auto_pipeline.md, each from first principles."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from scipy.special import ndtr

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
