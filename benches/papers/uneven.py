"""FedDPDR's Figure 5 (Wang et al., CMC 2024): five participants with uneven numbers of rows, MNIST.

k = 20, epsilon 0.1, delta = 1e-4, rows of norm 1, the paper's three lists of sizes. The tasks are
those of ``feddpdr``: the paper does not say which binary one it takes.

- "federated, gram": both rounds by secure sum; second moments in the first.
- "federated, projectors", "federated, eigenvectors": the means of what each party finds alone.
- "federated, blind averaging": noise of the second round by all parties together as well.
- "alone": the same two steps by each party for itself; the mean over parties of its accuracy.
- "largest alone": that of the party with most rows.
- "not private": PCA and a linear SVM on all rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

from benches.papers.feddpdr import TASKS, Task, halves, task_of
from benches.tables import Row, as_rows
from dpsvm_fast import verify
from dpsvm_fast.federated import FederatedSpec, simulate

SIZES = {
    "50 to 2,000": (50, 100, 500, 1000, 2000),
    "100 to 10,000": (100, 500, 1000, 5000, 10_000),
    "100 to 10,000, heavier": (100, 1000, 5000, 8000, 10_000),
}
COMPONENTS, EPSILON, DELTA = 20, 0.1, 1e-4
EPSILONS = (0.1, 1.0)
REPEATS = 5
VARIANTS: dict[str, dict[str, Any]] = {
    "federated, gram": {},
    "federated, projectors": {"aggregation": "projectors"},
    "federated, eigenvectors": {"aggregation": "eigenvectors"},
    "federated, blind averaging": {"local": "output"},
}

Party = tuple[NDArray[np.float64], NDArray[np.int64]]


def parties_of(task: Task, sizes: Sequence[int], rng: np.random.Generator) -> list[Party]:
    """Disjoint rows of the participants; tasks with fewer rows shrink all sizes alike."""
    rows = rng.permutation(len(task.y))
    factor = min(1.0, len(rows) / sum(sizes))
    cuts = np.cumsum([math.floor(factor * size) for size in sizes])
    parts = np.split(rows[: cuts[-1]], cuts[:-1])
    return [(task.X[part], task.y[part]) for part in parts]


def federated(task: Task, parties: Sequence[Party], epsilon: float, **settings: Any) -> Any:
    """The fitted model of all parties."""
    spec = FederatedSpec.fed_dpdr(
        n_users=len(parties),
        honest_fraction=1.0,
        epsilon=epsilon,
        delta=DELTA,
        n_features=task.X.shape[1],
        classes=range(task.n_classes),
        n_components=COMPONENTS,
        min_records=min(len(y) for _, y in parties),
        max_records=max(len(y) for _, y in parties),
        **settings,
    )
    return simulate(spec, parties)


def scores(
    task: Task, parties: Sequence[Party], epsilon: float
) -> dict[str, Callable[[], tuple[float, bool]]]:
    """Accuracy on the test part and whether the certificate holds, for each method."""

    def of_all(settings: dict[str, Any]) -> tuple[float, bool]:
        model = federated(task, parties, epsilon, **settings)
        return float(model.score(task.X_test, task.y_test)), verify(model.privacy_).ok

    def of_one(party: Party) -> float:
        model = make_pipeline(*halves(task, COMPONENTS, epsilon)).fit(*party)
        return float(model.score(task.X_test, task.y_test))

    def not_private() -> tuple[float, bool]:
        X, y = (np.concatenate(parts) for parts in zip(*parties, strict=True))
        model = make_pipeline(PCA(COMPONENTS), LinearSVC()).fit(X, y)
        return float(model.score(task.X_test, task.y_test)), True

    found: dict[str, Callable[[], tuple[float, bool]]] = {}
    for name, settings in VARIANTS.items():
        found[name] = lambda settings=settings: of_all(settings)  # type: ignore[misc]
    found["alone"] = lambda: (mean(of_one(party) for party in parties), True)
    found["largest alone"] = lambda: (of_one(parties[-1]), True)
    found["not private"] = not_private
    return found


def run(names: Sequence[str], repeats: int | None) -> list[Row]:
    """One row a training."""
    records: list[dict[str, object]] = []
    for name in names:
        for repeat in range(repeats or REPEATS):
            task = task_of(name, repeat)
            if task is None:
                break
            for sizes_name, sizes in SIZES.items():
                parties = parties_of(task, sizes, np.random.default_rng([repeat, *sizes]))
                for epsilon in EPSILONS:
                    for method, score in scores(task, parties, epsilon).items():
                        accuracy, holds = score()
                        records.append(
                            {"data": name, "sizes": sizes_name, "epsilon": epsilon}
                            | {"method": method, "repeat": repeat}
                            | {"accuracy": accuracy, "holds": holds}
                        )
            print(f"{name}, repeat {repeat}: {len(records)} rows", flush=True)
    return as_rows(records)


def analyse(rows: Sequence[Row]) -> list[Row]:
    """Mean accuracy of each cell."""
    cells: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        place = tuple(row[name] for name in ("data", "sizes", "epsilon", "method"))
        cells.setdefault(place, []).append(row)
    table: list[dict[str, object]] = []
    for (data, sizes, epsilon, method), members in cells.items():
        found = [float(row["accuracy"]) for row in members]
        table.append(
            {
                "data": data,
                "sizes": sizes,
                "epsilon": epsilon,
                "method": method,
                "repeats": len(found),
                "accuracy": mean(found),
                "standard_error": stdev(found) / math.sqrt(len(found)) if len(found) > 1 else None,
                "holds": all(row["holds"] == "True" for row in members),
            }
        )
    return as_rows(table)


def failures(table: Sequence[Row]) -> list[str]:
    """Certificates that do not hold."""
    return [
        f"uneven: {row['data']}, {row['sizes']}, {row['method']} at {row['epsilon']}: the "
        "certificate does not hold"
        for row in table
        if row["holds"] != "True"
    ]


def plot(table: Sequence[Row], path: Path) -> None:
    """Bars for every list of sizes, one panel a task, at the paper's epsilon."""
    # Imported here: only this step needs it, and it is an optional dependency.
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = list(dict.fromkeys(row["data"] for row in table))
    methods = list(dict.fromkeys(row["method"] for row in table))
    figure, axes = pyplot.subplots(
        1, len(names), figsize=(4.2 * len(names), 4.2), squeeze=False, layout="constrained"
    )
    width = 0.8 / len(methods)
    for own, name in zip(axes[0], names, strict=True):
        for at, method in enumerate(methods):
            members = [
                row
                for row in table
                if row["data"] == name
                and row["method"] == method
                and float(row["epsilon"]) == EPSILON
            ]
            places = np.arange(len(members)) + (at - len(methods) / 2 + 0.5) * width
            heights = [float(row["accuracy"]) for row in members]
            own.bar(places, heights, width, label=method, hatch=HATCHES[at % len(HATCHES)])
        own.set_xticks(range(len(SIZES)), list(SIZES), fontsize="x-small")
        own.set_title(f"{name}, epsilon {EPSILON:g}", fontsize="medium")
    axes[0][0].set_ylabel("accuracy on the official test part")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4)
    figure.savefig(path, dpi=75)
    pyplot.close(figure)


HATCHES = ("", "//", "\\\\", "xx", "..", "--", "++")

__all__ = ["TASKS", "analyse", "failures", "plot", "run"]
