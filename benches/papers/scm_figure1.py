"""Error against epsilon and against the number of rows: Figure 1 of Sarwate et al. (2009).

(a) Adult, (b) KDDCup99 and (c) nested balls with a kernel, along epsilon; (d), (e) KDDCup99 and (f)
nested balls along the number of rows. The panels with KDDCup99 need a file that is not here:
``benches.papers.scm`` says which, and they are left out, with a line that says so, without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benches.papers import balls, cells, drawing, scm
from benches.papers.data import load
from benches.papers.scm_figure2 import PAPER
from benches.tables import Row, as_rows
from dpsvm_fast import ObjectivePerturbationSVC, OutputPerturbationSVC
from dpsvm_fast.model_selection import PrivateGridSearch

TITLE = "SCM, Figure 1: error along ε and along the number of rows"
PROTOCOL: tuple[str, ...] = (
    *scm.ROWS,
    *scm.ACCOUNTING,
    *scm.CHOICES,
    "The points that the paper prints are in Figures 2 and 3.",
    "KDDCup99 (panels b, d and e) is not measured.",
)
DATA: tuple[str, ...] = ("adult", "kddcup99", "balls")
QUICK_DATA: tuple[str, ...] = ("adult",)
QUICK_REPEATS = 1

EPSILONS = {
    "adult": (0.05, 0.1, 0.2, 0.5, 1.0),
    "kddcup99": (0.01, 0.05, 0.1, 0.2, 0.5, 1.0),
    "balls": (0.05, 0.1, 0.2, 0.5, 1.0),
}
METHODS = (scm.NOT_PRIVATE, scm.SENSITIVITY, scm.LOGISTIC, scm.ALGORITHM, scm.PURE, scm.OURS)
# The paper's private ones.
RIVALS = (scm.SENSITIVITY, scm.LOGISTIC, scm.ALGORITHM)
BALLS_DRAWS = 3
BALLS_EPSILON, BALLS_SIZES = 0.1, (15_000, 30_000, 60_000, 120_000, balls.N_POINTS)
# Figure 1 (d) and (e): with private tuning over so many values of Lambda, as in the paper.
KDD_EPSILONS, KDD_SIZES = (0.05, 0.005), (25_000, 50_000, 100_000, 200_000, 400_000)
KDD_REPEATS = 3
# Along what: the column "curve".
ALONG_EPSILON, ALONG_ROWS = "epsilon", "rows"
# What private kernel machines have to reach at BALLS_EPSILON with all points.
GOAL = 0.06


def run(names: Sequence[str], repeats: int | None) -> list[Row]:
    """One row a fit; ``repeats`` folds with at most as many draws, or so many draws of points."""
    records: list[dict[str, object]] = []
    for name in names:
        measured = _of_balls if name == "balls" else _of_rows
        for record in measured(name, repeats):
            records.append({"data": name} | record)
    return as_rows(records)


def _of_balls(_: str, repeats: int | None) -> Iterator[dict[str, object]]:
    """Panels (c) and (f); where they meet, one fit serves both."""
    for draw in range(repeats or BALLS_DRAWS):
        for record in balls.fits(balls.N_POINTS, draw, EPSILONS["balls"]):
            yield {"curve": ALONG_EPSILON} | record
            if record["epsilon"] in (None, BALLS_EPSILON):
                yield {"curve": ALONG_ROWS} | record
        for n in BALLS_SIZES[:-1]:
            for record in balls.fits(n, draw, (BALLS_EPSILON,)):
                yield {"curve": ALONG_ROWS} | record
        print(f"balls, draw {draw}: measured", flush=True)


def _of_rows(name: str, repeats: int | None) -> Iterator[dict[str, object]]:
    """Panel (a), or (b), (d) and (e)."""
    found = scm.unit_data(name)
    if found is None:
        return
    # The smallest Lambda is never the best, and takes as long as all others together.
    lambdas = scm.LAMBDAS[name][:-1]
    for number, part in scm.folds(*found, repeats):
        for record in scm.sweep(part, number, METHODS, lambdas, EPSILONS[name], repeats):
            yield {"curve": ALONG_EPSILON} | record
        print(f"{name}, fold {number}: measured", flush=True)
    if name == "kddcup99":
        yield from _learning(repeats)


def _learning(repeats: int | None) -> Iterator[dict[str, object]]:
    """Panels (d) and (e): private methods tuned by Algorithm 3, ours by its own rule."""
    data = load("kddcup99")
    if data is None:
        return
    X, y = scm.mapped(data), data.y
    for repeat in range(repeats or KDD_REPEATS):
        order = np.random.default_rng([1, repeat]).permutation(len(y))
        test, rest = np.split(order, [len(y) // 10])
        for n in sorted({min(n, len(rest)) for n in KDD_SIZES}):
            part = scm.Part(X[rest[:n]], y[rest[:n]], X[test], y[test])
            for record in _tuned(part, repeat):
                yield {"curve": ALONG_ROWS} | record


def _tuned(part: scm.Part, repeat: int) -> Iterator[dict[str, object]]:
    """All methods on one number of rows."""
    lambdas, n = scm.LAMBDAS["kddcup99"], len(part.y)
    yield from scm.sweep(part, repeat, (scm.NOT_PRIVATE,), lambdas[:-1], (), 1)
    place: dict[str, object] = {"Lambda": None, "n": n, "split": repeat}
    for epsilon in KDD_EPSILONS:
        for name, candidate in CANDIDATES.items():
            model = searched(candidate(), n, epsilon)
            yield {"method": name} | place | scm.fitted(part, model, epsilon, 0)
        model = scm.linear(epsilon, 0.0)
        yield {"method": scm.PURE} | place | scm.fitted(part, model, epsilon, 0)


PURE_CANDIDATE: dict[str, Any] = {
    "delta": 0.0,
    "noise": "gamma",
    "fit_intercept": False,
    "classes": range(2),
    "n_threads": 1,
}
CANDIDATES: dict[str, Callable[[], Any]] = {
    scm.SENSITIVITY: lambda: OutputPerturbationSVC(loss="huber", **PURE_CANDIDATE),
    scm.LOGISTIC: lambda: ObjectivePerturbationSVC(loss="logistic", **PURE_CANDIDATE),
    scm.ALGORITHM: lambda: ObjectivePerturbationSVC(loss="huber", **PURE_CANDIDATE),
}


def searched(candidate: Any, n: int, epsilon: float) -> PrivateGridSearch:
    """Algorithm 3: as many parts of the rows as values of Lambda, and one to choose by."""
    lambdas = scm.LAMBDAS["kddcup99"]
    portions = len(lambdas) + 1
    return PrivateGridSearch(
        candidate,
        {"C": [portions / (n * Lambda) for Lambda in lambdas]},
        epsilon,
        0.0,
        selection="exponential",
        validation_fraction=1.0 / portions,
        refit_fraction=0.0,
    )


def analyse(rows: Sequence[Row]) -> list[Row]:
    """Mean error of each point, the best Lambda of those methods that have one."""
    places = ("data", "curve", "method", "epsilon", "n")
    # Folds differ by one row: they are one place.
    same_n = [row if row["curve"] == ALONG_ROWS else row | {"n": _rounded(row)} for row in rows]
    table = scm.best(scm.means(same_n, (*places, "Lambda")), places)
    return as_rows(
        row
        | {
            "bayes": balls.BAYES if row["data"] == "balls" else None,
            "goal": GOAL if _judged(row) else None,
            "paper": _printed(row),
        }
        for row in table
    )


def _rounded(row: Row) -> str:
    """The number of rows to the next hundred."""
    return str(round(int(row["n"]), -2))


def _printed(row: dict[str, Any]) -> float | None:
    """What the paper's Figure 2 prints for this point, if it does."""
    rows = row["curve"] == ALONG_ROWS
    if not row["epsilon"] or (rows and int(row["n"]) != balls.N_POINTS):
        return None
    return PAPER.get((row["data"], float(row["epsilon"])), {}).get(row["method"])


