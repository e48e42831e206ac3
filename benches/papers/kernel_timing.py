"""PrivateKernelSVC on all of MNIST, epsilon = 1: seconds, memory beyond X and test accuracy.

Each fit has a process of its own that has loaded X: its peak is reset just before the fit. Run as
``python -m benches.papers.kernel_timing JOB`` it is that process.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np

from benches.papers.data import load
from benches.subjects.memory_child import peak_growth
from benches.tables import Row, as_rows
from dpsvm_fast import PrivateKernelSVC, PrivateLinearSVC

ROOT = Path(__file__).resolve().parents[2]
EPSILON, DELTA = 1.0, 1e-5
N_THREADS, REPEATS = 2, 3
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
BYTES_OF_A_FEATURE = 4


def run(repeats: int | None) -> list[Row]:
    """One row a fit; nothing where data are missing or the system tells no peak."""
    data = load("mnist")
    if data is None or data.is_train is None:
        return []
    if not Path("/proc/self/clear_refs").exists():
        print("SKIPPED: needs Linux's /proc to reset and read the peak")
        return []
    records: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        for storage in ("uint8", "float64"):
            np.save(Path(folder) / f"{storage}.npy", data.X[data.is_train].astype(storage))
        np.save(Path(folder) / "y.npy", data.y[data.is_train])
        np.save(Path(folder) / "X_test.npy", data.X[~data.is_train])
        np.save(Path(folder) / "y_test.npy", data.y[~data.is_train])
        for repeat in range(repeats or REPEATS):
            for model, storage, low_memory in CASES:
                case = {"model": model, "storage": storage, "low_memory": low_memory}
                # No remembered calibration helps: epsilons differ a little.
                job = case | {"folder": folder, "epsilon": EPSILON * (1.0 + 1e-6 * repeat)}
                records.append(case | {"repeat": repeat} | _measured(job))
                print(records[-1], flush=True)
    return as_rows(records)


def _measured(job: Mapping[str, object]) -> dict[str, object]:
    """What a fresh process reports about one fit."""
    command = [sys.executable, "-m", "benches.papers.kernel_timing", json.dumps(job)]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    reported: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return reported


def main(job: Mapping[str, Any]) -> dict[str, object]:
    """Fit once and score."""
    folder = Path(job["folder"])
    X, y = np.load(folder / f"{job['storage']}.npy"), np.load(folder / "y.npy")
    common: dict[str, Any] = {
        "bounds": (0, 255),
        "classes": range(10),
        "n_threads": N_THREADS,
    }
    kernel = job["model"] == "kernel"
    model = (
        PrivateKernelSVC(job["epsilon"], DELTA, low_memory=job["low_memory"], **common)
        if kernel
        else PrivateLinearSVC(job["epsilon"], DELTA, **common)
    )
    begin, cpu_begin = time.perf_counter(), time.process_time()
    peak = peak_growth(lambda: model.fit(X, y))
    seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - cpu_begin
    components = model.n_components_ if kernel else None
    X_test, y_test = np.load(folder / "X_test.npy"), np.load(folder / "y_test.npy")
    return {
        "n_samples": X.shape[0],
        "n_components": components,
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "x_mb": X.nbytes / 1e6,
        "peak_beyond_x_mb": peak / 1e6,
        "features_mb": _features_mb(X.shape[0], components),
        "accuracy": float(model.score(X_test, y_test)),
    }


def _features_mb(n: int, components: int | None) -> float | None:
    """What all features of all rows would take in single precision."""
    return None if components is None else n * 2 * components * BYTES_OF_A_FEATURE / 1e6


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


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
