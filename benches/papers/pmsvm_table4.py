"""Table 4 of PMSVM (NeurIPS 2025): seconds a fit and milliseconds an iteration."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.svm import LinearSVC

from benches.measuring import interleaved
from benches.papers.cells import cells, grid
from benches.papers.data import DataSet, load
from benches.papers.environments import Peer, peers
from benches.papers.pmsvm_methods import BASELINES, printed, rows_of, task_of
from benches.papers.pmsvm_settings import BATCH, CLIP, DELTA, NAMES, TEST_SHARE
from benches.tables import Row, as_rows

TITLE = "PMSVM (NeurIPS 2025), Table 4: computation time"
PROTOCOL: tuple[str, ...] = (
    "One thread; the paper has a Xeon E5-2680 v3 and an RTX 4090. Compare ratios within a column, "
    "not times with the paper's.",
    "The paper's weight perturbation is LIBLINEAR through scikit-learn: the optimum is not "
    "certified, and noise is added outside the timing. Ours are whole fits: validation, certified "
    "minimum, calibration, exact noise, statement.",
    "scikit-learn's LinearSVC runs in the same rounds on the same rows: C of the paper's table 7, "
    "the hinge for one-vs-rest, default tolerance, no intercept.",
    "An iteration is one step on a Poisson batch of 128 rows on average, with the constants of "
    "table 8. GRPUA takes one step for each class. Ours is a whole fit over its number of steps, "
    "with noise calibrated in an earlier fit.",
    "Opacus is timed for its step of the softmax layer that the paper calls Linear, with its own "
    "batch loader.",
    "Times are medians, on four fifths of the rows.",
)
WEIGHTS, GRADIENTS = "s a fit", "ms an iteration"
OVR, JOINT = "LinearSVC, one-vs-rest", "LinearSVC, Crammer-Singer"
OPACUS = "Opacus, Linear"
# What is timed, and how much of what.
METHODS = {
    OVR: WEIGHTS,
    "OPERA": WEIGHTS,
    JOINT: WEIGHTS,
    "PMSVM-WP": WEIGHTS,
    "GRPUA": GRADIENTS,
    "PMSVM-GP": GRADIENTS,
    "Linear": GRADIENTS,
    OPACUS: GRADIENTS,
}
# What the paper printed, means over runs, by data set in the order of NAMES. Its own weight
# perturbations are the two of scikit-learn's.
PRINTED = {
    "OPERA": (0.04, 0.01, 1.37, 0.62, 1.10, 0.01),
    "PMSVM-WP": (0.06, 0.01, 1.68, 1.55, 1.27, 0.01),
    "GRPUA": (37.57, 24.13, 44.90, 86.60, 47.47, 19.39),
    "PMSVM-GP": (16.04, 5.90, 5.47, 19.09, 5.03, 4.06),
}
# Ours, and what it is compared with in the same run.
PAIRS = (("OPERA", OVR), ("PMSVM-WP", JOINT), ("Linear", OPACUS))
# A model for each class, and one for all.
SEPARATE_OR_NOT = ("GRPUA", "PMSVM-GP")
DATA, QUICK_DATA, QUICK_REPEATS = NAMES, ("dermatology",), 2
REPEATS, OPACUS_EPOCHS = 7, 2
EPSILON, OPACUS_NOISE = 1.0, 1.0


def run(names: Sequence[str], repeats: int | None) -> list[Row]:
    """One row a fit."""
    records: list[dict[str, object]] = []
    rounds = repeats or REPEATS
    with peers(("opacus",)) as running:
        for name in names:
            data = load(name)
            if data is None:
                continue
            train, _ = train_test_split(
                np.arange(data.y.size), test_size=TEST_SHARE, random_state=0
            )
            found = [*_fits(name, data, train, rounds), *_steps(data, train, running, rounds)]
            records += [{"data": name} | fit for fit in found]
    return as_rows(records)


def _fits(name: str, data: DataSet, train: Any, rounds: int) -> Iterator[dict[str, object]]:
    """Times of ours and scikit-learn's, in turns."""
    candidates: dict[str, Callable[[int], object]] = {}
    steps = {}
    y = data.y[train]
    for method in METHODS:
        if method == OPACUS:
            continue
        reference = {OVR: "OPERA", JOINT: "PMSVM-WP"}.get(method, method)
        rows, norm = rows_of(reference, name, data, "public")
        X, task = rows[train], task_of(name, data, norm)
        constants = printed(reference, name)
        if method in (OVR, JOINT):
            candidates[method] = partial(_liblinear, method, constants[0], X, y)
            continue
        # Of weights the budgets of all rounds differ, so that no calibration is remembered.
        off = [1e-6 * repeat * (METHODS[method] == WEIGHTS) for repeat in range(rounds)]
        models = [BASELINES[method](task, EPSILON * (1.0 + part), constants) for part in off]
        if METHODS[method] == GRADIENTS:
            models[0].fit(X, y)
            steps[method] = getattr(models[0], "binary", models[0]).n_steps
        candidates[method] = partial(_fit, models, X, y)
    for measured in interleaved(candidates, rounds):
        n_steps = steps.get(measured.label)
        yield {
            "method": measured.label,
            "repeat": measured.repeat,
            "n_steps": n_steps,
            "time": measured.seconds if n_steps is None else 1e3 * measured.seconds / n_steps,
            "version": None,
        }


