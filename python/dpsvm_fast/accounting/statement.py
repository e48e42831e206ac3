"""The statement: what one release promises, to whom, under which assumptions.

It holds every number from which the promise can be recomputed, so that
:func:`dpsvm_fast.accounting.verify` needs neither the model nor the data. Nothing in a statement
depends on the data.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from dpsvm_fast._validation import (
    check_adjacency,
    check_delta,
    check_epsilon,
    check_integer,
    check_option,
)
from dpsvm_fast.accounting._descent import Descent
from dpsvm_fast.accounting._parts import Noise, ObjectiveNoise, Sensitivity, store
from dpsvm_fast.accounting._prose import prose
from dpsvm_fast.accounting.events import PrivacyEvent
from dpsvm_fast.exceptions import InvalidParameterError

__all__ = ["Descent", "Noise", "ObjectiveNoise", "PrivacyStatement", "Sensitivity"]

FORMAT = "dpsvm_fast.certificate"
VERSION = 1
# Parts that not every release has.
OPTIONAL = ("objective", "descent")

FLOATING_POINT_CAVEAT = (
    "The noise is drawn and added in floating-point arithmetic. The proof is about real numbers; "
    "the lowest bits of the released numbers may tell more than epsilon and delta say."
)
RUNNING_TIME_CAVEAT = (
    "How long the training took depends on the data and is not covered. Do not let others time it."
)
PRECISION_CAVEAT = (
    "Training can end with CertificationError where double precision cannot certify the minimum. "
    "Whether it did depends on the data and is not covered by epsilon and delta. Extreme settings "
    "make it likely, such as a tiny smoothing with a huge C."
)
MAX_ITER_CAVEAT = (
    "max_iter was set: whether training ended with CertificationError depends on the data, and "
    "that event is not covered by epsilon and delta."
)
SEED_REASON = "the noise was drawn from a seed, so whoever knows the seed can subtract it"
CLASSES_REASON = "the list of classes was read from the labels, so a rare class may reveal a row"


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
    objective : ObjectiveNoise or None
        The noise inside the objective, where there is one; then ``sensitivity`` and ``noise`` are
        about the noise added to the weights, ``epsilon`` and ``delta`` are of both together, and
        ``events`` has one event for each.
    descent : Descent or None
        The run of projected SGD whose iterate was released; then ``sensitivity.exact`` is about
        that iterate, and ``sensitivity.solver_radius`` bounds its rounding errors.

    Raises
    ------
    TypeError, InvalidParameterError
        A field of another type or outside its range; a seed without a reason; floating-point
        noise without its caveat; minimisers said to coincide without noise in the objective.

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
    objective: ObjectiveNoise | None = None
    descent: Descent | None = None

    def __post_init__(self) -> None:
        """Check every field, and that nothing is hidden that belongs beside the numbers."""
        for name in ("mechanism", "theorem", "loss", "library_version", "unit"):
            _check_text(name, getattr(self, name))
        for name in ("assumed_public", "caveats", "not_private_reasons"):
            store(self, name, _checked_texts(name, getattr(self, name)))
        check_adjacency(self.adjacency)
        check_option("random_source", self.random_source, ("operating_system", "seed"))
        store(self, "epsilon", check_epsilon(self.epsilon))
        store(self, "delta", check_delta(self.delta))
        _check_kind("sensitivity", self.sensitivity, Sensitivity)
        _check_kind("noise", self.noise, Noise)
        if self.objective is not None:
            _check_kind("objective", self.objective, ObjectiveNoise)
        elif self.sensitivity.exact == 0.0:
            raise InvalidParameterError("exact: got 0.0, expected a number > 0 without objective")
        if self.descent is not None:
            _check_kind("descent", self.descent, Descent)
        store(self, "events", tuple(self.events))
        for event in self.events:
            _check_kind("events", event, PrivacyEvent)
        if self.random_source == "seed" and self.private:
            raise InvalidParameterError("not_private_reasons: a seeded release must say so")
        floating_point = "floating_point" in {
            part.sampler for part in (self.noise, self.objective) if part is not None
        }
        if floating_point and FLOATING_POINT_CAVEAT not in self.caveats:
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
        # Left out where there is none: certificates without it are those of earlier releases.
        del record["objective"], record["descent"]
        if self.descent is not None:
            record["descent"] = dict(vars(self.descent))
        if self.objective is not None:
            record["objective"] = vars(self.objective) | {"shape": list(self.objective.shape)}
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
        names = {*_names(cls), "format", "version", "private"} - set(OPTIONAL)
        names |= {name for name in OPTIONAL if name in record}
        values = _exactly("certificate", record, names)
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
        if "objective" in values:
            objective = _exactly("objective", values["objective"], _names(ObjectiveNoise))
            values["objective"] = ObjectiveNoise(**objective)
        if "descent" in values:
            values["descent"] = Descent(**_exactly("descent", values["descent"], _names(Descent)))
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
