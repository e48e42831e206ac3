"""Statements: what a fit, a pipeline, a search or a training of several parties promises.

The statement: what one release promises, to whom, under which assumptions.

It holds every number from which the promise can be recomputed, so that
:func:`dpsvm_fast.verification.verify` needs neither the model nor the data. Nothing in a statement
depends on the data.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar

from dpsvm_fast.certificates import record as field
from dpsvm_fast.certificates import render, words
from dpsvm_fast.certificates.events import (
    STOPPING_LAWS,
    GaussianEvent,
    ParallelEvent,
    PrivacyEvent,
    PureEvent,
    RandomStoppingEvent,
    check_relation,
)
from dpsvm_fast.certificates.record import Kind, Record, definition_of, read_json
from dpsvm_fast.certificates.releases import (
    ADJACENCY,
    MAX_NUMBERS,
    MAX_PARTIES,
    SCORE,
    WEIGHT,
    Descent,
    Noise,
    ObjectiveNoise,
    ReleasePart,
    SecureRound,
    Sensitivity,
)
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.rounding import fraction_up
from dpsvm_fast.validation import check_option

Self = TypeVar("Self", bound="ReleaseStatement")
Source = Annotated[str, field.Options("operating_system", "seed")]
Events = tuple[PrivacyEvent, ...]
ACCOUNTANT = "dpsvm_fast.accounting"
# Names of steps of pipelines: path of names, and class.
StepTitle = Annotated[str, field.Pattern(r"^.+ \([A-Za-z0-9_]+\)$")]
Period = Annotated[str, field.Pattern(r"^[A-Za-z0-9._:+/-]+$")]
UncoveredCaveat = Annotated[str, field.Options("floating_point", "precision", "max_iter")]


@dataclass(frozen=True, kw_only=True)
class Occasion(Record):
    """Facts about a fit that its guarantee needs and that no number shows.

    Parameters
    ----------
    parameter : {"data_norm", "bounds", "param_grid", "model"}
        The public parameter on which the sensitivity rests; "model" of an evaluation.
    parameters : tuple of str
        All other public parameters.
    labels : {"given", "read"} or None
        Where the label set came from; None where no labels are read.
    assumed : tuple of {"class_weights", "declared", "start"}
        What else counts as public.
    functions : tuple of str
        Steps whose function has to map every row by itself.
    feature_seed : int or None
        Public seed of random features.
    periods : tuple of str
        The only periods whose rows a ledger was charged for.
    learned : tuple of str
        Steps that learned from the rows without privacy.
    uncovered : tuple of {"floating_point", "precision", "max_iter"}
        Names of caveats that do not follow from the numbers.
    cluster : str or None
        Protocol of a cluster whose machines summed the rows.
    """

    parameter: Annotated[str, field.Options("data_norm", "bounds", "param_grid", "model")]
    parameters: tuple[Annotated[str, field.Pattern(r"^[A-Za-z0-9_]+$")], ...] = ()
    labels: Annotated[str, field.Options("given", "read")] | None = None
    assumed: field.Several[Annotated[str, field.Options(*words.ASSUMED)]] = ()
    functions: field.Several[StepTitle] = ()
    feature_seed: Annotated[int, field.Range(0)] | None = None
    periods: field.Several[Period] = ()
    learned: field.Several[StepTitle] = ()
    uncovered: field.Several[UncoveredCaveat] = ()
    cluster: Annotated[str, field.Pattern("^[a-z0-9+_-]{1,20}$")] | None = None

    def joined(self, before: Occasion) -> Occasion:
        """Return the facts of two fits on the same records together."""
        names = ("assumed", "functions", "periods", "learned", "uncovered")
        both: dict[str, Any] = {
            name: tuple(dict.fromkeys(getattr(before, name) + getattr(self, name)))
            for name in names
        }
        labels = "read" if "read" in (before.labels, self.labels) else self.labels
        return replace(self, labels=labels, cluster=before.cluster or self.cluster, **both)


@dataclass(frozen=True, kw_only=True)
class Statement(Record):
    """Privacy statement of a release. Print it as text; ``to_json`` is the certificate."""

    tag_field: ClassVar[str] = "format"
    VERSION: ClassVar[int] = 5
    DERIVED: ClassVar[tuple[str, ...]] = ("private",)
    # Texts that differ between kinds: the title, what is called private or not, and
    # whose noise is meant; the proof, where it is the same for all; how to check the numbers.
    TITLE: ClassVar[str] = "Privacy statement"
    SUBJECT: ClassVar[str] = "release"
    NOISE: ClassVar[str] = "Its noise"
    PROOF: ClassVar[str] = ""
    CHECK: ClassVar[str] = render.CHECK

    epsilon: field.Epsilon
    delta: field.Delta
    adjacency: field.Adjacency
    library_version: field.Text

    if TYPE_CHECKING:

        @property
        def unit(self) -> str:
            """Unit of the neighbouring relation."""

        @property
        def not_private_reasons(self) -> tuple[str, ...]:
            """Reasons why the guarantee does not hold; empty if it does."""

        @property
        def assumed_public(self) -> tuple[str, ...]:
            """Assumptions of the guarantee."""

        @property
        def sections(self) -> render.Sections:
            """Sections of this kind of statement, before those that all have."""

        def promise(self, bound: str) -> str:
            """Return the guarantee in a few sentences; ``bound`` ends the first."""

    @property
    def theorem(self) -> str:
        """Proof pages of the guarantee."""
        return self.PROOF

    @property
    def inside(self) -> tuple[tuple[str, Statement], ...]:
        """The statements that this one is about, each with the name of its step."""
        return ()

    @property
    def events(self) -> Events:
        """Events that a ledger is charged: here those of all statements inside."""
        return tuple(event for _, inner in self.inside for event in inner.events)

    @property
    def protected(self) -> str:
        """Unit by which neighbouring data sets differ, as text; the same in every step."""
        return self.inside[0][1].protected

    @property
    def uncovered(self) -> tuple[str, ...]:
        """Names of the caveats."""
        return tuple(dict.fromkeys(name for _, inner in self.inside for name in inner.uncovered))

    @property
    def difference(self) -> str:
        """Difference between neighbouring data sets."""
        how = "adding or removing" if self.adjacency == "add_remove" else "replacing"
        return f"by {how} {self.protected}"

    @property
    def caveats(self) -> tuple[str, ...]:
        """Sentences on what the guarantee does not cover."""
        return tuple(words.CAVEATS[name] for name in self.uncovered)

    @property
    def private(self) -> bool:
        """Whether the guarantee holds: nothing voids it."""
        return not self.not_private_reasons

    def __str__(self) -> str:
        return render.page(self)

    def _repr_html_(self) -> str:
        """Return prose for notebooks."""
        return render.notebook(str(self))

    def for_group(
        self, size: int, *, delta: float | None = None, epsilon: float | None = None
    ) -> tuple[float, float]:
        """Return the epsilon and delta of a person who owns several units.

        Parameters
        ----------
        size : int in 1..2**20
            Largest number of rows, or of other protected units, of one person. In federated
            training with ``unit="person"``: the number of parties with rows of that person.
        delta : float in [0, 1), optional
            The delta at which epsilon is asked for; that of the statement when left out.
        epsilon : float >= 0, optional
            Given instead, the answer is the delta at it.

        Returns
        -------
        epsilon, delta : float
            Upper bounds, exact for Gaussian, sampled and pure releases. For noise in an objective
            they are the least that follows from the law of one unit, itself an upper bound, within
            0.2 % of epsilon for up to ten units. Epsilon is infinite where no bound holds at that
            delta, for noise in an objective from several hundred on.

        Raises
        ------
        TypeError, InvalidParameterError
            An argument of another type or outside its range, or both delta and epsilon.

        Notes
        -----
        Guarantees: docs/proofs/accountant.md, section "Groups of records". Noise stays as it is:
        this is the price of noise that was made for one row.

        Examples
        --------
        >>> from dpsvm_fast import PrivateCenter
        >>> statement = PrivateCenter(epsilon=1.0, delta=1e-5).fit([[0.6, 0.8], [0, 1]]).privacy_
        >>> [round(value, 5) for value in statement.for_group(10)]
        [14.42927, 1e-05]
        """
        if epsilon is not None and delta is not None:
            raise InvalidParameterError("epsilon: expected exactly one of epsilon and delta")
        # Certificates are read and verified without the accountant; only this call loads it.
        price = import_module(ACCOUNTANT)
        if epsilon is not None:
            return epsilon, price.composed_delta(self.events, epsilon, group_size=size)
        delta = self.delta if delta is None else delta
        return price.composed_epsilon(self.events, delta, group_size=size), delta

    @classmethod
    def from_dict(cls: type[Kind], record: Mapping[str, Any]) -> Kind:
        """Read what ``to_dict`` wrote.

        Raises
        ------
        TypeError, InvalidParameterError
            Another format or version, missing or unknown fields, a field outside its range, or
            words that do not follow from the other fields.
        """
        statement: Any = cls.read(record)
        for problem in statement.word_problems(record):
            raise InvalidParameterError(problem)
        found: Kind = statement
        return found

    def derived_problems(self, record: Mapping[str, Any]) -> list[str]:
        """Return nothing: a certificate is read whatever its words say; they are checked later."""
        return []

    def word_problems(self, record: Mapping[str, Any]) -> list[str]:
        """Say which words of a record do not follow.

        Parameters
        ----------
        record : mapping
            What this statement was read from.
        """
        return super().derived_problems(record)


@dataclass(frozen=True, kw_only=True)
class ReleaseStatement(Statement):
    """Base of the statements of one fit and of one search."""

    DERIVED: ClassVar[tuple[str, ...]] = (
        *("private", "protected", "assumed_public", "caveats", "not_private_reasons"),
    )

    occasion: Occasion
    random_source: Source = "operating_system"
    unit: Annotated[str, field.Options(*words.UNITS[:2])] = "row"

    @property
    def protected(self) -> str:
        """Unit by which neighbouring data sets differ, as text."""
        return words.PROTECTED[self.unit]

    @property
    def assumed_public(self) -> tuple[str, ...]:
        """Facts that the guarantee assumes to be public or chosen without the data."""
        facts = self.occasion
        names = f" ({', '.join(facts.parameters)})" if facts.parameters else ""
        counted = self.adjacency == "replace_one"
        found = [words.PARAMETERS.format(parameter=facts.parameter, names=names), words.FEATURES]
        if counted:
            found.append(words.ROWS if self.unit == "row" else words.PERSONS)
        if facts.labels is not None:
            found.append(words.CLASSES_GIVEN if facts.labels == "given" else words.CLASSES_READ)
        if facts.parameter == "model":
            found.append(words.EVALUATED)
        found += [words.FUNCTION.format(step=step) for step in facts.functions]
        found += [words.ASSUMED[name] for name in facts.assumed]
        if facts.feature_seed is not None:
            found.append(words.RANDOM_FEATURES.format(seed=facts.feature_seed))
        if facts.periods:
            text = words.PERIODS.format(periods=", ".join(facts.periods))
            found.append(text + (words.SAME_PERIOD if counted else ""))
        return tuple(found)

    @property
    def caveats(self) -> tuple[str, ...]:
        """Sentences on what the guarantee does not cover."""
        protocol = self.occasion.cluster
        return tuple(words.CAVEATS[name].format(protocol=protocol) for name in self.uncovered)

    @property
    def uncovered(self) -> tuple[str, ...]:
        """Names of the caveats."""
        clusters = () if self.occasion.cluster is None else ("cluster",)
        return tuple(dict.fromkeys((*self._follows(), *self.occasion.uncovered, *clusters)))

    def _follows(self) -> tuple[str, ...]:
        """Return the names of the caveats that follow from the numbers."""
        raise NotImplementedError

    @property
    def not_private_reasons(self) -> tuple[str, ...]:
        """Reasons why the guarantee does not hold; empty if it does."""
        return (
            *(words.CLASSES_REASON,) * (self.occasion.labels == "read"),
            *(words.SEED_REASON,) * (self.random_source == "seed"),
            *(f"{step} {words.LEARNED_REASON}" for step in self.occasion.learned),
        )

    def in_private(self: Self) -> Self:
        """Return the statement without the reasons why it is not private."""
        labels = self.occasion.labels and "given"
        occasion = replace(self.occasion, labels=labels, learned=())
        return replace(self, occasion=occasion, random_source="operating_system")


@dataclass(frozen=True, kw_only=True)
class PrivacyStatement(ReleaseStatement):
    """Privacy statement of one fit. Print it as text; ``to_json`` is the certificate.

    Parameters
    ----------
    epsilon : float in (0, 1e4]
    delta : float in [0, 1)
    adjacency : {"add_remove", "replace_one"}
    library_version : str
    occasion : Occasion
        Facts on which the promise rests, apart from the numbers.
    random_source : {"operating_system", "seed"}
    unit : {"row", "person"}
        What neighbouring data sets differ in: one row, or all rows of one person.
    mechanism : str
        Name of the mechanism, for example ``"output_perturbation"``.
    loss : str
    sensitivity, noise : Sensitivity, Noise or None
        About noise added to weights; both None where all noise is that of ``parts``.
    objective : ObjectiveNoise or None
        The noise inside the objective, where there is one; then ``sensitivity`` and ``noise`` are
        about the noise added to the weights, and ``epsilon`` and ``delta`` are of both together.
    descent : Descent or None
        The run of projected SGD whose iterate was released; then ``sensitivity.exact`` is about
        that iterate, and ``sensitivity.solver_radius`` bounds its rounding errors.
    parts : tuple of ReleasePart
        The noisy sums over the records that the release is made of, in their order. ``epsilon``
        and ``delta`` are of everything together.
    reserved : tuple of ReleasePart
        Noisy sums that were paid for and not taken, as a released number decided.

    Raises
    ------
    TypeError, InvalidParameterError
        A field of another type or outside its range; minimisers said to coincide without noise in
        the objective; no noise at all; delta = 0 with Gaussian noise.

    Notes
    -----
    Guarantees: none by itself. A statement made by this library holds for the release it came
    with; one from elsewhere claims something that ``verify`` checks for consistency only.
    """

    tag: ClassVar[str] = "dpsvm_fast.certificate"
    DERIVED: ClassVar[tuple[str, ...]] = (*ReleaseStatement.DERIVED, "theorem", "events")

    mechanism: Annotated[str, field.Options(*words.MECHANISMS)]
    loss: Annotated[str, field.Options(*words.LOSSES, "none")]
    sensitivity: Annotated[Sensitivity | None, field.OmitIfDefault()] = None
    noise: Annotated[Noise | None, field.OmitIfDefault()] = None
    objective: Annotated[ObjectiveNoise | None, field.OmitIfDefault()] = None
    descent: Annotated[Descent | None, field.OmitIfDefault()] = None
    parts: field.Several[ReleasePart] = ()
    reserved: field.Several[ReleasePart] = ()

    def _rules(self) -> Iterator[tuple[object, str]]:
        """Check that noise, sums and labels belong together."""
        apart = (self.sensitivity is None) != (self.noise is None)
        yield apart, "noise: must be given together with a sensitivity"
        noiseless = self.noise is None and (self.objective or self.descent)
        yield noiseless, "noise: required with objective or descent"
        unmoved = self.sensitivity is not None and self.sensitivity.exact == 0.0
        without = unmoved and self.objective is None
        yield without, "exact: got 0.0, expected a number > 0 without objective"
        noises = [part for part in (self.noise, self.objective, *self.parts) if part is not None]
        yield not noises, "parts: a statement needs at least one noise source"
        pure = self.delta == 0.0 and any(part.distribution == "gaussian" for part in noises)
        yield pure, "delta: got 0.0, expected a number > 0 with Gaussian noise"
        of_rows = self.objective is not None and self.objective.jacobian is None
        unit = "unit: expected 'row' with these releases, whose sensitivity is that of one row"
        yield self.unit == "person" and of_rows, unit
        for part in (*self.parts, *self.reserved):
            what = words.summed(part.name, self.adjacency, self.mechanism)
            # Clipped gradients have two texts.
            accepted = (what, words.CALIBRATED) if what == words.CLIPPED else (what,)
            if part.what not in accepted:
                raise InvalidParameterError.of("what", got=part.what, accepted=repr(what))
        labelled = self.loss != "none" or self.occasion.parameter == "model"
        lost = labelled != (self.occasion.labels is not None)
        yield lost, "labels: expected if and only if there is a loss"

    @property
    def events(self) -> Events:
        """Events for a ledger: of the sums, the objective, the weights and the reserve."""
        found = tuple(part.event(self.adjacency) for part in self.parts)
        if self.objective is not None:
            found += (self.objective.event(self.adjacency),)
        if self.noise is not None and self.sensitivity is not None:
            found += self.noise.events(self.sensitivity.total, self.adjacency)
        return found + tuple(part.event(self.adjacency) for part in self.reserved)

    @property
    def protected(self) -> str:
        """Unit by which neighbouring data sets differ, as text."""
        evaluated = self.mechanism == "private_evaluation" and self.unit == "row"
        return words.PROTECTED["evaluated row" if evaluated else self.unit]

    @property
    def theorem(self) -> str:
        """Citation and proof page of the guarantee."""
        return words.theorem_of(self)

    def _follows(self) -> tuple[str, ...]:
        noises = (self.noise, self.objective, *self.parts, *self.reserved)
        inexact = any(part is not None and part.sampler == "floating_point" for part in noises)
        minimised = self.noise is not None and self.descent is None
        bounded = any(part.last_iterate is not None for part in self.parts)
        return (
            "running_time",
            *("precision",) * (minimised and self.loss != "crammer_singer"),
            *("floating_point",) * inexact,
            *("max_samples",) * (bounded and self.adjacency == "add_remove"),
        )

    @property
    def sections(self) -> render.Sections:
        """Derivation of the numbers."""
        return (("How it follows", render.derivation_of_fit(self)),)

    def promise(self, bound: str) -> str:
        """Return the guarantee in a few sentences."""
        return render.promise_of_fit(self, bound)


# Guarantee of a model trained across parties, and whom it trusts.


# A larger epsilon of one party's messages is not stated.
MAX_LOCAL = 200.0

PARTY, ROW = field.Unit("party"), field.Unit("row")
Parties = Annotated[int, field.Range(1, MAX_PARTIES), PARTY]
Rows = Annotated[int, field.Range(1, MAX_NUMBERS), ROW]


@dataclass(frozen=True, kw_only=True)
class FederatedStatement(Statement):
    """Privacy statement of federated training. Print it; ``to_json`` is the certificate.

    Parameters
    ----------
    epsilon : float in (0, 1e4]
    delta : float in (0, 1)
        Delta of everything together, against an observer of the opened sums.
    adjacency : {"replace_one"}
    library_version : str
    algorithm : {"dp_helmet", "fed_dpdr"}
        Which training: one sum of models, or matrices before models.
    loss : str
    unit : {"row", "person", "party"}
        Data sets that differ in one row; in all rows that one person has at one party, whatever
        their numbers; or in all rows of one party. The number of rows of each party stays the same,
        or of persons where those are protected.
    n_users : int in 1..2**18
        U: how many parties take part.
    honest_fraction : float in (0, 1]
        t: share of the parties that are honest; their number is at least ``ceil(t U)``.
    max_dropout : float in [0, 1)
        Share of the parties that may drop out.
    min_survivors : int
        Below this many parties the sum is never opened.
    honest_survivors : int
        ``min_survivors - (U - ceil(t U))``: honest parties whose noise is in every opened sum.
    threshold : int or None
        How many parties together can open the secure sum; None for a trusted curator.
    trust : {"secure_sum", "trusted_curator"}
        Who adds up: a cryptographic protocol, or a trusted curator.
    sensitivity : Sensitivity or None
        Sensitivity of one party's weighted model to one row or person, if models were summed up
        with noise. ``C`` is ``1 / regularization`` with weighting by records and ``1 / (min_records
        * regularization)`` with equal weights; ``solver_radius`` contains the weight.
    n_scores : int or None
        Number of score functions of a model that was summed up with noise.
    weighting : {"records", "users"}
        "records" weights a party's model by its number of rows, or of persons; "users" weights all
        equally.
    regularization : float > 0 or None
        Lambda, the same for all parties, of the mean of losses.
    radius : float > 0 or None
        Bound of the norm of a party's whole model, to which it is projected.
    min_records, max_records : int or None
        Bounds of the number of rows or persons of one party, public and checked by each of them.
    rounds : tuple of SecureRound
        Sums over parties with noise, in their order.
    local_events : tuple of PrivacyEvent
        Releases of parties with their own noise, of the party where they cost most.
    local_epsilon : float > 0 or None
        Epsilon, at the same delta, against an observer of what a single party sent. None without
        rounds, and where it would be above 200, which guarantees nothing.
    random_source : {"operating_system", "seed"}

    Raises
    ------
    TypeError, InvalidParameterError
        A field of another type or outside its range; noise of no kind.

    Notes
    -----
    Guarantees: none by itself, like a :class:`PrivacyStatement`.
    """

    tag: ClassVar[str] = "dpsvm_fast.federated_certificate"
    TITLE: ClassVar[str] = "Privacy statement of federated training"
    SUBJECT: ClassVar[str] = "training"
    DERIVED: ClassVar[tuple[str, ...]] = (*ReleaseStatement.DERIVED, "theorem")

    algorithm: Annotated[str, field.Options("dp_helmet", "fed_dpdr")]
    loss: Annotated[str, field.Options(*words.LOSSES)]
    unit: Annotated[str, field.Options(*words.UNITS)]
    n_users: Parties
    honest_fraction: Annotated[field.Share, field.Unit("share")]
    max_dropout: Annotated[float, field.Range(0.0, 1.0, open_high=True), field.Unit("share")]
    min_survivors: Parties
    honest_survivors: Parties
    threshold: Parties | None
    trust: Annotated[str, field.Options("secure_sum", "trusted_curator")]
    sensitivity: Sensitivity | None
    n_scores: Annotated[int, field.Range(1, MAX_NUMBERS), field.COUNT] | None
    weighting: Annotated[str, field.Options("records", "users")]
    regularization: Annotated[field.Positive, field.Unit("1 / weight^2")] | None
    radius: Annotated[field.Positive, WEIGHT] | None
    min_records: Rows | None
    max_records: Rows | None
    rounds: tuple[SecureRound, ...]
    local_events: Events
    delta: field.OpenProbability
    local_epsilon: (
        Annotated[float, field.Range(0.0, MAX_LOCAL, open_low=True), field.PRIVACY_LOSS] | None
    )
    random_source: Source = "operating_system"
    adjacency: Annotated[str, field.Options(ADJACENCY)] = ADJACENCY

    def _rules(self) -> Iterator[tuple[object, str]]:
        """Check that trust, sums and events belong together."""
        trusted, moved = self.trust == "trusted_curator", self.sensitivity is not None
        opened = (self.threshold is None) != trusted
        yield opened, "threshold: expected if and only if trust is 'secure_sum'"
        alone = self.local_epsilon is not None and not self.rounds
        yield alone, "local_epsilon: expected None without rounds"
        of_model = any(part.name == "model" for part in self.rounds)
        yield of_model != moved, "sensitivity: expected if and only if there is a round 'model'"
        scored = (self.n_scores is not None) != moved
        yield scored, "n_scores: must be given together with a sensitivity"
        yield not self.events, "rounds: expected at least one, or local_events"
        # Also check that both kinds of events can be computed.
        check_relation("events", (*self.events, *self.sent_events), self.adjacency)
        for part in self.rounds:
            what = words.summed_over_parties(part.name, self.weighting)
            if part.what != what:
                raise InvalidParameterError.of("what", got=part.what, accepted=repr(what))

    @property
    def assumed_public(self) -> tuple[str, ...]:
        """Facts that the guarantee assumes to be public or chosen without the data."""
        counted = "person" if self.unit == "person" else "row"
        return tuple(line.format(unit=counted) for line in words.AGREED)

    @property
    def uncovered(self) -> tuple[str, ...]:
        """Names of the caveats."""
        secure = self.trust == "secure_sum"
        return (
            *(("passive_server", "computational") if secure else ("trusted_curator",)),
            "honest_parties",
            *("sizes_of_parties",) * (self.weighting == "records"),
            *("aborts", "time_of_parties"),
        )

    @property
    def not_private_reasons(self) -> tuple[str, ...]:
        """Reasons why the guarantee does not hold; empty if it does."""
        return (words.SEED_REASON,) * (self.random_source == "seed")

    def in_private(self) -> FederatedStatement:
        """Return the statement without the reasons why it is not private."""
        return replace(self, random_source="operating_system")

    @property
    def events(self) -> tuple[PrivacyEvent, ...]:
        """Events that the whole training charges to a ledger."""
        summed = tuple(event for part in self.rounds for event in part.events)
        return (*summed, *self.local_events)

    @property
    def sent_events(self) -> tuple[PrivacyEvent, ...]:
        """Events of the messages of one party, if no secure sum hides them."""
        return (*(part.local_event for part in self.rounds), *self.local_events)

    @property
    def protected(self) -> str:
        """Unit of privacy, as text."""
        return words.PROTECTED["person at a party" if self.unit == "person" else self.unit]

    @property
    def theorem(self) -> str:
        """Citation and proof page of the guarantee."""
        found = words.FEDERATED_OBJECTIVE if self.sensitivity is None else words.FEDERATED_MODEL
        return found + words.PERSON_PAGE * (self.unit == "person")

    @property
    def difference(self) -> str:
        """Difference between neighbouring data sets."""
        return words.FEDERATED_DIFFERENCE[self.unit]

    @property
    def sections(self) -> render.Sections:
        """Trust, and derivation of the numbers."""
        return (
            ("Trust", render.trust(self)),
            ("How it follows", render.secure_sum_derivation(self)),
        )

    def promise(self, bound: str) -> str:
        """Return the guarantee in a few sentences."""
        return render.federated_promise(self, bound)


# Guarantee of a search over parameters: all its fits, the choice and the refit together.


STRATEGIES = ("partition", "random_stopping")
# How one of several scores is chosen, and how one score is made noisy.
CHOICES = ("permute_and_flip", "exponential")

NOISY_SCORES = ("discrete_laplace", "gaussian_on_grid")


@dataclass(frozen=True, kw_only=True)
class SelectionNoise(Record):
    r"""Randomness of the choice among scored candidates.

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

    mechanism: Annotated[str, field.Options(*CHOICES, *NOISY_SCORES)]
    sensitivity: Annotated[int, field.Range(1, 2**31), SCORE]
    relation_factor: Annotated[int, field.Range(1, 2)]
    rate: Annotated[field.Positive, field.Unit("1 / score")] | None = None
    sigma: Annotated[field.Positive, SCORE] | None = None

    def _rules(self) -> Iterator[tuple[object, str]]:
        """Check that the scale is that of the mechanism."""
        other = (self.rate is None, self.sigma is None) != (self.gaussian, not self.gaussian)
        name = "sigma" if self.gaussian else "rate"
        yield other, f"{name}: expected only with {self.mechanism!r}"

    @property
    def gaussian(self) -> bool:
        """Whether the noise is Gaussian."""
        return self.mechanism == "gaussian_on_grid"

    def event(self, adjacency: str) -> PrivacyEvent:
        """Return the event of scoring, charged to the scored records."""
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
class Stopping(Record):
    """Distribution of the number of runs, which stays secret.

    Parameters
    ----------
    law : {"geometric", "logarithmic", "poisson"}
        Law of the number of runs.
    mean : float
        Mean number of runs.
    """

    law: Annotated[str, field.Options(*STOPPING_LAWS)]
    mean: Annotated[field.Positive, field.COUNT]


