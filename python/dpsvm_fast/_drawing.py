"""What all displays share: colours, and matplotlib, imported when something is drawn."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["COLOURS", "axes_for", "matplotlib_module"]

# Okabe and Ito: told apart with any colour vision. Blue, vermilion and black also in grey.
COLOURS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#F0E442",
    "#000000",
)


def axes_for(ax: Axes | None) -> Axes:
    """The axes to draw on."""
    if ax is not None:
        return ax
    new: Axes = matplotlib_module("pyplot").subplots(layout="constrained")[1]
    return new


def matplotlib_module(module: str) -> Any:
    """A module of matplotlib, or how to install it."""
    try:
        return importlib.import_module(f"matplotlib.{module}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        raise ImportError(
            "matplotlib is needed to draw; install it with: pip install dpsvm-fast[plot]"
        ) from error
