"""Other libraries' private linear classifiers beside ours, each in an environment of its own."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import normalize

from benches.papers.cells import accuracy, cells, grid, shown
from benches.papers.data import DataSet, load
from benches.papers.drawing import Panel, panels
from benches.papers.environments import NAMES as LIBRARIES
from benches.papers.environments import Peer, peers
from benches.papers.pmsvm_printed import PRINTED
from benches.papers.pmsvm_settings import (
    BATCH,
    CLIP,
    DELTA,
    EPSILONS,
    GRADIENT_METHODS,
    SGD_FACTOR,
    TEST_SHARE,
    TUNED,
    scaled_rows,
)
from benches.tables import Row, as_rows
from dpsvm_fast import PrivateLinearSVC, PublicScaler, verify

TITLE = "Other libraries on the data of PMSVM (NeurIPS 2025), Table 2"
OURS, PURE, OTHER, DESCENT, PLAIN = (
    "PrivateLinearSVC",
    "PrivateLinearSVC, delta = 0",
    "diffprivlib, delta = 0",
    "Opacus",
    "scikit-learn, not private",
)
METHODS = (OURS, DESCENT, PURE, OTHER, PLAIN)
PROTOCOL: tuple[str, ...] = (
    "All methods share their splits. Ours get raw rows.",
    "Every other library runs with one thread, in its own environment with the versions pinned in "
    "benches/papers/environments: diffprivlib 0.6.6 only works up to scikit-learn 1.7.2.",
    "diffprivlib.models.LogisticRegression, at its defaults with data_norm=1, gets rows mapped by "
    "the same public bounds and scaled to norm 1. It offers pure ε only: compare it with ours at "
    "δ = 0.",
    "diffprivlib trains a model for each class against the rest with ε divided by their number, "
    "reads the label set and the number of rows from the data, does not regularise the intercept, "
    "and stops its optimiser at a tolerance that its noise does not cover.",
    "Opacus trains a softmax layer by DP-SGD like the column Linear of PMSVM's tables 2 and 8: "
    "Poisson batches of 128, R = 1, the table's epochs, the PRV accountant. Rows are mapped by "
    "public bounds and scaled to the length that the table's rates are for.",
    "Opacus shows the better of two learning rates by test accuracy, the table's and ten times as "
    "much; the choice spends no budget. It treats the number of rows as public, and its noise is "
    "not drawn exactly.",
    "The classifier without privacy is scikit-learn's LogisticRegression(C=100) on the rows that "
    "diffprivlib gets.",
)
# Ours are measured again when defaults change, without waiting for the others.
FROM_HERE, FROM_OUTSIDE = "ours", "others"
NAMES = ("cornell", "dermatology", "isolet", "usps", "vehicle", "wisdm")
DATA = tuple(f"{group}: {name}" for name in NAMES for group in (FROM_HERE, FROM_OUTSIDE))
QUICK_DATA, QUICK_REPEATS = tuple(f"{group}: dermatology" for group in (FROM_HERE, FROM_OUTSIDE)), 1
# The steps of Opacus on the largest sets take long.
SPLITS, FEWER = 10, {"usps": 3, "wisdm": 5}
# Times the learning rate of table 8.
RATES = (1.0, 10.0)
# Of a set that the paper does not have, the constants of the one that it stands in for.
STAND_INS = {"wisdm": "hhar"}
# Ours may be below another library's by this many standard errors of the difference.
ERRORS = 2.0


def run(names: Sequence[str], repeats: int | None) -> list[Row]:
    """One row a fit; no others where their environments are not made."""
    asked = [name.split(": ") for name in names]
    records: list[dict[str, object]] = []
    with (
        peers(LIBRARIES if any(group == FROM_OUTSIDE for group, _ in asked) else ()) as running,
        tempfile.TemporaryDirectory() as folder,
    ):
        for group, name in asked:
            data = load(name) if running or group == FROM_HERE else None
            for split in range(repeats or FEWER.get(name, SPLITS) if data is not None else 0):
                assert data is not None
                found = (
                    _ours(data, split)
                    if group == FROM_HERE
                    else _others(name, data, split, running, Path(folder))
                )
                records += [{"data": f"{group}: {name}", "split": split} | fit for fit in found]
                print(f"{group}: {name}, split {split}: {len(records)} fits", flush=True)
    return as_rows(records)


def _parts(data: DataSet, split: int) -> Any:
    """Places of training and of test rows."""
    return train_test_split(np.arange(data.y.size), test_size=TEST_SHARE, random_state=split)


def _ours(data: DataSet, split: int) -> Iterator[dict[str, object]]:
    """The pipeline at its defaults, with both kinds of privacy."""
    train, test = _parts(data, split)
    for epsilon in EPSILONS:
        for method, delta in ((OURS, DELTA), (PURE, 0.0)):
            model = PrivateLinearSVC(
                epsilon,
                delta,
                bounds=(data.low, data.high),
                classes=range(data.n_classes),
                n_threads=1,
            )
            begin = time.perf_counter()
            model.fit(data.X[train], data.y[train])
            seconds = time.perf_counter() - begin
            yield {
                "method": method,
                "epsilon": epsilon,
                "rate": None,
                "accuracy": float(model.score(data.X[test], data.y[test])),
                "seconds": seconds,
                "spent": model.privacy_.epsilon if verify(model.privacy_).ok else None,
                "version": None,
            }


def _others(
    name: str, data: DataSet, split: int, running: Sequence[Peer], folder: Path
) -> Iterator[dict[str, object]]:
    """Models of other libraries on one split."""
    train, test = _parts(data, split)
    unit = normalize(PublicScaler((data.low, data.high)).fit_transform(data.X))
    yield _not_private(unit, data.y, train, test)
    stored = {
        "diffprivlib": _stored(folder / "unit.npz", unit, data.y, train, test),
        "opacus": _stored(folder / "scaled.npz", scaled_rows(data, name)[0], data.y, train, test),
    }
    for epsilon in EPSILONS:
        common = {"n_classes": data.n_classes, "epsilon": epsilon, "seed": split}
        for peer in running:
            request = common | {"rows": str(stored[peer.name])}
            yield from _theirs(name, peer, request)


def _stored(path: Path, X: Any, y: Any, train: Any, test: Any) -> Path:
    """Where another process finds the rows."""
    np.savez(path, X=X[train], y=y[train], X_test=X[test], y_test=y[test])
    return path


def _not_private(X: Any, y: Any, train: Any, test: Any) -> dict[str, object]:
    """A logistic regression."""
    begin = time.perf_counter()
    model = LogisticRegression(C=100.0, max_iter=2000).fit(X[train], y[train])
    seconds = time.perf_counter() - begin
    return {
        "method": PLAIN,
        "epsilon": None,
        "rate": None,
        "accuracy": float(model.score(X[test], y[test])),
        "seconds": seconds,
        "spent": None,
        "version": None,
    }


def _theirs(name: str, peer: Peer, request: dict[str, Any]) -> Iterator[dict[str, object]]:
    """Another library's fits on one split at one epsilon."""
    if peer.name == "diffprivlib":
        yield _answered(OTHER, peer, request | {"delta": 0.0, "data_norm": 1.0}, None)
        return
    base, _, tuned = TUNED[STAND_INS.get(name, name)]
    epochs, scale = tuned[GRADIENT_METHODS.index("Linear")]
    settings = {"delta": DELTA, "epochs": epochs, "batch": BATCH, "clip": CLIP}
    for factor in RATES:
        rate = {"learning_rate": base * scale * SGD_FACTOR * factor}
        yield _answered(DESCENT, peer, request | settings | rate, factor)


