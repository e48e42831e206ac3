"""Checks of public arguments, one function per kind.

A wrong type is a ``TypeError``, a wrong value an ``InvalidParameterError`` (a ``ValueError``). Both
name the argument, the value received and what is accepted. The value is quoted because these
arguments are public by the library's contract; nothing here may be called on data.
"""

from __future__ import annotations

import importlib
import math
import operator
import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeVar, cast

import numpy as np

from dpsvm_fast.exceptions import InvalidParameterError, InvalidTypeError, WeakPrivacyWarning

# Neighbouring relations: one record added or removed; one record replaced by another.
ADJACENCIES = ("add_remove", "replace_one")

# A larger budget is vacuous, and the calibration is not proven there.
MAX_EPSILON = 1e4

# Numbers above these guarantee almost nothing.
LARGEST_EPSILON, LARGEST_DELTA = 10.0, 1e-3

MAX_THREADS = 1024

MAX_SEED = 2**64 - 1

_NORMAL = sys.float_info.min

Kind = TypeVar("Kind")


def refuse(owner: object, *rules: tuple[str, object, str]) -> None:
    """Raise an error for the first invalid parameter, with the values accepted instead.

    Raises
    ------
    InvalidParameterError
        A parameter is invalid.
    """
    for name, wrong, accepted in rules:
        if wrong:
            raise InvalidParameterError.of(name, got=getattr(owner, name), accepted=accepted)


