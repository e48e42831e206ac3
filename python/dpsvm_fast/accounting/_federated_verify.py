"""The certificate of training across parties, recomputed number by number.

Shares nothing with the planning of noise: numbers of parties, sensitivities, distances and noise
are written out again, in exact fractions or in logarithms.
"""

from __future__ import annotations

import math
from fractions import Fraction

from scipy.optimize import minimize_scalar

from dpsvm_fast.accounting._event_verify import recomputed_events
from dpsvm_fast.accounting._federated_parts import ENCODABLE, SecureRound
from dpsvm_fast.accounting._objective_verify import EXCESS, ROUNDING_SLACK, follows, lipschitz_of
from dpsvm_fast.accounting._parts import Sensitivity
from dpsvm_fast.accounting.events import DistanceEvent, ZCDPEvent
from dpsvm_fast.accounting.federated_statement import FederatedStatement

__all__ = ["check_federated"]

# Shares of parties are decimal numbers that were rounded to floats: by less than this.
SHARE_SLACK = Fraction(1, 2**50)
# What a grid step adds beside half a step on either side, for rounding before it.
GRID_EXCESS = 2.0**-20
# Integers are added modulo this.
MODULUS = 2**48
# Distances are logarithms of tiny numbers.
DISTANCE_SLACK = 1e-6
# Terms of a sum over merges that are not equal to the limit.
MERGES = 4096
# An assumption of less than this is no assumption that anybody makes.
LEAST_ASSUMED = 2.0**-128


def check_federated(statement: FederatedStatement) -> list[str]:
    """Say what does not follow, beside the total."""
    problems = [f"not private: {reason}" for reason in statement.not_private_reasons]
    if statement.random_source != "operating_system":
        problems.append("the noise does not come from the operating system's entropy")
    problems += _count_problems(statement)
    if lipschitz_of(statement.loss, 2) is None:
        problems.append(f"unknown loss {statement.loss!r}")
    if statement.sensitivity is not None:
        problems += _sensitivity_problems(statement, statement.sensitivity)
    for part in statement.rounds:
        problems += [f"{part.name}: {problem}" for problem in _round_problems(statement, part)]
    problems += _arrangement_problems(statement)
    return problems + _local_problems(statement)


def _count_problems(statement: FederatedStatement) -> list[str]:
    """Numbers of parties: honest ones in every sum, and those who can open one."""
    users, left = statement.n_users, statement.min_survivors
    honest = math.ceil(Fraction(statement.honest_fraction) * users * (1 - SHARE_SLACK))
    lost = math.floor(Fraction(statement.max_dropout) * users * (1 + SHARE_SLACK))
    problems = []
    if left > users - lost:
        problems.append("min_survivors is more than max_dropout leaves")
    if statement.honest_survivors != left - (users - honest):
        problems.append("honest_survivors is not what is left without all that are not honest")
    if users * 2 * ENCODABLE > MODULUS:
        problems.append("n_users is more than sums have room for")
    threshold = statement.threshold
    if threshold is not None:
        if threshold <= users - honest:
            problems.append("threshold lets those who are not honest open the sum")
        if 2 * threshold <= users:
            problems.append("threshold lets no more than half of the parties open the sum")
        if threshold > left:
            problems.append("threshold is more than min_survivors: the sum could not be opened")
    if (
        statement.min_records is not None
        and statement.max_records is not None
        and statement.min_records > statement.max_records
    ):
        problems.append("min_records is more than max_records")
    return problems


def _weight(statement: FederatedStatement) -> int | None:
    """Largest weight of a party's model; None where nothing bounds it."""
    return 1 if statement.weighting == "users" else statement.max_records


def _touched(statement: FederatedStatement) -> int:
    """In how many parties neighbours can differ."""
    return min(statement.group_size, statement.n_users) if statement.unit == "group" else 1


def _sensitivity_problems(statement: FederatedStatement, s: Sensitivity) -> list[str]:
    """Numbers of what one row moves that do not follow from the ones before them."""
    assert statement.n_scores is not None
    lipschitz = lipschitz_of(statement.loss, statement.n_scores)
    problems = []
    if s.relation_factor != 2:
        problems.append("relation_factor is not that of replace_one")
    least = 1 if statement.weighting == "records" else statement.min_records
    if statement.regularization is None or least is None:
        problems.append("C does not follow: expected a regularization and min_records")
    else:
        problems += follows("C", s.C, 1.0 / statement.regularization / least)
    if lipschitz is not None:
        problems += follows("lipschitz", s.lipschitz, lipschitz)
    problems += follows("row_norm", s.row_norm, math.hypot(s.data_norm, s.intercept_scaling))
    problems += follows("exact", s.exact, 2.0 * s.C * s.lipschitz * s.row_norm)
    for part in statement.rounds:
        if part.name == "model":
            own = part.grid * math.sqrt(part.size) * (1.0 + GRID_EXCESS)
            problems += follows("rounding", s.rounding, own)
            if part.size % statement.n_scores:
                problems.append("n_scores does not divide the number of weights")
    return problems + follows("total", s.total, s.exact + 2.0 * s.solver_radius + s.rounding)


