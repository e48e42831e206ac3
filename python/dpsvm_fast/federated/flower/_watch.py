"""Stands between Flower's workflow and the grid: tags messages, drops replies that are no replies.

A party whose reply is not as agreed on counts as one that has vanished; a wrong reply must not
end, or change, the sum of the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Message
from flwr.common import bytes_to_ndarray

from dpsvm_fast.federated.flower import _stages
from dpsvm_fast.federated.flower._refusals import REFUSALS
from dpsvm_fast.federated.flower.guard import TAG
from dpsvm_fast.federated.flower.terms import RoundTerms

__all__ = ["WatchedGrid"]

OTHER_FAILURE = "another failure"
NO_REPLY = "no reply"
WRONG_REPLY = "a reply not as agreed on"


class WatchedGrid:
    """A grid for one attempt at one round.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
    terms : RoundTerms
    session : str
        Name of the attempt; parties do not mix attempts.

    Attributes
    ----------
    stage : str
        The stage in progress.
    parties : tuple of int
        Who replied as agreed on in the last stage.
    reasons : Counter
        How often parties gave which of the constant reasons, over all stages.
    """

    def __init__(self, grid: Any, terms: RoundTerms, session: str) -> None:
        self._grid = grid
        self._terms = terms
        self._tag = {
            "protocol": terms.protocol,
            "digest": terms.digest,
            "round": terms.name,
            "session": session,
        }
        self.stage = _stages.SETUP
        self.parties: tuple[int, ...] = ()
        self.reasons: Counter[str] = Counter()

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        """Send, wait, and hand on what is as agreed on.

        Parameters
        ----------
        messages : iterable of flwr.app.Message
            One for each party, all of one stage.
        timeout : float
            Seconds; None is refused, Flower would wait for twelve hours.
        """
        if timeout is None:
            raise ValueError("timeout: expected a number of seconds")
        requests = {message.metadata.dst_node_id: message for message in messages}
        for message in requests.values():
            message.content.config_records[TAG] = ConfigRecord(dict(self._tag))
            self.stage = str(message.content.config_records[_stages.CONFIGS]["stage"])
        replies = self._grid.send_and_receive(list(requests.values()), timeout=timeout)
        kept: dict[int, Message] = {}
        wrong = 0
        for reply in replies:
            party = reply.metadata.src_node_id
            if party not in requests or party in kept:
                continue
            problem = self._problem(reply, requests[party], list(requests))
            if problem is None:
                kept[party] = reply
            else:
                wrong += 1
                self.reasons[problem] += 1
        silent = len(requests) - len(kept) - wrong
        if silent > 0:
            self.reasons[NO_REPLY] += silent
        self.parties = tuple(kept)
        return list(kept.values())

    def told(self) -> list[str]:
        """The reasons, a line each."""
        return [f"{count} of the parties: {text}" for text, count in sorted(self.reasons.items())]

    def _problem(self, reply: Message, request: Message, asked: Sequence[int]) -> str | None:
        """Why a reply is not used, None where it is."""
        if reply.has_error():
            reason = reply.error.reason or ""
            return next((text for text in REFUSALS if text in reason), OTHER_FAILURE)
        try:
            return None if self._is_fine(reply, request, asked) else WRONG_REPLY
        except Exception:
            # Whatever a stranger may have put there; none of it is a reply.
            return WRONG_REPLY

    def _is_fine(self, reply: Message, request: Message, asked: Sequence[int]) -> bool:
        records = reply.content.config_records
        if dict(records[TAG]) != self._tag:
            return False
        fields = dict(records[_stages.CONFIGS])
        if set(fields) != _stages.REPLIES[self.stage]:
            return False
        if self.stage == _stages.SETUP:
            return all(_is_key(fields[name]) for name in ("pk1", "pk2"))
        if self.stage == _stages.SHARE:
            others = set(asked) - {reply.metadata.src_node_id}
            packets = fields["ctxts"]
            whole = len(packets) == len(fields["dsts"]) and all(_is_key(p) for p in packets)
            return whole and sorted(fields["dsts"]) == sorted(others)
        if self.stage == _stages.COLLECT:
            return self._is_masked(fields["masked_params"]) and _tells_nothing_else(reply)
        wanted = request.content.config_records[_stages.CONFIGS]
        expected = [*wanted["active_nids"], *wanted["dead_nids"]]
        return list(fields["nids"]) == expected and len(fields["shares"]) == len(expected)

    def _is_masked(self, parts: Sequence[bytes]) -> bool:
        """Tell whether a masked vector has its shape: NumPy would stretch shorter ones silently."""
        arrays = [bytes_to_ndarray(part) for part in parts]
        if [array.shape for array in arrays] != [(1,), (self._terms.length,)]:
            return False
        return all(
            array.dtype == np.int64 and array.min() >= 0 and array.max() < self._terms.modulus
            for array in arrays
        )


def _is_key(data: object) -> bool:
    return isinstance(data, bytes) and 0 < len(data) <= _stages.MAX_KEY_BYTES


def _tells_nothing_else(reply: Message) -> bool:
    """Neither metrics nor a number of records: the server must not come to know them."""
    content = reply.content
    counts = [dict(record) for record in content.metric_records.values()]
    return counts == [{"num_examples": 1}] and not content.config_records["fitres.metrics"]
