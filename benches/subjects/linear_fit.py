"""Seconds of PrivateLinearSVC on MNIST from raw pixels to a model, and its test accuracy.

Bounds, centre, whitening, training: everything at its defaults. Every call has an epsilon of its
own, a little different from all others, so that no remembered calibration helps.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

from benches.config import LINEAR_DELTA, LINEAR_EPSILON, LINEAR_GOAL, LINEAR_ROUNDS, Plan
from benches.measuring import interleaved
from benches.tables import Row, as_rows
from dpsvm_fast import PrivateLinearSVC

TYPES, THREADS = ("float64", "uint8"), (1, 2)


def pixels() -> tuple[str, Any, Any, Any, int]:
    """Name, raw pixels, labels, which rows are for training, largest pixel; MNIST or digits."""
    folder = os.environ.get("DPSVM_DATA")
    path = Path(folder or ".") / "mnist.npz"
    if folder is not None and path.is_file():
        with np.load(path, allow_pickle=False) as stored:
            return "mnist", stored["X"], stored["y"], stored["is_train"], 255
    print("SKIPPED mnist: no mnist.npz (X, y, is_train); scikit-learn's digits stand in")
    X, y = load_digits(return_X_y=True)
    return "digits", X.astype(np.uint8), y, np.arange(y.size) % 3 > 0, 16


def run(plan: Plan) -> list[Row]:
    """One row a fit."""
    name, X, y, is_train, high = pixels()
    fresh = count(1)
    rows, labels = X[is_train][: plan.max_rows], y[is_train][: plan.max_rows]

    def fit(typed: Any, n_threads: int, _: int) -> PrivateLinearSVC:
        epsilon = LINEAR_EPSILON * (1.0 + 1e-6 * next(fresh))
        model = PrivateLinearSVC(
            epsilon, LINEAR_DELTA, classes=range(10), bounds=(0, high), n_threads=n_threads
        )
        return model.fit(typed, labels)

    calls: dict[str, Callable[[int], PrivateLinearSVC]] = {}
    for dtype in TYPES:
        typed = rows.astype(dtype)
        calls |= {f"{dtype} {threads}": partial(fit, typed, threads) for threads in THREADS}
    records = []
    for measured in interleaved(calls, min(plan.repeats, LINEAR_ROUNDS)):
        dtype, threads = measured.label.split()
        facts = {"data": name, "n_samples": rows.shape[0], "n_features": rows.shape[1]}
        records.append(
            facts
            | {"dtype": dtype, "n_threads": threads, "repeat": measured.repeat}
            | {"seconds": measured.seconds, "cpu_seconds": measured.cpu_seconds}
            | {"test_accuracy": float(measured.result.score(X[~is_train], y[~is_train]))}
        )
    return as_rows(records)


def analyse(rows: Sequence[Row]) -> list[Row]:
    """Median seconds and mean accuracy of each case."""
    cells: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        cells.setdefault((row["dtype"], row["n_threads"]), []).append(row)
    table = []
    for (dtype, threads), members in cells.items():
        seconds = median(float(row["seconds"]) for row in members)
        facts = {name: members[0][name] for name in ("data", "n_samples", "n_features")}
        goal = LINEAR_GOAL if threads == "2" else None
        table.append(
            facts
            | {"dtype": dtype, "n_threads": threads, "fits": len(members), "seconds": seconds}
            | {"cpu_seconds": median(float(row["cpu_seconds"]) for row in members)}
            | {"goal_seconds": goal, "goal_met": None if goal is None else seconds < goal}
            | {"test_accuracy": mean(float(row["test_accuracy"]) for row in members)}
        )
    return as_rows(table)
