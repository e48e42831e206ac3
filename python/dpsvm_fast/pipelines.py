"""What a whole scikit-learn pipeline promises: the composition of all that its steps released."""

from __future__ import annotations

import math
import warnings
from typing import Any

from sklearn.utils.validation import check_is_fitted

from dpsvm_fast import _core
from dpsvm_fast.accounting import composed_epsilon
from dpsvm_fast.certificates import PipelineStatement, PipelineStep
from dpsvm_fast.certificates.words import FUNCTION, SAME_ROWS, STEPS_PUBLIC
from dpsvm_fast.estimators.fit import Step, leaf_steps
from dpsvm_fast.exceptions import InvalidParameterError, PrivacyLeakWarning
from dpsvm_fast.rounding import add_up
from dpsvm_fast.validation import check_delta

__all__ = ["total_privacy"]


def total_privacy(pipeline: Any, *, delta: float | None = None) -> PipelineStatement:
    r"""Privacy of all fitted steps of a pipeline together.

    Parameters
    ----------
    pipeline : Pipeline, FeatureUnion, ColumnTransformer, estimator, or list of them
        Fitted; a list stands for estimators that were fitted on the same private rows, one after
        the other or side by side.
    delta : float in [0, 1), optional
        At which delta epsilon is asked for. None: the sum of the steps' deltas, rounded up.

    Returns
    -------
    PipelineStatement
        The steps' statements, with epsilon and delta of their composition by the accountant of the
        ledger. Printing it gives prose; ``verify`` recomputes it without the steps.

    Raises
    ------
    NotFittedError
        A step that learns has not been fitted.
    InvalidParameterError
        Steps of different relations, no private step at all, or delta = 0 with Gaussian noise.
    TypeError
        Something that is no estimator.

    Warns
    -----
    PrivacyLeakWarning
        A step learned from the rows without privacy, as scikit-learn's StandardScaler, PCA or
        SelectKBest do. The statement is then marked not private, and says why.

    Notes
    -----
    Guarantees: where the result is ``private``, all fitted attributes of all steps together are
    (epsilon, delta)-differentially private for the relation of the steps, provided that what it
    lists as public was public. A step counts as free when it is one of this library's without a
    budget (``PublicScaler``, ``RandomFourierFeatures``), when its scikit-learn tags say that it
    needs no fit (``Normalizer``, ``FunctionTransformer``) or when it is a ``OneHotEncoder`` or
    ``OrdinalEncoder`` with declared ``categories``. An estimator that is listed twice is counted
    twice. Proof: docs/proofs/private_scaling.md, section "Pipelines".

    Searches over hyper-parameters fit many pipelines on the same rows; this is about one of them.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import Normalizer
    >>> from dpsvm_fast import OutputPerturbationSVC, PrivateCenter, PublicScaler, total_privacy
    >>> X, y = load_iris(return_X_y=True)
    >>> model = make_pipeline(
    ...     PublicScaler((0, 10)),
    ...     Normalizer(),
    ...     PrivateCenter(1.0),
    ...     OutputPerturbationSVC(2.0, classes=[0, 1, 2]),
    ... ).fit(X, y)
    >>> total = total_privacy(model)
    >>> total.private, total.epsilon < 3.0
    (True, True)
    """
    leaves = _leaves(pipeline)
    for leaf in leaves:
        _check_fitted(leaf)
    steps = tuple(_described(leaf) for leaf in leaves)
    statements = [step.statement for step in steps if step.statement is not None]
    if not statements:
        raise InvalidParameterError(
            "pipeline: expected a step that was fitted with differential privacy"
        )
    if delta is None:
        delta = add_up(*(statement.delta for statement in statements))
    whole = PipelineStatement(
        epsilon=0.0,
        delta=check_delta(delta),
        adjacency=statements[0].adjacency,
        steps=steps,
        assumptions=(SAME_ROWS, STEPS_PUBLIC, *_of_functions(leaves)),
        library_version=_core.build_info()["version"],
    )
    _warn_of_leaks(steps)
    return _with_epsilon(whole)


def _leaves(pipeline: Any) -> list[Step]:
    """All estimators inside that are not made of others."""
    if isinstance(pipeline, (list, tuple)):
        return [leaf for i, part in enumerate(pipeline) for leaf in leaf_steps(part, str(i))]
    if not hasattr(pipeline, "fit"):
        kind = type(pipeline).__name__
        raise TypeError(f"pipeline: got {kind}, expected a fitted Pipeline, estimator, or a list")
    # A lone estimator has no name but its class.
    name = "" if hasattr(pipeline, "steps") else type(pipeline).__name__.lower()
    return list(leaf_steps(pipeline, name))


def _check_fitted(leaf: Step) -> None:
    """Refuse a step that learns and has not."""
    if not hasattr(leaf.estimator, "fit"):
        kind = type(leaf.estimator).__name__
        raise TypeError(f"pipeline: step {leaf.name!r} is a {kind}, expected an estimator")
    if leaf.role != "public":
        check_is_fitted(leaf.estimator)


def _described(leaf: Step) -> PipelineStep:
    """The step as the statement lists it."""
    return PipelineStep(
        name=leaf.name,
        estimator=type(leaf.estimator).__name__,
        statement=leaf.statement,
        learned=leaf.role == "learned",
    )


def _of_functions(leaves: list[Step]) -> tuple[str, ...]:
    """What has to be assumed of functions that nobody can look into."""
    return tuple(FUNCTION.format(step=leaf) for leaf in leaves if leaf.maps_by_function)


def _warn_of_leaks(steps: tuple[PipelineStep, ...]) -> None:
    """Name what learned without privacy, for the caller of ``total_privacy``."""
    leaks = ", ".join(step.title for step in steps if step.learned)
    if leaks:
        warnings.warn(
            f"steps learned from the rows without privacy: {leaks}; the pipeline as a whole is not "
            "private. Scale by PublicScaler or PrivateStandardScaler, or take another private or "
            "stateless step",
            PrivacyLeakWarning,
            stacklevel=3,
        )


def _with_epsilon(whole: PipelineStatement) -> PipelineStatement:
    """The statement with the smallest known epsilon at its delta."""
    epsilon = composed_epsilon(whole.events, whole.delta)
    if math.isinf(epsilon):
        raise InvalidParameterError(
            f"delta: got {whole.delta!r}, expected a larger one: no finite epsilon is known at it "
            "(with noise that is not pure it must be above 0)"
        )
    return PipelineStatement(**vars(whole) | {"epsilon": epsilon})
