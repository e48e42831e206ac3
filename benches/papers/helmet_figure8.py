"""Figure 8 of Distributed DP-Helmet: its learners and others with all rows in one place."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.svm import LinearSVC

from benches.papers.budget import events_of, share_of_budget
from benches.papers.cells import Statement, accuracy, cells, grid, shown, statements
from benches.papers.drawing import Panel, panels
from benches.papers.parties_features import Features, features_of
from benches.papers.pmsvm_methods import OneVsRest
from benches.tables import Row, as_rows
from dpsvm_fast import (
    GradientPerturbationSVC,
    ObjectivePerturbationSVC,
    OutputPerturbationSVC,
    PrivateLinearSVC,
    verify,
)
from dpsvm_fast.accounting import composed_delta

TITLE = "DP-Helmet, Figure 8: learners in one place"
PROTOCOL: tuple[str, ...] = (
    "The paper's rows are CIFAR-10 through SimCLR, which are not at hand: here they are MNIST "
    "through components of USPS, 64 features instead of 6,144, scaled to norm 1; "
    "cifar10_simclr.npz (X, y) is run where somebody supplies it.",
    "Each repeat trains on 50,000 rows of the training part, drawn anew, and is scored on the "
    "official test part.",
    "All methods promise the same: one row exchanged for another. The paper's DP-SGD is about one "
    "row more or fewer, which takes half the noise.",
    "DP_SVM_SGD and DP_Softmax_SLP_SGD are projected SGD with batches of 20 and 10 passes instead "
    "of 500 and 150, which the sensitivity does not depend on; Lambda and R are among the paper's "
    "for rows of norm 34.854, converted to norm 1, and balls that hold every minimiser.",
    "DP_SVM_SMO perturbs the minimum alone: here a certified one of the Huber hinge of the same "
    "width, where the paper's solver certifies nothing and its guarantee is for exact convergence.",
    "DP-SGD has the paper's sampling rate, passes and clip norm 0.1, and rates of 4, 16 and 64, "
    "as rows of norm 1 want larger ones than the paper's 4.",
    "AMP is objective perturbation of a Huber hinge for each class, as in the paper, by our own "
    "mechanism, which covers the approximate minimum with noise as AMP does; the models compose "
    "exactly. One objective for all classes stands beside it, with one release.",
    "The noise of all classes of one-vs-rest is that of one release: the paper composes them one "
    "after the other.",
    "Of every method with constants the best by mean test accuracy is shown, in each cell, as in "
    "the paper: for that choice no budget is spent. Objective perturbation and PrivateLinearSVC "
    "have their defaults.",
)
DELTAS, EPSILONS = (1e-5, 2e-8), (0.1, 0.2, 0.59, 1.0, 2.0)
SETS, CEILING = ("mnist", "cifar10_simclr"), "not private"
DATA = tuple(
    f"{name}: {part}"
    for name in SETS
    for part in (
        CEILING,
        *(f"delta {d:g}, epsilon {e:g}" for d, e in product(DELTAS, EPSILONS)),
    )
)
QUICK_DATA, QUICK_REPEATS = ("mnist: delta 1e-05, epsilon 0.59",), 1
REPEATS, N_ROWS = 3, 50_000
# The bound of the paper's rows, to which Lambda and R belong.
PAPER_NORM = 34.854
SVM_SGD, SLP, SMO, DP_SGD, AMP = (
    "DP_SVM_SGD",
    "DP_Softmax_SLP_SGD",
    "DP_SVM_SMO",
    "DP-SGD",
    "AMP",
)
OBJECTIVE, OURS, SVM = "one objective", "PrivateLinearSVC", "SVM, not private"
# Section 5 of the paper: accuracy on CIFAR-10 at epsilon = 0.59 and delta = 1e-5.
PAPER = {SVM_SGD: 0.874, SLP: 0.902, DP_SGD: 0.936}
PAPER_CELL = (1e-5, 0.59)
# Lambda, and R where it is not one that holds every minimiser (0).
SETTINGS: dict[str, tuple[tuple[float, ...], ...]] = {
    SVM_SGD: tuple(product((10.0, 100.0, 200.0), (0.04, 0.08, 0.0))),
    SLP: tuple(product((1.0, 3.0, 10.0, 30.0), (0.4, 1.0, 0.0))),
    SMO: tuple((PAPER_NORM**2 * value,) for value in (3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)),
    # The learning rate.
    DP_SGD: ((4.0,), (16.0,), (64.0,)),
}
SAMPLING_RATE, PASSES, CLIP = 1024 / 50_000, 40, 0.1
# Halvings of an interval of a twentieth to all of what a class could have at most.
HALVINGS = 16


@dataclass(frozen=True)
class Place:
    """What is public: the budget and the shape of the rows."""

    epsilon: float
    delta: float
    n_rows: int
    n_features: int
    n_classes: int

    @property
    def common(self) -> dict[str, Any]:
        """Arguments of all estimators."""
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "adjacency": "replace_one",
            "classes": range(self.n_classes),
            "n_threads": 1,
        }

    def multiplier(self, strength: float) -> float:
        """C for the paper's Lambda, for rows of norm 1."""
        return PAPER_NORM**2 / (strength * self.n_rows)


