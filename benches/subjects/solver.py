"""Time to the exact SVM within a certified distance, against LIBLINEAR at tol 1e-6.

Every round solves each cell (data set, C) with a new public seed, in every setting, in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from statistics import geometric_mean, median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benches.config import (
    LIBLINEAR_DEFAULT_TOL,
    LIBLINEAR_TOL,
    OBJECTIVE_SLACK,
    TARGETS,
    Plan,
)
from benches.datasets import available
from benches.libraries import nothing, ours, sklearn_liblinear
from benches.measuring import interleaved
from benches.problem import Problem
from benches.tables import Row, as_rows

Solution = tuple["NDArray[np.float64] | None", "float | None"]

COARSE, TIGHT, DEFAULT = (f"r <= {tol:g} Delta, {relation}" for relation, tol in TARGETS)
PEER = f"tol {LIBLINEAR_TOL:g}"
PEER_DEFAULT = f"tol {LIBLINEAR_DEFAULT_TOL:g}"
PRIVATE_FIT = "private fit, defaults"

# Columns of the summary that are averaged over cells.
RATIOS = ("ratio", "ratio_default", "ratio_cpu")


def run(plan: Plan) -> list[Row]:
    """One row a measurement: seconds, objective, distance to our tightest solution."""
    records: list[dict[str, object]] = []
    for name, X, y in available(plan):
        for C in plan.C_values:
            problem = Problem(X, y, int(y.max()) + 1, C)
            facts = {
                "data": name,
                "n_samples": X.shape[0],
                "n_features": X.shape[1],
                "n_classes": problem.n_classes,
                "C": C,
            }
            records += [facts | measured for measured in _cell(problem, plan)]
    return as_rows(records)


def _cell(problem: Problem, plan: Plan) -> list[dict[str, object]]:
    """All measurements of one data set at one C."""
    # Untimed: the reference, and at the same time the warm-up of our side.
    reference, _ = _ours(*TARGETS[-1], problem, plan.n_threads, 0)
    assert reference is not None
    candidates: dict[str, Callable[[int], Solution]] = {
        "nothing": lambda seed: (nothing.solve(problem, seed=seed), None),
        PEER: partial(_liblinear, problem, LIBLINEAR_TOL),
        PRIVATE_FIT: lambda _: _private_fit(problem, plan.n_threads),
    }
    for label, (relation, tol) in zip((COARSE, TIGHT, DEFAULT), TARGETS, strict=True):
        candidates[label] = partial(_ours, relation, tol, problem, plan.n_threads)
    once = {PEER_DEFAULT: partial(_liblinear, problem, LIBLINEAR_DEFAULT_TOL)}
    found = []
    for batch, repeats in ((once, 1), (candidates, plan.repeats)):
        for measured in interleaved(batch, repeats):
            weights, certified = measured.result
            found.append(
                {
                    "setting": measured.label,
                    "repeat": measured.repeat,
                    "seconds": measured.seconds,
                    "cpu_seconds": measured.cpu_seconds,
                    # All digits: differences near 1e-6 of it decide.
                    "objective": None if weights is None else repr(problem.objective(weights)),
                    "distance_over_delta": None
                    if weights is None
                    else problem.distance(weights, reference),
                    "certified_over_delta": certified,
                }
            )
    return found


def _ours(relation: str, tol: float, problem: Problem, n_threads: int, seed: int) -> Solution:
    """Our weights, with their certified distance in units of the replace-one sensitivity."""
    weights, notes = ours.solve(problem, relation=relation, tol=tol, seed=seed, n_threads=n_threads)
    return weights, float(notes["radius"]) / problem.sensitivity("replace_one")


def _private_fit(problem: Problem, n_threads: int) -> Solution:
    """What a user calls; its noisy weights have no place in a comparison of optima."""
    ours.fit(problem, n_threads=n_threads)
    return None, None


def _liblinear(problem: Problem, tol: float, seed: int) -> Solution:
    """LIBLINEAR's weights; it certifies nothing."""
    return sklearn_liblinear.solve(problem, tol=tol, seed=seed), None


def analyse(rows: Sequence[Row]) -> list[Row]:
    """One row a cell with times in ms and ratios, then their geometric means and extremes."""
    cells: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        cells.setdefault((row["data"], row["C"]), []).append(row)
    table = [_summary(data, C, members) for (data, C), members in cells.items()]
    ratios = {name: [float(row[name]) for row in table] for name in RATIOS}
    blank = dict.fromkeys(table[0], None)
    for label, reduce in (("geometric mean", geometric_mean), ("minimum", min)):
        reduced = {name: reduce(values) for name, values in ratios.items()}
        table.append(blank | {"data": label} | reduced)
    return as_rows(table)


def _summary(data: str, C: str, rows: Sequence[Row]) -> dict[str, Any]:
    """One cell: medians over the rounds."""

    def medians(column: str, setting: str) -> float:
        return median(float(row[column]) for row in rows if row["setting"] == setting)

    coarse, tight, default, peer, fit, floor = (
        medians("seconds", name) for name in (COARSE, TIGHT, DEFAULT, PEER, PRIVATE_FIT, "nothing")
    )
    worst = max(float(row["objective"]) for row in rows if row["setting"] == COARSE)
    theirs = min(float(row["objective"]) for row in rows if row["setting"] == PEER)
    excess = worst / theirs - 1.0
    return {
        "data": data,
        "C": C,
        "ours_1e-2_ms": 1e3 * coarse,
        "ours_1e-3_ms": 1e3 * tight,
        "ours_default_ms": 1e3 * default,
        "private_fit_ms": 1e3 * fit,
        "liblinear_ms": 1e3 * peer,
        "floor_ms": 1e3 * floor,
        "ratio": peer / coarse,
        "ratio_default": peer / default,
        "ratio_cpu": medians("cpu_seconds", PEER) / medians("cpu_seconds", COARSE),
        "cost_of_1e-3": tight / coarse,
        "objective_excess": excess,
        "objective_ok": excess <= OBJECTIVE_SLACK,
        "our_certificate": medians("certified_over_delta", COARSE),
        "liblinear_distance": medians("distance_over_delta", PEER),
        "liblinear_default_distance": medians("distance_over_delta", PEER_DEFAULT),
    }


def failures(table: Sequence[Row]) -> list[str]:
    """Cells in which our objective is the worse one: their times may not be compared."""
    return [
        f"solver: {row['data']} C={row['C']}: our objective is larger by {row['objective_excess']}"
        for row in table
        if row["objective_ok"] == "False"
    ]
