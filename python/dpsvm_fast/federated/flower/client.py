"""The client app of a party: its own specification, its own data, its own ledger."""

from __future__ import annotations

import hashlib
import logging
import os
import sys
import warnings
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common import (
    Code,
    FitRes,
    Status,
    ndarrays_to_parameters,
    parameters_to_ndarrays,
)
from flwr.compat.common import recorddict_compat
from numpy.typing import NDArray

from dpsvm_fast.exceptions import PartyRefusedError, PrivacyLeakWarning
from dpsvm_fast.federated.flower import protocol as stages
from dpsvm_fast.federated.flower.protocol import (
    ANOTHER_SPECIFICATION,
    ANSWERED_BEFORE,
    CLIENT,
    NO_CONTRIBUTION,
    NOT_HARDENED,
    OUT_OF_ORDER,
    REFUSALS,
    UNKNOWN_MESSAGE,
    WRONG_PARTIES,
    RoundTerms,
    check_hardened,
    forget_keys,
    harden,
    terms_of_rounds,
)
from dpsvm_fast.federated.local import local_update
from dpsvm_fast.federated.spec import FederatedSpec
from dpsvm_fast.ledger import PrivacyLedger

# Where a party writes down which rounds it has answered, so that it answers none twice.
#
# A vector that is in two sums of different parties is as good as public: the difference of the sums
# is a sum of few. So a party claims a round before it makes its vector, and a claim is never
# undone.


ANSWERED = "dpsvm_fast.answered"


class Journal(Protocol):
    """Rounds that were answered, by the specification's fingerprint."""

    def holds(self, digest: str, name: str) -> bool:
        """Tell whether the round was claimed."""

    def claim(self, digest: str, name: str) -> bool:
        """Claim the round; False, and nothing else, where it was claimed before."""


class ContextJournal:
    """In the state that Flower keeps for a party during one run.

    Another run begins with an empty one: its vector has noise of its own, and the ledger is
    charged again.
    """

    def __init__(self, context: Context) -> None:
        self._records = context.state.config_records

    def holds(self, digest: str, name: str) -> bool:
        """Tell whether the round was claimed in this run."""
        return ANSWERED in self._records and f"{digest} {name}" in self._records[ANSWERED]["rounds"]

    def claim(self, digest: str, name: str) -> bool:
        """Claim the round for this run."""
        if self.holds(digest, name):
            return False
        rounds = list(self._records[ANSWERED]["rounds"]) if ANSWERED in self._records else []
        self._records[ANSWERED] = ConfigRecord({"rounds": [*rounds, f"{digest} {name}"]})
        return True


class FileJournal:
    """In a directory of the party, for all runs, also for runs at the same time.

    To answer a round again, remove its file by hand.

    Parameters
    ----------
    directory : path
        Created with access for its owner alone.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._directory = Path(directory)

    def holds(self, digest: str, name: str) -> bool:
        """Tell whether the round was claimed in any run."""
        return self._entry(digest, name).exists()

    def claim(self, digest: str, name: str) -> bool:
        """Claim the round for all times; it is on the disk when this returns."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            # The file system lets one of several processes win.
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            handle = os.open(self._entry(digest, name), flags, 0o600)
        except FileExistsError:
            return False
        try:
            os.write(handle, f"{digest} {name}\n".encode())
            os.fsync(handle)
        finally:
            os.close(handle)
        _flush_directory(self._directory)
        return True

    def _entry(self, digest: str, name: str) -> Path:
        return self._directory / hashlib.sha256(f"{digest} {name}".encode()).hexdigest()


def _flush_directory(path: Path) -> None:
    """Make sure that the new name survives a crash, where the system can be asked to."""
    if os.name != "posix":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# What a party checks before it follows the server through the secure sum.
#
# Flower's client believes the server: ranges, thresholds, who takes part, who is gone. The guard
# stands before it and compares every message with the party's own copy of the terms. Whatever it
# refuses, it refuses in a constant text, and forgets the keys of the round.


TAG = "dpsvm_fast"

STATE = "dpsvm_fast.guard"

Handler = Callable[[Message, Context], Message]

_LOG = logging.getLogger("dpsvm_fast.federated")

_TERMS: ContextVar[RoundTerms | None] = ContextVar("dpsvm_fast_terms", default=None)


