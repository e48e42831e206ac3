"""True statements of every kind that the library makes, from fits of a few rows.

Noise comes from the operating system, as a private release needs; nothing in a statement depends
on it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

from dpsvm_fast import (
    GradientPerturbationSVC,
    ObjectivePerturbationSVC,
    OutputPerturbationSVC,
    PrivateCenter,
    PrivateGaussianMarginClassifier,
    PrivateKernelSVC,
    PrivateLinearSVC,
    PrivatePCA,
    PrivateStandardScaler,
    PrivateWhitener,
    PublicScaler,
    total_privacy,
)
from dpsvm_fast.metrics import evaluate
from dpsvm_fast.model_selection import PrivateGridSearch
from oracles.federated_statements import FEDERATED, federated_statement

__all__ = ["ADJACENCIES", "ESTIMATORS", "MAKERS", "X", "Y", "fitted", "statement_of"]

ADJACENCIES = ("add_remove", "replace_one")
RNG = np.random.default_rng(5)
X = RNG.uniform(-1.0, 1.0, size=(40, 3))
Y = np.arange(40) % 3

OUTPUT, OBJECTIVE, GRADIENT = (
    OutputPerturbationSVC,
    ObjectivePerturbationSVC,
    GradientPerturbationSVC,
)
ELLIPSOIDS = PrivateGaussianMarginClassifier
THREE: dict[str, Any] = {"classes": range(3), "n_threads": 1}
TWO: dict[str, Any] = {"classes": range(2), "n_threads": 1}
PURE: dict[str, Any] = {"noise": "gamma", "delta": 0.0}
SAMPLED: dict[str, Any] = {"optimizer": "sgd", "n_steps": 20, "sampling_rate": 0.25}
LAST: dict[str, Any] = {"n_steps": 40, "accountant": "last_iterate", "C": 1.0, "average": 0.0}
BOXED: dict[str, Any] = {"bounds": (-1.0, 1.0)}

# Class and parameters of each kind of release; a kind fits one relation only where it says so.
ESTIMATORS: dict[str, tuple[Any, dict[str, Any]]] = {
    "output": (OUTPUT, THREE),
    "output float": (OUTPUT, THREE | {"noise_grid": "float"}),
    "output gamma": (OUTPUT, THREE | PURE),
    "output balanced": (OUTPUT, THREE | {"class_weight": "balanced"}),
    "output huber": (OUTPUT, TWO | {"loss": "huber"}),
    "output distance": (OUTPUT, THREE | {"loss": "margin_distance"}),
    "output psgd": (OUTPUT, THREE | {"loss": "logistic", "solver": "psgd", "batch_size": 7}),
    "output psgd weighted": (
        OUTPUT,
        THREE
        | {"loss": "m3", "solver": "psgd", "average": "weighted", "batch_size": 7}
        | {"noise": "gamma", "delta": 0.0},
    ),
    "objective": (OBJECTIVE, THREE),
    "objective two": (OBJECTIVE, TWO | {"loss": "huber", "fit_intercept": False}),
    "objective logistic": (OBJECTIVE, THREE | {"loss": "logistic"}),
    "objective m3": (OBJECTIVE, TWO | {"loss": "m3"}),
    "objective gamma": (OBJECTIVE, THREE | PURE),
    "objective gamma huber": (OBJECTIVE, TWO | PURE | {"loss": "huber", "max_iter": 10_000}),
    "gradient": (GRADIENT, THREE | {"n_steps": 5}),
    "gradient sampled": (GRADIENT, THREE | SAMPLED),
    "gradient balanced": (GRADIENT, TWO | {"n_steps": 5, "class_weight": "balanced"}),
    "gradient last": (GRADIENT, TWO | LAST | {"max_samples": 50}),
    "gradient last exchanged": (GRADIENT, TWO | LAST),
    "gradient float": (GRADIENT, TWO | {"n_steps": 5, "noise_grid": "float"}),
    "linear": (PrivateLinearSVC, THREE | BOXED | {"whiten": True}),
    "linear objective": (PrivateLinearSVC, TWO | {"mechanism": "objective"}),
    "linear output": (PrivateLinearSVC, THREE | {"mechanism": "output"}),
    "linear pure": (PrivateLinearSVC, TWO | {"delta": 0.0}),
    "kernel": (PrivateKernelSVC, THREE | BOXED | {"n_components": 20}),
    "kernel lengths": (PrivateKernelSVC, TWO | {"n_components": 10, "normalize": False}),
    "kernel fixed": (
        PrivateKernelSVC,
        TWO | {"n_components": 10, "kernel": "rbf", "gamma": 1.0, "mechanism": "objective"},
    ),
    "ellipsoids": (ELLIPSOIDS, TWO),
    "ellipsoids three": (ELLIPSOIDS, THREE),
    "ellipsoids several": (ELLIPSOIDS, TWO | {"n_ellipsoids": 2}),
    "ellipsoids gamma": (ELLIPSOIDS, THREE | PURE),
    "centre": (PrivateCenter, {}),
    "centre pure": (PrivateCenter, {"delta": 0.0}),
    "whitener": (PrivateWhitener, {}),
    "components": (PrivatePCA, {"n_components": 2}),
    "scaler": (PrivateStandardScaler, BOXED),
    "scaler means": (PrivateStandardScaler, BOXED | {"with_std": False, "noise_grid": "float"}),
}
ONE_RELATION = {
    "output psgd": "replace_one",
    "output psgd weighted": "replace_one",
    "gradient last": "add_remove",
    "gradient last exchanged": "replace_one",
}


def fitted(kind: str, adjacency: str, **changes: Any) -> Any:
    """A fitted estimator or transformer of a kind."""
    make, parameters = ESTIMATORS[kind]
    settings = {"epsilon": 2.0} | parameters | {"adjacency": adjacency} | changes
    labels = Y % len(settings.get("classes") or range(3))
    return make(**settings).fit(X, labels)


def pipeline(adjacency: str) -> Any:
    """Gaussian, sampled and free steps."""
    model = make_pipeline(
        PublicScaler((-1.0, 1.0)),
        Normalizer(),
        PrivateCenter(1.0, adjacency=adjacency),
        GradientPerturbationSVC(2.0, **TWO, **SAMPLED, adjacency=adjacency),
    )
    return total_privacy(model.fit(X, Y % 2))


def objective_pipeline(adjacency: str) -> Any:
    """Components before noise in an objective, and beside pure noise."""
    first = PrivatePCA(2, 1.0, adjacency=adjacency).fit(X)
    pure = PrivateCenter(0.5, 0.0, adjacency=adjacency).fit(X)
    last = fitted("objective two", adjacency, epsilon=1.0).fit(first.transform(X), Y % 2)
    return total_privacy([first, pure, last])


def pure_pipeline(adjacency: str) -> Any:
    """Pure steps only."""
    parts = [fitted(kind, adjacency, epsilon=0.5) for kind in ("centre pure", "output gamma")]
    return total_privacy(parts)


def search(adjacency: str, **options: Any) -> Any:
    """A search over two candidates with few rows for each."""
    common = {"adjacency": adjacency} | TWO
    candidates = OutputPerturbationSVC(2.0, **common)
    rows = np.random.default_rng(6).uniform(-1.0, 1.0, size=(400, 3))
    found = PrivateGridSearch(
        candidates, {"C": [0.1, 1.0]}, 2.0, **{"adjacency": adjacency} | options
    )
    return found.fit(rows, np.arange(400) % 2).privacy_


def stopped_search(adjacency: str) -> Any:
    """The best of a random number of runs, all of them pure."""
    pure = OutputPerturbationSVC(2.0, **TWO, **PURE, adjacency=adjacency)
    found = PrivateGridSearch(
        pure, {"C": [0.1, 1.0]}, 2.0, 0.0, adjacency=adjacency, strategy="random_stopping"
    )
    return found.fit(X, Y % 2).privacy_


def evaluation(adjacency: str) -> Any:
    """A model measured on rows."""
    model = fitted("objective logistic", adjacency)
    return evaluate(model, X, Y, epsilon=2.0, adjacency=adjacency).privacy_


SEARCHES: dict[str, Callable[[str], Any]] = {
    "search": search,
    "search refit": partial(search, selection="exponential", refit_fraction=0.5),
    "search stopping": stopped_search,
    "evaluation": evaluation,
}
PIPELINES: dict[str, Callable[[str], Any]] = {
    "pipeline": pipeline,
    "pipeline objective": objective_pipeline,
    "pipeline pure": pure_pipeline,
}

# Every kind under every relation that it has.
MAKERS: list[tuple[str, str]] = [
    (kind, adjacency)
    for kind, adjacency in itertools.product([*ESTIMATORS, *PIPELINES, *SEARCHES], ADJACENCIES)
    if ONE_RELATION.get(kind, adjacency) == adjacency
]
# Parties exchange rows; none comes or goes.
MAKERS += [(kind, "replace_one") for kind in FEDERATED]


@cache
def statement_of(kind: str, adjacency: str) -> Any:
    """The statement of a kind, made once."""
    if kind in FEDERATED:
        return federated_statement(kind)
    together = PIPELINES | SEARCHES
    if kind in together:
        return together[kind](adjacency)
    return fitted(kind, adjacency).privacy_
