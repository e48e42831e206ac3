"""The methods that PMSVM (NeurIPS 2025) compares, through our mechanisms and accounting.

Each of them has the whole budget (epsilon, delta): the models of one-vs-rest compose exactly to it,
where the paper divides epsilon by their number. A method is made of public facts of a data set and
of two tuned constants; `grid` has the values among which the authors searched.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone
from sklearn.preprocessing import normalize

from benches.papers.budget import share_of_budget
from benches.papers.data import DataSet
from benches.papers.pmsvm_settings import (
    DELTA,
    GRADIENT_METHODS,
    TEST_SHARE,
    TUNED,
    WEIGHT_C,
    gradient_arguments,
    scaled_rows,
)
from dpsvm_fast import (
    GradientPerturbationSVC,
    OutputPerturbationSVC,
    PublicScaler,
    total_privacy,
    verify,
)
from dpsvm_fast.accounting import subsampled_gaussian_epsilon, subsampled_gaussian_noise_multiplier

__all__ = [
    "BASELINES",
    "Constants",
    "OneVsRest",
    "Task",
    "certified_epsilon",
    "epsilon_of_one",
    "grid",
    "printed",
    "rows_of",
    "task_of",
]

# C/n, or epochs and scale of the learning rate.
Constants = tuple[float, ...]
# The search spaces of appendix C.1.
WEIGHT_GRID = (0.001, 0.005, 0.01, 0.05, 0.1, 1.0)
EPOCHS, SCALES = (5, 10, 20, 30), (0.1, 0.5, 1.0, 2.0, 5.0)
# Below this share of entries that are not 0 rows are kept sparse, for speed.
SPARSE = 0.1
# What two accountings may differ by: of one run, and of all runs of one-vs-rest together.
ROUNDING = 1e-3


@dataclass(frozen=True)
class Task:
    """What is public about a data set and its rows.

    Parameters
    ----------
    name : str
        One of the paper's sets.
    n_rows : int
        Number of training rows: four fifths of the published number.
    n_features, n_classes : int
    norm : float
        Bound of the rows' norm.
    """

    name: str
    n_rows: int
    n_features: int
    n_classes: int
    norm: float


def task_of(name: str, data: DataSet, norm: float) -> Task:
    """The public facts of one of the paper's sets."""
    n_rows = round((1.0 - TEST_SHARE) * data.y.size)
    return Task(name, n_rows, data.X.shape[1], data.n_classes, norm)


def rows_of(method: str, name: str, data: DataSet, scaling: str) -> tuple[Any, float]:
    """Rows for a method, and the bound of their norm.

    Parameters
    ----------
    method, name : str
    data : DataSet
    scaling : {"public", "standardised"}
        Rows mapped one by one by public bounds; or what the paper did, which is not private (of
        gradient methods only). Weight perturbation has rows of norm 1.
    """
    if method in GRADIENT_METHODS:
        rows, norm = scaled_rows(data, name, scaling)
    else:
        rows = normalize(PublicScaler((data.low, data.high)).fit_transform(data.X))
        norm = 1.0
    dense = np.count_nonzero(rows) > SPARSE * rows.size
    return rows if dense else sparse.csr_matrix(rows), norm


def printed(method: str, name: str) -> Constants:
    """The constants of tables 7 and 8."""
    if method not in GRADIENT_METHODS:
        return (WEIGHT_C[name],)
    return TUNED[name][2][GRADIENT_METHODS.index(method)]


def grid(method: str) -> list[Constants]:
    """The constants among which the authors searched."""
    if method not in GRADIENT_METHODS:
        return [(C,) for C in WEIGHT_GRID]
    return list(product(EPOCHS, SCALES))


class OneVsRest:
    """A private binary model for every class, each of which reads all rows.

    Parameters
    ----------
    binary : estimator
        With the classes 0 and 1 declared, and a share of the budget.
    n_classes : int
        Public: a class that does not occur has its model too.
    """

    def __init__(self, binary: Any, n_classes: int) -> None:
        self.binary = binary
        self.n_classes = n_classes

    def fit(self, X: Any, y: NDArray[np.int64]) -> OneVsRest:
        """Train one model after the other."""
        self.models_ = [
            clone(self.binary).fit(X, (y == label).astype(np.int64))
            for label in range(self.n_classes)
        ]
        return self

    def predict(self, X: Any) -> NDArray[np.int64]:
        """The class whose model has the largest score."""
        scores = [np.ravel(model.decision_function(X)) for model in self.models_]
        return np.asarray(np.argmax(scores, axis=0), dtype=np.int64)

    def score(self, X: Any, y: NDArray[np.int64]) -> float:
        """Accuracy."""
        return float(np.mean(self.predict(X) == y))


