"""Privacy events: frozen records of all that accounting needs to know about one release.

An event never changes its meaning. A new mechanism with another privacy loss gets a new class with
a new tag; a reader that does not know a tag refuses it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from dpsvm_fast._rounding import div_up
from dpsvm_fast._validation import check_adjacency, check_epsilon, check_positive
from dpsvm_fast.exceptions import InvalidParameterError

__all__ = ["GaussianEvent", "PrivacyEvent", "PureEvent"]


class PrivacyEvent:
    """Base of all events; knows the neighbouring relation and how to be written down.

    Attributes
    ----------
    adjacency : {"add_remove", "replace_one"}
        The relation for which the other fields hold. Nothing converts between relations.
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
        kind = _KINDS.get(tag) if isinstance(tag, str) else None
        if kind is None:
            raise InvalidParameterError.of(
                "event type", got=tag, accepted="one of " + ", ".join(map(repr, _KINDS))
            )
        names = {*kind.field_names, "type"}
        if set(record) != names:
            raise InvalidParameterError.of(
                f"fields of a {tag!r} event",
                got=sorted(map(str, record)),
                accepted=str(sorted(names)),
            )
        return kind(**{name: record[name] for name in kind.field_names})


@dataclass(frozen=True)
class GaussianEvent(PrivacyEvent):
    """A release whose privacy is that of the Gaussian mechanism in real arithmetic.

    Parameters
    ----------
    sigma : float > 0
        Standard deviation of each component of the noise.
    sensitivity : float > 0
        L2 distance between what neighbouring data sets hand to the noise.
    adjacency : {"add_remove", "replace_one"}

    Examples
    --------
    >>> from dpsvm_fast.accounting import GaussianEvent
    >>> GaussianEvent(sigma=4.0, sensitivity=1.0, adjacency="add_remove").mu
    0.25
    """

    tag: ClassVar[str] = "gaussian"
    field_names: ClassVar[tuple[str, ...]] = ("sigma", "sensitivity", "adjacency")

    sigma: float
    sensitivity: float
    adjacency: str

    def __post_init__(self) -> None:
        """Check every field."""
        super().__post_init__()
        object.__setattr__(self, "sigma", check_positive("sigma", self.sigma))
        object.__setattr__(self, "sensitivity", check_positive("sensitivity", self.sensitivity))
        if not 0.0 < self.mu < float("inf"):
            raise InvalidParameterError.of(
                "sigma", got=self.sigma, accepted="a finite ratio to the sensitivity"
            )

    @cached_property
    def mu(self) -> float:
        """Sensitivity over sigma, rounded up: the parameter of Gaussian differential privacy."""
        return div_up(self.sensitivity, self.sigma)


@dataclass(frozen=True)
class PureEvent(PrivacyEvent):
    """A release that is epsilon-differentially private with delta = 0.

    Parameters
    ----------
    epsilon : float in (0, 1e4]
    adjacency : {"add_remove", "replace_one"}
    """

    tag: ClassVar[str] = "pure"
    field_names: ClassVar[tuple[str, ...]] = ("epsilon", "adjacency")

    epsilon: float
    adjacency: str

    def __post_init__(self) -> None:
        """Check every field."""
        super().__post_init__()
        object.__setattr__(self, "epsilon", check_epsilon(self.epsilon))


_KINDS: dict[str, type[PrivacyEvent]] = {kind.tag: kind for kind in (GaussianEvent, PureEvent)}
