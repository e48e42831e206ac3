"""Errors for every Lambda and epsilon: Figure 3 of Sarwate, Chaudhuri and Monteleoni (2009).

Adult, and KDDCup99 with the sensitivity method where ``benches.papers.scm`` finds its file.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benches.papers import cells, drawing, scm
from benches.tables import Row, as_rows

TITLE = "SCM, Figure 3: errors for every Λ and ε"
PROTOCOL: tuple[str, ...] = (
    *scm.ROWS,
    *scm.ACCOUNTING,
    "The last rows have no Λ: our rules choose it from public numbers alone.",
    "KDDCup99 is not measured.",
)
DATA: tuple[str, ...] = ("adult", "kddcup99")
QUICK_DATA: tuple[str, ...] = ("adult",)
QUICK_REPEATS = 1

EPSILONS = {"adult": (0.2, 0.15, 0.1, 0.05), "kddcup99": (0.1, 0.05, 0.01)}
OF_PAPER = {
    "adult": (scm.NOT_PRIVATE, scm.ALGORITHM),
    "kddcup99": (scm.NOT_PRIVATE, scm.ALGORITHM, scm.SENSITIVITY),
}
OF_RULES = (scm.RULE, scm.PURE)

# Figure 3 of the paper, a line for each Lambda: without privacy, then each epsilon; for KDDCup99
# Algorithm 1 and the sensitivity method in turn.
PAPER_ADULT = (
    (0.24784, 0.2478, 0.2478, 0.2477, 0.2439),
    (0.17279, 0.1762, 0.1793, 0.1853, 0.2181),
    (0.16496, 0.1845, 0.1921, 0.2149, 0.2539),
    (0.15512, 0.2053, 0.2262, 0.2376, 0.2604),
    (0.15362, 0.2646, 0.2717, 0.3063, 0.3628),
    (0.15364, 0.2909, 0.3002, 0.3301, 0.3595),
)
PAPER_KDD = (
    (0.0682, 0.0688, 0.0753, 0.0730, 0.0846, 0.0912, 0.1110),
    (0.0225, 0.0202, 0.0226, 0.0182, 0.1045, 0.0346, 0.3994),
    (0.0132, 0.0156, 0.3741, 0.0207, 0.4466, 0.0494, 0.5003),
    (0.0088, 0.0295, 0.5048, 0.0308, 0.4974, 0.0677, 0.4954),
    (0.0074, 0.0358, 0.4961, 0.0468, 0.4992, 0.1522, 0.5061),
    (0.0067, 0.0853, 0.4962, 0.0908, 0.5089, 0.3464, 0.5020),
    (0.0068, 0.2446, 0.4982, 0.2516, 0.5037, 0.4332, 0.5244),
)


def paper() -> dict[tuple[str, str, float, float | None], float]:
    """The paper's table: data set, method, Lambda and epsilon, then the error."""
    found: dict[tuple[str, str, float, float | None], float] = {}
    for name, lines in (("adult", PAPER_ADULT), ("kddcup99", PAPER_KDD)):
        private = OF_PAPER[name][1:]
        places = [(scm.NOT_PRIVATE, None)]
        places += [(method, epsilon) for epsilon in EPSILONS[name] for method in private]
        for Lambda, line in zip(scm.LAMBDAS[name], lines, strict=True):
            for (method, epsilon), error in zip(places, line, strict=True):
                found[name, method, Lambda, epsilon] = error
    return found


def run(names: Sequence[str], repeats: int | None) -> list[Row]:
    """One row a fit; ``repeats`` folds with at most as many draws."""
    records: list[dict[str, object]] = []
    for name in names:
        found = scm.unit_data(name)
        if found is None:
            continue
        methods = OF_PAPER[name] + OF_RULES
        for number, part in scm.folds(*found, repeats):
            measured = scm.sweep(part, number, methods, scm.LAMBDAS[name], EPSILONS[name], repeats)
            records += [{"data": name} | record for record in measured]
            print(f"{name}, fold {number}: measured", flush=True)
    return as_rows(records)


def analyse(rows: Sequence[Row]) -> list[Row]:
    """Mean error of each cell beside the paper's."""
    facts = paper()
    table = scm.means(rows, ("data", "method", "Lambda", "epsilon"))
    return as_rows(row | {"paper": facts.get(_key(row))} for row in table)


