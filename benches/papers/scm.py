"""Methods and protocol of Sarwate, Chaudhuri and Monteleoni (2009), for the modules of its figures.

The paper minimises a mean of losses plus ``Lambda / 2 ||f||^2``; with n rows this is
``C = 1 / (n Lambda)`` on the sum of the losses. n is the number of rows that a fold trains on: a
declared constant of the protocol, since one row more or fewer leaves Lambda where it is.

KDDCup99 is not among the data sets that can be had here. Whoever has it puts ``kddcup99.npz`` into
the folder DPSVM_DATA: ``X`` (rows with 119 columns, categories already one-hot), ``y`` (0 or 1, 1
for an attack), and ``low`` and ``high``, public bounds of the columns: known from what the columns
are, not taken from the rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import islice
from statistics import mean
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import KFold

from benches.datasets import unit_rows
from benches.papers import cells, drawing
from benches.papers.data import DataSet, load
from benches.tables import Row
from dpsvm_fast import (
    ObjectivePerturbationSVC,
    OutputPerturbationSVC,
    PrivateLinearSVC,
    PublicScaler,
    _core,
    verify,
)
from dpsvm_fast.accounting import composed_epsilon
from dpsvm_fast.mechanisms.output import OutputPerturbation
from dpsvm_fast.mechanisms.plan import Facts

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

FOLDS, FOLDS_USED, DRAWS = 10, 5, 2
DELTA = 1e-5
# Half width of the Huber hinge's bend, which the paper does not print, and what it gives: the
# largest curvature of the losses in the score.
SMOOTHING = 0.5
CURVATURE = {"huber": 0.5 / SMOOTHING, "logistic": 0.25}
# The random subset of KDDCup99 in the paper.
KDD_ROWS = 60_000
# Values of Lambda in the paper's Figure 3.
LAMBDAS = {
    "adult": tuple(10.0**-k for k in range(2, 8)),
    "kddcup99": tuple(10.0**-k for k in range(1, 8)),
}
# Norm of the gradient of the sum at a minimiser: output perturbation assumes 1e-3.
GRADIENT_TOL = 0.9e-3

NOT_PRIVATE = "not private"
SENSITIVITY = "sensitivity method"
LOGISTIC = "logistic regression"
ALGORITHM = "Algorithm 1"
RULE = "Algorithm 1, our rule"
PURE = "PrivateLinearSVC, δ = 0"
OURS = "PrivateLinearSVC, δ = 1e-5"
PAPER = "the paper's Algorithm 1"
# With the paper's relation between neighbours.
ALGORITHM_EXCHANGED = "Algorithm 1, a row exchanged"
PURE_EXCHANGED = "PrivateLinearSVC, δ = 0, a row exchanged"

ACCOUNTING = (
    "The paper's methods run with corrected constants: its Algorithm 1 adds too little noise by a "
    "factor of the number of rows, and omits the privacy cost of a row's curvature "
    "([corrections](papers.md#corrections-to-scm)).",
    "Where that curvature would cost more than half of ε, Λ is raised, as in Chaudhuri, "
    "Monteleoni and Sarwate (2011); small Λ are then nominal.",
    "The paper exchanges one row for another, which needs twice the noise of `add_remove`. Where "
    "a name states no δ, it is 0.",
)
ROWS = (
    "Columns are divided by public bounds, not by their largest entry; then rows are scaled to "
    "norm 1. Adult has the 45,222 rows without missing values; the paper has about 47,000.",
    f"{FOLDS_USED} of the paper's {FOLDS} cross-validation folds, with {DRAWS} draws of the noise "
    "each instead of 50; standard errors are over folds.",
    "The Huber hinge is smoothed within 0.5 of the margin; the paper does not print its constant.",
)
CHOICES = (
    "The paper's methods and models without privacy use the Λ with the smallest test error, as in "
    "the paper. Ours choose nothing by any row.",
    "Nested balls: three draws of points, features and noise. Algorithm 2 has noise for features "
    "of norm √2, which the paper takes to be 1. The model without privacy is logistic regression "
    "on random features.",
)


@dataclass(frozen=True)
class Part:
    """Rows of norm 1 to train on, and rows to judge by."""

    X: Array
    y: Labels
    X_test: Array
    y_test: Labels

    def error(self, model: Any) -> float:
        """Share of wrong labels among the rows to judge by."""
        return 1.0 - float(model.score(self.X_test, self.y_test))


def unit_data(name: str, *, logarithms: bool = False) -> tuple[Array, Labels] | None:
    """Rows of norm 1 by public bounds; None, and a line that says so, where they are missing."""
    data = load(name, logarithms=logarithms)
    if data is None:
        return None
    if name == "kddcup99":
        data = _subset(data)
    return mapped(data), data.y


def mapped(data: DataSet) -> Array:
    """Rows of norm 1 by public bounds."""
    return unit_rows(PublicScaler((data.low, data.high)).fit(data.X).transform(data.X))


def _subset(data: DataSet) -> DataSet:
    """At most so many rows of KDDCup99 as the paper takes."""
    chosen = np.random.default_rng(0).permutation(len(data.y))[:KDD_ROWS]
    return DataSet(data.X[chosen], data.y[chosen], data.n_classes, data.low, data.high)


def folds(X: Array, y: Labels, repeats: int | None) -> Iterator[tuple[int, Part]]:
    """The first folds, with their numbers."""
    splits = KFold(FOLDS, shuffle=True, random_state=0).split(X)
    for number, (train, test) in enumerate(islice(splits, repeats or FOLDS_USED)):
        yield number, Part(X[train], y[train], X[test], y[test])


def extra(loss: str, epsilon: float, total: float) -> float:
    """What is added to n Lambda so that curvature costs at most half of epsilon."""
    return max(0.0, CURVATURE[loss] / math.expm1(0.5 * epsilon) - total)


def objective(
    epsilon: float,
    total: float | None,
    loss: str = "huber",
    *,
    data_norm: float = 1.0,
    adjacency: str = "add_remove",
) -> ObjectivePerturbationSVC:
    """Algorithm 1 with n Lambda = ``total``, or by our rule of public facts."""
    given: dict[str, Any] = {}
    if total is not None:
        added = data_norm**2 * extra(loss, epsilon, total / data_norm**2)
        given = {"C": 1.0 / total, "extra_regularization": added}
    return ObjectivePerturbationSVC(
        epsilon,
        0.0,
        loss=loss,
        noise="gamma",
        data_norm=data_norm,
        adjacency=adjacency,
        fit_intercept=False,
        classes=range(2),
        smoothing=SMOOTHING if loss == "huber" else "auto",
        n_threads=1,
        **given,
    )


@dataclass(frozen=True)
class FoundWeights(OutputPerturbation):
    """Output perturbation of weights that were found before."""

    minimiser: Any = None

    def solution(self, *_: Any, **__: Any) -> Array:
        """What `huber` found, if that is as near to the minimiser as the noise assumes."""
        if self.gradient_tol < GRADIENT_TOL:
            raise RuntimeError(f"solved to {GRADIENT_TOL}, needed {self.gradient_tol}")
        return np.asarray(self.minimiser.reshape(1, -1))


class SensitivityMethod(OutputPerturbationSVC):
    """Output perturbation of weights that were found before, with as many draws as one likes.

    It holds weights without noise. That is for measuring and never for a release.
    """

    minimiser: Array

    def plan(self, facts: Facts) -> FoundWeights:
        """The estimator's own, but for the solver."""
        own = super().plan(facts)
        settings = {field.name: getattr(own, field.name) for field in fields(own)}
        return FoundWeights(**settings, minimiser=self.minimiser)


