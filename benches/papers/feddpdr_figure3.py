"""FedDPDR's Figure 3: accuracy along epsilon."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benches.papers import feddpdr_curves
from benches.papers.cells import Statement
from benches.papers.feddpdr import (
    DIMENSION,
    EPSILONS,
    FEDERATED,
    N_ROWS,
    TASKS,
)
from benches.papers.feddpdr_curves import PROTOCOL, analyse, everywhere
from benches.tables import Row

TITLE = "FedDPDR (CMC 2024), Figure 3: epsilon"
DATA = TASKS
QUICK_DATA, QUICK_REPEATS = ("3 or 8",), 1
REPEATS = 3
ALONG, LABEL = "epsilon", "ε"
SAID = (
    Statement(
        "FedDPDR-DPML is close to Non-Priv, and closer than the other private methods "
        "(here: above them)",
        everywhere(ALONG, [FEDERATED], ["DPDR-DPML", "DPML"]),
    ),
    Statement(
        "DPDR-DPML is much better than DPML at the same ε",
        everywhere(ALONG, ["DPDR-DPML"], ["DPML"]),
    ),
    feddpdr_curves.ours(ALONG),
)


def run(names: Sequence[str], repeats: int | None) -> list[Row]:
    """One row a training."""
    spots = [(DIMENSION, epsilon, N_ROWS) for epsilon in EPSILONS]
    return feddpdr_curves.run(names, repeats or REPEATS, spots)


def failures(table: Sequence[Row]) -> list[str]:
    """Guarantees that do not hold."""
    return feddpdr_curves.failures(table, "feddpdr_figure3")


def plot(table: Sequence[Row], path: Path) -> None:
    """Accuracy along epsilon."""
    feddpdr_curves.plot(table, path, ALONG, "ε")


def page(table: Sequence[Row]) -> str:
    """Accuracies, and what the paper says."""
    return feddpdr_curves.page(table, ALONG, LABEL, SAID)


__all__ = ["PROTOCOL", "analyse"]

if __name__ == "__main__":
    from benches.papers.command import script

    raise SystemExit(script(__file__))