def _moved(statement: FederatedStatement, part: SecureRound) -> float | None:
    """How far sums of neighbours can be apart before rounding; None where nothing bounds that."""
    rows = {
        "record": 1,
        "group": statement.group_size,
        "user": statement.max_records,
    }[statement.unit]
    if part.clip_norm is not None:
        return None if rows is None else math.sqrt(2.0) * part.clip_norm * rows
    s, weight, touched = statement.sensitivity, _weight(statement), _touched(statement)
    assert s is not None
    bounds = []
    if statement.unit != "user":
        assert rows is not None
        bounds.append(rows * s.exact + 2.0 * touched * s.solver_radius)
    if statement.radius is not None and weight is not None:
        bounds.append(2.0 * touched * weight * statement.radius)
    return min(bounds, default=None)


def _round_problems(statement: FederatedStatement, part: SecureRound) -> list[str]:
    """Numbers of one sum."""
    problems = []
    if part.honest_survivors != statement.honest_survivors:
        problems.append("honest_survivors is not that of the statement")
    if part.parties != _touched(statement):
        problems.append("parties is not in how many of them neighbours can differ")
    moved = _moved(statement, part)
    if moved is None:
        problems.append("exact does not follow: nothing bounds what a unit moves")
    else:
        problems += follows("exact", part.exact, moved)
    own = part.grid * math.sqrt(part.size) * (1.0 + GRID_EXCESS)
    problems += follows("rounding", part.rounding, part.parties * own)
    if not _follows_exactly(part.total, Fraction(part.exact) + Fraction(part.rounding)):
        problems.append("total is not exact + rounding, rounded up")
    problems += _noise_problems(part)
    problems += _distance_problems(statement, part)
    return problems + _range_problems(statement, part)


def _follows_exactly(stated: float, exact: Fraction) -> bool:
    """Whether a number is at least another one, and hardly more."""
    return exact <= Fraction(stated) <= exact * (1 + Fraction(EXCESS))


def _noise_problems(part: SecureRound) -> list[str]:
    """The noise of one party, and of all whose noise counts."""
    problems = []
    if part.sigma_steps & (part.sigma_steps - 1):
        problems.append("sigma_steps is not a power of two")
    steps = part.honest_survivors * Fraction(part.sigma_steps) ** 2 - Fraction(part.smoothing) ** 2
    square, stated = steps * Fraction(part.grid) ** 2, Fraction(part.sigma) ** 2
    if not square * (1 - Fraction(EXCESS)) <= stated <= square:
        problems.append("sigma is not that of the noises that count, rounded down")
    return problems


def _log_of_series(square: float) -> float:
    """Logarithm of ``sum_m exp(-2 pi^2 m^2 square)``, m from 1 on."""
    first = -2.0 * math.pi**2 * square
    # Further terms: exp(first)^3, exp(first)^8, ...
    more = math.fsum(math.exp((m * m - 1) * first) for m in (2, 3, 4))
    return first + math.log1p(more)


def _log_of_ratio(square: float) -> float:
    """Logarithm of ``log((1 + e) / (1 - e))``, e twice that series."""
    log_e = math.log(2.0) + _log_of_series(square)
    if log_e >= -1e-9:
        # No bound at all; a probability of 1.
        return 0.0
    if log_e < -30.0:
        # The first term of the series of 2 artanh(e).
        return math.log(2.0) + log_e
    return math.log(2.0 * math.atanh(math.exp(log_e)))


