"""FedDPDR's Table 3: seconds from unit rows to a model, 10,000 rows, k = 20."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from sklearn.pipeline import make_pipeline

from benches.measuring import interleaved
from benches.papers.cells import cells, grid
from benches.papers.drawing import COLOURS, save, tidy
from benches.papers.feddpdr import (
    DIMENSION,
    EPSILON,
    FEDERATED,
    N_PARTIES,
    N_ROWS,
    ONE_SITE,
    TASKS,
    Task,
    federated_spec,
    parties_of,
    task_of,
)
from benches.tables import Row, as_rows
from dpsvm_fast.federated import simulate

TITLE = "FedDPDR (CMC 2024), Table 3: running time"
PROTOCOL = (
    "Times are from unit rows to a model, on one thread, all methods in turn. The paper uses "
    "another machine and does not say what its time includes.",
    "ε = 0.1, slightly different in each round, so that no cached calibration helps.",
)
DATA = TASKS
QUICK_DATA, QUICK_REPEATS = ("3 or 8",), 1
REPEATS = 5
GOAL_SECONDS = 1.0
# Table 3 of the paper, in seconds.
PAPER = {
    "mnist": {
        "Non-Priv": 3.68,
        "DPML": 7873.23,
        "DPDR-DPML": 111.70,
        FEDERATED: 113.20,
    },
    "fashion_mnist": {
        "Non-Priv": 5.02,
        "DPML": 7988.60,
        "DPDR-DPML": 112.70,
        FEDERATED: 123.50,
    },
    "cifar10": {
        "Non-Priv": 63.45,
        "DPML": 36960.70,
        "DPDR-DPML": 147.96,
        FEDERATED: 150.30,
    },
}


def run(names: Sequence[str], repeats: int | None) -> list[Row]:
    """One row a fit."""
    records: list[dict[str, object]] = []
    rounds = repeats or REPEATS
    for name in names:
        task = task_of(name, 0, N_ROWS)
        if task is None:
            continue
        for fit in interleaved(_candidates(task, rounds), rounds):
            records.append(
                {"data": name, "method": fit.label, "repeat": fit.repeat}
                | {"seconds": fit.seconds, "cpu_seconds": fit.cpu_seconds}
            )
    return as_rows(records)


def _candidates(task: Task, rounds: int) -> dict[str, Callable[[int], object]]:
    """Every method; the objects of all rounds are made beforehand."""
    epsilons = [EPSILON * (1.0 + 1e-6 * repeat) for repeat in range(rounds)]
    made: dict[str, list[Any]] = {
        name: [make_pipeline(*make(task, DIMENSION, epsilon)) for epsilon in epsilons]
        for name, make in ONE_SITE.items()
    }
    parties = parties_of(task, [N_ROWS // N_PARTIES] * N_PARTIES)
    specs = [federated_spec(task, parties, DIMENSION, epsilon) for epsilon in epsilons]
    together = {FEDERATED: lambda repeat: simulate(specs[repeat], parties, n_threads=1)}
    return {name: partial(_fit, task, models) for name, models in made.items()} | together


def _fit(task: Task, models: Sequence[Any], repeat: int) -> object:
    """One model, from unit rows."""
    return models[repeat].fit(task.X, task.y)


def analyse(rows: Sequence[Row]) -> list[Row]:
    """Median seconds of each task and method beside the paper's."""
    return as_rows(
        {
            "data": name,
            "method": method,
            "fits": len(members),
            "seconds": (seconds := median(float(row["seconds"]) for row in members)),
            "slowest": max(float(row["seconds"]) for row in members),
            "cpu_seconds": median(float(row["cpu_seconds"]) for row in members),
            "goal_seconds": GOAL_SECONDS,
            "goal_met": seconds < GOAL_SECONDS,
            "paper_seconds": PAPER.get(name, PAPER["mnist"]).get(method),
        }
        for (name, method), members in cells(rows, ("data", "method")).items()
    )


def failures(_: Sequence[Row]) -> list[str]:
    """A missed time is shown, not judged."""
    return []


def plot(table: Sequence[Row], path: Path) -> None:
    """Bars of seconds beside the paper's, one group a method; the axis counts powers of ten."""
    # Imported here: only this step needs it, and it is an optional dependency.
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    methods = list(dict.fromkeys(row["method"] for row in table))
    names = list(dict.fromkeys(row["data"] for row in table))
    figure, axes = pyplot.subplots(figsize=(6.4, 3.6), layout="constrained")
    width = 0.8 / (len(names) + 1)
    for at, name in enumerate(names):
        found = {row["method"]: float(row["seconds"]) for row in table if row["data"] == name}
        places = [methods.index(method) + (at - len(names) / 2) * width for method in found]
        axes.bar(places, list(found.values()), width, label=f"ours, {name}", color=COLOURS[at])
    printed = {method: seconds for method, seconds in PAPER["mnist"].items() if method in methods}
    places = [methods.index(method) + len(names) / 2 * width for method in printed]
    axes.bar(
        places,
        list(printed.values()),
        width,
        label="the paper, on its machine",
        color="white",
        edgecolor="black",
        hatch="//",
    )
    axes.set_yscale("log")
    axes.set_ylabel("seconds per fit")
    axes.set_xticks(range(len(methods)), [one.replace(", ", ",\n") for one in methods])
    tidy(axes)
    axes.legend(frameon=False, fontsize="small")
    save(figure, path)


def page(table: Sequence[Row]) -> str:
    """Median seconds, ours | the paper's."""
    found = {(row["method"], row["data"]): row for row in table}
    names = list(dict.fromkeys(row["data"] for row in table))
    methods = dict.fromkeys(row["method"] for row in table)
    heads = ("seconds, ours \\| paper", *names)
    lines = grid(
        heads, ((one, *(_cell(found.get((one, name))) for name in names)) for one in methods)
    )
    below = sum(row["goal_met"] == "True" for row in table)
    fits = max(int(row["fits"]) for row in table)
    absent = [one for one in PAPER["mnist"] if one not in methods]
    said = [
        f"Medians of {fits} fits; {below} of {len(table)} are below {GOAL_SECONDS:g} s.",
        "The paper's figures are of all ten classes or of an unnamed pair.",
    ]
    if FEDERATED in methods:
        said.append(
            f"The five parties of {FEDERATED} hold the {N_ROWS:,} rows together and train one "
            "after the other in this process, without a network. Agreements between them, which "
            "read no data, are not timed."
        )
    if absent:
        said.append(f"Not measured: {', '.join(absent)}.")
    return f"{lines}\n\n{' '.join(said)}"


def _cell(row: Row | None) -> str:
    """Seconds here and in the paper."""
    if row is None:
        return ""
    printed = f"{float(row['paper_seconds']):,.2f}" if row["paper_seconds"] else "-"
    return f"{float(row['seconds']):.3f} \\| {printed}"


if __name__ == "__main__":
    from benches.papers.command import script

    raise SystemExit(script(__file__))
