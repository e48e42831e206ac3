"""JSON from anywhere: one value, finite numbers, each key once, within memory and depth."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any, NoReturn

__all__ = ["MAX_LEVELS", "MAX_VALUES", "check_size", "loads"]

# Python's objects are many times larger than their text: this many take some 250 MB at worst. A
# model of 100,000 named columns with its schema has 600,000.
MAX_VALUES = 1_000_000
# A pipeline inside a search inside a pipeline has about 20 levels.
MAX_LEVELS = 64
# Of a whole number; Python itself refuses thousands.
MAX_DIGITS = 1000


def loads(text: str) -> Any:
    """Return the value of a JSON text.

    Raises
    ------
    json.JSONDecodeError
        It is no JSON.
    ValueError
        It is not accepted; the text ends the sentence "the file ...".
    """
    check_size(text)
    try:
        value = json.loads(
            text,
            parse_float=_finite,
            parse_int=_whole,
            parse_constant=_refuse_constant,
            object_pairs_hook=_without_repeats,
        )
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    _check_levels(value)
    return value


def check_size(text: str) -> None:
    """Refuse a text of too many values; as of ``loads``."""
    if sum(map(text.count, ",[{")) > MAX_VALUES:
        raise ValueError(f"holds more than {MAX_VALUES} values")


def _finite(text: str) -> float:
    """A float; JSON may write ones that are beyond the floats."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("holds a number that is too large")
    return number


def _whole(text: str) -> int:
    """A whole number of not too many digits."""
    if len(text) > MAX_DIGITS:
        raise ValueError("holds a number that is too large")
    return int(text)


def _refuse_constant(text: str) -> NoReturn:
    """JSON has no NaN and no infinities."""
    raise ValueError(f"holds {text}, expected finite numbers")


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object without repeated keys: readers differ in which of two they believe."""
    record = dict(pairs)
    if len(record) != len(pairs):
        twice = next(key for key, n in Counter(key for key, _ in pairs).items() if n > 1)
        raise ValueError(f"repeats the key {twice[:40]!a}")
    return record


def _check_levels(value: object) -> None:
    """Refuse deep nesting, before anything recurses into it."""
    level = [value]
    for _ in range(MAX_LEVELS):
        level = [
            inner
            for one in level
            if isinstance(one, (dict, list))
            for inner in (one.values() if isinstance(one, dict) else one)
            if isinstance(inner, (dict, list))
        ]
        if not level:
            return
    raise ValueError("is nested too deeply")
