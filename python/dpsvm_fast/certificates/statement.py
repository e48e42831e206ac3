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
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from importlib.resources import files
from typing import Any, ClassVar

from dpsvm_fast.certificates.events import (
    STOPPING_LAWS,
    GaussianEvent,
    ParallelEvent,
    PrivacyEvent,
    PureEvent,
    RandomStoppingEvent,
)
from dpsvm_fast.certificates.record import (
    Certificate,
    check_text,
    exactly,
    names_of,
    read_json,
    reader,
    store,
    store_all,
)
from dpsvm_fast.certificates.releases import (
    ADJACENCY,
    MOST_NUMBERS,
    MOST_PARTIES,
    Descent,
    LastIterate,
    Noise,
    ObjectiveNoise,
    ReleasePart,
    SecureRound,
    Sensitivity,
)
from dpsvm_fast.certificates.render import (
    ALONE,
    CHECK,
    STEPS_BEFORE,
    WIDTH,
    bullets,
    federated_prose,
    odds,
    paragraphs,
    prose,
)
from dpsvm_fast.certificates.words import (
    FLOATING_POINT_CAVEAT,
    UNIT,
    federated_theorem_of,
    federated_word_problems,
    pattern_of,
    pipeline_word_problems,
    schema_words,
    selection_word_problems,
    statement_word_problems,
    theorem_of,
)
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.rounding import fraction_up
from dpsvm_fast.validation import (
    check_adjacency,
    check_bool,
    check_delta,
    check_epsilon,
    check_fraction,
    check_integer,
    check_non_negative,
    check_option,
    check_positive,
    check_real,
)

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
            raise InvalidParameterError("parts: a statement needs at least one noise source")
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


# What a model trained across parties promises, and under which trust.


# A larger epsilon of what single parties sent is not worth a number.
MOST_LOCAL = 200.0

ALGORITHMS = ("dp_helmet", "fed_dpdr")

UNITS = ("record", "group", "user")

TRUSTS = ("secure_sum", "trusted_curator")

WEIGHTINGS = ("records", "users")

FEDERATED_OPTIONAL = ("threshold", "min_records", "max_records", "n_scores")

FEDERATED_TEXTS = ("assumed_public", "caveats", "not_private_reasons")

PASSIVE_CAVEAT = (
    "The server and the parties that work with it are assumed to follow the protocol, however much "
    "they look at. A server that deviates from it, for example one that tells parties of different "
    "survivors or sends forged public keys, is not covered."
)

HONEST_CAVEAT = (
    "A party counts as honest if it neither reveals nor uses its own noise. A party that looks at "
    "the model and knows its own noise sees the model with one noise less: it has to be counted "
    "among those that work with the server."
)

COMPUTATIONAL_CAVEAT = (
    "The privacy is computational: it holds for observers who cannot break the key agreement, the "
    "encryption and the masks of the secure sum. Their assumed advantage is part of delta. Whoever "
    "records the messages and breaks them later has the single parties' noisy models."
)

TRUSTED_CAVEAT = (
    "Whoever adds up sees the noisy contribution of every single party and is trusted not to look "
    "at them or pass them on. The stated epsilon and delta are about the sum alone."
)

ABORT_CAVEAT = (
    "Which parties took part, dropped out or refused, and when, is not covered: a party that fails "
    "because of what is in its data tells that by failing."
)

TIME_CAVEAT = (
    "How long a party computes depends on its data and is not covered: others see when its "
    "messages arrive."
)

SIZES_CAVEAT = (
    "How many rows a party has counts as public: data sets of the same sizes are compared. The "
    "number is not hidden by noise."
)


