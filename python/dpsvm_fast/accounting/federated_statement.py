"""What a model trained across parties promises, and under which trust."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from dpsvm_fast._validation import (
    check_epsilon,
    check_fraction,
    check_integer,
    check_option,
    check_positive,
    check_real,
)
from dpsvm_fast.accounting._certificate import Certificate, reader
from dpsvm_fast.accounting._federated_parts import (
    ADJACENCY,
    MOST_NUMBERS,
    MOST_PARTIES,
    SecureRound,
)
from dpsvm_fast.accounting._federated_prose import federated_prose
from dpsvm_fast.accounting._fields import check_text, store, store_all
from dpsvm_fast.accounting._parts import Sensitivity
from dpsvm_fast.accounting.events import PrivacyEvent
from dpsvm_fast.accounting.words import federated_theorem_of, federated_word_problems
from dpsvm_fast.exceptions import InvalidParameterError

__all__ = [
    "ABORT_CAVEAT",
    "COMPUTATIONAL_CAVEAT",
    "HONEST_CAVEAT",
    "PASSIVE_CAVEAT",
    "SIZES_CAVEAT",
    "TIME_CAVEAT",
    "TRUSTED_CAVEAT",
    "FederatedStatement",
    "caveats_of",
]


# A larger epsilon of what single parties sent is not worth a number.
MOST_LOCAL = 200.0
ALGORITHMS = ("dp_helmet", "fed_dpdr")
UNITS = ("record", "group", "user")
TRUSTS = ("secure_sum", "trusted_curator")
WEIGHTINGS = ("records", "users")
OPTIONAL = ("threshold", "min_records", "max_records", "n_scores")
TEXTS = ("assumed_public", "caveats", "not_private_reasons")

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
        for name in TEXTS:
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
        for name in TEXTS:
            record[name] = list(record[name])
        record["rounds"] = [dict(vars(part)) for part in self.rounds]
        record["local_events"] = [event.to_dict() for event in self.local_events]
        if self.sensitivity is not None:
            record["sensitivity"] = dict(vars(self.sensitivity))
        return record

    @classmethod
    def _of_fields(cls, values: dict[str, Any]) -> FederatedStatement:
        for name in (*TEXTS, "rounds", "local_events"):
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
    if value is not None or name not in OPTIONAL:
        store(statement, name, check_integer(name, value, 1, most))
