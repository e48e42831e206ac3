"""Public maps of rows before PrivateLinearSVC: splines of columns, directions of edges
of images.

The same splits and budgets with the map and without it. Logarithms and shapes are public facts:
amounts of money and weights of a census are on a logarithmic scale. Knots are thirteen, chosen by
random splits of Adult's training rows, or five for fewer than 10,000 rows.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import balanced_accuracy_score, roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from benches.papers import cells
from benches.papers.data import ADULT_RANGES, DataSet, load
from benches.papers.drawing import Panel, Point, panels
from benches.tables import Row, as_rows
from dpsvm_fast import PrivateLinearSVC, PublicImageFeatures, PublicSplines

TITLE = "Public maps of rows"
PROTOCOL = (
    "PrivateLinearSVC, at its defaults, is fitted to the rows and to a public map of them, on the "
    "same splits: official ones of Adult and MNIST.",
    "The map has thirteen knots, chosen among 9, 13, 17 and 25 on splits of Adult's training "
    "rows; five for fewer than 10,000 rows. Shapes of images are public.",
)
EPSILONS = (0.5, 1.0, 2.0, 4.0)
DELTA = 1e-5
TEST_SHARE = 0.2
ROWS, MAPPED = "rows", "map"
# Of Adult's columns with a range, those on a logarithmic scale.
LOGARITHMIC = ("fnlwgt", "capital-gain", "capital-loss")


@dataclass(frozen=True)
class Recipe:
    """How rows of a set are mapped.

    Parameters
    ----------
    splits : int
    knots : int, default=0
        Of columns that are more than zeros and ones.
    shape : tuple of int, default=()
        Of images.
    official : bool, default=False
        Whether the set's own split is taken, each time with fresh noise.
    """

    splits: int
    knots: int = 0
    shape: tuple[int, ...] = ()
    official: bool = False

    def map(self, data: DataSet) -> Any:
        """The public map."""
        if self.shape:
            return PublicImageFeatures(self.shape, order=1)
        wide = data.high - data.low != 1.0
        ranges = list(ADULT_RANGES) if wide.sum() == len(ADULT_RANGES) else []
        places = np.flatnonzero(wide)
        log = [int(places[ranges.index(name)]) for name in LOGARITHMIC if name in ranges]
        knots = [self.knots if one else 1 for one in wide]
        return PublicSplines((data.low, data.high), knots, log=log)


RECIPES = {
    "adult": Recipe(5, 13, official=True),
    "wisdm": Recipe(20, 5),
    "vehicle": Recipe(20, 5),
    "usps": Recipe(5, shape=(16, 16)),
    "mnist": Recipe(3, shape=(28, 28), official=True),
}
DATA = tuple(RECIPES)
QUICK_DATA, QUICK_REPEATS = ("vehicle",), 1


def run(names: Sequence[str], splits: int | None) -> list[Row]:
    """One row a fit."""
    records: list[dict[str, object]] = []
    for name in names:
        data = load(name)
        if data is None:
            continue
        recipe = RECIPES[name]
        for number in range(splits or recipe.splits):
            train, test = _split(data, None if recipe.official else number)
            own = [
                {"data": name, "split": number} | _fit(data, name, kind, epsilon, train, test)
                for epsilon in EPSILONS
                for kind in (ROWS, MAPPED)
            ]
            records += own
            line = ", ".join(f"{r['model']} {r['epsilon']} {r['accuracy']:.3f}" for r in own)
            print(f"{name}, split {number}: {line}", flush=True)
    return as_rows(records)


def _split(data: DataSet, number: int | None) -> tuple[NDArray[Any], NDArray[Any]]:
    """Places of rows to train on and of rows left out; None takes the set's own split."""
    places = np.arange(data.y.size)
    if number is None and data.is_train is not None:
        return places[data.is_train], places[~data.is_train]
    train, test = train_test_split(places, test_size=TEST_SHARE, random_state=number)
    return train, test


