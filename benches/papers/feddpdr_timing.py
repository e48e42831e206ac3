"""Seconds from unit rows to a model in the setting of FedDPDR's table 3: 10,000 rows, k = 20.

All methods take turns. epsilon = 0.1, a little different in each round, so that no remembered
calibration helps; the search for the split of one budget, which reads no data, is not in the time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from typing import Any

from sklearn.pipeline import make_pipeline

from benches.measuring import interleaved
from benches.papers import feddpdr
from benches.papers.feddpdr import REDUCED, SHOWN_DIMENSION, SHOWN_EPSILON, TASKS, UNREDUCED, Task
from benches.tables import Row, as_rows

REPEATS = 5
GOAL_SECONDS = 1.0
# The paper's seconds on MNIST, with and without reduction.
PAPER = {"halves": 111.70, "without reduction, pure": 7873.23}


def run(repeats: int | None) -> list[Row]:
    """One row a fit."""
    records: list[dict[str, object]] = []
    rounds = repeats or REPEATS
    for name in TASKS:
        task = feddpdr.task_of(name, 0)
        if task is None:
            return []
        for measured in interleaved(_candidates(task, rounds), rounds):
            records.append(
                {"data": name, "method": measured.label, "repeat": measured.repeat}
                | {"seconds": measured.seconds, "cpu_seconds": measured.cpu_seconds}
            )
    return as_rows(records)


def _candidates(task: Task, rounds: int) -> dict[str, Callable[[int], object]]:
    """Every private method; the objects of all rounds are made beforehand."""
    epsilons = [SHOWN_EPSILON * (1.0 + 1e-6 * repeat) for repeat in range(rounds)]
    k = SHOWN_DIMENSION
    made: dict[str, list[Any]] = {
        name: [make_pipeline(*make(task, k, epsilon)) for epsilon in epsilons]
        for name, make in REDUCED.items()
    } | {
        name: [make_pipeline(*make(task, epsilon)) for epsilon in epsilons]
        for name, make in UNREDUCED.items()
    }
    return {name: partial(_fit, task, models) for name, models in made.items()}


def _fit(task: Task, models: Sequence[Any], repeat: int) -> object:
    """One model, from unit rows."""
    return models[repeat].fit(task.X, task.y)


def analyse(rows: Sequence[Row]) -> list[Row]:
    """Median seconds of each task and method beside the paper's."""
    cells: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        cells.setdefault((row["data"], row["method"]), []).append(row)
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
            "paper_seconds": PAPER.get(method),
        }
        for (name, method), members in cells.items()
    )


def failures(_: Sequence[Row]) -> list[str]:
    """A missed time is shown, not judged."""
    return []
