"""Objective perturbation's privacy laws in the compiled core against reference values.

``tests/stored/objective_perturbation_gaussian.json`` was computed in 34-digit arithmetic (its field
``about`` has the formulas); the one-vs-rest part of ``objective_perturbation_joint.json`` is a pair
of bounds from a law rounded down and up.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
from mpmath import mp, mpf

from dpsvm_fast import _core
from oracles.stored import stored

# Relative, upwards; downwards only the rounding of the references' own decimals is allowed.
CLOSED_ERROR = 1e-10
# The third of these references is itself low by 6.3e-10: delta there, integrated anew in 30 digits,
# is 1.0000000157e-6 instead of 1e-6.
ONE_SCORE_ERROR = 1e-9
CONVOLUTION_ERROR = 1e-5
REFERENCE_ERROR = 2e-15
# The references for one-vs-rest sums have 12 significant digits.
SUM_REFERENCE_ERROR = 2e-12


def points(name: str, section: str) -> list[Any]:
    """Points of one section of a reference file as pytest parameters."""
    rows = stored(f"objective_perturbation_{name}")[section]
    assert rows
    return [pytest.param(row, id="-".join(str(v) for v in list(row.values())[:4])) for row in rows]


def given(
    law: str, n_scores: int, row: dict[str, float], *, replace_one: bool = False
) -> tuple[float, float]:
    """Sigma with the row's Jacobian constant, and delta there."""
    epsilon, c0 = row["epsilon"], row["c0"]
    sigma = _core.objective_sigma(law, n_scores, epsilon, row["delta"], None, None, c0, replace_one)
    delta = _core.objective_delta(law, n_scores, epsilon, sigma, None, c0, replace_one)
    return sigma, delta


@pytest.mark.parametrize("row", points("gaussian", "softmax_margin_add_remove"))
def test_softmax(row: dict[str, Any]) -> None:
    sigma, delta = given("softmax", row["classes"], row)
    true = row["sigma_over_kt"]
    assert true * (1 - REFERENCE_ERROR) <= sigma <= true * (1 + CLOSED_ERROR)
    assert delta <= row["delta"]


@pytest.mark.parametrize("row", points("gaussian", "softmax_margin_replace_one"))
def test_softmax_replaced_is_never_above_the_law_of_two_copies(row: dict[str, Any]) -> None:
    sigma, delta = given("softmax", row["classes"], row, replace_one=True)
    assert sigma <= row["sigma_over_kt"] * (1 + CLOSED_ERROR)
    # Two records cost more than one, and less than the group bound's factor of about 2.
    alone, _ = given("softmax", row["classes"], row)
    assert 1.8 * alone < sigma < 2.4 * alone
    assert delta <= row["delta"]


@pytest.mark.parametrize("row", points("gaussian", "softmax_margin_replace_one_union"))
def test_softmax_replaced(row: dict[str, Any]) -> None:
    sigma, _ = given("softmax", row["classes"], row, replace_one=True)
    true = row["sigma_over_kt"]
    assert true * (1 - REFERENCE_ERROR) <= sigma <= true * (1 + CLOSED_ERROR)


def test_softmax_replaced_takes_the_law_of_two_copies_where_it_is_smaller() -> None:
    row = {"classes": 100, "epsilon": 1.0, "delta": 1e-05, "c0": 0.1}
    sigma, _ = given("softmax", 100, row, replace_one=True)
    true = 14.950883280778054
    assert true * (1 - REFERENCE_ERROR) <= sigma <= true * (1 + CLOSED_ERROR)


@pytest.mark.parametrize("law", ["huber", "logistic"])
@pytest.mark.parametrize("row", points("gaussian", "one_vs_rest_add_remove"))
def test_one_vs_rest(row: dict[str, Any], law: str) -> None:
    sigma, delta = given(law, row["classes"], row)
    true = row["sigma_over_kt"]
    assert true * (1 - SUM_REFERENCE_ERROR) <= sigma <= true * (1 + CONVOLUTION_ERROR)
    assert delta <= row["delta"]


@pytest.mark.parametrize("row", points("gaussian", "logistic_joint_add_remove"))
def test_logistic_with_its_curvature(row: dict[str, float]) -> None:
    epsilon, delta, kappa = row["epsilon"], row["delta"], row["kappa"]
    sigma = _core.objective_sigma("logistic", 1, epsilon, delta, kappa, None, None, False)
    true = row["sigma_over_kt"]
    assert true * (1 - REFERENCE_ERROR) <= sigma <= true * (1 + ONE_SCORE_ERROR)
    assert _core.objective_delta("logistic", 1, epsilon, sigma, kappa, None, False) <= delta
    # Along a curve through the same point the same noise comes out.
    slope = kappa * sigma
    along = _core.objective_sigma("logistic", 1, epsilon, delta, None, slope, None, False)
    assert along == pytest.approx(sigma, rel=1e-11)
    # Two softmax scores are one score with rows longer by sqrt(2) and half the temperature.
    pair = _core.objective_sigma("softmax", 2, epsilon, delta, kappa / 2, None, None, False)
    assert pair == pytest.approx(math.sqrt(2) * sigma, rel=1e-11)


