"""What every privacy event knows: its neighbouring relation, and how to be written down.

An event never changes its meaning. A new mechanism with another privacy loss gets a new class with
a new tag; a reader that does not know a tag refuses it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from dpsvm_fast._validation import check_adjacency
from dpsvm_fast.exceptions import InvalidParameterError

__all__ = ["EVENT_KINDS", "PrivacyEvent"]


class PrivacyEvent:
    """Base of all events; knows the neighbouring relation and how to be written down.

    Attributes
    ----------
    adjacency : {"add_remove", "replace_one"}
        The relation for which the other fields hold. Nothing converts between relations.

    Examples
    --------
    >>> from dpsvm_fast.accounting import GaussianEvent, PrivacyEvent
    >>> event = GaussianEvent(sigma=4.0, sensitivity=1.0, adjacency="add_remove")
    >>> PrivacyEvent.from_dict(event.to_dict()) == event
    True
    """

    tag: ClassVar[str] = ""
    field_names: ClassVar[tuple[str, ...]] = ()

    adjacency: str

    def __new__(cls, *_: object, **__: object) -> PrivacyEvent:
        """Refuse the bare base class, which promises nothing."""
        if cls is PrivacyEvent:
            raise TypeError("PrivacyEvent: expected one of its kinds, such as GaussianEvent")
        return super().__new__(cls)

    def __post_init__(self) -> None:
        """Refuse an unknown relation."""
        check_adjacency(self.adjacency)

    def to_dict(self) -> dict[str, object]:
        """Fields with the tag under ``"type"``; floats are kept exactly by JSON."""
        return {"type": self.tag} | {name: getattr(self, name) for name in self.field_names}

    @staticmethod
    def from_dict(record: Mapping[str, object]) -> PrivacyEvent:
        """Read what ``to_dict`` wrote.

        Raises
        ------
        TypeError, InvalidParameterError
            An unknown type, a missing or additional field, or a value outside its range.
        """
        if not isinstance(record, Mapping):
            raise TypeError(f"event: got {type(record).__name__}, expected a mapping")
        tag = record.get("type")
        kind = EVENT_KINDS.get(tag) if isinstance(tag, str) else None
        if kind is None:
            raise InvalidParameterError.of(
                "event type", got=tag, accepted="one of " + ", ".join(map(repr, EVENT_KINDS))
            )
        names = {*kind.field_names, "type"}
        if set(record) != names:
            raise InvalidParameterError.of(
                f"fields of a {tag!r} event",
                got=sorted(map(str, record)),
                accepted=str(sorted(names)),
            )
        return kind._from_fields({name: record[name] for name in kind.field_names})

    @classmethod
    def _from_fields(cls, fields: Mapping[str, object]) -> PrivacyEvent:
        """Make the event from its fields; kinds with events inside read those first."""
        return cls(**fields)


# Every kind by its tag; the modules that define kinds add them.
EVENT_KINDS: dict[str, type[PrivacyEvent]] = {}
