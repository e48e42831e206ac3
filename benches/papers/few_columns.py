"""PrivateLinearSVC on tables of one and two columns.

Runs as ``python -m benches.papers.few_columns [--splits N]`` with DPSVM_DATA set, prints the table
of docs/accuracy.md and stores nothing. "Without a constant" is the recipe for more columns.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.datasets import load_breast_cancer, make_moons
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benches.papers.cells import error, grid
from benches.papers.data import ADULT_RANGES
from dpsvm_fast import PrivateLinearSVC
from dpsvm_fast.exceptions import NotPrivateWarning
from dpsvm_fast.mechanisms import pipeline

Array = NDArray[np.float64]
# Rows, classes, and public bounds.
Problem = tuple[Array, NDArray[np.int64], Any, Any]

EPSILON, DELTA, SPLITS, N_ROWS = 1.0, 1e-5, 20, 5000


def adult(*columns: str) -> Problem:
    """Numeric columns of Adult."""
    with np.load(Path(os.environ["DPSVM_DATA"]) / "adult.npz") as stored:
        names = [str(name) for name in stored["feature_names"]]
        X = stored["X"][:, [names.index(column) for column in columns]].astype(np.float64)
        low, high = np.array([ADULT_RANGES[column] for column in columns]).T
        return X, stored["y"].astype(np.int64), low, high


def logistic(X: Array, scores: Array, low: Any, high: Any) -> Problem:
    """Classes drawn from a logistic model."""
    y = (np.random.default_rng(1).random(scores.size) < expit(scores)).astype(np.int64)
    return X, y, low, high


def one(draw: Callable[[Any], Array], slope: float, shift: float, low: float, high: float) -> Any:
    """One column of a known law."""
    x = draw(np.random.default_rng(0))
    return logistic(x[:, None], slope * x - shift, low, high)


def radius() -> Problem:
    """Mean radius of breast cancer."""
    X, y = load_breast_cancer(return_X_y=True)
    return X[:, :1], y, 0, 30


def correlated() -> Problem:
    """Two Gaussian columns of correlation 0.8."""
    X = np.random.default_rng(2).normal(size=(N_ROWS, 2)) @ np.array([[1.0, 0.8], [0.0, 0.6]])
    return logistic(X, 2.0 * X[:, 0] + X[:, 1] - 3.3, -6, 6)


def moons() -> Problem:
    """Two half circles."""
    X, y = make_moons(N_ROWS, noise=0.2, random_state=3)
    return X, y, (-2, -1.5), (3, 2)


def blobs() -> Problem:
    """Three classes along the diagonal of a square."""
    rng = np.random.default_rng(4)
    y = rng.integers(0, 3, N_ROWS)
    return 2.0 + 3.0 * y[:, None] + 0.7 * rng.normal(size=(N_ROWS, 2)), y, 0, 10


PROBLEMS: dict[str, Callable[[], Problem]] = {
    "Adult, education-num": lambda: adult("education-num"),
    "Adult, capital-gain": lambda: adult("capital-gain"),
    "breast cancer, radius": radius,
    "Gaussian, 18 % positive": lambda: one(lambda g: g.normal(size=N_ROWS), 2.0, 2.5, -6, 6),
    "exponential, 11 % positive": lambda: one(lambda g: g.exponential(size=N_ROWS), 1, 3.5, 0, 10),
    "lognormal, 16 % positive": lambda: one(lambda g: g.lognormal(size=N_ROWS), 0.5, 2.7, 0, 50),
    "Adult, age and capital-gain": lambda: adult("age", "capital-gain"),
    "correlated Gaussians": correlated,
    "moons": moons,
    "blobs on a diagonal": blobs,
}


def accuracy(problem: Problem, split: int, most: int) -> tuple[float, float, float]:
    """Accuracies of the private model, of the majority class, and of logistic regression."""
    X, y, low, high = problem
    train, test = train_test_split(np.arange(y.size), test_size=0.2, random_state=split)
    bounds, classes = (low, high), range(int(y.max()) + 1)
    model = PrivateLinearSVC(EPSILON, DELTA, bounds=bounds, classes=classes, random_state=split)
    before, pipeline.MOST_STRAIGHTENED = pipeline.MOST_STRAIGHTENED, most
    try:
        found = model.fit(X[train], y[train]).score(X[test], y[test])
    finally:
        pipeline.MOST_STRAIGHTENED = before
    exact = make_pipeline(StandardScaler(), LogisticRegression()).fit(X[train], y[train])
    majority = np.mean(y[test] == np.bincount(y[train]).argmax())
    return found, float(majority), float(exact.score(X[test], y[test]))


def table(splits: int) -> str:
    """One line for each problem."""
    lines = []
    for name, made in PROBLEMS.items():
        problem = made()
        runs = [
            [accuracy(problem, split, most) for split in range(splits)]
            for most in (pipeline.MOST_STRAIGHTENED, 0)
        ]
        now, majority, exact = zip(*runs[0], strict=True)
        before = [run[0] for run in runs[1]]
        shown = [f"{mean(found):.3f} ± {error(found):.3f}" for found in (now, before)]
        lines.append((name, *shown, f"{mean(majority):.3f}", f"{mean(exact):.3f}"))
    heads = ("", "PrivateLinearSVC", "without a constant", "majority class", "logistic regression")
    return grid(heads, lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=int, default=SPLITS)
    warnings.simplefilter("ignore", NotPrivateWarning)
    print(table(parser.parse_args().splits))
