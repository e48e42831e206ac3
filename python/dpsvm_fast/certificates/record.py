"""Records: frozen, typed, checked, and written as strict JSON with a schema made from their types.

A record is a frozen dataclass whose annotations say what each field may hold::

    @dataclass(frozen=True)
    class Noise(Record):
        sigma: Annotated[float, Range(0.0, open_low=True), Unit("weight")]
        sampler: Annotated[str, Options("exact_grid", "floating_point")]
        grid: Positive | None
        shape: tuple[Count, ...]

From them follow the checks of the constructor, ``to_dict`` and ``from_dict``, and ``json_schema``.
``_rules`` enforces relations between fields. Types of fields: numbers, truth values,
texts, other records, tuples of all of these, and None for what may be absent.
"""

from __future__ import annotations

import copy
import inspect
import json
import math
import re
import sys
import types
import typing
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache, partial
from typing import Annotated, Any, ClassVar, NoReturn, TypeVar

from dpsvm_fast.exceptions import InvalidParameterError, InvalidTypeError
from dpsvm_fast.files import OF_CHARACTER, ROOM
from dpsvm_fast.validation import (
    ADJACENCIES,
    MAX_EPSILON,
    check_bool,
    check_delta,
    check_integer,
    check_option,
    check_real,
    check_type,
)

# JSON from anywhere: one value, finite numbers, each key once, within memory and depth.


# Bytes of memory for each value, at worst, beside those for its text.
OF_VALUE = 220
# A pipeline inside a search inside a pipeline has about 20 levels.
MAX_LEVELS = 64
# Most digits of a whole number; Python itself refuses thousands.
MAX_DIGITS = 1000
# Finite number.
LARGEST = sys.float_info.max


def loads(text: str, room: int = ROOM) -> Any:
    """Return the value of a JSON text.

    Parameters
    ----------
    text : str
    room : int, default=2**28
        Most bytes of memory that this may take.

    Raises
    ------
    json.JSONDecodeError
        Not JSON.
    ValueError
        The text is not accepted; the message ends the sentence "the file ...".
    """
    check_size(text, room)
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


def check_size(text: str, room: int = ROOM) -> None:
    """Refuse a text that may take more memory than ``room``, as ``loads`` does."""
    needed = OF_CHARACTER * len(text) + OF_VALUE * sum(map(text.count, ",[{"))
    if needed > room:
        raise ValueError(f"may take {needed >> 20} MiB of memory, more than {room >> 20} MiB")


def _finite(text: str) -> float:
    """Return a finite float; JSON may contain numbers beyond the range of floats."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("has a number that is too large")
    return number


def _whole(text: str) -> int:
    """Return a whole number of not too many digits."""
    if len(text) > MAX_DIGITS:
        raise ValueError("has a number that is too large")
    return int(text)


def _refuse_constant(text: str) -> NoReturn:
    """Refuse NaN and infinities, which JSON does not have."""
    raise ValueError(f"has {text}, expected finite numbers")


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build an object without repeated keys, which readers resolve differently."""
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


def read_json(text: str) -> Any:
    """Parse a certificate or a model; refuse NaN, infinities and repeated fields.

    Raises
    ------
    InvalidParameterError
        Anything that is not such JSON.
    """
    try:
        return loads(text)
    except json.JSONDecodeError:
        reason = "expected the JSON text that to_json() returns, not a file name"
    except ValueError as error:
        reason = f"the text {error}"
    raise InvalidParameterError(f"certificate: {reason}")


def exactly(what: str, record: object, names: set[str]) -> dict[str, Any]:
    """Return a copy of ``record`` if it is a mapping with exactly these names."""
    found: Mapping[str, Any] = check_type(what, record, Mapping, "a mapping")
    if set(found) != names:
        wrong = [str(name)[:60] for name in sorted(map(str, set(found) ^ names))[:10]]
        raise InvalidParameterError(f"{what}: missing or unknown fields {wrong}")
    return dict(found)


# Constraints in annotations, next to the type.


@dataclass(frozen=True)
class Range:
    """Range of a number; without ``high`` up to any finite one."""

    low: float
    high: float = math.inf
    open_low: bool = False
    open_high: bool = False


@dataclass(frozen=True)
class Unit:
    """Unit of a number, as shown to people."""

    name: str


