"""Outward rounding: a bound always, exact where the result is exact, within one place otherwise."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsvm_fast import rounding

floats = st.floats(-1e150, 1e150, allow_subnormal=True)
positive = st.floats(1e-150, 1e150)


def assert_tight(up: float, down: float, exact: Fraction) -> None:
    assert Fraction(down) <= exact <= Fraction(up)
    assert up == down if exact == Fraction(up) else up == math.nextafter(down, math.inf)


@given(floats, floats, floats)
def test_sums(a: float, b: float, c: float) -> None:
    exact = Fraction(a) + Fraction(b) + Fraction(c)
    assert_tight(rounding.add_up(a, b, c), rounding.add_down(a, b, c), exact)


@given(floats, floats)
def test_products(a: float, b: float) -> None:
    assert_tight(rounding.mul_up(a, b), rounding.mul_down(a, b), Fraction(a) * Fraction(b))


@given(floats, positive)
def test_quotients(a: float, b: float) -> None:
    assert_tight(rounding.div_up(a, b), rounding.div_down(a, b), Fraction(a) / Fraction(b))


@given(positive)
def test_roots(a: float) -> None:
    up, down = rounding.sqrt_up(a), rounding.sqrt_down(a)
    assert Fraction(down) ** 2 <= Fraction(a) <= Fraction(up) ** 2
    assert up - down <= math.ulp(up)


@given(floats, floats)
def test_lengths(a: float, b: float) -> None:
    length = Fraction(rounding.hypot_up(a, b))
    exact = Fraction(a) ** 2 + Fraction(b) ** 2
    assert exact <= length**2
    assert length**2 <= exact * Fraction(1 + 1e-15) + Fraction(1, 10**320)


def test_overflow_goes_to_the_safe_side() -> None:
    assert rounding.mul_up(1e200, 1e200) == math.inf
    assert rounding.mul_down(1e200, 1e200) == math.nextafter(math.inf, 0.0)
    assert rounding.add_up(1e308, 1e308) == math.inf
    assert rounding.hypot_up(1.5e308, 1.5e308) == math.inf
    assert rounding.fraction_down(Fraction(-(10**400))) == -math.inf


def test_exact_results_stay_exact() -> None:
    assert rounding.add_up(1.0, 1.0, 1.0) == 3.0
    assert rounding.mul_up(0.5, 3.0) == 1.5
    assert rounding.sqrt_up(4.0) == 2.0
    assert rounding.round_up(1.0, 2) == 1.0 + 2 * math.ulp(1.0)
    assert rounding.round_down(1.0) < 1.0


@pytest.mark.parametrize("value", [0.1, 1e-320, 1e300])
def test_the_sum_of_ten_floats_is_rounded_once(value: float) -> None:
    exact = 10 * Fraction(value)
    assert Fraction(rounding.add_up(*[value] * 10)) >= exact
    assert Fraction(rounding.add_down(*[value] * 10)) <= exact
