"""Private searches over parameters beside the defaults, at the same total budget."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler

from benches.papers.cells import grid
from benches.papers.data import DataSet, load
from benches.papers.drawing import Panel, panels
from benches.tables import Row, as_rows
from dpsvm_fast import (
    OutputPerturbationSVC,
    PrivateKernelSVC,
    PrivateLinearSVC,
    PublicScaler,
    verify,
)
from dpsvm_fast.accounting import composed_epsilon
from dpsvm_fast.model_selection import PrivateGridSearch

TITLE = "Private searches compared with the defaults"
PROTOCOL: tuple[str, ...] = (
    "δ = 1e-6. Every model of a column spends the same ε, search included.",
    "`PrivateLinearSVC` is searched over mechanism and margin, `PrivateKernelSVC` over kernel and "
    "gamma, output perturbation (without centre or whitening) over C.",
    "The reference without privacy is scikit-learn's grid search with logistic regression, on the "
    "first split.",
)
DATA = ("adult", "usps")
# The first rows of a set: in no stored result.
QUICK_DATA, QUICK_REPEATS = ("usps, 600 rows",), 1
FEW_ROWS = 600
EPSILONS = (0.5, 1.0, 2.0, 4.0)
DELTA = 1e-6
SPLITS = 5
TEST_SHARE = 0.2
N_COMPONENTS = 300
# What somebody would try who does not know which of the library's trainings suits the data.
LINEAR_GRID = [{"mechanism": ["output"]}, {"mechanism": ["gradient"], "margin": ["auto", 1.0, 3.0]}]
KERNEL_GRID = [{"kernel": ["linear"]}, {"kernel": ["rbf"], "gamma": [0.5, 2.0]}]
OUTPUT_GRID = {"svc__C": [0.001, 0.01, 0.1, 1.0]}
# Of the search that is not private.
C_GRID = {"logisticregression__C": [0.1, 1.0]}
SEARCHES: dict[str, dict[str, Any]] = {
    "partition": {"refit_fraction": 0.0},
    "partition, refit 0.5": {"refit_fraction": 0.5},
    "partition, refit 0.8": {"refit_fraction": 0.8},
    "geometric": {"strategy": "random_stopping", "refit_fraction": 0.0, "mean_runs": 8.0},
    "logarithmic": {
        "strategy": "random_stopping",
        "refit_fraction": 0.0,
        "mean_runs": 8.0,
        "stopping": "logarithmic",
    },
    "poisson": {
        "strategy": "random_stopping",
        "refit_fraction": 0.0,
        "mean_runs": 8.0,
        "stopping": "poisson",
    },
}
# Features make random stopping slow, and nothing else about it different.
OF_KERNEL, OF_OUTPUT = (
    ("partition, refit 0.5",),
    ("partition, refit 0.5", "partition, refit 0.8", "geometric", "poisson"),
)
UNSEARCHED = ("default", "C = 1")
# Names of the parameter epsilon.
OF_EPSILON = {"linear": "epsilon", "kernel": "epsilon", "output": "svc__epsilon"}


def run(names: Sequence[str], splits: int | None) -> list[Row]:
    """One row a model: data set, split, epsilon, how it was made, accuracy."""
    records: list[dict[str, object]] = []
    for name in names:
        data = load(name.partition(",")[0])
        if data is None:
            continue
        if name in QUICK_DATA:
            data = replace(data, X=data.X[:FEW_ROWS], y=data.y[:FEW_ROWS])
        for number in range(splits or SPLITS):
            epsilons = EPSILONS[:1] if name in QUICK_DATA else EPSILONS
            own = _of_split(data, number, epsilons, verified=number == 0)
            records += [{"data": name, "split": number} | record for record in own]
            print(f"{name}, split {number}: {_line(own)}", flush=True)
    return as_rows(records)


def _line(records: Sequence[Mapping[str, Any]]) -> str:
    """Accuracies for whoever waits."""
    return ", ".join(f"{r['model']} {r['how']} {r['epsilon']} {r['accuracy']:.4f}" for r in records)


def _of_split(
    data: DataSet, number: int, epsilons: Sequence[float], *, verified: bool
) -> list[dict[str, object]]:
    """All models on one split; certificates of other splits have the same numbers."""
    X, X_test, y, y_test = train_test_split(
        data.X, data.y, test_size=TEST_SHARE, random_state=number
    )
    common: dict[str, Any] = {"bounds": (data.low, data.high), "classes": range(data.n_classes)}
    linear = PrivateLinearSVC(delta=DELTA, **common)
    kernel = PrivateKernelSVC(delta=DELTA, n_components=N_COMPONENTS, **common)
    rows = (X, y, X_test, y_test)
    svc = OutputPerturbationSVC(delta=DELTA, classes=range(data.n_classes))
    output = Pipeline(
        [("scale", PublicScaler((data.low, data.high))), ("norm", Normalizer()), ("svc", svc)]
    )
    subjects = (
        ("linear", linear, LINEAR_GRID, tuple(SEARCHES)),
        ("kernel", kernel, KERNEL_GRID, OF_KERNEL),
        ("output", output, OUTPUT_GRID, OF_OUTPUT),
    )
    records = []
    if verified:
        records.append(_scored("not private", "grid search", None, _reference(), rows))
    for epsilon in epsilons:
        for label, model, candidates, ways in subjects:
            default = clone(model).set_params(**{OF_EPSILON[label]: epsilon})
            records.append(_scored(label, "default", epsilon, default, rows))
            if label == "output":
                fixed = clone(default).set_params(svc__C=1.0)
                records.append(_scored(label, "C = 1", epsilon, fixed, rows))
            for way in ways:
                search = PrivateGridSearch(model, candidates, epsilon, DELTA, **SEARCHES[way])
                records.append(_scored(label, way, epsilon, search, rows))
                if verified:
                    records[-1]["holds"] = verify(search.privacy_).ok
    return records


def _reference() -> Any:
    """Logistic regression with its C chosen by cross-validation, behind a scaler."""
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=100))
    return GridSearchCV(model, C_GRID, cv=3)


def _scored(
    label: str, how: str, epsilon: float | None, model: Any, rows: tuple[Any, ...]
) -> dict[str, object]:
    """Fit and score one model."""
    X, y, X_test, y_test = rows
    begin = time.process_time()
    with warnings.catch_warnings():
        # Of the reference: far enough.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, y)
    spent = time.process_time() - begin
    own = model[-1] if isinstance(model, Pipeline) else model
    statement = getattr(own, "privacy_", None)
    return {
        "epsilon": epsilon,
        "model": label,
        "how": how,
        "chosen": str(getattr(model, "best_params_", "")),
        "total": None if statement is None else composed_epsilon(statement.events, DELTA),
        "holds": None,
        "accuracy": float(model.score(X_test, y_test)),
        "cpu_seconds": spent,
    }


def analyse(rows: Sequence[Row]) -> list[Row]:
    """Mean accuracies over splits, and what each search gains on its model's default."""
    cells: dict[tuple[str, str, str, str], list[Row]] = {}
    for row in rows:
        key = (row["data"], row["model"], row["how"], row["epsilon"])
        cells.setdefault(key, []).append(row)
    table = []
    for (name, model, how, epsilon), members in cells.items():
        found = [float(row["accuracy"]) for row in members]
        default = [float(r["accuracy"]) for r in cells.get((name, model, "default", epsilon), ())]
        gains = [ours - theirs for ours, theirs in zip(found, default, strict=False)]
        table.append(
            {
                "data": name,
                "epsilon": epsilon,
                "model": model,
                "how": how,
                "splits": len(found),
                "accuracy": mean(found),
                "standard_error": _error(found),
                "gain": mean(gains) if gains else None,
                "gain_error": _error(gains),
                "total": max(
                    (float(row["total"]) for row in members if row["total"]), default=None
                ),
                "holds": all(row["holds"] != "False" for row in members),
                "cpu_seconds": mean(float(row["cpu_seconds"]) for row in members),
            }
        )
    return as_rows(table)


