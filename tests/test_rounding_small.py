"""The very source of ``_rounding``, on every pair of numbers of a format of three bits.

The module is executed again with other meanings of ``float`` and ``math``: a format whose numbers
are listed, so that the smallest one at or above an exact result is found by looking.
"""

from __future__ import annotations

import builtins
import inspect
import math
from bisect import bisect_left
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import pytest

from dpsvm_fast import rounding

pytestmark = pytest.mark.proof("output_perturbation", "Inexact minimiser")

BITS, LOWEST, HIGHEST = 3, -3, 1
# Zero, subnormal numbers, five binades. All are doubles, so that doubles stand for them.
POSITIVE = sorted(
    {float(m) * 2.0**LOWEST for m in range(2**BITS)}
    | {
        float(m) * 2.0**e
        for e in range(LOWEST, HIGHEST + 1)
        for m in range(2 ** (BITS - 1), 2**BITS)
    }
)
NUMBERS = [-x for x in POSITIVE[:0:-1]] + POSITIVE
LARGEST = NUMBERS[-1]


def nearest(x: Any) -> float:
    """Round to the format, ties to even, an overflow of a Fraction as Python reports it."""
    if isinstance(x, float) and math.isinf(x):
        return x
    exact = Fraction(x)
    above = bisect_left(NUMBERS, exact)
    # The next number, had the format one more binade, is where overflow begins.
    beyond = Fraction(LARGEST) + Fraction(2) ** HIGHEST / 2
    if abs(exact) >= beyond:
        if isinstance(x, Fraction):
            raise OverflowError
        return math.copysign(math.inf, x)
    around = [NUMBERS[i] for i in (above - 1, above) if 0 <= i < len(NUMBERS)]
    return min(around, key=lambda n: (abs(Fraction(n) - exact), NUMBERS.index(n) % 2 != EVEN))


EVEN = NUMBERS.index(0.0) % 2


def next_after(x: float, towards: float) -> float:
    steps = [-math.inf, *NUMBERS, math.inf]
    at = steps.index(x)
    return steps[max(0, min(len(steps) - 1, at + (1 if towards > x else -1)))]


def small_module(**changes: Any) -> SimpleNamespace:
    """Execute the source of ``_rounding`` over the small format."""
    functions: dict[str, Any] = {
        "inf": math.inf,
        "isinf": math.isinf,
        "fsum": lambda terms: math.fsum(terms),
        "nextafter": next_after,
        "sqrt": lambda x: x if math.isinf(x) else nearest(math.sqrt(x)),
        "hypot": lambda a, b: nearest(math.hypot(a, b)),
    }
    small = SimpleNamespace(**(functions | changes))

    def load(name: str, *rest: Any) -> Any:
        return small if name == "math" else builtins.__import__(name, *rest)

    space: dict[str, Any] = {
        "float": nearest,
        "__builtins__": vars(builtins) | {"__import__": load},
    }
    exec(compile(inspect.getsource(rounding), "_rounding over three bits", "exec"), space)
    return SimpleNamespace(**space)


def least_above(exact: Fraction) -> float:
    at = bisect_left(NUMBERS, exact)
    return NUMBERS[at] if at < len(NUMBERS) else math.inf


def greatest_below(exact: Fraction) -> float:
    return -least_above(-exact)


def wrong(module: SimpleNamespace) -> list[str]:
    """Return the functions that are not the nearest bound somewhere."""
    found = set()

    def judge(name: str, arguments: tuple[float, ...], exact: Fraction) -> None:
        for suffix, bound in (("up", least_above), ("down", greatest_below)):
            got = getattr(module, f"{name}_{suffix}")(*arguments)
            if got != bound(exact):
                found.add(f"{name}_{suffix}")

    for a in NUMBERS:
        for b in NUMBERS:
            x, y = Fraction(a), Fraction(b)
            judge("add", (a, b), x + y)
            judge("mul", (a, b), x * y)
            if b != 0.0:
                judge("div", (a, b), x / y)
            length = module.hypot_up(a, b)
            below = next_after(length, -math.inf)
            if Fraction(min(length, 2 * LARGEST)) ** 2 < x**2 + y**2 or (
                below >= 0.0 and length != math.inf and Fraction(below) ** 2 >= x**2 + y**2
            ):
                found.add("hypot_up")
    for a in POSITIVE:
        up, down = module.sqrt_up(a), module.sqrt_down(a)
        if not (Fraction(down) ** 2 <= Fraction(a) <= Fraction(up) ** 2):
            found.add("sqrt")
        if up not in (down, next_after(down, math.inf)):
            found.add("sqrt")
    for numerator in range(-300, 301):
        exact = Fraction(numerator, 7)
        if module.fraction_up(exact) != least_above(exact):
            found.add("fraction_up")
        if module.fraction_down(exact) != greatest_below(exact):
            found.add("fraction_down")
    return sorted(found)


def test_every_result_of_small_numbers_is_the_nearest_bound() -> None:
    assert len(NUMBERS) > 40
    assert wrong(small_module()) == []


def test_results_to_nearest_are_seen() -> None:
    """Negative control: a module that never steps to the next number."""
    stuck = small_module(nextafter=lambda x, towards: x, hypot=lambda a, b: math.inf)
    assert {"add_up", "mul_up", "div_up", "fraction_up"} <= set(wrong(stuck))
