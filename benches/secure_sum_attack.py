"""A victim's vector out of the sum of three: works on masks from a folded key, not on ours.

python benches/secure_sum_attack.py [--bits 28]

An honest-but-curious server and one of three parties pool what they see in one regular round.
They remove the victim's private mask (the server puts its seed together, as the protocol wants)
and the mask that the victim shares with the colluding party. One pairwise mask is left. One number
of the vector is known, so that each key can be tested by itself.

The secure aggregation that Flower ships expands a key with a generator that folds it to 32 bits;
its pairwise keys are text, whose folds have 28 bits. Here that generator is put in the place of
ours for the control. Whoever has ``2**28`` tests of a Mersenne twister's first output to spend has
the vector. The same program needs ``2**256`` with our masks; it searches the same space of folded
keys and finds nothing.
"""

from __future__ import annotations

import argparse
import base64
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from dpsvm_fast.federated import masks, protocol, server  # noqa: E402
from dpsvm_fast.federated.protocol import MASK, SHARE, UNMASK, RoundTerms  # noqa: E402
from oracles.secure_sums import FIRST, Room, room_of  # noqa: E402

Numbers = NDArray[np.int64]
Words = NDArray[np.uint32]

MODULUS = 2**48
VICTIM, COLLUDER, HONEST = range(3)
# So many keys at a time stay in a processor's nearest cache.
CHUNK = 2**13
PAIRWISE_BITS = 28


@dataclass(frozen=True)
class Residue:
    """What is left of the victim's vector when the colluders have removed what they can.

    Parameters
    ----------
    numbers : ndarray of shape (length,)
        Vector plus, or minus, one pairwise mask; the vector's first number is 0.
    sign : int
        Of the mask.
    """

    numbers: Numbers
    sign: int


@contextmanager
def stock_masks() -> Iterator[None]:
    """The generator that Flower ships, in the place of ours for as long as this takes."""

    def expand(key: bytes, size: int) -> Any:
        text = base64.urlsafe_b64encode(key)
        return stock_mask(folded(text).to_bytes(4, "little"), size).astype(np.uint64)

    with patch.object(masks, "expand_mask", expand):
        yield


class Watched(Room):
    """A server that keeps everything, and a colluding party that does not forget its keys."""

    keys: dict[int, list[bytes]]

    def deliver(self, i: int, request: bytes) -> bytes | None:
        if json.loads(request)["stage"] == MASK:
            self.keys[i] = [base64.b64decode(key) for key in json.loads(self.states[i])["keys"]]
        return super().deliver(i, request)


def terms_for(length: int) -> RoundTerms:
    return RoundTerms(
        digest="attack", name="sum", length=length, n_users=3, min_survivors=3, threshold=2
    )


def observed(vectors: Numbers) -> Watched:
    """One regular round of three parties, with whatever masks are in place."""
    terms = terms_for(vectors.shape[1])
    room = Watched(room_of(vectors, terms).parties)
    room.keys = {}
    result = server.sum_of_parties(room, terms, room.numbers)
    # The attacked round is a right one.
    assert np.array_equal(result.total, vectors.sum(axis=0))
    return room


def said(room: Room, stage: str, i: int, *, upwards: bool = True) -> dict[str, Any]:
    """What one party said, or was told, in a stage."""
    (found,) = [
        sent.record
        for sent in room.traffic
        if (sent.stage, sent.party, sent.upwards) == (stage, i, upwards)
    ]
    return found


