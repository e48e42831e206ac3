"""Parameters that everyone refuses, by name, with the numbers of the catalogue."""

from __future__ import annotations

import decimal
import fractions
from typing import Any

import numpy as np

from oracles.subjects import MAIN, SUBJECTS, known


class Unread:
    """Data of which nothing but the shape, which is public, may be looked at."""

    shape = (6, 2)

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"data were read: {name}")

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("data were read")


Bad = tuple[int, str, Any]


def bad(number: int, name: str, *values: Any) -> list[Bad]:
    return [(number, name, value) for value in values]


NAN, INF = float("nan"), float("inf")
# Of everybody who has a parameter of that name.
SHARED: list[Bad] = [
    *bad(64, "epsilon", 0, 0.0, -1.0, NAN, INF, True, "1", 1.1e4, 1e308, None, [1.0], -1e-320),
    *bad(64, "epsilon", decimal.Decimal(1), fractions.Fraction(1), 1j, np.array([1.0])),
    *bad(64, "epsilon", np.longdouble(1), np.float64(NAN), np.bool_(True)),
    *bad(65, "delta", 1.0, 1.5, -1e-9, NAN, INF, "0", None, False, 1e-320, 5e-324, 1),
    *bad(66, "C", 0.0, -1.0, INF, NAN, "1", None, True, 1e-300, 1e300),
    *bad(66, "extra_regularization", -1.0, INF, NAN, "none", None, True, 1e-300, 1e300),
    *bad(66, "trace_weight", -1.0, INF, NAN, "1", None, True),
    *bad(67, "max_grad_norm", 0.0, -1.0, INF, NAN, 1e-40, 1e40, "none", None),
    *bad(69, "max_iter", 0, -1, 1.0, 2**63, "1", True),
    *bad(70, "smoothing", 0.0, -1.0, INF, NAN, "wide", None, True),
    *bad(70, "margin", -1.0, INF, NAN, "wide", None, True),
    *bad(71, "data_norm", 0.0, -1.0, INF, NAN, "1", None, True, 1e-300, 1e300),
    *bad(71, "bounds", 1.0, "01", (0.0,), (1.0, 0.0), (0.0, 0.0), (0.0, NAN), ("a", "b"), True),
    *bad(72, "random_state", -1, 2**64, 1.5, "1", True, np.random.RandomState(0)),
    *bad(72, "random_state", np.random.default_rng(0), np.random, [1]),
    *bad(73, "n_threads", 0, -1, 10**6, 1.0, "all", True),
    *bad(77, "tol", 0.0, 1e-9, 1.1, -1.0, NAN, "0.1", None),
    *bad(77, "intercept_scaling", 0.0, -1.0, INF, "much", 1e-300),
    *bad(77, "loss", "hinge", None, 1, ""),
    *bad(77, "noise", "laplace", None, 1),
    *bad(77, "adjacency", "add-remove", None, 1),
    *bad(77, "noise_grid", "fine", None, 1),
    *bad(77, "fit_intercept", "yes", 1, None),
    *bad(77, "low_memory", "yes", 1, None),
    *bad(77, "verbose", -1, 2, "1", None),
    *bad(77, "mechanism", "sgd", None, 1),
    *bad(77, "whiten", "yes", 1, None),
    *bad(77, "with_std", "yes", 1, None),
    *bad(77, "psd", "maybe", None, 1),
    *bad(77, "n_ellipsoids", 0, -1, 1.0, "2", None, True),
    *bad(77, "centre", "mean", [NAN], [[1.0]], [1e101]),
    *bad(78, "ledger", 1.0, "budget", object()),
    *bad(25, "classes", [], [1], [1, 1], "ab", 3, [1, "a"], [1.5, 2.0], [None, 1], [NAN, 1.0]),
    *bad(25, "classes", [[1, 2], [3]]),
    *bad(81, "gamma", 0.0, -1.0, INF, NAN, 1e-40, 1e40, "scale", None, True),
    *bad(81, "kernel", "poly", None, 1, "RBF"),
    *bad(81, "n_components", 0, -1, 2.0, "all", 2**40, True),
    *bad(81, "orthogonal", 1, "auto", None),
    *bad(81, "normalize", 0, "l2", None),
]

# Of one recipe alone.
OWN: dict[str, list[Bad]] = {
    "output": [
        *bad(65, "delta", 0.0),
        *bad(77, "solver", "saga", None, 1),
    ],
    "psgd": [
        *bad(68, "batch_size", 0, -1, 1.5, "all", None, True),
        *bad(69, "n_epochs", 0, -1, 1.0, 2**63, "1", None, True),
        *bad(77, "radius", 0.0, -1.0, INF, NAN, "wide", None),
        *bad(77, "projection", "none", None, 1),
        *bad(77, "average", "first", None, 1),
    ],
    "objective": bad(65, "delta", 0.0),
    "ellipsoids": bad(65, "delta", 0.0),
    "gradient": [
        *bad(65, "delta", 0.0),
        *bad(68, "sampling_rate", 0.0, -0.1, 1 + 2**-52, 2.0, NAN, "all", None, True),
        *bad(68, "expected_batch_size", 0.0, -1.0, INF, 1e-300, 1e300, "all", None),
        *bad(68, "max_samples", 0, -1, 1.5, 2**41, "auto", True),
        *bad(69, "n_steps", 0, -1, 2**31, 2**63, 1.0, "many", None, True),
        *bad(77, "optimizer", "newton", None, 1),
        *bad(77, "learning_rate", 0.0, -1.0, INF, NAN, 1e-300, 1e300, "fast", None),
        *bad(77, "schedule", "cosine", None, 1),
        *bad(77, "momentum", -0.1, 1.0, 1 - 2**-53, NAN, "automatic", None),
        *bad(77, "nesterov", 1, "yes", None),
        *bad(77, "betas", 0.9, (0.9,), (0.9, 1.0), (-0.1, 0.9), ("a", "b"), None, "ab"),
        *bad(77, "stabilizer", 0.0, -1.0, INF, 1e-300, None),
        *bad(77, "noise_correction", 1, "yes", None),
        *bad(77, "average", -0.1, 1.1, NAN, "last", None, True),
        *bad(77, "accountant", "rdp", None, 1),
    ],
    "whitener": bad(65, "delta", 0.0),
    "pca": [*bad(65, "delta", 0.0), *bad(82, "n_components", 0, -1, 2.0, "all", True)],
    "features": bad(81, "n_components", None),
    "kernel": bad(81, "n_components", None),
}
# What only looks alike: no bounds at all are allowed to some.
ALLOWED = {("public scaler", "bounds"): (), ("pca", "n_components"): (2**40,)}


def bad_parameters() -> list[tuple[str, int, str, Any]]:
    """Subject, number, name and value."""
    found = []
    for subject in MAIN:
        allowed = ALLOWED.get((subject, "n_components"), ())
        for number, name, value in [*SHARED, *OWN.get(subject, [])]:
            if known(subject, {name: value}) or name in SUBJECTS[subject].lacks:
                if isinstance(value, int) and value in allowed:
                    continue
                found.append((subject, number, name, value))
    return found
