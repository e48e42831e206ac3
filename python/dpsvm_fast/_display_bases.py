"""What displays have in common: how they are drawn, and which rows may be drawn with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsvm_fast._drawing import axes_for
from dpsvm_fast.estimators._frames import label_values
from dpsvm_fast.exceptions import InvalidParameterError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import FigureBase

__all__ = ["AxesDisplay", "PlaneDisplay"]

Array = NDArray[np.float64]
Curve = TypeVar("Curve", bound="AxesDisplay")
Plane = TypeVar("Plane", bound="PlaneDisplay")


class AxesDisplay:
    """A display that is drawn on axes."""

    ax_: Axes
    figure_: FigureBase

    def plot(self: Curve, ax: Axes | None = None) -> Curve:
        """Draw on ``ax``, or on a new figure.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None

        Returns
        -------
        display
            This one.

        Raises
        ------
        ImportError
            matplotlib is missing.
        """
        self.ax_ = ax = axes_for(ax)
        self.figure_ = ax.figure
        self._draw(ax)
        return self

    def _draw(self, ax: Axes) -> None:
        """Everything on the axes."""
        raise NotImplementedError


class PlaneDisplay:
    """A display of the plane of two features, with public rows in it if there are any."""

    ax_: Axes
    figure_: FigureBase

    def plot(
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
            Public rows to be drawn too.
        y : array-like of shape (n_samples,) or None, default=None
            Their labels.
        ax : matplotlib Axes or None, default=None

        Returns
        -------
        display
            This one.

        Raises
        ------
        ImportError
            matplotlib is missing.
        InvalidParameterError
            Rows of more or less than two features, or labels that are not one of the classes for
            each.
        """
        rows, codes = _public_rows(X, y, self._classes)
        self.ax_ = ax = axes_for(ax)
        self.figure_ = ax.figure
        self._draw(ax, rows, codes)
        return self

    @property
    def _classes(self) -> NDArray[Any]:
        """Labels of the classes."""
        raise NotImplementedError

    def _draw(self, ax: Axes, rows: Array | None, codes: NDArray[np.int64] | None) -> None:
        """Everything on the axes, with rows and the numbers of their classes."""
        raise NotImplementedError


def _public_rows(
    X: ArrayLike | None, y: ArrayLike | None, classes: NDArray[Any]
) -> tuple[Array | None, NDArray[np.int64] | None]:
    """Rows to be drawn, and the numbers of their classes; None where there are none.

    Raises
    ------
    InvalidParameterError
        Rows of more or less than two features, or labels that are not one of the classes for each.
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
    if labels.shape != rows.shape[:1]:
        raise InvalidParameterError("y: expected one of the model's labels for each row")
    known = labels[:, None] == classes
    if not known.any(axis=1).all():
        raise InvalidParameterError("y: expected one of the model's labels for each row")
    return rows, np.asarray(known.argmax(axis=1), dtype=np.int64)
