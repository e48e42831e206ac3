"""Outward-rounding arithmetic: each result is a bound on the exact real result.

Rounding is decided in exact rational arithmetic: an exact result stays exact (three spends of 1.0
sum to 3.0), and any other moves by less than one unit in the last place. An overflow gives infinity
upwards and the largest float downwards. A call takes a few microseconds: use it for budgets and
noise scales, not for arrays.
"""

from __future__ import annotations

import math
import operator
import struct
from fractions import Fraction


def subnormal(decimal: str) -> float:
    """Return the double nearest to a decimal below 2.2e-308, in any floating-point mode.

    A literal would be 0 where a module is compiled while subnormal numbers count as 0, as after the
    import of a library made with ``-ffast-math``, and stay 0 in Python's cache of that module.
    """
    value: float = struct.unpack("<d", struct.pack("<q", round(Fraction(decimal) * 2**1074)))[0]
    return value


# The smallest positive float, and a larger one to add to what may have underflowed.
SMALLEST_FLOAT, NEARLY_ZERO = subnormal("5e-324"), subnormal("1e-320")


def round_up(x: float, ulps: int = 1) -> float:
    """Return the float ``ulps`` places above ``x``."""
    for _ in range(ulps):
        x = math.nextafter(x, math.inf)
    return x


def round_down(x: float) -> float:
    """Return the next float below ``x``."""
    return math.nextafter(x, -math.inf)


def fraction_up(x: Fraction) -> float:
    """Return the smallest float at or above an exact rational number."""
    try:
        nearest = float(x)
    except OverflowError:
        return math.inf if x > 0 else -math.nextafter(math.inf, 0.0)
    return nearest if Fraction(nearest) >= x else math.nextafter(nearest, math.inf)


def fraction_down(x: Fraction) -> float:
    """Return the largest float at or below an exact rational number."""
    return -fraction_up(-x)


def add_up(*terms: float) -> float:
    """Return the sum of all terms, rounded up once."""
    if any(map(math.isinf, terms)):
        return math.fsum(terms)
    return fraction_up(sum(map(Fraction, terms), Fraction(0)))


def add_down(*terms: float) -> float:
    """Return the sum of all terms, rounded down once."""
    return -add_up(*map(operator.neg, terms))


def mul_up(a: float, b: float) -> float:
    """Return the product, rounded up."""
    if math.isinf(a) or math.isinf(b):
        return a * b
    return fraction_up(Fraction(a) * Fraction(b))


def mul_down(a: float, b: float) -> float:
    """Return the product, rounded down."""
    return -mul_up(-a, b)


def div_up(a: float, b: float) -> float:
    """Return the quotient, rounded up; ``b`` is not zero."""
    if math.isinf(a) or math.isinf(b):
        return a / b
    return fraction_up(Fraction(a) / Fraction(b))


def div_down(a: float, b: float) -> float:
    """Return the quotient, rounded down; ``b`` is not zero."""
    return -div_up(-a, b)


def sqrt_up(x: float) -> float:
    """Return the square root of ``x >= 0``, rounded up."""
    root = math.sqrt(x)
    enough = math.isinf(root) or Fraction(root) ** 2 >= Fraction(x)
    return root if enough else math.nextafter(root, math.inf)


def sqrt_down(x: float) -> float:
    """Return the square root of ``x >= 0``, rounded down."""
    root = math.sqrt(x)
    enough = math.isinf(root) or Fraction(root) ** 2 <= Fraction(x)
    return root if enough else math.nextafter(root, -math.inf)


def hypot_up(a: float, b: float) -> float:
    """Return ``sqrt(a**2 + b**2)``, rounded up, without overflow of the squares."""
    length = math.hypot(a, b)
    exact = Fraction(a) ** 2 + Fraction(b) ** 2
    while not math.isinf(length) and Fraction(length) ** 2 < exact:
        length = round_up(length)
    return length
