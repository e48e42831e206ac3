"""The text of a saved model: strict JSON within limits, its digest and its signature."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any

from dpsvm_fast import _strict_json
from dpsvm_fast.exceptions import ModelFormatError

__all__ = [
    "FORMAT",
    "LARGEST_FILE",
    "NOT_CHECKED",
    "VERSION",
    "check_seals",
    "parsed",
    "sealed_text",
    "shown",
]

FORMAT = "dpsvm_fast.model"
VERSION = 1

# Bytes of a file, most of them of arrays. Larger ones are refused before they are read.
LARGEST_FILE = 1 << 32
DIGEST, SIGNATURE = "sha256", "hmac_sha256"
# What is known of a file's signature once it has been read.
UNSIGNED, NOT_CHECKED, CHECKED = SIGNATURES = ("none", "not checked", "checked")
FIELDS = ("format", "version", "library_version", "model", "schema")

# How files begin that people take for models.
OTHER_FILES = {
    b"\x80": "a pickle; joblib or pickle reads it, and runs the code in it",
    b"PK": "a zip archive, as skops and numpy write them",
    b"\x1f\x8b": "compressed by gzip; decompress it first",
    b"PAR1": "Parquet data",
}


def shown(value: object) -> str:
    """Something from a file for a message: short, and without control characters."""
    if isinstance(value, str):
        value = value[:50]
    if isinstance(value, int) and value.bit_length() > 200:
        return "a long number"
    if isinstance(value, (str, int, float)) or value is None:
        text = ascii(value)
        return text if len(text) <= 40 else f"{text[:40]}..."
    return f"{'an object' if isinstance(value, dict) else 'a list'}"


def parsed(data: bytes) -> dict[str, Any]:
    """The document of a file: format, version and digest are not checked yet.

    Raises
    ------
    ModelFormatError
        Anything but one JSON object within the limits.
    """
    for begin, kind in OTHER_FILES.items():
        if data.startswith(begin):
            raise ModelFormatError(f"is {kind}; expected a file that save_model wrote")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ModelFormatError("is no text; expected a file that save_model wrote") from None
    if not text.strip():
        raise ModelFormatError("is empty; expected a file that save_model wrote")
    try:
        document = _strict_json.loads(text)
    except json.JSONDecodeError as error:
        raise ModelFormatError(_no_json(text, error)) from None
    except ValueError as error:
        raise ModelFormatError(f"{error}; no model does") from None
    if not isinstance(document, dict):
        raise ModelFormatError("holds no JSON object; expected a file that save_model wrote")
    return document


def check_seals(document: Mapping[str, Any], key: bytes | None) -> str:
    """Check format and version, that nothing is missing or added, and that nothing was changed.

    Returns
    -------
    str
        One of ``SIGNATURES``.

    Raises
    ------
    ModelFormatError
    """
    if document.get("format") != FORMAT:
        got = shown(document.get("format"))
        hint = "; a certificate is for verify" if "certificate" in got else ""
        raise ModelFormatError(f"has the format {got}, expected {FORMAT!r}{hint}")
    version = document.get("version")
    if type(version) is not int or version < 1:
        raise ModelFormatError(f"has the version {shown(version)}, expected a whole number from 1")
    if version > VERSION:
        raise ModelFormatError(
            f"was written by a newer dpsvm_fast (format {shown(version)}; this release reads up to "
            f"{VERSION}): pip install --upgrade dpsvm-fast"
        )
    wrong = set(document) ^ {*FIELDS, DIGEST, SIGNATURE}
    wrong -= {SIGNATURE} - set(document)
    if wrong:
        raise ModelFormatError(f"has missing or unknown fields: {_listed(wrong)}")
    text = _canonical({name: document[name] for name in FIELDS})
    if not _same(document[DIGEST], hashlib.sha256(text).hexdigest()):
        raise ModelFormatError(
            "was changed or damaged after it was saved: its contents do not have the SHA-256 that "
            "it states; take the file from where it was saved"
        )
    if key is None:
        return NOT_CHECKED if SIGNATURE in document else UNSIGNED
    if SIGNATURE not in document:
        raise ModelFormatError("is not signed; load it without key, or save it with the key")
    if not _same(document[SIGNATURE], _signature(text, key)):
        raise ModelFormatError(
            "was not signed with this key, or was changed after that; expected the key that it was "
            "saved with"
        )
    return CHECKED


def sealed_text(contents: Mapping[str, Any], key: bytes | None) -> bytes:
    """The file: contents with format and version, digest, and signature if there is a key."""
    document = {"format": FORMAT, "version": VERSION, **contents}
    text = _canonical(document)
    document[DIGEST] = hashlib.sha256(text).hexdigest()
    if key is not None:
        document[SIGNATURE] = _signature(text, key)
    return json.dumps(document, indent=1, allow_nan=False).encode("ascii") + b"\n"


def _canonical(contents: Mapping[str, Any]) -> bytes:
    """What is signed: the same bytes however the file is laid out."""
    try:
        text = json.dumps(contents, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except RecursionError:
        raise ModelFormatError("is nested too deeply; no model is") from None
    return text.encode("ascii")


def _signature(text: bytes, key: bytes) -> str:
    """HMAC-SHA256 of the canonical text, hexadecimal."""
    return hmac.new(key, text, hashlib.sha256).hexdigest()


def _same(stated: object, computed: str) -> bool:
    """Whether two texts are the same, in a time that does not tell where they differ."""
    return isinstance(stated, str) and hmac.compare_digest(
        stated.encode("utf-8", "surrogatepass"), computed.encode()
    )


def _listed(names: set[str]) -> str:
    """A few names from a file."""
    return ", ".join(map(shown, sorted(names)[:5])) + ("" if len(names) <= 5 else ", ...")


def _no_json(text: str, error: json.JSONDecodeError) -> str:
    """What is wrong with the text, as far as one can tell."""
    if not text.lstrip().startswith("{"):
        return "is no JSON; expected a file that save_model wrote"
    if not text.rstrip().endswith("}") or error.pos >= len(text.rstrip()):
        return "ends in the middle of the model: the file was cut off; copy or save it again"
    return f"is no JSON from line {error.lineno} on; take the file from where it was saved"
