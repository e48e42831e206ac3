"""The ellipses of a Gaussian classifier in two dimensions, as a scikit-learn Display object."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from dpsvm_fast._boundary_display import feature_names, predicted_codes
from dpsvm_fast._display_bases import PlaneDisplay
from dpsvm_fast._drawing import (
    NOT_PRIVATE,
    class_names,
    class_style,
    draw_regions,
    draw_rows,
    legend_beside,
    matplotlib_module,
)
from dpsvm_fast._validation import check_positive
from dpsvm_fast.estimators import PrivateGaussianMarginClassifier
from dpsvm_fast.exceptions import InvalidParameterError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["EllipsoidDisplay"]

# Points on a side of the grid on which regions are decided, and on an ellipse.
GRID_POINTS, ELLIPSE_POINTS = 301, 181
# The part of the plane that is drawn, in units of the bound of the rows.
REACH = 1.1

Array = NDArray[np.float64]


class EllipsoidDisplay(PlaneDisplay):
    """Regions and ellipses of the classes of two features, from the released matrices alone.

    Regions follow from squared distances plus offsets, ellipses from distances alone: a region need
    not look like the ellipse of its class.

    Parameters
    ----------
    model : PrivateGaussianMarginClassifier
        Fitted on two features.
    level : float > 0 or None, default=None
        Squared Mahalanobis distance at which ellipses are drawn. None: the one at which the
        smallest of them has the area of a circle of half the radius that rows may have.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
    regions_ : list of matplotlib PathPatch
        Where each class is predicted.
    ellipses_ : list of matplotlib Line2D
        Class by class, and of each class ellipsoid by ellipsoid.
    centres_ : list of matplotlib Line2D
        One marker for each ellipse.
    points_ : list of matplotlib PathCollection
        Rows that were passed, class by class.

    Raises
    ------
    TypeError
        Another kind of model.
    sklearn.exceptions.NotFittedError
        The model is not fitted.
    InvalidParameterError
        A model of more or less than two features; a level that is not positive.

    Examples
    --------
    >>> import numpy as np
    >>> from dpsvm_fast import PrivateGaussianMarginClassifier
    >>> from dpsvm_fast.plotting import EllipsoidDisplay
    >>> X = np.random.default_rng(0).uniform(-1.0, 1.0, size=(1000, 2))
    >>> y = (np.linalg.norm(X, axis=1) > 0.75).astype(int)
    >>> model = PrivateGaussianMarginClassifier(4.0, data_norm=1.5, classes=[0, 1]).fit(X, y)
    >>> display = EllipsoidDisplay.from_estimator(model)  # doctest: +SKIP
    """

    def __init__(
        self, *, model: PrivateGaussianMarginClassifier, level: float | None = None
    ) -> None:
        if not isinstance(model, PrivateGaussianMarginClassifier):
            raise TypeError(
                f"model: got {type(model).__name__}, expected a PrivateGaussianMarginClassifier"
            )
        check_is_fitted(model)
        if model.n_features_in_ != 2:
            raise InvalidParameterError.of(
                "model", got=f"{model.n_features_in_} features", accepted="2 features"
            )
        self.model = model
        self.level = None if level is None else check_positive("level", level)

    @classmethod
    def from_estimator(
        cls,
        model: PrivateGaussianMarginClassifier,
        X: ArrayLike | None = None,
        *,
        y: ArrayLike | None = None,
        level: float | None = None,
        ax: Axes | None = None,
    ) -> EllipsoidDisplay:
        """Draw a fitted model.

        Parameters
        ----------
        model : PrivateGaussianMarginClassifier
        X : array-like of shape (n_samples, 2) or None, default=None
            Rows to be drawn too. They must be public: nothing protects them.
        y : array-like of shape (n_samples,) or None, default=None
            Their labels, each one of the model's, for colours and markers.
        level : float > 0 or None, default=None
        ax : matplotlib Axes or None, default=None
            None makes a new figure.

        Returns
        -------
        EllipsoidDisplay

        Raises
        ------
        ImportError
            matplotlib is missing.

        Notes
        -----
        Guarantees: without X the figure is a function of the released matrices, as private as they
        are.
        """
        matplotlib_module("figure")
        return cls(model=model, level=level).plot(X, y=y, ax=ax)

    @property
    def _classes(self) -> NDArray[Any]:
        return self.model.classes_

    def _draw(self, ax: Axes, rows: Array | None, codes: NDArray[np.int64] | None) -> None:
        model = self.model
        labels = class_names(model.classes_)
        reach = REACH * model.data_norm_
        side = np.linspace(-reach, reach, GRID_POINTS)
        # Rows beyond the circle are scaled down to it.
        angles = np.linspace(0.0, 2.0 * math.pi, ELLIPSE_POINTS)
        first, second = model.data_norm_ * np.stack([np.cos(angles), np.sin(angles)])
        (circle,) = ax.plot(
            first, second, color="#000000", linewidth=0.8, label="bound of the rows", zorder=3
        )
        handles = [*self._draw_ellipses(ax), circle]
        curves = [line.get_xydata() for line in (*self.ellipses_, *self.centres_, circle)]
        obstacles = np.concatenate([*curves, *([] if rows is None else [rows])])
        codes_of_plane = predicted_codes(model, side, side)
        self.regions_ = draw_regions(ax, side, side, codes_of_plane, labels, obstacles)
        self.points_ = [] if rows is None else draw_rows(ax, rows, codes, labels)
        first_name, second_name = feature_names(model)
        ax.set(xlabel=first_name, ylabel=second_name, xlim=(-reach, reach), ylim=(-reach, reach))
        ax.set_aspect("equal")
        if not model.privacy_.private:
            ax.set_title(NOT_PRIVATE)
        legend_beside(ax, [*self.regions_, *handles, *self.points_])

    def _draw_ellipses(self, ax: Axes) -> list[Any]:
        """One ellipse for each ellipsoid, and its centre; the first of each class for a legend."""
        model = self.model
        level = self._automatic_level() if self.level is None else self.level
        self.ellipses_, self.centres_ = [], []
        firsts = []
        for c, label in enumerate(class_names(model.classes_)):
            style = class_style(c)
            how = {"color": style.colour, "linestyle": style.line, "linewidth": 2.2, "zorder": 3}
            for centre, precision in zip(model.means_[c], model.precisions_[c], strict=True):
                curve = ax.plot(
                    *_ellipse(centre, precision, level), label=f"ellipse {label}", **how
                )
                self.ellipses_ += curve
                self.centres_ += ax.plot(
                    *centre[:, None],
                    style.marker,
                    color=style.colour,
                    markeredgecolor="#000000",
                    markersize=8,
                    zorder=4,
                )
            firsts.append(self.ellipses_[-len(model.means_[c])])
        return firsts

    def _automatic_level(self) -> float:
        """The level at which the smallest ellipse has half the size of the rows' ball."""
        model = self.model
        roots = np.sqrt(np.maximum(np.linalg.det(model.precisions_), 0.0)).max()
        return float((0.5 * model.data_norm_) ** 2 * roots) or 1.0


def _ellipse(centre: Array, precision: Array, level: float) -> Array:
    """Points, shape (2, n), at a squared distance ``level`` from the centre."""
    values, vectors = np.linalg.eigh(precision)
    # A singular direction has no end: the curve leaves the figure.
    axes = np.sqrt(level / np.maximum(values, 1e-12 * max(float(values[-1]), 1e-300)))
    angles = np.linspace(0.0, 2.0 * math.pi, ELLIPSE_POINTS)
    circle = np.stack([np.cos(angles), np.sin(angles)])
    return np.asarray(centre[:, None] + vectors @ (axes[:, None] * circle))
