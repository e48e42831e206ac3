"""The statement: what one release promises, to whom, under which assumptions.

It holds every number from which the promise can be recomputed, so that
:func:`dpsvm_fast.accounting.verify` needs neither the model nor the data. Nothing in a statement
depends on the data.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from dpsvm_fast._validation import (
    check_adjacency,
    check_delta,
    check_epsilon,
    check_integer,
    check_non_negative,
    check_option,
    check_positive,
)
from dpsvm_fast.accounting._prose import prose
from dpsvm_fast.accounting.events import PrivacyEvent
from dpsvm_fast.exceptions import InvalidParameterError

__all__ = ["Noise", "PrivacyStatement", "Sensitivity"]

FORMAT = "dpsvm_fast.certificate"
VERSION = 1

FLOATING_POINT_CAVEAT = (
    "The noise is drawn and added in floating-point arithmetic. The proof is about real numbers; "
    "the lowest bits of the released numbers may tell more than epsilon and delta say."
)
RUNNING_TIME_CAVEAT = (
    "How long the training took depends on the data and is not covered. Do not let others time it."
)
MAX_ITER_CAVEAT = (
    "max_iter was set: whether training ended with CertificationError depends on the data, and "
    "that event is not covered by epsilon and delta."
)
SEED_REASON = "the noise was drawn from a seed, so whoever knows the seed can subtract it"
CLASSES_REASON = "the list of classes was read from the labels, so a rare class may reveal a row"


@dataclass(frozen=True, kw_only=True)
class Sensitivity:
    """How far apart neighbouring data sets can hand their weights to the noise, and why.

    Parameters
    ----------
    lipschitz : float > 0
        Largest norm of the loss's gradient in the scores.
    C : float > 0
        Factor of the sum of losses.
    data_norm : float > 0
        Public bound of the rows' L2 norm.
    intercept_scaling : float >= 0
        Constant feature; 0 for none.
    row_norm : float > 0
        Bound of a row with its constant feature.
    relation_factor : {1, 2}
        1 for add_remove, 2 for replace_one.
    exact : float > 0
        Distance of exact minimisers: ``relation_factor * C * lipschitz * row_norm``.
    solver_radius : float >= 0
        Certified distance of the solver's weights to the minimiser.
    rounding : float >= 0
        Price of rounding the weights to the noise's grid.
    total : float > 0
        ``exact + 2 * solver_radius + rounding``.
    """

    lipschitz: float
    C: float
    data_norm: float
    intercept_scaling: float
    row_norm: float
    relation_factor: int
    exact: float
    solver_radius: float
    rounding: float
    total: float

    def __post_init__(self) -> None:
        """Check every field by itself; how they hang together is what ``verify`` checks."""
        for name in ("lipschitz", "C", "data_norm", "row_norm", "exact", "total"):
            _set(self, name, check_positive(name, getattr(self, name)))
        for name in ("intercept_scaling", "solver_radius", "rounding"):
            _set(self, name, check_non_negative(name, getattr(self, name)))
        _set(self, "relation_factor", check_integer("relation_factor", self.relation_factor, 1, 2))


@dataclass(frozen=True, kw_only=True)
class Noise:
    """The law of the noise and how it was drawn.

    Parameters
    ----------
    distribution : {"gaussian", "gamma"}
        Independent Gaussians of standard deviation sigma, or density ~ exp(-beta ||b||).
    sampler : {"exact_grid", "floating_point"}
    sigma, beta : float > 0 or None
        Exactly the one that belongs to the distribution.
    grid : float > 0 or None
        Spacing of the released numbers; None where they are not rounded to a grid.
    shape : tuple of int
        (n_classes, n_features, plus 1 with an intercept).
    """

    distribution: str
    sampler: str
    sigma: float | None
    beta: float | None
    grid: float | None
    shape: tuple[int, int]

    def __post_init__(self) -> None:
        """Check every field, and that scale and sampler belong to the distribution."""
        check_option("distribution", self.distribution, ("gaussian", "gamma"))
        check_option("sampler", self.sampler, ("exact_grid", "floating_point"))
        for name in ("sigma", "beta", "grid"):
            if getattr(self, name) is not None:
                _set(self, name, check_positive(name, getattr(self, name)))
        scales = (self.sigma is not None, self.beta is not None)
        if scales != (self.distribution == "gaussian", self.distribution == "gamma"):
            raise InvalidParameterError(
                "noise: expected sigma alone with 'gaussian' and beta alone with 'gamma'"
            )
        if self.sampler == "exact_grid" and (self.distribution != "gaussian" or self.grid is None):
            raise InvalidParameterError("noise: 'exact_grid' needs 'gaussian' and a grid")
        if not isinstance(self.shape, (tuple, list)) or len(self.shape) != 2:
            raise TypeError("shape: expected two integers")
        _set(self, "shape", tuple(check_integer("shape", size, 1) for size in self.shape))

    @property
    def n_weights(self) -> int:
        """Number of released weights."""
        return math.prod(self.shape)


@dataclass(frozen=True, kw_only=True)
class PrivacyStatement:
    """What one release promises. Printing it gives prose; ``to_json`` gives the certificate.

    Parameters
    ----------
    mechanism : str
        Name of the mechanism, for example ``"output_perturbation"``.
    theorem : str
        Citation and proof page.
    loss : str
    adjacency : {"add_remove", "replace_one"}
    sensitivity : Sensitivity
    noise : Noise
    epsilon : float in (0, 1e4]
    delta : float in [0, 1)
    events : tuple of PrivacyEvent
        What a ledger is to be charged.
    assumed_public : tuple of str
        Settings on which the promise rests and which must not come from the data.
    caveats : tuple of str
        What the promise does not cover.
    library_version : str
    random_source : {"operating_system", "seed"}
    unit : str
        What one record is.
    not_private_reasons : tuple of str
        Why the release is not private after all; empty when it is.

    Raises
    ------
    TypeError, InvalidParameterError
        A field of another type or outside its range; a seed without a reason; floating-point
        noise without its caveat.

    Notes
    -----
    Guarantees: none by itself. A statement made by this library holds for the release it came
    with; one from elsewhere claims something that ``verify`` checks for consistency only.
    """

    mechanism: str
    theorem: str
    loss: str
    adjacency: str
    sensitivity: Sensitivity
    noise: Noise
    epsilon: float
    delta: float
    events: tuple[PrivacyEvent, ...]
    assumed_public: tuple[str, ...]
    caveats: tuple[str, ...]
    library_version: str
    random_source: str = "operating_system"
    unit: str = "one row of the training data"
    not_private_reasons: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check every field, and that nothing is hidden that belongs beside the numbers."""
        for name in ("mechanism", "theorem", "loss", "library_version", "unit"):
            _check_text(name, getattr(self, name))
        for name in ("assumed_public", "caveats", "not_private_reasons"):
            _set(self, name, _checked_texts(name, getattr(self, name)))
        check_adjacency(self.adjacency)
        check_option("random_source", self.random_source, ("operating_system", "seed"))
        _set(self, "epsilon", check_epsilon(self.epsilon))
        _set(self, "delta", check_delta(self.delta))
        _check_kind("sensitivity", self.sensitivity, Sensitivity)
        _check_kind("noise", self.noise, Noise)
        _set(self, "events", tuple(self.events))
        for event in self.events:
            _check_kind("events", event, PrivacyEvent)
        if self.random_source == "seed" and self.private:
            raise InvalidParameterError("not_private_reasons: a seeded release must say so")
        if self.noise.sampler == "floating_point" and FLOATING_POINT_CAVEAT not in self.caveats:
            raise InvalidParameterError("caveats: floating-point noise must bring its caveat")

    @property
    def private(self) -> bool:
        """Whether the promise holds."""
        return not self.not_private_reasons

    def to_dict(self) -> dict[str, Any]:
        """Return the certificate as plain values; floats survive JSON exactly."""
        record = {f.name: getattr(self, f.name) for f in fields(self)}
        record["sensitivity"] = dict(vars(self.sensitivity))
        record["noise"] = vars(self.noise) | {
            "shape": list(self.noise.shape),
            "n_weights": self.noise.n_weights,
        }
        record["events"] = [event.to_dict() for event in self.events]
        for name in ("assumed_public", "caveats", "not_private_reasons"):
            record[name] = list(record[name])
        return {"format": FORMAT, "version": VERSION, "private": self.private} | record

    def to_json(self, indent: int | None = 2) -> str:
        """Return the certificate as JSON text."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> PrivacyStatement:
        """Read what ``to_dict`` wrote.

        Raises
        ------
        TypeError, InvalidParameterError
            Another format or version, missing or unknown fields, or a field outside its range.
        """
        if not isinstance(record, Mapping):
            raise TypeError(f"certificate: got {type(record).__name__}, expected a mapping")
        if record.get("format") != FORMAT:
            raise InvalidParameterError.of(
                "format", got=record.get("format"), accepted=repr(FORMAT)
            )
        version = check_integer("version", record.get("version"), 0)
        if version != VERSION:
            raise InvalidParameterError.of("version", got=version, accepted=str(VERSION))
        values = _exactly("certificate", record, {*_names(cls), "format", "version", "private"})
        private = values.pop("private")
        del values["format"], values["version"]
        values["sensitivity"] = Sensitivity(
            **_exactly("sensitivity", values["sensitivity"], _names(Sensitivity))
        )
        noise = _exactly("noise", values["noise"], _names(Noise) | {"n_weights"})
        n_weights = noise.pop("n_weights")
        values["noise"] = Noise(**noise)
        if type(n_weights) is not int or n_weights != values["noise"].n_weights:
            raise InvalidParameterError("n_weights: expected the product of the shape")
        if not isinstance(values["events"], list):
            raise TypeError("events: expected a list")
        values["events"] = tuple(map(PrivacyEvent.from_dict, values["events"]))
        statement = cls(**values)
        if private is not statement.private:
            raise InvalidParameterError("private: expected true exactly when there is no reason")
        return statement

    @classmethod
    def from_json(cls, text: str) -> PrivacyStatement:
        """Read what ``to_json`` wrote; NaN, infinities and repeated fields are refused."""
        try:
            record = json.loads(
                text, parse_constant=_refuse_constant, object_pairs_hook=_without_repeats
            )
        except (json.JSONDecodeError, RecursionError) as error:
            raise InvalidParameterError("certificate: expected JSON") from error
        return cls.from_dict(record)

    def __str__(self) -> str:
        return prose(self)


def _set(record: object, name: str, value: object) -> None:
    """Store a checked value in a frozen record."""
    object.__setattr__(record, name, value)


def _names(kind: Any) -> set[str]:
    """Field names of a dataclass."""
    return {f.name for f in fields(kind)}


def _exactly(what: str, record: object, names: set[str]) -> dict[str, Any]:
    """Return a copy of ``record`` if it is a mapping with exactly these names."""
    if not isinstance(record, Mapping):
        raise TypeError(f"{what}: got {type(record).__name__}, expected a mapping")
    if set(record) != names:
        wrong = sorted(map(str, set(record) ^ names))
        raise InvalidParameterError(f"{what}: missing or unknown fields {wrong}")
    return dict(record)


def _check_kind(name: str, value: object, kind: type) -> None:
    """Refuse a value of another class."""
    if not isinstance(value, kind):
        raise TypeError(f"{name}: got {type(value).__name__}, expected {kind.__name__}")


def _check_text(name: str, value: object) -> None:
    """Refuse anything but a string with something in it."""
    if not isinstance(value, str):
        raise TypeError(f"{name}: got {type(value).__name__}, expected a string")
    if not value.strip():
        raise InvalidParameterError(f"{name}: expected a string that is not empty")


def _checked_texts(name: str, values: object) -> tuple[str, ...]:
    """Return a tuple of strings, from a tuple or list."""
    if not isinstance(values, (tuple, list)):
        raise TypeError(f"{name}: got {type(values).__name__}, expected a tuple of strings")
    for value in values:
        _check_text(name, value)
    return tuple(values)


def _refuse_constant(text: str) -> Any:
    """JSON has no NaN and no infinities, and a certificate has none either."""
    raise InvalidParameterError(f"certificate: got {text}, expected finite numbers")


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build an object, refusing repeated names: readers differ in which of two they believe."""
    record = dict(pairs)
    if len(record) != len(pairs):
        raise InvalidParameterError("certificate: a field is repeated")
    return record
