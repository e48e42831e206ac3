"""Error along Lambda at one epsilon: Figure 4 of Sarwate, Chaudhuri and Monteleoni (2009).

Adult at epsilon 0.1, and KDDCup99 at 0.05 where ``benches.papers.scm`` finds its file.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from benches.papers import cells, drawing, scm, scm_figure3
from benches.tables import Row, as_rows

TITLE = "SCM, Figure 4: error along Λ"
PROTOCOL: tuple[str, ...] = (
    *scm.ROWS,
    *scm.ACCOUNTING,
    "The paper's Algorithm 1 is that of its Figure 3.",
    "KDDCup99 (panel b) is not measured.",
)
DATA: tuple[str, ...] = ("adult", "kddcup99")
QUICK_DATA: tuple[str, ...] = ("adult",)
QUICK_REPEATS = 1

EPSILON = {"adult": 0.1, "kddcup99": 0.05}
METHODS = (scm.NOT_PRIVATE, scm.SENSITIVITY, scm.LOGISTIC, scm.ALGORITHM, scm.PURE)
# In the summary: what the picture has along its axis.
AXIS, LABEL = "minus_log10_Lambda", "-log10 Λ"


def run(names: Sequence[str], repeats: int | None) -> list[Row]:
    """One row a fit; ``repeats`` folds with at most as many draws."""
    records: list[dict[str, object]] = []
    for name in names:
        found = scm.unit_data(name)
        if found is None:
            continue
        for number, part in scm.folds(*found, repeats):
            measured = scm.sweep(
                part, number, METHODS, scm.LAMBDAS[name], (EPSILON[name],), repeats
            )
            records += [{"data": name} | record for record in measured]
            print(f"{name}, fold {number}: measured", flush=True)
    return as_rows(records)


def analyse(rows: Sequence[Row]) -> list[Row]:
    """Mean error of each point; the paper's Algorithm 1 is a method of its own."""
    table = scm.means(rows, ("data", "method", "Lambda", "epsilon"))
    nothing = dict.fromkeys(table[0]) if table else {}
    for name in dict.fromkeys(row["data"] for row in rows):
        for (data, method, Lambda, epsilon), error in scm_figure3.paper().items():
            if (data, method, epsilon) == (name, scm.ALGORITHM, EPSILON[name]):
                place = {"data": name, "method": scm.PAPER, "Lambda": f"{Lambda:g}"}
                known = place | {"epsilon": epsilon, "error": error, "holds": True}
                table.append(nothing | known)
    return as_rows(row | {AXIS: _axis(row["Lambda"])} for row in table)


def _axis(Lambda: str) -> str | None:
    """Where a Lambda stands; nowhere if there is none."""
    return f"{-math.log10(float(Lambda)):g}" if Lambda else None


def failures(table: Sequence[Row]) -> list[str]:
    """Budgets that were exceeded and certificates that do not hold; errors are as they are."""
    return scm.broken("scm_figure4", table)


def plot(table: Sequence[Row], path: Path) -> None:
    """One panel a data set."""
    letters = {"adult": "(a) Adult, ε = 0.1", "kddcup99": "(b) KDDCup99, ε = 0.05"}
    drawn = [
        scm.panel(letters[name], [row for row in table if row["data"] == name], AXIS)
        for name in dict.fromkeys(row["data"] for row in table)
    ]
    drawing.panels(path, drawn, x_label=LABEL, y_label="error", logarithmic=False)


def page(table: Sequence[Row]) -> str:
    """Methods down, Lambda across."""
    blocks = []
    for name in dict.fromkeys(row["data"] for row in table):
        rows = [row for row in table if row["data"] == name]
        lambdas = list(dict.fromkeys(row["Lambda"] for row in rows if row["Lambda"]))
        found = {(row["method"], row["Lambda"]): row for row in rows}
        lines = []
        for method in dict.fromkeys(row["method"] for row in rows):
            own = [found.get((method, key), found.get((method, ""))) for key in lambdas]
            errors = ("" if row is None else f"{float(row['error']):.4f}" for row in own)
            lines.append([method, *errors])
        head = [f"{name}, ε = {EPSILON[name]:g}", *(f"Λ = {Lambda}" for Lambda in lambdas)]
        blocks.append(cells.grid(head, lines))
    return "\n\n".join([*blocks, *_sentences(table)])


def _sentences(table: Sequence[Row]) -> list[str]:
    """Where the curves have their smallest values."""
    sentences = []
    for name in dict.fromkeys(row["data"] for row in table):
        lowest = {}
        for row in table:
            if row["data"] == name and row["Lambda"]:
                known = lowest.get(row["method"])
                if known is None or float(row["error"]) < float(known["error"]):
                    lowest[row["method"]] = row
        parts = [
            f"{lowest[method]['Lambda']} for {method}"
            for method in (scm.ALGORITHM, scm.SENSITIVITY, scm.NOT_PRIVATE)
            if method in lowest
        ]
        sentences.append(f"Λ of the smallest error on {name}: {', '.join(parts)}.")
    return [" ".join(sentences)] if sentences else []


if __name__ == "__main__":
    from benches.papers.command import script

    raise SystemExit(script(__file__))
