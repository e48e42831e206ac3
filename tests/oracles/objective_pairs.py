"""Random and deliberately hard pairs of neighbours for the exact densities.

Rows are bounded by 1 in all settings: sigma is sigma / row norm, and the rate of Gamma-radius noise
is beta times the row norm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast.losses import Loss
from oracles.objective_density import Pair, gaussian_deltas
from oracles.objective_pure import pure_epsilon

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Setting:
    """A pair with the public numbers from which a guarantee is computed."""

    pair: Pair
    t: float
    replace_one: bool

    @property
    def loss(self) -> Loss:
        """The pair's loss in the library's own table."""
        name, smoothing, margin = self.pair.kernel
        return Loss(
            name=name, n_classes=max(self.pair.n_scores, 2), smoothing=smoothing, margin=margin
        )

    @property
    def kappa(self) -> float:
        """The library's curvature ratio."""
        return self.loss.curvature_ratio(1.0, self.pair.regularization)

    @property
    def factor(self) -> int:
        """Records in which the worlds differ."""
        return 2 if self.replace_one else 1


def kernel_of(
    name: str, kappa: float, regularization: float, margin: float
) -> tuple[str, float, float]:
    """The kernel of curvature ratio ``kappa``: 1 / (regularization * temperature)."""
    temperature = 1.0 / (kappa * regularization)
    # Huber's half width is twice its temperature.
    return (name, temperature * (2.0 if name == "huber" else 1.0), margin)


def random_setting(
    rng: np.random.Generator,
    name: str,
    n_scores: int,
    d: int,
    *,
    replace_one: bool,
    of_persons: bool = False,
) -> Setting:
    """Zero to three kinds of other records, some heavy; worlds that differ in one, or a person."""
    n_labels = max(n_scores, 2)
    kappa, t = _between(rng, 0.02, 20.0), _between(rng, 0.1, 2.0)
    regularization = _between(rng, 0.05, 20.0)
    kernel = kernel_of(name, kappa, regularization, float(rng.choice([0.0, 1.0, 3.0])))
    n = int(rng.integers(0, 4))
    rows = _directions(rng, n, d) * rng.uniform(0.1, 1.0, (n, 1))
    y = rng.integers(0, n_labels, n)
    counts = rng.choice([1.0, 4.0, 30.0, 300.0], n)
    differing = _persons if of_persons else _difference
    changed, labels, sides = differing(rng, d, n_labels, replace_one=replace_one)
    pair = Pair(
        np.vstack([changed, rows]),
        np.concatenate([labels, y]).astype(np.int64),
        np.concatenate([sides[0], counts]),
        np.concatenate([sides[1], counts]),
        kernel,
        n_scores,
        regularization,
    )
    return Setting(pair, t, replace_one)


def _between(rng: np.random.Generator, low: float, high: float) -> float:
    return math.exp(rng.uniform(math.log(low), math.log(high)))


def _directions(rng: np.random.Generator, n: int, d: int) -> Array:
    rows = rng.normal(size=(n, d))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def _difference(
    rng: np.random.Generator, d: int, n_labels: int, *, replace_one: bool
) -> tuple[Array, Array, tuple[Array, Array]]:
    """The record in which the worlds differ, mostly of norm 1: added; or flipped, negated, ..."""
    x = np.zeros((1, d))
    x[0, 0] = rng.choice([1.0, 1.0, 1.0, -1.0, 0.4])
    label = rng.integers(0, n_labels, 1)
    if not replace_one:
        return x, label, (np.ones(1), np.zeros(1))
    kind = rng.integers(0, 5)
    other = [x, -x, 0.0 * x, 0.3 * x, _directions(rng, 1, d)][kind]
    changed = label if kind in (1, 2, 3) else (label + rng.integers(1, n_labels)) % n_labels
    sides = (np.array([1.0, 0.0]), np.array([0.0, 1.0]))
    return np.vstack([x, other]), np.concatenate([label, changed]), sides


