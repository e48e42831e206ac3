"""Shared code of the displays: styles that differ without colour, and lazy matplotlib imports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsvm_fast.estimators.frames import label_values
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.validation import optional_module

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import FigureBase


# Okabe and Ito: distinct with any colour vision. Blue, vermilion and black also in grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#000000")

HATCHES = ("", "///", "...", "\\\\\\", "xx", "---", "oo", "|||", "++", "**")

LINES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 3)))

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*")
# Names are wider than high: how much room upwards is worth as much as this sideways.
WIDTH_WEIGHT = 0.3
# In steps of the grid; without it slanted borders have steps.
SMOOTHING = 1.0
# Share of the colour in the ground of a region, under its hatching.
TINT = 0.25
# Longer names of classes are cut, so that legend and names leave room for the figure.
NAME_LENGTH = 24
# Names of more classes than this are written small.
MANY_CLASSES = 5
# Sizes of a legend's text by its number of lines, so that it is no higher than the axes.
LEGEND_SIZES = ((12, "medium"), (18, "small"))

SMALLEST_SIZE = "x-small"

# Behind text on a hatched ground.
NAME_BOX = {"boxstyle": "round,pad=0.2", "facecolor": "#ffffff", "edgecolor": "none", "alpha": 0.85}

NOT_PRIVATE = "NOT PRIVATE: this is not promised, see the statement"

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ClassStyle:
    """Style of one class; the first seventy styles differ in colour or hatching.

    Parameters
    ----------
    colour, hatch, marker : str
    line : object
        Matplotlib line style.
    """

    colour: str
    hatch: str
    line: Any
    marker: str

    @property
    def ground(self) -> tuple[float, ...]:
        """Opaque colour of the class's region."""
        colour = matplotlib_module("colors").to_rgb(self.colour)
        return tuple(1.0 - TINT * (1.0 - part) for part in colour)


def class_style(c: int) -> ClassStyle:
    """Return the style of class number ``c``; black is reserved for other artists."""
    return ClassStyle(
        colour=COLOURS[c % (len(COLOURS) - 1)],
        hatch=HATCHES[c % len(HATCHES)],
        line=LINES[c % len(LINES)],
        marker=MARKERS[c % len(MARKERS)],
    )


def class_names(classes: Any) -> list[str]:
    """Return the classes as text; long names are shortened so that they still differ."""
    names = [str(label) for label in classes]
    half = NAME_LENGTH // 2 - 1
    for head, tail in ((NAME_LENGTH - 1, 0), (half, half)):
        shown = [
            name if len(name) <= NAME_LENGTH else f"{name[:head]}\u2026{name[len(name) - tail :]}"
            for name in names
        ]
        if len(set(shown)) == len(set(names)):
            return shown
    return names


def draw_regions(
    ax: Axes,
    x: Array,
    y: Array,
    codes: NDArray[np.int64],
    names: list[str],
    obstacles: Sequence[Array],
) -> list[Any]:
    """Fill the region of each class and write its name in the widest part.

    Parameters
    ----------
    ax : matplotlib Axes
    x, y : ndarray of shape (n_x,), (n_y,)
        Coordinates of the grid.
    codes : ndarray of shape (n_y, n_x)
        Class index of each grid point.
    names : list of str
        Names of all classes.
    obstacles : sequence of ndarrays of shape (n_points, 2)
        Points that names should not hide.

    Returns
    -------
    list of matplotlib PathPatch
        One per class; empty for a class without a region.
    """
    patch = matplotlib_module("patches").PathPatch
    free = np.ones(codes.shape, dtype=bool)
    for points in obstacles:
        columns, lines = (np.searchsorted(side, points[:, i]) for i, side in enumerate((x, y)))
        shown = (columns < x.size) & (lines < y.size)
        free[lines[shown], columns[shown]] = False
    regions = []
    for c, name in enumerate(names):
        style, path = class_style(c), _outline(x, y, codes == c)
        # The colour of the edge is also that of the hatching; the outline is a separate line.
        look = {"facecolor": style.ground, "edgecolor": style.colour, "hatch": style.hatch}
        region = patch(path, linewidth=0.0, label=f"class {name}", zorder=0.5, **look)
        regions.append(ax.add_patch(region))
        ax.add_patch(patch(path, fill=False, edgecolor="#000000", linewidth=0.8, zorder=0.6))
        size = "medium" if len(names) <= MANY_CLASSES else "small"
        _write_name(ax, x, y, free & (codes == c), name, size)
    return regions


