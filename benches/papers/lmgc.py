"""PrivateGaussianMarginClassifier: where do quadratic boundaries help, at what budget?

Ellipsoids behind private pre-processing, composed exactly by one ledger of the whole budget,
delta = 1e-5, add_remove; beside them PrivateLinearSVC with the same budget at its defaults, on the
same splits, and what is possible without privacy: the same pipeline with epsilon = 1,000, logistic
regression, and quadratic discriminants. One set is synthetic: classes with the same mean, which
only their covariances tell apart.

The recipes are shares of the squared Gaussian parameter, from public facts: vehicle is whitened
(more rows than half the squared number of features), USPS is reduced to 30 dimensions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler

from benches.papers import cells
from benches.papers.budget import epsilon_beside, events_of, share_of_budget
from benches.papers.data import load
from benches.papers.drawing import Panel, Point, panels
from benches.tables import Row, as_rows
from dpsvm_fast import (
    PrivacyLedger,
    PrivateCenter,
    PrivateGaussianMarginClassifier,
    PrivateLinearSVC,
    PrivatePCA,
    PrivateWhitener,
    PublicScaler,
)

TITLE = "LMGC (2010): ellipsoids compared with planes"
PROTOCOL = (
    "The paper has no experiments. These are ours, of its classifier with the "
    "[corrections](papers.md#corrections-to-lmgc) that its guarantee needs.",
    "One ledger also pays for pre-processing; its shares are public facts of the recipes.",
    "PrivateLinearSVC has the same budget on the same splits. “Same means” is synthetic: its "
    "classes differ only in covariance.",
    "Not private: the same pipeline at ε = 1,000, and scikit-learn's logistic regression and "
    "quadratic discriminant analysis.",
)
EPSILONS = (1.0, 2.0, 4.0, 8.0)
DELTA = 1e-5
# Where noise does not matter any more.
NOT_PRIVATE = 1e3
TEST_SHARE = 0.2
LOSSES = ("softmax_margin", "huber_ww")
# Gains of so many standard errors count.
ERRORS = 2.0

# A private step: share of the squared Gaussian parameter, and what makes it of epsilon and ledger.
Step = tuple[float, Callable[[float, PrivacyLedger | None], Any]]


@dataclass(frozen=True)
class Recipe:
    """What is done to rows before the ellipsoids.

    Parameters
    ----------
    splits : int
    private : tuple of Step
        In this order, each followed by scaling of the rows to norm 1.
    unit_rows : bool, default=True
        Whether rows are scaled to norm 1 at all.
    data_norm : float, default=1.0
        Of the ellipsoids.
    """

    splits: int
    private: tuple[Step, ...] = ()
    unit_rows: bool = True
    data_norm: float = 1.0


def centre(share: float) -> Step:
    """A noisy mean."""
    return share, lambda epsilon, ledger: PrivateCenter(epsilon, DELTA, ledger=ledger)


def whitener(share: float) -> Step:
    """Noisy second moments."""
    return share, lambda epsilon, ledger: PrivateWhitener(epsilon, DELTA, ledger=ledger)


def reduction(k: int, share: float) -> Step:
    """Noisy principal components."""
    return share, lambda epsilon, ledger: PrivatePCA(k, epsilon, DELTA, ledger=ledger)


COVARIANCES = "equal means"
RECIPES: dict[str, Recipe] = {
    "dermatology": Recipe(20, (centre(0.07),)),
    "vehicle": Recipe(20, (centre(0.07), whitener(0.1))),
    "usps": Recipe(5, (centre(0.05), reduction(30, 0.1))),
    COVARIANCES: Recipe(5, unit_rows=False, data_norm=4.0),
}
DATA = tuple(RECIPES)
QUICK_DATA, QUICK_REPEATS = (COVARIANCES,), 1
# Of the synthetic set: rows, features, classes, and the standard deviations along axes that are
# turned at random for each class.
N_ROWS, SPREADS, N_CLASSES = 5000, (1.6, 1.6, 0.8, 0.8, 0.4, 0.4), 3


@dataclass(frozen=True)
class Split:
    """Rows to train on and rows left out, with public bounds of the features."""

    X: NDArray[np.float64]
    y: NDArray[np.int64]
    X_test: NDArray[np.float64]
    y_test: NDArray[np.int64]
    n_classes: int
    bounds: tuple[Any, Any] | None


def split_of(name: str, number: int) -> Split | None:
    """The split with this number; None with a line where the data are missing."""
    if name == COVARIANCES:
        X, y = same_means(np.random.default_rng(number))
        n_classes, bounds = N_CLASSES, None
    else:
        data = load(name)
        if data is None:
            return None
        X, y, n_classes, bounds = data.X, data.y, data.n_classes, (data.low, data.high)
    X, X_test, y, y_test = train_test_split(X, y, test_size=TEST_SHARE, random_state=number)
    return Split(X, y, X_test, y_test, n_classes, bounds)


def same_means(rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Gaussian classes around 0 whose covariances have the same eigenvalues, turned."""
    y = rng.integers(0, N_CLASSES, N_ROWS)
    X = rng.normal(size=(N_ROWS, len(SPREADS))) * SPREADS
    for label in range(N_CLASSES):
        turn, _ = np.linalg.qr(rng.normal(size=(len(SPREADS), len(SPREADS))))
        X[y == label] = X[y == label] @ turn
    return X, y