def _judged(row: dict[str, Any]) -> bool:
    """Whether a goal stands beside the error."""
    methods = (balls.PURE_KERNEL, balls.PURE_KERNEL_GAMMA, balls.KERNEL)
    return (
        row["method"] in methods
        and float(row["epsilon"]) == BALLS_EPSILON
        and int(row["n"]) == balls.N_POINTS
    )


def failures(table: Sequence[Row]) -> list[str]:
    """Errors above the goal, budgets that were exceeded and certificates that do not hold."""
    missed = [
        f"scm_figure1: {row['method']}, {row['n']} points: error {row['error']}"
        for row in table
        if row["goal"] and float(row["error"]) > float(row["goal"])
    ]
    return missed + scm.broken("scm_figure1", table)


# Panels in the paper's order: letter, data set, curve, epsilon of curves over rows.
PANELS = (
    ("a", "adult", ALONG_EPSILON, None),
    ("b", "kddcup99", ALONG_EPSILON, None),
    ("c", "balls", ALONG_EPSILON, None),
    ("d", "kddcup99", ALONG_ROWS, 0.05),
    ("e", "kddcup99", ALONG_ROWS, 0.005),
    ("f", "balls", ALONG_ROWS, BALLS_EPSILON),
)

# In the picture one mark for both algorithms of the paper, and what would hide differences left
# out.
DRAWN_AS = dict.fromkeys((scm.ALGORITHM, balls.ALGORITHM_2), "Algorithm 1 (a) or 2 (c, f)")
NOT_DRAWN = (("balls", balls.LINEAR), ("balls", balls.PURE_KERNEL_GAMMA))