def caveats_of(trust: str, weighting: str) -> tuple[str, ...]:
    """Caveats that every statement of that kind must bring.

    Parameters
    ----------
    trust : {"secure_sum", "trusted_curator"}
    weighting : {"records", "users"}

    Returns
    -------
    tuple of str
    """
    sums = (PASSIVE_CAVEAT, COMPUTATIONAL_CAVEAT) if trust == "secure_sum" else (TRUSTED_CAVEAT,)
    sizes = (SIZES_CAVEAT,) if weighting == "records" else ()
    return (*sums, HONEST_CAVEAT, *sizes, ABORT_CAVEAT, TIME_CAVEAT)


@dataclass(frozen=True, kw_only=True)
class FederatedStatement(Certificate):
    """What training across parties promises. Printing it gives prose, ``to_json`` the certificate.

    Parameters
    ----------
    algorithm : {"dp_helmet", "fed_dpdr"}
    loss : str
    unit : {"record", "group", "user"}
        Data sets that differ in one row; in ``group_size`` rows, wherever they lie; or in all rows
        of one party. Numbers of rows stay the same.
    group_size : int in 1..2**40
        More than 1 for ``"group"`` alone.
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
        Who adds up: nobody alone, by cryptography; or somebody who is trusted.
    sensitivity : Sensitivity or None
        Of what one row changes in one party's weighted model, where a model was summed up with
        noise. ``C`` is ``1 / regularization`` with weighting by records and ``1 / (min_records *
        regularization)`` with equal weights; ``solver_radius`` contains the weight.
    n_scores : int or None
        Number of score functions of a model that was summed up with noise.
    weighting : {"records", "users"}
        Whether a party's model counts by its number of rows.
    regularization : float > 0 or None
        Lambda, the same for all parties, of the mean of losses.
    radius : float > 0 or None
        Bound of the norm of a party's whole model, to which it is projected.
    min_records, max_records : int or None
        Bounds of the number of rows of one party, public and checked by each of them.
    rounds : tuple of SecureRound
        Sums over parties with noise, in their order.
    local_events : tuple of PrivacyEvent
        What parties released with noise of their own, for the party where it costs most.
    epsilon : float in (0, 1e4]
    delta : float in (0, 1)
        Of everything together, for whoever sees the opened sums.
    local_epsilon : float > 0 or None
        Epsilon, at the same delta, for somebody who sees what a single party sent before it was
        added up. None without rounds, and where it would be above 200, which says nothing.
    assumed_public : tuple of str
        Settings on which the promise rests and which must not come from the data.
    caveats : tuple of str
        What the promise does not cover; those of ``caveats_of`` at least.
    library_version : str
    random_source : {"operating_system", "seed"}
    not_private_reasons : tuple of str
        Why the release is not private after all; empty when it is.
    adjacency : {"replace_one"}

    Raises
    ------
    TypeError, InvalidParameterError
        A field of another type or outside its range; noise of no kind; a seed without a reason;
        a caveat that is missing.

    Notes
    -----
    Guarantees: none by itself, like a :class:`PrivacyStatement`.
    """

    FORMAT: ClassVar[str] = "dpsvm_fast.federated_certificate"
    DERIVED: ClassVar[tuple[str, ...]] = ("private", "theorem")

    algorithm: str
    loss: str
    unit: str
    group_size: int = 1
    n_users: int
    honest_fraction: float
    max_dropout: float
    min_survivors: int
    honest_survivors: int
    threshold: int | None
    trust: str
    sensitivity: Sensitivity | None
    n_scores: int | None
    weighting: str
    regularization: float | None
    radius: float | None
    min_records: int | None
    max_records: int | None
    rounds: tuple[SecureRound, ...]
    local_events: tuple[PrivacyEvent, ...]
    epsilon: float
    delta: float
    local_epsilon: float | None
    assumed_public: tuple[str, ...]
    caveats: tuple[str, ...]
    library_version: str
    random_source: str = "operating_system"
    not_private_reasons: tuple[str, ...] = ()
    adjacency: str = ADJACENCY

    def __post_init__(self) -> None:
        """Check every field, and that nothing is hidden that belongs beside the numbers."""
        for name in ("loss", "library_version"):
            check_text(name, getattr(self, name))
        for name in FEDERATED_TEXTS:
            store_all(self, name, str)
            for text in getattr(self, name):
                check_text(name, text)
        store_all(self, "rounds", SecureRound)
        store_all(self, "local_events", PrivacyEvent)
        self._check_options()
        self._check_parties()
        self._check_promise()
        if not self.events:
            raise InvalidParameterError("rounds: expected at least one, or local_events")
        # Also that both can be made of the numbers.
        if any(e.adjacency != self.adjacency for e in (*self.events, *self.sent_events)):
            raise InvalidParameterError("events: expected those of one neighbouring relation")
        if self.random_source == "seed" and self.private:
            raise InvalidParameterError("not_private_reasons: a seeded release must say so")
        if set(caveats_of(self.trust, self.weighting)) - set(self.caveats):
            raise InvalidParameterError("caveats: expected those of caveats_of(trust, weighting)")

    def _check_options(self) -> None:
        """Check what has a list of values."""
        check_option("algorithm", self.algorithm, ALGORITHMS)
        check_option("unit", self.unit, UNITS)
        check_option("trust", self.trust, TRUSTS)
        check_option("weighting", self.weighting, WEIGHTINGS)
        check_option("adjacency", self.adjacency, (ADJACENCY,))
        check_option("random_source", self.random_source, ("operating_system", "seed"))

    def _check_parties(self) -> None:
        """Check numbers of parties and of rows."""
        for name in ("n_users", "min_survivors", "honest_survivors", "threshold"):
            _store_integer(self, name, MOST_PARTIES)
        for name in ("group_size", "min_records", "max_records", "n_scores"):
            _store_integer(self, name, MOST_NUMBERS)
        store(self, "honest_fraction", check_fraction("honest_fraction", self.honest_fraction))
        dropout = check_real("max_dropout", self.max_dropout, low=0.0, high=1.0, open_high=True)
        store(self, "max_dropout", dropout)
        if (self.threshold is None) != (self.trust == "trusted_curator"):
            raise InvalidParameterError("threshold: expected a number for 'secure_sum' alone")
        if (self.unit == "group") != (self.group_size > 1):
            raise InvalidParameterError("group_size: expected more than 1 for 'group' alone")

    def _check_promise(self) -> None:
        """Check the numbers of the guarantee and what they follow from."""
        store(self, "epsilon", check_epsilon(self.epsilon))
        delta = check_real("delta", self.delta, low=0.0, high=1.0, open_low=True, open_high=True)
        store(self, "delta", delta)
        for name in ("regularization", "radius"):
            if getattr(self, name) is not None:
                store(self, name, check_positive(name, getattr(self, name)))
        if self.local_epsilon is not None:
            if not self.rounds:
                raise InvalidParameterError("local_epsilon: expected None without rounds")
            local = self.local_epsilon
            local = check_real("local_epsilon", local, low=0.0, high=MOST_LOCAL, open_low=True)
            store(self, "local_epsilon", local)
        summed = [part.name for part in self.rounds]
        if self.sensitivity is not None and not isinstance(self.sensitivity, Sensitivity):
            kind = type(self.sensitivity).__name__
            raise TypeError(f"sensitivity: got {kind}, expected a Sensitivity or None")
        if ("model" in summed) != (self.sensitivity is not None):
            raise InvalidParameterError("sensitivity: expected one beside a round 'model' alone")
        if (self.n_scores is None) != (self.sensitivity is None):
            raise InvalidParameterError("n_scores: expected a number beside a sensitivity alone")

    @property
    def events(self) -> tuple[PrivacyEvent, ...]:
        """What the whole training charges to a ledger, at once."""
        summed = tuple(event for part in self.rounds for event in part.events)
        return (*summed, *self.local_events)

    @property
    def sent_events(self) -> tuple[PrivacyEvent, ...]:
        """What one party's messages cost, for somebody to whom no sum hides them."""
        return (*(part.local_event for part in self.rounds), *self.local_events)

    @property
    def protected(self) -> str:
        """What neighbours differ in, as other statements say it."""
        return {
            "record": "one row of the training data",
            "group": f"{self.group_size} rows of the training data",
            "user": "all rows of one party",
        }[self.unit]

    @property
    def theorem(self) -> str:
        """Citation and proof page of what the sums describe."""
        return federated_theorem_of(self)

    @property
    def private(self) -> bool:
        """Whether the promise holds."""
        return not self.not_private_reasons

    def _plain_fields(self) -> dict[str, Any]:
        record = {f.name: getattr(self, f.name) for f in fields(self)}
        for name in FEDERATED_TEXTS:
            record[name] = list(record[name])
        record["rounds"] = [dict(vars(part)) for part in self.rounds]
        record["local_events"] = [event.to_dict() for event in self.local_events]
        if self.sensitivity is not None:
            record["sensitivity"] = dict(vars(self.sensitivity))
        return record

    @classmethod
    def _of_fields(cls, values: dict[str, Any]) -> FederatedStatement:
        for name in (*FEDERATED_TEXTS, "rounds", "local_events"):
            if not isinstance(values[name], list):
                raise TypeError(f"{name}: expected a list")
        values["local_events"] = tuple(map(PrivacyEvent.from_dict, values["local_events"]))
        values["rounds"] = tuple(map(reader(SecureRound, "round"), values["rounds"]))
        if values["sensitivity"] is not None:
            values["sensitivity"] = reader(Sensitivity, "sensitivity")(values["sensitivity"])
        return cls(**values)

    def _own_word_problems(self, record: Mapping[str, Any]) -> list[str]:
        return federated_word_problems(self, caveats_of(self.trust, self.weighting))

    def __str__(self) -> str:
        return federated_prose(self)


