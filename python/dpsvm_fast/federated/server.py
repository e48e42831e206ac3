"""The server's side of the secure sum: it sends requests, receives replies and learns a sum.

A party with an invalid reply counts as dropped out: it must not end or change the sum of the
others. With too few remaining parties there is no sum.
"""

from __future__ import annotations

import logging
import secrets
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast.exceptions import (
    InconsistentSumError,
    InvalidParameterError,
    SecureSumAborted,
)
from dpsvm_fast.federated import masks
from dpsvm_fast.federated import protocol as stages
from dpsvm_fast.federated.protocol import RoundTerms
from dpsvm_fast.federated.secsum import LIMIT, SumResult, centred
from dpsvm_fast.validation import check_integer

_LOG = logging.getLogger("dpsvm_fast.federated")

# Takes a message for each party, and returns the replies of those who replied.
Exchange: TypeAlias = Callable[[Mapping[int, bytes]], Mapping[int, bytes]]

OTHER_FAILURE = "another failure"
NO_REPLY = "no reply"
WRONG_REPLY = "a reply that violates the protocol"

# Stages before any party has sent its vector: an attempt that ends there may be made again.
BEFORE_VECTORS = (stages.ADVERTISE, stages.SHARE)


def sum_of_parties(
    exchange: Exchange,
    terms: RoundTerms,
    parties: Sequence[int],
    *,
    public: NDArray[np.float64] | None = None,
    attempts: int = 2,
) -> SumResult:
    """Sum one vector of each party exactly, and learn nothing else.

    Parameters
    ----------
    exchange : callable
        Function that takes a message for each party and returns the received replies.
    terms : RoundTerms
    parties : sequence of int
        Parties to ask: at least ``terms.min_survivors``, at most ``terms.n_users``.
    public : ndarray of float64 or None
        Public array sent to every party with the request.
    attempts : int >= 1
        Number of attempts, as long as no party has sent its vector. A party sends its vector at
        most once, so a later failure is final.

    Returns
    -------
    SumResult
        Exact integers, and the number of parties in the sum.

    Raises
    ------
    SecureSumAborted
        Too few parties remained; the error has the stage, and the parties' reasons in its notes.
    InconsistentSumError
        The numbers are not a sum of valid vectors.
    """
    attempts = check_integer("attempts", attempts, 1)
    asked = list(dict.fromkeys(parties))
    if not terms.min_survivors <= len(asked) <= terms.n_users:
        accepted = f"{terms.min_survivors} to {terms.n_users} parties"
        raise InvalidParameterError.of("parties", got=len(asked), accepted=accepted)
    for attempt in range(1, attempts + 1):
        round = ServerRound(terms, asked, public)
        try:
            while round.stage is not None:
                round.receive(exchange(round.requests()))
            return round.result(len(asked))
        except SecureSumAborted as aborted:
            if attempt == attempts or aborted.stage not in BEFORE_VECTORS:
                raise
            _LOG.warning("%s; beginning again", aborted)
    raise AssertionError("unreachable")


