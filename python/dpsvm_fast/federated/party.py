"""A party's side of the secure sum: messages in, replies out, and the state in between.

A party follows the server, but trusts only its own copy of the terms. It refuses with one of a few
constant texts, and then forgets the keys of the round.
"""

from __future__ import annotations

import hashlib
import logging
import os
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast.exceptions import PartyRefusedError
from dpsvm_fast.federated import masks
from dpsvm_fast.federated import protocol as stages
from dpsvm_fast.federated.protocol import RoundTerms
from dpsvm_fast.federated.secsum import LIMIT
from dpsvm_fast.federated.spec import PROTOCOL
from dpsvm_fast.ledger.store import put_new

_LOG = logging.getLogger("dpsvm_fast.federated")

Listed = TypeVar("Listed")

# Terms of the round, public array that came with the request -> vector.
Contribution: TypeAlias = Callable[[RoundTerms, NDArray[np.float64] | None], NDArray[np.int64]]


class FileJournal:
    """Record of the rounds that a party has answered, in a folder shared by its processes.

    A vector in two sums over different parties is practically public, because the difference of the
    sums is a sum over few parties. So a party claims a round before it computes its vector, and a
    claim is permanent. To answer a round again, remove its file by hand.

    Parameters
    ----------
    directory : path
        Folder, created with access for its owner only.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._directory = Path(directory)

    def holds(self, name: str) -> bool:
        """Return whether the round was claimed in any run."""
        return self._entry(name).exists()

    def claim(self, name: str) -> bool:
        """Claim the round permanently; the claim is on disk on return."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        # The file system lets only one of several processes succeed.
        return put_new(self._entry(name), f"{name}\n".encode(), lasting=True)

    def _entry(self, name: str) -> Path:
        return self._directory / hashlib.sha256(name.encode()).hexdigest()


@dataclass(repr=False)
class _Kept:
    """State of a party between two messages. Private.

    Parameters
    ----------
    answered : list of str
        Rounds claimed in this run; the only field kept after a round or a refusal.
    session, round : str
        Attempt in progress.
    stage : str
        Last completed stage.
    keys : list
        Private key for packets, private key for masks, and seed; until the vector is masked.
    others : list
        Numbers and public keys of all parties; until the vector is masked.
    shares : list
        Number of each party with shared masks, including this one, with its shares: of the private
        key for masks and of the seed.
    """

    answered: list[str] = field(default_factory=list)
    session: str = ""
    round: str = ""
    stage: str = ""
    keys: list[Any] = field(default_factory=list)
    others: list[Any] = field(default_factory=list)
    shares: list[Any] = field(default_factory=list)

    @classmethod
    def read(cls, state: bytes) -> _Kept:
        """Read what :meth:`write` wrote; empty bytes give an empty state."""
        return cls(**stages.read(state)) if state else cls()

    def write(self) -> bytes:
        """Return the fields as bytes."""
        return stages.write(vars(self))

    def private_keys(self) -> list[bytes]:
        """Return the key for packets, the key for masks, and the seed."""
        return [stages.as_bytes(key, masks.KEY_BYTES) for key in self.keys]