def sensitivity(total: float, minimiser: Array) -> SensitivityMethod:
    """Noise on the minimiser; epsilon is set for each fit."""
    model = SensitivityMethod(
        loss="huber",
        noise="gamma",
        fit_intercept=False,
        classes=range(2),
        C=1.0 / total,
        smoothing=SMOOTHING,
        n_threads=1,
    )
    model.minimiser = minimiser
    return model


def linear(epsilon: float, delta: float, **settings: Any) -> PrivateLinearSVC:
    """Ours at its defaults."""
    return PrivateLinearSVC(epsilon, delta, classes=range(2), n_threads=1, **settings)


def huber(X: Array, y: Labels, total: float, *, data_norm: float = 1.0) -> Array:
    """Weights of the SVM without privacy."""
    weights, _ = _core.solve_smooth(
        np.ascontiguousarray(X),
        y,
        loss="huber",
        n_scores=1,
        smoothing=SMOOTHING,
        margin=1.0,
        regularization=total,
        linear=None,
        data_norm=data_norm,
        intercept_scaling=0.0,
        gradient_tol=GRADIENT_TOL,
        max_iter=None,
        shuffle_seed=0,
        n_threads=1,
        low_memory=False,
    )
    if weights is None:
        raise RuntimeError(f"the SVM without privacy was not solved at n Lambda = {total}")
    return weights.ravel()


# Methods with a Lambda, and methods without one, for which every parameter follows from a rule.
TUNED: dict[str, Callable[[float, float], Any]] = {
    LOGISTIC: lambda epsilon, total: objective(epsilon, total, "logistic"),
    ALGORITHM: lambda epsilon, total: objective(epsilon, total),
    ALGORITHM_EXCHANGED: lambda epsilon, total: objective(epsilon, total, adjacency="replace_one"),
}
RULED: dict[str, Callable[[float], Any]] = {
    RULE: lambda epsilon: objective(epsilon, None),
    PURE: lambda epsilon: linear(epsilon, 0.0),
    OURS: lambda epsilon: linear(epsilon, DELTA),
    PURE_EXCHANGED: lambda epsilon: linear(epsilon, 0.0, adjacency="replace_one"),
}


