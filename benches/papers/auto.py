"""PrivateLinearSVC at its defaults: sets of PMSVM (NeurIPS 2025) and of scikit-learn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer

from benches.papers import scores
from benches.papers.data import load
from benches.papers.paper_comparison import curves
from benches.papers.scores import Split
from benches.tables import Row
from dpsvm_fast import ObjectivePerturbationSVC, OutputPerturbationSVC, PrivateLinearSVC, verify

TITLE = "PrivateLinearSVC at its defaults"
PROTOCOL: tuple[str, ...] = (
    "[Accuracy](accuracy.md) has the settings.",
    *scores.PROTOCOL,
)
EPSILONS = (1.0, 2.0, 4.0, 8.0)
DELTA = 1e-5
SPLITS = 20
# Models of each split: the noise of one moves the mean of small sets.
DRAWS = {"dermatology": 2, "vehicle": 2, "iris": 2, "wine": 2}
OURS = "PrivateLinearSVC"
# Shown for one set, on rows of norm 1.
SEVERAL = "digits"
OTHERS: dict[str, Any] = {
    "ObjectivePerturbationSVC": ObjectivePerturbationSVC,
    "OutputPerturbationSVC": OutputPerturbationSVC,
}
DATA = (
    *("cornell", "dermatology", "isolet", "usps", "vehicle", "wisdm"),
    *("iris", "wine", "breast cancer", "digits"),
)
# Accuracy of the paper at each of EPSILONS.
PAPER: dict[str, tuple[float | None, ...]] = {
    "cornell": (0.693, 0.730, 0.761, 0.792),
    "dermatology": (0.911, 0.954, 0.978, 0.976),
    "isolet": (0.501, 0.687, 0.820, 0.874),
    "usps": (0.897, 0.919, 0.925, 0.930),
    "vehicle": (0.696, 0.753, 0.733, 0.766),
}
QUICK_DATA, QUICK_REPEATS = ("dermatology",), 2
# The paper's accuracy may be missed in this many cells.
MISSED_CELLS = 4


def run(names: Sequence[str], splits: int | None) -> list[Row]:
    """One row a fit: data set, model, epsilon, split, its measures."""
    rows: list[Row] = []
    for name in names:
        data = load(name)
        if data is None:
            continue
        records: list[dict[str, object]] = []
        for number in range(splits or SPLITS):
            split = scores.split_of(data, number)
            records += scores.references(name, split)
            records += [
                {"model": model, "epsilon": epsilon} | _fit(model, epsilon, split)
                for model in (OURS, *(OTHERS if name == SEVERAL else ()))
                for epsilon in EPSILONS
                for _ in range(DRAWS.get(name, 1))
            ]
        rows += scores.stored(name, data.y.size, records)
    return rows


def _fit(name: str, epsilon: float, split: Split) -> dict[str, object]:
    """Measures on rows left out."""
    model: Any
    if name == OURS:
        model = PrivateLinearSVC(
            epsilon, DELTA, bounds=split.bounds, classes=range(split.n_classes)
        )
    else:
        svc = OTHERS[name](epsilon, DELTA, classes=range(split.n_classes))
        model = make_pipeline(FunctionTransformer(_symmetric), Normalizer(), svc)
    model.fit(split.X, split.y)
    last = model if name == OURS else model[-1]
    return {
        "split": split.number,
        "holds": split.number > 0 or verify(last.privacy_).ok,
        **scores.scores(model, split),
    }


def _symmetric(X: Any) -> Any:
    """Pixels of the digits in [-1, 1]."""
    return np.asarray(X) / 8.0 - 1.0


def analyse(rows: Sequence[Row]) -> list[Row]:
    """Means and their standard errors beside the published figures."""

    def more(own: Sequence[Row]) -> dict[str, object]:
        name, epsilon = own[0]["data"], own[0]["epsilon"]
        shown = name in PAPER and own[0]["model"] == OURS
        return {
            "holds": all(row["holds"] != "False" for row in own),
            "paper": PAPER[name][EPSILONS.index(float(epsilon))] if shown else None,
        }

    return scores.summary(rows, more=more)


def failures(table: Sequence[Row]) -> list[str]:
    """Too many cells below the paper, certificates that do not hold."""
    found = [
        f"auto: {row['data']} at {row['epsilon']}: a certificate does not hold"
        for row in table
        if row["holds"] != "True"
    ]
    below = [f"{row['data']} at {row['epsilon']}" for row in below_paper(table)]
    if len(below) > MISSED_CELLS:
        found.append(f"auto: below the paper in {len(below)} cells: {', '.join(below)}")
    return found


def below_paper(table: Sequence[Row]) -> list[Row]:
    """Cells in which the paper's figure is larger."""
    return [row for row in table if row["paper"] and float(row["accuracy"]) < float(row["paper"])]


def main_sets(table: Sequence[Row]) -> list[Row]:
    """Ours and the references."""
    return [row for row in table if row["model"] not in OTHERS]


def plot(table: Sequence[Row], path: Path) -> None:
    """Ours and the paper's along epsilon."""
    own = [row for row in scores.beside(table) if row["model"] == OURS]
    curves(own, path, ours=OURS, paper="PMSVM, best of table 2", columns=3)


def page(table: Sequence[Row]) -> str:
    """Every measure of ours."""
    return scores.full(main_sets(table))


if __name__ == "__main__":
    from benches.papers.command import script

    raise SystemExit(script(__file__))
