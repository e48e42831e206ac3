"""Protocol between the parties and the server of a secure sum: terms, stages, messages.

There are four stages, each with one message to every remaining party and one reply:

1. *advertise keys*: every party creates two key pairs and a seed, and sends the public keys;
2. *share keys*: it receives all public keys, and sends each party a sealed packet with a share of
   its private key for masks and a share of its seed;
3. *masked input*: it receives its packets, and sends its vector plus a mask from its seed, plus for
   each other party a mask that both share and add with opposite signs;
4. *unmask*: it learns whose vectors have arrived, and sends its shares of the seeds of those
   parties and of the private keys of the others. With enough shares the server removes the
   remaining masks.

The protocol is independent of the transport. ``party.py`` and ``server.py`` are the two sides.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast.certificates.record import loads
from dpsvm_fast.federated import masks
from dpsvm_fast.federated.masks import Words
from dpsvm_fast.federated.secsum import MAX_PARTIES
from dpsvm_fast.federated.spec import PROTOCOL, FederatedSpec
from dpsvm_fast.mechanisms.plan import filled
from dpsvm_fast.validation import check_integer

ADVERTISE, SHARE, MASK, UNMASK = STAGES = ("advertise_keys", "share_keys", "masked_input", "unmask")
# Stage that a stage is followed by, in one attempt.
FOLLOWED_BY = dict(pairwise(STAGES))

# A packet is two shares and a tag.
SEALED_BYTES = 2 * masks.SHARE_BYTES + 16

# The only reasons that a party gives the server for stopping. Why it does not contribute stays
# secret, as that may depend on its records.

ANOTHER_SPECIFICATION = "another specification"
ANSWERED_BEFORE = "this round was already answered"
OUT_OF_ORDER = "a message out of order"
UNKNOWN_MESSAGE = "a message of an unknown kind"
WRONG_PARTIES = "a wrong list of parties"
TOO_FEW_PARTIES = "too few parties for this sum"
NO_CONTRIBUTION = "this party could not contribute"

REFUSALS = (
    ANOTHER_SPECIFICATION,
    ANSWERED_BEFORE,
    OUT_OF_ORDER,
    UNKNOWN_MESSAGE,
    WRONG_PARTIES,
    TOO_FEW_PARTIES,
    NO_CONTRIBUTION,
)

# Vectors of more numbers would not fit one message.
MAX_LENGTH = 2**27


@dataclass(frozen=True, kw_only=True)
class RoundTerms:
    """Terms of one round; a party refuses anything that differs from its own copy.

    Parameters
    ----------
    digest : str
        Digest of the whole specification.
    name : str
        Name of the round in the specification.
    length : int
        Length of a vector; the last entry is 1 and counts the parties in the sum.
    n_users : int in 2..2**18
        Number of parties to ask.
    min_survivors : int
        A party sends its shares for unmasking only if at least this many parties are in the sum.
    threshold : int
        Number of shares that open a mask: more than half of the parties, so that two disjoint
        groups cannot both have enough shares, and at most ``min_survivors``.

    Raises
    ------
    TypeError, InvalidParameterError
        The terms would not protect the parties, or could not be summed.
    """

    digest: str
    name: str
    length: int
    n_users: int
    min_survivors: int
    threshold: int

    def __post_init__(self) -> None:
        """Refuse terms under which a sum would be wrong or reveal its parts."""
        check_integer("length", self.length, 2, MAX_LENGTH)
        # A secure sum of one is its own vector.
        check_integer("n_users", self.n_users, 2, MAX_PARTIES)
        check_integer("min_survivors", self.min_survivors, 2, self.n_users)
        check_integer("threshold", self.threshold, self.n_users // 2 + 1, self.min_survivors)

    @classmethod
    def of_rounds(cls, spec: FederatedSpec) -> dict[str, RoundTerms]:
        """Return the terms of all rounds, by name, of a specification of at least two parties."""
        own = {"digest": spec.digest(), "min_survivors": spec.survivors_needed}
        return {plan.name: filled(cls, plan, spec, **own) for plan in spec.rounds}

    def head(self, session: str, stage: str, party: int) -> dict[str, Any]:
        """Return the fields shared by a message to a party and its reply."""
        return {
            "protocol": PROTOCOL,
            "digest": self.digest,
            "round": self.name,
            "session": session,
            "stage": stage,
            "party": party,
        }

    def purpose(self, session: str, what: str, first: int, second: int) -> str:
        """Return the purpose of a key of two parties in one attempt at a round."""
        return f"{self.digest} {self.name} {session} {what} {first} {second}"

    def pair_mask(self, session: str, private: bytes, public: bytes, own: int, other: int) -> Words:
        """Return the mask that a party adds to its vector for another party, which subtracts it."""
        purpose = self.purpose(session, "mask", min(own, other), max(own, other))
        mask = masks.expand_mask(masks.shared_key(private, public, purpose), self.length)
        return mask if own < other else np.negative(mask)


# Messages are JSON texts; bytes in them are base64.


def write(record: Mapping[str, Any]) -> bytes:
    """Encode a record as the bytes of a message or a stored state."""
    text = json.dumps(record, default=lambda x: base64.b64encode(x).decode(), allow_nan=False)
    return text.encode("ascii")


def read(data: bytes) -> dict[str, Any]:
    """Decode the record of a message.

    Raises
    ------
    ValueError
        The text is not a record.
    """
    record = loads(data.decode("ascii"))
    if not isinstance(record, dict):
        raise ValueError("expected a record")
    return record


def as_bytes(text: object, size: int | None = None) -> bytes:
    """Decode the bytes in the text of a message.

    Raises
    ------
    ValueError
        The text does not encode bytes, or the wrong number of them.
    """
    if not isinstance(text, str):
        raise ValueError("expected a text")
    try:
        data = base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError("expected base64") from None
    if size is not None and len(data) != size:
        raise ValueError("expected another number of bytes")
    return data


def as_parties(numbers: object) -> list[int]:
    """Decode a list of distinct party numbers.

    Raises
    ------
    ValueError
        The value is not a list of party numbers.
    """
    if not isinstance(numbers, list) or any(type(number) is not int for number in numbers):
        raise ValueError("expected numbers of parties")
    if len(set(numbers)) != len(numbers):
        raise ValueError("expected every party once")
    return numbers


def as_items(items: object, n_values: int, size: int) -> dict[int, list[bytes]]:
    """Decode ``n_values`` values of ``size`` bytes for each of distinct parties.

    Raises
    ------
    ValueError
        The value is not such a list.
    """
    if not isinstance(items, list) or not all(
        isinstance(item, list) and len(item) == 1 + n_values for item in items
    ):
        raise ValueError("expected values of parties")
    parties = as_parties([item[0] for item in items])
    values = [[as_bytes(text, size) for text in item[1:]] for item in items]
    return dict(zip(parties, values, strict=True))


# A masked number is below 2**48: six bytes.


def pack(words: Words) -> bytes:
    """Encode the low 48 bits of each number."""
    parts = words.astype("<u8").view(np.uint8).reshape(-1, 8)
    return parts[:, :6].tobytes()


def unpack(data: bytes, length: int) -> Words:
    """Decode the numbers given to :func:`pack`.

    Raises
    ------
    ValueError
        The number of bytes is wrong; arrays of other lengths would be broadcast silently.
    """
    if len(data) != 6 * length:
        raise ValueError("expected another number of bytes")
    parts = np.zeros((length, 8), dtype=np.uint8)
    parts[:, :6] = np.frombuffer(data, dtype=np.uint8).reshape(-1, 6)
    return parts.view("<u8").ravel().astype(np.uint64)


# The one public array that may come with a request.


def write_array(array: NDArray[np.float64] | None) -> dict[str, Any] | None:
    """Encode an array of floats for a message."""
    if array is None:
        return None
    return {"shape": list(array.shape), "values": array.astype("<f8").tobytes()}


def read_array(record: Any) -> NDArray[np.float64] | None:
    """Decode the finite array given to :func:`write_array`.

    Raises
    ------
    KeyError, TypeError, ValueError
        The record is not such an array.
    """
    if record is None:
        return None
    values = np.frombuffer(as_bytes(record["values"]), dtype="<f8").astype(np.float64)
    if not np.isfinite(values).all():
        raise ValueError("expected finite numbers")
    return values.reshape(record["shape"])