@dataclass(frozen=True, kw_only=True)
class SelectionStatement(ReleaseStatement):
    r"""Privacy statement of a search: the choice and the released model together.

    Parameters
    ----------
    epsilon : float in (0, 1e4]
    delta : float in [0, 1)
    adjacency : {"add_remove", "replace_one"}
    library_version : str
    occasion : Occasion
        Facts on which the promise rests, apart from the numbers.
    random_source : {"operating_system", "seed"}
    unit : {"row", "person"}
        What neighbouring data sets differ in.
    strategy : {"partition", "random_stopping"}
        One part of the records for each candidate and one to choose by; or the best of a random
        number of runs, each with a random candidate on all records.
    candidates : tuple of str
        Public parameters of each, as text.
    branches : tuple of tuple of PrivacyEvent
        What one fit of each candidate costs the records it is trained on.
    selection : SelectionNoise
        Randomness of the choice among the candidates.
    stopping : Stopping or None
        For ``"random_stopping"`` only.
    refit : tuple of PrivacyEvent
        What fitting the winner on all records costs, whichever it is; empty without a refit.

    Raises
    ------
    TypeError, InvalidParameterError
        A field of another type or outside its range; events of another relation; another number of
        branches than of candidates; a choice that does not belong to the strategy.

    Notes
    -----
    Guarantees: none by itself, like a :class:`PrivacyStatement`.
    """

    tag: ClassVar[str] = "dpsvm_fast.selection_certificate"
    TITLE: ClassVar[str] = "Privacy statement of a parameter search"
    SUBJECT: ClassVar[str] = "search"
    PROOF: ClassVar[str] = "docs/proofs/private_selection.md"
    CHECK: ClassVar[str] = ""

    strategy: Annotated[str, field.Options(*STRATEGIES)]
    candidates: Annotated[tuple[str, ...], field.Range(1)]
    branches: tuple[Events, ...]
    selection: SelectionNoise
    stopping: Stopping | None
    refit: Events

    def _rules(self) -> Iterator[tuple[object, str]]:
        """Check that noise and events are those of the strategy."""
        partition = self.strategy == "partition"
        other = partition != (self.stopping is None)
        yield other, "stopping: expected if and only if strategy is 'random_stopping'"
        check_option("selection", self.selection.mechanism, CHOICES if partition else NOISY_SCORES)
        n = len(self.branches)
        yield n != len(self.candidates), f"branches: got {n}, expected one for each candidate"
        check_relation("events", self.events, self.adjacency)

    @property
    def events(self) -> tuple[PrivacyEvent, ...]:
        """Events that the whole search charges to a ledger."""
        return selection_events(
            self.branches, self.selection, self.stopping, self.refit, self.adjacency
        )

    def _follows(self) -> tuple[str, ...]:
        partition = self.strategy == "partition"
        inexact = any(event.tag == "pure" for branch in self.branches for event in branch)
        return (
            *(("running_time", "empty_parts") if partition else ("number_of_runs",)),
            *("floating_point",) * inexact,
        )

    @property
    def sections(self) -> render.Sections:
        """Derivation of the numbers, and the candidates."""
        return (("How it follows", self._derivation()), ("Candidates", self.candidates))

    def promise(self, bound: str) -> str:
        """Return the guarantee in a few sentences."""
        return (
            "The search, that is the chosen parameters and the released model together, is "
            f"differentially private with {bound}. {render.STEPS_BEFORE}"
        )

    def _derivation(self) -> tuple[str, ...]:
        """Explain the budget of the search."""
        n, owner = len(self.candidates), "person" if self.unit == "person" else "record"
        if self.stopping is None:
            how = (
                f"each {owner} is in one of {n + 1} parts, drawn at random: one for each of {n} "
                "candidates and one to choose by. It pays for its own part only, so the search "
                "costs the most expensive part, not the sum"
            )
        else:
            how = (
                f"a secret random number of runs, {self.stopping.law} with mean "
                f"{self.stopping.mean:g}, each with one of {n} candidates drawn at random; the run "
                "with the best noisy score is released"
            )
        again = "the winner is fitted again on all records, at its own cost"
        return (how, str(self.selection), *((again,) if self.refit else ()))


