"""Whether a fit is one of many that a search makes, and has warned of, once for all of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["told_by_search", "within_search"]

# Of the thread that fits: filters of warnings are shared by all threads and cannot be changed here.
_told: ContextVar[bool] = ContextVar("_told", default=False)


def told_by_search() -> bool:
    """Whether whoever called has warned already of what this fit would warn of."""
    return _told.get()


@contextmanager
def within_search() -> Iterator[None]:
    """For fits of candidates: no warning of their own."""
    token = _told.set(True)
    try:
        yield
    finally:
        _told.reset(token)
