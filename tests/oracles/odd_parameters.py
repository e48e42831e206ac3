"""Parameters that everyone refuses, by name."""

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


Bad = tuple[str, Any]


def bad(name: str, *values: Any) -> list[Bad]:
    return [(name, value) for value in values]


NAN, INF = float("nan"), float("inf")
# Of everybody who has a parameter of that name.
SHARED: list[Bad] = [
    *bad("epsilon", 0, 0.0, -1.0, NAN, INF, True, "1", 1.1e4, 1e308, None, [1.0], -1e-320),
    *bad("epsilon", decimal.Decimal(1), fractions.Fraction(1), 1j, np.array([1.0])),
    *bad("epsilon", np.longdouble(1), np.float64(NAN), np.bool_(True)),
    *bad("delta", 1.0, 1.5, -1e-9, NAN, INF, "0", None, False, 1e-320, 5e-324, 1),
    *bad("C", 0.0, -1.0, INF, NAN, "1", None, True, 1e-300, 1e300),
    *bad("extra_regularization", -1.0, INF, NAN, "none", None, True, 1e-300, 1e300),
    *bad("trace_weight", -1.0, INF, NAN, "1", None, True),
    *bad("max_grad_norm", 0.0, -1.0, INF, NAN, 1e-40, 1e40, "none", None),
    *bad("max_iter", 0, -1, 1.0, 2**63, "1", True),
    *bad("smoothing", 0.0, -1.0, INF, NAN, "wide", None, True),
    *bad("margin", -1.0, INF, NAN, "wide", None, True),
    *bad("data_norm", 0.0, -1.0, INF, NAN, "1", None, True, 1e-300, 1e300),
    *bad("bounds", 1.0, "01", (0.0,), (1.0, 0.0), (0.0, 0.0), (0.0, NAN), ("a", "b"), True),
    *bad("random_state", -1, 2**64, 1.5, "1", True, np.random.RandomState(0)),
    *bad("random_state", np.random.default_rng(0), np.random, [1]),
    *bad("n_threads", 0, -1, 10**6, 1.0, "all", True),
    *bad("tol", 0.0, 1e-9, 1.1, -1.0, NAN, "0.1", None),
    *bad("intercept_scaling", 0.0, -1.0, INF, "much", 1e-300),
    *bad("loss", "hinge", None, 1, ""),
    *bad("noise", "laplace", None, 1),
    *bad("adjacency", "add-remove", None, 1),
    *bad("noise_grid", "fine", None, 1),
    *bad("fit_intercept", "yes", 1, None),
    *bad("low_memory", "yes", 1, None),
    *bad("verbose", -1, 2, "1", None),
    *bad("mechanism", "sgd", None, 1),
    *bad("whiten", "yes", 1, None),
    *bad("with_std", "yes", 1, None),
    *bad("psd", "maybe", None, 1),
    *bad("n_ellipsoids", 0, -1, 1.0, "2", None, True),
    *bad("centre", "mean", [NAN], [[1.0]], [1e101]),
    *bad("ledger", 1.0, "budget", object()),
    *bad("classes", [], [1], [1, 1], "ab", 3, [1, "a"], [1.5, 2.0], [None, 1], [NAN, 1.0]),
    *bad("classes", [[1, 2], [3]]),
    *bad("gamma", 0.0, -1.0, INF, NAN, 1e-40, 1e40, "scale", None, True),
    *bad("kernel", "poly", None, 1, "RBF"),
    *bad("n_components", 0, -1, 2.0, "all", 2**40, True),
    *bad("orthogonal", 1, "auto", None),
    *bad("normalize", 0, "l2", None),
]

# Of one recipe alone.
OWN: dict[str, list[Bad]] = {
    "output": [
        *bad("delta", 0.0),
        *bad("solver", "saga", None, 1),
    ],
    "psgd": [
        *bad("batch_size", 0, -1, 1.5, "all", None, True),
        *bad("n_epochs", 0, -1, 1.0, 2**63, "1", None, True),
        *bad("radius", 0.0, -1.0, INF, NAN, "wide", None),
        *bad("projection", "none", None, 1),
        *bad("average", "first", None, 1),
    ],
    "objective": bad("delta", 0.0),
    "ellipsoids": bad("delta", 0.0),
    "gradient": [
        *bad("delta", 0.0),
        *bad("sampling_rate", 0.0, -0.1, 1 + 2**-52, 2.0, NAN, "all", None, True),
        *bad("expected_batch_size", 0.0, -1.0, INF, 1e-300, 1e300, "all", None),
        *bad("max_samples", 0, -1, 1.5, 2**41, "auto", True),
        *bad("n_steps", 0, -1, 2**31, 2**63, 1.0, "many", None, True),
        *bad("optimizer", "newton", None, 1),
        *bad("learning_rate", 0.0, -1.0, INF, NAN, 1e-300, 1e300, "fast", None),
        *bad("schedule", "cosine", None, 1),
        *bad("momentum", -0.1, 1.0, 1 - 2**-53, NAN, "automatic", None),
        *bad("nesterov", 1, "yes", None),
        *bad("betas", 0.9, (0.9,), (0.9, 1.0), (-0.1, 0.9), ("a", "b"), None, "ab"),
        *bad("stabilizer", 0.0, -1.0, INF, 1e-300, None),
        *bad("noise_correction", 1, "yes", None),
        *bad("average", -0.1, 1.1, NAN, "last", None, True),
        *bad("accountant", "rdp", None, 1),
    ],
    "whitener": bad("delta", 0.0),
    "pca": [*bad("delta", 0.0), *bad("n_components", 0, -1, 2.0, "all", True)],
    "features": bad("n_components", None),
    "kernel": bad("n_components", None),
}
# What only looks alike: no bounds at all are allowed to some.
ALLOWED = {("public scaler", "bounds"): (), ("pca", "n_components"): (2**40,)}


def bad_parameters() -> list[tuple[str, str, Any]]:
    """Subject, name and value."""
    found = []
    for subject in MAIN:
        allowed = ALLOWED.get((subject, "n_components"), ())
        for name, value in [*SHARED, *OWN.get(subject, [])]:
            if known(subject, {name: value}) or name in SUBJECTS[subject].lacks:
                if isinstance(value, int) and value in allowed:
                    continue
                found.append((subject, name, value))
    return found
