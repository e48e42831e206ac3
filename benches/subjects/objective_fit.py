"""Seconds of whole private fits with noise in the objective, and of their calibrations.

Every call has an epsilon of its own, a little different from all others, so that no remembered
calibration helps: each time is that of a first fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benches.config import (
    DELTA,
    FEDDPDR_EPSILON,
    FEDDPDR_LAMBDA,
    FEDDPDR_ROWS,
    FIT_GOALS,
    Plan,
)
from benches.datasets import available
from benches.measuring import interleaved
from benches.tables import Row, as_rows
from dpsvm_fast import ObjectivePerturbationSVC, _core

Call = Callable[[float], object]


@dataclass(frozen=True)
class Case:
    """Something to be timed at an epsilon, with the seconds aimed at (None: for orientation)."""

    label: str
    epsilon: float
    goal: float | None
    call: Call


def run(plan: Plan) -> list[Row]:
    """One row a measurement."""
    cases = [*_calibrations(), *_fits(plan)]
    fresh = count(1)
    candidates = {
        case.label: (lambda _, case=case: case.call(case.epsilon * (1.0 + 1e-6 * next(fresh))))
        for case in cases
    }
    goals = {case.label: case.goal for case in cases}
    records = [
        {
            "call": measured.label,
            "goal_seconds": goals[measured.label],
            "repeat": measured.repeat,
            "seconds": measured.seconds,
            "cpu_seconds": measured.cpu_seconds,
        }
        for measured in interleaved(candidates, plan.repeats)
    ]
    return as_rows(records)


def _calibrations() -> Iterator[Case]:
    """Sigma of closed forms and of the joint bound, through the compiled module."""
    closed, joint = FIT_GOALS["closed"], FIT_GOALS["joint"]
    for law, n_scores, kappa, epsilon, goal in (
        ("logistic", 1, 0.1, 1.0, closed),
        ("logistic", 1, 2.0, 1.0, closed),
        ("huber", 1, 0.1, 1.0, closed),
        ("logistic", 10, 0.1, 1.0, closed),
        ("huber", 10, 0.1, 1.0, closed),
        ("softmax", 2, 0.1, 1.0, closed),
        ("weston_watkins", 10, 0.05, 1.0, joint),
        ("softmax", 3, 0.1, 1.0, joint),
        ("softmax", 10, 0.1, 1.0, joint),
        ("softmax", 10, 0.5, 1.0, joint),
        ("softmax", 10, 6.0, 8.0, joint),
        ("softmax", 1000, 0.1, 1.0, joint),
    ):
        label = f"sigma, {law}, {n_scores} scores, kappa {kappa:g}, epsilon {epsilon:g}"
        yield Case(label, epsilon, goal, partial(_sigma, law, n_scores, kappa, None))
    for epsilon in (1.0, 8.0):
        label = f"sigma, softmax, 10 scores, along C=auto, epsilon {epsilon:g}"
        yield Case(label, epsilon, joint, partial(_sigma, "softmax", 10, None, 1.0))


def _sigma(
    law: str, n_scores: int, kappa: float | None, kappa_per_t: float | None, epsilon: float
) -> float:
    """The compiled calibration for add_remove."""
    replace_one = False
    return _core.objective_sigma(
        law, n_scores, epsilon, DELTA, kappa, kappa_per_t, None, replace_one
    )


def _fits(plan: Plan) -> Iterator[Case]:
    """Fits of all of MNIST, and of the setting of FedDPDR (10,000 rows, all 784 dimensions)."""
    for name, X, y in available(plan, {"mnist": 60_000}):
        for n_threads in (1, 2):
            call = _fit(X, y, n_threads, delta=DELTA)
            shown = f"{name} {X.shape[0]} x {X.shape[1]}, {n_threads} threads"
            goal = FIT_GOALS["large"] if n_threads == 1 else None
            yield Case(f"fit, defaults, {shown}", 1.0, goal, call)
        rows, labels = X[:FEDDPDR_ROWS], y[:FEDDPDR_ROWS]
        C = 1.0 / (FEDDPDR_LAMBDA * FEDDPDR_ROWS)
        pure: dict[str, Any] = {"loss": "huber", "noise": "gamma", "delta": 0.0, "C": C}
        epsilon, goal = FEDDPDR_EPSILON, FIT_GOALS["feddpdr"]
        shown = f"{name} {rows.shape[0]} x {X.shape[1]}, 1 thread"
        yield Case(f"fit, pure one-vs-rest, {shown}", epsilon, goal, _fit(rows, labels, 1, **pure))
        half = (labels >= 5).astype(np.int64)
        yield Case(f"fit, pure binary, {shown}", epsilon, goal, _fit(rows, half, 1, **pure))
        yield Case(f"fit, defaults, {shown}", 1.0, goal, _fit(rows, labels, 1, delta=DELTA))


def _fit(X: NDArray[np.float64], y: NDArray[np.int64], n_threads: int, **settings: Any) -> Call:
    """The estimator's fit: validation, calibration, noise, solver."""
    classes = range(int(y.max()) + 1)

    def call(epsilon: float) -> object:
        model = ObjectivePerturbationSVC(epsilon, classes=classes, n_threads=n_threads, **settings)
        return model.fit(X, y)

    return call


def analyse(rows: Sequence[Row]) -> list[Row]:
    """Median seconds a call beside what is aimed at."""
    cells: dict[str, list[Row]] = {}
    for row in rows:
        cells.setdefault(row["call"], []).append(row)
    table = []
    for call, members in cells.items():
        seconds = median(float(row["seconds"]) for row in members)
        goal = members[0]["goal_seconds"]
        table.append(
            {
                "call": call,
                "ms": 1e3 * seconds,
                "cpu_ms": 1e3 * median(float(row["cpu_seconds"]) for row in members),
                "largest_ms": 1e3 * max(float(row["seconds"]) for row in members),
                "goal_ms": 1e3 * float(goal) if goal else None,
                "goal_met": seconds <= float(goal) if goal else None,
            }
        )
    return as_rows(table)
