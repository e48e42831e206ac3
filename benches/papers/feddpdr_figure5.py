"""FedDPDR's Figure 5: five participants with uneven numbers of rows.

The paper's three lists of sizes, and beside its mechanism the other ways of two rounds: projectors
or eigenvectors instead of second moments, and one noise for all parties' models together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from sklearn.pipeline import make_pipeline

from benches.papers.cells import Statement, accuracy, cells, grid, shown, statements
from benches.papers.drawing import Panel, panels
from benches.papers.feddpdr import (
    DIMENSION,
    FEDERATED,
    ONE_SITE,
    TASKS,
    Party,
    Task,
    federated,
    parties_of,
    task_of,
    within,
)
from benches.tables import Row, as_rows

TITLE = "FedDPDR (CMC 2024), Figure 5: uneven parties"
PROTOCOL = (
    "Tasks, δ, relations and first round are those of Figure 2; k = 20.",
    "The paper's sizes are 50, 100, 500, 1,000, 2,000; or 100, 500, 1,000, 5,000, 10,000; or, "
    "heavier, 100, 1,000, 5,000, 8,000, 10,000. 3 or 8 has 11,982 rows: its longer lists shrink "
    "in proportion.",
    "“Eigenvectors” is the paper's first round, with signs aligned and weights that add up to one.",
    "The paper does not say whose rows the mechanisms of one site use: here those of the largest "
    "party.",
    "One curator is PrivateLinearSVC on all rows, run by someone whom all parties trust. ε = 1 is "
    "our choice.",
)
DATA = TASKS
QUICK_DATA, QUICK_REPEATS = ("3 or 8",), 1
REPEATS = 3
SIZES = {
    "50 to 2,000": (50, 100, 500, 1000, 2000),
    "100 to 10,000": (100, 500, 1000, 5000, 10_000),
    "100 to 10,000, heavier": (100, 1000, 5000, 8000, 10_000),
}
EPSILONS = (0.1, 1.0)
VARIANTS: dict[str, dict[str, Any]] = {
    FEDERATED: {},
    f"{FEDERATED}, projectors": {"aggregation": "projectors"},
    f"{FEDERATED}, eigenvectors": {"aggregation": "eigenvectors"},
    f"{FEDERATED}, blind averaging": {"local": "output"},
}
ALONE = ("DPML", "DPDR-DPML", "PrivateLinearSVC")
CURATOR, NOT_PRIVATE = "PrivateLinearSVC, one curator", "Non-Priv"
PLACE = ("data", "sizes", "epsilon", "method")
# Of the text: "almost".
LITTLE = 0.02

Score = Callable[[], tuple[float, bool]]


def scores(
    task: Task, parties: Sequence[Party], epsilon: float, *, check: bool
) -> dict[str, Score]:
    """Accuracy on the test part and whether the guarantee holds, for each method."""

    def of_all(settings: dict[str, Any]) -> tuple[float, bool]:
        model = federated(task, parties, DIMENSION, epsilon, **settings)
        return float(model.score(task.X_test, task.y_test)), not check or within(model, epsilon)

    def of_one(method: str, X: Any, y: Any) -> float:
        model = make_pipeline(*ONE_SITE[method](task, DIMENSION, epsilon)).fit(X, y)
        return float(model.score(task.X_test, task.y_test))

    X, y = (np.concatenate(parts) for parts in zip(*parties, strict=True))
    found: dict[str, Score] = {}
    for name, settings in VARIANTS.items():
        found[name] = lambda settings=settings: of_all(settings)  # type: ignore[misc]
    for name in ALONE:
        found[f"{name}, mean of parties"] = lambda name=name: (  # type: ignore[misc]
            mean(of_one(name, *party) for party in parties),
            True,
        )
        found[f"{name}, largest party"] = lambda name=name: (  # type: ignore[misc]
            of_one(name, *parties[-1]),
            True,
        )
    found[CURATOR] = lambda: (of_one("PrivateLinearSVC", X, y), True)
    found[NOT_PRIVATE] = lambda: (of_one("Non-Priv", X, y), True)
    return found


def run(names: Sequence[str], repeats: int | None) -> list[Row]:
    """One row a training."""
    records: list[dict[str, object]] = []
    for name in names:
        for repeat in range(repeats or REPEATS):
            task = task_of(name, repeat, max(map(sum, SIZES.values())))
            if task is None:
                break
            for sizes_name, sizes in SIZES.items():
                parties = parties_of(task, sizes)
                for epsilon in EPSILONS:
                    check = (repeat, sizes_name, epsilon) == (0, next(iter(SIZES)), EPSILONS[0])
                    for method, score in scores(task, parties, epsilon, check=check).items():
                        reached, holds = score()
                        records.append(
                            {"data": name, "sizes": sizes_name, "epsilon": epsilon}
                            | {"method": method, "repeat": repeat}
                            | {"accuracy": reached, "holds": holds}
                        )
            print(f"{name}, repeat {repeat}: {len(records)} rows", flush=True)
    return as_rows(records)


def analyse(rows: Sequence[Row]) -> list[Row]:
    """Mean accuracy of each cell; the paper prints no figure to put beside it."""
    return as_rows(
        dict(zip(PLACE, place, strict=True))
        | accuracy(members)
        | {"holds": all(row["holds"] == "True" for row in members)}
        for place, members in cells(rows, PLACE).items()
    )


def failures(table: Sequence[Row]) -> list[str]:
    """Guarantees that do not hold."""
    return [
        f"feddpdr_figure5: {row['data']}, {row['sizes']}, {row['method']} at {row['epsilon']}: the "
        "guarantee does not hold"
        for row in table
        if row["holds"] != "True"
    ]


# The other methods are in the stored table.
DRAWN = (
    FEDERATED,
    "DPML, largest party",
    "DPDR-DPML, largest party",
    "PrivateLinearSVC, largest party",
    CURATOR,
    NOT_PRIVATE,
)

SHOWN = (FEDERATED, f"{FEDERATED}, eigenvectors", *DRAWN[1:])


def plot(table: Sequence[Row], path: Path) -> None:
    """One panel a task at the paper's epsilon; the lists of sizes side by side."""
    drawn = []
    for (name,), own in cells(table, ["data"]).items():
        places = {size: place for place, size in enumerate(SIZES, start=1)}
        at = [row for row in own if float(row["epsilon"]) == EPSILONS[0]]
        lines = {
            method: [
                (places[row["sizes"]], float(row["accuracy"]), float(row["standard_error"] or 0.0))
                for row in at
                if row["method"] == method
            ]
            for method in DRAWN
        }
        drawn.append(Panel(f"{name}, ε = {EPSILONS[0]:g}", lines))
    panels(path, drawn, x_label="sizes of the parties: list 1, 2, 3", logarithmic=False)


