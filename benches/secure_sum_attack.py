"""A victim's vector out of the sum of three: works on Flower's own masks, not on ours.

python benches/secure_sum_attack.py [--bits 28]

An honest-but-curious server and one of three parties pool what they see in one regular round.
They remove the victim's private mask (the server puts its seed together, as the protocol wants)
and the mask that the victim shares with the colluding party. One pairwise mask is left. Flower
ships a generator that folds its key to 32 bits; pairwise keys are text, whose folds have 28 bits.
The first number of every vector is known, so that each key can be tested by itself.

Whoever has ``2**28`` tests of a Mersenne twister's first output to spend has the vector. The same
code, with the masks of this package, would need ``2**256``; it searches the same space of folded
keys and finds nothing.
"""

from __future__ import annotations

import argparse
import copy
import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import Message
from flwr.clientapp import ClientApp
from flwr.common import (
    Code,
    FitRes,
    Status,
    bytes_to_ndarray,
    ndarrays_to_parameters,
)
from flwr.common.secure_aggregation import quantization, secaggplus_utils
from flwr.common.secure_aggregation.crypto import shamir as stock_shamir
from flwr.compat.common import recorddict_compat
from flwr.supercore.primitives import asymmetric
from numpy.typing import NDArray

import dpsvm_fast.federated.flower  # noqa: F401  (before Flower: keeps it quiet)
from dpsvm_fast.federated.flower import protocol as harden
from dpsvm_fast.federated.flower import server as round
from dpsvm_fast.federated.flower.secsum import LocalGrid, server_identity

Numbers = NDArray[np.int64]
Words = NDArray[np.uint32]

MODULUS, FACTOR = 2**48, 2**30
VICTIM, COLLUDER, HONEST = range(3)
# So many keys at a time stay in a processor's nearest cache.
CHUNK = 2**13
PAIRWISE_BITS = 28


@dataclass(frozen=True)
class Residue:
    """What is left of the victim's vector when the colluders have removed what they can.

    Parameters
    ----------
    numbers : ndarray of shape (1 + length,)
        Vector plus, or minus, one pairwise mask; the vector's first number is 2**30.
    sign : int
        Of the mask.
    expand : callable
        The generator: (folded key as 4 bytes, size) -> mask.
    """

    numbers: Numbers
    sign: int
    expand: Callable[[bytes, int], Numbers]


@contextmanager
def stock_protocol() -> Iterator[None]:
    """Flower's own functions back in place, for as long as this takes."""
    stock = {
        "pseudo_rand_gen": secaggplus_utils.pseudo_rand_gen,
        "create_shares": stock_shamir.create_shares,
        "combine_shares": stock_shamir.combine_shares,
        "quantize": quantization.quantize,
        "bytes_to_private_key": asymmetric.bytes_to_private_key,
    }
    harden.harden()
    for name, functions in harden.REPLACEMENTS.items():
        for function in functions:
            if function in stock:
                setattr(sys.modules[name], function, stock[function])
    try:
        yield
    finally:
        harden.harden()


def client(vector: Numbers) -> Any:
    """A client as Flower's documentation has it: its modifier, and a function that trains."""
    app = ClientApp()

    def train(message: Message, context: Any) -> Message:
        answer = FitRes(Status(Code.OK, ""), ndarrays_to_parameters([vector]), 1, {})
        content = recorddict_compat.fitres_to_recorddict(answer, keep_input=False)
        return Message(content, reply_to=message)

    app.train(mods=[sys.modules[harden.CLIENT].secaggplus_mod])(train)
    return app


class Watching(LocalGrid):
    """A network whose server keeps everything, and whose colluding party keeps its state."""

    def _answer(self, party: int, message: Any) -> Any:
        reply = super()._answer(party, message)
        state = self.contexts[COLLUDER].state.config_records.get("secaggplus_state")
        if state is not None and dict(state).get("current_stage") == "collect_masked_vectors":
            self.colluder = copy.deepcopy(dict(state))
        return reply


