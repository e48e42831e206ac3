"""Every check: what passes, what is a TypeError, what is a value error, and what the text says."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.validation import (
    ADJACENCIES,
    check_adjacency,
    check_delta,
    check_epsilon,
    check_fraction,
    check_integer,
    check_non_negative,
    check_option,
    check_positive,
)

REAL_CHECKS: list[Callable[[object], float]] = [
    check_epsilon,
    check_delta,
    lambda value: check_positive("C", value),
    lambda value: check_non_negative("C", value),
    lambda value: check_fraction("C", value),
]


@pytest.mark.parametrize("check", REAL_CHECKS)
@pytest.mark.parametrize("value", [0.25, np.float64(0.25), np.float32(0.25), np.float16(0.25)])
def test_real_numbers_become_floats(check: Callable[[object], float], value: object) -> None:
    assert type(check(value)) is float
    assert check(value) == 0.25


@pytest.mark.parametrize("check", REAL_CHECKS)
@pytest.mark.parametrize(
    "value",
    [
        True,
        np.True_,
        "0.5",
        None,
        Decimal("0.5"),
        Fraction(1, 2),
        np.longdouble(0.5),
        0.5j,
        [0.5],
        np.array(0.5),
        np.array([0.5]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_other_types_are_refused(check: Callable[[object], float], value: object) -> None:
    with pytest.raises(TypeError, match=r"(epsilon|delta|C): got .*, expected a finite number"):
        check(value)


@pytest.mark.parametrize("check", REAL_CHECKS)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1e-300, 10**400, -1])
def test_other_values_are_refused(check: Callable[[object], float], value: float) -> None:
    with pytest.raises(InvalidParameterError, match=r"(epsilon|delta|C): got .*, expected a"):
        check(value)


@pytest.mark.parametrize(
    ("check", "inside", "outside"),
    [
        (check_epsilon, [1e-300, 1, 1e4], [0.0, -0.0, 1e4 * (1 + 1e-15)]),
        (check_delta, [0, 0.0, 1e-300, 1 - 1e-16], [1, 1.0]),
        (REAL_CHECKS[2], [5e-324, 1e308], [0.0]),
        (REAL_CHECKS[3], [0.0, 1e308], []),
        (REAL_CHECKS[4], [5e-324, 1], [0.0, 1 + 1e-15]),
    ],
)
def test_ends_of_the_ranges(
    check: Callable[[object], float], inside: list[float], outside: list[float]
) -> None:
    for value in inside:
        assert check(value) == value
    for value in outside:
        with pytest.raises(InvalidParameterError):
            check(value)


def test_messages_show_plain_numbers() -> None:
    with pytest.raises(InvalidParameterError, match=r"^epsilon: got -1\.0, expected .* > 0 and <="):
        check_epsilon(np.float64(-1.0))
    with pytest.raises(TypeError, match=r"^epsilon: got '0\.5' of type str, expected"):
        check_epsilon("0.5")
    with pytest.raises(TypeError, match=r"^epsilon: got list, expected"):
        check_epsilon([1.0, 2.0])


def test_integers() -> None:
    assert check_integer("n", np.int8(3), 1) == 3
    assert type(check_integer("n", np.uint64(3), 1, 3)) is int
    for wrong in (True, np.False_, 3.0, "3", None, np.array(3)):
        with pytest.raises(TypeError, match=r"^n: got .*expected an integer"):
            check_integer("n", wrong, 1, 3)
    for value in (0, 4, -(10**30)):
        with pytest.raises(InvalidParameterError, match=r"^n: got -?\d+, expected an integer in"):
            check_integer("n", value, 1, 3)


def test_options_and_adjacency() -> None:
    for name in ADJACENCIES:
        assert check_adjacency(name) == name
    assert type(check_adjacency(np.str_("add_remove"))) is str
    with pytest.raises(InvalidParameterError, match="got 'add-remove', expected one of 'add_rem"):
        check_adjacency("add-remove")
    with pytest.raises(TypeError, match=r"^adjacency: got None"):
        check_adjacency(None)
    with pytest.raises(InvalidParameterError, match=r"^noise: got 'x', expected 'gaussian'"):
        check_option("noise", "x", ("gaussian",))
