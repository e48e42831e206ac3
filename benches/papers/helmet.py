"""The settings of Distributed DP-Helmet's Figures 3 and 4 and Table 2, on MNIST.

Blind averaging: every user trains alone, adds its share of the noise, and one secure sum follows.
Half of the users are taken to collude, as in the paper; alone, a user trusts itself. The features
are those of ``parties_features``.

- "points": 50 points a user, 1 to 1,000 users (Figure 3, middle; Figure 4).
- "spread": 50,000 points over 1 to 1,000 users (Figure 3, top).
- "one class": 50 points a user, all of one class (Table 2), at epsilon 1.172.

Beside it "one curator", the linear pipeline on all points by somebody whom all trust, and
"not private", a logistic regression on all points. The paper's figures are CIFAR-10 with features
of a network trained on ImageNet, which are not at hand: they stand beside ours for their shape.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from benches.papers.parties_features import Digits, digits
from benches.tables import Row, as_rows
from dpsvm_fast import PrivateLinearSVC, verify
from dpsvm_fast.federated import FederatedSpec, simulate

DELTA = 1e-5
EPSILONS = (0.1, 0.2, 0.5885, 1.0, 2.0)
USERS = (1, 10, 100, 1000)
POINTS = 50
ALL_POINTS = 50_000
BIASED_EPSILON = 1.172
HONEST = 0.5
REPEATS = 3
FEATURES = ("components", "fourier")
# Local learners: the paper's two, and exact minimisers of ours.
LEARNERS: dict[str, dict[str, Any]] = {
    "SVM_SGD": {"local": "svm_sgd"},
    "Softmax_SLP_SGD": {"local": "softmax_slp_sgd"},
    "exact softmax": {"local": "exact", "loss": "softmax_margin"},
}
# CIFAR-10 at epsilon 1.172 with 1,000 users of one class each, and what that costs.
PAPER_BIASED = {"SVM_SGD": (0.85, -0.02), "Softmax_SLP_SGD": (0.42, -0.49)}

Party = tuple[NDArray[np.float64], NDArray[np.int64]]


@dataclass(frozen=True)
class Setting:
    """One point of a figure."""

    name: str
    users: int
    points: int
    epsilon: float


def settings() -> Iterator[Setting]:
    """All points of the figures, then the table's."""
    for epsilon in EPSILONS:
        for users in USERS:
            yield Setting("points", users, POINTS, epsilon)
            yield Setting("spread", users, ALL_POINTS // users, epsilon)
    yield Setting("points", max(USERS), POINTS, BIASED_EPSILON)
    yield Setting("one class", max(USERS), POINTS, BIASED_EPSILON)


def parties_of(data: Digits, setting: Setting, rng: np.random.Generator) -> list[Party]:
    """Rows of each user; of one class each where the setting asks for it."""
    drawn = rng.permutation(len(data.y))[: setting.users * setting.points]
    if setting.name == "one class":
        drawn = drawn[np.argsort(data.y[drawn], kind="stable")]
        # A user at the border of two classes keeps to the first.
        cuts = np.split(drawn, setting.users)
        return [_of_one_class(data, cut) for cut in cuts]
    return [(data.X[part], data.y[part]) for part in np.split(drawn, setting.users)]


def _of_one_class(data: Digits, part: NDArray[np.intp]) -> Party:
    """Rows of the first label of ``part``, as many as it has."""
    label = data.y[part[0]]
    own = part[data.y[part] == label]
    others = np.setdiff1d(np.flatnonzero(data.y == label), own)[: len(part) - len(own)]
    rows = np.concatenate([own, others])
    return data.X[rows], data.y[rows]


def spec_of(setting: Setting, n_features: int, learner: dict[str, Any]) -> FederatedSpec:
    """What all users agree on."""
    return FederatedSpec.dp_helmet(
        n_users=setting.users,
        honest_fraction=HONEST if setting.users > 1 else 1.0,
        epsilon=setting.epsilon,
        delta=DELTA,
        n_features=n_features,
        classes=range(10),
        min_records=setting.points,
        max_records=setting.points,
        **learner,
    )


def run(names: Sequence[str], repeats: int | None) -> list[Row]:
    """One row a simulated training; ``names`` are kinds of features."""
    records: list[dict[str, object]] = []
    for features in names:
        data = digits(features)
        if data is None:
            continue
        for repeat in range(repeats or REPEATS):
            for setting in settings():
                rng = np.random.default_rng([repeat, setting.users, setting.points])
                for cell in _cells(data, setting, rng, repeat):
                    records.append({"data": features} | cell)
            print(f"{features}, repeat {repeat}: {len(records)} rows", flush=True)
    return as_rows(records)


def _cells(
    data: Digits, setting: Setting, rng: np.random.Generator, repeat: int
) -> Iterator[dict[str, object]]:
    """All learners on one draw of parties, and what one curator would get."""
    parties = parties_of(data, setting, rng)
    place = {
        "setting": setting.name,
        "users": setting.users,
        "points": setting.points,
        "epsilon": setting.epsilon,
        "repeat": repeat,
    }
    for name, learner in LEARNERS.items():
        begin = time.perf_counter()
        spec = spec_of(setting, data.X.shape[1], learner)
        model = simulate(spec, parties)
        seconds = time.perf_counter() - begin
        accuracy = float(model.score(data.X_test, data.y_test))
        holds = verify(model.privacy_).ok if repeat == 0 else None
        yield place | {"method": name, "accuracy": accuracy, "seconds": seconds, "holds": holds}
    if setting.name == "one class":
        return
    X, y = (np.concatenate(parts) for parts in zip(*parties, strict=True))
    for name, pooled in pooled_models(setting).items():
        begin = time.perf_counter()
        pooled.fit(X, y)
        seconds = time.perf_counter() - begin
        accuracy = float(pooled.score(data.X_test, data.y_test))
        yield place | {"method": name, "accuracy": accuracy, "seconds": seconds, "holds": None}


def pooled_models(setting: Setting) -> dict[str, Any]:
    """Models of all points in one place; the one without privacy once for each size."""
    models: dict[str, Any] = {
        "one curator": PrivateLinearSVC(
            setting.epsilon, DELTA, classes=range(10), adjacency="replace_one"
        )
    }
    if setting.epsilon == EPSILONS[0]:
        models["not private"] = LogisticRegression(C=100.0, max_iter=200)
    return models


def analyse(rows: Sequence[Row]) -> list[Row]:
    """Mean accuracy and median time of each cell."""
    cells: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        place = tuple(
            row[name] for name in ("data", "setting", "users", "points", "epsilon", "method")
        )
        cells.setdefault(place, []).append(row)
    table: list[dict[str, object]] = []
    for (data, setting, users, points, epsilon, method), members in cells.items():
        found = [float(row["accuracy"]) for row in members]
        biased = setting == "one class"
        paper = PAPER_BIASED.get(method) if biased else None
        alike = cells.get((data, "points", users, points, epsilon, method)) if biased else None
        table.append(
            {
                "data": data,
                "setting": setting,
                "users": users,
                "points": points,
                "epsilon": epsilon,
                "method": method,
                "repeats": len(found),
                "accuracy": mean(found),
                "standard_error": stdev(found) / math.sqrt(len(found)) if len(found) > 1 else None,
                "lost": mean(found) - mean(float(row["accuracy"]) for row in alike)
                if alike
                else None,
                "paper": paper[0] if paper else None,
                "paper_lost": paper[1] if paper else None,
                "seconds": median(float(row["seconds"]) for row in members),
                "holds": all(row["holds"] != "False" for row in members),
            }
        )
    return as_rows(table)


def failures(table: Sequence[Row]) -> list[str]:
    """Certificates that do not hold."""
    return [
        f"helmet: {row['data']}, {row['setting']}, {row['users']} users, {row['method']} at "
        f"{row['epsilon']}: the certificate does not hold"
        for row in table
        if row["holds"] != "True"
    ]


STYLES: dict[str, dict[str, Any]] = {
    "not private": {"color": "black", "linestyle": ":"},
    "one curator": {"color": "gray", "linestyle": "--"},
    "SVM_SGD": {"color": "tab:blue", "marker": "s"},
    "Softmax_SLP_SGD": {"color": "tab:orange", "marker": "o"},
    "exact softmax": {"color": "tab:green", "marker": "^"},
}


def plot(table: Sequence[Row], path: Path) -> None:
    """Accuracy along epsilon for each number of users, and along users at the paper's epsilon."""
    # Imported here: only this step needs it, and it is an optional dependency.
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = [row for row in table if row["data"] == table[0]["data"]]
    panels = [("points", "users"), ("spread", "users")]
    columns = [("epsilon", str(users)) for users in USERS[1:]] + [("users", "0.5885")]
    figure, axes = pyplot.subplots(
        len(panels),
        len(columns),
        figsize=(14, 6.8),
        squeeze=False,
        sharey=True,
        layout="constrained",
    )
    for row_of_axes, (setting, _) in zip(axes, panels, strict=True):
        for own, (along, value) in zip(row_of_axes, columns, strict=True):
            _panel(own, [row for row in shown if row["setting"] == setting], along, value)
            points = "50 points a user" if setting == "points" else "50,000 points in all"
            fixed = f"{value} users" if along == "epsilon" else f"epsilon {value}"
            own.set_title(f"{points}, {fixed}", fontsize="medium")
    for own in axes[:, 0]:
        own.set_ylabel("accuracy on the official test part")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(STYLES))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=75)
    pyplot.close(figure)


def _panel(own: Any, rows: Sequence[Row], along: str, value: str) -> None:
    """Curves of all methods."""
    for method, style in STYLES.items():
        members = [row for row in rows if row["method"] == method]
        if method == "not private":
            members = [row for row in members if along == "users" or row["users"] == value]
            if along == "epsilon" and members:
                own.axhline(float(members[0]["accuracy"]), label=method, **style)
                continue
        elif along == "epsilon":
            members = [row for row in members if row["users"] == value]
            members = [row for row in members if float(row["epsilon"]) in EPSILONS]
        else:
            members = [row for row in members if row["epsilon"] == value]
        line = sorted((float(row[along]), float(row["accuracy"])) for row in members)
        own.plot([x for x, _ in line], [y for _, y in line], label=method, **style)
    own.set_xscale("log")
    own.set_xlabel(along)
    own.grid(visible=True, alpha=0.3)
