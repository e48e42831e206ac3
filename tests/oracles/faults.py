"""Faults put into the library for one test, each in a line: what is replaced, and by what."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from dpsvm_fast.losses import Loss
from dpsvm_fast.mechanisms import objective
from dpsvm_fast.mechanisms.noise import RELATION_FACTOR
from dpsvm_fast.mechanisms.objective import LinearNoise

Patch = pytest.MonkeyPatch
Fault = Callable[[Patch], None]

BOTH, EXCHANGE, MORE = ("add_remove", "replace_one"), ("replace_one",), ("add_remove",)
# An exchanged record counts as one record more does.
ONCE = {"add_remove": 1, "replace_one": 1}


def put(owner: Any, name: str, value: Any) -> Fault:
    """Another value of an attribute, or of an entry of a table."""
    if isinstance(owner, dict):
        return lambda patch: patch.setitem(owner, name, value)
    return lambda patch: patch.setattr(owner, name, value)


def around(owner: Any, name: str, wrong: Callable[..., Any]) -> Fault:
    """``wrong(right, ...)`` in place of a function, of a method, or of a property."""

    def apply(patch: Patch) -> None:
        right = inspect.getattr_static(owner, name)
        getter = getattr(right, "fget", None) or getattr(right, "func", None)
        if isinstance(owner, type) and getter is not None:
            patch.setattr(owner, name, property(lambda self: wrong(getter, self)))
        else:
            patch.setattr(owner, name, lambda *given, **named: wrong(right, *given, **named))

    return apply


def scaled(owner: Any, name: str, factor: float) -> Fault:
    """A function, method or property returns ``factor`` times its value."""
    return around(owner, name, lambda right, *a, **k: factor * right(*a, **k))


def together(*faults: Fault) -> Fault:
    def apply(patch: Patch) -> None:
        for fault in faults:
            fault(patch)

    return apply


def in_each(mutants: Mapping[str, tuple[Any, Any, Sequence[str]]]) -> pytest.MarkDecorator:
    """Parameters of a test: the name of a mutant, and a relation in which it is wrong."""
    cases = [
        (name, relation) for name, (*_, relations) in mutants.items() for relation in relations
    ]
    return pytest.mark.parametrize(("name", "adjacency"), cases)


def is_seen(fault: Fault, patch: Patch, holds: Callable[..., bool], *world: Any) -> bool:
    """Whether a check passes on the library as it is, and fails on the faulty one."""
    assert holds(*world)
    fault(patch)
    return not holds(*world)


# Of all mechanisms with noise in the objective.
no_jacobian = put(Loss, "jacobian", lambda *_: 0.0)
no_gaussian_jacobian = around(
    objective, "noise_multiplier", lambda right, *target, **_: right(*target, jacobian=0.0)
)
# L = sqrt(2), that of a softmax, for K - 1 hinges that one record can violate at once.
one_pairs_gradient = put(Loss, "lipschitz", math.sqrt(2.0))
halved_curvature = scaled(Loss, "curvature_ratio", 0.5)
# A replacement moves one gradient only: of Gamma noise, beta instead of beta / 2.
forgotten_record = put(RELATION_FACTOR, "replace_one", 1)
# Gaussian noise of a replacement calibrated as for an addition.
forgotten_relation = around(
    objective,
    "noise_multiplier",
    lambda right, loss, e, d, _, **curve: right(loss, e, d, "add_remove", **curve),
)
# The guarantee counts on the extra regularisation; the objective has its own share only.
unused_extra = together(
    put(LinearNoise, "regularization", property(lambda p: p.own_regularization)),
    scaled(LinearNoise, "curvature_ratio", 0.5),
)
