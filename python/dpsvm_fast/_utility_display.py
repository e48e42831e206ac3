"""What privacy costs in accuracy, as a scikit-learn Display object."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone, is_classifier

from dpsvm_fast._display_bases import AxesDisplay
from dpsvm_fast._drawing import COLOURS, epsilon_axis, matplotlib_module
from dpsvm_fast._rounding import add_up, div_down, mul_down
from dpsvm_fast._validation import check_epsilon, check_integer
from dpsvm_fast.estimators._planned_events import private_steps
from dpsvm_fast.exceptions import InvalidParameterError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["PrivacyUtilityDisplay", "private_scores"]

PRIVATE_COLOUR, CEILING_COLOUR = COLOURS[0], COLOURS[-1]


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
    """Test score of fresh private fits, several for every epsilon.

    Parameters
    ----------
    estimator : private classifier, or Pipeline with one at its end
        Cloned for every fit, with its ``epsilon`` replaced; several private steps divide it in
        the proportion of theirs. Ledgers, if any, are charged. From a ``random_state``, if any,
        every fit gets a seed of its own.
    X : array-like, data frame or CSR matrix of shape (n_samples, n_features)
    y : array-like of shape (n_samples,)
    X_test : array-like, data frame or CSR matrix of shape (n_test, n_features)
    y_test : array-like of shape (n_test,)
    epsilons : sequence of float in (0, 1e4]
        Of all steps together.
    n_repeats : int >= 1
        Fits for every epsilon; they differ in their noise only.

    Returns
    -------
    ndarray of shape (n_epsilons, n_repeats)

    Raises
    ------
    InvalidParameterError, TypeError
        No or a wrong epsilon, a wrong ``n_repeats``, or an estimator without private steps;
        nothing was fitted.

    Notes
    -----
    Guarantees: none of its own. Every fit is a release that costs its epsilon and delta, so
    that scores on private data cost the budgets of all fits together; scores on private test
    rows are protected by nothing. Meant for public or demonstration data.

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
    budgets = [check_epsilon(epsilon, "epsilons") for epsilon in epsilons]
    if not budgets:
        raise InvalidParameterError.of("epsilons", got=[], accepted="at least one epsilon")
    n_repeats = check_integer("n_repeats", n_repeats, 1)
    shape = (len(budgets), n_repeats)
    scores = np.empty(shape)
    seeds = [
        _seeds(step.random_state, place, shape) for place, step in enumerate(_private(estimator))
    ]
    for i, epsilon in enumerate(budgets):
        for j in range(n_repeats):
            model = clone(estimator)
            for step, share, own in zip(_private(model), shares, seeds, strict=True):
                step.set_params(epsilon=mul_down(share, epsilon), random_state=own[i, j])
            scores[i, j] = model.fit(X, y).score(X_test, y_test)
    return scores


def _private(estimator: Any) -> list[Any]:
    """The estimators inside that make releases, in the order in which rows meet them."""
    return [step.estimator for step in private_steps(estimator)]


def _shares(estimator: Any) -> list[float]:
    """What part of an epsilon each private step gets; by basic composition they add up to 1."""
    steps = _private(estimator)
    known = all(hasattr(step, "delta") and hasattr(step, "random_state") for step in steps)
    # A Pipeline without a classifier has no score, which would be found out after its fit.
    if not (steps and known and is_classifier(estimator)):
        raise TypeError(
            f"estimator: got {type(estimator).__name__}, expected a classifier with the parameters "
            "epsilon, delta and random_state, or a Pipeline with one at its end"
        )
    own = [check_epsilon(step.epsilon) for step in steps]
    total = add_up(*own)
    return [1.0] if len(own) == 1 else [div_down(one, total) for one in own]


def _seeds(random_state: int | None, place: int, shape: tuple[int, int]) -> NDArray[np.object_]:
    """One seed a fit and step: with a single one, every repeat would be the same model."""
    seeds = np.full(shape, None, dtype=object)
    if random_state is not None:
        entropy = random_state if place == 0 else (random_state, place)
        words = np.random.SeedSequence(entropy).generate_state(seeds.size, np.uint64)
        seeds[:] = words.astype(object).reshape(shape)
    return seeds


