"""Tables of README and docs/accuracy.md: our defaults beside PMSVM's best and the not private.

All are functions of the summary of ``python -m benches.papers auto``.
"""

from __future__ import annotations

from benches.papers import scores
from benches.papers.auto import OURS, SEVERAL, below_paper, main_sets
from benches.papers.cells import cells, grid
from benches.readme_tables import Summaries
from benches.tables import Row


def accuracy(found: Summaries) -> str:
    """One line a data set; scikit-learn's sets have no figure of the paper."""
    main = scores.beside(main_sets(found["papers_auto"]))
    epsilons = sorted({row["epsilon"] for row in main}, key=float)
    lines = [
        (
            f"{name}, {int(own[0]['n_rows']):,} rows",
            f"{float(own[0]['majority']):.3f}",
            *map(_cell, sorted(own, key=lambda row: float(row["epsilon"]))),
            f"{float(own[0]['linear']):.3f}",
        )
        for (name,), own in cells(main, ("data",)).items()
    ]
    heads = ("ours / paper", "majority class", *(f"ε = {one}" for one in epsilons))
    judged = [row for row in main if row["paper"]]
    above = sum(_above(row) for row in judged)
    errors = max((float(row["standard_error"] or 0.0) for row in main), default=0.0)
    note = (
        f"Above the best of the paper's seven methods in {above} of {len(judged)} cells; standard "
        f"errors are at most {errors:.3f} ([each, and other measures](docs/accuracy.md))."
    )
    return f"{grid((*heads, 'linear, not private'), lines)}\n\n{note}"


def _above(row: Row) -> bool:
    """Whether ours is above the paper's best."""
    return bool(row["paper"]) and float(row["accuracy"]) > float(row["paper"])


def _cell(row: Row) -> str:
    """Ours and the best of the paper; bold where ours is above it."""
    own = f"{float(row['accuracy']):.3f}"
    if not row["paper"]:
        return own
    return f"{f'**{own}**' if _above(row) else own} / {float(row['paper']):.3f}"


def standing(found: Summaries) -> str:
    """Accuracy with standard errors, in parentheses the paper's best; where it is above ours."""
    main = main_sets(found["papers_auto"])

    def cell(row: Row) -> str:
        return scores.one(row) + (f" ({float(row['paper']):.3f})" if row["paper"] else "")

    below = [
        f"{row['data']} at ε = {row['epsilon']} by "
        f"{float(row['paper']) - float(row['accuracy']):.3f} ± "
        f"{float(row['standard_error'] or 0.0):.3f}"
        for row in below_paper(main)
    ]
    judged = sum(bool(row["paper"]) for row in main)
    note = f"Below the paper's best in {len(below)} of {judged} cells"
    told = f"{note}: {', '.join(below)}." if below else f"{note}."
    lines = scores.by_epsilon(main, cell, head="accuracy (paper's best)")
    return f"{lines}\n\n{scores.counted(main)} {told}"


def measures(found: Summaries) -> str:
    """The measures beside accuracy."""
    return scores.compact(main_sets(found["papers_auto"]))


def digits(found: Summaries) -> str:
    """Several estimators on one set."""
    own = [row for row in found["papers_auto"] if row["data"] == SEVERAL]
    told = scores.compact(own, _model)
    return f"{scores.by_epsilon(own, scores.one, _model, 'accuracy')}\n\n{told}"


def _model(row: Row) -> str:
    """An estimator by its name."""
    return f"`{row['model']}`" + ("" if row["model"] == OURS else ", rows of norm 1")
