"""Noise that is to be expected before anything is spent, as a scikit-learn Display object."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast._drawing import (
    COLOURS,
    HATCHES,
    axes_for,
    epsilon_axis,
    legend_beside,
    matplotlib_module,
)
from dpsvm_fast._validation import check_option
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.planning import NoisePlan

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PolyCollection

__all__ = ["NoisePlanDisplay"]

KINDS = ("lead", "budget")
# What plans side by side have in common; they differ in epsilon and delta.
COMMON = ("estimator", "adjacency", "n_features", "n_classes", "n_samples")

# In the order in which they are made.
RELEASES = ("centre and number of rows", "whitening", "training")
# Epsilons under more bars than this are slanted, or they run into each other.
MANY_BARS = 8


class NoisePlanDisplay:
    """What the noise will be at several epsilons, from plans that looked at no data.

    ``kind="lead"`` shows, against epsilon, the lead of one class over another that survives the
    noise of a prediction with probability 95 %, beside the largest that so many rows can bring
    about. Where the first is above the second the noise drowns every decision. ``kind="budget"``
    shows what part of the budget each release takes.

    Parameters
    ----------
    plans : NoisePlan or iterable of them
        Of :func:`dpsvm_fast.planning.plan_noise`, with one epsilon each, for one estimator and one
        shape of the data.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
    survives_ : matplotlib Line2D
        The lead that survives the noise. ``kind="lead"`` only.
    largest_ : matplotlib Line2D or None
        The largest lead; None for plans without a number of rows. ``kind="lead"`` only.
    drowned_ : matplotlib PolyCollection or None
        Where the noise drowns decisions; None where it does not. ``kind="lead"`` only.
    bars_ : list of matplotlib BarContainer
        One for each release. ``kind="budget"`` only.

    Raises
    ------
    TypeError
        Something else than plans.
    InvalidParameterError
        No plan, plans for different fits, or two of one epsilon.

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
        plans = (plans,) if isinstance(plans, NoisePlan) else tuple(plans)
        for plan in plans:
            if not isinstance(plan, NoisePlan):
                raise TypeError(f"plans: got {type(plan).__name__}, expected plans of plan_noise()")
        if not plans:
            raise InvalidParameterError.of("plans", got=[], accepted="at least one plan")
        for name in COMMON:
            if len({getattr(plan, name) for plan in plans}) > 1:
                raise InvalidParameterError(f"plans: expected the same {name} in all of them")
        if len({plan.epsilon for plan in plans}) < len(plans):
            raise InvalidParameterError("plans: expected one plan for each epsilon")
        self.plans = tuple(sorted(plans, key=lambda plan: plan.epsilon))

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
            Another kind, or plans of which a number of rows decides what there is to be shown.
        """
        check_option("kind", kind, KINDS)
        if kind == "lead" and any(plan.decision is None for plan in self.plans):
            raise InvalidParameterError.of(
                "plans",
                got="plans without n_samples",
                accepted="plans with it: it decides the noise",
            )
        matplotlib_module("figure")
        self.ax_ = ax = axes_for(ax)
        self.figure_ = ax.figure
        (self._plot_lead if kind == "lead" else self._plot_budget)(ax)
        ax.set_title(self._title(), fontsize="medium", loc="left")
        return self

    def _title(self) -> str:
        """What the plans are for."""
        plan = self.plans[0]
        rows = "" if plan.n_samples is None else f"{plan.n_samples:,} rows, "
        return f"{plan.estimator}: {rows}{plan.n_features} features, {plan.n_classes} classes"

    def _plot_lead(self, ax: Axes) -> None:
        """Lead that survives the noise beside the largest that rows can bring about."""
        epsilons = np.array([plan.epsilon for plan in self.plans])
        decisions = [plan.decision for plan in self.plans if plan.decision is not None]
        survives = np.array([decision.lead for decision in decisions])
        at_least = "at least " if decisions[0].is_bound else ""
        how: dict[str, Any] = {"linewidth": 1.8, "markeredgecolor": "#000000"}
        (self.survives_,) = ax.plot(
            epsilons,
            survives,
            "o-",
            color=COLOURS[1],
            label=f"survives the noise with {at_least}95 %",
            **how,
        )
        self.largest_ = self.drowned_ = None
        leads = [decision.largest_lead for decision in decisions]
        if None not in leads:
            largest = np.array(leads, dtype=np.float64)
            (self.largest_,) = ax.plot(
                epsilons,
                largest,
                "s--",
                color=COLOURS[0],
                label=f"largest that {self.plans[0].n_samples:,} rows allow",
                **how,
            )
            if any(decision.drowned for decision in decisions):
                self.drowned_ = _hatched(ax, epsilons, largest, survives)
        ax.set_yscale("log")
        epsilon_axis(ax, epsilons)
        ax.set(
            xlabel=self._epsilon_label(),
            ylabel=f"lead of one class over another,\nrow of norm {decisions[0].data_norm:g}",
        )
        ax.grid(alpha=0.3)
        ax.legend(loc="best")

    def _plot_budget(self, ax: Axes) -> None:
        """A bar for every epsilon, cut into the shares of the releases."""
        table = [_shares(plan) for plan in self.plans]
        names = [name for name in RELEASES if any(name in shares for shares in table)]
        places = np.arange(len(table))
        bottoms = np.zeros(len(table))
        self.bars_ = []
        for i, name in enumerate(names):
            heights = 100.0 * np.array([shares.get(name, 0.0) for shares in table])
            bars = ax.bar(
                places,
                heights,
                bottom=bottoms,
                color=matplotlib_module("colors").to_rgba(COLOURS[i], 0.35),
                edgecolor="#000000",
                hatch=HATCHES[i],
                label=name,
                width=0.7,
            )
            self.bars_.append(bars)
            bottoms += heights
        slant = 45.0 if len(self.plans) > MANY_BARS else 0.0
        ax.set_xticks(places, [f"{plan.epsilon:g}" for plan in self.plans], rotation=slant)
        unit = r"$\epsilon$" if self.plans[0].mu is None else r"$\mu^2$"
        ax.set(xlabel=self._epsilon_label(), ylabel=f"share of the budget ({unit}) in %")
        legend_beside(ax)

    def _epsilon_label(self) -> str:
        """The axis of epsilons, with delta where all plans have one."""
        deltas = {plan.delta for plan in self.plans}
        delta = rf" at $\delta$ = {deltas.pop():g}" if len(deltas) == 1 else ""
        return rf"$\epsilon${delta} (smaller is more private)"


def _hatched(
    ax: Axes,
    epsilons: NDArray[np.float64],
    largest: NDArray[np.float64],
    survives: NDArray[np.float64],
) -> PolyCollection:
    """Where no lead that rows can bring about survives the noise."""
    return ax.fill_between(
        epsilons,
        largest,
        survives,
        where=(largest < survives).tolist(),
        interpolate=True,
        facecolor="#dddddd",
        edgecolor="#777777",
        hatch="///",
        linewidth=0.0,
        label="noise drowns every decision",
    )


def _shares(plan: NoisePlan) -> dict[str, float]:
    """Part of the budget of each release; what is not planned apart is the training's."""
    centre, whitening, training = RELEASES
    shares = {}
    if plan.centre is not None:
        share = plan.centre.mu_share
        if share is None:
            assert plan.centre.epsilon is not None
            share = plan.centre.epsilon / plan.epsilon
        shares[centre] = share
    if plan.whitening is not None and plan.whitening.whitened:
        shares[whitening] = plan.whitening.mu_share
    return {**shares, training: 1.0 - sum(shares.values())}
