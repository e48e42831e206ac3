"""What a party checks before it follows the server through the secure sum.

Flower's client believes the server: ranges, thresholds, who takes part, who is gone. The guard
stands before it and compares every message with the party's own copy of the terms. Whatever it
refuses, it refuses in a constant text, and forgets the keys of the round.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

from flwr.app import ConfigRecord, Context, Message, RecordDict

from dpsvm_fast.federated.errors import PartyRefusedError
from dpsvm_fast.federated.flower import _stages
from dpsvm_fast.federated.flower._journal import Journal
from dpsvm_fast.federated.flower._refusals import (
    ANOTHER_SPECIFICATION,
    ANSWERED_BEFORE,
    NO_CONTRIBUTION,
    NOT_HARDENED,
    OUT_OF_ORDER,
    REFUSALS,
    UNKNOWN_MESSAGE,
    WRONG_PARTIES,
)
from dpsvm_fast.federated.flower.harden import check_hardened, forget_keys
from dpsvm_fast.federated.flower.terms import RoundTerms

__all__ = ["current_terms", "make_guard"]

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
    seen = _stages.Seen.read(context.state.config_records.get(STATE))
    if stage == _stages.SETUP:
        if journal.holds(terms.digest, terms.name):
            raise PartyRefusedError(ANSWERED_BEFORE)
        # Keys of an earlier attempt must not survive into this one.
        _forget(context)
        seen = _stages.Seen(session=tag["session"], round_name=terms.name, own=own)
    elif (seen.session, seen.round_name) != (tag["session"], terms.name):
        raise PartyRefusedError(OUT_OF_ORDER)
    if seen.stage != _stages.BEFORE[stage]:
        raise PartyRefusedError(OUT_OF_ORDER)
    problem = _stages.CHECKS[stage](configs, terms, seen)
    if problem is not None:
        raise PartyRefusedError(problem)
    # Before the vector is made: of two runs at the same time one gets it, and after a crash it
    # counts as sent.
    if stage == _stages.COLLECT and not journal.claim(terms.digest, terms.name):
        raise PartyRefusedError(ANSWERED_BEFORE)
    seen.stage = stage
    reply = _passed_on(message, context, call_next, terms if stage == _stages.COLLECT else None)
    _check_reply(reply, stage)
    context.state.config_records[STATE] = ConfigRecord(seen.write())
    if stage == _stages.UNMASK:
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
    if configs.get("stage") not in _stages.CHECKS:
        raise PartyRefusedError(UNKNOWN_MESSAGE)
    if message.metadata.dst_node_id != context.node_id:
        raise PartyRefusedError(WRONG_PARTIES)
    return tag, configs, terms


def _opened(content: RecordDict) -> tuple[dict[str, str], Any]:
    """The two records that every message of the sum carries."""
    records = content.config_records
    if TAG not in records or _stages.CONFIGS not in records:
        raise PartyRefusedError(UNKNOWN_MESSAGE)
    tag = dict(records.pop(TAG))
    if set(tag) != {"protocol", "digest", "round", "session"}:
        raise PartyRefusedError(UNKNOWN_MESSAGE)
    if not all(isinstance(value, str) for value in tag.values()):
        raise PartyRefusedError(UNKNOWN_MESSAGE)
    return tag, records[_stages.CONFIGS]


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
    if stage != _stages.COLLECT:
        clean = configs == {_stages.CONFIGS}
        clean = clean and not content.array_records and not content.metric_records
    else:
        metrics = {name: dict(record) for name, record in content.metric_records.items()}
        clean = configs == {_stages.CONFIGS, "fitres.metrics", "fitres.status"}
        clean = clean and not content.config_records["fitres.metrics"]
        clean = clean and metrics == {"fitres.num_examples": {"num_examples": 1}}
        clean = clean and not any(len(record) for record in content.array_records.values())
    fields = set(content.config_records[_stages.CONFIGS]) if clean else set()
    if fields != _stages.REPLIES[stage]:
        raise PartyRefusedError(NO_CONTRIBUTION)


def _forget(context: Context) -> None:
    """Drop the keys and shares of a round; which rounds were answered is kept."""
    for name in (_stages.STATE, STATE):
        if name in context.state.config_records:
            del context.state.config_records[name]


def _note(error: Exception) -> None:
    """Tell the party's own log what happened and where, without the text: it may quote records."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = "unknown" if trace is None else f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
    _LOG.error("%s at %s", type(error).__name__, place)