def _answered(
    method: str, peer: Peer, request: dict[str, Any], rate: float | None
) -> dict[str, object]:
    """One fit of another library."""
    answer = peer.ask(**request)
    return {
        "method": method,
        "epsilon": request["epsilon"],
        "rate": rate,
        "accuracy": answer["accuracy"],
        "seconds": answer["seconds"],
        "spent": answer["epsilon"],
        "version": peer.versions,
    }


def analyse(rows: Sequence[Row]) -> list[Row]:
    """Mean accuracy and median time; of several learning rates the better one of each cell."""
    table: dict[tuple[str, ...], dict[str, object]] = {}
    for place, members in cells(rows, ("data", "method", "epsilon", "rate")).items():
        name, method, epsilon, rate = place[0].split(": ")[1], *place[1:]
        cell = (name, method, epsilon)
        spent = [float(row["spent"]) for row in members if row["spent"]]
        printed = PRINTED.get(name, {}).get("Linear") if method == DESCENT else None
        summary = {
            "data": name,
            "method": method,
            "epsilon": epsilon,
            "rate": rate,
            **accuracy(members),
            "seconds": median(float(row["seconds"]) for row in members),
            "spent": max(spent) if len(spent) == len(members) else None,
            "paper": printed[EPSILONS.index(float(epsilon))][0] if printed else None,
            "version": members[0]["version"],
        }
        best = table.setdefault(cell, summary)
        if float(str(summary["accuracy"])) > float(str(best["accuracy"])):
            table[cell] = summary
    return as_rows(table.values())