def selection_events(
    branches: tuple[Events, ...],
    selection: SelectionNoise,
    stopping: Stopping | None,
    refit: Events,
    adjacency: str,
) -> tuple[PrivacyEvent, ...]:
    """Return a search as events: fits and choice, then the refit. Arguments as the fields."""
    chosen = selection.event(adjacency)
    if stopping is None:
        return (ParallelEvent((*branches, (chosen,)), adjacency), *refit)
    drawn = ParallelEvent(branches, adjacency)
    base = drawn.branches[0] if len(drawn.branches) == 1 else (drawn,)
    return (
        RandomStoppingEvent((*base, chosen), stopping.law, stopping.mean, adjacency),
        *refit,
    )


# Joint guarantee of several releases on the same private rows.


LEARNED_STEP = "was fitted on the rows without privacy and may reveal them"

PIPELINE = "dpsvm_fast.pipeline_certificate"


@dataclass(frozen=True, kw_only=True)
class PipelineStep(Record):
    """One step of a pipeline.

    Parameters
    ----------
    name : str
        Path of the step, such as ``outer__inner``.
    estimator : str
        Name of its class.
    statement : PrivacyStatement, SelectionStatement, FederatedStatement or None
        What its fit promised; None where it spent nothing.
    learned : bool, default=False
        Whether it learned from the rows without a promise.
    """

    name: field.Text
    estimator: field.Text
    statement: Annotated[Statement, field.Excluding((PIPELINE,))] | None = None
    learned: bool = False

    def _rules(self) -> Iterator[tuple[object, str]]:
        """Check that a step that learned without privacy has no statement."""
        both = self.learned and self.statement is not None
        yield both, "learned: a step with a statement cannot have learned without privacy"

    def __str__(self) -> str:
        if self.learned:
            spent = "learned from the rows without privacy"
        elif self.statement is None:
            spent = "learns nothing from the rows, costs nothing"
        else:
            spent = f"epsilon = {self.statement.epsilon:g}, delta = {self.statement.delta:g} alone"
        return f"{self.title}: {spent}"

    @property
    def title(self) -> str:
        """Name and class."""
        return f"{self.name!r} ({self.estimator})"