@pytest.mark.parametrize("row", points("joint", "one_vs_rest_joint_add_remove"))
def test_one_vs_rest_with_its_curvature(row: dict[str, Any]) -> None:
    args = (row["epsilon"], row["delta"], row["kappa"])
    sigma = _core.objective_sigma("logistic", row["classes"], *args, None, None, False)
    assert row["sigma_over_kt_lower"] <= sigma <= row["sigma_over_kt_upper"]


@pytest.mark.parametrize("row", points("gaussian", "tail"))
def test_tail_of_the_largest_difference(row: dict[str, Any]) -> None:
    # For t -> 0 at fixed e / t = v the curve is t times the integral of the tail from v on; its
    # derivative by v is recovered by a central difference, whose error is of order h^2.
    n_classes, v, t, h = row["classes"], row["v"], 1e-9, 1e-3
    low, high = (
        _core.objective_delta("softmax", n_classes, t * x, 1 / t, None, 0.0, False)
        for x in (v - h, v + h)
    )
    assert (low - high) / (2 * h * t) == pytest.approx(row["probability"], rel=1e-4)


@pytest.mark.parametrize(
    ("epsilon", "sigma"),
    [
        (2.0, 20.0),
        *(pytest.param(*e, marks=pytest.mark.slow) for e in ((1.0, 4.0), (1.0, 37.0), (3.0, 12.0))),
    ],
)
def test_softmax_tails_against_high_precision(epsilon: float, sigma: float) -> None:
    # The two-term form of the curve, whose terms nearly cancel, in 60 digits; the last two tails
    # are near 1e-300.
    n, e = 4, mpf(epsilon)
    log = math.log(_core.objective_delta("softmax", n + 1, epsilon, sigma, None, 0.0, False))
    with mp.workdps(60):
        t = 1 / mpf(sigma)
        v = e / t - t

        def integrand(w: mpf) -> mpf:
            first = mp.ncdf(w) ** (n - 1) * mp.ncdf(w - v)
            second = mp.exp(e) * mp.ncdf(w - t) ** (n - 1) * mp.ncdf(w - 2 * t - v)
            return mp.npdf(w) * (first - second)

        peak = v / 2 + t
        grid = [peak + k for k in range(-8, 9)]
        true = mp.log(n * mp.quad(integrand, grid))
        assert float(true) - 1e-11 * abs(float(true)) <= log
        assert log <= float(true) + 1e-9 + 1e-12 * abs(float(true))


def test_weston_watkins_with_two_classes_is_the_gaussian_mechanism() -> None:
    delta = _core.objective_delta("weston_watkins", 2, 1.0, 2.0, None, 0.0, False)
    assert delta == pytest.approx(_core.gaussian_delta(1.0, math.sqrt(2.0)), rel=1e-11)


def test_one_score_replaced() -> None:
    delta = _core.objective_delta("huber", 1, 1.0, 5.0, None, 0.25, True)
    wanted = _core.gaussian_delta(0.75, 2.5) + 2 * _core.gaussian_delta(0.75, 5.0)
    assert wanted <= delta <= wanted * (1 + 1e-11)


def test_epsilon_below_the_jacobian_costs_at_least_its_excess() -> None:
    for law, n_scores in [("softmax", 3), ("huber", 1), ("logistic", 2), ("weston_watkins", 3)]:
        far = _core.objective_delta(law, n_scores, 0.5, 1e7, None, 0.8, False)
        assert far == pytest.approx(-math.expm1(-0.3), rel=1e-5)
        assert far >= -math.expm1(-0.3)


def test_the_joint_bound_is_used_where_it_is_smaller() -> None:
    kappa, jacobian = 0.5, 9 * math.log1p(0.05)
    plain = _core.objective_sigma("softmax", 10, 2.0, 1e-5, None, None, jacobian, False)
    sigma = _core.objective_sigma("softmax", 10, 2.0, 1e-5, kappa, None, None, False)
    # 3.934 and 3.291: the noise without any Jacobian would be 3.135.
    assert plain == pytest.approx(3.934, abs=2e-3)
    assert 3.135 < sigma < 0.85 * plain
    assert _core.objective_delta("softmax", 10, 2.0, sigma, kappa, None, False) <= 1e-5
