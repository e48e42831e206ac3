"""Which options of gradient perturbation are used with which others."""

from __future__ import annotations

from types import SimpleNamespace

from dpsvm_fast.estimators._parameters import chosen_loss
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.losses import Loss

__all__ = ["FREE", "OF_THE_MECHANISM", "gradient_loss", "settle_options"]

# Parameters of some optimizers alone, with their defaults: any other value with another optimizer
# would be ignored silently.
MOMENTUM_ONLY = {"momentum": 0.0, "nesterov": False}
ADAM_ONLY = {"betas": (0.9, 0.999), "stabilizer": None, "noise_correction": False}
# May change between calls of partial_fit: they change no result.
FREE = ("n_threads", "verbose")
# The widths for which the automatic steps were chosen: scores of the size of the noise in them.
AUTOMATIC_SMOOTHING = {"softmax_margin": 1.0, "softplus": 1.0}
AUTOMATIC_MARGIN = 1.0
# Parameters whose "auto" is for the mechanism to choose.
AUTOMATIC = (
    *("C", "n_steps", "sampling_rate", "expected_batch_size", "max_grad_norm", "learning_rate"),
    *("average", "stabilizer"),
)
# Parameters that the mechanism takes as they are.
OF_THE_MECHANISM = (
    *("epsilon", "delta", "adjacency", "noise_grid", "data_norm", "intercept_scaling", "C"),
    *("optimizer", "n_steps", "sampling_rate", "expected_batch_size", "max_grad_norm"),
    *("learning_rate", "schedule", "momentum", "nesterov", "betas", "stabilizer"),
    *("noise_correction", "average", "accountant"),
)


def settle_options(settings: SimpleNamespace) -> None:
    """Leave "auto" to the mechanism, and refuse values that would be ignored."""
    for name in AUTOMATIC:
        if getattr(settings, name) == "auto":
            setattr(settings, name, None)
    unused = MOMENTUM_ONLY if settings.optimizer == "adam" else ADAM_ONLY
    accepted: dict[str, tuple[object, str]] = {
        name: (default, f"with optimizer={settings.optimizer!r}, which does not use it")
        for name, default in unused.items()
    }
    if settings.optimizer == "gd" and settings.sampling_rate != 1.0:
        accepted["sampling_rate"] = (None, "or 1.0 with optimizer='gd', which takes all rows")
    if settings.momentum == 0.0:
        accepted["nesterov"] = (False, "with momentum=0")
    if settings.adjacency == "replace_one":
        reason = "with adjacency='replace_one', where the number of rows is public itself"
        accepted["max_samples"] = (None, reason)
    for name, (default, reason) in accepted.items():
        value = getattr(settings, name)
        if value != default:
            shown = "'auto'" if name in AUTOMATIC else repr(default)
            raise InvalidParameterError.of(name, got=value, accepted=f"{shown} {reason}")


def gradient_loss(settings: SimpleNamespace, n_classes: int) -> Loss:
    """The loss with this estimator's automatic width and margin."""
    name, smoothing, margin = settings.loss, settings.smoothing, settings.margin
    if name in AUTOMATIC_SMOOTHING:
        smoothing = AUTOMATIC_SMOOTHING[name] if smoothing == "auto" else smoothing
        margin = AUTOMATIC_MARGIN if margin == "auto" else margin
    return chosen_loss(name, n_classes, smoothing, margin)