def panel(table: Sequence[Row], data: str, curve: str, epsilon: float | None) -> list[Row]:
    """Rows of one panel, those without privacy among them."""
    return [
        row
        for row in table
        if (row["data"], row["curve"]) == (data, curve)
        and (epsilon is None or row["epsilon"] in ("", f"{epsilon:g}"))
    ]


def plot(table: Sequence[Row], path: Path) -> None:
    """The panels that were measured."""
    names = {"adult": "Adult", "kddcup99": "KDDCup99", "balls": "nested balls"}
    drawn = []
    for letter, data, curve, epsilon in PANELS:
        rows = panel(table, data, curve, epsilon)
        if rows:
            axis = "by ε" if epsilon is None else f"by rows, ε = {epsilon:g}"
            column = "epsilon" if curve == ALONG_EPSILON else "n"
            shown = [
                row | {"method": DRAWN_AS.get(row["method"], row["method"])}
                for row in rows
                if (data, row["method"]) not in NOT_DRAWN
            ]
            own = scm.panel(f"({letter}) {names[data]}, {axis}", shown, column)
            drawn.append(replace(own, x_label="ε" if epsilon is None else "rows"))
    columns = min(3, len(drawn))
    drawing.panels(
        path,
        drawn,
        x_label="ε",
        y_label="error",
        columns=columns,
        legend_columns=columns,
    )


def page(table: Sequence[Row]) -> str:
    """The panels as tables of errors."""
    blocks = []
    titles = {
        "a": "(a) Adult: error by ε.",
        "b": "(b) KDDCup99: error by ε.",
        "c": f"(c) Nested balls, {balls.N_POINTS:,} points: error by ε.",
        "d": "(d) KDDCup99, ε = 0.05: error by number of rows.",
        "e": "(e) KDDCup99, ε = 0.005: error by number of rows.",
        "f": f"(f) Nested balls, ε = {BALLS_EPSILON:g}: error by number of points.",
    }
    for letter, data, curve, epsilon in PANELS:
        rows = panel(table, data, curve, epsilon)
        if rows:
            blocks.append(f"{titles[letter]}\n\n{_errors(rows, curve)}")
    return "\n\n".join([*blocks, *_sentences(table)])


def _errors(rows: Sequence[Row], curve: str) -> str:
    """Methods down, epsilon or rows across."""
    column = "epsilon" if curve == ALONG_EPSILON else "n"
    places = sorted({row[column] for row in rows if row[column]}, key=float)
    found = {(row["method"], row[column]): row for row in rows}
    lines = []
    for method in dict.fromkeys(row["method"] for row in rows):
        level = found.get((method, ""))
        errors = [found.get((method, place), level) for place in places]
        lines.append([method, *("" if e is None else f"{float(e['error']):.4f}" for e in errors)])
    name = "ε = " if curve == ALONG_EPSILON else ""
    head = [f"{name}{float(place):g}" if name else f"{int(place):,}" for place in places]
    return cells.grid(["", *head], lines)


def _sentences(table: Sequence[Row]) -> list[str]:
    """What the tables say in a sentence."""
    rows = panel(table, "adult", ALONG_EPSILON, None)
    errors = {(row["method"], row["epsilon"]): float(row["error"]) for row in rows}
    sentences = []
    below = []
    for ours in (scm.PURE, scm.OURS):
        pairs = [
            (errors[ours, epsilon], min(rivals))
            for epsilon in dict.fromkeys(row["epsilon"] for row in rows if row["epsilon"])
            if (ours, epsilon) in errors
            and (rivals := [errors[name, epsilon] for name in RIVALS if (name, epsilon) in errors])
        ]
        if pairs:
            count = sum(own < best for own, best in pairs)
            below.append(f"at {count} of {len(pairs)} values of ε ({ours})")
    if below:
        sentences.append(
            "On Adult our error is below that of the paper's best private method with its best Λ "
            f"{' and '.join(below)}."
        )
    judged = [row for row in table if row["goal"]]
    if judged:
        largest = max(float(row["error"]) for row in judged)
        sentences.append(
            f"On all {balls.N_POINTS:,} points of the nested balls at ε = {BALLS_EPSILON:g} our "
            f"kernel machines have errors of at most {largest:.4f}; the Bayes error is "
            f"{balls.BAYES:g}."
        )
    return [" ".join(sentences)] if sentences else []


if __name__ == "__main__":
    from benches.papers.command import script

    raise SystemExit(script(__file__))
