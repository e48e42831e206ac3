"""Shamir's secret sharing over a prime field large enough for the whole secret.

A polynomial of degree ``threshold - 1`` with uniform coefficients hides the secret at zero: fewer
than ``threshold`` shares are jointly uniform, whatever the secret. One field element holds the
whole secret, and the field's order is a Mersenne prime, so that 100 shares of a key take a
fraction of a millisecond to compute.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from dpsvm_fast._validation import check_integer
from dpsvm_fast.exceptions import InvalidParameterError

__all__ = ["MAX_SECRET_BYTES", "MAX_SHARES", "combine_shares", "create_shares"]

# Exponents e of Mersenne primes 2**e - 1, and with each how many bytes of secret fit beside the
# redundancy below. A 32-byte seed goes into the first, a private key in text form into the third.
_EXPONENTS = (521, 1279, 3217)

# Bytes of a hash of the secret that are shared together with it, and so as well hidden: shares
# that do not belong together, or were damaged, give something whose hash is another.
_CHECK = 16

# Share: version, exponent, threshold, point, length of the secret; then the value.
_HEADER = 10
_VERSION = 1

MAX_SHARES = 2**16 - 1
MAX_SECRET_BYTES = (_EXPONENTS[-1] - 1) // 8 - _CHECK


@dataclass(frozen=True)
class _Share:
    """One share, read: the value of the polynomial at ``point``, with its public frame."""

    exponent: int
    threshold: int
    length: int
    point: int
    value: int

    @property
    def frame(self) -> tuple[int, int, int]:
        """What all shares of a secret have in common."""
        return self.exponent, self.threshold, self.length


def create_shares(secret: bytes, threshold: int, num: int) -> list[bytes]:
    """Split a secret so that any ``threshold`` of ``num`` shares give it back, and fewer nothing.

    Parameters
    ----------
    secret : bytes
        1 to 386 bytes. Its length is public.
    threshold : int
        From 1 to `num`. With 1 every share is as good as the secret.
    num : int
        Shares, up to 65,535.

    Returns
    -------
    list of bytes
        `num` shares of one length, for the points 1 to `num` in this order.
    """
    num = check_integer("num", num, 1, MAX_SHARES)
    threshold = check_integer("threshold", threshold, 1, num)
    if not isinstance(secret, bytes) or not 1 <= len(secret) <= MAX_SECRET_BYTES:
        raise InvalidParameterError(f"secret: expected 1 to {MAX_SECRET_BYTES} bytes")
    padded = secret + _check(secret)
    exponent = next(e for e in _EXPONENTS if 8 * len(padded) < e)
    prime = (1 << exponent) - 1
    coefficients = [secrets.randbelow(prime) for _ in range(threshold - 1)]
    coefficients.append(int.from_bytes(padded, "little"))
    shares = []
    for point in range(1, num + 1):
        value = 0
        # Points are small, so the value grows slowly and is reduced once at the end.
        for coefficient in coefficients:
            value = value * point + coefficient
        share = _Share(exponent, threshold, len(secret), point, value % prime)
        shares.append(_write(share))
    return shares


def combine_shares(share_list: Sequence[bytes]) -> bytes:
    """Give back the secret of at least ``threshold`` shares.

    Parameters
    ----------
    share_list : sequence of bytes
        Shares of one secret, in any order, each at most once.

    Returns
    -------
    bytes
        The secret.

    Raises
    ------
    ValueError
        Too few shares, shares of different secrets, damaged ones. The message is constant.
        Shares damaged by accident pass with probability 2**-128.
    """
    shares = sorted((_read(share) for share in share_list), key=lambda share: share.point)
    if not shares or len({share.frame for share in shares}) != 1:
        raise ValueError("shares: expected shares of one secret")
    exponent, threshold, length = shares[0].frame
    points = tuple(share.point for share in shares)
    if len(shares) < threshold or len(set(points)) != len(points):
        raise ValueError("shares: too few, or one of them twice")
    chosen = shares[:threshold]
    prime = (1 << exponent) - 1
    weights = _weights_at_zero(points[:threshold], exponent)
    padded_value = sum(w * share.value for w, share in zip(weights, chosen, strict=True)) % prime
    n_bytes = length + _CHECK
    if padded_value.bit_length() > 8 * n_bytes:
        raise ValueError("shares: not all of one secret, or damaged")
    padded = padded_value.to_bytes(n_bytes, "little")
    if padded[length:] != _check(padded[:length]):
        raise ValueError("shares: not all of one secret, or damaged")
    return padded[:length]


@lru_cache(maxsize=64)
def _weights_at_zero(points: tuple[int, ...], exponent: int) -> tuple[int, ...]:
    """Lagrange's weights at zero; a round uses the same points for every secret."""
    prime = (1 << exponent) - 1
    weights = []
    for i, own in enumerate(points):
        above, below = 1, 1
        for j, other in enumerate(points):
            if i != j:
                above *= other
                below *= other - own
        weights.append(above * pow(below, -1, prime) % prime)
    return tuple(weights)


def _check(secret: bytes) -> bytes:
    return hashlib.sha256(b"dpsvm-fast share" + secret).digest()[:_CHECK]


def _write(share: _Share) -> bytes:
    header = bytes([_VERSION, _EXPONENTS.index(share.exponent)])
    header += share.threshold.to_bytes(2, "little") + share.point.to_bytes(2, "little")
    header += share.length.to_bytes(4, "little")
    return header + share.value.to_bytes((share.exponent + 7) // 8, "little")


def _read(share: bytes) -> _Share:
    """Read a share and refuse whatever :func:`_write` cannot have written."""
    if not isinstance(share, bytes) or len(share) <= _HEADER or share[0] != _VERSION:
        raise ValueError("shares: a share in another form")
    if share[1] >= len(_EXPONENTS):
        raise ValueError("shares: a share in another form")
    exponent = _EXPONENTS[share[1]]
    read = _Share(
        exponent,
        threshold=int.from_bytes(share[2:4], "little"),
        point=int.from_bytes(share[4:6], "little"),
        length=int.from_bytes(share[6:10], "little"),
        value=int.from_bytes(share[_HEADER:], "little"),
    )
    fits = read.length >= 1 and 8 * (read.length + _CHECK) < exponent
    whole = len(share) == _HEADER + (exponent + 7) // 8 and read.value < (1 << exponent) - 1
    if not (fits and whole and read.point and read.threshold):
        raise ValueError("shares: a share in another form")
    return read
