"""The one table of what the parameters of `OutputPerturbationSVC` may be."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from dpsvm_fast import _validation as check
from dpsvm_fast.estimators._training_data import public_classes
from dpsvm_fast.mechanisms._settings import NOISE_GRIDS, NOISES

__all__ = ["PARAMETERS"]

LOSSES = ("crammer_singer",)
# Below, double precision could not certify the distance, and the noise would hardly shrink.
SMALLEST_TOL = 1e-4


def _or(word: str | None, test: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The test of a parameter that may also be the given word."""
    return lambda value: (
        value
        if value is None and word is None
        else (value if isinstance(value, str) and value == word else test(value))
    )


# Every constructor parameter once, except the ledger, whose test needs the adjacency.
PARAMETERS: dict[str, Callable[[Any], Any]] = {
    "epsilon": check.check_epsilon,
    "delta": check.check_delta,
    "loss": partial(check.check_option, "loss", options=LOSSES),
    "noise": partial(check.check_option, "noise", options=NOISES),
    "adjacency": check.check_adjacency,
    "data_norm": partial(check.check_positive, "data_norm"),
    "classes": _or(None, public_classes),
    "fit_intercept": partial(check.check_bool, "fit_intercept"),
    "intercept_scaling": _or("auto", partial(check.check_positive, "intercept_scaling")),
    "C": _or("auto", partial(check.check_positive, "C")),
    "tol": partial(check.check_real, "tol", low=SMALLEST_TOL, high=1.0),
    "max_iter": _or(None, partial(check.check_integer, "max_iter", low=1, high=2**63 - 1)),
    "random_state": check.check_random_state,
    "n_threads": check.check_n_threads,
    "noise_grid": partial(check.check_option, "noise_grid", options=NOISE_GRIDS),
    "low_memory": partial(check.check_bool, "low_memory"),
    "verbose": partial(check.check_integer, "verbose", low=0, high=1),
}
