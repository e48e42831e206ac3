"""FedDPDR's Figure 2: accuracy along the number of components."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benches.papers import feddpdr_curves
from benches.papers.cells import Statement
from benches.papers.feddpdr import (
    DIMENSIONS,
    EPSILON,
    FEDERATED,
    N_ROWS,
    TASKS,
)
from benches.papers.feddpdr_curves import PROTOCOL, analyse, everywhere, growing
from benches.tables import Row

TITLE = "FedDPDR (CMC 2024), Figure 2: the number of components"
DATA = TASKS
QUICK_DATA, QUICK_REPEATS = ("3 or 8",), 1
REPEATS = 3
ALONG, LABEL = "k", "k"
# Of the text: "does not change much".
LITTLE = 0.02


def _still(table: Sequence[Row]) -> list[bool]:
    """Whether accuracy beyond 20 components stays within ``LITTLE``."""
    return [
        abs(float(found[100.0]["accuracy"]) - float(found[20.0]["accuracy"])) <= LITTLE
        for method in ("Non-Priv", "DPDR-DPML", FEDERATED)
        if {20.0, 100.0} <= set(found := feddpdr_curves.curve(table, method, ALONG))
    ]


SAID = (
    Statement(
        "accuracy grows with k, for all mechanisms (section 5.2.1)",
        growing(ALONG, ["Non-Priv", "DPDR-DPML", FEDERATED]),
    ),
    Statement(f"it changes little beyond k = 20 (here: at most {LITTLE:g} from 20 to 100)", _still),
    Statement(
        "FedDPDR-DPML and DPDR-DPML are much better than DPML",
        everywhere(ALONG, [FEDERATED, "DPDR-DPML"], ["DPML"]),
    ),
    Statement(
        "FedDPDR-DPML is the best private method",
        everywhere(ALONG, [FEDERATED], ["DPDR-DPML", "DPML"]),
    ),
    feddpdr_curves.ours(ALONG),
)


def run(names: Sequence[str], repeats: int | None) -> list[Row]:
    """One row a training."""
    spots = [(k, EPSILON, N_ROWS) for k in DIMENSIONS]
    return feddpdr_curves.run(names, repeats or REPEATS, spots)


def failures(table: Sequence[Row]) -> list[str]:
    """Guarantees that do not hold."""
    return feddpdr_curves.failures(table, "feddpdr_figure2")


def plot(table: Sequence[Row], path: Path) -> None:
    """Accuracy along k."""
    feddpdr_curves.plot(table, path, ALONG, "components")


def page(table: Sequence[Row]) -> str:
    """Accuracies, and what the paper says."""
    return feddpdr_curves.page(table, ALONG, LABEL, SAID)


__all__ = ["PROTOCOL", "analyse"]

if __name__ == "__main__":
    from benches.papers.command import script

    raise SystemExit(script(__file__))
