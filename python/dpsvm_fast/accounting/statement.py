"""The statement: what one release promises, to whom, under which assumptions.

It holds every number from which the promise can be recomputed, so that
:func:`dpsvm_fast.accounting.verify` needs neither the model nor the data. Nothing in a statement
depends on the data.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
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
from dpsvm_fast.accounting._parts import (
    LastIterate,
    Noise,
    ObjectiveNoise,
    ReleasePart,
    Sensitivity,
    check_text,
    store,
)
from dpsvm_fast.accounting._prose import prose
from dpsvm_fast.accounting.events import PrivacyEvent
from dpsvm_fast.exceptions import InvalidParameterError

__all__ = [
    "Descent",
    "LastIterate",
    "Noise",
    "ObjectiveNoise",
    "PrivacyStatement",
    "ReleasePart",
    "Sensitivity",
    "check_format",
    "exactly",
    "read_json",
]

FORMAT = "dpsvm_fast.certificate"
VERSION = 1
# What not every release has. It is left out where it is not there: certificates without it are
# those of earlier releases.
OPTIONAL = ("sensitivity", "noise", "objective", "descent", "parts")

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
LEARNED_REASON = (
    "learned from the rows without privacy before them; what it learned may repeat them"
)
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
    sensitivity : Sensitivity or None
    noise : Noise or None
        About noise added to weights; both None where all noise is that of ``parts``.
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
    parts : tuple of ReleasePart
        The noisy sums over the records that the release is made of, in their order. ``events``
        begins with one event for each; those of ``objective`` and ``noise`` follow. ``epsilon``
        and ``delta`` are of everything together.

    Raises
    ------
    TypeError, InvalidParameterError
        A field of another type or outside its range; a seed without a reason; floating-point
        noise without its caveat; minimisers said to coincide without noise in the objective;
        no noise at all; delta = 0 with Gaussian noise.

    Notes
    -----
    Guarantees: none by itself. A statement made by this library holds for the release it came
    with; one from elsewhere claims something that ``verify`` checks for consistency only.
    """

    mechanism: str
    theorem: str
    loss: str
    adjacency: str
    sensitivity: Sensitivity | None = None
    noise: Noise | None = None
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
    parts: tuple[ReleasePart, ...] = ()

    def __post_init__(self) -> None:
        """Check every field, and that nothing is hidden that belongs beside the numbers."""
        for name in ("mechanism", "theorem", "loss", "library_version", "unit"):
            check_text(name, getattr(self, name))
        for name in ("assumed_public", "caveats", "not_private_reasons"):
            store(self, name, _checked_texts(name, getattr(self, name)))
        check_adjacency(self.adjacency)
        check_option("random_source", self.random_source, ("operating_system", "seed"))
        store(self, "epsilon", check_epsilon(self.epsilon))
        store(self, "delta", check_delta(self.delta))
        store(self, "parts", _checked_kinds("parts", self.parts, ReleasePart))
        store(self, "events", _checked_kinds("events", self.events, PrivacyEvent))
        self._check_weight_noise()
        if self.random_source == "seed" and self.private:
            raise InvalidParameterError("not_private_reasons: a seeded release must say so")
        noises = [part for part in (self.noise, self.objective, *self.parts) if part is not None]
        if not noises:
            raise InvalidParameterError("parts: expected at least one without noise")
        floating_point = any(part.sampler == "floating_point" for part in noises)
        if floating_point and FLOATING_POINT_CAVEAT not in self.caveats:
            raise InvalidParameterError("caveats: floating-point noise must bring its caveat")
        if self.delta == 0.0 and any(part.distribution == "gaussian" for part in noises):
            raise InvalidParameterError("delta: got 0.0, expected a number > 0 with Gaussian noise")

    def _check_weight_noise(self) -> None:
        """Check what is about noise added to weights: all of it is there, or nothing."""
        if self.sensitivity is not None or self.noise is not None:
            _check_kind("sensitivity", self.sensitivity, Sensitivity)
            _check_kind("noise", self.noise, Noise)
        if self.objective is not None:
            _check_kind("objective", self.objective, ObjectiveNoise)
        elif self.sensitivity is not None and self.sensitivity.exact == 0.0:
            raise InvalidParameterError("exact: got 0.0, expected a number > 0 without objective")
        if self.descent is not None:
            _check_kind("descent", self.descent, Descent)
        if self.noise is None and (self.objective is not None or self.descent is not None):
            raise InvalidParameterError("noise: expected one beside objective or descent")

    @property
    def private(self) -> bool:
        """Whether the promise holds."""
        return not self.not_private_reasons

    def to_dict(self) -> dict[str, Any]:
        """Return the certificate as plain values; floats survive JSON exactly."""
        record = {f.name: getattr(self, f.name) for f in fields(self)}
        for name in OPTIONAL:
            if not record[name]:
                del record[name]
        if self.sensitivity is not None:
            record["sensitivity"] = dict(vars(self.sensitivity))
        if self.noise is not None:
            record["noise"] = vars(self.noise) | {
                "shape": list(self.noise.shape),
                "n_weights": self.noise.n_weights,
            }
        if self.descent is not None:
            record["descent"] = dict(vars(self.descent))
        if self.objective is not None:
            record["objective"] = vars(self.objective) | {"shape": list(self.objective.shape)}
        if self.parts:
            record["parts"] = [_part_to_dict(part) for part in self.parts]
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
        check_format(record, FORMAT, VERSION)
        names = {*_names(cls), "format", "version", "private"} - set(OPTIONAL)
        names |= {name for name in OPTIONAL if name in record}
        values = exactly("certificate", record, names)
        private = values.pop("private")
        del values["format"], values["version"]
        for name, read in _READERS.items():
            if name in values:
                values[name] = read(values[name])
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
        return cls.from_dict(read_json(text))

    def __str__(self) -> str:
        return prose(self)