def _beside(table: Sequence[Row], *others: str) -> Iterator[tuple[float, float]]:
    """Accuracies of the paper's mechanism and of others, for each list of sizes at its epsilon."""
    found = {
        (row["sizes"], row["method"]): float(row["accuracy"])
        for row in table
        if float(row["epsilon"]) == EPSILONS[0]
    }
    for size in SIZES:
        for one in others:
            if {(size, FEDERATED), (size, one)} <= set(found):
                yield found[size, FEDERATED], found[size, one]


def _near(table: Sequence[Row]) -> list[bool]:
    """Whether it is about as accurate as without privacy."""
    return [own >= other - LITTLE for own, other in _beside(table, NOT_PRIVATE)]


def _above(table: Sequence[Row]) -> list[bool]:
    """Whether it is above the others, of the party with the best chances."""
    others = (f"{name}, largest party" for name in ("DPML", "DPDR-DPML"))
    return [own > other for own, other in _beside(table, *others)]


SAID = (
    Statement(f"FedDPDR-DPML is almost as accurate as Non-Priv (here: within {LITTLE:g})", _near),
    Statement("it is better than DPML and DPDR-DPML (here: of the largest party)", _above),
)


def page(table: Sequence[Row]) -> str:
    """Accuracies of all methods, and what the paper says."""
    lines = []
    for (name,), own in cells(table, ["data"]).items():
        found = {(row["method"], row["sizes"], row["epsilon"]): row for row in own}
        places = [(size, f"{epsilon:g}") for epsilon in EPSILONS for size in SIZES]
        lines += [
            (f"{name}: {method}", *(shown(found.get((method, *place))) for place in places))
            for method in SHOWN
            if method in {row["method"] for row in own}
        ]
    heads = ("", *(f"{size}, ε = {epsilon:g}" for epsilon in EPSILONS for size in SIZES))
    compared = statements(SAID, table, "data", "the paper's text says at ε = 0.1; true here")
    return f"{grid(heads, lines)}\n\n{compared}"


if __name__ == "__main__":
    from benches.papers.command import script

    raise SystemExit(script(__file__))
