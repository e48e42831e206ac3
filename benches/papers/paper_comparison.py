"""Our accuracies next to the paper's, by data set and epsilon: a picture and Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benches.papers.cells import grid, shown
from benches.papers.drawing import Panel, panels
from benches.tables import Row


def curves(
    table: Sequence[Row], path: Path, *, ours: str, paper: str, columns: int | None = None
) -> None:
    """Ours and the paper's along epsilon, one panel a data set, below the linear model's line."""
    drawn = []
    for name in dict.fromkeys(row["data"] for row in table):
        own = [row for row in table if row["data"] == name]
        lines = {
            ours: [
                (float(row["epsilon"]), float(row["accuracy"]), float(row["standard_error"] or 0))
                for row in own
            ],
            paper: [
                (float(row["epsilon"]), float(row["paper"]), 0.0) for row in own if row["paper"]
            ],
        }
        title = name
        if "linear" in own[0]:
            level = float(own[0]["linear"])
            lines["linear, not private"] = [(float(row["epsilon"]), level, 0.0) for row in own]
            title += f", majority {float(own[0]['majority']):.2f}"
        drawn.append(Panel(title, lines))
    panels(path, drawn, x_label="ε", columns=columns)


def by_epsilon(table: Sequence[Row], head: str = "ours / paper") -> str:
    """One line a data set; ours with its standard error, after the slash the paper's."""
    epsilons = sorted({row["epsilon"] for row in table}, key=float)
    cells = {(row["data"], row["epsilon"]): row for row in table}
    return grid(
        (head, *(f"ε = {epsilon}" for epsilon in epsilons)),
        (
            (name, *(_cell(cells.get((name, epsilon))) for epsilon in epsilons))
            for name in dict.fromkeys(row["data"] for row in table)
        ),
    )


def _cell(row: Row | None) -> str:
    """Both figures, where the paper has one."""
    return shown(row) + (f" / {float(row['paper']):.3f}" if row and row["paper"] else "")


def reached(table: Sequence[Row]) -> str:
    """In how many cells ours is at least the paper's: a sentence."""
    judged = [row for row in table if row["paper"]]
    above = sum(float(row["accuracy"]) >= float(row["paper"]) for row in judged)
    return f"At least as accurate as the paper's best method in {above} of {len(judged)} cells."
