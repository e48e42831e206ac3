"""What several releases on the same private rows promise together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from dpsvm_fast._validation import check_adjacency, check_bool, check_delta, check_non_negative
from dpsvm_fast.accounting._certificate import Certificate, exactly, names_of
from dpsvm_fast.accounting._fields import check_text, store
from dpsvm_fast.accounting._prose import ALONE, CHECK, WIDTH, bullets, odds, paragraphs
from dpsvm_fast.accounting.events import PrivacyEvent
from dpsvm_fast.accounting.federated_statement import FederatedStatement
from dpsvm_fast.accounting.selection import SelectionStatement
from dpsvm_fast.accounting.statement import PrivacyStatement
from dpsvm_fast.accounting.words import pipeline_word_problems
from dpsvm_fast.exceptions import InvalidParameterError

__all__ = ["PipelineStatement", "PipelineStep"]


LEARNED_REASON = "was fitted on the rows without privacy; what it learned may repeat them"
Statement = PrivacyStatement | SelectionStatement | FederatedStatement

PROOF = "docs/proofs/private_scaling.md, section Pipelines; docs/proofs/accountant.md"


@dataclass(frozen=True, kw_only=True)
class PipelineStep:
    """One step of a pipeline.

    Parameters
    ----------
    name : str
        Names of the steps down to it, joined by two underscores.
    estimator : str
        Name of its class.
    statement : PrivacyStatement, SelectionStatement, FederatedStatement or None
        What its fit promised; None where it spent nothing.
    learned : bool, default=False
        Whether it learned from the rows without a promise.
    """

    name: str
    estimator: str
    statement: Statement | None = None
    learned: bool = False

    def __post_init__(self) -> None:
        """Check every field, and that what is promised was not learned otherwise."""
        check_text("name", self.name)
        check_text("estimator", self.estimator)
        check_bool("learned", self.learned)
        if self.statement is not None and not isinstance(self.statement, Statement):
            kind = type(self.statement).__name__
            raise TypeError(f"statement: got {kind}, expected a PrivacyStatement or None")
        if self.learned and self.statement is not None:
            raise InvalidParameterError("learned: expected False beside a statement")

    def __str__(self) -> str:
        if self.learned:
            spent = "learned from the rows without privacy"
        elif self.statement is None:
            spent = "learns nothing from the rows, spends nothing"
        else:
            spent = f"epsilon = {self.statement.epsilon:g}, delta = {self.statement.delta:g} alone"
        return f"{self.title}: {spent}"

    @property
    def title(self) -> str:
        """Name and class."""
        return f"{self.name!r} ({self.estimator})"

    def to_dict(self) -> dict[str, Any]:
        """Return the step as plain values."""
        statement = None if self.statement is None else self.statement.to_dict()
        return vars(self) | {"statement": statement}

    @classmethod
    def from_dict(cls, record: object) -> PipelineStep:
        """Read what ``to_dict`` wrote."""
        values = exactly("step", record, {"name", "estimator", "statement", "learned"})
        if values["statement"] is not None:
            values["statement"] = _statement_from(values["statement"])
        return cls(**values)


@dataclass(frozen=True, kw_only=True)
class PipelineStatement(Certificate):
    """What the fits of all steps together promise; ``verify`` recomputes it.

    Parameters
    ----------
    epsilon : float >= 0
    delta : float in [0, 1)
    adjacency : {"add_remove", "replace_one"}
        Of every step.
    steps : tuple of PipelineStep
        At least one of them with a statement.
    assumptions : tuple of str
        On what the composition rests, beside what the steps rest on.
    library_version : str

    Raises
    ------
    TypeError, InvalidParameterError
        A field of another type or outside its range; steps of another relation or with other
        records; no step with a statement.

    Notes
    -----
    Guarantees: none by itself, like a :class:`PrivacyStatement`.
    """

    FORMAT: ClassVar[str] = "dpsvm_fast.pipeline_certificate"

    epsilon: float
    delta: float
    adjacency: str
    steps: tuple[PipelineStep, ...]
    assumptions: tuple[str, ...]
    library_version: str

    def __post_init__(self) -> None:
        """Check every field, and that the promises of the steps go together."""
        store(self, "epsilon", check_non_negative("epsilon", self.epsilon))
        store(self, "delta", check_delta(self.delta))
        check_adjacency(self.adjacency)
        check_text("library_version", self.library_version)
        for name, kind in (("steps", PipelineStep), ("assumptions", str)):
            values = getattr(self, name)
            if not isinstance(values, (tuple, list)):
                raise TypeError(f"{name}: got {type(values).__name__}, expected a tuple")
            if not all(isinstance(value, kind) for value in values):
                raise TypeError(f"{name}: expected {kind.__name__} only")
            store(self, name, tuple(values))
        if not self.statements:
            raise InvalidParameterError("steps: expected one with a statement")
        for step in self.steps:
            if step.statement is not None and step.statement.adjacency != self.adjacency:
                raise InvalidParameterError(
                    f"steps: {step.title} has adjacency {step.statement.adjacency!r}, expected "
                    f"{self.adjacency!r} of every step; promises of different relations do not "
                    "compose"
                )
        if len(set(map(_unit_of, self.statements))) > 1:
            raise InvalidParameterError("steps: expected one unit of privacy for all of them")

    @property
    def statements(self) -> tuple[Statement, ...]:
        """The promises of the steps that made one."""
        return tuple(step.statement for step in self.steps if step.statement is not None)

    @property
    def events(self) -> tuple[PrivacyEvent, ...]:
        """What all steps together charge to a ledger."""
        return tuple(event for statement in self.statements for event in statement.events)

    @property
    def not_private_reasons(self) -> tuple[str, ...]:
        """Why the whole is not private; empty when it is."""
        reasons = [f"{step.title} {LEARNED_REASON}" for step in self.steps if step.learned]
        return (*reasons, *self._of_steps("not_private_reasons"))

    @property
    def private(self) -> bool:
        """Whether the promise holds."""
        return not self.not_private_reasons

    @property
    def assumed_public(self) -> tuple[str, ...]:
        """On what the promise rests and what must not come from the data."""
        return (*self.assumptions, *self._of_steps("assumed_public"))

    @property
    def caveats(self) -> tuple[str, ...]:
        """What the promise does not cover."""
        return tuple(dict.fromkeys(text for s in self.statements for text in s.caveats))

    def _of_steps(self, field: str) -> tuple[str, ...]:
        """Texts of the steps' statements, each after the name of its step."""
        return tuple(
            f"{step.title}: {text}"
            for step in self.steps
            if step.statement is not None
            for text in getattr(step.statement, field)
        )

    def _plain_fields(self) -> dict[str, Any]:
        record = {name: getattr(self, name) for name in sorted(names_of(type(self)))}
        record["steps"] = [step.to_dict() for step in self.steps]
        record["assumptions"] = list(self.assumptions)
        return record

    @classmethod
    def _of_fields(cls, values: dict[str, Any]) -> PipelineStatement:
        if not isinstance(values["steps"], list):
            raise TypeError("steps: expected a list")
        values["steps"] = tuple(map(PipelineStep.from_dict, values["steps"]))
        return cls(**values)

    def _own_word_problems(self, record: Mapping[str, Any]) -> list[str]:
        found = pipeline_word_problems(self)
        for step, written in zip(self.steps, record["steps"], strict=True):
            if step.statement is not None:
                inside = step.statement.word_problems(written["statement"])
                found += [f"{step.title}: {problem}" for problem in inside]
        return found

    def __str__(self) -> str:
        head = "PRIVATE" if self.private else "NOT PRIVATE"
        lines = [f"Privacy of a pipeline: {head}", "=" * WIDTH, *paragraphs(self._promise())]
        for title, items in (
            ("Why it is not private", self.not_private_reasons),
            ("Steps", tuple(map(str, self.steps))),
            ("Assumed public", self.assumed_public),
            ("Not covered", self.caveats),
        ):
            if items:
                lines += ["", title, *bullets(items)]
        version = f"dpsvm_fast {self.library_version}"
        return "\n".join([*lines, "", f"Proof: {PROOF}", CHECK, version])

    def _promise(self) -> str:
        """Return the guarantee in one or two sentences."""
        unit = _unit_of(self.statements[0])
        neighbours = {
            "add_remove": f"differ by adding or removing {unit}",
            "replace_one": f"differ in {unit}, exchanged for another",
        }[self.adjacency]
        bound = (
            f"epsilon = {self.epsilon:g}, delta = {self.delta:g} for data sets that {neighbours}"
        )
        if self.private:
            together = f"All fitted steps together are differentially private with {bound}."
            return f"{together} {odds(self.epsilon, self.delta)} {ALONE}"
        return (
            "No privacy is promised for the whole. The noise of its private steps has the size "
            f"that would give {bound}."
        )


def _unit_of(statement: Statement) -> str:
    """What the data sets that a statement compares differ in."""
    if isinstance(statement, FederatedStatement):
        return statement.protected
    return statement.unit


def _statement_from(record: Any) -> Statement:
    """Read the statement of one step, of any format."""
    if isinstance(record, Mapping) and record.get("format") == SelectionStatement.FORMAT:
        return SelectionStatement.read(record)
    if isinstance(record, Mapping) and record.get("format") == FederatedStatement.FORMAT:
        return FederatedStatement.read(record)
    return PrivacyStatement.read(record)
