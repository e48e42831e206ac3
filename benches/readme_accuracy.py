"""The README's first table: our defaults beside PMSVM's best, chance and what is not private."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benches.papers.cells import grid
from benches.tables import Row


def accuracy(found: Mapping[str, Sequence[Row]]) -> str:
    """One line a data set; scikit-learn's sets have no figure of the paper."""
    main = found["papers_auto"]
    epsilons = sorted({row["epsilon"] for row in main}, key=float)
    cells = {(row["data"], row["epsilon"]): row for row in main}
    firsts = {row["data"]: row for row in reversed(main)}
    lines = [
        (
            f"{name}, {int(firsts[name]['n_rows']):,} rows",
            f"{float(firsts[name]['majority']):.3f}",
            *(_cell(cells.get((name, epsilon))) for epsilon in epsilons),
            f"{float(firsts[name]['linear']):.3f}",
        )
        for name in dict.fromkeys(row["data"] for row in main)
    ]
    heads = ("ours / paper", "majority class", *(f"ε = {one}" for one in epsilons))
    judged = [row for row in main if row["paper"]]
    above = sum(_above(row) for row in judged)
    errors = max((float(row["standard_error"] or 0.0) for row in main), default=0.0)
    note = (
        f"Above the best of the paper's seven methods in {above} of {len(judged)} cells; standard "
        f"errors are at most {errors:.4f}."
    )
    return f"{grid((*heads, 'linear, not private'), lines)}\n\n{note}"


def _above(row: Row) -> bool:
    """Whether ours is above the paper's best."""
    return bool(row["paper"]) and float(row["accuracy"]) > float(row["paper"])


def _cell(row: Row | None) -> str:
    """Ours and the best of the paper; bold where ours is above it."""
    if row is None:
        return ""
    own = f"{float(row['accuracy']):.3f}"
    if not row["paper"]:
        return own
    return f"{f'**{own}**' if _above(row) else own} / {float(row['paper']):.3f}"
