"""FedDPDR's Figure 4: accuracy along the number of rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benches.papers import feddpdr_curves
from benches.papers.cells import Statement
from benches.papers.feddpdr import (
    DIMENSION,
    EPSILON,
    FEDERATED,
    SIZES,
    TASKS,
)
from benches.papers.feddpdr_curves import PROTOCOL, analyse, everywhere, growing
from benches.tables import Row

TITLE = "FedDPDR (CMC 2024), Figure 4: the number of rows"
DATA = TASKS
QUICK_DATA, QUICK_REPEATS = ("3 or 8",), 1
REPEATS = 3
ALONG, LABEL = "n", "n"
SAID = (
    Statement(
        "accuracy grows with n, for the three private mechanisms",
        growing(ALONG, ["DPML", "DPDR-DPML", FEDERATED]),
    ),
    Statement("FedDPDR-DPML is always better than DPML", everywhere(ALONG, [FEDERATED], ["DPML"])),
    Statement("DPDR-DPML is better than DPML", everywhere(ALONG, ["DPDR-DPML"], ["DPML"])),
    feddpdr_curves.ours(ALONG),
)


def run(names: Sequence[str], repeats: int | None) -> list[Row]:
    """One row a training."""
    spots = [(DIMENSION, EPSILON, n) for n in SIZES]
    return feddpdr_curves.run(names, repeats or REPEATS, spots)


def failures(table: Sequence[Row]) -> list[str]:
    """Guarantees that do not hold."""
    return feddpdr_curves.failures(table, "feddpdr_figure4")


def plot(table: Sequence[Row], path: Path) -> None:
    """Accuracy along n."""
    feddpdr_curves.plot(table, path, ALONG, "rows per party")


def page(table: Sequence[Row]) -> str:
    """Accuracies, and what the paper says."""
    return feddpdr_curves.page(table, ALONG, LABEL, SAID)


__all__ = ["PROTOCOL", "analyse"]

if __name__ == "__main__":
    from benches.papers.command import script

    raise SystemExit(script(__file__))