def _pairs(table: Sequence[Row], ours: str, theirs: str) -> Iterator[tuple[Row, Row]]:
    """Ours and another's of each cell that both have."""
    own = {(row["data"], row["epsilon"]): row for row in table if row["method"] == ours}
    for row in table:
        if row["method"] == theirs and (row["data"], row["epsilon"]) in own:
            yield own[row["data"], row["epsilon"]], row


def failures(table: Sequence[Row]) -> list[str]:
    """Budgets that are exceeded, and cells in which another library is clearly ahead."""
    found = [
        f"outside_peers: {row['data']}, {row['method']} at {row['epsilon']}: spent {row['spent']}"
        for row in table
        if row["epsilon"]
        and (not row["spent"] or float(row["spent"]) > float(row["epsilon"]) * (1.0 + 1e-6))
    ]
    for ours, theirs in ((OURS, DESCENT), (PURE, OTHER)):
        for own, other in _pairs(table, ours, theirs):
            errors = [float(row["standard_error"] or 0.0) for row in (own, other)]
            allowed = ERRORS * math.hypot(*errors)
            if float(other["accuracy"]) - float(own["accuracy"]) > allowed:
                found.append(
                    f"outside_peers: {own['data']} at {own['epsilon']}: {theirs} "
                    f"{other['accuracy']}, ours {own['accuracy']}"
                )
    return found


def plot(table: Sequence[Row], path: Path) -> None:
    """Accuracy along epsilon, one panel a data set."""
    drawn = []
    for (name,), members in cells(table, ["data"]).items():
        lines = {}
        for method in METHODS:
            own = [row for row in members if row["method"] == method]
            lines[method] = [
                (epsilon, float(row["accuracy"]), float(row["standard_error"] or 0.0))
                for row in own
                for epsilon in ([float(row["epsilon"])] if row["epsilon"] else EPSILONS)
            ]
        drawn.append(Panel(name, lines))
    panels(path, drawn, x_label="ε", columns=3)


def page(table: Sequence[Row]) -> str:
    """Accuracies and seconds of all methods, and who is ahead where."""
    found = {(row["data"], row["epsilon"], row["method"]): row for row in table}
    names = list(dict.fromkeys(row["data"] for row in table))
    methods = [method for method in METHODS if any(row["method"] == method for row in table)]
    epsilons = sorted({row["epsilon"] for row in table if row["epsilon"]}, key=float)
    accuracies = grid(
        ("data", "ε", *methods, "PMSVM's Linear, printed"),
        (
            (
                name,
                epsilon,
                *(
                    shown(found.get((name, "" if method == PLAIN else epsilon, method)))
                    for method in methods
                ),
                found.get((name, epsilon, DESCENT), {}).get("paper", ""),
            )
            for name in names
            for epsilon in epsilons
        ),
    )
    seconds = grid(
        ("seconds a fit, median", *methods),
        (
            (name, *(_seconds(table, name, method) for method in methods))
            for name in dict.fromkeys(row["data"] for row in table)
        ),
    )
    said = [
        sentence
        for ours, theirs in ((OURS, DESCENT), (PURE, OTHER))
        if (sentence := _ahead(table, ours, theirs))
    ]
    return "\n\n".join([accuracies, seconds, " ".join(said)])


def _seconds(table: Sequence[Row], name: str, method: str) -> str:
    """Of a method on a data set, over all epsilons."""
    own = [float(row["seconds"]) for row in table if (row["data"], row["method"]) == (name, method)]
    return f"{median(own):.2g}" if own else ""


def _ahead(table: Sequence[Row], ours: str, theirs: str) -> str:
    """In how many cells ours is at least as accurate: a sentence."""
    gains = [
        float(own["accuracy"]) - float(other["accuracy"])
        for own, other in _pairs(table, ours, theirs)
    ]
    if not gains:
        return ""
    ahead = sum(gain >= 0.0 for gain in gains)
    return (
        f"{ours} is at least as accurate as {theirs} in {ahead} of {len(gains)} cells; the median "
        f"difference is {median(gains):+.3f}, the smallest {min(gains):+.3f}."
    )


if __name__ == "__main__":
    from benches.papers.command import script

    raise SystemExit(script(__file__))
