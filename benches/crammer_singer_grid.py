"""The Crammer-Singer solver against LIBLINEAR on synthetic rows of many shapes, weakest first.

    python -m benches.crammer_singer_grid [--rounds 3] [--only NAME]

Ours ends with a certified distance of at most 0.001 of the sensitivity (add or remove one record),
LIBLINEAR at tol 1e-6, which tells no distance. One thread each, processor time, medians of rounds
in which both alternate. Nothing is stored.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import geometric_mean, median

import numpy as np
from numpy.typing import NDArray

# Run as a script, this folder is on the path instead of the one that holds the package.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from threadpoolctl import threadpool_limits

from benches.config import LIBLINEAR_TOL, TARGETS
from benches.libraries import ours, sklearn_liblinear
from benches.machine import require_release
from benches.measuring import interleaved
from benches.problem import Problem
from dpsvm_fast import _core

Rows = tuple[NDArray[np.float64], NDArray[np.int64]]

C_VALUES = (1e-3, 0.01, 0.1, 1.0, 10.0)


def _clusters(
    n: int, d: int, K: int, spread: float, *, seed: int, parts: int = 1, mean: float = 0.0
) -> Rows:
    """Classes of several clusters each; with a mean, columns are correlated and badly scaled."""
    rng = np.random.default_rng(seed)
    shape = np.eye(d)
    if mean:
        scale = 0.02 ** (np.arange(d) / max(d - 1, 1))
        shape = rng.standard_normal((d, d)) * np.sqrt(scale / scale.sum())[:, None]
    centres = rng.standard_normal((K, parts, d)) @ shape
    y = rng.integers(0, K, n)
    X = centres[y, rng.integers(0, parts, n)] + spread * rng.standard_normal((n, d)) @ shape
    return X + mean, y


def _lattice(n: int, d: int, K: int, levels: int, spread: float, *, seed: int) -> Rows:
    """Whole numbers."""
    X, y = _clusters(n, d, K, spread, seed=seed, parts=3, mean=2.0)
    return np.clip(np.rint(2.5 * X + 2.0), 0, levels - 1), y


def _one_hot(n: int, categories: tuple[int, ...], K: int, noise: float, *, seed: int) -> Rows:
    """Categories, with labels of a noisy linear model."""
    rng = np.random.default_rng(seed)
    columns = [np.eye(c)[rng.integers(0, c, n)] for c in categories]
    X = np.concatenate(columns, axis=1)
    scores = X @ rng.standard_normal((X.shape[1], K)) + noise * rng.gumbel(size=(n, K))
    return X, scores.argmax(axis=1)


def _words(n: int, d: int, K: int, *, seed: int) -> Rows:
    """Counts of words, whose frequencies have a power law."""
    rng = np.random.default_rng(seed)
    frequency = np.exp(rng.standard_normal((K, d))) / (np.arange(d) + 5.0)
    frequency /= frequency.sum(axis=1, keepdims=True)
    y = rng.integers(0, K, n)
    return np.stack([rng.multinomial(40, frequency[k]) for k in y]).astype(float), y


CELLS: dict[str, Callable[[], Rows]] = {
    "continuous 500 x 2, 3": partial(_clusters, 500, 2, 3, 1.0, seed=1),
    "continuous 500 x 2, 100, overlapping": partial(_clusters, 500, 2, 100, 0.3, seed=2),
    "continuous 60000 x 2, 4": partial(_clusters, 60_000, 2, 4, 0.8, seed=3),
    "continuous 8000 x 10, 12, overlapping": partial(_clusters, 8000, 10, 12, 1.5, seed=4),
    "correlated 8000 x 10, 12, overlapping": partial(
        _clusters, 8000, 10, 12, 1.0, seed=5, parts=3, mean=2.0
    ),
    "continuous 8000 x 16, 26": partial(_clusters, 8000, 16, 26, 0.6, seed=6),
    "continuous 8000 x 16, 26, separable": partial(_clusters, 8000, 16, 26, 0.15, seed=7),
    "continuous 60000 x 16, 10, overlapping": partial(_clusters, 60_000, 16, 10, 1.5, seed=8),
    "correlated 8000 x 64, 10": partial(_clusters, 8000, 64, 10, 1.0, seed=9, parts=3, mean=2.0),
    "continuous 2000 x 64, 100": partial(_clusters, 2000, 64, 100, 0.8, seed=10),
    "continuous 5000 x 512, 50": partial(_clusters, 5000, 512, 50, 2.0, seed=11),
    "continuous 500 x 2048, 5": partial(_clusters, 500, 2048, 5, 3.0, seed=12),
    "whole numbers 8000 x 16, 26": partial(_lattice, 8000, 16, 26, 16, 0.5, seed=13),
    "whole numbers 20000 x 8, 100": partial(_lattice, 20_000, 8, 100, 8, 0.5, seed=14),
    "whole numbers 60000 x 30, 3": partial(_lattice, 60_000, 30, 3, 4, 1.0, seed=15),
    "one-hot 8000 x 27, 5": partial(_one_hot, 8000, (3, 5, 4, 4, 3, 2, 3, 3), 5, 0.5, seed=16),
    "one-hot 20000 x 120, 8": partial(_one_hot, 20_000, (10,) * 12, 8, 1.0, seed=17),
    "counts 7600 x 2048, 4": partial(_words, 7600, 2048, 4, seed=18),
    "counts 3000 x 1000, 10": partial(_words, 3000, 1000, 10, seed=19),
}


def _problem(rows: Rows, C: float) -> Problem:
    """Rows scaled to norm 1; labels without gaps."""
    X, y = rows
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    codes = np.unique(y, return_inverse=True)[1].astype(np.int64)
    X = np.ascontiguousarray(X / np.where(norms > 0, norms, 1.0))
    return Problem(X, codes, int(codes.max()) + 1, C)


def _ours(problem: Problem, seed: int) -> None:
    relation, tol = TARGETS[-1]
    ours.solve(problem, relation=relation, tol=tol, seed=seed, n_threads=1)


def _liblinear(problem: Problem, seed: int) -> None:
    sklearn_liblinear.solve(problem, tol=LIBLINEAR_TOL, seed=seed)


def main() -> int:
    """Measure and print every cell."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="cells whose name contains this")
    options = parser.parse_args()
    require_release(_core.build_info())
    lines: list[tuple[float, str]] = []
    with threadpool_limits(limits=1):
        for name, make in CELLS.items():
            if options.only not in name:
                continue
            rows = make()
            for C in C_VALUES:
                problem = _problem(rows, C)
                solvers = {"ours": partial(_ours, problem), "peer": partial(_liblinear, problem)}
                seconds: dict[str, list[float]] = {"ours": [], "peer": []}
                for measured in interleaved(solvers, options.rounds):
                    seconds[measured.label].append(measured.cpu_seconds)
                mine, theirs = median(seconds["ours"]), median(seconds["peer"])
                text = f"{name}, C = {C:g}: {mine:.4f} s against {theirs:.4f} s"
                lines.append((theirs / mine, text))
                print(f"{theirs / mine:8.2f}  {text}", file=sys.stderr, flush=True)
    for ratio, text in sorted(lines):
        print(f"{ratio:8.2f}  {text}")
    print(f"{geometric_mean(ratio for ratio, _ in lines):8.2f}  geometric mean")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
