"""What it costs to cross from Python into the compiled module and back, without real work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from statistics import median

import numpy as np

from benches.config import Plan
from benches.libraries import nothing, ours
from benches.measuring import short_calls
from benches.problem import Problem
from benches.tables import Row, as_rows
from dpsvm_fast import _core


def run(plan: Plan) -> list[Row]:
    """One row a measurement of the time of one call."""
    X, y = np.eye(2), np.array([0, 1], dtype=np.int64)
    tiny = Problem(X, y, 2, 0.1)
    source = _core.NoiseSource()
    calls: dict[str, Callable[[], object]] = {
        "nothing (Python function)": partial(nothing.solve, tiny, seed=0),
        "build_info": _core.build_info,
        "NoiseSource from a seed": partial(_core.NoiseSource, 0),
        "NoiseSource from the system": _core.NoiseSource,
        "one exact Gaussian": partial(source.gaussian_on_grid, 1, 1.0, 2.0**-20, 1),
        "solve 2 rows": partial(
            ours.solve, tiny, relation="add_remove", tol=1e-3, seed=0, n_threads=plan.n_threads
        ),
        "private fit of 2 rows": partial(ours.fit, tiny, n_threads=plan.n_threads),
    }
    records = [
        {"call": label, "repeat": repeat, "seconds": seconds}
        for label, repeat, seconds in short_calls(calls, plan.repeats, plan.batch_seconds)
    ]
    return as_rows(records)


def analyse(rows: Sequence[Row]) -> list[Row]:
    """Median microseconds a call."""
    cells: dict[str, list[float]] = {}
    for row in rows:
        cells.setdefault(row["call"], []).append(float(row["seconds"]))
    return as_rows(
        {"call": call, "microseconds": 1e6 * median(times)} for call, times in cells.items()
    )
