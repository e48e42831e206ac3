"""The analytic Gaussian mechanism of the compiled core against 25-digit references.

The three files in ``tests/stored`` were computed with mpmath at 140 digits and more from Balle and
Wang (2018), Theorem 8; each says so in its field ``about``.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
from mpmath import mp, mpf

from dpsvm_fast import _core
from oracles.stored import stored

SIGMA_ERROR = mpf("1e-14")
CURVE_ERROR = mpf("1e-13")


def reference(name: str) -> list[Any]:
    """Points of one reference file as pytest parameters."""
    content = stored(f"analytic_gaussian_{name}")
    assert len(content["points"]) == content["count"]
    keys = ("epsilon", "delta", "sigma_over_delta")
    return [
        pytest.param(point, id="-".join(str(point[k])[:10] for k in keys))
        for point in content["points"]
    ]


def exact(text: str) -> mpf:
    with mp.workdps(40):
        return mpf(text)


@pytest.mark.proof("analytic_gaussian")
@pytest.mark.parametrize("point", reference("sigma"))
def test_sigma_matches_reference_and_is_never_below(point: dict[str, str]) -> None:
    sigma = _core.gaussian_sigma(float(point["epsilon"]), float(point["delta"]))
    true = exact(point["sigma_over_delta"])
    with mp.workdps(40):
        assert mpf(sigma) >= true - mpf(math.ulp(float(true)))
        assert mpf(sigma) <= true * (1 + SIGMA_ERROR)


@pytest.mark.proof("analytic_gaussian")
@pytest.mark.parametrize("point", reference("delta"))
def test_delta_matches_reference(point: dict[str, str]) -> None:
    # Decimal arguments are rounded to doubles before the call, so both sides need a tolerance
    # here; that the value is never low is tested on exact arguments in test_gaussian.py.
    epsilon, sigma = float(point["epsilon"]), float(point["sigma_over_delta"])
    with mp.workdps(40):
        delta = exact(point["delta"])
        if delta > mpf("1e-300"):
            assert abs(mpf(_core.gaussian_delta(epsilon, sigma)) - delta) <= CURVE_ERROR * delta
        else:
            assert 0 < _core.gaussian_delta(epsilon, sigma) <= 1e-299


@pytest.mark.proof("analytic_gaussian")
@pytest.mark.parametrize("point", reference("epsilon"))
def test_epsilon_matches_reference_and_is_never_below(point: dict[str, str]) -> None:
    epsilon = _core.gaussian_epsilon(float(point["delta"]), float(point["sigma_over_delta"]))
    true = exact(point["epsilon"])
    if true == 0:
        assert epsilon == 0.0
        return
    with mp.workdps(40):
        assert mpf(epsilon) >= true - mpf(math.ulp(float(true)))
        assert mpf(epsilon) <= true * (1 + CURVE_ERROR)


@pytest.mark.proof("analytic_gaussian")
@pytest.mark.parametrize("epsilon", [0.0, 1e-6, 1.0, 1e4])
def test_delta_next_to_one_keeps_its_digits(epsilon: float) -> None:
    delta = 1.0 - 2.0**-53
    sigma = _core.gaussian_sigma(epsilon, delta)
    assert _core.gaussian_delta(epsilon, sigma) == delta
