"""The grid of FedDPDR (Wang et al., CMC 2024) on MNIST: private PCA, then a private linear SVM.

10,000 rows, target dimension k, total epsilon, delta = 1e-4, add_remove, rows of norm 1. The paper
does not say which binary task it takes: three pairs of digits and even against odd stand in, beside
all ten classes. Nothing is tuned.

- "halves": half of epsilon for the PCA, half for pure objective perturbation with the Huber hinge,
  as in the paper.
- "one ledger, gradient" and "one ledger, objective": each step gets half of the squared Gaussian
  parameter and the whole is composed exactly by one ledger of the same total; the second step is
  PrivateLinearSVC, or objective perturbation with Gaussian noise.
- "without reduction": the whole budget for one step in all 784 dimensions, pure as in the paper
  (its DPML), or PrivateLinearSVC.
- "not private": PCA and a linear SVM; k = 784 is without reduction.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

from benches.datasets import unit_rows
from benches.papers.budget import epsilon_beside, events_of, share_of_budget
from benches.papers.data import DataSet, load
from benches.tables import Row, as_rows
from dpsvm_fast import ObjectivePerturbationSVC, PrivacyLedger, PrivateLinearSVC, PrivatePCA
from dpsvm_fast.accounting import composed_epsilon

DIMENSIONS = (5, 10, 20, 50, 100)
EPSILONS = (0.01, 0.05, 0.1, 0.5, 1.0, 2.0)
DELTA = 1e-4
N_ROWS = 10_000
REPEATS = 3
# Where the paper's curves stand still: k along epsilon, epsilon along k.
SHOWN_DIMENSION, SHOWN_EPSILON = 20, 0.1
# Share of the squared Gaussian parameter that the PCA gets.
PCA_SHARE = 0.5

# Digits of both classes.
PAIRS: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "0 or 1": ((0,), (1,)),
    "3 or 8": ((3,), (8,)),
    "4 or 9": ((4,), (9,)),
    "even or odd": ((0, 2, 4, 6, 8), (1, 3, 5, 7, 9)),
}
TASKS = (*PAIRS, "ten digits")


@dataclass(frozen=True)
class Task:
    """Unit rows and labels to train on, and the official test part."""

    X: NDArray[np.float64]
    y: NDArray[np.int64]
    X_test: NDArray[np.float64]
    y_test: NDArray[np.int64]
    n_classes: int


@lru_cache(maxsize=1)
def _mnist() -> DataSet | None:
    return load("mnist")


def task_of(name: str, repeat: int) -> Task | None:
    """Rows drawn for this repeat; None with a line where the data are missing."""
    data = _mnist()
    if data is None or data.is_train is None:
        return None
    groups = PAIRS.get(name, tuple((digit,) for digit in range(10)))
    labels = np.full(10, -1)
    for label, digits in enumerate(groups):
        labels[list(digits)] = label
    codes = labels[data.y]
    train = np.flatnonzero(data.is_train & (codes >= 0))
    test = np.flatnonzero(~data.is_train & (codes >= 0))
    n_rows = min(N_ROWS, train.size)
    train = np.random.default_rng(repeat).choice(train, n_rows, replace=False)
    return Task(
        unit_rows(data.X[train]), codes[train], unit_rows(data.X[test]), codes[test], len(groups)
    )


def halves(task: Task, k: int, epsilon: float) -> tuple[Any, ...]:
    """As in the paper."""
    return PrivatePCA(k, epsilon / 2.0, DELTA), pure(task, epsilon / 2.0)


def pure(task: Task, epsilon: float) -> Any:
    """Objective perturbation with Gamma noise and the Huber hinge."""
    return ObjectivePerturbationSVC(
        epsilon, 0.0, loss="huber", noise="gamma", classes=range(task.n_classes)
    )


def with_gradient(task: Task, k: int, epsilon: float) -> tuple[Any, ...]:
    """Both steps Gaussian: squared parameters add up."""
    ledger = PrivacyLedger(epsilon, DELTA)
    first, rest = (share_of_budget(epsilon, DELTA, s) for s in (PCA_SHARE, 1.0 - PCA_SHARE))
    classes = range(task.n_classes)
    return (
        PrivatePCA(k, first, DELTA, ledger=ledger),
        PrivateLinearSVC(rest, DELTA, classes=classes, ledger=ledger),
    )


def with_objective(task: Task, k: int, epsilon: float) -> tuple[Any, ...]:
    """What the PCA leaves, by the law of the noisy objective."""
    ledger = PrivacyLedger(epsilon, DELTA)
    first, rest = objective_budget(epsilon, task.n_classes)
    classes = range(task.n_classes)
    return (
        PrivatePCA(k, first, DELTA, ledger=ledger),
        ObjectivePerturbationSVC(rest, DELTA, classes=classes, ledger=ledger),
    )


@cache
def objective_budget(epsilon: float, n_classes: int) -> tuple[float, float]:
    """Epsilons of both steps: no function of the data, nor, but for rounding, of k."""
    first = share_of_budget(epsilon, DELTA, PCA_SHARE)
    n_features = max(DIMENSIONS)
    before = events_of(PrivatePCA(1, first, DELTA), n_features, n_classes)

    def events(own: float) -> Any:
        model = ObjectivePerturbationSVC(own, DELTA, classes=range(n_classes))
        return events_of(model, n_features, n_classes)

    return first, epsilon_beside(epsilon, DELTA, PCA_SHARE, before, events)


REDUCED: dict[str, Callable[[Task, int, float], tuple[Any, ...]]] = {
    "halves": halves,
    "one ledger, gradient": with_gradient,
    "one ledger, objective": with_objective,
}
UNREDUCED: dict[str, Callable[[Task, float], tuple[Any, ...]]] = {
    "without reduction, pure": lambda task, epsilon: (pure(task, epsilon),),
    "without reduction, gradient": lambda task, epsilon: (
        PrivateLinearSVC(epsilon, DELTA, classes=range(task.n_classes)),
    ),
}


def cells(task: Task) -> Iterator[tuple[str, int, float | None, Callable[[], tuple[Any, ...]]]]:
    """Method, dimension, epsilon and what makes its steps."""
    n_features = task.X.shape[1]
    for k in (*DIMENSIONS, n_features):
        steps = [PCA(k), LinearSVC()] if k < n_features else [LinearSVC()]
        yield "not private", k, None, partial(tuple, steps)
    for epsilon in EPSILONS:
        for name, unreduced in UNREDUCED.items():
            yield name, n_features, epsilon, partial(unreduced, task, epsilon)
        for k in DIMENSIONS:
            for name, reduced in REDUCED.items():
                yield name, k, epsilon, partial(reduced, task, k, epsilon)


def run(names: Sequence[str], repeats: int | None) -> list[Row]:
    """One row a fit from rows to a model."""
    records: list[dict[str, object]] = []
    for name in names:
        for repeat in range(repeats or REPEATS):
            task = task_of(name, repeat)
            if task is None:
                break
            for method, k, epsilon, make in cells(task):
                check = repeat == 0 and k == SHOWN_DIMENSION and epsilon is not None
                records.append(
                    {"data": name, "method": method, "k": k, "epsilon": epsilon}
                    | {"repeat": repeat}
                    | fitted(task, make(), check=check)
                )
            own = [record for record in records if record["data"] == name]
            print(f"{name}, repeat {repeat}: {len(own)} fits", flush=True)
    return as_rows(records)


def fitted(task: Task, steps: tuple[Any, ...], *, check: bool) -> dict[str, object]:
    """Accuracy on the test part, cost, and, if asked for, what was spent."""
    model = make_pipeline(*steps)
    begin, cpu_begin = time.perf_counter(), time.process_time()
    model.fit(task.X, task.y)
    seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - cpu_begin
    spent = [event for step in steps for event in step.privacy_.events] if check else []
    return {
        "spent": composed_epsilon(spent, DELTA) if check else None,
        "accuracy": float(model.score(task.X_test, task.y_test)),
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
    }


def analyse(rows: Sequence[Row]) -> list[Row]:
    """Mean accuracy of each cell, and the largest and the median time of a fit."""
    members: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        place = row["data"], row["method"], row["k"], row["epsilon"]
        members.setdefault(place, []).append(row)
    table = []
    for (name, method, k, epsilon), cell in members.items():
        found = [float(row["accuracy"]) for row in cell]
        table.append(
            {
                "data": name,
                "method": method,
                "k": k,
                "epsilon": epsilon,
                "fits": len(cell),
                "accuracy": mean(found),
                "standard_error": stdev(found) / math.sqrt(len(found)) if len(found) > 1 else None,
                "spent": next((row["spent"] for row in cell if row["spent"]), None),
                "seconds": median(float(row["seconds"]) for row in cell),
                "cpu_seconds": median(float(row["cpu_seconds"]) for row in cell),
            }
        )
    return as_rows(table)


def failures(table: Sequence[Row]) -> list[str]:
    """Budgets that were exceeded."""
    return [
        f"feddpdr: {row['data']}, {row['method']} at {row['epsilon']}: spent {row['spent']}"
        for row in table
        if row["spent"] and float(row["spent"]) > float(row["epsilon"]) * (1.0 + 1e-6)
    ]


def plot(table: Sequence[Row], path: Path) -> None:
    """Accuracy along epsilon and along k, one column a task."""
    # Imported here: only this step needs it, and it is an optional dependency.
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = list(dict.fromkeys(row["data"] for row in table))
    size = (3.2 * len(names) + 1.0, 6.8)
    figure, axes = pyplot.subplots(
        2, len(names), figsize=size, squeeze=False, sharey="col", layout="constrained"
    )
    fixed = (("epsilon", "k", str(SHOWN_DIMENSION)), ("k", "epsilon", f"{SHOWN_EPSILON:g}"))
    for column, name in enumerate(names):
        for row_of_axes, (along, other, value) in enumerate(fixed):
            own = axes[row_of_axes][column]
            for method, line in curves([r for r in table if r["data"] == name], along, value):
                own.plot(*line, marker=".", label=method, **STYLES.get(method, {}))
            own.set_xscale("log")
            own.set_xlabel(along)
            own.set_title(f"{name}, {other} = {value}", fontsize="medium")
            own.grid(visible=True, alpha=0.3)
    for own in axes[:, 0]:
        own.set_ylabel("accuracy on the official test part")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=75)
    pyplot.close(figure)


STYLES: dict[str, dict[str, Any]] = {
    "not private": {"color": "black", "linestyle": ":"},
    "halves": {"color": "tab:red"},
    "one ledger, gradient": {"color": "tab:blue"},
    "one ledger, objective": {"color": "tab:green"},
    "without reduction, pure": {"color": "tab:red", "linestyle": "--"},
    "without reduction, gradient": {"color": "tab:blue", "linestyle": "--"},
}


def curves(
    rows: Sequence[Row], along: str, value: str
) -> Iterator[tuple[str, tuple[list[float], list[float]]]]:
    """Each method's accuracies along epsilon or k; what does not depend on it is a level line."""
    places = list(EPSILONS if along == "epsilon" else DIMENSIONS)
    for method in STYLES:
        own = [row for row in rows if row["method"] == method]
        if along == "epsilon":
            fixed = {row["k"] for row in own}
            k = value if value in fixed else max(fixed, key=int, default="")
            found = {row["epsilon"]: row["accuracy"] for row in own if row["k"] == k}
        else:
            at = [row for row in own if row["epsilon"] in ("", value)]
            found = {row["k"]: row["accuracy"] for row in at}
        # One entry that belongs to no place of this axis holds everywhere.
        level = next(iter(found.values())) if len(found) == 1 else None
        heights = [found.get(f"{place:g}", level) for place in places]
        shown = [(x, float(y)) for x, y in zip(places, heights, strict=True) if y is not None]
        if shown:
            yield method, ([x for x, _ in shown], [y for _, y in shown])
