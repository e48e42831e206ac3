"""The audit table: every mechanism with settings and neighbours that spend nearly all they claim.

The settings are public facts that the guarantee does not rest on: one feature, little C, so that a
record far from its margin stays there; a small clip and short steps, so that a canary's gradient is
clipped in every step. Every estimator is also audited with its defaults elsewhere in the tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from dpsvm_fast.audit.pair_audit import AuditReport, audit
from dpsvm_fast.estimators import (
    GradientPerturbationSVC,
    ObjectivePerturbationSVC,
    OutputPerturbationSVC,
    PrivateGaussianMarginClassifier,
    PrivateKernelSVC,
    PrivateLinearSVC,
)
from dpsvm_fast.preprocessing import (
    PrivateCenter,
    PrivatePCA,
    PrivateStandardScaler,
    PrivateWhitener,
)

DELTA = 1e-5

RELATIONS = ("add_remove", "replace_one")

TWO: dict[str, Any] = {"classes": [0, 1], "fit_intercept": False}

SGD: dict[str, Any] = {"max_grad_norm": 0.1, "learning_rate": 1e-3}


@dataclass(frozen=True)
class Row:
    """One mechanism of the table.

    Parameters
    ----------
    make : callable
        The estimator for an epsilon and a relation.
    part : str or None
        Which release of it.
    relations : tuple of str
        Those that the mechanism knows.
    factor : float
        Epsilon of the whole over that of the part: about 1 of it is then the part's.
    """

    make: Callable[..., Any]
    part: str | None = None
    relations: tuple[str, ...] = RELATIONS
    factor: float = 1.0


def _estimator(kind: Any, *leading: Any, **settings: Any) -> Callable[[float, str], Any]:
    def make(epsilon: float, adjacency: str) -> Any:
        return kind(*leading, epsilon, **({"delta": DELTA} | settings), adjacency=adjacency)

    return make


OUTPUT: dict[str, dict[str, Any]] = {
    "output, Gaussian": {"C": 0.1},
    "output, Gamma": {"C": 0.1, "loss": "huber", "noise": "gamma"},
    "output, Huber": {"C": 0.1, "loss": "huber"},
    "output, softmax": {"C": 0.01, "loss": "softmax_margin", "margin": 2.0},
    "output, M3": {"C": 0.05, "loss": "m3"},
}

OBJECTIVE: dict[str, dict[str, Any]] = {
    "objective, Gaussian": {"C": 0.005, "margin": 5.0},
    "objective, Gaussian, Huber": {"C": 0.01, "loss": "huber"},
    "objective, Gaussian, curved": {},
    "objective, Gamma": {"C": 0.01, "loss": "huber", "noise": "gamma"},
    "objective, Gamma, curved": {"noise": "gamma"},
}

GRADIENT: dict[str, dict[str, Any]] = {
    "descent": {"n_steps": 3},
    "descent, one sampled step": {"optimizer": "sgd", "n_steps": 1, "sampling_rate": 0.5},
    "descent, sampled": {"optimizer": "sgd", "n_steps": 10, "sampling_rate": 0.5},
    "descent, Adam": {
        "optimizer": "adam",
        "n_steps": 3,
        "sampling_rate": 1.0,
        # Steps in proportion to the noisy gradients, and the same weight for each.
        "stabilizer": 1e6,
        "betas": (0.0, 0.999),
    },
}

LAST: dict[str, Any] = {
    "accountant": "last_iterate",
    "loss": "huber",
    "n_steps": 20,
    "C": 0.1,
    "max_grad_norm": 1.0,
}

MAPPED: dict[str, Any] = {"bounds": (-1.0, 1.0), "classes": [0, 1]}

ROWS: dict[str, Row] = {
    **{
        name: Row(_estimator(OutputPerturbationSVC, **TWO, **more)) for name, more in OUTPUT.items()
    },
    "output, projected SGD": Row(
        _estimator(OutputPerturbationSVC, C=0.1, loss="huber", solver="psgd", **TWO),
        relations=("replace_one",),
    ),
    **{
        name: Row(_estimator(ObjectivePerturbationSVC, **TWO, **more))
        for name, more in OBJECTIVE.items()
    },
    **{
        name: Row(_estimator(GradientPerturbationSVC, **TWO, **SGD, **more))
        for name, more in GRADIENT.items()
    },
    "descent, last iterate": Row(
        _estimator(GradientPerturbationSVC, **TWO, **LAST, max_samples=4),
        relations=("add_remove",),
    ),
    "ellipsoids, Gaussian": Row(
        _estimator(PrivateGaussianMarginClassifier, classes=[0, 1], C=0.001)
    ),
    "ellipsoids, Gamma": Row(
        _estimator(
            PrivateGaussianMarginClassifier, classes=[0, 1], C=0.001, loss="huber_ww", noise="gamma"
        )
    ),
    "PrivateCenter": Row(_estimator(PrivateCenter)),
    "PrivateCenter, Gamma": Row(_estimator(PrivateCenter, delta=0.0)),
    "PrivateWhitener": Row(_estimator(PrivateWhitener)),
    "PrivatePCA": Row(_estimator(PrivatePCA, None)),
    "PrivateStandardScaler": Row(_estimator(PrivateStandardScaler, bounds=(-1.0, 1.0))),
    "PrivateLinearSVC, centre": Row(
        _estimator(PrivateLinearSVC, **MAPPED, whiten=False), "centre", factor=4.4
    ),
    "PrivateLinearSVC, whitening": Row(
        _estimator(PrivateLinearSVC, **MAPPED, whiten=True), "whitening", factor=3.6
    ),
    "PrivateLinearSVC, training": Row(
        _estimator(PrivateLinearSVC, **MAPPED, whiten=False), "training", factor=1.04
    ),
    "PrivateKernelSVC, centre": Row(
        _estimator(PrivateKernelSVC, **MAPPED, whiten=False), "centre", factor=4.4
    ),
}


def selected(words: str | None) -> dict[str, Row]:
    """Return the rows whose name contains the words, in any case."""
    return {name: row for name, row in ROWS.items() if (words or "").lower() in name.lower()}


def audited(
    rows: dict[str, Row], epsilons: tuple[float, ...], **options: Any
) -> Iterator[tuple[str, AuditReport]]:
    """Yield the audits of all rows, relations and epsilons; ``options`` as in ``audit``."""
    for name, row in rows.items():
        for adjacency in row.relations:
            for epsilon in epsilons:
                estimator = row.make(row.factor * epsilon, adjacency)
                yield name, audit(estimator, part=row.part, **options)