@dataclass(frozen=True, kw_only=True)
class PipelineStatement(Statement):
    """Privacy statement of a pipeline: the fits of all steps together.

    Parameters
    ----------
    epsilon : float >= 0
    delta : float in [0, 1)
    adjacency : {"add_remove", "replace_one"}
        Relation of every step.
    library_version : str
    steps : tuple of PipelineStep
        At least one of them with a statement.
    functions : tuple of str
        Steps whose function has to map every row by itself.

    Raises
    ------
    TypeError, InvalidParameterError
        A field of another type or outside its range; steps of another relation or with other
        records; no step with a statement.

    Notes
    -----
    Guarantees: none by itself, like a :class:`PrivacyStatement`.
    """

    tag: ClassVar[str] = PIPELINE
    TITLE: ClassVar[str] = "Privacy statement of a pipeline"
    SUBJECT: ClassVar[str] = "pipeline"
    NOISE: ClassVar[str] = "The noise of its private steps"
    PROOF: ClassVar[str] = (
        "docs/proofs/private_scaling.md, section Pipelines; docs/proofs/accountant.md"
    )
    DERIVED: ClassVar[tuple[str, ...]] = ("private", "assumptions")

    epsilon: Annotated[field.NonNegative, field.PRIVACY_LOSS]
    steps: Annotated[tuple[PipelineStep, ...], field.Range(1)]
    functions: field.Several[StepTitle] = ()

    def _rules(self) -> Iterator[tuple[object, str]]:
        """Check that statements can be composed."""
        yield not self.inside, "steps: at least one step needs a statement"
        for title, inner in self.inside:
            yield (
                inner.adjacency != self.adjacency,
                f"steps: {title} has adjacency {inner.adjacency!r}, expected {self.adjacency!r} in "
                "all steps; guarantees of different relations do not compose",
            )
        # A person at one party is less than a person.
        units = {inner.protected for _, inner in self.inside}
        yield len(units) > 1, "steps: all steps need the same unit of privacy"

    @property
    def unit(self) -> str:
        """Unit by which neighbouring data sets differ, the same in every step."""
        return self.inside[0][1].unit

    @property
    def inside(self) -> tuple[tuple[str, Statement], ...]:
        """Statements of the steps that have one, each with the name of its step."""
        return tuple((s.title, s.statement) for s in self.steps if s.statement is not None)

    @property
    def statements(self) -> tuple[Statement, ...]:
        """Statements of the steps that have one."""
        return tuple(statement for _, statement in self.inside)

    @property
    def not_private_reasons(self) -> tuple[str, ...]:
        """Reasons why the pipeline is not private; empty if it is."""
        reasons = [f"{step.title} {LEARNED_STEP}" for step in self.steps if step.learned]
        return (*reasons, *self._of_steps("not_private_reasons"))

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Assumptions of the composition, beyond those of the steps."""
        return (
            words.SAME_ROWS,
            words.STEPS_PUBLIC,
            *(words.FUNCTION.format(step=step) for step in self.functions),
        )

    @property
    def assumed_public(self) -> tuple[str, ...]:
        """Facts that the guarantee assumes to be public or chosen without the data."""
        return (*self.assumptions, *self._of_steps("assumed_public"))

    @property
    def caveats(self) -> tuple[str, ...]:
        """Sentences on what the guarantee does not cover."""
        return tuple(dict.fromkeys(text for s in self.statements for text in s.caveats))

    def _of_steps(self, name: str) -> tuple[str, ...]:
        """Return the texts of the steps' statements, each after the name of its step."""
        return tuple(
            f"{title}: {text}" for title, inner in self.inside for text in getattr(inner, name)
        )

    def word_problems(self, record: Mapping[str, Any]) -> list[str]:
        """Say which words of a record, and of the steps in it, do not follow."""
        found = super().word_problems(record)
        for step, written in zip(self.steps, record["steps"], strict=True):
            if step.statement is not None:
                inside = step.statement.word_problems(written["statement"])
                found += [f"{step.title}: {problem}" for problem in inside]
        return found

    @property
    def sections(self) -> render.Sections:
        """The steps."""
        return (("Steps", tuple(map(str, self.steps))),)

    def promise(self, bound: str) -> str:
        """Return the guarantee in a few sentences."""
        together = f"All fitted steps together are differentially private with {bound}."
        return f"{together} {render.odds(self.epsilon, self.delta)} {render.ALONE}"


