"""PMSVM, figures 3 and 6: training loss and accuracies along the steps of PMSVM-GP and -AGP."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split

from benches.papers.cells import cells, error
from benches.papers.data import Array, load
from benches.papers.drawing import save, tidy
from benches.papers.pmsvm_settings import (
    EPSILONS,
    NAMES,
    TEST_SHARE,
    gradient_arguments,
    scaled_rows,
)
from benches.tables import Row, as_rows
from dpsvm_fast import GradientPerturbationSVC, _core
from dpsvm_fast.estimators.inputs import ArrayRows
from dpsvm_fast.losses import Loss

TITLE = "PMSVM (NeurIPS 2025), figures 3 and 6: convergence"
PROTOCOL: tuple[str, ...] = (
    "Losses and accuracies read the training rows again at every mark, without spending budget. "
    "These data are public; do not do this with private rows.",
    "The budget covers all iterates: any may be released, with its test accuracy on public rows.",
    "Losses, steps and learning rates are those of the paper's tables, on rows mapped by public "
    "bounds. The loss is the mean over training rows, without the penalty.",
)
DATA: tuple[str, ...] = NAMES
QUICK_DATA: tuple[str, ...] = ("dermatology", "vehicle")
QUICK_REPEATS = 1
SPLITS = 5

METHODS = ("PMSVM-GP", "PMSVM-AGP")
# Marks along a run beside its start, denser there.
MARKS, DENSITY = 15, 1.5
MEASURES = ("loss", "train", "test")
KEY = ("data", "method", "epsilon", "step")
# Of the budgets, in their order.
GREYS, MARKERS = ("0.65", "0.45", "0.25", "0.0"), ("o", "s", "D", "^")
# A loss that ends this much above its lowest mark has risen.
RISEN = 1.1


def run(names: Sequence[str], repeats: int | None) -> list[Row]:
    """One row a mark of a fit."""
    records: list[dict[str, object]] = []
    for name in names:
        data = load(name)
        if data is None:
            continue
        X, norm = scaled_rows(data, name)
        for method in METHODS:
            for epsilon in EPSILONS:
                for split in range(repeats or SPLITS):
                    train, test = train_test_split(
                        np.arange(data.y.size), test_size=TEST_SHARE, random_state=split
                    )
                    given = gradient_arguments(
                        method,
                        name,
                        epsilon=epsilon,
                        n_rows=train.size,
                        n_classes=data.n_classes,
                        norm=norm,
                    )
                    place = {"data": name, "method": method, "epsilon": epsilon, "split": split}
                    parts = (X[train], data.y[train]), (X[test], data.y[test])
                    records += [place | mark for mark in curve(given, *parts)]
            print(f"{name}, {method}", flush=True)
    return as_rows(records)


def curve(
    given: dict[str, Any],
    train: tuple[Array, NDArray[np.int64]],
    test: tuple[Array, NDArray[np.int64]],
) -> Iterator[dict[str, object]]:
    """Marks of one run: the estimator's own steps, with a look at the iterate between them."""
    estimator = GradientPerturbationSVC(**given, n_threads=1)
    checked = estimator.checked()
    rows = ArrayRows(checked, *train, classes=checked.classes)
    rows.read()
    mechanism = checked.plan(rows.facts)
    descent, options = mechanism.descent(), mechanism.descent_options()
    records = rows.records(mechanism.public)
    source = _core.NoiseSource()
    done = 0
    for step in marks(mechanism.steps):
        if step > done:
            rows.descend(records, descent, options, source, step - done)
        done = step
        weights = descent.weights() / mechanism.data_norm
        scores = [_scores(part, weights, given["intercept_scaling"]) for part, _ in (train, test)]
        yield {
            "step": step,
            "loss": mean_loss(scores[0], train[1], mechanism.loss),
            "train": float(np.mean(scores[0].argmax(axis=1) == train[1])),
            "test": float(np.mean(scores[1].argmax(axis=1) == test[1])),
        }


def marks(n_steps: int) -> list[int]:
    """Steps after which to look, from 0 to the last one."""
    return sorted({round(n_steps * (i / MARKS) ** DENSITY) for i in range(MARKS + 1)})


def _scores(X: Array, weights: Array, intercept: float) -> Array:
    """Scores of rows, the last weight of each class being that of the constant feature."""
    return np.asarray(X @ weights[:, :-1].T + intercept * weights[:, -1])


def mean_loss(scores: Array, y: NDArray[np.int64], loss: Loss) -> float:
    """The smoothed hinge of Weston and Watkins, mean over rows."""
    own = np.arange(y.size), y
    gaps = loss.margin + scores - scores[own][:, None]
    terms = 0.5 * (gaps + np.hypot(gaps, loss.smoothing))
    terms[own] = 0.0
    return float(terms.sum(axis=1).mean())


def analyse(rows: Sequence[Row]) -> list[Row]:
    """Means over splits and their standard errors, one row a mark."""
    table = []
    for key, members in cells(rows, KEY).items():
        found = {name: [float(row[name]) for row in members] for name in MEASURES}
        table.append(
            {
                **dict(zip(KEY, key, strict=True)),
                "splits": len(members),
                **{name: mean(values) for name, values in found.items()},
                **{f"{name}_error": error(values) for name, values in found.items()},
            }
        )
    return as_rows(table)


