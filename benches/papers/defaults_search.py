"""How the number of whitenings was chosen, each family of data sets left out.

Runs as ``python -m benches.papers.defaults_search [--quick]`` with DPSVM_DATA set. It fits every
data set on which rows are whitened in three ways, makes rules of them, and chooses among the rules
once for each family, by the other families alone. The table is printed and stored in
``benches/results/defaults_search.csv``; with ``--write`` the tables of docs/accuracy.md, which says
what they mean, are written from what is stored.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import datasets
from sklearn.model_selection import train_test_split

from benches import tables
from benches.machine import description
from benches.papers.cells import grid, shown
from benches.papers.data import load
from benches.tables import Row, as_rows
from dpsvm_fast import NotPrivateWarning, PrivateLinearSVC, _core
from dpsvm_fast.mechanisms import moments as whitening
from dpsvm_fast.mechanisms import pipeline

Array = NDArray[np.float64]
EPSILONS = (1.0, 2.0, 4.0, 8.0)
DELTA = 1e-5
SPLITS, DRAWS = 2, 1
STORED = Path(__file__).resolve().parents[1] / "results" / "defaults_search.csv"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "accuracy.md"
# Shares of the whitenings.
SETTINGS: dict[str, tuple[float, ...]] = {
    "once": (0.10,),
    "twice": (0.05, 0.10),
    "thrice": (0.05, 0.05, 0.10),
}


def _few(n_features: int, n_classes: int) -> bool:
    """Whether features are few and classes fewer still."""
    return 2 * n_classes < n_features <= 20


# Which of the settings each rule takes. Others are compared with the first one.
RULES: dict[str, Callable[[int, int], str]] = {
    "once": lambda d, K: "once",
    "twice if few": lambda d, K: "twice" if _few(d, K) else "once",
    "thrice if few": lambda d, K: "thrice" if _few(d, K) else "once",
    "twice": lambda d, K: "twice",
    "thrice": lambda d, K: "thrice",
}
FIRST, ADOPTED = "once", "twice if few"


@dataclass(frozen=True)
class Problem:
    """Raw rows with public bounds."""

    family: str
    X: Array
    y: NDArray[np.int64]
    low: Array
    high: Array


def _pooled(images: Array, side: int) -> Array:
    """Square images, averaged over blocks."""
    size = int(images.shape[1] ** 0.5)
    block = size // side
    blocks = images.reshape(-1, side, block, side, block)
    return np.asarray(blocks.mean(axis=(2, 4)).reshape(-1, side * side))


def _unit_box(family: str, X: Array, y: Any, low: float = 0.0) -> Problem:
    d = X.shape[1]
    return Problem(family, X, np.asarray(y, dtype=np.int64), np.full(d, low), np.ones(d))


def _some(n_rows: int, wanted: int) -> NDArray[np.int64]:
    """A public choice of rows."""
    return np.random.default_rng(0).permutation(n_rows)[:wanted]


def _round_bounds(X: Array) -> Array:
    """A round number above the largest, as a code book would say: 1, 2 or 5 times a power of 10."""
    largest = X.max(axis=0)
    power = 10.0 ** np.floor(np.log10(largest))
    steps = np.where(largest <= 2 * power, 2, np.where(largest <= 5 * power, 5, 10))
    return np.asarray(steps * power)


def problems() -> Iterator[tuple[str, Problem]]:
    """Everything that is whitened, and small versions of what is not."""
    yield from _of_columns()
    yield from _of_images()
    yield from _always_there()


def _of_columns() -> Iterator[tuple[str, Problem]]:
    """Of sets whose features are measurements."""
    for name in ("vehicle", "wisdm"):
        data = load(name)
        if data is not None:
            yield name, Problem(name, data.X, data.y, data.low, data.high)
    wisdm = load("wisdm")
    if wisdm is not None:
        few = slice(30, None)
        for name, rows, columns in (
            ("wisdm, 1,500 rows", 1500, slice(None)),
            ("wisdm, 13 columns", 6000, few),
            ("wisdm, 13 columns, 1,000 rows", 1000, few),
        ):
            i = _some(wisdm.y.size, rows)
            bounds = wisdm.low[columns], wisdm.high[columns]
            yield name, Problem("wisdm", wisdm.X[i][:, columns], wisdm.y[i], *bounds)
    adult = load("adult")
    if adult is not None:
        numeric, i = np.flatnonzero(adult.high > 1.0), _some(adult.y.size, 3000)
        bounds = adult.low[numeric], adult.high[numeric]
        yield "adult, 6 columns", Problem("adult", adult.X[i][:, numeric], adult.y[i], *bounds)
        i = _some(adult.y.size, 15_000)
        yield "adult, 15,000 rows", Problem("adult", adult.X[i], adult.y[i], adult.low, adult.high)


def _of_images() -> Iterator[tuple[str, Problem]]:
    """Of sets whose features are pixels, or frequencies."""
    mnist, usps, isolet = load("mnist"), load("usps"), load("isolet")
    if mnist is not None:
        for side, rows in ((4, 1500), (7, 2500), (7, 10_000)):
            i = _some(60_000, rows)
            small = _pooled(mnist.X[i] / 255.0, side)
            yield f"mnist {side} x {side}, {rows:,} rows", _unit_box("mnist", small, mnist.y[i])
    if usps is not None:
        i = _some(usps.y.size, 2500)
        yield "usps 4 x 4, 2,500 rows", _unit_box("usps", _pooled(usps.X[i], 4), usps.y[i])
        yield "usps 8 x 8", _unit_box("usps", _pooled(usps.X, 8), usps.y)
    if isolet is not None:
        small = isolet.X[:, :612].reshape(-1, 36, 17).mean(axis=2)
        yield "isolet, 36 means", _unit_box("isolet", small, isolet.y, low=-1.0)


def _always_there() -> Iterator[tuple[str, Problem]]:
    """Of sets that come with scikit-learn, and synthetic ones."""
    X, y = datasets.load_digits(return_X_y=True)
    small = _pooled(X / 16.0, 4)
    yield "digits 4 x 4", _unit_box("digits", small, y)
    yield "digits 4 x 4, 4 classes", _unit_box("digits", small[y < 4], y[y < 4])
    for name, function in (("wine", datasets.load_wine), ("breast", datasets.load_breast_cancer)):
        X, y = function(return_X_y=True)
        yield name, Problem(name, X, y, np.zeros(X.shape[1]), _round_bounds(X))
        few = X[:, -10:]
        yield f"{name}, 10 columns", Problem(name, few, y, np.zeros(10), _round_bounds(few))
    for n, d, K in (
        (700, 10, 3),
        (800, 15, 4),
        (1200, 9, 2),
        (3000, 18, 3),
        (4000, 12, 5),
        (800, 30, 3),
        (2000, 50, 5),
        (6000, 40, 6),
    ):
        X, y = datasets.make_classification(
            int(n / 0.8),
            d,
            n_informative=max(8, d // 4),
            n_redundant=min(d // 4, d - max(8, d // 4)),
            n_classes=K,
            n_clusters_per_class=1,
            random_state=7,
        )
        far = np.full(d, 10.0)
        yield f"synthetic {n}:{d}:{K}", Problem("synthetic", X, y, -far, far)


@contextmanager
def _recipe(name: str) -> Iterator[None]:
    """The library with other constants."""
    shares, before = SETTINGS[name], whitening.whitening_shares
    setattr(pipeline, "whitening_shares", lambda d, K: shares)  # noqa: B010
    try:
        yield
    finally:
        setattr(pipeline, "whitening_shares", before)  # noqa: B010


def measured(problem: Problem, splits: int, draws: int) -> dict[str, list[float]]:
    """Mean accuracy of each setting at each epsilon, with the same noise for all settings."""
    n_classes = int(problem.y.max()) + 1
    found: dict[str, list[float]] = {}
    for name in SETTINGS:
        found[name] = []
        for epsilon in EPSILONS:
            accuracies = []
            for split in range(splits):
                train, test = train_test_split(
                    np.arange(problem.y.size), test_size=0.2, random_state=split
                )
                for draw in range(draws):
                    model = PrivateLinearSVC(
                        epsilon,
                        DELTA,
                        bounds=(problem.low, problem.high),
                        classes=range(n_classes),
                        random_state=100 * split + draw,
                    )
                    with _recipe(name):
                        model.fit(problem.X[train], problem.y[train])
                    accuracies.append(model.score(problem.X[test], problem.y[test]))
            found[name].append(mean(accuracies))
    return found


def run(splits: int, draws: int) -> list[Row]:
    """One row a data set and rule: accuracy at each epsilon."""
    rows: list[dict[str, object]] = []
    for name, problem in problems():
        found = measured(problem, splits, draws)
        shape = problem.X.shape[1], int(problem.y.max()) + 1
        for rule, choice in RULES.items():
            accuracy = found[choice(*shape)]
            at = {f"accuracy_{epsilon:g}": value for epsilon, value in zip(EPSILONS, accuracy)}  # noqa: B905
            facts = {"n": problem.y.size, "d": shape[0], "K": shape[1], "rule": rule}
            rows.append({"data": name, "family": problem.family, **facts, **at})
        print(name, "done", flush=True)
    return as_rows(rows)


class Scores:
    """Stored accuracies, by data set and rule."""

    def __init__(self, rows: list[Row]) -> None:
        values = [f"accuracy_{epsilon:g}" for epsilon in EPSILONS]
        self.at = {(r["data"], r["rule"]): np.array([float(r[v]) for v in values]) for r in rows}
        self.family = {row["data"]: row["family"] for row in rows}
        self.shape = {row["data"]: f"{row['n']}:{row['d']}:{row['K']}" for row in rows}

    def gain(self, rule: str, members: list[str]) -> float:
        """Over the first rule; the mean over families, so that each counts once."""
        gains: dict[str, list[float]] = {}
        for name in members:
            more = self.at[name, rule] - self.at[name, FIRST]
            gains.setdefault(self.family[name], []).append(float(more.mean()))
        return mean(mean(own) for own in gains.values())


def analyse(rows: list[Row]) -> list[Row]:
    """What each family would have got by the rule that is best for all others."""
    scores = Scores(rows)
    table: list[dict[str, object]] = []
    for name, family in scores.family.items():
        others = [one for one, its in scores.family.items() if its != family]
        gains = {rule: scores.gain(rule, others) for rule in RULES}
        chosen = max(RULES, key=lambda rule: gains[rule])
        cells = np.array([scores.at[name, rule] for rule in RULES])
        lost = cells.max(axis=0) - scores.at[name, chosen]
        table.append(
            {
                "data": name,
                "n:d:K": scores.shape[name],
                "chosen by the others": chosen,
                "its gain": scores.gain(chosen, [name]),
                "its mean regret": float(lost.mean()),
                "its largest regret": float(lost.max()),
                "gain of the adopted rule": scores.gain(ADOPTED, [name]),
            }
        )
    return as_rows(table)


def page_tables() -> dict[str, str]:
    """Markdown of docs/accuracy.md by the name of the table, from stored results."""
    rows = tables.read(STORED)[0]
    scores = Scores(rows)
    every = list(scores.family)
    rules = [[rule, f"{scores.gain(rule, every):+.4f}"] for rule in RULES]
    left_out = analyse(rows)
    gains = [float(row["its gain"]) for row in left_out]
    lost = max(left_out, key=lambda row: float(row["its largest regret"]))
    same = sum(row["chosen by the others"] == ADOPTED for row in left_out)
    auto = tables.read(STORED.with_name("papers_auto.csv"))[0]
    cells = []
    for name in dict.fromkeys(row["data"] for row in auto):
        own = [row for row in auto if row["data"] == name]
        ends = (f"{float(own[0][one]):.3f}" for one in ("majority", "linear"))
        cells.append([name, *(shown(row) for row in own), *ends])
        if own[0]["paper"]:
            cells.append(["paper's best", *(f"{float(row['paper']):.3f}" for row in own), "", ""])
    return {
        "standing": grid(
            ["", *(f"ε = {one:g}" for one in EPSILONS), "majority class", "linear, not private"],
            cells,
        ),
        "rules": grid(["rule", "mean gain"], rules),
        "left-out": (
            f"*{ADOPTED}* is chosen for {same} of {len(left_out)} data sets. The chosen rule "
            f"changes accuracy by {mean(gains):+.4f} on average ({min(gains):+.4f} to "
            f"{max(gains):+.4f}) and is at worst "
            f"{float(lost['its largest regret']):.4f} ({lost['data']}, one ε) below the best rule."
        ),
    }


def filled(text: str) -> str:
    """A page with its tables as they are stored."""
    for name, table in page_tables().items():
        start, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        before, rest = text.split(start)
        text = before + start + table.strip() + "\n" + end + rest.split(end)[1]
    return text


def main() -> None:
    """Measure, store and print; or write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="to see that it works")
    parser.add_argument("--write", action="store_true", help="the tables of docs/accuracy.md alone")
    options = parser.parse_args()
    if options.write:
        PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
        return
    warnings.simplefilter("ignore", NotPrivateWarning)
    rows = run(*((1, 1) if options.quick else (SPLITS, DRAWS)))
    if not options.quick:
        tables.write(STORED, rows, description(_core.build_info(), 1))
    print(tables.printed(analyse(rows)))


if __name__ == "__main__":
    main()
