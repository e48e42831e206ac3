"""The estimators that can be shown and planned without data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from dpsvm_fast.cli._errors import CommandError
from dpsvm_fast.cli._types import OneOf

__all__ = ["CLASSES", "KERNEL", "LINEAR", "estimator_class", "model_options", "one_model"]

LINEAR, KERNEL = "linear", "kernel"
CLASSES = {
    LINEAR: "PrivateLinearSVC",
    KERNEL: "PrivateKernelSVC",
    "objective": "ObjectivePerturbationSVC",
    "output": "OutputPerturbationSVC",
}
# Values of --mechanism, which was the only name of this option.
MECHANISMS = {"auto": LINEAR, "objective": "objective", "output": "output"}


def estimator_class(model: str) -> Any:
    """Import the class of a model."""
    from dpsvm_fast import estimators

    return getattr(estimators, CLASSES[model])


def model_options(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """``--model``, and ``--mechanism`` for who knows it by that name."""
    default = "linear, the default, or kernel" if KERNEL in names else "linear, the default"
    shown = click.option(
        "--model",
        type=OneOf(names),
        help=f"The whole private pipeline ({default}), or an estimator with "
        "noise inside its objective or on its output, the weights.",
    )
    hidden = click.option("--mechanism", type=OneOf(MECHANISMS), hidden=True)
    return lambda function: shown(hidden(function))


def one_model(model: str | None, mechanism: str | None) -> str:
    """What the two options say together."""
    meant = model if mechanism is None else MECHANISMS[mechanism]
    if model is not None and model != meant:
        raise CommandError(
            f"--model: got {model!r} and --mechanism {mechanism!r}, expected one of the two"
        )
    return meant or LINEAR
