"""Defaults along nine budgets, up to one that hardly adds noise, beside models without privacy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benches.papers.auto import DELTA, METRICS, measured, places
from benches.papers.cells import cells, error, grid
from benches.papers.data import DataSet, load
from benches.papers.drawing import Panel, panels
from benches.tables import Row, as_rows
from dpsvm_fast import PrivateKernelSVC, PrivateLinearSVC, verify

TITLE = "Defaults along nine budgets"
PROTOCOL: tuple[str, ...] = (
    "Five splits; of Adult the official one with five draws of the noise. Kernels: two.",
    "Logistic regression, without privacy, on standardised columns, with C by cross-validation on "
    "the first split. AUROC is that of one class against the rest; log-loss is in nats.",
)
LINEAR, KERNEL = "PrivateLinearSVC", "PrivateKernelSVC"
EXACT, MAJORITY = "logistic regression", "majority class"
SHOWN = dict(zip(METRICS, ("accuracy", "balanced accuracy", "AUROC", "log-loss"), strict=True))
MODELS = {LINEAR: PrivateLinearSVC, KERNEL: PrivateKernelSVC}
EPSILONS = {LINEAR: (0.1, 0.5, 1, 2, 4, 8, 16, 64, 1000), KERNEL: (4, 16, 64, 1000)}
SPLITS = {LINEAR: 5, KERNEL: 2}
DATA = ("usps", "wisdm", "adult")
QUICK_DATA, QUICK_REPEATS = ("wisdm",), 1
# How much worse the largest budget may be than one of 4.
FROM, ALLOWED = "4", {"auroc": 0.002, "log_loss": 0.01}


def run(names: Sequence[str], splits: int | None) -> list[Row]:
    """One row a fit, and two a split without privacy."""
    records: list[dict[str, object]] = []
    for name in names:
        data = load(name)
        if data is None:
            continue
        official = data.is_train is not None and data.n_classes == 2
        C = _chosen(data)
        for split in range(1 if official else splits or SPLITS[LINEAR]):
            own = {"data": name, "epsilon": None, "split": split, "holds": True}
            records += [own | found for found in _exact(data, split, C)]
        for kind, epsilons in EPSILONS.items():
            for split in range(splits or SPLITS[kind]):
                records += [
                    {"data": name, "epsilon": epsilon, "split": split}
                    | _fit(data, kind, epsilon, split)
                    for epsilon in epsilons
                ]
            print(f"{name}, {kind}: done", flush=True)
    return as_rows(records)


def _chosen(data: DataSet) -> float:
    """C of logistic regression by cross-validation on the first split."""
    train, _ = places(data, 0)
    model = LogisticRegression(max_iter=300, tol=1e-3)
    search = GridSearchCV(model, {"C": [0.01, 0.1, 1.0, 10.0]}, cv=3, scoring="neg_log_loss")
    search.fit(StandardScaler().fit_transform(data.X[train]), data.y[train])
    return float(search.best_params_["C"])


def _exact(data: DataSet, split: int, C: float) -> list[dict[str, object]]:
    """Figures of the models without privacy."""
    train, test = places(data, split)
    exact = make_pipeline(StandardScaler(), LogisticRegression(C=C, max_iter=1000, tol=1e-3))
    likely = exact.fit(data.X[train], data.y[train]).predict_proba(data.X[test])
    shares = np.bincount(data.y[train], minlength=data.n_classes) / train.size
    constant = np.tile(shares, (test.size, 1))
    return [
        {"model": EXACT} | measured(likely, data.y[test]),
        {"model": MAJORITY} | measured(constant, data.y[test]),
    ]


def _fit(data: DataSet, kind: str, epsilon: float, split: int) -> dict[str, object]:
    """Figures on rows left out."""
    train, test = places(data, split)
    model: Any = MODELS[kind](
        epsilon, DELTA, bounds=(data.low, data.high), classes=range(data.n_classes)
    ).fit(data.X[train].astype(np.float32), data.y[train])
    likely = model.predict_proba(data.X[test].astype(np.float32))
    holds = split > 0 or verify(model.privacy_).ok
    return {"holds": holds, "model": kind} | measured(likely, data.y[test])


def analyse(rows: Sequence[Row]) -> list[Row]:
    """Means and their standard errors."""
    table = []
    for (data, model, epsilon), own in cells(rows, ("data", "model", "epsilon")).items():
        cell: dict[str, object] = {"data": data, "model": model, "epsilon": epsilon}
        cell |= {"fits": len(own), "holds": all(row["holds"] == "True" for row in own)}
        for metric in METRICS:
            found = [float(row[metric]) for row in own if row[metric]]
            cell |= {metric: mean(found), f"{metric}_error": error(found)}
        table.append(cell)
    return as_rows(table)


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
        level = next(float(row["auroc"]) for row in own if row["model"] == EXACT)
        lines["linear, not private"] = [(at, level, 0.0) for at, _, _ in lines[LINEAR]]
        drawn.append(Panel(data, lines))
    panels(path, drawn, x_label="ε", y_label="AUROC", columns=3)


def page(table: Sequence[Row]) -> str:
    """Where both tables are."""
    return "Tables: [linear](accuracy.md#large-budgets), [kernels](kernels.md)."


def along(table: Sequence[Row], kind: str) -> str:
    """Write one model's figures along epsilon, one line a data set and measure."""
    found = {(row["data"], row["model"], row["epsilon"]): row for row in table}
    epsilons = [f"{epsilon:g}" for epsilon in EPSILONS[kind]]
    ends = (EXACT, MAJORITY)
    lines = [
        (
            f"{data}, {SHOWN[metric]}",
            *(_cell(found.get((data, kind, epsilon)), metric) for epsilon in epsilons),
            *(_cell(found.get((data, end, "")), metric) for end in ends),
        )
        for data in dict.fromkeys(row["data"] for row in table)
        for metric in METRICS
    ]
    return grid(("", *(f"ε = {epsilon}" for epsilon in epsilons), *ends), lines)


def _cell(row: Row | None, metric: str) -> str:
    """Write a mean with its standard error, if there are several fits."""
    if row is None:
        return ""
    value, sure = float(row[metric]), row[f"{metric}_error"]
    return f"{value:.4f} ± {float(sure):.4f}" if sure else f"{value:.4f}"


if __name__ == "__main__":
    from benches.papers.command import script

    raise SystemExit(script(__file__))