def current_terms() -> RoundTerms:
    """Terms of the vector that the guard has let somebody ask for.

    Raises
    ------
    PartyRefusedError
        Nobody has been let through: the message took another way to the party's records.
    """
    terms = _TERMS.get()
    if terms is None:
        raise PartyRefusedError(UNKNOWN_MESSAGE)
    return terms


def make_guard(
    terms_of: Callable[[Context], Mapping[str, RoundTerms]],
    journal_of: Callable[[Context], Journal],
) -> Callable[[Message, Context, Handler], Message]:
    """Make the modifier that stands before Flower's own.

    Parameters
    ----------
    terms_of : callable
        The party's own copy of the terms, by name of the round; called for every message.
    journal_of : callable
        Where the party writes down which rounds it has answered.

    Returns
    -------
    callable
        To be the first of a ``ClientApp``'s modifiers. All its errors are
        :class:`PartyRefusedError` with one of a few constant texts.
    """

    def guard(message: Message, context: Context, call_next: Handler) -> Message:
        try:
            return _guarded(message, context, call_next, terms_of(context), journal_of(context))
        except PartyRefusedError as refusal:
            text = str(refusal) if str(refusal) in REFUSALS else NO_CONTRIBUTION
        except Exception as error:
            text = NO_CONTRIBUTION
            _note(error)
        finally:
            forget_keys()
        _forget(context)
        _LOG.error("refused: %s", text)
        raise PartyRefusedError(text) from None

    return guard


def _guarded(
    message: Message,
    context: Context,
    call_next: Handler,
    own_terms: Mapping[str, RoundTerms],
    journal: Journal,
) -> Message:
    """Check a message, let it through, check the reply."""
    try:
        check_hardened()
    except Exception:
        raise PartyRefusedError(NOT_HARDENED) from None
    tag, configs, terms = _understood(message, context, own_terms)
    stage, own = configs["stage"], context.node_id
    seen = stages.Seen.read(context.state.config_records.get(STATE))
    if stage == stages.SETUP:
        if journal.holds(terms.digest, terms.name):
            raise PartyRefusedError(ANSWERED_BEFORE)
        # Keys of an earlier attempt must not survive into this one.
        _forget(context)
        seen = stages.Seen(session=tag["session"], round_name=terms.name, own=own)
    elif (seen.session, seen.round_name) != (tag["session"], terms.name):
        raise PartyRefusedError(OUT_OF_ORDER)
    if seen.stage != stages.BEFORE[stage]:
        raise PartyRefusedError(OUT_OF_ORDER)
    problem = stages.CHECKS[stage](configs, terms, seen)
    if problem is not None:
        raise PartyRefusedError(problem)
    # Before the vector is made: of two runs at the same time one gets it, and after a crash it
    # counts as sent.
    if stage == stages.COLLECT and not journal.claim(terms.digest, terms.name):
        raise PartyRefusedError(ANSWERED_BEFORE)
    seen.stage = stage
    reply = _passed_on(message, context, call_next, terms if stage == stages.COLLECT else None)
    _check_reply(reply, stage)
    context.state.config_records[STATE] = ConfigRecord(seen.write())
    if stage == stages.UNMASK:
        _forget(context)
    reply.content.config_records[TAG] = ConfigRecord(dict(tag))
    return reply


def _understood(
    message: Message, context: Context, own_terms: Mapping[str, RoundTerms]
) -> tuple[dict[str, str], Any, RoundTerms]:
    """What a message of the sum to this party says, and the terms that it is about."""
    # Flower's modifier lets any other type pass by, and ClientApp routes "train.default" to the
    # same handler as "train": its reply would be the vector without masks.
    if message.metadata.message_type != "train" or not message.has_content():
        raise PartyRefusedError(UNKNOWN_MESSAGE)
    tag, configs = _opened(message.content)
    terms = _agreed(tag, own_terms)
    if configs.get("stage") not in stages.CHECKS:
        raise PartyRefusedError(UNKNOWN_MESSAGE)
    if message.metadata.dst_node_id != context.node_id:
        raise PartyRefusedError(WRONG_PARTIES)
    return tag, configs, terms