def observed(vectors: Numbers) -> Watching:
    """One regular round of three parties, with whatever masks are in place."""
    protocol: Any = sys.modules[harden.SERVER]
    with server_identity():
        grid = Watching([client(row) for row in vectors], record=True)
        workflow = protocol.SecAggPlusWorkflow(
            1.0,
            2,
            max_weight=1.0,
            clipping_range=2.0**29,
            quantization_range=FACTOR,
            modulus_range=MODULUS,
            timeout=60.0,
        )
        receiver = round._Receiver(grid.get_node_ids(), None)
        workflow(grid, round._legacy_context(receiver))
    mean = receiver.means[0] if receiver.means else np.full(vectors.shape[1], np.nan)
    # The attacked round is a right one.
    np.testing.assert_allclose(mean * 3, vectors.sum(axis=0))
    return grid


def residue(grid: Watching) -> Residue:
    """Remove the masks that the server and the colluding party know."""
    protocol: Any = sys.modules[harden.SERVER]
    module: Any = sys.modules[harden.CLIENT]
    ids = grid.get_node_ids()
    said = [
        (sent.stage, sent.party, dict(sent.message.content.config_records["secaggplus_configs"]))
        for sent in grid.traffic
        if sent.upwards
    ]
    (masked,) = [
        np.concatenate([bytes_to_ndarray(part) for part in fields["masked_params"]])
        for stage, party, fields in said
        if (stage, party) == ("collect_masked_vectors", VICTIM)
    ]
    shares = [
        share
        for stage, _, fields in said
        if stage == "unmask"
        for owner, share in zip(fields["nids"], fields["shares"], strict=True)
        if owner == ids[VICTIM]
    ]
    (public,) = [
        fields["pk1"] for stage, party, fields in said if (stage, party) == ("setup", VICTIM)
    ]
    shapes = [(1,), (masked.size - 1,)]

    def mask(key: bytes) -> Numbers:
        return np.concatenate(protocol.pseudo_rand_gen(key, MODULUS, shapes))

    left = masked - mask(protocol.combine_shares(shares))
    shared = module.generate_shared_key(
        asymmetric.bytes_to_private_key(grid.colluder["sk1"]),
        asymmetric.bytes_to_public_key(public),
    )
    left = left - (1 if ids[VICTIM] > ids[COLLUDER] else -1) * mask(shared)
    sign = 1 if ids[VICTIM] > ids[HONEST] else -1
    return Residue(left % MODULUS, sign, lambda key, size: stock_mask(key, size))


def stock_mask(key: bytes, size: int) -> Numbers:
    """What Flower's generator makes of a folded key."""
    parts = secaggplus_utils.pseudo_rand_gen(key, MODULUS, [(1,), (size - 1,)])
    return np.concatenate(parts)


def folded(key: bytes) -> int:
    """The 32 bits that Flower's generator takes from a key."""
    return int(np.bitwise_xor.reduce(np.frombuffer(key, "<u4")))


def pair_key(grid: Watching) -> bytes:
    """The key between the victim and the honest party. For tests only: no attacker has it."""
    module: Any = sys.modules[harden.CLIENT]
    states = [dict(grid.contexts[i].state.config_records["secaggplus_state"]) for i in (0, 2)]
    return bytes(
        module.generate_shared_key(
            asymmetric.bytes_to_private_key(states[0]["sk1"]),
            asymmetric.bytes_to_public_key(states[1]["pk1"]),
        )
    )


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
    """Try folded keys; the vector without its first number where one fits, None where none does.

    A wrong key fits by chance with probability 2**-48.
    """
    first = found.sign * (int(found.numbers[0]) - FACTOR) % MODULUS
    target = np.uint32(first & 0xFFFFFFFF)
    for keys in chunks:
        for key in keys[low_words(keys) == target]:
            mask = found.expand(int(key).to_bytes(4, "little"), found.numbers.size)
            if mask[0] == first:
                vector = (found.numbers - found.sign * mask) % MODULUS
                return np.asarray(vector[1:] - 2**29)
    return None


def chunks(start: int, stop: int) -> Iterator[Words]:
    """All folds of a range of the 28-bit space."""
    for begin in range(start, stop, CHUNK):
        yield text_folds(begin, min(CHUNK, stop - begin))


def main() -> int:
    """Attack both, in full."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--bits", type=int, default=PAIRWISE_BITS, help="of the space searched")
    logging.getLogger("flwr").setLevel(logging.ERROR)
    bits = parser.parse_args().bits
    vectors = np.random.default_rng(0).integers(-1000, 1000, (3, 20))
    with stock_protocol():
        stock = residue(observed(vectors))
    ours = residue(observed(vectors))
    outcomes = []
    for name, found in (("Flower's own masks", stock), ("ours", ours)):
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
