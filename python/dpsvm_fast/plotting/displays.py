"""Displays of audits, privacy profiles, plans, accuracy, decision boundaries and ellipses."""

from __future__ import annotations

import contextlib
import importlib
import math
import warnings
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone, is_classifier
from sklearn.dummy import DummyClassifier
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from dpsvm_fast import validation as check
from dpsvm_fast.accounting import composed_delta
from dpsvm_fast.audit import AuditReport
from dpsvm_fast.certificates.events import NESTED
from dpsvm_fast.certificates.statement import Statement
from dpsvm_fast.estimators import PrivateGaussianMarginClassifier
from dpsvm_fast.estimators.inputs import broadcast_bounds, checked_bounds
from dpsvm_fast.exceptions import InvalidParameterError, InvalidTypeError
from dpsvm_fast.metrics import Estimate, Evaluation
from dpsvm_fast.pipelines import private_steps
from dpsvm_fast.planning import NoisePlan
from dpsvm_fast.plotting import drawing
from dpsvm_fast.plotting.drawing import COLOURS, Display, PlaneDisplay, class_names
from dpsvm_fast.rounding import add_up, div_down, mul_down

if TYPE_CHECKING:
    from matplotlib.axes import Axes


# Decision regions of a classifier of two features, as a scikit-learn Display object.


Array = NDArray[np.float64]