def _store_integer(statement: FederatedStatement, name: str, most: int) -> None:
    """Keep a number of things, of which there is one at least, or None where that is allowed."""
    value = getattr(statement, name)
    if value is not None or name not in FEDERATED_OPTIONAL:
        store(statement, name, check_integer(name, value, 1, most))


# What a search over parameters promises: all its fits, the choice and the refit together.


SELECTION_PROOF = "docs/proofs/private_selection.md"

STRATEGIES = ("partition", "random_stopping")
# How one of several scores is chosen, and how one score is made noisy.
CHOICES = ("permute_and_flip", "exponential")

NOISY_SCORES = ("discrete_laplace", "gaussian_on_grid")

SELECTION_TEXTS = ("candidates", "assumed_public", "caveats", "not_private_reasons")

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
        for name in SELECTION_TEXTS:
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
        for name in SELECTION_TEXTS:
            record[name] = list(record[name])
        record["branches"] = [[event.to_dict() for event in branch] for branch in self.branches]
        record["refit"] = [event.to_dict() for event in self.refit]
        record["selection"] = dict(vars(self.selection))
        record["stopping"] = None if self.stopping is None else dict(vars(self.stopping))
        return record

    @classmethod
    def _of_fields(cls, values: dict[str, Any]) -> SelectionStatement:
        for name in (*SELECTION_TEXTS, "branches", "refit"):
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
        return "\n".join(
            [*lines, "", f"Proof: {SELECTION_PROOF}", f"dpsvm_fast {self.library_version}"]
        )

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
                f"search, are differentially private with {bound}. {STEPS_BEFORE}"
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