class Options:
    """Accepted values of a text."""

    def __init__(self, *options: str) -> None:
        self.options = options


@dataclass(frozen=True)
class Pattern:
    """Regular expression that a text must match."""

    pattern: str


@dataclass(frozen=True)
class Excluding:
    """Kinds of a family that may not be there."""

    tags: tuple[str, ...]


class OmitIfDefault:
    """Marks a field that is left out if it has its default."""


Item = TypeVar("Item")
# Any number of values, omitted if there are none.
Several = Annotated[tuple[Item, ...], OmitIfDefault()]

COUNT, PROBABILITY = Unit("count"), Unit("probability")

Positive = Annotated[float, Range(0.0, open_low=True)]
NonNegative = Annotated[float, Range(0.0)]
# A positive share.
Share = Annotated[float, Range(0.0, 1.0, open_low=True)]
Probability = Annotated[float, Range(0.0, 1.0, open_high=True), PROBABILITY]
OpenProbability = Annotated[float, Range(0.0, 1.0, open_low=True, open_high=True), PROBABILITY]
PRIVACY_LOSS = Unit("privacy loss (natural logarithm of a ratio of probabilities)")
Epsilon = Annotated[float, Range(0.0, MAX_EPSILON, open_low=True), PRIVACY_LOSS]
Delta = Annotated[float, Range(0.0, 1.0, open_high=True), PROBABILITY, check_delta]
Count = Annotated[int, Range(1), COUNT]
# A non-empty text.
Text = Annotated[str, Pattern(r"\S")]
Adjacency = Annotated[str, Options(*ADJACENCIES)]

# Kinds of fields: how values of an annotation are checked, read from JSON, and described.


def _fact(facts: tuple[Any, ...], kind: type[Any], default: Any) -> Any:
    """Return what an annotation says of one kind besides the type."""
    return next((fact for fact in facts if isinstance(fact, kind)), default)


class _Kind:
    """Values of one annotation."""

    # True: leave out an absent value instead of writing null.
    left_out = False
    # True: the value may be None.
    optional = False
    # Returns the value to store under a name; refuses a wrong type or one outside its range.
    check: Callable[[str, Any], Any]

    def read(self, name: str, value: Any) -> Any:
        """Return the value to check, from JSON."""
        return value

    def schema(self, known: dict[str, Any]) -> dict[str, Any]:
        """Return the schema; ``known`` collects definitions that it refers to."""
        found = self.schema_of_values(known)
        if self.left_out or not self.optional:
            return found
        if "$ref" in found or "anyOf" in found or "enum" in found:
            return {"anyOf": [found, {"type": "null"}]}
        return found | {"type": [found["type"], "null"]}

    def schema_of_values(self, known: dict[str, Any]) -> dict[str, Any]:
        """Return the schema of values other than None."""
        raise NotImplementedError


class _Scalar(_Kind):
    """A number, a truth value or a text: how it is checked, and its schema."""

    def __init__(self, check: Callable[[str, Any], Any], schema: dict[str, Any]) -> None:
        self.check, self._schema = check, schema

    def schema_of_values(self, known: dict[str, Any]) -> dict[str, Any]:
        return copy.deepcopy(self._schema)


def _number(kind: type, facts: tuple[Any, ...]) -> _Scalar:
    """Return the kind of a float or a whole number."""
    whole, r = kind is int, _fact(facts, Range, Range(-LARGEST))
    schema: dict[str, Any] = {"type": "integer" if whole else "number"}
    schema["exclusiveMinimum" if r.open_low else "minimum"] = r.low
    if not (whole and math.isinf(r.high)):
        schema["exclusiveMaximum" if r.open_high else "maximum"] = min(r.high, LARGEST)
    schema["x-unit"] = _fact(facts, Unit, Unit("none")).name
    if whole:
        high = None if math.isinf(r.high) else int(r.high)
        return _Scalar(partial(check_integer, low=int(r.low), high=high), schema)
    own = _fact(facts, types.FunctionType, partial(check_real, **vars(r)))
    return _Scalar(own, schema)