# Certificates of every kind, read back as the statements that they were written from.


def read_certificate(certificate: Mapping[str, Any] | str | Statement) -> Statement:
    """Read a certificate of any kind as the statement that wrote it.

    Parameters
    ----------
    certificate : statement, dict or str
        As in `verify`. The fields are checked; whether the promise holds is not.

    Returns
    -------
    PrivacyStatement, PipelineStatement, SelectionStatement or FederatedStatement

    Raises
    ------
    InvalidParameterError, TypeError
        Not a certificate that this version reads.

    Examples
    --------
    >>> from dpsvm_fast import PrivateCenter
    >>> from dpsvm_fast.certificates import read_certificate
    >>> statement = PrivateCenter(epsilon=1.0, delta=1e-6).fit([[0.6, 0.8], [0.0, 1.0]]).privacy_
    >>> read_certificate(statement.to_json()) == statement
    True
    """
    statement, record, _ = read_unchecked(certificate)
    for problem in statement.word_problems(record):
        raise InvalidParameterError(problem)
    return statement


def read_unchecked(
    certificate: Mapping[str, Any] | str | Statement,
) -> tuple[Statement, Mapping[str, Any], Mapping[str, Any] | None]:
    """Read a certificate, whatever its words say.

    Returns
    -------
    tuple
        The statement, its record, and where the certificate names a model the record with both.
    """
    record: Any = certificate
    if isinstance(certificate, str):
        record = read_json(certificate)
    elif isinstance(certificate, Statement):
        record = certificate.to_dict()
    if isinstance(record, Mapping) and record.get("format") == BoundCertificate.tag:
        return BoundCertificate.read(record).certificate, record["certificate"], record
    return Statement.read(record), record, None