def _outline(x: Array, y: Array, inside: NDArray[np.bool_]) -> Any:
    """Return the grid points inside as a path with holes."""
    from contourpy import contour_generator
    from matplotlib.path import Path
    from scipy.ndimage import gaussian_filter

    heights = gaussian_filter(inside.astype(np.float64), SMOOTHING, mode="nearest")
    levels: Any = contour_generator(x, y, heights, fill_type="OuterCode")
    polygons, kinds = levels.filled(0.5, 1.5)
    if not polygons:
        return Path(np.empty((0, 2)))
    return Path(np.concatenate(polygons), np.concatenate(kinds))


def _write_name(
    ax: Axes, x: Array, y: Array, inside: NDArray[np.bool_], name: str, size: str
) -> None:
    """Write a name at the inner point farthest from the region's border and the figure's edge."""
    if not inside.any():
        return
    from scipy.ndimage import distance_transform_edt

    room = distance_transform_edt(np.pad(inside, 1), sampling=(1.0, WIDTH_WEIGHT))[1:-1, 1:-1]
    row, column = np.unravel_index(int(room.argmax()), room.shape)
    how: dict[str, Any] = {"ha": "center", "va": "center", "clip_on": True, "zorder": 5}
    at = float(x[column]), float(y[row])
    ax.text(*at, name, fontsize=size, bbox=NAME_BOX, parse_math=False, **how)


def draw_rows(
    ax: Axes, rows: Array, codes: NDArray[np.int64] | None, names: list[str]
) -> list[Any]:
    """Draw public rows with a marker per class, or as black dots without classes.

    Returns
    -------
    list of matplotlib PathCollection
        One per class with rows, or a single one.
    """
    how: dict[str, Any] = {"s": 22, "linewidths": 0.6, "edgecolors": "#000000", "zorder": 4}
    if codes is None:
        return [ax.scatter(rows[:, 0], rows[:, 1], c="#000000", label="row", **how)]
    points = []
    for c in np.unique(codes):
        style, own = class_style(int(c)), rows[codes == c]
        how |= {"c": style.colour, "marker": style.marker, "label": f"row of {names[c]}"}
        points.append(ax.scatter(own[:, 0], own[:, 1], **how))
    return points


def legend_outside(ax: Axes, handles: Sequence[Any] | None = None) -> Any:
    """Draw the legend to the right of the axes."""
    where: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.02, 1.0)}
    how: dict[str, Any] = {"frameon": False, "handlelength": 2.4, "handleheight": 1.2}
    shown = ax.get_legend_handles_labels()[0] if handles is None else list(handles)
    size = next((size for most, size in LEGEND_SIZES if len(shown) <= most), SMALLEST_SIZE)
    return ax.legend(handles=shown, borderaxespad=0.0, fontsize=size, **where, **how)


def epsilon_axis(ax: Axes, epsilons: Array) -> None:
    """Set a logarithmic x axis with a tick at every epsilon."""
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_locator(matplotlib_module("ticker").FixedLocator(list(epsilons)))
    plain_ticks(ax.xaxis)


def epsilon_label(delta: float | None) -> str:
    """Return the label of an epsilon axis, with delta if it is known."""
    at = "" if delta is None else rf" at $\delta$ = {delta:g}"
    return rf"$\epsilon${at} (smaller is more private)"


def plain_ticks(axis: Any) -> None:
    """Label ticks by plain numbers, without minor ticks."""
    ticker = matplotlib_module("ticker")
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:,g}"))
    axis.set_minor_locator(ticker.NullLocator())


def matplotlib_module(module: str) -> Any:
    """Import a module of matplotlib, or raise an error that says how to install it."""
    return optional_module(f"matplotlib.{module}", "drawing", "plot")


# Common parts of displays: how they are drawn, and which rows may be drawn with them.


Drawn = TypeVar("Drawn", bound="Display")

