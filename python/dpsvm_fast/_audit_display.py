"""Both worlds of an audit as histograms, as a scikit-learn Display object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dpsvm_fast._display_bases import AxesDisplay
from dpsvm_fast._drawing import COLOURS
from dpsvm_fast.audit import AuditReport
from dpsvm_fast.exceptions import InvalidParameterError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["AuditDisplay"]


class AuditDisplay(AxesDisplay):
    """The statistic of an audit in both worlds, where it was cut, the claim and the bound.

    One world is filled, the other an outline, so that they are told apart without colours.

    Parameters
    ----------
    report : AuditReport
        Of :func:`dpsvm_fast.audit.audit`.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
    worlds_ : list of matplotlib StepPatch
        The filled histogram and the outline.
    threshold_ : matplotlib Line2D
        Where the statistic was cut.

    Raises
    ------
    InvalidParameterError
        A report without a histogram: of one run, or of densities.

    Examples
    --------
    >>> from dpsvm_fast import OutputPerturbationSVC
    >>> from dpsvm_fast.audit import audit
    >>> from dpsvm_fast.plotting import AuditDisplay
    >>> report = audit(OutputPerturbationSVC(1.0, 1e-5, C=0.1), n_trials=10_000)
    >>> display = AuditDisplay.from_report(report)  # doctest: +SKIP
    """

    def __init__(self, *, report: AuditReport) -> None:
        if not isinstance(report, AuditReport):
            raise TypeError(f"report: got {type(report).__name__}, expected an AuditReport")
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
            None draws on new ones.

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
                first, edges, fill=True, color=COLOURS[0], alpha=0.45, label="first data set"
            ),
            ax.stairs(second, edges, color=COLOURS[-1], linewidth=1.4, label="second data set"),
        ]
        self.threshold_ = ax.axvline(
            report.threshold, color=COLOURS[1], linestyle="--", label="cut, chosen beforehand"
        )
        refuted = "  (refuted)" if report.exceeds_claim else ""
        ax.set_title(
            f"{report.mechanism}, {report.adjacency}\n"
            f"claimed: epsilon {report.epsilon:.3g}   "
            f"certified: epsilon ≥ {report.certified:.3g}{refuted}"
        )
        ax.set_xlabel(f"{report.statistic}, {report.n_trials:,} runs of each")
        ax.set_ylabel("share of the runs")
        # Room for the legend above the histograms.
        ax.set_ylim(0.0, 1.35 * max(first.max(), second.max(), 1e-9))
        ax.legend(frameon=False)
