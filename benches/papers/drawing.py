"""Line plots that stay legible in black and white."""

from __future__ import annotations

import io
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# A mark along a line: place, height, and half the height of its error bar.
Point = tuple[float, float, float]
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
# Okabe and Ito's colours, which colour-blind readers tell apart; markers do so in grey.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#000000", "#cc79a7", "#56b4e9", "#e69f00", "#7f7f7f")
# Lines to compare with, which no private method has drawn: thin, grey and without markers.
REFERENCES = (
    "not private",
    "Non-Priv",
    "linear, not private",
    "scikit-learn, not private",
    "ellipsoids, not private",
    "logistic regression, not private",
    "linear ceiling",
    "majority class",
)
REFERENCE_LINES = ("--", ":")
WIDTH, HEIGHT, DOTS = 3.2, 2.8, 110
COLOURS_KEPT = 64
MAX_TICKS = 8


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    Parameters
    ----------
    title : str
    lines : mapping
        From a method's name to its points.
    x_label : str
        Instead of the figure's, if not empty.
    """

    title: str
    lines: Mapping[str, Sequence[Point]] = field(default_factory=dict)
    x_label: str = ""


def panels(
    path: Path,
    drawn: Sequence[Panel],
    *,
    x_label: str,
    y_label: str = "test accuracy",
    columns: int | None = None,
    logarithmic: bool = True,
    legend_columns: int = 3,
) -> None:
    """Store panels side by side, the same mark for a method in all of them."""
    # Imported here: only this step needs it, and it is an optional dependency.
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    wide = columns or len(drawn)
    # One panel or two are too narrow for a long legend.
    legend_columns = min(legend_columns, max(2, wide))
    rows = -(-len(drawn) // wide)
    legend = -(-len(styles(drawn)) // legend_columns)
    figure, axes = pyplot.subplots(
        rows,
        wide,
        figsize=(max(WIDTH * wide, 6.4), HEIGHT * rows + 0.22 * legend + 0.2),
        squeeze=False,
        layout="constrained",
    )
    handles: dict[str, Any] = {}
    for own, panel in itertools.zip_longest(axes.flat, drawn):
        if panel is None:
            own.set_visible(False)
            continue
        handles |= _fill(own, panel, styles(drawn), logarithmic=logarithmic)
        own.set_xlabel(panel.x_label or x_label)
    for own in axes[:, 0]:
        own.set_ylabel(y_label)
    figure.legend(
        list(handles.values()),
        list(handles),
        loc="outside lower center",
        ncols=legend_columns,
        frameon=False,
    )
    save(figure, path)


def _fill(
    own: Any, panel: Panel, looks: Mapping[str, Mapping[str, Any]], *, logarithmic: bool
) -> dict[str, Any]:
    """Draw one panel; returns a handle for every method in it."""
    handles: dict[str, Any] = {}
    for name, style in looks.items():
        if points := sorted(panel.lines.get(name, ())):
            x, y, errors = zip(*points, strict=True)
            handles[name] = own.errorbar(x, y, errors, label=name, **style)
    if logarithmic:
        own.set_xscale("log")
    _tick(own, {x for points in panel.lines.values() for x, _, _ in points})
    own.set_title(panel.title, loc="left")
    tidy(own)
    return handles


def tidy(own: Any) -> None:
    """Leave away what no reader needs: half of the frame, dark grid lines."""
    own.grid(visible=True, alpha=0.25)
    own.spines[["top", "right"]].set_visible(False)


def _tick(own: Any, places: set[float]) -> None:
    """Name the places themselves where they are few."""
    if 0 < len(places) <= MAX_TICKS:
        named = sorted(places)
        own.set_xticks(named, [f"{x:g}" for x in named], fontsize="small")
        own.minorticks_off()


def save(figure: Any, path: Path) -> None:
    """Store a figure with few colours, which makes a small file, and close it."""
    # Imported here like what draws: pillow comes with it.
    from matplotlib import pyplot
    from PIL import Image

    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=DOTS)
    pyplot.close(figure)
    path.parent.mkdir(parents=True, exist_ok=True)
    with Image.open(drawn) as image:
        few = image.convert("RGB").convert("P", palette=Image.Palette.ADAPTIVE, colors=COLOURS_KEPT)
        few.save(path, optimize=True)


def styles(drawn: Sequence[Panel]) -> dict[str, dict[str, Any]]:
    """Mark, line and colour of each method, in the order of their first appearance."""
    names = dict.fromkeys(name for panel in drawn for name in panel.lines)
    compared = [name for name in names if name in REFERENCES]
    looks: dict[str, dict[str, Any]] = {
        name: {
            "marker": MARKERS[i % len(MARKERS)],
            "color": COLOURS[i % len(COLOURS)],
            "markersize": 5,
            "linewidth": 1.6,
            "elinewidth": 1.0,
            "capsize": 0,
        }
        for i, name in enumerate(name for name in names if name not in REFERENCES)
    }
    for i, name in enumerate(compared):
        line = REFERENCE_LINES[i % len(REFERENCE_LINES)]
        looks[name] = {"linestyle": line, "color": "#555555", "linewidth": 1.4}
    return looks
