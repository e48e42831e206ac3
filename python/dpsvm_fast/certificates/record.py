"""Records as strict JSON: checked fields, one value, each key once, within memory and depth."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, ClassVar, NoReturn, TypeVar

from dpsvm_fast.certificates.words import shortened
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.validation import check_integer

# JSON from anywhere: one value, finite numbers, each key once, within memory and depth.


# Python's objects are many times larger than their text: this many take some 250 MB at worst. A
# model of 100,000 named columns with its schema has 600,000.
MAX_VALUES = 1_000_000
# A pipeline inside a search inside a pipeline has about 20 levels.
MAX_LEVELS = 64
# Of a whole number; Python itself refuses thousands.
MAX_DIGITS = 1000


def loads(text: str) -> Any:
    """Return the value of a JSON text.

    Raises
    ------
    json.JSONDecodeError
        It is no JSON.
    ValueError
        It is not accepted; the text ends the sentence "the file ...".
    """
    check_size(text)
    try:
        value = json.loads(
            text,
            parse_float=_finite,
            parse_int=_whole,
            parse_constant=_refuse_constant,
            object_pairs_hook=_without_repeats,
        )
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    _check_levels(value)
    return value


def check_size(text: str) -> None:
    """Refuse a text of too many values; as of ``loads``."""
    if sum(map(text.count, ",[{")) > MAX_VALUES:
        raise ValueError(f"holds more than {MAX_VALUES} values")


def _finite(text: str) -> float:
    """A float; JSON may write ones that are beyond the floats."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("holds a number that is too large")
    return number


def _whole(text: str) -> int:
    """A whole number of not too many digits."""
    if len(text) > MAX_DIGITS:
        raise ValueError("holds a number that is too large")
    return int(text)