class BoundaryDisplay(PlaneDisplay):
    """Predicted class at every point in the plane of two features.

    It shows predictions on a grid between public bounds and needs no rows.

    Parameters
    ----------
    x, y : array-like of shape (n_x,), (n_y,)
        Increasing coordinates of the grid.
    codes : array-like of shape (n_y, n_x)
        Index of the predicted class at each point.
    classes : array-like of shape (n_classes,)
    names : tuple of str, default=("feature 0", "feature 1")
        Names of the features.
    private : bool, default=True
        Whether the model's statement is private.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
    regions_ : list of matplotlib PathPatch
        One region per class; empty for a class that is never predicted.
    points_ : list of matplotlib PathCollection
        Rows that were passed, by class.

    Raises
    ------
    InvalidParameterError
        The shape of ``codes`` does not fit the grid.

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
        """Draw the predictions of a fitted classifier on a grid.

        Parameters
        ----------
        estimator : classifier
            Any classifier fitted on two features: of this library, a Pipeline, a search, or
            another.
        X : array-like of shape (n_samples, 2) or None, default=None
            Rows to draw too. They must be public: they are not protected.
        y : array-like of shape (n_samples,) or None, default=None
            Labels of the rows, from the estimator's classes, for colours and markers.
        bounds : tuple (low, high) of numbers or arrays of shape (2,), or None, default=None
            PUBLIC limits of the figure. None takes those of the estimator: its ``bounds``, those of
            the first step of a Pipeline, or its ``data_norm``.
        grid_resolution : int >= 2, default=300
            Number of points along each axis of the grid.
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
            The number of features is not two, or bounds are wrong, or missing both here and in the
            estimator.

        Notes
        -----
        Guarantees: without X the figure depends only on the released model and on public bounds, so
        it is as private as the model. The limits never come from rows.
        """
        check_is_fitted(estimator)
        if getattr(estimator, "n_features_in_", None) != 2 or not hasattr(estimator, "classes_"):
            raise InvalidParameterError(
                "estimator: expected a classifier that was fitted on 2 features"
            )
        n_points = check.check_integer("grid_resolution", grid_resolution, 2)
        bounds = _public_bounds(estimator) if bounds is None else bounds
        names = getattr(estimator, "feature_names_in_", None)
        limits = broadcast_bounds(checked_bounds("bounds", bounds), 2, names)
        assert limits is not None
        first, second = (np.linspace(*ends, n_points) for ends in zip(*limits, strict=True))
        last = estimator.steps[-1][1] if isinstance(estimator, Pipeline) else estimator
        statement = getattr(last, "privacy_", None)
        display = cls(
            x=first,
            y=second,
            codes=predicted_codes(estimator, first, second),
            classes=estimator.classes_,
            names=feature_names(estimator),
            private=statement is None or bool(statement.private),
        )
        return display.plot(X, y=y, ax=ax)


def predicted_codes(estimator: Any, x: Array, y: Array) -> NDArray[np.int64]:
    """Return the index of the predicted class at every grid point, shape (n_y, n_x)."""
    plane = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    with warnings.catch_warnings():
        # Without a data frame library, the grid cannot have the feature names of the fit.
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        labels = np.asarray(estimator.predict(_named(estimator, plane)))
    codes = (labels[:, None] == np.asarray(estimator.classes_)).argmax(axis=1)
    return np.asarray(codes, dtype=np.int64).reshape(y.size, x.size)


def feature_names(estimator: Any) -> tuple[str, str]:
    """Return the names of two features, generated if the estimator has none."""
    first, second = getattr(estimator, "feature_names_in_", ("feature 0", "feature 1"))
    return str(first), str(second)


def _named(estimator: Any, plane: Array) -> Any:
    """Return the grid as a table if the estimator was fitted on one, since steps may use names."""
    names = getattr(estimator, "feature_names_in_", None)
    if names is not None:
        for library, argument in (("pandas", "columns"), ("polars", "schema")):
            with contextlib.suppress(ModuleNotFoundError):
                frames = importlib.import_module(library)
                return frames.DataFrame(plane, **{argument: list(names)})
    return plane


def _public_bounds(estimator: Any) -> Any:
    """Return the declared bounds of the rows."""
    estimator = getattr(estimator, "best_estimator_", estimator)
    if isinstance(estimator, Pipeline):
        return _public_bounds(estimator.steps[0][1])
    for name in ("bounds_", "bounds", "data_norm_", "data_norm"):
        found = getattr(estimator, name, None)
        if found is not None and not isinstance(found, str):
            return found if name.startswith("bounds") else (-found, found)
    raise InvalidParameterError(
        "bounds: got None, expected public limits (low, high) of the figure, as the estimator has "
        "neither bounds nor data_norm and limits from rows would not be private"
    )


# The ellipses of a Gaussian classifier in two dimensions, as a scikit-learn Display object.


# Points on a side of the grid on which regions are decided, and on an ellipse.
GRID_POINTS, ELLIPSE_POINTS = 301, 181
# Part of the plane that is drawn, in units of the bound of the rows.
REACH = 1.1


class EllipsoidDisplay(PlaneDisplay):
    """Ellipses and regions of the classes for two features, from released matrices.

    Regions depend on squared distances plus offsets, ellipses only on distances: a region may
    differ from the ellipse of its class.

    Parameters
    ----------
    model : PrivateGaussianMarginClassifier
        Fitted on two features.
    level : float > 0 or None, default=None
        Squared Mahalanobis distance at which ellipses are drawn. With None the smallest ellipse has
        the area of a circle with half the norm bound as radius.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
    regions_ : list of matplotlib PathPatch
        Region where each class is predicted.
    ellipses_ : list of matplotlib Line2D
        Ellipses by class, then by ellipsoid.
    centres_ : list of matplotlib Line2D
        One marker per ellipse.
    points_ : list of matplotlib PathCollection
        Rows that were passed, by class.

    Raises
    ------
    TypeError
        The model is of another class.
    sklearn.exceptions.NotFittedError
        The model is not fitted.
    InvalidParameterError
        The number of features is not two, or the level is not positive.

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
        kind = PrivateGaussianMarginClassifier
        check.check_type("model", model, kind, f"a {kind.__name__}")
        check_is_fitted(model)
        if model.n_features_in_ != 2:
            raise InvalidParameterError.of(
                "model", got=f"{model.n_features_in_} features", accepted="2 features"
            )
        self.model, self.classes = model, model.classes_
        self.names, self.private = feature_names(model), model.privacy_.private
        reach = REACH * model.data_norm_
        self.x = self.y = np.linspace(-reach, reach, GRID_POINTS)
        self.codes = predicted_codes(model, self.x, self.y)
        self.level = None if level is None else check.check_positive("level", level)

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
            Rows to draw too. They must be public: they are not protected.
        y : array-like of shape (n_samples,) or None, default=None
            Labels of the rows, from the model's classes, for colours and markers.
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
        Guarantees: without X the figure depends only on the released matrices, so it is as private
        as they are.
        """
        return cls(model=model, level=level).plot(X, y=y, ax=ax)

    def _draw_lines(self, ax: Axes) -> tuple[list[Any], list[Array]]:
        """Draw the ellipses, their centres and the circle beyond which rows are scaled down."""
        model, level = self.model, self.level
        if level is None:
            # At which the smallest ellipse has half the size of the rows' ball.
            roots = np.sqrt(np.maximum(np.linalg.det(model.precisions_), 0.0)).max()
            level = float((0.5 * model.data_norm_) ** 2 * roots) or 1.0
        self.ellipses_, self.centres_ = [], []
        legend = []
        for c, label in enumerate(class_names(model.classes_)):
            style = drawing.class_style(c)
            how = {"color": style.colour, "linestyle": style.line, "linewidth": 2.2, "zorder": 3}
            mark: dict[str, Any] = {"color": style.colour, "markeredgecolor": "#000000"}
            for centre, precision in zip(model.means_[c], model.precisions_[c], strict=True):
                ellipse = _ellipse(centre, precision, level)
                self.ellipses_ += ax.plot(*ellipse, label=f"ellipse {label}", **how)
                self.centres_ += ax.plot(
                    *centre[:, None], style.marker, markersize=8, zorder=4, **mark
                )
            legend.append(self.ellipses_[-len(model.means_[c])])
        bound = _ellipse(np.zeros(2), np.eye(2), model.data_norm_**2)
        legend += ax.plot(
            *bound, color="#000000", linewidth=0.8, zorder=3, label="bound on the rows"
        )
        ax.set_aspect("equal")
        shown = (*self.ellipses_, *self.centres_, legend[-1])
        return legend, [np.asarray(line.get_xydata()) for line in shown]


def _ellipse(centre: Array, precision: Array, level: float) -> Array:
    """Return points, shape (2, n), at squared distance ``level`` from the centre."""
    values, vectors = np.linalg.eigh(precision)
    # A singular direction is unbounded: the curve leaves the figure.
    axes = np.sqrt(level / np.maximum(values, 1e-12 * max(float(values[-1]), 1e-300)))
    angles = np.linspace(0.0, 2.0 * math.pi, ELLIPSE_POINTS)
    circle = np.stack([np.cos(angles), np.sin(angles)])
    return np.asarray(centre[:, None] + vectors @ (axes[:, None] * circle))


# Both worlds of an audit as histograms, as a scikit-learn Display object.


class AuditDisplay(Display):
    """Statistic of an audit on both data sets, with threshold, claim and bound.

    One data set is filled, the other outlined, so the plot works without colours.

    Parameters
    ----------
    report : AuditReport
        Result of :func:`dpsvm_fast.audit.audit`.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
    worlds_ : list of matplotlib StepPatch
        Filled histogram and outline.
    threshold_ : matplotlib Line2D
        Threshold of the statistic.

    Raises
    ------
    InvalidParameterError
        The report has no histogram: it is of one run, or of densities.

    Examples
    --------
    >>> from dpsvm_fast import OutputPerturbationSVC
    >>> from dpsvm_fast.audit import audit
    >>> from dpsvm_fast.plotting import AuditDisplay
    >>> report = audit(OutputPerturbationSVC(1.0, 1e-5, C=0.1), n_trials=10_000)
    >>> display = AuditDisplay.from_report(report)  # doctest: +SKIP
    """

    def __init__(self, *, report: AuditReport) -> None:
        check.check_type("report", report, AuditReport, "an AuditReport")
        if not report.histogram:
            raise InvalidParameterError.of(
                "report", got=report.method, accepted="a report of audit(), which has histograms"
            )
        self.report = report

    @classmethod
    def from_report(cls, report: AuditReport, *, ax: Axes | None = None) -> AuditDisplay:
        """Draw a report.

        Parameters
        ----------
        report : AuditReport
        ax : matplotlib Axes or None, default=None
            None makes a new figure.

        Returns
        -------
        AuditDisplay
        """
        return cls(report=report).plot(ax=ax)

    def _draw(self, ax: Axes) -> None:
        report = self.report
        edges = np.asarray(report.histogram["edges"])
        total = max(1, report.n_trials)
        first, second = (np.asarray(report.histogram[w]) / total for w in ("first", "second"))
        self.worlds_: list[Any] = [
            ax.stairs(
                first, edges, fill=True, label="first data set", color=COLOURS[0], alpha=0.45
            ),
            ax.stairs(second, edges, label="neighbouring data set", color=COLOURS[-1]),
        ]
        self.threshold_ = ax.axvline(
            report.threshold, color=COLOURS[1], linestyle="--", label="threshold, chosen beforehand"
        )
        refuted = "  (refuted)" if report.exceeds_claim else ""
        ax.set_title(
            f"{report.mechanism}, {report.adjacency}\n"
            rf"claimed: $\epsilon$ = {report.epsilon:.3g}    "
            rf"audit: $\epsilon$ ≥ {report.certified:.3g}{refuted}",
            fontsize="medium",
            loc="left",
        )
        ax.set_xlabel(f"test statistic ({report.statistic}), {report.n_trials:,} runs on each")
        ax.set_ylabel("share of runs")
        # Room for the legend above the histograms.
        ax.set_ylim(0.0, 1.35 * max(first.max(), second.max(), 1e-9))
        ax.legend(frameon=False)


# The curve of guarantees of a release, as a scikit-learn Display object.


# Points of a privacy profile, from epsilon 0 to this multiple of the claimed one.
PROFILE_POINTS, PROFILE_REACH = 201, 2.0
# Fewer where each takes a search, or the law of noise in an objective many times over.
SLOW_PROFILE_POINTS = 51

SLOW_EVENTS = ("objective", *NESTED)

# A profile is drawn down to this share of the claimed delta.
PROFILE_DEPTH = 1e-4


class PrivacyProfileDisplay(Display):
    """Delta against epsilon for one release, with the claim marked.

    Parameters
    ----------
    epsilons, deltas : array-like of shape (n_points,)
        The curve.
    claimed : tuple of float
        Pair (epsilon, delta) of the statement.
    private : bool, default=True
        Whether the statement is private.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
    line_ : matplotlib Line2D
        Curve, where delta is positive.
    mark_ : matplotlib Line2D
        Claimed point, or a vertical line if the claimed delta is 0.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from dpsvm_fast import PrivateLinearSVC
    >>> from dpsvm_fast.plotting import PrivacyProfileDisplay
    >>> X, y = load_digits(return_X_y=True)
    >>> model = PrivateLinearSVC(1.0, 1e-5, classes=range(10), bounds=(0, 16)).fit(X, y)
    >>> display = PrivacyProfileDisplay.from_statement(model.privacy_)  # doctest: +SKIP
    """

    def __init__(
        self,
        *,
        epsilons: ArrayLike,
        deltas: ArrayLike,
        claimed: tuple[float, float],
        private: bool = True,
    ) -> None:
        self.epsilons = np.asarray(epsilons, dtype=np.float64)
        self.deltas = np.asarray(deltas, dtype=np.float64)
        self.claimed = claimed
        self.private = private

    @classmethod
    def from_statement(
        cls, statement: Statement, *, ax: Axes | None = None
    ) -> PrivacyProfileDisplay:
        """Draw the privacy profile of a statement; costs no budget.

        Parameters
        ----------
        statement : PrivacyStatement, PipelineStatement, SelectionStatement or FederatedStatement
            For example ``model.privacy_``, or the result of `total_privacy`.
        ax : matplotlib Axes or None, default=None
            None makes a new figure.

        Returns
        -------
        PrivacyProfileDisplay

        Raises
        ------
        ImportError
            matplotlib is missing.
        TypeError
            Not a statement.
        """
        check.check_type("statement", statement, Statement, "a statement, such as model.privacy_")
        slow = any(event.tag in SLOW_EVENTS for event in statement.events)
        points = SLOW_PROFILE_POINTS if slow else PROFILE_POINTS
        epsilons = np.linspace(0.0, PROFILE_REACH * statement.epsilon, points)
        deltas = [composed_delta(statement.events, float(epsilon)) for epsilon in epsilons]
        claimed = (statement.epsilon, statement.delta)
        display = cls(epsilons=epsilons, deltas=deltas, claimed=claimed, private=statement.private)
        return display.plot(ax=ax)

    def _draw(self, ax: Axes) -> None:
        epsilon, delta = self.claimed
        # A logarithmic axis has no zero.
        shown = np.where(self.deltas > 0.0, self.deltas, np.nan)
        (self.line_,) = ax.plot(self.epsilons, shown, color=COLOURS[0], label="this release")
        claim: dict[str, Any] = {
            "color": COLOURS[1],
            "markeredgecolor": "#000000",
            "markersize": 10,
            "zorder": 3,
            "label": rf"claimed: $\epsilon$ = {epsilon:g}, $\delta$ = {delta:g}",
        }
        ax.set_yscale("log")
        if delta > 0.0:
            (self.mark_,) = ax.plot([epsilon], [delta], "D", **claim)
            ax.set_ylim(PROFILE_DEPTH * delta, 1.0)
        else:
            self.mark_ = ax.axvline(epsilon, linestyle="--", **claim)
        ax.set(
            xlabel=r"privacy parameter $\epsilon$",
            ylabel=r"privacy parameter $\delta$ (smaller is more private)",
        )
        drawing.mark_not_private(ax, private=self.private)
        ax.grid(alpha=0.3)
        ax.set_xlim(self.epsilons[0], self.epsilons[-1])
        ax.legend(loc="lower left")


# Accuracy against epsilon, as a scikit-learn Display object.


PRIVATE_COLOUR = COLOURS[0]
# Fits for an epsilon at most.
MAX_REPEATS = 2**20
# Points of a curve that are labelled; more labels run into each other.
MAX_LABELLED = 8


def private_scores(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    X_test: Any,
    y_test: Any,
    epsilons: Sequence[float],
    n_repeats: int,
) -> NDArray[np.float64]:
    """Return test scores of fresh private fits, several per epsilon.

    Parameters
    ----------
    estimator : private classifier, or Pipeline with one at its end
        Cloned for every fit, with ``epsilon`` replaced; several private steps share it in
        proportion to their own. Ledgers, if any, are charged. With a ``random_state`` every fit
        gets a different seed.
    X : array-like, data frame or CSR matrix of shape (n_samples, n_features)
    y : array-like of shape (n_samples,)
    X_test : array-like, data frame or CSR matrix of shape (n_test, n_features)
    y_test : array-like of shape (n_test,)
    epsilons : sequence of float in (0, 1e4]
        Epsilon of all steps together.
    n_repeats : int >= 1
        Number of fits per epsilon, which differ only in their noise.

    Returns
    -------
    ndarray of shape (n_epsilons, n_repeats)

    Raises
    ------
    InvalidParameterError, TypeError
        An epsilon is missing or wrong, ``n_repeats`` is wrong, or the estimator has no private
        steps. Nothing was fitted.

    Notes
    -----
    Guarantees: none. Every fit is a release that costs its epsilon and delta, so scores on private
    data cost the budgets of all fits together. Scores on private test rows are not protected. Use
    public or demonstration data.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from dpsvm_fast import PrivateLinearSVC
    >>> from dpsvm_fast.plotting import private_scores
    >>> X, y = load_digits(return_X_y=True)
    >>> svc = PrivateLinearSVC(delta=1e-5, classes=range(10), bounds=(0, 16))
    >>> test = {"X_test": X[1300:], "y_test": y[1300:]}
    >>> private_scores(svc, X[:1300], y[:1300], **test, epsilons=[1, 8], n_repeats=3).shape
    (2, 3)
    """
    shares = _shares(estimator)
    given = check.check_items("epsilons", epsilons, "a list of numbers")
    budgets = [check.check_epsilon("epsilons", epsilon) for epsilon in given]
    if not budgets:
        raise InvalidParameterError.of("epsilons", got=[], accepted="at least one epsilon")
    n_repeats = check.check_integer("n_repeats", n_repeats, 1, MAX_REPEATS)
    shape = (len(budgets), n_repeats)
    scores = np.empty(shape)
    seeds = [
        _seeds(step.random_state, place, shape)
        for place, step in enumerate(private_steps(estimator))
    ]
    for i, j in np.ndindex(shape):
        model = clone(estimator)
        for step, share, own in zip(private_steps(model), shares, seeds, strict=True):
            epsilon = mul_down(share, budgets[i])
            step.set_params(epsilon=epsilon, random_state=own[i, j], ledger=step.ledger)
        scores[i, j] = model.fit(X, y).score(X_test, y_test)
    return scores


def _shares(estimator: Any) -> list[float]:
    """Return each private step's share of epsilon; by basic composition they sum to 1."""
    steps = private_steps(estimator)
    known = all(hasattr(step, "delta") and hasattr(step, "random_state") for step in steps)
    # A Pipeline without a classifier has no score, which would be found out after its fit.
    if not (steps and known and is_classifier(estimator)):
        raise InvalidTypeError(
            f"estimator: got {type(estimator).__name__}, expected a classifier with the parameters "
            "epsilon, delta and random_state, or a Pipeline with one at its end"
        )
    own = [check.check_epsilon("epsilon", step.epsilon) for step in steps]
    total = add_up(*own)
    return [1.0] if len(own) == 1 else [div_down(one, total) for one in own]


