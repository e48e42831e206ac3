"""Events about other events: a known pair, one of several branches, the best of several runs.

What they say of the events inside them is proved in docs/proofs/private_selection.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from dpsvm_fast._validation import check_adjacency, check_option, check_real
from dpsvm_fast.accounting.events import EVENT_KINDS, DistanceEvent, PrivacyEvent
from dpsvm_fast.exceptions import InvalidParameterError

__all__ = [
    "STOPPING_LAWS",
    "AlternativesEvent",
    "ParallelEvent",
    "RandomStoppingEvent",
    "logarithmic_mean",
]

# Laws of the number of runs, each with the number that its mean has to exceed.
STOPPING_LAWS = {"geometric": 1.0, "logarithmic": 1.0, "poisson": 0.0}
# Means beyond this ask for more runs than anyone makes.
MAX_MEAN = 1e9

Events = tuple[PrivacyEvent, ...]


@dataclass(frozen=True)
class ParallelEvent(PrivacyEvent):
    r"""Several mechanisms, every record meeting exactly one of them.

    Parameters
    ----------
    branches : tuple of tuple of PrivacyEvent
        What one mechanism charges to the records that meet it, for each mechanism; equal branches
        are kept once. Neither parallel nor random-stopping events are among them.
    adjacency : {"add_remove", "replace_one"}
        Also that of every event inside.

    Notes
    -----
    Guarantees: :math:`\delta(\epsilon)` is the largest of the branches', provided the branch of a
    record is chosen by public randomness that does not look at any record: independently for each
    record under ``add_remove``, from position and number of records under ``replace_one``.

    Examples
    --------
    >>> from dpsvm_fast.accounting import ParallelEvent, PureEvent, composed_epsilon
    >>> small, large = PureEvent(0.5, "add_remove"), PureEvent(2.0, "add_remove")
    >>> composed_epsilon([ParallelEvent(((small, small), (large,)), "add_remove")], 0.0)
    2.0
    """

    tag: ClassVar[str] = "parallel"
    field_names: ClassVar[tuple[str, ...]] = ("branches", "adjacency")

    branches: tuple[Events, ...]
    adjacency: str

    def __post_init__(self) -> None:
        """Check every field."""
        super().__post_init__()
        if not isinstance(self.branches, tuple) or not self.branches:
            raise InvalidParameterError("branches: expected a tuple of at least one branch")
        for branch in self.branches:
            _check_events("branches", branch, self.adjacency, _nested())
        object.__setattr__(self, "branches", tuple(dict.fromkeys(self.branches)))

    def to_dict(self) -> dict[str, object]:
        """Fields with the tag; events inside likewise."""
        branches = [[event.to_dict() for event in branch] for branch in self.branches]
        return super().to_dict() | {"branches": branches}

    @classmethod
    def _from_fields(cls, fields: Mapping[str, object]) -> PrivacyEvent:
        """Read the branches."""
        branches = fields["branches"]
        if not isinstance(branches, (list, tuple)):
            raise TypeError(f"branches: got {type(branches).__name__}, expected a list of lists")
        outer = (ParallelEvent.tag, AlternativesEvent.tag, RandomStoppingEvent.tag)
        read = tuple(_events_from("branches", branch, outer) for branch in branches)
        return cls(read, check_adjacency(fields["adjacency"]))


@dataclass(frozen=True)
class AlternativesEvent(ParallelEvent):
    r"""One of several mechanisms on all records, chosen by looking at what was released before.

    Parameters
    ----------
    branches : tuple of tuple of PrivacyEvent
        What each of the mechanisms charges; equal ones are kept once. Neither parallel,
        alternative nor random-stopping events are among them.
    adjacency : {"add_remove", "replace_one"}
        Also that of every event inside.

    Notes
    -----
    Guarantees: the mechanism that is run is dominated by one law whose :math:`\delta(\epsilon)` is
    the largest of the branches' at every epsilon, whatever the choice; docs/proofs/
    private_selection.md, section "Refit". The largest over branches of what each composes to with
    other events would not be enough: the choice may depend on how those turned out.

    Examples
    --------
    >>> from dpsvm_fast.accounting import AlternativesEvent, PureEvent, composed_epsilon
    >>> small, large = PureEvent(0.5, "add_remove"), PureEvent(2.0, "add_remove")
    >>> composed_epsilon([AlternativesEvent(((small,), (large,)), "add_remove")], 0.0)
    2.0
    """

    tag: ClassVar[str] = "alternatives"


@dataclass(frozen=True)
class RandomStoppingEvent(PrivacyEvent):
    r"""The best of a random number of runs of one mechanism; nothing else about them is told.

    Parameters
    ----------
    base : tuple of PrivacyEvent
        What one run charges, its noisy score included. A run that draws its candidate charges a
        ``ParallelEvent`` of the candidates. Neither alternatives nor random-stopping events, nor
        distances: what is close to a law once may not be close to its best of many.
    stopping : {"geometric", "logarithmic", "poisson"}
        Law of the number K of runs, drawn beforehand and independently of everything. Geometric:
        :math:`P(K = k) = \gamma (1 - \gamma)^{k - 1}`; logarithmic: :math:`P(K = k) =
        (1 - \gamma)^k / (k \log(1/\gamma))`, both from 1 on; Poisson: from 0 on, where nothing but
        a public default is released at 0.
    mean : float
        Mean of K: above 1, for Poisson above 0; at most 1e9.
    adjacency : {"add_remove", "replace_one"}
        Also that of every event inside.

    Notes
    -----
    Guarantees: those of docs/proofs/private_selection.md, provided that K has exactly the law with
    the parameter ``gamma`` below (``mean`` itself for Poisson) and that runs are alike and
    independent.

    References
    ----------
    Liu and Talwar, STOC 2019; Papernot and Steinke, ICLR 2022.

    Examples
    --------
    >>> from dpsvm_fast.accounting import GaussianEvent, RandomStoppingEvent, composed_epsilon
    >>> run = GaussianEvent(sigma=7.0, sensitivity=1.0, adjacency="add_remove")
    >>> best = RandomStoppingEvent((run,), "geometric", 10.0, "add_remove")
    >>> composed_epsilon([best], 1e-5) < 2.5 * composed_epsilon([run], 1e-5)
    True
    """

    tag: ClassVar[str] = "random_stopping"
    field_names: ClassVar[tuple[str, ...]] = ("base", "stopping", "mean", "adjacency")

    base: Events
    stopping: str
    mean: float
    adjacency: str

    def __post_init__(self) -> None:
        """Check every field."""
        super().__post_init__()
        _check_events("base", self.base, self.adjacency, (AlternativesEvent, RandomStoppingEvent))
        if any(map(_is_distant, self.base)):
            raise InvalidParameterError(
                "base: got a DistanceEvent, expected events that describe one run exactly; the "
                "distance of the whole search from its law would have to be spent beside it"
            )
        check_option("stopping", self.stopping, tuple(STOPPING_LAWS))
        least = STOPPING_LAWS[self.stopping]
        mean = check_real("mean", self.mean, low=least, high=MAX_MEAN, open_low=True)
        object.__setattr__(self, "mean", mean)
        if self.stopping != "poisson" and not 0.0 < self.gamma < 1.0:
            raise InvalidParameterError.of("mean", got=mean, accepted="a mean that is not almost 1")

    @cached_property
    def gamma(self) -> float:
        """Parameter of a geometric or logarithmic law: the one to sample, and accounted for."""
        return _gamma(self.stopping, self.mean)

    def to_dict(self) -> dict[str, object]:
        """Fields with the tag; events inside likewise."""
        return super().to_dict() | {"base": [event.to_dict() for event in self.base]}

    @classmethod
    def _from_fields(cls, fields: Mapping[str, object]) -> PrivacyEvent:
        """Read the base."""
        base = _events_from("base", fields["base"], (AlternativesEvent.tag, cls.tag))
        return cls(base, fields["stopping"], fields["mean"], fields["adjacency"])  # type: ignore[arg-type]


def _is_distant(event: PrivacyEvent) -> bool:
    """Whether an event is a distance or has one inside."""
    if isinstance(event, ParallelEvent):
        return any(_is_distant(inner) for branch in event.branches for inner in branch)
    return isinstance(event, DistanceEvent)


def _nested() -> tuple[type[PrivacyEvent], ...]:
    """Kinds that no branch may have inside."""
    return ParallelEvent, RandomStoppingEvent


def _check_events(
    name: str, events: object, adjacency: str, refused: tuple[type[PrivacyEvent], ...]
) -> None:
    """Refuse anything but a tuple of events of one relation, none of certain kinds."""
    if not isinstance(events, tuple) or not events:
        raise InvalidParameterError(f"{name}: expected a tuple of at least one event")
    for event in events:
        if not isinstance(event, PrivacyEvent) or isinstance(event, refused):
            kinds = " or ".join(kind.__name__ for kind in refused)
            raise TypeError(
                f"{name}: got {type(event).__name__}, expected events other than {kinds}"
            )
        if event.adjacency != adjacency:
            raise InvalidParameterError.of(
                f"adjacency of an event in {name}", got=event.adjacency, accepted=repr(adjacency)
            )


def _events_from(name: str, records: object, refused: tuple[str, ...]) -> Events:
    """Read events; those of certain kinds are refused unread, so that nesting has an end."""
    if not isinstance(records, (list, tuple)):
        raise TypeError(f"{name}: got {type(records).__name__}, expected a list of events")
    for record in records:
        if isinstance(record, Mapping) and record.get("type") in refused:
            raise InvalidParameterError.of(
                f"event type in {name}", got=record["type"], accepted="another kind"
            )
    return tuple(map(PrivacyEvent.from_dict, records))


def _gamma(stopping: str, mean: float) -> float:
    """Parameter of the law with that mean, to nearest; NaN for Poisson, which has none."""
    if stopping == "geometric":
        return 1.0 / mean
    if stopping == "poisson":
        return math.nan
    low, high = 1e-16, 1.0
    # The mean falls from 3e14 to 1; halving in logarithms, to the last bits.
    for _ in range(200):
        middle = math.sqrt(low * high)
        if not low < middle < high:
            break
        if logarithmic_mean(middle) > mean:
            low = middle
        else:
            high = middle
    return low


def logarithmic_mean(gamma: float) -> float:
    """Mean of the logarithmic law with a parameter in (0, 1)."""
    return (1.0 - gamma) / gamma / -math.log(gamma)


KINDS = (ParallelEvent, AlternativesEvent, RandomStoppingEvent)
EVENT_KINDS.update({kind.tag: kind for kind in KINDS})
