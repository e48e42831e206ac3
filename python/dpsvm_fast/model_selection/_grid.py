"""The candidates of a search: copies of one estimator with the parameters of a grid."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import ParameterGrid

from dpsvm_fast.estimators._pipeline_steps import Step
from dpsvm_fast.estimators._planned_events import private_steps
from dpsvm_fast.estimators._training_data import public_classes
from dpsvm_fast.exceptions import InvalidParameterError

__all__ = ["candidate_parameters", "candidates_of", "described", "label_step"]

# What the search itself decides, for every candidate alike.
RESERVED = frozenset({"epsilon", "delta", "adjacency", "ledger", "random_state", "classes"})
# One part of the records, or one draw in so many, for each candidate.
MOST_CANDIDATES = 10_000


def candidate_parameters(param_grid: Any) -> list[dict[str, Any]]:
    """Every combination of a grid, in scikit-learn's order.

    Raises
    ------
    TypeError, InvalidParameterError
        No grid, an empty one, or one over a parameter that is the search's own.
    """
    if not isinstance(param_grid, (Mapping, Iterable)) or isinstance(param_grid, str):
        kind = type(param_grid).__name__
        raise TypeError(f"param_grid: got {kind}, expected a dict of lists or a list of such dicts")
    try:
        grid = ParameterGrid(param_grid)
        n = len(grid)
    except ValueError as error:
        raise InvalidParameterError(f"param_grid: {error}") from None
    except TypeError as error:
        raise TypeError(f"param_grid: {error}") from None
    if not 0 < n <= MOST_CANDIDATES:
        raise InvalidParameterError.of(
            "param_grid", got=n, accepted=f"1 to {MOST_CANDIDATES} combinations"
        )
    parameters = [dict(combination) for combination in grid]
    names = {name for combination in parameters for name in combination}
    if not all(isinstance(name, str) for name in names):
        raise TypeError("param_grid: expected strings as names of parameters")
    for name in sorted(names):
        if name.rpartition("__")[2] in RESERVED:
            raise InvalidParameterError(
                f"param_grid: {name} is not for the grid; the search has one budget, relation, "
                "label set, ledger and source of randomness for all candidates"
            )
    return parameters


def candidates_of(estimator: Any, parameters: list[dict[str, Any]], adjacency: str) -> list[Any]:
    """A copy of the estimator for each combination.

    Raises
    ------
    TypeError, InvalidParameterError
        Not an estimator; none that makes private releases; another relation, a ledger or a seed in
        one that does.
    """
    alike = hasattr(estimator, "fit") and hasattr(estimator, "get_params")
    if not alike or isinstance(estimator, type):
        kind = type(estimator).__name__
        raise TypeError(f"estimator: got {kind}, expected an estimator or Pipeline")
    made = []
    for combination in parameters:
        candidate = clone(estimator)
        try:
            candidate.set_params(**clone(combination, safe=False))
        except ValueError as error:
            raise InvalidParameterError(f"param_grid: {error}") from None
        steps = private_steps(candidate)
        if not steps:
            raise InvalidParameterError(
                f"estimator: got {type(candidate).__name__}, expected an estimator of this "
                "library, a Pipeline with one inside, or a DeclaredTrainer"
            )
        for step in steps:
            _check_step(step, adjacency)
        made.append(candidate)
    return made


def _check_step(step: Step, adjacency: str) -> None:
    """Refuse what the search decides for all, set otherwise in one estimator."""
    name = type(step.estimator).__name__
    if not hasattr(step.estimator, "epsilon") or not hasattr(step.estimator, "adjacency"):
        raise TypeError(f"estimator: {name} has no epsilon or no adjacency, which a search sets")
    if step.estimator.adjacency != adjacency:
        raise InvalidParameterError(
            f"adjacency: got {adjacency!r} and {step.estimator.adjacency!r} in {name}, expected "
            "the same"
        )
    for parameter in ("ledger", "random_state"):
        if getattr(step.estimator, parameter, None) is not None:
            raise InvalidParameterError(
                f"{parameter}: expected None in {name}; give it to the search"
            )


def label_step(candidate: Any) -> Any | None:
    """The estimator inside that has the public label set as a parameter; None without one."""
    steps = [step.estimator for step in private_steps(candidate)]
    return next((step for step in reversed(steps) if hasattr(step, "classes")), None)


def label_set(candidates: list[Any]) -> tuple[bool, NDArray[Any] | None]:
    """Whether there is a label set among the parameters, and what it is where it is given."""
    steps = [label_step(candidate) for candidate in candidates]
    found = [None if step is None else step.classes for step in steps]
    if any(step is None for step in steps):
        return False, None
    if any(classes is None for classes in found):
        if any(classes is not None for classes in found):
            raise InvalidParameterError("classes: expected the same in all candidates")
        return True, None
    sets = [public_classes(classes) for classes in found]
    if not all(np.array_equal(sets[0], other) for other in sets):
        raise InvalidParameterError("classes: expected the same in all candidates")
    return True, sets[0]


def described(parameters: Mapping[str, Any]) -> str:
    """Public parameters of one candidate as text."""
    if not parameters:
        return "the estimator as it is"
    return ", ".join(f"{name}={_short(parameters[name])}" for name in sorted(parameters))


def _short(value: Any) -> str:
    """A parameter as text of one line."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 200 else f"{text[:197]}..."
