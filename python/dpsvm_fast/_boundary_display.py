"""Where a classifier of two features predicts what, as a scikit-learn Display object."""

from __future__ import annotations

import contextlib
import importlib
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from dpsvm_fast._display_bases import PlaneDisplay
from dpsvm_fast._drawing import (
    NOT_PRIVATE,
    class_names,
    draw_regions,
    draw_rows,
    legend_beside,
    matplotlib_module,
)
from dpsvm_fast._validation import check_integer
from dpsvm_fast.estimators._bounds import broadcast_bounds, checked_bounds
from dpsvm_fast.exceptions import InvalidParameterError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["BoundaryDisplay", "feature_names", "predicted_codes"]

Array = NDArray[np.float64]


class BoundaryDisplay(PlaneDisplay):
    """Regions of two features in which each class is predicted.

    Made of predictions on a grid between public bounds. It knows no row of the data.

    Parameters
    ----------
    x, y : array-like of shape (n_x,), (n_y,)
        Sides of the grid, increasing.
    codes : array-like of shape (n_y, n_x)
        Number of the class that is predicted at each point.
    classes : array-like of shape (n_classes,)
    names : tuple of str, default=("feature 0", "feature 1")
        Of the features.
    private : bool, default=True
        Whether the statement of the model promises anything.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
    regions_ : list of matplotlib PathPatch
        One for each class; that of a class which is nowhere predicted is empty.
    points_ : list of matplotlib PathCollection
        Rows that were passed, class by class.

    Raises
    ------
    InvalidParameterError
        Codes that are not one for every point of the grid.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dpsvm_fast import PrivateLinearSVC
    >>> from dpsvm_fast.plotting import BoundaryDisplay
    >>> X, y = load_iris(return_X_y=True)
    >>> petals = X[:, 2:]
    >>> model = PrivateLinearSVC(2.0, 1e-5, classes=range(3), bounds=(0, 8)).fit(petals, y)
    >>> display = BoundaryDisplay.from_estimator(model)  # doctest: +SKIP
    """

    def __init__(
        self,
        *,
        x: ArrayLike,
        y: ArrayLike,
        codes: ArrayLike,
        classes: ArrayLike,
        names: tuple[str, str] = ("feature 0", "feature 1"),
        private: bool = True,
    ) -> None:
        self.x = np.asarray(x, dtype=np.float64)
        self.y = np.asarray(y, dtype=np.float64)
        self.codes = np.asarray(codes, dtype=np.int64)
        self.classes = np.asarray(classes)
        self.names = names
        self.private = private
        if self.codes.shape != (*self.y.shape, *self.x.shape):
            raise InvalidParameterError.of(
                "codes", got=f"shape {self.codes.shape}", accepted="shape (n_y, n_x)"
            )

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: ArrayLike | None = None,
        *,
        y: ArrayLike | None = None,
        bounds: Any = None,
        grid_resolution: int = 300,
        ax: Axes | None = None,
    ) -> BoundaryDisplay:
        """Ask a fitted classifier about a grid, and draw.

        Parameters
        ----------
        estimator : classifier
            Fitted on two features: of this library, a Pipeline, a search, or any other.
        X : array-like of shape (n_samples, 2) or None, default=None
            Rows to be drawn too. They must be public: nothing protects them.
        y : array-like of shape (n_samples,) or None, default=None
            Their labels, each one of the estimator's, for colours and markers.
        bounds : tuple (low, high) of numbers or arrays of shape (2,), or None, default=None
            PUBLIC limits of the figure. None takes those that the estimator was made with: its
            ``bounds``, those of the first step of a Pipeline, or its ``data_norm``.
        grid_resolution : int >= 2, default=300
            Points on each side of the grid.
        ax : matplotlib Axes or None, default=None
            None makes a new figure.

        Returns
        -------
        BoundaryDisplay

        Raises
        ------
        ImportError
            matplotlib is missing.
        sklearn.exceptions.NotFittedError
            The estimator is not fitted.
        InvalidParameterError
            More or less than two features, wrong bounds, or none and nothing public to take them
            from.

        Notes
        -----
        Guarantees: without X the figure is a function of the released model and of public bounds,
        as private as the model is. Its limits never come from rows.
        """
        matplotlib_module("figure")
        check_is_fitted(estimator)
        if getattr(estimator, "n_features_in_", None) != 2 or not hasattr(estimator, "classes_"):
            raise InvalidParameterError(
                "estimator: expected a classifier that was fitted on 2 features"
            )
        n_points = check_integer("grid_resolution", grid_resolution, 2)
        low, high = _limits(estimator, bounds)
        first, second = (np.linspace(low[i], high[i], n_points) for i in range(2))
        statement = getattr(_last_step(estimator), "privacy_", None)
        display = cls(
            x=first,
            y=second,
            codes=predicted_codes(estimator, first, second),
            classes=estimator.classes_,
            names=feature_names(estimator),
            private=statement is None or bool(statement.private),
        )
        return display.plot(X, y=y, ax=ax)

    @property
    def _classes(self) -> NDArray[Any]:
        return self.classes

    def _draw(self, ax: Axes, rows: Array | None, codes: NDArray[np.int64] | None) -> None:
        labels = class_names(self.classes)
        self.regions_ = draw_regions(ax, self.x, self.y, self.codes, labels, rows)
        self.points_ = [] if rows is None else draw_rows(ax, rows, codes, labels)
        ax.set(
            xlabel=self.names[0],
            ylabel=self.names[1],
            xlim=(self.x[0], self.x[-1]),
            ylim=(self.y[0], self.y[-1]),
        )
        if not self.private:
            ax.set_title(NOT_PRIVATE)
        legend_beside(ax, [*self.regions_, *self.points_])


