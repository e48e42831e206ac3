"""Both worlds of an audit, taken from the estimator's own path on the tight pair of neighbours."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsvm_fast import OutputPerturbationSVC, _core
from dpsvm_fast.mechanisms.output import OutputPerturbation
from oracles.audit import Array
from oracles.neighbours import Pair, tight_pair
from twins import gaussian as gaussian_twin

C = 0.1
TOL = 1e-3


@dataclasses.dataclass(frozen=True)
class Worlds:
    """The plan, and the certified weights of both data sets."""

    plan: OutputPerturbation
    first: Array
    second: Array

    def project(self, released: Array) -> float:
        """Position of a release along the difference of the worlds."""
        difference = self.first - self.second
        return float((difference * released).sum() / np.linalg.norm(difference))

    def closeness(self, released: Array) -> float:
        """How much closer a release is to the first world: the privacy loss of radial noise."""
        near, far = np.linalg.norm(released - self.first), np.linalg.norm(released - self.second)
        return float(far - near)

    def releases(self, n: int, source: Any = None) -> tuple[Array, Array]:
        """n releases in each world, by the mechanism itself."""
        source = _core.NoiseSource(7) if source is None else source
        first, second = (
            np.array([self.plan.release(weights, source, n_threads=1) for _ in range(n)])
            for weights in (self.first, self.second)
        )
        return first, second


def estimator(adjacency: str, **settings: Any) -> OutputPerturbationSVC:
    """A small model, calibrated to epsilon 4 and delta 1e-5."""
    defaults: dict[str, Any] = {
        "epsilon": 4.0,
        "delta": 1e-5,
        "adjacency": adjacency,
        "classes": [0, 1],
        "C": C,
        "tol": TOL,
        "fit_intercept": False,
        "n_threads": 1,
    }
    return OutputPerturbationSVC(**(defaults | settings))


def pair_of(adjacency: str, n_features: int = 3) -> Pair:
    """The tight pair beside a row of zeros: the estimator refuses an empty training set."""
    pair = tight_pair(adjacency, 2, 0.0)

    def with_zeros(data: tuple[Array, NDArray[np.int64]]) -> tuple[Array, NDArray[np.int64]]:
        rows = data[0][:, :n_features]
        return np.vstack([np.zeros((1, n_features)), rows]), np.append(0, data[1])

    return Pair(with_zeros(pair.first), with_zeros(pair.second), 2, adjacency)


def worlds_of(adjacency: str, n_features: int = 3, **settings: Any) -> Worlds:
    """Fits the estimator in both worlds and keeps what it hands to its mechanism."""
    seen: list[tuple[OutputPerturbation, Array]] = []
    original = OutputPerturbation.release

    def spy(self: OutputPerturbation, weights: Array, source: Any, *, n_threads: int) -> Array:
        seen.append((self, weights))
        return original(self, weights, source, n_threads=n_threads)

    pair = pair_of(adjacency, n_features)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OutputPerturbation, "release", spy)
        for X, y in (pair.first, pair.second):
            estimator(adjacency, **settings).fit(X, y)
    return Worlds(seen[0][0], seen[0][1], seen[1][1])


def claimed_sigma(adjacency: str, epsilon: float = 4.0, delta: float = 1e-5) -> float:
    """Noise of the Gaussian mechanism, from the slow twin and the written sensitivity."""
    factor = {"add_remove": 1.0, "replace_one": 2.0}[adjacency]
    moved = factor * math.sqrt(2.0) * C * (1.0 + 2.0 * TOL)
    return gaussian_twin.sigma(epsilon, delta) * moved
