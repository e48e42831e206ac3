"""What a search over parameters promises: all its fits, the choice and the refit together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any, ClassVar

from dpsvm_fast._rounding import fraction_up
from dpsvm_fast._validation import (
    check_adjacency,
    check_delta,
    check_epsilon,
    check_integer,
    check_option,
    check_positive,
)
from dpsvm_fast.accounting._certificate import Certificate, reader
from dpsvm_fast.accounting._fields import check_text, store, store_all
from dpsvm_fast.accounting._prose import WIDTH, bullets, paragraphs
from dpsvm_fast.accounting.compound import STOPPING_LAWS, ParallelEvent, RandomStoppingEvent
from dpsvm_fast.accounting.events import GaussianEvent, PrivacyEvent, PureEvent
from dpsvm_fast.accounting.words import UNIT, selection_word_problems
from dpsvm_fast.exceptions import InvalidParameterError

__all__ = ["SelectionNoise", "SelectionStatement", "Stopping", "selection_events"]

PROOF = "docs/proofs/private_selection.md"

STRATEGIES = ("partition", "random_stopping")
# How one of several scores is chosen, and how one score is made noisy.
CHOICES = ("permute_and_flip", "exponential")
NOISY_SCORES = ("discrete_laplace", "gaussian_on_grid")

TEXTS = ("candidates", "assumed_public", "caveats", "not_private_reasons")

Branch = tuple[PrivacyEvent, ...]


@dataclass(frozen=True, kw_only=True)
class SelectionNoise:
    r"""The randomness between the scores of the candidates and the choice among them.

    Parameters
    ----------
    mechanism : {"permute_and_flip", "exponential", "discrete_laplace", "gaussian_on_grid"}
        The first two choose among scores of one part of the records, the others are noise of one
        run's score.
    sensitivity : int >= 1
        By how much one record changes a score.
    relation_factor : {1, 2}
        2 for a choice under ``replace_one``, where scores may move in opposite directions.
    rate : float or None
        r of weights or acceptances :math:`\exp(-r z)`, or of noise :math:`P(k) \propto \exp(-r
        |k|)`; None for Gaussian noise.
    sigma : float or None
        Standard deviation of Gaussian noise before it is rounded to whole numbers.
    """

    mechanism: str
    sensitivity: int
    relation_factor: int
    rate: float | None = None
    sigma: float | None = None

    def __post_init__(self) -> None:
        """Check every field."""
        check_option("mechanism", self.mechanism, (*CHOICES, *NOISY_SCORES))
        store(self, "sensitivity", check_integer("sensitivity", self.sensitivity, 1, 2**31))
        store(self, "relation_factor", check_integer("relation_factor", self.relation_factor, 1, 2))
        name, other = ("sigma", "rate") if self.gaussian else ("rate", "sigma")
        if getattr(self, other) is not None:
            raise InvalidParameterError(f"{other}: expected None with {self.mechanism!r}")
        store(self, name, check_positive(name, getattr(self, name)))

    @property
    def gaussian(self) -> bool:
        """Whether it is Gaussian noise."""
        return self.mechanism == "gaussian_on_grid"

    def event(self, adjacency: str) -> PrivacyEvent:
        """What it costs the records that are scored."""
        if self.sigma is not None:
            return GaussianEvent(self.sigma, float(self.sensitivity), adjacency)
        assert self.rate is not None
        moved = self.relation_factor * self.sensitivity
        return PureEvent(fraction_up(Fraction(self.rate) * moved), adjacency)

    def __str__(self) -> str:
        scores = f"scores change by at most {self.sensitivity} with one record"
        if self.mechanism in CHOICES:
            return (
                f"choice by {self.mechanism.replace('_', ' ')} at rate {self.rate:.6g} per unit of "
                f"score; {scores}"
            )
        noise = (
            f"Gaussian noise, sigma = {self.sigma:.6g}, rounded to whole numbers"
            if self.gaussian
            else f"discrete Laplace noise, P(k) ~ exp(-{self.rate:.6g} |k|)"
        )
        return f"every run's score has {noise}; {scores}"


@dataclass(frozen=True, kw_only=True)
class Stopping:
    """Law of the number of runs, which nobody is told.

    Parameters
    ----------
    law : {"geometric", "logarithmic", "poisson"}
    mean : float
    """

    law: str
    mean: float

    def __post_init__(self) -> None:
        """Check every field."""
        check_option("law", self.law, tuple(STOPPING_LAWS))
        store(self, "mean", check_positive("mean", self.mean))


@dataclass(frozen=True, kw_only=True)
class SelectionStatement(Certificate):
    r"""What a search promises, choice and released model together; ``verify`` recomputes it.

    Parameters
    ----------
    epsilon : float in (0, 1e4]
    delta : float in [0, 1)
    adjacency : {"add_remove", "replace_one"}
    strategy : {"partition", "random_stopping"}
        One part of the records for each candidate and one to choose by; or the best of a random
        number of runs, each with a random candidate on all records.
    candidates : tuple of str
        Public parameters of each, as text.
    branches : tuple of tuple of PrivacyEvent
        What one fit of each candidate costs the records it is trained on.
    selection : SelectionNoise
    stopping : Stopping or None
        Of ``"random_stopping"`` alone.
    refit : tuple of PrivacyEvent
        What fitting the winner on all records costs, whichever it is; empty without a refit.
    assumed_public : tuple of str
        Settings on which the promise rests and which must not come from the data.
    caveats : tuple of str
        What the promise does not cover.
    library_version : str
    random_source : {"operating_system", "seed"}
    not_private_reasons : tuple of str
        Why the release is not private after all; empty when it is.

    Raises
    ------
    TypeError, InvalidParameterError
        A field of another type or outside its range; events of another relation; another number of
        branches than of candidates; a choice that does not belong to the strategy; a seed without
        a reason.

    Notes
    -----
    Guarantees: none by itself, like a :class:`PrivacyStatement`.
    """

    FORMAT: ClassVar[str] = "dpsvm_fast.selection_certificate"
    DERIVED: ClassVar[tuple[str, ...]] = ("private", "unit")
    unit: ClassVar[str] = UNIT

    epsilon: float
    delta: float
    adjacency: str
    strategy: str
    candidates: tuple[str, ...]
    branches: tuple[Branch, ...]
    selection: SelectionNoise
    stopping: Stopping | None
    refit: Branch
    assumed_public: tuple[str, ...]
    caveats: tuple[str, ...]
    library_version: str
    random_source: str = "operating_system"
    not_private_reasons: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check every field, and that they go together."""
        store(self, "epsilon", check_epsilon(self.epsilon))
        store(self, "delta", check_delta(self.delta))
        check_adjacency(self.adjacency)
        check_option("strategy", self.strategy, STRATEGIES)
        check_option("random_source", self.random_source, ("operating_system", "seed"))
        check_text("library_version", self.library_version)
        for name in TEXTS:
            store_all(self, name, str)
        store_all(self, "refit", PrivacyEvent)
        store_all(self, "branches", (tuple, list))
        store(self, "branches", tuple(map(tuple, self.branches)))
        self._check_selection()
        if any(event.adjacency != self.adjacency for event in self.events):
            raise InvalidParameterError("events: expected those of one neighbouring relation")
        if self.random_source == "seed" and self.private:
            raise InvalidParameterError("not_private_reasons: a seeded release must say so")

    def _check_selection(self) -> None:
        """Check that the choice is one of this strategy, over as many candidates as there are."""
        if not isinstance(self.selection, SelectionNoise):
            kind = type(self.selection).__name__
            raise TypeError(f"selection: got {kind}, expected a SelectionNoise")
        if self.stopping is not None and not isinstance(self.stopping, Stopping):
            kind = type(self.stopping).__name__
            raise TypeError(f"stopping: got {kind}, expected a Stopping or None")
        partition = self.strategy == "partition"
        if partition != (self.stopping is None):
            raise InvalidParameterError("stopping: expected one with 'random_stopping' alone")
        check_option("selection", self.selection.mechanism, CHOICES if partition else NOISY_SCORES)
        if not self.candidates or len(self.branches) != len(self.candidates):
            raise InvalidParameterError(
                f"branches: got {len(self.branches)}, expected one for each candidate"
            )

    @property
    def events(self) -> tuple[PrivacyEvent, ...]:
        """What the whole search charges to a ledger, at once."""
        return selection_events(
            self.branches, self.selection, self.stopping, self.refit, self.adjacency
        )

    @property
    def private(self) -> bool:
        """Whether the promise holds."""
        return not self.not_private_reasons

    def _plain_fields(self) -> dict[str, Any]:
        record = {f.name: getattr(self, f.name) for f in fields(self)}
        for name in TEXTS:
            record[name] = list(record[name])
        record["branches"] = [[event.to_dict() for event in branch] for branch in self.branches]
        record["refit"] = [event.to_dict() for event in self.refit]
        record["selection"] = dict(vars(self.selection))
        record["stopping"] = None if self.stopping is None else dict(vars(self.stopping))
        return record

    @classmethod
    def _of_fields(cls, values: dict[str, Any]) -> SelectionStatement:
        for name in (*TEXTS, "branches", "refit"):
            if not isinstance(values[name], list):
                raise TypeError(f"{name}: expected a list")
        values["branches"] = tuple(_events("branches", branch) for branch in values["branches"])
        values["refit"] = _events("refit", values["refit"])
        values["selection"] = reader(SelectionNoise, "selection")(values["selection"])
        if values["stopping"] is not None:
            values["stopping"] = reader(Stopping, "stopping")(values["stopping"])
        return cls(**values)

    def _own_word_problems(self, record: Mapping[str, Any]) -> list[str]:
        return selection_word_problems(self)

    def __str__(self) -> str:
        head = "PRIVATE" if self.private else "NOT PRIVATE"
        lines = [f"Privacy of a search over parameters: {head}", "=" * WIDTH]
        lines += paragraphs(self._promise())
        for title, items in (
            ("Why it is not private", self.not_private_reasons),
            ("How it follows", self._derivation()),
            ("Candidates", self.candidates),
            ("Assumed public", self.assumed_public),
            ("Not covered", self.caveats),
        ):
            if items:
                lines += ["", title, *bullets(items)]
        return "\n".join([*lines, "", f"Proof: {PROOF}", f"dpsvm_fast {self.library_version}"])

    def _promise(self) -> str:
        """Return the guarantee in one or two sentences."""
        neighbours = {
            "add_remove": f"differ by adding or removing {self.unit}",
            "replace_one": f"differ in {self.unit}, exchanged for another",
        }[self.adjacency]
        bound = (
            f"epsilon = {self.epsilon:g}, delta = {self.delta:g} for data sets that {neighbours}"
        )
        if self.private:
            return (
                "The chosen parameters and the released model together, and with them the whole "
                f"search, are differentially private with {bound}."
            )
        return (
            "No privacy is promised for the search. Its noise has the size that would give "
            f"{bound}."
        )

    def _derivation(self) -> tuple[str, ...]:
        """How the search spends."""
        n = len(self.candidates)
        if self.stopping is None:
            how = (
                f"every record is in one of {n + 1} parts, chosen without looking at it: one for "
                f"each of {n} candidates and one to choose by. It pays for its own part, so the "
                "search costs the most expensive part, not the sum"
            )
        else:
            how = (
                f"a random number of runs, {self.stopping.law} with mean {self.stopping.mean:g} "
                f"and never told, each with one of {n} candidates drawn at random; the run with "
                "the best noisy score is released"
            )
        again = "the winner is fitted again on all records, and paid for once more"
        return (how, str(self.selection), *((again,) if self.refit else ()))


def selection_events(
    branches: tuple[Branch, ...],
    selection: SelectionNoise,
    stopping: Stopping | None,
    refit: Branch,
    adjacency: str,
) -> tuple[PrivacyEvent, ...]:
    """A search as events: the fits and the choice, then the refit. Arguments as the fields."""
    chosen = selection.event(adjacency)
    if stopping is None:
        return (ParallelEvent((*branches, (chosen,)), adjacency), *refit)
    drawn = ParallelEvent(branches, adjacency)
    base = drawn.branches[0] if len(drawn.branches) == 1 else (drawn,)
    return (
        RandomStoppingEvent((*base, chosen), stopping.law, stopping.mean, adjacency),
        *refit,
    )


def _events(name: str, records: object) -> Branch:
    """Read a list of events."""
    if not isinstance(records, list):
        raise TypeError(f"{name}: expected a list")
    return tuple(map(PrivacyEvent.from_dict, records))
