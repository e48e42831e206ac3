"""DP-Helmet's Figure 3: accuracy along epsilon for different numbers of users."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from benches.papers import helmet
from benches.papers.cells import Statement, cells, grid, shown, statements
from benches.papers.drawing import Panel, Point, panels
from benches.papers.helmet import BEST, CURATOR, EPSILON, FEDERATED, LEARNERS, NOT_PRIVATE, analyse
from benches.papers.parties_features import features_of
from benches.tables import Row, as_rows

TITLE = "Distributed DP-Helmet, Figure 3: users and epsilon"
PROTOCOL = (*helmet.COMMON_PROTOCOL, *helmet.FEDERATED_PROTOCOL)
DATA = tuple(
    f"{name}, {kind}" for name in helmet.DATA for kind in ("50 points a user", "50,000 points")
)
QUICK_DATA, QUICK_REPEATS = ("mnist, 50 points a user",), 1
REPEATS = 3
EPSILONS = (0.1, 0.2, EPSILON, 1.0, 2.0)
USERS = (1, 10, 100, 1000)
SETTINGS = {"50 points a user": helmet.points, "50,000 points": helmet.spread}
PANELS = (*LEARNERS, FEDERATED)
# Section 6, CIFAR-10 at epsilon 0.59 with one user, and the abstract: 1,000 users, epsilon 0.36.
PAPER_ONE_USER = {"SVM_SGD": 0.874, "Softmax_SLP_SGD": 0.902, FEDERATED: 0.936}


def run(names: Sequence[str], repeats: int | None) -> list[Row]:
    """One row a training."""
    records: list[dict[str, object]] = []
    for name in names:
        source, _, kind = name.partition(", ")
        data = features_of(source)
        if data is None:
            continue
        for repeat in range(repeats or REPEATS):
            for users in USERS:
                for epsilon in EPSILONS:
                    setting = SETTINGS[kind](users, epsilon)
                    parties = helmet.parties_of(data, setting, repeat)
                    # The same rows at every epsilon, and, where they are all, for all users.
                    once = kind == "50 points a user" or users == USERS[0]
                    check = repeat == 0 and epsilon == EPSILON
                    found = [
                        *helmet.averages(data, setting, repeat, parties, check=check),
                        *helmet.pooled(
                            data,
                            setting,
                            repeat,
                            parties,
                            curated=once,
                            noiseless=once and epsilon == EPSILONS[0],
                        ),
                    ]
                    records += [{"data": name} | record for record in found]
            print(f"{name}, repeat {repeat}: {len(records)} rows", flush=True)
    return as_rows(records)


def failures(table: Sequence[Row]) -> list[str]:
    """Certificates that do not hold."""
    return helmet.failures(table, "helmet_figure3")


def plot(table: Sequence[Row], path: Path) -> None:
    """One panel a method and setting, one line a number of users."""
    drawn = []
    for (name,), own in cells(table, ["data"]).items():
        for method in PANELS:
            lines: dict[str, list[Point]] = {}
            for row in own:
                if row["method"] == method:
                    label = helmet.so_many_users(int(row["users"]))
                    lines.setdefault(label, []).append(_point(row))
            most = max((int(row["users"]) for row in own if row["method"] == CURATOR), default=0)
            curated = [row for row in own if row["method"] == CURATOR]
            lines[CURATOR] = [_point(row) for row in curated if int(row["users"]) == most]
            drawn.append(Panel(f"{method}\n{name}", lines))
    panels(path, drawn, x_label="ε", columns=2)


def _point(row: Row) -> Point:
    return float(row["epsilon"]), float(row["accuracy"]), float(row["standard_error"] or 0.0)


def _along_users(table: Sequence[Row], method: str) -> dict[str, list[float]]:
    """Accuracies by number of users, at each epsilon."""
    own = sorted(
        (row for row in table if row["method"] == method), key=lambda row: int(row["users"])
    )
    return {
        epsilon: [float(row["accuracy"]) for row in members]
        for (epsilon,), members in cells(own, ["epsilon"]).items()
    }


def _graceful(table: Sequence[Row]) -> list[bool]:
    """Whether spreading over the most users costs less than it costs the baseline."""
    if not helmet.at(table, "spread"):
        return []
    lost = _along_users(table, FEDERATED)
    return [
        own[0] - own[-1] < lost[epsilon][0] - lost[epsilon][-1]
        for learner in list(LEARNERS)[:2]
        for epsilon, own in _along_users(table, learner).items()
        if epsilon in lost
    ]


def _growing(table: Sequence[Row]) -> list[bool]:
    """Whether accuracy grows with users of 50 points each."""
    return [
        after > before
        for learner in list(LEARNERS)[:2]
        for own in _along_users(helmet.at(table, "points"), learner).values()
        for before, after in pairwise(own)
    ]


SAID = (
    Statement("with 50 points a user, accuracy grows with the number of users", _growing),
    Statement(
        "with all points spread over more users, blind averaging loses less than DP-FL "
        "(here: from 1 user to 1,000)",
        _graceful,
    ),
)


def page(table: Sequence[Row]) -> str:
    """Accuracies by number of users at three epsilons, and what the paper says."""
    near = (EPSILONS[0], EPSILON, EPSILONS[-1])
    lines = []
    for (name,), own in cells(table, ["data"]).items():
        found = {(row["method"], row["users"], float(row["epsilon"])): row for row in own}
        for method in (*LEARNERS, FEDERATED, BEST, CURATOR, NOT_PRIVATE):
            row = [_three(found, method, str(users), near) for users in USERS]
            lines.append((f"{name}: {method}", *row))
    heads = (helmet.so_many_users(users) for users in USERS)
    parts = [
        grid((f"at ε = {' / '.join(f'{one:g}' for one in near)}", *heads), lines),
        _printed(table),
        statements(SAID, table, "data", "the paper's text says; true here"),
    ]
    return "\n\n".join(part for part in parts if part)


def _three(
    found: dict[tuple[str, str, float], Row], method: str, users: str, near: Sequence[float]
) -> str:
    """Accuracies at several epsilons in one cell."""
    rows = [found.get((method, users, epsilon)) for epsilon in near]
    return " / ".join(f"{float(row['accuracy']):.3f}" for row in rows if row)


def _printed(table: Sequence[Row]) -> str:
    """What the paper prints for one user, beside ours."""
    names = {row["data"] for row in table if row["setting"] == "spread"}
    if not names:
        return ""
    found = {
        (row["method"], row["data"]): row
        for row in helmet.at(table, "spread", EPSILON)
        if row["users"] == "1"
    }
    heads = (f"one user, ε = {EPSILON:g}", *sorted(names), "paper, CIFAR-10, ε = 0.59")
    return grid(
        heads,
        (
            (method, *(shown(found.get((method, name))) for name in sorted(names)), f"{value:.3f}")
            for method, value in PAPER_ONE_USER.items()
        ),
    )


__all__ = ["analyse"]

if __name__ == "__main__":
    from benches.papers.command import script

    raise SystemExit(script(__file__))
