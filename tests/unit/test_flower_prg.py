"""The mask generator: the documented construction, every bit of the key, uniform numbers."""

from __future__ import annotations

import hashlib
import hmac
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("dpsvm_fast.federated.flower", reason="secure sums need flwr")

from scipy.stats import chi2

from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.federated.flower.masks import expand_mask
from dpsvm_fast.federated.flower.protocol import mask_arrays

KEY = bytes(range(32))
M = 2**48


def slow_hkdf(key: bytes, info: bytes) -> bytes:
    """HKDF-SHA256 (RFC 5869) without salt, 32 bytes, from its definition."""
    extracted = hmac.new(bytes(32), key, hashlib.sha256).digest()
    return hmac.new(extracted, info + b"\x01", hashlib.sha256).digest()


def slow_chacha20_block(key: bytes, counter: int) -> bytes:
    """One block of ChaCha20 (RFC 8439) with nonce 0, from its definition."""
    start = [*struct.unpack("<4I", b"expand 32-byte k"), *struct.unpack("<8I", key), counter]
    start += [0, 0, 0]
    x = list(start)

    def quarter(a: int, b: int, c: int, d: int) -> None:
        for i, j, k, bits in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            x[i] = (x[i] + x[j]) & 0xFFFFFFFF
            turned = x[k] ^ x[i]
            x[k] = ((turned << bits) | (turned >> (32 - bits))) & 0xFFFFFFFF

    for _ in range(10):
        for column in range(4):
            quarter(column, column + 4, column + 8, column + 12)
        for i in range(4):
            quarter(i, (i + 1) % 4 + 4, (i + 2) % 4 + 8, (i + 3) % 4 + 12)
    return struct.pack("<16I", *[(a + b) & 0xFFFFFFFF for a, b in zip(x, start, strict=True)])


def test_the_slow_twin_agrees_with_the_published_block() -> None:
    """RFC 8439, appendix A.1, vector 1: key, nonce and counter 0."""
    assert slow_chacha20_block(bytes(32), 0).hex().startswith("76b8e0ada0f13d90405d6ae55386bd28")


@pytest.mark.parametrize("modulus", [2, 2**32, M, 2**62])
def test_known_answers_from_the_standards(modulus: int) -> None:
    info = f"dpsvm-fast secagg-mask/v1 mask, modulus {modulus}".encode()
    key = slow_hkdf(KEY, info)
    stream = b"".join(slow_chacha20_block(key, block) for block in range(4))
    expected = [word % modulus for word in struct.unpack("<32Q", stream)]
    assert expand_mask(KEY, modulus, 32).tolist() == expected


@given(bit=st.integers(0, 8 * 44 - 1))
def test_every_bit_of_the_key_changes_the_stream(bit: int) -> None:
    """False alarm below 2**-1000: 64 numbers of 48 bits, about half of the bits change."""
    key = bytearray(b"Zm9sZGVkIGtleXMgYXJlIHNlYXJjaGVkIGluIHNlY29u")
    before = expand_mask(bytes(key), M, 64)
    key[bit // 8] ^= 1 << bit % 8
    after = expand_mask(bytes(key), M, 64)
    assert np.count_nonzero(before != after) >= 60


def test_keys_that_fold_to_the_same_word_have_different_masks() -> None:
    """The flaw that this replaces: only the XOR of the key's words entered the mask."""
    key = bytearray(KEY)
    other = bytearray(KEY)
    for word in (0, 4):
        other[word] ^= 0x5A
    folded = [np.bitwise_xor.reduce(np.frombuffer(bytes(k), "<u4")) for k in (key, other)]
    assert folded[0] == folded[1]
    assert (expand_mask(bytes(key), M, 16) != expand_mask(bytes(other), M, 16)).all()


def test_the_modulus_is_part_of_the_derivation() -> None:
    assert (expand_mask(KEY, M, 64) & 1 != expand_mask(KEY, 2 * M, 64) & 1).any()


def test_global_generators_have_no_part_in_it() -> None:
    np.random.seed(1)  # noqa: NPY002
    first = expand_mask(KEY, M, 100)
    np.random.seed(2)  # noqa: NPY002
    assert np.array_equal(first, expand_mask(KEY, M, 100))


# The test below rejects a uniform stream with this probability; its key is fixed, so it either
# always does or never.
FALSE_ALARM = 1e-6


def chi_square(numbers: np.ndarray, modulus: int) -> float:
    """Chi-square of 256 equal bins."""
    counts = np.bincount(numbers // (modulus // 256), minlength=256)
    expected = len(numbers) / 256
    return float(((counts - expected) ** 2 / expected).sum())


def test_numbers_are_uniform_up_to_the_last_one() -> None:
    limit = float(chi2.isf(FALSE_ALARM, 255))
    numbers = expand_mask(KEY, M, 200_000)
    assert chi_square(numbers, M) < limit
    assert chi_square((numbers & 255) << 40, M) < limit
    # Negative control: a range that ends early, by one part in fifty.
    assert chi_square(numbers // 50 * 49, M) > limit
    # All residues occur, the largest too.
    assert set(expand_mask(KEY, 4, 1000).tolist()) == {0, 1, 2, 3}


def test_shapes_are_cut_from_one_stream() -> None:
    parts = mask_arrays(KEY, M, [(1,), (2, 3), (), (0,), (4,)])
    assert [part.shape for part in parts] == [(1,), (2, 3), (), (0,), (4,)]
    together = np.concatenate([part.ravel() for part in parts])
    assert np.array_equal(together, expand_mask(KEY, M, 12))


@pytest.mark.parametrize("modulus", [0, 1, 3, 2**63, 10**6])
def test_a_modulus_that_would_bias_is_refused(modulus: int) -> None:
    with pytest.raises(InvalidParameterError, match="modulus"):
        expand_mask(KEY, modulus, 1)


def test_short_keys_are_refused_and_not_quoted() -> None:
    with pytest.raises(InvalidParameterError, match="key: expected") as caught:
        expand_mask(b"short and secret", M, 1)
    assert "secret" not in str(caught.value)
    with pytest.raises(InvalidParameterError, match="size"):
        expand_mask(KEY, M, -1)
    assert expand_mask(KEY, M, 0).shape == (0,)
