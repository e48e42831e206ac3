"""Kinds of fitted attributes: how each is written, and what a value from a file has to be."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpsvm_fast.estimators._bounds import checked_bounds
from dpsvm_fast.exceptions import InvalidParameterError, ModelFormatError
from dpsvm_fast.io._model_values import (
    MOST_FEATURES,
    Shape,
    exact_record,
    labels_from,
    labels_to,
    names_from,
    numbers_from,
    numbers_to,
    real_from,
    text_from,
    whole_from,
)
from dpsvm_fast.losses import WEIGHT_LOSSES, Loss
from dpsvm_fast.mechanisms.fourier import (
    KERNELS,
    LARGEST_GAMMA,
    MOST_COMPONENTS,
    SMALLEST_GAMMA,
    FourierFeatures,
)

__all__ = [
    "BOUNDS",
    "FEATURE_NAMES",
    "FLAG",
    "FOURIER",
    "LABELS",
    "LOSS",
    "N_FEATURES",
    "PARAMETERS_OF_NOISE",
    "Attribute",
    "Facts",
    "numbers",
    "real",
    "whole",
    "word",
]

STRUCTURES = ("independent", "orthogonal", "fast")
CENTRES = ("none", "sphere", "ball")
MOST_CLASSES = 2**31
# Bounds that are the same for all features are saved as one number; an array of more than this
# would be much larger than the file that asks for it.
MOST_REPEATED = 1 << 22

# Attributes of the same object that have been read before.
Facts = Mapping[str, Any]


@dataclass(frozen=True)
class Attribute:
    """How one fitted attribute is saved.

    Parameters
    ----------
    write : callable
        From a value to JSON.
    read : callable
        From where it is, JSON and the attributes before it to the value.
    optional : bool
        Whether it may be missing.
    none : bool
        Whether it may be None.
    """

    write: Callable[[Any], Any]
    read: Callable[[str, Any, Facts], Any]
    optional: bool = False
    none: bool = False

    def written(self, value: Any) -> Any:
        """JSON."""
        return None if value is None and self.none else self.write(value)

    def read_from(self, where: str, record: Any, facts: Facts) -> Any:
        """The value."""
        return None if record is None and self.none else self.read(where, record, facts)


def numbers(
    shape: Callable[[Facts], Shape], *, above: float = -math.inf, none: bool = False
) -> Attribute:
    """An array of finite floats, all of them more than ``above``."""

    def read(where: str, record: Any, facts: Facts) -> Any:
        array = numbers_from(where, record, shape(facts))
        if not (array > above).all():
            raise ModelFormatError(f"{where}: expected numbers > {above:g}")
        return array

    return Attribute(numbers_to, read, none=none)


def real(
    *, low: float = -math.inf, above: float = -math.inf, none: bool = False, optional: bool = False
) -> Attribute:
    """A finite float."""
    return Attribute(
        float,
        lambda where, record, _: real_from(where, record, low=low, above=above),
        none=none,
        optional=optional,
    )


def whole(low: int, high: int, *, none: bool = False) -> Attribute:
    """A whole number."""
    return Attribute(int, lambda where, record, _: whole_from(where, record, low, high), none=none)


def word(*options: str) -> Attribute:
    """One of a few words."""
    return Attribute(str, lambda where, record, _: text_from(where, record, options))


def _flag(where: str, record: Any, facts: Facts) -> bool:
    """True or False."""
    if not isinstance(record, bool):
        raise ModelFormatError(f"{where}: expected true or false")
    return record


def _names(where: str, record: Any, facts: Facts) -> Any:
    """One name for each feature."""
    return names_from(where, record, facts["n_features_in_"])


def _bounds_to(bounds: Any) -> list[Any]:
    """Lower and upper ones, each one number where that is enough."""
    return [
        float(side.flat[0])
        if 0 < side.size <= MOST_REPEATED and (side == side.flat[0]).all()
        else numbers_to(side)
        for side in bounds
    ]


def _bounds_from(where: str, record: Any, facts: Facts) -> Any:
    """Two arrays of shape (n_features,), each low below high."""
    if not isinstance(record, list) or len(record) != 2:
        raise ModelFormatError(f"{where}: expected two sides")
    d, sides = facts["n_features_in_"], []
    for side in record:
        if isinstance(side, dict):
            sides.append(numbers_from(where, side, (d,)))
            continue
        number = real_from(where, side)
        if d > MOST_REPEATED:
            raise ModelFormatError(f"{where}: expected an array for so many features")
        sides.append(np.full(d, number))
    try:
        low, high = checked_bounds(tuple(sides))
    except InvalidParameterError as error:
        raise ModelFormatError(f"{where}: {error}") from None
    return low, high


def _loss_from(where: str, record: Any, facts: Facts) -> Loss:
    """The loss of the fit, which says whether scores are probabilities."""
    record = exact_record(where, record, {*LOSS_FIELDS})
    per_class = _flag(f"{where}.per_class", record["per_class"], facts)
    return Loss(
        name=text_from(f"{where}.name", record["name"], WEIGHT_LOSSES),
        n_classes=whole_from(f"{where}.n_classes", record["n_classes"], 2, MOST_CLASSES),
        smoothing=real_from(f"{where}.smoothing", record["smoothing"], above=0.0),
        margin=real_from(f"{where}.margin", record["margin"], low=0.0),
        per_class=per_class,
    )


def _loss_to(loss: Loss) -> dict[str, Any]:
    """Its fields."""
    record = {name: getattr(loss, name) for name in LOSS_FIELDS}
    return record | {name: float(record[name]) for name in ("smoothing", "margin")}


def _fourier_from(where: str, record: Any, facts: Facts) -> FourierFeatures:
    """Everything that the random features are drawn from."""
    record = exact_record(where, record, {*FOURIER_FIELDS})

    def at(name: str) -> tuple[str, Any]:
        return f"{where}.{name}", record[name]

    gamma = real_from(*at("gamma"), low=SMALLEST_GAMMA)
    if gamma > LARGEST_GAMMA:
        raise ModelFormatError(f"{where}.gamma: expected at most {LARGEST_GAMMA:g}")
    features = FourierFeatures(
        n_features=whole_from(*at("n_features"), 1, MOST_FEATURES),
        n_components=whole_from(*at("n_components"), 1, MOST_COMPONENTS),
        gamma=gamma,
        kernel=text_from(*at("kernel"), KERNELS),
        structure=text_from(*at("structure"), STRUCTURES),
        centre=text_from(*at("centre"), CENTRES),
        seed=whole_from(*at("seed"), 0, 2**64 - 1),
    )
    if features.kernel != "rbf" and features.structure != "independent":
        raise ModelFormatError(f"{where}: only frequencies of 'rbf' depend on each other")
    if features.n_features != facts["n_features_in_"]:
        raise ModelFormatError(f"{where}: expected as many features as the model has")
    return features


def _noises_from(where: str, record: Any, facts: Facts) -> dict[str, float]:
    """Gaussian parameters by the name of what was released."""
    if not isinstance(record, dict) or not set(record) <= set(RELEASES):
        raise ModelFormatError(f"{where}: expected numbers for some of {RELEASES}")
    return {name: real_from(f"{where}.{name}", mu, above=0.0) for name, mu in record.items()}


LOSS_FIELDS = ("name", "n_classes", "smoothing", "margin", "per_class")
FOURIER_FIELDS = (
    *("n_features", "n_components", "gamma", "kernel", "structure", "centre", "seed"),
)
RELEASES = ("centre", "count", "whitening", "training")

N_FEATURES = whole(1, MOST_FEATURES)
FEATURE_NAMES = Attribute(lambda names: [str(name) for name in names], _names, optional=True)
LABELS = Attribute(labels_to, lambda where, record, _: labels_from(where, record))
FLAG = Attribute(bool, _flag)
BOUNDS = Attribute(_bounds_to, _bounds_from, none=True)
LOSS = Attribute(_loss_to, _loss_from)
FOURIER = Attribute(
    lambda features: {name: getattr(features, name) for name in FOURIER_FIELDS},
    _fourier_from,
    none=True,
)
PARAMETERS_OF_NOISE = Attribute(
    lambda noises: {name: float(mu) for name, mu in noises.items()}, _noises_from
)