def svm_sgd(place: Place, strength: float, radius: float) -> OutputPerturbationSVC:
    """Huber hinges by projected SGD, a ball for each class."""
    own = {"loss": "huber", "smoothing": 0.1, "projection": "per_class"}
    return _projected(place, strength, radius, own)


def softmax_slp(place: Place, strength: float, radius: float) -> OutputPerturbationSVC:
    """Cross-entropy by projected SGD."""
    own = {"loss": "softmax_margin", "smoothing": 1.0, "margin": 0.0}
    return _projected(place, strength, radius, own)


def _projected(
    place: Place, strength: float, radius: float, own: dict[str, Any]
) -> OutputPerturbationSVC:
    """What both have in common."""
    return OutputPerturbationSVC(
        **place.common,
        **own,
        solver="psgd",
        n_epochs=10,
        batch_size=20,
        C=place.multiplier(strength),
        radius=radius * PAPER_NORM or "auto",
    )


def svm_smo(place: Place, strength: float) -> OutputPerturbationSVC:
    """The minimum of Huber hinges."""
    return OutputPerturbationSVC(
        **place.common, loss="huber", smoothing=0.1, C=place.multiplier(strength)
    )


def dp_sgd(place: Place, rate: float) -> GradientPerturbationSVC:
    """A softmax layer by noisy steps on Poisson samples."""
    return GradientPerturbationSVC(
        **place.common,
        loss="softmax_margin",
        smoothing=1.0,
        margin=0.0,
        optimizer="sgd",
        sampling_rate=SAMPLING_RATE,
        expected_batch_size=SAMPLING_RATE * place.n_rows,
        n_steps=round(PASSES / SAMPLING_RATE),
        learning_rate=rate,
        max_grad_norm=CLIP,
        average=0.0,
    )


def amp(place: Place) -> OneVsRest:
    """Objective perturbation for each class against the rest."""
    own = epsilon_of_one(place.epsilon, place.delta, place.n_features, place.n_classes)
    binary = ObjectivePerturbationSVC(
        **place.common | {"epsilon": own, "classes": [0, 1]}, loss="huber"
    )
    return OneVsRest(binary, place.n_classes)


@cache
def epsilon_of_one(epsilon: float, delta: float, n_features: int, n_models: int) -> float:
    """Epsilon, at the same delta, of one of several equal objective perturbations."""
    high = 1.1 * share_of_budget(epsilon, delta, 1.0 / n_models)
    low = 0.05 * high
    for _ in range(HALVINGS):
        middle = math.sqrt(low * high)
        model = ObjectivePerturbationSVC(
            middle, delta, loss="huber", adjacency="replace_one", classes=[0, 1], n_threads=1
        )
        spent = composed_delta([*events_of(model, n_features, 2)] * n_models, epsilon)
        low, high = (middle, high) if spent <= delta else (low, middle)
    return low


