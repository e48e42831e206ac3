"""What a call of ``partial_fit`` goes on from, and whether it may.

Noisy sums and public facts only: nothing that is kept between calls tells more than was paid for.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast import _core
from dpsvm_fast.estimators._training_data import public_classes
from dpsvm_fast.exceptions import InvalidParameterError

__all__ = [
    "Continuation",
    "continuation",
    "declared_classes",
    "may_continue",
    "next_seed",
    "resumed",
]


class Continuation(NamedTuple):
    """What a call of ``partial_fit`` goes on from: noisy numbers and public facts."""

    # Of the descent.
    state: dict[str, Any]
    # Taken so far.
    n_steps: int
    # All that may change a result.
    parameters: dict[str, Any]
    # The label set as the user gave it, None where it was read from labels.
    classes: NDArray[Any] | None
    n_calls: int


def may_continue(estimator: Any) -> bool:
    """Whether a model with these parameters can be continued; says what would let it."""
    if estimator.accountant == "last_iterate":
        raise AttributeError(
            "partial_fit goes on from what all steps have told, which accountant='last_iterate' "
            "does not account for; accountant='composition' does"
        )
    return True


def continuation(fitted: dict[str, Any], settings: SimpleNamespace) -> Continuation | None:
    """What the calls before have left for this one, if it may go on from there."""
    before: Continuation | None = fitted.get("_continuation")
    if before is None:
        if "privacy_" in fitted:
            raise InvalidParameterError(
                "accountant: this model keeps nothing to go on from, as its fit released the last "
                "iterate alone, or it was loaded by load_model or chosen by a search; expected one "
                "fitted with accountant='composition', in this process or unpickled"
            )
        return None
    for name, value in settings.parameters.items():
        if not np.array_equal(value, before.parameters[name]):
            raise InvalidParameterError(
                f"{name}: expected the value of the call before; parameters must not change "
                "between calls of partial_fit"
            )
    if settings.schedule == "linear":
        raise InvalidParameterError.of(
            "schedule",
            got="linear",
            accepted="'constant' or 'inverse' in a second call, as the rate has come down to 0",
        )
    return before


def declared_classes(
    parameter: NDArray[Any] | None, argument: Any, fitted: dict[str, Any]
) -> NDArray[Any] | None:
    """The label set by the parameter, the argument of ``partial_fit`` or an earlier call."""
    before: Continuation | None = fitted.get("_continuation")
    if argument is None:
        if before is not None:
            return before.classes
        if parameter is None:
            raise InvalidParameterError(
                "classes: got None, expected the public label set in the first call of partial_fit "
                "or as a parameter"
            )
        return parameter
    given = public_classes(argument)
    known = parameter if before is None else fitted["classes_"]
    if known is not None and not np.array_equal(given, known):
        raise InvalidParameterError("classes: expected the label set known already, or None")
    return given if before is None else before.classes


def next_seed(seed: int, n_calls: int) -> int:
    """A seed of its own for each call: the same noise again could be subtracted."""
    for _ in range(n_calls):
        seed = _core.NoiseSource(seed).public_seed()
    return seed


def resumed(state: dict[str, Any]) -> dict[str, Any]:
    """The state with the mean begun anew: it is over iterates of the next run alone."""
    return state | {"averaged": 0, "sum": np.zeros_like(state["sum"])}