def _seeds(random_state: int | None, place: int, shape: tuple[int, int]) -> NDArray[np.object_]:
    """Return one seed per fit and step, because equal seeds would give equal models."""
    seeds = np.full(shape, None, dtype=object)
    if random_state is not None:
        entropy = random_state if place == 0 else (random_state, place)
        words = np.random.SeedSequence(entropy).generate_state(seeds.size, np.uint64)
        seeds[:] = words.astype(object).reshape(shape)
    return seeds


class PrivacyUtilityDisplay(Display):
    """Accuracy against epsilon, between the majority class and a model without privacy.

    Parameters
    ----------
    epsilons : array-like of shape (n_epsilons,)
        Positive.
    scores : array-like of shape (n_epsilons, n_repeats)
        Scores of independent private fits.
    non_private_score : float or None, default=None
        Score of a model without noise.
    majority_score : float or None, default=None
        Score of always predicting the majority class.
    delta : float or None, default=None
        Named on the axis.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
    line_, band_ : matplotlib artists
        Mean, and mean plus and minus one standard deviation over the fits.
    ceiling_ : matplotlib Line2D or None
        Dashed line of the non-private score.
    majority_ : matplotlib Line2D or None
        Dotted line of the majority score. None also if that score is far below the others; a note
        at the lower edge then states it.

    Raises
    ------
    InvalidParameterError
        Scores do not have one row per epsilon.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.svm import LinearSVC
    >>> from dpsvm_fast import PrivateLinearSVC
    >>> from dpsvm_fast.plotting import PrivacyUtilityDisplay
    >>> X, y = load_digits(return_X_y=True)
    >>> display = PrivacyUtilityDisplay.from_estimator(
    ...     PrivateLinearSVC(delta=1e-5, classes=range(10), bounds=(0, 16)),
    ...     X[:1300],
    ...     y[:1300],
    ...     X_test=X[1300:],
    ...     y_test=y[1300:],
    ...     epsilons=[0.5, 1, 2],
    ...     n_repeats=3,
    ... )  # doctest: +SKIP
    """

    def __init__(
        self,
        *,
        epsilons: ArrayLike,
        scores: ArrayLike,
        non_private_score: float | None = None,
        majority_score: float | None = None,
        delta: float | None = None,
    ) -> None:
        self.epsilons = np.asarray(epsilons, dtype=np.float64)
        self.scores = np.asarray(scores, dtype=np.float64)
        self.non_private_score = non_private_score
        self.majority_score = majority_score
        self.delta = delta
        rows = (*self.epsilons.shape, *self.scores.shape[1:])
        if self.epsilons.ndim != 1 or self.scores.ndim != 2 or self.scores.shape != rows:
            raise InvalidParameterError.of(
                "scores",
                got=f"shape {self.scores.shape} for epsilons of shape {self.epsilons.shape}",
                accepted="shape (n_epsilons, n_repeats)",
            )

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        X_test: Any,
        y_test: Any,
        epsilons: Sequence[float],
        n_repeats: int = 10,
        non_private: Any = None,
        ax: Axes | None = None,
    ) -> PrivacyUtilityDisplay:
        """Fit at every epsilon, score on test rows, and draw.

        Parameters
        ----------
        estimator : private classifier, or Pipeline with one at its end
            Cloned for every fit, with ``epsilon`` replaced; several private steps share it in
            proportion to their own.
        X : array-like, data frame or CSR matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        X_test : array-like, data frame or CSR matrix of shape (n_test, n_features)
        y_test : array-like of shape (n_test,)
        epsilons : sequence of float in (0, 1e4]
            Epsilon of all steps together, by basic composition; `total_privacy` may be smaller.
        n_repeats : int >= 1, default=10
            Number of fits per epsilon.
        non_private : classifier or None, default=None
            Cloned and fitted once for the dashed line. The score of the majority class is drawn
            with it.
        ax : matplotlib Axes or None, default=None
            None makes a new figure.

        Returns
        -------
        PrivacyUtilityDisplay

        Raises
        ------
        ImportError
            matplotlib is missing. Nothing was fitted or spent.
        InvalidParameterError, TypeError
            An epsilon or ``n_repeats`` is wrong, or the estimator has no private steps. Nothing was
            fitted or spent.

        Notes
        -----
        Guarantees: every fit is a real release. A figure on private data costs the budgets of all
        its fits together (a ledger of the estimator is charged for each), and the two lines of
        ``non_private`` are not protected. Use public or demonstration data.
        """
        drawing.matplotlib_module("figure")
        test = {"X_test": X_test, "y_test": y_test}
        scores = private_scores(estimator, X, y, **test, epsilons=epsilons, n_repeats=n_repeats)
        ceiling = majority = None
        if non_private is not None:
            peers = (clone(non_private), DummyClassifier(strategy="most_frequent"))
            ceiling, majority = (float(peer.fit(X, y).score(X_test, y_test)) for peer in peers)
        delta = add_up(*(step.delta for step in private_steps(estimator)))
        lines = {"non_private_score": ceiling, "majority_score": majority}
        display = cls(epsilons=epsilons, scores=scores, delta=delta, **lines)
        return display.plot(ax=ax)

    def _draw(self, ax: Axes) -> None:
        order = np.argsort(self.epsilons)
        epsilons, scores = self.epsilons[order], self.scores[order]
        n_repeats = scores.shape[1]
        mean, spread = scores.mean(axis=1), np.zeros(len(epsilons))
        curve, band = "private", None
        if n_repeats > 1:
            spread = scores.std(axis=1, ddof=1)
            curve, band = f"private, mean of {n_repeats} models", "one standard deviation"
        line: dict[str, Any] = {"color": PRIVATE_COLOUR, "linewidth": 2.2, "zorder": 3}
        (self.line_,) = ax.plot(epsilons, mean, "o-", label=curve, **line)
        shade: dict[str, Any] = {"color": PRIVATE_COLOUR, "alpha": 0.2, "linewidth": 0}
        self.band_ = ax.fill_between(epsilons, mean - spread, mean + spread, label=band, **shade)
        if len(epsilons) <= MAX_LABELLED:
            below: dict[str, Any] = {
                "textcoords": "offset points",
                "xytext": (9, -16),
                "ha": "center",
            }
            for point in zip(epsilons, mean, strict=True):
                ax.annotate(f"{point[1]:.2f}", point, color=PRIVATE_COLOUR, **below)
        self.ceiling_ = self._reference(ax, self.non_private_score, "without privacy", "--")
        self.majority_ = None
        lowest, highest = float(np.min(mean - spread)), float(np.max(mean + spread))
        if self.majority_score is not None:
            name = "majority class"
            if lowest - self.majority_score <= 2.0 * max(highest - lowest, 0.02):
                self.majority_ = self._reference(ax, self.majority_score, name, ":")
            else:
                note = f"{name}: {self.majority_score:.2f}, below this axis"
                ax.text(0.98, 0.02, note, ha="right", transform=ax.transAxes)
        drawing.epsilon_axis(ax, epsilons)
        ax.set(xlabel=drawing.epsilon_label(self.delta), ylabel="test accuracy")
        ax.margins(x=0.07, y=0.12)
        ax.grid(alpha=0.3)
        # Accuracy grows with epsilon: this corner is free, above the majority line and its name.
        ax.legend(loc="lower right", bbox_to_anchor=(1.0, 0.2), frameon=False)

    @staticmethod
    def _reference(ax: Axes, score: float | None, name: str, style: str) -> Any:
        """Draw a labelled horizontal line at a score; return None without a score."""
        if score is None:
            return None
        above: dict[str, Any] = {"textcoords": "offset points", "xytext": (6, 4)}
        ax.annotate(
            f"{name}: {score:.2f}", (0.0, score), xycoords=("axes fraction", "data"), **above
        )
        return ax.axhline(score, color=COLOURS[-1], linestyle=style, linewidth=1.6)