def sweep(
    part: Part,
    split: int,
    methods: Sequence[str],
    lambdas: Sequence[float],
    epsilons: Sequence[float],
    repeats: int | None,
) -> Iterator[dict[str, object]]:
    """One record a fit: methods with each Lambda, and those that have none.

    The sensitivity method needs "not private" beside it: it adds noise to those weights.
    """
    draws = min(DRAWS, repeats or DRAWS)
    n_rows = len(part.y)
    for Lambda in lambdas:
        total = n_rows * Lambda
        place: dict[str, object] = {"Lambda": Lambda, "n": n_rows, "split": split}
        made = {name: TUNED[name] for name in methods if name in TUNED}
        if NOT_PRIVATE in methods:
            minimiser = huber(part.X, part.y, total)
            wrong = float(np.mean((part.X_test @ minimiser > 0.0) != (part.y_test == 1)))
            nothing = dict.fromkeys(("epsilon", "draw", "delta", "spent", "holds"))
            yield {"method": NOT_PRIVATE} | place | nothing | {"error": wrong}
        if SENSITIVITY in methods:
            solved = sensitivity(total, minimiser)
            made[SENSITIVITY] = lambda epsilon, _, model=solved: model.set_params(epsilon=epsilon)
        for name, make in made.items():
            for epsilon in epsilons:
                for draw in range(draws):
                    model = make(epsilon, total)
                    yield {"method": name} | place | fitted(part, model, epsilon, draw)
    for name in (name for name in methods if name in RULED):
        for epsilon in epsilons:
            for draw in range(draws):
                place = {"Lambda": None, "n": n_rows, "split": split}
                model = RULED[name](epsilon)
                yield {"method": name} | place | fitted(part, model, epsilon, draw)


def fitted(part: Part, model: Any, epsilon: float, draw: int) -> dict[str, object]:
    """One fit: its error, what its events add up to, and whether its certificate verifies."""
    model.fit(part.X, part.y)
    return {"epsilon": epsilon, "draw": draw} | spending(model) | {"error": part.error(model)}


def spending(model: Any) -> dict[str, object]:
    """Delta, composed epsilon and certificate of a fitted model; nothing without privacy."""
    statement = getattr(model, "privacy_", None)
    if statement is None:
        return dict.fromkeys(("delta", "spent", "holds"))
    return {
        "delta": statement.delta,
        "spent": composed_epsilon(statement.events, statement.delta),
        "holds": verify(statement).ok,
    }


def means(rows: Sequence[Row], places: Sequence[str]) -> list[dict[str, Any]]:
    """Mean error of each place, its standard error over splits, and what all fits spent."""
    table = []
    for key, members in cells.cells(rows, places).items():
        splits = cells.cells(members, ("split",)).values()
        found = [mean(float(row["error"]) for row in split) for split in splits]
        spent = [float(row["spent"]) for row in members if row["spent"]]
        table.append(
            dict(zip(places, key, strict=True))
            | {
                "delta": members[0]["delta"],
                "fits": len(members),
                "error": mean(found),
                "standard_error": cells.error(found),
                "spent": max(spent, default=None),
                "holds": all(row["holds"] != "False" for row in members),
            }
        )
    return table


def best(table: Sequence[dict[str, Any]], places: Sequence[str]) -> list[dict[str, Any]]:
    """Of each place the Lambda with the smallest error on test rows, as the paper chose it."""
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in table:
        key = tuple(row[place] for place in places)
        if key not in found or row["error"] < found[key]["error"]:
            found[key] = row
    return list(found.values())


def broken(name: str, table: Sequence[Row]) -> list[str]:
    """Budgets that were exceeded and certificates that do not hold."""
    return [
        f"{name}: {row['data']}, {row['method']} at epsilon {row['epsilon']}: spent "
        f"{row['spent']}, certificates hold: {row['holds']}"
        for row in table
        if row["holds"] != "True"
        or (row["spent"] and float(row["spent"]) > float(row["epsilon"]) * (1.0 + 1e-6))
    ]


def shown(row: Mapping[str, str] | None) -> str:
    """An error with its standard error, as printed on the page."""
    if row is None or not row["error"]:
        return ""
    error = f"{float(row['error']):.4f}"
    return f"{error} ± {float(row['standard_error']):.4f}" if row["standard_error"] else error


def curve(rows: Sequence[Row], method: str, column: str) -> list[drawing.Point]:
    """Errors of a method along a column; what has no place there is level."""
    own = [row for row in rows if row["method"] == method]
    places = [float(row[column]) for row in rows if row[column]]
    return [
        (place, float(row["error"]), float(row["standard_error"] or 0.0))
        for row in own
        for place in ([float(row[column])] if row[column] else sorted({min(places), max(places)}))
    ]


def panel(title: str, rows: Sequence[Row], column: str) -> drawing.Panel:
    """All methods of these rows along a column."""
    methods = dict.fromkeys(row["method"] for row in rows)
    return drawing.Panel(title, {method: curve(rows, method, column) for method in methods})