def one_objective(place: Place) -> ObjectivePerturbationSVC:
    """The same hinges in one objective."""
    return ObjectivePerturbationSVC(**place.common, loss="huber")


def ours(place: Place) -> PrivateLinearSVC:
    """The pipeline at its defaults."""
    return PrivateLinearSVC(**place.common)


METHODS: dict[str, Callable[..., Any]] = {
    SVM_SGD: svm_sgd,
    SLP: softmax_slp,
    SMO: svm_smo,
    DP_SGD: dp_sgd,
    AMP: amp,
    OBJECTIVE: one_objective,
    OURS: ours,
}


def run(names: Sequence[str], repeats: int | None) -> list[Row]:
    """One row a fit."""
    records: list[dict[str, object]] = []
    for name in names:
        own, part = name.split(": ")
        data = features_of(own)
        for repeat in range(repeats or REPEATS if data is not None else 0):
            assert data is not None
            rng = np.random.default_rng(repeat)
            drawn = rng.permutation(len(data.y))[:N_ROWS]
            records += [{"data": name, "repeat": repeat} | fit for fit in _fits(data, drawn, part)]
        print(f"{name}: {len(records)} fits", flush=True)
    return as_rows(records)


def _fits(data: Features, drawn: Any, part: str) -> Iterator[dict[str, object]]:
    """All models on one draw of rows."""
    X, y = data.X[drawn], data.y[drawn]
    if part == CEILING:
        model = LinearSVC(C=2.0, loss="hinge", random_state=0, max_iter=10_000).fit(X, y)
        yield _found(SVM, None, model, data, None)
        return
    delta, epsilon = (float(words.split()[1]) for words in part.split(", "))
    place = Place(epsilon, delta, len(y), X.shape[1], data.n_classes)
    for method, make in METHODS.items():
        for setting in SETTINGS.get(method, ((),)):
            model = make(place, *setting).fit(X, y)
            yield _found(method, setting, model, data, _spent(model, place))


def _found(
    method: str, setting: tuple[float, ...] | None, model: Any, data: Features, spent: float | None
) -> dict[str, object]:
    """What is stored of a fit."""
    return {
        "method": method,
        "setting": " ".join(f"{value:g}" for value in setting or ()),
        "accuracy": float(model.score(data.X_test, data.y_test)),
        "spent": spent,
    }


def _spent(model: Any, place: Place) -> float | None:
    """Epsilon of all that was released; None where it is not within the budget."""
    models = getattr(model, "models_", [model])
    if not all(verify(one.privacy_).ok for one in models):
        return None
    if len(models) == 1:
        return float(model.privacy_.epsilon)
    # One certificate is about at most one noisy objective: these are composed anew instead.
    events = [event for one in models for event in one.privacy_.events]
    return place.epsilon if composed_delta(events, place.epsilon) <= place.delta else None


def analyse(rows: Sequence[Row]) -> list[Row]:
    """Mean accuracy of each cell with the constants that are best there."""
    table: dict[tuple[str, ...], dict[str, object]] = {}
    for (name, method, setting), members in cells(rows, ("data", "method", "setting")).items():
        own, part = name.split(": ")
        delta, epsilon = (
            ("", "") if part == CEILING else (words.split()[1] for words in part.split(", "))
        )
        spent = [float(row["spent"]) for row in members if row["spent"]]
        at_paper = part != CEILING and (float(delta), float(epsilon)) == PAPER_CELL
        summary = {
            "data": own,
            "delta": delta,
            "epsilon": epsilon,
            "method": method,
            "setting": setting,
            **accuracy(members),
            "spent": max(spent) if len(spent) == len(members) else None,
            "paper": PAPER.get(method) if at_paper else None,
        }
        best = table.setdefault((name, method), summary)
        if float(str(summary["accuracy"])) > float(str(best["accuracy"])):
            table[name, method] = summary
    return as_rows(table.values())


