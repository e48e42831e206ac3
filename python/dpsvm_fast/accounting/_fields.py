"""Fields of frozen records, checked and kept."""

from __future__ import annotations

from typing import Any

from dpsvm_fast.exceptions import InvalidParameterError

__all__ = ["check_text", "store", "store_all"]


def check_text(name: str, value: object) -> None:
    """Refuse anything but a string with something in it."""
    if not isinstance(value, str):
        raise TypeError(f"{name}: got {type(value).__name__}, expected a string")
    if not value.strip():
        raise InvalidParameterError(f"{name}: expected a string that is not empty")


def store(record: object, name: str, value: object) -> None:
    """Store a checked value in a frozen record."""
    object.__setattr__(record, name, value)


def store_all(record: object, name: str, kind: Any) -> None:
    """Keep a tuple of values of one kind, from a tuple or list."""
    values = getattr(record, name)
    if not isinstance(values, (tuple, list)):
        raise TypeError(f"{name}: got {type(values).__name__}, expected a tuple")
    if not all(isinstance(value, kind) for value in values):
        raise TypeError(f"{name}: an entry is of another type")
    store(record, name, tuple(values))
