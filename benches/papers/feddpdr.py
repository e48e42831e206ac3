"""Tasks and methods of FedDPDR (Wang et al., CMC 2024), for its figures 2 to 5 and its table 3.

delta = 1e-4, rows of norm 1, five parties. The paper does not say which task of each data set it
takes: 3 or 8, even or odd and all ten digits of MNIST stand in, and all ten classes elsewhere.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

from benches.datasets import unit_rows
from benches.papers.budget import share_of_budget
from benches.papers.data import DataSet, load
from benches.papers.pictures import histograms
from dpsvm_fast import ObjectivePerturbationSVC, PrivacyLedger, PrivateLinearSVC, PrivatePCA, verify
from dpsvm_fast.accounting import composed_epsilon
from dpsvm_fast.federated import FederatedSpec, simulate

DIMENSIONS = (5, 10, 20, 50, 100)
EPSILONS = (0.01, 0.05, 0.1, 0.5, 1.0, 2.0)
SIZES = (100, 500, 1000, 5000, 10_000)
DELTA = 1e-4
# What does not vary in a figure.
N_ROWS, DIMENSION, EPSILON, N_PARTIES = 10_000, 20, 0.1, 5
# Share of the squared Gaussian parameter that the PCA gets in one ledger.
PCA_SHARE = 0.5
# Rows to test on in a file that does not say which they are: the last ones.
N_TEST = 10_000

# Classes of each task of MNIST; other files have their ten classes.
PAIRS: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "3 or 8": ((3,), (8,)),
    "even or odd": ((0, 2, 4, 6, 8), (1, 3, 5, 7, 9)),
}
FILES = {"fashion_mnist": "fashion_mnist", "cifar10": "cifar10"}
TASKS = (*PAIRS, "ten digits", *FILES)

Party = tuple[NDArray[np.float64], NDArray[np.int64]]


@dataclass(frozen=True)
class Task:
    """Unit rows and labels to train on, in random order, and the official test part."""

    X: NDArray[np.float64]
    y: NDArray[np.int64]
    X_test: NDArray[np.float64]
    y_test: NDArray[np.int64]
    n_classes: int


@lru_cache(maxsize=1)
def _file(name: str) -> DataSet | None:
    return load(name)


def task_of(name: str, repeat: int, n_rows: int = N_PARTIES * N_ROWS) -> Task | None:
    """Rows drawn for this repeat; None with a line where the data are missing."""
    data = _file(FILES.get(name, "mnist"))
    if data is None:
        return None
    groups = PAIRS.get(name, tuple((digit,) for digit in range(10)))
    labels = np.full(10, -1)
    for label, digits in enumerate(groups):
        labels[list(digits)] = label
    codes = labels[data.y]
    is_train = data.is_train
    if is_train is None:
        is_train = np.arange(len(codes)) < len(codes) - N_TEST
    train, test = (np.flatnonzero(part & (codes >= 0)) for part in (is_train, ~is_train))
    train = np.random.default_rng(repeat).permutation(train)[:n_rows]
    X, X_test = (_features(name, data.X[part]) for part in (train, test))
    return Task(X, codes[train], X_test, codes[test], len(groups))


def _features(name: str, X: NDArray[np.float64]) -> NDArray[np.float64]:
    """What is learned from, each row by itself, of norm 1."""
    return unit_rows(histograms(X) if name == "cifar10" else X)


def parties_of(task: Task, sizes: Sequence[int]) -> list[Party]:
    """Disjoint rows of the participants; tasks with fewer rows shrink all sizes alike."""
    factor = min(1.0, len(task.y) / sum(sizes))
    cuts = np.cumsum([math.floor(factor * size) for size in sizes])
    rows = np.split(np.arange(cuts[-1]), cuts[:-1])
    return [(task.X[part], task.y[part]) for part in rows]


def federated(task: Task, parties: Sequence[Party], k: int, epsilon: float, **settings: Any) -> Any:
    """FedDPDR-DPML with both rounds by secure sums: the fitted model of all parties."""
    spec = federated_spec(task, parties, k, epsilon, **settings)
    return simulate(spec, parties, n_threads=1)


def federated_spec(
    task: Task, parties: Sequence[Party], k: int, epsilon: float, **settings: Any
) -> FederatedSpec:
    """What the parties agree on."""
    return FederatedSpec.fed_dpdr(
        n_users=len(parties),
        honest_fraction=1.0,
        epsilon=epsilon,
        delta=DELTA,
        n_features=task.X.shape[1],
        classes=range(task.n_classes),
        n_components=k,
        min_records=min(len(y) for _, y in parties),
        max_records=max(len(y) for _, y in parties),
        **settings,
    )


def pure(task: Task, k: int, epsilon: float) -> tuple[Any, ...]:
    """DPML: all of epsilon for objective perturbation with Gamma noise and the Huber hinge."""
    return (_noisy_objective(task, epsilon),)


def halves(task: Task, k: int, epsilon: float) -> tuple[Any, ...]:
    """DPDR-DPML: half of epsilon for the components."""
    return PrivatePCA(k, epsilon / 2.0, DELTA), _noisy_objective(task, epsilon / 2.0)


def _noisy_objective(task: Task, epsilon: float) -> Any:
    return ObjectivePerturbationSVC(
        epsilon, 0.0, loss="huber", noise="gamma", classes=range(task.n_classes)
    )


def one_ledger(task: Task, k: int, epsilon: float) -> tuple[Any, ...]:
    """Components and our pipeline, both Gaussian: squared parameters add up."""
    ledger = PrivacyLedger(epsilon, DELTA)
    first, rest = (share_of_budget(epsilon, DELTA, s) for s in (PCA_SHARE, 1.0 - PCA_SHARE))
    classes = range(task.n_classes)
    return (
        PrivatePCA(k, first, DELTA, ledger=ledger),
        PrivateLinearSVC(rest, DELTA, bounds="unit_norm", classes=classes, ledger=ledger),
    )


def ours(task: Task, k: int, epsilon: float) -> tuple[Any, ...]:
    """Our pipeline on all features, with the whole budget."""
    return (PrivateLinearSVC(epsilon, DELTA, classes=range(task.n_classes)),)


# Methods on one site, by their names in the paper.
ONE_SITE: dict[str, Callable[[Task, int, float], tuple[Any, ...]]] = {
    "Non-Priv": lambda task, k, epsilon: (PCA(k), LinearSVC()),
    "DPML": pure,
    "DPDR-DPML": halves,
    "PrivatePCA, PrivateLinearSVC": one_ledger,
    "PrivateLinearSVC": ours,
}
# Five parties: as in the paper, or with as many rows in all as one site has.
FEDERATED, SHARED = "FedDPDR-DPML", "FedDPDR-DPML, n rows in all"
METHODS = ("Non-Priv", "DPML", "DPDR-DPML", FEDERATED, SHARED, *list(ONE_SITE)[3:])
UNREDUCED, NOT_PRIVATE = ("DPML", "PrivateLinearSVC"), ("Non-Priv",)
# Several parties are checked in figure 5: that takes ten seconds.
CHECKED = tuple(set(ONE_SITE) - set(NOT_PRIVATE))


def measured(
    task: Task, method: str, k: int, epsilon: float, n: int, *, check: bool
) -> dict[str, object]:
    """Accuracy on the test part and cost, with ``n`` rows a party.

    If asked for, also whether the guarantee holds: certificates take longer than the fits.
    """
    begin, cpu_begin = time.perf_counter(), time.process_time()
    if method in (FEDERATED, SHARED):
        size = n if method == FEDERATED else n // N_PARTIES
        parties = parties_of(task, [size] * N_PARTIES)
        rows = sum(len(y) for _, y in parties)
        model = federated(task, parties, k, epsilon)
    else:
        rows = min(n, len(task.y))
        steps = ONE_SITE[method](task, k, epsilon)
        model = make_pipeline(*steps).fit(task.X[:rows], task.y[:rows])
    seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - cpu_begin
    return {
        "rows": rows,
        "accuracy": float(model.score(task.X_test, task.y_test)),
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "holds": within(model, epsilon) if check and method in CHECKED else None,
    }


def within(model: Any, epsilon: float) -> bool:
    """Whether certificates verify and everything together stays within the budget."""
    released = [step for _, step in model.steps] if hasattr(model, "steps") else [model]
    if not all(verify(step.privacy_).ok for step in released):
        return False
    if len(released) == 1:
        return True
    spent = [event for step in released for event in step.privacy_.events]
    return bool(composed_epsilon(spent, DELTA) <= epsilon * (1.0 + 1e-6))
