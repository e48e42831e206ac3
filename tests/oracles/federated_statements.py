"""Statements of training across parties, made from formulas written out here.

Independent of how the library plans noise: a statement of known numbers for each algorithm, unit,
weighting and trust.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

from dpsvm_fast.accounting import composed_delta, composed_epsilon
from dpsvm_fast.certificates import (
    FederatedStatement,
    GaussianEvent,
    ObjectiveEvent,
    PrivacyEvent,
    SecureRound,
    Sensitivity,
)
from dpsvm_fast.certificates.words import summed_over_parties

__all__ = ["FEDERATED", "federated_statement"]

N_USERS, HONEST, LOST = 20, 15, 3
LEFT = N_USERS - LOST
SURVIVORS = LEFT - (N_USERS - HONEST)
LAMBDA, RADIUS, KAPPA = 0.1, 4.0, 1.0
ROWS = (10, 50)
SCORES, COLUMNS, FEATURES = 3, 5, 4
STEPS = 2**16


def up(x: Fraction | float) -> float:
    """The next float above."""
    return math.nextafter(float(x), math.inf)


def down(x: Fraction | float) -> float:
    """The next float below."""
    return math.nextafter(float(x), 0.0)


def a_round(
    name: str,
    exact: float,
    bound: float,
    size: int,
    trust: str,
    noise: float,
    weighting: str,
) -> SecureRound:
    """A sum whose noise is ``noise`` times what a unit moves."""
    grid = noise * exact / (STEPS * math.sqrt(SURVIVORS))
    rounding = up(grid * math.sqrt(size) * (1.0 + 2.0**-20))
    square = SURVIVORS * STEPS**2 - 9
    return SecureRound(
        name=name,
        what=summed_over_parties(name, weighting),
        size=size,
        clip_norm=None if name == "model" else KAPPA**2,
        exact=exact,
        grid=grid,
        rounding=rounding,
        total=up(Fraction(exact) + Fraction(rounding)),
        sigma_steps=STEPS,
        honest_survivors=SURVIVORS,
        smoothing=3.0,
        sigma=down(down(grid * math.sqrt(square) * (1.0 - 2.0**-50))),
        discreteness=1e-70,
        overflow=1e-300,
        computational=2.0**-80 if trust == "secure_sum" else 0.0,
        range_steps=math.ceil(bound / grid) + 2,
    )


def a_sensitivity(weighting: str) -> tuple[Sensitivity, int]:
    """What one row or person moves, and the largest weight; rounding is filled in later."""
    weight = ROWS[1] if weighting == "records" else 1
    C = up(1 / (Fraction(LAMBDA) * (1 if weighting == "records" else ROWS[0])))
    lipschitz, row_norm = up(math.sqrt(SCORES)), up(math.hypot(KAPPA, 0.5))
    exact = up(2.0 * C * lipschitz * row_norm)
    record = Sensitivity(
        lipschitz=lipschitz,
        C=C,
        data_norm=KAPPA,
        intercept_scaling=0.5,
        row_norm=row_norm,
        relation_factor=2,
        exact=exact,
        solver_radius=1e-3 * exact,
        rounding=1.0,
        total=1.0,
    )
    return record, weight


def model_round(
    s: Sensitivity, weight: int, unit: str, trust: str, noise: float, weighting: str
) -> tuple[SecureRound, Sensitivity]:
    """The sum of models, and the sensitivity with its rounding."""
    moved = 2.0 * RADIUS * weight
    if unit != "party":
        moved = min(up(s.exact + 2.0 * s.solver_radius), moved)
    part = a_round("model", moved, RADIUS * weight, SCORES * COLUMNS, trust, noise, weighting)
    rounding = up(part.grid * math.sqrt(part.size) * (1.0 + 2.0**-20))
    total = up(s.exact + 2.0 * s.solver_radius + rounding)
    return part, replace(s, rounding=rounding, total=total)


def gram_round(unit: str, trust: str, noise: float) -> SecureRound:
    """The sum of matrices."""
    size = FEATURES * (FEATURES + 1) // 2
    moved = up(math.sqrt(2.0) * (ROWS[1] if unit == "party" else 1))
    if unit == "person":
        # The matrices of two persons, each entry rounded by 2**-40 and once more.
        moved = up(moved + 2.0 * FEATURES * (2.0**-40 + 2.0**-53))
    moved *= KAPPA**2
    return a_round("gram", moved, ROWS[1] * KAPPA**2, size, trust, noise, "records")


def made(
    algorithm: str, unit: str = "row", weighting: str = "records", trust: str = "secure_sum"
) -> FederatedStatement:
    """A statement that holds."""
    base, weight = a_sensitivity(weighting)
    part, s = model_round(base, weight, unit, trust, 6.0, weighting)
    sensitivity: Sensitivity | None = s
    rounds: tuple[SecureRound, ...] = (part,)
    own: tuple[PrivacyEvent, ...] = ()
    if algorithm == "output":
        rounds = (gram_round(unit, trust, 8.0), part)
    elif algorithm == "objective":
        sensitivity, rounds = None, (gram_round(unit, trust, 8.0),)
        # A row's law has the curvature ratio, a person's a constant.
        curvature = (0.01, None) if unit == "row" else (None, 0.01)
        own = (
            ObjectiveEvent("huber", 1, 8.0, *curvature, "replace_one"),
            GaussianEvent(0.5, 1e-3, "replace_one"),
        )
    elif algorithm == "own noise":
        sensitivity, rounds = None, ()
        own = (GaussianEvent(8.0, 1.5, "replace_one"), GaussianEvent(9.0, 2.0, "replace_one"))
    events = (*(event for each in rounds for event in each.events), *own)
    claimed = 1.5
    found = FederatedStatement(
        algorithm="dp_helmet" if algorithm == "dp_helmet" else "fed_dpdr",
        loss="huber",
        unit=unit,
        n_users=N_USERS,
        honest_fraction=HONEST / N_USERS,
        max_dropout=LOST / N_USERS,
        min_survivors=LEFT,
        honest_survivors=SURVIVORS,
        threshold=LEFT - 4 if trust == "secure_sum" else None,
        trust=trust,
        sensitivity=sensitivity,
        n_scores=None if sensitivity is None else SCORES,
        weighting=weighting,
        regularization=LAMBDA,
        radius=RADIUS,
        min_records=ROWS[0],
        max_records=ROWS[1],
        rounds=rounds,
        local_events=own,
        epsilon=claimed,
        delta=up(composed_delta(events, claimed)),
        local_epsilon=None,
        library_version="0",
    )
    if not rounds:
        return found
    return replace(found, local_epsilon=composed_epsilon(found.sent_events, found.delta))


FEDERATED: dict[str, Callable[[], FederatedStatement]] = {
    "helmet": lambda: made("dp_helmet"),
    "helmet users": lambda: made("dp_helmet", weighting="users"),
    "helmet person": lambda: made("dp_helmet", unit="person"),
    "helmet user": lambda: made("dp_helmet", unit="party"),
    "helmet curator": lambda: made("dp_helmet", trust="trusted_curator"),
    "dpdr output": lambda: made("output"),
    "dpdr output user": lambda: made("output", unit="party", weighting="users"),
    "dpdr output person": lambda: made("output", unit="person"),
    "dpdr objective": lambda: made("objective"),
    "dpdr objective person": lambda: made("objective", unit="person"),
    "dpdr own noise": lambda: made("own noise"),
}


@cache
def federated_statement(kind: str) -> FederatedStatement:
    """Statement of a kind; made once."""
    return FEDERATED[kind]()


def document(kind: str) -> dict[str, Any]:
    """Its certificate as plain values."""
    return federated_statement(kind).to_dict()