@dataclass(frozen=True)
class Party:
    """Party of secure sums.

    Parameters
    ----------
    number : int
        Its own.
    terms : callable
        Function that returns the party's own terms by round name; called for every message.
    contribute : callable
        Function that computes the vector of a round; called at most once per round. Its exceptions
        are not sent.
    journal : callable
        Function that returns the journal of answered rounds over all runs; or None, to use only the
        state, which lasts for one run.
    """

    number: int
    terms: Callable[[], Mapping[str, RoundTerms]]
    contribute: Contribution
    journal: Callable[[], FileJournal | None] = lambda: None

    def respond(self, state: bytes, message: bytes) -> tuple[bytes, bytes]:
        """Answer one message of the server.

        Parameters
        ----------
        state : bytes
            State returned by the last call; empty at first. Private.
        message : bytes

        Returns
        -------
        state, reply : bytes
            New state, and the stage's reply or a refusal with a constant text.
        """
        kept = None
        try:
            kept = _Kept.read(state)
            after, reply = self._answer(kept, message)
            return after.write(), reply
        except PartyRefusedError as refusal:
            text = str(refusal) if str(refusal) in stages.REFUSALS else stages.NO_CONTRIBUTION
        except Exception as error:
            text = stages.NO_CONTRIBUTION
            # Without its text, which may quote records.
            place = traceback.extract_tb(error.__traceback__)[-1]
            _LOG.error("%s at %s:%s", type(error).__name__, place.filename, place.lineno)
        _LOG.error("refused: %s", text)
        # A damaged state must not turn into a fresh one.
        left = state if kept is None else _Kept(kept.answered).write()
        return left, stages.write({"refused": text})

    def _answer(self, kept: _Kept, message: bytes) -> tuple[_Kept, bytes]:
        """Check a message against the agreed terms and the earlier messages, and answer it."""
        request, terms = self._understood(message)
        session, stage = request["session"], request["stage"]
        expected = (session, terms.name, stage)
        if stage == stages.ADVERTISE:
            journal = self.journal()
            if _key(terms) in kept.answered or (journal and journal.holds(_key(terms))):
                raise PartyRefusedError(stages.ANSWERED_BEFORE)
            # Keys of an earlier attempt must not survive into this one.
            kept = _Kept(kept.answered, session, terms.name)
        elif (kept.session, kept.round, stages.FOLLOWED_BY.get(kept.stage)) != expected:
            raise PartyRefusedError(stages.OUT_OF_ORDER)
        answers = {
            stages.ADVERTISE: self._advertise_keys,
            stages.SHARE: self._share_keys,
            stages.MASK: self._masked_input,
            stages.UNMASK: self._unmask,
        }
        body = answers[stage](kept, request, terms)
        kept.stage = stage
        after = _Kept(kept.answered) if stage == stages.UNMASK else kept
        return after, stages.write(terms.head(session, stage, self.number) | body)

    def _understood(self, message: bytes) -> tuple[dict[str, Any], RoundTerms]:
        """Parse a message to this party; return it with its terms."""
        own_terms = self.terms()
        try:
            request = stages.read(message)
            if not all(type(request[name]) is str for name in ("round", "session", "stage")):
                raise ValueError("expected texts")
            if request["stage"] not in stages.STAGES:
                raise ValueError("expected a stage")
            said = {name: request[name] for name in ("protocol", "digest")}
        except (KeyError, ValueError):
            raise PartyRefusedError(stages.UNKNOWN_MESSAGE) from None
        terms = own_terms.get(request["round"])
        if terms is None or said != {"protocol": PROTOCOL, "digest": terms.digest}:
            raise PartyRefusedError(stages.ANOTHER_SPECIFICATION)
        if request.get("party") != self.number:
            raise PartyRefusedError(stages.WRONG_PARTIES)
        return request, terms

    # The four stages: previous stage, message and terms -> reply.

    def _advertise_keys(
        self, kept: _Kept, request: Mapping[str, Any], terms: RoundTerms
    ) -> dict[str, Any]:
        """Create keys and a seed."""
        keys = [masks.new_secret() for _ in range(3)]
        kept.keys = keys
        return {"keys": [masks.public_key(key) for key in keys[:2]]}

    def _share_keys(
        self, kept: _Kept, request: Mapping[str, Any], terms: RoundTerms
    ) -> dict[str, Any]:
        """Check all public keys, and share the private mask key and the seed."""
        others = _listed(lambda: stages.as_items(request["keys"], 2, masks.KEY_BYTES))
        for_packets, for_masks, seed = kept.private_keys()
        if others.get(self.number) != [masks.public_key(for_packets), masks.public_key(for_masks)]:
            raise PartyRefusedError(stages.WRONG_PARTIES)
        # A key belongs to one party and one purpose.
        n = len(others)
        if n > terms.n_users or len({key for keys in others.values() for key in keys}) != 2 * n:
            raise PartyRefusedError(stages.WRONG_PARTIES)
        if n < terms.min_survivors:
            raise PartyRefusedError(stages.TOO_FEW_PARTIES)
        shares = zip(
            sorted(others),
            masks.create_shares(for_masks, terms.threshold, n),
            masks.create_shares(seed, terms.threshold, n),
            strict=True,
        )
        packets = []
        for party, of_key, of_seed in shares:
            if party == self.number:
                kept.shares = [[party, of_key, of_seed]]
                continue
            purpose = terms.purpose(kept.session, "packet", self.number, party)
            key = masks.shared_key(for_packets, others[party][0], purpose)
            packets.append([party, masks.seal(key, of_key + of_seed)])
        kept.others = [[party, *keys] for party, keys in others.items()]
        return {"packets": packets}

    def _masked_input(
        self, kept: _Kept, request: Mapping[str, Any], terms: RoundTerms
    ) -> dict[str, Any]:
        """Open the packets, claim the round, compute the vector and mask it."""
        packets = _listed(lambda: stages.as_items(request["packets"], 1, stages.SEALED_BYTES))
        others = stages.as_items(kept.others, 2, masks.KEY_BYTES)
        if not set(packets) <= set(others) - {self.number}:
            raise PartyRefusedError(stages.WRONG_PARTIES)
        if len(packets) + 1 < terms.min_survivors:
            raise PartyRefusedError(stages.TOO_FEW_PARTIES)
        public = stages.read_array(request["public"])
        for_packets, for_masks, seed = kept.private_keys()
        for party, (packet,) in packets.items():
            purpose = terms.purpose(kept.session, "packet", party, self.number)
            opened = masks.unseal(masks.shared_key(for_packets, others[party][0], purpose), packet)
            kept.shares.append([party, opened[: masks.SHARE_BYTES], opened[masks.SHARE_BYTES :]])
        # Before the vector is made: of two concurrent runs only one claims it, and after a crash it
        # counts as sent.
        kept.answered.append(_key(terms))
        journal = self.journal()
        if journal and not journal.claim(_key(terms)):
            raise PartyRefusedError(stages.ANSWERED_BEFORE)
        vector = checked_vector(self.contribute(terms, public), terms)
        words = vector.astype(np.uint64) + masks.expand_mask(seed, terms.length)
        for party in packets:
            words += terms.pair_mask(kept.session, for_masks, others[party][1], self.number, party)
        # Only shares are needed from here on.
        kept.keys, kept.others = [], []
        return {"masked": stages.pack(words)}

    def _unmask(self, kept: _Kept, request: Mapping[str, Any], terms: RoundTerms) -> dict[str, Any]:
        """Return a share of the seed of every party in the sum, and of every other party's key."""
        active, gone = _listed(
            lambda: (stages.as_parties(request["active"]), stages.as_parties(request["gone"]))
        )
        shares = stages.as_items(kept.shares, 2, masks.SHARE_BYTES)
        if set(active) & set(gone) or {*active, *gone} != set(shares) or self.number not in active:
            raise PartyRefusedError(stages.WRONG_PARTIES)
        if len(active) < terms.min_survivors:
            raise PartyRefusedError(stages.TOO_FEW_PARTIES)
        of_seeds = [[party, shares[party][1]] for party in active]
        of_keys = [[party, shares[party][0]] for party in gone]
        return {"shares": of_seeds + of_keys}


def _key(terms: RoundTerms) -> str:
    """Return a round's unique name across all specifications."""
    return f"{terms.digest} {terms.name}"


def _listed(read: Callable[[], Listed]) -> Listed:
    """Return the parties listed in a message."""
    try:
        return read()
    except (KeyError, ValueError):
        raise PartyRefusedError(stages.WRONG_PARTIES) from None


def checked_vector(vector: object, terms: RoundTerms) -> NDArray[np.int64]:
    """Check a vector against the agreed terms.

    Raises
    ------
    PartyRefusedError
        The type, shape or range of the vector is wrong; the message is constant.
    """
    if not isinstance(vector, np.ndarray) or vector.dtype != np.int64:
        raise PartyRefusedError(stages.NO_CONTRIBUTION)
    if vector.shape != (terms.length,) or vector[-1] != 1:
        raise PartyRefusedError(stages.NO_CONTRIBUTION)
    # Without abs: the smallest integer has no positive counterpart.
    if (vector <= -LIMIT).any() or (vector >= LIMIT).any():
        raise PartyRefusedError(stages.NO_CONTRIBUTION)
    return vector
