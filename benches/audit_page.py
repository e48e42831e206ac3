"""The table of audits of docs/auditing.md, from the summary of ``audit_table``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benches.papers.cells import grid
from benches.tables import Row

# The build that is released, in the audits' summary, and the claims that it is audited at.
RIGHT = "right"
AUDITED = ("1", "4")
# How an audit came to its bound: a letter and its meaning.
METHODS = {
    "gaussian": ("g", "Gaussian trade-off curve"),
    "profile": ("p", "claimed law with less noise"),
    "clopper_pearson": ("c", "counts alone"),
    "one_run": ("1", "one run with many canaries"),
    "density": ("d", "exact densities"),
}


def audits(found: Mapping[str, Sequence[Row]]) -> str:
    """Claims and certified lower bounds, one line for each mechanism and relation."""
    table = found["audit"]
    cells: dict[tuple[str, ...], dict[tuple[str, str], Row]] = {}
    for row in table:
        # The claim of a part of a pipeline is near the number that the row is meant for.
        near = min(AUDITED, key=lambda one: abs(float(one) - float(row["claim"])))
        cells.setdefault((row["mechanism"], row["relation"]), {})[row["build"], near] = row
    builds = list(dict.fromkeys(row["build"] for row in table))
    columns = [(build, one) for build in builds for one in AUDITED]
    heads = (f"ε = {one}" if build == RIGHT else f"{build}, {one}" for build, one in columns)
    lines = grid(
        ("Mechanism", "relation", *heads),
        (
            (*place, *(_audit_cell(own.get(column)) for column in columns))
            for place, own in cells.items()
        ),
    )
    right = [row for row in table if row["build"] == RIGHT]
    wrong = [row for row in table if row["build"] != RIGHT and row["expected"] != "-"]
    above, caught = (sum(row["refuted"] == "True" for row in rows) for rows in (right, wrong))
    chance = max(1.0 - float(row["confidence"]) for row in table)
    longest = max(float(row["seconds"]) for row in table)
    return "\n".join(
        [
            lines,
            "",
            f"Certified ε and method: {_methods(table)}. Bold: above the claim, as in {above} of "
            f"{len(right)} audits of the library and {caught} of {len(wrong)} audits of wrong "
            "builds (in brackets: too weak to tell, not counted). Audits take at most "
            f"{longest:.0f} seconds; each bound is wrong with a probability of at most "
            f"{chance:.1g}. The claim of a part of a pipeline is its share of the budget.",
        ]
    )


def _audit_cell(row: Row | None) -> str:
    """A bound, the claim where it is not that of the column, and the method behind it."""
    if row is None:
        return ""
    bound = f"{float(row['certified']):.3f}"
    bound = f"**{bound}**" if row["refuted"] == "True" else bound
    if row["build"] != RIGHT:
        return f"({bound})" if row["expected"] == "-" else bound
    claim = float(row["claim"])
    bound += "" if min(abs(claim - float(one)) for one in AUDITED) < 5e-4 else f" of {claim:.3f}"
    return f"{bound} {METHODS[row['method']][0]}"


def _methods(table: Sequence[Row]) -> str:
    """The letters of the methods that occur."""
    used = {row["method"] for row in table}
    return ", ".join(f"{letter} {text}" for name, (letter, text) in METHODS.items() if name in used)