class PrivacyUtilityDisplay(AxesDisplay):
    """Accuracy against epsilon: mean and spread over noise draws, under the non-private ceiling.

    Parameters
    ----------
    epsilons : array-like of shape (n_epsilons,)
        Positive.
    scores : array-like of shape (n_epsilons, n_repeats)
        Scores of independent private fits.
    non_private_score : float or None, default=None
        Score of a model without noise.
    delta : float or None, default=None
        Named on the axis.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
    line_, band_ : matplotlib artists
        Mean, and mean plus and minus one standard deviation over the draws.
    ceiling_ : matplotlib Line2D or None
        The dashed line of the non-private score.

    Raises
    ------
    InvalidParameterError
        Scores that are not one row for every epsilon.

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
        delta: float | None = None,
    ) -> None:
        self.epsilons = np.asarray(epsilons, dtype=np.float64)
        self.scores = np.asarray(scores, dtype=np.float64)
        self.non_private_score = non_private_score
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
            Cloned for every fit, with its ``epsilon`` replaced; several private steps divide it
            in the proportion of theirs.
        X : array-like, data frame or CSR matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        X_test : array-like, data frame or CSR matrix of shape (n_test, n_features)
        y_test : array-like of shape (n_test,)
        epsilons : sequence of float in (0, 1e4]
            Of all steps together, by basic composition: `total_privacy` may promise less.
        n_repeats : int >= 1, default=10
            Fits for every epsilon.
        non_private : classifier or None, default=None
            Cloned and fitted once for the dashed line.
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
            A wrong epsilon or ``n_repeats``, or an estimator without private steps. Nothing was
            fitted or spent.

        Notes
        -----
        Guarantees: every fit is a real release. Such a figure on private data costs the budgets
        of all its fits together (a ledger on the estimator is charged for each), and the ceiling
        has no protection at all: meant for public or demonstration data.
        """
        matplotlib_module("figure")
        test = {"X_test": X_test, "y_test": y_test}
        scores = private_scores(estimator, X, y, **test, epsilons=epsilons, n_repeats=n_repeats)
        ceiling = None
        if non_private is not None:
            ceiling = float(clone(non_private).fit(X, y).score(X_test, y_test))
        delta = add_up(*(step.delta for step in _private(estimator)))
        display = cls(epsilons=epsilons, scores=scores, non_private_score=ceiling, delta=delta)
        return display.plot(ax=ax)

    def _draw(self, ax: Axes) -> None:
        order = np.argsort(self.epsilons)
        epsilons, scores = self.epsilons[order], self.scores[order]
        n_repeats = scores.shape[1]
        mean = scores.mean(axis=1)
        spread = scores.std(axis=1, ddof=1) if n_repeats > 1 else np.zeros_like(mean)
        (self.line_,) = ax.plot(
            epsilons, mean, "o-", color=PRIVATE_COLOUR, label=_mean_label(n_repeats)
        )
        self.band_ = ax.fill_between(
            epsilons,
            mean - spread,
            mean + spread,
            color=PRIVATE_COLOUR,
            alpha=0.2,
            linewidth=0,
            label="one standard deviation" if n_repeats > 1 else None,
        )
        self.ceiling_ = None
        if self.non_private_score is not None:
            self.ceiling_ = ax.axhline(
                self.non_private_score, color=CEILING_COLOUR, linestyle="--", label="not private"
            )
        epsilon_axis(ax, epsilons)
        delta = "" if self.delta is None else rf" at $\delta$ = {self.delta:g}"
        ax.set(xlabel=rf"$\epsilon${delta} (smaller is more private)", ylabel="test accuracy")
        ax.grid(alpha=0.3)
        ax.legend(loc="lower right")


def _mean_label(n_repeats: int) -> str:
    """Name of the curve."""
    return f"private, mean of {n_repeats} noise draws" if n_repeats > 1 else "private"
