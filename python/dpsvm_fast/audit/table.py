"""The audit table: every mechanism with settings and neighbours that spend nearly all they claim.

The settings are public facts that the guarantee does not rest on: one feature, little C, so that a
record far from its margin stays there; a small clip and short steps, so that a canary's gradient is
clipped in every step. Every estimator is also audited with its defaults elsewhere in the tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dpsvm_fast import estimators, preprocessing
from dpsvm_fast.audit.pair_audit import AuditReport, audit

DELTA = 1e-5

RELATIONS = ("add_remove", "replace_one")


@dataclass(frozen=True)
class Row:
    """One mechanism of the table.

    Parameters
    ----------
    kind : type
        Class of the estimator.
    settings : dict
        Its parameters, besides epsilon and relation.
    part : str or None
        Which release of it.
    relations : tuple of str
        Those that the mechanism knows.
    factor : float
        Epsilon of the whole over that of the part: about 1 of it is then the part's.
    """

    kind: Any
    settings: dict[str, Any]
    part: str | None = None
    relations: tuple[str, ...] = RELATIONS
    factor: float = 1.0

    def make(self, epsilon: float, adjacency: str) -> Any:
        """Return the estimator for an epsilon of its part and a relation."""
        budget = {"epsilon": self.factor * epsilon, "delta": DELTA, "adjacency": adjacency}
        return self.kind(**budget | self.settings)


TWO: dict[str, Any] = {"classes": [0, 1], "fit_intercept": False}
SGD: dict[str, Any] = TWO | {"max_grad_norm": 0.1, "learning_rate": 1e-3}
HALF: dict[str, Any] = SGD | {"optimizer": "sgd", "sampling_rate": 0.5}
# Steps in proportion to the noisy gradients, and the same weight for each.
ADAM: dict[str, Any] = {"optimizer": "adam", "stabilizer": 1e6, "betas": (0.0, 0.999)}
LAST: dict[str, Any] = {"accountant": "last_iterate", "max_grad_norm": 1.0, "max_samples": 4}
GAMMA: dict[str, Any] = {"loss": "huber", "noise": "gamma"}
MAPPED: dict[str, Any] = {"bounds": (-1.0, 1.0), "classes": [0, 1], "whiten": False}

OUTPUT, OBJECTIVE = estimators.OutputPerturbationSVC, estimators.ObjectivePerturbationSVC
GRADIENT, ELLIPSOIDS = (
    estimators.GradientPerturbationSVC,
    estimators.PrivateGaussianMarginClassifier,
)
LINEAR, KERNEL = estimators.PrivateLinearSVC, estimators.PrivateKernelSVC

ROWS: dict[str, Row] = {
    "output, Gaussian": Row(OUTPUT, TWO | {"C": 0.1}),
    "output, Gamma": Row(OUTPUT, TWO | GAMMA | {"C": 0.1}),
    "output, Huber": Row(OUTPUT, TWO | {"C": 0.1, "loss": "huber"}),
    "output, softmax": Row(OUTPUT, TWO | {"C": 0.01, "loss": "softmax_margin", "margin": 2.0}),
    "output, M3": Row(OUTPUT, TWO | {"C": 0.05, "loss": "m3"}),
    "output, projected SGD": Row(
        OUTPUT, TWO | {"C": 0.1, "loss": "huber", "solver": "psgd"}, relations=("replace_one",)
    ),
    "objective, Gaussian": Row(OBJECTIVE, TWO | {"C": 0.005, "margin": 5.0}),
    "objective, Gaussian, Huber": Row(OBJECTIVE, TWO | {"C": 0.01, "loss": "huber"}),
    "objective, Gaussian, curved": Row(OBJECTIVE, TWO),
    "objective, Gamma": Row(OBJECTIVE, TWO | GAMMA | {"C": 0.01}),
    "objective, Gamma, curved": Row(OBJECTIVE, TWO | {"noise": "gamma"}),
    "descent": Row(GRADIENT, SGD | {"n_steps": 3}),
    "descent, one sampled step": Row(GRADIENT, HALF | {"n_steps": 1}),
    "descent, sampled": Row(GRADIENT, HALF | {"n_steps": 10}),
    "descent, Adam": Row(GRADIENT, SGD | ADAM | {"n_steps": 3, "sampling_rate": 1.0}),
    "descent, last iterate": Row(
        GRADIENT,
        TWO | LAST | {"loss": "huber", "n_steps": 20, "C": 0.1},
        relations=("add_remove",),
    ),
    "ellipsoids, Gaussian": Row(ELLIPSOIDS, {"classes": [0, 1], "C": 0.001}),
    "ellipsoids, Gamma": Row(
        ELLIPSOIDS, {"classes": [0, 1], "C": 0.001, "loss": "huber_ww", "noise": "gamma"}
    ),
    "PrivateCenter": Row(preprocessing.PrivateCenter, {}),
    "PrivateCenter, Gamma": Row(preprocessing.PrivateCenter, {"delta": 0.0}),
    "PrivateWhitener": Row(preprocessing.PrivateWhitener, {}),
    "PrivatePCA": Row(preprocessing.PrivatePCA, {}),
    "PrivateStandardScaler": Row(preprocessing.PrivateStandardScaler, {"bounds": (-1.0, 1.0)}),
    "PrivateLinearSVC, centre": Row(LINEAR, MAPPED, "centre", factor=4.4),
    "PrivateLinearSVC, whitening": Row(LINEAR, MAPPED | {"whiten": True}, "whitening", factor=3.6),
    "PrivateLinearSVC, training": Row(LINEAR, MAPPED, "training", factor=1.04),
    "PrivateKernelSVC, centre": Row(KERNEL, MAPPED, "centre", factor=4.4),
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
                estimator = row.make(epsilon, adjacency)
                yield name, audit(estimator, part=row.part, **options)