def private_svm(task: Task, epsilon: float, constants: Constants) -> OneVsRest:
    """PrivateSVM: a hinge SVM for each class, with noise on its weights."""
    # Two weight vectors w/2 and -w/2 of the pairwise loss are the binary SVM w with twice the C.
    binary = OutputPerturbationSVC(
        share_of_budget(epsilon, DELTA, 1.0 / task.n_classes),
        DELTA,
        C=0.5 * constants[0],
        data_norm=task.norm,
        classes=[0, 1],
        n_threads=1,
    )
    return OneVsRest(binary, task.n_classes)


def opera(task: Task, epsilon: float, constants: Constants) -> OutputPerturbationSVC:
    """OPERA: Huber's hinge for each class against the rest, noise on the weights.

    All in one release, whose noise is that of separate ones composed exactly.
    """
    return _weights(task, epsilon, constants, "huber")


def pmsvm_wp(task: Task, epsilon: float, constants: Constants) -> OutputPerturbationSVC:
    """PMSVM-WP: the SVM of Crammer and Singer with noise on its weights."""
    return _weights(task, epsilon, constants, "crammer_singer")


def _weights(task: Task, epsilon: float, constants: Constants, loss: str) -> OutputPerturbationSVC:
    """Weight perturbation of all classes together."""
    return OutputPerturbationSVC(
        epsilon,
        DELTA,
        loss=loss,
        C=constants[0],
        data_norm=task.norm,
        classes=range(task.n_classes),
        n_threads=1,
    )


def grpua(task: Task, epsilon: float, constants: Constants) -> OneVsRest:
    """GRPUA: stochastic gradient descent on Huber's hinge, a run for each class."""
    options = _descent("GRPUA", task, epsilon, constants)
    options["epsilon"] = epsilon_of_one(
        epsilon, options["sampling_rate"], options["n_steps"], n_runs=task.n_classes
    )
    return OneVsRest(GradientPerturbationSVC(**options | {"classes": [0, 1]}), task.n_classes)


def _joint(method: str) -> Callable[[Task, float, Constants], GradientPerturbationSVC]:
    """A gradient method with one run for all classes."""

    def model(task: Task, epsilon: float, constants: Constants) -> GradientPerturbationSVC:
        return GradientPerturbationSVC(**_descent(method, task, epsilon, constants))

    return model


def _descent(method: str, task: Task, epsilon: float, constants: Constants) -> dict[str, Any]:
    """Arguments of a gradient method with epochs and scale of the learning rate as given."""
    options = gradient_arguments(
        method,
        task.name,
        epsilon=epsilon,
        n_rows=task.n_rows,
        n_classes=task.n_classes,
        norm=task.norm,
    )
    epochs, scale = printed(method, task.name)
    options["n_steps"] = round(options["n_steps"] / epochs * constants[0])
    options["learning_rate"] *= constants[1] / scale
    return options | {"n_threads": 1}


@cache
def epsilon_of_one(epsilon: float, rate: float, n_steps: int, *, n_runs: int) -> float:
    """Epsilon, at DELTA, of one of several equal sampled descents that share a budget.

    Parameters
    ----------
    epsilon : float
        Of all runs together.
    rate : float
        With which rows are sampled.
    n_steps, n_runs : int
        Steps of one run, and number of runs.
    """
    noise = subsampled_gaussian_noise_multiplier(epsilon, DELTA, rate, n_steps * n_runs)
    return float(subsampled_gaussian_epsilon(noise * (1.0 + ROUNDING), rate, n_steps, DELTA))


# The columns of table 2, from public facts, epsilon and constants to a model.
BASELINES: dict[str, Callable[[Task, float, Constants], Any]] = {
    "PrivateSVM": private_svm,
    "OPERA": opera,
    "PMSVM-WP": pmsvm_wp,
    "GRPUA": grpua,
    "Linear": _joint("Linear"),
    "PMSVM-GP": _joint("PMSVM-GP"),
    "PMSVM-AGP": _joint("PMSVM-AGP"),
}


def certified_epsilon(model: Any) -> float | None:
    """Epsilon at DELTA of all that a model released; None where its certificate does not hold."""
    models = getattr(model, "models_", None)
    statement = model.privacy_ if models is None else total_privacy(models, delta=DELTA)
    return float(statement.epsilon) if verify(statement).ok else None
