"""Masks of the secure sum: a key is expanded with HKDF-SHA256 and ChaCha20.

A masked vector is as safe as the key behind its mask is long. Every bit of the key enters the
stream here; the function that Flower ships folds the key to 32 bits first, and a folded key can
be searched on one core in seconds (``docs/secure_summation.md``).
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from dpsvm_fast._validation import check_integer
from dpsvm_fast.exceptions import InvalidParameterError

__all__ = ["MAX_SIZE", "MIN_KEY_BYTES", "PROTOCOL", "expand_mask"]

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
