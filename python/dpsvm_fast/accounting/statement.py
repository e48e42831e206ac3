"""The statement: what one release promises, to whom, under which assumptions.

It holds every number from which the promise can be recomputed, so that
:func:`dpsvm_fast.accounting.verify` needs neither the model nor the data. Nothing in a statement
depends on the data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from dpsvm_fast._validation import (
    check_adjacency,
    check_delta,
    check_epsilon,
    check_option,
)
from dpsvm_fast.accounting._certificate import Certificate, exactly, names_of, reader
from dpsvm_fast.accounting._descent import Descent
from dpsvm_fast.accounting._fields import check_text, store
from dpsvm_fast.accounting._parts import (
    LastIterate,
    Noise,
    ObjectiveNoise,
    ReleasePart,
    Sensitivity,
)
from dpsvm_fast.accounting._prose import prose
from dpsvm_fast.accounting.events import PrivacyEvent
from dpsvm_fast.accounting.words import (
    FLOATING_POINT_CAVEAT,
    UNIT,
    statement_word_problems,
    theorem_of,
)
from dpsvm_fast.exceptions import InvalidParameterError

__all__ = [
    "Descent",
    "LastIterate",
    "Noise",
    "ObjectiveNoise",
    "PrivacyStatement",
    "ReleasePart",
    "Sensitivity",
]

# What not every release has. It is left out where it is not there: certificates without it are
# those of earlier releases.
OPTIONAL = ("sensitivity", "noise", "objective", "descent", "parts")


@dataclass(frozen=True, kw_only=True)
class PrivacyStatement(Certificate):
    """What one release promises. Printing it gives prose; ``to_json`` gives the certificate.

    Parameters
    ----------
    mechanism : str
        Name of the mechanism, for example ``"output_perturbation"``.
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

    FORMAT: ClassVar[str] = "dpsvm_fast.certificate"
    DERIVED: ClassVar[tuple[str, ...]] = ("private", "theorem", "unit")
    # What one record is.
    unit: ClassVar[str] = UNIT

    mechanism: str
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
    not_private_reasons: tuple[str, ...] = ()
    objective: ObjectiveNoise | None = None
    descent: Descent | None = None
    parts: tuple[ReleasePart, ...] = ()

    def __post_init__(self) -> None:
        """Check every field, and that nothing is hidden that belongs beside the numbers."""
        for name in ("mechanism", "loss", "library_version"):
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
    def theorem(self) -> str:
        """Citation and proof page of what the numbers describe."""
        return theorem_of(self)

    @property
    def private(self) -> bool:
        """Whether the promise holds."""
        return not self.not_private_reasons

    def _plain_fields(self) -> dict[str, Any]:
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
        return record

    @classmethod
    def _field_names(cls, record: Mapping[str, Any]) -> set[str]:
        return names_of(cls) - {name for name in OPTIONAL if name not in record}

    @classmethod
    def _of_fields(cls, values: dict[str, Any]) -> PrivacyStatement:
        for name, read in _READERS.items():
            if name in values:
                values[name] = read(values[name])
        if not isinstance(values["events"], list):
            raise TypeError("events: expected a list")
        values["events"] = tuple(map(PrivacyEvent.from_dict, values["events"]))
        return cls(**values)

    def _own_word_problems(self, record: Mapping[str, Any]) -> list[str]:
        return statement_word_problems(self)

    def __str__(self) -> str:
        return prose(self)


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
    values = exactly("noise", record, names_of(Noise) | {"n_weights"})
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
        values = exactly("part", record, names_of(ReleasePart) | {"n_numbers"})
        n_numbers = values.pop("n_numbers")
        if values["last_iterate"] is not None:
            values["last_iterate"] = reader(LastIterate, "last_iterate")(values["last_iterate"])
        part = ReleasePart(**values)
        _check_product("n_numbers", n_numbers, part.n_numbers)
        parts.append(part)
    return tuple(parts)


_READERS: dict[str, Callable[[object], Any]] = {
    "sensitivity": reader(Sensitivity, "sensitivity"),
    "noise": _read_noise,
    "objective": reader(ObjectiveNoise, "objective"),
    "descent": reader(Descent, "descent"),
    "parts": _read_parts,
}