def _fit(models: Sequence[Any], X: Any, y: Any, repeat: int) -> object:
    """One of ours."""
    return models[repeat].fit(X, y)


def _liblinear(method: str, C: float, X: Any, y: Any, repeat: int) -> object:
    """What the paper's weight perturbations are made of."""
    kind = "ovr" if method == OVR else "crammer_singer"
    model = LinearSVC(C=C, loss="hinge", multi_class=kind, fit_intercept=False, random_state=repeat)
    with warnings.catch_warnings():
        # The paper takes what the default number of passes gives.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X, y)


def _steps(
    data: DataSet, train: Any, running: Sequence[Peer], rounds: int
) -> Iterator[dict[str, object]]:
    """Times of Opacus's step, whose shapes alone matter."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npz"
        part = {"X": data.X[train].astype(np.float32), "y": data.y[train]}
        np.savez(path, **part, X_test=part["X"][:1], y_test=part["y"][:1])
        request = {
            "rows": str(path),
            "n_classes": data.n_classes,
            "epsilon": EPSILON,
            "delta": DELTA,
            "noise_multiplier": OPACUS_NOISE,
            "learning_rate": 1e-3,
            "epochs": OPACUS_EPOCHS,
            "batch": BATCH,
            "clip": CLIP,
        }
        for peer in running:
            # The first call imports what it needs.
            peer.ask(**request, seed=0)
            for repeat in range(rounds):
                answer = peer.ask(**request, seed=repeat)
                yield {
                    "method": OPACUS,
                    "repeat": repeat,
                    "n_steps": answer["n_steps"],
                    "time": 1e3 * answer["step_seconds"],
                    "version": peer.versions,
                }


def analyse(rows: Sequence[Row]) -> list[Row]:
    """Medians beside the paper's figures, and ratios to what ran in the same rounds."""
    found = cells(rows, ("data", "method"))
    table = []
    for (name, method), members in found.items():
        times = [float(row["time"]) for row in members]
        other = found.get((name, dict(PAIRS).get(method, "")))
        paper = PRINTED.get({OVR: "OPERA", JOINT: "PMSVM-WP"}.get(method, method))
        table.append(
            {
                "data": name,
                "method": method,
                "unit": METHODS[method],
                "fits": len(times),
                "time": median(times),
                "fastest": min(times),
                "slowest": max(times),
                "other_over_ours": median(float(row["time"]) for row in other) / median(times)
                if other
                else None,
                "n_steps": members[0]["n_steps"],
                "paper": paper[NAMES.index(name)] if paper else None,
                "version": members[0]["version"],
            }
        )
    return as_rows(table)