def failures(table: Sequence[Row]) -> list[str]:
    """Budgets that are exceeded, certificates that do not hold."""
    return [
        f"helmet_figure8: {row['data']}, {row['method']} at {row['epsilon']}: spent {row['spent']}"
        for row in table
        if row["epsilon"]
        and (not row["spent"] or float(row["spent"]) > float(row["epsilon"]) * (1.0 + 1e-6))
    ]


def _compared(ahead: str, behind: Sequence[str]) -> Callable[[Sequence[Row]], Iterator[bool]]:
    """Whether a method is at least as accurate as all others named, cell by cell."""

    def checks(table: Sequence[Row]) -> Iterator[bool]:
        for members in cells(
            [row for row in table if row["epsilon"]], ("delta", "epsilon")
        ).values():
            own = {row["method"]: float(row["accuracy"]) for row in members}
            if {ahead, *behind} <= set(own):
                yield own[ahead] >= max(own[method] for method in behind)

    return checks


PAPERS_OWN = (SVM_SGD, SLP, SMO, DP_SGD, AMP)
SAID = (
    Statement(
        "DP-SGD is ahead of the paper's other methods (appendix G.2)",
        _compared(DP_SGD, PAPERS_OWN),
    ),
    Statement("the softmax is ahead of DP_SVM_SGD (appendix G.2)", _compared(SLP, (SVM_SGD,))),
    Statement("DP_SVM_SMO is ahead of DP_SVM_SGD (appendix G.2)", _compared(SMO, (SVM_SGD,))),
    Statement("DP_SVM_SGD is ahead of AMP (appendix G.2)", _compared(SVM_SGD, (AMP,))),
    Statement("one objective is ahead of AMP (not in the paper)", _compared(OBJECTIVE, (AMP,))),
    Statement(
        "PrivateLinearSVC, untuned, is ahead of all of the paper's (not in the paper)",
        _compared(OURS, PAPERS_OWN),
    ),
)


def plot(table: Sequence[Row], path: Path) -> None:
    """Accuracy along epsilon, a panel for each delta."""
    drawn = []
    for name in dict.fromkeys(row["data"] for row in table):
        own = [row for row in table if row["data"] == name]
        for delta in dict.fromkeys(row["delta"] for row in own if row["delta"]):
            lines = {}
            for method in (*METHODS, SVM):
                members = [
                    row for row in own if row["method"] == method and row["delta"] in ("", delta)
                ]
                lines[method] = [
                    (epsilon, float(row["accuracy"]), float(row["standard_error"] or 0.0))
                    for row in members
                    for epsilon in ([float(row["epsilon"])] if row["epsilon"] else EPSILONS)
                ]
            drawn.append(Panel(f"{name}, delta = {delta}", lines))
    panels(path, drawn, x_label="ε", columns=2, legend_columns=4)


def page(table: Sequence[Row]) -> str:
    """Accuracies by method and epsilon for each delta, and what the paper says of them."""
    parts = []
    for name in dict.fromkeys(row["data"] for row in table):
        own = [row for row in table if row["data"] == name]
        found = {(row["delta"], row["epsilon"], row["method"]): row for row in own}
        epsilons = sorted({row["epsilon"] for row in own if row["epsilon"]}, key=float)
        for delta in dict.fromkeys(row["delta"] for row in own if row["delta"]):
            parts.append(
                grid(
                    (
                        f"{name}, δ = {delta}",
                        *(f"ε = {epsilon}" for epsilon in epsilons),
                        "paper, CIFAR-10, ε = 0.59",
                    ),
                    (
                        (
                            method,
                            *(shown(found.get((delta, epsilon, method))) for epsilon in epsilons),
                            str(PAPER.get(method, "")) if float(delta) == PAPER_CELL[0] else "",
                        )
                        for method in METHODS
                    ),
                )
            )
        if ceiling := found.get(("", "", SVM)):
            parts.append(f"{SVM}, on {name}: {shown(ceiling)}.")
    return "\n\n".join([*parts, statements(SAID, table, "data", "cells in which")])


if __name__ == "__main__":
    from benches.papers.command import script

    raise SystemExit(script(__file__))
