"""Microseconds a call of Gaussian calibrations, and of those of sampled Gaussian sums."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from statistics import median

from benches.config import (
    BUDGETS,
    SAMPLED_DELTA,
    SAMPLED_EPSILONS,
    SAMPLED_GOAL,
    SAMPLED_STEPS,
    SAMPLING_RATE,
    Plan,
)
from benches.libraries import dp_accounting_gaussian, dp_accounting_pld, scipy_calibration
from benches.measuring import interleaved, short_calls
from benches.tables import Row, as_rows
from dpsvm_fast import _core, accounting

Call = Callable[[], float]

OURS, PEER = "dpsvm_fast._core", "dp-accounting"
SIGMA = "gaussian_sigma"
SAMPLED_SIGMA, SAMPLED_EPSILON = "subsampled noise multiplier", "subsampled epsilon"
# A sampled calibration of the other library takes many seconds.
PEER_ROUNDS = 1


def calibrations() -> dict[str, Callable[[float, float], float]]:
    """Every implementation of the Gaussian mechanism that is installed; says which is not."""
    found: dict[str, Callable[[float, float], float]] = {
        OURS: _core.gaussian_sigma,
        "dpsvm_fast.accounting": accounting.gaussian_sigma,
        "scipy brentq": scipy_calibration.gaussian_sigma,
    }
    peer = dp_accounting_gaussian.load()
    if peer is None:
        print(f"SKIPPED {PEER}: not installed")
    else:
        found[PEER] = peer
    return found


def run(plan: Plan) -> list[Row]:
    """One row a measurement of one budget."""
    records: list[dict[str, object]] = []
    for epsilon, delta in BUDGETS:
        calls = {name: partial(call, epsilon, delta) for name, call in calibrations().items()}
        facts = {"call": SIGMA, "n_steps": 1, "epsilon": epsilon, "delta": delta}
        records += _rows(facts, calls, plan)
    for n_steps in SAMPLED_STEPS:
        for epsilon in SAMPLED_EPSILONS:
            facts = {"n_steps": n_steps, "epsilon": epsilon, "delta": SAMPLED_DELTA}
            for call, calls in _sampled(n_steps, epsilon):
                records += _rows({"call": call} | facts, calls, plan)
    return as_rows(records)


def _sampled(n_steps: int, epsilon: float) -> Iterator[tuple[str, dict[str, Call]]]:
    """Calibration, and epsilon of what it gives, of sums over Poisson samples."""
    rate, delta = SAMPLING_RATE, SAMPLED_DELTA
    calibrate = partial(
        _core.subsampled_gaussian_noise_multiplier, epsilon, delta, rate, n_steps, replace_one=False
    )
    z = calibrate()
    spend = partial(_core.subsampled_gaussian_epsilon, z, rate, n_steps, delta, replace_one=False)
    calibrations: dict[str, Call] = {OURS: calibrate}
    epsilons: dict[str, Call] = {OURS: spend}
    peer = dp_accounting_pld.load()
    if peer is not None:
        calibrations[PEER] = partial(peer.noise_multiplier, epsilon, delta, rate, n_steps)
        epsilons[PEER] = partial(peer.epsilon, z, rate, n_steps, delta)
    yield SAMPLED_SIGMA, calibrations
    yield SAMPLED_EPSILON, epsilons


def _rows(
    facts: dict[str, object], calls: Mapping[str, Call], plan: Plan
) -> list[dict[str, object]]:
    """Measurements of one call by all libraries; a sampled call of the slow one few times."""
    slow = PEER if facts["call"] != SIGMA else ""
    fast = {name: call for name, call in calls.items() if name != slow}
    values = {name: call() for name, call in fast.items()}
    taken = list(short_calls(fast, plan.repeats, plan.batch_seconds))
    if slow in calls:
        for measured in interleaved({slow: lambda _: calls[slow]()}, PEER_ROUNDS):
            values[slow] = measured.result
            taken.append((slow, measured.repeat, measured.seconds))
    return [
        facts
        | {"library": name, "value": repr(float(values[name]))}
        | {"repeat": repeat, "seconds": seconds}
        for name, repeat, seconds in taken
    ]


def analyse(rows: Sequence[Row]) -> list[Row]:
    """Median microseconds a call, and how far the answer lies from ours (which rounds up)."""
    facts = ("call", "n_steps", "epsilon", "delta")
    cells: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        cells.setdefault((*(row[name] for name in facts), row["library"]), []).append(row)
    table = []
    for (*values, library), members in cells.items():
        own = cells[(*values, OURS)]
        ours = float(own[0]["value"])
        microseconds, mine = (
            1e6 * median(float(row["seconds"]) for row in some) for some in (members, own)
        )
        goal = 1e6 * SAMPLED_GOAL if values[0] == SAMPLED_SIGMA and library == OURS else None
        table.append(
            dict(zip(facts, values, strict=True))
            | {
                "library": library,
                "microseconds": microseconds,
                "goal_microseconds": goal,
                "over_ours": microseconds / mine,
                "value_relative_to_ours": float(members[0]["value"]) / ours - 1.0,
            }
        )
    return as_rows(table)
