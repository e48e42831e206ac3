"""How much a verification may compute: whoever made the certificate must not decide that."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["TooMuchWorkError", "limited_work", "work"]

# Entries of arrays that a computation goes through, which take up to 10 ns each. The dearest
# certificates of the tests take a fifth of this.
MOST_WORK = 5e9

_left: ContextVar[float] = ContextVar("work that is left", default=math.inf)


class TooMuchWorkError(Exception):
    """A recomputation takes more than any certificate that a fit makes."""


@contextmanager
def limited_work() -> Iterator[None]:
    """Let what is inside do no more than ``MOST_WORK``: the same everywhere, unlike a time."""
    token = _left.set(MOST_WORK)
    try:
        yield
    finally:
        _left.reset(token)


def work(amount: float) -> None:
    """Say, before doing it, how much is about to be done.

    Raises
    ------
    TooMuchWorkError
        It is more than is left.
    """
    left = _left.get() - amount
    _left.set(left)
    if left < 0.0:
        raise TooMuchWorkError
