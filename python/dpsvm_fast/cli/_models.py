"""The estimators that the command line trains, and how each takes its rows."""

from __future__ import annotations

from typing import Any

from sklearn.pipeline import Pipeline
from sklearn.preprocessing import Normalizer

from dpsvm_fast.cli._errors import CommandError
from dpsvm_fast.estimators import (
    GradientPerturbationSVC,
    ObjectivePerturbationSVC,
    OutputPerturbationSVC,
    PrivateGaussianMarginClassifier,
    PrivateKernelSVC,
    PrivateLinearSVC,
)
from dpsvm_fast.mechanisms.fourier import KERNELS as FOURIER_KERNELS
from dpsvm_fast.mechanisms.linear_pipeline import TRAINERS as MECHANISMS_OF_PIPELINES
from dpsvm_fast.preprocessing import PublicScaler

__all__ = [
    "DENSE_ONLY",
    "KERNELS",
    "MECHANISMS",
    "MODELS",
    "STEP",
    "made",
    "needs_all_rows",
    "trainer_of",
]

PIPELINES: dict[str, Any] = {"linear": PrivateLinearSVC, "kernel": PrivateKernelSVC}
TRAINERS: dict[str, Any] = {
    "output": OutputPerturbationSVC,
    "objective": ObjectivePerturbationSVC,
    "gradient": GradientPerturbationSVC,
    "gaussian": PrivateGaussianMarginClassifier,
}
MODELS = (*PIPELINES, *TRAINERS)
# Models with a weight for every pair of features.
DENSE_ONLY = ("gaussian",)
MECHANISMS = ("auto", *MECHANISMS_OF_PIPELINES)
KERNELS = ("auto", *FOURIER_KERNELS, "linear")
# Of a trainer, behind its public scaling.
STEP = "svc"


def made(
    model: str,
    mechanism: str | None,
    schema: Any,
    *,
    kernel: str | None = None,
    **settings: Any,
) -> Any:
    """An estimator for rows of a schema.

    Parameters
    ----------
    model : {"linear", "kernel", "output", "objective", "gradient", "gaussian"}
    mechanism : str or None
        Of "linear" and "kernel" alone.
    schema : TableSchema
        With classes, and a name for every column.
    kernel : str or None, default=None
        Of "kernel" alone.
    **settings
        Parameters that all estimators have.

    Returns
    -------
    estimator
        It maps rows by the schema's public bounds before anything else.

    Raises
    ------
    CommandError
        ``mechanism`` for a model that is one already, ``kernel`` for one that has none.
    """
    classes = list(schema.classes)
    bounds = schema.bounds
    if kernel is not None and model != "kernel":
        raise CommandError(
            f"--kernel: got {kernel!r} with --model {model}, expected --model kernel"
        )
    if model in PIPELINES:
        given = {"mechanism": mechanism, "kernel": kernel}
        chosen = {name: value for name, value in given.items() if value is not None}
        return PIPELINES[model](bounds=bounds, classes=classes, **chosen, **settings)
    if mechanism is not None:
        raise CommandError(
            f"--mechanism: got {mechanism!r} with --model {model}, expected it left out, or "
            "--model linear or kernel"
        )
    trainer = TRAINERS[model]
    if settings.get("delta") == 0.0 and model != "gradient":
        settings["noise"] = "gamma"
    return Pipeline(
        [
            ("scaler", PublicScaler(bounds)),
            ("normalizer", Normalizer()),
            (STEP, trainer(classes=classes, **settings)),
        ]
    )


def trainer_of(estimator: Any) -> Any:
    """The estimator that makes the release; it has the statement once it is fitted."""
    return estimator.steps[-1][1] if isinstance(estimator, Pipeline) else estimator


def needs_all_rows(estimator: Any) -> bool:
    """Whether the training walks through all rows again and again, and not only sums over them."""
    trainer = trainer_of(estimator)
    if not isinstance(trainer, (PrivateLinearSVC, PrivateKernelSVC)):
        return not isinstance(trainer, GradientPerturbationSVC)
    pure = trainer.mechanism == "auto" and trainer.delta == 0.0
    return pure or trainer.mechanism not in ("auto", "gradient")