class ServerRound:
    """One attempt of the server at a round.

    Parameters
    ----------
    terms : RoundTerms
    parties : sequence of int
        Parties to ask.
    public : ndarray of float64 or None
        Array sent to every party with the request for its vector.

    Attributes
    ----------
    stage : str or None
        Stage in progress; None when all are completed.
    parties : list of int
        Remaining parties.
    reasons : Counter
        Number of times each constant reason was given, over all stages.
    """

    def __init__(
        self,
        terms: RoundTerms,
        parties: Sequence[int],
        public: NDArray[np.float64] | None = None,
    ) -> None:
        self.stage: str | None = stages.ADVERTISE
        self.parties = list(parties)
        self.reasons: Counter[str] = Counter()
        self._terms = terms
        self._public = public
        # Parties do not mix attempts.
        self._session = secrets.token_hex(16)
        # By party: public keys; packets by receiver; the masked vector; shares by owner.
        self._keys: dict[int, list[bytes]] = {}
        self._packets: dict[int, dict[int, list[bytes]]] = {}
        self._masked: dict[int, masks.Words] = {}
        self._shares: dict[int, dict[int, list[bytes]]] = {}

    def requests(self) -> dict[int, bytes]:
        """Return the message of the current stage for each remaining party."""
        assert self.stage is not None
        return {
            party: stages.write(
                self._terms.head(self._session, self.stage, party) | self._asked(party)
            )
            for party in self.parties
        }

    def receive(self, replies: Mapping[int, bytes]) -> None:
        """Process the replies of a stage and continue with the next.

        Raises
        ------
        SecureSumAborted
            Too few replies are valid; the reasons are in its notes.
        """
        assert self.stage is not None
        asked, self.parties = self.parties, []
        for party in asked:
            reason = self._received(party, replies[party]) if party in replies else NO_REPLY
            if reason is None:
                self.parties.append(party)
            else:
                self.reasons[reason] += 1
        terms = self._terms
        needed = terms.threshold if self.stage == stages.UNMASK else terms.min_survivors
        if len(self.parties) < needed:
            raise self._aborted(needed)
        self.stage = stages.FOLLOWED_BY.get(self.stage)

    def result(self, n_asked: int) -> SumResult:
        """Remove the remaining masks from the sum.

        Parameters
        ----------
        n_asked : int
            Initial number of parties, for the log.

        Raises
        ------
        SecureSumAborted
            The shares do not fit together.
        InconsistentSumError
            The result is not a sum of the counted number of vectors.
        """
        terms, survivors = self._terms, len(self._masked)
        words: masks.Words = np.zeros(terms.length, dtype=np.uint64)
        for masked in self._masked.values():
            words += masked
        try:
            for party in self._packets:
                words -= self._mask_of(party)
        except ValueError:
            self.reasons["inconsistent shares"] += 1
            self.stage = stages.UNMASK
            raise self._aborted(terms.threshold) from None
        total = centred(words.astype(np.int64))
        if not (np.abs(total) <= survivors * LIMIT).all():
            raise InconsistentSumError("sum: larger than the parties can contribute")
        # Every vector ends with a 1. A party with other masks, or a sum of other parties than those
        # that were counted, leaves something else here.
        if total[-1] != survivors:
            raise InconsistentSumError("sum: its parties differ from those counted")
        if self.reasons:
            _LOG.warning("round %r: %d of %d parties in the sum", terms.name, survivors, n_asked)
            for text in self._reasons():
                _LOG.warning(text)
        return SumResult(total, survivors)

    def _asked(self, party: int) -> dict[str, Any]:
        """Return the contents of this stage's message, without its header fields."""
        if self.stage == stages.SHARE:
            return {"keys": [[other, *keys] for other, keys in self._keys.items()]}
        if self.stage == stages.MASK:
            packets = [
                [sender, *packets[party]]
                for sender, packets in self._packets.items()
                if sender != party
            ]
            return {"packets": packets, "public": stages.write_array(self._public)}
        if self.stage == stages.UNMASK:
            # Their masks are in the sum, but their vectors are not.
            gone = [party for party in self._packets if party not in self._masked]
            return {"active": list(self._masked), "gone": gone}
        return {}

    def _received(self, party: int, data: bytes) -> str | None:
        """Process a reply; return the reason if it is rejected, else None."""
        try:
            # The process of the party failed, and nobody answered.
            if not data:
                return OTHER_FAILURE
            reply = stages.read(data)
            if set(reply) == {"refused"}:
                return reply["refused"] if reply["refused"] in stages.REFUSALS else OTHER_FAILURE
            self._take(party, reply)
            return None
        except Exception:
            # Strangers may send anything; none of it is a reply.
            return WRONG_REPLY

    def _take(self, party: int, reply: dict[str, Any]) -> None:
        """Store the content of a reply; any error means that the reply is invalid."""
        assert self.stage is not None
        (field,) = set(reply) - set(head := self._terms.head(self._session, self.stage, party))
        value = reply.pop(field)
        if reply != head or field != REPLIED[self.stage]:
            raise ValueError("expected a reply to the request")
        if self.stage == stages.ADVERTISE:
            first, second = (stages.as_bytes(text, masks.KEY_BYTES) for text in value)
            # With such keys every other party would refuse to go on.
            known = {key for keys in self._keys.values() for key in keys}
            if first == second or {first, second} & known:
                raise ValueError("expected keys of this party alone")
            masks.shared_key(masks.new_secret(), first, "probe")
            masks.shared_key(masks.new_secret(), second, "probe")
            self._keys[party] = [first, second]
        elif self.stage == stages.SHARE:
            packets = stages.as_items(value, 1, stages.SEALED_BYTES)
            if set(packets) != set(self._keys) - {party}:
                raise ValueError("expected a packet for every other party")
            self._packets[party] = packets
        elif self.stage == stages.MASK:
            self._masked[party] = stages.unpack(stages.as_bytes(value), self._terms.length)
        else:
            shares = stages.as_items(value, 1, masks.SHARE_BYTES)
            if set(shares) != set(self._packets):
                raise ValueError("expected a share of every party")
            self._shares[party] = shares

    def _mask_of(self, party: int) -> masks.Words:
        """Return the mask that a party left in the sum, from the shares of its secret.

        For a party in the sum it is the mask of its seed; for a dropped-out party, the masks that
        the others added for it.
        """
        points = {owner: point for point, owner in enumerate(sorted(self._keys), 1)}
        shares = {points[giver]: given[party][0] for giver, given in self._shares.items()}
        secret = masks.combine_shares(shares, self._terms.threshold)
        if party in self._masked:
            return masks.expand_mask(secret, self._terms.length)
        if masks.public_key(secret) != self._keys[party][1]:
            raise InvalidParameterError("shares: of another key")
        left: masks.Words = np.zeros(self._terms.length, dtype=np.uint64)
        for other in self._masked:
            # Added as the party itself would have: the others have added the opposite.
            left -= self._terms.pair_mask(self._session, secret, self._keys[other][1], party, other)
        return left

    def _reasons(self) -> list[str]:
        """Return the reasons, one per line."""
        return [f"{count} of the parties: {text}" for text, count in sorted(self.reasons.items())]

    def _aborted(self, needed: int) -> SecureSumAborted:
        """Return the error that ends the attempt in this stage."""
        assert self.stage is not None
        aborted = SecureSumAborted(self.stage, len(self.parties), needed)
        for text in self._reasons():
            _LOG.error(text)
            if sys.version_info >= (3, 11):
                aborted.add_note(text)
        return aborted


# The field of a reply besides its head.
REPLIED = {
    stages.ADVERTISE: "keys",
    stages.SHARE: "packets",
    stages.MASK: "masked",
    stages.UNMASK: "shares",
}
