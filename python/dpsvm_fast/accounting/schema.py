"""JSON Schemas of certificates: their fields, types, ranges, units and meanings."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from dpsvm_fast.accounting.federated_statement import caveats_of
from dpsvm_fast.accounting.words import pattern_of, schema_words
from dpsvm_fast.exceptions import InvalidParameterError

__all__ = ["FORMATS", "certificate_schema"]

WORDS = "words.v1"
# Format of a certificate -> file of its schema, and which other files that one refers to.
FORMATS: dict[str, tuple[str, tuple[str, ...]]] = {
    "dpsvm_fast.certificate": ("certificate.v1", ("event.v1", WORDS)),
    "dpsvm_fast.pipeline_certificate": (
        "pipeline_certificate.v1",
        (
            "certificate.v1",
            "selection_certificate.v1",
            "federated_certificate.v1",
            "event.v1",
            WORDS,
        ),
    ),
    "dpsvm_fast.selection_certificate": ("selection_certificate.v1", ("event.v1", WORDS)),
    "dpsvm_fast.federated_certificate": ("federated_certificate.v1", ("event.v1", WORDS)),
    "dpsvm_fast.bound_certificate": (
        "bound_certificate.v1",
        (
            *("certificate.v1", "pipeline_certificate.v1", "selection_certificate.v1"),
            *("federated_certificate.v1", "event.v1", WORDS),
        ),
    ),
}
DRAFT = "https://json-schema.org/draft/2020-12/schema"


def certificate_schema(format: str | None = None) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of certificates, complete in itself.

    Parameters
    ----------
    format : str or None, default=None
        Which kind: "dpsvm_fast.certificate", "dpsvm_fast.pipeline_certificate",
        "dpsvm_fast.selection_certificate", "dpsvm_fast.federated_certificate" or
        "dpsvm_fast.bound_certificate"; None for a schema that certificates of any kind satisfy.

    Returns
    -------
    dict
        A new copy. ``description`` and ``x-unit`` of every field are for people. Readers of this
        library are stricter in what a schema cannot say: whole numbers are written without a
        point, and fields have to fit each other; that is what ``verify`` is for.

    Raises
    ------
    InvalidParameterError
        An unknown format.

    Examples
    --------
    >>> from dpsvm_fast.accounting import certificate_schema
    >>> schema = certificate_schema("dpsvm_fast.certificate")
    >>> schema["properties"]["delta"]["x-unit"]
    'probability'
    """
    if format is None:
        inside = [name for name, _ in FORMATS.values()]
        kinds = [{"$ref": _read(name)["$id"]} for name in inside]
        inside += ["event.v1", WORDS]
        whole: dict[str, Any] = {"$schema": DRAFT, "title": "A certificate", "oneOf": kinds}
    elif format in FORMATS:
        name, refers = FORMATS[format]
        whole, inside = _read(name), list(refers)
    else:
        raise InvalidParameterError.of(
            "format", got=format, accepted="one of " + ", ".join(map(repr, FORMATS)) + " or None"
        )
    # Found there by their own $id.
    bundled = {name: _read(name) for name in inside}
    return whole | {"$defs": whole.get("$defs", {}) | bundled}


def _read(name: str) -> dict[str, Any]:
    """One schema file of the package, or the words of all of them."""
    if name == WORDS:
        return _words()
    path = files("dpsvm_fast.accounting") / "schemas" / f"{name}.json"
    schema: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return schema


def _words() -> dict[str, Any]:
    """What words may say: sentences as they are, and patterns of those with free words inside."""
    both = [
        text for trust in ("secure_sum", "trusted_curator") for text in caveats_of(trust, "records")
    ]
    vocabulary = schema_words() | {"federated_caveat": tuple(dict.fromkeys(both))}
    found = {}
    for name, sentences in vocabulary.items():
        plain = [text for text in sentences if "{" not in text]
        holes = [{"pattern": f"^{pattern_of(text)}$"} for text in sentences if "{" in text]
        choice = {"enum": plain}
        found[name] = {"type": "string"} | ({"anyOf": [choice, *holes]} if holes else choice)
    title = "Words of certificates"
    return {"$schema": DRAFT, "$id": "urn:dpsvm_fast:words:1", "title": title, "$defs": found}