def ellipsoids(recipe: Recipe, split: Split, epsilon: float, loss: str, own: float) -> Pipeline:
    """The whole private pipeline; ``own`` is the epsilon of its last step."""
    ledger = PrivacyLedger(epsilon, DELTA) if epsilon < NOT_PRIVATE else None
    steps = [] if split.bounds is None else [PublicScaler(split.bounds)]
    steps += [Normalizer()] if recipe.unit_rows else []
    for share, make in recipe.private:
        steps.append(make(share_of_budget(epsilon, DELTA, share), ledger))
        steps += [Normalizer()] if recipe.unit_rows else []
    last = classifier(recipe, own, loss, split.n_classes)
    return make_pipeline(*steps, last.set_params(ledger=ledger))


def classifier(recipe: Recipe, epsilon: float, loss: str, n_classes: int) -> Any:
    """The last step, without a ledger."""
    return PrivateGaussianMarginClassifier(
        epsilon, DELTA, loss=loss, classes=range(n_classes), data_norm=recipe.data_norm
    )


@cache
def own_epsilon(name: str, epsilon: float, loss: str, n_features: int, n_classes: int) -> float:
    """What the pre-processing leaves to the ellipsoids: no function of the rows."""
    recipe = RECIPES[name]
    if not recipe.private:
        return epsilon
    before: list[Any] = []
    for share, make in recipe.private:
        step = make(share_of_budget(epsilon, DELTA, share), None)
        before += events_of(step, n_features, n_classes)
        n_features = getattr(step, "n_components", n_features)
    return epsilon_beside(
        epsilon,
        DELTA,
        before,
        lambda own: events_of(classifier(recipe, own, loss, n_classes), n_features, n_classes),
    )


def run(names: Sequence[str], splits: int | None) -> list[Row]:
    """One row a fit."""
    records: list[dict[str, object]] = []
    for name in names:
        for number in range(splits or RECIPES[name].splits):
            split = split_of(name, number)
            if split is None:
                break
            own = [record for epsilon in EPSILONS for record in _private(name, split, epsilon)]
            own += _not_private(name, split)
            records += [{"data": name, "split": number} | record for record in own]
            line = ", ".join(f"{r['model']} {r['epsilon']} {r['accuracy']:.3f}" for r in own)
            print(f"{name}, split {number}: {line}", flush=True)
    return as_rows(records)


def _private(name: str, split: Split, epsilon: float) -> list[dict[str, Any]]:
    """Ellipsoids with each loss, and the linear model."""
    n_features = split.X.shape[1]
    models: dict[str, Any] = {}
    for loss in LOSSES:
        own = own_epsilon(name, epsilon, loss, n_features, split.n_classes)
        models[f"ellipsoids, {loss}"] = ellipsoids(RECIPES[name], split, epsilon, loss, own)
    models["linear"] = PrivateLinearSVC(
        epsilon, DELTA, bounds=split.bounds, classes=range(split.n_classes)
    )
    return [_fitted(label, model, split, epsilon) for label, model in models.items()]


def _not_private(name: str, split: Split) -> list[dict[str, Any]]:
    """What ellipsoids and other models reach without noise that matters."""
    recipe = RECIPES[name]
    quadratic = ellipsoids(recipe, split, NOT_PRIVATE, LOSSES[0], NOT_PRIVATE)
    logistic = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    # Shrunk so far that it exists with fewer rows than features in a class.
    discriminants = make_pipeline(
        StandardScaler(), QuadraticDiscriminantAnalysis(solver="eigen", shrinkage=0.05)
    )
    return [
        _fitted("ellipsoids, not private", quadratic, split, None),
        _fitted("logistic, not private", logistic, split, None),
        _fitted("quadratic discriminants, not private", discriminants, split, None),
    ]


def _fitted(label: str, model: Any, split: Split, epsilon: float | None) -> dict[str, Any]:
    """Accuracy on the rows left out."""
    begin = time.process_time()
    model.fit(split.X, split.y)
    spent = time.process_time() - begin
    accuracy = float(model.score(split.X_test, split.y_test))
    return {"epsilon": epsilon, "model": label, "accuracy": accuracy, "cpu_seconds": spent}


