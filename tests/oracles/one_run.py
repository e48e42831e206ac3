"""Laws of the number of right guesses about m canaries, all of which are guessed.

Both programs are Gaussian differentially private with parameter mu, exactly and no better.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats

Array = NDArray[np.float64]
Coins = NDArray[np.bool_]


def independent_tails(mu: float, m: int) -> Array:
    """P[C >= c] for c = 0..m: a normal score for every canary, each with noise of its own."""
    return np.asarray(stats.binom.sf(np.arange(m + 1) - 1, m, stats.norm.cdf(0.5 * mu)))


def shared_tails(mu: float, m: int, n: int = 801) -> Array:
    """P[C >= c] for c = 0..m: all scores have one absolute value, and signs of their own.

    Of a score N(+-mu/2, 1) the absolute value a says nothing about the canary, and the sign is
    right with the odds exp(mu a). So a may be the same for all canaries: every single one still
    has the Gaussian trade-off curve, whatever is known of the others.
    """
    grid = np.linspace(0.0, 0.5 * mu + 9.0, n)
    weight = stats.norm.pdf(grid - 0.5 * mu) + stats.norm.pdf(grid + 0.5 * mu)
    weight[[0, -1]] *= 0.5
    chance = 1.0 / (1.0 + np.exp(-mu * grid))
    tails = stats.binom.sf(np.arange(m + 1)[:, None] - 1, m, chance)
    return np.asarray(tails @ (weight / weight.sum()))


def far_chance(mu: float, share: float) -> float:
    """Chance of a right guess given that the common absolute value is in its upper ``share``."""
    cut = float(optimize.brentq(lambda a: _beyond(a, mu)[0] - share, 0.0, 0.5 * mu + 9.0))
    both, right = _beyond(cut, mu)
    return right / both


def _beyond(cut: float, mu: float) -> tuple[float, float]:
    """Probability of an absolute value above ``cut``, and of that and the right sign."""
    right = float(stats.norm.sf(cut - 0.5 * mu))
    return right + float(stats.norm.sf(cut + 0.5 * mu)), right


def shared_scores(mu: float, m: int, rng: np.random.Generator) -> tuple[Array, Coins]:
    """Scores and coins of one run of the program of ``shared_tails``."""
    coins = rng.random(m) < 0.5
    size = abs(rng.normal(0.5 * mu))
    right = rng.random(m) < 1.0 / (1.0 + np.exp(-mu * size))
    return _signed(right == coins, size, rng), coins


def independent_scores(mu: float, m: int, rng: np.random.Generator) -> tuple[Array, Coins]:
    """Scores with noise of their own."""
    coins = rng.random(m) < 0.5
    return rng.normal(mu * coins), coins


def rare_right_guesses(
    mu: float, m: int, guesses: int, share: float, rng: np.random.Generator, n: int
) -> NDArray[np.int64]:
    """Right guesses in n runs of a program that tells most in a ``share`` of them, else nothing.

    It then tells random canaries, as many as are guessed, with the chance that puts one canary,
    which is told in ``share * guesses / m`` of all runs, on the Gaussian curve.
    """
    chance = np.where(rng.random(n) < share, far_chance(mu, share * guesses / m), 0.5)
    return rng.binomial(guesses, chance)


def _signed(inside: Coins, size: float, rng: np.random.Generator) -> Array:
    """One absolute value for all; equals are told apart by chance."""
    return np.asarray(np.where(inside, 1.0, -1.0) * size + 1e-9 * rng.random(inside.size))
