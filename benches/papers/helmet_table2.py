"""DP-Helmet's Table 2: 1,000 users of one class each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import mean

from benches.papers import helmet
from benches.papers.cells import accuracy, cells, grid
from benches.papers.drawing import Panel, panels
from benches.papers.helmet import DATA, LEARNERS, POINTS, Setting
from benches.papers.parties_features import features_of
from benches.tables import Row, as_rows

TITLE = "Distributed DP-Helmet, Table 2: users of one class each"
PROTOCOL = (
    *helmet.COMMON_PROTOCOL,
    "“67x” simulates a data set 67 times larger, as in the paper, by as much less noise on the "
    "same models: a factor of five by five copies of every user, the rest by a larger ε.",
    "The paper's CIFAR-100 is not measured.",
)
QUICK_DATA, QUICK_REPEATS = ("mnist",), 1
REPEATS = 3
EPSILON, USERS = 1.172, 1000
MULTIPLIERS = (1, 67)
# Accuracy on CIFAR-10, and its difference to users with points of all classes, in table 2.
PAPER = {
    ("SVM_SGD", 1): (0.85, -0.02),
    ("SVM_SGD", 67): (0.87, -0.03),
    ("Softmax_SLP_SGD", 1): (0.42, -0.49),
    ("Softmax_SLP_SGD", 67): (0.88, -0.04),
}
PLACE = ("data", "method", "multiplier")


def run(names: Sequence[str], repeats: int | None) -> list[Row]:
    """One row a training; ``setting`` says whose points they are."""
    records: list[dict[str, object]] = []
    for name in names:
        data = features_of(name)
        if data is None:
            continue
        for repeat in range(repeats or REPEATS):
            for multiplier in MULTIPLIERS:
                for kind in ("points", "one class"):
                    setting = Setting(kind, USERS, POINTS, EPSILON, multiplier)
                    parties = helmet.parties_of(data, setting, repeat)
                    found = helmet.averages(data, setting, repeat, parties, check=repeat == 0)
                    records += [
                        {"data": name, "multiplier": multiplier} | record for record in found
                    ]
            print(f"{name}, repeat {repeat}: {len(records)} rows", flush=True)
    return as_rows(records)


def analyse(rows: Sequence[Row]) -> list[Row]:
    """Accuracy of users of one class, and what that costs, beside the paper's."""
    table: list[dict[str, object]] = []
    for place, members in cells(rows, PLACE).items():
        kinds = cells(members, ["setting"])
        biased = kinds.get(("one class",), [])
        if not biased:
            continue
        mixed = [float(row["accuracy"]) for row in kinds.get(("points",), [])]
        own = [float(row["accuracy"]) for row in biased]
        printed = PAPER.get((place[1], int(place[2])), (None, None))
        table.append(
            dict(zip(PLACE, place, strict=True))
            | accuracy(biased)
            | {
                "mixed": mean(mixed) if mixed else None,
                "lost": mean(own) - mean(mixed) if mixed else None,
                "paper": printed[0],
                "paper_lost": printed[1],
                "holds": "False" not in [row["holds"] for row in members],
            }
        )
    return as_rows(table)


def failures(table: Sequence[Row]) -> list[str]:
    """Certificates that do not hold."""
    return [
        f"helmet_table2: {row['data']}, {row['method']}, {row['multiplier']}x: the certificate "
        "does not hold"
        for row in table
        if row["holds"] != "True"
    ]


def plot(table: Sequence[Row], path: Path) -> None:
    """Accuracy of users of one class and of mixed ones, by size of the data set."""
    drawn = []
    for (name,), own in cells(table, ["data"]).items():
        lines = {}
        for method in LEARNERS:
            rows = [row for row in own if row["method"] == method]
            for label, column in (("one class each", "accuracy"), ("mixed", "mixed")):
                lines[f"{method}, {label}"] = [
                    (float(row["multiplier"]), float(row[column]), 0.0)
                    for row in rows
                    if row[column]
                ]
        drawn.append(Panel(f"{name}, {USERS:,} users, ε = {EPSILON:g}", lines))
    panels(path, drawn, x_label="size of the data set, in copies of MNIST", legend_columns=2)


def page(table: Sequence[Row]) -> str:
    """Ours | the paper's, with what one class a user costs in points of a percent."""
    found = {tuple(row[name] for name in PLACE): row for row in table}
    names = list(dict.fromkeys(row["data"] for row in table))
    lines = [
        (
            f"{method}, {multiplier}x",
            *(_cell(found.get((name, method, str(multiplier)))) for name in names),
            _paper(PAPER.get((method, multiplier))),
        )
        for method in LEARNERS
        for multiplier in MULTIPLIERS
    ]
    heads = (f"{USERS:,} users, ε = {EPSILON:g}", *names, "paper, CIFAR-10")
    return (
        f"{grid(heads, lines)}\n\nIn parentheses: the difference from users with points of all "
        "classes, in percentage points."
    )


def _cell(row: Row | None) -> str:
    if row is None:
        return ""
    lost = f" ({100.0 * float(row['lost']):+.0f} pp)" if row["lost"] else ""
    return f"{float(row['accuracy']):.3f}{lost}"


def _paper(printed: tuple[float, float] | None) -> str:
    return f"{printed[0]:.2f} ({100.0 * printed[1]:+.0f} pp)" if printed else ""


__all__ = ["DATA"]

if __name__ == "__main__":
    from benches.papers.command import script

    raise SystemExit(script(__file__))
