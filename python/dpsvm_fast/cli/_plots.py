"""Figures that a command writes; nothing opens a window."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dpsvm_fast.cli._errors import CommandError
from dpsvm_fast.cli._outputs import Draft

__all__ = ["PLOT_SUFFIXES", "checked_plot", "draw", "has_matplotlib"]

PLOT_SUFFIXES = (".png", ".pdf", ".svg")
SIZE, DPI = (6.4, 4.4), 150


def has_matplotlib() -> bool:
    """Whether figures can be drawn."""
    try:
        return importlib.util.find_spec("matplotlib") is not None
    except ValueError:
        return False


def checked_plot(option: str, path: Path | None) -> None:
    """Refuse a figure that could not be written, before any work is done."""
    if path is None:
        return
    if path.suffix.lower() not in PLOT_SUFFIXES:
        accepted = f"a file name ending in {', '.join(PLOT_SUFFIXES)}"
        raise CommandError(f"{option}: got {path.name!r}, expected {accepted}")
    if not has_matplotlib():
        raise CommandError(f'{option} needs matplotlib: pip install "dpsvm-fast[plot]"')


def draw(draft: Draft, plot: Callable[[Any], None]) -> None:
    """Draw one figure and give the file its name.

    Parameters
    ----------
    draft : Draft
    plot : callable
        Receives the axes.
    """
    # Not through pyplot: it would look for a window.
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE, layout="constrained")
    plot(figure.subplots())
    figure.savefig(draft.draft, dpi=DPI, format=draft.path.suffix[1:].lower())
    draft.publish()
