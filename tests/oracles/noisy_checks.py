"""What must hold of private descent, each as a test of samples at the false-alarm rate ALPHA."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from dpsvm_fast import _core
from dpsvm_fast.accounting import gaussian_sigma
from oracles.audit import ALPHA, epsilon_of_separation, plausible_deviation, separation_bound
from oracles.noisy_descent import (
    COMPILED,
    Kind,
    distance_bound,
    records_of,
    run,
    settings,
    zero_rows,
)

Array = NDArray[Any]
DELTA = 1e-5
FACTOR = {"add_remove": 1.0, "replace_one": 2.0}


def claimed_sigma(epsilon: float, n_steps: int, adjacency: str, grid: float | None = None) -> float:
    """Noise of ``n_steps`` full-batch steps on one weight with clip 1."""
    moved = FACTOR[adjacency] * math.sqrt(n_steps) * distance_bound(1.0, 1, grid)
    return gaussian_sigma(epsilon, DELTA, moved)


def worlds(adjacency: str, kind: Kind = COMPILED) -> tuple[Any, Any]:
    """Neighbours with zero gradients but for one canary at the clip bound."""
    rows = np.zeros((3, 1))
    with_canary = np.vstack([rows, [[1.0]]])
    if adjacency == "add_remove":
        other = records_of(rows, [0, 1, 0], kind=kind)
    else:
        other = records_of(with_canary, [0, 1, 0, 0], kind=kind)
    return records_of(with_canary, [0, 1, 0, 1], kind=kind), other


def finals(records: Any, n: int, n_steps: int, source: Any, kind: Kind, **changes: Any) -> Array:
    """The one weight at the end of n independent runs."""
    options = settings(**changes)
    found = np.empty(n)
    for i in range(n):
        descent = kind.descent(**options)
        descent.run(records, source, n_steps, 1)
        found[i] = descent.weights()[0, 0]
    return found


def proved_epsilon(
    n: int,
    sigma: float,
    adjacency: str,
    n_steps: int = 3,
    kind: Kind = COMPILED,
    grid: float | None = 2.0**-20,
) -> float:
    """Lower confidence bound of epsilon, from the final weights of n runs in each world."""
    source = _core.NoiseSource(17)
    pair = worlds(adjacency, kind)
    samples = [finals(w, n, n_steps, source, kind, sigma=sigma, grid=grid) for w in pair]
    return epsilon_of_separation(separation_bound(*samples), DELTA)


def noise_holds(samples: Array, sigma: float) -> bool:
    """Whether normal samples have mean 0 and this deviation: two tests, 2 ALPHA."""
    limit = float(stats.norm.isf(ALPHA / 2)) * sigma / math.sqrt(samples.size)
    return plausible_deviation(samples.ravel(), sigma) and bool(abs(samples.mean()) <= limit)


def step_noise(
    n_steps: int, n_features: int, kind: Kind = COMPILED, source: Any = None, **changes: Any
) -> Array:
    """Noisy sums of the steps on zero rows, shape (n_steps, n_features)."""
    records = zero_rows(4, n_features, kind)
    descent = kind.descent(**settings(n_features=n_features, **changes))
    source = _core.NoiseSource(5) if source is None else source
    path = [descent.weights()]
    for _ in range(n_steps):
        descent.run(records, source, 1, 1)
        path.append(descent.weights())
    return np.asarray(-np.diff(path, axis=0)[:, 0, :])


def steps_are_independent(noise: Array) -> bool:
    """Whether the correlation of every two steps is that of independent samples.

    n times the squared correlation is chi-square with 1 degree of freedom up to O(1/n); Bonferroni.
    """
    correlation = np.corrcoef(noise)
    pairs = correlation[np.triu_indices(len(noise), 1)]
    limit = float(stats.norm.isf(ALPHA / (2 * pairs.size))) / math.sqrt(noise.shape[1])
    return bool((np.abs(pairs) <= limit).all())


def batches(
    n_samples: int, n_steps: int, rate: float, kind: Kind = COMPILED, seed: int = 3, **changes: Any
) -> NDArray[np.bool_]:
    """Who joined each step: one-hot records show it in the sum, shape (n_steps, n_samples)."""
    records = records_of(np.eye(n_samples), np.ones(n_samples), kind=kind)
    options = settings(n_features=n_samples, sampling_rate=rate, **changes)
    descent = kind.descent(**options)
    source = _core.NoiseSource(seed)
    path = [descent.weights()[0]]
    for _ in range(n_steps):
        descent.run(records, source, 1, 1)
        path.append(descent.weights()[0])
    moved = np.diff(path, axis=0)
    joined = moved > 0.5
    # Contributions are 0 or 1 up to the rounding of quantised sums.
    np.testing.assert_allclose(moved, joined, atol=1e-3)
    return np.asarray(joined)


def _binomial_holds(counts: Array, n: int, p: float) -> bool:
    """Two-sided exact binomial tests, Bonferroni over the counts."""
    counts = np.asarray(counts).ravel()
    tail = np.minimum(stats.binom.cdf(counts, n, p), stats.binom.sf(counts - 1, n, p))
    return bool(2.0 * tail.min() * counts.size >= ALPHA)


def marginals_hold(joined: Array, rate: float) -> bool:
    """Whether every record joins with the declared probability."""
    return _binomial_holds(joined.sum(axis=0), len(joined), rate)


def sizes_hold(joined: Array, rate: float) -> bool:
    """Chi-square of the batch sizes against Binomial(n, rate), 20 expected a class or more."""
    steps, n = joined.shape
    counts = np.bincount(joined.sum(axis=1), minlength=n + 1).astype(float)
    expected = stats.binom.pmf(np.arange(n + 1), n, rate) * steps
    merged: list[list[float]] = [[0.0, 0.0]]
    for seen, wanted in zip(counts, expected, strict=True):
        merged[-1] = [merged[-1][0] + seen, merged[-1][1] + wanted]
        if merged[-1][1] >= 20.0:
            merged.append([0.0, 0.0])
    rest = merged.pop()
    merged[-1] = [merged[-1][0] + rest[0], merged[-1][1] + rest[1]]
    seen_, wanted_ = np.array(merged).T
    statistic = float(((seen_ - wanted_) ** 2 / wanted_).sum())
    return statistic <= float(stats.chi2.isf(ALPHA, max(1, len(merged) - 1)))


def pairs_hold(joined: Array, rate: float) -> bool:
    """Whether every two records join the same step with probability rate^2."""
    together = joined.astype(np.int64).T @ joined.astype(np.int64)
    pairs = together[np.triu_indices(joined.shape[1], 1)]
    return _binomial_holds(pairs, len(joined), rate * rate)


def consecutive_hold(joined: Array, rate: float) -> bool:
    """Whether joining steps 2t and 2t + 1 are independent, for every record."""
    even, odd = joined[0 : len(joined) // 2 * 2 : 2], joined[1::2][: len(joined) // 2]
    return _binomial_holds((even & odd).sum(axis=0), len(even), rate * rate)


def poisson_holds(joined: Array, rate: float) -> bool:
    """All four."""
    checks = (marginals_hold, sizes_hold, pairs_hold, consecutive_hold)
    return all(check(joined, rate) for check in checks)


def moves_within_bound(kind: Kind = COMPILED, clip: float = 0.5, n_samples: int = 40) -> bool:
    """Whether removing any record of a set of long gradients moves the sum by no more than R."""
    rng = np.random.default_rng(8)
    X = rng.normal(size=(n_samples, 3))
    X /= np.linalg.norm(X, axis=1, keepdims=True) * (1.0 + 1e-9)
    y = (X[:, 0] > 0).astype(np.int64)
    options = {"clip": clip, "divisor": 1.0, "seed": 0}
    whole = run(records_of(X, y, kind=kind), kind=kind, **options).weights()
    for i in range(n_samples):
        kept = np.arange(n_samples) != i
        part = run(records_of(X[kept], y[kept], kind=kind), kind=kind, **options).weights()
        if np.linalg.norm(whole - part) > distance_bound(clip, 3, None) * (1 + 1e-12):
            return False
    return True


def noise_is_blind_to_the_data(kind: Kind = COMPILED) -> bool:
    """Whether the released noise is the same number for every number of records with no gradient.

    Same seed, full batches: neither the number of records nor the batch's own size may scale it.
    """
    options: dict[str, Any] = {"sigma": 2.0, "grid": 2.0**-20, "n_features": 5}
    found = []
    for n in (1, 2, 70, 1000):
        descent = kind.descent(**settings(**options))
        descent.run(zero_rows(n, 5, kind), _core.NoiseSource(1), 2, 1)
        found.append(descent.weights())
    return all(np.array_equal(found[0], other) for other in found[1:])