def _error(values: Sequence[float]) -> float | None:
    """Standard error of a mean."""
    return stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None


def failures(table: Sequence[Row]) -> list[str]:
    """Budgets that were exceeded and certificates that do not hold; accuracies are as they are."""
    return [
        f"tuning: {row['data']}, {row['model']} by {row['how']} at {row['epsilon']}: "
        f"total {row['total']}, certificates {row['holds']}"
        for row in table
        if row["holds"] != "True"
        or (row["total"] and float(row["total"]) > float(row["epsilon"]) * (1.0 + 1e-6))
    ]


def plot(table: Sequence[Row], path: Path) -> None:
    """Every way along epsilon, one panel a data set and model."""
    drawn = []
    for name, model in dict.fromkeys((r["data"], r["model"]) for r in table if r["epsilon"]):
        own = [row for row in table if (row["data"], row["model"]) == (name, model)]
        lines: dict[str, list[tuple[float, float, float]]] = {}
        for row in own:
            error = float(row["standard_error"] or 0.0)
            place = (float(row["epsilon"]), float(row["accuracy"]), error)
            lines.setdefault(row["how"], []).append(place)
        drawn.append(Panel(f"{name}, {model}", lines))
    panels(path, drawn, x_label="ε", columns=3)


def page(table: Sequence[Row]) -> str:
    """Accuracy of every way, and what searches gain on the defaults."""
    private = [row for row in table if row["epsilon"]]
    epsilons = sorted({row["epsilon"] for row in private}, key=float)
    cells = {(r["data"], r["model"], r["how"], r["epsilon"]): r for r in private}
    ways = dict.fromkeys((row["data"], row["model"], row["how"]) for row in private)
    rows = [
        (
            ", ".join(way),
            *(
                f"{float(cells[(*way, e)]['accuracy']):.3f}" if (*way, e) in cells else ""
                for e in epsilons
            ),
        )
        for way in ways
    ]
    searched = [row for row in private if row["how"] not in UNSEARCHED and row["gain_error"]]
    better = sum(float(row["gain"]) > 2.0 * float(row["gain_error"]) for row in searched)
    worse = sum(float(row["gain"]) < -2.0 * float(row["gain_error"]) for row in searched)
    limits = [f"{row['data']} {float(row['accuracy']):.3f}" for row in table if not row["epsilon"]]
    note = (
        f"In {better} of {len(searched)} cells a search is better than the default by more than "
        f"two standard errors of the paired difference, in {worse} it is worse by as much."
    )
    if limits:
        note += f" Not private: {', '.join(limits)}."
    return f"{grid(('', *(f'ε = {one}' for one in epsilons)), rows)}\n\n{note}"


if __name__ == "__main__":
    from benches.papers.command import script

    raise SystemExit(script(__file__))