def failures(_: Sequence[Row]) -> list[str]:
    """A slow time is shown, not judged."""
    return []


def plot(table: Sequence[Row], path: Path) -> None:
    """Times of all methods by data set; the paper's are hollow."""
    # Imported here: only this step needs it, and it is an optional dependency.
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    from benches.papers.drawing import COLOURS, MARKERS, save, tidy

    names = list(dict.fromkeys(row["data"] for row in table))
    figure, axes = pyplot.subplots(1, 2, figsize=(7.6, 5.4), layout="constrained")
    for own, unit in zip(axes, (WEIGHTS, GRADIENTS), strict=True):
        methods = [method for method in METHODS if METHODS[method] == unit]
        for place, method in enumerate(methods):
            members = [row for row in table if row["method"] == method]
            shift = 0.12 * (place - len(methods) / 2)
            for column in ("time", "paper"):
                points = [(names.index(row["data"]) + shift, row[column]) for row in members]
                points = [(x, y) for x, y in points if y]
                # The paper's weight perturbations are scikit-learn's: marked there once.
                if not points or (column == "paper" and method not in PRINTED):
                    continue
                own.plot(
                    [x for x, _ in points],
                    [float(y) for _, y in points],
                    marker=MARKERS[place],
                    color=COLOURS[place],
                    fillstyle="full" if column == "time" else "none",
                    linestyle="",
                    label=method if column == "time" else f"{method}, paper's machine",
                )
        own.set_yscale("log")
        own.set_ylabel("seconds per fit" if unit == WEIGHTS else "milliseconds per iteration")
        own.set_xticks(range(len(names)), names, rotation=30, ha="right")
        tidy(own)
        own.legend(fontsize="small", frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.2))
    save(figure, path)


def page(table: Sequence[Row]) -> str:
    """Times by method and data set, after the slash the paper's; ratios in one run."""
    found = {(row["data"], row["method"]): row for row in table}
    names = list(dict.fromkeys(row["data"] for row in table))
    methods = [method for method in METHODS if any(row["method"] == method for row in table)]
    times = grid(
        ("here / paper", *names, "unit"),
        (
            (method, *(_shown(found.get((name, method))) for name in names), METHODS[method])
            for method in methods
        ),
    )
    said = []
    for ours, other in PAIRS:
        ratios = [
            float(row["other_over_ours"])
            for row in table
            if row["method"] == ours and row["other_over_ours"]
        ]
        if ratios:
            said.append(
                f"{other} takes {min(ratios):.2g} to {max(ratios):.2g} times as long as our {ours}."
            )
    both = [name for name in names if {(name, one) for one in SEPARATE_OR_NOT} <= set(found)]
    if both:
        here = _ratio(
            [[float(found[name, one]["time"]) for name in both] for one in SEPARATE_OR_NOT]
        )
        there = _ratio(
            [[PRINTED[one][NAMES.index(name)] for name in both] for one in SEPARATE_OR_NOT]
        )
        said.append(
            f"An iteration for all classes is {here:.1f} times as fast as one for each class, on "
            f"average over the sets; {there:.1f} times in the paper."
        )
    return f"{times}\n\n{' '.join(said)}"


def _ratio(times: Sequence[Sequence[float]]) -> float:
    """Of the means of two methods over data sets."""
    first, second = times
    return mean(first) / mean(second)


def _shown(row: Row | None) -> str:
    """A time, and the paper's."""
    if row is None:
        return ""
    return f"{float(row['time']):.2g}" + (f" / {float(row['paper']):g}" if row["paper"] else "")


if __name__ == "__main__":
    from benches.papers.command import script

    raise SystemExit(script(__file__))
