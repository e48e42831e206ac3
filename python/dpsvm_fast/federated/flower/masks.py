"""Masks of the secure sum (HKDF-SHA256 and ChaCha20) and shares of their keys (Shamir).

Shamir's secret sharing over a prime field large enough for the whole secret.

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
from typing import TypeAlias

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.validation import check_integer

# Masks of the secure sum: a key is expanded with HKDF-SHA256 and ChaCha20.
#
# A masked vector is as safe as the key behind its mask is long. Every bit of the key enters the
# stream here; the function that Flower ships folds the key to 32 bits first, and a folded key can
# be searched on one core in seconds (``docs/secure_summation.md``).


Mask: TypeAlias = NDArray[np.int64]

# Named in the key derivation, in every message and in the specification: parties whose masks are
# made in another way must not meet in one sum.
PROTOCOL = "secagg-mask/v1"

# 256 bits; Flower hands over the seed itself or the 44 characters that encode 256 bits.
MIN_KEY_BYTES = 32

# The cipher's block counter has 32 bits: 2**32 blocks of eight words. Far below it.
MAX_SIZE = 2**31

# A key makes one stream only, so that the nonce may be a constant.
_NONCE = bytes(16)


def expand_mask(key: bytes, modulus: int, size: int) -> Mask:
    """Expand a key into numbers that nobody without the key can tell from uniform ones.

    Parameters
    ----------
    key : bytes
        At least 32 bytes with 256 bits of entropy. All of it is used.
    modulus : int
        A power of two from 2 to 2**62.
    size : int
        How many numbers, from 0 to 2**31.

    Returns
    -------
    ndarray of int64, shape (size,)
        Numbers in [0, modulus), each exactly uniform if the stream is: 64 bits of the stream,
        of which the low ones are kept. The same on every machine.

    Notes
    -----
    The derived key depends on the modulus and on the protocol's name. Two sizes give the same
    stream, one longer than the other; a key must therefore mask one vector only.
    """
    size = check_integer("size", size, 0, MAX_SIZE)
    modulus = check_integer("modulus", modulus, 2, 2**62)
    if modulus & (modulus - 1):
        raise InvalidParameterError.of("modulus", got=modulus, accepted="a power of two")
    if not isinstance(key, bytes) or len(key) < MIN_KEY_BYTES:
        # The key itself must not reach a message.
        raise InvalidParameterError(f"key: expected bytes, at least {MIN_KEY_BYTES} of them")
    info = f"dpsvm-fast {PROTOCOL} mask, modulus {modulus}".encode("ascii")
    cipher_key = HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=info).derive(key)
    stream = Cipher(ChaCha20(cipher_key, _NONCE), mode=None).encryptor().update(bytes(8 * size))
    words = np.frombuffer(stream, dtype="<u8") & np.uint64(modulus - 1)
    return np.asarray(words.astype(np.int64))


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
