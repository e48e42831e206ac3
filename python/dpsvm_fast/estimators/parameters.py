"""What the parameters of the estimators may be: one table each, out of shared entries."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from dpsvm_fast import validation as check
from dpsvm_fast.estimators.inputs import checked_bounds, public_classes
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.losses import SMOOTH_LOSSES, WEIGHT_LOSSES, Loss
from dpsvm_fast.mechanisms.noise import LARGEST, NOISE_GRIDS, NOISES, SMALLEST
from dpsvm_fast.mechanisms.output import AVERAGES, PROJECTIONS
from dpsvm_fast.mechanisms.pipeline import TRAINERS
from dpsvm_fast.mechanisms.rows import KERNELS, LARGEST_GAMMA, MOST_COMPONENTS, SMALLEST_GAMMA

# Below, double precision could not certify the distance, and the noise would hardly shrink.
SMALLEST_RADIUS = 1e-4
# Relative to the gradient of one record. Below, sums over many rows would round more than that.
SMALLEST_GRADIENT = 1e-8
# What the solvers take.
_smoothing = partial(check.check_real, "smoothing", low=1e-6, high=1e6)

_margin = partial(check.check_real, "margin", low=0.0, high=1e6)

# smoothing="auto" and margin="auto". A softmax with a margin of 2 to 5 temperatures does as well as
# any; the scale of the margin is a choice of units, taken so that it is that of the hinge.
AUTOMATIC_SMOOTHING = {
    "softmax_margin": 0.4,
    "softplus": 0.4,
    "huber": 0.5,
    "m3": 0.5,
    "huber_ww": 0.5,
    "margin_distance": 0.5,
}

MARGIN_IN_TEMPERATURES = 2.5

# Of output perturbation.
SOLVERS = ("exact", "psgd")

# Of gradient perturbation.
OPTIMIZERS = ("gd", "sgd", "adam")

SCHEDULES = ("constant", "inverse", "linear")

ACCOUNTANTS = ("auto", "composition", "last_iterate")

MOST_STEPS = 2**31 - 1

LARGEST_DECAY = 1.0 - 1e-12

Table = dict[str, Callable[[Any], Any]]


def or_word(word: str | None, test: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The test of a parameter that may also be the given word, which its errors then name too."""

    def checked(value: Any) -> Any:
        if (value is None and word is None) or (isinstance(value, str) and value == word):
            return value
        try:
            return test(value)
        except (TypeError, InvalidParameterError) as error:
            got, expected, accepted = str(error).rpartition(", expected ")
            sentence = f"{got}{expected}{word!r} or {accepted}" if expected else accepted
            raise type(error)(sentence) from None

    return checked


def _within(name: str) -> Callable[[Any], float]:
    """The test of a number whose products with others stay in the floats."""
    return partial(check.check_real, name, low=SMALLEST, high=LARGEST)


def _decay(name: str, value: Any) -> float:
    """Accept a float in [0, 1), not so near to 1 that what decays would never do."""
    return check.check_real(name, value, low=0.0, high=LARGEST_DECAY)


def _betas(value: Any) -> tuple[float, float]:
    """Accept the two decay rates of Adam's moments."""
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise TypeError(f"betas: got {type(value).__name__}, expected two numbers in [0, 1)")
    return (_decay("betas", value[0]), _decay("betas", value[1]))


# Parameters of every estimator that trains once, except the ledger, whose test needs the adjacency.
_SHARED: Table = {
    "epsilon": check.check_epsilon,
    "delta": check.check_delta,
    "noise": partial(check.check_option, "noise", options=NOISES),
    "adjacency": check.check_adjacency,
    "data_norm": partial(check.check_positive, "data_norm"),
    "classes": or_word(None, public_classes),
    "fit_intercept": partial(check.check_bool, "fit_intercept"),
    "intercept_scaling": or_word("auto", partial(check.check_positive, "intercept_scaling")),
    "C": or_word("auto", partial(check.check_positive, "C")),
    "max_iter": or_word(None, partial(check.check_integer, "max_iter", low=1, high=2**63 - 1)),
    "random_state": check.check_random_state,
    "n_threads": check.check_n_threads,
    "noise_grid": partial(check.check_option, "noise_grid", options=NOISE_GRIDS),
    "low_memory": partial(check.check_bool, "low_memory"),
    "verbose": partial(check.check_integer, "verbose", low=0, high=1),
}

