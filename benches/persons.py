"""Whole persons: one fit that knows them, beside what one does without.

Rows are dealt to persons at random, so that each owns so many, or by a law in which a few own most;
those of wisdm also to the 36 people who wore the phone. ``python -m benches.persons`` prints a
table of accuracies on rows of other persons, and one of balanced accuracies with weights of
classes, with DPSVM_DATA set. ``python -m benches.persons speed`` prints processor times of a
million rows, by rows and by persons, one thread each and in turns.
"""

from __future__ import annotations

import gc
import os
import pickle
import sys
import time
import warnings
import weakref
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import balanced_accuracy_score

from benches.papers.data import load
from dpsvm_fast import PrivateLinearSVC
from dpsvm_fast.accounting import gaussian_epsilon, gaussian_sigma

EPSILON, DELTA = 1.0, 1e-5
SIZES: dict[str, int] = {"5 rows": 5, "20 rows": 20, "50 rows": 50, "1 to 50 rows": 0}
MOST, TEST_SHARE = 50, 0.25
METHODS = ("groups=", "groups of rows", "one row each", "rows", "ε = 1000")


def owners(n: int, size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """The person of each row: of one size, or of sizes as frequent as their inverse squares."""
    sizes = np.full(n, max(size, 1))
    if not size:
        law = 1.0 / np.arange(1, MOST + 1) ** 2.0
        sizes = rng.choice(np.arange(1, MOST + 1), size=n, p=law / law.sum())
    return rng.permutation(np.repeat(np.arange(n), sizes)[:n])


def users(name: str) -> NDArray[np.int64] | None:
    """Who made each row, where the file says so."""
    with np.load(Path(os.environ["DPSVM_DATA"]) / f"{name}.npz", allow_pickle=False) as stored:
        return stored["group"] if "group" in stored.files else None


def group_epsilon(size: int) -> float:
    """The epsilon of rows at which so many of them together are protected by the budget."""
    return gaussian_epsilon(DELTA, gaussian_sigma(EPSILON, DELTA) * size)


def accuracies(
    X: NDArray[np.float32],
    y: NDArray[np.int64],
    ids: NDArray[np.int64],
    low_high: object,
    seed: int,
) -> list[float]:
    """Of each method, on the rows of a quarter of the persons."""
    rng = np.random.default_rng(seed)
    people = rng.permutation(np.unique(ids))
    test = np.isin(ids, people[: max(1, int(TEST_SHARE * people.size))])
    X_test, y_test, X, y, ids = X[test], y[test], X[~test], y[~test], ids[~test]
    order = rng.permutation(y.size)
    one = order[np.unique(ids[order], return_index=True)[1]]
    largest = int(np.unique(ids, return_counts=True)[1].max())
    found = []
    for method in METHODS:
        epsilon = {"groups of rows": group_epsilon(largest), "ε = 1000": 1e3}.get(method, EPSILON)
        kept = one if method == "one row each" else slice(None)
        model = PrivateLinearSVC(epsilon, DELTA, classes=np.unique(y), bounds=low_high)
        model.fit(X[kept], y[kept], groups=ids if method == "groups=" else None)
        found.append(float(model.score(X_test, y_test)))
    return found


def imbalanced() -> Iterator[tuple[str, NDArray[np.float32], NDArray[np.int64], object]]:
    """Data sets whose classes differ in size; of usps one digit, with 4 % of the rows, or not."""
    for name in ("adult", "cornell", "usps"):
        data = load(name)
        if data is None:
            continue
        X, y, title = data.X.astype(np.float32), data.y, name
        if name == "usps":
            y, title = (y == 8).astype(np.int64), "usps, one digit"
            keep = np.flatnonzero((y == 0) | (np.cumsum(y) % 2 == 0))
            X, y = X[keep], y[keep]
        yield title, X, y, (data.low, data.high)


def balanced(n_seeds: int) -> None:
    """Print balanced accuracies without weights of classes, and with."""
    weights: dict[str, object] = {"no weights": None, '"balanced"': "balanced"}
    print(f"| data | share of the rarest class | {' | '.join(weights)} | ε = 1000 |")
    print("|" + "---|" * (len(weights) + 3))
    for title, X, y, low_high in imbalanced():
        runs = []
        for seed in range(n_seeds):
            test = np.random.default_rng(seed).random(y.size) < TEST_SHARE
            run = []
            for epsilon, weight in (*((EPSILON, w) for w in weights.values()), (1e3, None)):
                model = PrivateLinearSVC(epsilon, DELTA, classes=np.unique(y), bounds=low_high)
                model.set_params(class_weight=weight).fit(X[~test], y[~test])
                run.append(balanced_accuracy_score(y[test], model.predict(X[test])))
            runs.append(run)
        share = np.bincount(y).min() / y.size
        cells = [f"{a:.3f}" for a in np.mean(runs, axis=0)]
        print(f"| {title} | {share:.1%} | {' | '.join(cells)} |", flush=True)


def main(n_seeds: int = 5) -> None:
    """Print both tables."""
    warnings.simplefilter("ignore")
    balanced(n_seeds)
    print(f"| data | rows a person | number of persons | {' | '.join(METHODS)} |")
    print("|" + "---|" * (len(METHODS) + 3))
    for name in ("usps", "adult", "wisdm"):
        data = load(name)
        if data is None:
            continue
        X, y = data.X.astype(np.float32), data.y
        real = users(name)
        for kind, size in (SIZES if real is None else SIZES | {"as they are": -1}).items():
            runs = []
            for seed in range(n_seeds):
                dealt = owners(y.size, size, np.random.default_rng(seed)) if size >= 0 else real
                ids = np.asarray(dealt)
                runs.append(accuracies(X, y, ids, (data.low, data.high), seed))
            cells = [f"{a:.3f}" for a in np.mean(runs, axis=0)]
            print(f"| {name} | {kind} | {np.unique(ids).size} | {' | '.join(cells)} |", flush=True)


def speed(n_rows: int = 1_000_000, n_rounds: int = 3, n_columns: int = 20) -> None:
    """Print processor times of fits by rows and by persons; their ids are forgotten."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, n_columns)).astype(np.float32)
    y = (X[:, 0] + 0.5 * rng.normal(size=n_rows) > 0).astype(np.int64)
    model = PrivateLinearSVC(EPSILON, DELTA, classes=[0, 1], bounds=(-4.0, 4.0), n_threads=1)
    kinds = {f"{size} a person": rng.permutation(np.arange(n_rows) // size) for size in (1, 5, 50)}
    owned: dict[str, NDArray[np.int64] | None] = {"rows": None, **kinds}
    times: dict[str, list[float]] = {kind: [] for kind in owned}
    for _ in range(n_rounds):
        for kind, ids in owned.items():
            own = y[:0] if ids is None else ids.copy()
            started = time.process_time()
            model.fit(X, y, groups=None if ids is None else own)
            times[kind].append(time.process_time() - started)
            left = weakref.ref(own)
            del own
            gc.collect()
            assert left() is None, "something holds the ids"
            assert len(pickle.dumps(model)) < n_rows / 2, "something of each row is kept"
    least = np.median(times["rows"])
    print(f"| {n_rows} rows of {n_columns} columns | seconds | times that of rows |\n|---|---|---|")
    for kind, seconds in times.items():
        found = np.median(seconds)
        print(f"| {kind} | {found:.2f} | {found / least:.3f} |", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["speed"]:
        speed(*map(int, sys.argv[2:]))
    else:
        main(*map(int, sys.argv[1:]))