def _opened(content: RecordDict) -> tuple[dict[str, str], Any]:
    """The two records that every message of the sum carries."""
    records = content.config_records
    if TAG not in records or stages.CONFIGS not in records:
        raise PartyRefusedError(UNKNOWN_MESSAGE)
    tag = dict(records.pop(TAG))
    if set(tag) != {"protocol", "digest", "round", "session"}:
        raise PartyRefusedError(UNKNOWN_MESSAGE)
    if not all(isinstance(value, str) for value in tag.values()):
        raise PartyRefusedError(UNKNOWN_MESSAGE)
    return tag, records[stages.CONFIGS]


def _agreed(tag: Mapping[str, str], own_terms: Mapping[str, RoundTerms]) -> RoundTerms:
    terms = own_terms.get(tag["round"])
    if terms is None or (terms.protocol, terms.digest) != (tag["protocol"], tag["digest"]):
        raise PartyRefusedError(ANOTHER_SPECIFICATION)
    return terms


def _passed_on(
    message: Message, context: Context, call_next: Handler, terms: RoundTerms | None
) -> Message:
    """Let Flower's modifier work, and the party's own function where a vector is due."""
    token = _TERMS.set(terms)
    try:
        return call_next(message, context)
    finally:
        _TERMS.reset(token)


def _check_reply(reply: Message, stage: str) -> None:
    """Nothing but the protocol's own fields may leave, above all no numbers beside the masks."""
    content = reply.content
    configs = set(content.config_records)
    if stage != stages.COLLECT:
        clean = configs == {stages.CONFIGS}
        clean = clean and not content.array_records and not content.metric_records
    else:
        metrics = {name: dict(record) for name, record in content.metric_records.items()}
        clean = configs == {stages.CONFIGS, "fitres.metrics", "fitres.status"}
        clean = clean and not content.config_records["fitres.metrics"]
        clean = clean and metrics == {"fitres.num_examples": {"num_examples": 1}}
        clean = clean and not any(len(record) for record in content.array_records.values())
    fields = set(content.config_records[stages.CONFIGS]) if clean else set()
    if fields != stages.REPLIES[stage]:
        raise PartyRefusedError(NO_CONTRIBUTION)


def _forget(context: Context) -> None:
    """Drop the keys and shares of a round; which rounds were answered is kept."""
    for name in (stages.STATE, STATE):
        if name in context.state.config_records:
            del context.state.config_records[name]


