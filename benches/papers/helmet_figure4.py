"""DP-Helmet's Figure 4: accuracy along the number of users with 50 points each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benches.papers import helmet
from benches.papers.cells import Statement, cells, grid, shown, statements
from benches.papers.drawing import Panel, panels
from benches.papers.helmet import (
    BEST,
    CURATOR,
    DATA,
    EPSILON,
    FEDERATED,
    LEARNERS,
    NOT_PRIVATE,
    analyse,
)
from benches.papers.parties_features import features_of
from benches.tables import Row, as_rows

TITLE = "Distributed DP-Helmet, Figure 4: the number of users"
PROTOCOL = (*helmet.COMMON_PROTOCOL, *helmet.FEDERATED_PROTOCOL)
QUICK_DATA, QUICK_REPEATS = ("mnist",), 1
REPEATS = 3
USERS = (1, 10, 50, 100, 200, 500, 1000)
METHODS = (*LEARNERS, FEDERATED, BEST, CURATOR, NOT_PRIVATE)
# Abstract: 1,000 users reach this on CIFAR-10 already at epsilon 0.36.
PAPER_USERS, PAPER_EPSILON, PAPER_ACCURACY = 1000, 0.36, 0.86
# Where the paper sees Softmax_SLP_SGD overtake its baseline.
CROSSING = 100


def run(names: Sequence[str], repeats: int | None) -> list[Row]:
    """One row a training."""
    records: list[dict[str, object]] = []
    for name in names:
        data = features_of(name)
        if data is None:
            continue
        for repeat in range(repeats or REPEATS):
            for users in USERS:
                setting = helmet.points(users, EPSILON)
                parties = helmet.parties_of(data, setting, repeat)
                found = [
                    *helmet.averages(data, setting, repeat, parties, check=repeat == 0),
                    *helmet.pooled(data, setting, repeat, parties, curated=True, noiseless=True),
                ]
                records += [{"data": name} | record for record in found]
            print(f"{name}, repeat {repeat}: {len(records)} rows", flush=True)
    return as_rows(records)


def failures(table: Sequence[Row]) -> list[str]:
    """Certificates that do not hold."""
    return helmet.failures(table, "helmet_figure4")


def plot(table: Sequence[Row], path: Path) -> None:
    """One panel a data set."""
    drawn = [
        Panel(
            f"{name}, ε = {EPSILON:g}",
            {
                method: [
                    (
                        float(row["users"]),
                        float(row["accuracy"]),
                        float(row["standard_error"] or 0.0),
                    )
                    for row in own
                    if row["method"] == method
                ]
                for method in METHODS
            },
        )
        for (name,), own in cells(table, ["data"]).items()
    ]
    panels(path, drawn, x_label="users with 50 rows each", legend_columns=2)


def _crossing(table: Sequence[Row]) -> list[bool]:
    """Below the baseline for fewer users than the paper names, above for more."""
    found = {(row["method"], int(row["users"])): float(row["accuracy"]) for row in table}
    return [
        (found["Softmax_SLP_SGD", users] > found[FEDERATED, users]) == (users > CROSSING)
        for users in USERS
        if users != CROSSING and {("Softmax_SLP_SGD", users), (FEDERATED, users)} <= set(found)
    ]


SAID = (
    Statement(
        f"Softmax_SLP_SGD is below DP-FL for few users and above it from about {CROSSING} users on",
        _crossing,
    ),
)


def page(table: Sequence[Row]) -> str:
    """Accuracies by number of users, and what the paper says."""
    lines = []
    for (name,), own in cells(table, ["data"]).items():
        found = {(row["method"], row["users"]): row for row in own}
        lines += [
            (f"{name}: {method}", *(shown(found.get((method, str(users)))) for users in USERS))
            for method in METHODS
        ]
    return "\n\n".join(
        [
            grid((f"ε = {EPSILON:g}", *(helmet.so_many_users(users) for users in USERS)), lines),
            f"The paper's abstract has {PAPER_ACCURACY:.2f} on CIFAR-10 with {PAPER_USERS:,} users "
            f"at ε = {PAPER_EPSILON:g}.",
            statements(SAID, table, "data", "the paper's text says; true here"),
        ]
    )


__all__ = ["DATA", "analyse"]

if __name__ == "__main__":
    from benches.papers.command import script

    raise SystemExit(script(__file__))
