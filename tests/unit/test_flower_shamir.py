"""Shares of a secret: any so many give it back, fewer say nothing, wrong ones are noticed."""

from __future__ import annotations

import secrets
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("dpsvm_fast.federated.flower", reason="secure sums need flwr")

from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.federated.flower.masks import MAX_SECRET_BYTES, combine_shares, create_shares


@given(
    secret=st.binary(min_size=1, max_size=MAX_SECRET_BYTES),
    num=st.integers(1, 12),
    data=st.data(),
)
def test_any_threshold_shares_in_any_order_give_the_secret_back(
    secret: bytes, num: int, data: st.DataObject
) -> None:
    threshold = data.draw(st.integers(1, num))
    shares = create_shares(secret, threshold, num)
    chosen = data.draw(st.permutations(shares))[: data.draw(st.integers(threshold, num))]
    assert combine_shares(chosen) == secret


@pytest.mark.parametrize("length", [1, 32, 49, 50, 143, 144, 306, MAX_SECRET_BYTES])
def test_lengths_around_the_fields_sizes(length: int) -> None:
    for secret in (bytes(length), b"\xff" * length, b"\x01" + bytes(length - 1)):
        assert combine_shares(create_shares(secret, 3, 5)[1:4]) == secret


def test_every_choice_of_three_of_six() -> None:
    secret = b"thirty-two bytes of a mask seed!"
    shares = create_shares(secret, 3, 6)
    assert all(combine_shares(list(chosen)) == secret for chosen in combinations(shares, 3))
    for chosen in combinations(shares, 2):
        with pytest.raises(ValueError, match="too few"):
            combine_shares(list(chosen))


def values_of(shares: list[bytes]) -> list[int]:
    """Read the polynomial's values by the documented layout."""
    return [int.from_bytes(share[10:], "little") for share in shares]


def test_shares_lie_on_a_polynomial_of_the_degree_that_hides() -> None:
    """Differences of order t vanish on 1, 2, ..., and those of order t - 1 do not."""
    prime = 2**521 - 1
    values = values_of(create_shares(b"k" * 32, 4, 9))
    for order in range(1, 5):
        values = [(b - a) % prime for a, b in pairwise(values)]
        assert any(values) == (order < 4)


def test_fewer_shares_fit_every_secret() -> None:
    """With t - 1 shares and any other secret there is a polynomial: solve for its next value."""
    prime = 2**521 - 1
    first, second = values_of(create_shares(secrets.token_bytes(32), 3, 3))[:2]
    for other in (0, 1, 2**300 + 7):
        # f(0) = other, f(1), f(2) given: f(3) = f(0) - 3 f(1) + 3 f(2) for degree 2.
        third = (other - 3 * first + 3 * second) % prime
        assert (third - 3 * second + 3 * first) % prime == other % prime


def test_shares_of_one_secret_differ_from_call_to_call() -> None:
    # False alarm: 2**-521.
    assert create_shares(b"a" * 32, 2, 2) != create_shares(b"a" * 32, 2, 2)


@pytest.mark.parametrize("byte", [10, 40, 70])
def test_a_changed_share_is_noticed(byte: int) -> None:
    shares = create_shares(b"s" * 32, 3, 5)
    damaged = bytearray(shares[1])
    damaged[byte] ^= 4
    with pytest.raises(ValueError, match="damaged"):
        combine_shares([shares[0], bytes(damaged), shares[2]])


def test_shares_of_two_secrets_do_not_combine() -> None:
    one, two = create_shares(b"s" * 32, 2, 3), create_shares(b"t" * 32, 2, 3)
    # Either the hash differs, or the value is larger than the secret could be.
    with pytest.raises(ValueError, match="damaged"):
        combine_shares([one[0], two[1]])
    with pytest.raises(ValueError, match="one secret"):
        combine_shares([one[0], create_shares(b"t" * 31, 2, 3)[1]])


def test_a_share_twice_is_no_second_share() -> None:
    shares = create_shares(b"s" * 32, 2, 3)
    with pytest.raises(ValueError, match="twice"):
        combine_shares([shares[0], shares[0]])


@pytest.mark.parametrize(
    "share",
    [
        b"",
        b"\x01",
        bytes(76),
        b"\x02" + bytes(75),
        b"\x01\x07" + bytes(74),
        b"\x01\x00\x02\x00\x00\x00\x20\x00\x00\x00" + bytes(66),
        b"\x01\x00\x02\x00\x01\x00\x00\x00\x00\x00" + bytes(66),
        b"\x01\x00\x00\x00\x01\x00\x20\x00\x00\x00" + bytes(66),
        b"\x01\x00\x02\x00\x01\x00\xff\xff\x00\x00" + bytes(66),
        b"\x01\x00\x02\x00\x01\x00\x20\x00\x00\x00" + b"\xff" * 66,
    ],
)
def test_what_is_no_share_is_refused(share: bytes) -> None:
    with pytest.raises(ValueError, match="another form"):
        combine_shares([share, share])


def test_no_shares_are_refused() -> None:
    with pytest.raises(ValueError, match="one secret"):
        combine_shares([])


def test_wrong_arguments_are_refused_without_the_secret() -> None:
    secret = b"a secret that nobody must see"
    with pytest.raises(InvalidParameterError, match="threshold"):
        create_shares(secret, 4, 3)
    with pytest.raises(InvalidParameterError, match="threshold"):
        create_shares(secret, 0, 3)
    with pytest.raises(InvalidParameterError, match="secret") as caught:
        create_shares(secret * 20, 2, 3)
    assert "nobody" not in str(caught.value)
    with pytest.raises(InvalidParameterError, match="secret"):
        create_shares(b"", 2, 3)