# Certificates together with the digest of the saved model that they are about.


HEX_DIGEST = field.Pattern("^[0-9a-f]{64}$")


@dataclass(frozen=True, kw_only=True)
class BoundCertificate(Record):
    """A certificate bound to a saved model by its digest, optionally signed.

    Parameters
    ----------
    certificate : Statement
        The certificate, of any kind.
    model_sha256 : str
        SHA-256 of the member model of the saved model: its class, parameters, numbers and
        certificate, as JSON with sorted names and no blanks.
    hmac_sha256 : str or None
        HMAC-SHA256 of the other members, as JSON with sorted names and no blanks; null where there
        was no key.
    """

    tag_field: ClassVar[str] = "format"
    tag: ClassVar[str] = "dpsvm_fast.bound_certificate"
    VERSION: ClassVar[int] = 1

    certificate: Statement
    model_sha256: Annotated[str, HEX_DIGEST]
    hmac_sha256: Annotated[str, HEX_DIGEST] | None = None


def canonical(contents: Mapping[str, Any]) -> bytes:
    """Return the bytes that are digested and signed, whatever the layout of the file."""
    text = json.dumps(contents, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.encode("ascii")


def digest_of(model: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the class, parameters, numbers and certificate of a model."""
    return hashlib.sha256(canonical(model)).hexdigest()


def bound_certificate(
    certificate: Mapping[str, Any], document: Mapping[str, Any], key: bytes | None = None
) -> dict[str, Any]:
    """Return a certificate with the digest of a saved model, signed if there is a key.

    Parameters
    ----------
    certificate : mapping
        As in ``to_dict``.
    document : mapping
        What the file of the model holds.
    key : bytes or None, default=None
        Secret of 16 bytes or more, for HMAC-SHA256.
    """
    record = {
        **BoundCertificate.head(),
        "certificate": dict(certificate),
        "model_sha256": digest_of(document["model"]),
    }
    return record | {"hmac_sha256": None if key is None else signature_of(record, key)}


def signature_of(record: Mapping[str, Any], key: bytes) -> str:
    """Return the HMAC-SHA256 of everything but the signature, in hexadecimal."""
    return hmac.new(key, canonical(record), hashlib.sha256).hexdigest()


# JSON Schemas of certificates: their fields, types, ranges, units and meanings.


DRAFT = "https://json-schema.org/draft/2020-12/schema"


def certificate_schema(format: str | None = None) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of certificates, complete in itself.

    Parameters
    ----------
    format : str or None, default=None
        Which kind: "dpsvm_fast.certificate", "dpsvm_fast.pipeline_certificate",
        "dpsvm_fast.selection_certificate", "dpsvm_fast.federated_certificate" or
        "dpsvm_fast.bound_certificate"; None for a schema that certificates of any kind satisfy.

    Returns
    -------
    dict
        A new copy, made from the classes. ``description`` and ``x-unit`` of every field are for
        people. Readers of this library are stricter in what the schema does not say: whole numbers
        are written without a point, and fields have to fit each other; that is what ``verify`` is
        for.

    Raises
    ------
    InvalidParameterError
        An unknown format.

    Examples
    --------
    >>> from dpsvm_fast.certificates import certificate_schema
    >>> schema = certificate_schema("dpsvm_fast.certificate")
    >>> schema["properties"]["delta"]["x-unit"]
    'probability'
    """
    known: dict[str, Any] = {}
    if format is None:
        whole: dict[str, Any] = {
            "title": "A certificate",
            "anyOf": [kind.refer(known) for kind in FORMATS.values()],
        }
    elif format in FORMATS:
        whole = definition_of(FORMATS[format], known)
    else:
        raise InvalidParameterError.of(
            "format", got=format, accepted="one of " + ", ".join(map(repr, FORMATS)) + " or None"
        )
    return {"$schema": DRAFT, **whole, "$defs": known}


# Every kind of certificate by its format.
FORMATS: dict[str, type[Record]] = {
    **Statement.members(),
    BoundCertificate.tag: BoundCertificate,
}
