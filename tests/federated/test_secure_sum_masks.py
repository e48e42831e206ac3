"""Masks, keys of two parties, and shares: the documented constructions, and what must not pass."""

from __future__ import annotations

import hashlib
import hmac
import struct
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("cryptography", reason="secure sums need it")

from cryptography.exceptions import InvalidTag
from scipy.stats import chi2

from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.federated.masks import (
    PRIME,
    combine_shares,
    create_shares,
    expand_mask,
    new_secret,
    public_key,
    seal,
    shared_key,
    unseal,
)

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


def test_known_answers_from_the_standards() -> None:
    info = f"dpsvm-fast secagg-mask/v1 mask, modulus {M}".encode()
    key = slow_hkdf(KEY, info)
    stream = b"".join(slow_chacha20_block(key, block) for block in range(4))
    expected = [word % M for word in struct.unpack("<32Q", stream)]
    assert expand_mask(KEY, 32).tolist() == expected


@given(bit=st.integers(0, 8 * 44 - 1))
def test_every_bit_of_the_key_changes_the_stream(bit: int) -> None:
    """False alarm below 2**-1000: 64 numbers of 48 bits, about half of the bits change."""
    key = bytearray(b"Zm9sZGVkIGtleXMgYXJlIHNlYXJjaGVkIGluIHNlY29u")
    before = expand_mask(bytes(key), 64)
    key[bit // 8] ^= 1 << bit % 8
    after = expand_mask(bytes(key), 64)
    assert np.count_nonzero(before != after) >= 60


def test_keys_that_fold_to_the_same_word_have_different_masks() -> None:
    """The flaw that this replaces: only the XOR of the key's words entered the mask."""
    key = bytearray(KEY)
    other = bytearray(KEY)
    for word in (0, 4):
        other[word] ^= 0x5A
    folded = [np.bitwise_xor.reduce(np.frombuffer(bytes(k), "<u4")) for k in (key, other)]
    assert folded[0] == folded[1]
    assert (expand_mask(bytes(key), 16) != expand_mask(bytes(other), 16)).all()


def test_global_generators_have_no_part_in_it() -> None:
    np.random.seed(1)  # noqa: NPY002
    first = expand_mask(KEY, 100)
    np.random.seed(2)  # noqa: NPY002
    assert np.array_equal(first, expand_mask(KEY, 100))


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
    numbers = expand_mask(KEY, 200_000)
    assert chi_square(numbers, M) < limit
    assert chi_square((numbers & 255) << 40, M) < limit
    # Negative control: a range that ends early, by one part in fifty.
    assert chi_square(numbers // 50 * 49, M) > limit
    # All residues occur, the largest too.
    assert set((expand_mask(KEY, 1000) & 3).tolist()) == {0, 1, 2, 3}


def test_short_keys_are_refused_and_not_quoted() -> None:
    with pytest.raises(InvalidParameterError) as caught:
        expand_mask(b"short and secret", 1)
    assert caught.value.parameter == "key"
    assert "secret" not in str(caught.value)
    with pytest.raises(InvalidParameterError) as caught:
        expand_mask(KEY, -1)
    assert caught.value.parameter == "size"
    assert expand_mask(KEY, 0).shape == (0,)


# Keys of two parties.


def slow_x25519(private: bytes, point: bytes) -> bytes:
    """The function of RFC 7748, section 5, by the Montgomery ladder."""
    p = 2**255 - 19
    k = int.from_bytes(private, "little") & ~7 & ~(1 << 255) | 1 << 254
    u = int.from_bytes(point, "little") % 2**255
    x2, z2, x3, z3 = 1, 0, u, 1
    for t in reversed(range(255)):
        bit = k >> t & 1
        if bit:
            x2, z2, x3, z3 = x3, z3, x2, z2
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        da, cb = d * a % p, c * b % p
        x3, z3 = (da + cb) ** 2 % p, u * (da - cb) ** 2 % p
        aa, bb = a * a % p, b * b % p
        e = aa - bb
        x2, z2 = aa * bb % p, e * (aa + 121665 * e) % p
        if bit:
            x2, z2, x3, z3 = x3, z3, x2, z2
    return (x2 * pow(z2, -1, p) % p).to_bytes(32, "little")


def test_the_slow_exchange_agrees_with_the_published_one() -> None:
    """RFC 7748, section 5.2, first vector."""
    scalar = "a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4"
    point = "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c"
    result = "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552"
    assert slow_x25519(bytes.fromhex(scalar), bytes.fromhex(point)).hex() == result


def test_keys_of_two_parties_follow_from_the_standards() -> None:
    other = bytes(range(100, 132))
    public = slow_x25519(KEY, (9).to_bytes(32, "little"))
    assert public_key(KEY) == public
    expected = slow_hkdf(slow_x25519(other, public), b"dpsvm-fast secagg-mask/v1 mask")
    assert shared_key(other, public, "mask") == expected


def test_two_parties_agree_and_every_purpose_has_a_key_of_its_own() -> None:
    one, two, three = new_secret(), new_secret(), new_secret()
    agreed = shared_key(one, public_key(two), "mask")
    assert agreed == shared_key(two, public_key(one), "mask")
    others = [
        shared_key(one, public_key(two), "packet"),
        shared_key(one, public_key(three), "mask"),
        shared_key(three, public_key(two), "mask"),
    ]
    assert len({agreed, *others}) == 4


@pytest.mark.parametrize("key", [bytes(32), (1).to_bytes(32, "little"), b"short", b""])
def test_keys_that_nobody_made_honestly_are_refused(key: bytes) -> None:
    with pytest.raises(ValueError):
        shared_key(new_secret(), key, "mask")


@given(packet=st.binary(max_size=200), place=st.integers(0, 10**6), bit=st.integers(0, 7))
def test_a_changed_packet_does_not_open(packet: bytes, place: int, bit: int) -> None:
    sealed = bytearray(seal(KEY, packet))
    assert unseal(KEY, bytes(sealed)) == packet
    sealed[place % len(sealed)] ^= 1 << bit
    with pytest.raises(InvalidTag):
        unseal(KEY, bytes(sealed))


# Shares of a secret.


@given(secret=st.binary(min_size=32, max_size=32), num=st.integers(1, 12), data=st.data())
def test_any_threshold_shares_give_the_secret_back_and_fewer_do_not(
    secret: bytes, num: int, data: st.DataObject
) -> None:
    threshold = data.draw(st.integers(1, num))
    shares = dict(enumerate(create_shares(secret, threshold, num), 1))
    order = data.draw(st.permutations(list(shares)))
    chosen = order[: data.draw(st.integers(threshold, num))]
    assert combine_shares({i: shares[i] for i in chosen}, threshold) == secret
    fewer = {i: shares[i] for i in order[: threshold - 1]}
    with pytest.raises(ValueError):
        combine_shares(fewer, threshold)
    if fewer:
        # Whoever says that fewer are enough gets nothing either. False alarm: 2**-128.
        with pytest.raises(ValueError):
            combine_shares(fewer, len(fewer))


def test_shares_lie_on_a_polynomial_of_the_degree_that_hides() -> None:
    """Differences of order t vanish on 1, 2, ..., and those of order t - 1 do not."""
    values = [int.from_bytes(share, "little") for share in create_shares(b"k" * 32, 4, 9)]
    for order in range(1, 5):
        values = [(b - a) % PRIME for a, b in pairwise(values)]
        assert any(values) == (order < 4)


def test_shares_of_one_secret_differ_from_call_to_call() -> None:
    # False alarm: 2**-521.
    assert create_shares(b"a" * 32, 2, 2) != create_shares(b"a" * 32, 2, 2)


@pytest.mark.parametrize("byte", [0, 30, 65])
def test_a_changed_share_is_noticed(byte: int) -> None:
    shares = dict(enumerate(create_shares(b"s" * 32, 3, 5), 1))
    damaged = bytearray(shares[2])
    damaged[byte] ^= 1
    with pytest.raises(ValueError):
        combine_shares({1: shares[1], 2: bytes(damaged), 3: shares[3]}, 3)
    # At another place it is another share.
    with pytest.raises(ValueError):
        combine_shares({1: shares[1], 2: shares[3], 3: shares[2]}, 3)


def test_shares_of_two_secrets_do_not_combine() -> None:
    one, two = create_shares(b"s" * 32, 2, 3), create_shares(b"t" * 32, 2, 3)
    with pytest.raises(ValueError):
        combine_shares({1: one[0], 2: two[1]}, 2)
    with pytest.raises(ValueError):
        combine_shares({}, 2)


def test_wrong_arguments_are_refused_without_the_secret() -> None:
    secret = b"a secret that nobody must see..."
    for threshold in (0, 4):
        with pytest.raises(InvalidParameterError) as caught:
            create_shares(secret, threshold, 3)
        assert caught.value.parameter == "threshold"
    for wrong in (secret * 2, secret[1:], b""):
        with pytest.raises(InvalidParameterError) as caught:
            create_shares(wrong, 2, 3)
        assert caught.value.parameter == "secret"
        assert "nobody" not in str(caught.value)
