"""Defaults along nine budgets, up to one that hardly adds noise, beside models without privacy."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benches.papers import scores
from benches.papers.auto import DELTA
from benches.papers.cells import cells
from benches.papers.data import load
from benches.papers.drawing import Panel, panels
from benches.papers.scores import Split
from benches.tables import Row
from dpsvm_fast import PrivateKernelSVC, PrivateLinearSVC, verify

TITLE = "Defaults along nine budgets"
PROTOCOL: tuple[str, ...] = (
    "Five splits, of Adult five draws of the noise; kernels two.",
    *scores.PROTOCOL,
)
LINEAR, KERNEL = "PrivateLinearSVC", "PrivateKernelSVC"
MODELS = {LINEAR: PrivateLinearSVC, KERNEL: PrivateKernelSVC}
EPSILONS = {LINEAR: (0.1, 0.5, 1, 2, 4, 8, 16, 64, 1000), KERNEL: (4, 16, 64, 1000)}
SPLITS = {LINEAR: 5, KERNEL: 2}
DATA = ("usps", "wisdm", "adult")
QUICK_DATA, QUICK_REPEATS = ("wisdm",), 1
# How much worse the largest budget may be than one of 4.
FROM, ALLOWED = "4", {"auroc": 0.002, "log_loss": 0.01}


def run(names: Sequence[str], splits: int | None) -> list[Row]:
    """One row a fit, and two a split without privacy."""
    rows: list[Row] = []
    for name in names:
        data = load(name)
        if data is None:
            continue
        records: list[dict[str, object]] = []
        for number in range(splits or SPLITS[LINEAR]):
            split = scores.split_of(data, number, official=name == "adult")
            records += scores.references(name, split)
            for kind, epsilons in EPSILONS.items():
                if number < SPLITS[kind]:
                    records += [_fit(kind, epsilon, split) for epsilon in epsilons]
        rows += scores.stored(name, data.y.size, records)
    return rows


def _fit(kind: str, epsilon: float, split: Split) -> dict[str, object]:
    """Measures on rows left out."""
    model: Any = MODELS[kind](epsilon, DELTA, bounds=split.bounds, classes=range(split.n_classes))
    model.fit(split.X.astype(np.float32), split.y)
    holds = split.number > 0 or verify(model.privacy_).ok
    facts = {"model": kind, "epsilon": epsilon, "split": split.number, "holds": holds}
    return facts | scores.scores(model, split)


def analyse(rows: Sequence[Row]) -> list[Row]:
    """Means and their standard errors."""
    return scores.summary(
        rows, more=lambda own: {"holds": all(row["holds"] != "False" for row in own)}
    )


def failures(table: Sequence[Row]) -> list[str]:
    """Certificates that do not hold; models that a very large budget makes worse."""
    found = [
        f"budgets: {row['data']}, {row['model']} at {row['epsilon']}: a certificate does not hold"
        for row in table
        if row["holds"] != "True"
    ]
    for (data, model), own in cells(table, ("data", "model")).items():
        by = {row["epsilon"]: row for row in own}
        for metric, allowed in ALLOWED.items() if model in MODELS else ():
            worse = float(by["1000"][metric]) - float(by[FROM][metric])
            if worse * (1 if metric == "log_loss" else -1) > allowed:
                found.append(f"budgets: {data}, {model}: {metric} is worse at 1000 than at {FROM}")
    return found


def plot(table: Sequence[Row], path: Path) -> None:
    """AUROC along epsilon, with the level of logistic regression."""
    drawn = []
    for (data,), own in cells(table, ("data",)).items():
        lines = {
            kind: [
                (float(row["epsilon"]), float(row["auroc"]), float(row["auroc_error"] or 0))
                for row in own
                if row["model"] == kind
            ]
            for kind in MODELS
        }
        level = next(float(row["auroc"]) for row in own if row["model"] == scores.REFERENCES[1])
        lines["linear, not private"] = [(at, level, 0.0) for at, _, _ in lines[LINEAR]]
        drawn.append(Panel(data, lines))
    panels(path, drawn, x_label="ε", y_label="AUROC", columns=3)


def page(table: Sequence[Row]) -> str:
    """Where both tables are."""
    return "Tables: [linear](accuracy.md#large-budgets), [kernels](kernels.md)."


def along(table: Sequence[Row], kind: str) -> str:
    """Write one model's figures along epsilon, one table a measure."""
    own = [row for row in table if row["model"] == kind or not row["epsilon"]]
    parts = (
        scores.by_epsilon(own, partial(scores.one, metric=metric, digits=4), head=head)
        for metric, head in scores.METRICS.items()
    )
    return "\n\n".join([*parts, scores.counted(own)])


if __name__ == "__main__":
    from benches.papers.command import script

    raise SystemExit(script(__file__))
