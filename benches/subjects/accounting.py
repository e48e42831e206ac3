"""Microseconds a call of the Gaussian calibration, through Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from statistics import median

from benches.config import BUDGETS, Plan
from benches.libraries import dp_accounting_gaussian, scipy_calibration
from benches.measuring import short_calls
from benches.tables import Row, as_rows
from dpsvm_fast import _core, accounting

Calibration = Callable[[float, float], float]


def calibrations() -> dict[str, Calibration]:
    """Every implementation that is installed; says which is not."""
    found: dict[str, Calibration] = {
        "dpsvm_fast._core": _core.gaussian_sigma,
        "dpsvm_fast.accounting": accounting.gaussian_sigma,
        "scipy brentq": scipy_calibration.gaussian_sigma,
    }
    peer = dp_accounting_gaussian.load()
    if peer is None:
        print("SKIPPED dp-accounting: not installed")
    else:
        found["dp-accounting"] = peer
    return found


def run(plan: Plan) -> list[Row]:
    """One row a measurement of one budget."""
    records = []
    installed = calibrations()
    for epsilon, delta in BUDGETS:
        calls = {name: partial(call, epsilon, delta) for name, call in installed.items()}
        sigmas = {name: call() for name, call in calls.items()}
        for name, repeat, seconds in short_calls(calls, plan.repeats, plan.batch_seconds):
            records.append(
                {
                    "library": name,
                    "epsilon": epsilon,
                    "delta": delta,
                    "sigma": repr(float(sigmas[name])),
                    "repeat": repeat,
                    "seconds": seconds,
                }
            )
    return as_rows(records)


def analyse(rows: Sequence[Row]) -> list[Row]:
    """Median microseconds a call, and how far sigma lies from ours (which rounds up)."""
    cells: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        cells.setdefault((row["epsilon"], row["delta"], row["library"]), []).append(row)
    table = []
    for (epsilon, delta, library), members in cells.items():
        ours = float(cells[epsilon, delta, "dpsvm_fast._core"][0]["sigma"])
        table.append(
            {
                "library": library,
                "epsilon": epsilon,
                "delta": delta,
                "microseconds": 1e6 * median(float(row["seconds"]) for row in members),
                "sigma_relative_to_ours": float(members[0]["sigma"]) / ours - 1.0,
            }
        )
    return as_rows(table)
