"""What FedDPDR's figures 2 to 4 have in common: accuracy along one of k, epsilon and n."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from benches.papers.cells import Statement, accuracy, cells, grid, shown, statements
from benches.papers.drawing import Panel, Point, panels
from benches.papers.feddpdr import (
    DIMENSION,
    EPSILON,
    FEDERATED,
    METHODS,
    N_ROWS,
    NOT_PRIVATE,
    UNREDUCED,
    Task,
    measured,
    task_of,
)
from benches.tables import Row, as_rows

PROTOCOL = (
    "The paper does not name the task. Measured are 3 or 8, even or odd, and all ten digits of "
    "MNIST; Fashion-MNIST and CIFAR-10 (histograms of oriented gradients) are not.",
    "n is the number of rows of each of the five parties, or of the one site, as far as rows "
    "suffice (3 or 8 has 11,982 in all).",
    "δ = 1e-4. λ follows our public rules; the paper uses 0.01.",
    "FedDPDR-DPML sums second moments in its first round; the paper averages eigenvectors, whose "
    "signs are arbitrary. Noise follows the [corrected "
    "sensitivities](papers.md#corrections-to-feddpdr).",
    "Five parties have `replace_one`, one site `add_remove`, which has half the sensitivity.",
    "Non-Priv reduces dimensions without noise, on the rows of one party.",
    "The second table counts how often the paper's text is true here.",
)
PLACE = ("data", "method", "k", "epsilon", "n")

# Where a figure looks: k, epsilon, n.
Spot = tuple[int, float, int]


def run(names: Sequence[str], repeats: int, spots: Sequence[Spot]) -> list[Row]:
    """One row a training; what does not depend on k or epsilon is measured once."""
    records: list[dict[str, object]] = []
    for name in names:
        for repeat in range(repeats):
            task = task_of(name, repeat)
            if task is None:
                break
            records += [
                {"data": name, "repeat": repeat} | record for record in _fits(task, repeat, spots)
            ]
            print(f"{name}, repeat {repeat}: {len(records)} rows", flush=True)
    return as_rows(records)


def _fits(task: Task, repeat: int, spots: Sequence[Spot]) -> Iterator[dict[str, object]]:
    """All methods at all spots."""
    done: set[tuple[object, ...]] = set()
    for k, epsilon, n in spots:
        for method in METHODS:
            place = {
                "method": method,
                "k": None if method in UNREDUCED else k,
                "epsilon": None if method in NOT_PRIVATE else epsilon,
                "n": n,
            }
            if (key := tuple(place.values())) in done:
                continue
            done.add(key)
            usual = (k, epsilon, n) == (DIMENSION, EPSILON, N_ROWS)
            yield place | measured(task, method, k, epsilon, n, check=repeat == 0 and usual)


def analyse(rows: Sequence[Row]) -> list[Row]:
    """Mean accuracy of each cell; the paper prints no figure to put beside it."""
    return as_rows(
        dict(zip(PLACE, place, strict=True))
        | {"rows": members[0]["rows"]}
        | accuracy(members)
        | {"holds": "False" not in [row["holds"] for row in members]}
        for place, members in cells(rows, PLACE).items()
    )


def failures(table: Sequence[Row], name: str) -> list[str]:
    """Guarantees that do not hold."""
    return [
        f"{name}: {row['data']}, {row['method']} at epsilon {row['epsilon']}: the guarantee does "
        "not hold"
        for row in table
        if row["holds"] != "True"
    ]


def curve(table: Sequence[Row], method: str, along: str) -> dict[float, Row]:
    """A method's cells by place; one that knows nothing of this axis is the same everywhere."""
    own = [row for row in table if row["method"] == method]
    places = sorted({float(row[along]) for row in table if row[along]})
    found = {float(row[along]): row for row in own if row[along]}
    level = next((row for row in own if not row[along]), None)
    if level is not None:
        found |= dict.fromkeys(places, level)
    return {place: found[place] for place in places if place in found}


def plot(table: Sequence[Row], path: Path, along: str, label: str) -> None:
    """One panel a task."""
    drawn = [
        Panel(
            name,
            {
                method: [_point(x, row) for x, row in curve(own, method, along).items()]
                for method in METHODS
            },
        )
        for (name,), own in cells(table, ["data"]).items()
    ]
    panels(path, drawn, x_label=label)


def _point(x: float, row: Row) -> Point:
    return x, float(row["accuracy"]), float(row["standard_error"] or 0.0)


def page(table: Sequence[Row], along: str, label: str, said: Sequence[Statement]) -> str:
    """Accuracies by task and method, then what the paper's text says of its curves."""
    places = sorted({float(row[along]) for row in table if row[along]})
    lines = []
    for (name,), own in cells(table, ["data"]).items():
        for method in METHODS:
            found = curve(own, method, along)
            lines.append((f"{name}: {method}", *(shown(found.get(place)) for place in places)))
    heads = ("", *(f"{label} = {place:g}" for place in places))
    fits = max(int(row["fits"]) for row in table)
    compared = statements(said, table, "data", "the paper's text says; true here")
    means = f"Means of {fits} draws of the training rows, on the official test part."
    return f"{grid(heads, lines)}\n\n{means}\n\n{compared}"


def everywhere(
    along: str, better: Iterable[str], worse: Iterable[str]
) -> Callable[[Sequence[Row]], list[bool]]:
    """At each place, whether each of the first methods is above every one of the others."""
    better, worse = tuple(better), tuple(worse)

    def checks(table: Sequence[Row]) -> list[bool]:
        found = {one: _heights(table, one, along) for one in (*better, *worse)}
        return [
            all(found[one][place] > found[other][place] for other in worse)
            for one in better
            for place in found[one]
            if all(place in found[other] for other in worse)
        ]

    return checks


def growing(along: str, methods: Iterable[str]) -> Callable[[Sequence[Row]], list[bool]]:
    """Whether accuracy grows from each place to the next."""
    methods = tuple(methods)

    def checks(table: Sequence[Row]) -> list[bool]:
        heights = [list(_heights(table, method, along).values()) for method in methods]
        return [after > before for own in heights for before, after in pairwise(own)]

    return checks


def _heights(table: Sequence[Row], method: str, along: str) -> dict[float, float]:
    return {x: float(row["accuracy"]) for x, row in curve(table, method, along).items()}


# Not in the paper: one party alone with our pipeline.
OURS = "Not in the paper: `PrivateLinearSVC` on the n rows of one party is above FedDPDR-DPML"


def ours(along: str) -> Statement:
    """How often one party alone needs nobody else."""
    return Statement(OURS, everywhere(along, ["PrivateLinearSVC"], [FEDERATED]))