def predicted_codes(estimator: Any, x: Array, y: Array) -> NDArray[np.int64]:
    """Number of the class that is predicted at every point of a grid, shape (n_y, n_x)."""
    plane = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    with warnings.catch_warnings():
        # Where no library of tables is there to give the grid the names of the fit.
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        labels = np.asarray(estimator.predict(_named(estimator, plane)))
    codes = (labels[:, None] == np.asarray(estimator.classes_)).argmax(axis=1)
    return np.asarray(codes, dtype=np.int64).reshape(y.size, x.size)


def feature_names(estimator: Any) -> tuple[str, str]:
    """Names of two features, made up where the estimator knows none."""
    first, second = getattr(estimator, "feature_names_in_", ("feature 0", "feature 1"))
    return str(first), str(second)


def _named(estimator: Any, plane: Array) -> Any:
    """The grid with the names of a fit on a table, where its steps may choose columns by them."""
    names = getattr(estimator, "feature_names_in_", None)
    if names is not None:
        for library, argument in (("pandas", "columns"), ("polars", "schema")):
            with contextlib.suppress(ModuleNotFoundError):
                frames = importlib.import_module(library)
                return frames.DataFrame(plane, **{argument: list(names)})
    return plane


def _last_step(estimator: Any) -> Any:
    """What the predictions come from."""
    return estimator.steps[-1][1] if isinstance(estimator, Pipeline) else estimator


def _limits(estimator: Any, bounds: Any) -> tuple[Array, Array]:
    """Lower and upper limits of both axes, from public facts alone."""
    if bounds is None:
        bounds = _public_bounds(estimator)
    limits = broadcast_bounds(checked_bounds(bounds), 2)
    assert limits is not None
    return limits


def _public_bounds(estimator: Any) -> Any:
    """What the rows' place was declared to be."""
    estimator = getattr(estimator, "best_estimator_", estimator)
    if isinstance(estimator, Pipeline):
        return _public_bounds(estimator.steps[0][1])
    for name in ("bounds_", "bounds"):
        found = getattr(estimator, name, None)
        if found is not None:
            return found
    for name in ("data_norm_", "data_norm"):
        norm = getattr(estimator, name, None)
        if norm is not None:
            return -norm, norm
    raise InvalidParameterError(
        "bounds: got None, expected public limits (low, high) of the figure: the estimator was "
        "made without bounds or data_norm, and limits from rows would not be private"
    )