def failures(table: Sequence[Row]) -> list[str]:
    """Sets that are not learned at the largest budget: no better than at the start."""
    return [
        f"pmsvm_figure3: {name}, {method} learns nothing at {epsilon}"
        for (name, method, epsilon), members in curves(table).items()
        if float(epsilon) == max(EPSILONS)
        and float(members[-1]["test"]) <= float(members[0]["test"])
    ]


def curves(table: Sequence[Row]) -> dict[tuple[str, ...], list[Row]]:
    """Marks of each data set, method and epsilon in their order."""
    found = cells(table, KEY[:3])
    return {key: sorted(rows, key=lambda row: int(row["step"])) for key, rows in found.items()}


def plot(table: Sequence[Row], path: Path) -> None:
    """A line of panels for each data set: loss, training accuracy, test accuracy."""
    # Imported here: only this step needs it, and it is an optional dependency.
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = list(dict.fromkeys(row["data"] for row in table))
    figure, axes = pyplot.subplots(
        len(names),
        len(MEASURES),
        figsize=(9.6, 2.0 * len(names) + 0.7),
        squeeze=False,
        layout="constrained",
    )
    handles: dict[str, Any] = {}
    epsilons = [f"{epsilon:g}" for epsilon in EPSILONS]
    for (name, method, epsilon), members in curves(table).items():
        for panel, measure in zip(axes[names.index(name)], MEASURES, strict=True):
            line = _draw(panel, members, measure, method, epsilons.index(epsilon))
            panel.set_title(f"{name}, {TITLES[measure]}", fontsize="small")
            handles[f"{method.removeprefix('PMSVM-')}, ε = {epsilon}"] = line
    for own in axes:
        own[0].set_yscale("log")
        own[0].set_ylabel("loss", fontsize="small")
        own[1].set_ylabel("accuracy", fontsize="small")
    for own in axes[-1]:
        own.set_xlabel("step", fontsize="small")
    figure.legend(
        list(handles.values()),
        list(handles),
        loc="outside lower center",
        ncols=len(EPSILONS),
        fontsize="small",
    )
    save(figure, path)


def _draw(panel: Any, members: Sequence[Row], measure: str, method: str, place: int) -> Any:
    """One curve; returns its handle."""
    (line,) = panel.plot(
        [int(row["step"]) for row in members],
        [float(row[measure]) for row in members],
        color=GREYS[place],
        linestyle="-" if method == METHODS[0] else "--",
        marker=MARKERS[place],
        markersize=3,
        linewidth=1.0,
        fillstyle="full" if method == METHODS[0] else "none",
    )
    tidy(panel)
    panel.tick_params(labelsize="small")
    return line


TITLES = {"loss": "training loss", "train": "training accuracy", "test": "test accuracy"}


def page(table: Sequence[Row]) -> str:
    """What the curves show, in sentences: the curves themselves are the picture."""
    found = curves(table)
    epsilons = list(dict.fromkeys(row["epsilon"] for row in table))
    risen = [_risen(found, epsilon) for epsilon in (epsilons[0], epsilons[-1])]
    pairs = [
        (_at(members, 0.25, "test"), _at(found[name, METHODS[1], epsilon], 0.25, "test"))
        for (name, method, epsilon), members in found.items()
        if method == METHODS[0] and (name, METHODS[1], epsilon) in found
    ]
    faster = sum(adaptive > plain for plain, adaptive in pairs)
    gaps = [float(members[-1]["train"]) - float(members[-1]["test"]) for members in found.values()]
    return (
        f"The training loss ends above {RISEN:g} times its minimum in {risen[0]} runs at "
        f"ε = {epsilons[0]}, where the paper sees it diverge, and in {risen[1]} at "
        f"ε = {epsilons[-1]}. After a quarter of its steps PMSVM-AGP is ahead of PMSVM-GP in "
        f"{faster} of {len(pairs)} cells, with more steps in some of them. At the end "
        f"training minus test accuracy is {mean(gaps):+.3f} on average."
    )


def _at(members: Sequence[Row], share: float, of: str) -> float:
    """The mark nearest to a share of the steps."""
    last = int(members[-1]["step"])
    return float(min(members, key=lambda row: abs(int(row["step"]) - share * last))[of])


def _risen(found: dict[tuple[str, ...], list[Row]], epsilon: str) -> str:
    """How many curves of the loss end well above their lowest mark."""
    own = [members for (_, _, at), members in found.items() if at == epsilon]
    lowest = [min(float(row["loss"]) for row in members) for members in own]
    ends = [float(members[-1]["loss"]) for members in own]
    risen = sum(end > RISEN * low for end, low in zip(ends, lowest, strict=True))
    return f"{risen} of {len(own)}"


if __name__ == "__main__":
    from benches.papers.command import script

    raise SystemExit(script(__file__))
