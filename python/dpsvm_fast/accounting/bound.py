"""Certificates together with the digest of the saved model that they are about."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any

from dpsvm_fast.accounting._certificate import exactly
from dpsvm_fast.exceptions import InvalidParameterError

__all__ = ["BOUND", "bound_certificate", "canonical", "digest_of", "signature_of", "unbound"]

BOUND = "dpsvm_fast.bound_certificate"
FIELDS = {"format", "version", "certificate", "model_sha256", "hmac_sha256"}


def canonical(contents: Mapping[str, Any]) -> bytes:
    """Return what is digested and signed: the same bytes however a file is laid out."""
    text = json.dumps(contents, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.encode("ascii")


def digest_of(model: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a model's class, parameters, numbers and certificate."""
    return hashlib.sha256(canonical(model)).hexdigest()


def bound_certificate(
    certificate: Mapping[str, Any], document: Mapping[str, Any], key: bytes | None = None
) -> dict[str, Any]:
    """Return a certificate together with the digest of a saved model, signed where there is a key.

    Parameters
    ----------
    certificate : mapping
        As of ``to_dict``.
    document : mapping
        What the file of the model holds.
    key : bytes or None, default=None
        Secret of 16 bytes or more, for HMAC-SHA256.
    """
    record: dict[str, Any] = {
        "format": BOUND,
        "version": 1,
        "certificate": dict(certificate),
        "model_sha256": digest_of(document["model"]),
    }
    return record | {"hmac_sha256": None if key is None else signature_of(record, key)}


def unbound(record: Any) -> tuple[Any, Mapping[str, Any] | None]:
    """Return the certificate of a record, and the record itself where it names a model.

    Raises
    ------
    TypeError, InvalidParameterError
        Missing or unknown fields, or another version.
    """
    if not isinstance(record, Mapping) or record.get("format") != BOUND:
        return record, None
    exactly("bound certificate", record, FIELDS)
    if type(record["version"]) is not int or record["version"] != 1:
        raise InvalidParameterError("version: expected 1 of a bound certificate")
    if not isinstance(record["model_sha256"], str):
        raise TypeError("model_sha256: expected a string")
    return record["certificate"], record


def signature_of(record: Mapping[str, Any], key: bytes) -> str:
    """Return the HMAC-SHA256 of everything but the signature, hexadecimal."""
    return hmac.new(key, canonical(record), hashlib.sha256).hexdigest()