def _text(facts: tuple[Any, ...]) -> _Scalar:
    """Return the kind of a text: any, one of a few, or one that matches."""
    options = _fact(facts, Options, Options()).options
    if options:
        accepted = {"type": "string", "enum": list(options)}
        return _Scalar(partial(check_option, options=options), accepted)
    pattern = _fact(facts, Pattern, Pattern("")).pattern

    def check(name: str, value: object) -> Any:
        if not re.search(pattern, check_type(name, value, str, "a string")):
            raise InvalidParameterError(f"{name}: expected a string that matches {pattern}")
        return value

    return _Scalar(check, {"type": "string"} | ({"pattern": pattern} if pattern else {}))


class _Tuple(_Kind):
    """So many values of one kind, or one of each of several."""

    def __init__(self, kinds: tuple[Any, ...], facts: tuple[Any, ...]) -> None:
        self.kind = kind_of(kinds[0])
        own = Range(0) if kinds[-1] is Ellipsis else Range(len(kinds), len(kinds))
        self.length = _fact(facts, Range, own)

    def check(self, name: str, value: object) -> Any:
        values: Any = check_type(name, value, (tuple, list), "a tuple")
        low, high, n = self.length.low, self.length.high, len(values)
        if not low <= n <= high:
            accepted = f"{low} or more" if math.isinf(high) else f"{low} to {high}"
            raise InvalidParameterError(f"{name}: got {n} entries, expected {accepted} of them")
        return tuple(map(partial(self.kind.check, name), values))

    def read(self, name: str, value: Any) -> Any:
        values: list[Any] = check_type(name, value, list, "a list")
        return tuple(self.kind.read(name, item) for item in values)

    def schema_of_values(self, known: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {"type": "array", "items": self.kind.schema(known)}
        if self.length.low:
            found["minItems"] = self.length.low
        if not math.isinf(self.length.high):
            found["maxItems"] = self.length.high
        return found


class _Nested(_Kind):
    """Another record, or one of a family without some of its kinds."""

    def __init__(self, kind: type[Record], facts: tuple[Any, ...]) -> None:
        self.kind = kind
        self.without = _fact(facts, Excluding, Excluding(())).tags

    def check(self, name: str, value: object) -> Any:
        if not isinstance(value, self.kind) or value.tag in self.without:
            kinds = ", ".join(map(repr, self.without))
            less = f" other than {kinds}" if kinds else ""
            raise InvalidTypeError(
                f"{name}: got {type(value).__name__}, expected {self.kind.__name__}{less}"
            )
        return value

    def read(self, name: str, value: Any) -> Any:
        # Refused unread, to limit nesting.
        if isinstance(value, Mapping) and value.get(self.kind.tag_field) in self.without:
            raise InvalidParameterError.of(
                f"{self.kind.tag_field} in {name}",
                got=value[self.kind.tag_field],
                accepted="another kind",
            )
        return self.kind.read(value)

    def schema_of_values(self, known: dict[str, Any]) -> dict[str, Any]:
        kinds = self.kind.members()
        if not kinds:
            return self.kind.refer(known)
        refs = [kind.refer(known) for tag, kind in kinds.items() if tag not in self.without]
        return {"anyOf": refs}


def kind_of(hint: Any) -> _Kind:
    """Return how values of an annotation are checked, read and described."""
    facts: tuple[Any, ...] = ()
    if typing.get_origin(hint) is Annotated:
        hint, *rest = typing.get_args(hint)
        facts = tuple(rest)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    kind: _Kind
    if origin in (types.UnionType, typing.Union):
        (inner,) = (one for one in arguments if one is not type(None))
        kind = kind_of(inner)
        kind.optional = True
    elif origin is tuple:
        kind = _Tuple(arguments, facts)
    elif hint is bool:
        kind = _Scalar(check_bool, {"type": "boolean"})
    elif hint is str:
        kind = _text(facts)
    elif hint in (int, float):
        kind = _number(hint, facts)
    elif isinstance(hint, type) and issubclass(hint, Record):
        kind = _Nested(hint, facts)
    else:
        raise TypeError(f"a record cannot have a field of type {hint!r}")
    kind.left_out = any(isinstance(fact, OmitIfDefault) for fact in facts)
    return kind


Kind = TypeVar("Kind", bound="Record")


class Record:
    """Base of all records; see the module.

    A class with a ``tag_field`` is the base of a family. Each kind has a ``tag``, which is written
    in that field.
    """

    tag_field: ClassVar[str] = ""
    tag: ClassVar[str] = ""
    # Version of the JSON; 0 if an enclosing record has one.
    VERSION: ClassVar[int] = 0
    # Properties that are also written, for people, and compared on reading.
    DERIVED: ClassVar[tuple[str, ...]] = ()
    _members: ClassVar[dict[str, Any]]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "tag_field" in cls.__dict__:
            cls._members = {}
        if cls.__dict__.get("tag"):
            cls._members[cls.tag] = cls

    def __post_init__(self) -> None:
        """Check every field by itself, and then all together."""
        for name, kind in self.kinds().items():
            value = getattr(self, name)
            if not (value is None and kind.optional):
                object.__setattr__(self, name, kind.check(name, value))
        for broken, sentence in self._rules():
            if broken:
                raise InvalidParameterError(sentence)

    def _rules(self) -> Iterator[tuple[object, str]]:
        """Yield pairs (failed, message) for checks that involve several fields, in order."""
        yield from ()

    @classmethod
    @cache
    def kinds(cls) -> dict[str, _Kind]:
        """Return the type of every field, from the annotations."""
        hints = typing.get_type_hints(cls, include_extras=True)
        return {f.name: kind_of(hints[f.name]) for f in fields(cls)}  # type: ignore[arg-type]

    @classmethod
    def members(cls) -> dict[str, type[Any]]:
        """Return the kinds of a family by their tags; nothing for a single record."""
        return dict(cls._members) if cls.tag_field and not cls.tag else {}

    @classmethod
    def head(cls) -> dict[str, Any]:
        """Return the fields with which every record of this class begins."""
        head: dict[str, Any] = {cls.tag_field: cls.tag} if cls.tag else {}
        return head | ({"version": cls.VERSION} if cls.VERSION else {})

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values; floats survive exactly."""
        derived = {name: _plain(getattr(self, name)) for name in self.DERIVED}
        own = {
            name: _plain(getattr(self, name))
            for name, kind in self.kinds().items()
            if not kind.left_out or getattr(self, name) != getattr(type(self), name)
        }
        return self.head() | derived | own

    def to_json(self, indent: int | None = 2) -> str:
        """Return the record as JSON text."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    @classmethod
    def from_dict(cls: type[Kind], record: Mapping[str, Any]) -> Kind:
        """Read what ``to_dict`` wrote.

        Raises
        ------
        TypeError, InvalidParameterError
            Another kind or version, missing or unknown fields, or a value outside its range.
        """
        return cls.read(record)

    @classmethod
    def from_json(cls: type[Kind], text: str) -> Kind:
        """Read what ``to_json`` wrote; refuse NaN, infinities and repeated fields."""
        return cls.from_dict(read_json(text))

    @classmethod
    def read(cls: type[Kind], record: object) -> Kind:
        """Read what ``to_dict`` wrote, without checking derived words."""
        what = cls.__name__
        record = check_type(what, record, Mapping, "a mapping")
        if members := cls.members():
            tag = record.get(cls.tag_field)
            if not isinstance(tag, str) or tag not in members:
                accepted = "one of " + ", ".join(map(repr, members))
                raise InvalidParameterError.of(cls.tag_field, got=tag, accepted=accepted)
            found: Kind = members[tag].read(record)
            return found
        _check_head(record, cls)
        kinds = cls.kinds()
        own = [name for name, kind in kinds.items() if name in record or not kind.left_out]
        exactly(what, record, {*own, *cls.head(), *cls.DERIVED})
        for name in own:
            if kinds[name].left_out and not record[name]:
                raise InvalidParameterError(
                    f"{name}: got null; give a value, or leave the field out"
                )
        absent = [name for name in own if record[name] is None and kinds[name].optional]
        values = {name: kinds[name].read(name, record[name]) for name in own if name not in absent}
        made = cls(**dict.fromkeys(absent), **values)
        for problem in made.derived_problems(record):
            raise InvalidParameterError(problem)
        return made

    def derived_problems(self, record: Mapping[str, Any]) -> list[str]:
        """Return the derived fields that do not follow from the others."""
        found = []
        for name in self.DERIVED:
            stated, follows = record[name], _plain(getattr(self, name))
            if type(stated) is not type(follows) or stated != follows:
                shown = (str(value)[:200] for value in (stated, follows))
                found.append(
                    "{}: got {!r}, expected what follows from the other fields: {!r}".format(
                        name, *shown
                    )
                )
        return found

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """Return the JSON Schema of this record; of the records in it, definitions."""
        known: dict[str, Any] = {}
        reference = _Nested(cls, ()).schema(known)
        return reference | {"$defs": known}

    @classmethod
    def refer(cls, known: dict[str, Any]) -> dict[str, Any]:
        """Return a reference to the schema of this record, which is among the definitions then."""
        name = cls.__name__
        if name not in known:
            known[name] = {}
            known[name] = definition_of(cls, known)
        return {"$ref": f"#/$defs/{name}"}


def _plain(value: Any) -> Any:
    """Return a field as plain JSON."""
    if isinstance(value, Record):
        return value.to_dict()
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _check_head(record: Mapping[str, Any], kind: type[Record]) -> None:
    """Refuse what is of another kind or version.

    Raises
    ------
    TypeError, InvalidParameterError
        The text says what can be done about it.
    """
    if kind.tag and record.get(kind.tag_field) != kind.tag:
        name = kind.tag_field
        raise InvalidParameterError.of(name, got=record.get(name), accepted=repr(kind.tag))
    if not kind.VERSION:
        return
    found, known = check_integer("version", record.get("version"), 0), kind.VERSION
    newer = "; a newer version of dpsvm_fast reads it" if found > known else ""
    if found != known:
        raise InvalidParameterError.of("version", got=found, accepted=f"{known}{newer}")


# Descriptions of fields come from the docstring: there is one source for them.


def definition_of(kind: type[Record], known: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of one record; ``known`` collects those of the records in it."""
    meanings = _meanings(kind)
    properties: dict[str, Any] = {
        name: {"description": HEADS.get(name, "Which kind of record this is."), "const": value}
        for name, value in kind.head().items()
    }
    for name in kind.DERIVED:
        getter = inspect.getattr_static(kind, name)
        hints = typing.get_type_hints(getter.fget, include_extras=True)
        about = " ".join((getter.fget.__doc__ or "").split())
        properties[name] = {"description": about} | kind_of(hints["return"]).schema(known)
    kinds = kind.kinds()
    for name, field in kinds.items():
        about = meanings.get(name) or SHARED.get(name, "")
        properties[name] = {"description": about} | field.schema(known)
        if field.left_out and "items" in properties[name]:
            properties[name]["minItems"] = 1
    left_out = {name for name, field in kinds.items() if field.left_out}
    return {
        "title": kind.__name__,
        "description": (inspect.getdoc(kind) or "").partition("\n")[0],
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in left_out],
        "additionalProperties": False,
    }


HEADS = {
    "format": "What kind of document this is.",
    "type": "Kind of the record, which decides its other fields.",
    "version": "Version of the format. A reader refuses versions that it does not know.",
}


# Descriptions of fields that mean the same in every record.
SHARED = {
    "adjacency": (
        "Neighbouring relation. add_remove: one data set has one more record than the other. "
        "replace_one: both have the same public size and differ in one record. Numbers for one "
        "relation mean nothing for the other."
    ),
    "epsilon": (
        "Guarantee: the probabilities of any event on neighbouring data sets differ by at most a "
        "factor exp(epsilon), plus delta."
    ),
    "delta": (
        "Guarantee: additive probability; 0 for pure differential privacy. It should be far below "
        "1 / number of records."
    ),
    "library_version": "Version of dpsvm_fast that made the release. Nothing is computed from it.",
    "random_source": (
        "Where the noise came from. With a seed the release is not private: anyone who knows the "
        "seed can subtract the noise."
    ),
    "sampler": "How the noise was drawn: exactly on a grid, or in floating point.",
    "loss": "Loss of the training; none if nothing was trained.",
    "n_steps": "Number of such steps or sums.",
}


def _meanings(kind: type[Record]) -> dict[str, str]:
    """Return the description of each parameter in the docstring of a class."""
    _, _, text = (inspect.getdoc(kind) or "").partition("Parameters\n----------\n")
    found: dict[str, str] = {}
    names: list[str] = []
    for line in text.split("\n"):
        if set(line) == {"-"}:
            break
        if head := re.match(r"(\w+(?:, \w+)*) : ", line):
            names = head[1].split(", ")
        for name in names:
            found[name] = found.get(name, "") + (f" {line.strip()}" if line[:1] == " " else "")
    return {name: meaning.strip() for name, meaning in found.items()}
