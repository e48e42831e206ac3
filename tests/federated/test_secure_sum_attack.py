"""A curious server and one of three parties: from masks of a folded key they get a victim's vector.

From ours they do not. The attack is ``benches/secure_sum_attack.py``, which searches all 2**28
keys; here it is given a few thousand, the right one among them.
"""

from __future__ import annotations

import base64
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("cryptography", reason="secure sums need it")
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benches.secure_sum import one_sum, traffic
from benches.secure_sum_attack import (
    MODULUS,
    VICTIM,
    chunks,
    folded,
    low_words,
    observed,
    pair_key,
    residue,
    search,
    stock_masks,
    text_folds,
    vectors_for,
)

from dpsvm_fast.federated.masks import expand_mask

VECTORS = vectors_for(12)
SLICE = 2**14


def place(fold: int) -> int:
    """Where a fold of a text key stands in the space of 28 bits."""
    return sum(((fold >> 8 * byte) & 0x7F) << 7 * byte for byte in range(4))


def around(fold: int) -> NDArray[np.uint32]:
    """Some thousand keys, the given one among them."""
    start = max(0, min(place(fold) - SLICE // 3, 2**28 - SLICE))
    keys = np.concatenate(list(chunks(start, start + SLICE)))
    assert fold in keys
    return keys


def text_fold(key: bytes) -> int:
    return folded(base64.urlsafe_b64encode(key))


def test_masks_of_a_folded_key_give_the_victims_vector_away() -> None:
    """The control: what Flower's own secure aggregation does with its keys."""
    with stock_masks():
        room = observed(VECTORS)
        found = residue(room)
    # Chooses the thousands that are tried; trying all takes minutes.
    vector = search(found, iter([around(text_fold(pair_key(room)))]))
    assert vector is not None
    assert np.array_equal(vector, VECTORS[VICTIM])


def test_the_same_attack_on_our_masks_finds_nothing() -> None:
    room = observed(VECTORS)
    found = residue(room)
    key = pair_key(room)
    # Even with the fold of the right key among those tried. By chance: 2**-34.
    assert search(found, iter([around(text_fold(key))])) is None
    # Control: the whole key, which nobody but its two owners has, does open it.
    mask = expand_mask(key, found.numbers.size).astype(np.int64)
    opened = (found.numbers - found.sign * mask) % MODULUS
    assert np.array_equal((opened + MODULUS // 2) % MODULUS - MODULUS // 2, VECTORS[VICTIM])


def test_the_attack_predicts_the_twister() -> None:
    keys = text_folds(123_456_789, 5)
    first = [np.random.RandomState(int(k)).randint(0, MODULUS - 1, 1, np.int64)[0] for k in keys]
    assert (low_words(keys) == np.array(first) % 2**32).all()


def test_folds_of_text_keys_are_all_in_the_space() -> None:
    folds = text_folds(0, 2**14)
    assert len(set(folds.tolist())) == 2**14
    assert all(place(int(fold)) == i for i, fold in enumerate(folds[:300]))
    assert int(text_folds(2**28 - 1, 1)[0]) == 0x7F7F7F7F


def test_the_benchmark_measures_exact_sums_and_their_traffic() -> None:
    seconds, processor, exact, room = one_sum(3, 50)
    assert exact
    assert min(seconds, processor) > 0.0
    up, down = traffic(room)
    # Three vectors of 50 numbers of 6 bytes, at least; keys and packets both ways.
    assert up > 3 * 50 * 6 / 1e6
    assert down > 1e-3
