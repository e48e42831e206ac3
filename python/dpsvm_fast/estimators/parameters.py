"""Parameters of the estimators, each declared once with type, check and default.

An estimator is a dataclass whose fields are its parameters. The annotation of a field carries the
check of its value. Common parameters of classifiers or transformers are declared by their base::

    @dataclass(eq=False, repr=False)
    class SomeSVC(OneRelease):
        _: KW_ONLY
        C: param.AutoPositive = "auto"
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cache, partial
from typing import Annotated, Any, TypeVar, get_type_hints

from dpsvm_fast import validation as check
from dpsvm_fast.estimators.inputs import UNIT_NORM, checked_bounds, public_classes
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.losses import KINDS, SMOOTH_LOSSES, WEIGHT_LOSSES, Loss
from dpsvm_fast.mechanisms.noise import LARGEST, NOISE_GRIDS, NOISES, SMALLEST
from dpsvm_fast.validation import refuse

# The check of a value under its name; returns the value in the form in which it is used.
Test = Callable[[str, Any], Any]

E = TypeVar("E")


def _declared(kind: type) -> Mapping[str, tuple[Any, ...]]:
    """Return the metadata in the annotation of each parameter, its check first."""
    # The mark before keyword-only fields, which Python 3.10 does not accept as a type.
    hints = get_type_hints(kind, localns={"KW_ONLY": object}, include_extras=True)
    return {
        field.name: hints[field.name].__metadata__
        # As in the constructor: fields of a base come after all positional ones.
        for field in sorted(fields(kind), key=lambda field: bool(field.kw_only))
        if field.init and hasattr(hints[field.name], "__metadata__")
    }


def _tests_of(kind: type) -> Mapping[str, Test]:
    """Return the checks of an estimator's parameters, in constructor order."""
    return {name: found[0] for name, found in _declared(kind).items()}


# Typed for classes, whose hash mypy takes for that of their objects.
tests_of: Callable[[type], Mapping[str, Test]] = cache(_tests_of)


# Marks a parameter that is newer than some files of its class: its default is not written, and
# files without the parameter have that default.
ADDED = "added"


def added(kind: type) -> dict[str, Any]:
    """Return the defaults of the parameters marked by ``ADDED``."""
    return {
        name: getattr(kind, name) for name, found in _declared(kind).items() if ADDED in found[1:]
    }


def checked_copy(estimator: E) -> E:
    """Return a copy with all parameters checked; no data are read."""
    copied = copy.copy(estimator)
    for name, test in tests_of(type(estimator)).items():
        vars(copied)[name] = test(name, getattr(estimator, name))
    return copied


def or_word(word: str | None, test: Test) -> Test:
    """Return a check that also accepts the given word."""

    def checked(name: str, value: Any) -> Any:
        if (value is None and word is None) or (isinstance(value, str) and value == word):
            return value
        try:
            return test(name, value)
        except (TypeError, InvalidParameterError) as error:
            got, expected, accepted = str(error).rpartition(", expected ")
            sentence = f"{got}{expected}{word!r} or {accepted}" if expected else accepted
            raise type(error)(sentence) from None

    return checked


def auto_or(test: Test) -> Test:
    """Return a check that also accepts "auto"."""
    return or_word("auto", test)


def one_of(*options: str) -> Test:
    """Return a check for one of the given words."""
    return partial(check.check_option, options=options)


def real(low: float, high: float) -> Test:
    """Return a check for a number in a closed range."""
    return partial(check.check_real, low=low, high=high)


def integer(low: int, high: int) -> Test:
    """Return a check for an integer in a closed range."""
    return partial(check.check_integer, low=low, high=high)


# Numbers whose products with others stay in the floats.
within = real(SMALLEST, LARGEST)
# Ranges that the solvers accept.
smoothing_range, margin_range = real(1e-6, 1e6), real(0.0, 1e6)