# What several releases on the same private rows promise together.


LEARNED_REASON = "was fitted on the rows without privacy; what it learned may repeat them"

StepStatement = PrivacyStatement | SelectionStatement | FederatedStatement

PIPELINE_PROOF = "docs/proofs/private_scaling.md, section Pipelines; docs/proofs/accountant.md"


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
    statement: StepStatement | None = None
    learned: bool = False

    def __post_init__(self) -> None:
        """Check every field, and that what is promised was not learned otherwise."""
        check_text("name", self.name)
        check_text("estimator", self.estimator)
        check_bool("learned", self.learned)
        if self.statement is not None and not isinstance(self.statement, StepStatement):
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
    def statements(self) -> tuple[StepStatement, ...]:
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
        return "\n".join([*lines, "", f"Proof: {PIPELINE_PROOF}", CHECK, version])

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


def _unit_of(statement: StepStatement) -> str:
    """What the data sets that a statement compares differ in."""
    if isinstance(statement, FederatedStatement):
        return statement.protected
    return statement.unit


def _statement_from(record: Any) -> StepStatement:
    """Read the statement of one step, of any format."""
    if isinstance(record, Mapping) and record.get("format") == SelectionStatement.FORMAT:
        return SelectionStatement.read(record)
    if isinstance(record, Mapping) and record.get("format") == FederatedStatement.FORMAT:
        return FederatedStatement.read(record)
    return PrivacyStatement.read(record)


