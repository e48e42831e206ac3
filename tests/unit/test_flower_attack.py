"""A curious server and one of three parties: they get a victim's vector from Flower's own masks.

From ours they do not. The attack is ``benches/secure_sum_attack.py``, which searches all 2**28
keys; here it is given a few thousand, the right one among them.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("dpsvm_fast.federated.flower", reason="secure sums need flwr")
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benches.secure_sum import one_sum, traffic
from benches.secure_sum_attack import (
    FACTOR,
    MODULUS,
    VICTIM,
    chunks,
    folded,
    low_words,
    observed,
    pair_key,
    residue,
    search,
    stock_protocol,
    text_folds,
)

from dpsvm_fast.federated.flower.masks import expand_mask
from dpsvm_fast.federated.flower.protocol import check_hardened

VECTORS = np.random.default_rng(0).integers(-1000, 1000, (3, 12))
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


def test_stock_masks_give_the_victims_vector_away() -> None:
    with stock_protocol():
        grid = observed(VECTORS)
        found = residue(grid)
        # Chooses the thousands that are tried; trying all takes minutes.
        keys = around(folded(pair_key(grid)))
    vector = search(found, iter([keys]))
    assert vector is not None
    assert np.array_equal(vector, VECTORS[VICTIM])


def test_the_same_attack_on_our_masks_finds_nothing() -> None:
    check_hardened()
    grid = observed(VECTORS)
    found = residue(grid)
    key = pair_key(grid)
    # Even with the fold of the right key among those tried. By chance: 2**-34.
    assert search(found, iter([around(folded(key))])) is None
    # Control: the whole key, which nobody but its two owners has, does open it.
    mask = expand_mask(key, MODULUS, found.numbers.size)
    opened = (found.numbers - found.sign * mask) % MODULUS
    assert opened[0] == FACTOR
    assert np.array_equal(opened[1:] - 2**29, VECTORS[VICTIM])


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
    seconds, processor, exact, grid = one_sum(3, 50, record=True)
    assert exact
    assert min(seconds, processor) > 0.0
    up, down = traffic(grid)
    # Three vectors of 51 numbers of 8 bytes, at least; keys and packets both ways.
    assert up > 3 * 51 * 8 / 1e6
    assert down > 1e-3
