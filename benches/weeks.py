"""Fifty-two weekly models under one budget, on streams that stay and streams that drift.

Every week brings new rows; half of them train, the others test. Rows of one week share no budget
with those of another (``PrivacyLedger(periods=...)``). ``python -m benches.weeks``, with DPSVM_DATA
set for the real rows, stores mean accuracies in ``benches/results/weeks.csv``, draws them over time
in ``docs/images/weeks.png`` and fills the table of docs/budget.md; ``--out FOLDER`` leaves the page
as it is and puts both files there.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benches import tables
from benches.machine import description
from benches.papers.cells import grid
from benches.papers.data import load
from dpsvm_fast import GradientPerturbationSVC, PrivacyLedger, PrivateLinearSVC, _core
from dpsvm_fast.accounting import gaussian_epsilon, gaussian_sigma

EPSILON, DELTA, N_WEEKS = 1.0, 1e-5, 52
WEEKS = [f"2026-W{week:02}" for week in range(1, N_WEEKS + 1)]
# An older model counts this much less for every week; a model on all rows is made so often.
DECAY, EVERY = 0.6, 4
# Of every week; a class lies at one of two places, and its rows around it.
N_ROWS, N_FEATURES, N_CLASSES, RADIUS, SPREAD = 800, 12, 4, 1.2, 0.6
JITTER = 0.15

Array = NDArray[Any]
Week = tuple[Array, Array]
ROOT = Path(__file__).resolve().parents[1]
RESULTS, NAME, PAGE = ROOT / "benches" / "results", "weeks", "docs/budget.md"
# By the name in the figure, the head in the table.
METHODS = {
    "first week alone": "one fit, on the first week",
    "all weeks at once": "one fit, on all weeks, afterwards",
    "all rows so far, shared budget": "52 fits on all rows so far, sharing the budget",
    "every week": "each week's fit, with its own ε",
    "partial_fit": "`partial_fit`",
    "mean of weekly scores": "mean of weekly scores",
}
STYLES = {
    "first week alone": ("0.5", ":"),
    "all weeks at once": ("C4", ":"),
    "all rows so far, shared budget": ("C1", "--"),
    "every week": ("C0", "-"),
    "partial_fit": ("C2", "-."),
    "mean of weekly scores": ("k", "-"),
}


def drifting(angle: Any, seed: int) -> tuple[list[Week], Array, Array]:
    """Classes whose centres turn from one set of places to another; ``angle`` of time 0..1."""
    rng = np.random.default_rng(seed)
    ends = rng.normal(size=(2, N_CLASSES, N_FEATURES))
    ends *= RADIUS / np.linalg.norm(ends, axis=2, keepdims=True)
    weeks = []
    for time in np.linspace(0.0, 1.0, N_WEEKS):
        centres = np.cos(angle(time)) * ends[0] + np.sin(angle(time)) * ends[1]
        y = rng.integers(0, N_CLASSES, N_ROWS)
        weeks.append((centres[y] + SPREAD * rng.normal(size=(N_ROWS, N_FEATURES)), y))
    return weeks, np.full(N_FEATURES, -3.0), np.full(N_FEATURES, 3.0)


def ordered(name: str, by: Any, seed: int) -> tuple[list[Week], Array, Array] | None:
    """A real set, cut into weeks in the order of something that moves, up to some jitter."""
    data = load(name)
    if data is None:
        return None
    rng = np.random.default_rng(seed)
    moving = by(data.X)
    order = np.argsort(moving + JITTER * moving.std() * rng.normal(size=moving.size))
    weeks = [(data.X[part], data.y[part]) for part in np.array_split(order, N_WEEKS)]
    return weeks, data.low, data.high


def scores(model: Any, X: Array) -> Array:
    """A column for each class, also of two."""
    found = model.decision_function(X)
    return found if found.ndim == 2 else np.column_stack([-found, found]) / 2.0


def accuracies(weeks: list[Week], low: Array, high: Array) -> dict[str, list[float]]:
    """Accuracy of every method in every week, or every few of them, on that week's other rows."""
    classes = np.unique(np.concatenate([y for _, y in weeks]))
    share = gaussian_epsilon(DELTA, gaussian_sigma(EPSILON, DELTA) * np.sqrt(N_WEEKS))
    common: dict[str, Any] = {"delta": DELTA, "classes": classes}
    ledger = PrivacyLedger(EPSILON, DELTA, periods=WEEKS)
    # A budget of its own: another world, in which only this is done.
    other = PrivacyLedger(EPSILON, DELTA, periods=WEEKS)
    going = GradientPerturbationSVC(EPSILON, **common)
    first = None
    once = PrivateLinearSVC(EPSILON, bounds=(low, high), **common).fit(*halves(weeks))
    found: dict[str, list[float]] = {method: [] for method in METHODS}
    totals = np.zeros(0)
    models: list[Any] = []
    for week, (X, y) in enumerate(weeks):
        half = len(y) // 2
        X_test, y_test = X[half:], y[half:]
        mine = ledger.for_periods(WEEKS[week])
        model = PrivateLinearSVC(EPSILON, bounds=(low, high), ledger=mine, **common)
        models.append(model.fit(X[:half], y[:half]))
        first = first or model
        totals = sum(DECAY**age * scores(m, X_test) for age, m in enumerate(reversed(models[-8:])))
        found["first week alone"].append(first.score(X_test, y_test))
        found["all weeks at once"].append(once.score(X_test, y_test))
        found["every week"].append(model.score(X_test, y_test))
        found["mean of weekly scores"].append(float(np.mean(classes[totals.argmax(1)] == y_test)))
        unit = (2.0 * X - low - high) / (high - low) / np.sqrt(X.shape[1])
        going.set_params(ledger=other.for_periods(WEEKS[week]), max_samples=len(weeks[0][1]) // 2)
        going.partial_fit(unit[:half], y[:half])
        found["partial_fit"].append(going.score(unit[half:], y_test))
        if week % EVERY == EVERY - 1:
            every = PrivateLinearSVC(share, bounds=(low, high), **common)
            every.fit(*halves(weeks[: week + 1]))
            found["all rows so far, shared budget"].append(every.score(X_test, y_test))
    for spent in (ledger, other):
        assert spent.total()[0] <= EPSILON * (1.0 + 1e-9)
    return found


def halves(weeks: Sequence[Week]) -> tuple[Array, Array]:
    """The training rows of all these weeks."""
    X, y = zip(*((X[: len(y) // 2], y[: len(y) // 2]) for X, y in weeks), strict=True)
    return np.concatenate(X), np.concatenate(y)


def streams(seed: int) -> dict[str, tuple[list[Week], Array, Array] | None]:
    """All of them by name."""
    return {
        "no drift": drifting(lambda time: 0.0, seed),
        "gradual drift (180°)": drifting(lambda time: np.pi * time, seed),
        "abrupt drift in week 27": drifting(lambda time: np.pi / 2 * (time > 0.5), seed),
        "adult, by age": ordered("adult", lambda X: X[:, 0], seed),
        "mnist, by ink": ordered("mnist", lambda X: X.sum(axis=1), seed),
    }


def draw(found: dict[str, dict[str, list[float]]], path: Path) -> None:
    """Accuracy over time, a panel for each stream; weekly values are means of five weeks."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    size = {"figsize": (9.6, 5.6), "layout": "constrained"}
    figure, axes = plt.subplots(2, 3, sharex=True, sharey=True, **size)
    *panels, last = axes.flat
    for ax, (name, of) in zip(panels, found.items(), strict=False):
        for method, values in of.items():
            step = N_WEEKS // len(values)
            weeks, shown = np.arange(step, N_WEEKS + 1, step), np.array(values)
            if step == 1:
                weeks, shown = weeks[2:-2], np.convolve(shown, np.full(5, 0.2), "valid")
            colour, line = STYLES[method]
            ax.plot(weeks, shown, line, color=colour, label=method, lw=1.8)
        ax.set_title(name, loc="left")
        ax.tick_params(labelbottom=ax is not panels[0] and ax is not panels[1])
        ax.grid(alpha=0.3)
    last.axis("off")
    last.legend(*panels[0].get_legend_handles_labels(), loc="center", frameon=False)
    figure.supxlabel("week")
    figure.supylabel("accuracy on held-out rows, mean of 5 weeks")
    axes[0, 0].set_ylim(0.0, 1.0)
    figure.savefig(path, dpi=110)


def page(found: Mapping[str, Sequence[tables.Row]]) -> str:
    """The table of docs/budget.md."""
    lines: dict[str, dict[str, str]] = {}
    for row in found[NAME]:
        cells = lines.setdefault(row["stream"], {})
        cells[row["method"]] = f"{float(row['accuracy']):.3f}"
    rows = ((stream, *map(cells.__getitem__, METHODS)) for stream, cells in lines.items())
    return grid(("Stream", *METHODS.values()), rows)


def main(arguments: Sequence[str] | None = None, n_seeds: int = 3) -> int:
    """Store the table, draw the figure of the first seed, fill the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--out", type=Path, help="folder of both files; the page stays")
    out = parser.parse_args(arguments).out
    warnings.simplefilter("ignore")
    shown: dict[str, dict[str, list[float]]] = {}
    means: dict[str, list[list[float]]] = {}
    for seed in range(n_seeds):
        for name, stream in streams(seed).items():
            if stream is not None and (seed == 0 or "by" not in name):
                found = accuracies(*stream)
                shown.setdefault(name, found)
                means.setdefault(name, []).append([float(np.mean(of)) for of in found.values()])
    rows = [
        {"stream": name, "method": method, "runs": len(runs), "accuracy": float(mean)}
        for name, runs in means.items()
        for method, mean in zip(METHODS, np.mean(runs, axis=0), strict=True)
    ]
    stored = tables.as_rows(rows)
    facts = description(_core.build_info(), _core.build_info()["default_threads"])
    tables.write((out or RESULTS) / f"{NAME}.csv", stored, facts)
    print(page({NAME: stored}))
    draw(shown, (out or ROOT / "docs" / "images") / f"{NAME}.png")
    if out is None:
        # It imports this module.
        from benches import pages

        pages.fill(PAGE, RESULTS, ROOT)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
