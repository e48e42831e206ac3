"""Nested balls of Sarwate, Chaudhuri and Monteleoni (2009, section 6), and kernel machines on them.

In five dimensions: mass 0.45 uniformly in the ball of radius 0.1, positive; 0.45 between radii 0.2
and 0.5, negative; 0.1 between radii 0.1 and 0.2 with labels of a fair coin. No linear model does
better than one class for all; the best rule has error 0.05. Errors are expectations over the labels
of fresh points, so that their coins add no noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline

from benches.papers.scm import DELTA, NOT_PRIVATE, linear, objective, spending
from dpsvm_fast import PrivateKernelSVC, RandomFourierFeatures

Array = NDArray[np.float64]

N_FEATURES = 5
RADII = (0.0, 0.1, 0.2, 0.5)
MASSES = (0.45, 0.1, 0.45)
# Of a positive label, from the inside out.
POSITIVE = (1.0, 0.5, 0.0)
BAYES = 0.05
# The public bound of a row's norm.
NORM = RADII[-1]

# Points of the paper, and those by which we judge.
N_POINTS = 240_000
TEST_POINTS = 100_000
# The paper's k(x, x') = exp(-0.5 ||x - x'||^2) of raw rows, and its number of features.
GAMMA = 0.5
COMPONENTS = 100
# Features sqrt(2 / D) cos(<w, x> + psi), as the paper has them, are up to this long.
LONGEST = 2.0**0.5
# Of Algorithm 2; the smallest error on test points counts.
LAMBDAS = (1e-4, 1e-5)

ALGORITHM_2 = "Algorithm 2"
PURE_KERNEL = "PrivateKernelSVC, δ = 0"
PURE_KERNEL_GAMMA = "PrivateKernelSVC, δ = 0, the paper's gamma"
KERNEL = "PrivateKernelSVC, δ = 1e-5"
LINEAR = "PrivateLinearSVC, δ = 0"


def points(n: int, rng: np.random.Generator) -> tuple[Array, NDArray[np.int64], Array]:
    """Rows, labels, and the probability of a positive label at each row."""
    shell = rng.choice(len(MASSES), size=n, p=MASSES)
    inner, outer = np.array(RADII[:-1])[shell], np.array(RADII[1:])[shell]
    volume = rng.uniform(inner**N_FEATURES, outer**N_FEATURES)
    directions = rng.normal(size=(n, N_FEATURES))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    chance = np.array(POSITIVE)[shell]
    labels = (rng.random(n) < chance).astype(np.int64)
    return directions * volume[:, None] ** (1.0 / N_FEATURES), labels, chance


def expected_error(predicted: NDArray[np.int64], chance: Array) -> float:
    """Probability that a predicted label is wrong, each shell with its own mass."""
    wrong = np.where(predicted == 1, 1.0 - chance, chance)
    parts = zip(MASSES, POSITIVE, strict=True)
    return float(sum(mass * wrong[chance == positive].mean() for mass, positive in parts))


def kernel(epsilon: float, delta: float, **settings: Any) -> PrivateKernelSVC:
    """The private kernel machine for rows whose length matters."""
    return PrivateKernelSVC(
        epsilon,
        delta,
        kernel="rbf",
        n_components=COMPONENTS,
        normalize=False,
        data_norm=NORM,
        classes=range(2),
        n_threads=1,
        **settings,
    )


def long_features(draw: int) -> RBFSampler:
    """The features of Algorithm 2, drawn without the points: only the width is learned."""
    sampler = RBFSampler(gamma=GAMMA, n_components=COMPONENTS, random_state=draw)
    return sampler.fit(np.zeros((1, N_FEATURES)))


def without_privacy(draw: int) -> Pipeline:
    """A linear model on features of the paper's kernel."""
    features = RandomFourierFeatures(COMPONENTS, GAMMA, random_state=draw)
    return make_pipeline(features, LogisticRegression(C=1e4, max_iter=500))


# Ours: no parameter depends on the data. Gamma is that of rows divided by their bound.
METHODS: dict[str, Callable[[float], Any]] = {
    PURE_KERNEL: lambda epsilon: kernel(epsilon, 0.0),
    PURE_KERNEL_GAMMA: lambda epsilon: kernel(epsilon, 0.0, gamma=GAMMA * NORM**2),
    KERNEL: lambda epsilon: kernel(epsilon, DELTA),
    LINEAR: lambda epsilon: linear(epsilon, 0.0),
}


def fits(n: int, draw: int, epsilons: Sequence[float]) -> Iterator[dict[str, object]]:
    """One record a fit to one draw of points: every method, without privacy once."""
    X, y, _ = points(n, np.random.default_rng([n, draw]))
    fresh, _, chance = points(TEST_POINTS, np.random.default_rng([n, draw, 1]))
    place = {"n": n, "split": draw, "draw": 0}

    def fitted(name: str, model: Any, rows: tuple[Array, Array]) -> dict[str, object]:
        own, judged = rows
        error = expected_error(model.fit(own, y).predict(judged), chance)
        return {"method": name} | place | spending(model) | {"error": error}

    known = {"Lambda": None, "epsilon": None}
    yield known | fitted(NOT_PRIVATE, without_privacy(draw), (X, fresh))
    for epsilon in epsilons:
        for name, method in METHODS.items():
            yield known | {"epsilon": epsilon} | fitted(name, method(epsilon), (X, fresh))
    features = long_features(draw)
    rows = features.transform(X), features.transform(fresh)
    for epsilon in epsilons:
        for Lambda in LAMBDAS:
            model = objective(epsilon, n * Lambda, data_norm=LONGEST)
            yield {"Lambda": Lambda, "epsilon": epsilon} | fitted(ALGORITHM_2, model, rows)