def _fit(
    data: DataSet,
    name: str,
    kind: str,
    epsilon: float,
    train: NDArray[Any],
    test: NDArray[Any],
) -> dict[str, Any]:
    """Scores on rows left out, and seconds of the whole fit."""
    classes = range(data.n_classes)
    if kind == ROWS:
        svc = PrivateLinearSVC(epsilon, DELTA, bounds=(data.low, data.high), classes=classes)
        model = make_pipeline(svc)
    else:
        recipe = RECIPES[name]
        bounds = None if recipe.shape else (0, 1)
        svc = PrivateLinearSVC(epsilon, DELTA, bounds=bounds, classes=classes)
        model = make_pipeline(recipe.map(data), svc)
    begin = time.perf_counter()
    model.fit(data.X[train].astype(np.float32), data.y[train])
    seconds = time.perf_counter() - begin
    rows, labels = data.X[test].astype(np.float32), data.y[test]
    predicted = model.predict(rows)
    scores = model.decision_function(rows) if data.n_classes == 2 else None
    return {
        "epsilon": epsilon,
        "model": kind,
        "accuracy": float(np.mean(predicted == labels)),
        "balanced_accuracy": float(balanced_accuracy_score(labels, predicted)),
        "auroc": None if scores is None else float(roc_auc_score(labels, scores)),
        "seconds": seconds,
    }


def analyse(rows: Sequence[Row]) -> list[Row]:
    """Means over splits, and the gain of the map."""
    found = cells.cells(rows, ["data", "epsilon"])
    return as_rows([_summary(*names, members) for names, members in found.items()])


def _summary(name: str, epsilon: str, members: Sequence[Row]) -> Mapping[str, object]:
    """One data set at one epsilon."""

    def values(kind: str, column: str) -> list[float]:
        return [float(row[column]) for row in members if row["model"] == kind and row[column]]

    pairs = zip(values(MAPPED, "accuracy"), values(ROWS, "accuracy"), strict=True)
    gains = [mapped - plain for mapped, plain in pairs]
    summary: dict[str, object] = {"data": name, "epsilon": epsilon, "splits": len(gains)}
    for kind in (ROWS, MAPPED):
        for column in ("accuracy", "balanced_accuracy", "auroc", "seconds"):
            known = values(kind, column)
            summary[f"{kind}_{column}"] = mean(known) if known else None
        summary[f"{kind}_error"] = cells.error(values(kind, "accuracy"))
    return summary | {"gain": mean(gains), "gain_error": cells.error(gains)}


def failures(table: Sequence[Row]) -> list[str]:
    """Adult has enough rows for curves, and images have edges."""
    return [
        f"maps: {row['data']} at {row['epsilon']}: gain {row['gain']}"
        for row in table
        if row["data"] in ("adult", "usps", "mnist") and float(row["gain"]) <= 0.0
    ]


def plot(table: Sequence[Row], path: Path) -> None:
    """Accuracy along epsilon, one panel a data set."""
    drawn = []
    for (name,), own in cells.cells(table, ["data"]).items():
        lines: dict[str, list[Point]] = {
            label: [
                (float(r["epsilon"]), float(r[f"{kind}_accuracy"]), float(r[f"{kind}_error"] or 0))
                for r in own
            ]
            for kind, label in ((ROWS, "rows"), (MAPPED, "after a public map"))
        }
        drawn.append(Panel(name, lines))
    panels(path, drawn, x_label="ε", columns=3)


def page(table: Sequence[Row]) -> str:
    """Both accuracies at each epsilon."""
    epsilons = sorted({row["epsilon"] for row in table}, key=float)
    lines = []
    for (name,), own in cells.cells(table, ["data"]).items():
        found = {row["epsilon"]: row for row in own}
        shown = (cell(found[one]) if one in found else "" for one in epsilons)
        lines.append((f"{name}, {own[0]['splits']} fits", *shown))
    heads = ("accuracy of rows / of the map", *(f"ε = {float(one):g}" for one in epsilons))
    return (
        f"{cells.grid(heads, lines)}\n\nWith the standard error of the paired difference; for "
        "two classes also the AUROC. Images use `order=1`."
    )


def cell(row: Row) -> str:
    """Accuracies without and with the map, and areas under ROC curves."""
    both = f"{float(row['rows_accuracy']):.3f} / {float(row['map_accuracy']):.3f}"
    if row["gain_error"]:
        both += f" ± {float(row['gain_error']):.3f}"
    if not row["rows_auroc"]:
        return both
    return f"{both} ({float(row['rows_auroc']):.3f} / {float(row['map_auroc']):.3f})"


if __name__ == "__main__":
    from benches.papers.command import script

    raise SystemExit(script(__file__))