# Certificates of every kind, read back as the statements that they were written from.


Statement = PrivacyStatement | PipelineStatement | SelectionStatement | FederatedStatement


def read_certificate(certificate: Mapping[str, Any] | str | Statement) -> Statement:
    """Read a certificate of any kind as the statement that it was written from.

    Parameters
    ----------
    certificate : statement, dict or str
        As of `verify`. The fields are checked; whether the promise holds is not.

    Returns
    -------
    PrivacyStatement, PipelineStatement, SelectionStatement or FederatedStatement

    Raises
    ------
    InvalidParameterError, TypeError
        It is no certificate that this release reads.

    Examples
    --------
    >>> from dpsvm_fast import PrivateCenter
    >>> from dpsvm_fast.certificates import read_certificate
    >>> statement = PrivateCenter(epsilon=1.0, delta=1e-6).fit([[0.6, 0.8], [0.0, 1.0]]).privacy_
    >>> read_certificate(statement.to_json()) == statement
    True
    """
    statement, record, _ = read_loosely(certificate)
    for problem in statement.word_problems(record):
        raise InvalidParameterError(problem)
    return statement


def read_loosely(
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
    record, bound = unbound(record)
    name = record.get("format") if isinstance(record, Mapping) else None
    others = (PipelineStatement, SelectionStatement, FederatedStatement)
    kinds: dict[Any, Any] = {kind.FORMAT: kind for kind in others}
    kind = kinds.get(name, PrivacyStatement) if isinstance(name, str) else PrivacyStatement
    return kind.read(record), record, bound


# Certificates together with the digest of the saved model that they are about.


BOUND = "dpsvm_fast.bound_certificate"

FIELDS = {"format", "version", "certificate", "model_sha256", "hmac_sha256"}


def canonical(contents: Mapping[str, Any]) -> bytes:
    """Return what is digested and signed: the same bytes however a file is laid out."""
    text = json.dumps(contents, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.encode("ascii")


def digest_of(model: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a model's class, parameters, numbers and certificate."""
    return hashlib.sha256(canonical(model)).hexdigest()


def bound_certificate(
    certificate: Mapping[str, Any], document: Mapping[str, Any], key: bytes | None = None
) -> dict[str, Any]:
    """Return a certificate together with the digest of a saved model, signed where there is a key.

    Parameters
    ----------
    certificate : mapping
        As of ``to_dict``.
    document : mapping
        What the file of the model holds.
    key : bytes or None, default=None
        Secret of 16 bytes or more, for HMAC-SHA256.
    """
    record: dict[str, Any] = {
        "format": BOUND,
        "version": 1,
        "certificate": dict(certificate),
        "model_sha256": digest_of(document["model"]),
    }
    return record | {"hmac_sha256": None if key is None else signature_of(record, key)}


def unbound(record: Any) -> tuple[Any, Mapping[str, Any] | None]:
    """Return the certificate of a record, and the record itself where it names a model.

    Raises
    ------
    TypeError, InvalidParameterError
        Missing or unknown fields, or another version.
    """
    if not isinstance(record, Mapping) or record.get("format") != BOUND:
        return record, None
    exactly("bound certificate", record, FIELDS)
    if type(record["version"]) is not int or record["version"] != 1:
        raise InvalidParameterError("version: expected 1 of a bound certificate")
    if not isinstance(record["model_sha256"], str):
        raise TypeError("model_sha256: expected a string")
    return record["certificate"], record


def signature_of(record: Mapping[str, Any], key: bytes) -> str:
    """Return the HMAC-SHA256 of everything but the signature, hexadecimal."""
    return hmac.new(key, canonical(record), hashlib.sha256).hexdigest()


# JSON Schemas of certificates: their fields, types, ranges, units and meanings.


WORDS = "words.v1"
# Format of a certificate -> file of its schema, and which other files that one refers to.
FORMATS: dict[str, tuple[str, tuple[str, ...]]] = {
    "dpsvm_fast.certificate": ("certificate.v1", ("event.v1", WORDS)),
    "dpsvm_fast.pipeline_certificate": (
        "pipeline_certificate.v1",
        (
            "certificate.v1",
            "selection_certificate.v1",
            "federated_certificate.v1",
            "event.v1",
            WORDS,
        ),
    ),
    "dpsvm_fast.selection_certificate": ("selection_certificate.v1", ("event.v1", WORDS)),
    "dpsvm_fast.federated_certificate": ("federated_certificate.v1", ("event.v1", WORDS)),
    "dpsvm_fast.bound_certificate": (
        "bound_certificate.v1",
        (
            *("certificate.v1", "pipeline_certificate.v1", "selection_certificate.v1"),
            *("federated_certificate.v1", "event.v1", WORDS),
        ),
    ),
}

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
        A new copy. ``description`` and ``x-unit`` of every field are for people. Readers of this
        library are stricter in what a schema cannot say: whole numbers are written without a
        point, and fields have to fit each other; that is what ``verify`` is for.

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
    if format is None:
        inside = [name for name, _ in FORMATS.values()]
        kinds = [{"$ref": _read(name)["$id"]} for name in inside]
        inside += ["event.v1", WORDS]
        whole: dict[str, Any] = {"$schema": DRAFT, "title": "A certificate", "oneOf": kinds}
    elif format in FORMATS:
        name, refers = FORMATS[format]
        whole, inside = _read(name), list(refers)
    else:
        raise InvalidParameterError.of(
            "format", got=format, accepted="one of " + ", ".join(map(repr, FORMATS)) + " or None"
        )
    # Found there by their own $id.
    bundled = {name: _read(name) for name in inside}
    return whole | {"$defs": whole.get("$defs", {}) | bundled}


def _read(name: str) -> dict[str, Any]:
    """One schema file of the package, or the words of all of them."""
    if name == WORDS:
        return _words()
    path = files("dpsvm_fast.certificates") / "schemas" / f"{name}.json"
    schema: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return schema


def _words() -> dict[str, Any]:
    """What words may say: sentences as they are, and patterns of those with free words inside."""
    both = [
        text for trust in ("secure_sum", "trusted_curator") for text in caveats_of(trust, "records")
    ]
    vocabulary = schema_words() | {"federated_caveat": tuple(dict.fromkeys(both))}
    found = {}
    for name, sentences in vocabulary.items():
        plain = [text for text in sentences if "{" not in text]
        holes = [{"pattern": f"^{pattern_of(text)}$"} for text in sentences if "{" in text]
        choice = {"enum": plain}
        found[name] = {"type": "string"} | ({"anyOf": [choice, *holes]} if holes else choice)
    title = "Words of certificates"
    return {"$schema": DRAFT, "$id": "urn:dpsvm_fast:words:1", "title": title, "$defs": found}
