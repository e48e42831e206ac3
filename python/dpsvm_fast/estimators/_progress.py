"""A progress bar of plain text, about a number of steps that is public."""

from __future__ import annotations

import sys
from collections.abc import Iterator

__all__ = ["shares_with_progress"]

WIDTH = 40


def shares_with_progress(n_steps: int, *, most: int, shown: bool) -> Iterator[int]:
    """Cut ``n_steps`` into shares to be done one after the other, and show what is done.

    Shares are of at most ``most`` steps. On a terminal there are enough of them for the bar to
    move; elsewhere one line is written at the end. Nothing is shown unless ``shown``.
    """
    moving = shown and sys.stdout.isatty()
    share = min(most, -(-n_steps // WIDTH) if moving else n_steps)
    for done in range(0, n_steps, share):
        if moving:
            _draw(done, n_steps, end="")
        yield min(share, n_steps - done)
    if shown:
        _draw(n_steps, n_steps, end="\n")


def _draw(done: int, n_steps: int, end: str) -> None:
    """One state of the bar, over the one before."""
    filled = WIDTH * done // n_steps
    bar = "#" * filled + "." * (WIDTH - filled)
    start = "\r" if sys.stdout.isatty() else ""
    sys.stdout.write(f"{start}[{bar}] step {done} of {n_steps}{end}")
    sys.stdout.flush()
