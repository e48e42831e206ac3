"""Public maps of rows before PrivateLinearSVC: splines of columns, directions of edges
of images.

The same splits and budgets with the map and without it. Logarithms and shapes are public facts:
amounts of money and weights of a census are on a logarithmic scale. Knots are thirteen, chosen by
random splits of Adult's training rows, or five for fewer than 10,000 rows.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from sklearn.pipeline import make_pipeline

from benches.papers import scores
from benches.papers.cells import cells
from benches.papers.data import ADULT_RANGES, DataSet, load
from benches.papers.drawing import Panel, Point, panels
from benches.papers.scores import Split
from benches.tables import Row
from dpsvm_fast import PrivateLinearSVC, PublicImageFeatures, PublicSplines

TITLE = "Public maps of rows"
PROTOCOL: tuple[str, ...] = (
    "PrivateLinearSVC, at its defaults, is fitted to the rows and to a public map of them, on the "
    "same splits; in parentheses the gain of the map with the standard error of the paired "
    "difference.",
    "Splines have thirteen knots, chosen among 9, 13, 17 and 25 on splits of Adult's training "
    "rows; five for fewer than 10,000 rows. Shapes of images are public.",
    *scores.PROTOCOL,
)
EPSILONS = (0.5, 1.0, 3.0)
DELTA = 1e-5
ROWS = "rows"
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
    orders : tuple of int, default=(1,)
        Of their features.
    official : bool, default=False
        Whether the set's own split is taken, each time with fresh noise.
    """

    splits: int
    knots: int = 0
    shape: tuple[int, ...] = ()
    orders: tuple[int, ...] = (1,)
    official: bool = False

    def maps(self, data: DataSet) -> dict[str, Any]:
        """The public maps by what they are called."""
        if self.shape:
            return {f"order={o}": PublicImageFeatures(self.shape, order=o) for o in self.orders}
        wide = data.high - data.low != 1.0
        ranges = list(ADULT_RANGES) if wide.sum() == len(ADULT_RANGES) else []
        places = np.flatnonzero(wide)
        log = [int(places[ranges.index(name)]) for name in LOGARITHMIC if name in ranges]
        knots = [self.knots if one else 1 for one in wide]
        return {"splines": PublicSplines((data.low, data.high), knots, log=log)}


RECIPES = {
    "adult": Recipe(5, 13, official=True),
    "wisdm": Recipe(20, 5),
    "vehicle": Recipe(20, 5),
    "usps": Recipe(20, shape=(16, 16)),
    "usps, official": Recipe(5, shape=(16, 16), official=True),
    "mnist": Recipe(5, shape=(28, 28), orders=(1, 2), official=True),
}
DATA = tuple(RECIPES)
QUICK_DATA, QUICK_REPEATS = ("vehicle",), 1


def run(names: Sequence[str], splits: int | None) -> list[Row]:
    """One row a fit."""
    rows: list[Row] = []
    for name in names:
        data = load(name.split(",")[0])
        if data is None:
            continue
        recipe = RECIPES[name]
        data = replace(data, X=data.X.astype(np.float32))
        records: list[dict[str, object]] = []
        for number in range(splits or recipe.splits):
            split = scores.split_of(data, number, official=recipe.official)
            records += scores.references(name, split)
            records += [
                {"model": kind, "epsilon": epsilon} | _fit(public, epsilon, split, recipe)
                for epsilon in EPSILONS
                for kind, public in ({ROWS: None} | recipe.maps(data)).items()
            ]
        rows += scores.stored(name, data.y.size, records)
    return rows


def _fit(public: Any, epsilon: float, split: Split, recipe: Recipe) -> dict[str, object]:
    """Measures on rows left out, and CPU seconds of the whole fit."""
    bounds = split.bounds if public is None else None if recipe.shape else (0, 1)
    svc = PrivateLinearSVC(epsilon, DELTA, bounds=bounds, classes=range(split.n_classes))
    model = make_pipeline(*([] if public is None else [public]), svc)
    begin = time.process_time()
    model.fit(split.X, split.y)
    seconds = time.process_time() - begin
    return {"split": split.number, "cpu_seconds": seconds, **scores.scores(model, split)}


def analyse(rows: Sequence[Row]) -> list[Row]:
    """Means over splits, and the gain of the map."""
    return scores.summary(rows, ROWS, _seconds)


def _seconds(own: Sequence[Row]) -> Mapping[str, object]:
    """Mean CPU seconds of private fits."""
    known = [float(row["cpu_seconds"]) for row in own if row["cpu_seconds"]]
    return {"cpu_seconds": mean(known) if known else None}


def failures(table: Sequence[Row]) -> list[str]:
    """Adult has enough rows for curves, and images have edges."""
    return [
        f"maps: {row['data']} at {row['epsilon']}: gain {row['gain']}"
        for row in table
        if row["gain"] and row["data"] not in ("wisdm", "vehicle") and float(row["gain"]) <= 0.0
    ]


def plot(table: Sequence[Row], path: Path) -> None:
    """Accuracy along epsilon, one panel a data set."""
    drawn = []
    for (name,), own in cells(table, ["data"]).items():
        lines: dict[str, list[Point]] = {}
        for row in own:
            if row["epsilon"]:
                point = (float(row["epsilon"]), float(row["accuracy"]))
                error = float(row["standard_error"] or 0.0)
                lines.setdefault(row["model"], []).append((*point, error))
        drawn.append(Panel(name, lines))
    panels(path, drawn, x_label="ε", columns=3)


def page(table: Sequence[Row]) -> str:
    """Every measure; accuracy with the gain of a map."""
    return scores.full(table, scores.gained)


if __name__ == "__main__":
    from benches.papers.command import script

    raise SystemExit(script(__file__))