def _key(row: dict[str, str]) -> tuple[str, str, float, float | None]:
    """Where the paper has this cell, if it has; Lambda as it is in the table of constants."""
    lambdas = scm.LAMBDAS[row["data"]]
    wanted = float(row["Lambda"]) if row["Lambda"] else 0.0
    Lambda = min(lambdas, key=lambda known: abs(known - wanted)) if wanted else 0.0
    return row["data"], row["method"], Lambda, float(row["epsilon"]) if row["epsilon"] else None


def failures(table: Sequence[Row]) -> list[str]:
    """Budgets that were exceeded and certificates that do not hold; errors are as they are."""
    return scm.broken("scm_figure3", table)


def plot(table: Sequence[Row], path: Path) -> None:
    """Errors of Algorithm 1 along Lambda, one panel an epsilon, beside the paper's."""
    drawn = []
    for name in dict.fromkeys(row["data"] for row in table):
        for epsilon in (f"{epsilon:g}" for epsilon in EPSILONS[name]):
            rows = [row for row in table if row["data"] == name and row["epsilon"] in ("", epsilon)]
            # Those of the paper are rows of their own.
            printed = [
                row
                | {"method": f"{row['method']}, the paper's", "error": row["paper"]}
                | {"standard_error": ""}
                for row in rows
                if row["paper"]
            ]
            drawn.append(scm.panel(f"{name}, ε = {epsilon}", rows + printed, "Lambda"))
    drawing.panels(path, drawn, x_label="Λ", y_label="error", columns=min(2, len(drawn)))


def page(table: Sequence[Row]) -> str:
    """Lambda down, methods and epsilons across; ours, then the paper's."""
    blocks = []
    for name in dict.fromkeys(row["data"] for row in table):
        rows = [row for row in table if row["data"] == name]
        found = {(row["method"], row["Lambda"], row["epsilon"]): row for row in rows}
        columns = [(scm.NOT_PRIVATE, "")]
        columns += [
            (method, f"{epsilon:g}") for epsilon in EPSILONS[name] for method in OF_PAPER[name][1:]
        ]
        head = [f"{name}: Λ", *(method + f", ε = {e}" * bool(e) for method, e in columns)]
        lines = [
            [
                Lambda,
                *(_beside(found.get((method, Lambda, epsilon))) for method, epsilon in columns),
            ]
            for Lambda in dict.fromkeys(row["Lambda"] for row in rows if row["Lambda"])
        ]
        for rule in (rule for rule in OF_RULES if any(row["method"] == rule for row in rows)):
            errors = [found.get((rule, "", epsilon)) for _, epsilon in columns]
            # One column of each epsilon is enough for what has no Lambda.
            shown = [
                _beside(error) if method == scm.ALGORITHM else ""
                for error, (method, _) in zip(errors, columns, strict=True)
            ]
            lines.append([rule, *shown])
        blocks.append(cells.grid(head, lines))
    return "\n\n".join(["Ours / paper.", *blocks, *_sentences(table)])


def _beside(row: Row | None) -> str:
    """Our error and the paper's."""
    if row is None:
        return ""
    error = f"{float(row['error']):.4f}"
    return f"{error} / {float(row['paper']):.4f}" if row["paper"] else error


def _sentences(table: Sequence[Row]) -> list[str]:
    """Whether a rule needs the search over Lambda that the paper makes on test rows."""
    sentences = []
    for name in dict.fromkeys(row["data"] for row in table):
        rows = [row for row in table if row["data"] == name]
        gaps = []
        for epsilon in (f"{epsilon:g}" for epsilon in EPSILONS[name]):
            own = {
                method: [
                    float(row["error"])
                    for row in rows
                    if (row["method"], row["epsilon"]) == (method, epsilon)
                ]
                for method in (scm.ALGORITHM, scm.PURE)
            }
            if all(own.values()):
                gaps.append(own[scm.PURE][0] - min(own[scm.ALGORITHM]))
        if gaps:
            sentences.append(
                f"On {name} the error of {scm.PURE}, differs from that of Algorithm 1 with the "
                f"best Λ of the column by {min(gaps):+.4f} to {max(gaps):+.4f}."
            )
    return [" ".join(sentences)] if sentences else []


if __name__ == "__main__":
    from benches.papers.command import script

    raise SystemExit(script(__file__))