def analyse(rows: Sequence[Row]) -> list[Row]:
    """Means over splits, and where ellipsoids help."""
    names = list(dict.fromkeys(row["data"] for row in rows))
    table = []
    for name in names:
        of_set = [row for row in rows if row["data"] == name]
        epsilons = dict.fromkeys(row["epsilon"] for row in of_set if row["epsilon"])
        table += [_summary(name, epsilon, of_set) for epsilon in epsilons]
    return as_rows(table)


def _summary(name: str, epsilon: str, of_set: Sequence[Row]) -> Mapping[str, object]:
    """One data set at one epsilon."""

    def found(model: str, at: str) -> list[float]:
        return [
            float(row["accuracy"])
            for row in of_set
            if row["model"] == model and row["epsilon"] == at
        ]

    losses = {loss: found(f"ellipsoids, {loss}", epsilon) for loss in LOSSES}
    linear = found("linear", epsilon)
    gains = [a - b for a, b in zip(losses[LOSSES[0]], linear, strict=True)]
    error = cells.error(gains)
    return {
        "data": name,
        "epsilon": epsilon,
        "splits": len(linear),
        "ellipsoids": mean(losses[LOSSES[0]]),
        "standard_error": cells.error(losses[LOSSES[0]]),
        "ellipsoids_huber_ww": mean(losses["huber_ww"]),
        "linear": mean(linear),
        "gain": mean(gains),
        "gain_error": error,
        "helps": _verdict(mean(gains), error),
        "not_private": mean(found("ellipsoids, not private", "")),
        "not_private_linear": mean(found("logistic, not private", "")),
        "not_private_discriminants": mean(found("quadratic discriminants, not private", "")),
    }


def _verdict(gain: float, error: float | None) -> str:
    """Whether a gain is more than chance."""
    if error is None or abs(gain) <= ERRORS * error:
        return "even"
    return "yes" if gain > 0.0 else "no"


def failures(table: Sequence[Row]) -> list[str]:
    """Ellipsoids have to help where only covariances differ."""
    return [
        f"lmgc: {row['data']} at {row['epsilon']}: gain {row['gain']}"
        for row in table
        if row["data"] == COVARIANCES and float(row["gain"]) <= 0.0
    ]


# Columns of the summary, and what the picture calls them.
LINES = {
    "ellipsoids": "ellipsoids",
    "ellipsoids_huber_ww": "ellipsoids, huber_ww",
    "linear": "PrivateLinearSVC",
    "not_private": "ellipsoids, not private",
    "not_private_linear": "logistic regression, not private",
}


def plot(table: Sequence[Row], path: Path) -> None:
    """Accuracy along epsilon, one panel a data set; level lines without privacy."""
    drawn = []
    for (name,), own in cells.cells(table, ["data"]).items():
        lines: dict[str, list[Point]] = {}
        for column, label in LINES.items():
            errors = [
                float(row["standard_error"] or 0.0) if column == "ellipsoids" else 0.0
                for row in own
            ]
            lines[label] = [
                (float(row["epsilon"]), float(row[column]), error)
                for row, error in zip(own, errors, strict=True)
            ]
        drawn.append(Panel(name, lines))
    panels(path, drawn, x_label="ε", columns=2)


def page(table: Sequence[Row]) -> str:
    """Ellipsoids / linear at each epsilon, and where ellipsoids help."""
    epsilons = sorted({float(row["epsilon"]) for row in table})
    lines = []
    for (name,), own in cells.cells(table, ["data"]).items():
        found = {float(row["epsilon"]): _cell(row) for row in own}
        limits = ("not_private", "not_private_linear", "not_private_discriminants")
        lines.append(
            (
                f"{name}, {own[0]['splits']} splits",
                *(found.get(epsilon, "") for epsilon in epsilons),
                " / ".join(f"{float(own[0][one]):.3f}" for one in limits),
            )
        )
    heads = (
        "ellipsoids / `PrivateLinearSVC`",
        *(f"ε = {epsilon:g}" for epsilon in epsilons),
        "not private: ellipsoids / logistic regression / quadratic discriminants",
    )
    counts = {verdict: sum(row["helps"] == verdict for row in table) for verdict in ("yes", "no")}
    return (
        f"{cells.grid(heads, lines)}\n\nBold: ellipsoids are better by more than {ERRORS:g} "
        f"standard errors of the paired difference ({counts['yes']} of {len(table)} cells). In "
        f"{counts['no']} cells they are worse by as much."
    )


def _cell(row: Row) -> str:
    """Both accuracies, bold where ellipsoids help."""
    own = f"{float(row['ellipsoids']):.3f}"
    own = f"**{own}**" if row["helps"] == "yes" else own
    return f"{own} / {float(row['linear']):.3f}"


if __name__ == "__main__":
    from benches.papers.command import script

    raise SystemExit(script(__file__))