KINDS = ("lead", "budget")
# Attributes common to plans side by side; they differ in epsilon and delta.
COMMON = ("estimator", "adjacency", "n_features", "n_classes", "n_samples")

# In the order in which they are made.
RELEASES = ("centre and number of rows", "whitening", "training")
# Per cent: the label of a lower part of a bar would cover its neighbours.
SMALLEST_LABELLED = 5.0
# Epsilons under more bars than this are slanted, or they run into each other.
MANY_BARS = 8


class NoisePlanDisplay(Display):
    """Noise at several epsilons, from plans that read no data.

    ``kind="lead"`` shows against epsilon the lead of one class over another that survives the noise
    of a prediction with probability 95 %, and the largest lead that the number of rows allows.
    Where the first exceeds the second, noise dominates every decision. ``kind="budget"`` shows each
    release's share of the budget.

    Parameters
    ----------
    plans : NoisePlan or iterable of them
        Results of :func:`dpsvm_fast.planning.plan_noise` with different epsilons, for one estimator
        and one shape of the data.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
    survives_ : matplotlib Line2D
        Lead that survives the noise. ``kind="lead"`` only.
    largest_ : matplotlib Line2D or None
        Largest lead; None for plans without a number of rows. ``kind="lead"`` only.
    drowned_ : matplotlib PolyCollection or None
        Region where noise dominates every decision; None if there is none. ``kind="lead"`` only.
    bars_ : list of matplotlib BarContainer
        One per release. ``kind="budget"`` only.

    Raises
    ------
    TypeError
        Not plans.
    InvalidParameterError
        There is no plan, plans are for different fits, or two have the same epsilon.

    Examples
    --------
    >>> from dpsvm_fast import PrivateLinearSVC
    >>> from dpsvm_fast.planning import plan_noise
    >>> from dpsvm_fast.plotting import NoisePlanDisplay
    >>> plans = [
    ...     plan_noise(PrivateLinearSVC(epsilon, 1e-5, classes=range(10)), 64, n_samples=1347)
    ...     for epsilon in (0.1, 1.0, 10.0)
    ... ]
    >>> display = NoisePlanDisplay.from_plans(plans)  # doctest: +SKIP
    """

    def __init__(self, *, plans: NoisePlan | Iterable[NoisePlan]) -> None:
        accepted = "plans of plan_noise()"
        given = [plans] if isinstance(plans, NoisePlan) else plans
        found: list[NoisePlan] = [
            check.check_type("plans", plan, NoisePlan, accepted)
            for plan in check.check_items("plans", given, accepted)
        ]
        if not found:
            raise InvalidParameterError.of("plans", got=[], accepted="at least one plan")
        for name in COMMON:
            if len({getattr(plan, name) for plan in found}) > 1:
                raise InvalidParameterError(f"plans: expected the same {name} in all of them")
        if len({plan.epsilon for plan in found}) < len(found):
            raise InvalidParameterError("plans: expected one plan for each epsilon")
        self.plans = tuple(sorted(found, key=attrgetter("epsilon")))

    @classmethod
    def from_plans(
        cls, plans: NoisePlan | Iterable[NoisePlan], *, kind: str = "lead", ax: Axes | None = None
    ) -> NoisePlanDisplay:
        """Draw plans; costs no budget.

        Parameters
        ----------
        plans : NoisePlan or iterable of them
        kind : {"lead", "budget"}, default="lead"
        ax : matplotlib Axes or None, default=None
            None makes a new figure.

        Returns
        -------
        NoisePlanDisplay

        Raises
        ------
        ImportError
            matplotlib is missing.
        """
        return cls(plans=plans).plot(kind=kind, ax=ax)

    def plot(self, ax: Axes | None = None, *, kind: str = "lead") -> NoisePlanDisplay:
        """Draw on ``ax``, or on a new figure.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
        kind : {"lead", "budget"}, default="lead"

        Returns
        -------
        NoisePlanDisplay

        Raises
        ------
        InvalidParameterError
            The kind is unknown, or plans lack the numbers for "lead".
        """
        check.check_option("kind", kind, KINDS)
        if kind == "lead" and any(plan.decision is None for plan in self.plans):
            raise InvalidParameterError.of(
                "plans",
                got="plans without n_samples",
                accepted="plans with n_samples, which decides the noise",
            )
        return self._drawn(ax, kind)

    def _draw(self, ax: Axes, kind: str) -> None:
        (self._plot_lead if kind == "lead" else self._plot_budget)(ax)
        plan = self.plans[0]
        rows = "" if plan.n_samples is None else f"{plan.n_samples:,} rows, "
        size = f"{rows}{plan.n_features} features, {plan.n_classes} classes"
        ax.set_title(f"{plan.estimator}: {size}", fontsize="medium", loc="left")

    def _plot_lead(self, ax: Axes) -> None:
        """Draw the lead that survives the noise, and the largest possible lead."""
        epsilons = np.array([plan.epsilon for plan in self.plans])
        decisions = [plan.decision for plan in self.plans if plan.decision is not None]
        survives = np.array([decision.lead for decision in decisions])
        at_least = "at least " if decisions[0].is_bound else ""
        how: dict[str, Any] = {"linewidth": 1.8, "markeredgecolor": "#000000"}
        label = f"survives the noise with {at_least}95 % probability"
        (self.survives_,) = ax.plot(epsilons, survives, "o-", color=COLOURS[1], label=label, **how)
        self.largest_ = self.drowned_ = None
        leads = [decision.largest_lead for decision in decisions]
        if None not in leads:
            largest = np.array(leads, dtype=np.float64)
            how |= {"label": f"largest that {self.plans[0].n_samples:,} rows can give"}
            (self.largest_,) = ax.plot(epsilons, largest, "s--", color=COLOURS[0], **how)
            if any(decision.noise_dominates for decision in decisions):
                self.drowned_ = ax.fill_between(
                    epsilons,
                    largest,
                    survives,
                    where=(largest < survives).tolist(),
                    interpolate=True,
                    facecolor="#dddddd",
                    edgecolor="#777777",
                    hatch="///",
                    linewidth=0.0,
                    label="noise dominates every decision",
                )
        ax.set_yscale("log")
        drawing.epsilon_axis(ax, epsilons)
        drawing.plain_ticks(ax.yaxis)
        ax.set(
            xlabel=self._epsilon_label(),
            ylabel=f"lead of one class over another, row of norm {decisions[0].data_norm:g}",
        )
        # Below this, the lead is lost in noise.
        bottom, _ = ax.get_ylim()
        ax.fill_between(epsilons, bottom, survives, color=COLOURS[1], alpha=0.12, linewidth=0)
        ax.set_ylim(bottom)
        ax.grid(alpha=0.3)
        ax.legend(loc="upper left", frameon=False)

    def _plot_budget(self, ax: Axes) -> None:
        """Draw a bar for every epsilon, divided into the shares of the releases."""
        table = [_budget_shares(plan) for plan in self.plans]
        names = [name for name in RELEASES if any(name in shares for shares in table)]
        places = np.arange(len(table))
        bottoms = np.zeros(len(table))
        to_rgba = drawing.matplotlib_module("colors").to_rgba
        self.bars_ = []
        for i, name in enumerate(names):
            heights = 100.0 * np.array([shares.get(name, 0.0) for shares in table])
            look = {"color": to_rgba(COLOURS[i], 0.35), "edgecolor": "#000000"}
            look["hatch"] = drawing.HATCHES[i]
            bars = ax.bar(places, heights, 0.7, bottoms, label=name, **look)
            texts = [f"{height:.0f} %" if height >= SMALLEST_LABELLED else "" for height in heights]
            ax.bar_label(bars, texts, label_type="center", bbox=drawing.NAME_BOX)
            self.bars_.append(bars)
            bottoms += heights
        slant = 45.0 if len(self.plans) > MANY_BARS else 0.0
        ax.set_xticks(places, [f"{plan.epsilon:g}" for plan in self.plans], rotation=slant)
        unit = r"$\epsilon$" if self.plans[0].mu is None else r"$\mu^2$"
        ax.set(xlabel=self._epsilon_label(), ylabel=f"share of the budget ({unit}) in %")
        drawing.legend_outside(ax)

    def _epsilon_label(self) -> str:
        """Return the label of the epsilon axis, with delta if all plans share one."""
        deltas = {plan.delta for plan in self.plans}
        return drawing.epsilon_label(deltas.pop() if len(deltas) == 1 else None)


