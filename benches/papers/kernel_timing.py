"""Kernels and image features on all of MNIST, epsilon = 1: seconds, memory and test accuracy."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, median

import numpy as np

from benches.papers.cells import grid
from benches.papers.data import load
from benches.papers.kernel_timing_child import N_THREADS
from benches.tables import Row, as_rows

ROOT = Path(__file__).resolve().parents[2]
TITLE = "Kernels and image features on all of MNIST: time and memory"
PROTOCOL: tuple[str, ...] = (
    "All 60,000 training rows at ε = 1, on two threads, scored on the official test part.",
    "Each fit runs in its own process, which has loaded X; its peak memory is reset just before "
    "the fit.",
    "Seconds are medians on an otherwise idle machine.",
)
# Models of image features alone, which take less time, are measured by a name of their own.
IMAGES = "mnist, images"
DATA = ("mnist", IMAGES)
# The first rows: in no stored result.
QUICK_DATA, QUICK_REPEATS = ("mnist, 2000 rows",), 1
FEW_ROWS = 2000
EPSILON = 1.0
REPEATS = 3
# Seconds and test accuracy aimed at, of the estimator at its defaults.
GOAL_SECONDS, GOAL_ACCURACY = 60.0, 0.94
# Model, storage of X, low_memory.
CASES = (
    ("kernel", "uint8", "auto"),
    ("kernel", "float64", "auto"),
    ("kernel", "float64", False),
    ("kernel", "float64", True),
    ("linear", "float64", None),
)
IMAGE_CASES = (("images", "uint8", None),)


def run(names: Sequence[str], repeats: int | None) -> list[Row]:
    """One row a fit; nothing where data are missing or the system tells no peak."""
    data = load(names[0].partition(",")[0])
    if data is None or data.is_train is None:
        return []
    if not Path("/proc/self/clear_refs").exists():
        print("SKIPPED: needs Linux's /proc to reset and read the peak")
        return []
    n_rows = FEW_ROWS if names[0] in QUICK_DATA else int(data.is_train.sum())
    train = np.flatnonzero(data.is_train)[:n_rows]
    records: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        for storage in ("uint8", "float64"):
            np.save(Path(folder) / f"{storage}.npy", data.X[train].astype(storage))
        np.save(Path(folder) / "y.npy", data.y[train])
        np.save(Path(folder) / "X_test.npy", data.X[~data.is_train])
        np.save(Path(folder) / "y_test.npy", data.y[~data.is_train])
        for repeat in range(repeats or REPEATS):
            for model, storage, low_memory in IMAGE_CASES if names[0] == IMAGES else CASES:
                case = {"model": model, "storage": storage, "low_memory": low_memory}
                # No remembered calibration helps: epsilons differ a little.
                job = case | {"folder": folder, "epsilon": EPSILON * (1.0 + 1e-6 * repeat)}
                records.append({"data": names[0]} | case | {"repeat": repeat} | _measured(job))
                print(records[-1], flush=True)
    return as_rows(records)


def _measured(job: Mapping[str, object]) -> dict[str, object]:
    """What a fresh process reports about one fit."""
    command = [sys.executable, "-m", "benches.papers.kernel_timing_child", json.dumps(job)]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    reported: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return reported


def analyse(rows: Sequence[Row]) -> list[Row]:
    """Medians of each case."""
    cells: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        cells.setdefault((row["model"], row["storage"], row["low_memory"]), []).append(row)
    table = []
    for (model, storage, low_memory), members in cells.items():
        seconds = median(float(row["seconds"]) for row in members)
        accuracy = mean(float(row["accuracy"]) for row in members)
        goal = model == "kernel" and low_memory == "auto"
        table.append(
            {"model": model, "storage": storage, "low_memory": low_memory}
            | {"fits": len(members), "n_threads": N_THREADS, "seconds": seconds}
            | {"cpu_seconds": median(float(row["cpu_seconds"]) for row in members)}
            | {"goal_seconds": GOAL_SECONDS if goal else None, "x_mb": members[0]["x_mb"]}
            | {"peak_beyond_x_mb": max(float(row["peak_beyond_x_mb"]) for row in members)}
            | {"features_mb": members[0]["features_mb"], "accuracy": accuracy}
            | {"goal_accuracy": GOAL_ACCURACY if goal else None}
        )
    return as_rows(table)


def failures(table: Sequence[Row]) -> list[str]:
    """Accuracy below the goal; a missed time is shown, not judged."""
    return [
        f"kernel: mnist, {row['storage']}: accuracy {row['accuracy']}"
        for row in table
        if row["goal_accuracy"] and float(row["accuracy"]) < float(row["goal_accuracy"])
    ]


def plot(table: Sequence[Row], path: Path) -> None:
    """Nothing: five figures need no picture."""


def page(table: Sequence[Row]) -> str:
    """One line a case."""
    rows = [
        (
            f"{row['model']}, {row['storage']}"
            + (f", `low_memory={row['low_memory']}`" if row["low_memory"] else ""),
            f"{float(row['seconds']):.1f} s",
            f"{float(row['peak_beyond_x_mb']):.0f} MB",
            f"{float(row['accuracy']):.3f}",
        )
        for row in table
    ]
    table_of = grid(("model, X stored as", "seconds", "memory beyond X", "test accuracy"), rows)
    features = next((row["features_mb"] for row in table if row["features_mb"]), None)
    note = f"\n\nAll features of all rows would take {float(features):.0f} MB." if features else ""
    return table_of + note


if __name__ == "__main__":
    from benches.papers.command import script

    raise SystemExit(script(__file__))