def class_weights(name: str, value: Any) -> dict[Any, float]:
    """Accept a dict of public weights by label."""
    value = check.check_type(name, value, Mapping, "a dict of numbers")
    found = {key: check.check_non_negative(name, weight) for key, weight in value.items()}
    if not any(found.values()):
        raise InvalidParameterError(f"{name}: expected at least one weight above 0")
    return found


ClassWeight = Annotated[Any, or_word(None, or_word("balanced", class_weights))]
Epsilon = Annotated[float, check.check_epsilon]
Delta = Annotated[float, check.check_delta]
Adjacency = Annotated[str, one_of(*check.ADJACENCIES)]
Noise = Annotated[str, one_of(*NOISES)]
NoiseGrid = Annotated[str, one_of(*NOISE_GRIDS)]
Classes = Annotated[Any, or_word(None, public_classes)]
OptionalBounds = Annotated[Any, or_word(None, or_word(UNIT_NORM, checked_bounds))]
GivenBounds = Annotated[Any, checked_bounds]
Seed = Annotated[int | None, check.check_random_state]
Threads = Annotated[int | None, check.check_n_threads]
Verbose = Annotated[int, integer(0, 1)]
Flag = Annotated[bool, check.check_bool]
AutoFlag = Annotated[bool | str, auto_or(check.check_bool)]
Positive = Annotated[float, check.check_positive]
AutoPositive = Annotated[float | str, auto_or(check.check_positive)]
AutoNonNegative = Annotated[float | str, auto_or(check.check_non_negative)]
NonNegative = Annotated[float, check.check_non_negative]
AutoWithin = Annotated[float | str, auto_or(within)]
Smoothing = Annotated[float | str, auto_or(smoothing_range)]
Margin = Annotated[float | str, auto_or(margin_range)]
SmoothLoss = Annotated[str, one_of(*SMOOTH_LOSSES)]
WeightLoss = Annotated[str, one_of(*WEIGHT_LOSSES)]
# Below, double precision could not certify the distance, and the noise would shrink very little.
DistanceTol = Annotated[float, real(1e-4, 1.0)]
# Relative to the gradient of one record. Below, sums over many rows would round more than that.
GradientTol = Annotated[float, real(1e-8, 1.0)]
MaxIter = Annotated[int | None, or_word(None, integer(1, 2**63 - 1))]


def refuse_unused(owner: object, defaults: Mapping[str, object], reason: str) -> None:
    """Refuse other values than the defaults of parameters that would be ignored."""
    for name, default in defaults.items():
        refuse(owner, (name, getattr(owner, name) != default, f"{default!r} {reason}"))


def number_or_none(value: float | str) -> float | None:
    """Return None for "auto", so that the plan chooses."""
    return None if isinstance(value, str) else value


def chosen_loss(name: str, n_classes: int, smoothing: float | str, margin: float | str) -> Loss:
    """Return the loss for checked ``smoothing`` and ``margin``, each a number or "auto".

    Raises
    ------
    InvalidParameterError
        A number is given for a parameter that the loss does not have.
    """
    kind = KINDS[name]
    for parameter, value in (("smoothing", smoothing), ("margin", margin)):
        free: tuple[object, ...] = (value,)
        if kind.smoothing is None:
            free = ("auto",)
        elif (name, parameter) == ("huber", "margin"):
            free = ("auto", 1.0)
        if value not in free:
            accepted = f"{' or '.join(map(repr, free))} with loss={name!r}"
            raise InvalidParameterError.of(parameter, got=value, accepted=accepted)
    if kind.smoothing is None:
        return Loss(name=name, n_classes=n_classes, margin=0.0 if name == "logistic" else 1.0)
    width = kind.smoothing if smoothing == "auto" else float(smoothing)
    automatic = kind.margin * width if kind.likelihood else kind.margin
    distance = automatic if margin == "auto" else float(margin)
    # Checked before anything is spent: the solvers refuse other values.
    smoothing_range("smoothing", width)
    margin_range("margin", distance)
    return Loss(name=name, n_classes=n_classes, smoothing=width, margin=distance)
