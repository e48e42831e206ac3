"""The curve of guarantees of a release, as a scikit-learn Display object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from dpsvm_fast._display_bases import AxesDisplay
from dpsvm_fast._drawing import COLOURS, NOT_PRIVATE
from dpsvm_fast.accounting import (
    AlternativesEvent,
    FederatedStatement,
    ObjectiveEvent,
    ParallelEvent,
    PipelineStatement,
    PrivacyStatement,
    RandomStoppingEvent,
    SelectionStatement,
    composed_delta,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["PrivacyProfileDisplay"]

CURVE_COLOUR, MARK_COLOUR = COLOURS[0], COLOURS[1]
# Points of a privacy profile, from epsilon 0 to this multiple of the claimed one.
PROFILE_POINTS, PROFILE_REACH = 201, 2.0
# Fewer where each takes a search, or the law of noise in an objective many times over.
DEAR_PROFILE_POINTS = 51
DEAR_EVENTS = (AlternativesEvent, ObjectiveEvent, ParallelEvent, RandomStoppingEvent)
STATEMENTS = (PrivacyStatement, PipelineStatement, SelectionStatement, FederatedStatement)
# A profile is drawn down to this share of the claimed delta.
PROFILE_DEPTH = 1e-4


class PrivacyProfileDisplay(AxesDisplay):
    """Delta against epsilon: every guarantee that one release gives, with the claimed one marked.

    Parameters
    ----------
    epsilons, deltas : array-like of shape (n_points,)
        The curve.
    claimed : tuple of float
        The (epsilon, delta) of the statement.
    private : bool, default=True
        Whether the statement promises anything.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
    line_ : matplotlib Line2D
        The curve, where delta is positive.
    mark_ : matplotlib Line2D
        The claimed point; a vertical line where the claimed delta is 0.

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
        cls,
        statement: PrivacyStatement | PipelineStatement | SelectionStatement | FederatedStatement,
        *,
        ax: Axes | None = None,
    ) -> PrivacyProfileDisplay:
        """Draw the profile of a statement's events; costs no budget.

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
        if not isinstance(statement, STATEMENTS):
            raise TypeError(
                f"statement: got {type(statement).__name__}, expected a statement, such as "
                "model.privacy_"
            )
        dear = any(isinstance(event, DEAR_EVENTS) for event in statement.events)
        points = DEAR_PROFILE_POINTS if dear else PROFILE_POINTS
        epsilons = np.linspace(0.0, PROFILE_REACH * statement.epsilon, points)
        deltas = [composed_delta(statement.events, float(epsilon)) for epsilon in epsilons]
        claimed = (statement.epsilon, statement.delta)
        display = cls(epsilons=epsilons, deltas=deltas, claimed=claimed, private=statement.private)
        return display.plot(ax=ax)

    def _draw(self, ax: Axes) -> None:
        epsilon, delta = self.claimed
        # A logarithmic axis has no zero.
        shown = np.where(self.deltas > 0.0, self.deltas, np.nan)
        (self.line_,) = ax.plot(self.epsilons, shown, color=CURVE_COLOUR, label="this release")
        claim: dict[str, Any] = {
            "color": MARK_COLOUR,
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
        if not self.private:
            ax.set_title(NOT_PRIVATE)
        ax.grid(alpha=0.3)
        ax.set_xlim(self.epsilons[0], self.epsilons[-1])
        ax.legend(loc="lower left")
