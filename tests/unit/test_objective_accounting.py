"""Accounting of objective perturbation against reference values and independent computations."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from dpsvm_fast.reference.objective_constants import (
    PureConstants,
    single_factor_constants,
    threshold_constants,
)

DATA = Path(__file__).parents[1] / "data"
POINTS = {
    rule: json.loads((DATA / f"objective_perturbation_{rule}.json").read_text("utf-8"))["points"]
    for rule in ("cms", "tight")
}
RULES = {"cms": threshold_constants, "tight": single_factor_constants}
# A few roundings of numbers of the size of epsilon and of Lambda + Delta.
TWIN_TOL = 1e-13


def constants(rule: str, point: dict[str, str]) -> PureConstants:
    numbers = float(point["epsilon"]), int(point["n"]), float(point["Lambda"]), float(point["c"])
    return RULES[rule](*numbers)


@pytest.mark.parametrize("rule", RULES)
def test_the_published_rules_against_many_digits(rule: str) -> None:
    compared = 0
    for point in POINTS[rule]:
        epsilon, Lambda = float(point["epsilon"]), float(point["Lambda"])
        got = constants(rule, point)
        exact = float(point.get("epsilon1") or point["epsilon_minus_log_term"])
        assert got.epsilon_1 == pytest.approx(exact, abs=TWIN_TOL * (epsilon - exact + epsilon))
        threshold = 0.0 if rule == "cms" else 0.5 * epsilon
        if abs(exact - threshold) < 1e-12 * epsilon:
            continue  # the stored decimal and its float lie on different sides of the branch
        compared += 1
        assert got.epsilon_prime == pytest.approx(
            float(point["epsilon_prime"]), abs=TWIN_TOL * epsilon
        )
        assert got.beta == pytest.approx(float(point["beta"]), abs=TWIN_TOL * epsilon)
        extra = float(point["Delta"])
        assert got.extra == pytest.approx(extra, abs=TWIN_TOL * (Lambda + extra))
    assert compared >= 18


@pytest.mark.parametrize(
    ("n", "Lambda", "c"), [(150, 0.01, 1.0), (7000, 1e-3, 0.5), (20, 1.0, 2.0)]
)
@pytest.mark.parametrize("epsilon", [0.05, 0.4, 1.0, 6.0])
def test_both_rules_keep_their_budget(epsilon: float, n: int, Lambda: float, c: float) -> None:
    """Noise and change of variables together cost epsilon, with the regularisation they add."""
    for rule, factors in ((threshold_constants, 2), (single_factor_constants, 1)):
        got = rule(epsilon, n, Lambda, c)
        jacobian = factors * math.log1p(c / (n * (Lambda + got.extra)))
        assert 2.0 * got.beta + jacobian <= epsilon * (1 + 1e-12)
    two, one = (
        rule(epsilon, n, Lambda, c) for rule in (threshold_constants, single_factor_constants)
    )
    assert one.extra <= two.extra
    # Never the cliff at a vanishing share for the noise.
    assert one.beta >= 0.25 * epsilon * (1 - 1e-12)
