"""Peak memory of private steps beyond the records, for growing batches; processes of their own.

The measured process is this module as ``python -m benches.subjects.descent_memory JOB``: it loads
the rows, makes the records, takes one step, resets its peak and takes more steps.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from benches.config import (
    DESCENT_BATCHES,
    DESCENT_MEMORY_ALLOWANCE,
    DESCENT_MEMORY_STEPS,
    DESCENT_SETS,
    Plan,
)
from benches.datasets import available
from benches.descent_problem import DescentProblem, store, stored
from benches.libraries import numpy_descent, ours_descent
from benches.subjects.memory_child import peak_growth
from benches.tables import Row, as_rows

ROOT = Path(__file__).resolve().parents[2]


def run(plan: Plan) -> list[Row]:
    """One row a library and batch; nothing where the system tells no peak."""
    if not Path("/proc/self/clear_refs").exists():
        print("SKIPPED memory: needs Linux's /proc to reset and read the peak")
        return []
    records: list[dict[str, object]] = []
    for name, X, y in islice(available(plan, {"mnist": DESCENT_SETS["mnist"]}), 1):
        problem = DescentProblem(X, y, int(y.max()) + 1, X.shape[0])
        batches = [batch for batch in DESCENT_BATCHES if batch < X.shape[0]]
        with tempfile.TemporaryDirectory() as folder:
            store(problem, Path(folder))
            for library in ("ours", "numpy"):
                for batch in (*batches, X.shape[0]):
                    job = {"folder": folder, "library": library, "batch": batch}
                    facts = {"data": name, "n_samples": X.shape[0], "n_features": X.shape[1]}
                    facts |= {"library": library, "batch": batch}
                    records.append(facts | _measured(job | {"n_classes": problem.n_classes}))
    return as_rows(records)


def _measured(job: dict[str, Any]) -> dict[str, int]:
    """What a fresh process reports."""
    command = [sys.executable, "-m", "benches.subjects.descent_memory", json.dumps(job)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    report: dict[str, int] = json.loads(done.stdout)
    return report


def main(job: dict[str, Any]) -> dict[str, int]:
    """Steps of one library with one batch."""
    problem = stored(Path(job["folder"]), job["n_classes"], job["batch"])
    stepper: Any
    if job["library"] == "ours":
        rows = ours_descent.records(problem.X, problem.y, problem.n_classes)
        stepper = ours_descent.Stepper(problem, rows, "exact", 1)
    else:
        problem = replace(problem, X=problem.X.astype("float64"))
        stepper = numpy_descent.Stepper(problem, "float64")
    growth = peak_growth(lambda: stepper.advance(DESCENT_MEMORY_STEPS))
    return {"x_bytes": problem.X.nbytes, "peak_of_steps_bytes": growth}


def analyse(rows: Sequence[Row]) -> list[Row]:
    """Megabytes, and how many of them the larger batch costs beyond the smallest one."""
    least: dict[str, float] = {}
    table = []
    for row in rows:
        peak = float(row["peak_of_steps_bytes"])
        beyond = peak - least.setdefault(row["library"], peak)
        facts = ("data", "n_samples", "n_features", "library", "batch")
        table.append(
            {name: row[name] for name in facts}
            | {"x_mb": 1e-6 * float(row["x_bytes"]), "steps_mb": 1e-6 * peak}
            | {"beyond_smallest_batch_mb": 1e-6 * beyond}
            | {"flat": beyond <= DESCENT_MEMORY_ALLOWANCE}
        )
    return as_rows(table)


def failures(table: Sequence[Row]) -> list[str]:
    """Batches for which our memory grows."""
    return [
        f"descent_memory: batch {row['batch']}: {row['steps_mb']} MB"
        for row in table
        if row["library"] == "ours" and row["flat"] != "True"
    ]


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
