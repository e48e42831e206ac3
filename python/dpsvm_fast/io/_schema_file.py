"""Schema files: bytes to plain values."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Mapping
from typing import Any

from dpsvm_fast.exceptions import SchemaError

__all__ = ["read_record"]

# A schema of a million columns is smaller.
LARGEST_FILE = 256 * 2**20


def read_record(path: str | os.PathLike[str]) -> Mapping[str, Any]:
    """Return the tree of a TOML or JSON file."""
    name = os.path.basename(os.fspath(path))
    suffix = os.path.splitext(name)[1].lower()
    if suffix not in (".toml", ".json"):
        raise SchemaError(f"{name}: expected a schema file that ends in .toml or .json")
    with open(path, "rb") as file:
        content = file.read(LARGEST_FILE + 1)
    if len(content) > LARGEST_FILE:
        raise SchemaError(f"{name}: expected a schema of at most 256 MiB")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise SchemaError(f"{name}: expected text in UTF-8") from None
    try:
        return _json(text) if suffix == ".json" else _toml(text)
    except (ValueError, RecursionError) as error:
        language = suffix[1:].upper()
        reason = str(error) if isinstance(error, ValueError) else "nested too deeply"
        reason = reason.replace("Cannot overwrite a value", "a key occurs twice")
        raise SchemaError(f"{name}: expected {language}, but: {reason}") from None


def _json(text: str) -> Mapping[str, Any]:
    """JSON whose keys occur once each, and whose numbers are numbers."""
    value = json.loads(text, object_pairs_hook=_once, parse_constant=_refuse_constant)
    if not isinstance(value, dict):
        raise ValueError("expected an object { ... }")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The last of two equal keys would win in silence."""
    record = dict(pairs)
    if len(record) != len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"key {next(key for key in keys if keys.count(key) > 1)!r} occurs twice")
    return record


def _refuse_constant(name: str) -> Any:
    """NaN and infinities."""
    raise ValueError(f"{name} is no number of JSON")


def _toml(text: str) -> Mapping[str, Any]:
    """TOML, by the standard library from Python 3.11 on."""
    for module in ("tomllib", "tomli"):
        try:
            reader = importlib.import_module(module)
        except ImportError:
            continue
        return dict(reader.loads(text))
    raise ImportError(
        'schema files in TOML need tomli with Python 3.10: pip install "dpsvm-fast[cli]", or write '
        "the schema as JSON"
    )