def check_format(record: object, format: str, version: int) -> None:
    """Refuse what is no certificate of this format and version.

    Raises
    ------
    TypeError, InvalidParameterError
        The text says what can be done about it.
    """
    if not isinstance(record, Mapping):
        raise TypeError(f"certificate: got {type(record).__name__}, expected a mapping")
    if record.get("format") != format:
        raise InvalidParameterError.of("format", got=record.get("format"), accepted=repr(format))
    found = check_integer("version", record.get("version"), 0)
    if found > version:
        raise InvalidParameterError.of(
            "version", got=found, accepted=f"{version}; a newer release of dpsvm_fast reads it"
        )
    if found != version:
        raise InvalidParameterError.of("version", got=found, accepted=str(version))


def read_json(text: str) -> Any:
    """Parse a certificate; NaN, infinities and repeated fields are refused.

    Raises
    ------
    InvalidParameterError
        Anything that is not such JSON.
    """
    try:
        return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_without_repeats)
    except (json.JSONDecodeError, RecursionError) as error:
        raise InvalidParameterError(
            "certificate: expected JSON text, as to_json() returns it (of a file, what is in it)"
        ) from error


def _names(kind: Any) -> set[str]:
    """Field names of a dataclass."""
    return {f.name for f in fields(kind)}


def exactly(what: str, record: object, names: set[str]) -> dict[str, Any]:
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


def _checked_texts(name: str, values: object) -> tuple[str, ...]:
    """Return a tuple of strings, from a tuple or list."""
    if not isinstance(values, (tuple, list)):
        raise TypeError(f"{name}: got {type(values).__name__}, expected a tuple of strings")
    for value in values:
        check_text(name, value)
    return tuple(values)


def _checked_kinds(name: str, values: Any, kind: type) -> tuple[Any, ...]:
    """Return a tuple of records of one class, from a tuple or list."""
    if not isinstance(values, (tuple, list)):
        raise TypeError(f"{name}: got {type(values).__name__}, expected a tuple")
    for value in values:
        _check_kind(name, value, kind)
    return tuple(values)


def _part_to_dict(part: ReleasePart) -> dict[str, Any]:
    """Return a part as plain values."""
    record = vars(part) | {"shape": list(part.shape), "n_numbers": part.n_numbers}
    if part.last_iterate is not None:
        record["last_iterate"] = dict(vars(part.last_iterate))
    return record


def _read_noise(record: object) -> Noise:
    """Read the noise, with its number of weights, which is in it for people."""
    values = exactly("noise", record, _names(Noise) | {"n_weights"})
    n_weights = values.pop("n_weights")
    noise = Noise(**values)
    _check_product("n_weights", n_weights, noise.n_weights)
    return noise


def _check_product(name: str, stated: object, product: int) -> None:
    """Refuse a size that is not that of the shape beside it, where it stands for people."""
    if type(stated) is not int or stated != product:
        raise InvalidParameterError(f"{name}: expected the product of the shape")


def _read_parts(records: object) -> tuple[ReleasePart, ...]:
    """Read the parts; an empty list is left out, not written."""
    if not isinstance(records, list) or not records:
        raise TypeError("parts: expected a list with something in it")
    parts = []
    for record in records:
        values = exactly("part", record, _names(ReleasePart) | {"n_numbers"})
        n_numbers = values.pop("n_numbers")
        if values["last_iterate"] is not None:
            values["last_iterate"] = _reader(LastIterate, "last_iterate")(values["last_iterate"])
        part = ReleasePart(**values)
        _check_product("n_numbers", n_numbers, part.n_numbers)
        parts.append(part)
    return tuple(parts)


def _reader(kind: Any, name: str) -> Callable[[object], Any]:
    """Return the function that reads a record of exactly the fields of a class."""
    return lambda record: kind(**exactly(name, record, _names(kind)))


_READERS: dict[str, Callable[[object], Any]] = {
    "sensitivity": _reader(Sensitivity, "sensitivity"),
    "noise": _read_noise,
    "objective": _reader(ObjectiveNoise, "objective"),
    "descent": _reader(Descent, "descent"),
    "parts": _read_parts,
}


def _refuse_constant(text: str) -> Any:
    """JSON has no NaN and no infinities, and a certificate has none either."""
    raise InvalidParameterError(f"certificate: got {text}, expected finite numbers")


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build an object, refusing repeated names: readers differ in which of two they believe."""
    record = dict(pairs)
    if len(record) != len(pairs):
        raise InvalidParameterError("certificate: a field is repeated")
    return record