# Of the smooth losses, see `chosen_loss`.
LOSS_PARAMETERS: Table = {
    "smoothing": or_word("auto", _smoothing),
    "margin": or_word("auto", _margin),
}

OUTPUT_PERTURBATION: Table = (
    _SHARED
    | LOSS_PARAMETERS
    | {
        "loss": partial(check.check_option, "loss", options=WEIGHT_LOSSES),
        "tol": partial(check.check_real, "tol", low=SMALLEST_RADIUS, high=1.0),
        "solver": partial(check.check_option, "solver", options=SOLVERS),
        "n_epochs": partial(check.check_integer, "n_epochs", low=1, high=2**36),
        "batch_size": partial(check.check_integer, "batch_size", low=1, high=2**36),
        "radius": or_word("auto", partial(check.check_positive, "radius")),
        "projection": partial(check.check_option, "projection", options=PROJECTIONS),
        "average": partial(check.check_option, "average", options=AVERAGES),
    }
)

OBJECTIVE_PERTURBATION: Table = (
    _SHARED
    | LOSS_PARAMETERS
    | {
        "loss": partial(check.check_option, "loss", options=SMOOTH_LOSSES),
        "extra_regularization": or_word(
            "auto", partial(check.check_non_negative, "extra_regularization")
        ),
        "tol": partial(check.check_real, "tol", low=SMALLEST_GRADIENT, high=1.0),
    }
)

# Batches of any number of rows that fits a machine are empty below this.
LEAST_RATE = 1e-12

GRADIENT_PERTURBATION: Table = (
    {
        name: test
        for name, test in _SHARED.items()
        if name not in ("noise", "max_iter", "low_memory")
    }
    | LOSS_PARAMETERS
    | {
        "loss": partial(check.check_option, "loss", options=SMOOTH_LOSSES),
        "optimizer": partial(check.check_option, "optimizer", options=OPTIMIZERS),
        "n_steps": or_word("auto", partial(check.check_integer, "n_steps", low=1, high=MOST_STEPS)),
        "sampling_rate": or_word(
            "auto", partial(check.check_real, "sampling_rate", low=LEAST_RATE, high=1.0)
        ),
        "expected_batch_size": or_word("auto", _within("expected_batch_size")),
        "max_grad_norm": or_word("auto", partial(check.check_positive, "max_grad_norm")),
        "learning_rate": or_word("auto", _within("learning_rate")),
        "schedule": partial(check.check_option, "schedule", options=SCHEDULES),
        "momentum": partial(_decay, "momentum"),
        "nesterov": partial(check.check_bool, "nesterov"),
        "betas": _betas,
        "stabilizer": or_word("auto", _within("stabilizer")),
        "noise_correction": partial(check.check_bool, "noise_correction"),
        "average": or_word("auto", partial(check.check_real, "average", low=0.0, high=1.0)),
        "accountant": partial(check.check_option, "accountant", options=ACCOUNTANTS),
        "max_samples": or_word(
            None, partial(check.check_integer, "max_samples", low=1, high=2**40)
        ),
    }
)


PRIVATE_LINEAR: Table = {
    name: _SHARED[name]
    for name in (
        "epsilon",
        "delta",
        "adjacency",
        "classes",
        "fit_intercept",
        "random_state",
        "n_threads",
        "noise_grid",
        "verbose",
    )
} | {
    "bounds": or_word(None, checked_bounds),
    "mechanism": partial(check.check_option, "mechanism", options=("auto", *TRAINERS)),
    "whiten": or_word("auto", partial(check.check_bool, "whiten")),
    "margin": LOSS_PARAMETERS["margin"],
}

PRIVATE_KERNEL: Table = PRIVATE_LINEAR | {
    "kernel": partial(check.check_option, "kernel", options=("auto", *KERNELS, "linear")),
    "gamma": or_word(
        "auto", partial(check.check_real, "gamma", low=SMALLEST_GAMMA, high=LARGEST_GAMMA)
    ),
    "n_components": or_word(
        "auto", partial(check.check_integer, "n_components", low=1, high=MOST_COMPONENTS)
    ),
    "orthogonal": partial(check.check_bool, "orthogonal"),
    "normalize": partial(check.check_bool, "normalize"),
    "data_norm": _SHARED["data_norm"],
    "low_memory": or_word("auto", partial(check.check_bool, "low_memory")),
}


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
    # Before anything is spent: the solvers refuse others.
    _smoothing(width)
    _margin(distance)
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
