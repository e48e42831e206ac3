"""Whole persons: one fit that knows them, beside what one does without.

Rows are dealt to persons at random, so that each owns so many, or by a law in which a few own most;
those of wisdm also to the 36 people who wore the phone. With DPSVM_DATA set,
``python -m benches.persons`` measures accuracies on rows of other persons, mean accuracies of
classes with weights of classes, and all measures on rare classes; it stores every fit and fills the
tables of docs/several_rows.md. ``--measure`` names one of these.
The exit status is 1 where ``groups=`` is not the best way to protect persons.
``python -m benches.persons speed`` prints processor times of a million rows, by rows and by
persons, one thread each and in turns.
"""

from __future__ import annotations

import argparse
import gc
import os
import pickle
import sys
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benches import pages, tables
from benches.machine import description
from benches.papers.cells import accuracy, cells, error
from benches.papers.data import load
from benches.papers.scores import METRICS, Split, scores
from dpsvm_fast import PrivateKernelSVC, PrivateLinearSVC, _core
from dpsvm_fast.accounting import gaussian_epsilon, gaussian_sigma

EPSILON, DELTA = 1.0, 1e-5
SIZES: dict[str, int] = {"5 rows": 5, "20 rows": 20, "50 rows": 50, "1 to 50 rows": 0}
MAX, TEST_SHARE = 50, 0.25
KNOWN = "groups="
# Other ways to protect persons by the same budget.
WITHOUT = ("groups of rows", "one row each")
METHODS = (KNOWN, *WITHOUT, "rows", "ε = 1000")
# Of persons as they are also with more budget.
AS_THEY_ARE, MORE = "as they are", (4.0, 8.0, 16.0)
WEIGHTS: dict[str, tuple[float, Any]] = {
    "no weights": (EPSILON, None),
    '"balanced"': (EPSILON, "balanced"),
    "no weights, ε = 1000": (1000.0, None),
}
ROOT = Path(__file__).resolve().parents[1]
RESULTS, PAGE = ROOT / "benches" / "results", "docs/several_rows.md"


