"""The Crammer-Singer solver against LIBLINEAR on synthetic rows of many shapes.

    python -m benches.crammer_singer_grid [--rounds 3] [--only NAME]

Ours ends with a certified distance of at most 0.001 of the sensitivity (add or remove one record),
LIBLINEAR at tol 1e-6, which tells no distance. One thread each, processor time, medians of rounds
in which both alternate; each has a process of its own. After ``ROUNDS_SECONDS`` of runs no more
rounds follow, and a run is ended after ``LIMIT``, which then counts as its time. So that all takes
about 20 minutes, sets have the values of C in turns: every other one. Written to
``benches/results/crammer_singer_grid.csv`` and its table, unless ``--only`` is given.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.preprocessing import normalize

# Run as a script, this folder is on the path instead of the one that holds the package.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benches import tables
from benches.config import LIBLINEAR_TOL, TARGETS
from benches.libraries import ours, sklearn_liblinear
from benches.machine import description, require_release
from benches.measuring import Child
from benches.papers.cells import grid
from benches.problem import Problem
from benches.readme_tables import Summaries
from dpsvm_fast import _core

Rows = tuple[NDArray[np.float64], NDArray[np.int64]]

NAME, PAGE = "crammer_singer_grid", "docs/performance.md"
C_VALUES = (1e-3, 0.01, 0.1, 1.0, 10.0)
# Seconds: of runs of a cell, after which it has no more rounds; of a run; to make the rows.
ROUNDS_SECONDS, LIMIT, READY = 4.0, 15.0, 60.0
AIM = 2.5


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


def _csr(make: Callable[[], Rows]) -> tuple[Any, NDArray[np.int64]]:
    X, y = make()
    return sparse.csr_matrix(X), y


SETS: dict[str, Callable[[], Any]] = {
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
    "counts 10000 x 2000, 20, CSR": partial(_csr, partial(_words, 10_000, 2000, 20, seed=20)),
    "one-hot 60000 x 160, 5, CSR": partial(
        _csr, partial(_one_hot, 60_000, (20,) * 8, 5, 0.5, seed=21)
    ),
}


def _solve(library: str, name: str) -> Callable[[float, int], float]:
    """Processor seconds on a set, with rows scaled to norm 1, by C and round."""
    X, y = SETS[name]()
    X = normalize(X)
    codes = np.unique(y, return_inverse=True)[1].astype(np.int64)

    def seconds(C: float, seed: int) -> float:
        problem = Problem(X, codes, int(codes.max()) + 1, C)
        begin = time.process_time()
        if library == "ours":
            relation, tol = TARGETS[-1]
            ours.solve(problem, relation=relation, tol=tol, seed=seed, n_threads=1)
        else:
            sklearn_liblinear.solve(problem, tol=LIBLINEAR_TOL, seed=seed)
        return time.process_time() - begin

    return seconds


def measured(number: int, rounds: int) -> list[tables.Row]:
    """One row a value of C, of a set by its number."""
    name, found = list(SETS)[number], []
    children: dict[str, Child] = {}
    for C in C_VALUES[number % 2 :: 2]:
        seconds: dict[str, list[float]] = {"ours": [], "liblinear": []}
        for repeat in range(rounds):
            for library in list(seconds)[:: 1 - 2 * (repeat % 2)]:
                if sum(seconds[library]) > ROUNDS_SECONDS:
                    continue
                if library not in children or not children[library].alive:
                    children[library] = Child(READY, _solve, library, name)
                took = children[library].ask(LIMIT, C, repeat)
                seconds[library].append(LIMIT if took is None else took)
        middle = {library: median(all_of) for library, all_of in seconds.items()}
        late = " ".join(library for library in middle if LIMIT in seconds[library])
        found.append({"set": name, "C": C, **middle, "late": late})
        found[-1]["ratio"] = middle["liblinear"] / middle["ours"]
        print(*found[-1].values(), sep=", ", flush=True)
    for child in children.values():
        child.end()
    return tables.as_rows(found)


def page(found: Summaries) -> str:
    """A line a set, and what the cells have together."""
    rows = found[NAME]
    values = sorted({row["C"] for row in rows}, key=float)
    cells = {(row["set"], row["C"]): _shown(row) for row in rows}
    lines = grid(
        ("rows x columns, classes", *(f"C = {C}" for C in values)),
        (
            (one, *(cells.get((one, C), "") for C in values))
            for one in dict.fromkeys(s for s, _ in cells)
        ),
    )
    ratios = {
        row["set"] + ", C = " + row["C"]: float(row["ratio"])
        for row in rows
        if row["late"] != "ours liblinear"
    }
    weakest = min(ratios, key=lambda one: ratios[one])
    below = sum(ratio < AIM for ratio in ratios.values())
    mean = geometric_mean(ratios.values())
    return (
        f"{lines}\n\nGeometric mean of {len(ratios)} cells {mean:.1f}\u00d7; weakest "
        f"{ratios[weakest]:.2f}\u00d7 ({weakest}); {below} below {AIM}\u00d7. Processor time, one "
        f"thread. A run ends after {LIMIT:g} s, which then counts as its time (> in the table). "
        "liblinear-multicore is no peer here: its Crammer-Singer solver has no threads."
    )


def _shown(row: tables.Row) -> str:
    """Ratio and times, bold where ours is faster."""
    times = " vs. ".join(
        f"{'>' * (library in row['late'].split())}{float(row[library]):.2g} s"
        for library in ("ours", "liblinear")
    )
    if row["late"] == "ours liblinear":
        return times
    ratio = f"{float(row['ratio']):.2g}\u00d7"
    return f"{f'**{ratio}**' if float(row['ratio']) > 1.0 else ratio} ({times})"


def main() -> None:
    """Measure, store and fill the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="sets whose name contains this")
    options = parser.parse_args()
    build = _core.build_info()
    require_release(build)
    numbers = [i for i, name in enumerate(SETS) if options.only in name]
    rows = [row for number in numbers for row in measured(number, options.rounds)]
    print(page({NAME: rows}))
    if not options.only:
        from benches import pages

        root = Path(__file__).resolve().parents[1]
        results = root / "benches" / "results"
        tables.write(results / f"{NAME}.csv", rows, description(build, 1))
        pages.fill(PAGE, results, root)


if __name__ == "__main__":
    main()
