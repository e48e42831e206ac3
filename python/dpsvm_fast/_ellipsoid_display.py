"""The ellipses of a Gaussian classifier in two dimensions, as a scikit-learn Display object."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from dpsvm_fast._drawing import COLOURS, axes_for, matplotlib_module
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


class EllipsoidDisplay:
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
    regions_ : matplotlib QuadContourSet
        Filled regions in which each class is predicted.
    ellipses_ : list of matplotlib Line2D
        Class by class, and of each class ellipsoid by ellipsoid.
    centres_ : list of matplotlib Line2D
        One marker for each ellipse.
    points_ : matplotlib PathCollection or None
        Rows that were passed.

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
            Their labels, each one of the model's, for the colours.
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
        return cls(model=model, level=level).plot(X, y=y, ax=ax)

    def plot(
        self, X: ArrayLike | None = None, *, y: ArrayLike | None = None, ax: Axes | None = None
    ) -> EllipsoidDisplay:
        """Draw on ``ax``, or on a new figure; parameters as in ``from_estimator``."""
        colors = matplotlib_module("colors")
        self.ax_ = ax = axes_for(ax)
        self.figure_ = ax.figure
        model, n_classes = self.model, len(self.model.classes_)
        colours = [COLOURS[c % len(COLOURS)] for c in range(n_classes)]
        reach = REACH * model.data_norm_
        side = np.linspace(-reach, reach, GRID_POINTS)
        plane = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
        regions = np.searchsorted(model.classes_, model.predict(plane))
        self.regions_ = ax.contourf(
            side,
            side,
            regions.reshape(GRID_POINTS, GRID_POINTS),
            levels=np.arange(n_classes + 1) - 0.5,
            colors=[colors.to_rgba(colour, 0.18) for colour in colours],
        )
        self._draw_ellipses(ax, colours)
        self.points_ = None if X is None else self._draw_points(ax, X, y, colours)
        # Rows beyond the circle are scaled down to it.
        angles = np.linspace(0.0, 2.0 * math.pi, ELLIPSE_POINTS)
        first, second = model.data_norm_ * np.stack([np.cos(angles), np.sin(angles)])
        ax.plot(first, second, ":", color="#000000", linewidth=1.0, label="bound of the rows")
        names = getattr(model, "feature_names_in_", ("feature 0", "feature 1"))
        ax.set(xlabel=names[0], ylabel=names[1], xlim=(-reach, reach), ylim=(-reach, reach))
        ax.set_aspect("equal")
        if not model.privacy_.private:
            ax.set_title("NOT PRIVATE: see the statement")
        ax.legend(loc="upper right")
        return self

    def _draw_ellipses(self, ax: Axes, colours: list[str]) -> None:
        """One ellipse for each ellipsoid, and its centre; one entry of the legend a class."""
        model = self.model
        level = self._automatic_level() if self.level is None else self.level
        self.ellipses_, self.centres_ = [], []
        for c, label in enumerate(model.classes_):
            for m, (centre, precision) in enumerate(
                zip(model.means_[c], model.precisions_[c], strict=True)
            ):
                first, second = _ellipse(centre, precision, level)
                name = f"class {label}" if m == 0 else None
                self.ellipses_ += ax.plot(first, second, color=colours[c], label=name)
                self.centres_ += ax.plot(
                    centre[:1], centre[1:], "+", color=colours[c], markersize=9
                )

    def _draw_points(self, ax: Axes, X: ArrayLike, y: ArrayLike | None, colours: list[str]) -> Any:
        """Public rows, in the colours of their labels."""
        rows = np.asarray(X, dtype=np.float64)
        if rows.ndim != 2 or rows.shape[1] != 2:
            raise InvalidParameterError.of(
                "X", got=f"shape {rows.shape}", accepted="shape (n_samples, 2)"
            )
        colour: Any = "#000000"
        if y is not None:
            classes = list(self.model.classes_)
            if len(np.asarray(y)) != len(rows) or not set(np.asarray(y)) <= set(classes):
                raise InvalidParameterError("y: expected one of the model's labels for each row")
            colour = [colours[classes.index(label)] for label in np.asarray(y)]
        return ax.scatter(rows[:, 0], rows[:, 1], s=9, c=colour, edgecolors="none", alpha=0.7)

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