def owners(n: int, size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """The person of each row: of one size, or of sizes as frequent as their inverse squares."""
    sizes = np.full(n, max(size, 1))
    if not size:
        law = 1.0 / np.arange(1, MAX + 1) ** 2.0
        sizes = rng.choice(np.arange(1, MAX + 1), size=n, p=law / law.sum())
    return rng.permutation(np.repeat(np.arange(n), sizes)[:n])


def users(name: str) -> NDArray[np.int64] | None:
    """Who made each row, where the file says so."""
    with np.load(Path(os.environ["DPSVM_DATA"]) / f"{name}.npz", allow_pickle=False) as stored:
        return stored["group"] if "group" in stored.files else None


def group_epsilon(size: int) -> float:
    """The epsilon of rows at which so many of them together are protected by the budget."""
    return gaussian_epsilon(DELTA, gaussian_sigma(EPSILON, DELTA) * size)


def fits(
    X: NDArray[np.float32], y: NDArray[np.int64], ids: NDArray[np.int64], low_high: Any, seed: int
) -> dict[str, Callable[[float], float]]:
    """By method the accuracy at an epsilon, on the rows of a quarter of the persons."""
    rng = np.random.default_rng(seed)
    people = rng.permutation(np.unique(ids))
    test = np.isin(ids, people[: max(1, int(TEST_SHARE * people.size))])
    X_test, y_test, X, y, ids = X[test], y[test], X[~test], y[~test], ids[~test]
    order = rng.permutation(y.size)
    one = order[np.unique(ids[order], return_index=True)[1]]
    largest = int(np.unique(ids, return_counts=True)[1].max())

    def measured(method: str, epsilon: float) -> float:
        epsilon = {"groups of rows": group_epsilon(largest), "ε = 1000": 1e3}.get(method, epsilon)
        kept = one if method == "one row each" else slice(None)
        model = PrivateLinearSVC(epsilon, DELTA, classes=np.unique(y), bounds=low_high)
        model.fit(X[kept], y[kept], groups=ids if method == KNOWN else None)
        return float(model.score(X_test, y_test))

    return {method: partial(measured, method) for method in METHODS}


def persons(repeats: int) -> Iterator[dict[str, Any]]:
    """Every fit that is to protect persons, or rows."""
    for name in ("usps", "adult", "wisdm"):
        data = load(name)
        if data is None:
            continue
        X, y, real = data.X.astype(np.float32), data.y, users(name)
        for kind, size in (SIZES if real is None else SIZES | {AS_THEY_ARE: -1}).items():
            for seed in range(repeats):
                dealt = owners(y.size, size, np.random.default_rng(seed)) if size >= 0 else real
                ids = np.asarray(dealt)
                found = fits(X, y, ids, (data.low, data.high), seed)
                asked = [(method, EPSILON) for method in found]
                if kind == AS_THEY_ARE:
                    asked += [(KNOWN, epsilon) for epsilon in MORE]
                for method, epsilon in asked:
                    yield {
                        "data": name,
                        "kind": kind,
                        "persons": np.unique(ids).size,
                        "method": method,
                        "epsilon": epsilon,
                        "accuracy": found[method](epsilon),
                    }


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


def class_weights(repeats: int) -> Iterator[dict[str, Any]]:
    """Every fit with weights of classes, or without; accuracies are means over the classes."""
    for title, X, y, low_high in imbalanced():
        share = np.bincount(y).min() / y.size
        for seed in range(repeats):
            test = np.random.default_rng(seed).random(y.size) < TEST_SHARE
            for method, (epsilon, weight) in WEIGHTS.items():
                model = PrivateLinearSVC(epsilon, DELTA, classes=np.unique(y), bounds=low_high)
                model.set_params(class_weight=weight).fit(X[~test], y[~test])
                yield {
                    "data": title,
                    "rarest": share,
                    "method": method,
                    "epsilon": epsilon,
                    "accuracy": balanced_accuracy_score(y[test], model.predict(X[test])),
                }


# Rare classes: one class against the others, and how it is learned.
RARE: dict[str, int] = {"isolet, one letter": 0, "usps, one digit": 8}
RARE_EPSILONS, RARE_REPEATS, RARE_SHARE = (1.0, 4.0), 5, 0.2
LEARNERS: dict[str, tuple[Any, Any]] = {
    "PrivateLinearSVC": (PrivateLinearSVC, None),
    'PrivateLinearSVC, "balanced"': (PrivateLinearSVC, "balanced"),
    "PrivateKernelSVC": (PrivateKernelSVC, None),
    'PrivateKernelSVC, "balanced"': (PrivateKernelSVC, "balanced"),
}
EXACT = "logistic regression, not private"


def rare_classes(repeats: int) -> Iterator[dict[str, Any]]:
    """Every fit of a class with 4 % of the rows: a letter of isolet, half of a digit's rows."""
    for title, label in RARE.items():
        data = load(title.split(",")[0])
        if data is None:
            continue
        X, y = data.X.astype(np.float32), (data.y == label).astype(np.int64)
        if y.mean() > 0.05:
            keep = np.flatnonzero((y == 0) | (np.cumsum(y) % 2 == 0))
            X, y = X[keep], y[keep]
        for seed in range(min(repeats, RARE_REPEATS)):
            train, test = train_test_split(
                np.arange(y.size), test_size=RARE_SHARE, random_state=seed, stratify=y
            )
            parts = X[train], y[train], X[test], y[test]
            split = Split(seed, False, *parts, 2, (data.low, data.high))  # noqa: FBT003
            facts = {"data": title, "rarest": float(y.mean())}
            for epsilon in RARE_EPSILONS:
                for method, (kind, weight) in LEARNERS.items():
                    model = kind(epsilon, DELTA, classes=[0, 1], bounds=split.bounds)
                    model.set_params(class_weight=weight).fit(X[train], y[train])
                    found = scores(model, split)
                    yield facts | {"method": method, "epsilon": epsilon} | found
            exact = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
            found = scores(exact.fit(X[train], y[train]), split)
            yield facts | {"method": EXACT, "epsilon": None} | found


def analyse(rows: Sequence[tables.Row]) -> list[dict[str, Any]]:
    """Mean accuracies with their standard errors, beside what the first fit of each was of."""
    names = [name for name in ("data", "kind", "method", "epsilon") if name in rows[0]]
    others = [name for name in list(METRICS)[1:] if name in rows[0]]
    table = []
    for members in cells(rows, names).values():
        cell: dict[str, Any] = members[0] | accuracy(members)
        for name in others:
            found = [float(row[name]) for row in members]
            cell |= {name: mean(found), f"{name}_error": error(found)}
        table.append(cell)
    return table


def failures(table: Sequence[tables.Row]) -> list[str]:
    """Where another way to protect persons is at least as good."""
    found = []
    for place, members in cells(table, ("data", "kind")).items():
        own = {row["method"]: float(row["accuracy"]) for row in members if row["epsilon"] == "1"}
        if max(own[method] for method in WITHOUT) >= own[KNOWN]:
            found.append(f"persons, {', '.join(place)}: groups= is not the best")
    return found


def main(given: Sequence[str] | None = None) -> int:
    """Measure, store and fill the tables of the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--repeats", type=int, default=10)
    measures = {one.__name__: one for one in (class_weights, rare_classes, persons)}
    parser.add_argument("--measure", action="append", choices=list(measures))
    parser.add_argument("--out", type=Path, help="folder of the CSV files; the page stays")
    options = parser.parse_args(given)
    warnings.simplefilter("ignore")
    out, missed = options.out or RESULTS, []
    facts = description(_core.build_info(), 1)
    for measure in (measures[name] for name in options.measure or measures):
        rows = tables.as_rows(measure(options.repeats))
        if not rows:
            continue
        tables.write(out / f"{measure.__name__}_runs.csv", rows, facts)
        table = tables.as_rows(analyse(rows))
        tables.write(out / f"{measure.__name__}.csv", table, facts)
        print(tables.printed(table), flush=True)
        missed += failures(table) if measure is persons else []
    if options.out is None:
        pages.fill(PAGE, out, ROOT)
    print("\n".join(missed), end="\n" if missed else "", file=sys.stderr)
    return 1 if missed else 0


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
        raise SystemExit(main())