def residue(room: Watched) -> Residue:
    """Remove the masks that the server and the colluding party know."""
    request = said(room, SHARE, COLLUDER, upwards=False)
    public = {entry[0]: base64.b64decode(entry[2]) for entry in request["keys"]}
    masked = base64.b64decode(said(room, MASK, VICTIM)["masked"])
    terms = terms_for(len(masked) // 6)
    shares = {
        1 + i: base64.b64decode(dict(said(room, UNMASK, i)["shares"])[FIRST + VICTIM])
        for i in range(3)
    }
    numbers = protocol.unpack(masked, terms.length)
    # Through the module: the generator that is in place.
    numbers -= masks.expand_mask(masks.combine_shares(shares, 2), terms.length)
    numbers += terms.pair_mask(
        request["session"],
        room.keys[COLLUDER][1],
        public[FIRST + VICTIM],
        FIRST + COLLUDER,
        FIRST + VICTIM,
    )
    return Residue((numbers % MODULUS).astype(np.int64), 1 if VICTIM < HONEST else -1)


def stock_mask(key: bytes, size: int) -> Numbers:
    """What Flower's generator makes of a folded key."""
    generator = np.random.RandomState(int.from_bytes(key, "little"))
    return generator.randint(0, MODULUS - 1, size, dtype=np.int64)


def folded(key: bytes) -> int:
    """The 32 bits that Flower's generator takes from a key."""
    return int(np.bitwise_xor.reduce(np.frombuffer(key, "<u4")))


def pair_key(room: Watched) -> bytes:
    """The key between the victim and the honest party. For tests only: no attacker has it."""
    request = said(room, SHARE, COLLUDER, upwards=False)
    public = {entry[0]: base64.b64decode(entry[2]) for entry in request["keys"]}
    purpose = terms_for(2).purpose(request["session"], "mask", FIRST + VICTIM, FIRST + HONEST)
    return masks.shared_key(room.keys[VICTIM][1], public[FIRST + HONEST], purpose)


def text_folds(start: int, count: int) -> Words:
    """Folds of keys that are text: seven bits in each of four bytes."""
    numbers = np.arange(start, start + count, dtype=np.uint32)
    spread = numbers & 0x7F
    for byte in range(1, 4):
        spread = spread | ((numbers >> np.uint32(7 * byte)) & np.uint32(0x7F)) << np.uint32(
            8 * byte
        )
    return spread


def low_words(keys: Words) -> Words:
    """Low 32 bits of the first number that the twister makes of each key.

    The second output of a Mersenne twister needs three words of its state, the last of them the
    398th of the recurrence that spreads the key.
    """
    state = keys.copy()
    scratch = np.empty_like(state)
    kept = {}
    for i in range(1, 399):
        np.right_shift(state, np.uint32(30), out=scratch)
        np.bitwise_xor(state, scratch, out=state)
        np.multiply(state, np.uint32(1812433253), out=state)
        np.add(state, np.uint32(i), out=state)
        if i <= 2:
            kept[i] = state.copy()
    mixed = (kept[1] & np.uint32(0x80000000)) | (kept[2] & np.uint32(0x7FFFFFFF))
    word = state ^ (mixed >> np.uint32(1)) ^ ((mixed & np.uint32(1)) * np.uint32(0x9908B0DF))
    word ^= word >> np.uint32(11)
    word ^= (word << np.uint32(7)) & np.uint32(0x9D2C5680)
    word ^= (word << np.uint32(15)) & np.uint32(0xEFC60000)
    word ^= word >> np.uint32(18)
    return word


def search(found: Residue, chunks: Iterator[Words]) -> Numbers | None:
    """Try folded keys; the vector where one fits, None where none does.

    A wrong key fits by chance with probability 2**-48.
    """
    first = found.sign * int(found.numbers[0]) % MODULUS
    target = np.uint32(first & 0xFFFFFFFF)
    for keys in chunks:
        for key in keys[low_words(keys) == target]:
            mask = stock_mask(int(key).to_bytes(4, "little"), found.numbers.size)
            if mask[0] == first:
                vector = (found.numbers - found.sign * mask) % MODULUS
                return np.asarray((vector + MODULUS // 2) % MODULUS - MODULUS // 2)
    return None


def chunks(start: int, stop: int) -> Iterator[Words]:
    """All folds of a range of the 28-bit space."""
    for begin in range(start, stop, CHUNK):
        yield text_folds(begin, min(CHUNK, stop - begin))


def vectors_for(length: int) -> Numbers:
    """Vectors whose first number is known."""
    vectors = np.random.default_rng(0).integers(-1000, 1000, (3, length))
    vectors[:, 0], vectors[:, -1] = 0, 1
    return vectors


def main() -> int:
    """Attack both, in full."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--bits", type=int, default=PAIRWISE_BITS, help="of the space searched")
    bits = parser.parse_args().bits
    vectors = vectors_for(20)
    with stock_masks():
        stock = residue(observed(vectors))
    ours = residue(observed(vectors))
    outcomes = []
    for name, found in (("masks from a folded key", stock), ("ours", ours)):
        begin = time.perf_counter()
        vector = search(found, chunks(0, 2**bits))
        seconds = time.perf_counter() - begin
        recovered = vector is not None and np.array_equal(vector, vectors[VICTIM])
        outcomes.append(recovered)
        print(
            f"{name}: {'recovered exactly' if recovered else 'nothing found'}, {seconds:.0f} s",
            flush=True,
        )
    return 0 if outcomes == [True, False] else 1


if __name__ == "__main__":
    raise SystemExit(main())