def check_real(
    name: str,
    value: object,
    *,
    low: float,
    high: float,
    open_low: bool = False,
    open_high: bool = False,
) -> float:
    """Accept a real number in the given range and return it as a float.

    Decimals, fractions and long doubles are refused rather than rounded: a rounded privacy
    parameter would not be the requested one. Bools, strings and arrays are refused too.
    """
    accepted = f"a finite number {'>' if open_low else '>='} {low:g}"
    if not math.isinf(high):
        accepted += f" and {'<' if open_high else '<='} {high:g}"
    numbers = (int, float, np.integer, np.floating)
    if isinstance(value, (bool, np.bool_, np.longdouble)) or not isinstance(value, numbers):
        raise InvalidTypeError(f"{name}: got {_described(value)}, expected {accepted}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    too_low = number <= low if open_low else number < low
    too_high = number >= high if open_high else number > high
    if too_low or too_high or not math.isfinite(number):
        raise InvalidParameterError.of(name, got=_plain(value), accepted=accepted)
    return number


# Checks of name and value: a privacy parameter epsilon, a number above 0, one of at least 0, and a
# share above 0.
check_epsilon = partial(check_real, low=0.0, high=MAX_EPSILON, open_low=True)
check_positive = partial(check_real, low=0.0, high=math.inf, open_low=True)
check_non_negative = partial(check_real, low=0.0, high=math.inf)
check_fraction = partial(check_real, low=0.0, high=1.0, open_low=True)


def check_delta(name: str, value: object) -> float:
    """Accept a privacy parameter delta: 0 <= delta < 1, where 0 means pure differential privacy.

    Subnormal numbers are refused, because calibration is not exact for them.
    """
    delta = check_real(name, value, low=0.0, high=1.0, open_high=True)
    if 0.0 < delta < _NORMAL:
        raise InvalidParameterError.of(name, got=delta, accepted=f"0 or a number >= {_NORMAL:.3g}")
    return delta


# Set while a search fits its candidates: it has warned once for all of them, and with random
# stopping their number is secret. One value a thread, since filters of warnings are shared by all.
SEARCHING: ContextVar[bool] = ContextVar("SEARCHING", default=False)


@contextmanager
def within_search() -> Iterator[None]:
    """Mark the body as fits of a search's candidates: the search warns and reports for them."""
    token = SEARCHING.set(True)
    try:
        yield
    finally:
        SEARCHING.reset(token)


def warn_of_weak_numbers(epsilon: float, delta: float, *, stacklevel: int) -> None:
    """Warn the caller ``stacklevel`` frames up if epsilon or delta promises almost nothing.

    A fit within a search does not warn.
    """
    if SEARCHING.get():
        return
    if epsilon > LARGEST_EPSILON:
        message = (
            f"epsilon={epsilon:g} guarantees almost nothing: one record may make an outcome "
            f"e^{epsilon:g} times as likely. Use at most {LARGEST_EPSILON:g}, preferably 1"
        )
        warnings.warn(message, WeakPrivacyWarning, stacklevel=stacklevel)
    if delta > LARGEST_DELTA:
        message = (
            f"delta={delta:g} guarantees almost nothing: with that probability a record may be "
            "revealed. Use a delta below 1 / number of records"
        )
        warnings.warn(message, WeakPrivacyWarning, stacklevel=stacklevel)


def check_integer(name: str, value: object, low: int, high: int | None = None) -> int:
    """Accept an int in ``low..high``; numpy integers are accepted, bools and floats are not."""
    accepted = f"an integer >= {low}" if high is None else f"an integer in {low}..{high}"
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise InvalidTypeError(f"{name}: got {_described(value)}, expected {accepted}")
    number = operator.index(value)
    if number < low or (high is not None and number > high):
        raise InvalidParameterError.of(name, got=number, accepted=accepted)
    return number


def check_bool(name: str, value: object) -> bool:
    """Accept True or False; 0, 1, None and strings are not."""
    if not isinstance(value, (bool, np.bool_)):
        raise InvalidTypeError(f"{name}: got {_described(value)}, expected True or False")
    return bool(value)


def check_option(name: str, value: object, options: Sequence[str]) -> str:
    """Check that a value is one of the given strings, spelled exactly."""
    accepted = "one of " + ", ".join(map(repr, options)) if len(options) > 1 else repr(options[0])
    if not isinstance(value, str):
        raise InvalidTypeError(f"{name}: got {_described(value)}, expected {accepted}")
    if value not in options:
        raise InvalidParameterError.of(name, got=value, accepted=accepted)
    return str(value)


check_adjacency = partial(check_option, options=ADJACENCIES)


def check_type(
    name: str, value: object, kinds: type[Kind] | tuple[type[Any], ...], accepted: str
) -> Kind:
    """Check that a value has one of the given types; ``accepted`` describes them in the message."""
    if not isinstance(value, kinds):
        raise InvalidTypeError.of(name, value, accepted)
    return cast("Kind", value)


def check_path(name: str, value: object) -> str:
    """Accept a file or folder name, as a string or a path."""
    path = os.fspath(value) if isinstance(value, (str, os.PathLike)) else None
    if not isinstance(path, str):
        raise InvalidTypeError.of(name, value, "the path of a file")
    if "\0" in path:
        raise InvalidParameterError(f"{name}: got a path with a null character, expected none")
    return path


def check_column(name: str, value: object) -> str | None:
    """Accept a column name, or None."""
    return check_type(name, value, (str, type(None)), "the name of a column")


def check_items(name: str, value: Any, accepted: str) -> tuple[Any, ...]:
    """Accept an iterable other than a string; ``accepted`` describes its items in the message."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise InvalidTypeError.of(name, value, accepted)
    return tuple(value)


def check_n_threads(name: str, value: object) -> int:
    """Accept a number of threads; None means all cores that this process may use."""
    if value is None:
        if hasattr(os, "sched_getaffinity"):
            return min(len(os.sched_getaffinity(0)), MAX_THREADS)
        return min(os.cpu_count() or 1, MAX_THREADS)
    return check_integer(name, value, 1, MAX_THREADS)


def check_random_state(name: str, value: object) -> int | None:
    """Accept None (entropy of the operating system) or a seed in ``0..2**64 - 1``.

    NumPy generators are refused: their output predicts their stream, and predictable noise can be
    subtracted.
    """
    if value is None:
        return None
    accepted = f"None or an integer in 0..{MAX_SEED}"
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise InvalidTypeError(
            f"{name}: got {_described(value)}, expected {accepted}; noise comes only from this "
            "library's cryptographic generator"
        )
    return check_integer(name, value, 0, MAX_SEED)


def _plain(value: object) -> object:
    """Return a NumPy scalar as the Python number to show in a message."""
    return value.item() if isinstance(value, np.generic) else value


def _described(value: object) -> str:
    """Describe a value by its type; a plain scalar with a short text also by its value."""
    kind = type(value).__name__
    plain = _plain(value)
    if value is None or not isinstance(plain, (bool, int, float, str)):
        return kind
    text = repr(plain)
    return f"{text} of type {kind}" if len(text) <= 40 else kind


# Packages that are imported only where used.


def optional_module(module: str, who: str, extra: str) -> Any:
    """Import an optional module, or raise an error that says how to install it.

    Parameters
    ----------
    module : str
        Dotted name of the module.
    who : str
        What needs the module, as the start of a sentence.
    extra : str
        Extra of this package that installs the module.

    Raises
    ------
    ImportError
        The library is not installed; the message says how to install it.
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        name = module.partition(".")[0]
        raise ImportError(
            f'{who} needs {name}, which is not installed: pip install "dpsvm-fast[{extra}]"'
        ) from None