def _distance_problems(statement: FederatedStatement, part: SecureRound) -> list[str]:
    """Whether distances are at least what the proof needs; more of them promises less."""
    variance, r2 = float(part.sigma_steps) ** 2, part.smoothing**2
    # The smallest noise that anything is said of is that of one party.
    logs = [_log_of_ratio(r2 * (variance - r2) / variance)]
    merges = part.honest_survivors - 1
    for k in range(1, min(merges, MERGES) + 1):
        logs.append(_log_of_ratio(variance * k / (k + 1.0)))
    if merges > MERGES:
        rest = _log_of_ratio(variance * MERGES / (MERGES + 1.0))
        logs.append(rest + math.log(merges - MERGES))
    needed = math.log(part.size) + _log_sum(logs)
    problems = []
    if not _at_least(part.discreteness, needed):
        problems.append("discreteness is less than the distance from noise on real numbers")
    room = (ENCODABLE - part.range_steps) / part.sigma_steps
    needed = math.log(2.0 * statement.n_users * part.size) - 0.5 * room * room
    if not _at_least(part.overflow, needed):
        problems.append("overflow is less than the probability of leaving the range")
    if statement.trust == "trusted_curator":
        if part.computational != 0.0:
            problems.append("computational is not 0, though nothing is encrypted")
    elif part.computational < LEAST_ASSUMED:
        problems.append("computational says that the cryptography cannot be broken at all")
    return problems


def _log_sum(logs: list[float]) -> float:
    """Logarithm of a sum of exponentials."""
    top = max(logs)
    return top + math.log(math.fsum(math.exp(x - top) for x in logs))


def _at_least(stated: float, log_needed: float) -> bool:
    """Whether a probability is at least another one, known by its logarithm."""
    # Below the smallest float there is none to state.
    return stated > 0.0 and math.log(stated) >= min(log_needed, 0.0) - DISTANCE_SLACK


def _range_problems(statement: FederatedStatement, part: SecureRound) -> list[str]:
    """Whether contributions of every party stay within the range that was counted on."""
    if part.range_steps >= ENCODABLE:
        return ["range_steps leaves no room for noise"]
    if part.clip_norm is not None:
        rows = statement.max_records
        largest = None if rows is None else rows * part.clip_norm
    else:
        weight, radius = _weight(statement), statement.radius
        largest = None if weight is None or radius is None else weight * radius
    if largest is None:
        return ["range_steps does not follow: nothing bounds what a party contributes"]
    if part.range_steps < (largest / part.grid) * (1.0 - ROUNDING_SLACK) + 0.5:
        return ["range_steps is less than what a party can contribute"]
    return []


def _arrangement_problems(statement: FederatedStatement) -> list[str]:
    """Whether these sums are those of the algorithm, and the events those of the unit."""
    names = [part.name for part in statement.rounds]
    problems = []
    if statement.algorithm == "dp_helmet":
        if names != ["model"]:
            problems.append("dp_helmet sums up models with noise, once")
        if statement.local_events:
            problems.append("dp_helmet has no noise beside that of its sum")
    elif names not in ([], ["gram"], ["model"], ["gram", "model"]):
        problems.append("fed_dpdr sums up matrices, then models")
    elif len(names) + bool(statement.local_events) < 2 and len(statement.local_events) < 2:
        problems.append("fed_dpdr has noise in each of its two rounds")
    if statement.local_events and statement.unit != "record":
        problems.append("noise that parties add for themselves is about one row")
    if any(isinstance(event, DistanceEvent) for event in statement.local_events):
        problems.append("local_events contain a distance")
    return problems


def _local_problems(statement: FederatedStatement) -> list[str]:
    """Whether a single party's noise protects as much as is said."""
    stated = statement.local_epsilon
    if stated is None:
        return []
    events = statement.sent_events
    rhos = [event.rho for event in events if isinstance(event, ZCDPEvent)]
    if len(rhos) == len(events):
        holds = _zcdp_log_delta(math.fsum(rhos), stated) <= math.log(statement.delta) + EXCESS
    else:
        holds = bool(recomputed_events(events, stated, statement.delta)[2])
    return [] if holds else ["local_epsilon is less than what one party's own noise gives"]


def _zcdp_log_delta(rho: float, epsilon: float) -> float:
    r"""Logarithm of the least :math:`e^{(a-1)(a \rho - \epsilon)} (1 - 1/a)^a / (a - 1)`."""

    def log_delta(log_order: float) -> float:
        a = 1.0 + math.exp(log_order)
        exponent = (a - 1.0) * (a * rho - epsilon)
        return exponent + a * math.log1p(-1.0 / a) - log_order

    middle = math.log(min(max(epsilon / (2.0 * rho), 1e-6), 1e100))
    best = minimize_scalar(log_delta, bounds=(middle - 8.0, middle + 8.0), method="bounded")
    return float(best.fun)
