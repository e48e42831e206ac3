"""The additive kernel against the linear model and the automatic kernel, over many shapes.

Runs as ``python -m benches.papers.additive [--splits N]`` with DPSVM_DATA set, prints the table of
docs/accuracy.md and stores nothing. The problems are those of ``defaults_search``, none of which
chose a constant of the additive kernel, and synthetic ones.
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Iterator
from statistics import mean

import numpy as np
from scipy.special import expit
from scipy.stats import spearmanr
from sklearn import datasets
from sklearn.model_selection import train_test_split

from benches.papers.cells import error, grid
from benches.papers.defaults_search import Problem, problems
from dpsvm_fast import PrivateKernelSVC
from dpsvm_fast.exceptions import NotPrivateWarning

EPSILON, DELTA, SPLITS, KNOTS = 1.0, 1e-5, 5, 5
KERNELS = ("linear", "auto", "additive")


def synthetic() -> Iterator[tuple[str, Problem]]:
    """Classes by sums over the columns, by distances from a point, and by clusters."""
    rng = np.random.default_rng(5)
    for n, d in ((2000, 3), (20_000, 8), (50_000, 20)):
        X = rng.uniform(size=(n, d))
        waves = np.sin(2.0 * math.pi * (X * (1 + np.arange(d) % 3) + 0.3 * np.arange(d)))
        for name, terms in (("waves", waves), ("vees", 4.0 * np.abs(X - 0.5) - 1.0)):
            y = rng.random(n) < expit(3.0 / math.sqrt(d) * terms.sum(axis=1))
            bounds = np.zeros(d), np.ones(d)
            yield f"{name} {n}:{d}:2", Problem(name, X, y.astype(np.int64), *bounds)
    for n, d, K in ((5000, 10, 2), (40_000, 30, 3)):
        X, y = datasets.make_gaussian_quantiles(
            n_samples=n, n_features=d, n_classes=K, random_state=2
        )
        far = np.full(d, 4.0)
        yield f"spheres {n}:{d}:{K}", Problem("spheres", X, y, -far, far)
    for n, K in ((20_000, 4), (60_000, 2)):
        X, y = datasets.make_classification(
            n,
            20,
            n_informative=10,
            n_redundant=5,
            n_classes=K,
            n_clusters_per_class=3,
            random_state=3,
        )
        far = np.full(20, 10.0)
        yield f"clusters {n}:20:{K}", Problem("clusters", X, y, -far, far)


def accuracies(problem: Problem, split: int) -> list[float]:
    """Accuracy with each kernel; columns of zeros and ones have a single function."""
    train, test = train_test_split(np.arange(problem.y.size), test_size=0.2, random_state=split)
    binary = (problem.low == 0.0) & (problem.high == 1.0) & np.isin(problem.X, (0, 1)).all(axis=0)
    found = []
    for kernel in KERNELS:
        model = PrivateKernelSVC(
            EPSILON,
            DELTA,
            bounds=(problem.low, problem.high),
            classes=range(int(problem.y.max()) + 1),
            kernel=kernel,
            knots=[1 if one else KNOTS for one in binary],
            random_state=split,
        )
        model.fit(problem.X[train], problem.y[train])
        found.append(model.score(problem.X[test], problem.y[test]))
    return found


def table(splits: int) -> str:
    """One line for each problem, by the number of rows for each function."""
    lines, gains = [], []
    for makers in (synthetic(), problems()):
        for name, problem in makers:
            runs = np.array([accuracies(problem, split) for split in range(splits)])
            each = 0.8 * problem.y.size / (KNOTS * problem.X.shape[1])
            own = runs[:, 2] - runs[:, 1]
            gains.append((each, mean(own)))
            shape = f"{problem.y.size:,} x {problem.X.shape[1]}, {int(problem.y.max()) + 1}"
            shown = [f"{mean(runs[:, k]):.3f}" for k in range(3)]
            gain = f"{mean(own):+.3f} ± {error(list(own)):.3f}"
            lines.append((each, name, shape, f"{each:.0f}", *shown, gain))
            print(lines[-1], flush=True)
    heads = ("", "rows x columns, classes", "rows a function", *KERNELS, "additive - auto")
    rank = spearmanr(*zip(*gains, strict=True))
    return (
        grid(heads, [line[1:] for line in sorted(lines)])
        + f"\nMean gain {mean(gain for _, gain in gains):+.3f}; rank correlation with the rows a "
        f"function {rank.statistic:.2f} (p = {rank.pvalue:.2f}).\n"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=int, default=SPLITS)
    warnings.simplefilter("ignore", NotPrivateWarning)
    print(table(parser.parse_args().splits))