def _budget_shares(plan: NoisePlan) -> dict[str, float]:
    """Return each release's share of the budget; the training gets the rest."""
    centre, whitening, training = RELEASES
    shares = {}
    if plan.centre is not None:
        # Exactly one of the two is given.
        shares[centre] = plan.centre.mu_share or (plan.centre.epsilon or 0.0) / plan.epsilon
    if plan.whitening is not None and plan.whitening.whitened:
        shares[whitening] = plan.whitening.mu_share
    return {**shares, training: 1.0 - sum(shares.values())}


EVALUATIONS = ("roc", "calibration", "confusion_matrix")


class EvaluationDisplay(Display):
    """Curves and counts of a private evaluation, with confidence intervals.

    Parameters
    ----------
    evaluation : Evaluation
        Result of :func:`dpsvm_fast.metrics.evaluate`.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
    line_ : matplotlib Line2D or None
        Curve; None for a confusion matrix.
    intervals_ : list of matplotlib artists
        95 % intervals of the points of the curve, or the texts of the counts.
    image_ : matplotlib AxesImage or None
        Shares of predictions among the rows of each label; for a confusion matrix only.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from dpsvm_fast import PrivateLinearSVC
    >>> from dpsvm_fast.metrics import evaluate
    >>> from dpsvm_fast.plotting import EvaluationDisplay
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = PrivateLinearSVC(4.0, classes=[0, 1]).fit(X[:300], y[:300])
    >>> found = evaluate(model, X[300:], y[300:], metrics=["roc"])
    >>> display = EvaluationDisplay.from_evaluation(found)  # doctest: +SKIP
    """

    def __init__(self, *, evaluation: Evaluation) -> None:
        check.check_type("evaluation", evaluation, Evaluation, "what evaluate() returns")
        self.evaluation = evaluation

    @classmethod
    def from_evaluation(
        cls, evaluation: Evaluation, *, kind: str = "roc", ax: Axes | None = None
    ) -> EvaluationDisplay:
        """Draw one metric of an evaluation; costs no budget.

        Parameters
        ----------
        evaluation : Evaluation
        kind : {"roc", "calibration", "confusion_matrix"}, default="roc"
            One of the requested metrics.
        ax : matplotlib Axes or None, default=None
            None makes a new figure.

        Returns
        -------
        EvaluationDisplay

        Raises
        ------
        InvalidParameterError
            The kind is unknown, or the metric was not requested.
        ImportError
            matplotlib is missing.
        """
        return cls(evaluation=evaluation).plot(kind=kind, ax=ax)

    def plot(self, ax: Axes | None = None, *, kind: str = "roc") -> EvaluationDisplay:
        """Draw on ``ax``, or on a new figure.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
        kind : {"roc", "calibration", "confusion_matrix"}, default="roc"

        Returns
        -------
        EvaluationDisplay

        Raises
        ------
        InvalidParameterError
            The kind is unknown, or the metric was not requested.
        """
        check.check_option("kind", kind, EVALUATIONS)
        if kind not in self.evaluation.metrics:
            accepted = f"one of the requested metrics: {self.evaluation.metrics}"
            raise InvalidParameterError.of("kind", got=kind, accepted=accepted)
        return self._drawn(ax, kind)

    def _draw(self, ax: Axes, kind: str) -> None:
        self.line_: Any = None
        self.image_: Any = None
        self.intervals_: list[Any] = []
        promise = self.evaluation.privacy_
        budget = rf"$\epsilon$ = {promise.epsilon:g} and $\delta$ = {promise.delta:g}"
        title = f"Private evaluation, {budget} for {promise.unit}s"
        ax.set_title(title, fontsize="medium", loc="left")
        if kind == "confusion_matrix":
            self._plot_counts(ax)
            return
        if kind == "roc":
            curve, area = self.evaluation.roc, self.evaluation.auc
            x, y = curve.false_positive_rate, curve.true_positive_rate
            label = f"area {area.value:.3f}, 95 % interval {area.low:.3f} to {area.high:.3f}"
            names = ("false positive rate", "true positive rate")
        else:
            shares = self.evaluation.calibration
            y, label, positive = shares.observed, "observed", self.evaluation.positive
            what = "right predictions" if positive is None else "positive rows"
            names = ("probability", f"share of {what}")
            x = Estimate(0.5 * (shares.low + shares.high), shares.low, shares.high)
        sides, ends = (np.abs([one.value - one.low, one.high - one.value]) for one in (x, y))
        look: dict[str, Any] = {"color": COLOURS[0], "linewidth": 2.2, "zorder": 3}
        (self.line_,) = ax.plot(x.value, y.value, "o-", markersize=4, label=label, **look)
        bars: dict[str, Any] = {"fmt": "none", "ecolor": COLOURS[0], "elinewidth": 1, "alpha": 0.35}
        self.intervals_ = [ax.errorbar(x.value, y.value, ends, sides, **bars)]
        diagonal = "chance" if kind == "roc" else "calibrated"
        ax.plot([0, 1], [0, 1], ":", color="#777777", label=diagonal)
        ax.set(xlabel=names[0], ylabel=names[1], xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
        ax.legend(loc="lower right" if kind == "roc" else "upper left", frameon=False)

    def _plot_counts(self, ax: Axes) -> None:
        """Draw a cell for each pair of labels, with its count and half the interval's width."""
        found, names = self.evaluation.confusion_matrix, class_names(self.evaluation.classes)
        rows = np.maximum(found.value.sum(axis=1, keepdims=True), 1.0)
        self.image_ = ax.imshow(found.value / rows, cmap="Greys", vmin=0.0, vmax=1.0)
        for i, j in np.ndindex(found.value.shape):
            half = 0.5 * (found.high[i, j] - found.low[i, j])
            colour = "#ffffff" if found.value[i, j] > 0.5 * rows[i, 0] else "#000000"
            text = f"{found.value[i, j]:.0f}\n\u00b1{half:.0f}"
            self.intervals_.append(ax.text(j, i, text, ha="center", va="center", color=colour))
        ax.set_xticks(range(len(names)), names)
        ax.set_yticks(range(len(names)), names)
        ax.set(xlabel="predicted label", ylabel="true label")
