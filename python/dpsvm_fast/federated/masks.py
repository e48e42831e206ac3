"""Cryptography of the secure sum: shared keys, masks and secret sharing.

Every key and secret has 32 bytes. Pairs of parties agree on a secret by X25519; HKDF-SHA256 derives
one key for each purpose from it; ChaCha20 expands a key into a mask, and ChaCha20-Poly1305 seals
messages between parties through the server.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.federated.secsum import MODULUS
from dpsvm_fast.federated.spec import PROTOCOL
from dpsvm_fast.validation import check_integer

# Numbers modulo 2**64, of which the low 48 bits count.
Words: TypeAlias = NDArray[np.uint64]

KEY_BYTES = 32
# Limit of the cipher's 32-bit block counter: 2**32 blocks of eight words. Far below it.
MAX_SIZE = 2**31


def new_secret() -> bytes:
    """Return 32 bytes from the operating system."""
    return secrets.token_bytes(KEY_BYTES)


def public_key(private: bytes) -> bytes:
    """Return the public half of a private key, which is any 32 bytes."""
    return bytes(X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw())


def shared_key(private: bytes, public: bytes, purpose: str) -> bytes:
    """Return the key that the owners of two key pairs share for one purpose.

    Raises
    ------
    ValueError
        ``public`` is not a valid public key.
    """
    agreed = X25519PrivateKey.from_private_bytes(private).exchange(
        X25519PublicKey.from_public_bytes(public)
    )
    return _derived(agreed, f"dpsvm-fast {PROTOCOL} {purpose}")


def _derived(key: bytes, info: str) -> bytes:
    """Derive one 32-byte key for each text, by HKDF-SHA256 on the whole of ``key``."""
    kdf = HKDF(algorithm=hashes.SHA256(), length=KEY_BYTES, salt=None, info=info.encode("ascii"))
    return bytes(kdf.derive(key))


# A key seals one packet and makes one stream, so the nonces may be constant.


def seal(key: bytes, packet: bytes) -> bytes:
    """Encrypt and authenticate the single packet of a key."""
    return bytes(ChaCha20Poly1305(key).encrypt(bytes(12), packet, None))


def unseal(key: bytes, sealed: bytes) -> bytes:
    """Decrypt a text of :func:`seal`; raise an error if it was changed."""
    return bytes(ChaCha20Poly1305(key).decrypt(bytes(12), sealed, None))


def expand_mask(key: bytes, size: int) -> Words:
    """Expand a key into numbers that look uniform to anyone without the key.

    Parameters
    ----------
    key : bytes
        At least 32 bytes with 256 bits of entropy, all of which are used.
    size : int
        Number of values, from 0 to 2**31.

    Returns
    -------
    ndarray of uint64, shape (size,)
        Numbers below 2**48: the low bits of each 64 bits of the stream, exactly uniform if the
        stream is. The same on every machine.

    Notes
    -----
    Different sizes give prefixes of the same stream, so a key must mask only one vector.
    """
    size = check_integer("size", size, 0, MAX_SIZE)
    if not isinstance(key, bytes) or len(key) < KEY_BYTES:
        # The key itself must not appear in a message.
        raise InvalidParameterError(f"key: expected bytes, at least {KEY_BYTES} of them")
    cipher_key = _derived(key, f"dpsvm-fast {PROTOCOL} mask, modulus {MODULUS}")
    cipher = Cipher(ChaCha20(cipher_key, bytes(16)), mode=None)
    stream = cipher.encryptor().update(bytes(8 * size))
    words = np.frombuffer(stream, dtype="<u8") & np.uint64(MODULUS - 1)
    return np.asarray(words.astype(np.uint64))


# Shamir's secret sharing over a prime field large enough for a secret and its hash.
#
# A polynomial of degree ``threshold - 1`` with uniform coefficients hides its value at zero: fewer
# than ``threshold`` shares are jointly uniform, whatever the secret. The field's order is a
# Mersenne prime, so that 100 shares of a key take a fraction of a millisecond to compute.

PRIME = 2**521 - 1
SHARE_BYTES = 66
# Bytes of a hash of the secret that are shared together with it, and so as well hidden: shares
# that do not belong together, or were damaged, give something whose hash is another.
CHECK_BYTES = 16


def create_shares(secret: bytes, threshold: int, num: int) -> list[bytes]:
    """Split a secret: any ``threshold`` of ``num`` shares restore it, fewer reveal nothing.

    Parameters
    ----------
    secret : bytes
        32 bytes.
    threshold : int
        Number of shares that restore the secret, from 1 to `num`. With 1 every share reveals it.
    num : int

    Returns
    -------
    list of bytes
        `num` shares of 66 bytes, for the points 1 to `num` in order.
    """
    num = check_integer("num", num, 1)
    threshold = check_integer("threshold", threshold, 1, num)
    if not isinstance(secret, bytes) or len(secret) != KEY_BYTES:
        raise InvalidParameterError(f"secret: expected {KEY_BYTES} bytes")
    coefficients = [secrets.randbelow(PRIME) for _ in range(threshold - 1)]
    coefficients.append(int.from_bytes(secret + _check(secret), "little"))
    shares = []
    for point in range(1, num + 1):
        value = 0
        # Points are small, so the value grows slowly and is reduced once at the end.
        for coefficient in coefficients:
            value = value * point + coefficient
        shares.append((value % PRIME).to_bytes(SHARE_BYTES, "little"))
    return shares


def combine_shares(shares: Mapping[int, bytes], threshold: int) -> bytes:
    """Restore the secret from at least ``threshold`` shares.

    Parameters
    ----------
    shares : mapping of int to bytes
        Shares of one secret by point.
    threshold : int
        Threshold with which the shares were made.

    Returns
    -------
    bytes
        The secret.

    Raises
    ------
    ValueError
        There are too few shares, or they are damaged or of different secrets. The message is
        constant. Accidental damage is undetected with probability 2**-128.
    """
    points = tuple(sorted(shares)[:threshold])
    if len(points) < threshold:
        raise InvalidParameterError("shares: too few")
    values = [int.from_bytes(shares[point], "little") for point in points]
    found = sum(w * v for w, v in zip(_weights_at_zero(points), values, strict=True)) % PRIME
    padded = found.to_bytes(SHARE_BYTES, "little")
    secret, rest = padded[:KEY_BYTES], padded[KEY_BYTES:]
    if rest != _check(secret) + bytes(SHARE_BYTES - KEY_BYTES - CHECK_BYTES):
        raise InvalidParameterError("shares: of different secrets, or damaged")
    return secret


@lru_cache(maxsize=64)
def _weights_at_zero(points: tuple[int, ...]) -> tuple[int, ...]:
    """Return Lagrange's weights at zero; a round uses the same points for every secret."""
    weights = []
    for i, own in enumerate(points):
        above, below = 1, 1
        for j, other in enumerate(points):
            if i != j:
                above *= other
                below *= other - own
        weights.append(above * pow(below, -1, PRIME) % PRIME)
    return tuple(weights)


def _check(secret: bytes) -> bytes:
    return hashlib.sha256(b"dpsvm-fast share" + secret).digest()[:CHECK_BYTES]