def _persons(
    rng: np.random.Generator, d: int, n_labels: int, *, replace_one: bool
) -> tuple[Array, Array, tuple[Array, Array]]:
    """Persons of 1 to 50 rows that are equal, cancel, add up or point anywhere, in one world."""
    found = []
    for _ in range(1 + replace_one):
        m = int(rng.choice([1, 2, 3, 5, 50]))
        kind = rng.integers(0, 4)
        rows = np.repeat(_directions(rng, 1, d), m, axis=0)
        labels = np.full(m, rng.integers(0, n_labels))
        if kind == 1:
            rows *= np.where(np.arange(m) % 2, -1.0, 1.0)[:, None]
        elif kind > 1:
            rows = _directions(rng, m, d) * rng.uniform(0.3, 1.0, (m, 1)) ** (kind - 2)
        if kind in (0, 3):
            labels = rng.integers(0, n_labels, m)
        found.append((rows, labels, np.full(m, 1.0 / m)))
    rows, labels, shares = (np.concatenate(parts) for parts in zip(*found, strict=True))
    own = np.arange(len(labels)) < len(found[0][1])
    return rows, labels, (shares * own, shares * ~own)


def score_pairs(pair: Pair) -> list[Pair]:
    """A one-vs-rest pair as one independent problem per score."""
    return [
        replace(pair, y=(pair.y == k).astype(np.int64), n_scores=1) for k in range(pair.n_scores)
    ]


def pushed(
    kernel: tuple[str, float, float],
    regularization: float,
    target: float,
    *,
    replace_one: bool,
    n_scores: int = 1,
) -> Pair:
    """One feature: (1, label 1) is added, or takes the place of (1, label 0).

    Records with tiny rows, in both worlds, push W to ``target`` with a constant force: their own
    losses are far from where they curve. (One score. With a score for each of two classes, the
    difference of the scores is pushed to twice that.)
    """
    tiny = 1e-3
    force = regularization * abs(target)
    count = math.ceil(force / tiny)
    rows = [[1.0], [1.0], [math.copysign(force / max(count, 1), target)]]
    second = 1.0 if replace_one else 0.0
    return Pair(
        np.array(rows),
        np.array([1, 0, 1]),
        np.array([1.0, 0.0, float(count)]),
        np.array([0.0, second, float(count)]),
        kernel,
        n_scores,
        regularization,
    )


@dataclass(frozen=True)
class World:
    """A pair on which a claim is met, or nearly, and the budget.

    Rows have exact norms of 1: a row at the bound is that long.
    """

    name: str
    kappa: float
    epsilon: float
    delta: float = 0.0
    adjacency: str = "add_remove"
    target: float = 0.0
    n_scores: int = 1
    # In units of the smoothing: how far the place of full gradients is from W = 0.
    depth: float = 20.0

    @property
    def kernel(self) -> tuple[str, float, float]:
        name, smoothing, _ = kernel_of(self.name, self.kappa, 4.0, 0.0)
        return name, smoothing, 1.0 + self.depth * smoothing

    @property
    def pair(self) -> Pair:
        return pushed(
            self.kernel,
            4.0,
            self.target,
            replace_one=self.adjacency == "replace_one",
            n_scores=self.n_scores,
        )

    def is_kept_by(self, regularization: float, scale: float) -> bool:
        """Whether the exact densities of the pair keep the claim, under noise of this scale.

        Up to the error of integration on a line, and the local search's rounding.
        """
        pair = replace(self.pair, regularization=regularization)
        if not self.delta:
            return pure_epsilon(pair, scale) <= self.epsilon * (1.0 + 1e-9)
        n = 121 if pair.size == 1 else 341
        found = gaussian_deltas(pair, scale, np.array([self.epsilon]), n)
        return bool(found.max() <= self.delta * (1.0 + 5e-4))