def _refuse_constant(text: str) -> NoReturn:
    """JSON has no NaN and no infinities."""
    raise ValueError(f"holds {text}, expected finite numbers")


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object without repeated keys: readers differ in which of two they believe."""
    record = dict(pairs)
    if len(record) != len(pairs):
        twice = next(key for key, n in Counter(key for key, _ in pairs).items() if n > 1)
        raise ValueError(f"repeats the key {twice[:40]!a}")
    return record


def _check_levels(value: object) -> None:
    """Refuse deep nesting, before anything recurses into it."""
    level = [value]
    for _ in range(MAX_LEVELS):
        level = [
            inner
            for one in level
            if isinstance(one, (dict, list))
            for inner in (one.values() if isinstance(one, dict) else one)
            if isinstance(inner, (dict, list))
        ]
        if not level:
            return
    raise ValueError("is nested too deeply")


# Fields of frozen records, checked and kept.


def check_text(name: str, value: object) -> None:
    """Refuse anything but a string with something in it."""
    if not isinstance(value, str):
        raise TypeError(f"{name}: got {type(value).__name__}, expected a string")
    if not value.strip():
        raise InvalidParameterError(f"{name}: expected a string that is not empty")


def store(record: object, name: str, value: object) -> None:
    """Store a checked value in a frozen record."""
    object.__setattr__(record, name, value)


def store_all(record: object, name: str, kind: Any) -> None:
    """Keep a tuple of values of one kind, from a tuple or list."""
    values = getattr(record, name)
    if not isinstance(values, (tuple, list)):
        raise TypeError(f"{name}: got {type(values).__name__}, expected a tuple")
    if not all(isinstance(value, kind) for value in values):
        raise TypeError(f"{name}: an entry is of another type")
    store(record, name, tuple(values))


Kind = TypeVar("Kind", bound="Certificate")


class Certificate:
    """A statement that is written as JSON and read back, with nothing added and nothing lost."""

    FORMAT: ClassVar[str]
    VERSION: ClassVar[int] = 1
    # What follows from the fields; it is written for people, and compared when it is read.
    DERIVED: ClassVar[tuple[str, ...]] = ("private",)

    @property
    def private(self) -> bool:
        """Whether the promise holds."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """Return the certificate as plain values; floats survive JSON exactly."""
        head = {"format": self.FORMAT, "version": self.VERSION}
        derived = {name: getattr(self, name) for name in self.DERIVED}
        return head | derived | self._plain_fields()

    def to_json(self, indent: int | None = 2) -> str:
        """Return the certificate as JSON text."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    @classmethod
    def from_dict(cls: type[Kind], record: Mapping[str, Any]) -> Kind:
        """Read what ``to_dict`` wrote.

        Raises
        ------
        TypeError, InvalidParameterError
            Another format or version, missing or unknown fields, a field outside its range, or
            words that neither follow from the numbers nor are written by this library.
        """
        statement = cls.read(record)
        for problem in statement.word_problems(record):
            raise InvalidParameterError(problem)
        return statement

    @classmethod
    def read(cls: type[Kind], record: Mapping[str, Any]) -> Kind:
        """Read what ``to_dict`` wrote; whether its words are right is not asked."""
        _check_format(record, cls.FORMAT, cls.VERSION)
        names = cls._field_names(record) | {"format", "version", *cls.DERIVED}
        values = exactly("certificate", record, names)
        for name in ("format", "version", *cls.DERIVED):
            del values[name]
        statement = cls._of_fields(values)
        if record["private"] is not statement.private:
            raise InvalidParameterError("private: expected true exactly when there is no reason")
        return statement

    def word_problems(self, record: Mapping[str, Any]) -> list[str]:
        """Say which words of a record do not follow, and are on no list.

        Parameters
        ----------
        record : mapping
            What this statement was read from.
        """
        found = []
        for name in self.DERIVED:
            if record[name] != getattr(self, name):
                found.append(
                    f"{name}: got {shortened(record[name])!r}, expected what follows from "
                    f"the other fields: {getattr(self, name)!r}"
                )
        return [*found, *self._own_word_problems(record)]

    def _own_word_problems(self, record: Mapping[str, Any]) -> list[str]:
        """Words of the other fields."""
        raise NotImplementedError

    @classmethod
    def from_json(cls: type[Kind], text: str) -> Kind:
        """Read what ``to_json`` wrote; NaN, infinities and repeated fields are refused."""
        return cls.from_dict(read_json(text))

    def _plain_fields(self) -> dict[str, Any]:
        """Fields as JSON has them."""
        raise NotImplementedError

    @classmethod
    def _field_names(cls, record: Mapping[str, Any]) -> set[str]:
        """Fields that ``record`` has to have."""
        return names_of(cls)

    @classmethod
    def _of_fields(cls: type[Kind], values: dict[str, Any]) -> Kind:
        """The statement with fields as JSON has them."""
        raise NotImplementedError


def _check_format(record: object, format: str, version: int) -> None:
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
        return loads(text)
    except json.JSONDecodeError:
        reason = "expected JSON text, as to_json() returns it (of a file, what is in it)"
    except ValueError as error:
        reason = f"the text {error}"
    raise InvalidParameterError(f"certificate: {reason}")


def names_of(kind: Any) -> set[str]:
    """Field names of a dataclass."""
    return {f.name for f in fields(kind)}


def exactly(what: str, record: object, names: set[str]) -> dict[str, Any]:
    """Return a copy of ``record`` if it is a mapping with exactly these names."""
    if not isinstance(record, Mapping):
        raise TypeError(f"{what}: got {type(record).__name__}, expected a mapping")
    if set(record) != names:
        wrong = [str(name)[:60] for name in sorted(map(str, set(record) ^ names))[:10]]
        raise InvalidParameterError(f"{what}: missing or unknown fields {wrong}")
    return dict(record)


def reader(kind: Any, name: str) -> Callable[[object], Any]:
    """Return the function that reads a record of exactly the fields of a class."""
    return lambda record: kind(**exactly(name, record, names_of(kind)))
