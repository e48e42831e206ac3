"""The README's first table: our defaults beside PMSVM's best, chance and what is not private."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benches.papers.cells import grid
from benches.papers.pmsvm_ceilings import LINEAR, MAJORITY
from benches.papers.pmsvm_table2_page import MAIN
from benches.tables import Row


def accuracy(found: Mapping[str, Sequence[Row]]) -> str:
    """One line a data set; sets that the paper does not have come from our own summary."""
    table = found["papers_pmsvm_table2"]
    main = [row for row in table if row["method"] == MAIN]
    epsilons = sorted({row["epsilon"] for row in main}, key=float)
    cells = {(row["data"], row["epsilon"]): row for row in main}
    level = {
        (row["data"], row["method"]): f"{float(row['accuracy']):.3f}"
        for row in table
        if row["method"] in (MAJORITY, LINEAR)
    }
    sizes = {row["data"]: f"{int(row['n_rows']):,}" for row in main}
    lines = [
        (
            f"{name}, {sizes[name]} rows",
            level.get((name, MAJORITY), ""),
            *(_cell(cells.get((name, epsilon))) for epsilon in epsilons),
            level.get((name, LINEAR), ""),
        )
        for name in sizes
    ]
    heads = ("ours / paper", "majority class", *(f"ε = {one}" for one in epsilons))
    judged = [row for row in main if row["paper"]]
    above = sum(row["above"] == "True" for row in judged)
    errors = max((float(row["standard_error"] or 0.0) for row in main), default=0.0)
    note = (
        f"Above the best of the paper's seven methods in {above} of {len(judged)} cells; standard "
        f"errors are at most {errors:.4f}."
    )
    return f"{grid((*heads, 'linear, not private'), lines)}\n\n{note}"


def _cell(row: Row | None) -> str:
    """Ours and the best of the paper; bold where ours is above it."""
    if row is None:
        return ""
    own = f"{float(row['accuracy']):.3f}"
    if not row["paper"]:
        return own
    return f"{f'**{own}**' if row['above'] == 'True' else own} / {float(row['paper']):.3f}"
