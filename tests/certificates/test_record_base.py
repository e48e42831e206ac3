"""The base class of records: checks, strict reading and schemas that follow from annotations."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Annotated, Any, ClassVar

import pytest
from jsonschema import Draft202012Validator

from dpsvm_fast.certificates.record import (
    Count,
    Excluding,
    OmitIfDefault,
    Options,
    Positive,
    Range,
    Record,
    Text,
)
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.mechanisms.plan import filled


class Shape(Record):
    """A family of two kinds."""

    tag_field: ClassVar[str] = "kind"


@dataclass(frozen=True)
class Circle(Shape):
    """A circle.

    Parameters
    ----------
    radius : float > 0
        Half of the width.
    """

    tag: ClassVar[str] = "circle"
    DERIVED: ClassVar[tuple[str, ...]] = ("width",)

    radius: Positive

    @property
    def width(self) -> Positive:
        """Twice the radius."""
        return 2.0 * self.radius


@dataclass(frozen=True)
class Group(Shape):
    """Several shapes, none of them a group."""

    tag: ClassVar[str] = "group"
    VERSION: ClassVar[int] = 3

    shapes: Annotated[tuple[Annotated[Shape, Excluding(("group",))], ...], Range(1)]
    name: Text | None
    colour: Annotated[str, Options("red", "blue")] = "red"
    layers: Annotated[tuple[Count, ...], OmitIfDefault()] = ()

    def _rules(self) -> Iterator[tuple[object, str]]:
        """Refuse more layers than shapes."""
        more = len(self.layers) > len(self.shapes)
        yield more, "layers: expected one for each shape at most"


GROUP = Group((Circle(1.0), Circle(2.5)), None, layers=(1, 2))
DOCUMENT: dict[str, Any] = {
    "kind": "group",
    "version": 3,
    "shapes": [
        {"kind": "circle", "width": 2.0, "radius": 1.0},
        {"kind": "circle", "width": 5.0, "radius": 2.5},
    ],
    "name": None,
    "colour": "red",
    "layers": [1, 2],
}


def test_a_record_is_written_and_read_with_nothing_added_or_lost() -> None:
    assert GROUP.to_dict() == DOCUMENT
    assert Shape.from_json(GROUP.to_json()) == GROUP == Group.from_dict(DOCUMENT)
    without = Group((Circle(1.0),), "one")
    assert "layers" not in without.to_dict()
    assert Shape.from_dict(without.to_dict()) == without


HOSTILE: list[dict[str, Any]] = [
    {"kind": "square"},
    {"kind": ["group"]},
    {"version": 2},
    {"version": 4},
    {"version": True},
    {"shapes": []},
    {"shapes": {}},
    {"shapes": [DOCUMENT]},
    {"shapes": [{"kind": "circle", "width": 3.0, "radius": 1.0}]},
    {"shapes": [{"kind": "circle", "radius": 1.0}]},
    {"shapes": [{"kind": "circle", "width": 0.0, "radius": 0.0}]},
    {"shapes": [{"kind": "circle", "width": 2.0, "radius": True}]},
    {"name": ""},
    {"name": 3},
    {"colour": "green"},
    {"colour": None},
    {"layers": []},
    {"layers": None},
    {"layers": [0]},
    {"layers": [1.0]},
    {"layers": [1, 1, 1]},
    {"surplus": 1},
]


@pytest.mark.parametrize("changes", HOSTILE, ids=str)
def test_anything_else_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises((TypeError, InvalidParameterError)):
        Shape.from_dict(DOCUMENT | changes)


def test_a_record_takes_fields_of_owners_by_name_and_checks_them() -> None:
    ring, other = SimpleNamespace(radius=2.0, width=7.0), SimpleNamespace(radius=3.0)
    assert filled(Circle, ring, other) == Circle(2.0)
    assert filled(Circle, ring, radius=5.0) == Circle(5.0)
    # What has the name and is of another kind is refused.
    with pytest.raises(TypeError, match="radius"):
        filled(Circle, SimpleNamespace(radius="wide"))
    with pytest.raises(TypeError):
        filled(Circle, SimpleNamespace(width=1.0))


@pytest.mark.parametrize("name", [name for name in DOCUMENT if name != "layers"])
def test_a_missing_field_is_refused(name: str) -> None:
    less = {key: value for key, value in DOCUMENT.items() if key != name}
    with pytest.raises((TypeError, InvalidParameterError)):
        Shape.from_dict(less)


@pytest.mark.parametrize("text", ["{", "[]", '{"a": NaN}', '{"kind": 1, "kind": 1}', "[" * 10_000])
def test_text_that_is_no_strict_json_is_refused(text: str) -> None:
    with pytest.raises((TypeError, InvalidParameterError)):
        Shape.from_json(text)


def test_the_schema_follows_from_the_annotations() -> None:
    schema = Shape.json_schema()
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(schema)
    validator.validate(json.loads(GROUP.to_json()))
    circle = schema["$defs"]["Circle"]["properties"]
    assert circle["radius"]["description"] == "Half of the width."
    assert circle["width"]["description"] == "Twice the radius."
    assert circle["radius"]["exclusiveMinimum"] == 0.0
    # What only readers know: which number follows from which, and fields of two places.
    related = ({"shapes": HOSTILE[8]["shapes"]}, {"layers": [1, 1, 1]}, {"layers": [1.0]})
    for changes in HOSTILE:
        if changes not in related:
            assert not validator.is_valid(DOCUMENT | changes), changes


def test_a_field_of_another_type_is_a_mistake_of_the_class() -> None:
    @dataclass(frozen=True)
    class Odd(Record):
        anything: object

    with pytest.raises(TypeError, match="object"):
        Odd(1)
