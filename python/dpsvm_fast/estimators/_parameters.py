"""What the parameters of the estimators may be: one table each, out of shared entries."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from dpsvm_fast import _validation as check
from dpsvm_fast.estimators._training_data import public_classes
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.losses import SMOOTH_LOSSES, Loss
from dpsvm_fast.mechanisms._projected_sgd import AVERAGES, PROJECTIONS
from dpsvm_fast.mechanisms._settings import NOISE_GRIDS, NOISES

__all__ = ["LOSS_PARAMETERS", "OBJECTIVE_PERTURBATION", "OUTPUT_PERTURBATION", "chosen_loss"]

# Below, double precision could not certify the distance, and the noise would hardly shrink.
SMALLEST_RADIUS = 1e-4
# Relative to the gradient of one record. Below, sums over many rows would round more than that.
SMALLEST_GRADIENT = 1e-8

# smoothing="auto" and margin="auto". A softmax with a margin of 2 to 5 temperatures does as well as
# any; the scale of the margin is a choice of units, taken so that it is that of the hinge.
AUTOMATIC_SMOOTHING = {"softmax_margin": 0.4, "softplus": 0.4, "huber": 0.5, "m3": 0.5}
MARGIN_IN_TEMPERATURES = 2.5

# Of output perturbation.
SOLVERS = ("exact", "psgd")

Table = dict[str, Callable[[Any], Any]]


def _or(word: str | None, test: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The test of a parameter that may also be the given word."""
    return lambda value: (
        value
        if value is None and word is None
        else (value if isinstance(value, str) and value == word else test(value))
    )


# Parameters of every estimator that trains once, except the ledger, whose test needs the adjacency.
_SHARED: Table = {
    "epsilon": check.check_epsilon,
    "delta": check.check_delta,
    "noise": partial(check.check_option, "noise", options=NOISES),
    "adjacency": check.check_adjacency,
    "data_norm": partial(check.check_positive, "data_norm"),
    "classes": _or(None, public_classes),
    "fit_intercept": partial(check.check_bool, "fit_intercept"),
    "intercept_scaling": _or("auto", partial(check.check_positive, "intercept_scaling")),
    "C": _or("auto", partial(check.check_positive, "C")),
    "max_iter": _or(None, partial(check.check_integer, "max_iter", low=1, high=2**63 - 1)),
    "random_state": check.check_random_state,
    "n_threads": check.check_n_threads,
    "noise_grid": partial(check.check_option, "noise_grid", options=NOISE_GRIDS),
    "low_memory": partial(check.check_bool, "low_memory"),
    "verbose": partial(check.check_integer, "verbose", low=0, high=1),
}

# Of the smooth losses, see `chosen_loss`.
LOSS_PARAMETERS: Table = {
    "smoothing": _or("auto", partial(check.check_positive, "smoothing")),
    "margin": _or("auto", partial(check.check_non_negative, "margin")),
}

OUTPUT_PERTURBATION: Table = (
    _SHARED
    | LOSS_PARAMETERS
    | {
        "loss": partial(check.check_option, "loss", options=("crammer_singer", *SMOOTH_LOSSES)),
        "tol": partial(check.check_real, "tol", low=SMALLEST_RADIUS, high=1.0),
        "solver": partial(check.check_option, "solver", options=SOLVERS),
        "n_epochs": partial(check.check_integer, "n_epochs", low=1, high=2**36),
        "batch_size": partial(check.check_integer, "batch_size", low=1, high=2**36),
        "radius": _or("auto", partial(check.check_positive, "radius")),
        "projection": partial(check.check_option, "projection", options=PROJECTIONS),
        "average": partial(check.check_option, "average", options=AVERAGES),
    }
)

OBJECTIVE_PERTURBATION: Table = (
    _SHARED
    | LOSS_PARAMETERS
    | {
        "loss": partial(check.check_option, "loss", options=SMOOTH_LOSSES),
        "extra_regularization": _or(
            "auto", partial(check.check_non_negative, "extra_regularization")
        ),
        "tol": partial(check.check_real, "tol", low=SMALLEST_GRADIENT, high=1.0),
    }
)


def chosen_loss(name: str, n_classes: int, smoothing: float | str, margin: float | str) -> Loss:
    """The loss with checked ``smoothing`` and ``margin``, each a number or "auto".

    Raises
    ------
    InvalidParameterError
        A number for something that the loss does not have.
    """
    if name not in AUTOMATIC_SMOOTHING:
        for parameter, value in (("smoothing", smoothing), ("margin", margin)):
            _refuse(name, parameter, value, ("auto",))
        return Loss(name=name, n_classes=n_classes, margin=0.0 if name == "logistic" else 1.0)
    if name == "huber":
        _refuse(name, "margin", margin, ("auto", 1.0))
    width = AUTOMATIC_SMOOTHING[name] if smoothing == "auto" else float(smoothing)
    distance = automatic_margin(name, width) if margin == "auto" else float(margin)
    return Loss(name=name, n_classes=n_classes, smoothing=width, margin=distance)


def automatic_margin(name: str, smoothing: float) -> float:
    """margin="auto": the hinge's margin, or the one that suits a softmax of this temperature."""
    return MARGIN_IN_TEMPERATURES * smoothing if name in ("softmax_margin", "softplus") else 1.0


def _refuse(loss: str, parameter: str, value: object, accepted: tuple[object, ...]) -> None:
    """Refuse a value for a parameter that this loss has not, or has not free."""
    if value not in accepted:
        raise InvalidParameterError.of(
            parameter,
            got=value,
            accepted=" or ".join(map(repr, accepted)) + f" with loss={loss!r}",
        )