def _note(error: Exception) -> None:
    """Tell the party's own log what happened and where, without the text: it may quote records."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = "unknown" if trace is None else f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
    _LOG.error("%s at %s", type(error).__name__, place)


# The client of the secure sum: guard, Flower's hardened modifier, a function giving a vector.


# (context, terms of the round, public array that came with the request) -> vector.
Contribution = Callable[[Context, RoundTerms, NDArray[np.float64] | None], NDArray[np.int64]]


def make_party_app(
    terms_of: Callable[[Context], Mapping[str, RoundTerms]],
    contribute: Contribution,
    journal_of: Callable[[Context], Journal] = ContextJournal,
) -> Any:
    """Make the client of a party.

    Parameters
    ----------
    terms_of : callable
        The party's own terms, by name of the round.
    contribute : callable
        Makes the vector of a round; called once a round at most. Whatever it raises reaches
        nobody but the party.
    journal_of : callable
        Where answered rounds are written down.

    Returns
    -------
    flwr.clientapp.ClientApp

    Raises
    ------
    HardeningError
        Flower's secure aggregation cannot be made safe here.
    """
    harden()
    app = ClientApp()
    guard = make_guard(terms_of, journal_of)
    secure_aggregation = sys.modules[CLIENT].secaggplus_mod

    def train(message: Message, context: Context) -> Message:
        terms = current_terms()
        vector = checked_vector(contribute(context, terms, _public_array(message)), terms)
        answer = FitRes(
            status=Status(code=Code.OK, message=""),
            parameters=ndarrays_to_parameters([vector]),
            # The number of records is part of the vector, and known to nobody.
            num_examples=1,
            metrics={},
        )
        content = recorddict_compat.fitres_to_recorddict(answer, keep_input=False)
        return Message(content, reply_to=message)

    app.train(mods=[guard, secure_aggregation])(train)
    return app


def checked_vector(vector: object, terms: RoundTerms) -> NDArray[np.int64]:
    """A vector as agreed on.

    Raises
    ------
    PartyRefusedError
        Another type, another shape, numbers out of range; the text is constant.
    """
    if not isinstance(vector, np.ndarray) or vector.dtype != np.int64:
        raise PartyRefusedError(NO_CONTRIBUTION)
    if vector.shape != (terms.length,) or vector[-1] != 1:
        raise PartyRefusedError(NO_CONTRIBUTION)
    # Not through abs: the smallest integer has none.
    if (vector <= -terms.limit).any() or (vector >= terms.limit).any():
        raise PartyRefusedError(NO_CONTRIBUTION)
    return vector


def _public_array(message: Message) -> NDArray[np.float64] | None:
    """The one array that may come with a request."""
    instructions = recorddict_compat.recorddict_to_fitins(message.content, keep_input=True)
    arrays = parameters_to_ndarrays(instructions.parameters)
    if not arrays:
        return None
    if len(arrays) != 1 or arrays[0].dtype != np.float64 or not np.isfinite(arrays[0]).all():
        raise PartyRefusedError(NO_CONTRIBUTION)
    return np.asarray(arrays[0], dtype=np.float64)


UNCOUNTED = (
    "ledger: none given, and no journal; every run that the server starts is answered, at the full "
    "privacy cost each time. Give a ledger that is kept in a file, or a journal."
)

Place: TypeAlias = "str | os.PathLike[str]"


def make_client_app(
    spec: FederatedSpec | Callable[[Context], FederatedSpec],
    load_data: Callable[[Context], tuple[Any, Any]],
    *,
    ledger: PrivacyLedger | Callable[[Context], PrivacyLedger] | None = None,
    journal: Place | Callable[[Context], Place] | None = None,
) -> Any:
    """Make the client app with which a party takes part in a training.

    Parameters
    ----------
    spec : FederatedSpec or callable
        The party's own copy, or a function of Flower's context that reads it. A server with
        another one gets nothing.
    load_data : callable
        Takes Flower's context and returns the party's rows and labels.
    ledger : PrivacyLedger or callable or None, default=None
        The party's own, asked before data are loaded and charged before noise is drawn. One that is
        kept in a file (``PrivacyLedger(..., path=...)``), or a function that opens it: Flower may
        start a process for every message, and a ledger in memory begins anew with each.
    journal : path or callable or None, default=None
        Directory for what was answered, over all runs: every round of a specification is answered
        once. Without it, every run of the server is answered, with noise of its own.

    Returns
    -------
    flwr.clientapp.ClientApp

    Raises
    ------
    HardeningError
        Flower's secure aggregation cannot be made safe here.

    Warns
    -----
    PrivacyLeakWarning
        Neither a ledger nor a journal: a server that starts N runs is answered N times, and the
        statement of each speaks of one.

    Notes
    -----
    Guarantees: those of the run's statement, against a server and up to
    ``spec.counts.colluders`` other parties that follow the protocol and are curious. The server
    learns the sum of at least ``spec.survivors_needed`` vectors, who took part, and one of a few
    constant texts where a party does not go on. See ``docs/secure_summation.md``.
    """
    if ledger is None and journal is None:
        warnings.warn(UNCOUNTED, PrivacyLeakWarning, stacklevel=2)

    def terms_of(context: Context) -> Mapping[str, RoundTerms]:
        return terms_of_rounds(_made(spec, context))

    def journal_of(context: Context) -> Journal:
        if journal is None:
            return ContextJournal(context)
        return FileJournal(journal(context) if callable(journal) else journal)

    def contribute(
        context: Context, terms: RoundTerms, public: NDArray[np.float64] | None
    ) -> NDArray[np.int64]:
        agreed = _made(spec, context)
        own_ledger = ledger(context) if callable(ledger) else ledger
        if own_ledger is not None:
            own_ledger.check(agreed.round(terms.name).events("secure_sum"))
        X, y = load_data(context)
        update = local_update(X, y, agreed, terms.name, public=public, ledger=own_ledger)
        return update.vector

    return make_party_app(terms_of, contribute, journal_of)


def _made(
    spec: FederatedSpec | Callable[[Context], FederatedSpec], context: Context
) -> FederatedSpec:
    return spec if isinstance(spec, FederatedSpec) else spec(context)