Plane = TypeVar("Plane", bound="PlaneDisplay")


class Display:
    """Base of displays in scikit-learn's style, which hold numbers and draw them on axes."""

    ax_: Axes
    figure_: FigureBase

    def plot(self: Drawn, ax: Axes | None = None) -> Drawn:
        """Draw on ``ax``, or on a new figure.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None

        Returns
        -------
        display
            This display.

        Raises
        ------
        ImportError
            matplotlib is missing.
        """
        return self._drawn(ax)

    def _drawn(self: Drawn, ax: Axes | None, *what: Any) -> Drawn:
        """Draw everything on the given or new axes."""
        if ax is None:
            ax = matplotlib_module("pyplot").subplots(layout="compressed")[1]
        self.ax_, self.figure_ = ax, ax.figure
        self._draw(ax, *what)
        return self

    def _draw(self, ax: Axes, *what: Any) -> None:
        """Draw everything on the axes."""
        raise NotImplementedError


class PlaneDisplay(Display):
    """Base of displays of predictions in the plane of two features, with optional public rows."""

    # Coordinates of a grid, the index of the predicted class at each point, and the labels.
    x: Array
    y: Array
    codes: NDArray[np.int64]
    classes: NDArray[Any]
    names: tuple[str, str]
    private: bool

    def plot(  # type: ignore[override]
        self: Plane,
        X: ArrayLike | None = None,
        *,
        y: ArrayLike | None = None,
        ax: Axes | None = None,
    ) -> Plane:
        """Draw on ``ax``, or on a new figure.

        Parameters
        ----------
        X : array-like of shape (n_samples, 2) or None, default=None
            Public rows to draw too.
        y : array-like of shape (n_samples,) or None, default=None
            Labels of the rows.
        ax : matplotlib Axes or None, default=None

        Returns
        -------
        display
            This display.

        Raises
        ------
        ImportError
            matplotlib is missing.
        InvalidParameterError
            Rows do not have two features, or labels are not one of the classes for each row.
        """
        return self._drawn(ax, *_public_rows(X, y, self.classes))

    def _draw(self, ax: Axes, rows: Array | None, row_codes: NDArray[np.int64] | None) -> None:
        labels = class_names(self.classes)
        lines, obstacles = self._draw_lines(ax)
        obstacles += [] if rows is None else [rows]
        self.regions_ = draw_regions(ax, self.x, self.y, self.codes, labels, obstacles)
        self.points_ = [] if rows is None else draw_rows(ax, rows, row_codes, labels)
        ax.set(
            xlabel=self.names[0],
            ylabel=self.names[1],
            xlim=(self.x[0], self.x[-1]),
            ylim=(self.y[0], self.y[-1]),
        )
        mark_not_private(ax, private=self.private)
        legend_outside(ax, [*self.regions_, *lines, *self.points_])

    def _draw_lines(self, ax: Axes) -> tuple[list[Any], list[Array]]:
        """Draw lines over the regions; return those of the legend, and points not to hide."""
        return [], []


def mark_not_private(ax: Axes, *, private: bool) -> None:
    """Say in the title that a statement is not private."""
    if not private:
        ax.set_title(NOT_PRIVATE)


def _public_rows(
    X: ArrayLike | None, y: ArrayLike | None, classes: NDArray[Any]
) -> tuple[Array | None, NDArray[np.int64] | None]:
    """Return the rows to draw and their class indices; None without rows.

    Raises
    ------
    InvalidParameterError
        Rows do not have two features, or labels are not one of the classes for each row.
    """
    if X is None:
        if y is not None:
            raise InvalidParameterError("y: got labels without rows, expected X too")
        return None, None
    rows = np.asarray(X, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[1] != 2:
        raise InvalidParameterError.of(
            "X", got=f"shape {rows.shape}", accepted="shape (n_samples, 2)"
        )
    if y is None:
        return rows, None
    labels = np.asarray(label_values(y))
    known = labels.reshape(-1, 1) == classes
    if labels.shape != rows.shape[:1] or not known.any(axis=1).all():
        raise InvalidParameterError("y: expected one of the model's labels for each row")
    return rows, np.asarray(known.argmax(axis=1), dtype=np.int64)
